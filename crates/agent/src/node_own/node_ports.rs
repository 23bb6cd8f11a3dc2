//! NodePorts as kube-proxy in mode nftables has them: keys of a map, whose values are chains (pkg/proxy/nftables/proxier.go).
//!
//! ```text
//!   table ip kube-proxy { map service-nodeports { type inet_proto . inet_service : verdict; } }       and the same in ip6
//! ```

use linux::nft::{Element, Family, ReadError, SetElement, Socket};
use npwg::Protocol;

const TABLE: &str = "kube-proxy";
const MAP: &str = "service-nodeports";

/// Whether a port of the node leads to a Service, of either family. Nobody's map, nobody's port.
pub(super) fn is_there(nft: &mut Socket, port: u16, protocol: Protocol) -> Result<bool, ReadError> {
    Ok(nft.find(&[Family::Ip, Family::Ip6].map(|family| element(family, port, protocol)))?.iter().any(Option::is_some))
}

/// The key of a port: two fields, each filled up to four bytes.
fn element(family: Family, port: u16, protocol: Protocol) -> SetElement {
    // IPPROTO_*, linux/in.h.
    let number = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    let [high, low] = port.to_be_bytes();
    let element = Element { key: vec![number, 0, 0, 0, high, low, 0, 0], key_end: None, data: None, comment: None, note: None };
    SetElement { family, table: TABLE.to_owned(), set: MAP.to_owned(), element }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use linux::{Inside, Netns};

    use super::*;

    /// As a node has it whose kube-proxy has `mode: nftables`.
    const RULES: &str = "
table ip kube-proxy {
    chain external-EXTERNAL-a { accept
    }
    map service-nodeports { type inet_proto . inet_service : verdict
        elements = { tcp . 30080 : goto external-EXTERNAL-a, udp . 30053 : goto external-EXTERNAL-a }
    }
}
table ip6 kube-proxy {
    chain external-EXTERNAL-b { accept
    }
    map service-nodeports { type inet_proto . inet_service : verdict
        elements = { sctp . 30132 : goto external-EXTERNAL-b }
    }
}
";

    #[test]
    fn ports_as_kube_proxy_writes_them() {
        let here = |inside: &Inside| {
            let mut nft = Socket::open(inside).unwrap();
            assert_eq!(is_there(&mut nft, 30080, Protocol::Tcp), Ok(false), "no such table");
            let mut program = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            program.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
            assert!(program.wait().unwrap().success());
            for (port, protocol, expected) in [
                (30080, Protocol::Tcp, true),
                (30053, Protocol::Udp, true),
                (30132, Protocol::Sctp, true),
                (30080, Protocol::Udp, false),
                (30132, Protocol::Tcp, false),
                (30081, Protocol::Tcp, false),
            ] {
                assert_eq!(is_there(&mut nft, port, protocol), Ok(expected), "{port} {protocol:?}");
            }
        };
        Netns::unnamed().unwrap().enter(here).unwrap();
    }
}
