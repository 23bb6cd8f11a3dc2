//! The keys of a selection, in one table, and what was meant by one that is not in it.

use cni::nearest;

/// One key of the JSON form of the annotation (S17: a key without a period belongs to the standard).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionKey {
    /// The key.
    pub name: &'static str,
    /// Where it comes from: a clause of the standard, or `Multus`.
    pub clause: &'static str,
    /// What its value is and does, in one line.
    pub about: &'static str,
    /// What people write when they mean it.
    pub mistaken: &'static [&'static str],
}

/// Every key that a selection may have, besides those with a period.
pub const SELECTION_KEYS: &[SelectionKey] = &[
    key("name", "S18", "name of the NetworkAttachmentDefinition; required", &["network", "nad", "net"]),
    key("namespace", "S19", "its namespace; the pod's if it is not set", &["ns"]),
    key(
        "ips",
        "S20",
        "addresses, each with or without a prefix length; needs the capability \"ips\"",
        &["ip", "ipAddress", "ipAddresses", "address", "addresses", "ipRequest", "ip-addresses"],
    ),
    key(
        "mac",
        "S21",
        "hardware address; needs the capability \"mac\"",
        &["macAddress", "mac-address", "hwaddr", "macRequest", "hwAddress"],
    ),
    key("interface", "S22", "name of the interface in the pod", &["ifname", "if", "iface", "interfaceName", "interface-name", "nic"]),
    key("cni-args", "S23", "object that the plugins get as args.cni", &["args", "cniArgs"]),
    key(
        "portMappings",
        "S24",
        "host ports that lead to the pod; needs the capability \"portMappings\"",
        &["ports", "port-mappings", "hostPorts"],
    ),
    key("bandwidth", "S25", "rates and bursts in bit/s and bits; needs the capability \"bandwidth\"", &["rate", "bandwith"]),
    key(
        "default-route",
        "S26",
        "gateways of the pod's default route, which then leads through this network",
        &["gateway", "gateways", "defaultRoute", "default-gateway", "defaultGateway"],
    ),
    key(
        "infiniband-guid",
        "S27",
        "8-byte GUID; needs the capability \"infinibandGUID\"",
        &["guid", "infinibandGUID", "infinibandGuid", "ib-guid"],
    ),
    key(
        "ipam-claim-reference",
        "S28",
        "name of an IPAMClaim; not together with \"ips\"",
        &["ipam-claim", "ipamClaimReference", "ipamClaim"],
    ),
    key("deviceID", "Multus", "device that the attachment uses", &["device", "device-id", "pciBusID"]),
    key("interfaceRequest", "Multus", "older spelling of \"interface\"", &[]),
];

const fn key(name: &'static str, clause: &'static str, about: &'static str, mistaken: &'static [&'static str]) -> SelectionKey {
    SelectionKey { name, clause, about, mistaken }
}

/// The keys of one element of `portMappings` (S24; `hostIP` is Multus's).
pub(crate) const PORT_KEYS: &[&str] = &["hostPort", "containerPort", "protocol", "hostIP"];

/// The keys of `bandwidth` (S25).
pub(crate) const BANDWIDTH_KEYS: &[&str] = &["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

/// Whether `name` is a selection's key, as Go compares keys.
pub(crate) fn is_known(name: &str) -> bool {
    SELECTION_KEYS.iter().any(|k| k.name.eq_ignore_ascii_case(name))
}

/// The selection's key that was probably meant by `wrong`.
pub(crate) fn meant(wrong: &str) -> Option<&'static str> {
    let mistaken = |k: &&SelectionKey| k.mistaken.iter().any(|m| m.eq_ignore_ascii_case(wrong));
    match SELECTION_KEYS.iter().find(mistaken) {
        Some(k) => Some(k.name),
        None => nearest(wrong, SELECTION_KEYS.iter().map(|k| k.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_near_misses() {
        for (wrong, right) in [
            ("ip", "ips"),
            ("IP", "ips"),
            ("macs", "mac"),
            ("intrface", "interface"),
            ("portMapping", "portMappings"),
            ("default_route", "default-route"),
            ("gateway", "default-route"),
            ("name-space", "namespace"),
            ("cniargs", "cni-args"),
            ("guid", "infiniband-guid"),
            ("bandwith", "bandwidth"),
            ("deviceid2", "deviceID"),
        ] {
            assert_eq!(meant(wrong), Some(right), "{wrong}");
        }
        for far in ["", "x", "vlan", "qos", &"ips".repeat(100)] {
            assert_eq!(meant(far), None, "{far}");
        }
    }

    #[test]
    fn a_mistaken_key_is_no_key() {
        for key in SELECTION_KEYS {
            assert!(is_known(key.name) && !key.name.contains('.'));
            assert!(key.mistaken.iter().all(|m| !is_known(m)), "{}", key.name);
        }
    }
}
