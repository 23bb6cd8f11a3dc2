//! How much more goes into a node's object, and into a shard: they name each block and address, and the API server keeps no object without
//! end.
//!
//! etcd takes 1.5 MiB at once, and the node's own status comes on top of what it was granted. Counted is what the ledger has for the node,
//! as it comes into the object, in bytes of JSON. A shard has blocks of its own number, and single addresses as many as fit: of these
//! is counted, too, what `metadata.managedFields` says of each.
//!
//! What is counted is more than what an API server (1.35) was seen to store (`crates/operator/src/apply_write_tests.rs`), with node names of 40
//! letters, in bytes:
//!
//! ```text
//!   of a full shard, each address                         counted   stored   of that in managedFields
//!     of a CiliumNode                                         375      345   119
//!     of a claim that no node has, its name of 22 letters     452      226    89
//!     of one that a node has                                  427      352   116
//!     the same, its name of 250 letters, and it migrates      662      615   132
//!   of a node's object, each block                            135      112
//! ```
//!
//! A second node of an address takes 130 bytes more, and 60 in `managedFields`. Where all claims of a full shard migrate at once, the API
//! server leaves `managedFields` out, as of any object that would be too large with them.

use std::collections::HashMap;

use api::{CELLS, Cell, CellState, IpLedgerShardSpec, NodeIpPoolSpec, SharedIp};
use pool::Family;

use crate::index::Index;

/// So many bytes a node's blocks and addresses, and the terms of its pools, may have. That are some 5,500 blocks of pools with names of 20
/// letters: an object of 640 KiB, and of 950 when its agent gives back 4,096 of them.
pub const MOST_BYTES: usize = 768 << 10;

/// So many bytes a shard's cells may have, with what is said of them in `managedFields`. That are 4,096 addresses of nodes whose names have
/// 12 letters. One that would have more would be refused for ever, with all that is to be changed in it.
pub const MOST_SHARD_BYTES: usize = 1280 << 10;

/// How many bytes are left, by the node's UID.
#[derive(Debug, Default)]
pub(crate) struct SizeBudget<'a> {
    left: HashMap<&'a str, usize>,
}

// === impl SizeBudget ===

impl<'a> SizeBudget<'a> {
    /// What is left beside what the ledger has, as it is to be.
    pub(crate) fn of(index: &Index<'a>) -> Self {
        let mut left: HashMap<&'a str, usize> = HashMap::new();
        for seen in index.world.node_pools.values() {
            left.insert(&seen.spec.node_uid, MOST_BYTES.saturating_sub(terms(&seen.spec)));
        }
        let mut room = SizeBudget { left };
        for ((network, family), net) in &index.nets {
            for cell in net.shards.values().filter_map(|draft| draft.spec()).flat_map(|spec| spec.cells.values()) {
                if cell.state == CellState::Granted {
                    room.take(&cell.node_uid, block(network, &cell.pool, *family));
                }
                for ip in cell.ips.values().filter(|ip| ip.owner.cilium_node.is_empty()) {
                    ip.holds().for_each(|hold| room.take(&hold.node_uid, single(network, ip)));
                }
            }
        }
        room
    }

    /// Takes room for a block; whether there is some.
    pub(crate) fn take_block(&mut self, uid: &str, network: &str, pool: &str, family: Family) -> bool {
        let (size, left) = (block(network, pool, family), self.left.get(uid).copied().unwrap_or_default());
        self.take(uid, size);
        left >= size
    }

    fn take(&mut self, uid: &str, size: usize) {
        if let Some(left) = self.left.get_mut(uid) {
            *left = left.saturating_sub(size);
        }
    }
}

/// The longest text of an address with its prefix length.
fn address(family: Family) -> usize {
    if family == Family::V4 { "255.255.255.255/32".len() } else { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128".len() }
}

/// [`api::GrantedBlock`] as JSON.
fn block(network: &str, pool: &str, family: Family) -> usize {
    r#"{"cidr":"","network":"","pool":"","epoch":18446744073709551615},"#.len() + address(family) + network.len() + pool.len()
}

/// [`api::GrantedIp`] as JSON.
fn single(network: &str, ip: &SharedIp) -> usize {
    let owner = &ip.owner;
    let attachment = owner.attachment.as_ref().map_or(0, |of| 50 + of.container_id.len() + of.ifname.len());
    let words = network.len() + ip.pool.len() + owner.claim.len() + owner.claim_uid.len() + owner.pod.len();
    160 + address(Family::V6) + words + attachment
}

/// How many bytes more go into a shard.
pub(crate) fn left_in(spec: Option<&IpLedgerShardSpec>) -> usize {
    // Each cell counts, whether or not it is there: an address may be the first one of its cell.
    let left = MOST_SHARD_BYTES.saturating_sub(250 * CELLS as usize);
    let ips = |cell: &Cell| cell.ips.values().map(kept).sum::<usize>();
    let cells = spec.into_iter().flat_map(|spec| spec.cells.values());
    left.saturating_sub(cells.map(|cell| cell.node.len() + cell.pool.len() + ips(cell)).sum())
}

/// An address in a shard.
pub(crate) fn kept(ip: &SharedIp) -> usize {
    let hold = |hold: &api::Hold| hold.node.len() + hold.node_uid.len();
    // Who is its owner gets a node, sooner or later.
    let to_come = if ip.is_held() || ip.owner.is_nobody() { 0 } else { 100 };
    let second = ip.second.as_ref().map_or(0, |second| 200 + hold(second));
    let owner = &ip.owner;
    let attachment = owner.attachment.as_ref().map_or(0, |of| 150 + of.container_id.len() + of.ifname.len());
    // Those of its pods that migrate may get it.
    let migrates = if owner.claim.is_empty() { 0 } else { 32 };
    let words = migrates + ip.pool.len() + owner.claim.len() + owner.claim_uid.len() + owner.pod.len() + owner.cilium_node.len();
    250 + hold(&ip.hold) + to_come + second + words + attachment
}

/// What is in an object besides.
fn terms(spec: &NodeIpPoolSpec) -> usize {
    let texts = |all: &[String]| all.iter().map(|text| text.len() + 3).sum::<usize>();
    spec.pools.iter().map(|(name, pool)| 512 + name.len() + pool.network.len() + texts(&pool.exclude) + texts(&pool.reserved)).sum()
}
