//! The options that a file gives, each with its place; nothing is checked but its shape.

use std::fmt;

use yaml::{Node, Value as Yaml};

use crate::ini::{self, Assignment, IniError};
use crate::options::{ConfOption, Effect, Shape};

/// The options of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenOptions {
    options: Vec<GivenOption>,
    notes: Vec<Note>,
}

/// An option with its value.
#[derive(Clone, PartialEq, Eq)]
struct GivenOption {
    option: &'static ConfOption,
    value: GivenValue,
    line: usize,
}

/// A value of its [`Shape`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum GivenValue {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<String>),
    Map(Vec<(String, String)>),
}

/// Why a file cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GivenError {
    /// It is not in the form of oslo.config.
    #[error(transparent)]
    Ini(#[from] IniError),
    /// It is not YAML.
    #[error("{0}")]
    Yaml(String),
    /// A value of another shape.
    #[error("line {line}: {option} must be {expected}")]
    Shape {
        /// The first is 1.
        line: usize,
        /// `[section] name`.
        option: String,
        /// What its value is.
        expected: &'static str,
    },
    /// A key of our own file that does not exist.
    #[error("line {line}: {key} is not a setting{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Unknown {
        /// The first is 1.
        line: usize,
        /// `section.key`.
        key: String,
        /// What to do instead.
        hint: Option<String>,
    },
}

/// What a reader of the file should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The first is 1.
    pub line: usize,
    /// `[section] name`.
    pub option: String,
    /// What there is to know.
    pub kind: NoteKind,
}

/// What there is to know of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// Nobody knows it: it may be misspelt.
    Unknown,
    /// Another name has taken its place.
    Renamed(&'static str),
    /// It has no effect; why.
    NoEffect(&'static str),
    /// What it asks for is not offered; what is instead.
    NotOffered(&'static str),
    /// It has a `$`, and behind it no option of the file. The name is not told: the value may be a secret.
    NoReference,
}

// === impl WrittenOptions ===

impl WrittenOptions {
    /// Reads a kuryr.conf. What has no effect here is noted: see [`WrittenOptions::notes`].
    ///
    /// # Errors
    /// [`GivenError`] with the line.
    pub fn kuryr_conf(text: &str) -> Result<Self, GivenError> {
        let (mut given, all) = (WrittenOptions::default(), ini::parse(text)?);
        for assignment in &all {
            let Some(option) = ConfOption::find(&assignment.section, &assignment.name) else {
                given.note(assignment, NoteKind::Unknown);
                continue;
            };
            if option.before == Some(assignment.name.as_str()) {
                given.note(assignment, NoteKind::Renamed(option.name));
            }
            match option.effect {
                Effect::None(why) => given.note(assignment, NoteKind::NoEffect(why)),
                Effect::NotOffered(why) => given.note(assignment, NoteKind::NotOffered(why)),
                Effect::Same | Effect::Secret => {
                    let text = given.substituted(assignment, &all);
                    let value = GivenValue::parse(option.shape, &text).ok_or_else(|| given_shape(assignment.line, option))?;
                    given.put(option, value, assignment.line);
                }
            }
        }
        Ok(given)
    }

    /// Reads our own file: the options that have an effect, as `neutronDefaults: {podSubnet: ID}`.
    ///
    /// # Errors
    /// [`GivenError`]: also for what kuryr.conf would only be noted for.
    pub fn yaml(text: &str) -> Result<Self, GivenError> {
        let root = yaml::with_room(|| yaml::parse(text)).map_err(|e| GivenError::Yaml(e.to_string()))?;
        WrittenOptions::of(&root.map_err(|e| GivenError::Yaml(e.to_string()))?)
    }

    /// The same, of a part of a larger file.
    ///
    /// # Errors
    /// As [`WrittenOptions::yaml`].
    pub fn of(root: &Node) -> Result<Self, GivenError> {
        let mut given = WrittenOptions::default();
        for (section, options) in object(root).ok_or_else(|| GivenError::Yaml("must be an object of sections".to_owned()))? {
            let of_section = || crate::OPTIONS.iter().filter(|option| option.keys().0 == section.text);
            let unknown = |line, key: String, hint| GivenError::Unknown { line, key, hint };
            if of_section().next().is_none() {
                return Err(unknown(section.line, section.text.clone(), None));
            }
            let options =
                object(options).ok_or_else(|| GivenError::Yaml(format!("line {}: {} must be an object", section.line, section.text)))?;
            for (key, node) in options {
                let option = of_section().find(|option| option.keys().1 == key.text);
                let name = format!("{}.{}", section.text, key.text);
                match option.map(|option| (option, option.effect)) {
                    None => return Err(unknown(key.line, name, None)),
                    Some((_, Effect::None(why) | Effect::NotOffered(why))) => return Err(unknown(key.line, name, Some(why.to_owned()))),
                    Some((option, Effect::Same | Effect::Secret)) => {
                        if matches!(node.value, Yaml::Null) {
                            continue;
                        }
                        let value = GivenValue::of(option.shape, node).ok_or_else(|| given_shape(node.line, option))?;
                        given.put(option, value, node.line);
                    }
                }
            }
        }
        Ok(given)
    }

    /// What has no effect, or not that which its author may expect.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    pub(crate) fn text(&self, section: &str, name: &str) -> Option<&str> {
        match self.get(section, name)? {
            // `name =` is how a file takes a value back.
            GivenValue::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self, section: &str, name: &str) -> Option<u64> {
        match self.get(section, name)? {
            GivenValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, section: &str, name: &str) -> Option<bool> {
        match self.get(section, name)? {
            GivenValue::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(crate) fn list(&self, section: &str, name: &str) -> Vec<String> {
        match self.get(section, name) {
            Some(GivenValue::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn map(&self, section: &str, name: &str) -> &[(String, String)] {
        match self.get(section, name) {
            Some(GivenValue::Map(map)) => map,
            _ => &[],
        }
    }

    /// The line of an option; 0 if it is not given.
    pub(crate) fn line(&self, section: &str, name: &str) -> usize {
        self.find(section, name).map_or(0, |given| given.line)
    }

    fn get(&self, section: &str, name: &str) -> Option<&GivenValue> {
        self.find(section, name).map(|given| &given.value)
    }

    fn find(&self, section: &str, name: &str) -> Option<&GivenOption> {
        self.options.iter().find(|given| given.option.section == section && given.option.name == name)
    }

    /// The last one wins.
    fn put(&mut self, option: &'static ConfOption, value: GivenValue, line: usize) {
        self.options.retain(|given| given.option != option);
        self.options.push(GivenOption { option, value, line });
    }

    fn note(&mut self, at: &Assignment, kind: NoteKind) {
        self.notes.push(Note { line: at.line, option: format!("[{}] {}", at.section, at.name), kind });
    }

    /// The value, with what it refers to: `$name` or `${section.name}`; `$$` and `\$` are a `$`.
    fn substituted(&mut self, at: &Assignment, all: &[Assignment]) -> String {
        let text = at.value.replace("\\$", "$$");
        let (mut done, mut rest) = (String::new(), text.as_str());
        while let Some((before, after)) = rest.split_once('$') {
            done.push_str(before);
            let Some((name, left)) = reference(after) else {
                done.push('$');
                rest = after.strip_prefix('$').unwrap_or(after);
                continue;
            };
            let (section, option) = name.split_once('.').unwrap_or((&at.section, name));
            match all.iter().rev().find(|a| a.section == section && a.name == option) {
                Some(found) => done.push_str(&found.value),
                None => {
                    done.push('$');
                    done.push_str(after.strip_suffix(left).unwrap_or_default());
                    self.note(at, NoteKind::NoReference);
                }
            }
            rest = left;
        }
        done + rest
    }
}

/// What stands behind a `$`: a name, and what follows it.
fn reference(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{');
    let name = inner.unwrap_or(text);
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(name.len());
    let (name, left) = name.split_at(end);
    let left = if inner.is_some() { left.strip_prefix('}')? } else { left };
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then_some((name, left))
}

fn given_shape(line: usize, option: &ConfOption) -> GivenError {
    GivenError::Shape { line, option: option.to_string(), expected: option.shape.about() }
}

fn object(node: &Node) -> Option<&[(yaml::Key, Node)]> {
    match &node.value {
        Yaml::Object(pairs) => Some(pairs),
        Yaml::Null => Some(&[]),
        _ => None,
    }
}

/// Of YAML a scalar is the text that it would be in kuryr.conf.
fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Yaml::String(text) | Yaml::Number(text) => Some(text.clone()),
        Yaml::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

// === impl GivenValue ===

impl GivenValue {
    /// A value of kuryr.conf.
    fn parse(shape: Shape, text: &str) -> Option<Self> {
        Some(match shape {
            Shape::Text => GivenValue::Text(text.to_owned()),
            Shape::Number => GivenValue::Number(text.parse().ok()?),
            Shape::Flag => GivenValue::Flag(flag(text)?),
            Shape::List => GivenValue::List(items(text).map(str::to_owned).collect()),
            Shape::Map => {
                let pair = |item: &str| item.split_once(':').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
                GivenValue::Map(items(text).map(pair).collect::<Option<_>>()?)
            }
        })
    }

    /// A value of our own file.
    fn of(shape: Shape, node: &Node) -> Option<Self> {
        match (shape, &node.value) {
            (Shape::Flag, Yaml::Bool(flag)) => Some(GivenValue::Flag(*flag)),
            (Shape::List, Yaml::List(all)) => Some(GivenValue::List(all.iter().map(scalar).collect::<Option<_>>()?)),
            (Shape::Map, Yaml::Object(pairs)) => {
                let pairs = pairs.iter().map(|(key, value)| Some((key.text.clone(), scalar(value)?)));
                Some(GivenValue::Map(pairs.collect::<Option<_>>()?))
            }
            (Shape::Text | Shape::Number, _) => GivenValue::parse(shape, &scalar(node)?),
            _ => None,
        }
    }
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" => Some(true),
        "false" | "0" | "off" | "no" => Some(false),
        _ => None,
    }
}

/// Elements of a list; none of them is empty.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

// === impl GivenOption ===

/// A secret is not shown.
impl fmt::Debug for GivenOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.option)?;
        match (&self.value, self.option.effect) {
            (_, Effect::Secret) => f.write_str("(secret)"),
            (GivenValue::Text(text), _) => text.fmt(f),
            (GivenValue::Number(number), _) => number.fmt(f),
            (GivenValue::Flag(flag), _) => flag.fmt(f),
            (GivenValue::List(list), _) => list.fmt(f),
            (GivenValue::Map(map), _) => map.fmt(f),
        }
    }
}

// === impl Note ===

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { line, option, kind } = self;
        match kind {
            NoteKind::Unknown => write!(f, "line {line}: {option} is not an option of Kuryr: check its name and section"),
            NoteKind::Renamed(now) => write!(f, "line {line}: {option} has the name {now} now"),
            NoteKind::NoEffect(why) => write!(f, "line {line}: {option} has no effect: {why}"),
            NoteKind::NotOffered(why) => write!(f, "line {line}: {option} is not supported: {why}"),
            NoteKind::NoReference => {
                write!(f, "line {line}: {option} has a $ with a name behind it that is no option of this file: write $$ for a plain $")
            }
        }
    }
}
