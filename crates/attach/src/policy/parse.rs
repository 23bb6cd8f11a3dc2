//! From what the cluster's owner wrote to a policy: strict, as a rule that is misread protects nothing.

use std::path::{Component, PathBuf};

use json::{Object, Value};

use super::{Allow, Glob, Policy, Protection, Rule};

/// A policy that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A value of the wrong type.
    #[error("{place}: expected {expected}, found {found}")]
    Unexpected {
        /// Where, as `policy[0].allow.plugins`.
        place: String,
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A key that nobody would read.
    #[error("{place}: unknown key {key:?}{}; known keys are {known}", meant.map_or_else(String::new, |m| format!(": did you mean {m:?}?")))]
    UnknownKey {
        /// Where.
        place: String,
        /// The key.
        key: String,
        /// The key that is near.
        meant: Option<&'static str>,
        /// Those that there are.
        known: String,
    },
    /// A key that is there more than once.
    #[error("{place}: {key:?} is given twice: remove one")]
    Twice {
        /// Where.
        place: String,
        /// The key.
        key: String,
    },
    /// A rule without a key that it must have.
    #[error("{place}: missing {key:?}: {why}")]
    Missing {
        /// Where.
        place: String,
        /// The key.
        key: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// A word that is not among those that there are.
    #[error("{place}: {found:?} is not one of {known}")]
    UnknownWord {
        /// Where.
        place: String,
        /// What stands there.
        found: String,
        /// Those that there are.
        known: String,
    },
    /// Two rules of one name.
    #[error("{place}: another rule has the name {name:?} as well: each rule needs its own name, because refusals quote it")]
    SameName {
        /// Where.
        place: String,
        /// The name.
        name: String,
    },
    /// What stands among paths and is none.
    #[error("{place}: {text:?} is not an absolute path without \"..\" and \"*\"; a directory allows everything below it")]
    NoPath {
        /// Where.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A list that would never match.
    #[error("{place}: the list of namespaces is empty; remove the key to mean all")]
    Nobody {
        /// Where.
        place: String,
    },
}

/// The keys of a rule.
const RULE: &[&str] = &["name", "podNamespaces", "definitionNamespaces", "allow", "protect"];

/// The keys below `allow`.
const ALLOW: &[&str] = &["plugins", "devices", "sysctls", "namespaces", "paths"];

// === impl Policy ===

impl Policy {
    /// Reads a list of rules; `place` is where it stands, for errors.
    ///
    /// # Errors
    /// [`PolicyError`] with the place.
    pub fn parse(value: &Value, place: &str) -> Result<Self, PolicyError> {
        let Value::Array(list) = value else { return Err(unexpected(place, "a list of rules", value)) };
        let mut rules: Vec<Rule> = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let rule = rule(value, &place)?;
            if rules.iter().any(|other| other.name == rule.name) {
                return Err(PolicyError::SameName { place, name: rule.name });
            }
            rules.push(rule);
        }
        Ok(Policy { rules })
    }
}

fn rule(value: &Value, place: &str) -> Result<Rule, PolicyError> {
    let object = strict(value, place, RULE)?;
    let name = match object.get("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => name.clone(),
        Some(Value::String(_)) | None => {
            return Err(PolicyError::Missing { place: place.to_owned(), key: "name", why: "refusals name the rule" });
        }
        Some(other) => return Err(unexpected(&format!("{place}.name"), "a string", other)),
    };
    let namespaces = |key: &str| match globs(object, key, place)? {
        None => Ok(vec![Glob::new("*")]),
        Some(list) if list.is_empty() => Err(PolicyError::Nobody { place: format!("{place}.{key}") }),
        Some(list) => Ok(list),
    };
    let (pod_namespaces, definition_namespaces) = (namespaces("podNamespaces")?, namespaces("definitionNamespaces")?);
    let missing = || PolicyError::Missing {
        place: place.to_owned(),
        key: "allow",
        why: "what the rule allows: at least one of plugins, devices, sysctls, namespaces, paths; or \"protect\"",
    };
    let protect = protect(object, place)?;
    let Some(allow) = object.get("allow") else {
        let rule = |protect| Rule { name, pod_namespaces, definition_namespaces, allow: Allow::default(), protect: Some(protect) };
        return protect.map(rule).ok_or_else(missing);
    };
    let below = format!("{place}.allow");
    let object = strict(allow, &below, ALLOW)?;
    let list = |key| globs(object, key, &below);
    let allow = Allow {
        plugins: list("plugins")?,
        devices: list("devices")?,
        sysctls: list("sysctls")?,
        namespaces: list("namespaces")?,
        paths: paths(object, &below)?,
    };
    if allow == Allow::default() {
        return Err(missing());
    }
    Ok(Rule { name, pod_namespaces, definition_namespaces, allow, protect })
}

fn protect(object: &Object, place: &str) -> Result<Option<Protection>, PolicyError> {
    let Some((_, value)) = object.iter().find(|(key, _)| *key == "protect") else { return Ok(None) };
    let place = format!("{place}.protect");
    // YAML has `off` and `on` as words for a truth value.
    let word = match value {
        Value::String(text) => text.as_str(),
        Value::Bool(true) => "on",
        Value::Bool(false) => "off",
        other => return Err(unexpected(&place, "off, warn or on", other)),
    };
    let unknown = || PolicyError::UnknownWord { place, found: word.to_owned(), known: "off, warn, on".to_owned() };
    Protection::of(word).map(Some).ok_or_else(unknown)
}

/// An object with these keys only, spelled so, each once.
fn strict<'a>(value: &'a Value, place: &str, known: &[&'static str]) -> Result<&'a Object, PolicyError> {
    let Value::Object(object) = value else { return Err(unexpected(place, "an object", value)) };
    let mut seen: Vec<&str> = Vec::new();
    for (key, _) in object.iter() {
        if !known.contains(&key) {
            let meant = npwg::nearest(key, known.iter().copied());
            let known = known.join(", ");
            return Err(PolicyError::UnknownKey { place: place.to_owned(), key: key.to_owned(), meant, known });
        }
        if seen.contains(&key) {
            return Err(PolicyError::Twice { place: place.to_owned(), key: key.to_owned() });
        }
        seen.push(key);
    }
    Ok(object)
}

/// `None` if the key is not there. One without a value is an error: whether it means all or nothing, nobody can tell.
fn globs(object: &Object, key: &str, place: &str) -> Result<Option<Vec<Glob>>, PolicyError> {
    let Some((_, value)) = object.iter().find(|(own, _)| *own == key) else { return Ok(None) };
    let place = format!("{place}.{key}");
    let Value::Array(list) = value else { return Err(unexpected(&place, "a list of strings", value)) };
    let one = |(index, value): (usize, &Value)| match value {
        Value::String(text) if !text.is_empty() => Ok(Glob::new(text.as_str())),
        other => Err(unexpected(&format!("{place}[{index}]"), "a non-empty string", other)),
    };
    list.iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
}

/// Directories and files from the root. A pattern would say less than it seems to: a path is allowed with all that is below it.
fn paths(object: &Object, place: &str) -> Result<Option<Vec<PathBuf>>, PolicyError> {
    let Some(list) = globs(object, "paths", place)? else { return Ok(None) };
    let one = |(index, text): (usize, Glob)| {
        let path = PathBuf::from(text.as_str());
        let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        match path.is_absolute() && is_plain && !text.as_str().contains('*') {
            true => Ok(path),
            false => Err(PolicyError::NoPath { place: format!("{place}.paths[{index}]"), text: text.as_str().to_owned() }),
        }
    };
    list.into_iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
}

fn unexpected(place: &str, expected: &'static str, found: &Value) -> PolicyError {
    PolicyError::Unexpected { place: place.to_owned(), expected, found: found.kind() }
}
