//! A line of text that crosses from one container to another and back, over plain sockets that are opened inside them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::{Host, guest};

const LINE: &[u8] = b"hello\n";

/// For each step of the way: a packet that is lost is sent again after one second, and after three.
fn patience() -> Duration {
    guest::patience(Duration::from_secs(5))
}

/// Whether a line passes and comes back over TCP, to an address of the container `to` (`""`: the machine itself).
///
/// # Panics
/// If `to` does not have that address.
pub fn tcp(host: &Host, from: &str, to: &str, address: &str) -> bool {
    let server = host.within(to, || TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap());
    let port = server.local_addr().unwrap();
    let Ok(mut client) = host.within(from, || TcpStream::connect_timeout(&port, patience())) else { return false };
    let Ok((mut far, _)) = server.accept() else { return false };
    [&client, &far].iter().for_each(|s| s.set_read_timeout(Some(patience())).unwrap());
    let (mut there, mut back) = ([0; LINE.len()], [0; LINE.len()]);
    let crossed = client.write_all(LINE).and_then(|()| far.read_exact(&mut there));
    let returned = crossed.and_then(|()| far.write_all(&there)).and_then(|()| client.read_exact(&mut back));
    returned.is_ok() && back == LINE
}

/// As [`tcp`], over UDP.
///
/// # Panics
/// If `to` does not have that address.
pub fn udp(host: &Host, from: &str, to: &str, address: &str) -> bool {
    let ip: IpAddr = address.parse().unwrap();
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let server = host.within(to, || UdpSocket::bind((ip, 0)).unwrap());
    let client = host.within(from, || UdpSocket::bind((any, 0)).unwrap());
    [&server, &client].iter().for_each(|s| s.set_read_timeout(Some(patience())).unwrap());
    let (mut there, mut back) = ([0; LINE.len()], [0; LINE.len()]);
    let crossed = client.send_to(LINE, server.local_addr().unwrap()).and_then(|_| server.recv_from(&mut there));
    let returned = crossed.and_then(|(_, sender)| server.send_to(&there, sender)).and_then(|_| client.recv_from(&mut back));
    returned.is_ok() && back == LINE
}
