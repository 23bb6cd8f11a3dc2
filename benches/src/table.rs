//! Figures as aligned text.

use crate::anatomy::Stage;
use crate::backends;
use crate::costs::Costs;
use crate::crowd::Crowd;
use crate::figures::{Spread, ms};
use crate::network::Network;
use crate::plugins::Times;
use crate::ports::{Growth, PUBLISHED};
use crate::rounds::Figure;
use crate::scale::{HELD, ROUNDS, Scale};

/// One call at a time: `reference` says how many times as long the reference takes, `floor` how many times the floor's
/// time we take.
pub(crate) fn rounds(network: Network, rounds: usize, figures: &[Figure]) -> String {
    let mut text = format!("{}: {rounds} rounds, turn by turn, ms\n", network.name());
    text += &format!("{:8} {:^17} {:^17} {:^17}   {:>9} {:>7}\n", "", "netloom", "reference v1.9.1", "floor", "reference", "netloom");
    text += &row("", &["p50", "p99", "p50", "p99", "p50", "p99"], "/netloom", "/floor");
    for figure in figures {
        let cells: Vec<String> = figure.spreads.iter().flat_map(|s| [ms(s.p50), ms(s.p99)]).collect();
        let (reference, floor) = ratios(&figure.spreads);
        text += &row(figure.verb.name(), &cells, &format!("{reference:.1}x"), &format!("{floor:.2}x"));
    }
    text
}

/// Many at once: attachments a second.
pub(crate) fn crowds(rounds: usize, crowds: &[Crowd]) -> String {
    let mut text = format!("bridge + host-local, many callers at once: {rounds} rounds of 64, attachments a second by the median\n");
    text += &format!("{:16} {:>9} {:>16} {:>9}   {:>14}\n", "", "netloom", "reference v1.9.1", "floor", "netloom/floor");
    for crowd in crowds {
        let [ours, reference, floor] = crowd.spreads.as_slice() else { continue };
        let [ours, reference, floor] = [ours, reference, floor].map(|s| Crowd::a_second(*s));
        let name = format!("{:3} callers, {}", crowd.callers, crowd.verb.name());
        text += &format!("{name:16} {ours:>9.0} {reference:>16.0} {floor:>9.0}   {:>13.0}%\n", 100.0 * ours / floor);
    }
    text
}

/// Many addresses: milliseconds with a few held and with many.
pub(crate) fn scales(scales: &[Scale]) -> String {
    let held: String = HELD.map(|n| format!(" {n:>9}")).concat();
    let mut text = format!("host-local alone, ms at the median of {ROUNDS} rounds, addresses held:{held}     growth\n");
    for scale in scales {
        let times: String = scale.p50().into_iter().map(|time| format!(" {:>9}", ms(time))).collect();
        text += &format!("{:69}{times} {:>9.1}x\n", format!("{} {}", scale.name, scale.verb.name()), scale.growth());
    }
    text
}

/// Where an ADD's time goes, drawn.
pub(crate) fn stages(rounds: usize, stages: &[Stage]) -> String {
    let micros = |stage: &Stage| stage.spread.p50.as_secs_f64() * 1e6;
    let sum: f64 = stages.iter().map(micros).sum();
    let mut text = format!("where an ADD's time goes: bridge + host-local, {rounds} rounds, medians, us\n");
    for stage in stages {
        // One block for each hundredth.
        let length = (100.0 * micros(stage) / sum).round() as usize;
        text += format!("{:46} {:>6.0}  {}", stage.name, micros(stage), "█".repeat(length)).trim_end();
        text += "\n";
    }
    text + &format!("{:46} {sum:>6.0}\n", "")
}

/// Each plugin by itself.
pub(crate) fn plugins(rounds: usize, times: &[Times]) -> String {
    let mut text = format!("each plugin by itself: {rounds} rounds, turn by turn, ms\n");
    text += format!("{:12} {:^44}   {:^44}", "", "ADD", "DEL").trim_end();
    text += "\n";
    let head = format!("{:^17} {:^17} {:>8}", "netloom", "reference v1.9.1", "ratio");
    text += &format!("{:12} {head}   {head}\n", "");
    let head = format!("{:>8} {:>8} {:>8} {:>8} {:>8}", "p50", "p99", "p50", "p99", "");
    text += format!("{:12} {head}   {head}", "").trim_end();
    text += "\n";
    for (name, verbs) in times.iter().map(Times::row) {
        let cells = verbs.map(|[ours, reference]| {
            let times: String = [ours.p50, ours.p99, reference.p50, reference.p99].map(|t| format!("{:>8} ", ms(t))).concat();
            format!("{times}{:>7.1}x", ours.ratio(reference))
        });
        text += &format!("{name:12} {}\n", cells.join("   "));
    }
    text
}

/// Host ports and masquerading.
pub(crate) fn backends(rounds: usize, times: &[backends::Times]) -> String {
    let mut text = format!("host ports and masquerading: {rounds} rounds (with iptables a quarter of them), turn by turn, ms\n");
    text += &format!("{:17} {:^17} {:^17} {:^17}   {:>19}\n", "", "netloom", "reference", "reference", "reference/netloom");
    text += &format!("{:17} {:^17} {:^17} {:^17}   {:>9} {:>9}\n", "", "", "iptables", "nftables", "iptables", "nftables");
    for (name, spreads) in times.iter().flat_map(backends::Times::rows) {
        let cells: String = spreads.iter().flat_map(|s| [s.p50, s.p99]).map(|t| format!(" {:>8}", ms(t))).collect();
        let [ours, iptables, nftables] = spreads;
        text += &format!("{name:17}{cells}   {:>8.1}x {:>8.1}x\n", ours.ratio(iptables), ours.ratio(nftables));
    }
    text
}

/// One host port and many.
pub(crate) fn ports(growths: &[Growth]) -> String {
    let [few, many] = PUBLISHED;
    let mut text = format!("{:34} {few:>9} {many:>9}     growth\n", "host ports published; medians, us");
    for (name, medians, growth) in growths.iter().map(Growth::row) {
        let cells: String = medians.iter().map(|t| format!(" {:>9.1}", t.as_secs_f64() * 1e6)).collect();
        text += &format!("{name:34}{cells} {growth:>9.2}x\n");
    }
    text
}

/// What an ADD costs besides time.
pub(crate) fn costs(network: Network, costs: &[Costs]) -> String {
    let title = format!("{}, one ADD", network.name());
    let mut text = format!("{title:50} {:>9} {:>16} {:>9}\n", "netloom", "reference v1.9.1", "floor");
    let mut line = |name: &str, of: &dyn Fn(&Costs) -> Option<u64>| {
        let cells: Vec<String> = costs.iter().map(|c| of(c).map_or_else(|| "-".to_owned(), |n| n.to_string())).collect();
        if let [a, b, c] = cells.as_slice() {
            text += &format!("{name:50} {a:>9} {b:>16} {c:>9}\n");
        }
    };
    line("size of the executables, KiB", &|c| Some(c.size_kib));
    line("peak memory of a process, KiB", &|c| Some(c.peak_kib));
    line("instructions in user space, thousands", &|c| c.instructions.as_ref().ok().map(|n| n / 1000));
    line("system calls", &|c| c.system_calls.as_ref().ok().copied());
    let missing = costs.iter().flat_map(|c| [&c.instructions, &c.system_calls]).filter_map(|n| n.as_ref().err());
    missing.for_each(|why| text += &format!("  -: {why}\n"));
    text
}

fn row(name: &str, cells: &[impl AsRef<str>], reference: &str, floor: &str) -> String {
    let cells: String = cells.iter().map(|c| format!(" {:>8}", c.as_ref())).collect();
    format!("{name:8}{cells}   {reference:>9} {floor:>7}\n")
}

/// The reference's time by ours, ours by the floor's.
pub(crate) fn ratios(spreads: &[Spread]) -> (f64, f64) {
    match spreads {
        [ours, reference, floor] => (ours.ratio(*reference), floor.ratio(*ours)),
        _ => (f64::NAN, f64::NAN),
    }
}
