//! Where IPVS takes connections for Services, as the kernel lists its virtual servers: kube-proxy in mode IPVS makes one of each address
//! and port of a Service, and of each address of the node with a NodePort. Nobody listens there.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use npwg::Protocol;

const TABLE: &str = "/proc/thread-self/net/ip_vs";

/// Links that have the addresses of Services, by the names that kube-proxy and kube-router give them.
pub(super) const LINKS: &[&str] = &["kube-ipvs0", "kube-dummy-if"];

/// Where connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VirtualServer {
    protocol: Protocol,
    pub(super) address: IpAddr,
    /// 0: each.
    port: u16,
}

/// Those of this machine; else why they cannot be read.
pub(crate) fn all() -> Result<Vec<VirtualServer>, String> {
    table()?.map_or_else(|| Ok(Vec::new()), |table| servers_of(table).collect())
}

/// Whether there is one; else why that cannot be read.
pub(crate) fn is_any() -> Result<bool, String> {
    table()?.and_then(|table| servers_of(table).next()).transpose().map(|first| first.is_some())
}

/// The kernel's list, which also has each endpoint of each server; `None` in a kernel in which nobody uses IPVS.
fn table() -> Result<Option<BufReader<File>>, String> {
    match File::open(TABLE) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unread(&e)),
    }
}

fn servers_of(table: impl BufRead) -> impl Iterator<Item = Result<VirtualServer, String>> {
    table.lines().filter_map(|line| line.map(|line| VirtualServer::of_line(&line)).map_err(|e| unread(&e)).transpose())
}

fn unread(e: &std::io::Error) -> String {
    format!("{TABLE} cannot be read: {e}")
}

// === impl VirtualServer ===

impl VirtualServer {
    /// In a line of `/proc/net/ip_vs` (net/netfilter/ipvs/ip_vs_ctl.c). Those that are known by a mark of the firewall have no address.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let protocol = match words.next()? {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => return None,
        };
        let (address, port) = words.next()?.rsplit_once(':')?;
        let address = match address.strip_prefix('[').and_then(|address| address.strip_suffix(']')) {
            Some(v6) => IpAddr::V6(v6.parse::<Ipv6Addr>().ok()?),
            None => IpAddr::V4(Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?)),
        };
        Some(VirtualServer { protocol, address, port: u16::from_str_radix(port, 16).ok()? })
    }

    /// Whether what is published at `ip`, or where it is unspecified at all of its family, is published here.
    pub(super) fn is_at(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> bool {
        let is_here = |ip: IpAddr| self.address == ip || ip.is_unspecified() && self.address.is_ipv4() == ip.is_ipv4();
        self.protocol == protocol && [0, port].contains(&self.port) && ip.is_none_or(|ip| is_here(ip.to_canonical()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// As a node has it whose kube-proxy has `mode: ipvs`: a Service, a NodePort, one of IPv6.
    const TEXT: &str = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr\x20
  -> C0A8010A:192B      Masq    1      3          0        \x20
TCP  C0A80114:7A31 rr persistent 10800 FFFFFFFF
UDP  0A60000A:0035 rr\x20
  -> 0AF40002:0035      Masq    1      0          12       \x20
SCTP [fd00:0010:0096:0000:0000:0000:0000:000a]:0050 rr\x20
  -> [fd00:0010:0244:0000:0000:0000:0000:0002]:0050      Masq    1      0          0
FWM  00000005 wlc\x20
TCP  CB007107:0000 sh\x20
";

    #[test]
    fn as_the_kernel_lists_them() {
        let of = |protocol, address: &str, port| VirtualServer { protocol, address: address.parse().unwrap(), port };
        let read: Vec<VirtualServer> = servers_of(TEXT.as_bytes()).collect::<Result<_, _>>().unwrap();
        let expected = [
            of(Protocol::Tcp, "10.96.0.1", 443),
            of(Protocol::Tcp, "192.168.1.20", 31281),
            of(Protocol::Udp, "10.96.0.10", 53),
            of(Protocol::Sctp, "fd00:10:96::a", 80),
            of(Protocol::Tcp, "203.0.113.7", 0),
        ];
        assert_eq!(read, expected);
        let is_at =
            |number: usize, port: u16, protocol, ip: Option<&str>| read[number].is_at(port, protocol, ip.map(|ip| ip.parse().unwrap()));
        for ip in [None, Some("192.168.1.20"), Some("::ffff:192.168.1.20"), Some("0.0.0.0")] {
            assert!(is_at(1, 31281, Protocol::Tcp, ip), "{ip:?}");
        }
        assert!(!is_at(1, 31281, Protocol::Tcp, Some("::")) && !is_at(1, 31281, Protocol::Tcp, Some("192.168.1.21")));
        assert!(!is_at(1, 31281, Protocol::Udp, None) && !is_at(1, 31282, Protocol::Tcp, None));
        assert!(is_at(4, 9, Protocol::Tcp, Some("203.0.113.7")), "a server of all ports");
        assert_eq!(all().map(|all| !all.is_empty()), is_any());
        // No more is read than is asked for: what is behind the first server is not text.
        let mut first = servers_of(BufReader::with_capacity(16, TEXT.as_bytes().chain(&b"\xff\n"[..])));
        assert_eq!(first.next(), Some(Ok(expected[0])));
        assert!(first.last().is_some_and(|last| last.is_err()));
    }
}
