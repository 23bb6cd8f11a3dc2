//! Who listens on a port of the node, as the kernel lists its sockets.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use npwg::Protocol;

/// Ports that are a node's own whether or not somebody listens at this moment.
const WELL_KNOWN: &[(u16, &str)] = &[
    (22, "the port of SSH"),
    (2379, "the port of etcd"),
    (2380, "the port of etcd"),
    (6443, "the port of the API server"),
    (10250, "the port of the kubelet"),
    (10256, "the port of kube-proxy"),
    (10257, "the port of the controller manager"),
    (10259, "the port of the scheduler"),
];

/// Reads a line of a table: where a socket listens.
type Line = fn(&str) -> Option<(IpAddr, u16)>;

/// The addresses at which programs listen on a port, by port; else why they cannot be read.
type Sockets = Result<BTreeMap<u16, BTreeSet<IpAddr>>, String>;

/// The node's sockets that listen. Each protocol's are read when the first port of it is asked for: a node may have as many sockets as a pod
/// has ports.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    tcp: OnceCell<Sockets>,
    udp: OnceCell<Sockets>,
    sctp: OnceCell<Sockets>,
}

// === impl Listeners ===

impl Listeners {
    /// Who listens on a port, in words. `ip`: on this address, or where it is unspecified on all of its family.
    pub(super) fn who(&self, port: u16, protocol: Protocol, ip: Option<IpAddr>) -> Option<String> {
        if protocol == Protocol::Tcp
            && let Some((_, whose)) = WELL_KNOWN.iter().find(|(own, _)| *own == port)
        {
            return Some((*whose).to_owned());
        }
        let sockets = match protocol {
            Protocol::Tcp => self.tcp.get_or_init(|| read(&["tcp", "tcp6"], listener)),
            Protocol::Udp => self.udp.get_or_init(|| read(&["udp", "udp6"], listener)),
            Protocol::Sctp => self.sctp.get_or_init(|| read(&["sctp/eps"], endpoint)),
        };
        match sockets {
            Ok(sockets) => {
                let is_listened_at = sockets.get(&port)?.iter().any(|own| meets(*own, ip));
                is_listened_at.then(|| "on which a program of the node listens".to_owned())
            }
            Err(e) => Some(format!("on which a program of the node may listen ({e})")),
        }
    }
}

fn read(tables: &[&str], line: Line) -> Sockets {
    let mut sockets = BTreeMap::<u16, BTreeSet<IpAddr>>::new();
    for table in tables {
        let path = format!("/proc/thread-self/net/{table}");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                for (ip, port) in text.lines().filter_map(line) {
                    sockets.entry(port).or_default().insert(ip);
                }
            }
            // A kernel without IPv6, or without SCTP.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{path} cannot be read: {e}")),
        }
    }
    Ok(sockets)
}

/// Whether what is published at `ip` no longer reaches who listens at `own`. A socket of IPv6 at no address may be one of both families.
fn meets(own: IpAddr, ip: Option<IpAddr>) -> bool {
    let Some(ip) = ip.map(|ip| ip.to_canonical()) else { return true };
    own.is_unspecified() || own == ip || (ip.is_unspecified() && ip.is_ipv4() == own.is_ipv4())
}

/// A socket that listens, or of UDP one that is connected to nobody, in a line of `/proc/net/tcp` and its like (proc_net(5)).
fn listener(line: &str) -> Option<(IpAddr, u16)> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    let state = words.nth(1)?;
    // TCP_LISTEN and, of UDP, TCP_CLOSE (include/net/tcp_states.h).
    if !matches!(state, "0A" | "07") {
        return None;
    }
    // Words of 32 bits in the order of this machine's bytes.
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?);
            v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

/// An endpoint of SCTP that listens, in a line of `/proc/net/sctp/eps` (net/sctp/proc.c): `ENDPT SOCK STY SST HBKT LPORT UID INODE
/// LADDRS`. One with several addresses counts as at all.
fn endpoint(line: &str) -> Option<(IpAddr, u16)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (state, port) = (words.get(3)?, words.get(5)?.parse().ok()?);
    // SCTP_SS_LISTENING (include/net/sctp/constants.h).
    if *state != "10" {
        return None;
    }
    let ip = match words.get(8..) {
        Some([one]) => one.trim_start_matches('*').parse::<IpAddr>().ok().map(|ip| ip.to_canonical()),
        _ => None,
    };
    Some((ip.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn who_listens_here() {
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        let (tcp, udp) = (tcp.local_addr().map(|a| (a.port(), tcp)).unwrap(), udp.local_addr().map(|a| (a.port(), udp)).unwrap());
        let who = |port, protocol, ip| Listeners::default().who(port, protocol, ip);
        for met in [None, ip("127.0.0.1"), ip("0.0.0.0"), ip("::ffff:127.0.0.1"), ip("::ffff:0.0.0.0")] {
            assert!(who(tcp.0, Protocol::Tcp, met).is_some(), "{met:?}");
        }
        for other in ["192.0.2.1", "::ffff:192.0.2.1", "::1"] {
            assert_eq!(who(tcp.0, Protocol::Tcp, ip(other)), None, "{other}");
        }
        assert!(who(udp.0, Protocol::Udp, None).is_some() && who(udp.0, Protocol::Udp, ip("::")).is_some());
        assert_eq!(who(10250, Protocol::Tcp, None).as_deref(), Some("the port of the kubelet"));
    }

    /// A pod asks for many ports, and a node has many sockets.
    #[test]
    fn sockets_are_read_once() {
        let listeners = Listeners::default();
        assert_eq!(listeners.who(1, Protocol::Udp, None), None);
        let later = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = later.local_addr().unwrap().port();
        assert_eq!(listeners.who(port, Protocol::Udp, None), None, "not in what was read before");
        assert!(Listeners::default().who(port, Protocol::Udp, None).is_some());
    }

    #[test]
    fn what_is_published_at_an_address_meets_who_listens_at_all() {
        let meets = |own: &str, at: &str| meets(own.parse().unwrap(), ip(at));
        assert!(meets("0.0.0.0", "192.0.2.1") && meets("::", "192.0.2.1") && meets("::", "0.0.0.0") && meets("2001:db8::1", "::"));
        assert!(meets("192.0.2.1", "0.0.0.0") && meets("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!meets("192.0.2.1", "::") && !meets("2001:db8::1", "0.0.0.0") && !meets("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn sockets_as_the_kernel_lists_them() {
        let line = "   0: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert_eq!(listener(line), Some((IpAddr::V4(Ipv4Addr::LOCALHOST), 0x277)));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&established), None);
        let six = "  1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1";
        assert_eq!(listener(six), Some((IpAddr::V6(Ipv6Addr::LOCALHOST), 8080)));
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn endpoints_as_the_kernel_lists_them() {
        assert_eq!(endpoint(" ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS"), None);
        let line = "00000000 00000000 2   10  29   5000      0 25911 127.0.0.1 ";
        assert_eq!(endpoint(line), Some((IpAddr::V4(Ipv4Addr::LOCALHOST), 5000)));
        assert_eq!(endpoint(&line.replace(" 10 ", " 7  ")), None, "it does not listen");
        let (several, six) = (format!("{line}192.0.2.1 "), line.replace("127.0.0.1", "0000:0000:0000:0000:0000:0000:0000:0001"));
        assert_eq!(endpoint(&several), Some((IpAddr::V6(Ipv6Addr::UNSPECIFIED), 5000)));
        assert_eq!(endpoint(&six), Some((IpAddr::V6(Ipv6Addr::LOCALHOST), 5000)));
    }
}
