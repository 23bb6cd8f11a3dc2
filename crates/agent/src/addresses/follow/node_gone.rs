//! While this machine's Node is gone: no address is assigned, and the agent says that it lives as long as anything is in use here.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::{NodeIpPoolSpec, NodeIpPoolStatus};
use cluster::NodeIpPool;
use pool::Origin;

use super::{Follow, IDLE};
use crate::log::{Line, stamp};

/// How often this agent says that it lives while its Node is gone, within a quarter of the time after which it counts as silent.
const ALIVE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Words of the reason why nothing is assigned while the Node is gone.
pub(crate) const NODE_GONE: &str = "was deleted while its agent runs";

// === impl Follow ===

impl Follow {
    /// Closes the store while this machine's Node is gone, and opens it when it is there again: `uid` is its object's.
    pub(super) fn node_is_gone(&mut self, gone: bool, uid: Option<&str>) {
        let node = self.cluster.node();
        let why = format!(
            "Node {node} {NODE_GONE}: restart the kubelet of this machine to register the Node again; running pods keep their addresses"
        );
        let before = std::mem::replace(&mut self.gone, gone.then(|| why.clone()));
        // Before the log and the Event: who reads them finds the store closed.
        self.store.close(self.gone.clone());
        match (before, gone) {
            (None, true) => {
                Line::warn("addresses").with("what", "no address is assigned").with("why", &why).end();
                let Some(uid) = uid.map(str::to_owned) else { return };
                let cluster = self.cluster.clone();
                // Nothing waits for it, least of all the word that this agent lives.
                drop(tokio::spawn(async move {
                    if let Err(e) = cluster.warn_of_node_ip_pool(&uid, "NodeGone", &why).await {
                        Line::warn("event").with("reason", "NodeGone").with("error", e).end();
                    }
                }));
            }
            (Some(_), false) => Line::info("addresses").with("node", node).with("now", "addresses are assigned again").end(),
            _ => {}
        }
    }

    /// Without an object the Node itself is looked for: who has granted something may have it back by now. Where nobody answers, all stays
    /// as it is.
    pub(super) async fn look_for_node(&mut self) {
        let closed = self.store.closed();
        // It may be closed for another reason, which holds.
        if closed.is_some() && closed != self.gone {
            return;
        }
        let is_granted = |pool: &str| self.store.look(|all| all.origin(pool) == Some(Origin::Cluster));
        if self.applied.is_none() && !self.store.cluster_pools().iter().any(|pool| is_granted(pool)) {
            return;
        }
        match self.cluster.fetch_own_node().await {
            Ok(node) => self.node_is_gone(node.is_none(), None),
            Err(e) => self.tell("node", e.to_string()),
        }
    }

    /// When this agent says that it lives: now, where it is time, while its Node is gone and anything is in use here.
    pub(super) fn alive_at(&self, spec: &NodeIpPoolSpec, seen: &NodeIpPoolStatus, now: Instant) -> String {
        let Some(every) = alive_every(spec) else { return String::new() };
        let is_due = self.alive.is_none_or(|at| now.duration_since(at) >= every);
        let is_used = || self.store.is_recovering() || self.store.look(ipam::node_in_use);
        if is_due && is_used() { stamp(SystemTime::now()) } else { seen.alive_at.clone() }
    }

    /// How long until it is to be said again.
    pub(super) fn next_alive(&self, spec: &NodeIpPoolSpec, now: Instant) -> Duration {
        let Some(every) = alive_every(spec) else { return IDLE };
        let left = self.alive.map_or(Duration::ZERO, |at| (at + every).saturating_duration_since(now));
        if left.is_zero() { every } else { left }
    }

    /// Says that it lives, and nothing else, where what was granted could not be taken in.
    pub(super) async fn say_alive(&mut self, object: &Arc<NodeIpPool>, seen: &NodeIpPoolStatus, now: Instant) -> Duration {
        let status = NodeIpPoolStatus { alive_at: self.alive_at(&object.spec, seen, now), ..seen.clone() };
        self.write(object, seen, status, now).await.min(self.next_alive(&object.spec, now))
    }
}

/// How often an agent says that it lives; `None`: its Node is there.
pub(super) fn alive_every(spec: &NodeIpPoolSpec) -> Option<Duration> {
    let (least, most) = ALIVE;
    spec.reclaim_after_seconds.map(|seconds| (Duration::from_secs(seconds) / 4).clamp(least, most))
}
