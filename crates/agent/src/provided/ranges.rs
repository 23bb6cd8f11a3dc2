//! Which ranges the pods of each node have addresses of, and what leads there on their own node.
//!
//! ```text
//!   podCIDR   Node.spec.podCIDRs                            the bridge has the first address of each, with its subnet
//!   pool      NodeIPPool.spec: blocks of network `default`  the bridge has the pools' gateways, alone; routes lead to it
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;

use cluster::{Blocks, Cluster, Listed, Node};
use ipnet::IpNet;
use pool::Family;

/// Where the addresses of pods come from, as a person chooses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// From the ranges that Kubernetes gives each Node (`ipam: podCIDR`).
    #[default]
    PodCidrs,
    /// From the pools of the network [`api::CLUSTER_NETWORK`], of which the operator grants each node blocks (`ipam: pool`).
    Pools,
}

/// The ranges of all nodes.
#[derive(Clone)]
pub(crate) enum Ranges {
    OfNodes,
    OfPools(Blocks),
}

/// What the own node's ranges come with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// `None`: each range has a gateway of its own.
    pub(crate) gateways: Option<Vec<IpAddr>>,
    /// Of what any node may get a range.
    pub(crate) networks: Vec<IpNet>,
    /// Of which pool each of the node's ranges and of these networks is.
    pub(crate) pools: Vec<(IpNet, Box<str>)>,
    /// The families of which the node may take an address itself; `None`: nobody says.
    pub(crate) families: Option<BTreeSet<Family>>,
    /// Why pods of this node get no addresses.
    pub(crate) lacks: Vec<String>,
    /// Why some of them get none.
    pub(crate) problems: Vec<String>,
}

/// What else has an address that a pool names as its gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimant {
    /// A Node says so, of itself: this one.
    Node(String),
    /// The cluster or this machine; where, in words.
    Other(String),
}

// === impl Terms ===

impl Terms {
    /// The pool that a range is of, or a gateway in its network.
    pub(crate) fn pool_of(&self, range: &IpNet) -> Option<&str> {
        let around = self.pools.iter().filter(|(net, _)| net.contains(range));
        around.max_by_key(|(net, _)| net.prefix_len()).map(|(_, pool)| &**pool)
    }

    /// Leaves out gateways that something else has: each node's bridge would take its packets, the API server's too. A gateway that the pods'
    /// bridge has already (`has`) stays where only a Node claims it: a user who may write one Node would take all pods' gateway away otherwise.
    pub(crate) fn leave_taken(&mut self, has: impl Fn(IpAddr) -> bool, claimant: impl Fn(IpAddr) -> Option<Claimant>) {
        let Some(gateways) = &mut self.gateways else { return };
        let next = "set another one with `kubectl edit ippools.netloom.io`";
        let is_there = !gateways.is_empty();
        let mut taken = Vec::new();
        gateways.retain(|gateway| {
            let what = match claimant(*gateway) {
                None => return true,
                Some(Claimant::Node(node)) if has(*gateway) => {
                    self.problems.push(format!(
                        "node {node} has the InternalIP {gateway}, which is the gateway of a pool: pods keep it as their gateway, and nothing \
                         reaches the node by this address; correct the Node's address, or if it is right, {next}"
                    ));
                    return true;
                }
                Some(Claimant::Node(node)) => format!("the address of node {node}"),
                Some(Claimant::Other(what)) => what,
            };
            taken.push(format!("no pod gets the gateway {gateway} of a pool, which is {what}: {next}"));
            false
        });
        if is_there && gateways.is_empty() { self.lacks.append(&mut taken) } else { self.problems.append(&mut taken) }
    }
}

// === impl Ranges ===

impl Ranges {
    /// Begins to follow what they are made from, besides the Nodes. Must be called within a tokio runtime.
    pub(crate) fn follow(source: Source, cluster: &Cluster) -> Self {
        match source {
            Source::PodCidrs => Ranges::OfNodes,
            Source::Pools => Ranges::OfPools(cluster.follow_blocks()),
        }
    }

    /// Those of a Node, as they stand in the API. Blocks count whatever UID their object names: until the operator has seen that a Node was
    /// created again, pods of the former one have addresses of them.
    pub(crate) fn of(&self, node: &Node) -> Vec<IpNet> {
        match self {
            Ranges::OfNodes => node.pod_cidrs.clone(),
            Ranges::OfPools(blocks) => blocks.get(&node.name).map(|blocks| blocks.ranges.clone()).unwrap_or_default(),
        }
    }

    /// Whether those of a Node are these.
    pub(crate) fn are(&self, node: &Node, ranges: &[IpNet]) -> bool {
        match self {
            Ranges::OfNodes => node.pod_cidrs == ranges,
            Ranges::OfPools(blocks) => blocks.get(&node.name).map_or(ranges.is_empty(), |blocks| blocks.ranges == ranges),
        }
    }

    /// Whether they can be trusted; `None` where the Nodes say all.
    pub(crate) fn listed(&self) -> Option<Listed> {
        match self {
            Ranges::OfNodes => None,
            Ranges::OfPools(blocks) => Some(blocks.listed()),
        }
    }

    /// Waits until they are otherwise than when this was asked last; for good, where the Nodes say all.
    pub(crate) async fn changed(&mut self) {
        match self {
            Ranges::OfNodes => std::future::pending().await,
            Ranges::OfPools(blocks) => blocks.changed().await,
        }
    }

    /// What cannot be read of a Node and its ranges.
    pub(crate) fn unreadable(&self, node: &Node) -> Vec<String> {
        let mut all = node.unreadable.clone();
        if let Ranges::OfPools(blocks) = self {
            all.extend(blocks.get(&node.name).iter().flat_map(|blocks| &blocks.unreadable).cloned());
        }
        all
    }

    /// What the ranges of the own node need.
    pub(crate) fn terms(&self, own: &Node) -> Terms {
        let Ranges::OfPools(blocks) = self else {
            let lacks = own.pod_cidrs.is_empty().then(|| format!("Node {} has no podCIDR yet", own.name));
            return Terms { lacks: lacks.into_iter().collect(), ..Terms::default() };
        };
        let found = blocks.get(&own.name);
        // An object that is missing says nothing: it may be made again, as after its definition was, and then names what the node has.
        let families = found.as_ref().map(|blocks| {
            let all = [(Family::V4, blocks.main_v4), (Family::V6, blocks.main_v6)];
            all.into_iter().filter_map(|(family, has)| has.then_some(family)).collect()
        });
        let blocks = found.unwrap_or_default();
        let without =
            |(pool, key): &(String, &str)| format!("pool {pool} has no {key}: set it with `kubectl edit ippools.netloom.io {pool}`");
        let mut terms = Terms { gateways: Some(blocks.gateways.clone()), families, ..Terms::default() };
        (terms.networks, terms.pools) = (blocks.networks.clone(), blocks.pools.clone());
        let without_gateway = blocks.lacking.iter().map(without);
        if blocks.gateways.is_empty() {
            terms.lacks.extend(without_gateway)
        } else {
            terms.problems.extend(without_gateway)
        }
        if blocks.ranges.is_empty() && !blocks.on_demand {
            let (node, network) = (&own.name, api::CLUSTER_NETWORK);
            terms.lacks.push(format!(
                "node {node} has no addresses of the network {network} yet: check with `kubectl get ippools.netloom.io` that a pool of this \
                 network has some left and is for this node, and that the operator runs"
            ));
        }
        terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_is_somebody_elses_is_not_taken() {
        let gateways: Vec<IpAddr> = ["10.20.0.1", "192.0.2.1"].map(|text| text.parse().unwrap()).to_vec();
        let claimant = |address: IpAddr| (address == gateways[1]).then(|| Claimant::Node("a".to_owned()));
        let mut terms = Terms { gateways: Some(gateways.clone()), ..Terms::default() };
        terms.leave_taken(|_| false, claimant);
        assert_eq!((terms.gateways.as_deref(), terms.lacks.len(), terms.problems.len()), (Some(&gateways[..1]), 0, 1));
        let mut alone = Terms { gateways: Some(gateways[1..].to_vec()), ..Terms::default() };
        alone.leave_taken(|_| false, claimant);
        assert_eq!((alone.gateways.as_deref(), alone.lacks.len()), (Some(&[][..]), 1), "pods wait");
        let mut none = Terms::default();
        none.leave_taken(|_| false, claimant);
        assert_eq!(none, Terms::default());
    }

    #[test]
    fn a_range_and_a_gateway_are_of_a_pool() {
        let pools = [("10.20.0.0/16", "default"), ("10.20.0.64/26", "red")].map(|(net, pool)| (net.parse().unwrap(), pool.into()));
        let terms = Terms { pools: pools.to_vec(), ..Terms::default() };
        let of = |range: &str| terms.pool_of(&range.parse().unwrap());
        assert_eq!(["10.20.0.64/26", "10.20.0.1/32", "10.21.0.0/26"].map(of), [Some("red"), Some("default"), None]);
    }

    /// A Node's addresses are what its own kubelet says, or another client with its token.
    #[test]
    fn a_gateway_in_use_is_not_lost_to_a_node_that_claims_it() {
        let gateway: IpAddr = "10.20.0.1".parse().unwrap();
        let of = |claimant: Claimant| {
            let mut terms = Terms { gateways: Some(vec![gateway]), ..Terms::default() };
            terms.leave_taken(|address| address == gateway, |_| Some(claimant.clone()));
            terms
        };
        let claimed = of(Claimant::Node("evil".to_owned()));
        assert_eq!((claimed.gateways.as_deref(), claimed.lacks.len(), claimed.problems.len()), (Some(&[gateway][..]), 0, 1));
        assert!(claimed.problems[0].contains("node evil has the InternalIP 10.20.0.1"), "{:?}", claimed.problems);
        let of_services = of(Claimant::Other("in 10.20.0.0/30, where Services or API servers are".to_owned()));
        assert_eq!((of_services.gateways.as_deref(), of_services.lacks.len()), (Some(&[][..]), 1));
    }
}
