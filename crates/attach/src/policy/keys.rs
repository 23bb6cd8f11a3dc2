//! The keys of a configuration, as any plugin could read them: each spelling, and each of several equal ones.

use json::{Object, Value, same_key};

/// The keys of one object or of several, where they stand in the configuration: to copy what is below them at each level would take a
/// multiple of the whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys<'a>(Vec<(&'a str, &'a Value)>);

/// What has keys, in order.
pub(super) trait Pairs<'a>: Copy {
    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a Value)>;
}

// === impl Keys ===

impl<'a> Keys<'a> {
    pub(super) fn of(object: &'a Object) -> Self {
        Keys(object.iter().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, &'a Value)> for Keys<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a Value)>>(pairs: I) -> Self {
        Keys(pairs.into_iter().collect())
    }
}

impl<'a> Pairs<'a> for &Keys<'a> {
    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.0.iter().copied()
    }
}

impl<'a> Pairs<'a> for &'a Object {
    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.iter()
    }
}

/// Every object under a key as one, in which Go merges them.
pub(super) fn together<'a>(raw: impl Pairs<'a>, key: &str) -> Keys<'a> {
    Keys(all(raw, key).filter_map(|(_, value)| value.as_object()).flat_map(Object::iter).collect())
}

/// The types that are given, each once.
pub(super) fn kinds_of<'a>(raw: impl Pairs<'a>) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = all(raw, "type").filter_map(|(_, kind)| kind.as_str()).filter(|kind| !kind.is_empty()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The types that flannel may take an object to have: its default too, unless every type that is given is a name, one of them under the
/// very key that flannel in Go looks for.
pub(super) fn kinds_or<'a>(object: &Keys<'a>, default: &'static str) -> Vec<&'a str> {
    let mut kinds = kinds_of(object);
    let is_named = |value: &Value| value.as_str().is_some_and(|kind| !kind.is_empty());
    let is_certain = object.pairs().any(|(key, _)| key == "type")
        && object.pairs().filter(|(key, _)| same_key(key, "type")).all(|(_, value)| is_named(value));
    if !is_certain && !kinds.contains(&default) {
        kinds.push(default);
    }
    kinds
}

/// A delegate of flannel, which is a gateway unless it is told not to be one.
pub(super) fn with_gateway<'a>(delegate: &Keys<'a>) -> Keys<'a> {
    static TRUE: Value = Value::Bool(true);
    let is_told = delegate.pairs().any(|(key, value)| key == "isGateway" && !matches!(value, Value::Null));
    let gateway = (!is_told).then_some(("isGateway", &TRUE));
    delegate.pairs().chain(gateway).collect()
}

/// The values of every spelling of a key that Go takes for it, with the spelling; `null` is none.
pub(super) fn all<'a, 'k, P: Pairs<'a>>(object: P, key: &'k str) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a, 'k, P> {
    object.pairs().filter(move |(own, value)| same_key(own, key) && !matches!(value, Value::Null))
}
