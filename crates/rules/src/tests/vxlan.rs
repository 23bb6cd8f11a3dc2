//! A vxlan tunnel takes packets from the cluster's nodes alone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Instant;

use crate::{Enclosed, guard_vxlan, guard_vxlan_also, repair};

use super::*;

const PORT: u16 = 4789;
const RULES: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    set vxlanports { type inet_service; elements = { 4789 }; }
    set nodes4 { type ipv4_addr; size 16384; elements = { 192.0.2.1, 192.0.2.2 }; }
    set nodes6 { type ipv6_addr; size 16384; elements = { 2001:db8::1, 2001:db8::2 }; }
    chain vxlan-turned {
        ip daddr @nodes4 counter packets 0 bytes 0 drop
        ip6 daddr @nodes6 counter packets 0 bytes 0 drop
    }
    chain vxlan-masqueraded {
        type filter hook postrouting priority 101; policy accept;
        ct status snat udp sport @vxlanports jump vxlan-turned
    }
    chain vxlan-senders {
        ip saddr @nodes4 ct original ip daddr @nodes4 meta l4proto udp ct original proto-dst @vxlanports return
        ip6 saddr @nodes6 ct original ip6 daddr @nodes6 meta l4proto udp ct original proto-dst @vxlanports return
        ct state untracked ip saddr @nodes4 ip daddr @nodes4 return
        ct state untracked ip6 saddr @nodes6 ip6 daddr @nodes6 return
        counter packets 0 bytes 0 drop
    }
    chain vxlan-nodes {
        ip saddr @nodes4 ct original ip daddr @nodes4 meta l4proto udp ct original proto-dst @vxlanports return
        ip6 saddr @nodes6 ct original ip6 daddr @nodes6 meta l4proto udp ct original proto-dst @vxlanports return
        ip daddr @nodes4 jump vxlan-senders
        ip6 daddr @nodes6 jump vxlan-senders
    }
    chain vxlan-strays {
        meta iifkind "bridge" fib daddr . iif type != local fib saddr . iif oif missing counter packets 0 bytes 0 drop
        meta iifkind "veth" fib daddr . iif type != local fib saddr . iif oif missing counter packets 0 bytes 0 drop
        meta iifkind "netkit" fib daddr . iif type != local fib saddr . iif oif missing counter packets 0 bytes 0 drop
        meta iifkind "tun" fib daddr . iif type != local fib saddr . iif oif missing counter packets 0 bytes 0 drop
        meta iifkind "openvswitch" fib daddr . iif type != local fib saddr . iif oif missing counter packets 0 bytes 0 drop
    }
    chain vxlan-arrived {
        jump vxlan-strays
        jump vxlan-senders
    }
    chain vxlan-passing {
        jump vxlan-strays
        jump vxlan-nodes
    }
    chain vxlan-arrivals {
        type filter hook input priority 101; policy accept;
        udp dport @vxlanports jump vxlan-arrived
    }
    chain vxlan-forward {
        type filter hook forward priority filter; policy accept;
        udp dport @vxlanports jump vxlan-passing
    }
    chain vxlan-output {
        type filter hook output priority filter; policy accept;
        udp dport @vxlanports jump vxlan-nodes
    }
}"#;

fn enclosed(nodes: &[&str]) -> Enclosed {
    Enclosed { ports: [PORT].into(), nodes: nodes.iter().map(|text| text.parse().unwrap()).collect() }
}

/// `outside` of [`Wires`] is another node, and `router` the own one.
fn sample() -> Enclosed {
    enclosed(&["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"])
}

/// Whether a datagram arrives, with the source of the sender's address.
fn arrives(from: (&Namespace, &str), to: (&Namespace, &str), port: u16) -> bool {
    let socket = |(ns, address): (&Namespace, &str), port: u16| {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let begun = Instant::now();
        loop {
            match ns.netns.enter(|_| UdpSocket::bind(address)).unwrap() {
                // A program that another test starts has the descriptors of one that is closed here, until it is executed.
                Err(e) if e.kind() == ErrorKind::AddrInUse && begun.elapsed() < Duration::from_secs(20) => {
                    // Sleeps: between two attempts.
                    std::thread::sleep(Duration::from_millis(5));
                }
                bound => break bound.unwrap(),
            }
        }
    };
    // The receiver first: the kernel chooses the sender's port, which may be in the same namespace.
    let (receiver, sender) = (socket(to, port), socket(from, 0));
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // A neighbour look-up may cost the first packets.
    (0..3).any(|_| {
        sender.send_to(b"frame", receiver.local_addr().unwrap()).unwrap();
        receiver.recv_from(&mut [0; 8]).is_ok()
    })
}

fn dropped(ns: &Namespace) -> u64 {
    dropped_in(ns, "vxlan-senders")
}

fn dropped_in(ns: &Namespace, chain: &str) -> u64 {
    let chain = ns.run(&format!("nft list chain inet netloom {chain}"));
    let words: Vec<&str> = chain.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == "packets").map(|pair| pair[1].parse::<u64>().unwrap()).sum()
}

#[test]
fn it_is_installed_as_nft_would_and_only_where_there_is_a_tunnel() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let none = Enclosed { ports: BTreeSet::new(), ..sample() };
    ours.nft(|s| {
        assert_eq!(guard_vxlan(s, None, &none), Ok(0));
        assert!(!s.has_table(Family::Inet, "netloom").unwrap(), "other modes pay nothing");
        assert_eq!(guard_vxlan(s, None, &sample()), Ok(5));
        assert_eq!(guard_vxlan(s, None, &sample()), Ok(0));
    });
    theirs.nft_file(RULES);
    assert_eq!(ours.run("nft list ruleset"), theirs.run("nft list ruleset"));
    // Without a tunnel the port is anybody's again.
    ours.nft(|s| assert_eq!(guard_vxlan(s, Some(&sample()), &none), Ok(5)));
    assert!(!ours.run("nft list ruleset").contains("elements"));
}

/// A device with another port may still be there.
#[test]
fn several_ports_are_guarded() {
    let ns = Namespace::new();
    let two = Enclosed { ports: [PORT, 8472].into(), ..sample() };
    ns.nft(|s| {
        assert_eq!(guard_vxlan(s, None, &two), Ok(6));
        assert!(ns.run("nft list set inet netloom vxlanports").contains("4789, 8472"));
        assert_eq!(guard_vxlan(s, Some(&two), &sample()), Ok(1));
        assert!(!ns.run("nft list set inet netloom vxlanports").contains("8472"));
    });
}

#[test]
fn a_node_that_comes_or_goes_is_one_element_and_what_others_flush_is_put_back() {
    let ns = Namespace::new();
    let more = enclosed(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"]);
    ns.nft(|s| {
        guard_vxlan(s, None, &sample()).unwrap();
        let whole = ns.run("nft list ruleset");
        assert_eq!(guard_vxlan(s, Some(&sample()), &more), Ok(1));
        assert_eq!(guard_vxlan(s, Some(&more), &sample()), Ok(1));
        for change in
            ["flush chain inet netloom vxlan-senders", "flush set inet netloom nodes6", "flush table inet netloom", "flush ruleset"]
        {
            ns.nft_file(change);
            guard_vxlan(s, None, &sample()).unwrap();
            assert_eq!(ns.run("nft list ruleset"), whole, "{change}");
        }
        // What is not as the last call has left it is seen where a change meets it.
        for change in ["delete element inet netloom nodes4 { 192.0.2.2 }", "delete table inet netloom"] {
            ns.nft_file(change);
            guard_vxlan(s, Some(&sample()), &enclosed(&["192.0.2.1", "2001:db8::1", "2001:db8::2"])).unwrap();
            guard_vxlan(s, None, &sample()).unwrap();
            assert_eq!(ns.run("nft list ruleset"), whole, "{change}");
        }
        // What a former release has looks at packets too early.
        ns.nft_file(
            "table inet netloom { chain vxlan-input { type filter hook input priority filter; udp dport @vxlanports jump vxlan-senders; }; }
             flush chain inet netloom vxlan-output",
        );
        guard_vxlan(s, None, &sample()).unwrap();
        assert_eq!(ns.run("nft list ruleset"), whole);
        // An attachment's repair knows of it.
        ns.nft_file("flush chain inet netloom vxlan-arrivals");
        repair(s).unwrap();
        assert_eq!(ns.run("nft list ruleset"), whole);
    });
}

/// An agent knows of no Nodes yet, and a tunnel with another port may still be there.
#[test]
fn what_is_known_from_before_takes_nothing_away() {
    let ns = Namespace::new();
    let more = Enclosed { ports: [8472].into(), ..enclosed(&["192.0.2.2", "192.0.2.3"]) };
    ns.nft(|s| {
        assert_eq!(guard_vxlan_also(s, &Enclosed { ports: BTreeSet::new(), ..sample() }), Ok(0));
        assert!(!s.has_table(Family::Inet, "netloom").unwrap());
        assert_eq!(guard_vxlan_also(s, &sample()), Ok(5));
        let whole = ns.run("nft list ruleset");
        assert_eq!(guard_vxlan_also(s, &more), Ok(2));
        assert_eq!(guard_vxlan_also(s, &more), Ok(0));
        let both = ns.run("nft list ruleset");
        assert!(["4789, 8472", "192.0.2.1, 192.0.2.2", "192.0.2.3"].iter().all(|text| both.contains(text)), "{both}");
        assert_eq!(guard_vxlan(s, None, &sample()), Ok(2));
        assert_eq!(ns.run("nft list ruleset"), whole);
    });
}

#[test]
fn a_packet_from_outside_reaches_no_tunnel() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    let pairs = [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")];
    for (from, to) in pairs {
        assert!(arrives((outside, from), (router, to), PORT), "{from}");
    }
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    for (from, to) in pairs {
        assert!(arrives((outside, from), (router, to), PORT), "{from} is a node");
    }
    // The same sender, which is no node any more.
    router.nft(|s| guard_vxlan(s, Some(&sample()), &enclosed(&["192.0.2.1", "2001:db8::1"])).unwrap());
    for (from, to) in pairs {
        let before = dropped(router);
        assert!(!arrives((outside, from), (router, to), PORT), "{from} is no node");
        assert!(dropped(router) > before);
        assert!(arrives((outside, from), (router, to), PORT + 1), "another port is anybody's");
    }
}

/// It would have the node's address behind masquerade, which the other node lets through.
#[test]
fn a_packet_from_a_pod_reaches_no_tunnel_of_this_node_or_another() {
    let wires = Wires::new();
    let (pod, router, outside, neighbour) = (&wires.pod, &wires.router, &wires.outside, &wires.neighbour);
    router.nft_file("table inet cluster { chain out { type nat hook postrouting priority srcnat; oifname outside masquerade; }; }");
    let attacks = [
        (("10.1.0.5", "192.0.2.1"), router),
        (("fd01::5", "2001:db8::1"), router),
        (("10.1.0.5", "192.0.2.2"), outside),
        (("fd01::5", "2001:db8::2"), outside),
    ];
    for ((from, to), at) in attacks {
        assert!(arrives((pod, from), (at, to), PORT), "{from} to {to}");
    }
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    for ((from, to), at) in attacks {
        let before = dropped(router);
        assert!(!arrives((pod, from), (at, to), PORT), "{from} to {to}");
        assert!(dropped(router) > before);
    }
    // A Service may lead there.
    router.nft_file(
        "table inet services { chain in { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 udp dport 53 dnat ip to 192.0.2.2:4789; }; }",
    );
    let receiver = outside.netns.enter(|_| UdpSocket::bind(("192.0.2.2", PORT)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sender = pod.netns.enter(|_| UdpSocket::bind("10.1.0.5:0").unwrap()).unwrap();
    let before = dropped(router);
    sender.send_to(b"frame", "10.96.0.1:53").unwrap();
    assert!(receiver.recv_from(&mut [0; 8]).is_err());
    assert!(dropped(router) > before);
    drop(receiver);
    // What pods send each other is theirs.
    assert!(arrives((pod, "10.1.0.5"), (neighbour, "10.1.0.6"), PORT) && arrives((pod, "fd01::5"), (neighbour, "fd01::6"), PORT));
}

/// A pod that may send raw packets, on a link whose `rp_filter` is off, needs no masquerade to have a node's address.
#[test]
fn a_forged_packet_from_a_pod_reaches_no_tunnel_of_this_node_or_another() {
    let wires = Wires::new();
    let (pod, router, outside, neighbour) = (&wires.pod, &wires.router, &wires.outside, &wires.neighbour);
    ["all", "pod", "outside"].iter().for_each(|name| router.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0"));
    pod.run("ip addr add 192.0.2.2/32 dev eth0");
    pod.run("ip -6 addr add 2001:db8::2/128 dev eth0 nodad");
    let nodes = enclosed(&["192.0.2.1", "192.0.2.2", "10.1.0.6", "2001:db8::1", "2001:db8::2", "fd01::6"]);
    let attacks = [
        (("192.0.2.2", "192.0.2.1"), router),
        (("2001:db8::2", "2001:db8::1"), router),
        (("192.0.2.2", "10.1.0.6"), neighbour),
        (("2001:db8::2", "fd01::6"), neighbour),
    ];
    for ((from, to), at) in attacks {
        assert!(arrives((pod, from), (at, to), PORT), "{from} to {to}");
    }
    router.nft(|s| guard_vxlan(s, None, &nodes).unwrap());
    for ((from, to), at) in attacks {
        let before = dropped_in(router, "vxlan-strays");
        assert!(!arrives((pod, from), (at, to), PORT), "{from} to {to}");
        assert!(dropped_in(router, "vxlan-strays") > before);
        assert!(arrives((outside, from), (at, to), PORT), "{from} is that node's, and comes from there");
    }
}

/// A node with two uplinks may be reached by one and answer by the other.
#[test]
fn a_packet_by_an_uplink_needs_no_way_back_there() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    ["all", "outside"].iter().for_each(|name| router.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0"));
    // Of a kind that no pod's link to the host has.
    router.run("ip link add link outside name uplink address 02:00:00:00:00:77 type macvlan mode bridge");
    router.run("ip link set uplink up");
    router.sysctl("net/ipv4/conf/uplink/rp_filter", "0");
    for there in ["192.0.2.1", "fe80::1"] {
        outside.run(&format!("ip neigh replace {there} lladdr 02:00:00:00:00:77 dev eth0 nud permanent"));
    }
    router.nft_file("table inet came { chain by { type filter hook input priority 0; iifname uplink udp dport 4789 counter; }; }");
    for (from, to) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        assert!(arrives((outside, from), (router, to), PORT), "{from} to {to}");
    }
    assert!(!router.run("nft list table inet came").contains("packets 0"), "they came by another link");
}

/// Masquerade keeps the source port, so that another node's tunnel packets would look like answers to the pod's packet.
#[test]
fn a_pod_that_sends_from_the_tunnels_port_gets_no_packet_of_the_tunnel() {
    const OTHER: u16 = 50_000;
    let wires = Wires::new();
    let (pod, router, outside) = (&wires.pod, &wires.router, &wires.outside);
    router.nft_file("table inet cluster { chain out { type nat hook postrouting priority srcnat; oifname outside masquerade; }; }");
    let bind = |ns: &Namespace, address: &str, port: u16| {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let until = Instant::now() + Duration::from_secs(10);
        // A process that another test is just starting holds the socket of before for a moment.
        let socket = loop {
            match ns.netns.enter(|_| UdpSocket::bind(address)).unwrap() {
                Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < until => std::thread::yield_now(),
                bound => break bound.unwrap(),
            }
        };
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    };
    // Whether the pod's packet leaves, and then whether the tunnel gets the other node's packet.
    let attack = |from: &str, own: &str, node: &str, port: u16| {
        let (pod, tunnel, node) = (bind(pod, from, PORT), bind(router, own, PORT), bind(outside, node, port));
        // A neighbour look-up may cost the first packets.
        let leaves = (0..3).any(|_| {
            pod.send_to(b"mine", node.local_addr().unwrap()).unwrap();
            node.recv_from(&mut [0; 8]).is_ok()
        });
        let arrives = (0..3).any(|_| {
            node.send_to(b"frame", tunnel.local_addr().unwrap()).unwrap();
            tunnel.recv_from(&mut [0; 8]).is_ok()
        });
        (leaves, arrives)
    };
    for (from, own, node) in [("10.1.0.5", "192.0.2.1", "192.0.2.2"), ("fd01::5", "2001:db8::1", "2001:db8::2")] {
        assert_eq!(attack(from, own, node, OTHER), (true, false), "{from}: without the guard the pod gets them");
        router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
        assert_eq!(attack(from, own, node, OTHER + 1), (false, true), "{from}");
        let chain = router.run("nft list chain inet netloom vxlan-turned");
        assert_eq!(chain.matches("counter packets 0 ").count(), 1, "the other family's: {chain}");
        // Elsewhere the port is the pod's.
        router.nft(|s| guard_vxlan(s, None, &enclosed(&["192.0.2.1", "2001:db8::1"])).unwrap());
        assert!(attack(from, own, node, OTHER + 2).0, "{node} is no node");
        router.run("nft delete table inet netloom");
    }
}

/// Its own node lets it go, as that address is no node's, and masquerade gives it a node's address. The tunnel's socket has all addresses of the node.
#[test]
fn a_packet_to_another_address_of_a_node_reaches_no_tunnel() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    router.run("ip addr add 198.51.100.9/32 dev outside");
    router.run("ip -6 addr add fd09::9/128 dev outside nodad");
    let attacks = [("192.0.2.2", "198.51.100.9"), ("2001:db8::2", "fd09::9")];
    for (from, to) in attacks {
        assert!(arrives((outside, from), (router, to), PORT), "{from} to {to}");
    }
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    for (from, to) in attacks {
        let before = dropped(router);
        assert!(!arrives((outside, from), (router, to), PORT), "{from} to {to}");
        assert!(dropped(router) > before);
        assert!(arrives((outside, from), (router, to), PORT + 1), "another port is anybody's");
    }
}

/// A pod of another node asks for a Service or a host port here, and has that node's address.
#[test]
fn a_packet_that_is_turned_to_the_tunnel_does_not_reach_it() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    router.nft_file(
        "table inet services { chain in { type nat hook prerouting priority dstnat; udp dport 53 dnat ip to 192.0.2.1:4789; }; }",
    );
    let receiver = router.netns.enter(|_| UdpSocket::bind(("192.0.2.1", PORT)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let asks = || {
        let sender = outside.netns.enter(|_| UdpSocket::bind("192.0.2.2:0").unwrap()).unwrap();
        (0..3).any(|_| {
            sender.send_to(b"frame", "192.0.2.1:53").unwrap();
            receiver.recv_from(&mut [0; 8]).is_ok()
        })
    };
    assert!(asks());
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    let before = dropped(router);
    assert!(!asks());
    assert!(dropped(router) > before);
}

/// As IPVS sends what pods send to a Service: from the hook of the node's own packets, with the pod's address.
#[test]
fn what_leaves_the_node_itself_for_a_tunnel_has_a_nodes_address() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    router.run("ip addr add 10.1.0.9/32 dev pod");
    router.run("ip -6 addr add fd01::9/128 dev pod nodad");
    let pairs = [("10.1.0.9", "192.0.2.1", "192.0.2.2"), ("fd01::9", "2001:db8::1", "2001:db8::2")];
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    for (other, own, to) in pairs {
        assert!(arrives((router, own), (outside, to), PORT), "{own} is a node's");
        let receiver = outside.netns.enter(|_| UdpSocket::bind((to, PORT)).unwrap()).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let sender = router.netns.enter(|_| UdpSocket::bind((other, 0)).unwrap()).unwrap();
        let before = dropped(router);
        let refused = sender.send_to(b"frame", (to, PORT)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{other} is no node's");
        assert!(receiver.recv_from(&mut [0; 8]).is_err());
        assert!(dropped(router) > before);
    }
}

/// IPVS leaves a packet's new destination and no mark of DNAT, as a program does that rewrites packets. Another node's pod may be behind a node's address.
#[test]
fn a_packet_that_was_sent_elsewhere_and_comes_with_a_nodes_address_reaches_no_tunnel() {
    let wires = Wires::new();
    let (router, outside, pod) = (&wires.router, &wires.outside, &wires.pod);
    // To the node itself, on to another node, and from the node itself.
    router.run("ip addr add 192.0.2.3/32 dev outside");
    router.run("ip -6 addr add 2001:db8::3/128 dev outside nodad");
    let turned = |v4: &str, v6: &str| {
        format!(
            "ip daddr 192.0.2.3 udp dport {{ 53, 4789 }} udp dport set 4789 ip daddr set {v4};
             ip6 daddr 2001:db8::3 udp dport {{ 53, 4789 }} udp dport set 4789 ip6 daddr set {v6};"
        )
    };
    let sample = enclosed(&["192.0.2.1", "192.0.2.2", "10.1.0.5", "2001:db8::1", "2001:db8::2", "fd01::5"]);
    let cases = [
        ("prerouting", outside, ("192.0.2.2", "2001:db8::2"), router, ("192.0.2.1", "2001:db8::1")),
        ("prerouting", outside, ("192.0.2.2", "2001:db8::2"), pod, ("10.1.0.5", "fd01::5")),
        ("output", router, ("192.0.2.1", "2001:db8::1"), outside, ("192.0.2.2", "2001:db8::2")),
    ];
    for (hook, sender, from, receiver, to) in cases {
        let kind = if hook == "output" { "route" } else { "filter" };
        let chain = format!("chain turn {{ type {kind} hook {hook} priority -150; {} }};", turned(to.0, to.1));
        router.nft_file(&format!("table inet turning {{ {chain} }}"));
        for (from, to, asked) in [(from.0, to.0, "192.0.2.3"), (from.1, to.1, "2001:db8::3")] {
            let socket = receiver.netns.enter(|_| UdpSocket::bind((to, PORT)).unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            for port in [53, PORT] {
                let asks = |times: usize| {
                    let sender = sender.netns.enter(|_| UdpSocket::bind((from, 0)).unwrap()).unwrap();
                    // What the node itself sends is refused at once.
                    (0..times).any(|_| sender.send_to(b"frame", (asked, port)).is_ok() && socket.recv_from(&mut [0; 8]).is_ok())
                };
                assert!(asks(100), "{from} to {asked} port {port}, turned at {hook} to {to}");
                router.nft(|s| guard_vxlan(s, None, &sample).unwrap());
                let before = dropped(router);
                assert!(!asks(3), "{from} to {asked} port {port}, turned at {hook} to {to}");
                assert!(dropped(router) > before);
                router.run("nft delete table inet netloom");
            }
            // What is sent there from the start arrives.
            drop(socket);
            router.nft(|s| guard_vxlan(s, None, &sample).unwrap());
            assert!(arrives((sender, from), (receiver, to), PORT), "{from} to {to}");
            router.run("nft delete table inet netloom");
        }
        router.run("nft delete table inet turning");
    }
}

/// Some clusters have no connection tracking for their tunnels.
#[test]
fn what_nobody_tracks_is_judged_by_its_addresses() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    let chain = |hook| format!("chain {hook} {{ type filter hook {hook} priority raw; udp dport 4789 notrack; }};");
    router.nft_file(&format!("table inet untracked {{ {} {} }}", chain("prerouting"), chain("output")));
    router.nft(|s| guard_vxlan(s, None, &sample()).unwrap());
    for (node, other) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        assert!(arrives((outside, other), (router, node), PORT), "{other} is a node");
        assert!(arrives((router, node), (outside, other), PORT), "{node} is a node");
    }
    router.nft(|s| guard_vxlan(s, Some(&sample()), &enclosed(&["192.0.2.1", "2001:db8::1"])).unwrap());
    for (node, other) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        let before = dropped(router);
        assert!(!arrives((outside, other), (router, node), PORT), "{other} is no node");
        assert!(dropped(router) > before);
    }
}
