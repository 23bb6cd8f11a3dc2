//! Of chained plugins, and of those that give addresses.

use super::{Explained, e};

const BANDWIDTH: &[&str] = &["bandwidth"];
const DHCP: &[&str] = &["dhcp"];
const HOST_LOCAL: &[&str] = &["host-local"];
const PORTMAP: &[&str] = &["portmap"];
const SBR: &[&str] = &["sbr"];
const TUNING: &[&str] = &["tuning"];

pub(super) const EXPLAINED: &[Explained] = &[
    e(
        TUNING,
        "CHECK: promisc was set on, and nobody cares",
        "CHECK | answer | *",
        "CHECK of what is not configured",
        "only what is configured is compared",
    ),
    e(
        HOST_LOCAL,
        "a resolvConf that is missing",
        "ADD | answer | code | 999 -> 5",
        "code of a file that cannot be read",
        "the specification has 5 for it",
    ),
    e(
        HOST_LOCAL,
        "*",
        "ADD | answer | code | 999 -> 11",
        "code where no address is free now",
        "the specification has 11, try again later, for it",
    ),
    e(TUNING, "sysctl in args.cni alone", "* | answer | exit | 2 -> 0", "`sysctl` in `args.cni` alone", "the reference crashes"),
    e(TUNING, "sysctl in args.cni alone", "after DEL | c1 settings core | *", "what it set", "the reference crashes"),
    e(
        HOST_LOCAL,
        "*",
        "after DEL | host file */lock |*there -> none",
        "what a refused ADD leaves",
        "it is refused before the directory is made",
    ),
    e(
        HOST_LOCAL,
        "*",
        "after DEL | host file */last_reserved_ip.0 |*there -> none",
        "what a refused ADD leaves",
        "it is refused before the directory is made",
    ),
    e(
        TUNING,
        "DEL after the namespace|DEL that is told nothing",
        "after DEL | * | there -> none",
        "what DEL leaves",
        "the backup goes also where the namespace is gone, and the bridge's pair",
    ),
    e(TUNING, "*", "after ADD | host file /run/cni/tuning/* | content | *", "the backup names its network", "GC knows whose it is"),
    // sbr.
    e(
        SBR,
        "*",
        "after ADD | c1 IPv6 route fd00:1::/64 dev net1 table 100 |*there -> none",
        "a route of IPv6 in the table of an IPv4 address",
        "it is in its own address's table alone",
    ),
    e(
        SBR,
        "a table that is in use",
        "after ADD | c1 IPv* | * | *",
        "a table that is in use",
        "one is taken that has no routes at all; the reference overlooks those without an interface",
    ),
    e(SBR, "gateways", "after ADD | c1 IPv* route default *", "`gateways`", "later than v1.9.1"),
    e(SBR, "addSourceHints", "after ADD | c1 IPv* | prefsrc | *", "`addSourceHints`", "later than v1.9.1"),
    e(
        SBR,
        "addSourceHints",
        "after ADD | c1 IPv* table main |  | none -> there",
        "`addSourceHints` in the main table",
        "later than v1.9.1, which keeps the way to the network there as well",
    ),
    e(
        &["vrf"],
        "a VRF *",
        "after DEL | c1 link red |  | none -> there",
        "a VRF that was there before",
        "only a VRF that the plugin made goes with its last member",
    ),
    e(
        &["sbr", "vrf"],
        "*",
        "CHECK | answer | * 999 -> none",
        "CHECK of routes that were moved",
        "the reference's CHECK of the plugin before looks for them in the main table",
    ),
    e(
        &["sbr", "vrf"],
        "*",
        "CHECK | answer | exit | 1 -> 0",
        "CHECK of routes that were moved",
        "the reference's CHECK of the plugin before looks for them in the main table",
    ),
    e(
        SBR,
        "an address without a gateway",
        "after ADD | c1 settings ipv6/conf/eth0 | ndisc_notify | 1 -> 0",
        "setting of an interface without IPv6 addresses",
        "there is no IPv6 address to announce",
    ),
    e(
        SBR,
        "no address",
        "after ADD | c1 settings ipv4/conf/eth0 | arp_notify | 0 -> 1",
        "setting of an interface without addresses",
        "an address that is added later is announced to the neighbours",
    ),
    e(SBR, "DEL after the namespace|DEL that is told nothing", "DEL* | answer | *", "DEL without a namespace", "rules go with it"),
    e(
        SBR,
        "DEL that is told nothing",
        "after DEL | c1 IPv6 route fd00:1::/64 dev net1 table 100 |*there -> none",
        "a route of IPv6 in the table of an IPv4 address",
        "it is in its own address's table alone",
    ),
    e(
        SBR,
        "DEL after the interface",
        "after DEL | c1 IPv* rule *there -> none",
        "rules of an interface that is gone",
        "they are known by the addresses of the result",
    ),
    // bandwidth
    e(BANDWIDTH, "*", "VERSION | answer | supportedVersions | *", "versions", "one that needs nothing newer knows the oldest as well"),
    e(
        BANDWIDTH,
        "unshapedSubnets|shapedSubnets",
        "after ADD | host filter of peer of eth0* | *",
        "`unshapedSubnets`, `shapedSubnets`",
        "later than v1.9.1",
    ),
    e(
        BANDWIDTH,
        "*",
        "after ADD | host filter of peer of eth0 | options.* -> none",
        "a second redirection, to where the first one leads",
        "nothing passes the first one; neither is there a class on that side",
    ),
    e(
        BANDWIDTH,
        "more than 32 bits",
        "after ADD | host qdisc tbf of * | options.* | *",
        "the last digits of a burst",
        "the kernel is told bytes, not microseconds",
    ),
    e(
        BANDWIDTH,
        "a runtime's burst at a low rate",
        "after ADD | host qdisc tbf of * | options.l* | *",
        "how much may wait",
        "what waits takes the host's memory",
    ),
    e(BANDWIDTH, "nothing at all", "ADD | answer | *", "ADD without a result before it", "the reference crashes"),
    e(
        BANDWIDTH,
        "behind a macvlan",
        "after ADD | c1 settings ipv6/conf/eth0 | ndisc_notify | 1 -> 0",
        "setting of an interface without IPv6 addresses",
        "there is no IPv6 address to announce",
    ),
    e(
        BANDWIDTH,
        "DEL that is told nothing",
        "after DEL | * | there -> none",
        "what DEL leaves",
        "the bridge's pair is found without namespace and result, and with it goes what was on it",
    ),
    e(BANDWIDTH, "CHECK: the filter is gone", "CHECK | answer | *", "CHECK sees it", "what ADD was asked for is looked at"),
    // portmap
    e(PORTMAP, "nftables: masqAll", "probe | * | *", "`masqAll` with nftables", "it does there what it does with iptables"),
    e(
        PORTMAP,
        "conditions of nftables, and no backend",
        "*",
        "words of nft without a backend",
        "they choose nftables; the reference takes iptables wherever it is installed, and refuses them",
    ),
    e(
        PORTMAP,
        "iptables: DEL after the namespace|nftables: DEL that is told nothing",
        "after DEL | * | there -> none",
        "what DEL leaves",
        "the bridge's pair is found without namespace and result, and with it goes what was on it",
    ),
    // dhcp
    e(
        DHCP,
        "*",
        "* | host file /run/cni/*.leases/* | *",
        "leases on disk",
        "a daemon that is started again renews them, and finds whose they are",
    ),
    e(
        DHCP,
        "ipv6",
        "*ADD | * | ips.1.address | none -> fd00:9::*",
        "`ipv6`",
        "a key that the reference does not have: an address by DHCPv6",
    ),
    e(
        DHCP,
        "ipv6",
        "after ADD | host file /var/lib/dnsmasq.leases | content | * -> * fd00:9::*",
        "`ipv6`",
        "a key that the reference does not have: an address by DHCPv6",
    ),
    e(DHCP, "*", "ADD | answer | dns.nameservers | none -> *", "DNS of the server", "it is passed on"),
    e(
        DHCP,
        "*",
        "after DEL | host file /var/lib/dnsmasq.leases | content | 0 02:00:00:00:09:05 10.9.0.50 * -> duid *",
        "the server frees a released address",
        "the message comes from the leased address; the reference's comes from 0.0.0.0, and servers drop it",
    ),
    e(DHCP, "no daemon", "ADD | answer | code | 999 -> 11", "code without a daemon", "the specification has 11, try again later, for it"),
    e(
        DHCP,
        "no daemon",
        "DEL* | answer | * 1 -> 0",
        "DEL without a daemon",
        "the plugin releases the lease itself, from its file; the reference fails, and is called again for ever",
    ),
    e(
        DHCP,
        "no daemon",
        "DEL* | answer | * 999 -> none",
        "DEL without a daemon",
        "the plugin releases the lease itself, from its file; the reference fails, and is called again for ever",
    ),
];
