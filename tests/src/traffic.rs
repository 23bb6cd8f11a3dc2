//! A line of text that passes and comes back; and somebody who answers with his name, and with the address that he sees.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Host, seen_within};

/// How long a connection, or an answer, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const LINE: &[u8; 6] = b"hello\n";

impl Host {
    /// Whether a line passes over TCP to an address of a container (`""`: of the machine), and back.
    ///
    /// # Panics
    /// If nobody can listen at the address there.
    pub fn tcp(&self, from: &str, to: &str, address: &str) -> bool {
        let server = self.within(to, || TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap());
        let port = server.local_addr().unwrap();
        let Ok(mut client) = self.within(from, || TcpStream::connect_timeout(&port, PATIENCE)) else { return false };
        let (mut far, _) = server.accept().unwrap();
        [&client, &far].iter().for_each(|end| end.set_read_timeout(Some(PATIENCE)).unwrap());
        let mut line = [0; LINE.len()];
        client.write_all(LINE).unwrap();
        far.read_exact(&mut line).unwrap();
        far.write_all(&line).unwrap();
        client.read_exact(&mut line).is_ok() && &line == LINE
    }

    /// Sends so many bytes over TCP to an address of a container, and waits until all have come.
    ///
    /// # Panics
    /// If they do not.
    pub fn carries(&self, from: &str, to: &str, address: &str, bytes: u64) {
        let server = self.within(to, || TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap());
        let port = server.local_addr().unwrap();
        let mut client = self.within(from, || TcpStream::connect_timeout(&port, PATIENCE)).unwrap();
        let mut far = server.accept().unwrap().0;
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = std::thread::spawn(move || std::io::copy(&mut std::io::repeat(7).take(bytes), &mut client).unwrap());
        assert_eq!(std::io::copy(&mut far, &mut std::io::sink()).unwrap(), bytes);
        sender.join().unwrap();
    }

    /// Whether one of three datagrams from an address of a container reaches an address of another one, as that one's.
    ///
    /// # Panics
    /// If an address is not there.
    pub fn arrives(&self, (from, source): (&str, &str), (to, destination): (&str, &str)) -> bool {
        let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
        // Any address, and a port that the kernel chooses: a process that is just being started holds the receiver of before for a moment.
        let receiver = self.within(to, || UdpSocket::bind((any_of(destination), 0)).unwrap());
        let port = receiver.local_addr().unwrap().port();
        receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let sender = self.within(from, || UdpSocket::bind((source, 0)).unwrap());
        for _ in 0..3 {
            sender.send_to(LINE, (destination, port)).unwrap();
        }
        receiver.recv_from(&mut [0; LINE.len()]).is_ok_and(|(_, by)| by.ip() == source)
    }

    /// As [`Host::tcp`], over UDP, where what is lost is sent again.
    ///
    /// # Panics
    /// As there.
    pub fn udp(&self, from: &str, to: &str, address: &str) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        let server = self.within(to, || UdpSocket::bind((ip, 0)).unwrap());
        let client = self.within(from, || UdpSocket::bind((any_of(ip), 0)).unwrap());
        [&server, &client].iter().for_each(|socket| socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap());
        let answered = || {
            let mut line = [0; LINE.len()];
            client.send_to(LINE, server.local_addr().unwrap()).ok()?;
            let (_, sender) = server.recv_from(&mut line).ok()?;
            server.send_to(&line, sender).ok()?;
            client.recv_from(&mut line).ok()?;
            Some(&line == LINE)
        };
        (0..PATIENCE.as_secs()).find_map(|_| answered()).unwrap_or(false)
    }

    /// Lets a container (`""`: the machine) answer TCP and UDP at an address and port with this name and the address that it
    /// sees, until the test ends. `::` is all addresses of both families.
    ///
    /// # Panics
    /// If somebody else listens there.
    pub fn answer_at(&self, place: &str, name: &str, address: &str, port: u16) {
        let at = SocketAddr::new(address.parse().unwrap(), port);
        let (tcp, udp) = self.within(place, || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()));
        let line = |name: &str, from: SocketAddr| format!("{name} {}\n", from.ip().to_canonical());
        let [of_tcp, of_udp] = [name.to_owned(), name.to_owned()];
        std::thread::spawn(move || {
            while let Ok((mut connection, from)) = tcp.accept() {
                let _ = connection.write_all(line(&of_tcp, from).as_bytes());
            }
        });
        std::thread::spawn(move || {
            let mut asked = [0; 16];
            while let Ok((length, from)) = udp.recv_from(&mut asked) {
                let question = String::from_utf8_lossy(&asked[..length]).into_owned();
                let _ = udp.send_to((question + " " + &line(&of_udp, from)).as_bytes(), from);
            }
        });
    }

    /// Who answers a container that connects to this address, and as whom it is seen; or why nobody does, in so much time.
    pub fn ask_tcp(&self, from: &str, address: &str, port: u16, patience: Duration) -> std::io::Result<String> {
        let to = SocketAddr::new(address.parse().unwrap(), port);
        let mut stream = self.within(from, || TcpStream::connect_timeout(&to, patience))?;
        stream.set_read_timeout(Some(patience))?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map(|_| said.trim().to_owned())
    }

    /// As [`Host::ask_tcp`], as long as a busy machine may take. A bridge that is new has no IPv6 address to look for a neighbour by
    /// before its own has been looked for, and says meanwhile that there is no way.
    pub fn told_over_tcp(&self, from: &str, address: &str, port: u16) -> String {
        let no_way = |told: &std::io::Result<String>| told.as_ref().is_err_and(|e| e.kind() == ErrorKind::HostUnreachable);
        let told = seen_within(PATIENCE / 3, || self.ask_tcp(from, address, port, PATIENCE), |told| !no_way(told));
        told.unwrap_or_else(|told| told).unwrap_or_else(|e| format!("{e}"))
    }

    /// As [`Host::told_over_tcp`], over UDP: what is lost is sent again.
    pub fn told_over_udp(&self, from: &str, address: &str, port: u16) -> String {
        let to = SocketAddr::new(address.parse().unwrap(), port);
        let socket = self.within(from, || UdpSocket::bind((any_of(to.ip()), 0)).unwrap());
        answer_to(&socket, to, 60).unwrap_or_else(|| "nobody answers".to_owned())
    }

    /// A container that a veth pair joins to the machine, `link` there and `eth0` in it, over which it routes everything. The
    /// addresses are the machine's and the container's, IPv4 (/24) and IPv6 (/64).
    pub fn wire(&self, name: &str, link: &str, near: [&str; 2], far: [&str; 2]) {
        self.container(name);
        self.sh("", &format!("ip link add {link} type veth peer name eth0 netns {name}"));
        for (place, dev, [v4, v6]) in [("", link, near), (name, "eth0", far)] {
            self.sh(place, &format!("ip addr add {v4}/24 dev {dev}"));
            self.sh(place, &format!("ip -6 addr add {v6}/64 dev {dev} nodad"));
            self.sh(place, &format!("ip link set {dev} up"));
        }
        self.sh(name, &format!("ip route add default via {}", near[0]));
        self.sh(name, &format!("ip -6 route add default via {}", near[1]));
    }
}

fn any_of(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// What comes back over a socket, where so many seconds are long enough. A question has its number in it: an answer to an older
/// one may be on its way.
pub fn answer_to(socket: &UdpSocket, to: SocketAddr, seconds: u32) -> Option<String> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let ask = || {
        let question = format!("{} ", ASKED.fetch_add(1, Ordering::Relaxed));
        let mut said = [0; 100];
        socket.send_to(question.trim().as_bytes(), to).ok()?;
        loop {
            let (length, _) = socket.recv_from(&mut said).ok()?;
            let said = String::from_utf8_lossy(&said[..length]).into_owned();
            if let Some(said) = said.strip_prefix(&question) {
                return Some(said.trim().to_owned());
            }
        }
    };
    (0..seconds).find_map(|_| ask())
}
