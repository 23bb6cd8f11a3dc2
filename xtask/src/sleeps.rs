//! A test that sleeps is slow on a fast machine and wrong on a slow one: each sleep has its reason beside it.
//!
//! ```text
//!   lines of tests --> sleep(...), sleep_until(...), a shell's `sleep 0.1` --> those without `// Sleeps: REASON`
//! ```
//!
//! A process that sleeps for a minute or longer is one that lives until somebody kills it: nobody waits for that, and it
//! needs no reason.

use std::path::PathBuf;

use crate::source::{Source, Text, words};

/// What a comment begins with that gives the reason.
const REASON: &str = "Sleeps: ";

/// What a person does about a sleep that has none.
pub(crate) const ADVICE: &str = "A test that waits for a fact looks for it: `until(\"the link is up\", || ...)`, of netloom_tests in tests/.\n\
    Where nothing but time will do, say why on the line above:\n    \
    // Sleeps: an entry ages by the kernel's clock, which nobody can turn.";

/// Seconds from which on a process only lives, and nobody waits for its end.
const LIVES: f64 = 60.0;

/// One sleep of a test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub(crate) path: PathBuf,
    /// From 1, as editors count.
    pub(crate) line: usize,
    pub(crate) has_reason: bool,
}

/// Every sleep in the tests of a file.
pub(crate) fn sleeps(source: &Source) -> Vec<Sleep> {
    let sleep = |line: usize, has_reason: bool| Sleep { path: source.path.clone(), line: line + 1, has_reason };
    let calls = source.lines.iter().enumerate().filter(|(_, line)| line.is_test);
    let calls = calls.flat_map(|(at, line)| std::iter::repeat_n(at, calls_in(&line.code)));
    let mut found: Vec<Sleep> = calls.map(|at| sleep(at, has_reason(source, at))).collect();
    for (text, next) in source.texts.iter().zip(source.texts.iter().skip(1).map(Some).chain([None])) {
        if !source.lines.get(text.line).is_some_and(|line| line.is_test) {
            continue;
        }
        for offset in commands_in(text, next) {
            let line = text.line + text.content[..offset].matches('\n').count();
            found.push(sleep(line, has_reason(source, text.line) || shell_has_reason(&text.content, offset)));
        }
    }
    found.sort_by_key(|sleep| sleep.line);
    found
}

/// How many times a line of code calls one of the functions that sleep, or hands it over to be called.
fn calls_in(code: &str) -> usize {
    let is_import = code.trim_start().trim_start_matches("pub ").starts_with("use ");
    let is_call = |(at, word): &(usize, &str)| {
        let (before, after) = (&code[..*at], &code[at + word.len()..]);
        let is_path = before.ends_with("thread::") || before.ends_with("time::");
        ["sleep", "sleep_ms", "sleep_until"].contains(word)
            && (after.starts_with('(') || is_path)
            && !before.ends_with('.')
            && !before.ends_with("fn ")
    };
    if is_import { 0 } else { words(code).filter(is_call).count() }
}

/// Where a text runs the program `sleep`, or Python's function, and its end is waited for.
fn commands_in(text: &Text, next: Option<&Text>) -> Vec<usize> {
    let content = text.content.as_str();
    if content == "sleep" {
        // `Command::new("sleep").arg("60")`; what is only compared runs nothing.
        let time = next.filter(|next| next.line <= text.line + 1).and_then(|next| seconds(&next.content));
        let is_run = !text.before.trim_end().ends_with("==") && time.is_none_or(|time| time < LIVES);
        return if is_run { vec![0] } else { Vec::new() };
    }
    let run = words(content).filter(|(at, word)| {
        let after = content[at + word.len()..].trim_start_matches([' ', '(', ',', '"', '\\']);
        let is_variable = after.starts_with(['$', '{']);
        *word == "sleep" && !content[..*at].ends_with('-') && (is_variable || seconds(after).is_some_and(|time| time < LIVES))
    });
    run.map(|(at, _)| at).collect()
}

/// The time that a shell's words begin with, as `0.05`, `3000`, `5m`, `infinity`.
fn seconds(words: &str) -> Option<f64> {
    if words.starts_with("inf") {
        return Some(f64::INFINITY);
    }
    let end = words.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(words.len());
    let unit = match words[end..].chars().next() {
        Some('m') => 60.0,
        Some('h') => 3600.0,
        Some('d') => 86400.0,
        _ => 1.0,
    };
    Some(words[..end].parse::<f64>().ok()? * unit)
}

/// Whether the reason stands on the line, or among the comments directly above it.
fn has_reason(source: &Source, line: usize) -> bool {
    let above = source.lines.iter().take(line).rev().take_while(|line| line.comment.is_some() && line.code.trim().is_empty());
    let comments = source.lines.get(line).into_iter().chain(above).filter_map(|line| line.comment.as_deref());
    comments.into_iter().any(gives_reason)
}

/// The same in a script, whose comments begin with `#`.
fn shell_has_reason(script: &str, offset: usize) -> bool {
    let lines: Vec<&str> = script.lines().collect();
    let line = script[..offset].matches('\n').count();
    let above = lines.iter().take(line).rev().take_while(|line| line.trim_start().starts_with('#'));
    let comments = lines.get(line).into_iter().chain(above).filter_map(|line| line.split_once("# "));
    comments.into_iter().any(|(_, comment)| gives_reason(comment))
}

fn gives_reason(comment: &str) -> bool {
    comment.strip_prefix(REASON).is_some_and(|reason| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Each sleep of a test's source: its line, and whether it has a reason.
    fn found(text: &str) -> Vec<(usize, bool)> {
        sleeps(&Source::read(Path::new("tests/a/b.rs"), text)).iter().map(|s| (s.line, s.has_reason)).collect()
    }

    fn has_sleep(text: &str) -> bool {
        !found(text).is_empty()
    }

    #[test]
    fn every_way_to_sleep_is_found() {
        // Sleeps: nobody. These lines are only read.
        let ways = r#"std::thread::sleep(TIME);
            tokio::time::sleep(TIME).await;
            sleep_until(end).await;
            Err(_) => sleep(PAUSE),
            times.for_each(std::thread::sleep);
            run("sh", &["-c", "while :; do sleep 0.1; done"]);
            run("time.sleep(0.04)");
            run("sleep $time");
            run(&format!("sleep {time}"));
            Command::new("sleep").arg("1");
            args(["sleep", &time]);"#;
        for text in ways.lines() {
            assert!(has_sleep(text), "{text}");
        }
    }

    #[test]
    fn what_does_not_sleep_is_left_alone() {
        for text in [
            "use std::thread::sleep;",
            "fn sleep(time: Duration) {}",
            "clock.sleep(time);",
            "let sleep = 1; asleep(); sleeps();",
            "// std::thread::sleep(TIME)",
            "run(\"std::thread::sleep(TIME)\");",
            "says(\"sleep_for_race: 3, sleeps 3, no-sleep 3, /bin/sleep\");",
            "assert!(comm == \"sleep\");",
            // They live until they are killed.
            "run(\"exec sleep 60; sleep infinity; sleep 5m\");",
            "Command::new(\"sleep\")\n    .arg(\"600\");",
            "json!([\"sleep\", \"1000000\"]);",
        ] {
            assert!(!has_sleep(text), "{text}");
        }
    }

    #[test]
    fn a_reason_stands_on_the_line_or_directly_above() {
        assert_eq!(found("// Sleeps: why\nsleep(A);\nsleep(B); // Sleeps: why\nsleep(C);"), [(2, true), (3, true), (4, false)]);
        assert_eq!(found("// Sleeps: a reason\n// of two lines.\nsleep(A);\n"), [(3, true)]);
        assert_eq!(found("// Sleeps: why\n\nsleep(A);\n// Sleeps:\nsleep(B);\n// why\nsleep(C);"), [(3, false), (5, false), (7, false)]);
        assert_eq!(found("f(); // Sleeps: of another line\nsleep(A);"), [(2, false)]);
    }

    #[test]
    fn a_script_has_its_reason_above_it_or_inside() {
        assert_eq!(found("// Sleeps: why\nrun(\"a\nsleep 1\nsleep 2\");"), [(3, true), (4, true)]);
        assert_eq!(found("run(\"a\n# Sleeps: why\nsleep 1\nsleep 2 # Sleeps: why\nsleep 3\");"), [(3, true), (4, true), (5, false)]);
    }

    #[test]
    fn only_tests_need_a_reason() {
        let of_product = Source::read(Path::new("crates/a/src/b.rs"), "sleep(A);\n#[cfg(test)]\nmod tests {\n    sleep(B);\n}\nsleep(C);");
        assert_eq!(sleeps(&of_product), [Sleep { path: "crates/a/src/b.rs".into(), line: 4, has_reason: false }]);
    }
}
