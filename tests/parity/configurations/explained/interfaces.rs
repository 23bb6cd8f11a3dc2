//! Of plugins that make an interface.

use super::{Explained, e};

const BRIDGE: &[&str] = &["bridge"];
const HOST_DEVICE: &[&str] = &["host-device"];
const LOOPBACK: &[&str] = &["loopback"];
const DUMMY: &[&str] = &["dummy"];
const MACVLAN: &[&str] = &["macvlan"];
const TAP: &[&str] = &["tap"];
const VLAN: &[&str] = &["vlan"];
const IPVLAN: &[&str] = &["ipvlan"];
const PTP: &[&str] = &["ptp"];

pub(super) const EXPLAINED: &[Explained] = &[
    e(
        &["bridge", "ptp", "bandwidth", "loopback", "portmap", "tuning"],
        "*",
        "* | * | num_*x_queues | one for each processor -> 1",
        "a pair has one queue in each direction",
        "with more the kernel waits twice for all processors when it makes the pair; `queues` asks for more",
    ),
    e(
        BRIDGE,
        "macspoofchk*",
        "* | host link br0 | linkinfo.info_data.no_linklocal_learn | 0 -> 1",
        "the bridge learns nothing from frames that are for itself",
        "no rule sees them before: a container could draw another's frames to itself",
    ),
    e(
        &["macvlan", "ipvlan"],
        "*",
        "after ADD | c1 settings ipv6/conf/eth0 | ndisc_notify | 1 -> 0",
        "setting of an interface without IPv6 addresses",
        "there is no IPv6 address to announce",
    ),
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
    e(
        LOOPBACK,
        "version 0.*",
        "ADD | answer | i*",
        "a result in the version of the configuration",
        "the reference prints that of 1.0 for every version",
    ),
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
    e(BRIDGE, "a number for a text", "STATUS | answer | code | 999 -> 7", "code of a configuration that cannot be read", "as with ADD"),
    e(
        BRIDGE,
        "a MAC that is none|an mtu that is negative",
        "ADD | answer | *",
        "what the reference overlooks",
        "it ignores the key, or takes the value for none, which hides a mistake",
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
        "the bridge was never made, or DEL finds it without a prevResult",
    ),
    e(
        BRIDGE,
        "DEL that is told nothing|DEL of an interface that was renamed",
        "after DEL | c1 * | there -> none",
        "what DEL leaves",
        "the container's end goes with the host's, which is found without namespace and result",
    ),
    e(
        BRIDGE,
        "a bridge that is none|an interface name that is taken",
        "after * | host file * | none -> *",
        "order of the checks",
        "an address was taken and given back; the reference refuses before",
    ),
    e(LOOPBACK, "*", "after DEL | c1 * | *", "DEL leaves `lo` up", "it goes with its namespace"),
    // dummy
    e(
        DUMMY,
        "mac *",
        "*ADD | * | MAC of * -> c2:b0:57:49:47:*",
        "a hardware address that is asked for",
        "the reference does not know the capability",
    ),
    e(DUMMY, "*", "after ADD | c1 settings * | *_notify | 0 -> 1", "setting of the interface", "as for every other kind; nobody hears it"),
    e(DUMMY, "dns", "ADD | answer | dns.nameservers | none -> *", "`dns` of the configuration", "it is passed on"),
    e(DUMMY, "no IPAM", "STATUS | answer | code | 999 -> 7", "code of a configuration that cannot be read", "as with ADD"),
    // vlan, ipvlan, and VLANs of a bridge
    e(
        VLAN,
        "*",
        "after ADD | c1 settings * | *_notify | 0 -> 1",
        "setting of the interface",
        "as for every other kind: neighbours are told of its address",
    ),
    e(
        IPVLAN,
        "the parent of the default route",
        "CHECK | answer | *",
        "CHECK without `master`",
        "the parent is the one that ADD took; the reference looks for one without a name and fails",
    ),
    e(
        IPVLAN,
        "an mtu above the parent's",
        "ADD | answer | *",
        "an `mtu` above the parent's",
        "refused, as `macvlan` and `vlan` do: the parent cannot send such packets",
    ),
    e(BRIDGE, "CHECK: the VLAN is gone", "CHECK | answer | *", "CHECK sees it", "what ADD was asked for is looked at"),
    // ptp.
    e(
        PTP,
        "*",
        "after ADD | host link peer of * | txqlen | none -> 1000",
        "queue length of the host's end",
        "the kernel's default is kept; a veth has no queue either way",
    ),
    e(
        PTP,
        "*",
        "after ADD | c1 address * | noprefixroute | none -> true",
        "the kernel makes no route from the address",
        "it would be deleted again at once",
    ),
    e(
        PTP,
        "*",
        "after ADD | * settings ipv6/conf/* | accept_dad | 1 -> 0",
        "duplicate address detection is off",
        "only two endpoints share the link, so no address can be a duplicate",
    ),
    e(
        PTP,
        "mac *",
        "*ADD | * | MAC of * -> c2:b0:57:49:47:*",
        "a hardware address that is asked for",
        "the reference does not know the capability",
    ),
    e(
        PTP,
        "an mtu that is too small",
        "after * | host file * | * -> none",
        "what a refused ADD leaves",
        "it is refused before an address is taken",
    ),
    e(
        PTP,
        "no IPAM|an address without a gateway|an mtu that is too small|an interface name that is taken",
        "after * | host settings * | *",
        "what a failed ADD leaves",
        "forwarding is not switched on for it",
    ),
    e(PTP, "CHECK: the host's route is gone", "CHECK | answer | *", "CHECK sees it", "what ADD was asked for is looked at"),
    e(
        PTP,
        "DEL that is told nothing",
        "after DEL | c1 * | there -> none",
        "what DEL leaves",
        "the container's end goes with the host's, which is found without namespace and result",
    ),
    e(
        PTP,
        "DEL that is told nothing",
        "after DEL | host * | there -> none",
        "what DEL leaves",
        "the container's end goes with the host's, which is found without namespace and result",
    ),
    e(PTP, "no IPAM", "STATUS | answer | code | 999 -> 7", "code of a configuration that cannot be read", "as with ADD"),
    // host-device
    e(
        HOST_DEVICE,
        "*",
        "after ADD | c1 settings ipv4/conf/eth0 | arp_notify | 0 -> 1",
        "setting of the interface",
        "as for every other kind: neighbours are told of its address",
    ),
    e(HOST_DEVICE, "a device that is up", "after DEL | host link * | *", "state of a device that comes back", "it is up if it was"),
    e(
        HOST_DEVICE,
        "a device with an alias",
        "after DEL | host link dev0 | ifalias | none -> something",
        "alias of a device that comes back",
        "it has the one that it had",
    ),
    e(
        HOST_DEVICE,
        "DEL that is told nothing",
        "after DEL | *",
        "DEL without a namespace",
        "the device comes back; the reference does nothing",
    ),
    // tap
    e(
        TAP,
        "*",
        "after ADD | c1 settings ip* | *_notify | 0 -> 1",
        "setting of the interface",
        "as for every other kind: neighbours are told of its address",
    ),
    e(
        TAP,
        "owner and group, with a mac",
        "*ADD | * | MAC of * -> c2:b0:57:49:47:f1",
        "`mac` with `owner` and `group`",
        "the reference forgets it where it makes the tap by netlink",
    ),
    e(
        TAP,
        "owner and group, with a mac",
        "after ADD | c1 link eth0 | linkinfo.info_data.* | true -> false",
        "headers before each packet",
        "none, as where `owner` or `group` is missing; the reference has them where it makes the tap by netlink",
    ),
    e(
        TAP,
        "a MAC that is none|an interface name that is taken",
        "after DEL | c1 link new tun |*-> none",
        "what a failed ADD leaves",
        "it is undone; of the reference a tap under a temporary name stays for good",
    ),
    e(
        TAP,
        "an interface name that is taken",
        "ADD | answer | *",
        "an interface name that is taken",
        "the reference answers as if the other interface were its own",
    ),
];
