//! What a definition may name: its author uses the operator's credentials.

use crate::PortConfig;

/// What definitions may name, as one rule says it. `*` allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permit {
    /// The rule's name, for refusals.
    pub rule: String,
    /// IDs of subnets.
    pub subnets: Vec<String>,
    /// IDs of networks, of which Neutron then chooses the subnets.
    pub networks: Vec<String>,
    /// IDs of security groups.
    pub security_groups: Vec<String>,
    /// IDs of projects.
    pub projects: Vec<String>,
    /// Whether a pod may ask for an address that lies in a subnet and in none of its allocation pools.
    pub outside_allocation_pools: bool,
}

/// A definition names what it may not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy rule {rule:?} does not allow {key} {id:?}; allowed: {allowed}")]
pub struct Forbidden {
    /// The rule's name.
    pub rule: String,
    /// The key of the definition.
    pub key: &'static str,
    /// What it names.
    pub id: String,
    /// What it may name.
    pub allowed: String,
}

// === impl Permit ===

impl Permit {
    /// Holds what a definition names against the rule. What it does not name is the configured default, which everybody may use.
    ///
    /// # Errors
    /// [`Forbidden`]: the first one.
    pub fn check(&self, config: &PortConfig) -> Result<(), Forbidden> {
        let groups = config.security_groups.iter().flatten();
        let named = (config.subnets.iter().map(|id| ("subnetId", id, &self.subnets)))
            .chain(config.network.iter().map(|id| ("networkId", id, &self.networks)))
            .chain(groups.map(|id| ("securityGroups", id, &self.security_groups)))
            .chain(config.project.iter().map(|id| ("projectId", id, &self.projects)));
        for (key, id, allowed) in named {
            if !allowed.iter().any(|one| one == "*" || one == id) {
                let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(Forbidden { rule: self.rule.clone(), key, id: id.chars().take(80).collect(), allowed });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_refused_by_its_name() {
        let list = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>();
        let permit = Permit { rule: "r".to_owned(), subnets: list(&["s-1", "s-2"]), security_groups: list(&["*"]), ..Permit::default() };
        let check = |text: &str| permit.check(&PortConfig::parse(text).unwrap()).map_err(|e| e.to_string());
        assert_eq!(check("{}"), Ok(()));
        assert_eq!(check(r#"{"subnetId": "s-2", "securityGroups": ["x"]}"#), Ok(()));
        let refused = check(r#"{"subnetIds": ["s-1", "s-3"]}"#).unwrap_err();
        assert_eq!(refused, r#"policy rule "r" does not allow subnetId "s-3"; allowed: s-1, s-2"#);
        assert!(check(r#"{"networkId": "n"}"#).unwrap_err().ends_with("allowed: none"));
        assert!(check(r#"{"projectId": "p"}"#).unwrap_err().contains("projectId"));
    }
}
