//! What is wrong with manifests, as a compiler prints it.
//!
//! ```text
//!   lab.yaml:14:21: error: ipam.subnet: "10.0.0.0/33" is not a network: ...
//!      14 |       "subnet": "10.0.0.0/33"
//!         |                 ^^^^^^^^^^^^^
//!         = help: ...
//! ```

use std::fmt;

use anstyle::Style;
use lab::manifest::{Examined, Finding, FindingKind, ManifestError, Origin};
use serde::Serialize;
use unicode_width::UnicodeWidthChar;

use crate::output::{BAD, FAINT, ODD, TITLE};

/// Characters of a line that are shown: networks in one line are long.
const SHOWN: usize = 100;
/// Of these, how many are before the place.
const BEFORE: usize = 40;

/// One thing that is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnostic {
    pub(crate) severity: &'static str,
    file: String,
    /// 0: the file as a whole.
    line: usize,
    column: usize,
    /// Of the manifest; for a network's configuration followed by the key in it.
    pub(crate) field: String,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    help: String,
    #[serde(skip)]
    source: Option<String>,
    #[serde(skip)]
    width: usize,
}

/// Everything that is wrong, in the order of the files.
pub(crate) fn of(examined: &Examined) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = match &examined.manifests {
        Ok(manifests) => manifests.findings.iter().map(|finding| of_finding(finding, examined)).collect(),
        Err(e) => {
            let errors = e.errors.iter().map(|error| of_error(error, examined));
            errors.chain(e.findings.iter().map(|finding| of_finding(finding, examined))).collect()
        }
    };
    let mut files: Vec<String> = Vec::new();
    for diagnostic in &found {
        if !files.contains(&diagnostic.file) {
            files.push(diagnostic.file.clone());
        }
    }
    let place = |diagnostic: &Diagnostic| (files.iter().position(|file| *file == diagnostic.file), diagnostic.line, diagnostic.column);
    found.sort_by_key(place);
    found
}

fn of_error(error: &ManifestError, examined: &Examined) -> Diagnostic {
    let message = match error.field.as_str() {
        "" => error.problem.to_string(),
        field => format!("{field}: {}", error.problem),
    };
    new("error", &error.origin, 1, error.field.clone(), message, "", examined)
}

fn of_finding(finding: &Finding, examined: &Examined) -> Diagnostic {
    let severity = finding.severity().as_str();
    let (field, message) = match &finding.kind {
        // The message names the key.
        FindingKind::Checked(checked) => (format!("{} {}", finding.field, checked.path).trim_end().to_owned(), checked.message.clone()),
        kind if finding.field.is_empty() => (String::new(), kind.to_string()),
        kind => (finding.field.clone(), format!("{}: {kind}", finding.field)),
    };
    new(severity, &finding.origin, finding.width, field, message, finding.help(), examined)
}

fn new(severity: &'static str, at: &Origin, width: usize, field: String, message: String, help: &str, examined: &Examined) -> Diagnostic {
    let source = examined.line(at).map(str::to_owned);
    let (file, line, column) = (at.file.to_string(), at.line, at.column);
    Diagnostic { severity, file, line, column, field, message, help: help.to_owned(), source, width }
}

/// Prints them where a person looks for them while something else is on standard output.
pub(crate) fn print_to_stderr(found: &[Diagnostic]) {
    found.iter().for_each(|diagnostic| crate::output::eputln!("{diagnostic}"));
}

// === impl Diagnostic ===

impl Diagnostic {
    pub(crate) fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// `FILE:LINE:COLUMN`, as editors and terminals take it.
    pub(crate) fn place(&self) -> String {
        match self.line {
            0 => plain(&self.file),
            line => format!("{}:{line}:{}", plain(&self.file), self.column),
        }
    }

    /// Message and help.
    pub(crate) fn in_a_line(&self) -> String {
        let help = if self.help.is_empty() { String::new() } else { format!("; {}", self.help) };
        plain(&format!("{}{help}", self.message))
    }

    fn style(&self) -> Style {
        match self.severity {
            "error" => BAD.bold(),
            "warning" => ODD.bold(),
            _ => TITLE,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.style();
        write!(f, "{TITLE}{}:{TITLE:#} {style}{}:{style:#} {}", self.place(), self.severity, plain(&self.message))?;
        let margin = " ".repeat(self.line.to_string().len().max(4));
        if let Some((text, before, width)) = self.source.as_deref().map(|line| excerpt(line, self.column, self.width)) {
            write!(f, "\n{FAINT}{:>fill$} |{FAINT:#} {text}", self.line, fill = margin.len())?;
            write!(f, "\n{FAINT}{margin} |{FAINT:#} {}{style}{}{style:#}", " ".repeat(before), "^".repeat(width))?;
        }
        if !self.help.is_empty() {
            write!(f, "\n{FAINT}{margin} ={FAINT:#} help: {}", plain(&self.help))?;
        }
        Ok(())
    }
}

/// A part of a line with the place in it: the text, the columns before the place, and those of the place.
fn excerpt(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let place = column.saturating_sub(1);
    let total = line.chars().count();
    let start = if total <= SHOWN { 0 } else { place.saturating_sub(BEFORE) };
    let end = total.min(start + SHOWN);
    let shown = |from: usize, to: usize| plain(&line.chars().skip(from).take(to.saturating_sub(from)).collect::<String>());
    let columns = |text: &str| text.chars().filter_map(UnicodeWidthChar::width).sum::<usize>();
    let (head, tail) = (if start > 0 { "..." } else { "" }, if end < total { "..." } else { "" });
    let before = head.len() + columns(&shown(start, place.min(end)));
    let marked = columns(&shown(place.min(end), (place + width).min(end))).max(1);
    (format!("{head}{}{tail}", shown(start, end)), before, marked)
}

/// What came out of a file does not reach the terminal's control sequences.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '\t' => " ".to_owned(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_marked_in_its_line() {
        assert_eq!(excerpt("  a: \"b\"", 6, 3), ("  a: \"b\"".to_owned(), 5, 3));
        assert_eq!(excerpt("\ta: b", 5, 1), (" a: b".to_owned(), 4, 1));
        assert_eq!(excerpt("", 1, 4), (String::new(), 0, 1));
        assert_eq!(excerpt("日本: b", 5, 1), ("日本: b".to_owned(), 6, 1));
        let (text, before, width) = excerpt(&format!("{}x{}", "a".repeat(300), "b".repeat(300)), 301, 1);
        assert_eq!((text.len(), before, width), (SHOWN + 6, BEFORE + 3, 1));
        assert_eq!(text.get(before..=before), Some("x"));
    }
}
