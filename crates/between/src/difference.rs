//! From one plan to the next.
//!
//! ```text
//!   closed --> devices --> peers, forwarding, neighbours --> routes      what comes or changes, before
//!   closed <-- devices <-- neighbours, forwarding, peers <-- routes      what goes
//! ```
//!
//! So a route is there only while everything is that it leads through, and what stays the same is not touched. A range that changes hands,
//! or whose path changes, is replaced in one step.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Device, Mac, Peer, Plan, Route, Wanted};

/// A row of one of a plan's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Of [`Plan::devices`].
    Device(Device, Wanted),
    /// Of [`Plan::peers`].
    Peer(Device, [u8; 32], Peer),
    /// Of [`Plan::forwarding`].
    Forwarding(Device, Mac, IpAddr),
    /// Of [`Plan::neighbours`].
    Neighbour(Device, IpAddr, Mac),
    /// Of [`Plan::routes`].
    Route(IpNet, Route),
    /// Of [`Plan::closed`].
    Closed(IpNet),
}

/// A step from one plan to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// There was no entry with this key.
    Add(Entry),
    /// There was another entry with this key: it is overwritten (`NLM_F_REPLACE`), never deleted first.
    Replace(Entry),
    /// The entry as it was.
    Remove(Entry),
}

/// The changes of a table: what comes or is replaced, and what goes.
type Changes = (Vec<Change>, Vec<Change>);

// === impl Plan ===

impl Plan {
    /// What leads from this plan to the one that holds now, in an order in which no packet between nodes that it does not concern is lost.
    ///
    /// A peer whose allowed ranges are replaced gets all of them at once. WireGuard takes a range that is allowed to another peer from that
    /// one (drivers/net/wireguard/allowedips.c), so a range that moves from peer to peer does so in one step; two that are swapped do not.
    #[must_use]
    pub fn difference(&self, now: &Plan) -> Vec<Change> {
        let tables = [
            closed_changes(&self.closed, &now.closed),
            changes(&self.devices, &now.devices, |device, wanted| Entry::Device(*device, wanted.clone())),
            self.peer_changes(now),
            changes(&self.forwarding, &now.forwarding, |(device, mac), endpoint| Entry::Forwarding(*device, *mac, *endpoint)),
            changes(&self.neighbours, &now.neighbours, |(device, address), mac| Entry::Neighbour(*device, *address, *mac)),
            changes(&self.routes, &now.routes, |range, route| Entry::Route(*range, *route)),
        ];
        let (come, go): (Vec<_>, Vec<_>) = tables.into_iter().unzip();
        come.into_iter().chain(go.into_iter().rev()).flatten().collect()
    }

    /// Carries out one change in the tables.
    pub fn take(&mut self, change: Change) {
        match change {
            Change::Add(entry) | Change::Replace(entry) => match entry {
                Entry::Device(device, wanted) => drop(self.devices.insert(device, wanted)),
                Entry::Peer(device, key, peer) => drop(self.peers.insert((device, key), peer)),
                Entry::Forwarding(device, mac, endpoint) => _ = self.forwarding.insert((device, mac), endpoint),
                Entry::Neighbour(device, address, mac) => _ = self.neighbours.insert((device, address), mac),
                Entry::Route(range, route) => _ = self.routes.insert(range, route),
                Entry::Closed(range) => _ = self.closed.insert(range),
            },
            Change::Remove(entry) => match entry {
                Entry::Device(device, _) => drop(self.devices.remove(&device)),
                Entry::Peer(device, key, _) => drop(self.peers.remove(&(device, key))),
                Entry::Forwarding(device, mac, _) => _ = self.forwarding.remove(&(device, mac)),
                Entry::Neighbour(device, address, _) => _ = self.neighbours.remove(&(device, address)),
                Entry::Route(range, _) => _ = self.routes.remove(&range),
                Entry::Closed(range) => _ = self.closed.remove(&range),
            },
        }
    }

    /// Peers that gain ranges come before those that only lose some: a range that moves is taken from the one by giving it to the other.
    fn peer_changes(&self, now: &Plan) -> Changes {
        let (mut come, go) = changes(&self.peers, &now.peers, |(device, key), peer| Entry::Peer(*device, *key, peer.clone()));
        come.sort_by_key(|change| match change {
            Change::Add(Entry::Peer(device, key, peer)) | Change::Replace(Entry::Peer(device, key, peer)) => {
                self.peers.get(&(*device, *key)).is_some_and(|before| peer.allowed.is_subset(&before.allowed))
            }
            _ => false,
        });
        (come, go)
    }
}

fn closed_changes(before: &BTreeSet<IpNet>, now: &BTreeSet<IpNet>) -> Changes {
    let come = now.difference(before).map(|range| Change::Add(Entry::Closed(*range)));
    let go = before.difference(now).map(|range| Change::Remove(Entry::Closed(*range)));
    (come.collect(), go.collect())
}

/// Both tables are walked through side by side: most rows are the same, and to look each of them up would take longer than all else.
fn changes<K: Ord, V: PartialEq>(before: &BTreeMap<K, V>, now: &BTreeMap<K, V>, entry: impl Fn(&K, &V) -> Entry) -> Changes {
    let (mut come, mut go) = (Vec::new(), Vec::new());
    let (mut olds, mut news) = (before.iter().peekable(), now.iter().peekable());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return (come, go),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { news.next() } else { None };
        match (old, new) {
            (Some((_, old)), Some((key, value))) if old != value => come.push(Change::Replace(entry(key, value))),
            (None, Some((key, value))) => come.push(Change::Add(entry(key, value))),
            (Some((key, value)), None) => go.push(Change::Remove(entry(key, value))),
            _ => {}
        }
    }
}
