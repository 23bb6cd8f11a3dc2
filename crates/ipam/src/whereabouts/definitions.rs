//! The pools that a cluster's NetworkAttachmentDefinitions mean.

use std::collections::{BTreeMap, BTreeSet};

use api::IpPoolSpec;
use json::{Object, Value};
use serde::Deserialize;

use super::{Whereabouts, WhereaboutsKeys, WhereaboutsRange};

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangePools {
    /// By name.
    pub pools: BTreeMap<String, Defined>,
    /// Each range of each definition, with the definition's `namespace/name`.
    pub ranges: Vec<(String, WhereaboutsRange)>,
    /// Definitions whose ranges nobody can use.
    pub undefined: Vec<Undefined>,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defined {
    /// What it is.
    pub spec: IpPoolSpec,
    /// The definitions that mean it, `namespace/name`.
    pub definitions: BTreeSet<String>,
}

/// A definition that means no pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undefined {
    /// `namespace/name`
    pub definition: String,
    /// Why, with the key.
    pub reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Holder {
    ipam: Ipam,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ipam {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    ipam: WhereaboutsKeys,
}

/// The pools of these definitions: `namespace/name` and `spec.config` of each. A definition that is no JSON has none; nor has
/// a range that stands in a file of the nodes and not in the definition.
pub fn range_pools<'a>(definitions: impl IntoIterator<Item = (&'a str, &'a str)>) -> RangePools {
    let mut all = RangePools::default();
    for (definition, config) in definitions {
        let Ok(config) = json::parse(config.as_bytes()) else { continue };
        let mut holders = Vec::new();
        collect(&config, &mut holders);
        for holder in holders {
            all.add(definition, holder);
        }
    }
    all
}

/// Of a definition's `spec.config` what [`range_pools`] needs, as JSON; nothing where it means no pool.
#[must_use]
pub fn only_ranges(config: &str) -> String {
    let mut found = Vec::new();
    if let Ok(config) = json::parse(config.as_bytes()) {
        print(&config, &mut found);
    }
    if found.is_empty() { String::new() } else { format!("[{}]", found.join(",")) }
}

/// What is within such an `ipam` is printed with it.
fn print(value: &Value, found: &mut Vec<String>) {
    if let Some(object) = value.as_object() {
        let holds = json::read_object::<Holder>(object).is_ok_and(|holder| holder.ipam.kind == "whereabouts");
        let (ipam, others): (Vec<_>, Vec<_>) = object.iter().partition(|(key, _)| holds && key.eq_ignore_ascii_case("ipam"));
        if holds {
            let keys: Vec<String> = ipam.iter().map(|(key, value)| format!("{}:{}", json::compact(key), json::compact(value))).collect();
            found.push(format!("{{{}}}", keys.join(",")));
        }
        others.into_iter().for_each(|(_, value)| print(value, found));
    }
    value.as_array().unwrap_or_default().iter().for_each(|value| print(value, found));
}

/// The objects whose `ipam` is for whereabouts: the configuration, a plugin of a list, what a plugin delegates to.
fn collect<'v>(value: &'v Value, found: &mut Vec<&'v Object>) {
    if let Some(object) = value.as_object() {
        if json::read_object::<Holder>(object).is_ok_and(|holder| holder.ipam.kind == "whereabouts") {
            found.push(object);
        }
        object.iter().for_each(|(_, value)| collect(value, found));
    }
    value.as_array().unwrap_or_default().iter().for_each(|value| collect(value, found));
}

// === impl RangePools ===

impl RangePools {
    fn add(&mut self, definition: &str, holder: &Object) {
        let checked = json::read_object::<Keys>(holder).map_err(|e| e.to_string());
        match checked.and_then(|keys| Whereabouts::check(&keys.ipam).map_err(|e| e.to_string())) {
            Ok(whereabouts) => {
                for range in whereabouts.ranges {
                    let pool =
                        self.pools.entry(range.pool.clone()).or_insert_with(|| Defined { spec: range.to_spec(), ..Defined::default() });
                    pool.definitions.insert(definition.to_owned());
                    self.ranges.push((definition.to_owned(), range));
                }
            }
            Err(reason) => self.undefined.push(Undefined { definition: definition.to_owned(), reason }),
        }
    }
}
