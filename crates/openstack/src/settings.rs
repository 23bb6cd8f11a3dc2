//! What the options mean, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{AuthError, Cloud, WrittenOptions};

/// How a cluster's pods get ports of Neutron.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The OpenStack.
    pub cloud: Cloud,
    /// Whether pods get ports for the networks that they select (`npwg_multiple_interfaces`).
    pub selections: bool,
    /// What the names of their interfaces begin with, where the selection does not name one.
    pub interface_prefix: String,
    /// How ports are plugged, where a definition does not say it.
    pub vif_driver: VifDriver,
    /// Who keeps ready ports.
    pub pool_driver: PoolDriver,
    /// Whether ports have names that a person can read.
    pub port_names: bool,
    /// The project of ports.
    pub project: String,
    /// The subnet of definitions that do not name one, and of the default network.
    pub subnet: Option<String>,
    /// The subnets of definitions that name a driver, and no subnet.
    pub subnet_of_driver: BTreeMap<VifDriver, String>,
    /// The security groups of ports.
    pub security_groups: Vec<String>,
    /// The Open vSwitch bridge of ports of which Neutron does not say it.
    pub ovs_bridge: Option<String>,
    /// The MTU of interfaces, where that of the network is larger.
    pub max_mtu: Option<u32>,
    /// The tags of everything that is made.
    pub tags: Vec<String>,
    /// Ready ports.
    pub pool: Pool,
    /// Ports of pods on nodes that are virtual machines.
    pub nested: Nested,
    /// How often all ports are listed without another reason.
    pub reconcile_every: Duration,
    /// Where each namespace has a network of its own (`pod_subnets_driver = namespace`): what it is made of.
    pub namespace_subnets: Option<NamespaceSubnets>,
}

/// What networks of namespaces are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceSubnets {
    /// The pool of their ranges.
    pub pool: String,
    /// The router that connects them.
    pub router: String,
}

/// How a port is plugged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VifDriver {
    /// Into the node's switch.
    #[default]
    NeutronVif,
    /// As a VLAN of the node's trunk port.
    NestedVlan,
    /// As a macvlan of the node's port.
    NestedMacvlan,
    /// As a device of the node's own, for a userspace driver.
    NestedDpdk,
}

/// Who keeps ready ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolDriver {
    /// Nobody.
    Noop,
    /// For ports of the node's switch.
    Neutron,
    /// For subports.
    Nested,
}

/// How many ports are kept ready for each host, project and network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// At the most; 0: any number.
    pub max: u64,
    /// At the least.
    pub min: u64,
    /// So many are made at once.
    pub batch: u64,
    /// Who keeps those of which driver, where it is not the default one.
    pub of_driver: BTreeMap<VifDriver, PoolDriver>,
}

/// Nodes that are virtual machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// The subnets in which the nodes' own ports are.
    pub node_subnets: Vec<String>,
}

/// What cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsProblem {
    /// Keystone, or its credentials.
    #[error("[neutron]: {0}")]
    Cloud(#[from] AuthError),
    /// Something is not given.
    #[error("{0} is missing: without it no port can be made")]
    Missing(&'static str),
    /// Another word than those there are.
    #[error("line {line}: {option} = {value}: use {known}")]
    Word {
        /// The first is 1.
        line: usize,
        /// `[section] name`.
        option: &'static str,
        /// What was given.
        value: String,
        /// What there is.
        known: &'static str,
    },
    /// A number that is too large.
    #[error("line {line}: {option} must be at most {max}")]
    TooLarge {
        /// The first is 1.
        line: usize,
        /// `[section] name`.
        option: &'static str,
        /// The largest.
        max: u64,
    },
}

const VIF_DRIVERS: &str = "neutron-vif, nested-vlan, nested-macvlan or nested-dpdk";
const POOL_DRIVERS: &str = "noop, neutron or nested";

/// Words are read, and problems kept, so that all of them are shown at once.
struct Check<'a> {
    given: &'a WrittenOptions,
    problems: Vec<SettingsProblem>,
}

// === impl Settings ===

impl Settings {
    /// Checks the options of a file.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(given: &WrittenOptions) -> Result<Self, Vec<SettingsProblem>> {
        let mut check = Check { given, problems: Vec::new() };
        let cloud = Cloud::of_settings(given).map_err(|e| check.problems.push(e.into())).ok();
        let project = given.text("neutron_defaults", "project");
        if project.is_none() {
            check.problems.push(SettingsProblem::Missing("[neutron_defaults] project"));
        }
        let vif_driver = check.word("kubernetes", "pod_vif_driver", "[kubernetes] pod_vif_driver", VIF_DRIVERS, VifDriver::parse);
        let pool_driver = check.word("kubernetes", "vif_pool_driver", "[kubernetes] vif_pool_driver", POOL_DRIVERS, PoolDriver::parse);
        let namespace_subnets = check.namespace_subnets();
        check.only_default();
        let selections = check.selections();
        let subnet_of_driver =
            check.by_driver("neutron_defaults", "subnet_mapping", "[neutron_defaults] subnet_mapping", |subnet| Some(subnet.to_owned()));
        let max_mtu = check.mtu();
        let (pool, nested) = (check.pool(), check.nested());
        let (Some(cloud), Some(project), true) = (cloud, project, check.problems.is_empty()) else { return Err(check.problems) };
        let text = |section, name| given.text(section, name).map(str::to_owned);
        Ok(Settings {
            cloud,
            selections,
            interface_prefix: text("kubernetes", "additional_ifname_prefix").unwrap_or_else(|| "eth".to_owned()),
            vif_driver: vif_driver.unwrap_or(VifDriver::NeutronVif),
            pool_driver: pool_driver.unwrap_or(PoolDriver::Noop),
            port_names: given.flag("kubernetes", "port_debug").unwrap_or_default(),
            project: project.to_owned(),
            subnet: text("neutron_defaults", "pod_subnet"),
            subnet_of_driver,
            security_groups: given.list("neutron_defaults", "pod_security_groups"),
            ovs_bridge: text("neutron_defaults", "ovs_bridge"),
            max_mtu,
            tags: given.list("neutron_defaults", "resource_tags"),
            pool,
            nested,
            // 0 would ask Neutron all the time.
            reconcile_every: Duration::from_secs(given.number("kubernetes", "watch_reconcile_period").unwrap_or(300).max(1)),
            namespace_subnets,
        })
    }
}

// === impl VifDriver ===

impl VifDriver {
    /// The driver of that name: in `pod_vif_driver`, in a definition's `driverType`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "neutron-vif" => Some(VifDriver::NeutronVif),
            "nested-vlan" => Some(VifDriver::NestedVlan),
            "nested-macvlan" => Some(VifDriver::NestedMacvlan),
            "nested-dpdk" => Some(VifDriver::NestedDpdk),
            _ => None,
        }
    }

    /// Its name in kuryr.conf and in definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VifDriver::NeutronVif => "neutron-vif",
            VifDriver::NestedVlan => "nested-vlan",
            VifDriver::NestedMacvlan => "nested-macvlan",
            VifDriver::NestedDpdk => "nested-dpdk",
        }
    }
}

// === impl PoolDriver ===

impl PoolDriver {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "noop" => Some(PoolDriver::Noop),
            "neutron" => Some(PoolDriver::Neutron),
            "nested" => Some(PoolDriver::Nested),
            _ => None,
        }
    }
}

// === impl Check ===

impl Check<'_> {
    fn word<T>(&mut self, section: &str, name: &str, option: &'static str, known: &'static str, read: fn(&str) -> Option<T>) -> Option<T> {
        let word = self.given.text(section, name)?;
        let read = read(word);
        if read.is_none() {
            self.problems.push(SettingsProblem::Word { line: self.given.line(section, name), option, value: word.to_owned(), known });
        }
        read
    }

    /// Options of which Kuryr has several drivers, and one is offered.
    fn only_default(&mut self) {
        const ONLY: [(&str, &str, &str); 2] = [
            ("pod_project_driver", "[kubernetes] pod_project_driver", "default"),
            (
                "pod_security_groups_driver",
                "[kubernetes] pod_security_groups_driver",
                "default (NetworkPolicies are not enforced by security groups)",
            ),
        ];
        for (name, option, known) in ONLY {
            self.word("kubernetes", name, option, known, |word| (word == "default").then_some(()));
        }
        let (name, option) = ("nodes_subnets_driver", "[kubernetes] nodes_subnets_driver");
        self.word("kubernetes", name, option, "config", |word| (word == "config").then_some(()));
    }

    fn selections(&mut self) -> bool {
        let drivers = self.given.list("kubernetes", "multi_vif_drivers");
        for driver in drivers.iter().filter(|driver| !matches!(driver.as_str(), "noop" | "npwg_multiple_interfaces")) {
            let (line, option) = (self.given.line("kubernetes", "multi_vif_drivers"), "[kubernetes] multi_vif_drivers");
            let known = "noop or npwg_multiple_interfaces";
            self.problems.push(SettingsProblem::Word { line, option, value: driver.clone(), known });
        }
        drivers.iter().any(|driver| driver == "npwg_multiple_interfaces")
    }

    fn by_driver<T>(&mut self, section: &str, name: &str, option: &'static str, read: fn(&str) -> Option<T>) -> BTreeMap<VifDriver, T> {
        let mut found = BTreeMap::new();
        for (driver, value) in self.given.map(section, name) {
            match (VifDriver::parse(driver), read(value)) {
                (Some(driver), Some(value)) => drop(found.insert(driver, value)),
                (driver_known, _) => {
                    let (value, known) = if driver_known.is_none() { (driver, VIF_DRIVERS) } else { (value, POOL_DRIVERS) };
                    let line = self.given.line(section, name);
                    self.problems.push(SettingsProblem::Word { line, option, value: value.clone(), known });
                }
            }
        }
        found
    }

    fn namespace_subnets(&mut self) -> Option<NamespaceSubnets> {
        let driver =
            self.word("kubernetes", "pod_subnets_driver", "[kubernetes] pod_subnets_driver", "default or namespace", |word| match word {
                "default" => Some(false),
                "namespace" => Some(true),
                _ => None,
            });
        if driver != Some(true) {
            return None;
        }
        let mut id = |name, option| {
            let id = self.given.text("namespace_subnet", name).map(str::to_owned);
            if id.is_none() {
                self.problems.push(SettingsProblem::Missing(option));
            }
            id
        };
        let (pool, router) = (
            id("pod_subnet_pool", "pod_subnets_driver is namespace, and [namespace_subnet] pod_subnet_pool"),
            id("pod_router", "pod_subnets_driver is namespace, and [namespace_subnet] pod_router"),
        );
        Some(NamespaceSubnets { pool: pool?, router: router? })
    }

    fn mtu(&mut self) -> Option<u32> {
        let mtu = self.given.number("neutron_defaults", "network_device_mtu").filter(|&mtu| mtu > 0)?;
        let read = u32::try_from(mtu).ok().filter(|&mtu| mtu <= 65_535);
        if read.is_none() {
            let line = self.given.line("neutron_defaults", "network_device_mtu");
            self.problems.push(SettingsProblem::TooLarge { line, option: "[neutron_defaults] network_device_mtu", max: 65_535 });
        }
        read
    }

    fn pool(&mut self) -> Pool {
        let of_driver = self.by_driver("vif_pool", "vif_pool_mapping", "[vif_pool] vif_pool_mapping", PoolDriver::parse);
        let number = |name: &str, default| self.given.number("vif_pool", name).unwrap_or(default);
        Pool { max: number("ports_pool_max", 0), min: number("ports_pool_min", 5), batch: number("ports_pool_batch", 10), of_driver }
    }

    fn nested(&self) -> Nested {
        Nested { node_subnets: self.given.list("pod_vif_nested", "worker_nodes_subnets") }
    }
}
