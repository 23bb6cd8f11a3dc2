//! For a continuous-integration server: JUnit's XML, a `testcase` for each case.

use std::fmt::Write as _;

use super::{Run, State, reasons};

pub(super) fn text(run: &Run<'_>) -> String {
    let (tests, failed, skipped) = (run.results.len(), run.count(State::Failed), run.count(State::Skipped));
    let seconds = run.took.as_secs_f64();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"netloom verify {}\" tests=\"{tests}\" failures=\"{failed}\" \
        skipped=\"{skipped}\" errors=\"0\" time=\"{seconds:.3}\">\n",
        escaped(run.lab)
    );
    for result in run.results {
        let (id, words, seconds) = (result.case.id, escaped(result.case.words), result.took.as_secs_f64());
        // Writing to a string cannot fail.
        let _ = write!(text, "  <testcase classname=\"verify\" name=\"{id}: {words}\" time=\"{seconds:.3}\"");
        match State::of(result) {
            State::Passed => text.push_str("/>\n"),
            State::Skipped => {
                let _ = writeln!(text, "><skipped message=\"{}\"/></testcase>", escaped(&reasons(result)));
            }
            State::Failed => {
                text.push_str(">\n");
                for failure in &result.failures {
                    let (check, finding) = (&failure.check, &failure.finding);
                    let message = format!("{}: {}", finding.at(), finding.fault.title());
                    let body = format!("{} to {}: {}\n{finding}\n{}", check.from, check.whom(), failure.said, finding.next_step);
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

/// Text as XML and HTML have it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // What XML 1.0 cannot have.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}");
    }
}
