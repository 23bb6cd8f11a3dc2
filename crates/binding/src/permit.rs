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
    /// Names of the drivers that plug ports: with a nested one, the port's security groups may not filter.
    pub drivers: Vec<String>,
    /// IDs of QoS policies.
    pub qos_policies: Vec<String>,
    /// IDs of ports that exist already.
    pub ports: Vec<String>,
    /// Names of the types of ports.
    pub vnic_types: Vec<String>,
    /// Whether ports may have address pairs: with them a pod may send from others' addresses.
    pub address_pairs: bool,
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
    pub fn check<'a>(&'a self, config: &'a PortConfig) -> Result<(), Forbidden> {
        let each = |key, ids: &'a [String], allowed: &'a Vec<String>| ids.iter().map(move |id| (key, id.as_str(), allowed));
        let named = (each("subnetId", &config.subnets, &self.subnets))
            .chain(each("networkId", config.network.as_slice(), &self.networks))
            .chain(each("securityGroups", config.security_groups.as_deref().unwrap_or_default(), &self.security_groups))
            .chain(each("projectId", config.project.as_slice(), &self.projects))
            .chain(each("qosPolicy", config.qos_policy.as_slice(), &self.qos_policies))
            .chain(each("portId", config.port.as_slice(), &self.ports))
            .chain(config.vnic_type.map(|vnic_type| ("vnicType", vnic_type.name(), &self.vnic_types)))
            .chain(config.driver.map(|driver| ("driverType", driver.name(), &self.drivers)));
        for (key, id, allowed) in named {
            if !allowed.iter().any(|one| one == "*" || one == id) {
                let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                return Err(Forbidden { rule: self.rule.clone(), key, id: id.chars().take(80).collect(), allowed });
            }
        }
        match config.address_pairs.first().filter(|_| !self.address_pairs) {
            Some(pair) => {
                let (key, id) = ("allowedAddressPairs", pair.ip_address.clone());
                Err(Forbidden { rule: self.rule.clone(), key, id, allowed: "none".to_owned() })
            }
            None => Ok(()),
        }
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
        assert_eq!(check(r#"{"portId": "x"}"#).unwrap_err(), r#"policy rule "r" does not allow portId "x"; allowed: none"#);
        assert!(check(r#"{"vnicType": "direct"}"#).unwrap_err().contains(r#"does not allow vnicType "direct""#));
        assert!(check(r#"{"qosPolicy": "q"}"#).unwrap_err().contains("does not allow qosPolicy \"q\"; allowed: none"));
        let pairs = r#"{"allowedAddressPairs": [{"ipAddress": "0.0.0.0/0"}]}"#;
        assert_eq!(check(pairs).unwrap_err(), r#"policy rule "r" does not allow allowedAddressPairs "0.0.0.0/0"; allowed: none"#);
        let wide = Permit { qos_policies: list(&["q"]), address_pairs: true, ..Permit::default() };
        assert!(
            wide.check(&PortConfig::parse(pairs).unwrap()).is_ok()
                && wide.check(&PortConfig::parse(r#"{"qosPolicy": "q"}"#).unwrap()).is_ok()
        );
        let permit = Permit { rule: "r".to_owned(), drivers: list(&["neutron-vif"]), ..Permit::default() };
        let check = |text: &str| permit.check(&PortConfig::parse(text).unwrap()).map_err(|e| e.to_string());
        assert_eq!(check(r#"{"driverType": "neutron-vif"}"#), Ok(()));
        let refused = r#"policy rule "r" does not allow driverType "nested-macvlan"; allowed: neutron-vif"#;
        assert_eq!(check(r#"{"driverType": "nested-macvlan"}"#), Err(refused.to_owned()));
    }
}
