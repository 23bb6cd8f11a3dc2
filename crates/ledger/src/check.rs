//! An IPPool, checked: by the operator, and by a host that has one in a file.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use api::{ConflictDetection, Entry, IpPoolFamily, IpPoolSpec, LabelSelector, Reclaim, ReuseOrder};
use pool::{Family, Order, ParseRunError, Run, Spec, Terms, edges};

use crate::runs::{pieces, union, within};

/// How small and how large a block may be, for IPv4 and IPv6, as prefix lengths: an address's number within it has 16 bits.
pub const BLOCK_PREFIXES: [RangeInclusive<u8>; 2] = [16..=32, 112..=128];
/// What a block is where nothing else is said.
const DEFAULT_BLOCK_PREFIXES: [u8; 2] = [26, 120];

/// A pool whose every word was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its terms. Exclusions have the edges of its networks, too.
    pub spec: Spec,
    /// Its addresses, in order and none of them twice.
    pub runs: Vec<Run>,
    /// The prefix length of an IPv4 block.
    pub block_v4: u8,
    /// The prefix length of an IPv6 block.
    pub block_v6: u8,
    /// When the addresses of a deleted node are free.
    pub reclaim: Reclaim,
}

/// A key, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct InvalidKey {
    /// The key, from `spec` on.
    pub place: String,
    /// Why.
    pub reason: String,
}

// === impl Pool ===

impl Pool {
    /// The prefix length of a block.
    #[must_use]
    pub fn block(&self, family: Family) -> u8 {
        match family {
            Family::V4 => self.block_v4,
            Family::V6 => self.block_v6,
        }
    }

    /// Whether it has addresses of that family.
    #[must_use]
    pub fn has(&self, family: Family) -> bool {
        self.runs.iter().any(|run| run.family() == family)
    }

    /// What anybody may get of some addresses: without exclusions, reservations, gateways, and what the pool has not.
    #[must_use]
    pub fn usable(&self, of: &Run) -> Vec<Run> {
        within(&self.runs, of).into_iter().flat_map(|run| self.spec.usable(run)).collect()
    }

    /// All that anybody may get, in order.
    #[must_use]
    pub fn all_usable(&self) -> Vec<Run> {
        self.runs.iter().flat_map(|run| self.spec.usable(*run)).collect()
    }

    /// What nobody may get of some addresses, but for reservations and gateways: exclusions, edges, and what the pool has not.
    #[must_use]
    pub fn excluded(&self, of: &Run) -> Vec<Run> {
        let foreign = pieces(vec![*of], &self.runs);
        union(foreign.into_iter().chain(within(&self.spec.exclude, of)).collect())
    }
}

/// Checks a pool of that name.
///
/// # Errors
/// [`InvalidKey`]: the first key that cannot be.
pub fn check(name: &str, raw: &IpPoolSpec) -> Result<Pool, InvalidKey> {
    let mut spec = Spec::new(name, if raw.network.is_empty() { name } else { &raw.network });
    spec.exclude = runs("spec.exclude", &raw.exclude)?;
    spec.reserved = runs("spec.reserved", &raw.reserved)?;
    (spec.reuse, spec.scaling) = rates(&raw.reuse, &raw.scaling);
    // Who listens does so beside an ADD: no term of what is handed out.
    spec.probe = raw.conflict_detection == ConflictDetection::Probe;
    let [block_v4, block_v6] = DEFAULT_BLOCK_PREFIXES;
    let mut checked = Pool { spec, runs: Vec::new(), block_v4, block_v6, reclaim: raw.reclaim };
    for (family, raw_family) in [(Family::V4, &raw.ipv4), (Family::V6, &raw.ipv6)] {
        let Some(raw_family) = raw_family else { continue };
        let place = if family == Family::V4 { "spec.ipv4" } else { "spec.ipv6" };
        let (terms, runs) = family_of(place, family, raw_family)?;
        if runs.is_empty() {
            continue;
        }
        let networks = raw_family.entries.iter().zip(&runs).filter(|(entry, _)| entry.cidr.is_some());
        checked.spec.exclude.extend(networks.flat_map(|(_, run)| edges(run, raw.allow_first_ip, raw.allow_last_ip)));
        let block = block_of(place, family, raw_family)?;
        match family {
            Family::V4 => (checked.spec.v4, checked.block_v4) = (terms, block),
            Family::V6 => (checked.spec.v6, checked.block_v6) = (terms, block),
        }
        for run in runs {
            checked.runs = pieces(vec![run], &checked.runs).into_iter().chain(std::mem::take(&mut checked.runs)).collect();
        }
    }
    if checked.runs.is_empty() {
        return Err(InvalidKey::new("spec", "has no addresses: set ipv4.entries or ipv6.entries"));
    }
    selector("spec.podSelector", raw.pod_selector.as_ref())?;
    selector("spec.namespaceSelector", raw.namespace_selector.as_ref())?;
    selector("spec.nodeSelector", raw.node_selector.as_ref())?;
    checked.runs.sort();
    Ok(checked)
}

/// When an address comes again, and how much of a pool a node keeps, as an object has it.
#[must_use]
pub fn rates(reuse: &api::Reuse, scaling: &api::Scaling) -> (pool::Reuse, pool::Scaling) {
    let order = match reuse.order {
        ReuseOrder::Fifo => Order::Fifo,
        ReuseOrder::Lowest => Order::Lowest,
        ReuseOrder::Random => Order::Random,
    };
    let reuse = pool::Reuse { cooldown: reuse.cooldown_seconds.saturating_mul(1000), order };
    let scaling = pool::Scaling {
        min_allocate: scaling.min_allocate,
        pre_allocate: scaling.pre_allocate,
        max_allocate: scaling.max_allocate,
        max_above_watermark: scaling.max_above_watermark,
    };
    (reuse, scaling)
}

fn runs(place: &str, texts: &[String]) -> Result<Vec<Run>, InvalidKey> {
    let read =
        |(i, text): (usize, &String)| text.parse().map_err(|e: ParseRunError| InvalidKey::new(format!("{place}[{i}]"), e.to_string()));
    texts.iter().enumerate().map(read).collect()
}

fn family_of(place: &str, family: Family, raw: &IpPoolFamily) -> Result<(Terms, Vec<Run>), InvalidKey> {
    let mut found = Vec::new();
    for (i, entry) in raw.entries.iter().enumerate() {
        let wrong = |reason: String| InvalidKey::new(format!("{place}.entries[{i}]"), reason);
        let run = run_of(entry).map_err(wrong)?;
        if run.family() != family {
            return Err(wrong(format!("{run} is not an {family} address")));
        }
        found.push(run);
    }
    let networks = raw.entries.iter().zip(&found).filter(|(entry, _)| entry.cidr.is_some());
    let prefix = raw.prefix_length.or_else(|| networks.filter_map(|(_, run)| run.prefix()).next());
    let prefix = prefix.filter(|prefix| *prefix > 0).unwrap_or(family.bits());
    if prefix > family.bits() {
        let reason = format!("{prefix} is more than the {} bits of an address", family.bits());
        return Err(InvalidKey::new(format!("{place}.prefixLength"), reason));
    }
    let gateway = raw.gateway.as_deref().map(|text| {
        let gateway = text.parse::<IpAddr>().ok().filter(|g| Family::of(*g) == family);
        let shown: String = text.chars().take(80).collect();
        gateway.ok_or_else(|| InvalidKey::new(format!("{place}.gateway"), format!("{shown:?} is not an {family} address")))
    });
    Ok((Terms { prefix, gateway: gateway.transpose()? }, found))
}

fn run_of(entry: &Entry) -> Result<Run, String> {
    let Entry { cidr, range, ip } = entry;
    let (text, form): (_, fn(&str) -> bool) = match (cidr, range, ip) {
        (Some(text), None, None) => (text, |t| t.contains('/')),
        (None, Some(text), None) => (text, |t| t.contains('-')),
        (None, None, Some(text)) => (text, |t| !t.contains(['/', '-'])),
        _ => return Err("has none of cidr, range and ip".to_owned()),
    };
    let run: Run = text.parse().map_err(|e: ParseRunError| e.to_string())?;
    if form(text) { Ok(run) } else { Err(format!("{run} is under the wrong key: use cidr, range or ip as it is written")) }
}

fn block_of(place: &str, family: Family, raw: &IpPoolFamily) -> Result<u8, InvalidKey> {
    let [v4, v6] = BLOCK_PREFIXES;
    let [default_v4, default_v6] = DEFAULT_BLOCK_PREFIXES;
    let (allowed, default) = if family == Family::V4 { (v4, default_v4) } else { (v6, default_v6) };
    let block = raw.block_prefix.unwrap_or(default);
    if allowed.contains(&block) {
        return Ok(block);
    }
    let reason = format!("{block} is not between {} and {}", allowed.start(), allowed.end());
    Err(InvalidKey::new(format!("{place}.blockPrefix"), reason))
}

fn selector(place: &str, raw: Option<&LabelSelector>) -> Result<(), InvalidKey> {
    let expressions = raw.iter().flat_map(|selector| &selector.match_expressions);
    for (i, expression) in expressions.enumerate() {
        let wrong = |reason: String| InvalidKey::new(format!("{place}.matchExpressions[{i}]"), reason);
        match (expression.operator.as_str(), expression.values.is_empty()) {
            _ if expression.key.is_empty() => return Err(wrong("has no key".to_owned())),
            ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => {}
            ("In" | "NotIn", true) => return Err(wrong(format!("{} needs values", expression.operator))),
            ("Exists" | "DoesNotExist", false) => return Err(wrong(format!("{} takes no values", expression.operator))),
            (other, _) => return Err(wrong(format!("operator {other:?} is not one of In, NotIn, Exists and DoesNotExist"))),
        }
    }
    Ok(())
}

// === impl InvalidKey ===

impl InvalidKey {
    fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        InvalidKey { place: place.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_selector_is_checked_in_its_place() {
        let check = |key: &str, requirement: &str| {
            let text = format!(
                r#"{{"ipv4": {{"entries": [{{"cidr": "10.0.0.0/24"}}]}}, "{key}": {{"matchLabels": {{"a": "b"}}, "matchExpressions": [
                {{"key": "a", "operator": "Exists"}}, {requirement}]}}}}"#
            );
            check("p", &serde_json::from_str(&text).unwrap()).map_err(|wrong| wrong.to_string())
        };
        for key in ["podSelector", "namespaceSelector", "nodeSelector"] {
            assert!(check(key, r#"{"key": "a", "operator": "In", "values": ["b"]}"#).is_ok());
            for (requirement, why) in [
                (r#"{"operator": "Exists"}"#, "has no key"),
                (r#"{"key": "a", "operator": "In"}"#, "In needs values"),
                (r#"{"key": "a", "operator": "DoesNotExist", "values": ["b"]}"#, "DoesNotExist takes no values"),
                (r#"{"key": "a", "operator": "Like"}"#, "operator \"Like\" is not one of In, NotIn, Exists and DoesNotExist"),
            ] {
                assert_eq!(check(key, requirement).unwrap_err(), format!("spec.{key}.matchExpressions[1]: {why}"));
            }
        }
    }
}
