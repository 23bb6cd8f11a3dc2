//! An object that keeps its keys as they were written.

use std::collections::HashMap;

use crate::Value;

/// A JSON object: pairs in the order in which they were read, duplicates and spelling kept.
///
/// Looking a key up follows Go: the case of letters does not matter, the last pair that fits wins, and a pair
/// whose value is `null` counts as not given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object(pub(crate) Vec<(String, Value)>);

// === impl Object ===

impl Object {
    /// An object without keys.
    pub fn new() -> Self {
        Object(Vec::new())
    }

    /// The value of `key`, if it is given and not `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().rev().find(|(k, v)| same_key(k, key) && !matches!(v, Value::Null)).map(|(_, v)| v)
    }

    /// The value of `key` if it is a string.
    pub fn str(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The value of `key` if it is an object.
    pub fn object(&self, key: &str) -> Option<&Object> {
        self.get(key)?.as_object()
    }

    /// Every object under `key`, in order: where Go has a struct or a map, a later one goes over an earlier one, key by
    /// key. Other values are passed over.
    pub fn objects(&self, key: &str) -> impl DoubleEndedIterator<Item = &Object> {
        self.0.iter().filter(move |(k, _)| same_key(k, key)).filter_map(|(_, v)| v.as_object())
    }

    /// Every object under `key` as one: of each key the last value that is not `null`.
    pub fn merged(&self, key: &str) -> Object {
        once(self.objects(key).flat_map(Object::iter))
    }

    /// The object with each key once and without `null`: of several equal keys the last value, and objects under one key as one. `None`: that is what
    /// it is.
    pub fn stated(&self) -> Option<Object> {
        let keys = by_key(self.iter());
        if keys.len() == self.0.len() {
            return None;
        }
        let stated = keys.into_iter().filter_map(|(key, values)| {
            let value = match values.last()? {
                Value::Object(_) => Value::Object(once(values.iter().filter_map(|value| value.as_object()).flat_map(Object::iter))),
                last => (*last).clone(),
            };
            Some((key.to_owned(), value))
        });
        Some(stated.collect())
    }

    /// Puts `value` under `key`, in place of every spelling of it that was there; a new key goes to the end.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter().position(|(k, _)| same_key(k, key)) {
            None => self.0.push((key.to_owned(), value)),
            Some(at) => {
                self.remove(key);
                self.0.insert(at.min(self.0.len()), (key.to_owned(), value));
            }
        }
    }

    /// Removes every spelling of `key`.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(k, _)| !same_key(k, key));
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// How many levels of lists and objects there are, this one included; see [`Value::depth`].
    pub fn depth(&self) -> usize {
        1 + self.iter().map(|(_, value)| value.depth()).max().unwrap_or(0)
    }

    /// Whether there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        Object(pairs.into_iter().collect())
    }
}

/// Each key once, at the place of the first of several, as the last one is written, with all its values that are not `null`. It takes one look at each
/// pair: definitions have tens of thousands.
fn by_key<'a>(pairs: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<(&'a str, Vec<&'a Value>)> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<(&str, Vec<&Value>)> = Vec::new();
    for (key, value) in pairs.filter(|(_, value)| !matches!(value, Value::Null)) {
        let place = *places.entry(folded(key).collect()).or_insert(all.len());
        match all.get_mut(place) {
            Some((written, values)) => {
                *written = key;
                values.push(value);
            }
            None => all.push((key, vec![value])),
        }
    }
    all
}

/// The same with the last value of each.
fn once<'a>(pairs: impl Iterator<Item = (&'a str, &'a Value)>) -> Object {
    by_key(pairs).into_iter().filter_map(|(key, values)| Some((key.to_owned(), (*values.last()?).clone()))).collect()
}

/// Whether Go takes `a` for `b` when it fills a struct. Go folds Unicode: two letters beyond ASCII are letters of it, and every key of the
/// specifications is ASCII.
pub fn same_key(a: &str, b: &str) -> bool {
    // Most keys differ in their first letter, and most are looked at for another one's sake. In a letter of ASCII, this bit is its case.
    const CASE: u8 = 0x20;
    if let (Some(a), Some(b)) = (a.as_bytes().first(), b.as_bytes().first())
        && (a | CASE) != (b | CASE)
        && a.is_ascii()
        && b.is_ascii()
    {
        return false;
    }
    a.eq_ignore_ascii_case(b) || !(a.is_ascii() && b.is_ascii()) && folded(a).eq(folded(b))
}

/// A key as Go compares it. Go folds by Unicode, in which two letters beyond ASCII are letters of it: it reads `"ma\u{17f}ter"` as `master`.
pub fn folded(key: &str) -> impl Iterator<Item = char> {
    key.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        match crate::parse(text.as_bytes()) {
            Ok(Value::Object(o)) => o,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn letters_that_go_folds_into_ascii_are_the_same() {
        let mut o = object(r#"{"ma\u017fter":"a","\u212aey":"b","m\u00e4ster":"c","M\u00c4STER":"d"}"#);
        assert_eq!((o.str("master"), o.str("KEY"), o.str("m\u{e4}ster")), (Some("a"), Some("b"), Some("c")));
        o.remove("Master");
        assert_eq!(crate::compact(&o), "{\"\u{212a}ey\":\"b\",\"m\u{e4}ster\":\"c\",\"M\u{c4}STER\":\"d\"}");
    }

    #[test]
    fn the_last_spelling_wins_and_null_is_absent() {
        let o = object(r#"{"name":"a","NAME":"b","Name":null}"#);
        assert_eq!(o.str("name"), Some("b"));
        assert_eq!(o.get("missing"), None);
    }

    #[test]
    fn several_objects_are_one_in_which_null_takes_nothing_away() {
        let o = object(r#"{"d":{"type":"a","gw":false,"x":1},"D":{"GW":null,"X":2,"n":null},"d":null,"d":[]}"#);
        assert_eq!(crate::compact(&Value::Object(o.merged("d"))), r#"{"type":"a","gw":false,"X":2}"#);
        let o = object(r#"{"vlan":5,"a":{"x":1,"n":null},"VLAN":0,"A":{"y":2},"z":null,"l":{},"L":[]}"#);
        assert_eq!(crate::compact(&Value::Object(o.stated().unwrap())), r#"{"VLAN":0,"A":{"x":1,"y":2},"L":[]}"#);
        assert_eq!(object(r#"{"a":1,"b":{"c":null}}"#).stated(), None);
    }

    #[test]
    fn set_replaces_every_spelling_in_place() {
        let mut o = object(r#"{"x":1,"Name":"a","y":2,"NAME":"b"}"#);
        o.set("name", "c");
        assert_eq!(crate::compact(&Value::Object(o)), r#"{"x":1,"name":"c","y":2}"#);
    }
}
