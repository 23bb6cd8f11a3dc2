//! From a [`Value`] to any type, by Go's rules.

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::object::same_key;
use crate::{Object, ReadError, Value};

/// Reads `value` as a `T`: keys of structs match whatever their case, `null` keys count as absent and unknown keys are
/// ignored. Of several equal keys the last wins, unless both are objects and `T` has a struct or a map there: then what
/// the later one gives goes over what the earlier one gave, as in Go, which fills one struct twice.
///
/// # Errors
/// [`ReadError`] with the path of the offending value.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ReadError> {
    T::deserialize(Go::one(value))
}

/// [`read`] for an object.
///
/// # Errors
/// [`ReadError`] with the path of the offending value.
pub fn read_object<T: DeserializeOwned>(object: &Object) -> Result<T, ReadError> {
    T::deserialize(GoObject(object))
}

/// An object on its way into a type.
struct GoObject<'a>(&'a Object);

impl<'de> Deserializer<'de> for GoObject<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_map(Pairs::all(&[self.0]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_map(Pairs::of(&[self.0], fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A value on its way into a type, and the values of equal keys before it.
struct Go<'a> {
    value: &'a Value,
    earlier: Vec<&'a Value>,
}

impl<'a> Go<'a> {
    fn one(value: &'a Value) -> Self {
        Go { value, earlier: Vec::new() }
    }

    /// The objects that fill one struct or map, in order; `None` if the last value is none.
    fn objects(&self) -> Option<Vec<&'a Object>> {
        let last = self.value.as_object()?;
        Some(self.earlier.iter().filter_map(|v| v.as_object()).chain([last]).collect())
    }

    fn mismatch(&self, expected: &dyn de::Expected) -> ReadError {
        let shown = match self.value {
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                format!("{} ({})", self.value.kind(), shorten(&crate::compact(self.value)))
            }
            _ => self.value.kind().to_owned(),
        };
        ReadError::new(format!("expected {}, found {shown}", plain(&expected.to_string())))
    }
}

/// What serde calls things is for programmers.
fn plain(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "u8" | "u16" | "u32" | "u64" => "a whole number, not below 0",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    }
}

/// Long values would bury the message; the path says where to look.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            match self.value {
                Value::Number(n) => n.$method(visitor).map_err(|e: serde_json::Error| ReadError::new(e.to_string())),
                _ => Err(self.mismatch(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Go<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Number(n) => n.deserialize_any(visitor).map_err(|e: serde_json::Error| ReadError::new(e.to_string())),
            Value::String(s) => visitor.visit_str(s),
            Value::Array(list) => visitor.visit_seq(List { rest: list.iter(), next: 0 }),
            Value::Object(object) => visitor.visit_map(Pairs::all(&[object])),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::Bool(b) => visitor.visit_bool(*b),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::String(s) => visitor.visit_str(s),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::Array(list) => visitor.visit_seq(List { rest: list.iter(), next: 0 }),
            Value::Null => visitor.visit_seq(List { rest: [].iter(), next: 0 }),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match (self.objects(), self.value) {
            (Some(objects), _) => visitor.visit_map(Pairs::all(&objects)),
            (None, Value::Null) => visitor.visit_map(Pairs { pairs: Vec::new(), at: 0 }),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match (self.objects(), self.value) {
            (Some(objects), _) => visitor.visit_map(Pairs::of(&objects, fields)),
            (None, Value::Null) => visitor.visit_map(Pairs { pairs: Vec::new(), at: 0 }),
            _ => Err(ReadError::new(format!("expected an object, found {}", self.value.kind()))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.value {
            Value::String(s) => visitor.visit_enum(Word(s)),
            _ => Err(ReadError::new(format!("expected a string, found {}", self.value.kind()))),
        }
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The elements of a list.
struct List<'a> {
    rest: std::slice::Iter<'a, Value>,
    next: usize,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some(value) = self.rest.next() else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Go::one(value)).map(Some).map_err(|e| e.under_index(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The pairs of an object that are to be seen, with the name that the type knows for each.
struct Pairs<'a> {
    pairs: Vec<(&'a str, Go<'a>)>,
    at: usize,
}

impl<'a> Pairs<'a> {
    /// A Go map: keys are what they are; the last of the same spelling wins.
    fn all(objects: &[&'a Object]) -> Self {
        let mut pairs: Vec<(&str, Go<'a>)> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        for (key, value) in objects.iter().flat_map(|o| &o.0) {
            match seen.entry(key.as_str()) {
                std::collections::hash_map::Entry::Vacant(e) => {
                    e.insert(pairs.len());
                    pairs.push((key, Go::one(value)));
                }
                std::collections::hash_map::Entry::Occupied(e) => {
                    if let Some(pair) = pairs.get_mut(*e.get()) {
                        pair.1 = Go::one(value);
                    }
                }
            }
        }
        Pairs { pairs, at: 0 }
    }

    /// A Go struct: only known fields, whatever their case, never `null`.
    fn of(objects: &[&'a Object], fields: &'static [&'static str]) -> Self {
        let mut pairs: Vec<(&str, Go<'a>)> = Vec::with_capacity(fields.len());
        for (key, value) in objects.iter().flat_map(|o| &o.0) {
            let Some(field) = fields.iter().find(|f| same_key(f, key)) else { continue };
            if matches!(value, Value::Null) {
                continue;
            }
            match pairs.iter_mut().find(|(name, _)| name == field) {
                Some((_, go)) => go.earlier.push(std::mem::replace(&mut go.value, value)),
                None => pairs.push((field, Go::one(value))),
            }
        }
        Pairs { pairs, at: 0 }
    }
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let Some((key, _)) = self.pairs.get(self.at) else { return Ok(None) };
        let key: StrDeserializer<'_, ReadError> = (*key).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let Some((key, go)) = self.pairs.get_mut(self.at) else {
            return Err(ReadError::new("a value was asked for where there is none".to_owned()));
        };
        self.at += 1;
        let key = *key;
        let go = Go { value: go.value, earlier: std::mem::take(&mut go.earlier) };
        seed.deserialize(go).map_err(|e| e.under_key(key))
    }
}

/// A string that names an enum's variant.
struct Word<'a>(&'a str);

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = ReadError;
    type Variant = Nothing;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Nothing), ReadError> {
        let word: StrDeserializer<'_, ReadError> = self.0.into_deserializer();
        Ok((seed.deserialize(word)?, Nothing))
    }
}

/// What stands behind a variant's name: nothing.
struct Nothing;

impl<'de> VariantAccess<'de> for Nothing {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, ReadError> {
        Err(ReadError::new("expected a plain name".to_owned()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ReadError> {
        Err(ReadError::new("expected a plain name".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, ReadError> {
        Err(ReadError::new("expected a plain name".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(serde::Deserialize, Debug, Default, PartialEq)]
    #[serde(default, rename_all = "camelCase")]
    struct Conf {
        is_gateway: bool,
        mtu: u16,
        ipam: Ipam,
        sysctl: BTreeMap<String, String>,
        any: Option<Value>,
    }

    #[derive(serde::Deserialize, Debug, Default, PartialEq)]
    #[serde(default)]
    struct Ipam {
        name: String,
        ranges: Vec<Vec<Range>>,
    }

    #[derive(serde::Deserialize, Debug, Default, PartialEq)]
    #[serde(default, rename_all = "camelCase")]
    struct Range {
        range_start: String,
    }

    fn conf(text: &str) -> Result<Conf, ReadError> {
        read(&crate::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn reads_as_go_does() {
        let c =
            conf(r#"{"ISGATEWAY":false,"isgateway":true,"MTU":9000,"mtu":null,"IPAM":null,"x":{},"sysctl":{"a":"1","a":"2"}}"#).unwrap();
        assert!(c.is_gateway);
        assert_eq!(c.mtu, 9000);
        assert_eq!(c.sysctl["a"], "2");
        assert_eq!(c.ipam, Ipam::default());
    }

    #[test]
    fn equal_keys_fill_one_struct() {
        let c = conf(
            r#"{"ipam":{"ranges":[[{"rangeStart":"a"}]],"Name":"first"},"sysctl":{"a":"1","b":"1"},
                "IPAM":{"name":"second","ranges":null},"Ipam":{},"SYSCTL":{"b":"2"},"any":{"a":1},"Any":{"b":2}}"#,
        )
        .unwrap();
        assert_eq!((c.ipam.name.as_str(), c.ipam.ranges[0][0].range_start.as_str()), ("second", "a"));
        assert_eq!((c.sysctl["a"].as_str(), c.sysctl["b"].as_str()), ("1", "2"));
        assert_eq!(crate::compact(&c.any.unwrap()), r#"{"b":2}"#, "what may be anything is replaced");
        // A list is replaced, too: Go would fill its old elements anew.
        let c = conf(r#"{"ipam":{"ranges":[[{"rangeStart":"a"}],[]],"Ranges":[[{}]]}}"#).unwrap();
        assert_eq!(c.ipam.ranges, [[Range::default()]]);
        assert!(conf(r#"{"ipam":{},"IPAM":7}"#).is_err());
    }

    #[test]
    fn a_map_keeps_its_keys_case() {
        let c = conf(r#"{"sysctl":{"net.A":"1","net.a":"2"}}"#).unwrap();
        assert_eq!(c.sysctl.len(), 2);
    }

    #[test]
    fn errors_name_the_path() {
        let e = conf(r#"{"ipam":{"ranges":[[],[{"rangestart":7}]]}}"#).unwrap_err();
        assert_eq!(e.to_string(), "ipam.ranges[1][0].rangeStart: expected a string, found a number (7)");
        let e = conf(r#"{"mtu":70000}"#).unwrap_err();
        assert_eq!(e.path(), "mtu");
        let e = conf(r#"{"mtu":"1500"}"#).unwrap_err();
        assert_eq!(e.to_string(), r#"mtu: expected a whole number, not below 0, found a string ("1500")"#);
        assert!(conf("[]").is_err());
    }

    #[test]
    fn any_value_survives() {
        let text = r#"{"B":[1,-2,3.5,null,{"z":1,"a":2}],"b":"x"}"#;
        let v = crate::parse(text.as_bytes()).unwrap();
        assert_eq!(crate::compact(&v), text);
        let c = conf(&format!(r#"{{"any":{text}}}"#)).unwrap();
        assert_eq!(c.any, Some(v));
    }
}
