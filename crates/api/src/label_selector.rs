//! A label selector, as Kubernetes has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which objects, by their labels: all of it must hold. An empty one takes every object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Labels and sets of values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// What a label must be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values, for the first two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Whether it takes an object with these labels. One that was not checked takes nothing where it makes no sense.
    #[must_use]
    pub fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        equal && self.match_expressions.iter().all(|wanted| wanted.holds(labels))
    }
}

// === impl LabelRequirement ===

impl LabelRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            // Also true of what has no such label.
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_must_hold() {
        let labels: BTreeMap<String, String> = [("team".to_owned(), "red".to_owned()), ("tier".to_owned(), "web".to_owned())].into();
        let takes = |text: &str| serde_json::from_str::<LabelSelector>(text).unwrap().takes(&labels);
        for (text, taken) in [
            ("{}", true),
            (r#"{"matchLabels": {"team": "red"}}"#, true),
            (r#"{"matchLabels": {"team": "red", "zone": "a"}}"#, false),
            (r#"{"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue", "red"]}]}"#, true),
            (r#"{"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}"#, false),
            (r#"{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}"#, true),
            (r#"{"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "zone", "operator": "DoesNotExist"}]}"#, true),
            (r#"{"matchLabels": {"team": "red"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions": [{"key": "team", "operator": "Like", "values": ["red"]}]}"#, false),
        ] {
            assert_eq!(takes(text), taken, "{text}");
        }
    }
}
