//! Grant and revoke, explored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod host;
mod model;
mod operator;
mod words;
mod world;

use std::time::Instant;

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model, Path};

use model::{Act, Guard, LEDGER_HAS_ALL, ONE_HOLDER, ONE_SPEC, Story};
use world::World;

const PLAIN: Story = Story {
    cells: 1,
    stalls: [0, 0, 0],
    epochs: 2,
    lost_stores: 0,
    replaced: false,
    same_machine: false,
    lost_ledger: false,
    lost_specs: false,
    settles: false,
    without: &[],
};

/// Explores all states; or until one of these properties is found broken, which is told with the shortest way there.
fn explore(story: Story, until: HasDiscoveries) -> Result<usize, String> {
    let start = Instant::now();
    let limit = std::env::var("LIMIT").map_or(40_000_000, |l| l.parse().unwrap());
    let end = story.checker().finish_when(until).target_state_count(limit).spawn_bfs().join();
    let states = end.unique_state_count();
    let ways: Vec<_> = end.discoveries().into_iter().filter(|(name, _)| is_failure(&end.discovery_classification(name))).collect();
    println!("{story:?}: {states} states, {} deep, {:?}", end.max_depth(), start.elapsed());
    if !ways.is_empty() {
        return Err(ways.into_iter().map(|(name, way)| told(name, way)).collect::<Vec<_>>().join("\n"));
    }
    assert!(end.state_count() < limit, "there are more states than are looked at");
    Ok(states)
}

fn is_failure(found: &DiscoveryClassification) -> bool {
    matches!(found, DiscoveryClassification::Counterexample)
}

fn told(name: &str, way: Path<World, Act>) -> String {
    let last = *way.last_state();
    let steps: Vec<String> = way.into_vec().into_iter().filter_map(|(_, act)| act.map(|act| format!("  {act:?}"))).collect();
    format!("{name}: not so after {} steps:\n{}\n{last:#?}", steps.len(), steps.join("\n"))
}

fn holds(story: Story) {
    if let Err(way) = explore(story, HasDiscoveries::AnyFailures) {
        panic!("{way}");
    }
}

/// Without these guards the property is broken.
fn breaks(property: &'static str, story: Story) {
    let until = HasDiscoveries::AnyOf([property].into());
    match explore(story, until) {
        Err(ways) if ways.contains(property) => {
            println!("{}", ways.lines().take_while(|line| *line != "World {").collect::<Vec<_>>().join("\n"))
        }
        Err(ways) => panic!("only {ways}"),
        Ok(states) => panic!("not in {states} states"),
    }
}

// === what holds ===

#[test]
fn an_operator_may_be_late_with_ledger_and_specs() {
    holds(Story { stalls: [1, 1, 0], without: &[Guard::LedgerReadLater], ..PLAIN });
}

#[test]
fn a_cell_has_many_lives() {
    holds(Story { epochs: 3, stalls: [1, 0, 0], ..PLAIN });
}

#[test]
fn two_cells() {
    holds(Story { cells: 2, ..PLAIN });
}

#[test]
fn a_node_is_made_anew_while_the_old_one_lives() {
    holds(Story { replaced: true, stalls: [1, 0, 0], ..PLAIN });
    holds(Story { replaced: true, stalls: [0, 0, 1], ..PLAIN });
}

/// Its pods live on: what they have is the new one's.
#[test]
fn a_node_is_made_anew_on_the_same_machine() {
    holds(Story { replaced: true, same_machine: true, ..PLAIN });
    holds(Story { replaced: true, same_machine: true, stalls: [1, 0, 0], ..PLAIN });
    holds(Story { replaced: true, same_machine: true, stalls: [0, 0, 1], ..PLAIN });
}

#[test]
fn a_host_forgets_everything() {
    holds(Story { lost_stores: 1, stalls: [1, 0, 0], ..PLAIN });
    holds(Story { lost_stores: 1, stalls: [0, 1, 0], ..PLAIN });
}

#[test]
fn somebody_deletes_the_ledger() {
    holds(Story { lost_ledger: true, stalls: [0, 1, 0], ..PLAIN });
}

/// And the objects of all nodes with it: only the agents know who has what.
#[test]
fn somebody_deletes_ledger_and_specs() {
    holds(Story { lost_ledger: true, lost_specs: true, ..PLAIN });
    holds(Story { lost_ledger: true, lost_specs: true, stalls: [0, 1, 0], ..PLAIN });
    holds(Story { lost_ledger: true, lost_specs: true, stalls: [1, 0, 0], ..PLAIN });
}

/// Nobody waits for what is free, wherever it begins.
#[test]
fn it_settles() {
    holds(Story { settles: true, stalls: [0, 1, 0], ..PLAIN });
    holds(Story { settles: true, cells: 2, ..PLAIN });
    holds(Story { settles: true, replaced: true, ..PLAIN });
    holds(Story { settles: true, replaced: true, same_machine: true, ..PLAIN });
    holds(Story { settles: true, lost_stores: 1, lost_ledger: true, ..PLAIN });
    holds(Story { settles: true, lost_ledger: true, lost_specs: true, ..PLAIN });
}

// === what each guard is for ===

#[test]
fn without_a_write_is_refused_if_somebody_was_faster() {
    breaks(ONE_HOLDER, Story { stalls: [1, 1, 0], without: &[Guard::Version], ..PLAIN });
}

#[test]
fn without_the_ledger_is_written_first() {
    breaks(ONE_HOLDER, Story { stalls: [0, 1, 0], without: &[Guard::LedgerFirst], ..PLAIN });
}

#[test]
fn without_a_block_is_frozen_in_one_step() {
    breaks(ONE_HOLDER, Story { without: &[Guard::FreezeIsOne], ..PLAIN });
}

#[test]
fn without_a_block_is_told_of_when_the_disk_knows() {
    breaks(ONE_HOLDER, Story { without: &[Guard::FrozenOnDisk], ..PLAIN });
}

#[test]
fn without_a_life_is_returned_not_a_block() {
    breaks(ONE_HOLDER, Story { epochs: 3, without: &[Guard::EpochOfReturned], ..PLAIN });
}

#[test]
fn without_what_was_returned_is_returned_for_ever() {
    breaks(ONE_HOLDER, Story { stalls: [1, 0, 0], without: &[Guard::ReturnedForEver, Guard::LedgerReadLater], ..PLAIN });
}

#[test]
fn without_a_cell_is_free_when_no_spec_has_it() {
    breaks(ONE_SPEC, Story { without: &[Guard::OutOfSpec], ..PLAIN });
}

#[test]
fn without_another_uid_is_another_node() {
    breaks(ONE_HOLDER, Story { replaced: true, without: &[Guard::NodeUid], ..PLAIN });
}

#[test]
fn without_an_agent_knows_its_own_node() {
    breaks(ONE_HOLDER, Story { replaced: true, without: &[Guard::OwnUid], ..PLAIN });
}

#[test]
fn without_a_deleted_node_may_live_on() {
    breaks(ONE_HOLDER, Story { replaced: true, without: &[Guard::Grace], ..PLAIN });
}

#[test]
fn without_an_agent_whose_node_is_gone_assigns_nothing() {
    breaks(ONE_HOLDER, Story { replaced: true, without: &[Guard::ClosedWithoutNode], ..PLAIN });
}

/// An operator that is late takes the Node for there, and lets its agent assign again.
#[test]
fn without_who_is_silent_was_asked() {
    breaks(LEDGER_HAS_ALL, Story { replaced: true, same_machine: true, stalls: [0, 0, 1], without: &[Guard::AskedFirst], ..PLAIN });
}

#[test]
fn without_who_makes_a_shard_has_read_all_specs() {
    breaks(ONE_HOLDER, Story { lost_ledger: true, stalls: [0, 1, 0], without: &[Guard::AllRead], ..PLAIN });
}

#[test]
fn without_an_agent_reads_before_it_tells() {
    breaks(ONE_HOLDER, Story { lost_stores: 1, without: &[Guard::ReadsFirst], ..PLAIN });
}

#[test]
fn without_what_was_told_is_frozen_without_a_store() {
    breaks(ONE_HOLDER, Story { lost_stores: 1, without: &[Guard::ReturningIsFrozen], ..PLAIN });
}

#[test]
fn without_who_adds_to_a_spec_reads_the_ledger_later() {
    breaks(ONE_HOLDER, Story { lost_stores: 1, stalls: [1, 0, 0], without: &[Guard::LedgerReadLater], ..PLAIN });
}

#[test]
fn without_an_agent_tells_what_its_pods_have() {
    breaks(ONE_HOLDER, Story { replaced: true, same_machine: true, without: &[Guard::ToldWhatItHolds], ..PLAIN });
}

#[test]
fn without_an_agent_tells_before_anything_is_free() {
    breaks(ONE_HOLDER, Story { replaced: true, same_machine: true, without: &[Guard::AgentTellsFirst], ..PLAIN });
}

#[test]
fn without_everyone_tells_before_a_lost_ledger_grants() {
    breaks(ONE_HOLDER, Story { lost_ledger: true, lost_specs: true, without: &[Guard::EveryoneTells], ..PLAIN });
}

#[test]
fn without_what_nodes_hold_is_entered_in_a_lost_ledger() {
    breaks(ONE_HOLDER, Story { lost_ledger: true, lost_specs: true, without: &[Guard::HeldIsEntered], ..PLAIN });
}

#[test]
fn without_an_agent_tells_what_it_holds_of_a_lost_ledger() {
    breaks(ONE_HOLDER, Story { lost_ledger: true, lost_specs: true, without: &[Guard::ToldWhatItHolds], ..PLAIN });
}
