//! How many tests and assertions each part of the tree has, so that tests can be moved and nobody wonders what was lost.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde_json::{Value, json};

use crate::source::{Source, words};

/// What was counted in a part of the tree.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// Functions with `#[test]` or `#[tokio::test]`, ignored ones too.
    tests: usize,
    /// Those that run only when they are asked for.
    ignored: usize,
    /// Calls of `assert...!`, `prop_assert...!` and `panic!` in what only tests are built from.
    assertions: usize,
}

/// What each part of the tree has, by its name; parts with nothing are left out.
pub(crate) fn count(sources: &[Source]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for source in sources {
        let of_source = counts.entry(source.subject()).or_default();
        for line in source.lines.iter().filter(|line| line.is_test) {
            *of_source += count_line(&line.code);
        }
    }
    counts.retain(|_, count| *count != Count::default());
    counts
}

fn count_line(code: &str) -> Count {
    let attribute = code.trim_start();
    let is_test = ["#[test]", "#[tokio::test]", "#[tokio::test("].iter().any(|a| attribute.starts_with(a));
    let is_assertion = |(at, word): &(usize, &str)| {
        let is_macro = code[at + word.len()..].starts_with('!') && !code[at + word.len()..].starts_with("!=");
        is_macro && (word.starts_with("assert") || word.starts_with("prop_assert") || word.starts_with("debug_assert") || *word == "panic")
    };
    Count {
        tests: usize::from(is_test),
        ignored: usize::from(attribute.starts_with("#[ignore")),
        assertions: words(code).filter(is_assertion).count(),
    }
}

/// For a person.
pub(crate) fn table(counts: &BTreeMap<String, Count>) -> String {
    let total = ("total".to_owned(), total(counts));
    let rows = counts.iter().chain([(&total.0, &total.1)]);
    let width = counts.keys().map(String::len).max().unwrap_or(0).max("subject".len());
    let row = |(subject, count): (&String, &Count)| {
        format!("{subject:width$}  {:>5}  {:>7}  {:>10}\n", count.tests, count.ignored, count.assertions)
    };
    format!("{:width$}  {:>5}  {:>7}  {:>10}\n", "subject", "tests", "ignored", "assertions") + &rows.map(row).collect::<String>()
}

/// For a program.
pub(crate) fn json(counts: &BTreeMap<String, Count>) -> Value {
    let object = |count: &Count| json!({"tests": count.tests, "ignored": count.ignored, "assertions": count.assertions});
    let subjects: serde_json::Map<String, Value> = counts.iter().map(|(subject, count)| (subject.clone(), object(count))).collect();
    json!({"subjects": subjects, "total": object(&total(counts))})
}

fn total(counts: &BTreeMap<String, Count>) -> Count {
    counts.values().fold(Count::default(), |mut total, count| {
        total += *count;
        total
    })
}

// === impl Count ===

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.tests += more.tests;
        self.ignored += more.ignored;
        self.assertions += more.assertions;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_only_tests_are_built_from_is_counted() {
        let source = |path: &str, text: &str| Source::read(Path::new(path), text);
        let counts = count(&[
            source("tests/a/one.rs", "#[test]\n#[ignore = \"slow\"]\nfn x() {\n    assert!(a); assert_eq!(b, \"assert!\");\n}\n"),
            source(
                "tests/a/two.rs",
                "#[tokio::test(start_paused = true)]\nasync fn y() {\n    prop_assert_ne!(a, b);\n    // assert!(c)\n}",
            ),
            source("crates/b/src/lib.rs", "assert!(a);\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn z() { panic!(\"a\"); }\n}\n"),
            source("crates/c/src/lib.rs", "assert!(a);"),
        ]);
        let (a, b) = (Count { tests: 2, ignored: 1, assertions: 3 }, Count { tests: 1, ignored: 0, assertions: 1 });
        assert_eq!(counts, BTreeMap::from([("tests/a".to_owned(), a), ("crates/b".to_owned(), b)]));
        assert_eq!(json(&counts)["total"], json!({"tests": 3, "ignored": 1, "assertions": 4}));
        assert_eq!(
            table(&counts),
            "subject   tests  ignored  assertions\ncrates/b      1        0           1\n\
             tests/a       2        1           3\ntotal         3        1           4\n"
        );
    }
}
