//! What an agent would refuse of the definitions and pods that a cluster has, before one serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use attach::{AddressRun, Admission, Case, ImplicitNetwork, Networks, PlanRequest, PodView, Protection, network_of, plan};
use cluster::{ApiError, ClusterNetworks, Node, NodeBlocks, Pod};
use cni::{CniError, IfName, NetworkList};
use ipnet::IpNet;
use npwg::{Definition, DefinitionRef};
use plugin::{Dirs, Host};
use plugins::BUILTINS;

use crate::Settings;
use crate::cluster_addresses::{ClusterOwn, NO_RANGE, NO_RANGE_NEXT, connected};
use crate::default_network::DefaultNetwork;
use crate::network_table::NetworkTable;
use crate::networks::auxiliary;
use crate::node_own::ThisNode;
use crate::pods::view;
use crate::provided::{self, Addresses, PodNetwork, Provide, Source};
use crate::settings::NetworkSource;

/// Something that would be refused, or warned of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether pods would fail; otherwise they are attached, and an Event says so.
    pub fails: bool,
    /// Whether it is about what the agent may know of the cluster, and about no definition.
    pub of_cluster: bool,
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

/// The network that agents provide, as the API server has it: what an agent of another node plans with.
struct PodsOfCluster {
    ranges: NetworkTable<()>,
    nodes: BTreeMap<IpAddr, String>,
    tunnel_ports: Vec<u16>,
}

impl PodsOfCluster {
    fn of(provide: &Provide, nodes: &[Arc<Node>], blocks: &[Arc<NodeBlocks>]) -> Self {
        let of_nodes = nodes.iter().flat_map(|node| &node.pod_cidrs).filter(|_| provide.source == Source::PodCidrs);
        let of_pools = blocks.iter().flat_map(|blocks| blocks.ranges.iter().chain(&blocks.networks));
        let of_pools = of_pools.filter(|_| provide.source == Source::Pools);
        let ranges = of_nodes.chain(of_pools).chain(&provide.cluster_ranges).map(|range| (*range, ()));
        let addresses = |node: &Arc<Node>| {
            let own: Vec<_> = node.internal_ips.iter().map(|ip| (ip.to_canonical(), node.name.clone())).collect();
            own
        };
        let tunnel_ports = provide.tunnel_ports();
        PodsOfCluster { ranges: ranges.collect(), nodes: nodes.iter().flat_map(addresses).collect(), tunnel_ports }
    }
}

impl PodNetwork for PodsOfCluster {
    fn range_of_pods(&self, run: AddressRun) -> Option<IpNet> {
        self.ranges.overlapping(run).map(|(range, ())| *range)
    }

    fn node_in(&self, run: AddressRun) -> Option<(IpAddr, String)> {
        self.nodes.range(run.first..=run.last).next().map(|(address, name)| (*address, name.clone()))
    }

    fn has_tunnel_at(&self, port: u16) -> bool {
        self.tunnel_ports.contains(&port)
    }
}

impl Networks for All {
    /// Of the node's own configuration nothing is refused.
    fn default_network(&self) -> Option<&ImplicitNetwork> {
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
    let ClusterNetworks { definitions, too_large, pods, service_ranges, services, servers, nodes, blocks, unread, asked_at } = cluster;
    let all = All {
        definitions: definitions.into_iter().map(|definition| (definition.reference(), definition)).collect(),
        conf_dirs: settings.more_conf_dirs.iter().chain([&settings.conf_dir]).cloned().collect(),
        system_namespace: settings.multus_namespace.clone(),
    };
    let mut host = Host::here(Dirs::default());
    let of_own_node = nodes.iter().find(|node| node.name == settings.node_name).map(|node| node.pod_cidrs.clone()).unwrap_or_default();
    let given = given_networks(settings, &all, &of_own_node);
    let ranges = service_ranges.iter().filter_map(|range| range.parse().ok()).chain(settings.service_ranges.iter().copied());
    let servers = servers.iter().filter_map(|address| address.parse().ok()).chain(connected(asked_at));
    let provided = settings.provide.as_ref().map(|provide| PodsOfCluster::of(provide, &nodes, &blocks));
    let pods_of_cluster = provided.as_ref().map(|provided| provided as &dyn PodNetwork);
    let of_cluster = ClusterOwn { ranges: ranges.collect(), servers: servers.collect(), services: Some(&services), pods: pods_of_cluster };
    let has_no_range = of_cluster.ranges.is_empty();
    let own = ThisNode::new(&mut host, &given, of_cluster).with_openstack(&settings.vifs.bridges);
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
        let asked = PlanRequest { admission: &settings.admission, own: Some(&own), ..PlanRequest::new(&view, &ifname, BUILTINS) };
        match plan(&asked, &all) {
            Ok(plan) => plan.taken.iter().for_each(|taken| note(false, taken.to_string(), Some(pod))),
            Err(refusals) => refusals.iter().for_each(|refusal| note(true, refusal.to_string(), Some(pod))),
        }
    }
    for (reference, definition) in all.definitions.iter().filter(|(reference, _)| !selected.contains(*reference)) {
        alone(&settings.admission, reference, definition, &own, &mut |fails, message| note(fails, message, None));
    }
    let of_definitions = found.into_iter().map(|((warns, message), pods)| finding(!warns, message, pods.into_iter().collect()));
    of_the_cluster(&unread, has_no_range).into_iter().chain(of_definitions).collect()
}

/// What the agent would not know of the cluster, and what becomes of pods then.
fn of_the_cluster(unread: &[ApiError], has_no_range: bool) -> Vec<Finding> {
    let finding = |fails, message| Finding { fails, of_cluster: true, message, rule: None, pods: Vec::new() };
    // Kubernetes before 1.33 has no ServiceCIDR objects.
    let may_lack = |e: &&ApiError| matches!(e, ApiError::NotServed { asked, .. } if asked.resource == "servicecidrs");
    let refused = unread.iter().filter(|e| !may_lack(e));
    let refused = refused.map(|e| finding(true, format!("{e}; an agent with this account attaches no pod that selects networks")));
    let no_range = has_no_range.then(|| finding(false, format!("{NO_RANGE}: {NO_RANGE_NEXT}")));
    refused.chain(no_range).collect()
}

/// What of a definition would be refused that no pod selects, for pods of its own namespace.
fn alone(admission: &Admission, reference: &DefinitionRef, definition: &Definition, own: &ThisNode, note: &mut dyn FnMut(bool, String)) {
    let policy = &admission.policy;
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
        uses: &admission.uses(&list, BUILTINS),
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

/// The networks that pods get without asking for them, the default network first, as far as they are found.
fn given_networks(settings: &Settings, all: &All, of_own_node: &[IpNet]) -> Vec<ImplicitNetwork> {
    let sources = [&settings.default_network].into_iter().chain(&settings.every_pod);
    let named = sources.filter_map(|source| given_network(source, settings, all, of_own_node));
    named.chain(auxiliary(settings).ok().flatten()).collect()
}

/// A network that pods get without asking for it, where it is a file of this node, in the settings, or a definition; where agents provide it,
/// with the ranges of this node's Node.
fn given_network(source: &NetworkSource, settings: &Settings, all: &All, of_own_node: &[IpNet]) -> Option<ImplicitNetwork> {
    let on_node = |list| Some(ImplicitNetwork { list, definition: None });
    match source {
        NetworkSource::Provided => {
            let source = settings.provide.as_ref().map(|provide| provide.source).unwrap_or_default();
            let ports = settings.provide.as_ref().map(|provide| provide.ports).unwrap_or_default();
            on_node(provided::list(Addresses::of(source, of_own_node), None, ports).ok()?)
        }
        NetworkSource::Nowhere => None,
        NetworkSource::Inline(list) => on_node(list.as_ref().clone()),
        NetworkSource::File(path) => on_node(DefaultNetwork::default().file(path).ok()?),
        NetworkSource::Directory { path, file } => on_node(DefaultNetwork::default().first_of(path, file.as_deref()).ok()?),
        NetworkSource::Named(name) => {
            let reference = DefinitionRef::parse(name, &settings.multus_namespace).ok()?;
            let on_disk = || chain::load(&settings.conf_dir, name).ok();
            match all.definition(&reference) {
                Some(definition) => {
                    let list = definition.network().ok()?.or_else(on_disk)?;
                    Some(ImplicitNetwork { list, definition: Some(reference) })
                }
                None => on_node(on_disk()?),
            }
        }
    }
}

/// What stands in a refusal before the rule that would allow it.
const RULE: &str = " a rule of the agent's \"policy\": ";

fn finding(fails: bool, message: String, pods: Vec<String>) -> Finding {
    let rule = message.split_once(RULE).map(|(_, rule)| rule.to_owned());
    Finding { fails, of_cluster: false, message, rule, pods }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_refused_is_a_finding() {
        let asked = |resource| cluster::RequestedObject { group: "", resource, verb: "list", of: "".into() };
        let (server, said) = (Arc::<str>::from("https://192.0.2.1"), String::new());
        let not_served = |resource| ApiError::NotServed { asked: asked(resource), server: Arc::clone(&server), said: said.clone() };
        assert_eq!(of_the_cluster(&[not_served("servicecidrs")], false), []);
        let [no_range] = of_the_cluster(&[not_served("servicecidrs")], true).try_into().unwrap();
        assert!(!no_range.fails && no_range.message.contains("serviceCIDRs"), "{no_range:?}");
        let forbidden = ApiError::Forbidden { asked: asked("services"), server: Arc::clone(&server), said: said.clone() };
        for e in [forbidden, not_served("services")] {
            let [refused] = of_the_cluster(&[e], false).try_into().unwrap();
            assert!(refused.fails && refused.message.starts_with("list services: "), "{refused:?}");
        }
    }

    /// Pods' networks were held against the default network alone.
    #[test]
    fn every_network_that_pods_get_is_known() {
        let settings = Settings::parse(b"clusterNetwork: cbr0\ndefaultNetworks: [plain]\nmultusNamespace: networks\n").unwrap();
        let definition = |namespace: &str, name: &str| {
            let config = Some(r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"cni9"}"#.to_owned());
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let definition = Definition { namespace, name, config, resource_name: None, is_neutron: false };
            (definition.reference(), definition)
        };
        let definitions = BTreeMap::from([definition("networks", "cbr0"), definition("networks", "plain")]);
        let all = All { definitions, conf_dirs: Vec::new(), system_namespace: settings.multus_namespace.clone() };
        let found = given_networks(&settings, &all, &[]);
        let found: Vec<String> = found.iter().filter_map(|given| Some(given.definition.as_ref()?.to_string())).collect();
        assert_eq!(found, ["networks/cbr0", "networks/plain"]);
    }

    #[test]
    fn pods_of_other_nodes_are_known_as_the_api_server_has_them() {
        let node = Node {
            name: "b".to_owned(),
            pod_cidrs: vec!["10.244.2.0/24".parse().unwrap()],
            internal_ips: vec!["192.0.2.2".parse().unwrap()],
            ..Node::default()
        };
        let blocks = NodeBlocks { ranges: vec!["10.9.0.0/28".parse().unwrap()], ..NodeBlocks::default() };
        let (nodes, blocks) = ([Arc::new(node)], [Arc::new(blocks)]);
        let one = |text: &str| AddressRun::one(text.parse().unwrap());
        let mut provide = Provide { cluster_ranges: vec!["10.250.0.0/16".parse().unwrap()], ..Provide::new(between::Mode::Direct) };
        for (source, its, others) in [(Source::PodCidrs, "10.244.2.9", "10.9.0.1"), (Source::Pools, "10.9.0.1", "10.244.2.9")] {
            provide.source = source;
            let pods = PodsOfCluster::of(&provide, &nodes, &blocks);
            assert!(pods.range_of_pods(one(its)).is_some() && pods.range_of_pods(one("10.250.7.7")).is_some());
            assert_eq!(pods.range_of_pods(one(others)), None);
            assert_eq!(pods.node_in(one("192.0.2.2")).unwrap().1, "b");
            assert_eq!(pods.node_in(one("192.0.2.3")), None);
        }
    }
}
