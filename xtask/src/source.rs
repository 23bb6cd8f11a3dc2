//! The Rust sources of the tree, with code, texts and comments apart, and which of their lines are tests'.
//!
//! ```text
//!   crates/ bins/ tests/ ... --> Source { lines: code, comment, of a test?; texts: what stands in quotes }
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where sources are.
const FOLDERS: [&str; 6] = ["benches", "bins", "crates", "testbed", "tests", "xtask"];

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Below the root of the tree.
    pub(crate) path: PathBuf,
    pub(crate) lines: Vec<Line>,
    /// In the order of the file.
    pub(crate) texts: Vec<Text>,
}

/// One line of a file.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Without comments; of what stands in quotes, only the quotes.
    pub(crate) code: String,
    /// What its comment says, without the slashes.
    pub(crate) comment: Option<String>,
    /// Whether only tests are built from it.
    pub(crate) is_test: bool,
}

/// What stands in quotes, escapes as they are written.
#[derive(Debug)]
pub(crate) struct Text {
    /// The line where it begins, from 0.
    pub(crate) line: usize,
    /// What stands before it in the code of that line.
    pub(crate) before: String,
    pub(crate) content: String,
}

/// Every source of a tree, in the order of their names.
///
/// # Errors
/// What cannot be read.
pub(crate) fn all(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), root, &mut sources)?;
    }
    // A module that a file has for its tests alone is a file of tests, whatever its name.
    let modules: BTreeSet<PathBuf> = sources.iter().flat_map(modules_of_tests).collect();
    for source in sources.iter_mut().filter(|s| modules.contains(&s.path.with_extension(""))) {
        source.lines.iter_mut().for_each(|line| line.is_test = true);
    }
    Ok(sources)
}

fn collect(folder: &Path, root: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            // What cargo builds may lie here.
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, root, sources)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            sources.push(Source::read(path.strip_prefix(root).unwrap_or(&path), &text));
        }
    }
    Ok(())
}

/// `mod samples;` under `#[cfg(test)]`: the paths of such modules, without their extension.
fn modules_of_tests(source: &Source) -> Vec<PathBuf> {
    let own = ["lib", "main", "mod"].iter().any(|stem| source.path.file_stem().is_some_and(|s| s == *stem));
    let folder = if own { source.path.with_file_name("") } else { source.path.with_extension("") };
    let names = source.lines.iter().filter(|line| line.is_test).filter_map(|line| {
        let (_, after) = line.code.split_once("mod ")?;
        after.trim_end().strip_suffix(';')
    });
    names.flat_map(|name| [folder.join(name), folder.join(name).join("mod")]).collect()
}

// === impl Source ===

impl Source {
    /// From what a file contains.
    pub(crate) fn read(path: &Path, text: &str) -> Self {
        let mut reader = Reader::default();
        reader.read(text);
        let mut source = Source { path: path.to_owned(), lines: reader.lines, texts: reader.texts };
        if is_file_of_tests(path) {
            source.lines.iter_mut().for_each(|line| line.is_test = true);
        } else {
            source.mark_items_of_tests();
        }
        source
    }

    /// What a person calls the part of the tree that it is in: `tests/agent`, `crates/linux`, `testbed`.
    pub(crate) fn subject(&self) -> String {
        let parts: Vec<_> = self.path.iter().map(|part| part.to_string_lossy()).collect();
        match parts.as_slice() {
            [top, name, _, ..] if ["bins", "crates", "tests"].contains(&top.as_ref()) => format!("{top}/{name}"),
            [top, ..] => top.to_string(),
            [] => String::new(),
        }
    }

    /// From each `#[cfg(test)]` to the end of what it stands above.
    fn mark_items_of_tests(&mut self) {
        let mut open: Option<i32> = None;
        for line in &mut self.lines {
            let mut rest = line.code.as_str();
            if open.is_none() {
                let Some(at) = line.code.find("#[cfg(").filter(|at| names_test(&line.code[*at..])) else { continue };
                rest = line.code[at..].split_once(']').map_or("", |(_, after)| after);
                open = Some(0);
            }
            line.is_test = true;
            for c in rest.chars() {
                let Some(depth) = open.as_mut() else { break };
                *depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
                if *depth < 0 || *depth == 0 && (c == '}' || c == ';') {
                    open = None;
                }
            }
        }
    }
}

/// Whether a file is a test's by its place or its name.
fn is_file_of_tests(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.starts_with("testbed") || path.iter().any(|part| part == "tests") || stem.starts_with("tests") || stem.ends_with("_tests")
}

/// Whether `#[cfg(...)]` is about tests, as `test` and `any(fuzzing, test)` are; `not(test)` is not.
fn names_test(attribute: &str) -> bool {
    let condition = attribute.split(']').next().unwrap_or_default();
    !condition.contains("not(") && words(condition).any(|(_, word)| word == "test")
}

/// The words of a line of code, and where each begins.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let start = move |(at, _): &(usize, char)| !code[..*at].ends_with(is_of_word);
    let whole = move |(at, _)| (at, code[at..].split(|c| !is_of_word(c)).next().unwrap_or_default());
    code.char_indices().filter(move |(_, c)| is_of_word(*c)).filter(start).map(whole)
}

/// Takes a file apart, character by character.
#[derive(Default)]
struct Reader {
    lines: Vec<Line>,
    texts: Vec<Text>,
    line: Line,
}

// === impl Reader ===

impl Reader {
    fn read(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let length = match c {
                '/' if rest.starts_with("//") => self.line_comment(rest),
                '/' if rest.starts_with("/*") => self.block_comment(rest),
                '"' => self.text(rest, 1, "\"", true),
                'r' if !self.line.code.ends_with(|c: char| c.is_alphanumeric() || c == '_') || self.is_after_byte() => self.raw(rest),
                '\'' => self.quote(rest),
                _ => self.code(c),
            };
            rest = &rest[length..];
        }
        self.end_line();
    }

    /// `br"..."` begins as a word does.
    fn is_after_byte(&self) -> bool {
        let code = &self.line.code;
        code.strip_suffix('b').is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    }

    fn code(&mut self, c: char) -> usize {
        if c == '\n' {
            self.end_line();
        } else {
            self.line.code.push(c);
        }
        c.len_utf8()
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }

    fn line_comment(&mut self, rest: &str) -> usize {
        let comment = rest.lines().next().unwrap_or_default();
        self.line.comment = Some(comment.trim_start_matches(['/', '!']).trim().to_owned());
        comment.len()
    }

    fn block_comment(&mut self, rest: &str) -> usize {
        let (mut depth, mut length) = (0, 0);
        loop {
            let here = &rest[length..];
            depth += i32::from(here.starts_with("/*")) - i32::from(here.starts_with("*/"));
            let Some(c) = here.chars().next() else { break length };
            if here.starts_with("/*") || here.starts_with("*/") {
                length += 2;
            } else {
                if c == '\n' {
                    self.end_line();
                }
                length += c.len_utf8();
            }
            if depth == 0 {
                break length;
            }
        }
    }

    /// A text whose content begins after `opening` bytes, and ends at `closing`.
    fn text(&mut self, rest: &str, opening: usize, closing: &str, escapes: bool) -> usize {
        let inside = &rest[opening..];
        let mut is_escaped = false;
        let end = inside.char_indices().find(|(at, c)| {
            let is_end = !is_escaped && inside[*at..].starts_with(closing);
            is_escaped = escapes && !is_escaped && *c == '\\';
            is_end
        });
        let content = &inside[..end.map_or(inside.len(), |(at, _)| at)];
        self.texts.push(Text { line: self.lines.len(), before: self.line.code.clone(), content: content.to_owned() });
        self.line.code.push('"');
        for _ in content.matches('\n') {
            self.end_line();
        }
        self.line.code.push('"');
        rest.len().min(opening + content.len() + closing.len())
    }

    /// `r"..."`, `r#"..."#`, or only the letter; `r#type` is a word.
    fn raw(&mut self, rest: &str) -> usize {
        let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
        if rest[1 + hashes..].starts_with('"') {
            self.text(rest, 2 + hashes, &format!("\"{}", "#".repeat(hashes)), false)
        } else {
            self.code('r')
        }
    }

    /// A character, as `'"'` and `'\''`, else the beginning of a lifetime.
    fn quote(&mut self, rest: &str) -> usize {
        let mut chars = rest.char_indices().skip(1);
        let is_escape = chars.next().is_some_and(|(_, c)| c == '\\');
        if is_escape {
            chars.next();
        }
        let end = if is_escape { chars.find(|(_, c)| *c == '\'') } else { chars.next().filter(|(_, c)| *c == '\'') };
        self.line.code.push_str(if end.is_some() { "''" } else { "'" });
        end.map_or(1, |(at, _)| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read(Path::new("crates/a/src/lib.rs"), text)
    }

    fn codes(text: &str) -> Vec<String> {
        read(text).lines.into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn code_texts_and_comments_are_told_apart() {
        let source = read("let a = \"x // y\"; // why: \"z\"\n/* a\n/* b */ \" */ c('\"', '\\'', 'x', &'a b)");
        assert_eq!(source.lines[0].code, "let a = \"\"; ");
        assert_eq!(source.lines[0].comment.as_deref(), Some("why: \"z\""));
        assert_eq!(source.lines[2].code, " c('', '', '', &'a b)");
        let texts: Vec<_> = source.texts.iter().map(|t| (t.line, t.before.as_str(), t.content.as_str())).collect();
        assert_eq!(texts, [(0, "let a = ", "x // y")]);
    }

    #[test]
    fn texts_end_where_rust_ends_them() {
        assert_eq!(codes(r#"f("a\"b\\", c)"#), [r#"f("", c)"#]);
        assert_eq!(codes("f(r#\"a\"b\\\"#, br\"\\\", r, r#type, for\"x\")"), ["f(\"\", b\"\", r, r#type, for\"\")"]);
        assert_eq!(codes("f(\"a\nb\", c)"), ["f(\"", "\", c)"]);
        assert_eq!(read("f(\"a\nb\", \"c\")").texts[1].line, 1);
    }

    #[test]
    fn an_item_of_tests_ends_with_its_bracket() {
        let is_test = |text: &str| read(text).lines.iter().map(|line| line.is_test).collect::<Vec<_>>();
        assert_eq!(is_test("a();\n#[cfg(test)]\nmod tests {\n    f(\"}\");\n}\nb();"), [false, true, true, true, true, false]);
        assert_eq!(is_test("#[cfg(test)]\nmod x;\nb();"), [true, true, false]);
        assert_eq!(is_test("#[cfg(any(fuzzing, test))]\npub mod x {\n}\nb();"), [true, true, true, false]);
        assert_eq!(is_test("#[cfg(not(test))]\nb();\n#[cfg(feature = \"test\")]\nc();"), [false; 4]);
    }

    #[test]
    fn a_file_of_tests_is_known_by_its_place_or_its_name() {
        for path in
            ["tests/agent/main.rs", "crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/src/b_tests.rs", "testbed/src/den.rs"]
        {
            assert!(is_file_of_tests(Path::new(path)), "{path}");
        }
        assert!(!is_file_of_tests(Path::new("crates/a/src/latest.rs")));
        let source = read("#[cfg(test)]\nmod samples;\nmod other;");
        assert_eq!(modules_of_tests(&source), [Path::new("crates/a/src/samples"), Path::new("crates/a/src/samples/mod")]);
    }

    #[test]
    fn a_subject_is_a_crate_or_a_folder_of_tests() {
        let subject = |path: &str| Source::read(Path::new(path), "").subject();
        assert_eq!(["crates/a/src/b/c.rs", "tests/agent/main.rs", "testbed/src/x.rs"].map(subject), ["crates/a", "tests/agent", "testbed"]);
    }
}
