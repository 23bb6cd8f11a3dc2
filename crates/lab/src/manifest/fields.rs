//! Fields of an object: each is read with its type, and what is wrong with one is reported without hiding the next.

use std::collections::BTreeMap;

use yaml::{Key, Node, Value};

use super::Origin;
use super::error::{FindingKind, ManifestProblem};
use super::near::nearest;
use super::relations::Reading;
use super::source::Document;

/// A value that is there: never [`Value::Null`], which counts as not given.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) document: &'a Document,
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

/// An object and the fields in it.
#[derive(Clone)]
pub(crate) struct Object<'a> {
    pub(crate) document: &'a Document,
    entries: &'a [(Key, Node)],
    line: usize,
    column: usize,
    pub(crate) path: String,
}

// === impl Field ===

impl<'a> Field<'a> {
    pub(crate) fn origin(&self) -> Origin {
        self.document.origin(self.node.line, self.node.column)
    }

    pub(crate) fn report(&self, problem: ManifestProblem, reading: &mut Reading) {
        reading.error(self.origin(), &self.path, problem);
    }

    pub(crate) fn unexpected(&self, expected: &'static str, reading: &mut Reading) {
        self.report(ManifestProblem::Unexpected { expected, found: self.node.found(&self.document.text) }, reading);
    }

    /// The object that it is, if it is one.
    pub(crate) fn as_object(&self) -> Option<Object<'a>> {
        let Value::Object(entries) = &self.node.value else { return None };
        let (line, column) = (self.node.line, self.node.column);
        Some(Object { document: self.document, entries, line, column, path: self.path.clone() })
    }

    /// The string that it is, if it is one.
    pub(crate) fn as_str(&self) -> Option<&'a str> {
        let Value::String(text) = &self.node.value else { return None };
        Some(text)
    }

    /// The elements, if it is a list.
    pub(crate) fn elements(&self) -> Vec<Field<'a>> {
        let Value::List(nodes) = &self.node.value else { return Vec::new() };
        let element = |(at, node)| Field { document: self.document, node, path: format!("{}[{at}]", self.path) };
        nodes.iter().enumerate().map(element).collect()
    }

    /// The whole number, if it is one.
    pub(crate) fn number(&self) -> Option<u32> {
        let Value::Number(text) = &self.node.value else { return None };
        text.parse().ok()
    }

    pub(crate) fn object(&self, expected: &'static str, reading: &mut Reading) -> Option<Object<'a>> {
        let object = self.as_object();
        if object.is_none() {
            self.unexpected(expected, reading);
        }
        object
    }

    pub(crate) fn string(&self, reading: &mut Reading) -> Option<&'a str> {
        match &self.node.value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Number(_) => {
                self.report(ManifestProblem::Unquoted { found: self.node.found(&self.document.text) }, reading);
                None
            }
            _ => {
                self.unexpected("a string", reading);
                None
            }
        }
    }

    pub(crate) fn boolean(&self, reading: &mut Reading) -> Option<bool> {
        match self.node.value {
            Value::Bool(b) => Some(b),
            _ => {
                self.unexpected("true or false", reading);
                None
            }
        }
    }

    /// A port, or `None` for 0, which Kubernetes takes for not given.
    pub(crate) fn port(&self, reading: &mut Reading) -> Option<u16> {
        let number = match &self.node.value {
            Value::Number(text) => text.parse::<u16>().ok(),
            _ => None,
        };
        if number.is_none() {
            self.unexpected("a port, a number from 1 to 65535", reading);
        }
        number.filter(|port| *port != 0)
    }

    /// The elements of a list, less those that are null.
    pub(crate) fn list(&self, expected: &'static str, reading: &mut Reading) -> Vec<Field<'a>> {
        let Value::List(nodes) = &self.node.value else {
            self.unexpected(expected, reading);
            return Vec::new();
        };
        let given = nodes.iter().enumerate().filter(|(_, node)| !matches!(node.value, Value::Null));
        given.map(|(index, node)| Field { document: self.document, node, path: format!("{}[{index}]", self.path) }).collect()
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    pub(crate) fn origin(&self) -> Origin {
        self.document.origin(self.line, self.column)
    }

    /// What is under `key`, if it is given.
    pub(crate) fn get(&self, key: &str) -> Option<Field<'a>> {
        let (_, node) = self.entries.iter().find(|(k, node)| k.text == key && !matches!(node.value, Value::Null))?;
        Some(Field { document: self.document, node, path: self.under(key) })
    }

    /// What is under `key`; reported if it is not given.
    pub(crate) fn required(&self, key: &str, expected: &'static str, reading: &mut Reading) -> Option<Field<'a>> {
        let field = self.get(key);
        if field.is_none() {
            reading.error(self.origin(), &self.under(key), ManifestProblem::Missing(expected));
        }
        field
    }

    pub(crate) fn object(&self, key: &str, reading: &mut Reading) -> Option<Object<'a>> {
        self.get(key)?.object("an object", reading)
    }

    pub(crate) fn list(&self, key: &str, reading: &mut Reading) -> Vec<Field<'a>> {
        self.get(key).map_or(Vec::new(), |field| field.list("a list", reading))
    }

    /// The objects in a list.
    pub(crate) fn objects(&self, key: &str, reading: &mut Reading) -> Vec<Object<'a>> {
        self.list(key, reading).iter().filter_map(|field| field.object("an object", reading)).collect()
    }

    pub(crate) fn string(&self, key: &str, reading: &mut Reading) -> Option<&'a str> {
        self.get(key)?.string(reading)
    }

    /// Strings under free keys. A null is an empty one, as for the API server.
    pub(crate) fn strings(&self, key: &str, reading: &mut Reading) -> BTreeMap<String, String> {
        let Some(map) = self.object(key, reading) else { return BTreeMap::new() };
        let mut strings = BTreeMap::new();
        for (key, _) in map.entries {
            let text = map.get(&key.text).map_or(Some(""), |field| field.string(reading));
            strings.extend(text.map(|text| (key.text.clone(), text.to_owned())));
        }
        strings
    }

    /// Warns of keys that are nearly one of `known`: they would be left out in silence.
    pub(crate) fn warn_of_near_misses(&self, known: &[&'static str], reading: &mut Reading) {
        for (key, _) in self.entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
            let meant = nearest(&key.text, known.iter().copied()).and_then(|near| known.iter().find(|k| **k == near));
            if let Some(meant) = meant {
                reading.found(
                    self.document.origin(key.line, key.column),
                    &self.path,
                    FindingKind::NearMiss { key: key.text.clone(), meant },
                );
            }
        }
    }

    /// The path of `key`, in quotes if it has periods itself.
    fn under(&self, key: &str) -> String {
        match (self.path.as_str(), key.contains(['.', '/'])) {
            (path, true) => format!("{path}[{key:?}]"),
            ("", false) => key.to_owned(),
            (path, false) => format!("{path}.{key}"),
        }
    }
}
