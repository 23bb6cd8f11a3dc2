//! WireGuard's part of a round: the node has its keys, and rotates them where that is due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;
use linux::Inside;

use super::Network;
use crate::log::Line;
use crate::provided::KeysState;
use crate::provided::keys::Keys;

/// How long the old key stays after a handshake with all nodes over the new tunnels: each of them has looked several times by then, and
/// sends over the new one.
const SETTLED: Duration = Duration::from_secs(10);

impl Network<'_> {
    /// Has this node's WireGuard keys ready, and rotates them where that is due.
    pub(super) fn keep_keys(&mut self, nodes: &[Arc<Node>]) -> Result<(), String> {
        let (inside, state_dir, base) = (Inside::here(), &self.agent.settings.state_dir, self.provided.settings.wireguard_port);
        let own = self.agent.cluster.node();
        let others = nodes.iter().filter(|node| node.name != own).filter_map(|node| node.announced.as_ref()?.as_ref().ok());
        let others: Vec<u64> = others.map(|announced| announced.rotation).collect();
        let netlink = self.host.netlink().map_err(|e| e.to_string())?;
        let mut keys = match self.keys.take() {
            Some(keys) => keys,
            None => {
                let keys = Keys::first(state_dir, &others, &inside, netlink).map_err(|e| e.to_string())?;
                self.fabric.set_keys(&inside, keys.private()).map_err(|e| e.to_string())?;
                keys
            }
        };
        let is_asked = self.provided.takes_rotation();
        let rotation = keys.ahead(others.into_iter()).or_else(|| Some(keys.next()).filter(|_| is_asked && !keys.is_rotating()));
        let kept = rotation.map_or(Ok(()), |rotation| keys.begin(rotation, state_dir, &inside, netlink));
        if keys.is_rotating() {
            self.tunnels = fabric::tunnels(&inside, netlink).unwrap_or_default();
        }
        let plan = self.plan.as_ref().filter(|_| keys.is_rotating() && rotation.is_none());
        if plan.is_some_and(|plan| keys.awaited(base, plan, &self.tunnels).is_empty()) {
            self.proven_since.get_or_insert_with(Instant::now);
        } else {
            self.proven_since = None;
        }
        let is_settled = self.proven_since.is_some_and(|since| since.elapsed() >= SETTLED);
        let is_over = is_settled && keys.age() >= self.provided.settings.wireguard_overlap;
        let kept = kept.and_then(|()| if is_over { keys.end(state_dir) } else { Ok(()) });
        if rotation.is_some() || is_over {
            let now = if keys.is_rotating() { "the new key is tried beside the old one" } else { "the new key alone is used" };
            Line::info("cluster network").with("rotation", keys.rotation).with("now", now).end();
        }
        let set = self.fabric.set_keys(&inside, keys.private()).map_err(|e| e.to_string());
        self.keys = Some(keys);
        kept.map_err(|e| e.to_string()).and(set)
    }

    /// What is told of the keys.
    pub(super) fn keys_state(&self, nodes: &[Arc<Node>]) -> Option<KeysState> {
        let (keys, base) = (self.keys.as_ref()?, self.provided.settings.wireguard_port);
        let plan = self.plan.as_deref().filter(|_| keys.is_rotating());
        let addresses = plan.map(|plan| keys.awaited(base, plan, &self.tunnels)).unwrap_or_default();
        let is_awaited = |node: &&Arc<Node>| node.internal_ips.iter().any(|ip| addresses.contains(&ip.to_canonical()));
        Some(KeysState {
            announced: keys.announced(base),
            rotation: keys.rotation,
            age: keys.is_rotating().then(|| keys.age()),
            awaited: nodes.iter().filter(is_awaited).map(|node| node.name.clone()).collect(),
        })
    }
}
