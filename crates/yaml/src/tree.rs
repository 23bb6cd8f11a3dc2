//! One document as a tree whose every value knows its place, and how its text becomes one.

use std::{fmt, io, panic, thread};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, NonFiniteFloatPolicy, Options, Spanned};

use crate::written::Written;
use crate::{Broken, Problem, shortened};

/// Values in one document at the most: more than a whole file has.
const MAX_NODES: usize = 1_000_000;
/// Values that aliases may add to a document at the most.
const MAX_REPLAYED: usize = 100_000;
/// Levels of lists and objects at the most: the schemas in real custom resource definitions reach 40.
const MAX_DEPTH: usize = 128;
/// Bytes of stack to read that many levels; a build without optimisation needs 5 MiB.
const STACK: usize = 32 << 20;

/// A value and its place. Lines and columns are those in the document; the first is 1.
#[derive(Debug)]
pub struct Node {
    /// Where it stands; for an alias, where the alias does.
    pub line: usize,
    /// The column there, in characters.
    pub column: usize,
    /// The byte of the document's text that it begins at; none for an alias.
    offset: Option<usize>,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// What YAML 1.1 takes for a boolean, as `kubectl` does.
    Bool(bool),
    /// A number, as it would be written in decimal.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// An object; no key is there twice.
    Object(Vec<(Key, Node)>),
}

/// A key of an object and its place.
#[derive(Debug)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Its line.
    pub line: usize,
    /// Its column.
    pub column: usize,
}

/// Does `work`, which calls [`parse`], on a thread whose stack is large enough for `MAX_DEPTH` levels. The caller's own
/// may be small, as that of a test or of a server's thread.
///
/// # Errors
/// There is no thread to be had.
pub fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("manifests".to_owned()).stack_size(STACK).spawn_scoped(scope, work)?;
        thread.join().or_else(|panic| panic::resume_unwind(panic))
    })
}

/// Reads one document; an empty one is [`Value::Null`]. Is called in [`with_room`].
///
/// # Errors
/// [`Broken`].
pub fn parse(text: &str) -> Result<Node, Box<Broken>> {
    let mut indented = None;
    // Each round indents one more line.
    for _ in 0..=text.lines().count() {
        let text = indented.as_deref().unwrap_or(text);
        let e = match serde_saphyr::from_str_with_options(text, options()) {
            Ok(node) => return Ok(node),
            Err(e) => e,
        };
        match indent(text, &e) {
            Some(deeper) => indented = Some(deeper),
            None => return Err(Box::new(broken(&e, text))),
        }
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|e| Box::new(broken(&e, text)))
}

/// What ends a quoted scalar may stand as far left as its key where Kubernetes reads it, and half of the manifests with
/// JSON in them are written so; YAML 1.2 wants it indented. White space at the beginning of such a line is not part of
/// the value: the line is indented, and read again.
fn indent(text: &str, e: &Error) -> Option<String> {
    if !e.without_snippet().to_string().contains("invalid indentation in multiline quoted scalar") {
        return None;
    }
    let line = number(e.location()?.line()).checked_sub(1)?;
    let mut lines: Vec<&str> = text.split('\n').collect();
    let deeper = format!("{:width$}{}", "", lines.get(line)?, width = DEEPER);
    *lines.get_mut(line)? = &deeper;
    Some(lines.join("\n"))
}

/// Deeper than anything that stands around it.
const DEEPER: usize = 2 * MAX_DEPTH;

/// A document as a JSON value. A number that JSON has none for is a string.
///
/// # Errors
/// [`Broken`].
pub fn json(text: &str) -> Result<json::Value, Box<Broken>> {
    let no_thread = |e: io::Error| Err(Box::new(Broken { place: None, problem: Problem::NoThread(e.kind()) }));
    with_room(|| parse(text).map(json::Value::from)).unwrap_or_else(no_thread)
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
        // Told as a wrong type, with its field, where a string belongs.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn broken(e: &Error, text: &str) -> Broken {
    let location = e.location().filter(|l| l.line() > 0);
    let place = location.map(|l| (number(l.line()), number(l.column())));
    let mut inner = e.without_snippet();
    while let Error::AliasError { error, .. } = inner {
        inner = error;
    }
    let problem = match inner {
        Error::DuplicateMappingKey { key, .. } => Problem::DuplicateKey(shortened(key.as_deref().unwrap_or_default())),
        Error::Budget { breach, .. } => too_complex(breach),
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            Problem::TooComplex { what: "values from aliases", max: MAX_REPLAYED }
        }
        other if other.to_string().starts_with("recursion limit exceeded") => too_deep(),
        other => Problem::Syntax { reason: reason(other), template: text.contains("{{") },
    };
    Broken { place, problem }
}

fn too_complex(breach: &BudgetBreach) -> Problem {
    match breach {
        BudgetBreach::Depth { .. } => too_deep(),
        _ => Problem::TooComplex { what: "values", max: MAX_NODES },
    }
}

fn too_deep() -> Problem {
    Problem::TooDeep { max: MAX_DEPTH }
}

/// The parser's message in the words of whoever wrote the document, without the place, which is told before it.
fn reason(e: &Error) -> String {
    match e {
        Error::NullIntoString { .. } | Error::Unexpected { expected: "string scalar", .. } => {
            return "a key must be a string".to_owned();
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => return "an alias stands in the value that it means".to_owned(),
        _ => {}
    }
    let text = e.to_string();
    let reason = text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text);
    match reason.contains("tabs disallowed") {
        true => "a tab where only spaces may indent".to_owned(),
        false => reason.to_owned(),
    }
}

fn number(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

// === impl Node ===

impl Node {
    /// What stands there, for a message: a word for what it is, and a little of it. A boolean or a number is told as
    /// `document` has it: many a name is one by accident, as `n` or `007`.
    pub fn found(&self, document: &str) -> String {
        let written = |read: &str| {
            let text = self.offset.and_then(|start| document.get(start..)).unwrap_or_default();
            let end = text.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(text.len());
            shortened(text.get(..end).filter(|text| !text.is_empty()).unwrap_or(read))
        };
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(b) => format!("a boolean ({})", written(&b.to_string())),
            Value::Number(n) => format!("a number ({})", written(n)),
            Value::String(s) => format!("a string ({:?})", shortened(s)),
            Value::List(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        }
    }

    /// Where in the document a place inside of this string is: `line` and `column` count from 1, the column in bytes.
    /// `None` if there is no telling, as where long lines were folded.
    pub fn inside(&self, document: &str, line: usize, column: usize) -> Option<(usize, usize)> {
        self.written(document)?.place(line, column)
    }

    /// How this string is written in the document; `None` for another value, and for an alias.
    pub fn written(&self, document: &str) -> Option<Written> {
        let Value::String(text) = &self.value else { return None };
        Some(Written::of(text, document.get(self.offset?..)?, (self.line, self.column)))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::<Value>::deserialize(deserializer)?;
        let offset = referenced.span().byte_offset().filter(|_| referenced == defined).map(number);
        Ok(Node { line: number(referenced.line()), column: number(referenced.column()), offset, value })
    }
}

impl From<Node> for json::Value {
    fn from(node: Node) -> Self {
        match node.value {
            Value::Null => json::Value::Null,
            Value::Bool(b) => json::Value::Bool(b),
            Value::Number(text) => text.parse().map_or_else(|_| json::Value::String(text), json::Value::Number),
            Value::String(text) => json::Value::String(text),
            Value::List(nodes) => json::Value::Array(nodes.into_iter().map(json::Value::from).collect()),
            Value::Object(entries) => {
                json::Value::Object(entries.into_iter().map(|(key, node)| (key.text, json::Value::from(node))).collect())
            }
        }
    }
}

// === impl Key ===

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<String>::deserialize(deserializer)?;
        Ok(Key { text: value, line: number(referenced.line()), column: number(referenced.column()) })
    }
}

// === impl Value ===

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Number(n.to_string()))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(Value::Number(n.to_string()))
    }

    fn visit_i128<E>(self, n: i128) -> Result<Value, E> {
        Ok(Value::Number(n.to_string()))
    }

    fn visit_u128<E>(self, n: u128) -> Result<Value, E> {
        Ok(Value::Number(n.to_string()))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(Value::Number(n.to_string()))
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::String(s.to_owned()))
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::String(s))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Node {
        match parse(text).unwrap().value {
            Value::Object(mut entries) => entries.pop().unwrap().1,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_in_a_string_is_a_place_in_the_document() {
        for (document, line, column, expected) in [
            ("a: |\n  {\n    \"x\": é y\n  }\n", 2, 8, Some((3, 10))),
            ("a: |\n  {\n    \"x\": é y\n  }\n", 1, 1, Some((2, 3))),
            ("a: |\n\n  \n  x\n   yz\n", 4, 3, Some((5, 5))),
            ("a: '{\"b\": }'\n", 1, 7, Some((1, 11))),
            ("a: {b}\n", 1, 1, None),
            ("a: {b\n", 1, 1, None),
            ("a: \"{\\\"b\\\"}\"\n", 1, 3, Some((1, 8))),
            ("a: \"{\\n\\u00e9\\t\\\"b\"\n", 2, 5, Some((1, 18))),
            ("a: \"x\n  y\"\n", 1, 3, None),
            ("a: 'it''s {'\n", 1, 6, Some((1, 11))),
            ("a: >\n  x\n  y\n", 1, 3, None),
            ("a: |\n  x\n", 9, 1, None),
        ] {
            let found = parse(document).ok().and_then(|_| value(document).inside(document, line, column));
            assert_eq!(found, expected, "{document:?} {line}:{column}");
        }
        let aliased = "a: &a |\n  x\nb: *a\n";
        assert_eq!(value(aliased).inside(aliased, 1, 1), None);
    }

    #[test]
    fn deep_documents_are_read() {
        let deep = MAX_DEPTH - 1;
        let text = format!("a: {}1{}", "{b: ".repeat(deep), "}".repeat(deep));
        assert!(with_room(|| parse(&text)).unwrap().is_ok());
    }

    #[test]
    fn yaml_bombs_are_refused() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        let merges = (1..40).fold("a0: &a0 {k: v}\n".to_owned(), |t, i| t + &format!("a{i}: &a{i} {{<<: [*a{0}, *a{0}]}}\n", i - 1));
        for text in [bomb, "[".repeat(100_000), format!("a: {}1{}", "{b: ".repeat(200), "}".repeat(200)), merges] {
            let started = std::time::Instant::now();
            let shown: String = text.chars().take(30).collect();
            let refused = with_room(|| parse(&text)).unwrap();
            let problem = refused.err().map(|broken| broken.problem);
            let bomb = matches!(problem, Some(Problem::TooComplex { .. } | Problem::TooDeep { .. }));
            assert!(bomb, "{shown}: {problem:?}");
            // What is not refused early takes for ever; a busy machine takes seconds.
            assert!(started.elapsed().as_secs() < 60, "{shown}");
        }
    }
}
