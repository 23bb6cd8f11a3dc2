//! IPPools that nobody writes: those of ranges in NetworkAttachmentDefinitions that were made for whereabouts.
//!
//! ```text
//!   definitions --range_pools--> pools that are meant --+
//!                              IPPools that there are --+--due--> made, told of their definitions, deleted
//! ```
//!
//! Which are ours a label says. What somebody has changed in the spec of one stays so. Of one that no definition means any more
//! nodes keep nothing in store from then on, and it is deleted when none has anything of it.

use std::collections::{BTreeMap, BTreeSet};

use api::{CellState, IpPoolSpec, Scaling};
use ipam::RangePools;
use kube::core::DynamicObject;
use ledger::Snapshot;

/// The label of such a pool, with the value [`WHEREABOUTS`], and the annotation with the definitions that mean it.
pub(crate) const DEFINITIONS: &str = "netloom.io/definitions";
pub(crate) const WHEREABOUTS: &str = "whereabouts";
/// More definitions are not listed one by one.
const LISTED: usize = 32;

/// What has to be known of an IPPool that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct There {
    /// Whether it has our label.
    ours: bool,
    definitions: Option<String>,
    uid: String,
    version: String,
    deleting: bool,
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Due {
    /// There is to be such a pool.
    Make { name: String, spec: Box<IpPoolSpec>, definitions: String },
    /// Other definitions mean it than it says. Where none did, nodes may have of it in store again.
    Tell { name: String, version: String, definitions: String, scaling: Option<Scaling> },
    /// Nobody means it any more.
    Drain { name: String, version: String },
    /// Nobody means it, and nobody has anything of it.
    Delete { name: String, uid: String, version: String },
}

// === impl There ===

impl There {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        There {
            ours: meta.labels.iter().flatten().any(|(key, value)| key == DEFINITIONS && value == WHEREABOUTS),
            definitions: meta.annotations.as_ref().and_then(|all| all.get(DEFINITIONS).cloned()),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// How much nodes keep of a pool that nobody means: nothing.
pub(crate) fn drained() -> Scaling {
    Scaling { pre_allocate: 0, release_delay_seconds: 0, ..Scaling::default() }
}

/// What is to be changed. Pools of such a name that somebody else has made are left alone.
pub(crate) fn due(meant: &RangePools, there: &BTreeMap<String, There>, used: &BTreeSet<String>) -> Vec<Due> {
    let mut all = Vec::new();
    for (name, defined) in &meant.pools {
        let definitions = listed(&defined.definitions);
        match there.get(name) {
            None => all.push(Due::Make { name: name.clone(), spec: Box::new(defined.spec.clone()), definitions }),
            Some(pool) if pool.ours && !pool.deleting && pool.definitions.as_deref() != Some(&definitions) => {
                let scaling = (pool.definitions.as_deref() == Some("")).then_some(defined.spec.scaling);
                all.push(Due::Tell { name: name.clone(), version: pool.version.clone(), definitions, scaling });
            }
            Some(_) => {}
        }
    }
    for (name, pool) in there.iter().filter(|(name, pool)| pool.ours && !pool.deleting && !meant.pools.contains_key(*name)) {
        let (name, version) = (name.clone(), pool.version.clone());
        if pool.definitions.as_deref() != Some("") {
            all.push(Due::Drain { name, version });
        } else if !used.contains(&name) {
            all.push(Due::Delete { name, uid: pool.uid.clone(), version });
        }
    }
    all
}

fn listed(definitions: &BTreeSet<String>) -> String {
    let names: Vec<&str> = definitions.iter().take(LISTED).map(String::as_str).collect();
    match definitions.len().saturating_sub(LISTED) {
        0 => names.join(","),
        more => format!("{}, and {more} more", names.join(",")),
    }
}

/// The pools of which somebody has something: a node, or an owner.
pub(crate) fn used(world: &Snapshot) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for cell in world.shards.values().flat_map(|shard| shard.spec.cells.values()) {
        if cell.state != CellState::Free {
            used.insert(cell.pool.clone());
        }
        used.extend(cell.ips.values().filter(|ip| ip.owner != api::Owner::default() || ip.is_held()).map(|ip| ip.pool.clone()));
    }
    for spec in world.node_pools.values().map(|seen| &seen.spec) {
        used.extend(spec.blocks.iter().map(|block| block.pool.clone()));
        used.extend(spec.ips.iter().map(|ip| ip.pool.clone()));
    }
    // Nodes that wait for the first address of it.
    for status in world.node_pools.values().map(|seen| &seen.status) {
        used.extend(status.demand.iter().filter(|demand| demand.v4 > 0 || demand.v6 > 0).map(|demand| demand.pool.clone()));
    }
    used
}

#[cfg(test)]
mod tests {
    use api::{Cell, IpLedgerShardSpec, Owner, SharedIp};
    use ledger::ShardSeen;

    use super::*;

    fn meant(names: &[&str]) -> RangePools {
        ipam::range_pools([
            ("d/a", r#"{"ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}"#),
            ("d/b", names.first().copied().unwrap_or("")),
        ])
    }

    fn ours(definitions: &str) -> There {
        let (uid, version) = ("u".to_owned(), "7".to_owned());
        There { ours: true, definitions: Some(definitions.to_owned()), uid, version, deleting: false }
    }

    #[test]
    fn made_told_and_deleted() {
        let name = "whereabouts-10.0.0.0-24".to_owned();
        let none = BTreeSet::new();
        let made = due(&meant(&[]), &BTreeMap::new(), &none);
        let [Due::Make { name: made, spec, definitions }] = made.as_slice() else { panic!("{made:?}") };
        assert_eq!((made, definitions.as_str(), spec.network.as_str()), (&name, "d/a", "whereabouts"));
        let there = |pool: There| BTreeMap::from([(name.clone(), pool)]);
        assert_eq!(due(&meant(&[]), &there(ours("d/a")), &none), []);
        let both = meant(&[r#"{"ipam": {"type": "whereabouts", "range": "10.0.0.7/24"}}"#]);
        let version = || "7".to_owned();
        let told = |scaling| Due::Tell { name: name.clone(), version: version(), definitions: "d/a,d/b".to_owned(), scaling };
        assert_eq!(due(&both, &there(ours("d/a")), &none), [told(None)]);
        let nothing = RangePools::default();
        assert_eq!(due(&nothing, &there(ours("d/a")), &none), [Due::Drain { name: name.clone(), version: version() }]);
        let deleted = Due::Delete { name: name.clone(), uid: "u".to_owned(), version: version() };
        assert_eq!(due(&nothing, &there(ours("")), &none), [deleted]);
        assert_eq!(due(&nothing, &there(ours("")), &BTreeSet::from([name.clone()])), [], "somebody has addresses of it");
        assert_eq!(due(&both, &there(ours("")), &none), [told(Some(spec.scaling))], "somebody means it again");
        assert_eq!(due(&nothing, &there(There { deleting: true, ..ours("d/a") }), &none), []);
        // One that a person has made is left alone.
        let theirs = There { ours: false, definitions: None, ..ours("") };
        assert_eq!((due(&nothing, &there(theirs.clone()), &none), due(&both, &there(theirs), &none)), (vec![], vec![]));
    }

    #[test]
    fn who_uses_a_pool() {
        let cell = |state, pool: &str, ips: &[(&str, &str, &str)]| {
            let ip = |(key, pool, owner): &(&str, &str, &str)| {
                let owner = Owner { pod: (*owner).to_owned(), ..Owner::default() };
                ((*key).to_owned(), SharedIp { pool: (*pool).to_owned(), owner, ..SharedIp::default() })
            };
            Cell { state, pool: pool.to_owned(), ips: ips.iter().map(ip).collect(), ..Cell::default() }
        };
        let cells = [
            cell(CellState::Free, "freed", &[]),
            cell(CellState::Granted, "granted", &[]),
            cell(CellState::Returning, "returning", &[]),
            cell(CellState::Shared, "", &[("0", "owned", "d/p"), ("1", "nobody", "")]),
        ];
        let cells = cells.into_iter().enumerate().map(|(n, cell)| (n.to_string(), cell)).collect();
        let spec = IpLedgerShardSpec { cells, ..IpLedgerShardSpec::default() };
        let world =
            Snapshot { shards: BTreeMap::from([("s".to_owned(), ShardSeen { spec, ..ShardSeen::default() })]), ..Snapshot::default() };
        let used = used(&world);
        assert!(["granted", "returning", "owned"].iter().all(|pool| used.contains(*pool)), "{used:?}");
        assert!(!used.contains("freed") && !used.contains("nobody"), "{used:?}");
    }
}
