//! Whose a port is, as its tags say it.
//!
//! ```text
//!   netloom:cluster=prod   netloom:uid=UID   netloom:pod=UID   netloom:element=1   netloom:trunk=ID or netloom:parent=ID, if it is nested
//!                                                             netloom:existing=1  of a port that a definition names by its ID
//! ```
//!
//! Neutron's tags have at most 255 characters (60 before 2023) and no comma; a list of ports can be asked for by them, all at once. A Neutron that
//! takes no tags with a new port gets the same words as the port's description, and the tags afterwards: no crash in between leaves a port that
//! nobody finds.

use std::collections::BTreeSet;
use std::fmt;

use openstack::resource::Port;

const CLUSTER: &str = "netloom:cluster=";
const UID: &str = "netloom:uid=";
const POD: &str = "netloom:pod=";
/// Of a port that waits for a pod.
const POOL: &str = "netloom:pool=ready";
/// Of a port that waits for a pod: a digest of the subnets that it was made for. Neutron adds those of the network that give each port an address.
const SUBNETS: &str = "netloom:subnets=";
const ELEMENT: &str = "netloom:element=";
/// In place of the element's of a port that existed before: it is given back, and never deleted.
const EXISTING: &str = "netloom:existing=";
/// Of a subport: the trunk that it is on, or is to be on.
const TRUNK: &str = "netloom:trunk=";
/// Of a port whose addresses a node's port has as address pairs, or is to have: that port.
const PARENT: &str = "netloom:parent=";

/// The name of a cluster among all that use one OpenStack: 1 to 40 letters, digits, `-`, `.` and `_`, as a label's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterName(String);

/// It is not a name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid cluster name: use 1 to 40 letters, digits, '-', '.' and '_', the first and the last one a letter or a digit")]
pub struct ClusterNameError(String);

/// A cluster: another one may have the same name by mistake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster {
    /// Its name.
    pub name: ClusterName,
    /// The UID of its namespace `kube-system`, which is there as long as the cluster is.
    pub uid: String,
}

/// Whose a port is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The pod's UID.
    pub pod: String,
    /// Which of the pod's elements: 0 is its default network, then its selections in their order.
    pub element: usize,
}

/// What carries a nested port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// The trunk of the node's port, by its ID: the port is a subport of it.
    Trunk(String),
    /// The node's port, by its ID: the port's addresses are address pairs of it.
    Port(String),
}

// === impl Carrier ===

impl Carrier {
    /// What carries a port, or is to carry it, by its tags; none where it is bound to a host.
    #[must_use]
    pub fn of(port: &Port) -> Option<Self> {
        let words = words(port);
        let parent = || value(&words, PARENT).map(|id| Carrier::Port(id.to_owned()));
        value(&words, TRUNK).map(|id| Carrier::Trunk(id.to_owned())).or_else(parent)
    }

    /// The tag that says it.
    #[must_use]
    pub fn tag(&self) -> String {
        match self {
            Carrier::Trunk(id) => format!("{TRUNK}{id}"),
            Carrier::Port(id) => format!("{PARENT}{id}"),
        }
    }
}

/// Whether a port works, as far as Neutron says it. A port whose addresses another port has is plugged nowhere, and never becomes ACTIVE.
#[must_use]
pub fn counts_as_active(port: &Port) -> bool {
    port.is_active() || matches!(Carrier::of(port), Some(Carrier::Port(_)))
}

// === impl ClusterName ===

impl ClusterName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`ClusterNameError`].
    pub fn parse(name: &str) -> Result<Self, ClusterNameError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let has_ends = !name.starts_with(['-', '.', '_']) && !name.ends_with(['-', '.', '_']);
        match (1..=40).contains(&name.len()) && has_ends && name.bytes().all(good) {
            true => Ok(ClusterName(name.to_owned())),
            false => Err(ClusterNameError(name.chars().take(80).collect())),
        }
    }

    /// The tag of all ports of the cluster.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("{CLUSTER}{self}")
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Cluster ===

impl Cluster {
    /// Whether a port has this cluster's name, and is not this cluster's: nothing is done to it.
    #[must_use]
    pub fn is_anothers(&self, port: &Port) -> bool {
        let words = words(port);
        value(&words, CLUSTER) == Some(self.name.0.as_str()) && value(&words, UID) != Some(self.uid.as_str())
    }
}

/// Of ready ports: whose they are, a KuryrPort says.
impl Cluster {
    /// The tags of a port that no pod has yet, and the digest of the subnets that it is made for; an empty one is none.
    pub(crate) fn pool_tags(&self, subnets: &str) -> Vec<String> {
        let mut tags = vec![self.name.tag(), format!("{UID}{}", self.uid), POOL.to_owned()];
        tags.extend((!subnets.is_empty()).then(|| format!("{SUBNETS}{subnets}")));
        tags
    }

    /// The tags of a ready port with addresses in these subnets.
    #[must_use]
    pub fn ready_tags(&self, subnets: &BTreeSet<String>) -> Vec<String> {
        self.pool_tags(&digest(subnets))
    }

    /// Whether a port is of this cluster, and was made for whichever pod comes.
    #[must_use]
    pub fn is_pooled(&self, port: &Port) -> bool {
        let words = words(port);
        let is_of = value(&words, CLUSTER) == Some(self.name.0.as_str()) && value(&words, UID) == Some(self.uid.as_str());
        is_of && words.contains(&POOL)
    }
}

// === impl Owner ===

impl Owner {
    /// The tags of its port.
    #[must_use]
    pub fn tags(&self, cluster: &Cluster) -> Vec<String> {
        vec![cluster.name.tag(), format!("{UID}{}", cluster.uid), format!("{POD}{}", self.pod), format!("{ELEMENT}{}", self.element)]
    }

    /// The tags of a port that existed before, beside its own.
    #[must_use]
    pub(crate) fn tags_of_existing(&self, cluster: &Cluster) -> Vec<String> {
        vec![cluster.name.tag(), format!("{UID}{}", cluster.uid), format!("{POD}{}", self.pod), format!("{EXISTING}{}", self.element)]
    }

    /// The same as the description of a port that has no tags yet.
    #[must_use]
    pub fn description(&self, cluster: &Cluster) -> String {
        self.tags(cluster).join(" ")
    }

    /// What a port's tags say, or its description as long as it has no tags; none where it is not a port of this cluster, or not one that was made
    /// for a pod.
    #[must_use]
    pub fn of(port: &Port, cluster: &Cluster) -> Option<Self> {
        let words = words(port);
        let is_of = value(&words, CLUSTER)? == cluster.name.0 && value(&words, UID)? == cluster.uid;
        Owner::read(&words).filter(|_| is_of)
    }

    /// The same of a port that has the cluster's name and no UID of any cluster: another cluster of this name may have made it.
    pub(crate) fn without_uid(port: &Port, cluster: &Cluster) -> Option<Self> {
        let words = words(port);
        let has_uid = words.iter().any(|word| word.starts_with(UID));
        Owner::read(&words).filter(|_| !has_uid && value(&words, CLUSTER) == Some(cluster.name.0.as_str()))
    }

    fn read(words: &[&str]) -> Option<Self> {
        let element = value(words, ELEMENT).or_else(|| value(words, EXISTING))?;
        Some(Owner { pod: value(words, POD)?.to_owned(), element: element.parse().ok()? })
    }
}

/// Whether a pod's port was there before, and stays when the pod is gone.
#[must_use]
pub fn is_existing(port: &Port) -> bool {
    port.tags.iter().any(|tag| tag.starts_with(EXISTING))
}

/// The tags of a port that are none of a cluster's.
#[must_use]
pub fn own_tags(port: &Port) -> Vec<String> {
    const OURS: [&str; 4] = [CLUSTER, UID, POD, EXISTING];
    port.tags.iter().filter(|tag| !OURS.iter().any(|prefix| tag.starts_with(prefix))).cloned().collect()
}

/// Whether a cluster has the port, this one or another one.
pub(crate) fn is_tagged(port: &Port) -> bool {
    port.tags.iter().any(|tag| tag.starts_with(CLUSTER))
}

/// The digest of the subnets that a ready port was made for; empty where it does not say them.
pub(crate) fn subnets_of(port: &Port) -> &str {
    value(&words(port), SUBNETS).unwrap_or_default()
}

/// A digest of subnets' IDs, the same in every release (FNV-1a).
pub(crate) fn digest(subnets: &BTreeSet<String>) -> String {
    let bytes = subnets.iter().flat_map(|id| id.bytes().chain([0]));
    let digest = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{digest:016x}")
}

/// What says whose a port is.
fn words(port: &Port) -> Vec<&str> {
    let tags: Vec<&str> = port.tags.iter().map(String::as_str).collect();
    if tags.iter().any(|tag| tag.starts_with(CLUSTER)) { tags } else { port.description.split(' ').collect() }
}

fn value<'a>(words: &[&'a str], prefix: &str) -> Option<&'a str> {
    let mut values = words.iter().filter_map(|word| word.strip_prefix(prefix));
    // Two of them say nothing.
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_whose_a_port_is() {
        let named = |name: &str, uid: &str| Cluster { name: ClusterName::parse(name).unwrap(), uid: uid.to_owned() };
        let (cluster, owner) = (named("prod-1", "c0"), Owner { pod: "6f0c".to_owned(), element: 2 });
        let port =
            |tags: &[String], description: &str| Port { tags: tags.to_vec(), description: description.to_owned(), ..Port::default() };
        let mut tags = owner.tags(&cluster);
        assert_eq!(tags, ["netloom:cluster=prod-1", "netloom:uid=c0", "netloom:pod=6f0c", "netloom:element=2"]);
        tags.push("somebody's".to_owned());
        assert_eq!(Owner::of(&port(&tags, ""), &cluster), Some(owner.clone()));
        assert_eq!(Owner::of(&port(&["somebody's".to_owned()], &owner.description(&cluster)), &cluster), Some(owner.clone()));
        assert_eq!(Owner::of(&port(&tags, ""), &named("prod", "c0")), None);
        // Another cluster of the same name, and one whose ports have no UID.
        let other = named("prod-1", "c1");
        assert_eq!((Owner::of(&port(&tags, ""), &other), other.is_anothers(&port(&tags, ""))), (None, true));
        assert!(!cluster.is_anothers(&port(&tags, "")) && !named("prod", "c1").is_anothers(&port(&tags, "")));
        tags.remove(1);
        assert_eq!((Owner::of(&port(&tags, ""), &cluster), cluster.is_anothers(&port(&tags, ""))), (None, true));
        let mut tags = owner.tags(&cluster);
        tags.push("netloom:pod=other".to_owned());
        assert_eq!(Owner::of(&port(&tags, &owner.description(&cluster)), &cluster), None);
        assert_eq!(Owner::of(&port(&["netloom:cluster=prod-1".to_owned()], ""), &cluster), None);
    }

    #[test]
    fn tags_of_a_port_that_existed_before_say_so_and_leave_its_own() {
        let cluster = Cluster { name: ClusterName::parse("prod-1").unwrap(), uid: "c0".to_owned() };
        let owner = Owner { pod: "6f0c".to_owned(), element: 2 };
        let tags = ["somebody's".to_owned()].into_iter().chain(owner.tags_of_existing(&cluster)).collect();
        let port = Port { tags, ..Port::default() };
        assert_eq!(
            (Owner::of(&port, &cluster), is_existing(&port), own_tags(&port)),
            (Some(owner.clone()), true, vec!["somebody's".to_owned()])
        );
        assert!(!is_existing(&Port { tags: owner.tags(&cluster), ..Port::default() }));
    }

    #[test]
    fn a_cluster_has_a_name_that_a_tag_can_have() {
        for name in ["", "a,b", "a b", "-a", "a.", &"x".repeat(41)] {
            assert!(ClusterName::parse(name).is_err(), "{name}");
        }
    }
}
