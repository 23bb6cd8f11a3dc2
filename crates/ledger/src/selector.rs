//! Which nodes a pool is for.

use std::collections::BTreeMap;

use api::NodeSelector;

/// Whether a node with these labels is meant. A selector that was not checked takes nobody where it makes no sense.
pub(crate) fn takes(selector: Option<&NodeSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return true };
    let equal = selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().all(|wanted| {
            let value = labels.get(&wanted.key);
            match wanted.operator.as_str() {
                "In" => value.is_some_and(|v| wanted.values.contains(v)),
                "NotIn" => value.is_none_or(|v| !wanted.values.contains(v)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
