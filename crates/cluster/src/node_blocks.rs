//! What every node was granted of the pools of the cluster's own network, followed: which addresses lie behind which node.
//!
//! Agents write the status of these objects whenever their demand changes. Nothing of it is kept, so nobody is told.

use std::net::IpAddr;
use std::sync::Arc;

use api::{CLUSTER_NETWORK, GrantedFamily, GrantedIp, GrantedPool, NodeIpPoolSpec};
use ipnet::IpNet;
use serde::Deserialize;

use crate::Cluster;
use crate::cache::Listed;
use crate::watch::{Following, Watched};

/// What one node has of the network [`CLUSTER_NETWORK`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeBlocks {
    /// `spec.blocks` and `spec.ips` of that network, sorted.
    pub ranges: Vec<IpNet>,
    /// The gateways of its pools, sorted.
    pub gateways: Vec<IpAddr>,
    /// The networks that these are in, by the prefix length of their pool: nodes may be granted any address of them.
    pub networks: Vec<IpNet>,
    /// Of which pool each of the ranges and of the networks is, sorted; of several pools, the one whose name comes first.
    pub pools: Vec<(IpNet, Box<str>)>,
    /// Whether there are IPv4 addresses of the pool [`CLUSTER_NETWORK`] itself, and it is not being deleted.
    pub main_v4: bool,
    /// The same of IPv6.
    pub main_v6: bool,
    /// Whether a pool of that network that has a gateway grants a node nothing before a pod needs it (`preAllocate: 0`).
    pub on_demand: bool,
    /// Pools without a gateway for a family, and the key of their `spec` that is missing.
    pub lacking: Vec<(String, &'static str)>,
    /// What of these cannot be read, a sentence each.
    pub unreadable: Vec<String>,
}

/// What all nodes have, followed until the last clone of this is dropped. Each clone waits for changes by itself.
#[derive(Clone)]
pub struct Blocks {
    following: Following<Arc<NodeBlocks>>,
}

/// The kind, for a watch.
pub(crate) struct AllBlocks;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartialObject {
    metadata: SeenMeta,
    #[serde(default)]
    spec: Option<NodeIpPoolSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    name: String,
    resource_version: String,
}

// === impl NodeBlocks ===

impl NodeBlocks {
    /// An address that two nodes have, while a claim's pod migrates, counts as that of the one whose name comes first: routes lead to one place.
    fn read(node: &str, spec: &NodeIpPoolSpec) -> Self {
        let mut blocks = NodeBlocks::default();
        let main = spec.pools.get(CLUSTER_NETWORK).filter(|pool| pool.network == CLUSTER_NETWORK && !pool.ending);
        for block in spec.blocks.iter().filter(|block| block.network == CLUSTER_NETWORK) {
            let range = block.cidr.parse::<IpNet>().ok();
            if let Some(range) = range.filter(|_| main.is_some() && block.pool == CLUSTER_NETWORK) {
                blocks.main_v4 |= range.addr().is_ipv4();
                blocks.main_v6 |= range.addr().is_ipv6();
            }
            blocks.enter_range("spec.blocks", &block.cidr, range, &block.pool);
        }
        let is_here = |ip: &&GrantedIp| ip.network == CLUSTER_NETWORK && (ip.also.is_empty() || node < ip.also.as_str());
        for ip in spec.ips.iter().filter(is_here) {
            blocks.enter_range("spec.ips", &ip.ip, ip.ip.parse::<IpAddr>().ok().map(IpNet::from), &ip.pool);
        }
        for (name, pool) in spec.pools.iter().filter(|(_, pool)| pool.network == CLUSTER_NETWORK) {
            let before = blocks.gateways.len();
            blocks.enter_gateways(name, pool);
            let grants_nothing = pool.scaling.pre_allocate == 0 && pool.scaling.min_allocate == 0;
            blocks.on_demand |= grants_nothing && !pool.ending && blocks.gateways.len() > before;
        }
        blocks.ranges.sort_unstable();
        blocks.gateways.sort_unstable();
        blocks.gateways.dedup();
        blocks.networks.sort_unstable();
        blocks.networks.dedup();
        blocks.pools.sort_unstable();
        blocks.pools.dedup_by(|(later, _), (first, _)| later == first);
        blocks
    }

    fn enter_range(&mut self, key: &str, text: &str, range: Option<IpNet>, pool: &str) {
        match range {
            Some(range) => {
                self.ranges.push(range);
                self.pools.push((range, pool.into()));
            }
            None => self.unreadable.push(format!("{key} of its NodeIPPool has {text:?}, which is not a valid range")),
        }
    }

    fn enter_gateways(&mut self, name: &str, pool: &GrantedPool) {
        let families = [("ipv4.gateway", &pool.ipv4), ("ipv6.gateway", &pool.ipv6)];
        let given = families.into_iter().filter_map(|(key, family)| Some((key, family.as_ref()?)));
        for (key, GrantedFamily { gateway, prefix_length, .. }) in given {
            match gateway.as_deref().map(str::parse) {
                Some(Ok(gateway)) => {
                    self.gateways.push(gateway);
                    if let Ok(network) = IpNet::new(gateway, *prefix_length) {
                        self.networks.push(network.trunc());
                        self.pools.push((network.trunc(), name.into()));
                    }
                }
                Some(Err(_)) => self.unreadable.push(format!("pool {name} has the {key} {gateway:?}, which is not an IP address")),
                // Of one that is being deleted nobody gets an address.
                None if pool.ending => {}
                None => self.lacking.push((name.to_owned(), key)),
            }
        }
    }
}

// === impl AllBlocks ===

impl Watched for AllBlocks {
    type PartialObject = PartialObject;
    type Stored = Arc<NodeBlocks>;
    const RESOURCE: (&'static str, &'static str) = ("netloom.io", "nodeippools");
    const PATH: &'static str = "/apis/netloom.io/v1alpha1/nodeippools";
    const PAGE: u32 = 500;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Arc<NodeBlocks>) {
        let blocks = seen.spec.as_ref().map(|spec| NodeBlocks::read(&seen.metadata.name, spec)).unwrap_or_default();
        (format!("/{}", seen.metadata.name).into(), Arc::new(blocks))
    }
}

// === impl Blocks ===

impl Blocks {
    /// What a node has, by the name of its Node. `None`: it was never granted anything.
    pub fn get(&self, node: &str) -> Option<Arc<NodeBlocks>> {
        self.following.cache.get("", node)
    }

    /// Whether they can be trusted. Until the list is complete, what is not there may only not have come yet.
    pub fn listed(&self) -> Listed {
        self.following.cache.listed()
    }

    /// As [`Nodes::changed`](crate::Nodes::changed).
    pub async fn changed(&mut self) {
        self.following.changed().await;
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows what all nodes were granted from now on. Must be called within a tokio runtime.
    pub fn follow_blocks(&self) -> Blocks {
        Blocks { following: Following::all::<AllBlocks>(self.inner.caller.clone()) }
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes).map(AllBlocks::keep));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(object: &Value) -> (Box<str>, Arc<NodeBlocks>) {
        AllBlocks::keep(serde_json::from_value(object.clone()).unwrap())
    }

    fn whole() -> Value {
        json!({
            "apiVersion": "netloom.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": "a", "resourceVersion": "7", "generation": 3},
            "spec": {
                "nodeUID": "u",
                "blocks": [
                    {"cidr": "10.20.0.64/26", "network": "default", "pool": "default", "epoch": 1},
                    {"cidr": "10.9.0.0/26", "network": "storage", "pool": "storage", "epoch": 1},
                    {"cidr": "10.20.0.0/26", "network": "default", "pool": "red", "epoch": 4},
                    {"cidr": "fd00:20::100/120", "network": "default", "pool": "default", "epoch": 1},
                ],
                "ips": [
                    {"ip": "10.20.9.5", "network": "default", "pool": "default", "epoch": 1, "owner": {"claim": "x/y"}},
                    {"ip": "10.9.0.70", "network": "storage", "pool": "storage", "epoch": 1, "owner": {"claim": "x/z"}},
                ],
                "pools": {
                    "default": {"network": "default", "ipv4": {"prefixLength": 16, "gateway": "10.20.0.1", "blockPrefix": 26},
                        "ipv6": {"prefixLength": 64, "gateway": "fd00:20::1", "blockPrefix": 120}},
                    "red": {"network": "default", "ipv4": {"prefixLength": 16, "blockPrefix": 26}},
                    "blue": {"network": "default", "ipv4": {"prefixLength": 16, "gateway": "10.20.0.1", "blockPrefix": 26}},
                    "old": {"network": "default", "ipv4": {"prefixLength": 16, "blockPrefix": 26}, "ending": true},
                    "storage": {"network": "storage", "ipv4": {"prefixLength": 24, "blockPrefix": 26}},
                },
            },
            "status": {"observedGeneration": 3, "demand": [{"pool": "default", "ipv4": 8}]},
        })
    }

    #[test]
    fn of_all_networks_the_clusters_own_counts() {
        let (key, blocks) = read(&whole());
        let ranges: Vec<String> = blocks.ranges.iter().map(ToString::to_string).collect();
        assert_eq!(
            (&*key, ranges),
            ("/a", ["10.20.0.0/26", "10.20.0.64/26", "10.20.9.5/32", "fd00:20::100/120"].map(str::to_owned).to_vec())
        );
        let gateways: Vec<String> = blocks.gateways.iter().map(ToString::to_string).collect();
        assert_eq!(gateways, ["10.20.0.1", "fd00:20::1"]);
        let networks: Vec<String> = blocks.networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.20.0.0/16", "fd00:20::/64"]);
        assert_eq!((blocks.main_v4, blocks.main_v6, blocks.on_demand), (true, true, false));
        let pools: Vec<String> = blocks.pools.iter().map(|(range, pool)| format!("{range} {pool}")).collect();
        let expected = ["10.20.0.0/16 blue", "10.20.0.0/26 red", "10.20.0.64/26 default", "10.20.9.5/32 default"];
        assert_eq!((&pools[..4], pools.len()), (&expected.map(str::to_owned)[..], 6));
        assert_eq!(blocks.lacking, [("red".to_owned(), "ipv4.gateway")]);
        assert_eq!(blocks.unreadable, [""; 0]);
    }

    #[test]
    fn an_address_of_two_nodes_counts_for_one_of_them() {
        let counts = |node: &str, also: &str| {
            let mut object = whole();
            object["metadata"]["name"] = json!(node);
            object["spec"]["ips"][0]["also"] = json!(also);
            read(&object).1.ranges.iter().any(|range| range.to_string() == "10.20.9.5/32")
        };
        assert!(counts("a", "b") && !counts("b", "a") && counts("b", ""));
    }

    #[test]
    fn a_status_and_other_networks_change_nothing() {
        let before = read(&whole());
        let mut changed = whole();
        changed["metadata"]["resourceVersion"] = json!("8");
        changed["status"] = json!({"observedGeneration": 4, "returning": [{"cidr": "10.20.0.0/26", "epoch": 4}]});
        changed["spec"]["blocks"][1]["cidr"] = json!("10.9.0.64/26");
        assert_eq!(read(&changed), before);
        changed["spec"]["pools"]["default"]["ending"] = json!(true);
        assert!(!read(&changed).1.main_v4, "a pool that is being deleted");
        changed = whole();
        changed["spec"]["blocks"][0]["cidr"] = json!("10.20.0.128/26");
        assert_ne!(read(&changed), before);
    }

    /// Else an IPv4 pool beside one of both families would be asked for IPv6.
    #[test]
    fn the_families_of_the_main_pool_are_those_of_its_blocks() {
        let mut object = whole();
        object["spec"]["blocks"][3]["pool"] = json!("red");
        let (_, blocks) = read(&object);
        assert_eq!((blocks.main_v4, blocks.main_v6), (true, false));
    }

    #[test]
    fn a_pool_that_grants_nothing_before_a_pod_needs_it_is_known() {
        let mut object = whole();
        object["spec"]["pools"]["blue"]["scaling"] = json!({"preAllocate": 0});
        assert!(read(&object).1.on_demand);
        object["spec"]["pools"]["blue"]["scaling"] = json!({"preAllocate": 0, "minAllocate": 4});
        assert!(!read(&object).1.on_demand);
        object["spec"]["pools"]["red"]["scaling"] = json!({"preAllocate": 0});
        assert!(!read(&object).1.on_demand, "it has no gateway");
    }

    #[test]
    fn what_cannot_be_read_is_noted_and_the_rest_counts() {
        let mut object = whole();
        object["spec"]["blocks"][0]["cidr"] = json!("10.20.0.64/33");
        object["spec"]["pools"]["blue"]["ipv4"]["gateway"] = json!("x");
        let (_, blocks) = read(&object);
        assert_eq!((blocks.ranges.len(), blocks.gateways.len()), (3, 2));
        assert_eq!(blocks.unreadable.len(), 2, "{:?}", blocks.unreadable);
        assert_eq!(read(&json!({"metadata": {"name": "b"}})).1, Arc::default());
    }
}
