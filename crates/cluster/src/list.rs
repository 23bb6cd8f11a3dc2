//! A list, taken object by object while it comes: no more than one of them is held as it was sent, however many there are.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// What a list says of itself.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) more: Option<String>,
}

/// Reads a page: each of its objects is given to `take`, with what was made of those before it.
pub(crate) struct Page<T, S> {
    pub(crate) state: S,
    pub(crate) take: fn(&mut S, T),
}

/// The same of its items.
struct Items<'s, T, S> {
    state: &'s mut S,
    take: fn(&mut S, T),
    object: PhantomData<T>,
}

// === impl Page ===

impl<'de, T: Deserialize<'de>, S> DeserializeSeed<'de> for Page<T, S> {
    type Value = (S, PageMeta);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>, S> Visitor<'de> for Page<T, S> {
    type Value = (S, PageMeta);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut meta = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => meta = Some(map.next_value()?),
                "items" => map.next_value_seed(Items { state: &mut self.state, take: self.take, object: PhantomData })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((self.state, meta.ok_or_else(|| de::Error::missing_field("metadata"))?))
    }
}

// === impl Items ===

impl<'de, T: Deserialize<'de>, S> DeserializeSeed<'de> for Items<'_, T, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // An empty list of the API server may be `null`.
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Deserialize<'de>, S> Visitor<'de> for Items<'_, T, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(object) = items.next_element()? {
            (self.take)(self.state, object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<u8>, PageMeta), serde_json::Error> {
        let page = Page { state: Vec::new(), take: |all: &mut Vec<u8>, object| all.push(object) };
        page.deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn objects_come_in_order_wherever_the_lists_own_words_stand() {
        for text in [
            r#"{"kind": "List", "metadata": {"resourceVersion": "7", "continue": "x", "other": 1}, "items": [1, 2, 3]}"#,
            r#"{"items": [1, 2, 3], "metadata": {"continue": "x", "resourceVersion": "7"}, "kind": {"a": []}}"#,
        ] {
            let (all, meta) = read(text).unwrap();
            assert_eq!((all.as_slice(), meta.resource_version.as_str(), meta.more.as_deref()), ([1, 2, 3].as_slice(), "7", Some("x")));
        }
        for text in [r#"{"metadata": {}, "items": null}"#, r#"{"metadata": {}}"#] {
            assert!(read(text).unwrap().0.is_empty());
        }
        assert!(read(r#"{"items": []}"#).err().unwrap().to_string().contains("metadata"));
        assert!(read(r#"{"metadata": {}, "items": {}}"#).is_err());
    }
}
