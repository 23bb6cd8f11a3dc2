//! The Nodes of the cluster, followed: what of them decides how packets get from one node's pods to those of another.
//!
//! ```text
//!   list, page by page; watch --> SeenNode: a few fields, the rest is skipped --> Node --> Nodes::all, own, changed
//! ```
//!
//! Each kubelet writes its Node at least every five minutes, because of what happens on it far more often, and a Node has some 10 KB. With
//! 5,000 nodes every agent reads 17 of them a second that differ in nothing but the time of a heartbeat: of these nobody is told.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use between::NodeSeen;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::addresses::Addresses;
use crate::cache::Listed;
use crate::watch::{Following, Watched};
use crate::{Announced, AnnouncedError, Cluster};

/// How many ranges and how many addresses of a Node are kept. The API server admits one range of each family.
const MOST: usize = 64;

/// How much of a text that cannot be read is kept, in characters. An IPv6 range has 43 at the most.
const MOST_TEXT: usize = 64;

/// A Node, less what has nothing to do with the cluster's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`: a Node that was deleted and created again under the same name has another one.
    pub uid: String,
    /// `metadata.creationTimestamp`, in UTC as the API server writes it: `2026-01-01T00:00:00Z`.
    pub created: String,
    /// `spec.podCIDRs`, in its order; where that is empty, `spec.podCIDR`. Empty until the node is given some.
    pub pod_cidrs: Vec<IpNet>,
    /// `status.addresses` of type `InternalIP`, in their order.
    pub internal_ips: Vec<IpAddr>,
    /// What of these two cannot be read, a sentence each. The rest of the Node counts.
    pub unreadable: Vec<String>,
    /// The annotation [`BETWEEN`](crate::BETWEEN); `None` if there is none.
    pub announced: Option<Result<Announced, AnnouncedError>>,
    /// The status of the condition `NetworkUnavailable`; `None` if there is no such condition, or its status is unknown.
    pub network_unavailable: Option<bool>,
    /// The reason and the message of that condition, which are only ever compared.
    pub network_why: Option<ConditionDigest>,
}

/// The digest of a condition's reason and message: of two that are equal, equal ones in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConditionDigest(u64);

/// All Nodes, followed until the last clone of this is dropped. Each clone waits for changes by itself.
#[derive(Clone)]
pub struct Nodes {
    own: Arc<str>,
    following: Following<Arc<Node>>,
    addresses: Arc<Addresses<Arc<Node>>>,
}

/// The kind, for a watch.
pub(crate) struct AllNodes;

/// What is read of a Node.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SeenNode {
    metadata: SeenMeta,
    #[serde(default)]
    spec: Option<SeenSpec>,
    #[serde(default)]
    status: Option<SeenStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    name: String,
    uid: String,
    resource_version: String,
    creation_timestamp: Option<String>,
    annotations: Option<SeenAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenAnnotations {
    #[serde(rename = "netloom.io/between")]
    between: Option<SeenAnnounced>,
}

/// An announcement, read where it stands: one that is too long is never copied.
#[derive(Debug, Clone)]
struct SeenAnnounced(Result<Announced, AnnouncedError>);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenStatus {
    addresses: Option<Vec<SeenAddress>>,
    conditions: Option<Vec<SeenCondition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenAddress {
    r#type: AddressType,
    address: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum AddressType {
    #[serde(rename = "InternalIP")]
    InternalIp,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenCondition {
    r#type: ConditionType,
    status: ConditionStatus,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum ConditionType {
    NetworkUnavailable,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum ConditionStatus {
    True,
    False,
    #[default]
    #[serde(other)]
    Unknown,
}

// === impl SeenAnnounced ===

impl<'de> Deserialize<'de> for SeenAnnounced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ReadAnnounced)
    }
}

/// Reads it.
struct ReadAnnounced;

impl Visitor<'_> for ReadAnnounced {
    type Value = SeenAnnounced;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an annotation")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SeenAnnounced, E> {
        Ok(SeenAnnounced(Announced::read(text)))
    }
}

// === impl ConditionDigest ===

impl ConditionDigest {
    /// The digest of a condition's reason and message.
    #[must_use]
    pub fn of(reason: &str, message: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (reason, message).hash(&mut hasher);
        ConditionDigest(hasher.finish())
    }
}

// === impl Node ===

impl From<SeenNode> for Node {
    fn from(seen: SeenNode) -> Node {
        let (meta, spec, status) = (seen.metadata, seen.spec.unwrap_or_default(), seen.status.unwrap_or_default());
        let mut unreadable = Vec::new();
        let cidrs = spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty()).unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
        // An empty text is how Go writes that there is none.
        let cidrs = cidrs.iter().map(String::as_str).filter(|cidr| !cidr.is_empty());
        let pod_cidrs = read("spec.podCIDRs", "range", cidrs, &mut unreadable);
        let internal = status.addresses.iter().flatten().filter(|address| address.r#type == AddressType::InternalIp);
        let internal = internal.map(|address| address.address.as_str());
        let internal_ips = read("status.addresses", "IP address", internal, &mut unreadable);
        // The API server does not refuse two of one type. The first one counts, as for Kubernetes' own controllers.
        let conditions = status.conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.r#type == ConditionType::NetworkUnavailable);
        let why =
            |c: &SeenCondition| ConditionDigest::of(c.reason.as_deref().unwrap_or_default(), c.message.as_deref().unwrap_or_default());
        Node {
            name: meta.name,
            uid: meta.uid,
            created: meta.creation_timestamp.unwrap_or_default(),
            pod_cidrs,
            internal_ips,
            unreadable,
            announced: meta.annotations.and_then(|annotations| annotations.between).map(|SeenAnnounced(announced)| announced),
            network_unavailable: condition.as_ref().and_then(|condition| match condition.status {
                ConditionStatus::True => Some(true),
                ConditionStatus::False => Some(false),
                ConditionStatus::Unknown => None,
            }),
            network_why: condition.as_ref().map(why),
        }
    }
}

impl From<&Node> for NodeSeen {
    /// The Node as the plan takes it. An announcement that cannot be read counts as none.
    fn from(node: &Node) -> NodeSeen {
        let announced = node.announced.as_ref().and_then(|announced| announced.as_ref().ok());
        NodeSeen {
            name: node.name.clone(),
            uid: node.uid.clone(),
            created: node.created.clone(),
            ranges: node.pod_cidrs.clone(),
            endpoints: node.internal_ips.clone(),
            keys: announced.map(|announced| announced.keys.clone()).unwrap_or_default(),
            rotation: announced.map_or(0, |announced| announced.rotation),
            moved: announced.map_or(0, |announced| announced.moved),
            mode: announced.map(|announced| announced.mode),
        }
    }
}

/// Reads texts, as many as are kept; what cannot be read is noted.
fn read<'a, T: std::str::FromStr>(place: &str, what: &str, texts: impl Iterator<Item = &'a str>, unreadable: &mut Vec<String>) -> Vec<T> {
    let (mut all, mut more) = (Vec::new(), 0_usize);
    let mut noted = 0;
    for text in texts {
        match text.parse() {
            Ok(one) if all.len() < MOST => all.push(one),
            Err(_) if noted < MOST => {
                noted += 1;
                let text: String = text.chars().take(MOST_TEXT).collect();
                unreadable.push(format!("{place} has {text:?}, which is not a valid {what}"));
            }
            Ok(_) | Err(_) => more += 1,
        }
    }
    if more > 0 {
        unreadable.push(format!("{place} has {more} more than the {MOST} that are read"));
    }
    all.shrink_to_fit();
    all
}

// === impl AllNodes ===

impl Watched for AllNodes {
    type PartialObject = SeenNode;
    type Stored = Arc<Node>;
    const RESOURCE: (&'static str, &'static str) = ("", "nodes");
    const PATH: &'static str = "/api/v1/nodes";
    const PAGE: u32 = 500;

    fn version(seen: &SeenNode) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: SeenNode) -> (Box<str>, Arc<Node>) {
        let node = Node::from(seen);
        (format!("/{}", node.name).into(), Arc::new(node))
    }
}

// === impl Nodes ===

impl Nodes {
    /// Every Node as it was seen last, in no order.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.following.cache.all()
    }

    /// A Node as it was seen last. `None`: there is none of that name, or it was never seen.
    pub fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.following.cache.get("", name)
    }

    /// An address of a Node from `first` to `last`, both of one family, with the Node.
    pub fn address_in(&self, first: IpAddr, last: IpAddr) -> Option<(IpAddr, Arc<Node>)> {
        let of = |node: &Arc<Node>| {
            let own: Vec<_> = node.internal_ips.iter().map(|address| (address.to_canonical(), Arc::clone(node))).collect();
            own
        };
        self.addresses.first_in(&self.following.cache, of, first, last)
    }

    /// The Node of this node.
    pub fn own(&self) -> Option<Arc<Node>> {
        self.get(&self.own)
    }

    /// Whether they can be trusted. Until the list is complete, a Node that is not there may only not have come yet.
    pub fn listed(&self) -> Listed {
        self.following.cache.listed()
    }

    /// Waits until a Node is otherwise than when this was asked last, is new or is gone, or the first list is complete. Many changes at
    /// once are one. May be dropped while it waits.
    pub async fn changed(&mut self) {
        self.following.changed().await;
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows all Nodes from now on. Must be called within a tokio runtime.
    pub fn follow_nodes(&self) -> Nodes {
        Nodes { own: self.node().into(), following: Following::all::<AllNodes>(self.inner.caller.clone()), addresses: Arc::default() }
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<SeenNode>(bytes) else { return };
    let node = Node::from(seen);
    assert!(node.pod_cidrs.len() <= MOST && node.internal_ips.len() <= MOST && node.unreadable.len() <= 2 * (MOST + 1), "{node:?}");
    match &node.announced {
        Some(Ok(announced)) => assert_eq!(Announced::read(&announced.text()).as_ref(), Ok(announced)),
        Some(Err(e)) => assert!(e.to_string().contains(crate::BETWEEN)),
        None => {}
    }
    assert_eq!(NodeSeen::from(&node).ranges, node.pod_cidrs);
}

#[cfg(test)]
mod tests {
    use between::Mode;
    use serde_json::{Value, json};

    use super::*;

    fn node(object: &Value) -> Node {
        serde_json::from_value::<SeenNode>(object.clone()).unwrap().into()
    }

    /// A Node as a kubelet and a cloud's controller have written it, shortened.
    fn whole() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "node-a", "uid": "0e3a4a0e-7b7e-4d3c-a54c-0f0c4a5f1b11", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kubernetes.io/os": "linux"},
                "annotations": {"node.alpha.kubernetes.io/ttl": "0", "netloom.io/between": "{\"mode\":\"vxlan\"}", "other": "x"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:conditions": {}}}}],
            },
            "spec": {"podCIDR": "fd00:1::/64", "podCIDRs": ["fd00:1::/64", "10.1.0.0/24"], "providerID": "x://1", "taints": [{"key": "k"}]},
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "node-a"}, {"type": "InternalIP", "address": "192.0.2.11"},
                    {"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "InternalIP", "address": "2001:db8::11"},
                    {"type": "InternalIP", "address": "192.0.2.11"},
                ],
                "conditions": [
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z", "reason": "KubeletReady", "message": "m"},
                    {"type": "NetworkUnavailable", "status": "False", "reason": "R", "message": "M", "lastHeartbeatTime": "2026-01-01T00:05:00Z"},
                ],
                "images": [{"names": ["a", "b"], "sizeBytes": 7}], "nodeInfo": {"bootID": "b"},
            },
        })
    }

    #[test]
    fn what_decides_is_read_in_its_order() {
        let node = node(&whole());
        assert_eq!((node.name.as_str(), node.created.as_str(), &node.uid[..8]), ("node-a", "2026-01-01T00:00:00Z", "0e3a4a0e"));
        assert_eq!(node.pod_cidrs, ["fd00:1::/64".parse::<IpNet>().unwrap(), "10.1.0.0/24".parse().unwrap()]);
        let addresses: Vec<String> = node.internal_ips.iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["192.0.2.11", "2001:db8::11", "192.0.2.11"]);
        assert_eq!(node.announced, Some(Ok(Announced { mode: Mode::Vxlan, keys: Vec::new(), rotation: 0, moved: 0 })));
        assert_eq!((node.network_unavailable, node.network_why), (Some(false), Some(ConditionDigest::of("R", "M"))));
        assert_eq!(node.unreadable, [""; 0]);
        let seen = NodeSeen::from(&node);
        assert_eq!((seen.mode, &seen.ranges, &seen.endpoints), (Some(Mode::Vxlan), &node.pod_cidrs, &node.internal_ips));
        assert_eq!((seen.name, seen.uid, seen.created), (node.name, node.uid, node.created));
    }

    #[test]
    fn a_heartbeat_changes_nothing_and_what_decides_does() {
        let before = node(&whole());
        let mut heartbeat = whole();
        heartbeat["metadata"]["resourceVersion"] = json!("8");
        heartbeat["metadata"]["labels"]["x"] = json!("y");
        heartbeat["metadata"]["annotations"]["other"] = json!("z");
        heartbeat["status"]["images"] = json!(null);
        for condition in [0, 1] {
            heartbeat["status"]["conditions"][condition]["lastHeartbeatTime"] = json!("2026-01-01T00:10:00Z");
        }
        heartbeat["status"]["conditions"][0]["status"] = json!("Unknown");
        assert_eq!(node(&heartbeat), before);
        for (path, value) in [
            ("/metadata/uid", json!("other")),
            ("/metadata/annotations/netloom.io~1between", json!("{\"mode\":\"direct\"}")),
            ("/metadata/annotations/netloom.io~1between", json!(null)),
            ("/spec/podCIDRs/1", json!("10.2.0.0/24")),
            ("/status/addresses/1/address", json!("192.0.2.12")),
            ("/status/addresses/1/type", json!("ExternalIP")),
            ("/status/conditions/1/status", json!("True")),
            ("/status/conditions/1/status", json!("Unknown")),
            ("/status/conditions/1/message", json!("N")),
        ] {
            let mut changed = whole();
            *changed.pointer_mut(path).unwrap() = value;
            assert_ne!(node(&changed), before, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_noted_and_the_rest_counts() {
        let mut object = whole();
        object["spec"]["podCIDRs"] = json!(["10.1.0.0/33", "10.2.0.7/24", "\u{7}\n"]);
        object["status"]["addresses"] =
            json!([{"type": "InternalIP", "address": "node-a.example"}, {"type": "InternalIP", "address": "192.0.2.1"}]);
        object["metadata"]["annotations"]["netloom.io/between"] = json!("vxlan");
        let node = node(&object);
        assert_eq!(node.pod_cidrs, ["10.2.0.7/24".parse::<IpNet>().unwrap()]);
        assert_eq!(node.internal_ips, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(
            node.unreadable,
            [
                r#"spec.podCIDRs has "10.1.0.0/33", which is not a valid range"#,
                r#"spec.podCIDRs has "\u{7}\n", which is not a valid range"#,
                r#"status.addresses has "node-a.example", which is not a valid IP address"#,
            ]
        );
        assert!(matches!(node.announced, Some(Err(AnnouncedError::Unreadable { .. }))), "{:?}", node.announced);
        assert_eq!((NodeSeen::from(&node).mode, NodeSeen::from(&node).keys), (None, Vec::new()));
    }

    #[test]
    fn one_node_cannot_take_much_memory() {
        let mut object = whole();
        let address = |n: usize| json!({"type": "InternalIP", "address": format!("192.0.{}.{}", n / 256, n % 256)});
        object["status"]["addresses"] = (0..1000).map(address).collect();
        object["spec"]["podCIDRs"] = (0..1000).map(|n| json!(format!("{n}{}", "x".repeat(1000)))).collect();
        object["metadata"]["annotations"]["netloom.io/between"] = json!("x".repeat(200_000));
        let node = node(&object);
        assert_eq!((node.internal_ips.len(), node.pod_cidrs.len(), node.unreadable.len()), (MOST, 0, MOST + 2));
        assert_eq!(node.unreadable[MOST + 1], "status.addresses has 936 more than the 64 that are read");
        assert!(node.unreadable.iter().all(|text| text.len() < 150));
        assert_eq!(node.announced, Some(Err(AnnouncedError::TooLong { length: 200_000 })));
    }

    #[test]
    fn a_node_that_nobody_has_completed_is_read() {
        for object in [
            json!({"metadata": {"name": "n"}}),
            json!({"metadata": {"name": "n", "annotations": null, "creationTimestamp": null}, "spec": {}, "status": {}}),
            json!({"metadata": {"name": "n", "annotations": {"a": "b"}}, "spec": null, "status": null}),
            json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "", "podCIDRs": [""]}, "status": {"addresses": null, "conditions": null}}),
            json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": []}, "status": {"addresses": [], "conditions": [{"type": "Ready", "status": "True"}]}}),
        ] {
            assert_eq!(node(&object), Node { name: "n".to_owned(), ..Node::default() }, "{object}");
        }
        let single = node(&json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.0.0/24"}}));
        assert_eq!(single.pod_cidrs, ["10.1.0.0/24".parse::<IpNet>().unwrap()]);
    }
}
