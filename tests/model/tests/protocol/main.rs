//! Grant and revoke, explored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host;
mod model;
mod operator;
mod words;

use std::time::Instant;

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

use model::{Guard, Story};

const PLAIN: Story = Story { cells: 1, stalls: [0, 0, 0], epochs: 2, lost_stores: 0, replaced: false, lost_ledger: false, without: None };

fn explore(story: Story) -> Result<usize, String> {
    let start = Instant::now();
    let limit = std::env::var("LIMIT").map_or(40_000_000, |l| l.parse().unwrap());
    let end = story.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(limit).spawn_bfs().join();
    let states = end.unique_state_count();
    let whole = if end.state_count() < limit { "all" } else { "NOT ALL" };
    println!("{story:?}: {whole} {states} states, {} deep, {:?}", end.max_depth(), start.elapsed());
    for (name, path) in end.discoveries() {
        if matches!(end.discovery_classification(name), DiscoveryClassification::Example) {
            continue;
        }
        let steps: Vec<String> = path.clone().into_vec().into_iter().map(|(world, act)| format!("{world:#?}\n  then {act:?}")).collect();
        return Err(format!("{name} is not so after {} steps:\n{}", steps.len(), steps.join("\n")));
    }
    Ok(states)
}

fn holds(story: Story) {
    if let Err(path) = explore(story) {
        panic!("{path}");
    }
}

#[test]
fn try_it() {
    let n = |name: &str| std::env::var(name).map_or(0, |n| n.parse().unwrap());
    let stalls: Vec<u8> = std::env::var("STALLS").unwrap_or("0,0,0".into()).split(',').map(|n| n.parse().unwrap()).collect();
    holds(Story {
        cells: n("CELLS").max(1),
        epochs: n("EPOCHS").max(2),
        stalls: stalls.try_into().unwrap(),
        lost_stores: n("LOST"),
        replaced: n("REPLACED") > 0,
        lost_ledger: n("LEDGER") > 0,
        ..PLAIN
    });
}
