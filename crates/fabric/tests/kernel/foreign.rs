//! What other programs have stays theirs.

use std::net::UdpSocket;

use between::{Family, Mode, Tunnel};
use linux::wireguard::PrivateKey;
use netloom_fabric::{Applied, Fabric, public_key};

use crate::cluster::{Cluster, Node, VXLAN, vxlan};
use crate::oracle;

fn texts(applied: &Applied) -> Vec<String> {
    applied.errors.iter().map(ToString::to_string).collect()
}

fn errors(cluster: &mut Cluster) -> Vec<String> {
    texts(&cluster.try_apply(0))
}

#[test]
fn another_programs_route_keeps_its_range_and_is_reported() {
    for (mode, over) in [(Mode::Direct, &[Family::V4, Family::V6][..]), (Mode::Vxlan, &[Family::V4][..])] {
        let mut cluster = Cluster::new(2, mode, over);
        // Each takes the place of ours; the third is only preferred.
        for (replace, range, shown) in [
            ("ip route replace 10.1.2.0/24 via 10.1.1.7 dev cni0 proto 99", "10.1.2.0/24", "via 10.1.1.7 dev cni0 proto 99 metric 0"),
            (
                "ip -6 route replace fd00:1:2::/64 via fd00:1:1::7 dev cni0 proto 99",
                "fd00:1:2::/64",
                "via fd00:1:1::7 dev cni0 proto 99 metric 1024",
            ),
            (
                "ip -6 route add fd00:1:2::/64 via fd00:1:1::7 dev cni0 proto 99 metric 5",
                "fd00:1:2::/64",
                "via fd00:1:1::7 dev cni0 proto 99 metric 5",
            ),
        ] {
            cluster.apply(0);
            let node = &mut cluster.nodes[0];
            node.noticed();
            node.space.sh(replace);
            assert!(node.noticed(), "{replace}: not noticed");
            let space = &node.space;
            let before = space.sh("ip -j route show proto 99") + &space.sh("ip -6 -j route show proto 99");
            for _ in 0..2 {
                let expected = format!(
                    "cannot add the route to {range}: there is another one, {shown}; if it is not needed, delete it with `ip route del {range} proto 99`"
                );
                assert_eq!(errors(&mut cluster), [expected]);
            }
            let space = &cluster.nodes[0].space;
            assert_eq!(space.sh("ip -j route show proto 99") + &space.sh("ip -6 -j route show proto 99"), before);
            // All else is as it should be.
            let mut plan = cluster.plan(0);
            plan.routes.remove(&range.parse().unwrap());
            oracle::agrees(&cluster.nodes[0].space, &plan);
            // When it goes, ours comes.
            let node = &mut cluster.nodes[0];
            node.noticed();
            node.space.sh(&format!("ip route del {range} proto 99"));
            assert!(node.noticed(), "{range}: not noticed");
            cluster.apply(0);
        }
        cluster.reaches();
    }
}

/// A route that came after the last look is met when ours is written.
#[test]
fn a_route_that_nobody_has_told_of_is_not_overwritten() {
    let mut cluster = Cluster::new(3, Mode::Vxlan, &[Family::V4]);
    let back = cluster.nodes.pop().unwrap();
    cluster.apply_all();
    cluster.nodes[0].space.sh("ip route add 10.1.3.0/24 via 10.1.1.7 dev cni0 proto 99");
    cluster.nodes.push(back);
    let found = texts(&cluster.apply_unnoticed(0));
    assert!(matches!(found.as_slice(), [one] if one.contains("there is another one, via 10.1.1.7 dev cni0")), "{found:?}");
    assert!(cluster.nodes[0].space.sh("ip route show 10.1.3.0/24").contains("via 10.1.1.7"));
}

#[test]
fn routes_of_others_that_are_in_nobodys_way_stay() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4, Family::V6]);
    let foreign = [
        "10.1.2.0/24 via 192.0.2.9 dev eth0 proto 99 metric 50",
        "10.1.2.0/25 via 192.0.2.9 dev eth0 proto static",
        "10.1.2.0/24 via 192.0.2.9 dev eth0 table 77 proto 110",
        "172.16.0.0/12 via 192.0.2.9 dev eth0 proto boot",
        // They cover what is ours, and its next hops.
        "10.0.0.0/8 via 192.0.2.9 dev eth0 proto static",
        "fd00::/16 via 2001:db8::9 dev eth0 proto static",
        "fe80::/10 via 2001:db8::9 dev eth0 proto static metric 5",
    ];
    for route in foreign {
        cluster.nodes[0].space.sh(&format!("ip route add {route}"));
    }
    let shown = |cluster: &Cluster| {
        let space = &cluster.nodes[0].space;
        space.sh("ip route show table all via 192.0.2.9") + &space.sh("ip -6 route show table all via 2001:db8::9")
    };
    let before = shown(&cluster);
    cluster.nodes[0].fabric = Fabric::default();
    cluster.apply(0);
    let gone = cluster.nodes.pop();
    cluster.apply(0);
    cluster.nodes.extend(gone);
    cluster.apply(0);
    assert_eq!((shown(&cluster), before.lines().count()), (before.clone(), foreign.len()));
}

/// The device cannot come up, and direct routes stay until it can.
#[test]
fn a_udp_port_that_another_program_uses_is_reported() {
    let mut cluster = Cluster::new(2, Mode::Direct, &[Family::V4, Family::V6]);
    let socket = cluster.nodes[0].space.run(|_, _| UdpSocket::bind(("0.0.0.0", VXLAN.port)).unwrap());
    cluster.settings.mode = Mode::Vxlan;
    let found = errors(&mut cluster);
    let expected = format!(
        "cannot make the device {} (vxlan over IPv4, VNI 1, UDP port 8472): EADDRINUSE: Address already in use; another program uses the UDP \
         port: stop it, or choose another port",
        vxlan(Family::V4)
    );
    assert!(found.contains(&expected), "{found:#?}");
    cluster.reaches();
    drop(socket);
    cluster.apply_all();
    cluster.reaches();
}

#[test]
fn a_link_that_has_the_name_of_our_device_is_reported_and_left_alone() {
    let mut cluster = Cluster::new(2, Mode::Direct, &[Family::V4, Family::V6]);
    let name = vxlan(Family::V4);
    for (make, kind) in [
        (format!("ip link add {name} type bridge"), "bridge"),
        // A vxlan, but not of this network.
        (format!("ip link add {name} type vxlan id 5 dstport 8472 local 192.0.2.1"), "vxlan"),
    ] {
        cluster.settings.mode = Mode::Direct;
        cluster.apply(0);
        cluster.nodes[0].space.sh(&make);
        let index = cluster.nodes[0].space.index(&name);
        cluster.settings.mode = Mode::Vxlan;
        let expected = format!(
            "cannot make the device {name}: another link of type {kind} has that name; rename it, or delete it with `ip link del {name}`"
        );
        assert_eq!(errors(&mut cluster), [expected]);
        // What cannot be replaced stays as it was.
        cluster.settings.mode = Mode::Direct;
        oracle::routes_agree(&cluster.nodes[0].space, &cluster.plan(0));
        cluster.settings.mode = Mode::Vxlan;
        let node = &mut cluster.nodes[0];
        assert_eq!(node.space.index(&name), index);
        node.noticed();
        node.space.sh(&format!("ip link del {name}"));
        assert!(node.noticed());
        cluster.apply(0);
    }
}

#[test]
fn a_vxlan_of_another_name_that_has_our_network_is_reported_and_left_alone() {
    let mut cluster = Cluster::new(2, Mode::Direct, &[Family::V4, Family::V6]);
    cluster.nodes[0].space.sh("ip link add flannel.1 type vxlan id 1 dstport 8472 local 192.0.2.1 nolearning");
    cluster.settings.mode = Mode::Vxlan;
    let name = vxlan(Family::V4);
    let expected = format!(
        "cannot make the device {name}: the vxlan device flannel.1 has the same VNI and UDP port; delete it, or choose another VNI or port"
    );
    assert_eq!(errors(&mut cluster), [expected]);
    let node = &mut cluster.nodes[0];
    node.noticed();
    node.space.sh("ip link del flannel.1");
    assert!(node.noticed());
    cluster.apply_all();
    cluster.reaches();
}

#[test]
fn a_renamed_device_is_noticed_and_reported() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    let name = vxlan(Family::V4);
    let node = &mut cluster.nodes[0];
    node.space.sh(&format!("ip link set {name} down"));
    node.noticed();
    node.space.sh(&format!("ip link set {name} name mine"));
    assert!(node.noticed());
    let found = errors(&mut cluster);
    assert!(matches!(found.as_slice(), [one] if one.contains("the vxlan device mine has the same VNI")), "{found:?}");
    cluster.nodes[0].space.sh("ip link del mine");
    cluster.apply(0);
    cluster.reaches();
}

/// Without private keys no kernel has the device; one without WireGuard says which module it lacks. All else of the plan is carried out.
#[test]
fn a_device_of_wireguard_that_cannot_be_made_keeps_nothing_else_from_being_done() {
    let mut cluster = Cluster::new(3, Mode::Direct, &[Family::V4, Family::V6]);
    for (at, node) in cluster.nodes.iter_mut().enumerate() {
        node.seen.keys = vec![between::PublicKey { key: [u8::try_from(at).unwrap() + 1; 32], port: None, rotation: 0 }];
    }
    cluster.settings.mode = Mode::Auto(Tunnel::WireGuard);
    let _router = cluster.put_behind_router(2);
    let plan = cluster.plan(0);
    assert_eq!((plan.peers.len(), plan.routes.len()), (1, 4));
    let Node { space, fabric, .. } = &mut cluster.nodes[0];
    let has_it = space.run(|_, netlink| linux::link::probe(netlink, "wireguard")).unwrap();
    let applied = space.run(|_, netlink| fabric.apply(netlink, &plan)).unwrap();
    let said: Vec<String> = applied.errors.iter().map(ToString::to_string).collect();
    let why = if has_it { "ENOKEY" } else { "load the kernel module wireguard" };
    let is_told = said[0].starts_with("cannot make the device nlw-ca6c (WireGuard, UDP port 51820)") && said[0].contains(why);
    assert!(is_told && said.len() == 1, "{said:?}");
    assert!(has_it || applied.skipped == 3, "the peer, and the routes to it: {applied:?}");
    let routes = space.sh("ip route show proto 110") + &space.sh("ip -6 route show proto 110");
    assert!(routes.contains("10.1.2.0/24 via 192.0.2.2") && routes.contains("fd00:1:2::/64 via 2001:db8::2"), "{routes}");
    let key = space.run(|inside, netlink| public_key(inside, netlink, &PrivateKey([7; 32])));
    match key {
        Ok(_) => assert!(has_it),
        Err(e) => assert!(!has_it && e.to_string().contains("load its module with `modprobe wireguard`"), "{e}"),
    }
}
