//! Whose a port is, as its tags say it.
//!
//! ```text
//!   netloom:cluster=prod   netloom:pod=UID   netloom:element=1
//! ```
//!
//! Neutron's tags have at most 255 characters (60 before 2023) and no comma; a list of ports can be asked for by them, all at once.

use std::fmt;

const CLUSTER: &str = "netloom:cluster=";
const POD: &str = "netloom:pod=";
const ELEMENT: &str = "netloom:element=";

/// The name of a cluster among all that use one OpenStack: 1 to 40 letters, digits, `-`, `.` and `_`, as a label's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterName(String);

/// It is not a name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid cluster name: use 1 to 40 letters, digits, '-', '.' and '_', the first and the last one a letter or a digit")]
pub struct ClusterNameError(String);

/// Whose a port is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The pod's UID.
    pub pod: String,
    /// Which of the pod's elements: 0 is its default network, then its selections in their order.
    pub element: usize,
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

// === impl Owner ===

impl Owner {
    /// The tags of its port.
    #[must_use]
    pub fn tags(&self, cluster: &ClusterName) -> Vec<String> {
        vec![cluster.tag(), format!("{POD}{}", self.pod), format!("{ELEMENT}{}", self.element)]
    }

    /// What a port's tags say; none where it is not a port of this cluster, or not one that was made for a pod.
    #[must_use]
    pub fn of(tags: &[String], cluster: &ClusterName) -> Option<Self> {
        let value = |prefix: &str| {
            let mut values = tags.iter().filter_map(|tag| tag.strip_prefix(prefix));
            // Two of them say nothing.
            values.next().filter(|_| values.next().is_none())
        };
        (value(CLUSTER)? == cluster.0).then_some(())?;
        let (pod, element) = (value(POD)?.to_owned(), value(ELEMENT)?.parse().ok()?);
        Some(Owner { pod, element })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_whose_a_port_is() {
        let cluster = ClusterName::parse("prod-1").unwrap();
        let owner = Owner { pod: "6f0c".to_owned(), element: 2 };
        let mut tags = owner.tags(&cluster);
        assert_eq!(tags, ["netloom:cluster=prod-1", "netloom:pod=6f0c", "netloom:element=2"]);
        tags.push("somebody's".to_owned());
        assert_eq!(Owner::of(&tags, &cluster), Some(owner));
        assert_eq!(Owner::of(&tags, &ClusterName::parse("prod").unwrap()), None);
        tags.push("netloom:pod=other".to_owned());
        assert_eq!(Owner::of(&tags, &cluster), None);
        assert_eq!(Owner::of(&["netloom:cluster=prod-1".to_owned()], &cluster), None);
    }

    #[test]
    fn a_cluster_has_a_name_that_a_tag_can_have() {
        for name in ["", "a,b", "a b", "-a", "a.", &"x".repeat(41)] {
            assert!(ClusterName::parse(name).is_err(), "{name}");
        }
    }
}
