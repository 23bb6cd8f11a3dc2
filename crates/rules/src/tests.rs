//! The rules in a real kernel: judged by `nft`, and by the source address of real packets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{AddError, CheckError, MASQUERADE, OwnerKey, all, check, install_and_add, masquerade, owned_by, repair};
use cni::{AttachmentId, ContainerId, IfName, NetworkName};
use ipnet::IpNet;
use linux::Netns;
use linux::nft::{Family, Mode, SetElement, Socket, Step};

mod egress;
mod frames;
mod idle;
mod ingress;
mod ports;
mod reverse;
mod source;
mod tunnelled;
mod vxlan;

/// What the rules are, in the words of `nft`.
const RULES: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    map masquerade4 { type ipv4_addr : verdict; }
    map masquerade6 { type ipv6_addr : verdict; }
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr vmap @masquerade4
        ip6 saddr vmap @masquerade6
    }
}"#;

/// A network's chain, in the words of `nft`.
fn chain(name: &str, net: &str) -> String {
    let (ip, multicast) = if net.contains(':') { ("ip6", "ff00::/8") } else { ("ip", "224.0.0.0/4") };
    format!(
        "add chain inet netloom {name}\n\
         add rule inet netloom {name} {ip} daddr != {net} {ip} daddr != {multicast} masquerade\n"
    )
}

/// A network namespace of the test's own, gone with it.
pub(crate) struct Namespace {
    name: String,
    pub(crate) netns: Netns,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nlnf-r{}-{n}", std::process::id());
        let netns = Netns::create(&PathBuf::from("/run/netns").join(&name)).unwrap();
        Self { name, netns }
    }

    fn nft<T: Send>(&self, work: impl FnOnce(&mut Socket) -> T + Send) -> T {
        self.netns.enter(|inside| work(&mut Socket::open(inside).unwrap())).unwrap()
    }

    pub(crate) fn run(&self, command: &str) -> String {
        let words = ["netns", "exec", &self.name].into_iter().chain(command.split_whitespace());
        let output = Command::new("ip").args(words).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The ruleset as JSON, without handles.
    fn ruleset(&self) -> String {
        let json = self.run("nft -j list ruleset");
        let mut parts = json.split("\"handle\": ");
        let first = parts.next().unwrap().to_owned();
        parts.map(|p| p.trim_start_matches(|c: char| c.is_ascii_digit())).fold(first, |all, p| all + p)
    }

    fn nft_file(&self, text: &str) {
        let status = Command::new("ip").args(["netns", "exec", &self.name, "nft", text]).status().unwrap();
        assert!(status.success());
    }

    fn sysctl(&self, path: &str, value: &str) {
        self.netns.enter(|_| std::fs::write(format!("/proc/sys/{path}"), value).unwrap()).unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Netns::remove(self.netns.path());
    }
}

fn id(network: &str, container: &str) -> AttachmentId {
    AttachmentId {
        network: NetworkName::parse(network).unwrap(),
        container: ContainerId::parse(container).unwrap(),
        ifname: IfName::parse("eth0").unwrap(),
    }
}

/// So many containers come and go at the same time, each so often, with the elements that `of` has for its number: each has them all while it is
/// there, whatever `forget` takes away after it.
fn come_and_go(
    ns: &Namespace,
    containers: u8,
    rounds: u32,
    of: impl Fn(u8) -> Vec<SetElement> + Sync,
    forget: impl Fn(&mut Socket) -> Result<(), AddError> + Sync,
) {
    std::thread::scope(|scope| {
        for n in 0..containers {
            let (of, forget) = (&of, &forget);
            scope.spawn(move || {
                ns.nft(|s| {
                    for round in 0..rounds {
                        install_and_add(s, &of(n)).unwrap();
                        check(s, &of(n)).unwrap_or_else(|e| panic!("container {n}, round {round}: {e}"));
                        s.delete_missing_ok(&of(n)).unwrap();
                        forget(s).unwrap();
                    }
                });
            });
        }
    });
}

fn elements(owner: &AttachmentId, addrs: &[&str]) -> Vec<SetElement> {
    let addrs: Vec<IpNet> = addrs.iter().map(|a| a.parse().unwrap()).collect();
    masquerade(owner, &addrs)
}

#[test]
fn installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    // Prefixes that end with a byte, and that do not.
    let networks = [
        ("10.88.0.5/24", "outside-10.88.0.0/24", "10.88.0.0/24"),
        ("10.99.200.5/18", "outside-10.99.192.0/18", "10.99.192.0/18"),
        ("10.99.7.7/32", "outside-10.99.7.7/32", "10.99.7.7"),
        ("128.0.0.1/1", "outside-128.0.0.0/1", "128.0.0.0/1"),
        ("fd00::5/64", "outside-fd00--/64", "fd00::/64"),
        ("fd00:0:0:18::5/61", "outside-fd00-0-0-18--/61", "fd00:0:0:18::/61"),
        ("fd00::7/128", "outside-fd00--7/128", "fd00::7"),
    ];
    let comment = "comment \"lab/c1/eth0\"";
    theirs.nft_file(RULES);
    for (address, name, net) in networks {
        let added = elements(&id("lab", "c1"), &[address]);
        ours.nft(|s| {
            assert_eq!(install_and_add(s, &[]), Ok(()));
            install_and_add(s, &added).unwrap();
            check(s, &added).unwrap();
        });
        let map = added[0].set.as_str();
        let (address, _) = address.split_once('/').unwrap();
        let element = format!("add element inet netloom {map} {{ {address} {comment} : jump {name} }}");
        theirs.nft_file(&(chain(name, net) + &element));
        assert_eq!(ours.ruleset(), theirs.ruleset());
        assert_eq!(ours.run("nft list ruleset"), theirs.run("nft list ruleset"));
    }
}

#[test]
fn nothing_to_add_installs_nothing() {
    let ns = Namespace::new();
    ns.nft(|s| {
        assert_eq!(install_and_add(s, &[]), Ok(()));
        assert_eq!(s.has_table(Family::Inet, "netloom"), Ok(false));
    });
}

#[test]
fn many_at_once_install_one() {
    const MANY: u8 = 32;
    let (ns, one) = (Namespace::new(), Namespace::new());
    let of = |n: u8| elements(&id("lab", &format!("c{n}")), &[&format!("10.1.0.{n}/24"), &format!("fd01::{n}/64")]);
    std::thread::scope(|scope| {
        for n in 0..MANY {
            let ns = &ns;
            scope.spawn(move || ns.nft(|s| install_and_add(s, &of(n)).unwrap()));
        }
    });
    one.nft(|s| (0..MANY).for_each(|n| install_and_add(s, &of(n)).unwrap()));
    // Two of the table, one of each network.
    assert_eq!(ns.ruleset().matches("\"rule\"").count(), 4);
    assert_eq!(ns.nft(|s| all(s, &MASQUERADE)).unwrap().len(), usize::from(MANY) * 2);
    std::thread::scope(|scope| {
        for n in 0..MANY {
            let ns = &ns;
            scope.spawn(move || ns.nft(|s| s.delete_missing_ok(&of(n)).unwrap()));
        }
    });
    one.nft_file("flush ruleset");
    one.nft_file(RULES);
    one.nft_file(&(chain("outside-10.1.0.0/24", "10.1.0.0/24") + &chain("outside-fd01--/64", "fd01::/64")));
    assert_eq!(ns.ruleset(), one.ruleset());
}

#[test]
fn many_networks_at_once() {
    const MANY: u8 = 32;
    let ns = Namespace::new();
    let of = |n: u8| elements(&id("lab", &format!("c{n}")), &[&format!("10.{}.0.5/24", n % 4), &format!("10.9.{n}.1/26")]);
    std::thread::scope(|scope| {
        for n in 0..MANY {
            let ns = &ns;
            scope.spawn(move || ns.nft(|s| install_and_add(s, &of(n)[1..]).unwrap()));
        }
    });
    assert_eq!(ns.ruleset().matches("\"rule\"").count(), 2 + usize::from(MANY));
    ns.nft(|s| (0..MANY).for_each(|n| check(s, &of(n)[1..]).unwrap()));
    // And all for the same few addresses: each has one owner in the end.
    std::thread::scope(|scope| {
        for n in 0..MANY {
            let ns = &ns;
            scope.spawn(move || ns.nft(|s| install_and_add(s, &of(n)[..1]).unwrap()));
        }
    });
    assert_eq!(ns.nft(|s| all(s, &MASQUERADE)).unwrap().len(), usize::from(MANY) + 4);
}

#[test]
fn an_address_is_whose_it_was_given_last() {
    let ns = Namespace::new();
    let (old, new) = (id("lab", "old"), id("lab", "new"));
    let olds = elements(&old, &["10.1.0.5/16", "10.1.0.6/24", "fd01::5/64"]);
    let news = elements(&new, &["10.1.0.5/24", "fd01::5/64"]);
    ns.nft(|s| {
        install_and_add(s, &olds).unwrap();
        install_and_add(s, &olds).unwrap();
        check(s, &olds).unwrap();
        install_and_add(s, &news).unwrap();
        check(s, &news).unwrap();
        assert_eq!(owned_by(s, &MASQUERADE, &old).unwrap(), elements(&old, &["10.1.0.6/24"]));
        let wrong = check(s, &olds).unwrap_err();
        let expected = CheckError::Another { what: "masquerading of 10.1.0.5".into(), owner: "lab/new/eth0".into() };
        assert_eq!(wrong, expected);
        // A late DEL of the old owner leaves the new one alone.
        s.delete_missing_ok(&olds).unwrap();
        check(s, &news).unwrap();
        assert_eq!(owned_by(s, &MASQUERADE, &old).unwrap(), []);
        let mut found = owned_by(s, &MASQUERADE, &new).unwrap();
        let mut wanted = news.clone();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
        let keys: Vec<_> = all(s, &MASQUERADE).unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, vec![OwnerKey::of(&new); 2]);
        s.delete_missing_ok(&found).unwrap();
        s.delete_missing_ok(&found).unwrap();
        assert_eq!(all(s, &MASQUERADE).unwrap(), []);
    });
}

#[test]
fn what_others_break_is_named_and_mended() {
    let ns = Namespace::new();
    let (one, two) = (id("lab", "c1"), id("lab", "c2"));
    let ones = elements(&one, &["10.1.0.1/24"]);
    let twos = elements(&two, &["10.1.0.2/24"]);
    ns.nft(|s| {
        assert_eq!(owned_by(s, &MASQUERADE, &one), Ok(vec![]));
        install_and_add(s, &ones).unwrap();
        ns.run("nft flush chain inet netloom postrouting");
        assert_eq!(check(s, &ones), Err(CheckError::Rules { family: Family::Inet, chain: "postrouting".into(), found: 0 }));
        repair(s).unwrap();
        check(s, &ones).unwrap();
        ns.run("nft flush chain inet netloom postrouting");
        install_and_add(s, &twos).unwrap();
        check(s, &ones).unwrap();

        ns.run("nft flush chain inet netloom outside-10.1.0.0/24");
        assert_eq!(check(s, &ones), Err(CheckError::Rules { family: Family::Inet, chain: "outside-10.1.0.0/24".into(), found: 0 }));
        install_and_add(s, &twos).unwrap();
        check(s, &ones).unwrap();

        // A map that is gone, while an address in the other has an owner.
        let both = elements(&one, &["10.1.0.1/24", "fd01::1/64"]);
        install_and_add(s, &both).unwrap();
        ns.run("nft flush chain inet netloom postrouting");
        ns.run("nft delete map inet netloom masquerade6");
        let text = check(s, &both).unwrap_err().to_string();
        assert!(text.starts_with("the firewall entry for masquerading of fd01::1 is missing"), "{text}");
        install_and_add(s, &both).unwrap();
        check(s, &both).unwrap();
        check(s, &twos).unwrap();

        // The same attachment in a network that has grown since.
        let grown = elements(&one, &["10.1.0.1/16"]);
        assert!(matches!(check(s, &grown), Err(CheckError::OtherNetwork { .. })));
        install_and_add(s, &grown).unwrap();
        check(s, &grown).unwrap();
        install_and_add(s, &ones).unwrap();

        ns.run("nft flush ruleset");
        assert!(matches!(check(s, &ones), Err(CheckError::Missing { .. })));
        install_and_add(s, &ones).unwrap();
        check(s, &ones).unwrap();
    });
}

#[test]
fn an_unknown_layout_is_left_alone() {
    let ns = Namespace::new();
    ns.run("nft add table inet netloom");
    let before = ns.ruleset();
    let added = elements(&id("lab", "c1"), &["10.1.0.1/24"]);
    let error = ns.nft(|s| install_and_add(s, &added)).unwrap_err();
    assert_eq!(error, AddError::OtherLayout { family: Family::Inet, found: String::new() });
    assert_eq!(ns.ruleset(), before);
}

// --- packets ---

/// pod -- router -- outside, and a neighbour of the pod's own network, behind the router
/// too, so that what goes there passes the router's postrouting as bridged packets do with
/// `br_netfilter`.
struct Wires {
    pod: Namespace,
    router: Namespace,
    outside: Namespace,
    neighbour: Namespace,
}

impl Wires {
    fn new() -> Self {
        let make = Namespace::new;
        let wires = Self { pod: make(), router: make(), outside: make(), neighbour: make() };
        let router = &wires.router;
        for (link, other, v4, v6) in [
            ("pod", &wires.pod, "10.1.0.5", "fd01::5"),
            ("neighbour", &wires.neighbour, "10.1.0.6", "fd01::6"),
            ("outside", &wires.outside, "192.0.2.2", "2001:db8::2"),
        ] {
            router.run(&format!("ip link add {link} type veth peer name eth0 netns {}", other.name));
            router.run(&format!("ip link set {link} up"));
            router.run(&format!("ip route add {v4} dev {link}"));
            router.run(&format!("ip -6 addr add fe80::1/64 dev {link} nodad"));
            router.run(&format!("ip -6 route add {v6} dev {link}"));
            other.run("ip link set eth0 up");
            other.run(&format!("ip addr add {v4}/32 dev eth0"));
            other.run(&format!("ip -6 addr add {v6}/128 dev eth0 nodad"));
            other.run("ip route add 192.0.2.1 dev eth0");
            other.run("ip route add default via 192.0.2.1");
            other.run("ip -6 route add default via fe80::1 dev eth0");
        }
        router.run("ip addr add 192.0.2.1/32 dev outside");
        router.run("ip -6 addr add 2001:db8::1/128 dev outside nodad");
        for link in ["pod", "neighbour"] {
            router.sysctl(&format!("net/ipv4/conf/{link}/proxy_arp"), "1");
        }
        router.sysctl("net/ipv4/ip_forward", "1");
        router.sysctl("net/ipv6/conf/all/forwarding", "1");
        wires
    }

    /// Sends from one namespace to another and back; returns the source that the receiver
    /// saw.
    fn source(&self, from: (&Namespace, &str), to: (&Namespace, &str)) -> IpAddr {
        let socket = |ns: &Namespace, address: &str| {
            let address = SocketAddr::new(address.parse().unwrap(), 0);
            let socket = ns.netns.enter(|_| UdpSocket::bind(address).unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        };
        let (sender, receiver) = (socket(from.0, from.1), socket(to.0, to.1));
        let mut bytes = [0; 8];
        // A neighbour look-up may cost the first packets.
        for _ in 0..300 {
            sender.send_to(b"ask", receiver.local_addr().unwrap()).unwrap();
            let Ok((_, source)) = receiver.recv_from(&mut bytes) else { continue };
            receiver.send_to(b"answer", source).unwrap();
            if sender.recv_from(&mut bytes).is_ok() {
                return source.ip();
            }
        }
        panic!("no answer from {} to {}", to.1, from.1);
    }

    fn sources(&self) -> [String; 6] {
        let (pod, neighbour, outside) = (&self.pod, &self.neighbour, &self.outside);
        [
            ((pod, "10.1.0.5"), (outside, "192.0.2.2")),
            ((pod, "10.1.0.5"), (neighbour, "10.1.0.6")),
            ((neighbour, "10.1.0.6"), (outside, "192.0.2.2")),
            ((pod, "fd01::5"), (outside, "2001:db8::2")),
            ((pod, "fd01::5"), (neighbour, "fd01::6")),
            ((neighbour, "fd01::6"), (outside, "2001:db8::2")),
        ]
        .map(|(from, to)| self.source(from, to).to_string())
    }
}

#[test]
fn packets_leave_with_the_hosts_address() {
    let wires = Wires::new();
    let plain = ["10.1.0.5", "10.1.0.5", "10.1.0.6", "fd01::5", "fd01::5", "fd01::6"];
    assert_eq!(wires.sources(), plain);

    let added = elements(&id("lab", "c1"), &["10.1.0.5/24", "fd01::5/64"]);
    wires.router.nft(|s| install_and_add(s, &added).unwrap());
    // Outside, the pod is the router; at home and for others nothing changes.
    assert_eq!(wires.sources(), ["192.0.2.1", "10.1.0.5", "10.1.0.6", "2001:db8::1", "fd01::5", "fd01::6"]);

    wires.router.nft(|s| s.delete_missing_ok(&added).unwrap());
    assert_eq!(wires.sources(), plain);
}

/// Two addresses of the host's own on the link `outside`, 198.51.100.9 and fd09::9, from which the kernel sends multicast by that
/// link.
fn on_the_link(wires: &Wires) {
    let router = &wires.router;
    router.run("ip addr add 198.51.100.9/32 dev outside");
    router.run("ip -6 addr add fd09::9/128 dev outside nodad");
    router.run("ip route add 224.0.0.0/4 dev outside");
}

/// Sends from one of these to a destination on that link; returns the source that the receiver saw.
fn source_on_the_link(wires: &Wires, source: &str, destination: &str) -> String {
    let (router, outside) = (&wires.router, &wires.outside);
    let index = |ns: &Namespace, link: &str| -> u32 {
        let line = ns.run(&format!("ip -o link show {link}"));
        line.split(':').next().unwrap().parse().unwrap()
    };
    let (here, there) = (index(outside, "eth0"), index(router, "outside"));
    let mut to = match destination.parse().unwrap() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), 0),
        IpAddr::V6(ip) => SocketAddr::V6(std::net::SocketAddrV6::new(ip, 0, 0, there)),
    };
    let receiver = outside.netns.enter(|_| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        match to.ip() {
            IpAddr::V4(ip) if ip.is_multicast() => socket.join_multicast_v4(&ip, &"192.0.2.2".parse().unwrap()).unwrap(),
            IpAddr::V6(ip) if ip.is_multicast() => socket.join_multicast_v6(&ip, here).unwrap(),
            _ => {}
        }
        socket
    });
    let receiver = receiver.unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    to.set_port(receiver.local_addr().unwrap().port());
    let from = SocketAddr::new(source.parse().unwrap(), 0);
    let sender = router.netns.enter(|_| UdpSocket::bind(from).unwrap()).unwrap();
    sender.set_broadcast(true).unwrap();
    let heard = || {
        sender.send_to(b"all", to).unwrap();
        receiver.recv_from(&mut [0; 8]).ok()
    };
    let (_, seen) = (0..300).find_map(|_| heard()).unwrap_or_else(|| panic!("{to}: nothing arrives"));
    seen.ip().to_string()
}

#[test]
fn multicast_keeps_its_source() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    on_the_link(&wires);
    let added = elements(&id("lab", "c1"), &["198.51.100.9/32", "fd09::9/128"]);
    router.nft(|s| install_and_add(s, &added).unwrap());
    for (source, group) in [("198.51.100.9", "224.0.0.251"), ("fd09::9", "ff02::fb")] {
        assert_eq!(source_on_the_link(&wires, source, group), source);
    }
    // The same source to a single receiver is rewritten.
    assert_eq!(wires.source((router, "198.51.100.9"), (outside, "192.0.2.2")).to_string(), "192.0.2.1");
    assert_eq!(wires.source((router, "fd09::9"), (outside, "2001:db8::2")).to_string(), "2001:db8::1");
}
