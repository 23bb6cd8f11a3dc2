//! Packets between pods of two nodes, and what becomes of them while the tables change.

use std::process::Child;

use between::{Device, Family, Mode, Tunnel, Vxlan};

use crate::cluster::{Cluster, VXLAN, pod_address, seen};
use crate::oracle;

const BOTH: [Family; 2] = [Family::V4, Family::V6];

#[test]
fn direct_routes_carry_both_families() {
    let mut cluster = Cluster::new(3, Mode::Direct, &BOTH);
    cluster.reaches();
    assert_eq!(cluster.apply(0), 0, "what is there already is written again");
}

#[test]
fn vxlan_carries_both_families_over_either() {
    for over in BOTH {
        let mut cluster = Cluster::new(3, Mode::Vxlan, &[over]);
        cluster.reaches();
        assert_eq!(cluster.apply(0), 0, "what is there already is written again");
    }
}

/// IPv4 between nodes that have IPv6 alone takes the tunnel even on one link.
#[test]
fn auto_is_direct_on_one_link_and_a_tunnel_through_a_router() {
    for over in [&BOTH[..], &BOTH[1..]] {
        let mut cluster = Cluster::new(3, Mode::Auto(Tunnel::Vxlan), over);
        cluster.reaches();
        let _router = cluster.put_behind_router(2);
        cluster.apply_all();
        let plan = cluster.plan(0);
        let is_direct = |range: &str| matches!(plan.routes[&range.parse().unwrap()].device, Device::Link(_));
        let ranges = ["10.1.2.0/24", "fd00:1:2::/64", "10.1.3.0/24", "fd00:1:3::/64"];
        assert_eq!(ranges.map(is_direct), [over.contains(&Family::V4), true, false, false]);
        cluster.reaches();
    }
}

#[test]
fn a_packet_as_large_as_the_planned_mtu_passes_whole() {
    for over in BOTH {
        let cluster = Cluster::new(2, Mode::Vxlan, &[over]);
        let mtu = cluster.plan(0).mtu.unwrap();
        for node in &cluster.nodes {
            node.pod.sh(&format!("ip link set eth0 mtu {mtu}"));
        }
        for (family, headers) in [(Family::V4, 28), (Family::V6, 48)] {
            let ping = |size: u32| format!("ping -c1 -w60 -n -M do -s {size} {}", pod_address(family, 2));
            cluster.nodes[0].pod.sh(&ping(mtu - headers));
        }
    }
}

/// Between two packets, in milliseconds.
const INTERVAL: f64 = 4.0;

/// A process that sends a packet every few milliseconds; it ends with its handle.
struct Stream {
    what: String,
    ping: Option<Child>,
}

impl Stream {
    fn new(cluster: &Cluster, from: usize, family: Family, to: u8) -> Self {
        let address = pod_address(family, to);
        assert!(cluster.nodes[from].pod.pings(&address));
        let ping = cluster.nodes[from].pod.spawn(&format!("ping -q -n -i {} -w 300 {address}", INTERVAL / 1000.0));
        Stream { what: format!("n{} to {address}", from + 1), ping: Some(ping) }
    }

    /// Ends it; no packet may be lost. The last ones may be on their way still.
    fn end(mut self) {
        let ping = self.ping.take().unwrap();
        let pid = ping.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = ping.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |word: &str| -> u32 {
            let before = text.split(word).next().unwrap().trim_end();
            before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap_or_else(|e| panic!("{e}: {text}"))
        };
        let (sent, received) = (number("packets transmitted"), number("received"));
        // rtt min/avg/max/mdev = 0.041/0.072/1.303/0.050 ms
        let longest: f64 = text.split("= ").nth(1).and_then(|times| times.split('/').nth(2)).map_or(0.0, |max| max.parse().unwrap());
        let on_their_way = 1.0 + longest / INTERVAL;
        let lost = f64::from(sent - received);
        assert!(sent >= 5 && lost <= on_their_way && !text.contains("errors"), "{}: {text}", self.what);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(ping) = &mut self.ping {
            let _ = ping.kill();
            let _ = ping.wait();
        }
    }
}

/// Everything that can happen to node 2, while nodes 1 and 3 talk.
fn disturb(cluster: &mut Cluster, check: impl Fn(&Cluster)) {
    let range = |text: &str| text.parse().unwrap();
    // Another address.
    cluster.move_to(1, 22);
    cluster.apply_all();
    check(cluster);
    // Replaced by another machine under the same name.
    cluster.nodes[1].seen.uid = "another one".to_owned();
    cluster.apply_all();
    check(cluster);
    // More ranges, then fewer.
    cluster.nodes[1].seen.ranges.push(range("10.1.102.0/25"));
    cluster.apply_all();
    cluster.nodes[1].seen.ranges.pop();
    cluster.apply_all();
    check(cluster);
    // Gone, and back.
    let gone = cluster.nodes.remove(1);
    cluster.apply_all();
    cluster.nodes.insert(1, gone);
    cluster.apply_all();
    check(cluster);
    // Agents that start again with the kernel as it is.
    for node in &mut cluster.nodes {
        node.fabric = netloom_fabric::Fabric::default();
    }
    for at in 0..cluster.nodes.len() {
        assert_eq!(cluster.apply(at), 0, "a start changes what is right");
    }
}

#[test]
fn peers_that_a_change_does_not_concern_lose_nothing() {
    for (mode, over) in [(Mode::Direct, &BOTH[..]), (Mode::Vxlan, &BOTH[..1]), (Mode::Vxlan, &BOTH[1..])] {
        let mut cluster = Cluster::new(3, mode, over);
        let streams = BOTH.map(|family| Stream::new(&cluster, 0, family, 3));
        disturb(&mut cluster, |cluster| cluster.reaches());
        streams.into_iter().for_each(Stream::end);
    }
}

#[test]
fn another_mode_port_or_network_takes_the_old_device_away() {
    let mut cluster = Cluster::new(2, Mode::Direct, &BOTH);
    for (mode, vxlan) in [
        (Mode::Vxlan, VXLAN),
        (Mode::Vxlan, Vxlan { port: 4789, ..VXLAN }),
        (Mode::Vxlan, Vxlan { vni: 0xff_ffff, port: 4789 }),
        (Mode::Direct, VXLAN),
    ] {
        cluster.settings.mode = mode;
        cluster.settings.vxlan = vxlan;
        // The oracle finds a device that is left behind.
        cluster.apply_all();
        cluster.reaches();
    }
}

/// A node with a peer that has changed its own address, and whose agent has not seen that yet, goes on with the old one.
#[test]
fn the_own_address_changes_without_another_device() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    let name = crate::cluster::vxlan(Family::V4);
    let index = cluster.nodes[0].space.index(&name);
    cluster.move_to(0, 11);
    cluster.apply_all();
    cluster.reaches();
    assert_eq!(cluster.nodes[0].space.index(&name), index);
}

#[test]
fn an_empty_plan_takes_everything_of_ours_and_nothing_else() {
    for mode in [Mode::Direct, Mode::Vxlan] {
        let mut cluster = Cluster::new(2, mode, &BOTH);
        cluster.nodes[1].seen = seen(2, Vec::new());
        let others = |cluster: &Cluster| {
            let space = &cluster.nodes[0].space;
            let links: Vec<String> = space.json("ip -j link show").iter().map(|link| link["ifname"].to_string()).collect();
            let routes =
                ["-4", "-6"].map(|family| ["eth0", "cni0"].map(|dev| space.sh(&format!("ip {family} route show dev {dev} proto kernel"))));
            (links, routes)
        };
        let before = others(&cluster);
        cluster.apply(0);
        let left = oracle::kernel(&cluster.nodes[0].space);
        assert!(left.is_empty(), "{left:?}");
        let mut expected = before;
        expected.0.retain(|link| !link.contains("nl4-"));
        assert_eq!(others(&cluster), expected);
    }
}
