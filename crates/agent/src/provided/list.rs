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

/// The default network for pods with these addresses, whose links have this MTU. Pure.
///
/// A pod's default route leads to the bridge, and its own packets find the way back to it (hairpin), as a Service of which it is the only
/// endpoint needs it. Nothing is masqueraded per pod: what leaves the cluster is, by one rule of the node (`rules::EGRESS`).
/// `strict`: a pod sends with its own IP and hardware addresses only.
///
/// # Errors
/// None for ranges that a Node can have.
pub fn list(addresses: Addresses<'_>, mtu: Option<u32>, strict: bool) -> Result<NetworkList, CniError> {
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
        "hairpinMode": true,
        "strictSource": strict,
        "macspoofchk": strict,
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
        let list = list(Addresses::Ranges(&ranges), Some(1450), true).unwrap();
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
        let list = list(Addresses::Pools, None, true).unwrap();
        let ipam = list.plugins[0].raw().object("ipam").unwrap();
        assert_eq!(json::compact(ipam), r#"{"hostPrefix":true,"network":"default","type":"pool"}"#);
    }

    #[test]
    fn strict_pods_send_with_their_own_ip_and_hardware_addresses() {
        let guards = |strict| {
            let list = list(Addresses::Ranges(&["10.1.2.0/24".parse().unwrap()]), None, strict).unwrap();
            ["strictSource", "macspoofchk"].map(|key| list.plugins[0].raw().get(key).map(json::compact))
        };
        let both = |value: &str| [Some(value.to_owned()), Some(value.to_owned())];
        assert_eq!((guards(true), guards(false)), (both("true"), both("false")));
    }
}
