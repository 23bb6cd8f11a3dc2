//! What whoever looks at a pool or a node is to see: Events.

use cluster::{About, Event, EventKind, Own};
use ledger::{EXHAUSTED, GATHERING, READY, Write};

use super::Operator;
use crate::log::Line;

// === impl Operator ===

impl Operator {
    /// An Event where a pool has run out of addresses, or has some again; and where it waits for nodes as its ledger was lost.
    pub(super) async fn told(&self, write: &Write, last: Option<&api::IpPoolStatus>) {
        let Write::PoolStatus { pool, status, .. } = write else { return };
        let of = |status: Option<&api::IpPoolStatus>, kind: &str| {
            status.and_then(|s| s.conditions.iter().find(|c| c.kind == kind)).cloned().unwrap_or_default()
        };
        let (now, before) = (of(Some(status), EXHAUSTED), of(last, EXHAUSTED));
        if now.status != before.status && (now.status == "True" || before.status == "True") {
            let short = now.status == "True";
            let enough = "every node has the addresses that it needs again";
            let (reason, note) = if short { ("Exhausted", now.message.as_str()) } else { ("Sufficient", enough) };
            self.tell_of_pool(pool, reason, note, !short).await;
        }
        let (now, before) = (of(Some(status), READY), of(last, READY));
        if now.reason != before.reason && (now.reason == GATHERING || before.reason == GATHERING) {
            let lost = now.reason == GATHERING;
            let (reason, note) = if lost { (GATHERING, now.message.as_str()) } else { ("Gathered", "every node has reported what it has") };
            self.tell_of_pool(pool, reason, note, !lost).await;
        }
    }

    async fn tell_of_pool(&self, pool: &str, reason: &str, note: &str, normal: bool) {
        let uid = self.seen.lock().pools.get(pool).map(|more| more.uid.clone()).unwrap_or_default();
        Line::info("pool").with("name", pool).with("is", reason).with("why", note).end();
        self.tell((Own::IpPool, pool, &uid), if normal { EventKind::Normal } else { EventKind::Warning }, reason, note).await;
    }

    /// An Event where two agents speak for one node.
    pub(super) async fn tell_of_two(&self) {
        let found = self.seen.lock().agents.take();
        for (node, note) in found {
            Line::error("node").with("name", &node).with("found", &note).end();
            self.tell_of_node(&node, "TwoAgents", &note).await;
        }
    }

    pub(super) async fn tell_of_node(&self, node: &str, reason: &str, note: &str) {
        let uid = self.seen.lock().world.node_pools.get(node).map(|seen| seen.uid.clone()).unwrap_or_default();
        self.tell((Own::NodeIpPool, node, &uid), EventKind::Warning, reason, note).await;
    }

    /// An Event about one of our objects. Where it cannot be written, the condition and the log say the same.
    async fn tell(&self, (of, name, uid): (Own, &str, &str), kind: EventKind, reason: &str, message: &str) {
        let regarding = About { api_version: api::API_VERSION, kind: of.kind(), namespace: "", name, uid };
        let (controller, instance, action) = (cluster::OPERATOR_CONTROLLER, self.options.identity.as_str(), "Grant");
        Event { controller, instance, action, kind, reason, message, regarding }.tell(&self.client).await;
    }
}
