//! Packets of other nodes' pods come through the tunnel or not at all.

use crate::{Tunnelled, guard_tunnels, repair};

use super::*;

const RULES: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    set local4 { type ipv4_addr; flags interval; elements = { 10.1.0.4/31 }; }
    set tunnelled4 { type ipv4_addr; flags interval; elements = { 10.1.0.6/31 }; }
    set local6 { type ipv6_addr; flags interval; elements = { fd01::4/127 }; }
    set tunnelled6 { type ipv6_addr; flags interval; elements = { fd01::6/127 }; }
    chain tunnelled {
        type filter hook prerouting priority -99; policy accept;
        iifname "nlw-*" meta iifkind "wireguard" return
        ip daddr @local4 ip saddr @tunnelled4 counter packets 0 bytes 0 drop
        ip6 daddr @local6 ip6 saddr @tunnelled6 counter packets 0 bytes 0 drop
    }
}"#;

/// The pod of [`Wires`] is the node's own, and the neighbour is another node's.
fn sample() -> Tunnelled {
    let nets = |texts: [&str; 2]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Tunnelled { own: nets(["10.1.0.4/31", "fd01::4/127"]), peers: nets(["10.1.0.6/31", "fd01::6/127"]) }
}

#[test]
fn it_is_installed_as_nft_would_and_only_where_somebody_is_behind_a_tunnel() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let nobody = Tunnelled { peers: Vec::new(), ..sample() };
    ours.nft(|s| {
        assert!(guard_tunnels(s, &nobody).unwrap().is_nothing());
        assert!(!s.has_table(Family::Inet, "netloom").unwrap(), "other modes pay nothing");
        assert_eq!(guard_tunnels(s, &sample()).unwrap().added.len(), 4);
        assert!(guard_tunnels(s, &sample()).unwrap().is_nothing());
    });
    theirs.nft_file(RULES);
    assert_eq!(ours.run("nft list ruleset"), theirs.run("nft list ruleset"));
    // Without a tunnel the sets are empty again.
    ours.nft(|s| assert_eq!(guard_tunnels(s, &nobody).unwrap().removed.len(), 4));
}

#[test]
fn what_others_flush_is_put_back() {
    let ns = Namespace::new();
    ns.nft(|s| {
        guard_tunnels(s, &sample()).unwrap();
        let whole = ns.run("nft list ruleset");
        for change in
            ["flush chain inet netloom tunnelled", "flush table inet netloom", "flush set inet netloom tunnelled6", "flush ruleset"]
        {
            ns.nft_file(change);
            assert!(!guard_tunnels(s, &sample()).unwrap().is_nothing(), "{change}");
            assert_eq!(ns.run("nft list ruleset"), whole, "{change}");
        }
        // An attachment's repair knows of it.
        ns.nft_file("flush chain inet netloom tunnelled");
        repair(s).unwrap();
        assert_eq!(ns.run("nft list ruleset"), whole);
    });
}

#[test]
fn a_plain_packet_with_the_source_of_another_nodes_pod_reaches_no_pod() {
    let wires = Wires::new();
    let (pod, router, neighbour) = (&wires.pod, &wires.router, &wires.neighbour);
    let pairs = [("10.1.0.6", "10.1.0.5"), ("fd01::6", "fd01::5")];
    let arrives = |from: &Namespace, source: &str, to: &str| {
        let socket = |ns: &Namespace, address: &str| {
            let address = SocketAddr::new(address.parse().unwrap(), 0);
            ns.netns.enter(|_| UdpSocket::bind(address).unwrap()).unwrap()
        };
        let (sender, receiver) = (socket(from, source), socket(pod, to));
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // A neighbour look-up may cost the first packets; three are waited for.
        (0..3).any(|_| {
            sender.send_to(b"plain", receiver.local_addr().unwrap()).unwrap();
            receiver.recv_from(&mut [0; 8]).is_ok()
        })
    };
    for (from, to) in pairs {
        wires.source((neighbour, from), (pod, to));
    }
    router.nft(|s| guard_tunnels(s, &sample()).unwrap());
    for (from, to) in pairs {
        assert!(!arrives(neighbour, from, to), "{from} to {to}");
    }
    // Also by a port of the host that leads to the pod.
    router.nft_file(
        "table inet ports { chain in { type nat hook prerouting priority dstnat; ip daddr 192.0.2.1 udp dport 53 dnat ip to 10.1.0.5:5353; }; }",
    );
    let receiver = pod.netns.enter(|_| UdpSocket::bind("10.1.0.5:5353").unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let ask = |from: &Namespace, source: &str| {
        let sender = from.netns.enter(|_| UdpSocket::bind((source, 0)).unwrap()).unwrap();
        (0..3).any(|_| {
            sender.send_to(b"plain", "192.0.2.1:53").unwrap();
            receiver.recv_from(&mut [0; 8]).is_ok()
        })
    };
    assert!(!ask(neighbour, "10.1.0.6") && ask(&wires.outside, "192.0.2.2"));
    // Whoever is no pod of another node is let through.
    assert!(arrives(&wires.outside, "192.0.2.2", "10.1.0.5") && arrives(&wires.outside, "2001:db8::2", "fd01::5"));
    // A link that has only the name of a tunnel's device is none: it was enough once. That a real one is let through is tested where the kernel
    // has WireGuard (tests/guest/kernel/wireguard/guarded.rs).
    router.run("ip link set neighbour name nlw-ca6c");
    for (from, to) in pairs {
        assert!(!arrives(neighbour, from, to), "{from} to {to}");
    }
}

/// The number of rules in the chain was another one.
#[test]
fn rules_of_a_release_of_before_are_replaced() {
    let ns = Namespace::new();
    ns.nft(|s| {
        guard_tunnels(s, &sample()).unwrap();
        let whole = ns.run("nft list ruleset");
        ns.nft_file(
            "flush chain inet netloom tunnelled; \
             add rule inet netloom tunnelled ip daddr @local4 ip saddr @tunnelled4 iifname != \"nlw-*\" counter drop; \
             add rule inet netloom tunnelled ip6 daddr @local6 ip6 saddr @tunnelled6 iifname != \"nlw-*\" counter drop",
        );
        assert!(guard_tunnels(s, &sample()).unwrap().rules);
        assert_eq!(ns.run("nft list ruleset"), whole);
    });
}
