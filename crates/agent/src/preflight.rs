//! What an agent would refuse of the definitions and pods that a cluster has, before one serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use attach::{Asked, Case, Given, Networks, PodView, Policy, Protection, Uses, network_of, plan};
use cluster::{ClusterNetworks, Pod};
use cni::{CniError, IfName, NetworkList};
use npwg::{Definition, DefinitionRef};
use plugin::{Dirs, Host};
use plugins::BUILTINS;

use crate::Settings;
use crate::cluster_addresses::{ClusterOwn, connected};
use crate::default_network::DefaultNetwork;
use crate::node_own::ThisNode;
use crate::pods::view;
use crate::provided::{self, Addresses, PodPorts};
use crate::settings::NetworkSource;

/// Something that would be refused, or warned of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether pods would fail; otherwise they are attached, and an Event says so.
    pub fails: bool,
    /// What the pod would be told.
    pub message: String,
    /// The rule of the settings' `policy` that allows it, as JSON, where one does.
    pub rule: Option<String>,
    /// The pods that it concerns; none where no pod selects the definition.
    pub pods: Vec<String>,
}

/// All definitions, as a plan looks at them.
struct All {
    definitions: BTreeMap<DefinitionRef, Definition>,
    conf_dirs: Vec<PathBuf>,
    system_namespace: String,
}

impl Networks for All {
    /// Of the node's own configuration nothing is refused.
    fn default_network(&self) -> Option<&Given> {
        None
    }

    fn system_namespace(&self) -> &str {
        &self.system_namespace
    }

    fn definition(&self, reference: &DefinitionRef) -> Option<&Definition> {
        self.definitions.get(reference)
    }

    fn on_disk(&self, name: &str) -> Result<NetworkList, CniError> {
        on_disk(&self.conf_dirs, name)
    }
}

/// The network of that name in the first directory that has it.
fn on_disk(dirs: &[PathBuf], name: &str) -> Result<NetworkList, CniError> {
    let mut first = None;
    for dir in dirs {
        match chain::load(dir, name) {
            Ok(list) => return Ok(list),
            Err(e) => first = first.or(Some(CniError::from(e))),
        }
    }
    let missing = || CniError::invalid("confDir", format!("no directory is configured to look for network {name:?} in"));
    Err(first.unwrap_or_else(missing))
}

/// Holds what a cluster has against these settings, on the node where this runs: its uplink, addresses and ports are meant.
pub fn preflight(settings: &Settings, cluster: ClusterNetworks) -> Vec<Finding> {
    let ClusterNetworks { definitions, too_large, pods, service_ranges, services, servers, asked_at } = cluster;
    let all = All {
        definitions: definitions.into_iter().map(|definition| (definition.reference(), definition)).collect(),
        conf_dirs: settings.more_conf_dirs.iter().chain([&settings.conf_dir]).cloned().collect(),
        system_namespace: settings.multus_namespace.clone(),
    };
    let mut host = Host::here(Dirs::default());
    let default = default_network(settings, &all);
    let ranges = service_ranges.iter().filter_map(|range| range.parse().ok()).chain(settings.service_ranges.iter().copied());
    let servers = servers.iter().filter_map(|address| address.parse().ok()).chain(connected(asked_at));
    let of_cluster = ClusterOwn { ranges: ranges.collect(), servers: servers.collect(), services: Some(&services), pods: None };
    let own = ThisNode::new(&mut host, default.as_slice(), of_cluster).with_openstack(&settings.vifs.bridges);
    let mut found: BTreeMap<(bool, String), BTreeSet<String>> = BTreeMap::new();
    let mut note = |fails: bool, message: String, pod: Option<&Pod>| {
        let pods = found.entry((!fails, message)).or_default();
        pods.extend(pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)));
    };
    let Ok(ifname) = IfName::parse("eth0") else { return Vec::new() };
    let mut selected: BTreeSet<DefinitionRef> = too_large.iter().map(|e| e.definition.clone()).collect();
    too_large.iter().for_each(|e| note(true, e.to_string(), None));
    for pod in &pods {
        let view = view(pod);
        selected.extend(selections(&view, settings));
        let asked = Asked { admission: &settings.admission, own: Some(&own), ..Asked::new(&view, &ifname, BUILTINS) };
        match plan(&asked, &all) {
            Ok(plan) => plan.taken.iter().for_each(|taken| note(false, taken.to_string(), Some(pod))),
            Err(refusals) => refusals.iter().for_each(|refusal| note(true, refusal.to_string(), Some(pod))),
        }
    }
    let policy = &settings.admission.policy;
    for (reference, definition) in all.definitions.iter().filter(|(reference, _)| !selected.contains(*reference)) {
        alone(policy, reference, definition, &own, &mut |fails, message| note(fails, message, None));
    }
    found.into_iter().map(|((warns, message), pods)| finding(!warns, message, pods.into_iter().collect())).collect()
}

/// What of a definition would be refused that no pod selects, for pods of its own namespace.
fn alone(policy: &Policy, reference: &DefinitionRef, definition: &Definition, own: &ThisNode, note: &mut dyn FnMut(bool, String)) {
    let list = match network_of(definition) {
        Ok(Some(list)) => list,
        // A network of the node's own configuration.
        Ok(None) => return,
        Err(e) => return note(true, e.within(format!("definition {reference}")).to_string()),
    };
    let case = Case {
        pod_namespace: &reference.namespace,
        definition: reference,
        is_selected: true,
        uses: &Uses::of(&list, BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    for forbidden in policy.check(&case).err().unwrap_or_default() {
        note(true, forbidden.to_string());
    }
    let protection = policy.protection(&case);
    if protection > Protection::Off {
        policy.taken(&case, own).into_iter().for_each(|taken| note(protection == Protection::On, taken.to_string()));
    }
}

fn selections(view: &PodView, settings: &Settings) -> Vec<DefinitionRef> {
    let default = view.default_network.as_deref().and_then(|text| npwg::default_network(text, &settings.multus_namespace).ok());
    let named = view.networks.as_deref().and_then(|text| npwg::parse(text, &view.namespace).ok());
    default.into_iter().chain(named.into_iter().flatten()).map(|selection| selection.definition).collect()
}

/// The default network where it is a file of this node, in the settings, or a definition.
fn default_network(settings: &Settings, all: &All) -> Option<Given> {
    let on_node = |list| Some(Given { list, definition: None });
    match &settings.default_network {
        // Nobody but the node's agent knows its ranges; its name and its bridge are known.
        NetworkSource::Provided => {
            let source = settings.provide.as_ref().map(|provide| provide.source).unwrap_or_default();
            on_node(provided::list(Addresses::of(source, &[]), None, PodPorts::default()).ok()?)
        }
        NetworkSource::Nowhere => None,
        NetworkSource::Inline(list) => on_node(list.as_ref().clone()),
        NetworkSource::File(path) => on_node(DefaultNetwork::default().file(path).ok()?),
        NetworkSource::Directory { path, file } => on_node(DefaultNetwork::default().first_of(path, file.as_deref()).ok()?),
        NetworkSource::Named(name) => {
            let reference = DefinitionRef { namespace: all.system_namespace.clone(), name: name.clone() };
            match all.definition(&reference).and_then(|definition| definition.network().ok().flatten()) {
                Some(list) => Some(Given { list, definition: Some(reference) }),
                None => on_node(on_disk(&all.conf_dirs, name).ok()?),
            }
        }
    }
}

/// What stands in a refusal before the rule that would allow it.
const RULE: &str = " a rule of the agent's \"policy\": ";

fn finding(fails: bool, message: String, pods: Vec<String>) -> Finding {
    let rule = message.split_once(RULE).map(|(_, rule)| rule.to_owned());
    Finding { fails, message, rule, pods }
}
