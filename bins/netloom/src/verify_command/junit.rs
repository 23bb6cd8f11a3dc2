//! For a continuous-integration server: JUnit's XML, a `testcase` for each case.

use std::fmt::Write as _;

use super::markup::escaped;
use super::{Run, State, how_passed, reasons};

pub(super) fn text(run: &Run<'_>) -> String {
    let (tests, failed, skipped) = (run.results.len(), run.count(State::Failed), run.count(State::Skipped));
    let seconds = run.took.as_secs_f64();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"netloom verify {}\" tests=\"{tests}\" failures=\"{failed}\" \
        skipped=\"{skipped}\" errors=\"0\" time=\"{seconds:.3}\">\n",
        escaped(run.name)
    );
    for result in run.results {
        let (id, words, seconds) = (result.case.id, escaped(result.case.words), result.took.as_secs_f64());
        // Writing to a string cannot fail.
        let _ = write!(text, "  <testcase classname=\"verify\" name=\"{id}: {words}\" time=\"{seconds:.3}\"");
        match State::of(result) {
            State::Passed if result.skipped.is_empty() => text.push_str("/>\n"),
            State::Passed => {
                let _ = writeln!(text, "><system-out>{}</system-out></testcase>", escaped(&how_passed(result)));
            }
            State::Skipped => {
                let _ = writeln!(text, "><skipped message=\"{}\"/></testcase>", escaped(&reasons(result)));
            }
            State::Failed => {
                text.push_str(">\n");
                for failure in &result.failures {
                    let (check, finding) = (&failure.check, &failure.finding);
                    let message = format!("{}: {}", finding.at(), finding.fault.title());
                    let body = format!(
                        "{} to {} over {}: {}\n{finding}\n{}",
                        check.from,
                        check.whom(),
                        check.protocol,
                        failure.said,
                        finding.next_step
                    );
                    let _ = writeln!(
                        text,
                        "    <failure type=\"{}\" message=\"{}\">{}</failure>",
                        finding.fault,
                        escaped(&message),
                        escaped(&body)
                    );
                }
                text.push_str("  </testcase>\n");
            }
        }
    }
    text + "</testsuite>\n"
}
