//! The default network of this node's pods, as a configuration list: what its file would say if somebody wrote one.

use api::CLUSTER_NETWORK;
use cni::{CniError, Code, NetworkList};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::Source;

/// The bridge that every pod of the node is attached to.
pub const BRIDGE: &str = "netloom0";
/// The network's name, by which its addresses are kept on the disk.
pub(crate) const NAME: &str = "netloom";

/// What pods get addresses of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// Of these ranges, one of each.
    Ranges(&'a [IpNet]),
    /// Of the pools of the network [`CLUSTER_NETWORK`]. Each is alone on its link: pods of one block may be on two nodes after a while, and
    /// those of two blocks on one.
    Pools,
}

/// How the pods' ports of the bridge are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodPorts {
    /// A pod sends with its own IP and hardware addresses only.
    pub strict: bool,
    /// A pod's own packets find the way back to it, as a Service of which it is the only endpoint needs it.
    pub hairpin: bool,
}

/// The default network for pods with these addresses, whose links have this MTU. Pure.
///
/// A pod's default route leads to the bridge. Nothing is masqueraded per pod: what leaves the cluster is, by one rule of the node
/// (`rules::EGRESS`).
///
/// # Errors
/// None for ranges that a Node can have.
pub fn list(addresses: Addresses<'_>, mtu: Option<u32>, ports: PodPorts) -> Result<NetworkList, CniError> {
    let ipam = match addresses {
        Addresses::Ranges(ranges) => {
            let of_each: Vec<Value> = ranges.iter().map(|range| json!([{ "subnet": range }])).collect();
            json!({"type": "host-local", "ranges": of_each})
        }
        Addresses::Pools => json!({"type": "pool", "network": CLUSTER_NETWORK, "hostPrefix": true}),
    };
    let mut bridge = json!({
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": true,
        "hairpinMode": ports.hairpin,
        "strictSource": ports.strict,
        "macspoofchk": ports.strict,
        "ipam": ipam,
    });
    if let (Some(mtu), Value::Object(keys)) = (mtu, &mut bridge) {
        keys.insert("mtu".to_owned(), mtu.into());
    }
    let whole = json!({
        "cniVersion": "1.1.0",
        "name": NAME,
        "plugins": [
            bridge,
            {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}},
            {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        ],
    });
    NetworkList::parse(whole.to_string().as_bytes(), None).map_err(|e| CniError::new(Code::INTERNAL, e.to_string()))
}

// === impl PodPorts ===

impl Default for PodPorts {
    fn default() -> Self {
        PodPorts { strict: true, hairpin: true }
    }
}

// === impl Addresses ===

impl<'a> Addresses<'a> {
    /// Those of a source; ranges are the node's, where it has some of its own.
    pub(crate) fn of(source: Source, ranges: &'a [IpNet]) -> Self {
        match source {
            Source::PodCidrs => Addresses::Ranges(ranges),
            Source::Pools => Addresses::Pools,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_each_family_is_a_set_of_its_own() {
        let ranges = ["10.1.2.0/24", "fd00:1:2::/64"].map(|range| range.parse().unwrap());
        let list = list(Addresses::Ranges(&ranges), Some(1450), PodPorts::default()).unwrap();
        let [bridge, portmap, bandwidth] = &list.plugins[..] else { panic!("{list:?}") };
        assert_eq!((list.name.as_str(), bridge.kind.as_str()), ("netloom", "bridge"));
        let ipam = bridge.raw().object("ipam").unwrap();
        let sets = json::compact(ipam.get("ranges").unwrap());
        assert_eq!(sets, r#"[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1:2::/64"}]]"#);
        assert_eq!(bridge.raw().get("mtu").map(json::compact).as_deref(), Some("1450"));
        assert_eq!((portmap.kind.as_str(), bandwidth.kind.as_str()), ("portmap", "bandwidth"));
    }

    #[test]
    fn pods_of_pools_are_alone_on_their_link() {
        let list = list(Addresses::Pools, None, PodPorts::default()).unwrap();
        let ipam = list.plugins[0].raw().object("ipam").unwrap();
        assert_eq!(json::compact(ipam), r#"{"hostPrefix":true,"network":"default","type":"pool"}"#);
    }

    #[test]
    fn strict_pods_send_with_their_own_ip_and_hardware_addresses() {
        let keys = |strict, hairpin| {
            let list = list(Addresses::Ranges(&["10.1.2.0/24".parse().unwrap()]), None, PodPorts { strict, hairpin }).unwrap();
            ["strictSource", "macspoofchk", "hairpinMode"].map(|key| list.plugins[0].raw().get(key).map(json::compact))
        };
        let all = |values: [&str; 3]| values.map(|value| Some(value.to_owned()));
        assert_eq!((keys(true, true), keys(false, true)), (all(["true"; 3]), all(["false", "false", "true"])));
        assert_eq!(keys(true, false), all(["true", "true", "false"]));
    }
}
