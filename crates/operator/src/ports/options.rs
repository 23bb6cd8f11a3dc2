//! How pods get ports of Neutron: what a person writes for it.
//!
//! ```text
//!   our own file (YAML)  cluster, openstack, policy --.
//!   kuryr.conf                                        +--> OpenStack, or everything that is wrong
//!   flags                cluster                      --'
//! ```

use std::path::{Path, PathBuf};

use attach::Glob;
use binding::{ClusterName, ClusterNameError, MAX_BULK, Permit, PoolSize, VnicType};
use neutron::{Limits, Neutron, SetupError};
use npwg::DefinitionRef;
use openstack::{GivenError, Note, PoolDriver, Settings, SettingsProblem, VifDriver, WrittenOptions};
use serde::Deserialize;
use yaml::Value as Yaml;

/// How pods get ports of Neutron.
#[derive(Debug, Clone)]
pub struct OpenStack {
    /// The name of this cluster among all that use this OpenStack.
    pub cluster: ClusterName,
    /// The settings, all of which are supported.
    pub settings: Settings,
    /// What definitions may name.
    pub rules: Vec<NeutronRule>,
    /// Whether the default network of pods is a port of Neutron, too.
    pub default_network: bool,
    /// Whether pods have their VIFs in an annotation as well.
    pub vif_annotation: bool,
    /// How many ports are kept ready.
    pub pool: Option<PoolSize>,
    /// The same of nested ports on trunks.
    pub nested_pool: Option<PoolSize>,
    /// How many ports the pods of a namespace have at most.
    pub ports_per_namespace: Option<usize>,
    /// Whether the operator tries at its start what the credentials may do, with ports that it deletes.
    pub checks_rights: bool,
    /// What the author of a kuryr.conf should know.
    pub notes: Vec<Note>,
    /// The client of it.
    pub neutron: Neutron,
}

/// A rule on what definitions may name.
#[derive(Debug, Clone)]
pub struct NeutronRule {
    /// Namespaces of the pods that it concerns; none: that of the definition.
    pub pod_namespaces: Option<Vec<Glob>>,
    /// Namespaces of the definitions that it concerns.
    pub definition_namespaces: Vec<Glob>,
    /// What it allows.
    pub permit: Permit,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenStackError {
    /// A file cannot be read.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Its options cannot be read.
    #[error("{}: {reason}", file.display())]
    Options {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: GivenError,
    },
    /// Settings that cannot be used.
    #[error("{}: {}", file.display(), problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Settings {
        /// The file.
        file: PathBuf,
        /// All that is wrong.
        problems: Vec<SettingsProblem>,
    },
    /// Settings that Kuryr has and this operator has not.
    #[error("{}: {}", file.display(), options.join("; "))]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Each with what to do instead.
        options: Vec<&'static str>,
    },
    /// OpenStack is described nowhere, or twice.
    #[error("{0}")]
    Place(&'static str),
    /// The client cannot be prepared.
    #[error("{}: {reason}", file.display())]
    Setup {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: SetupError,
    },
    /// The cluster's name.
    #[error(transparent)]
    Cluster(#[from] ClusterNameError),
}

/// The file but for its `openstack`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct OtherKeys {
    cluster: Option<String>,
    #[serde(rename = "openstack")]
    _openstack: serde::de::IgnoredAny,
    policy: Vec<WrittenRule>,
    ports_per_namespace: Option<usize>,
    check_rights: Option<bool>,
    default_network: Option<WrittenDefault>,
    vif_annotation: bool,
}

/// What the default network of pods is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenDefault {
    None,
    Port,
}

/// So many ports the pods of a namespace have at most, where nothing else is written.
const PORTS_PER_NAMESPACE: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenRule {
    name: String,
    pod_namespaces: Option<Vec<String>>,
    definition_namespaces: Option<Vec<String>>,
    allow: WrittenAllow,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenAllow {
    neutron: WrittenNeutron,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenNeutron {
    subnets: Option<Vec<String>>,
    networks: Option<Vec<String>>,
    security_groups: Option<Vec<String>>,
    projects: Option<Vec<String>>,
    drivers: Option<Vec<String>>,
    #[serde(default)]
    qos_policies: Vec<String>,
    #[serde(default)]
    ports: Vec<String>,
    vnic_types: Option<Vec<String>>,
    #[serde(default)]
    allowed_address_pairs: bool,
    #[serde(default)]
    outside_allocation_pools: bool,
}

// === impl OpenStack ===

impl OpenStack {
    /// Reads the settings: `file` is our own, `kuryr_conf` takes the place of its key `openstack`, `cluster` that of its key `cluster`.
    ///
    /// # Errors
    /// [`OpenStackError`]
    pub fn read(file: Option<&Path>, kuryr_conf: Option<&Path>, cluster: Option<&str>) -> Result<Self, OpenStackError> {
        let (mut given, mut beside) = (None, OtherKeys::default());
        if let Some(file) = file {
            let text = text(file)?;
            let node = yaml::with_room(|| yaml::parse(&text)).map_err(|e| wrong(file, &e))?.map_err(|e| wrong(file, &e))?;
            let value = yaml::json(&text).map_err(|e| wrong(file, &e))?;
            // Strictly: a rule that is misread protects nothing.
            let strict = serde_json::to_value(&value).and_then(serde_json::from_value);
            beside = strict.map_err(|e| wrong(file, &e))?;
            let Yaml::Object(pairs) = &node.value else { return Err(wrong(file, &"must be an object")) };
            if let Some((_, openstack)) = pairs.iter().find(|(key, _)| key.text == "openstack") {
                given = Some((
                    file,
                    WrittenOptions::of(openstack).map_err(|reason| OpenStackError::Options { file: file.to_owned(), reason })?,
                ));
            }
        }
        if let Some(file) = kuryr_conf {
            if given.is_some() {
                return Err(OpenStackError::Place("OpenStack is described twice: remove \"openstack\" from the file, or --kuryr-conf"));
            }
            let read =
                WrittenOptions::kuryr_conf(&text(file)?).map_err(|reason| OpenStackError::Options { file: file.to_owned(), reason })?;
            given = Some((file, read));
        }
        let (file, given) = given.ok_or(OpenStackError::Place("the file has no key \"openstack\": add it, or give --kuryr-conf"))?;
        let settings = Settings::check(&given).map_err(|problems| OpenStackError::Settings { file: file.to_owned(), problems })?;
        let default_network = beside.default_network == Some(WrittenDefault::Port);
        let options = unsupported(&settings, default_network);
        if !options.is_empty() {
            return Err(OpenStackError::Unsupported { file: file.to_owned(), options });
        }
        let cluster = cluster.map(str::to_owned).or(beside.cluster);
        let cluster =
            cluster.ok_or(OpenStackError::Place("the cluster has no name: give --cluster, or the key \"cluster\" of the file"))?;
        let ports_per_namespace = Some(beside.ports_per_namespace.unwrap_or(PORTS_PER_NAMESPACE)).filter(|max| *max > 0);
        let rules = beside.policy.into_iter().map(|rule| rule.checked(&settings)).collect();
        let neutron = Neutron::new(settings.cloud.clone(), Limits::default());
        let neutron = neutron.map_err(|reason| OpenStackError::Setup { file: file.to_owned(), reason })?;
        Ok(OpenStack {
            cluster: ClusterName::parse(&cluster)?,
            pool: pool_of(&settings, VifDriver::NeutronVif, PoolDriver::Neutron),
            nested_pool: pool_of(&settings, VifDriver::NestedVlan, PoolDriver::Nested),
            settings,
            rules,
            default_network,
            vif_annotation: beside.vif_annotation,
            ports_per_namespace,
            checks_rights: beside.check_rights.unwrap_or(true),
            notes: given.notes().to_vec(),
            neutron,
        })
    }

    /// The rules that concern a definition and a pod's namespace; without any of the owner's, that which allows what is configured.
    pub(crate) fn permits(&self, pod_namespace: &str, definition: &DefinitionRef) -> Vec<Permit> {
        let within = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.matches(text));
        // Who writes down which definitions lets their own namespaces select them, until others are named.
        let selects = |globs: Option<&Vec<Glob>>| globs.map_or(definition.namespace == pod_namespace, |globs| within(globs, pod_namespace));
        let concerns =
            |rule: &&NeutronRule| selects(rule.pod_namespaces.as_ref()) && within(&rule.definition_namespaces, &definition.namespace);
        let permits: Vec<Permit> = self.rules.iter().filter(concerns).map(|rule| rule.permit.clone()).collect();
        if permits.is_empty() { vec![configured(&self.settings)] } else { permits }
    }
}

/// What everybody may name where no rule of the owner's says anything.
fn configured(settings: &Settings) -> Permit {
    Permit {
        rule: "default".to_owned(),
        subnets: settings.subnet.iter().chain(settings.subnet_of_driver.values()).cloned().collect(),
        networks: Vec::new(),
        security_groups: settings.security_groups.clone(),
        projects: vec![settings.project.clone()],
        drivers: [&settings.vif_driver]
            .into_iter()
            .chain(settings.subnet_of_driver.keys())
            .map(|driver| driver.name().to_owned())
            .collect(),
        qos_policies: Vec::new(),
        ports: Vec::new(),
        vnic_types: vec![VnicType::Normal.name().to_owned()],
        address_pairs: false,
        outside_allocation_pools: false,
    }
}

/// What of Kuryr's is not offered, each with what to do instead.
fn unsupported(settings: &Settings, default_network: bool) -> Vec<&'static str> {
    let is_dpdk = |driver: &VifDriver| *driver == VifDriver::NestedDpdk;
    let is_nested = |driver: &VifDriver| matches!(driver, VifDriver::NestedVlan | VifDriver::NestedMacvlan);
    let drivers = || settings.subnet_of_driver.keys().chain([&settings.vif_driver]);
    let has_pools = |(vif, pool): (&VifDriver, &PoolDriver)| match pool {
        PoolDriver::Noop => true,
        PoolDriver::Neutron => *vif == VifDriver::NeutronVif,
        PoolDriver::Nested => *vif == VifDriver::NestedVlan,
    };
    let all = [
        (
            !settings.selections && !default_network,
            "[kubernetes] multi_vif_drivers must be npwg_multiple_interfaces, or the key defaultNetwork of the file of --openstack must be port: pods get ports for \
             the networks that they select, and their default network stays as it is",
        ),
        (
            default_network && settings.subnet.is_none() && settings.namespace_subnets.is_none(),
            "defaultNetwork is port: set [neutron_defaults] pod_subnet",
        ),
        (
            drivers().any(is_dpdk),
            "[kubernetes] pod_vif_driver, [neutron_defaults] subnet_mapping: nested-dpdk is not supported: use neutron-vif, nested-vlan or nested-macvlan",
        ),
        (
            drivers().any(is_nested) && settings.nested.node_subnets.is_empty(),
            "[pod_vif_nested] worker_nodes_subnets is missing: nested-vlan and nested-macvlan need the subnets of the nodes' own ports",
        ),
        (
            settings.namespace_subnets.is_some() && settings.vif_driver == VifDriver::NestedMacvlan,
            "[kubernetes] pod_subnets_driver: namespace does not go with pod_vif_driver nested-macvlan, whose ports are in the nodes' network",
        ),
        (
            !settings.pool.of_driver.iter().all(has_pools),
            "[vif_pool] vif_pool_mapping: pools of driver neutron are of neutron-vif ports, those of driver nested of nested-vlan ports: use noop for others",
        ),
        (
            settings.namespace_subnets.is_some() && !default_network,
            "[kubernetes] pod_subnets_driver: namespace is of default networks: the key defaultNetwork of the file of --openstack must be port",
        ),
    ];
    all.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, why)| why).collect()
}

/// Ready ports of this driver, if those pools are wanted for it.
fn pool_of(settings: &Settings, vif: VifDriver, pool: PoolDriver) -> Option<PoolSize> {
    let driver = settings.pool.of_driver.get(&vif).unwrap_or(&settings.pool_driver);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (min, max, batch) = (number(settings.pool.min), number(settings.pool.max), number(settings.pool.batch));
    (*driver == pool).then_some(PoolSize { min, max, batch: batch.min(MAX_BULK) })
}

fn text(file: &Path) -> Result<String, OpenStackError> {
    std::fs::read_to_string(file).map_err(|e| wrong(file, &e))
}

fn wrong(file: &Path, reason: &dyn std::fmt::Display) -> OpenStackError {
    OpenStackError::File { file: file.to_owned(), reason: reason.to_string() }
}

// === impl WrittenRule ===

impl WrittenRule {
    /// A list that is not given allows what is configured.
    fn checked(self, settings: &Settings) -> NeutronRule {
        let (default, written) = (configured(settings), self.allow.neutron);
        let globs = |texts: Vec<String>| texts.into_iter().map(Glob::new).collect::<Vec<_>>();
        let all = || globs(vec!["*".to_owned()]);
        let pod_namespaces = match (self.pod_namespaces, &self.definition_namespaces) {
            (Some(texts), _) => Some(globs(texts)),
            (None, Some(_)) => None,
            (None, None) => Some(all()),
        };
        NeutronRule {
            pod_namespaces,
            definition_namespaces: self.definition_namespaces.map_or_else(all, globs),
            permit: Permit {
                rule: self.name,
                subnets: written.subnets.unwrap_or(default.subnets),
                networks: written.networks.unwrap_or(default.networks),
                security_groups: written.security_groups.unwrap_or(default.security_groups),
                projects: written.projects.unwrap_or(default.projects),
                drivers: written.drivers.unwrap_or(default.drivers),
                qos_policies: written.qos_policies,
                ports: written.ports,
                vnic_types: written.vnic_types.unwrap_or(default.vnic_types),
                address_pairs: written.allowed_address_pairs,
                outside_allocation_pools: written.outside_allocation_pools,
            },
        }
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
