//! Where the documents of a text begin.

/// A part of a file's text that is one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentText<'a> {
    /// Its text, with the marker before it.
    pub text: &'a str,
    /// The lines of the file before it.
    pub lines_before: usize,
    /// The columns of its first line before it.
    pub columns_before: usize,
}

/// Splits where YAML's markers are. The parser could do that too, but would stop at the first document that is broken;
/// a line that begins with a marker is never part of a value (YAML 1.2, 9.1.2), so text suffices to find them.
pub fn documents(text: &str) -> Vec<DocumentText<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut offset, mut lines_before) = (0, 0, 0);
    let mut opened = false;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        if is_marker(line, "---") {
            if opened {
                parts.extend(text.get(start..offset).map(|text| DocumentText { text, lines_before, columns_before: 0 }));
                (start, lines_before) = (offset, number);
            }
            opened = true;
        } else if is_marker(line, "...") {
            if opened {
                parts.extend(text.get(start..end).map(|text| DocumentText { text, lines_before, columns_before: 0 }));
            }
            (start, lines_before, opened) = (end, number + 1, false);
        } else if (opened || !line.starts_with('%')) && !is_empty(line) {
            opened = true;
        }
        offset = end;
    }
    if opened {
        parts.extend(text.get(start..).map(|text| DocumentText { text, lines_before, columns_before: 0 }));
    }
    parts
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Only white space, or a comment.
fn is_empty(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(&str, usize)> {
        documents(text).into_iter().map(|p| (p.text, p.lines_before)).collect()
    }

    #[test]
    fn markers_split() {
        assert_eq!(texts(""), []);
        assert_eq!(texts("# only\n\n"), []);
        assert_eq!(texts("a: 1\n---\nb: 2\n"), [("a: 1\n", 0), ("---\nb: 2\n", 1)]);
        assert_eq!(texts("# c\n---\na: 1"), [("# c\n---\na: 1", 0)]);
        assert_eq!(texts("%YAML 1.2\n---\na: 1"), [("%YAML 1.2\n---\na: 1", 0)]);
        assert_eq!(texts("---\n---\r\na: 1"), [("---\n", 0), ("---\r\na: 1", 1)]);
        assert_eq!(texts("a: 1\n...\n# c\nb: 2\n"), [("a: 1\n...\n", 0), ("# c\nb: 2\n", 2)]);
        assert_eq!(texts("--- {a: 1}\n---x: 1\n"), [("--- {a: 1}\n---x: 1\n", 0)]);
        assert_eq!(texts("a: |\n  ---\n  b\n"), [("a: |\n  ---\n  b\n", 0)]);
    }
}
