//! What another program changes is noticed, and put back.

use between::{Device, Family, Mode, Plan};
use netloom_fabric::{EntryError, Fabric, Options};

use crate::cluster::{Cluster, VXLAN, vxlan};
use crate::oracle;
use crate::space::until;

/// What another program may do to node 1. `DEV` is its vxlan device, `MAC` the VTEP of node 2, `HOP` the next hop to node 2's range of IPv6.
const TO_VXLAN: [&str; 35] = [
    "ip route del 10.1.2.0/24 proto 110",
    "ip -6 route del fd00:1:2::/64 proto 110",
    "ip route flush proto 110",
    "ip route replace 10.1.2.0/24 via 192.0.2.3 dev eth0 proto 110",
    "ip route replace 10.1.2.0/24 via 10.1.2.0 dev DEV onlink proto 110 mtu 900",
    "ip route append 10.1.2.0/24 via 192.0.2.3 dev eth0 proto 110",
    "ip route prepend 10.1.2.0/24 via 192.0.2.3 dev eth0 proto 110",
    "ip -6 route append fd00:1:2::/64 via fe80::1 dev DEV",
    "ip -6 route append fd00:1:2::/64 dev eth0 proto 110",
    "ip route add 10.1.9.0/24 via 192.0.2.3 dev eth0 proto 110",
    "ip route add 10.1.2.0/24 via 192.0.2.3 dev eth0 proto 110 metric 7",
    "bridge fdb del MAC dev DEV self",
    "bridge fdb replace MAC dev DEV dst 192.0.2.3 self permanent",
    "bridge fdb replace MAC dev DEV dst 192.0.2.2 self dynamic",
    "bridge fdb append 00:00:00:00:00:00 dev DEV dst 192.0.2.3 self permanent",
    "bridge fdb add 02:00:00:00:00:99 dev DEV dst 192.0.2.3 self permanent",
    "bridge fdb add 02:00:00:00:00:99 dev DEV dst 192.0.2.3 port 99 self permanent",
    "ip neigh del 10.1.2.0 dev DEV",
    "ip neigh del HOP dev DEV",
    "ip neigh replace HOP lladdr 02:00:00:00:00:99 dev DEV nud permanent",
    "ip neigh replace 10.1.2.0 lladdr MAC dev DEV nud stale",
    "ip neigh add 10.1.2.77 lladdr MAC dev DEV nud permanent",
    "ip neigh flush dev DEV nud permanent",
    "ip link del DEV",
    "ip link set DEV down",
    "ip link set DEV mtu 1400",
    "ip link set DEV address 02:00:00:00:00:98",
    "ip link set DEV arp off",
    "ip link set DEV master cni0",
    "ip link set DEV type vxlan learning",
    "ip link set DEV type vxlan remote 192.0.2.3",
    "ip link set DEV type vxlan local 192.0.2.3",
    "ip link set DEV type vxlan dev eth0",
    "ip addr del 10.1.1.0/32 dev DEV",
    "ip addr add 10.1.1.0/24 dev DEV",
];

const TO_DIRECT: [&str; 7] = [
    "ip route del 10.1.2.0/24 proto 110",
    "ip -6 route del fd00:1:2::/64 proto 110",
    "ip -6 route replace fd00:1:2::/64 via 2001:db8::3 dev eth0 proto 110",
    "ip route replace 10.1.2.0/24 via 192.0.2.3 dev eth0 proto 110",
    "ip route add blackhole 10.1.9.0/24 proto 110",
    "ip route replace blackhole 10.1.2.0/24 proto 110",
    "ip -6 route add unreachable fd00:1:9::/64 proto 110",
];

/// Applies until nothing contradicts it any more: the kernel reports our own changes, too.
fn settle(cluster: &mut Cluster) {
    for _ in 0..3 {
        cluster.apply(0);
        if !cluster.nodes[0].noticed() {
            return;
        }
    }
    panic!("own changes contradict themselves, each time again");
}

/// A line with the names of a plan's entries.
fn named(line: &str, plan: &Plan) -> String {
    let hop = plan.routes[&"fd00:1:2::/64".parse().unwrap()].via.unwrap();
    let mac = plan.neighbours.iter().find(|((_, address), _)| *address == hop).map(|(_, mac)| mac.to_string());
    line.replace("DEV", &vxlan(Family::V4)).replace("HOP", &hop.to_string()).replace("MAC", &mac.unwrap_or_default())
}

fn sabotage(cluster: &mut Cluster, lines: &[&str]) {
    let plan = cluster.plan(0);
    for line in lines {
        settle(cluster);
        let line = named(line, &plan);
        let node = &mut cluster.nodes[0];
        node.space.sh(&line);
        assert!(oracle::kernel(&node.space) != oracle::wanted(&node.space, &plan), "{line}: nothing is different");
        assert!(node.noticed(), "{line}: not noticed");
        println!("{line}");
        assert!(cluster.apply(0) > 0, "{line}: nothing was done");
    }
    settle(cluster);
    assert_eq!(cluster.apply(0), 0);
    cluster.reaches();
}

#[test]
fn what_somebody_changes_of_vxlan_is_noticed_and_put_back() {
    let mut cluster = Cluster::new(3, Mode::Vxlan, &[Family::V4]);
    sabotage(&mut cluster, &TO_VXLAN);
}

#[test]
fn what_somebody_changes_of_direct_routes_is_noticed_and_put_back() {
    let mut cluster = Cluster::new(3, Mode::Direct, &[Family::V4, Family::V6]);
    sabotage(&mut cluster, &TO_DIRECT);
}

/// The same without a notice: a process that starts finds the kernel in any state.
#[test]
fn a_start_puts_back_what_was_changed_before() {
    let mut cluster = Cluster::new(3, Mode::Vxlan, &[Family::V4]);
    let plan = cluster.plan(0);
    for line in TO_VXLAN {
        cluster.nodes[0].space.sh(&named(line, &plan));
        cluster.nodes[0].fabric = Fabric::default();
        cluster.apply(0);
    }
    cluster.reaches();
}

/// Neither a notice nor a start: what is remembered is wrong, and found to be so before it does harm.
#[test]
fn a_device_that_went_unnoticed_is_missed() {
    let mut cluster = Cluster::new(3, Mode::Vxlan, &[Family::V4]);
    settle(&mut cluster);
    cluster.nodes[0].space.sh(&format!("ip link del {}", vxlan(Family::V4)));
    assert!(cluster.apply_unnoticed(0).errors.is_empty());
    oracle::agrees(&cluster.nodes[0].space, &cluster.plan(0));
    cluster.reaches();
}

/// With a link that goes down IPv4 routes go without a word, and IPv6 addresses too.
#[test]
fn routes_come_back_with_their_link() {
    let mut cluster = Cluster::new(2, Mode::Direct, &[Family::V4, Family::V6]);
    settle(&mut cluster);
    let plan = cluster.plan(0);
    let node = &mut cluster.nodes[0];
    node.space.sh("ip link set eth0 down");
    assert!(node.noticed());
    let refused = node.apply(&plan);
    let texts: Vec<String> = refused.errors.iter().map(ToString::to_string).collect();
    let expected = "cannot add the route to 10.1.2.0/24 via 192.0.2.2 on eth0: ENETUNREACH: Network is unreachable: Nexthop has invalid \
                    gateway; check that eth0 is up and that 192.0.2.2 is in one of its subnets";
    assert!(texts.iter().any(|text| text == expected), "{texts:?}");
    node.noticed();
    node.space.sh("ip link set eth0 up");
    assert!(node.noticed(), "the link is back");
    let refused = node.apply(&plan);
    assert!(!refused.errors.is_empty(), "without an address of IPv6 there is no way");
    node.noticed();
    node.space.sh("ip -6 addr add 2001:db8::1/64 dev eth0 nodad");
    // The kernel reports it only after duplicate address detection, even if that is off.
    until("a notice that the address is back", || node.noticed());
    cluster.apply(0);
    cluster.reaches();
}

/// The direct route that takes the tunnel's place is refused: the tunnel is needed, and named, until there is one.
#[test]
fn a_device_that_packets_still_take_is_named() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    settle(&mut cluster);
    cluster.settings.mode = Mode::Direct;
    let plan = cluster.plan(0);
    let node = &mut cluster.nodes[0];
    node.space.sh("ip link set eth0 down");
    node.noticed();
    let device = Device::Vxlan { over: Family::V4, vni: VXLAN.vni, port: VXLAN.port };
    assert_eq!(node.apply(&plan).remaining, [device].into());
    assert!(node.space.sh("ip -o link show type vxlan").contains(&vxlan(Family::V4)));
    node.space.sh("ip link set eth0 up");
    node.noticed();
    assert_eq!(node.apply(&plan).remaining, [].into());
    assert_eq!(node.space.sh("ip -o link show type vxlan"), "");
}

/// A peer that is away for a while needs nothing.
#[test]
fn a_cut_wire_changes_nothing() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    cluster.set_wire(1, "down");
    assert_eq!(cluster.apply(0), 0);
    cluster.set_wire(1, "up");
    cluster.reaches();
}

#[test]
fn the_reverse_path_filter_is_loosened_on_request_only() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    let filter = format!("ipv4/conf/{}/rp_filter", vxlan(Family::V4));
    assert_eq!(cluster.nodes[0].space.sysctl(&filter), "0");
    cluster.nodes[0].fabric = Fabric::new(Options { loose_rp_filter: true });
    // It comes with the device, also with one that has to be made again.
    cluster.nodes[0].space.sh(&format!("ip link del {}", vxlan(Family::V4)));
    cluster.apply(0);
    assert_eq!(cluster.nodes[0].space.sysctl(&filter), "2");
    cluster.reaches();
}

/// A range of IPv6 cannot be reached over a device that has IPv6 disabled; all else can.
#[test]
fn what_the_kernel_refuses_is_named_and_keeps_nothing_else_from_being_done() {
    let mut cluster = Cluster::new(2, Mode::Vxlan, &[Family::V4]);
    let name = vxlan(Family::V4);
    let plan = cluster.plan(0);
    let node = &mut cluster.nodes[0];
    node.space.sh(&format!("ip link del {name}"));
    node.space.set_sysctl("ipv6/conf/default/disable_ipv6", "1");
    let applied = node.apply(&plan);
    let texts: Vec<String> = applied.errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text.contains(&format!("the device {name} (vxlan over IPv4, VNI 1, UDP port 8472)"))), "{texts:?}");
    assert!(applied.errors.iter().all(|error| matches!(error, EntryError::Refused { .. })), "{texts:?}");
    let space = &node.space;
    assert!(oracle::kernel(space).iter().any(|line| line.starts_with("route 10.1.2.0/24")), "{texts:?}");
    space.set_sysctl(&format!("ipv6/conf/{name}/disable_ipv6"), "0");
    cluster.apply(0);
    cluster.reaches();
}
