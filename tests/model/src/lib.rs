//! Who may hand out an address: every order of events, explored by a model checker (`stateright`). What decides is the very code
//! that decides in a cluster; what is around it is a model of few lines.
//!
//! ```text
//!   tests/protocol   ledger::step x 2 operators, pool::Allocator and ipam::Granted x 3 hosts, an API server with versions:
//!                    blocks granted, frozen, returned; views that are old, stores and ledgers that are lost, nodes made anew
//!   tests/claims     ledger::step x 2 operators, pool::Allocator and ipam::node_grants x 2 hosts: one address of a claim whose pods
//!                    come, go and migrate; recalled, returned, delegated again
//!   tests/store      pool::Allocator x ADD, DEL, freeze at once; a disk that fails, a process that is killed at any step
//! ```
//!
//! Each guard can be taken away, and a test says what breaks then: a guard without which nothing breaks is none, and a model that
//! finds nothing sees nothing. What is found is printed with a way there, step by step.
//!
//! The bounds: blocks of two addresses, one or two cells, two or three lives of each, an attachment per host. One operator has read
//! everything; each watch of the other one may stand still once, at any time and for any time. As every write carries the version
//! that was read, this is also the write that arrives late, and the one whose answer is lost. Time does not pass: what waits for a
//! time may happen at any time.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use pool::{Allocator, Event, Lease};
use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

/// The events of a store, so that equal ones are equal: generations count from 0, and nothing cools down, as time does not
/// pass here and no pool has a cooldown.
#[must_use]
pub fn canonical(allocator: &Allocator) -> Vec<Event> {
    let mut next = 0;
    let mut events = Vec::new();
    for event in allocator.events() {
        match event {
            Event::Generation(_) | Event::Cooling { .. } => {}
            Event::Leased(lease) => {
                events.push(Event::Leased(Lease { generation: next, ..lease }));
                next += 1;
            }
            other => events.push(other),
        }
    }
    events
}

/// Explores all states, or until one of these properties is found broken. The properties that are, each with the shortest way there; where
/// none is, all of them hold.
pub fn explore<M>(model: M, until: HasDiscoveries) -> Vec<String>
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let (begun, story) = (Instant::now(), format!("{model:?}"));
    let end = model.checker().finish_when(until).spawn_bfs().join();
    println!("{story}: {} states, {} deep, {:?}", end.unique_state_count(), end.max_depth(), begun.elapsed());
    let failure = |name: &str| matches!(end.discovery_classification(name), DiscoveryClassification::Counterexample);
    if end.discoveries().keys().all(|name| !failure(name)) {
        end.assert_properties();
    }
    let ways = end.discoveries().into_iter().filter(|(name, _)| failure(name));
    ways.map(|(name, way)| format!("{name}: {:?}", way.into_actions())).collect()
}
