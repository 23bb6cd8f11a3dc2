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

/// What is said of some pools; each is named where there are several.
pub(super) fn lines(all: &Allocator, pools: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for pool in pools {
        let held = held(all, pool);
        let families = Family::ALL.into_iter().filter(|family| all.blocks(pool, *family).next().is_some() || has(&held, *family));
        let figures: Vec<String> = families.map(|family| figures(all, pool, family, &held)).collect();
        let of = if pools.len() > 1 { format!(" of pool {pool}") } else { String::new() };
        lines.push(format!("IPAM{of}:   {}", figures.join(", ")));
        lines.push(format!("Allocated addresses{of}:"));
        lines.extend(held.iter().map(|(address, owner)| format!("  {address} ({owner})")));
    }
    lines
}

fn has(held: &BTreeMap<IpAddr, String>, family: Family) -> bool {
    held.keys().any(|address| Family::of(*address) == family)
}

/// Of an address that has left the pool while it is in use its owner is told, and it counts among the used ones.
fn figures(all: &Allocator, pool: &str, family: Family, held: &BTreeMap<IpAddr, String>) -> String {
    let exclude = all.spec(pool).map(|spec| spec.exclude.as_slice()).unwrap_or_default();
    let runs =
        all.blocks(pool, family).filter(|(_, state)| *state != State::Withdrawn).flat_map(|(block, _)| pieces(vec![block.run], exclude));
    let total = runs.fold(0_u128, |sum, run: Run| sum.saturating_add(run.count()));
    let used = held.keys().filter(|address| Family::of(**address) == family).count();
    format!("{family}: {used}/{total} allocated")
}

/// Who has which address. A gateway among the node's own addresses is the node's as a router.
fn held(all: &Allocator, pool: &str) -> BTreeMap<IpAddr, String> {
    let gateways = Family::ALL.into_iter().filter_map(|family| all.spec(pool)?.terms(family).gateway);
    let own = |address: &IpAddr| all.blocks(pool, Family::of(*address)).any(|(block, _)| block.run.contains(*address));
    let routers = gateways.filter(own).map(|address| (address, cilium::ROUTER.to_owned()));
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
        assert_eq!(lines(&all, &["default".to_owned()]), expected);
        assert_eq!(lines(&all, &["default".to_owned(), "none".to_owned()])[6], "IPAM of pool none:   ");
    }
}
