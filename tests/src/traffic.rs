//! A line of text that passes and comes back.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::Host;

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

    /// As [`Host::tcp`], over UDP, where what is lost is sent again.
    ///
    /// # Panics
    /// As there.
    pub fn udp(&self, from: &str, to: &str, address: &str) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let server = self.within(to, || UdpSocket::bind((ip, 0)).unwrap());
        let client = self.within(from, || UdpSocket::bind((any, 0)).unwrap());
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
}
