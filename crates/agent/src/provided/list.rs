//! The default network of this node's pods, as a configuration list: what its file would say if somebody wrote one.

use cni::{CniError, Code, NetworkList};
use ipnet::IpNet;
use serde_json::{Value, json};

/// The bridge that every pod of the node is attached to.
pub const BRIDGE: &str = "netloom0";
/// The network's name, by which its addresses are kept on the disk.
pub(crate) const NAME: &str = "netloom";

/// The default network for pods with addresses of these ranges, whose links have this MTU. Pure.
///
/// A pod's default route leads to the bridge, and its own packets find the way back to it (hairpin), as a Service of which it is the only
/// endpoint needs it. Nothing is masqueraded per pod: what leaves the cluster is, by one rule of the node (`rules::EGRESS`).
/// `strict`: a pod sends with its own IP and hardware addresses only.
///
/// # Errors
/// None for ranges that a Node can have.
pub fn list(ranges: &[IpNet], mtu: Option<u32>, strict: bool) -> Result<NetworkList, CniError> {
    let of_each: Vec<Value> = ranges.iter().map(|range| json!([{ "subnet": range }])).collect();
    let mut bridge = json!({
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": true,
        "hairpinMode": true,
        "strictSource": strict,
        "macspoofchk": strict,
        "ipam": {"type": "host-local", "ranges": of_each},
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_each_family_is_a_set_of_its_own() {
        let ranges = ["10.1.2.0/24", "fd00:1:2::/64"].map(|range| range.parse().unwrap());
        let list = list(&ranges, Some(1450), true).unwrap();
        let [bridge, portmap, bandwidth] = &list.plugins[..] else { panic!("{list:?}") };
        assert_eq!((list.name.as_str(), bridge.kind.as_str()), ("netloom", "bridge"));
        let ipam = bridge.raw().object("ipam").unwrap();
        let sets = json::compact(ipam.get("ranges").unwrap());
        assert_eq!(sets, r#"[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1:2::/64"}]]"#);
        assert_eq!(bridge.raw().get("mtu").map(json::compact).as_deref(), Some("1450"));
        assert_eq!((portmap.kind.as_str(), bandwidth.kind.as_str()), ("portmap", "bandwidth"));
    }

    #[test]
    fn strict_pods_send_with_their_own_ip_and_hardware_addresses() {
        let guards = |strict| {
            let list = list(&["10.1.2.0/24".parse().unwrap()], None, strict).unwrap();
            ["strictSource", "macspoofchk"].map(|key| list.plugins[0].raw().get(key).map(json::compact))
        };
        let both = |value: &str| [Some(value.to_owned()), Some(value.to_owned())];
        assert_eq!((guards(true), guards(false)), (both("true"), both("false")));
    }
}
