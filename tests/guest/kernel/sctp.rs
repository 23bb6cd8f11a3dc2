//! SCTP through a port of the host: who answers, and as whom it sees who asks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use netloom_tests::{Host, at, guest};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind, connect, listen, socket,
};
use serde_json::{Value, json};

use crate::kernel::links::config;

const HOST4: &str = "192.0.2.1";
const HOST6: &str = "2001:db8::1";
const OUTSIDE4: &str = "192.0.2.2";
const OUTSIDE6: &str = "2001:db8::2";

/// How long an answer is waited for that shall not come: one that comes later is missed, and nothing else.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// A socket for one association at a time, which is read and written as a connection is.
fn sctp(to: SocketAddr) -> OwnedFd {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp).unwrap()
}

fn address(to: SocketAddr) -> Box<dyn SockaddrLike> {
    match to {
        SocketAddr::V4(to) => Box::new(SockaddrIn::from(to)),
        SocketAddr::V6(to) => Box::new(SockaddrIn6::from(to)),
    }
}

/// `c1` answers at a port of one of its addresses with the address that it sees, until the test ends.
fn answer(host: &Host, ip: &str, port: u16) {
    let at = SocketAddr::new(ip.parse().unwrap(), port);
    let listener = host.within("c1", || {
        let socket = sctp(at);
        bind(socket.as_raw_fd(), &*address(at)).unwrap();
        listen(&socket, Backlog::new(5).unwrap()).unwrap();
        TcpListener::from(socket)
    });
    std::thread::spawn(move || {
        while let Ok((mut association, from)) = listener.accept() {
            let _ = association.write_all(format!("c1 {}", from.ip()).as_bytes());
        }
    });
}

/// What a container (`""`: the machine) is told at this address, or why it is told nothing.
fn ask(host: &Host, from: &str, ip: &str, port: u16, patience: Duration) -> String {
    let to = SocketAddr::new(ip.parse().unwrap(), port);
    host.within(from, || {
        let mut stream = TcpStream::from(sctp(to));
        // A connect waits for as long as a send may.
        stream.set_write_timeout(Some(patience)).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        if let Err(e) = connect(stream.as_raw_fd(), &*address(to)) {
            return format!("connect: {e}");
        }
        let mut said = String::new();
        stream.read_to_string(&mut said).map_or_else(|e| format!("read: {e}"), |_| said)
    })
}

fn bridge() -> Value {
    let ranges = json!([[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd88::/64"}]]);
    config(
        "bridge",
        json!({"bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "ipam": {"type": "host-local", "ranges": ranges}}),
    )
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn sctp_goes_through_a_host_port() {
    let host = Host::new();
    host.wire("outside", "wire", [HOST4, HOST6], [OUTSIDE4, OUTSIDE6]);
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    let ports = json!({"runtimeConfig": {"portMappings": [{"hostPort": 9000, "containerPort": 80, "protocol": "sctp"}]}});
    let portmap = config("portmap", ports);
    let result = at(&host, "c1").add(&bridge());
    at(&host, "c2").add(&bridge());
    let given = |verb: &str| {
        let mut config = portmap.clone();
        config["prevResult"] = result.clone();
        let outcome = at(&host, "c1").call(verb, "portmap", config.to_string());
        assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
    };
    given("ADD");
    given("CHECK");
    for ip in netloom_tests::ips(&result) {
        answer(&host, &ip, 80);
    }
    let patience = guest::patience(Duration::from_secs(60));
    for (from, at, seen) in [
        ("outside", HOST4, OUTSIDE4),
        ("outside", HOST6, OUTSIDE6),
        ("", HOST4, HOST4),
        ("", HOST6, HOST6),
        ("", "127.0.0.1", "10.88.0.1"),
        ("c2", HOST4, "10.88.0.1"),
        ("c2", HOST6, "fd88::1"),
        ("c1", HOST4, "10.88.0.1"),
        ("c1", HOST6, "fd88::1"),
    ] {
        assert_eq!(ask(&host, from, at, 9000, patience), format!("c1 {seen}"), "from {from:?} to {at}");
    }
    given("DEL");
    for at in [HOST4, HOST6] {
        let said = ask(&host, "outside", at, 9000, IMPATIENCE);
        assert!(said.starts_with("connect: "), "after DEL, at {at}: {said}");
    }
    assert!(!host.sh("", "nft list table inet netloom").contains(" comment \"net/c1/"));
}
