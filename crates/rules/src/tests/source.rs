//! Strict sources: what is installed, what real frames meet, and what the counter says.

use crate::{
    Meaning, SPOOF_GUARD, STRICT_SOURCE, meanings, of_container, spoof_guard, stale, strict, strict_address, strict_port, strict_source,
};

use super::*;

/// What the rules are, in the words of `nft`; but one, which looks up a target that this `nft` has no word for.
const STRICT: &str = r#"table bridge netloom {
    comment "netloom, layout 1"
    set sources4 { type ifname . ipv4_addr; }
    set sources6 { type ifname . ipv6_addr; }
    set strict { type ifname; counter; }
    chain strict-source {
        type filter hook prerouting priority -299; policy accept;
        meta protocol ip iifname . ip saddr @sources4 return
        meta protocol arp iifname . arp saddr ip @sources4 return
        meta protocol ip6 iifname . ip6 saddr @sources6 return
        meta protocol ip ip saddr 0.0.0.0 return
        meta protocol ip ip saddr 169.254.0.0/16 return
        meta protocol arp arp saddr ip 0.0.0.0 return
        meta protocol arp arp saddr ip 169.254.0.0/16 return
        meta protocol ip6 ip6 saddr :: return
        meta protocol ip6 ip6 saddr fe80::/10 return
        meta protocol != ip meta protocol != arp meta protocol != ip6 meta protocol != 8021q meta protocol != 8021ad return
        iifname @strict drop
    }
}"#;

fn of(container: &str, port: &str, addresses: &[&str]) -> Vec<SetElement> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    strict_source(&id("lab", container), &IfName::parse(port).unwrap(), &addresses)
}

#[test]
fn an_element_an_address_and_one_a_port() {
    let all = of("c1", "veth1", &["10.1.0.5", "fd01::5", "10.1.0.5"]);
    let port = "76657468310000000000000000000000";
    let expected = [
        format!("bridge netloom sources4 {port}0a010005 lab/c1/eth0"),
        format!("bridge netloom sources6 {port}fd010000000000000000000000000005 lab/c1/eth0"),
        format!("bridge netloom strict {port} lab/c1/eth0"),
    ];
    assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    assert!(all.iter().all(|e| strict_port(e).as_deref() == Some("veth1")));
    let addresses: Vec<Option<IpAddr>> = all.iter().map(strict_address).collect();
    assert_eq!(addresses, [Some("10.1.0.5".parse().unwrap()), Some("fd01::5".parse().unwrap()), None]);
    // Those of the spoof guard are none of these.
    let guard = spoof_guard(&id("lab", "c1"), &IfName::parse("veth1").unwrap(), &"02:00:00:00:00:01".parse().unwrap());
    assert!(guard.iter().all(|e| strict_port(e).is_none() && strict_address(e).is_none()));
}

#[test]
fn strict_sources_are_installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let all = of("c1", "veth1", &["10.1.0.5", "fd01::5"]);
    ours.nft(|s| {
        install_and_add(s, &all).unwrap();
        install_and_add(s, &all).unwrap();
        check(s, &all).unwrap();
    });
    theirs.nft_file(STRICT);
    let comment = "comment \"lab/c1/eth0\"";
    for (set, key) in [("sources4", "\"veth1\" . 10.1.0.5"), ("sources6", "\"veth1\" . fd01::5"), ("strict", "\"veth1\"")] {
        theirs.nft_file(&format!("add element bridge netloom {set} {{ {key} {comment} }}"));
    }
    let listed = ours.run("nft list ruleset");
    let (special, rest): (Vec<&str>, Vec<&str>) = listed.lines().partition(|line| line.contains("nd-neighbor-advert"));
    assert_eq!(rest, theirs.run("nft list ruleset").lines().collect::<Vec<_>>());
    assert!(special.len() == 1 && special[0].ends_with(" iifname @strict drop"), "{special:?}");
    assert!(!ours.run("nft list ruleset").contains("guarded"), "nothing of the other subjects");
}

#[test]
fn what_others_break_of_a_strict_source_is_named_and_mended() {
    let ns = Namespace::new();
    let (one, other) = (of("c1", "veth1", &["10.1.0.5", "fd01::5"]), of("c2", "veth2", &["10.1.0.6"]));
    let guard = spoof_guard(&id("lab", "c1"), &IfName::parse("veth1").unwrap(), &"02:00:00:00:00:01".parse().unwrap());
    ns.nft(|s| {
        assert_eq!(meanings(s), Ok(vec![]));
        install_and_add(s, &[one.clone(), guard.clone(), elements(&id("lab", "c1"), &["10.1.0.5/24"])].concat()).unwrap();
        for (change, found) in [
            ("delete element bridge netloom strict { \"veth1\" }", "the firewall entry for the source check of veth1 is missing"),
            ("flush set bridge netloom sources4", "the source check of veth1 . 10.1.0.5 is missing"),
            ("flush chain bridge netloom strict-source", "chain bridge netloom strict-source has 0 rules"),
            ("delete table bridge netloom", "the firewall entry for the source check of"),
        ] {
            ns.nft_file(change);
            let said = check(s, &one).unwrap_err().to_string();
            assert!(said.contains(found), "{change}: {said}");
            install_and_add(s, &one).unwrap();
            check(s, &one).unwrap();
        }
        install_and_add(s, &guard).unwrap();
        ns.run("nft flush table bridge netloom");
        repair(s).unwrap();
        check(s, &[one.clone(), guard.clone()].concat()).unwrap();

        // Both subjects of the table, each with its own.
        assert_eq!((owned_by(s, &STRICT_SOURCE, &id("lab", "c1")).unwrap().len(), all(s, &SPOOF_GUARD).unwrap().len()), (3, 2));
        install_and_add(s, &other).unwrap();
        let network = id("lab", "c1").network;
        assert_eq!(stale(s, &STRICT_SOURCE, &network, &[id("lab", "c2")]).unwrap().len(), 3);
        assert_eq!(of_container(s, &id("lab", "c2").container).unwrap(), other);

        // A port whose addresses were taken from it, and one whose sources are not checked any more.
        ns.nft_file("flush set bridge netloom sources6; delete element bridge netloom strict { \"veth2\" }");
        let told: Vec<Meaning> = meanings(s).unwrap().into_iter().map(|(_, meaning)| meaning).collect();
        let expected = |m: &Meaning| matches!(m, Meaning::StrictSource { port, addresses, .. } if port == "veth1" && *addresses == ["10.1.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!((told.iter().filter(|m| expected(m)).count(), told.iter().filter(|m| matches!(m, Meaning::StrictSource { .. })).count()), (1, 1));
        let found = s.find(&[strict(&id("lab", "c1"), &IfName::parse("veth1").unwrap())]).unwrap();
        assert_eq!(found.iter().flatten().count(), 1);
    });
}

// --- frames ---

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const EVERYBODY: [u8; 6] = [0xff; 6];

/// Sends one frame, given in hexadecimal.
const SEND: &str =
    "import socket,sys;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));s.send(bytes.fromhex(sys.argv[1]))";

/// A bridge with two ports, whose containers say nothing by themselves; what the second one gets from the first is counted.
struct Bridge {
    host: Namespace,
    pod: Namespace,
    other: Namespace,
}

impl Bridge {
    fn new() -> Self {
        let bridge = Self { host: Namespace::new(), pod: Namespace::new(), other: Namespace::new() };
        let host = &bridge.host;
        host.run("ip link add br0 type bridge");
        for (ns, port, mac) in [(&bridge.pod, "veth1", "02:00:00:00:00:01"), (&bridge.other, "veth2", "02:00:00:00:00:02")] {
            ns.sysctl("net/ipv6/conf/default/disable_ipv6", "1");
            host.run(&format!("ip link add {port} type veth peer name eth0 address {mac} netns {}", ns.name));
            host.run(&format!("ip link set {port} master br0 up"));
            ns.run("ip link set eth0 up");
        }
        host.run("ip link set br0 up");
        bridge.other.nft_file(
            "table netdev t { chain c { type filter hook ingress device eth0 priority 0; ether saddr 02:00:00:00:00:01 counter; }; }",
        );
        bridge
    }

    fn strict(&self) -> Vec<SetElement> {
        let added = of("c1", "veth1", &["10.1.0.5", "10.1.0.15", "fd01::5"]);
        self.host.nft(|s| install_and_add(s, &added).unwrap());
        added
    }

    fn arrived(&self) -> u64 {
        let listed = self.other.run("nft list table netdev t");
        listed.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
    }

    fn dropped(&self) -> u64 {
        let told = self.host.nft(|s| meanings(s).unwrap());
        told.iter().find_map(|(_, m)| if let Meaning::StrictSource { dropped, .. } = m { Some(dropped.packets) } else { None }).unwrap_or(0)
    }

    fn send(&self, frame: &[u8]) {
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        let sent = Command::new("ip").args(["netns", "exec", &self.pod.name, "python3", "-c", SEND, &hex]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether a frame to everybody arrives; it is dropped and counted otherwise.
    fn passes(&self, frame: &[u8]) -> bool {
        let before = (self.arrived(), self.dropped());
        self.send(frame);
        for _ in 0..3_000 {
            let changed = (self.arrived() - before.0, self.dropped() - before.1);
            match changed {
                (0, 0) => std::thread::yield_now(),
                (1, 0) => return true,
                (0, 1) => return false,
                other => panic!("one frame is {other:?}"),
            }
        }
        panic!("the frame is nowhere");
    }
}

fn octets_of(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn ethernet(to: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = [to, MAC].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// UDP to a port, 68 to 67 for DHCP.
fn ip4(source: &str, destination: &str) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([octets_of(source), octets_of(destination)].concat());
    let sum = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0, 68, 0, 67, 0, 8, 0, 0]);
    packet
}

fn ip6(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 255]);
    packet.extend([octets_of(source), octets_of(destination)].concat());
    packet.extend(payload);
    packet
}

/// A neighbour solicitation (135) or advertisement (136) of an address.
fn neighbour(kind: u8, source: &str, target: &str) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(octets_of(target));
    ip6(source, "ff02::1", 58, &message)
}

fn arp(sender: &str) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(MAC);
    packet.extend(octets_of(sender));
    packet.extend([0; 6]);
    packet.extend(octets_of("10.1.0.9"));
    packet
}

fn tagged(tags: &[(u16, u16)], kind: u16, packet: &[u8]) -> Vec<u8> {
    let (first, rest) = tags.split_first().unwrap();
    let mut behind = first.1.to_be_bytes().to_vec();
    for (tag, vlan) in rest {
        behind.extend([tag.to_be_bytes(), vlan.to_be_bytes()].concat());
    }
    behind.extend(kind.to_be_bytes());
    behind.extend(packet);
    ethernet(EVERYBODY, first.0, &behind)
}

/// Each frame, and whether it passes a port that may send with 10.1.0.5, 10.1.0.15 and fd01::5.
fn frames() -> Vec<(&'static str, Vec<u8>, bool)> {
    let all = |kind, packet: Vec<u8>| ethernet(EVERYBODY, kind, &packet);
    let (v4, v6, dgram) = (0x0800, 0x86dd, [0; 8]);
    vec![
        ("own", all(v4, ip4("10.1.0.5", "10.1.0.9")), true),
        ("own, the second", all(v4, ip4("10.1.0.15", "10.1.0.9")), true),
        ("another's", all(v4, ip4("10.1.0.6", "10.1.0.9")), false),
        ("an outsider's", all(v4, ip4("192.0.2.5", "10.1.0.9")), false),
        ("loopback", all(v4, ip4("127.0.0.1", "10.1.0.9")), false),
        ("DHCP", all(v4, ip4("0.0.0.0", "255.255.255.255")), true),
        ("link-local", all(v4, ip4("169.254.3.4", "10.1.0.9")), true),
        ("next to link-local", all(v4, ip4("169.255.0.0", "10.1.0.9")), false),
        ("own, IPv6", all(v6, ip6("fd01::5", "ff02::1", 17, &dgram)), true),
        ("another's, IPv6", all(v6, ip6("fd01::6", "ff02::1", 17, &dgram)), false),
        ("link-local, IPv6", all(v6, ip6("fe80::1", "ff02::1", 17, &dgram)), true),
        ("next to link-local, IPv6", all(v6, ip6("fec0::1", "ff02::1", 17, &dgram)), false),
        ("duplicate address detection", all(v6, neighbour(135, "::", "fd01::5")), true),
        ("a solicitation", all(v6, neighbour(135, "fd01::5", "fd01::9")), true),
        ("another's solicitation", all(v6, neighbour(135, "fd01::6", "fd01::9")), false),
        ("an advertisement", all(v6, neighbour(136, "fd01::5", "fd01::5")), true),
        ("a link-local advertisement", all(v6, neighbour(136, "fe80::1", "fe80::1")), true),
        ("an advertisement of another's", all(v6, neighbour(136, "fd01::5", "fd01::6")), false),
        ("one from a link-local address", all(v6, neighbour(136, "fe80::1", "fd01::6")), false),
        ("ARP", all(0x0806, arp("10.1.0.5")), true),
        ("ARP as another", all(0x0806, arp("10.1.0.6")), false),
        ("an ARP probe", all(0x0806, arp("0.0.0.0")), true),
        ("ARP, link-local", all(0x0806, arp("169.254.3.4")), true),
        ("a protocol of nobody", all(0x88b5, vec![0; 46]), true),
        ("own in VLAN 0", tagged(&[(0x8100, 0)], v4, &ip4("10.1.0.5", "10.1.0.9")), true),
        ("another's in VLAN 0", tagged(&[(0x8100, 0)], v4, &ip4("10.1.0.6", "10.1.0.9")), false),
        ("ARP as another in VLAN 0", tagged(&[(0x8100, 0)], 0x0806, &arp("10.1.0.6")), false),
        ("another's in VLAN 7", tagged(&[(0x88a8, 7)], v6, &ip6("fd01::6", "ff02::1", 17, &dgram)), false),
        ("behind two tags", tagged(&[(0x8100, 0), (0x8100, 0)], v4, &ip4("10.1.0.6", "10.1.0.9")), false),
    ]
}

#[test]
fn a_frame_from_a_foreign_address_is_dropped_and_counted() {
    let bridge = Bridge::new();
    for (what, frame, _) in frames() {
        assert!(bridge.passes(&frame), "{what}: nothing is checked yet");
    }
    let added = bridge.strict();
    // And another port that may send with what the first may not.
    bridge.host.nft(|s| install_and_add(s, &of("c2", "veth2", &["10.1.0.6", "fd01::6"])).unwrap());
    for (what, frame, passes) in frames() {
        assert_eq!(bridge.passes(&frame), passes, "{what}");
    }
    // Who has no address sends none.
    let (gone, stays): (Vec<_>, Vec<_>) = added.into_iter().partition(|e| strict_address(e).is_some());
    bridge.host.nft(|s| s.delete_missing_ok(&gone).unwrap());
    assert!(!bridge.passes(&ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.5", "10.1.0.9"))));
    bridge.host.nft(|s| s.delete_missing_ok(&stays).unwrap());
    assert!(bridge.passes(&ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.6", "10.1.0.9"))));
}
