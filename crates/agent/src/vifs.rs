//! Ports of OpenStack's Neutron: what a controller has bound for a pod becomes networks of its selections, and an ADD ends when the ports
//! carry packets.
//!
//! ```text
//!   definitions with openstack.org/kuryr-config --> selections that are Neutron's
//!   KuryrPort, or annotation of the pod --wait--> VIFs --network.rs--> attach::Bound, default network --> plan, ADD
//!                                       --wait--> all are ACTIVE --> the ADD's result;  else everything is unplugged
//! ```
//!
//! A port becomes ACTIVE only after it was plugged: Neutron's agent of the node sees it in Open vSwitch, and the controller sees what Neutron
//! says. Both waits are for changes of what is watched; a DEL needs neither.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attach::{Bound, ImplicitNetwork, Networks as _, PodView};
use cluster::{KuryrPorts, NodePort, Pod, PodChange, PodChanges};
use cni::{CniError, Code, IfName};
use linux::Family;
use npwg::Selection;
use osvif::{PodState, PodVif, Vif, VifKind};
use plugin::Host;

use crate::Agent;
use crate::call::Request;
use crate::networks::PlanSources;
use crate::settings::VifSource;
use crate::shares::Aside;

mod kuryr_check;
mod kuryr_cni;
mod network;
mod vlan;

pub(crate) use kuryr_cni::is_kuryr_list;
use network::{Base, network};

/// How often it is looked whether the caller of an ADD that waits is still there: its end wakes nobody.
const LOOK: Duration = Duration::from_secs(1);

/// How long the API server is asked for an object that the agent does not keep.
const LATEST: Duration = Duration::from_secs(5);

/// The ports of one pod.
#[derive(Default)]
pub(crate) struct PodPorts {
    /// Those of its selections, by their numbers.
    pub(crate) bound: BTreeMap<usize, Bound>,
    /// All that are plugged.
    plugged: Vec<Port>,
}

/// A port that is plugged.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Port {
    /// What the controller calls its interface.
    key: String,
    /// Its ID.
    id: String,
    /// Where it is plugged.
    place: String,
    /// Whether it is a port of Open vSwitch, and its ID there.
    is_switched: bool,
    switch_id: String,
}

/// What a controller has said of a pod.
enum ControllerReply {
    /// Its VIFs, by the names of their interfaces.
    Vifs(BTreeMap<String, PodVif>),
    /// Nothing yet, and what is missing.
    NotYet(String),
}

/// The VIF of the default network where that is Neutron's, and that of each selection, with their keys.
type Matched = (Option<(String, Vif)>, Vec<(String, Vif)>);

/// Waits for a change of what a controller says of one pod.
enum Changes {
    KuryrPorts { ports: Box<KuryrPorts>, last: Option<Arc<NodePort>> },
    Pods(PodChanges),
}

// === impl PodPorts ===

impl PodPorts {
    /// Whether one of them needs a device, so that the kubelet must be asked.
    pub(crate) fn need_devices(&self) -> bool {
        self.bound.values().any(|bound| bound.resource.is_some())
    }
}

// === impl Agent ===

impl Agent {
    /// The ports that a controller has bound: one for each of the pod's selections that is Neutron's, and one for its default network where
    /// that is. The default network of `known` becomes that one. `request` waits for them; a question takes them as they are.
    pub(crate) fn ports_of(
        &self,
        request: Option<&Request>,
        pod: &Pod,
        view: &PodView,
        known: &mut PlanSources,
        host: &mut Host,
    ) -> Result<PodPorts, CniError> {
        let settings = &self.settings.vifs;
        if settings.source == VifSource::Nowhere {
            return Ok(PodPorts::default());
        }
        let selections = neutron_selections(view, known);
        let has_default = settings.default_network && view.default_network.as_deref().is_none_or(|text| text.trim().is_empty());
        if selections.is_empty() && !has_default {
            return Ok(PodPorts::default());
        }
        let mut missing = String::new();
        let mut look = || {
            let found = match self.said_of(pod)? {
                ControllerReply::NotYet(why) => Err(why),
                ControllerReply::Vifs(vifs) => matched(&vifs, &selections, has_default),
            };
            Ok(found.map_err(|why| missing = why).ok())
        };
        let found = match request {
            Some(request) => self.wait(request, pod, look)?,
            None => look()?,
        };
        let Some(found) = found else {
            let waited = request.map(|_| format!(" after {} s", settings.wait.as_secs())).unwrap_or_default();
            let next = "look for Events of the pod, and at the log of the controller that makes ports";
            let msg = format!("no Neutron port for pod {}/{}{waited}: {missing}; {next}", pod.namespace, pod.name);
            return Err(CniError::new(Code::TRY_AGAIN_LATER, msg));
        };
        self.networks_of(found, &selections, known, host)
    }

    fn networks_of(
        &self,
        (default, of_selections): Matched,
        selections: &[(usize, Selection)],
        known: &mut PlanSources,
        host: &mut Host,
    ) -> Result<PodPorts, CniError> {
        let settings = &self.settings.vifs;
        let is_nested = |vif: &Vif| matches!(vif.kind, VifKind::VlanNested { .. } | VifKind::MacvlanNested);
        let link = match default.iter().chain(&of_selections).any(|(_, vif)| is_nested(vif)) {
            true => settings.link.clone().map_or_else(|| default_route_link(host), |link| Ok(Some(link)))?,
            false => None,
        };
        let mut ports = PodPorts::default();
        let refused = |key: &str, vif: &Vif, e: network::Unpluggable| {
            CniError::new(Code::INVALID_CONFIG, format!("interface {key}, Neutron port {}: {e}", vif.id))
        };
        let mut list_of = |key: &str, vif: &Vif, resource: Option<&str>, is_default: bool| {
            let base = Base { link: link.as_deref(), resource };
            let list = network(vif, settings, base, is_default).map_err(|e| refused(key, vif, e))?;
            let is_switched = matches!(vif.kind, VifKind::OpenVSwitch { .. } | VifKind::Bridge { .. } | VifKind::VhostUser { .. });
            let (key, id, switch_id) = (key.to_owned(), vif.id.clone(), network::port_id(vif).to_owned());
            ports.plugged.push(Port { key, id, place: place(vif), is_switched, switch_id });
            Ok::<_, CniError>(list)
        };
        if let Some((key, vif)) = &default {
            known.default = Some(ImplicitNetwork { list: list_of(key, vif, None, true)?, definition: None });
        }
        let mut bound = BTreeMap::new();
        for ((key, vif), (number, selection)) in of_selections.iter().zip(selections) {
            let named = || IfName::parse(key).map_err(|e| CniError::new(Code::INVALID_CONFIG, format!("interface of a VIF: {e}")));
            let ifname = selection.interface.clone().map_or_else(named, Ok)?;
            let of_definition = known.definition(&selection.definition).and_then(|definition| definition.resource_name.as_deref());
            let of_definition = of_definition.filter(|resource| !resource.is_empty());
            let base = Base { link: None, resource: of_definition };
            let resource = network::resource(vif, settings, base).map_err(|e| refused(key, vif, e))?.map(str::to_owned);
            bound.insert(*number, Bound { list: list_of(key, vif, of_definition, false)?, ifname, resource });
        }
        Ok(PodPorts { bound, ..ports })
    }

    /// Waits until all ports are ACTIVE, and wired on this node, where the settings say so.
    pub(crate) fn until_active(&self, request: &Request, pod: &Pod, ports: &PodPorts) -> Result<(), CniError> {
        let settings = &self.settings.vifs;
        if !settings.until_active || ports.plugged.is_empty() {
            return Ok(());
        }
        let mut waiting = ports.plugged.clone();
        let done = self.wait(request, pod, || {
            if let ControllerReply::Vifs(vifs) = self.said_of(pod)? {
                waiting = still_waiting(&ports.plugged, &vifs)?;
            }
            Ok(waiting.is_empty().then_some(()))
        })?;
        if done.is_some() {
            // What a controller says may be of the sandbox before.
            return if settings.isolate { self.until_wired(request, &ports.plugged) } else { Ok(()) };
        }
        let waiting = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let msg = format!(
            "not ACTIVE {} s after it was plugged: {waiting}; everything was unplugged: check neutron-openvswitch-agent on this node, and the \
             port's status and binding in Neutron (openstack port show)",
            settings.wait.as_secs()
        );
        Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
    }

    /// What the controller has said of a pod so far.
    fn said_of(&self, pod: &Pod) -> Result<ControllerReply, CniError> {
        let wrong = |what: &str, e: osvif::Problem| {
            CniError::new(Code::INVALID_CONFIG, format!("{what} of pod {}/{}: {e}", pod.namespace, pod.name))
        };
        let Some(ports) = &self.kuryr_ports else {
            let now = self.cluster.pod(&pod.namespace, &pod.name).filter(|now| now.uid == pod.uid && now.is_whole);
            let text = now.as_deref().unwrap_or(pod).vifs.clone();
            return match text.as_deref().map(PodState::parse) {
                None => Ok(ControllerReply::NotYet(format!("it has no annotation {}", osvif::VIF_ANNOTATION))),
                Some(Ok(state)) => Ok(ControllerReply::Vifs(state.into_vifs())),
                Some(Err(e)) => Err(wrong(osvif::VIF_ANNOTATION, e)),
            };
        };
        let not_yet = |why: String| Ok(ControllerReply::NotYet(why));
        let mut seen = ports.of(&pod.namespace, &pod.name);
        if seen.as_ref().is_some_and(|seen| seen.read.is_none()) {
            let asked = self.cluster.fetch_kuryr_port(ports, &pod.namespace, &pod.name);
            seen = self.ask(asked, Instant::now() + LATEST).map_err(|e| e.within("KuryrPort"))?;
        }
        match seen.as_ref().and_then(|seen| seen.read.as_ref()) {
            None => match ports.listed() {
                listed if listed.complete => not_yet("it has no KuryrPort for this node".to_owned()),
                listed => {
                    let why = listed.failing.map_or_else(|| "the API server has not answered yet".to_owned(), |f| f.error.to_string());
                    not_yet(format!("the KuryrPorts of this node are not known yet: {why}"))
                }
            },
            Some(Err(e)) => Err(wrong("KuryrPort", e.clone())),
            Some(Ok(port)) if !pod.is_static && port.spec.pod_uid != pod.uid => not_yet("its KuryrPort is of an earlier pod".to_owned()),
            Some(Ok(port)) if port.spec.pod_node_name != self.cluster.node() => not_yet("its KuryrPort is of another node".to_owned()),
            Some(Ok(port)) => match seen.as_ref().and_then(|seen| seen.reason.as_deref()).filter(|_| port.status.vifs.is_empty()) {
                Some(reason) => not_yet(reason.to_owned()),
                None => Ok(ControllerReply::Vifs(port.status.vifs.clone())),
            },
        }
    }

    /// What `look` finds, when it finds something; `None` when the time of the settings is over. It looks when something of this pod has
    /// changed, however often other pods' ports do. Others are served meanwhile.
    fn wait<T>(&self, request: &Request, pod: &Pod, mut look: impl FnMut() -> Result<Option<T>, CniError>) -> Result<Option<T>, CniError> {
        let until = request.by.min(Instant::now() + self.settings.vifs.wait);
        // From before the first look: no change is missed.
        let mut changes = match &self.kuryr_ports {
            Some(ports) => Changes::KuryrPorts { last: ports.of(&pod.namespace, &pod.name), ports: Box::new(ports.clone()) },
            None => Changes::Pods(self.cluster.pod_changes()),
        };
        let mut aside = Aside::new(self.waits_for_others.get());
        let mut has_changed = true;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if (has_changed || left.is_zero())
                && let Some(found) = look()?
            {
                return Ok(Some(found));
            }
            self.is_waited_for(request)?;
            if left.is_zero() {
                return Ok(None);
            }
            aside.step();
            let next = async { tokio::time::timeout(left.min(LOOK), changes.next(pod)).await };
            has_changed = self.runtime.block_on(next).is_ok();
        }
    }
}

/// The interface of the host's default route.
fn default_route_link(host: &mut Host) -> Result<Option<String>, CniError> {
    let failed = |e: &dyn fmt::Display| CniError::new(Code::INTERNAL, format!("look for the default route: {e}"));
    let netlink = host.netlink().map_err(|e| failed(&e))?;
    for family in [Family::V4, Family::V6] {
        if let Some(index) = netlink.default_route_link(family).map_err(|e| failed(&e))? {
            return Ok(netlink.link_by_index(index).map_err(|e| failed(&e))?.map(|link| link.name));
        }
    }
    Ok(None)
}

/// The pod's selections whose definitions are Neutron's, with their numbers. What is wrong with the annotation the plan says.
fn neutron_selections(view: &PodView, known: &PlanSources) -> Vec<(usize, Selection)> {
    let selections = view.networks.as_deref().and_then(|text| npwg::parse(text, &view.namespace).ok()).unwrap_or_default();
    let is_neutron = |selection: &Selection| known.definition(&selection.definition).is_some_and(|definition| definition.is_neutron);
    selections.into_iter().enumerate().filter(|(_, selection)| is_neutron(selection)).collect()
}

/// The VIF of the default network, and that of each selection, in their order; else what is missing.
///
/// A selection that names its interface has the VIF of that name; the others have the rest, in the order of their numbers: `eth2` comes before
/// `eth10`.
fn matched(vifs: &BTreeMap<String, PodVif>, selections: &[(usize, Selection)], has_default: bool) -> Result<Matched, String> {
    let default = vifs.iter().find(|(_, vif)| vif.default).map(|(key, vif)| (key.clone(), Vif::clone(&vif.vif))).filter(|_| has_default);
    if has_default && default.is_none() {
        return Err("its default network has no VIF yet".to_owned());
    }
    let named: Vec<&str> = selections.iter().filter_map(|(_, selection)| own_key(vifs, selection)).collect();
    let mut rest: Vec<&String> =
        vifs.iter().filter(|(key, vif)| !vif.default && !named.contains(&key.as_str())).map(|(key, _)| key).collect();
    rest.sort_by_key(|key| natural(key));
    let mut rest = rest.into_iter().map(String::as_str);
    let of_selection = |(number, selection): &(usize, Selection)| {
        let key = own_key(vifs, selection).or_else(|| rest.next());
        let vif = key.and_then(|key| Some((key.to_owned(), Vif::clone(&vifs.get(key)?.vif))));
        vif.ok_or_else(|| format!("element {} of its networks, {selection}, has no VIF yet", number + 1))
    };
    Ok((default, selections.iter().map(of_selection).collect::<Result<_, _>>()?))
}

/// The interface that a selection names, if there is an additional VIF of that name.
fn own_key<'a>(vifs: &BTreeMap<String, PodVif>, selection: &'a Selection) -> Option<&'a str> {
    let name = selection.interface.as_ref().map(IfName::as_str)?;
    vifs.get(name).filter(|vif| !vif.default).map(|_| name)
}

/// By the letters of a name, then by its number.
fn natural(name: &str) -> (&str, u64, &str) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (letters, name.get(letters.len()..).and_then(|digits| digits.parse().ok()).unwrap_or_default(), name)
}

/// Those of some ports that are not ACTIVE yet.
fn still_waiting(plugged: &[Port], vifs: &BTreeMap<String, PodVif>) -> Result<Vec<Port>, CniError> {
    let mut waiting = Vec::new();
    for port in plugged {
        match vifs.get(&port.key).map(|vif| &vif.vif) {
            Some(vif) if vif.id == port.id && is_active(vif) => {}
            Some(vif) if vif.id != port.id => {
                let msg = format!("{port} was replaced by port {} while the pod was attached: everything was unplugged", vif.id);
                return Err(CniError::new(Code::TRY_AGAIN_LATER, msg));
            }
            _ => waiting.push(port.clone()),
        }
    }
    Ok(waiting)
}

/// Whether packets pass. A nested port is the node's own port's affair, which is ACTIVE; for a card, nobody on the node waits until a port is wired.
fn is_active(vif: &Vif) -> bool {
    let is_of_another =
        matches!(vif.kind, VifKind::VlanNested { .. } | VifKind::MacvlanNested | VifKind::DpdkNested { .. } | VifKind::Sriov { .. });
    is_of_another || vif.active == Some(true)
}

fn place(vif: &Vif) -> String {
    let network = vif.network.as_ref();
    let label = network.and_then(|network| network.label.as_deref().filter(|label| !label.is_empty()).or(Some(&network.id)));
    let label: String = label.unwrap_or("?").chars().take(80).collect();
    match &vif.kind {
        VifKind::OpenVSwitch { bridge_name: Some(bridge) } | VifKind::Bridge { bridge_name: Some(bridge) } => {
            format!("network {label}, bridge {bridge}")
        }
        _ => format!("network {label}"),
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interface {}, Neutron port {} ({})", self.key, self.id, self.place)
    }
}

// === impl Changes ===

impl Changes {
    async fn next(&mut self, pod: &Pod) {
        match self {
            Changes::KuryrPorts { ports, last } => loop {
                ports.changed().await;
                let now = ports.of(&pod.namespace, &pod.name);
                if now.as_ref().map(Arc::as_ptr) != last.as_ref().map(Arc::as_ptr) {
                    *last = now;
                    return;
                }
            },
            Changes::Pods(pods) => loop {
                match pods.next().await {
                    Some(PodChange::Changed(now) | PodChange::Gone(now)) if (&now.namespace, &now.name) != (&pod.namespace, &pod.name) => {}
                    Some(_) => return,
                    // The cluster is not followed any more.
                    None => std::future::pending::<()>().await,
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
