//! What is kept of NetworkAttachmentDefinitions: what they say of addresses, and no more of it than is good for everybody.
//!
//! ```text
//!   an object as it was sent --Definition::of--> network, pools, ranges --Configs::put--> those of its namespace have room, or it is refused
//! ```
//!
//! Whoever may create definitions decides how many there are, and how long each is: the limit is each namespace's own, so that nobody's
//! definitions are refused for another's.

use std::collections::BTreeMap;

use ipam::{RangePools, Undefined, range_pools};
use kube::core::DynamicObject;
use ledger::DefinitionSeen;

use crate::claims;

/// What is kept of one definition, in bytes: some hundred ranges.
const MAX_KEPT: usize = 16 << 10;
/// What is kept of all of a namespace.
const MAX_OF_NAMESPACE: usize = 4 << 20;

/// What a definition says of addresses.
#[derive(Debug, PartialEq)]
pub(crate) struct Definition {
    seen: DefinitionSeen,
    /// Its ranges for whereabouts, as JSON; nothing where it has none.
    ranges: String,
    /// Why nothing of it can be used.
    refused: Option<String>,
}

/// The ranges of all, by `namespace/name`, and what each has of its namespace's limit.
#[derive(Default)]
pub(crate) struct Configs {
    ranges: BTreeMap<String, (String, usize)>,
    refused: BTreeMap<String, String>,
    of_namespaces: BTreeMap<String, usize>,
}

// === impl Definition ===

impl Definition {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        let config = claims::config(object);
        let name = object.metadata.name.as_deref().unwrap_or_default();
        if config.len() > cluster::MAX_CONFIG {
            let why = format!("spec.config has {} bytes, more than {}: shorten it", config.len(), cluster::MAX_CONFIG);
            return Definition::refused(name, why);
        }
        let definition = Definition { seen: claims::definition(name, config), ranges: ipam::only_ranges(config), refused: None };
        match definition.weight() {
            weight if weight > MAX_KEPT => {
                let why =
                    format!("spec.config has {weight} bytes of names and ranges, more than {MAX_KEPT}: split it into several definitions");
                Definition::refused(name, why)
            }
            _ => definition,
        }
    }

    fn refused(name: &str, why: String) -> Self {
        let seen = DefinitionSeen { network: name.to_owned(), source: Err(why.clone()) };
        Definition { seen, ranges: String::new(), refused: Some(why) }
    }

    fn weight(&self) -> usize {
        let pools = |source: &ledger::Source| source.pools.iter().map(String::len).sum::<usize>();
        self.ranges.len() + self.seen.network.len() + self.seen.source.as_ref().map_or_else(String::len, pools)
    }
}

// === impl Configs ===

impl Configs {
    /// Takes one in, in the place of what was known of it; what the ledger is to know.
    pub(crate) fn put(&mut self, name: &str, mut definition: Definition) -> DefinitionSeen {
        self.forget(name);
        let namespace = namespace(name);
        let taken = self.of_namespaces.get(namespace).copied().unwrap_or_default();
        if taken + definition.weight() > MAX_OF_NAMESPACE {
            let why = format!(
                "the definitions of namespace {namespace} have more than {MAX_OF_NAMESPACE} bytes of names and ranges together: delete some, \
                 then change this one"
            );
            definition = Definition::refused(&definition.seen.network, why);
        }
        let weight = definition.weight();
        if let Some(why) = definition.refused {
            self.refused.insert(name.to_owned(), why);
        } else {
            *self.of_namespaces.entry(namespace.to_owned()).or_default() += weight;
            self.ranges.insert(name.to_owned(), (definition.ranges, weight));
        }
        definition.seen
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.refused.remove(name);
        let Some((_, weight)) = self.ranges.remove(name) else { return };
        if let Some(taken) = self.of_namespaces.get_mut(namespace(name)) {
            *taken = taken.saturating_sub(weight);
            if *taken == 0 {
                self.of_namespaces.remove(namespace(name));
            }
        }
    }

    /// The pools that they mean.
    pub(crate) fn meant(&self) -> RangePools {
        let ranges = self.ranges.iter().filter(|(_, (ranges, _))| !ranges.is_empty());
        let mut meant = range_pools(ranges.map(|(name, (ranges, _))| (name.as_str(), ranges.as_str())));
        let refused = self.refused.iter().map(|(name, why)| Undefined { definition: name.clone(), reason: why.clone() });
        meant.undefined.extend(refused);
        meant
    }
}

fn namespace(name: &str) -> &str {
    name.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn definition(config: &Value) -> Definition {
        let metadata = json!({"namespace": "d", "name": "x"});
        Definition::of(&serde_json::from_value(json!({"metadata": metadata, "spec": {"config": config.to_string()}})).unwrap())
    }

    fn ranges(count: usize, comment: usize) -> Value {
        let ranges: Vec<Value> = (0..count).map(|n| json!({"range": format!("10.{}.{}.0/24", n / 256, n % 256)})).collect();
        json!({"name": "net", "type": "macvlan", "comment": "x".repeat(comment), "ipam": {"type": "whereabouts", "ipRanges": ranges}})
    }

    #[test]
    fn what_is_kept_is_what_is_said_of_addresses() {
        let kept = definition(&ranges(2, 100_000));
        assert_eq!(kept.seen.network, "net");
        assert!(kept.ranges.len() < 200 && kept.refused.is_none(), "{kept:?}");
        assert_eq!(definition(&json!({"name": "other", "type": "macvlan", "comment": "x".repeat(1000)})).ranges, "");
        for (config, says) in [
            (ranges(1, cluster::MAX_CONFIG), "more than 131072: shorten it"),
            (ranges(2000, 0), "more than 16384: split it"),
            (json!({"name": "n".repeat(100_000), "type": "macvlan"}), "more than 16384"),
        ] {
            let refused = definition(&config);
            assert!(refused.refused.as_ref().is_some_and(|why| why.contains(says)), "{refused:?}");
            assert!(refused.weight() < 200 && refused.seen.source.is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_namespace_has_its_limit_for_itself() {
        let mut configs = Configs::default();
        for n in 0..1000 {
            configs.put(&format!("worst/{n}"), definition(&ranges(250, 0)));
        }
        let seen = configs.put("modest/one", definition(&ranges(1, 0)));
        assert!(seen.source.is_ok());
        let meant = configs.meant();
        let refused = meant.undefined.len();
        assert!(
            refused > 0 && meant.undefined.iter().all(|wrong| wrong.reason.contains("namespace worst")),
            "{:?}",
            meant.undefined.first()
        );
        assert!(configs.ranges.values().map(|(_, weight)| weight).sum::<usize>() <= MAX_OF_NAMESPACE + 200);
        assert!(meant.pools["whereabouts-10.0.0.0-24"].definitions.contains("modest/one"));
        // Some go, and others have their room.
        (0..1000).for_each(|n| configs.forget(&format!("worst/{n}")));
        assert!(configs.put("worst/new", definition(&ranges(250, 0))).source.is_ok());
        assert_eq!((configs.meant().undefined.len(), configs.of_namespaces.len()), (0, 2));
    }
}
