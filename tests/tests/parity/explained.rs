//! Why we differ.

use crate::case::Kernel;
use crate::difference::Difference;

/// Why some differences are as they are. The first that covers a difference is the one that counts.
pub(crate) struct Explained {
    /// The plugins whose tables have it.
    pub(crate) of: &'static [&'static str],
    /// The configurations, `*` for any text, `|` between several.
    pub(crate) case: &'static str,
    /// [`Difference::at`], with `*` for any text.
    pub(crate) at: &'static str,
    /// Where it occurs, if not wherever its plugins are looked at.
    pub(crate) kernel: Option<Kernel>,
    /// What is different, for a reader.
    pub(crate) what: &'static str,
    /// Why.
    pub(crate) why: &'static str,
}

const fn e(of: &'static [&'static str], case: &'static str, at: &'static str, what: &'static str, why: &'static str) -> Explained {
    Explained { of, case, at, kernel: None, what, why }
}

const BRIDGE: &[&str] = &["bridge"];
const LOOPBACK: &[&str] = &["loopback"];
const MACVLAN: &[&str] = &["macvlan"];
const TUNING: &[&str] = &["tuning"];
const HOST_LOCAL: &[&str] = &["host-local"];
/// Those whose configurations begin with a bridge.
const OVER_BRIDGE: &[&str] = &["bridge", "loopback", "tuning"];

pub(crate) const EXPLAINED: &[Explained] = &[
    // Links.
    e(
        &["bridge", "loopback", "tuning", "macvlan"],
        "*",
        "after * | * link * | group | *",
        "group number of a link",
        "by it DEL and GC know their own links, whatever they are called by then",
    ),
    e(
        OVER_BRIDGE,
        "*",
        "after ADD | host link peer of * | txqlen | none -> 1000",
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
    // Duplicate address detection.
    e(
        &["bridge", "macvlan"],
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
        "nothing is set that concerns no address of ours",
    ),
    e(
        MACVLAN,
        "*",
        "after ADD | c1 settings ipv6/conf/eth0 | ndisc_notify | 1 -> 0",
        "setting of an interface without IPv6 addresses",
        "nothing is set that concerns no address of ours",
    ),
    e(
        &["bridge", "macvlan"],
        "layer 2",
        "after ADD | c1 settings ipv4/conf/eth0 | arp_notify | 0 -> 1",
        "setting of an interface without addresses",
        "who gives it an address later has neighbours told",
    ),
    // What only one of them knows.
    e(BRIDGE, "mac as a key", "*ADD | * | MAC of * -> c2:b0:57:49:47:f4", "`mac` in the configuration", "as `macvlan` and `tap` have it"),
    e(MACVLAN, "mac in args.cni", "*ADD | * | MAC of * -> c2:b0:57:49:47:f3", "`mac` in `args.cni`", "as `bridge` has it"),
    e(
        MACVLAN,
        "dns of the IPAM plugin",
        "ADD | answer | dns.nameservers | none -> *",
        "DNS of the IPAM plugin",
        "it is passed on where the configuration has none",
    ),
    e(MACVLAN, "routes", "after ADD | c1 IPv4 route * | metrics.0.* | none -> *", "`mtu` and `advmss` of a route", "they are honoured"),
    e(
        MACVLAN,
        "routes",
        "CHECK | answer | * -> *",
        "CHECK of a route in a table of its own",
        "the reference looks into the main table alone and fails",
    ),
    e(
        BRIDGE,
        "a bridge that exists|forceAddress|another address on the bridge",
        "after * | host settings ipv6/conf/br0 | accept_ra | 0 -> 1",
        "a bridge that was there keeps its setting",
        "it is the host's own; of a bridge that is made nothing is taken from router advertisements",
    ),
    // Results.
    e(
        LOOPBACK,
        "version 0.*",
        "ADD | answer | i*",
        "a result in the version of the configuration",
        "the reference prints that of 1.0 for every version",
    ),
    // CHECK.
    e(
        BRIDGE,
        "layer 2|disableContainerInterface",
        "CHECK | answer | code | 999 -> none",
        "CHECK without `ipam`",
        "a network may be layer 2 only",
    ),
    e(
        BRIDGE,
        "layer 2|disableContainerInterface",
        "CHECK | answer | exit | 1 -> 0",
        "CHECK without `ipam`",
        "a network may be layer 2 only",
    ),
    e(BRIDGE, "CHECK: hairpin was set off", "CHECK | answer | exit | 0 -> 1", "CHECK sees it", "what ADD was asked for is looked at"),
    e(BRIDGE, "CHECK: hairpin was set off", "CHECK | answer | code | none -> 999", "CHECK sees it", "what ADD was asked for is looked at"),
    e(
        TUNING,
        "CHECK: promisc was set on, and nobody cares",
        "CHECK | answer | *",
        "CHECK of what is not configured",
        "only what is configured is compared",
    ),
    // STATUS.
    e(
        &["bridge", "macvlan", "host-local"],
        "*",
        "STATUS | answer | exit | 0 -> 1",
        "STATUS finds what ADD would refuse",
        "the reference asks the IPAM plugin alone, which says yes to everything",
    ),
    e(
        &["bridge", "macvlan", "host-local"],
        "*",
        "STATUS | answer | code | none -> *",
        "the code of that",
        "7: the configuration; 50: the host",
    ),
    e(BRIDGE, "a number for a text", "STATUS | answer | code | 999 -> 7", "code of a configuration that cannot be read", "as with ADD"),
    // Refusals.
    e(
        &["bridge", "macvlan", "tuning", "host-local", "static"],
        "*",
        "ADD | answer | code | 999 -> 7",
        "code of an invalid configuration",
        "the specification has 7 for it; 999 is left for what nobody foresaw",
    ),
    e(
        &["host-local", "static"],
        "*",
        "ADD | answer | code | 999 -> 4",
        "code of arguments of the runtime that are invalid",
        "the specification has 4 for it",
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
    e(
        BRIDGE,
        "a MAC that is none|an mtu that is negative",
        "ADD | answer | *",
        "what the reference overlooks",
        "it ignores the key, or takes the value for none; who wrote it meant something",
    ),
    e(TUNING, "sysctl in args.cni alone", "* | answer | exit | 2 -> 0", "`sysctl` in `args.cni` alone", "the reference crashes"),
    e(TUNING, "sysctl in args.cni alone", "after DEL | c1 settings core | *", "what it set", "the reference crashes"),
    // What a refused ADD leaves.
    e(
        &["bridge", "tuning", "host-local"],
        "*",
        "after ADD | * | there -> none",
        "what a failed ADD leaves",
        "it is undone, or was refused before anything was made; the reference leaves it to DEL",
    ),
    e(
        BRIDGE,
        "*",
        "after * | host link br0 | address | MAC of * -> 00:00:00:00:00:00",
        "hardware address of a bridge without ports",
        "nothing was done to it",
    ),
    e(
        BRIDGE,
        "a backend that nobody has",
        "after * | host settings * | * -> *",
        "what a failed ADD leaves",
        "forwarding is not switched on for it",
    ),
    e(
        BRIDGE,
        "hairpin and promisc|a MAC that is none|an mtu that is negative|a number for a text|a backend that nobody has|a version that nobody knows|disableContainerInterface with addresses|an mtu that is too small|IPAM without addresses|DEL that is told nothing|DEL of an interface that was renamed",
        "after DEL | host * | there -> none",
        "what DEL leaves",
        "the bridge was never made, or DEL finds what it is told nothing of",
    ),
    e(
        BRIDGE,
        "DEL that is told nothing|DEL of an interface that was renamed",
        "after DEL | c1 * | there -> none",
        "what DEL leaves",
        "the container's end goes with the host's, which is found without namespace and result",
    ),
    e(
        &["bridge", "macvlan"],
        "an interface name that is taken",
        "after DEL | c1 link * | none -> there",
        "DEL of another one's interface",
        "what has the name but is not the attachment's is left alone",
    ),
    e(
        BRIDGE,
        "a bridge that is none|an interface name that is taken",
        "after * | host file * | none -> there",
        "order of the checks",
        "an address was taken and given back; the reference refuses before",
    ),
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
    // DEL.
    e(
        &["bridge", "host-local"],
        "*",
        "DEL* | answer | *",
        "DEL with a configuration that is invalid",
        "DEL frees what it can find; a runtime could do nothing but call again",
    ),
    e(LOOPBACK, "*", "after DEL | c1 * | *", "DEL leaves `lo` up", "it goes with its namespace"),
    // Files.
    e(TUNING, "*", "after ADD | host file /run/cni/tuning/* | content | *", "the backup names its network", "GC knows whose it is"),
];

// === impl Explained ===

impl Explained {
    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        self.of.contains(&difference.plugin) && self.case.split('|').any(|c| like(c, difference.case)) && like(self.at, &difference.at())
    }
}

/// Whether a text is as a pattern says, in which `*` stands for any text.
fn like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|n| text.is_char_boundary(*n)).any(|n| like(rest, &text[n..]))
}

#[test]
fn patterns() {
    assert!(like("a*c", "abc") && like("*", "") && like("a*b*c", "axxbyyc") && like("abc", "abc"));
    assert!(!like("a*c", "abd") && !like("abc", "abcd") && !like("a*b", "b"));
}
