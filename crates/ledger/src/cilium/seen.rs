//! What was read of CiliumNodes, their keys as addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{CiliumIpamSpec, CiliumIpamStatus, Release};
use pool::{Family, Run, Scaling};

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cilium {
    /// The IPPool that fills them; empty: nothing does, and nothing of this is looked at.
    pub pool: String,
    /// Whether they were listed. Until then nothing is decided about any.
    pub complete: bool,
    /// Whether the cluster does not have the kind: then nobody has such an object.
    pub unserved: bool,
    /// Each of them, by name, which is the node's.
    pub nodes: BTreeMap<String, CiliumNodeSeen>,
    /// Those that have had too many addresses of a family for so long that some are taken back.
    pub settled: BTreeSet<(String, Family)>,
}

/// A CiliumNode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CiliumNodeSeen {
    /// `metadata.resourceVersion`
    pub version: String,
    /// `metadata.uid`
    pub uid: String,
    /// The UID of the Node that owns it; empty: it says none.
    pub node_uid: String,
    /// It says what nobody here understands: it is left as it is, and so is what it may have.
    pub unreadable: bool,
    /// How many addresses it should have: `spec.ipam` without its pool.
    pub wants: Scaling,
    /// The addresses in its pool that stand there by themselves.
    pub pool: BTreeMap<IpAddr, Pooled>,
    /// The networks and ranges in its pool, which somebody else wrote there.
    pub wide: Vec<Run>,
    /// Its node's agent has said what it uses, nothing perhaps.
    pub told: bool,
    /// What its node uses.
    pub used: BTreeSet<IpAddr>,
    /// How many pods wait there for an address.
    pub waiting: u64,
    /// How far each address is that is taken back, with its key.
    pub release: BTreeMap<IpAddr, (String, Release)>,
}

/// An address of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pooled {
    /// Its key, as it is written.
    pub key: String,
    /// Whether only its owner gets it.
    pub pinned: bool,
}

// === impl CiliumNodeSeen ===

impl CiliumNodeSeen {
    /// What its two parts say; whose it is, and which version, is the caller's to add.
    #[must_use]
    pub fn read(spec: CiliumIpamSpec, status: CiliumIpamStatus) -> Self {
        let (mut pool, mut wide) = (BTreeMap::new(), Vec::new());
        for (key, address) in spec.pool.into_iter().flatten() {
            match key.parse::<Run>() {
                Ok(run) if run.count() == 1 => drop(pool.insert(run.first(), Pooled { key, pinned: !address.owner.is_empty() })),
                Ok(run) => wide.push(run),
                // Nobody hands it out.
                Err(_) => {}
            }
        }
        let wants = Scaling {
            min_allocate: spec.min_allocate,
            pre_allocate: spec.pre_allocate,
            max_allocate: spec.max_allocate,
            max_above_watermark: spec.max_above_watermark,
        };
        let told = status.used.is_some();
        let used = status.used.iter().flatten().filter_map(|(key, _)| address_of(key)).collect();
        let release = status.release_ips.into_iter().filter_map(|(key, said)| Some((address_of(&key)?, (key, said)))).collect();
        CiliumNodeSeen { wants, pool, wide, told, used, waiting: status.waiting, release, ..CiliumNodeSeen::default() }
    }

    /// Whether it has anything to do with an address.
    pub(super) fn mentions(&self, address: IpAddr) -> bool {
        let by_itself = self.pool.contains_key(&address) || self.used.contains(&address) || self.release.contains_key(&address);
        by_itself || self.wide.iter().any(|run| run.contains(address))
    }
}

/// A key that is one address.
fn address_of(key: &str) -> Option<IpAddr> {
    key.parse::<Run>().ok().filter(|run| run.count() == 1).map(|run| run.first())
}
