//! What runs beside the calls of a configuration: the plugin's daemon, and a DHCP server.

use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use netloom_tests::{Host, seen_within};

/// It ends with this.
pub(crate) struct Running(Vec<Child>);

/// Where the server writes down whom it has given an address, in a directory that is looked at.
const LEASES: &str = "/var/lib/dnsmasq.leases";

/// Starts the daemon of a directory's `dhcp` at a socket, and dnsmasq on `srv0`, where the next address is the next one
/// in order, without an end: nothing in the answers is random.
pub(crate) fn start(host: &Host, plugins: &Path, socket: &str) -> Running {
    let mut server = host.command("", "dnsmasq");
    server.args([
        "--no-daemon",
        "--conf-file=/dev/null",
        "--port=0",
        "--no-ping",
        "--user=root",
        "--interface=srv0",
        "--dhcp-sequential-ip",
    ]);
    server.args(["--dhcp-range=10.9.0.50,10.9.0.60,255.255.255.0,infinite", "--dhcp-range=fd00:9::50,fd00:9::60,64,infinite"]);
    server.args(["--dhcp-option=option:dns-server,10.9.0.53", "--dhcp-duid=1,0102030405", "--pid-file=/run/dnsmasq.pid"]);
    server.arg(format!("--dhcp-leasefile={LEASES}"));
    let mut daemon = host.command("", plugins.join("dhcp"));
    daemon.args(["daemon", "-socketpath", socket]);
    let both = [server, daemon].into_iter().map(|mut c| c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()).collect();
    let running = Running(both);
    host.until("server and daemon listen", || host.path(LEASES).exists() && host.path(socket).exists());
    running
}

/// Lets the container answer at port 80 with the address that it sees. Until the test ends.
pub(crate) fn serve(host: &Host) {
    let at = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
    let (tcp, udp) = host.within("c1", || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
    let seen = |from: SocketAddr| format!("{}\n", from.ip().to_canonical());
    std::thread::spawn(move || {
        while let Ok((mut connection, from)) = tcp.accept() {
            let _ = connection.write_all(seen(from).as_bytes());
        }
    });
    std::thread::spawn(move || {
        let mut asked = [0; 16];
        while let Ok((_, from)) = udp.recv_from(&mut asked) {
            let _ = udp.send_to(seen(from).as_bytes(), from);
        }
    });
}

/// Nobody waits for what the server does with the message that gives an address back: it is given time to write it down. Where
/// no such message was sent the lease stays.
pub(crate) fn released(host: &Host) {
    let held = || std::fs::read_to_string(host.path(LEASES)).is_ok_and(|text| text.contains(" 10.9.0.") || text.contains(" fd00:9::"));
    let _ = seen_within(Duration::from_secs(15), held, |held| !held);
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It is the program itself: `nsenter` has replaced itself by it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
