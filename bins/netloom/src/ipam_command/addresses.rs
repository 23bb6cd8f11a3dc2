//! `netloom ipam status --all-addresses`: who has which address, line by line as `cilium status --all-addresses` says it.
//!
//! ```text
//!   IPAM:   IPv4: 2/4 allocated
//!   Allocated addresses:
//!     192.168.1.1 (router)
//!     192.168.1.3 (health)
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::cilium;
use ledger::pieces;
use pool::{Allocator, Family, Run, State};
use serde::Serialize;
use serde_json::Value;

use super::words;

/// Who has what of a pool.
#[derive(Serialize)]
pub(super) struct Used {
    pool: String,
    families: Vec<Figures>,
    addresses: Vec<Owned>,
}

/// How many of a family.
#[derive(Serialize)]
struct Figures {
    family: String,
    allocated: usize,
    #[serde(serialize_with = "exact")]
    total: u128,
    /// In use as well, and of the pool no more.
    outside: usize,
}

/// That somebody has it.
#[derive(Serialize)]
struct Owned {
    address: IpAddr,
    owner: String,
}

fn exact<S: serde::Serializer>(n: &u128, to: S) -> Result<S::Ok, S::Error> {
    Value::serialize(&words::exact(*n), to)
}

/// What is so of some pools.
pub(super) fn used(all: &Allocator, pools: &[String]) -> Vec<Used> {
    let of = |pool: &String| {
        let held = held(all, pool);
        let families = Family::ALL.into_iter().filter(|family| all.blocks(pool, *family).next().is_some() || has(&held, *family));
        let families = families.map(|family| figures(all, pool, family, &held)).collect();
        Used { pool: pool.clone(), families, addresses: held.into_iter().map(|(address, owner)| Owned { address, owner }).collect() }
    };
    pools.iter().map(of).collect()
}

/// The same in words; each pool is named where there are several.
pub(super) fn lines(pools: &[Used]) -> Vec<String> {
    let mut lines = Vec::new();
    for Used { pool, families, addresses } in pools {
        let figures: Vec<String> = families.iter().map(Figures::told).collect();
        let of = if pools.len() > 1 { format!(" of pool {pool}") } else { String::new() };
        lines.push(format!("IPAM{of}:   {}", figures.join(", ")));
        lines.push(format!("Allocated addresses{of}:"));
        lines.extend(addresses.iter().map(|Owned { address, owner }| format!("  {address} ({owner})")));
    }
    lines
}

fn has(held: &BTreeMap<IpAddr, String>, family: Family) -> bool {
    held.keys().any(|address| Family::of(*address) == family)
}

/// The addresses of a pool's family, without those that are excluded.
fn whole(all: &Allocator, pool: &str, family: Family) -> Vec<Run> {
    let exclude = all.spec(pool).map(|spec| spec.exclude.as_slice()).unwrap_or_default();
    let blocks = all.blocks(pool, family).filter(|(_, state)| *state != State::Withdrawn);
    blocks.flat_map(|(block, _)| pieces(vec![block.run], exclude)).collect()
}

/// Of an address that has left the pool while it is in use its owner is told, and it counts apart.
fn figures(all: &Allocator, pool: &str, family: Family, held: &BTreeMap<IpAddr, String>) -> Figures {
    let whole = whole(all, pool, family);
    let total = whole.iter().fold(0_u128, |sum, run| sum.saturating_add(run.count()));
    let of_family = || held.keys().filter(|address| Family::of(**address) == family);
    let allocated = of_family().filter(|address| whole.iter().any(|run| run.contains(**address))).count();
    Figures { family: family.to_string(), allocated, total, outside: of_family().count() - allocated }
}

// === impl Figures ===

impl Figures {
    fn told(&self) -> String {
        let Figures { family, allocated, total, outside } = self;
        let outside = if *outside == 0 { String::new() } else { format!(" (+{outside} outside)") };
        format!("{family}: {allocated}/{total} allocated{outside}")
    }
}

/// Who has which address. A gateway among the node's own addresses is the node's as a router.
fn held(all: &Allocator, pool: &str) -> BTreeMap<IpAddr, String> {
    let gateways = Family::ALL.into_iter().filter_map(|family| all.spec(pool)?.terms(family).gateway);
    let own = |address: &IpAddr| all.blocks(pool, Family::of(*address)).any(|(block, _)| block.run.contains(*address));
    // One that is excluded as well is none of the pool's.
    let excluded = |address: &IpAddr| all.spec(pool).is_some_and(|spec| spec.exclude.iter().any(|run| run.contains(*address)));
    let routers = gateways.filter(own).filter(|address| !excluded(address)).map(|address| (address, cilium::ROUTER.to_owned()));
    let leased = all.leases().flat_map(|lease| {
        let of_pool = lease.addresses.iter().filter(|leased| leased.pool == pool);
        of_pool.map(|leased| (leased.address, cilium::owner(lease)))
    });
    routers.chain(leased).collect()
}

#[cfg(test)]
mod tests {
    use pool::{Ask, Block, Event, Key, Pod, Spec, Want};

    use super::*;

    #[test]
    fn as_ciliums_documentation_shows_it() {
        let mut all = Allocator::new(1);
        let mut spec = Spec::new("default", "default");
        spec.v4.gateway = Some("192.168.1.1".parse().unwrap());
        spec.v6.prefix = 64;
        all.apply(&Event::Pool(spec));
        let runs = ["192.168.1.1", "192.168.1.2", "192.168.1.3", "192.168.1.4", "fd00::1-fd00::9"];
        for run in runs {
            let block = Block { pool: "default".to_owned(), run: run.parse().unwrap(), epoch: 1, claim: None };
            all.apply(&Event::Block(block, State::Active));
        }
        let want = |family| Want { pool: "default".to_owned(), family, address: None };
        let now = pool::Moment::default();
        all.reserve(&cilium::own_ask(cilium::HEALTH, Family::V4), &now).unwrap();
        let pod = Pod { namespace: "ns".to_owned(), name: "web".to_owned(), uid: String::new() };
        let key = Key { network: "pods".to_owned(), container: "c".to_owned(), ifname: "eth0".to_owned() };
        let wants = vec![want(Family::V4), want(Family::V6)];
        all.reserve(&Ask { key, pod: Some(pod), claim: None, wants }, &now).unwrap();
        let expected = [
            "IPAM:   IPv4: 3/4 allocated, IPv6: 1/9 allocated",
            "Allocated addresses:",
            "  192.168.1.1 (router)",
            "  192.168.1.2 (health)",
            "  192.168.1.3 (ns/web)",
            "  fd00::1 (ns/web)",
        ];
        let lines = |pools: &[&str]| lines(&used(&all, &pools.iter().map(|pool| (*pool).to_owned()).collect::<Vec<_>>()));
        assert_eq!(lines(&["default"]), expected);
        assert_eq!(lines(&["default", "none"])[6], "IPAM of pool none:   ");
        // It is excluded, and of IPv6 another block is the pool's: who has an address keeps it, and it is none of so many.
        let block = |run: &str| Block { pool: "default".to_owned(), run: run.parse().unwrap(), epoch: 1, claim: None };
        let mut spec = all.spec("default").unwrap().clone();
        spec.exclude = vec!["192.168.1.1".parse().unwrap()];
        all.apply(&Event::Pool(spec));
        all.apply(&Event::Block(block("fd00::1-fd00::9"), State::Withdrawn));
        all.apply(&Event::Block(block("fd00::11-fd00::12"), State::Active));
        let used = used(&all, &["default".to_owned()]);
        let told = super::lines(&used);
        assert_eq!(told[0], "IPAM:   IPv4: 2/3 allocated, IPv6: 0/2 allocated (+1 outside)");
        assert!(!told.iter().any(|line| line.contains("router")) && told.contains(&"  fd00::1 (ns/web)".to_owned()), "{told:?}");
        let families = serde_json::to_value(&used).unwrap()[0]["families"][1].clone();
        assert_eq!(families, serde_json::json!({"family": "IPv6", "allocated": 0, "total": 2, "outside": 1}));
    }
}
