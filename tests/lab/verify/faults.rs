//! Each kind of fault, put into a lab, is named at the right node and device, on the way of the request and on that of the reply.

use std::collections::BTreeSet;

use super::{Lab, node, pod};

/// How packets get from node to node in the lab.
const DIRECT: &[&str] = &["direct"];
const VXLAN: &[&str] = &["vxlan"];
const BOTH: &[&str] = &["direct", "vxlan"];

/// One fault. A line is `PLACE: COMMAND`.
struct Row {
    modes: &'static [&'static str],
    /// What breaks the lab.
    breaks: &'static [&'static str],
    /// What mends it.
    mends: &'static [&'static str],
    /// The cases that notice it.
    test: &'static str,
    /// Fault, place and device.
    found: (&'static str, &'static str),
    /// On which ways. Both are asked, from `a` and from `b`; where each request meets the fault, no reply is looked at.
    on: &'static [&'static str],
}

const EITHER: &[&str] = &["reply", "request"];
const REQUEST: &[&str] = &["request"];
const REPLY: &[&str] = &["reply"];

/// `a` is on node left, `b` and `b2` on node right.
const FAULTS: &[Row] = &[
    Row {
        modes: DIRECT,
        breaks: &["node.left: ip route del 10.244.1.0/24"],
        mends: &["node.left: ip route add 10.244.1.0/24 via 172.30.0.2 proto 110"],
        test: "^2$",
        found: ("NoRoute", "node/left"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &["node.left: ip route del 10.244.1.0/24"],
        mends: &["node.left: ip route add 10.244.1.0/24 via 10.244.1.0 dev {tunnel} proto 110 onlink"],
        test: "^2$",
        found: ("NoRoute", "node/left"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip route add 10.244.1.2/32 via 10.244.0.2"],
        mends: &["node.left: ip route del 10.244.1.2/32"],
        test: "^2$",
        found: ("WrongNextHop", "node/left netloom0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["pod.default.a: ip route del default"],
        mends: &["pod.default.a: ip route add default via 10.244.0.1"],
        test: "^2$",
        found: ("NoDefaultRoute", "pod/default/a"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip route add blackhole 10.244.1.2/32"],
        mends: &["node.left: ip route del blackhole 10.244.1.2/32"],
        test: "^2$",
        found: ("RouteRefuses", "node/left"),
        on: EITHER,
    },
    Row {
        modes: DIRECT,
        breaks: &["node.left: ip route replace 10.244.1.0/24 via 172.30.0.77 proto 110"],
        mends: &["node.left: ip route replace 10.244.1.0/24 via 172.30.0.2 proto 110"],
        test: "^2$",
        found: ("GatewayMissing", "node/left eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "pod.default.a: ip addr add 10.244.0.2/16 dev eth0",
            "pod.default.a: ip addr del 10.244.0.2/24 dev eth0",
            "pod.default.a: ip route replace default via 10.244.0.1",
        ],
        mends: &[
            "pod.default.a: ip addr add 10.244.0.2/24 dev eth0",
            "pod.default.a: ip addr del 10.244.0.2/16 dev eth0",
            "pod.default.a: ip route replace default via 10.244.0.1",
        ],
        test: "^2$",
        found: ("WrongPrefixLength", "pod/default/a eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["pod.default.b: ip addr del 10.244.1.2/24 dev eth0"],
        mends: &["pod.default.b: ip addr add 10.244.1.2/24 dev eth0", "pod.default.b: ip route replace default via 10.244.1.1"],
        test: "^11$",
        found: ("AddressMissing", "pod/default/b eth0"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: ip neigh replace 10.244.1.2 lladdr 02:00:00:00:00:99 dev netloom0 nud permanent"],
        mends: &["node.right: ip neigh del 10.244.1.2 dev netloom0"],
        test: "^2$",
        found: ("WrongNeighbour", "node/right netloom0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "pod.default.b2: ip addr add 10.244.1.2/24 dev eth0",
            "node.right: ip neigh replace 10.244.1.2 lladdr {mac-b2} dev netloom0 nud permanent",
        ],
        mends: &["pod.default.b2: ip addr del 10.244.1.2/24 dev eth0", "node.right: ip neigh del 10.244.1.2 dev netloom0"],
        test: "^2$",
        found: ("DuplicateAddress", "pod/default/b2 eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "pod.default.b2: ip link set eth0 address {mac-b}",
            "node.right: bridge fdb replace {mac-b} dev {b2} master static sticky",
        ],
        mends: &["node.right: bridge fdb del {mac-b} dev {b2} master", "pod.default.b2: ip link set eth0 address {mac-b2}"],
        test: "^2$",
        found: ("DuplicateMac", "pod/default/b2 eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: bridge fdb replace {mac-b} dev {b2} master static sticky"],
        mends: &["node.right: bridge fdb del {mac-b} dev {b2} master"],
        test: "^2$",
        found: ("StaleBridgeEntry", "node/right netloom0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: bridge link set dev {b} state 0"],
        mends: &["node.right: bridge link set dev {b} state 3"],
        test: "^2$",
        found: ("BridgePortDown", "node/right {b}"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: ip link set {b} nomaster"],
        mends: &["node.right: ip link set {b} master netloom0"],
        test: "^2$",
        found: ("BridgePortMissing", "node/right {b}"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: ip link set {b} down"],
        mends: &["node.right: ip link set {b} up"],
        test: "^2$",
        found: ("LinkDown", "node/right {b}"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: bridge link set dev {b} isolated on", "node.right: bridge link set dev {b2} isolated on"],
        mends: &["node.right: bridge link set dev {b} isolated off", "node.right: bridge link set dev {b2} isolated off"],
        test: "^1$",
        found: ("PortsIsolated", "node/right"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: sysctl -qw net.ipv4.conf.netloom0.forwarding=0"],
        mends: &["node.left: sysctl -qw net.ipv4.conf.netloom0.forwarding=1"],
        test: "^2$",
        found: ("ForwardingOff", "node/left netloom0"),
        on: EITHER,
    },
    Row {
        modes: DIRECT,
        breaks: &[
            "node.right: ip route add 10.244.0.0/24 via 172.30.0.1 table 200",
            "node.right: ip rule add iif netloom0 table 200 priority 100",
            "node.right: ip route add 10.244.0.2/32 dev netloom0",
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
        ],
        mends: &[
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0",
            "node.right: ip route del 10.244.0.2/32 dev netloom0",
            "node.right: ip rule del priority 100",
            "node.right: ip route flush table 200",
        ],
        test: "^7$",
        found: ("ReversePathFilter", "node/right eth0"),
        on: REQUEST,
    },
    // A mark leads what comes by the bridge to the right way. The way back of what comes from outside is asked for without it.
    Row {
        modes: DIRECT,
        breaks: &[
            "node.right: ip route add 10.244.0.0/24 via 172.30.0.1 table 200",
            "node.right: ip rule add fwmark 0x77 table 200 priority 100",
            "node.right: nft table ip other { chain first { type filter hook prerouting priority -150; iifname netloom0 meta mark set 0x77; }; }",
            "node.right: ip route add 10.244.0.2/32 dev netloom0",
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
        ],
        mends: &[
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0",
            "node.right: ip route del 10.244.0.2/32 dev netloom0",
            "node.right: ip rule del priority 100",
            "node.right: ip route flush table 200",
            "node.right: nft delete table ip other",
        ],
        test: "^2$",
        found: ("ReversePathFilter", "node/right eth0"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &[
            "node.right: ip route add 10.244.0.0/24 via 10.244.0.0 dev {tunnel} onlink table 200",
            "node.right: ip rule add fwmark 0x77 table 200 priority 100",
            "node.right: nft table ip other { chain first { type filter hook prerouting priority -150; iifname netloom0 meta mark set 0x77; }; }",
            "node.right: ip route add 10.244.0.2/32 dev netloom0",
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.{tunnel}.rp_filter=1",
        ],
        mends: &[
            "node.right: sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{tunnel}.rp_filter=0",
            "node.right: ip route del 10.244.0.2/32 dev netloom0",
            "node.right: ip rule del priority 100",
            "node.right: ip route flush table 200",
            "node.right: nft delete table ip other",
        ],
        test: "^2$",
        found: ("ReversePathFilter", "node/right {tunnel}"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.right: nft add table inet other",
            "node.right: nft add chain inet other pass { type filter hook forward priority 0 ; }",
            "node.right: nft add rule inet other pass ip daddr 10.244.1.2 counter drop",
        ],
        mends: &["node.right: nft delete table inet other"],
        test: "^2$",
        found: ("ForeignRuleDrops", "node/right"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.right: nft add table inet other",
            "node.right: nft add chain inet other pass { type filter hook forward priority 0 ; policy drop ; }",
            "node.right: nft add rule inet other pass meta nfproto ipv6 accept",
        ],
        mends: &["node.right: nft delete table inet other"],
        test: "^2$",
        found: ("ForeignRuleDrops", "node/right"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.right: nft add table inet other",
            "node.right: nft add chain inet other guard { type filter hook input priority 0 ; }",
            "node.right: nft add rule inet other guard tcp dport 26767 reject with tcp reset",
        ],
        mends: &["node.right: nft delete table inet other"],
        test: "^7$",
        found: ("NodeFirewall", "node/right eth0"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.right: nft add table inet other",
            "node.right: nft add chain inet other guard { type filter hook output priority 0 ; }",
            "node.right: nft add rule inet other guard tcp sport 26767 counter drop",
        ],
        mends: &["node.right: nft delete table inet other"],
        test: "^7$",
        found: ("NodeFirewall", "node/right"),
        on: REPLY,
    },
    Row {
        modes: VXLAN,
        breaks: &[
            "node.left: nft add table ip other",
            "node.left: nft add chain ip other out { type nat hook postrouting priority 90 ; }",
            "node.left: nft add rule ip other out oifname {tunnel} masquerade",
        ],
        mends: &["node.left: nft delete table ip other"],
        test: "^2$",
        found: ("MasqueradeTooWide", "node/left"),
        on: REQUEST,
    },
    Row {
        modes: DIRECT,
        breaks: &[
            "node.left: nft add table ip other",
            "node.left: nft add chain ip other out { type nat hook postrouting priority 90 ; }",
            "node.left: nft add rule ip other out oifname eth0 masquerade",
        ],
        mends: &["node.left: nft delete table ip other"],
        test: "^2$",
        found: ("MasqueradeTooWide", "node/left"),
        on: REQUEST,
    },
    Row {
        modes: VXLAN,
        breaks: &[
            "node.right: nft add table inet other",
            "node.right: nft add chain inet other guard { type filter hook input priority 0 ; }",
            "node.right: nft add rule inet other guard iifname eth0 meta l4proto udp counter drop",
        ],
        mends: &["node.right: nft delete table inet other"],
        test: "^2$",
        found: ("TunnelBlocked", "node/right eth0"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &["node.left: bridge fdb replace {tunnel-mac} dev {tunnel} dst 172.30.0.77 self permanent"],
        mends: &["node.left: bridge fdb replace {tunnel-mac} dev {tunnel} dst 172.30.0.2 self permanent"],
        test: "^2$",
        found: ("TunnelEntryStale", "node/left {tunnel}"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &["node.left: bridge fdb del {tunnel-mac} dev {tunnel} dst 172.30.0.2 self"],
        mends: &["node.left: bridge fdb add {tunnel-mac} dev {tunnel} dst 172.30.0.2 self permanent"],
        test: "^2$",
        found: ("TunnelEntryMissing", "node/left {tunnel}"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &["node.left: ip neigh replace 10.244.1.0 lladdr 02:00:00:00:00:99 dev {tunnel} nud permanent"],
        mends: &["node.left: ip neigh replace 10.244.1.0 lladdr {tunnel-mac} dev {tunnel} nud permanent"],
        test: "^2$",
        found: ("WrongNeighbour", "node/left {tunnel}"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &[
            "pod.default.b: ip link set eth0 mtu 1500",
            "pod.default.b2: ip link set eth0 mtu 1500",
            "node.right: ip link set {b} mtu 1500",
            "node.right: ip link set {b2} mtu 1500",
        ],
        mends: &[
            "pod.default.b: ip link set eth0 mtu 1450",
            "pod.default.b2: ip link set eth0 mtu 1450",
            "node.right: ip link set {b} mtu 1450",
            "node.right: ip link set {b2} mtu 1450",
        ],
        test: "^network-4$",
        found: ("MtuDiffers", "pod/default/b eth0"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["pod.default.a: ip link set eth0 mtu 1400"],
        mends: &["pod.default.a: ip link set eth0 mtu {mtu}"],
        test: "^network-3$",
        found: ("MtuExceeded", "pod/default/a eth0"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: ip link set netloom0 down"],
        // It loses its addresses of IPv6.
        mends: &["node.right: ip link set netloom0 up", "node.right: ip addr add fd00:10:244:1::1/64 dev netloom0 nodad"],
        test: "^11$",
        found: ("LinkDown", "node/right netloom0"),
        on: REQUEST,
    },
    // A mark sends packets to a table that has no way, and the kernel's own tables do.
    Row {
        modes: DIRECT,
        breaks: &[
            "node.left: nft add table ip other",
            "node.left: nft add chain ip other first { type filter hook prerouting priority -150 ; }",
            "node.left: nft add rule ip other first ip daddr 10.244.1.0/24 meta mark set 0x77",
            "node.left: ip route add blackhole default table 300",
            "node.left: ip rule add fwmark 0x77/0xff table 300 priority 50",
        ],
        mends: &["node.left: ip rule del priority 50", "node.left: ip route flush table 300", "node.left: nft delete table ip other"],
        test: "^2$",
        found: ("RouteRefuses", "node/left"),
        on: EITHER,
    },
    // The first of two ways is right.
    Row {
        modes: DIRECT,
        breaks: &["node.left: ip route replace 10.244.1.0/24 proto 110 nexthop via 172.30.0.2 weight 1 nexthop via 172.30.0.77 weight 200"],
        mends: &["node.left: ip route replace 10.244.1.0/24 via 172.30.0.2 proto 110"],
        test: "^2$",
        found: ("GatewayMissing", "node/left eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["wires: ip link set w1-2 down"],
        mends: &["wires: ip link set w1-2 up"],
        test: "^7$",
        found: ("LinkDown", "underlay w1-2"),
        on: REQUEST,
    },
    // Netlink does not show rules of this kind: that they are there is said, and no other hop is named.
    Row {
        modes: BOTH,
        breaks: &["node.left: iptables-legacy -A FORWARD -d 10.244.0.0/16 -p udp -j DROP"],
        mends: &["node.left: iptables-legacy -D FORWARD -d 10.244.0.0/16 -p udp -j DROP"],
        test: "^2$",
        found: ("NotObserved", "node/left"),
        on: REQUEST,
    },
    Row {
        modes: DIRECT,
        breaks: &["node.left: iptables-legacy -P FORWARD DROP"],
        mends: &["node.left: iptables-legacy -P FORWARD ACCEPT"],
        test: "^2$",
        found: ("NotObserved", "node/left"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.left: nft table netdev others { chain ingress { type filter hook ingress device {a} priority 0; ip daddr 10.244.1.0/24 drop; }; }",
        ],
        mends: &["node.left: nft delete table netdev others"],
        test: "^2$",
        found: ("ForeignRuleDrops", "node/left {a}"),
        on: EITHER,
    },
    Row {
        modes: DIRECT,
        breaks: &[
            "node.left: nft table netdev others { chain egress { type filter hook egress device eth0 priority 0; ip daddr 10.244.1.0/24 drop; }; }",
        ],
        mends: &["node.left: nft delete table netdev others"],
        test: "^2$",
        found: ("ForeignRuleDrops", "node/left eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip link set {a} type bridge_slave locked on", "node.left: bridge fdb del {mac-a} dev {a} master"],
        mends: &["node.left: ip link set {a} type bridge_slave locked off"],
        test: "^2$",
        found: ("BridgePortRestricted", "node/left {a}"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &[
            "node.right: ip link set {b} type bridge_slave learning off flood off",
            "node.right: bridge fdb del {mac-b} dev {b} master",
        ],
        mends: &["node.right: ip link set {b} type bridge_slave learning on flood on"],
        test: "^2$",
        found: ("BridgePortRestricted", "node/right {b}"),
        on: EITHER,
    },
    // The program drops what it sees, questions for hardware addresses too. On which side of clsact it stands is not read: whatever passes the
    // link meets it, and the request does so first.
    Row {
        modes: BOTH,
        breaks: &["node.left: tc qdisc add dev {a} clsact", "node.left: tc filter add dev {a} ingress bpf da bytecode-file /run/drops.bpf"],
        mends: &["node.left: tc qdisc del dev {a} clsact"],
        test: "^2$",
        found: ("TrafficControlDrops", "node/left {a}"),
        on: REQUEST,
    },
    Row {
        modes: DIRECT,
        breaks: &[
            "node.left: nft table inet others { chain early { type filter hook prerouting priority -150; ip daddr 10.244.1.0/24 ip ttl set 1; }; }",
        ],
        mends: &["node.left: nft delete table inet others"],
        test: "^2$",
        found: ("NotObserved", "node/left netloom0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.right: nft table ip other { chain raw { type filter hook prerouting priority raw; tcp dport 8080 notrack; }; }"],
        mends: &["node.right: nft delete table ip other"],
        test: "^5$",
        found: ("HostPortMissing", "node/right eth0"),
        on: REQUEST,
    },
    // Who gets the packet has no second address.
    Row {
        modes: BOTH,
        breaks: &[
            "node.left: nft table ip other { chain p { type nat hook prerouting priority -100; ip daddr 10.244.1.2 dnat to 10.244.1.3; }; }",
        ],
        mends: &["node.left: nft delete table ip other"],
        test: "^2$",
        found: ("RedirectedByRule", "node/left"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip route add local 10.244.1.2 dev lo"],
        mends: &["node.left: ip route del local 10.244.1.2 dev lo"],
        test: "^2$",
        found: ("WrongNextHop", "node/left lo"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip route add 10.244.1.2/32 dev netloom0"],
        mends: &["node.left: ip route del 10.244.1.2/32 dev netloom0"],
        test: "^2$",
        found: ("WrongNextHop", "node/left netloom0"),
        on: EITHER,
    },
    Row {
        modes: VXLAN,
        breaks: &["node.left: ip route replace 10.244.1.0/24 dev {tunnel} proto 110 scope link"],
        mends: &["node.left: ip route replace 10.244.1.0/24 via 10.244.1.0 dev {tunnel} proto 110 onlink"],
        test: "^2$",
        found: ("WrongNextHop", "node/left {tunnel}"),
        on: EITHER,
    },
    // A route past the tunnel: nodes behind it still see the other node's address.
    Row {
        modes: VXLAN,
        breaks: &["node.left: ip route replace 10.244.1.0/24 via 172.30.0.77 dev eth0 proto 110"],
        mends: &["node.left: ip route replace 10.244.1.0/24 via 10.244.1.0 dev {tunnel} proto 110 onlink"],
        test: "^(2|7)$",
        found: ("GatewayMissing", "node/left eth0"),
        on: EITHER,
    },
    // What the tunnel carries of IPv6 has an anycast address beside its own.
    Row {
        modes: VXLAN,
        breaks: &["node.right: sysctl -qw net.ipv4.conf.eth0.arp_ignore=8", "node.left: ip neigh flush dev eth0"],
        mends: &["node.right: sysctl -qw net.ipv4.conf.eth0.arp_ignore=0"],
        test: "^11$",
        found: ("NeighbourSilent", "node/left eth0"),
        on: EITHER,
    },
    Row {
        modes: BOTH,
        breaks: &["node.left: ip link add fast0 type bridge", "node.left: ip link set fast0 up", "node.left: ip link set {a} master fast0"],
        mends: &["node.left: ip link set {a} master netloom0", "node.left: ip link del fast0"],
        test: "^2$",
        found: ("WrongNetwork", "node/left {a}"),
        on: REQUEST,
    },
    Row {
        modes: BOTH,
        breaks: &["pod.default.a: sysctl -qw net.ipv4.ip_default_ttl=1"],
        mends: &["pod.default.a: sysctl -qw net.ipv4.ip_default_ttl=64"],
        test: "^2$",
        found: ("HopLimitTooLow", "pod/default/a"),
        on: EITHER,
    },
    Row {
        modes: DIRECT,
        breaks: &["node.left: sysctl -qw net.ipv6.conf.netloom0.disable_ipv6=1"],
        mends: &[
            "node.left: sysctl -qw net.ipv6.conf.netloom0.disable_ipv6=0",
            "node.left: ip addr add fd00:10:244::1/64 dev netloom0 nodad",
        ],
        test: "^2$",
        found: ("Ipv6Disabled", "node/left netloom0"),
        on: REQUEST,
    },
    // What it takes away comes back with the pod only.
    Row {
        modes: BOTH,
        breaks: &["node.right: nft flush map inet netloom hostports4"],
        mends: &[],
        test: "^5$",
        found: ("HostPortMissing", "node/right eth0"),
        on: REQUEST,
    },
];

/// Two nodes, and the names that the lab has given.
fn lab(mode: &str) -> Lab {
    let publishes = pod("b", "right").replace("image: i", "image: i, ports: [{containerPort: 80, hostPort: 8080}]");
    let manifests = [node("left"), node("right"), pod("a", "left"), publishes, pod("b2", "right")].concat();
    let mut lab = Lab::up(&manifests, &["--between", mode]);
    // A program of one instruction: return TC_ACT_SHOT.
    lab.host.write("/run/drops.bpf", "1,6 0 0 2,");
    for (pod, node) in [("a", "left"), ("b", "right"), ("b2", "right")] {
        let inner = lab.host.link(&format!("nl.lab.pod.default.{pod}"), "eth0").unwrap();
        let links = lab.host.json(&format!("nl.lab.node.{node}"), "ip -j -d link");
        let outer = links.as_array().unwrap().iter().find(|link| Some(&link["ifindex"]) == inner.0.get("link_index")).unwrap();
        lab.names.insert(format!("{{{pod}}}"), outer["ifname"].as_str().unwrap().to_owned());
        lab.names.insert(format!("{{mac-{pod}}}"), inner.mac().to_owned());
    }
    lab.names.insert("{mtu}".to_owned(), if mode == "vxlan" { "1450" } else { "1500" }.to_owned());
    let tunnel = |node: &str| {
        let links = lab.host.json(&format!("nl.lab.node.{node}"), "ip -j -d link show type vxlan");
        let of_ipv4 = |link: &&serde_json::Value| link["ifname"].as_str().is_some_and(|name| name.starts_with("nl4-"));
        let text = |link: &serde_json::Value, key: &str| link[key].as_str().unwrap().to_owned();
        links.as_array().unwrap().iter().find(of_ipv4).map(|link| (text(link, "ifname"), text(link, "address")))
    };
    if let (Some((name, _)), Some((_, mac))) = (tunnel("left"), tunnel("right")) {
        lab.names.insert("{tunnel}".to_owned(), name);
        lab.names.insert("{tunnel-mac}".to_owned(), mac);
    }
    lab
}

/// Breaks the lab and mends it, for each fault; tells all that were not found as they should.
fn each_is_found(mode: &str) {
    let lab = lab(mode);
    let mut wrong = Vec::new();
    let run = |lines: &[&str]| {
        for line in lines {
            let (place, command) = line.split_once(": ").unwrap();
            lab.run(place, command);
        }
    };
    for row in FAULTS.iter().filter(|row| row.modes.contains(&mode)) {
        run(row.breaks);
        let (found, json) = lab.found(row.test);
        run(row.mends);
        let failures = json["cases"].as_array().unwrap().iter().flat_map(|case| case["failures"].as_array().into_iter().flatten());
        let told = failures.map(|failure| {
            let text = |key: &str| failure[key].as_str().unwrap_or_default();
            format!(
                "{mode}: {} -> {} at {} {} ({}): {}",
                row.breaks.join("; "),
                text("fault"),
                text("place"),
                text("device"),
                text("direction"),
                text("evidence")
            )
        });
        let told: BTreeSet<String> = told.collect();
        told.iter().for_each(|line| println!("{line}"));
        let (fault, at) = (row.found.0, lab.named(row.found.1));
        let is_right =
            |(name, place, _): &(String, String, String)| name == fault && (*place == at || place.starts_with(&format!("{at} ")));
        let on: BTreeSet<&str> = found.iter().map(|(.., direction)| direction.as_str()).collect();
        if !found.iter().all(is_right) || on != row.on.iter().copied().collect() {
            wrong.push(format!("{fault} at {at}: found {found:?}: {}", json["cases"][0]["failures"]));
        }
        if !row.mends.is_empty() {
            let (left, json) = lab.found(row.test);
            if !left.is_empty() {
                wrong.push(format!("{fault} at {at} was not mended: {left:?}: {}", json["cases"][0]["failures"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{mode}: {} faults were not named rightly:\n{}", wrong.len(), wrong.join("\n"));
    lab.down();
}

#[test]
fn each_fault_is_named_where_it_is_with_routes() {
    each_is_found("direct");
}

#[test]
fn each_fault_is_named_where_it_is_with_tunnels() {
    each_is_found("vxlan");
}

/// What leaves the cluster with a pod's address finds no way back.
#[test]
fn a_missing_masquerade_is_named_on_the_pods_node() {
    let zoned = |name: &str| {
        node(name).replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, labels: {{topology.kubernetes.io/zone: {name}}}}}"))
    };
    for mode in BOTH {
        let lab = Lab::up(&[zoned("left"), zoned("right"), pod("a", "left"), pod("b", "right")].concat(), &["--between", mode]);
        assert_eq!(lab.found("^8$").0, BTreeSet::new(), "{mode}");
        lab.run("node.left", "nft flush chain inet netloom egress");
        let (found, json) = lab.found("^8$");
        let names: BTreeSet<(&str, &str)> = found.iter().map(|(fault, place, _)| (fault.as_str(), place.as_str())).collect();
        assert_eq!(names, BTreeSet::from([("MasqueradeMissing", "node/left")]), "{mode}: {json:#}");
        lab.down();
    }
}
