//! Where in a text a value stands: for messages about what was read from it.

use crate::object::same_key;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The line that it begins in; the first is 1.
    pub line: usize,
    /// The byte of the line that it begins with; the first is 1.
    pub column: usize,
    /// Its bytes in that line.
    pub len: usize,
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The key, in quotes; none for an element of a list, and for the outermost value.
    pub key: Option<Span>,
    /// The value. Of a list or an object only the bracket that opens it.
    pub value: Span,
    /// Whether it is what the path names; else it is the innermost object or list around it, which lacks the rest of the path.
    pub is_whole: bool,
}

/// A value's bytes in the text.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
}

/// Finds what a path such as `ipam.ranges[0][1].subnet` or `sysctl["net.core.somaxconn"]` names, by Go's rules for keys: their case does
/// not matter, and the last that is not `null` counts. `text` is JSON that [`crate::parse`] has read; of anything else the answer is
/// of no use. `None` if there is no value at all.
pub fn locate(text: &str, path: &str) -> Option<Located> {
    let bytes = text.as_bytes();
    let mut at = value(bytes, blank(bytes, 0))?;
    let mut key = None;
    let mut rest = path;
    while !rest.is_empty() {
        let Some((member_key, found, left)) = step(text, at, rest) else { break };
        (key, at, rest) = (member_key, found, left);
    }
    let key = key.map(|range| span(text, range));
    Some(Located { key, value: span(text, opening(bytes, at)), is_whole: rest.is_empty() })
}

/// One step along a path: the key, the value, and the rest of the path.
fn step<'p>(text: &str, at: Range, path: &'p str) -> Option<(Option<Range>, Range, &'p str)> {
    let bytes = text.as_bytes();
    match bytes.get(at.start)? {
        b'{' => {
            let mut best: Option<(Range, Range, &str, bool)> = None;
            for (key, value) in Members::of(bytes, at.start) {
                let Some(rest) = after_key(path, &name(text, key)?) else { continue };
                let is_null = bytes.get(value.start) == Some(&b'n');
                // A key may have dots itself: the longest one fits best.
                let is_better = best
                    .is_none_or(|(_, _, other, was_null)| rest.len() < other.len() || rest.len() == other.len() && (!is_null || was_null));
                if is_better {
                    best = Some((key, value, rest, is_null));
                }
            }
            best.map(|(key, value, rest, _)| (Some(key), value, rest))
        }
        b'[' => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let value = Elements::of(bytes, at.start).nth(index.parse().ok()?)?;
            Some((None, value, rest.strip_prefix('.').unwrap_or(rest)))
        }
        _ => None,
    }
}

/// What follows a key in a path such as `ipam.subnet`, if the path begins with it; the case does not matter.
pub fn after_key<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let quoted = format!("[{key:?}]");
    let rest = match path.strip_prefix(&quoted) {
        Some(rest) => rest,
        None => {
            let (head, rest) = (path.get(..key.len())?, path.get(key.len()..)?);
            if !same_key(head, key) || !(rest.is_empty() || rest.starts_with(['.', '['])) {
                return None;
            }
            rest
        }
    };
    Some(rest.strip_prefix('.').unwrap_or(rest))
}

/// A key as it reads.
fn name(text: &str, key: Range) -> Option<String> {
    serde_json::from_str(text.get(key.start..key.end)?).ok()
}

fn blank(bytes: &[u8], from: usize) -> usize {
    from + bytes.iter().skip(from).take_while(|b| b.is_ascii_whitespace()).count()
}

/// The value that begins at a place.
fn value(bytes: &[u8], start: usize) -> Option<Range> {
    let end = match bytes.get(start)? {
        b'"' => string_end(bytes, start)?,
        b'{' | b'[' => {
            let (mut depth, mut at) = (0usize, start);
            loop {
                match bytes.get(at)? {
                    b'"' => at = string_end(bytes, at)?,
                    b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
                    b'}' | b']' => (depth, at) = (depth - 1, at + 1),
                    _ => at += 1,
                }
                if depth == 0 {
                    break at;
                }
            }
        }
        _ => start + bytes.iter().skip(start).take_while(|b| !b.is_ascii_whitespace() && !matches!(b, b',' | b'}' | b']')).count(),
    };
    Some(Range { start, end })
}

fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// What is shown of a value.
fn opening(bytes: &[u8], at: Range) -> Range {
    match bytes.get(at.start) {
        Some(b'{' | b'[') => Range { start: at.start, end: at.start + 1 },
        _ => at,
    }
}

fn span(text: &str, range: Range) -> Span {
    let before = text.get(..range.start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Span { line: before.matches('\n').count() + 1, column: range.start - line_start + 1, len: range.end.saturating_sub(range.start) }
}

/// The members of an object: keys and values.
struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    fn of(bytes: &'a [u8], start: usize) -> Self {
        Members { bytes, at: start + 1 }
    }
}

impl Iterator for Members<'_> {
    type Item = (Range, Range);

    fn next(&mut self) -> Option<(Range, Range)> {
        let start = separated(self.bytes, self.at)?;
        let key = Range { start, end: string_end(self.bytes, start)? };
        let colon = blank(self.bytes, key.end);
        let value = value(self.bytes, blank(self.bytes, colon + 1))?;
        self.at = value.end;
        Some((key, value))
    }
}

/// The elements of a list.
struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Elements<'a> {
    fn of(bytes: &'a [u8], start: usize) -> Self {
        Elements { bytes, at: start + 1 }
    }
}

impl Iterator for Elements<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        let value = value(self.bytes, separated(self.bytes, self.at)?)?;
        self.at = value.end;
        Some(value)
    }
}

/// Where the next member or element begins; `None` at the end.
fn separated(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = blank(bytes, from);
    if bytes.get(at) == Some(&b',') {
        at = blank(bytes, at + 1);
    }
    (!matches!(bytes.get(at)?, b'}' | b']')).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "type": "bridge", "ipam": {"ranges": [[{"Subnet": "10.0.0.0/33"}], [ {} , {"é": 1, "subnet": "}\"]"}]]},
  "sysctl": {"net.core.x": "1", "net": {"core": 2}},
  "mtu": 1, "MTU": 2, "mtu": null
}"#;

    #[test]
    fn a_path_leads_to_a_place() {
        for (path, text, key) in [
            ("type", "\"bridge\"", Some("\"type\"")),
            ("ipam", "{", Some("\"ipam\"")),
            ("ipam.ranges[0][0].subnet", "\"10.0.0.0/33\"", Some("\"Subnet\"")),
            ("ipam.ranges[1][1].subnet", "\"}\\\"]\"", Some("\"subnet\"")),
            ("ipam.ranges[1][0]", "{", None),
            ("sysctl.net.core.x", "\"1\"", Some("\"net.core.x\"")),
            ("sysctl[\"net.core.x\"]", "\"1\"", Some("\"net.core.x\"")),
            ("sysctl.net.core", "2", Some("\"core\"")),
            ("mtu", "2", Some("\"MTU\"")),
            ("", "{", None),
        ] {
            let found = locate(TEXT, path).unwrap();
            let at = |span: Span| {
                let line = TEXT.lines().nth(span.line - 1).unwrap();
                line[span.column - 1..span.column - 1 + span.len].to_owned()
            };
            assert!(found.is_whole, "{path}");
            assert_eq!((at(found.value).as_str(), found.key.map(at).as_deref()), (text, key), "{path}");
        }
    }

    #[test]
    fn what_is_missing_is_told_of_what_lacks_it() {
        for (path, line, column) in
            [("ipam.ranges[0][0].gateway", 2, 42), ("ipam.subnet", 2, 29), ("vlan", 1, 1), ("ipam.ranges[7]", 2, 40)]
        {
            let found = locate(TEXT, path).unwrap();
            assert!(!found.is_whole, "{path}");
            assert_eq!((found.value.line, found.value.column), (line, column), "{path}");
        }
    }

    #[test]
    fn what_is_no_json_is_no_harm() {
        for text in ["", " ", "{", "{\"a", "{\"a\"", "{\"a\":", "[", "[1,", "\"\\", "}", "{]}", "{\"a\":{]}", "nul"] {
            for path in ["", "a", "a.b", "[0]", "[1].a", "a[", "[\"a\"]"] {
                let _ = locate(text, path);
            }
        }
    }
}
