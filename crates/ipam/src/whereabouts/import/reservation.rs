//! Whereabouts' reservations: addresses that it has noted a second time, so that ranges which overlap do not hand out the same.
//!
//! ```text
//!   a reservation, and a pool says the same of it            nothing more to be done
//!   ----------------, and no pool has it; its pod lives      kept for the pod, as an address of a pool is
//!   ----------------, and its pod is gone                    stale
//!   ----------------, and a pool has it for another pod      both are looked at: whose network status says so keeps it, the other is told
//! ```

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{ImportPlan, Inventory, Left, NotedBy, ReservationState, TheirAllocation, WhereaboutsRange, address_of, fate};

/// An OverlappingRangeIPReservation of whereabouts (`whereabouts.cni.cncf.io/v1alpha1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct TheirReservation {
    /// Its `metadata.name`: the network, where there is one, and the address, with dashes for colons.
    #[serde(skip)]
    pub name: String,
    /// Its pod, `namespace/name`.
    pub podref: String,
    /// The container's ID; few releases say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub containerid: String,
    /// Its interface; older releases do not say it.
    pub ifname: String,
}

/// What becomes of each address that is reserved and that no pool has for the same pod.
pub(super) fn plan(all: &Inventory, plan: &mut ImportPlan) {
    for reservation in &all.reservations {
        let places = reservation.places();
        if places.iter().any(|place| is_noted(all, place, &reservation.podref)) {
            continue;
        }
        // A name can be read in several ways where the network's name looks like the beginning of an address.
        let known = places.iter().find(|place| all.meant.ranges.iter().any(|(_, range)| is_of(range, place)));
        let place = known.or(places.first());
        let left = |why: &str| Left {
            pool: format!("reservation {}", reservation.name),
            address: place.map_or_else(|| reservation.name.clone(), |(_, address)| address.to_string()),
            pod: reservation.podref.clone(),
            why: why.to_owned(),
        };
        let pod = match all.pods.get(&reservation.podref) {
            None => {
                plan.stale.push(left("its pod is gone"));
                continue;
            }
            Some(pod) if pod.over => {
                plan.stale.push(left("its pod has ended"));
                continue;
            }
            Some(pod) => pod,
        };
        let Some(place) = place else {
            plan.unclear.push(left("the reservation's name does not contain an address"));
            continue;
        };
        let noted =
            TheirAllocation { id: reservation.containerid.clone(), podref: reservation.podref.clone(), ifname: reservation.ifname.clone() };
        match fate(all, &|range| is_of(range, place), place.1, (NotedBy::Reservation, &noted), pod) {
            ReservationState::Kept(kept) => plan.kept.push(*kept),
            ReservationState::Stale(why) => plan.stale.push(left(why)),
            ReservationState::Unclear(why) => plan.unclear.push(left(why)),
        }
    }
}

/// A network's name, or nothing, and an address of it.
type ReservationKey = (String, IpAddr);

/// Whether a range is of that network and has the address.
fn is_of(range: &WhereaboutsRange, (network, address): &ReservationKey) -> bool {
    range.network_name == *network && range.run.contains(*address)
}

/// Whether a pool of that network has the address for the same pod.
fn is_noted(all: &Inventory, (network, address): &ReservationKey, podref: &str) -> bool {
    let pools = all.pools.iter().filter(|pool| all.is_of_network(pool, network));
    let mut noted = pools.flat_map(|pool| pool.allocations.iter().map(move |(offset, allocation)| (pool, offset, allocation)));
    noted.any(|(pool, offset, allocation)| allocation.podref == podref && address_of(pool, offset) == Some(*address))
}

// === impl TheirReservation ===

impl TheirReservation {
    /// All that its name may mean, without a network first.
    fn places(&self) -> Vec<ReservationKey> {
        let starts = std::iter::once(0).chain(self.name.match_indices('-').map(|(at, _)| at + 1));
        let place = |at: usize| {
            let (network, address) = self.name.split_at_checked(at)?;
            // An address that ends with colons has a zero behind them.
            let address = address.replace('-', ":").parse().ok()?;
            Some((network.strip_suffix('-').unwrap_or(network).to_owned(), address))
        };
        starts.filter_map(place).collect()
    }
}
