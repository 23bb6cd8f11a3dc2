//! What the released executables can say: every text in their sources that a person may read.
//!
//! ```text
//!   source::all (bins, crates; without tests) --> texts of several words, texts of errors --> file:line  message
//! ```
//!
//! Which texts are printed is not decided by who prints them, but by what they look like: an error's text often passes through
//! several functions before it is shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::source::{Source, Text};

/// One message, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) path: PathBuf,
    /// From 1.
    pub(crate) line: usize,
    /// In one line.
    pub(crate) text: String,
}

/// Macros and attributes whose text is shown even if it is a single word.
const SHOWN: [&str; 10] = ["#[error(", "bail!(", "anyhow!(", "context(", "println!(", "putln!(", "print!(", "warn(", "info(", "error("];
/// What is compiled in and shown to nobody.
const HIDDEN: [&str; 9] =
    ["reason =", "include_str!", "crash_point!(", "#[doc", "#[cfg", "unreachable!(", "debug_assert", "env!(", "concat!("];

/// The messages of a source that is released.
pub(crate) fn of(source: &Source) -> Vec<Message> {
    if !(source.path.starts_with("bins") || source.path.starts_with("crates")) {
        return Vec::new();
    }
    let is_test = |text: &&Text| source.lines.get(text.line).is_none_or(|line| line.is_test);
    let texts = source.texts.iter().filter(|text| !is_test(text) && is_message(text));
    texts.map(|text| Message { path: source.path.clone(), line: text.line + 1, text: joined(&text.content) }).collect()
}

/// How many messages each part of the tree has, and all together.
pub(crate) fn count(sources: &[Source]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        *counts.entry(source.subject()).or_default() += of(source).len();
    }
    counts.retain(|_, count| *count > 0);
    let width = counts.keys().map(String::len).max().unwrap_or(0);
    let total = counts.values().sum();
    let rows = counts.iter().map(|(subject, count)| (subject.as_str(), *count)).chain([("total", total)]);
    rows.map(|(subject, count)| format!("{subject:width$}  {count:>5}\n")).collect()
}

fn is_message(text: &Text) -> bool {
    let before = text.before.trim_start();
    if HIDDEN.iter().any(|hidden| before.contains(hidden)) || text.content.trim_start().starts_with('<') {
        return false;
    }
    let words = text.content.split_whitespace().filter(|word| is_word(word)).count();
    let is_shown = SHOWN.iter().any(|shown| before.ends_with(shown));
    words >= 2 || words == 1 && is_shown
}

/// A word of a language, with the punctuation around it.
fn is_word(word: &str) -> bool {
    let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
    word.len() >= 2 && word.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '\'')
}

/// A text of several lines as the compiler joins them.
fn joined(content: &str) -> String {
    let mut lines = content.split('\n');
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        match text.strip_suffix('\\') {
            Some(before) => text = before.to_owned() + line.trim_start(),
            None => text = text + "\\n" + line,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        of(&Source::read(Path::new(path), text)).into_iter().map(|m| (m.line, m.text)).collect()
    }

    #[test]
    fn sentences_are_messages_and_names_are_not() {
        let text = "#[error(\"unreadable\")]\nlet a = \"cannot read {path}\";\nlet b = \"eth0\";\nlet c = \"10 {x} {y}\";\nbail!(\"a \\\n     b\");";
        assert_eq!(found("crates/a/src/lib.rs", text), [(1, "unreadable".to_owned()), (2, "cannot read {path}".to_owned())]);
        assert_eq!(found("bins/a/src/main.rs", "f(\"one \\\n   two\")"), [(1, "one two".to_owned())]);
    }

    #[test]
    fn tests_and_reasons_say_nothing_to_users() {
        assert_eq!(found("tests/a/main.rs", "f(\"cannot read it\")"), []);
        assert_eq!(found("crates/a/src/lib.rs", "#![allow(x, reason = \"a test fails\")]\n#[cfg(test)]\nmod t { f(\"of a test\"); }"), []);
    }
}
