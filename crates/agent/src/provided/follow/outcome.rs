//! What came of a round, for all who ask or are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use between::{Mode, Problem};
use cluster::Node;

use super::blame::takes_away;
use super::{Lacks, Network};
use crate::lock;
use crate::provided::{State, condition};

// === impl Network ===

impl Network<'_> {
    /// Tells everybody what came of the round. How long until there may be more to tell.
    pub(super) fn tell(&mut self, mut lacks: Lacks) -> Option<Duration> {
        if let Some(plan) = &self.plan {
            let own_node = self.agent.cluster.node();
            // That it has no key is told with the reason.
            let is_told =
                |problem: &&Problem| matches!(problem, Problem::NoKey { node } if node == own_node && self.wireguard.lack().is_some());
            let problems = plan.problems.iter().filter(|problem| !is_told(problem));
            let (own, others): (Vec<&Problem>, Vec<&Problem>) = problems.partition(|problem| takes_away(problem, own_node));
            lacks.own.extend(own.iter().map(ToString::to_string));
            lacks.problems.extend(others.iter().map(ToString::to_string));
            if self.plan_lacks.is_empty() {
                lacks.own.extend(self.terms.lacks.iter().cloned());
            }
            lacks.problems.extend(self.terms.problems.iter().cloned());
        }
        lacks.problems.extend(self.unreadable.iter().cloned());
        if self.provided.settings.mode != Mode::WireGuard || self.wireguard.has_keys() {
            lacks.problems.extend(self.wireguard.lack().cloned());
        }
        let list = self.list().unwrap_or_else(|e| {
            lacks.own.push(e.to_string());
            None
        });
        let nodes = self.provided.nodes.all();
        let peers = nodes.len().saturating_sub(1);
        let is_unreached = |node: &&Arc<Node>| {
            let planned = self.plan.as_ref().is_none_or(|plan| plan.unreached.contains(&node.name));
            planned || !lacks.failed.is_empty() && self.provided.ranges.of(node).iter().any(|range| lacks.failed.contains(&range.trunc()))
        };
        // Most of the time each is reached, and there may be thousands.
        let is_each_reached = lacks.failed.is_empty() && self.plan.as_ref().is_some_and(|plan| plan.unreached.is_empty());
        let others = nodes.iter().filter(|node| !is_each_reached && node.name != self.agent.cluster.node());
        let unreached = others.filter(is_unreached).count();
        let reached = peers.saturating_sub(unreached);
        let state = State {
            list,
            lacks: lacks.own.clone(),
            problems: lacks.problems.clone(),
            ranges: self.kept.ranges.clone(),
            former: self.kept.former.clone(),
            pools: self.terms.networks.clone(),
            occupied: self.occupied_texts(),
            looked_at: self.looked_at.clone(),
            of_pods: None,
            mtu: self.kept.mtu,
            peers: (peers, reached),
            plan: self.plan.clone(),
            plans: self.plans,
            failed: lacks.failed,
            has_range: self.has_range,
            keys: self.keys_state(),
        };
        let is_new = {
            let mut known = lock(&self.provided.state);
            let is_new = known.list.is_none() && state.list.is_some();
            let of_pods = known.of_pods.take().filter(|_| state.has_pods_of(&known));
            *known = State { of_pods, ..state.clone() };
            is_new
        };
        if is_new {
            self.agent.default.wake();
        }
        let (mut new, again) = self.told.take(lacks.own.into_iter().chain(lacks.problems).collect(), Instant::now());
        new.append(&mut self.news);
        let rewrite = self.plan.as_ref().and_then(|_| condition::write(self.agent, self.provided, &state, &new, &self.written));
        again.into_iter().chain(rewrite).min()
    }
}
