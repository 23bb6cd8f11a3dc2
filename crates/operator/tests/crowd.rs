//! Many nodes at once: the operator over the API server's double, and nodes without machines.
//!
//! ```text
//!   pods     nodes with a real store each, and a real watch of their own object: pods that come all at once
//!   agents   nodes with the allocator alone, in memory: thousands of them, all of whose pods are replaced
//!   stocks   the same nodes with stocks of a range's addresses, on a clock of their own: nothing twice, nothing kept, nothing left over
//!   urgent   nodes that are new, one of which has pods that wait
//! ```
//!
//! The operator is a part of this process; where its memory is measured it is one of its own, of the executable as it is deployed.
//!
//! Small in every run; with `--ignored`, as `make bench-pool` and `make soak` run it, as large as is told of it (docs/internals/performance.md).
//! That no two pods have an address is checked by sets of this program's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "crowd/agents.rs"]
mod agents;
#[path = "crowd/at_work.rs"]
mod at_work;
#[path = "crowd/node.rs"]
mod node;
#[path = "crowd/pods.rs"]
mod pods;
#[path = "crowd/stocks.rs"]
mod stocks;
#[path = "crowd/urgent.rs"]
mod urgent;
#[path = "crowd/world.rs"]
mod world;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

/// Runs a future as the operator runs: on one thread. Each pod that waits has another one.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4096).build().unwrap().block_on(test);
}

/// A line of what was measured, with its goal.
fn goal(what: &str, took: Duration, most: Duration) {
    println!("{} {what}: {took:.2?}, at most {most:.0?}", if took <= most { "met   " } else { "missed" });
}

#[test]
fn pods_of_many_nodes_are_addressed_at_once() {
    run(async {
        pods::come(12, 5).await;
    });
}

#[test]
#[ignore = "how fast: make bench-pool"]
fn five_hundred_pods_of_a_hundred_nodes() {
    run(async {
        let took = pods::come(100, 5).await;
        goal("500 pods of 100 nodes, from no block to the last address", took, Duration::from_secs(5));
    });
}

#[test]
fn many_addresses_of_one_range() {
    run(async {
        pods::of_one_range(2, 10, 10).await;
    });
}

#[test]
#[ignore = "how fast: make bench-pool"]
fn two_thousand_addresses_of_one_range() {
    run(async {
        let took = pods::of_one_range(2, 64, 16).await;
        goal("2,048 addresses of one range: 128 pods of two nodes, 16 attachments each", took, Duration::from_secs(2));
    });
}

#[test]
fn all_pods_of_many_nodes_are_replaced() {
    run(agents::life(50, None));
}

#[test]
#[ignore = "minutes, and gigabytes: make soak"]
fn all_pods_of_five_thousand_nodes_are_replaced() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/netloom");
    assert!(program.is_file(), "{} is missing: run `make build`", program.display());
    run(agents::life(5_000, Some(&program)));
}

#[test]
fn stocks_of_many_nodes_have_no_address_twice_and_go_back() {
    run(stocks::waves(200));
}

#[test]
#[ignore = "minutes, and gigabytes: make soak"]
fn stocks_of_five_thousand_nodes_have_no_address_twice_and_go_back() {
    run(stocks::waves(5_000));
}

#[test]
fn as_many_pods_as_a_stocked_range_has_addresses() {
    run(stocks::to_the_last_address(200));
}

#[test]
#[ignore = "minutes, and gigabytes: make soak"]
fn as_many_pods_of_five_thousand_nodes_as_a_stocked_range_has_addresses() {
    run(stocks::to_the_last_address(5_000));
}

#[test]
fn pods_of_a_range_within_one_that_others_stock() {
    run(stocks::to_the_last_address_of_an_inner_range(200));
}

#[test]
fn a_node_whose_pods_wait_comes_before_new_ones() {
    run(async {
        let others = urgent::others_first(400).await;
        // So many writes are on their way at once as were sent behind it.
        assert!(others < 40, "{others} nodes have a block in store before it has one that its pods wait for");
    });
}

#[test]
#[ignore = "how fast: scripts/crowd.sh a_node_whose_pods_wait_among_five_thousand_new_ones"]
fn a_node_whose_pods_wait_among_five_thousand_new_ones() {
    run(async {
        let (waited, _) = urgent::served(5_000).await;
        goal("a block for a node whose pods wait, among 5,000 new nodes", waited, Duration::from_secs(2));
    });
}
