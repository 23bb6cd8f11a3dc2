//! What joins a container to its host alone, or to nothing: `ptp`, `host-device`, `tap`, `loopback`, as `ip`, packets and
//! programs see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host_device;
mod loopback;
mod ptp;
mod tap;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use netloom_tests::{Cni, Host, plugin_dir};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn config(kind: &str, keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": kind});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

fn at<'h>(host: &'h Host, container: &str) -> Cni<'h> {
    host.cni(plugin_dir()).at(container, "eth0")
}

/// The addresses of a result without their prefix lengths.
fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

/// Whether a line of text passes and comes back over TCP.
fn tcp(host: &Host, from: &str, to: &str, address: &str) -> bool {
    let server = host.within(to, || TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap());
    let port = server.local_addr().unwrap();
    let client = host.within(from, || TcpStream::connect_timeout(&port, PATIENCE));
    let (Ok(mut client), Ok((mut far, _))) = (client, server.accept()) else { return false };
    let mut line = [0; 6];
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"hello\n").unwrap();
    far.read_exact(&mut line).unwrap();
    far.write_all(&line).unwrap();
    client.read_exact(&mut line).is_ok() && &line == b"hello\n"
}

/// As [`tcp`], over UDP.
fn udp(host: &Host, from: &str, to: &str, address: &str) -> bool {
    let ip: IpAddr = address.parse().unwrap();
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let server = host.within(to, || UdpSocket::bind((ip, 0)).unwrap());
    let client = host.within(from, || UdpSocket::bind((any, 0)).unwrap());
    let mut line = [0; 6];
    [&server, &client].iter().for_each(|s| s.set_read_timeout(Some(PATIENCE)).unwrap());
    client.send_to(b"hello\n", server.local_addr().unwrap()).unwrap();
    let Ok((_, sender)) = server.recv_from(&mut line) else { return false };
    server.send_to(&line, sender).unwrap();
    client.recv_from(&mut line).is_ok() && &line == b"hello\n"
}
