//! What this node's agent writes to its own Node: whether the network between nodes works, and the annotation for the other nodes.
//!
//! ```text
//!   Node as it was seen, OwnNetwork --> equal: nothing
//!                                   --> PATCH nodes/NAME/status: condition NetworkUnavailable, annotation netloom.io/between
//! ```
//!
//! Both go through `nodes/status`, which keeps metadata but never `spec`: so an agent needs no right to change Nodes otherwise.

use http::header::ACCEPT;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::call::ANSWER;
use crate::event::AGENT_CONTROLLER;
use crate::status::{FIELD_MANAGER, METADATA_ONLY};
use crate::{About, Announced, ApiError, BETWEEN, Cluster, ConditionDigest, Event, EventKind, Node, RequestedObject, note};

const PATH: &str = "/api/v1/nodes";

/// Reason and message while it works, as flannel's `FlannelIsUp`.
const UP: (&str, &str) = ("NetloomIsUp", "Netloom carries packets between this node's pods and those of other nodes");

/// What this node says of its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNetwork {
    /// What other nodes have to know; `None` removes the annotation.
    pub announced: Option<Announced>,
    /// Why its pods have no network yet; `None` if they have. Kubernetes puts a taint on the Node meanwhile.
    pub unavailable: Option<Unavailable>,
}

/// Why a node's pods have no network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// One word in camel case.
    pub reason: String,
    /// For a person. The first [`note`] of it is written.
    pub message: String,
}

// === impl OwnNetwork ===

impl OwnNetwork {
    /// Whether the Node says so already.
    #[must_use]
    pub fn is_in(&self, seen: &Node) -> bool {
        let (reason, message) = self.why();
        seen.network_unavailable == Some(self.unavailable.is_some())
            && seen.network_why == Some(ConditionDigest::of(reason, message))
            && seen.announced.as_ref() == self.announced.clone().map(Ok).as_ref()
    }

    /// The condition's reason and message.
    fn why(&self) -> (&str, &str) {
        self.unavailable.as_ref().map_or(UP, |unavailable| (&unavailable.reason, note(&unavailable.message)))
    }

    /// The strategic merge patch: conditions are merged by their types. The UID is a precondition.
    fn patch(&self, seen: &Node, now: &str) -> Value {
        let is_unavailable = self.unavailable.is_some();
        let (reason, message) = self.why();
        let status = if is_unavailable { "True" } else { "False" };
        let mut condition =
            json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now});
        // As the API has it: since when the status is what it is. Without it the Node keeps what it has.
        if seen.network_unavailable != Some(is_unavailable)
            && let Some(condition) = condition.as_object_mut()
        {
            condition.insert("lastTransitionTime".to_owned(), now.into());
        }
        let announced = self.announced.as_ref().map(Announced::text);
        json!({"metadata": {"uid": seen.uid, "annotations": {BETWEEN: announced}}, "status": {"conditions": [condition]}})
    }
}

// === impl Cluster ===

impl Cluster {
    /// Writes what this node says of its network to its own Node, which was seen so, unless that says so already. Whether it was written.
    /// Writes once; whether to try again is the caller's choice.
    ///
    /// # Errors
    /// [`ApiError`]. With code 404, 409 or 422 there is another Node of that name by now, or none, and nothing was written: look at
    /// [`Nodes::own`](crate::Nodes::own) again.
    pub async fn write_own_network(&self, seen: &Node, network: &OwnNetwork) -> Result<bool, ApiError> {
        if network.is_in(seen) {
            return Ok(false);
        }
        let asked = RequestedObject { verb: "patch", group: "", resource: "nodes/status", of: self.node().into() };
        let change = Patch::Strategic(network.patch(seen, &format!("{:.0}", Timestamp::now())));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(PATH).patch_subresource("status", self.node(), &params, &change).map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            request
        });
        self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await.map(|IgnoredAny| true)
    }

    /// Tells something about this node's Node, each time. `reason` is one word in camel case.
    ///
    /// # Errors
    /// [`ApiError`]; nothing depends on an event, so a caller logs it and goes on.
    pub async fn tell_of_own_node(&self, seen: &Node, kind: EventKind, reason: &str, message: &str) -> Result<(), ApiError> {
        let regarding = About { api_version: "v1", kind: "Node", namespace: "", name: &seen.name, uid: &seen.uid };
        let event = Event { controller: AGENT_CONTROLLER, instance: self.node(), action: "Connect", kind, reason, message, regarding };
        let asked =
            RequestedObject { verb: "create", group: "events.k8s.io", resource: "events", of: format!("about Node {}", seen.name).into() };
        self.inner.caller.ask::<IgnoredAny>(&asked, event.request(&event.new_name()), ANSWER).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use between::Mode;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn network(unavailable: Option<(&str, &str)>) -> OwnNetwork {
        let unavailable = unavailable.map(|(reason, message)| Unavailable { reason: reason.to_owned(), message: message.to_owned() });
        OwnNetwork { announced: Some(Announced { mode: Mode::Vxlan, keys: Vec::new(), rotation: 0, moved: 0 }), unavailable }
    }

    /// A Node that says what was written.
    fn saying(network: &OwnNetwork) -> Node {
        let (reason, message) = network.why();
        Node {
            uid: "u".to_owned(),
            announced: network.announced.clone().map(Ok),
            network_unavailable: Some(network.unavailable.is_some()),
            network_why: Some(ConditionDigest::of(reason, message)),
            ..Node::default()
        }
    }

    #[test]
    fn the_time_of_transition_is_that_of_the_status() {
        let (up, down) = (network(None), network(Some(("NoPodCidr", "wait"))));
        let moved = |seen: &Node, network: &OwnNetwork| {
            let patch = network.patch(seen, NOW);
            assert_eq!(patch["status"]["conditions"][0]["lastHeartbeatTime"], NOW);
            patch["status"]["conditions"][0].get("lastTransitionTime").is_some()
        };
        assert!(moved(&Node::default(), &up) && moved(&Node::default(), &down), "there was none");
        assert!(moved(&saying(&up), &down) && moved(&saying(&down), &up));
        assert!(!moved(&saying(&up), &up));
        assert!(!moved(&saying(&down), &network(Some(("NoEndpoint", "wait")))), "another reason is no other status");
    }

    #[test]
    fn a_patch_has_nothing_but_the_condition_and_the_annotation() {
        let node = Node { uid: "u".to_owned(), ..Node::default() };
        let condition = json!({
            "type": "NetworkUnavailable", "status": "True", "reason": "NoPodCidr", "message": "wait",
            "lastHeartbeatTime": NOW, "lastTransitionTime": NOW,
        });
        let written = json!({
            "metadata": {"uid": "u", "annotations": {"netloom.io/between": "{\"mode\":\"vxlan\"}"}}, "status": {"conditions": [condition]},
        });
        assert_eq!(network(Some(("NoPodCidr", "wait"))).patch(&node, NOW), written);
        let silent = OwnNetwork { announced: None, unavailable: None }.patch(&node, NOW);
        assert_eq!(silent["metadata"]["annotations"], json!({"netloom.io/between": null}));
    }

    #[test]
    fn what_is_said_already_is_known() {
        let long = "ü".repeat(2000);
        for network in [network(None), network(Some(("NoPodCidr", &long))), OwnNetwork { announced: None, unavailable: None }] {
            let node = saying(&network);
            assert!(network.is_in(&node));
            let others = [
                Node { network_unavailable: None, ..node.clone() },
                Node { network_unavailable: Some(network.unavailable.is_none()), ..node.clone() },
                Node { network_why: Some(ConditionDigest::of("R", "M")), ..node.clone() },
                Node { announced: Some(Ok(Announced { mode: Mode::Direct, keys: Vec::new(), rotation: 0, moved: 0 })), ..node.clone() },
                Node { announced: Some(Announced::read("")), ..node.clone() },
            ];
            assert!(others.iter().all(|other| !network.is_in(other)));
        }
    }
}
