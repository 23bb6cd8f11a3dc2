//! For a person: a line for each case while it runs, then each kind of failure once, with its hop.

use std::collections::BTreeMap;

use probe::{CaseResult, Failure};
use unicode_width::UnicodeWidthStr;
use verify::{CASES, Finding};

use super::{Run, State, how_passed, reasons};
use crate::lab_command::shown;
use crate::output::{BAD, FAINT, GOOD, ODD, TITLE, counted, put, putln};
use crate::page::{Hang, Look, Page};
use crate::terminal::plain;

/// Causes that are shown.
const MOST_CAUSES: usize = 10;
/// Failed probes that are named of those with one cause, and different things that show it.
const MOST: usize = 3;

/// The line of a case that is done.
pub(super) fn case(result: &CaseResult) {
    let state = State::of(result);
    let style = match state {
        State::Passed => GOOD,
        State::Failed => BAD,
        State::Skipped => FAINT,
    };
    let width = |text: fn(&verify::Case) -> &'static str| CASES.iter().map(|case| text(case).width()).max().unwrap_or(0);
    let (ids, words) = (width(|case| case.id), width(|case| case.words));
    let how = match state {
        State::Passed => plain(&how_passed(result)).into_owned(),
        State::Failed => format!("{} of {} failed", result.failures.len(), counted(result.failures.len() + result.passed, "probe")),
        State::Skipped => plain(&reasons(result)).into_owned(),
    };
    putln!("{style}{:7}{style:#}  {:ids$}  {:words$}  {FAINT}{how}{FAINT:#}", state.text(), result.case.id, result.case.words);
}

/// What failed in one case.
pub(super) fn failures(result: &CaseResult) {
    explained(&result.failures.iter().map(|failure| (result.case.id, failure)).collect::<Vec<_>>());
}

/// What failed in all of them, and how many did.
pub(super) fn end(run: &Run<'_>) {
    let all = run.results.iter().flat_map(|result| result.failures.iter().map(|failure| (result.case.id, failure)));
    explained(&all.collect::<Vec<_>>());
    let (passed, failed, skipped) = (run.count(State::Passed), run.count(State::Failed), run.count(State::Skipped));
    let style = if failed > 0 { BAD } else { GOOD };
    putln!();
    putln!(
        "{style}{passed} passed, {failed} failed{style:#}, {FAINT}{skipped} skipped{FAINT:#}: {} \"{}\", in {}",
        run.kind,
        run.name,
        shown(run.took)
    );
}

/// Different texts, in the order in which they came.
fn each_once(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Each cause once: the place, what is wrong, what shows it, what to do, and the probes that met it.
fn explained(failures: &[(&str, &Failure)]) {
    let mut causes: BTreeMap<_, Vec<&(&str, &Failure)>> = BTreeMap::new();
    for failure in failures {
        let finding = &failure.1.finding;
        causes.entry((finding.fault, finding.at())).or_default().push(failure);
    }
    // The cause of most failures first.
    let mut causes: Vec<_> = causes.into_values().collect();
    causes.sort_by_key(|met| std::cmp::Reverse(met.len()));
    for met in causes.iter().take(MOST_CAUSES) {
        let Some((_, Failure { finding, .. })) = met.first() else { continue };
        putln!();
        putln!("{BAD}{}{BAD:#} {TITLE}{}{TITLE:#} {FAINT}{}{FAINT:#}", plain(&finding.at()), finding.fault.title(), finding.fault);
        let mut page = Page::new(Look::here());
        let hang = Hang { first: "  ", rest: "  " };
        // Several rules may drop packets at one place: to mend one is not enough.
        let shows = |finding: &Finding| format!("{}, on the way of the {}", finding.evidence, finding.direction);
        let whys = each_once(met.iter().map(|(_, failure)| shows(&failure.finding)));
        for why in whys.iter().take(MOST) {
            page.pair(hang, "why", 6, anstyle::Style::new(), why);
        }
        if let Some(more) = whys.len().checked_sub(MOST).filter(|more| *more > 0) {
            page.pair(hang, "", 6, FAINT, &format!("and {more} more such"));
        }
        for step in each_once(met.iter().map(|(_, failure)| failure.finding.next_step.clone())).iter().take(MOST) {
            page.pair(hang, "do", 6, ODD, step);
        }
        for (id, failure) in met.iter().take(MOST) {
            let check = &failure.check;
            let line = format!("{id}: {} to {} over {}: {}", check.from, check.whom(), check.protocol, failure.said);
            page.pair(hang, "case", 6, FAINT, &line);
        }
        if let Some(more) = met.len().checked_sub(MOST).filter(|more| *more > 0) {
            page.pair(hang, "", 6, FAINT, &format!("and {} more", counted(more, "probe")));
        }
        put!("{}", page.into_text());
    }
    if let Some(more) = causes.len().checked_sub(MOST_CAUSES).filter(|more| *more > 0) {
        putln!();
        putln!("{FAINT}{} more; all of them: -o json{FAINT:#}", counted(more, "cause"));
    }
}
