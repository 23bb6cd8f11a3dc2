//! Where the addresses of a definition's network come from.

use json::{Object, Value};
use ledger::Source;
use pool::Family;
use serde::Deserialize;

use crate::{Whereabouts, WhereaboutsKeys};

/// The pool of a configuration that names neither one nor its network.
const DEFAULT_POOL: &str = "default";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Typed {
    ipam: TypedIpam,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedIpam {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OfPool {
    ipam: PoolKeys,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PoolKeys {
    pool: String,
    network: String,
    families: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OfWhereabouts {
    ipam: WhereaboutsKeys,
}

/// The network's name in a definition's `spec.config`, and the pools that its plugins ask for addresses; or why there are none.
pub fn source(config: &str) -> (String, Result<Source, String>) {
    let config = match json::parse(config.as_bytes()) {
        Ok(config) => config,
        Err(e) => return (String::new(), Err(format!("its configuration is not JSON: {e}"))),
    };
    let name = config.as_object().and_then(|object| json::read_object::<Named>(object).ok()).unwrap_or_default().name;
    let mut source = Source::default();
    let found = collect(&config, &mut source);
    let none = || "none of its plugins has addresses of a pool (\"ipam\" of type \"pool\" or \"whereabouts\")".to_owned();
    (name, found.and_then(|()| if source.pools.is_empty() { Err(none()) } else { Ok(source) }))
}

/// The configuration, a plugin of a list, what a plugin delegates to.
fn collect(value: &Value, source: &mut Source) -> Result<(), String> {
    if let Some(object) = value.as_object() {
        add(object, source)?;
        object.iter().try_for_each(|(_, value)| collect(value, source))?;
    }
    value.as_array().unwrap_or_default().iter().try_for_each(|value| collect(value, source))
}

fn add(object: &Object, source: &mut Source) -> Result<(), String> {
    let kind = json::read_object::<Typed>(object).unwrap_or_default().ipam.kind;
    match kind.as_str() {
        "pool" => {
            let keys = json::read_object::<OfPool>(object).map_err(|e| e.to_string())?.ipam;
            source.pools.push(pool_name(&keys.pool, &keys.network).to_owned());
            source.families.extend(keys.families.iter().filter_map(|name| family(name)));
        }
        "whereabouts" => {
            let keys = json::read_object::<OfWhereabouts>(object).map_err(|e| e.to_string())?.ipam;
            let whereabouts = Whereabouts::check(&keys).map_err(|e| e.to_string())?;
            source.pools.extend(whereabouts.ranges.into_iter().map(|range| range.pool));
        }
        _ => {}
    }
    Ok(())
}

/// The pool that a configuration means by itself: the one that it names, else that of its network's name, else `default`.
#[must_use]
pub fn pool_name<'k>(pool: &'k str, network: &'k str) -> &'k str {
    [pool, network].into_iter().find(|name| !name.is_empty()).unwrap_or(DEFAULT_POOL)
}

/// What a configuration calls a family.
#[must_use]
pub fn family(name: &str) -> Option<Family> {
    match name.to_ascii_lowercase().as_str() {
        "ipv4" => Some(Family::V4),
        "ipv6" => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_of_a_network() {
        let (name, found) = source(
            r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "bridge", "ipam": {"type": "pool", "pool": "a", "families": ["IPv4"]}}, {"type": "tuning"}]}"#,
        );
        assert_eq!((name.as_str(), found), ("n", Ok(Source { pools: vec!["a".to_owned()], families: vec![Family::V4] })));
        let (_, found) = source(r#"{"type": "macvlan", "ipam": {"type": "pool"}}"#);
        assert_eq!(found, Ok(Source { pools: vec!["default".to_owned()], families: vec![] }));
        let (_, found) = source(r#"{"type": "macvlan", "ipam": {"type": "pool", "network": "storage"}}"#);
        assert_eq!(found.unwrap().pools, ["storage"]);
        let (_, found) = source(r#"{"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}"#);
        assert_eq!(found.unwrap().pools.len(), 1);
        let (_, found) = source(r#"{"type": "macvlan", "ipam": {"type": "host-local"}}"#);
        assert!(found.unwrap_err().contains("of a pool"));
    }
}
