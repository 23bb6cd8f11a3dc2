//! What the operator's object has for a node that has one pool of its CiliumNode: all other pools.

use std::sync::Arc;

use cluster::NodeIpPool;
use ipam::cilium::POOL;

use crate::settings::Ipam;

/// Whether a pool is none of the operator's, whatever its object says.
pub(super) fn is_others(ipam: Ipam, pool: &str) -> bool {
    ipam == Ipam::Crd && pool == POOL
}

/// The object as far as it is this node's. What it has of the CiliumNode's pool is neither used nor given back: who has it is
/// not known by its epochs.
pub(super) fn own_part(ipam: Ipam, object: Arc<NodeIpPool>) -> Arc<NodeIpPool> {
    let spec = &object.spec;
    let mut named = spec.pools.keys().chain(spec.blocks.iter().map(|block| &block.pool)).chain(spec.ips.iter().map(|ip| &ip.pool));
    if !named.any(|pool| is_others(ipam, pool)) {
        return object;
    }
    let mut part = NodeIpPool::clone(&object);
    part.spec.pools.retain(|pool, _| !is_others(ipam, pool));
    part.spec.blocks.retain(|block| !is_others(ipam, &block.pool));
    part.spec.ips.retain(|ip| !is_others(ipam, &ip.pool));
    Arc::new(part)
}
