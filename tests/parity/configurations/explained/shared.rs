//! What holds for several plugins.

use super::{Explained, e};

/// Those that make links, or stand behind one that does.
const LINKS: &[&str] = &[
    "bridge",
    "loopback",
    "bandwidth",
    "tuning",
    "macvlan",
    "ptp",
    "sbr",
    "ipvlan",
    "vlan",
    "dummy",
    "tap",
    "host-device",
    "vrf",
    "portmap",
];
/// All.
const EVERY: &[&str] = &[
    "bridge",
    "loopback",
    "bandwidth",
    "tuning",
    "macvlan",
    "ptp",
    "sbr",
    "ipvlan",
    "vlan",
    "dummy",
    "tap",
    "host-device",
    "vrf",
    "portmap",
    "host-local",
    "static",
    "dhcp",
];
/// Those that make pairs, or stand behind one that does.
const PAIRS: &[&str] = LINKS;
/// Those whose configurations begin with a bridge.
const OVER_BRIDGE: &[&str] = &["bridge", "loopback", "tuning", "bandwidth", "portmap"];

pub(super) const EXPLAINED: &[Explained] = &[
    e(LINKS, "macFromIP", "*ADD | * | MAC of * -> 0a:58:*", "`macFromIP`", "a key that the reference does not have"),
    e(PAIRS, "*", "ADD | answer | interfaces.*.mtu | none -> *", "`mtu` in the result", "the specification has it since 1.1"),
    e(
        LINKS,
        "*",
        "after * | * settings ipv6/conf/* | accept_ra | 1 -> 0",
        "router advertisements",
        "nobody on a container's network tells it its routes (CVE-2020-10749); a later plugin may allow it",
    ),
    e(
        LINKS,
        "*",
        "after * | * link * | group | *",
        "group number of a link",
        "by it DEL and GC know their own links, whatever they are called by then",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "after * | host link peer of * | txqlen | none -> 1000",
        "queue length of the host's end",
        "the kernel's default is kept; a veth has no queue either way",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "* | host link * | address | MAC of * -> MAC of host *",
        "hardware address of a bridge that is made",
        "it is kept from the start; the reference's follows its lowest port until the bridge gets an address, and neighbour entries of containers go stale",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "* | host link * | address | 00:00:00:00:00:00 -> MAC of host *",
        "hardware address of a bridge without ports",
        "it is kept from the start; the reference's follows its lowest port until the bridge gets an address, and neighbour entries of containers go stale",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "ADD | answer | interfaces.0.mac | MAC of * -> MAC of host *",
        "hardware address of a bridge that is made",
        "it is kept from the start; the reference's follows its lowest port until the bridge gets an address, and neighbour entries of containers go stale",
    ),
    e(
        LINKS,
        "*",
        "after * | * address * | nodad | none -> true",
        "an IPv6 address does not wait for duplicate address detection",
        "the address itself says so; nobody waits for seconds",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "after * | host settings ipv6/conf/* | accept_dad | 1 -> 0",
        "setting of the bridge",
        "its addresses do not wait either",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "after ADD | c1 settings ipv6/conf/* | accept_dad | 0 -> 1",
        "setting of an interface without IPv6 addresses",
        "there is no IPv6 address to announce",
    ),
    e(
        &["bridge", "macvlan"],
        "layer 2",
        "after ADD | c1 settings ipv4/conf/eth0 | arp_notify | 0 -> 1",
        "setting of an interface without addresses",
        "an address that is added later is announced to the neighbours",
    ),
    e(
        EVERY,
        "*",
        "STATUS | answer | exit | 0 -> 1",
        "STATUS finds what ADD would refuse",
        "the reference asks the IPAM plugin alone, which says yes to everything",
    ),
    e(EVERY, "*", "STATUS | answer | code | none -> *", "the code of that", "7: the configuration; 50: the host"),
    e(
        EVERY,
        "*",
        "ADD | answer | code | 999 -> 7",
        "code of an invalid configuration",
        "the specification has 7 for an invalid configuration",
    ),
    e(
        &["host-local", "static"],
        "*",
        "ADD | answer | code | 999 -> 4",
        "code of arguments of the runtime that are invalid",
        "the specification has 4 for it",
    ),
    e(
        EVERY,
        "*",
        "after ADD | * | left -> none",
        "what a failed ADD leaves",
        "it is undone, or was refused before anything was made; the reference leaves it to DEL",
    ),
    e(
        LINKS,
        "an interface name that is taken",
        "after DEL | c1 link * | none -> there",
        "DEL of another one's interface",
        "what has the name but is not the attachment's is left alone",
    ),
    e(
        EVERY,
        "*",
        "DEL* | answer | exit | 1 -> 0",
        "DEL with a configuration that is invalid",
        "DEL frees what it can find; a runtime could do nothing but call again",
    ),
    e(
        EVERY,
        "*",
        "DEL* | answer | code | 999 -> none",
        "DEL with a configuration that is invalid",
        "DEL frees what it can find; a runtime could do nothing but call again",
    ),
    e(LINKS, "CHECK: the mtu was changed", "CHECK | answer | *", "CHECK sees it", "what ADD was asked for is looked at"),
];
