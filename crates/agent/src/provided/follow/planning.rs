//! A plan, from what is known of the Nodes, of the own links and of the own keys.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use between::{Mode, NodeSeen, OwnNode, Settings, Tunnel, Underlay};
use cluster::Node;
use ipnet::IpNet;

use super::Network;
use super::blame::unreadable;
use crate::provided::ranges::Claimant;
use crate::provided::underlay;

// === impl Network ===

impl Network<'_> {
    /// Where no pod may have an address: Services, and the API servers.
    pub(super) fn reserved_now(&self) -> Vec<IpNet> {
        let addresses = &self.agent.cluster_addresses;
        addresses.ranges().into_iter().chain(addresses.servers().into_iter().map(IpNet::from)).collect()
    }

    /// A plan from what is there now.
    pub(super) fn plan_anew(&mut self) {
        let nodes = self.provided.nodes.all();
        let name = self.provided_for();
        let Some(own) = nodes.iter().find(|node| node.name == name) else {
            // Its ranges are still what its pods have.
            self.plan_lacks.push(format!(
                "Node {name} is not among the cluster's {} Nodes: no change of another Node is followed until it is; restart the kubelet, which makes it",
                nodes.len()
            ));
            return;
        };
        self.own = own.internal_ips.iter().map(IpAddr::to_canonical).collect();
        let looked = self.host.netlink().map_err(|e| e.to_string());
        match looked.and_then(|netlink| underlay::links(netlink, &self.own).map_err(|e| e.to_string())) {
            // A device with the MTU of no link would carry nothing, and the links of before are what the tunnels have.
            Ok(links) if links.is_empty() && self.has_tunnel() => {
                self.plan_lacks
                    .push("no link of the node has the Node's InternalIP or a default route: tunnels stay as they are".to_owned());
            }
            Ok(links) => self.links = links,
            Err(e) => self.plan_lacks.push(format!("cannot read the node's links: {e}")),
        }
        self.has_range = !self.provided.ranges.of(own).is_empty();
        self.reserved = self.reserved_now();
        let mut terms = self.provided.ranges.terms(own);
        let on_bridge = self.kept.on_bridge(&[]);
        terms.leave_taken(|gateway| on_bridge.iter().any(|net| net.addr() == gateway), |gateway| self.claimant(gateway, &nodes));
        // Another network's bridge may be in a pool that is new.
        self.survey_is_due |= terms.networks != self.terms.networks;
        self.terms = terms;
        self.unreadable = nodes.iter().flat_map(|node| unreadable(node, &self.provided.ranges)).collect();
        if !(self.links.is_empty() && self.has_tunnel()) {
            self.plan_with(&nodes);
        }
    }

    fn has_tunnel(&self) -> bool {
        self.provided.settings.mode.tunnel().is_some()
    }

    /// What has an address, so that pods cannot have it as a gateway. What anybody can claim comes last.
    fn claimant(&self, address: IpAddr, nodes: &[Arc<Node>]) -> Option<Claimant> {
        let reserved = self.reserved.iter().find(|range| range.contains(&address));
        let of_node = || nodes.iter().find(|node| node.internal_ips.iter().any(|ip| ip.to_canonical() == address));
        let within = |link: &&Underlay| link.addresses.iter().any(|subnet| subnet.contains(&address));
        let of_link = || self.links.iter().find(within);
        let of_services = reserved.map(|range| format!("in {range}, where Services or API servers are"));
        let other = of_services.or_else(|| of_link().map(|link| format!("in a subnet of this node's link {}", link.name)));
        other.map(Claimant::Other).or_else(|| of_node().map(|node| Claimant::Node(node.name.clone())))
    }

    /// A plan from these Nodes, the own links and the own WireGuard keys.
    fn plan_with(&mut self, nodes: &[Arc<Node>]) {
        let name = self.provided_for();
        let mode = self.provided.settings.mode;
        let base = self.provided.settings.wireguard_port;
        let settings = Settings {
            mode,
            vxlan: self.provided.settings.vxlan,
            wireguard_port: base,
            reserved: self.reserved.clone(),
            within: self.provided.settings.cluster_ranges.clone(),
        };
        self.see(nodes);
        let addresses = self.own_addresses();
        let mut own_node = OwnNode { name: name.to_owned(), links: self.links.clone(), addresses, ..OwnNode::default() };
        if mode.tunnel() == Some(Tunnel::WireGuard) {
            match self.wireguard_keys(nodes) {
                Ok(keys) => {
                    // The own devices have what this node has, whatever its Node says yet.
                    if let Some(own) = nodes.iter().find(|node| node.name == name) {
                        let ranges = self.provided.ranges.of(own);
                        self.planner.set(NodeSeen { ranges, keys: keys.keys, ..NodeSeen::from(own.as_ref()) });
                    }
                    (own_node.spare, own_node.unproven, own_node.known) = (keys.spare, keys.unproven, keys.known);
                }
                Err(why) => return self.plan_lacks.push(why),
            }
            // The mode auto may need no tunnel, and a rotation that fails costs nothing.
            if mode == Mode::WireGuard && !self.wireguard.has_keys() {
                self.plan_lacks.extend(self.wireguard.lack().cloned());
            }
        }
        match self.planner.plan(&settings, &own_node) {
            Ok(plan) => {
                self.wireguard.planned(&plan.peers);
                self.plans += 1;
                // Before it is carried out, which takes longer: pods that wait for it need only know it.
                self.provided.plan(Arc::clone(&plan), self.terms.networks.clone());
                self.plan = Some(plan);
            }
            Err(e) => self.plan_lacks.push(e.to_string()),
        }
    }

    /// Lets the planner know which Nodes have come, gone or changed. Those that are the same object with the same ranges are only passed by.
    fn see(&mut self, nodes: &[Arc<Node>]) {
        for node in nodes {
            let all = &self.provided.ranges;
            let is_known = self.planned.get(&node.name).is_some_and(|(known, had)| Arc::ptr_eq(known, node) && all.are(node, had));
            if !is_known {
                let ranges = all.of(node);
                self.planner.set(NodeSeen { ranges: ranges.clone(), ..NodeSeen::from(node.as_ref()) });
                self.planned.insert(node.name.clone(), (Arc::clone(node), ranges));
            }
        }
        if self.planned.len() > nodes.len() {
            let there: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            self.planned.retain(|name, _| {
                let stays = there.contains(name.as_str());
                if !stays {
                    self.planner.remove(name);
                }
                stays
            });
        }
    }
}
