//! Whether namespaces, nodes' objects, ledger and journals agree: [`netloom_tests::addresses`] on nodes of a real API server.

use std::net::IpAddr;

use netloom_tests::addresses::{Sighting, of_links, wrong};
use netloom_tests::leases::held;
use netloom_tests::{Node, Pod};
use serde_json::Value;

use crate::granted::Cluster;

// === impl Cluster ===

impl Cluster {
    /// The UID of the Node of a name.
    pub(crate) fn uid(&self, node: &str) -> String {
        let object = self.api.must("GET", &format!("/api/v1/nodes/{node}"), &Value::Null);
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// What `ip` says that pods have: `eth0` is of the first of these networks, `net1` of the second, and so on.
    pub(crate) fn seen(&self, node: &Node, pods: &[Pod<'_>], networks: &[&str]) -> Vec<Sighting> {
        let (uid, mut found) = (self.uid(&node.name), Vec::new());
        for pod in pods {
            for (ifname, address) in of_links(&node.host.json(&pod.sandbox(), "ip -j addr")) {
                let number = ifname.strip_prefix("net").map_or(0, |n| n.parse::<usize>().unwrap());
                let (network, namespace) = (networks[number].to_owned(), format!("{} of {}", pod.sandbox(), node.name));
                found.push(Sighting { network, address, namespace, node: node.name.clone(), uid: uid.clone() });
            }
        }
        found
    }

    /// O1 and O2 of all that is in use, while nothing is being attached.
    pub(crate) fn expect(&self, live: &[Sighting]) {
        let wrong = wrong(live, &self.list("nodeippools"), &self.list("ipledgershards"));
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// O1 and O2 of all pods of these nodes, whose interfaces are of these networks in turn; each address is a lease. What is in use.
    pub(crate) fn agree(&self, nodes: &[(&Node, &[Pod<'_>])], networks: &[&str]) -> Vec<Sighting> {
        let mut live = Vec::new();
        for (node, pods) in nodes {
            // Links go first, and then leases, when nobody waits for that any more.
            node.settled();
            let own = self.seen(node, pods, networks);
            let of = |one: &Sighting| (one.namespace.split(' ').next().unwrap().to_owned(), one.address);
            let mut seen: Vec<_> = own.iter().map(of).collect();
            seen.sort();
            assert_eq!(leased(node), seen, "{}: what the journal says, and what namespaces have", node.name);
            live.extend(own);
        }
        self.expect(&live);
        live
    }
}

/// Containers and their addresses, as the files of a node's journal say.
pub(crate) fn leased(node: &Node) -> Vec<(String, IpAddr)> {
    let mut all = Vec::new();
    for one in held(&node.host.path("/var/lib/netloom/ipam")) {
        all.extend(one.addresses.into_iter().map(|ip| (one.container.clone(), ip)));
    }
    all.sort();
    all
}

/// O3: everything goes, and nobody holds anything.
pub(crate) fn all_go(nodes: &[(&Node, &[Pod<'_>])]) {
    for (node, pods) in nodes {
        pods.iter().for_each(|pod| drop(pod.must("DEL")));
        node.settled();
        assert_eq!(leased(node), Vec::new(), "{} has leases of nobody", node.name);
    }
}
