//! Strict sources: what is installed, what real frames meet, and what the counter says.

use crate::{
    GUARDS, Meaning, is_ordinary, meanings, of_container, ordinary, ordinary_with, restore, spoof_guard, stale, strict, strict_address,
    strict_port, strict_source,
};

use super::*;

/// What the rules are, in the words of `nft`; but those that it has no words for, see [`without_words`].
pub(super) const GUARDS_TABLE: &str = r#"table bridge netloom {
    comment "netloom, layout 1"
    set ordinary4 { type iface_index . ether_addr . ipv4_addr; }
    set ordinary6 { type iface_index . ether_addr . ipv6_addr; }
    set ordinary { type iface_index . ether_addr; }
    set macs { type ifname . ether_addr; }
    set guarded { type ifname; counter; }
    set sources4 { type ifname . ipv4_addr; }
    set sources6 { type ifname . ipv6_addr; }
    set strict { type ifname; counter; }
    chain prerouting {
        type filter hook prerouting priority -300; policy accept;
        iif . ether saddr @ordinary return
        iifname . ether saddr != @macs iifname @guarded drop
        meta protocol ip iifname . ip saddr @sources4 return
        meta protocol arp iifname . arp saddr ip @sources4 return
        meta protocol ip6 iifname . ip6 saddr @sources6 return
        meta protocol ip ip saddr 0.0.0.0 return
        meta protocol ip ip saddr 169.254.0.0/16 ip daddr 169.254.0.0/16 return
        meta protocol ip ip saddr 169.254.0.0/16 ip daddr 224.0.0.0/24 return
        meta protocol ip ip saddr 169.254.0.0/16 ip daddr 255.255.255.255 return
        meta protocol arp arp saddr ip 0.0.0.0 return
        meta protocol arp arp saddr ip 169.254.0.0/16 return
        meta protocol ip6 ip6 saddr :: return
        meta protocol ip6 ip6 saddr fe80::/10 return
        meta protocol != ip meta protocol != arp meta protocol != ip6 meta protocol != 8021q meta protocol != 8021ad return
        iifname @strict drop
    }
}"#;

/// What `nft` lists, without the rules that it lists and does not take: one looks up a target, and two the hardware address together with the
/// Ethernet type.
pub(super) fn without_words(listed: &str) -> Vec<&str> {
    listed.lines().filter(|line| !["nd-neighbor-advert", "@ll,48,64"].iter().any(|word| line.contains(word))).collect()
}

/// What a release of before has left, with two chains that the kernel calls.
const FORMER: &str = r#"table bridge netloom {
    comment "netloom, layout 1"
    set macs { type ifname . ether_addr; }
    set guarded { type ifname; counter; }
    set sources4 { type ifname . ipv4_addr; }
    set sources6 { type ifname . ipv6_addr; }
    set strict { type ifname; counter; }
    chain prerouting {
        type filter hook prerouting priority -300; policy accept;
        iifname . ether saddr @macs return
        iifname @guarded drop
    }
    chain strict-source {
        type filter hook prerouting priority -299; policy accept;
        meta protocol ip iifname . ip saddr @sources4 return
        meta protocol arp iifname . arp saddr ip @sources4 return
        meta protocol ip6 iifname . ip6 saddr @sources6 return
        meta protocol ip ip saddr 0.0.0.0 return
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
    theirs.nft_file(GUARDS_TABLE);
    let comment = "comment \"lab/c1/eth0\"";
    for (set, key) in [("sources4", "\"veth1\" . 10.1.0.5"), ("sources6", "\"veth1\" . fd01::5"), ("strict", "\"veth1\"")] {
        theirs.nft_file(&format!("add element bridge netloom {set} {{ {key} {comment} }}"));
    }
    let listed = ours.run("nft list ruleset");
    assert_eq!(without_words(&listed), without_words(&theirs.run("nft list ruleset")));
    let special: Vec<&str> = listed.lines().map(str::trim).filter(|line| !line.is_empty() && without_words(line).is_empty()).collect();
    let [ordinary4, ordinary6, advertised] = special[..] else { panic!("{special:?}") };
    assert_eq!(ordinary4, "iif . @ll,48,64 . @nh,96,32 @ordinary4 return");
    assert_eq!(ordinary6, "meta l4proto != ipv6-icmp iif . @ll,48,64 . @nh,64,128 @ordinary6 return");
    assert!(advertised.ends_with(" iifname @strict drop"), "{advertised}");
    assert!(!ours.run("nft list ruleset").contains("table inet"), "nothing of the other subjects");
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
            ("flush chain bridge netloom prerouting", "chain bridge netloom prerouting has 0 rules"),
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

        // Those of both guards.
        assert_eq!((owned_by(s, &GUARDS, &id("lab", "c1")).unwrap().len(), all(s, &GUARDS).unwrap().len()), (5, 5));
        install_and_add(s, &other).unwrap();
        let network = id("lab", "c1").network;
        assert_eq!(stale(s, &GUARDS, &network, &[id("lab", "c2")]).unwrap().len(), 5);
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
            "table netdev t { chain c { type filter hook ingress device eth0 priority 0; ether saddr and ff:ff:ff:ff:ff:f0 == 02:00:00:00:00:00 counter; }; }",
        );
        bridge
    }

    fn strict(&self) -> Vec<SetElement> {
        let added = of("c1", "veth1", &["10.1.0.5", "10.1.0.15", "fd01::5"]);
        self.host.nft(|s| install_and_add(s, &added).unwrap());
        added
    }

    /// What the pod sends from its own addresses passes at once.
    fn ordinary(&self, mac: &[u8; 6], addresses: Option<&[&str]>) -> Vec<SetElement> {
        let shown = self.host.run("ip -o link show veth1");
        let index = shown.split(':').next().unwrap().trim().parse().unwrap();
        let addresses: Option<Vec<IpAddr>> = addresses.map(|all| all.iter().map(|a| a.parse().unwrap()).collect());
        let added = ordinary(&id("lab", "c1"), index, &cni::Mac::from_bytes(mac).unwrap(), addresses.as_deref());
        self.host.nft(|s| install_and_add(s, &added).unwrap());
        added
    }

    /// Sends a frame again and again, until it is ended.
    fn flood(&self, frame: &[u8]) -> std::process::Child {
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        let send = SEND.replace("s.send(bytes.fromhex(sys.argv[1]))", "f=bytes.fromhex(sys.argv[1])\nwhile True: s.send(f)");
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "ip", "netns", "exec", &self.pod.name, "python3", "-c", &send, &hex])
            .spawn()
            .unwrap()
    }

    fn arrived(&self) -> u64 {
        let listed = self.other.run("nft list table netdev t");
        listed.split("packets ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
    }

    fn dropped(&self) -> u64 {
        let told = self.host.nft(|s| meanings(s).unwrap());
        let dropped = |meaning: &Meaning| match meaning {
            Meaning::StrictSource { dropped, .. } | Meaning::SpoofGuard { dropped, .. } => dropped.packets,
            _ => 0,
        };
        told.iter().map(|(_, meaning)| dropped(meaning)).sum()
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
        ("link-local", all(v4, ip4("169.254.3.4", "169.254.0.9")), true),
        ("link-local to a group of the link", all(v4, ip4("169.254.3.4", "224.0.0.251")), true),
        ("link-local to everybody", all(v4, ip4("169.254.3.4", "255.255.255.255")), true),
        ("link-local to elsewhere", all(v4, ip4("169.254.3.4", "10.1.0.9")), false),
        ("link-local to a group of elsewhere", all(v4, ip4("169.254.3.4", "239.0.0.1")), false),
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
        ("an advertisement of another's in VLAN 0", tagged(&[(0x8100, 0)], v6, &neighbour(136, "fd01::5", "fd01::6")), false),
        ("own behind two tags", tagged(&[(0x8100, 0), (0x8100, 0)], v4, &ip4("10.1.0.5", "10.1.0.9")), false),
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
    // Where what is ordinary passes at once, the same passes.
    let at_once = bridge.ordinary(&MAC, Some(&["10.1.0.5", "10.1.0.15", "fd01::5"]));
    for (what, frame, passes) in frames() {
        assert_eq!(bridge.passes(&frame), passes, "{what}, with a hardware address");
    }
    bridge.host.nft(|s| s.delete_missing_ok(&at_once).unwrap());
    // Who has no address sends none.
    let (gone, stays): (Vec<_>, Vec<_>) = added.into_iter().partition(|e| strict_address(e).is_some());
    bridge.host.nft(|s| s.delete_missing_ok(&gone).unwrap());
    assert!(!bridge.passes(&ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.5", "10.1.0.9"))));
    bridge.host.nft(|s| s.delete_missing_ok(&stays).unwrap());
    assert!(bridge.passes(&ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.6", "10.1.0.9"))));
}

/// Whatever of the guards a port has, each says the same of a frame with its own hardware address and of one with another.
#[test]
fn a_frame_is_judged_by_each_guard_that_its_port_has_and_by_no_other() {
    let bridge = Bridge::new();
    let own = ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.5", "10.1.0.9"));
    let own6 = ethernet(EVERYBODY, 0x86dd, &ip6("fd01::5", "ff02::1", 17, &[0; 8]));
    let foreign_ip = ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.6", "10.1.0.9"));
    let with_other_mac = |frame: &[u8]| [&frame[..6], &[2, 0, 0, 0, 0, 9], &frame[12..]].concat();
    let (foreign_mac, foreign_mac6, foreign) = (with_other_mac(&own), with_other_mac(&own6), with_other_mac(&foreign_ip));
    let frames = [&own, &own6, &foreign_ip, &foreign_mac, &foreign_mac6, &foreign];
    let arrive = |what: &str, expected: [bool; 6]| {
        let arrived = frames.map(|frame| bridge.passes(frame));
        assert_eq!(arrived, expected, "{what}");
    };
    let port = IfName::parse("veth1").unwrap();
    let spoof = spoof_guard(&id("lab", "c1"), &port, &"02:00:00:00:00:01".parse().unwrap());
    let addresses = ["10.1.0.5", "fd01::5"];
    let sources = of("c1", "veth1", &addresses);
    arrive("no guard", [true; 6]);
    bridge.host.nft(|s| install_and_add(s, &spoof).unwrap());
    let of_mac = [true, true, true, false, false, false];
    arrive("the hardware address", of_mac);
    let at_once = bridge.ordinary(&MAC, None);
    arrive("the hardware address, at once", of_mac);
    bridge.host.nft(|s| s.delete_missing_ok(&at_once).unwrap());
    bridge.host.nft(|s| install_and_add(s, &sources).unwrap());
    let of_both = [true, true, false, false, false, false];
    arrive("both", of_both);
    let at_once = bridge.ordinary(&MAC, Some(&addresses));
    arrive("both, at once", of_both);
    // It is indeed by these elements that it passes: nothing else lets it through.
    let lets_through = |e: &&SetElement| e.set == "macs" || strict_address(e).is_some();
    let others: Vec<SetElement> = spoof.iter().chain(&sources).filter(lets_through).cloned().collect();
    bridge.host.nft(|s| s.delete_missing_ok(&others).unwrap());
    arrive("both, at once and not otherwise", of_both);
    bridge.host.nft(|s| install_and_add(s, &others).unwrap());
    bridge.host.nft(|s| s.delete_missing_ok(&spoof).unwrap());
    arrive("the IP addresses", [true, true, false, true, true, false]);
    // A hardware address that changes takes what is ordinary along.
    let other: cni::Mac = "02:00:00:00:00:09".parse().unwrap();
    let moved: Vec<SetElement> = at_once.iter().filter_map(|e| ordinary_with(e, &other)).collect();
    assert_eq!((moved.len(), sources.iter().filter_map(|e| ordinary_with(e, &other)).count()), (2, 0));
    let now = [spoof_guard(&id("lab", "c1"), &port, &other), moved].concat();
    bridge.host.nft(|s| {
        install_and_add(s, &now).unwrap();
        s.delete_missing_ok(&at_once).unwrap();
    });
    arrive("both, with another hardware address", [false, false, false, true, true, false]);
    bridge.host.nft(|s| {
        let owned = owned_by(s, &GUARDS, &id("lab", "c1")).unwrap();
        assert_eq!((owned.len(), owned.iter().filter(|e| is_ordinary(e)).count()), (7, 2));
        s.delete_missing_ok(&owned).unwrap();
    });
    arrive("no guard any more", [true; 6]);
}

/// A node whose agent is replaced: the guards of its running pods hold in every moment, and what they have counted stays.
#[test]
fn rules_of_a_release_of_before_are_replaced_without_an_open_moment() {
    let bridge = Bridge::new();
    let guards = {
        let port = IfName::parse("veth1").unwrap();
        let spoof = spoof_guard(&id("lab", "c1"), &port, &"02:00:00:00:00:01".parse().unwrap());
        [spoof, of("c1", "veth1", &["10.1.0.5"])].concat()
    };
    let forged = ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.6", "10.1.0.9"));
    let own = ethernet(EVERYBODY, 0x0800, &ip4("10.1.0.5", "10.1.0.9"));
    for how in ["repaired", "restored", "by the next pod"] {
        bridge.host.run("nft flush ruleset");
        bridge.host.nft_file(FORMER);
        bridge.host.nft(|s| s.commit(&guards.iter().map(|e| Step::Element(Mode::Create, e.clone())).collect()).unwrap());
        assert!((bridge.passes(&own), bridge.passes(&forged)) == (true, false), "{how}: before");
        let dropped = bridge.dropped();
        assert!(dropped > 0);
        // A sender that forges for as long as it takes.
        let before = bridge.arrived();
        let mut flood = bridge.flood(&forged);
        bridge.host.nft(|s| match how {
            "repaired" => repair(s).unwrap(),
            "restored" => assert!(restore(s, &guards).unwrap().rules),
            _ => install_and_add(s, &of("c2", "veth2", &["10.1.0.7"])).unwrap(),
        });
        until("the sender goes on", || bridge.dropped() > dropped + 2);
        flood.kill().unwrap();
        flood.wait().unwrap();
        assert_eq!(bridge.arrived(), before, "{how}: a forged frame has passed");
        let listed = bridge.host.run("nft list ruleset");
        assert!(!listed.contains("strict-source") && listed.contains("@ordinary4"), "{how}: {listed}");
        assert_eq!(listed.matches("hook prerouting").count(), 1, "{how}: {listed}");
        bridge.host.nft(|s| check(s, &guards).unwrap());
        assert!((bridge.passes(&own), bridge.passes(&forged)) == (true, false), "{how}: after");
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never: {what}");
}
