//! What was measured: tables and goals.

use super::HELD;
use super::alone::Row;
use super::held::{COUNT, Case};
use super::range::Range;
use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::network::Verb;

fn us(spread: Spread) -> String {
    format!("{:>9.0}{:>9.0}", spread.p50.as_secs_f64() * 1e6, spread.p99.as_secs_f64() * 1e6)
}

/// One process has the store open.
pub(super) fn held(rounds: usize, cases: &[Case]) -> String {
    let mut text = format!("an allocation, on the disk when it is answered: {rounds} rounds of {COUNT}, turn by turn, us\n");
    text += &format!("{:16}{:^18}{:^18}{:^18}{:>9}\n", "", "netloom", "reference", "one flush", "netloom");
    text += &format!("{:16}{:^18}{:^18}{:^18}{:>9}\n", "", "", "in its process", "of one record", "a second");
    let head = format!("{:>9}{:>9}", "p50", "p99").repeat(3);
    text += format!("{:>7} {:>7} {head}", "in use", "callers").trim_end();
    text += "\n";
    for case in cases {
        let reference = case.reference.map_or_else(|| format!("{:>9}{:>9}", "-", "-"), us);
        let cells = [us(case.ours), reference, us(case.flush)].concat();
        text += &format!("{:>7} {:>7} {cells}{:>9.0}\n", case.held, case.callers, case.a_second());
    }
    text + "  the reference flushes nothing; -: it reads every file for each, which would take minutes\n"
}

/// Each call is a process.
pub(super) fn alone(rounds: usize, rows: &[Row]) -> String {
    let held: String = HELD.map(|n| format!(" {n:>9}")).concat();
    let mut text = format!("each call a process, ms at the median of {rounds} rounds, addresses in use:{held}     growth\n");
    for row in rows {
        let times: String = row.spreads.iter().map(|spread| format!(" {:>9}", ms(spread.p50))).collect();
        let plugin = if row.name == "netloom" { "pool" } else { "host-local" };
        text += &format!("{:72}{times} {:>9.2}x\n", format!("{} {plugin}, {}", row.name, row.verb.name()), row.growth());
    }
    text
}

/// A whole range.
pub(super) fn ranges(ranges: &[Range]) -> String {
    let line = |range: &Range| format!("2048 addresses of one range, {:32} {:>8} ms\n", range.what, ms(range.spread.p50));
    ranges.iter().map(line).collect()
}

/// All goals.
pub(super) fn goals(cases: &[Case], rows: &[Row], ranges: &[Range]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for callers in [1, 64] {
        let of: Vec<&Case> = cases.iter().filter(|c| c.callers == callers).collect();
        let [few, many] = of.as_slice() else { continue };
        let growth = |of: &dyn Fn(&Case) -> f64| of(many) / of(few);
        let what = format!("{callers} callers: growth from {} to {} in use", few.held, many.held);
        goals.push(Goal::at_most(&format!("{what}, p50"), 1.3, growth(&|c| c.ours.p50.as_secs_f64())));
        goals.push(Goal::at_most(&format!("{what}, p99"), 1.3, growth(&|c| c.ours.p99.as_secs_f64())));
        match callers {
            1 => goals.push(Goal::at_most("1 caller: an allocation, by one flush", 1.5, few.flush.ratio(few.ours))),
            _ => goals.push(Goal::at_least(
                "64 callers: allocations in the time of one flush",
                4.0,
                few.a_second() * few.flush.p50.as_secs_f64(),
            )),
        }
    }
    if let [one, many, ..] = cases {
        goals.push(Goal::at_least("64 callers: allocations a second, by one caller's", 8.0, many.a_second() / one.a_second()));
    }
    for verb in [Verb::Add, Verb::Del] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.verb == verb).collect();
        let [ours, reference] = of.as_slice() else { continue };
        if let ([few, ..], [theirs, ..]) = (ours.spreads.as_slice(), reference.spreads.as_slice()) {
            let what = format!("a process: {}, times faster than the reference", verb.name());
            goals.push(Goal::at_least(&what, 2.0, few.ratio(*theirs)));
        }
        goals.push(Goal::at_most(&format!("a process: {}, growth from {} to {}", verb.name(), HELD[0], HELD[1]), 1.3, ours.growth()));
    }
    goals.extend(ranges.iter().map(|r| Goal::at_most(&format!("2048 addresses {}, s", r.what), 2.0, r.spread.p50.as_secs_f64())));
    goals
}
