//! What the own Node says of its network: the condition `NetworkUnavailable`, and which mode its agent has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use between::{Mode, Tunnel};
use cluster::{Announced, EventKind, Node, OwnNetwork, Unavailable};

use super::{Provided, Source, State};
use crate::log::Line;
use crate::{Agent, lock};

/// After a write that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// What was written last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    on_its_way: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<Instant>>>,
}

/// Why this node's pods have no network; `None` if they have. A peer that is not reached is no such reason: pods of this node have the
/// network, and its Node would lose all of them.
fn unavailable(state: &State, source: Source) -> Option<Unavailable> {
    if state.lacks.is_empty() {
        return None;
    }
    let reason = match (state.ranges.is_empty(), state.has_range) {
        (true, false) if source == Source::Pools => "NoAddresses",
        (true, false) => "NoPodCIDR",
        (true, true) => "PodCIDRRefused",
        (false, _) => "NetloomIsDown",
    };
    Some(Unavailable { reason: reason.to_owned(), message: state.lacks.join("; ") })
}

/// Writes it, unless the Node says so already, and tells what is new as an Event of the Node. Nothing waits for that. How long until it
/// may be tried again, if it is not tried now.
pub(crate) fn write(agent: &Agent, provided: &Provided, state: &State, new: &[String], written: &Written) -> Option<Duration> {
    let own = provided.nodes.own()?;
    if !new.is_empty() {
        tell(agent, &own, new);
    }
    let unavailable = unavailable(state, provided.settings.source);
    let network = OwnNetwork { announced: Some(announced(provided.mode(), state, &own)), unavailable };
    if network.is_in(&own) {
        return None;
    }
    let rests = lock(&written.failed).map(|at| PAUSE.saturating_sub(at.elapsed())).filter(|left| !left.is_zero());
    if rests.is_some() || written.on_its_way.swap(true, Ordering::AcqRel) {
        return rests.or(Some(PAUSE));
    }
    let (cluster, written) = (agent.cluster.clone(), written.clone());
    drop(agent.runtime.spawn(async move {
        let result = cluster.write_own_network(&own, &network).await;
        *lock(&written.failed) = result.is_err().then(Instant::now);
        written.on_its_way.store(false, Ordering::Release);
        match result {
            Ok(true) => {
                let now = network.unavailable.map_or_else(|| "available".to_owned(), |why| format!("unavailable: {}", why.message));
                Line::info("cluster network").with("node", own.name.as_str()).with("now", now).end();
            }
            Ok(false) => {}
            Err(e) => Line::warn("cluster network").with("what", "the Node's condition is not written").with("error", e).end(),
        }
    }));
    // To see whether it was.
    Some(PAUSE)
}

/// What other nodes have to know. Where the keys cannot be read the Node goes on to say what it says: by them others reach this node.
fn announced(mode: Mode, state: &State, own: &Node) -> Announced {
    let none = Announced { mode, keys: Vec::new(), rotation: 0, moved: 0 };
    let before = own.announced.as_ref().and_then(|announced| announced.as_ref().ok());
    match (&state.keys, before) {
        (Some(keys), _) => Announced { mode, keys: keys.announced.clone(), rotation: keys.rotation, moved: keys.moved },
        (None, Some(before)) if mode.tunnel() == Some(Tunnel::WireGuard) => Announced { mode, ..before.clone() },
        (None, _) => none,
    }
}

fn tell(agent: &Agent, own: &Arc<Node>, new: &[String]) {
    let (cluster, own, message) = (agent.cluster.clone(), Arc::clone(own), new.join("; "));
    drop(agent.runtime.spawn(async move {
        if let Err(e) = cluster.tell_of_own_node(&own, EventKind::Warning, "ClusterNetwork", &message).await {
            Line::debug("event").with("reason", "ClusterNetwork").with("error", e).end();
        }
    }));
}

#[cfg(test)]
mod tests {
    use between::PublicKey;

    use super::*;

    /// Others would take their tunnels to this node away.
    #[test]
    fn keys_that_cannot_be_read_stay_announced() {
        let before =
            Announced { mode: Mode::Direct, keys: vec![PublicKey { key: [7; 32], port: Some(51820), rotation: 4 }], rotation: 4, moved: 4 };
        let own = Node { announced: Some(Ok(before.clone())), ..Node::default() };
        let said = |mode, state: &State| announced(mode, state, &own);
        assert_eq!(said(Mode::WireGuard, &State::default()), Announced { mode: Mode::WireGuard, ..before });
        assert_eq!(said(Mode::Vxlan, &State::default()).keys, []);
        let keys = Some(crate::provided::KeysState { rotation: 5, ..Default::default() });
        assert_eq!(said(Mode::WireGuard, &State { keys, ..State::default() }).rotation, 5);
    }

    #[test]
    fn a_peers_problem_takes_no_node_away() {
        let state = State { problems: ["node b has no usable InternalIP".to_owned()].into(), ..State::default() };
        assert_eq!(unavailable(&state, Source::PodCidrs), None);
        let state = State { lacks: vec!["Node a has no podCIDR yet".to_owned()], ..State::default() };
        let reason = |state: &State, source| unavailable(state, source).map(|why| why.reason);
        assert_eq!(reason(&state, Source::PodCidrs).as_deref(), Some("NoPodCIDR"));
        assert_eq!(reason(&state, Source::Pools).as_deref(), Some("NoAddresses"));
        let range = "10.1.0.0/24".parse().unwrap();
        let state = State { lacks: vec!["x".to_owned()], ranges: vec![range], ..State::default() };
        assert_eq!(reason(&state, Source::PodCidrs).as_deref(), Some("NetloomIsDown"));
    }
}
