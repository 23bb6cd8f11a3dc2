//! An address of a claim whose pods come and go on two nodes: which of them may hand it out, and when both may. What decides is
//! `ledger::step`, with all of `ledger::assign`, `delegate`, `join`, `recall` and `take_back` behind it, and `ipam` with `pool::Allocator`
//! on the nodes.
//!
//! ```text
//!   pods --ledger::step x 2 operators--> the address in its cell --> specs --ipam::node_grants--> pool::Allocator x 2 --> containers
//!                                           ^------------- status.returning <-- what is recalled, and nobody's ---+
//! ```
//!
//! A pod is in the API, or not any more; its container begins after it and ends at any time, also long after the pod has gone. There is
//! one on each node, and it says that it migrates or does not: three cases, of which only one lets both nodes have the address. In a
//! fourth one a third pod of the claim does not say so, and comes to a node that has the address for the pod that does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host;
mod known;
mod model;
mod operator;

use netloom_model::explore;
use stateright::HasDiscoveries;

use model::{Guard, LEDGER_HAS_ALL, ONE_HOLDER, ONE_SPEC, SETTLES, Story};

const PLAIN: Story = Story { stalls: [0; 3], epochs: 3, third: false, settles: false, without: &[] };

fn breaks(property: &'static str, story: Story) {
    let ways = explore(story, HasDiscoveries::AnyOf([property].into()));
    println!("  {ways:?}");
    assert!(ways.iter().any(|way| way.starts_with(property)), "{:?}", story.without);
}

#[test]
fn it_goes_from_node_to_node_and_is_two_nodes_while_both_pods_migrate() {
    for stalls in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
        assert_eq!(explore(Story { stalls, epochs: 2, ..PLAIN }, HasDiscoveries::AnyFailures), Vec::<String>::new());
    }
}

#[test]
fn a_third_pod_that_does_not_migrate_never_has_what_two_have() {
    for (stalls, epochs) in [([0; 3], 3), ([0, 0, 1], 2)] {
        assert_eq!(explore(Story { stalls, epochs, third: true, ..PLAIN }, HasDiscoveries::AnyFailures), Vec::<String>::new());
    }
}

#[test]
fn who_waits_for_it_gets_it() {
    for third in [false, true] {
        assert_eq!(explore(Story { settles: true, third, ..PLAIN }, HasDiscoveries::AnyFailures), Vec::<String>::new());
    }
}

#[test]
fn each_guard_is_needed() {
    for (property, stalls, without) in [
        (ONE_HOLDER, [1, 1, 0], &[Guard::Version] as &[Guard]),
        (LEDGER_HAS_ALL, [0, 1, 0], &[Guard::LedgerFirst]),
        (ONE_HOLDER, [0; 3], &[Guard::Returned]),
        (ONE_HOLDER, [0; 3], &[Guard::EpochOfReturned]),
        (ONE_SPEC, [0; 3], &[Guard::OutOfSpec]),
        (ONE_HOLDER, [0; 3], &[Guard::FreezeIsOne]),
        // What comes into a spec again by an old ledger is what a node has given back.
        (ONE_HOLDER, [1, 0, 0], &[Guard::ReturnedForEver, Guard::LedgerReadLater]),
        (ONE_SPEC, [1, 0, 0], &[Guard::LedgerReadLater]),
    ] {
        breaks(property, Story { stalls, without, epochs: if stalls == [0; 3] { 3 } else { 2 }, ..PLAIN });
    }
    // Who takes what is for others does so where the operator does not ask who migrates, and where a third pod comes.
    breaks(ONE_HOLDER, Story { without: &[Guard::Marks, Guard::Kind], ..PLAIN });
    breaks(ONE_HOLDER, Story { third: true, without: &[Guard::Kind], ..PLAIN });
    breaks(SETTLES, Story { settles: true, without: &[Guard::NextLife], ..PLAIN });
}
