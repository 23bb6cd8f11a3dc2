//! The way back: which objects whereabouts needs, so that it knows the address of each pod.
//!
//! ```text
//!   what plan_import says of all pods' addresses --plan_export--> whereabouts' IPPools and reservations as they are to be
//! ```
//!
//! Nothing is read here, and nothing written.

use std::collections::BTreeMap;

use pool::{Run, number};

use super::import::{Inventory, Left, Reservation, TheirAllocation, TheirPool, TheirReservation, address_of, plan_import};
use super::range::WhereaboutsRange;

/// Whereabouts reads the number of an address in its range as one with a sign: what is larger only a reservation keeps.
const READ: u128 = 1 << 63;

/// Whereabouts' objects as they are to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportPlan {
    /// Every pool that has an allocation, or had one.
    pub pools: Vec<TheirPool>,
    /// Every address that no other range may assign.
    pub reservations: Vec<TheirReservation>,
    /// Addresses with their pods that are in there.
    pub kept: Vec<Reservation>,
    /// Addresses of pods that whereabouts cannot be told.
    pub left: Vec<Left>,
}

/// What whereabouts is to know. What it has noted of pods that are gone is left out; what cannot be judged stays as it is.
#[must_use]
pub fn plan_export(all: &Inventory) -> ExportPlan {
    let import = plan_import(all);
    let is_stale = |pool: &str, address: Option<String>, pod: &str| {
        import.stale.iter().any(|left| left.pool == pool && Some(&left.address) == address.as_ref() && left.pod == pod)
    };
    let mut pools: BTreeMap<String, TheirPool> = BTreeMap::new();
    for theirs in &all.pools {
        let mut pool = theirs.clone();
        pool.allocations.retain(|offset, allocation| {
            let address = address_of(theirs, offset).map_or_else(|| format!("{} + {offset}", theirs.range), |address| address.to_string());
            !is_stale(&theirs.name, Some(address), &allocation.podref)
        });
        pools.insert(pool.name.clone(), pool);
    }
    let mut reservations: BTreeMap<String, TheirReservation> = BTreeMap::new();
    for theirs in &all.reservations {
        let name = format!("reservation {}", theirs.name);
        // Which address its name means is said there, too.
        let is_stale = import.stale.iter().any(|left| left.pool == name && left.pod == theirs.podref);
        let is_gone = all.pods.get(&theirs.podref).is_none_or(|pod| pod.over);
        if !is_stale && !is_gone {
            reservations.insert(theirs.name.clone(), theirs.clone());
        }
    }
    let mut plan = ExportPlan { left: import.unclear, ..ExportPlan::default() };
    for kept in import.kept {
        match note(all, &kept, &mut pools) {
            Ok(range) => {
                if !range.apart {
                    let reservation = reservation_of(range, &kept);
                    reservations.insert(reservation.name.clone(), reservation);
                }
                plan.kept.push(kept);
            }
            Err(why) => {
                let (pool, address, pod) = (kept.pool.clone(), kept.address.to_string(), kept.owner.pod.clone());
                plan.left.push(Left { pool, address, pod, why: why.to_owned() });
            }
        }
    }
    plan.pools = pools.into_values().collect();
    plan.reservations = reservations.into_values().collect();
    plan
}

/// Notes an address in the pool of its range.
fn note<'a>(all: &'a Inventory, kept: &Reservation, pools: &mut BTreeMap<String, TheirPool>) -> Result<&'a WhereaboutsRange, &'static str> {
    let mut ranges = all.meant.ranges.iter().map(|(_, range)| range);
    let range = ranges.find(|range| range.pool == kept.pool).ok_or("no definition has its range")?;
    let holder = kept.owner.attachment.clone().unwrap_or_default();
    let allocation = TheirAllocation { id: holder.container_id, podref: kept.owner.pod.clone(), ifname: holder.ifname };
    // It may be noted in a node's slice already.
    for pool in pools.values_mut().filter(|pool| all.is_theirs(pool, range)) {
        let mut offsets = pool.allocations.iter().filter(|(_, noted)| noted.podref == allocation.podref).map(|(offset, _)| offset);
        if let Some(offset) = offsets.find(|offset| address_of(pool, offset) == Some(kept.address)).cloned() {
            pool.allocations.insert(offset, allocation);
            return Ok(range);
        }
    }
    if range.slice.is_some() {
        return Err("its definition has node_slice_size: whereabouts assigns addresses of a node's slice only");
    }
    let net = Run::network(range.run.first(), range.prefix);
    let offset = number(kept.address) - number(net.first());
    if offset >= READ && range.apart {
        return Err("whereabouts cannot read allocations this far into a range: delete the pod, and create it again when whereabouts runs");
    }
    let spelt = net.to_string();
    let name = named(range, &spelt);
    let pool = pools.entry(name.clone()).or_insert_with(|| TheirPool { name, range: spelt, ..TheirPool::default() });
    pool.allocations.insert(offset.to_string(), allocation);
    Ok(range)
}

/// `[network_name-]what`, as a name in the API.
fn named(range: &WhereaboutsRange, what: &str) -> String {
    let what = what.replace([':', '/'], "-");
    if range.network_name.is_empty() { what } else { format!("{}-{what}", range.network_name) }
}

fn reservation_of(range: &WhereaboutsRange, kept: &Reservation) -> TheirReservation {
    let ifname = kept.owner.attachment.as_ref().map(|holder| holder.ifname.clone()).unwrap_or_default();
    let mut name = named(range, &kept.address.to_string());
    // A name does not end with a dash: then whereabouts puts a zero behind it.
    if name.ends_with('-') {
        name.push('0');
    }
    TheirReservation { name, podref: kept.owner.pod.clone(), ifname, ..TheirReservation::default() }
}

#[cfg(test)]
mod tests {
    use crate::{LivingPod, PodAttachment, range_pools};

    use super::*;

    fn inventory(config: &str, pods: &[(&str, &str)]) -> Inventory {
        let mut all = Inventory { meant: range_pools([("d/net", config)]), ..Inventory::default() };
        all.nodes.insert("n1".to_owned(), "uid".to_owned());
        for (name, address) in pods {
            let addresses = vec![address.parse().unwrap()];
            let attachment = PodAttachment { definition: "d/net".to_owned(), ifname: "net1".to_owned(), addresses };
            let pod = LivingPod { node: "n1".to_owned(), over: false, attachments: Some(vec![attachment]) };
            all.pods.insert(format!("d/{name}"), pod);
        }
        all
    }

    fn allocation(pod: &str) -> TheirAllocation {
        TheirAllocation { id: format!("c-{pod}"), podref: format!("d/{pod}"), ifname: "net1".to_owned() }
    }

    #[test]
    fn every_pods_address_is_noted_and_what_is_gone_is_left_out() {
        let config = r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.16-10.9.0.99/24"}}"#;
        let mut all = inventory(config, &[("p1", "10.9.0.17"), ("p2", "10.9.0.18")]);
        let noted = [("17", allocation("p1")), ("30", allocation("gone"))].map(|(offset, one)| (offset.to_owned(), one));
        let theirs = TheirPool { name: "10.9.0.0-24".to_owned(), range: "10.9.0.0/24".to_owned(), allocations: noted.into() };
        let elsewhere = TheirPool {
            name: "10.7.0.0-24".to_owned(),
            range: "10.7.0.0/24".to_owned(),
            allocations: [("5".to_owned(), allocation("p1"))].into(),
        };
        all.pools = vec![theirs, elsewhere.clone()];
        all.reservations =
            vec![TheirReservation { name: "10.9.0.30".to_owned(), podref: "d/gone".to_owned(), ..TheirReservation::default() }];
        let plan = plan_export(&all);
        let unnamed = TheirAllocation { id: String::new(), ..allocation("p2") };
        let of_range = &plan.pools[1];
        assert_eq!((of_range.name.as_str(), of_range.range.as_str()), ("10.9.0.0-24", "10.9.0.0/24"));
        assert_eq!(of_range.allocations, [("17".to_owned(), allocation("p1")), ("18".to_owned(), unnamed)].into());
        assert_eq!(plan.pools[0].allocations.len(), 0, "p1 has another address on that interface");
        let names: Vec<&str> = plan.reservations.iter().map(|reservation| reservation.name.as_str()).collect();
        assert_eq!((names, plan.left.len()), (vec!["10.9.0.17", "10.9.0.18"], 0), "{plan:?}");
    }

    /// What is written is what an import reads, of both families, with and without a network's name.
    #[test]
    fn an_import_reads_what_an_export_writes() {
        for (network, name, reserved) in
            [("", "fd00-9---64", "fd00-9--5"), (r#","network_name":"net-a""#, "net-a-fd00-9---64", "net-a-fd00-9--5")]
        {
            let config = format!(r#"{{"type":"macvlan","ipam":{{"type":"whereabouts","range":"fd00:9::/64"{network}}}}}"#);
            let mut all = inventory(&config, &[("p1", "fd00:9::5"), ("far", "fd00:9::8000:0:0:1")]);
            let plan = plan_export(&all);
            assert_eq!((plan.pools[0].name.as_str(), plan.reservations[0].name.as_str()), (name, reserved));
            assert_eq!((plan.pools[0].allocations.len(), plan.reservations.len(), plan.left.len()), (2, 2, 0), "{plan:?}");
            (all.pools, all.reservations) = (plan.pools.clone(), plan.reservations.clone());
            all.pods.get_mut("d/p1").unwrap().attachments = None;
            let back = plan_import(&all);
            let kept = back.kept.iter().find(|kept| kept.owner.pod == "d/p1").unwrap();
            assert_eq!((kept.address.to_string().as_str(), kept.is_noted()), ("fd00:9::5", true), "{back:?}");
            assert_eq!(plan_export(&all).pools, plan.pools, "a second time changes nothing");
        }
    }

    #[test]
    fn ranges_that_whereabouts_keeps_apart() {
        let apart = r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24","enable_overlapping_ranges":false}}"#;
        let plan = plan_export(&inventory(apart, &[("p1", "10.9.0.17")]));
        assert_eq!((plan.pools[0].allocations.len(), plan.reservations.len()), (1, 0), "{plan:?}");
        let far = r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"fd00:9::/64","enable_overlapping_ranges":false}}"#;
        let plan = plan_export(&inventory(far, &[("far", "fd00:9::8000:0:0:1")]));
        assert!(plan.pools.is_empty() && plan.left[0].pod == "d/far", "{plan:?}");
        let sliced = r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.0/24","node_slice_size":"/28"}}"#;
        let plan = plan_export(&inventory(sliced, &[("p1", "10.9.0.17")]));
        assert!(plan.pools.is_empty() && plan.left[0].why.contains("node_slice_size"), "{plan:?}");
    }
}
