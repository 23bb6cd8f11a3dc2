//! What is said of blocks, of who has them, and of objects by name.

use std::collections::{BTreeMap, BTreeSet};

use netloom_ledger::Snapshot;

/// A block, by network and text.
pub(crate) type Block = (String, String);

/// The API server is asked for claims that have addresses and were not seen.
pub(crate) fn ask_for_claims(world: &Snapshot, view: &mut Snapshot, missing: BTreeSet<(String, String)>) {
    let is_gone = |(name, uid): &(String, String)| world.claims.claims.get(name).is_none_or(|claim| claim.uid != *uid);
    view.claims.gone.extend(missing.into_iter().filter(is_gone).map(|(_, uid)| uid));
}

/// Whether the ledger has an address as both machines', in these lives.
pub(crate) fn held_by(world: &Snapshot, (network, text): &Block, both: [(&str, u64); 2]) -> bool {
    let address: std::net::IpAddr = text.trim_end_matches("/32").parse().unwrap();
    let shards = world.shards.values().filter(|seen| seen.spec.network == *network && !seen.spec.base.ends_with("/0"));
    let mut ips = shards.flat_map(|seen| {
        let first: std::net::Ipv4Addr = seen.spec.base.split('/').next().unwrap().parse().unwrap();
        let cells = seen.spec.cells.iter().flat_map(|(cell, is)| is.ips.iter().map(move |(ip, has)| (cell, ip, has)));
        // Cells of four addresses.
        let at = move |cell: &str, ip: &str| u32::from(first) + 4 * cell.parse::<u32>().unwrap() + ip.parse::<u32>().unwrap();
        cells.map(move |(cell, ip, has)| (std::net::IpAddr::from(at(cell, ip).to_be_bytes()), has))
    });
    let has = |has: &api::SharedIp| both.iter().all(|(uid, epoch)| has.holds().any(|hold| hold.node_uid == *uid && hold.epoch == *epoch));
    ips.any(|(ip, holds)| ip == address && has(holds))
}

/// Whether two blocks have an address of one network.
pub(crate) fn overlap(a: &Block, b: &Block) -> bool {
    let span = |text: &str| {
        let (address, prefix) = text.split_once('/').unwrap();
        let first = u32::from(address.parse::<std::net::Ipv4Addr>().unwrap());
        (first, first | u32::MAX.checked_shr(prefix.parse().unwrap()).unwrap_or(0))
    };
    let ((first, last), (start, end)) = (span(&a.1), span(&b.1));
    a.0 == b.0 && first <= end && start <= last
}

pub(crate) fn replace<T: Clone>(view: &mut BTreeMap<String, T>, world: &BTreeMap<String, T>, name: &str) {
    match world.get(name) {
        Some(now) => drop(view.insert(name.to_owned(), now.clone())),
        None => drop(view.remove(name)),
    }
}
