//! Values of the database, in the notation of RFC 7047, 5.1.

use std::fmt;

use json::{Object, Value};

/// The name that the database gave a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(String);

/// One value: `<atom>`.
#[derive(Debug, Clone, PartialEq)]
pub enum Atom {
    /// A whole number.
    Integer(i64),
    /// Any other number, as it was written.
    Real(Value),
    /// `true` or `false`
    Boolean(bool),
    /// Text.
    String(String),
    /// A row: `["uuid", "..."]`
    Uuid(Uuid),
    /// A row that the same transaction makes: `["named-uuid", "..."]`
    Named(&'static str),
}

/// What a column holds: `<value>`.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// None, one or more values; one alone is written without the word `set`.
    Set(Vec<Atom>),
    /// Pairs.
    Map(Vec<(Atom, Atom)>),
}

/// Some columns of a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row(Vec<(String, Datum)>);

// === impl Uuid ===

impl Uuid {
    /// Reads one: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    pub fn parse(text: &str) -> Option<Self> {
        let is_right = |(at, byte): (usize, u8)| if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() };
        (text.len() == 36 && text.bytes().enumerate().all(is_right)).then(|| Uuid(text.to_owned()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Atom ===

impl Atom {
    fn parse(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Atom::Boolean(*b),
            Value::String(text) => Atom::String(text.clone()),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Atom::Integer(integer),
                None => Atom::Real(value.clone()),
            },
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(word), Value::String(uuid)] if word == "uuid" => Atom::Uuid(Uuid::parse(uuid)?),
                _ => return None,
            },
            Value::Null | Value::Object(_) => return None,
        })
    }

    fn print(&self) -> Value {
        let pair = |word: &str, name: &str| Value::Array(vec![word.into(), name.into()]);
        match self {
            Atom::Integer(integer) => number(*integer),
            Atom::Real(real) => real.clone(),
            Atom::Boolean(b) => (*b).into(),
            Atom::String(text) => text.as_str().into(),
            Atom::Uuid(uuid) => pair("uuid", &uuid.0),
            Atom::Named(name) => pair("named-uuid", name),
        }
    }
}

pub(crate) fn number(integer: i64) -> Value {
    Value::Number(integer.into())
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Atom::String(text.to_owned())
    }
}

// === impl Datum ===

impl Datum {
    /// Texts as pairs, as in a column `external_ids`.
    pub fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Datum::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// Reads one.
    pub fn parse(value: &Value) -> Option<Self> {
        let Value::Array(list) = value else { return Some(Datum::Set(vec![Atom::parse(value)?])) };
        match list.as_slice() {
            [Value::String(word), Value::Array(atoms)] if word == "set" => {
                atoms.iter().map(Atom::parse).collect::<Option<_>>().map(Datum::Set)
            }
            [Value::String(word), Value::Array(pairs)] if word == "map" => {
                let pair = |pair: &Value| match pair.as_array()? {
                    [key, value] => Some((Atom::parse(key)?, Atom::parse(value)?)),
                    _ => None,
                };
                pairs.iter().map(pair).collect::<Option<_>>().map(Datum::Map)
            }
            _ => Some(Datum::Set(vec![Atom::parse(value)?])),
        }
    }

    /// As it is written.
    pub fn print(&self) -> Value {
        match self {
            Datum::Set(atoms) => match atoms.as_slice() {
                [one] => one.print(),
                _ => Value::Array(vec!["set".into(), Value::Array(atoms.iter().map(Atom::print).collect())]),
            },
            Datum::Map(pairs) => {
                let pair = |(key, value): &(Atom, Atom)| Value::Array(vec![key.print(), value.print()]);
                Value::Array(vec!["map".into(), Value::Array(pairs.iter().map(pair).collect())])
            }
        }
    }
}

impl From<Atom> for Datum {
    fn from(atom: Atom) -> Self {
        Datum::Set(vec![atom])
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Atom::from(text).into()
    }
}

// === impl Row ===

impl Row {
    /// No column yet.
    pub fn new() -> Self {
        Row::default()
    }

    /// The same with one column more.
    #[must_use]
    pub fn with(mut self, column: &str, datum: impl Into<Datum>) -> Self {
        self.0.push((column.to_owned(), datum.into()));
        self
    }

    /// Reads one.
    pub fn parse(value: &Value) -> Option<Self> {
        let column = |(name, value): (&str, &Value)| Some((name.to_owned(), Datum::parse(value)?));
        value.as_object()?.iter().map(column).collect::<Option<_>>().map(Row)
    }

    /// As it is written.
    pub fn print(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, datum)| (name.clone(), datum.print())).collect::<Object>())
    }

    /// The values of a column; none if it is not there, or holds pairs.
    pub fn values(&self, column: &str) -> &[Atom] {
        match self.0.iter().find(|(name, _)| name == column) {
            Some((_, Datum::Set(atoms))) => atoms,
            _ => &[],
        }
    }

    /// The whole numbers of a column.
    pub fn integers(&self, column: &str) -> impl Iterator<Item = i64> {
        self.values(column).iter().filter_map(|atom| if let Atom::Integer(integer) = atom { Some(*integer) } else { None })
    }

    /// The text of a column that holds one.
    pub fn text(&self, column: &str) -> Option<&str> {
        self.texts(column).next()
    }

    /// The texts of a column.
    pub fn texts(&self, column: &str) -> impl Iterator<Item = &str> {
        self.values(column).iter().filter_map(|atom| if let Atom::String(text) = atom { Some(text.as_str()) } else { None })
    }

    /// The row that a column names.
    pub fn uuid(&self, column: &str) -> Option<&Uuid> {
        self.values(column).iter().find_map(|atom| if let Atom::Uuid(uuid) = atom { Some(uuid) } else { None })
    }

    /// The value under a key of a column of pairs.
    pub fn under(&self, column: &str, key: &str) -> Option<&str> {
        let Some((_, Datum::Map(pairs))) = self.0.iter().find(|(name, _)| name == column) else { return None };
        pairs.iter().find_map(|pair| match pair {
            (Atom::String(own), Atom::String(value)) if own == key => Some(value.as_str()),
            _ => None,
        })
    }
}
