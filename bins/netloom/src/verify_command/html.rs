//! For a browser: one page without scripts.

use std::fmt::Write as _;

use probe::Failure;

use super::markup::escaped;
use super::{Kind, Run, State, how_passed, reasons};
use crate::lab_command::shown;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}\
    table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid #d8dee4}\
    .passed td:first-child{color:#1a7f37}.failed td:first-child{color:#cf222e;font-weight:600}.skipped{color:#6e7781}\
    dl{margin:.3rem 0;padding:.5rem .8rem;border-left:3px solid #cf222e;background:#fff5f5}dt{font-weight:600}dd{margin:0}\
    code{font:13px ui-monospace,monospace}\
    @media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}dl{background:#25171c}}";

pub(super) fn text(run: &Run<'_>) -> String {
    let name = escaped(run.name);
    let title = match run.kind {
        Kind::Lab => "Lab",
        Kind::Cluster => "Cluster",
        Kind::File => "File",
    };
    let (passed, failed, skipped) = (run.count(State::Passed), run.count(State::Failed), run.count(State::Skipped));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
        <title>netloom verify: {name}</title><style>{STYLE}</style>\n<h1>{title} {name}</h1>\n\
        <p>{passed} passed, {failed} failed, {skipped} skipped, in {}</p>\n\
        <table><thead><tr><th>State<th>Case<th>What<th>Result</thead><tbody>\n",
        shown(run.took)
    );
    for result in run.results {
        let state = State::of(result);
        let how = match state {
            State::Passed => escaped(&how_passed(result)),
            State::Skipped => escaped(&reasons(result)),
            State::Failed => result.failures.iter().map(failure).collect(),
        };
        let (state, id, words) = (state.text(), result.case.id, escaped(result.case.words));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "<tr class=\"{state}\"><td>{state}<td>{id}<td>{words}<td>{how}");
    }
    text + "</tbody></table>\n</html>\n"
}

fn failure(failure: &Failure) -> String {
    let (check, finding) = (&failure.check, &failure.finding);
    format!(
        "<dl><dt>{}: {}</dt><dd>{}</dd><dd><code>{}</code></dd><dd>{} to {} over {}: {}</dd></dl>",
        escaped(&finding.at()),
        escaped(finding.fault.title()),
        escaped(&finding.evidence),
        escaped(&finding.next_step),
        escaped(&check.from.to_string()),
        escaped(&check.whom()),
        check.protocol,
        escaped(&failure.said)
    )
}
