//! What a pod asks for: its annotation and the definitions that it selects become elements.
//!
//! ```text
//!   annotation --npwg::parse--> selections --definition--> PortConfig --Permit::check--> Element
//! ```
//!
//! An interface has the name that the selection asks for; without one the prefix and the selection's position, the first being 1.

use npwg::DefinitionRef;
use openstack::{Settings, VifDriver};

use crate::config::{MAX_SUBNETS, once};
use crate::{ConfigError, Element, Forbidden, Permit, PortConfig, VnicType};

/// The annotation of a pod with subnets in which its default network's port has addresses as well.
pub const ADDITIONAL_SUBNETS: &str = "openstack.org/kuryr-additional-subnets";

/// What is known of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownDefinition<'a> {
    /// There is none of this name.
    Absent,
    /// It is not Neutron's.
    Other,
    /// The value of its annotation.
    Neutron(&'a str),
}

/// A pod cannot have the ports that it asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The annotation breaks the standard.
    #[error("{0}")]
    Annotation(String),
    /// A definition is not there.
    #[error("definition {0} does not exist: no port is made before all of the pod's definitions are there")]
    NoDefinition(DefinitionRef),
    /// A definition cannot be used.
    #[error("definition {0}: {1}")]
    Config(DefinitionRef, ConfigError),
    /// A definition names what it may not.
    #[error("definition {0}: {1}")]
    Forbidden(DefinitionRef, Box<Forbidden>),
    /// A driver that is not offered.
    #[error("definition {0}: driverType nested-dpdk is not supported: use neutron-vif, nested-vlan or nested-macvlan")]
    Driver(DefinitionRef),
    /// Where the nodes' own ports are is not known.
    #[error(
        "definition {0}: driverType nested-vlan and nested-macvlan need the setting [pod_vif_nested] worker_nodes_subnets, which is missing"
    )]
    NoNodeSubnets(DefinitionRef),
    /// Neutron does nothing with it.
    #[error(
        "definition {0}: qosPolicy and allowedAddressPairs have no effect on a port of driverType nested-macvlan, which Neutron's agent does not plug: \
         remove them, or use another driverType"
    )]
    NotPlugged(DefinitionRef),
    /// A node that is a virtual machine has no card.
    #[error("definition {0}: vnicType direct needs driverType neutron-vif")]
    NestedFunction(DefinitionRef),
    /// No subnet is named anywhere.
    #[error("definition {0} names no subnet, and the setting [neutron_defaults] pod_subnet is missing")]
    NoSubnet(DefinitionRef),
    /// The setting is missing that says where the default network's ports are.
    #[error("the default network is a Neutron port, and the setting [neutron_defaults] pod_subnet is missing")]
    NoDefaultSubnet,
    /// The annotation of additional subnets is no list of IDs.
    #[error("annotation {ADDITIONAL_SUBNETS} must be a JSON list of subnets' IDs, as [\"3b0c1d2e-4f50-4a6b-8c7d-9e0f1a2b3c4d\"]")]
    AdditionalSubnets,
    /// More subnets than a port may have.
    #[error("annotation {ADDITIONAL_SUBNETS}: the port would have {0} subnets, and may have {MAX_SUBNETS}: name fewer")]
    TooManySubnets(usize),
    /// It names what the pod may not use.
    #[error("annotation {ADDITIONAL_SUBNETS}: {0}")]
    ForbiddenSubnet(Box<Forbidden>),
    /// The name of the default network's interface.
    #[error("interface {0} is that of the pod's default network: choose another name for the network that {1} selects")]
    DefaultInterface(&'static str, DefinitionRef),
    /// Two interfaces of one name.
    #[error("interface {0} is asked for twice: choose another name in the pod's annotation")]
    InterfaceTwice(String),
}

/// The elements that a pod of `namespace` asks for with its annotation. None where no definition of it is Neutron's.
///
/// # Errors
/// [`RequestError`]: the first one. Then nothing is made for the pod.
pub fn elements<'d>(
    annotation: &str,
    namespace: &str,
    settings: &Settings,
    definition: impl Fn(&DefinitionRef) -> KnownDefinition<'d>,
    permits: impl Fn(&DefinitionRef) -> Vec<Permit>,
) -> Result<Vec<Element>, RequestError> {
    let selections = npwg::parse(annotation, namespace).map_err(|e| RequestError::Annotation(e.to_string()))?;
    // They are kept as long as the pod is there: with no more room than they need.
    let mut elements: Vec<Element> = Vec::with_capacity(selections.len());
    let mut absent = None;
    for (position, selection) in selections.into_iter().enumerate() {
        let text = match definition(&selection.definition) {
            KnownDefinition::Neutron(text) => text,
            KnownDefinition::Other => continue,
            KnownDefinition::Absent => {
                absent.get_or_insert(selection.definition);
                continue;
            }
        };
        let of = selection.definition;
        let config = PortConfig::parse(text).map_err(|e| RequestError::Config(of.clone(), e))?;
        let permits = permits(&of);
        for permit in &permits {
            permit.check(&config).map_err(|e| RequestError::Forbidden(of.clone(), Box::new(e)))?;
        }
        // A port that exists is bound to the node, whatever the others are.
        let driver = match config.port {
            Some(_) => VifDriver::NeutronVif,
            None => config.driver.unwrap_or(settings.vif_driver),
        };
        let vnic_type = config.vnic_type.unwrap_or_default();
        if vnic_type != VnicType::Normal && driver != VifDriver::NeutronVif {
            return Err(RequestError::NestedFunction(of));
        }
        match driver {
            VifDriver::NestedDpdk => return Err(RequestError::Driver(of)),
            VifDriver::NestedVlan | VifDriver::NestedMacvlan if settings.nested.node_subnets.is_empty() => {
                return Err(RequestError::NoNodeSubnets(of));
            }
            _ => {}
        }
        if driver == VifDriver::NestedMacvlan && (config.qos_policy.is_some() || !config.address_pairs.is_empty()) {
            return Err(RequestError::NotPlugged(of));
        }
        if selection.interface.as_ref().is_some_and(|name| name.as_str() == osvif::DEFAULT_INTERFACE) {
            return Err(RequestError::DefaultInterface(osvif::DEFAULT_INTERFACE, of));
        }
        let of_driver = config.driver.and_then(|driver| settings.subnet_of_driver.get(&driver));
        let subnets = match (config.subnets, config.network.as_ref().or(config.port.as_ref())) {
            (none, None) if none.is_empty() => vec![of_driver.or(settings.subnet.as_ref()).ok_or(RequestError::NoSubnet(of))?.clone()],
            (named, _) => named,
        };
        let number = position + 1;
        let interface = selection.interface.map_or_else(|| format!("{}{number}", settings.interface_prefix), |name| name.to_string());
        if elements.iter().any(|other| other.interface == interface) {
            return Err(RequestError::InterfaceTwice(interface));
        }
        elements.push(Element {
            number,
            interface,
            driver,
            subnets,
            network: config.network.unwrap_or_default(),
            ips: selection.ips.iter().map(|ip| ip.address).collect(),
            outside_allocation_pools: !permits.is_empty() && permits.iter().all(|permit| permit.outside_allocation_pools),
            mac: selection.mac.map(|mac| mac.to_string()),
            project: config.project,
            security_groups: config.security_groups,
            qos_policy: config.qos_policy,
            address_pairs: config.address_pairs,
            vnic_type,
            port: config.port,
        });
    }
    match absent {
        Some(absent) if !elements.is_empty() => Err(RequestError::NoDefinition(absent)),
        _ => Ok(elements),
    }
}

/// The element of a pod's default network; `own` is the subnet of its namespace, where each has its own, `additional` the annotation
/// [`ADDITIONAL_SUBNETS`].
///
/// # Errors
/// [`RequestError`].
pub fn default_element(
    own: Option<&str>,
    additional: Option<&str>,
    settings: &Settings,
    permits: &[Permit],
) -> Result<Element, RequestError> {
    let subnet = own.map(str::to_owned).or_else(|| settings.subnet.clone());
    let mut subnets = vec![subnet.ok_or(RequestError::NoDefaultSubnet)?];
    if let Some(text) = additional.filter(|text| !text.trim().is_empty()) {
        let named: Vec<String> = serde_json::from_str(text).map_err(|_| RequestError::AdditionalSubnets)?;
        let config = PortConfig { subnets: named, ..PortConfig::default() };
        for permit in permits {
            permit.check(&config).map_err(|e| RequestError::ForbiddenSubnet(Box::new(e)))?;
        }
        subnets = once(subnets.into_iter().chain(config.subnets).collect());
        if subnets.len() > MAX_SUBNETS {
            return Err(RequestError::TooManySubnets(subnets.len()));
        }
    }
    Ok(Element { number: 0, interface: osvif::DEFAULT_INTERFACE.to_owned(), driver: settings.vif_driver, subnets, ..Element::default() })
}

#[cfg(test)]
mod tests {
    use openstack::WrittenOptions;

    use super::*;

    fn settings() -> Settings {
        let text = "[neutron]\nauth_type = none\nendpoint_override = http://n\n[neutron_defaults]\nproject = p\npod_subnet = s-0\n";
        Settings::check(&WrittenOptions::kuryr_conf(text).unwrap()).unwrap()
    }

    fn of(annotation: &str) -> Result<Vec<Element>, String> {
        let (subnets, drivers) = (vec!["s-0".to_owned(), "s-1".to_owned()], vec!["*".to_owned()]);
        let permit = Permit { rule: "default".to_owned(), subnets, drivers, ..Permit::default() };
        let definition = |of: &DefinitionRef| match of.to_string().as_str() {
            "a/one" => KnownDefinition::Neutron(r#"{"subnetId": "s-1"}"#),
            "a/default" => KnownDefinition::Neutron("{}"),
            "b/other" => KnownDefinition::Neutron(r#"{"subnetId": "s-9"}"#),
            "a/vlan" => KnownDefinition::Neutron(r#"{"driverType": "nested-vlan"}"#),
            "a/dpdk" => KnownDefinition::Neutron(r#"{"driverType": "nested-dpdk"}"#),
            "a/bridge" => KnownDefinition::Other,
            _ => KnownDefinition::Absent,
        };
        elements(annotation, "a", &settings(), definition, |_| vec![permit.clone()]).map_err(|e| e.to_string())
    }

    #[test]
    fn a_default_network_has_the_configured_subnet_and_those_that_the_pod_may_add() {
        let permit = Permit { rule: "default".to_owned(), subnets: vec!["s-0".to_owned(), "s-1".to_owned()], ..Permit::default() };
        let of = |text: Option<&str>| default_element(None, text, &settings(), std::slice::from_ref(&permit)).map_err(|e| e.to_string());
        let element = of(Some(r#"["s-1", "s-0"]"#)).unwrap();
        assert_eq!((element.number, element.interface.as_str(), element.subnets.join(",")), (0, "eth0", "s-0,s-1".to_owned()));
        assert_eq!((of(None).unwrap().subnets, of(Some("")).unwrap().subnets), (vec!["s-0".to_owned()], vec!["s-0".to_owned()]));
        let forbidden = of(Some(r#"["s-9"]"#)).unwrap_err();
        assert_eq!(
            forbidden,
            r#"annotation openstack.org/kuryr-additional-subnets: policy rule "default" does not allow subnetId "s-9"; allowed: s-0, s-1"#
        );
        for bad in ["s-1", "{}", "[1]"] {
            assert!(of(Some(bad)).unwrap_err().contains("must be a JSON list"), "{bad}");
        }
    }

    #[test]
    fn addresses_outside_of_allocation_pools_need_every_rule_that_applies() {
        let of = |allowed: &[bool]| {
            let permits: Vec<Permit> = (allowed.iter())
                .map(|&outside_allocation_pools| Permit { subnets: vec!["*".to_owned()], outside_allocation_pools, ..Permit::default() })
                .collect();
            let all = elements("one", "a", &settings(), |_| KnownDefinition::Neutron(r#"{"subnetId": "s-1"}"#), |_| permits.clone());
            all.unwrap()[0].outside_allocation_pools
        };
        assert_eq!([of(&[]), of(&[false]), of(&[true, false]), of(&[true, true])], [false, false, false, true]);
    }

    #[test]
    fn selections_become_elements_in_their_order() {
        let all = of(
            r#"[{"name": "bridge"}, {"name": "one", "ips": ["10.0.0.7"], "mac": "02:00:00:00:00:07"}, {"name": "default", "interface": "x0"}]"#,
        );
        let all = all.unwrap();
        let shown: Vec<_> = all.iter().map(|e| (e.number, e.interface.as_str(), e.subnets.join(","))).collect();
        assert_eq!(shown, [(2, "eth2", "s-1".to_owned()), (3, "x0", "s-0".to_owned())]);
        assert_eq!((all[0].ips[0].to_string().as_str(), all[0].mac.as_deref()), ("10.0.0.7", Some("02:00:00:00:00:07")));
        // A namespace is that of its element alone.
        assert_eq!(
            of("b/other, one").unwrap_err(),
            r#"definition b/other: policy rule "default" does not allow subnetId "s-9"; allowed: s-0, s-1"#
        );
        // What is not Neutron's is nothing to us, whatever is wrong with it.
        assert_eq!((of("bridge, missing"), of("")), (Ok(Vec::new()), Ok(Vec::new())));
        assert!(of("one, missing").unwrap_err().starts_with("definition a/missing does not exist"));
        assert!(of("vlan").unwrap_err().ends_with("need the setting [pod_vif_nested] worker_nodes_subnets, which is missing"));
        assert!(of("dpdk").unwrap_err().contains("nested-dpdk is not supported"));
        let mut nested = settings();
        nested.nested.node_subnets = vec!["s-1".to_owned()];
        let text = r#"{"driverType": "nested-macvlan", "allowedAddressPairs": [{"ipAddress": "10.9.0.1"}]}"#;
        let refused = elements("one", "a", &nested, |_| KnownDefinition::Neutron(text), |_| Vec::new()).unwrap_err();
        assert!(matches!(refused, RequestError::NotPlugged(_)), "{refused}");
        let text = r#"{"driverType": "nested-vlan", "vnicType": "direct"}"#;
        let refused = elements("one", "a", &nested, |_| KnownDefinition::Neutron(text), |_| Vec::new()).unwrap_err();
        assert!(matches!(refused, RequestError::NestedFunction(_)), "{refused}");
        // A port that exists has its own subnets, and is never nested.
        nested.vif_driver = VifDriver::NestedVlan;
        let all = elements("one", "a", &nested, |_| KnownDefinition::Neutron(r#"{"portId": "x"}"#), |_| Vec::new()).unwrap();
        assert_eq!((all[0].port.as_deref(), all[0].subnets.len(), all[0].driver), (Some("x"), 0, VifDriver::NeutronVif));
        assert_eq!(of("one@eth2, one").unwrap_err(), "interface eth2 is asked for twice: choose another name in the pod's annotation");
        let default = "interface eth0 is that of the pod's default network: choose another name for the network that a/one selects";
        assert_eq!((of("one@eth0").unwrap_err(), of("bridge@eth0")), (default.to_owned(), Ok(Vec::new())));
        assert!(of("[1]").is_err());
    }
}
