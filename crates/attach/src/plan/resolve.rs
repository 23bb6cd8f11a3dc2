//! From where an attachment comes to the network that it is, with everything that was asked of it put in.

use std::fmt;

use cni::{CniError, Code, NetworkList};
use json::{Object, Size, Value};
use npwg::{Definition, DefinitionRef, Protocol, Selection};

use super::{Bound, ImplicitNetwork, Networks, PlanRequest, Refusal, Source};
use crate::device::Choice;
use crate::{Case, Device, NodeOwn, Protection, Uses};

/// The bytes of a definition's configuration at the most. Real ones have some hundred; each attachment keeps its own copy.
pub const MAX_DEFINITION: usize = 128 << 10;

/// The plugins of a definition at the most. Real ones have up to six.
pub const MAX_PLUGINS: usize = 64;

/// The values of a definition's configuration at the most: read, each takes up to thirty times its text. Real ones have up to some
/// hundred.
pub const MAX_VALUES: usize = 2048;

/// The levels of lists and objects in a definition's configuration at the most. Real ones have up to eight.
pub const MAX_LEVELS: usize = 16;

/// How often an object of a definition may have a key, in all its spellings. What is named so often in one place is held against the node's
/// own in every combination.
const MAX_REPEATS: usize = 2;

/// The bytes of a key in a definition's configuration at the most. Real ones have up to some twenty.
const MAX_KEY: usize = 256;

/// The bytes of all networks of one pod at the most, as they are kept in its record.
pub const MAX_NETWORKS: usize = 256 << 10;

/// The values of all networks of one pod at the most.
pub const MAX_NETWORKS_VALUES: usize = 8192;

/// The host ports that the annotation and the definitions of one pod publish at the most, counted for each plugin that publishes them: each is
/// looked for among what the node has, and has rules of its own.
pub const MAX_HOST_PORTS: usize = 256;

/// The addresses, ranges, gateways and routes of one network at the most, those that the pod's selection asks for included: each is held
/// against what the node has. Real ones have up to some ten.
pub const MAX_DESTINATIONS: usize = 512;

/// What configurations take.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    bytes: usize,
    values: usize,
}

/// A network that was found, and what is sent along.
pub(super) struct Resolved {
    pub(super) list: NetworkList,
    pub(super) args: Object,
    pub(super) device: Option<Device>,
    pub(super) protection: Protection,
    pub(super) is_on_disk: bool,
    pub(super) lasting: Vec<String>,
}

/// Finds the networks of one pod.
pub(super) struct Resolver<'a> {
    asked: &'a PlanRequest<'a>,
    networks: &'a dyn Networks,
    choice: Choice<'a>,
    /// Of the networks so far.
    load: Load,
    /// The host ports that selections publish so far.
    host_ports: usize,
    /// What is taken of the node's own, where that is only warned of.
    pub(super) taken: Vec<Refusal>,
}

// === impl Load ===

impl Load {
    fn of(text: &[u8]) -> Self {
        Load { bytes: text.len(), values: Size::of(text).values }
    }

    /// The sum of this load and `copies` times another one.
    fn with(self, copies: usize, other: Load) -> Self {
        Load { bytes: self.bytes + copies * other.bytes, values: self.values + copies * other.values }
    }

    /// # Errors
    /// If one pod must not have as much.
    fn check(self) -> Result<(), CniError> {
        let Load { bytes, values } = self;
        if bytes <= MAX_NETWORKS && values <= MAX_NETWORKS_VALUES {
            return Ok(());
        }
        let msg = format!(
            "with this network, the configurations of the pod's networks have {bytes} bytes and {values} values together: at most \
             {MAX_NETWORKS} bytes and {MAX_NETWORKS_VALUES} values are accepted; select fewer networks, or make their definitions smaller"
        );
        Err(CniError::new(Code::INVALID_CONFIG, msg))
    }
}

/// About how many bytes of memory a text takes while its pod is attached: the plan and the record each have it as text and as what was
/// read of it.
pub(super) fn memory_of(text: &[u8]) -> usize {
    4 * text.len() + 128 * Size::of(text).values
}

// === impl Resolved ===

impl Resolved {
    /// A network to which nobody adds anything, and that is held against nothing.
    pub(super) fn of(list: NetworkList) -> Self {
        let (args, protection, lasting) = (Object::new(), Protection::Off, Vec::new());
        Resolved { list, args, device: None, protection, is_on_disk: false, lasting }
    }
}

// === impl Resolver ===

impl<'a> Resolver<'a> {
    pub(super) fn new(asked: &'a PlanRequest<'a>, networks: &'a dyn Networks, sources: &'a [Source]) -> Self {
        let named = sources.iter().filter_map(Source::selection);
        let named = named.filter_map(|s| Some((resource(&s.definition, networks), s.device_id.as_deref()?)));
        Resolver { asked, networks, choice: Choice::new(asked.devices, named), load: Load::default(), host_ports: 0, taken: Vec::new() }
    }

    /// Every source with its network; `None` where that was refused. `given` are those of [`Source::EveryPod`], in order.
    pub(super) fn all(
        &mut self,
        sources: &[Source],
        given: &'a [ImplicitNetwork],
        refusals: &mut Vec<Refusal>,
    ) -> Vec<(Source, Option<Resolved>)> {
        let mut given = given.iter();
        let mut numbers = 0_usize..;
        let mut wanted = Vec::with_capacity(sources.len());
        for source in sources {
            let resolved = match source {
                // Where pods have no default network, there is nothing to attach.
                Source::Default => match self.networks.default_network() {
                    None => continue,
                    Some(network) => self.given(network, true, refusals),
                },
                Source::EveryPod => given.next().and_then(|network| self.given(network, false, refusals)),
                Source::DefaultOf(selection) => self.selected(selection, true, refusals),
                Source::Selection(selection) => match numbers.next().and_then(|number| self.asked.bound.get(&number)) {
                    None => self.selected(selection, false, refusals),
                    Some(bound) => self.bound(selection, bound, refusals),
                },
            };
            if let Some(resolved) = &resolved {
                self.load = self.load.with(1, Load::of(&resolved.list.source));
                if let Err(error) = self.load.check() {
                    let name = source.selection().map_or_else(|| resolved.list.name.to_string(), ToString::to_string);
                    refusals.push(Refusal { what: format!("network {name}"), error });
                    break;
                }
            }
            wanted.push((source.clone(), resolved));
        }
        wanted
    }

    /// A network that the pod did not ask for.
    fn given(&mut self, network: &'a ImplicitNetwork, is_default: bool, refusals: &mut Vec<Refusal>) -> Option<Resolved> {
        let resource = network.definition.as_ref().and_then(|definition| resource(definition, self.networks));
        let mut resolved = Resolved::of(network.list.clone());
        let choice = self.choice.next(resource, None);
        let mut refuse = |error| refusals.push(Refusal { what: format!("network {}", network.list.name), error });
        resolved.device = choice.map_err(&mut refuse).ok()?;
        self.leave_tunnels(&resolved.list, is_default).map_err(&mut refuse).ok()?;
        if let Some(definition) = &network.definition {
            let pod_namespace = &self.asked.pod.namespace;
            let uses = self.asked.admission.uses(&resolved.list, self.asked.builtins);
            let case = Case { is_selected: false, ..self.case(pod_namespace, definition, &uses) };
            self.allowed(&case, &network.list.name, refusals)?;
        }
        self.tell(&mut resolved, is_default);
        Some(resolved)
    }

    /// The network that a selection means (S10), with the selection's demands checked (S20 and others) and put in.
    fn selected(&mut self, selection: &Selection, is_default: bool, refusals: &mut Vec<Refusal>) -> Option<Resolved> {
        let mut refuse = |error: CniError| refusals.push(Refusal { what: format!("network {selection}"), error });
        // As with Multus, which definition is the pod's default network is not subject to isolation.
        if let (Some(isolation), false) = (&self.asked.admission.isolation, is_default) {
            isolation.check(&self.asked.pod.namespace, &selection.definition).map_err(&mut refuse).ok()?;
        }
        let mut list = network(&selection.definition, self.networks).map_err(&mut refuse).ok()?;
        list.state_once();
        state_delegates(&mut list);
        let device = self.choice.next(resource(&selection.definition, self.networks), selection.device_id.as_deref());
        let device = device.map_err(&mut refuse).ok()?;
        if let Err(missing) = selection.verify(&list) {
            // These name the selection themselves.
            refusals.extend(missing.into_iter().map(|m| Refusal { what: String::new(), error: m.into() }));
            return None;
        }
        // Each plugin gets a copy; that there is too much of them is known before.
        let args = selection.args(None).map(|args| Load::of(json::compact(&args).as_bytes())).unwrap_or_default();
        Load::of(&list.source).with(list.plugins.len(), args).check().map_err(&mut refuse).ok()?;
        list.set_in_plugins("args", |own| selection.args(own.and_then(Value::as_object)).map(Value::Object));
        // A device that the kubelet gave the pod needs nobody else's permission.
        let named = selection.device_id.as_deref().filter(|_| self.asked.devices.is_none());
        let (pod_namespace, definition) = (&self.asked.pod.namespace, &selection.definition);
        let mut uses = self.asked.admission.uses(&list, self.asked.builtins);
        uses.ask(selection, named, self.asked.builtins);
        self.host_ports += self.host_ports_of(&list, selection, is_default) + uses.ports.len();
        host_ports_fit(self.host_ports).map_err(&mut refuse).ok()?;
        self.leave_tunnels(&list, is_default).map_err(&mut refuse).ok()?;
        let is_on_disk = self.is_on_disk(&selection.definition);
        // Those that the selection asks for are among the plugins' arguments.
        let asked = || selection.ips.len().max(uses.asked_by(selection).addresses.len());
        destinations_fit(if is_on_disk { asked() } else { uses.destinations() }).map_err(&mut refuse).ok()?;
        let granted = device.as_ref().filter(|_| self.asked.devices.is_some()).map(|device| device.id.as_str());
        let case = Case { device: named, granted, ..self.case(pod_namespace, definition, &uses) };
        self.allowed(&case, selection, refusals)?;
        let (policy, own) = (&self.asked.admission.policy, self.asked.own);
        let protection = own.map_or(Protection::Off, |_| policy.protection(&case));
        let of_selection = own.map_or(Protection::Off, |_| policy.protection_of_selection(&case));
        let by_definition = own.filter(|_| protection > Protection::Off).map(|own| policy.taken(&case, own));
        let by_selection = own.filter(|_| of_selection > Protection::Off).map(|own| policy.taken_by_selection(&case, selection, own));
        let mut is_refused = false;
        for (protection, taken) in [(protection, by_definition), (of_selection, by_selection)] {
            let told = taken.into_iter().flatten().map(|error| Refusal { what: format!("network {selection}"), error: error.into() });
            if protection == Protection::On {
                let before = refusals.len();
                refusals.extend(told);
                is_refused |= refusals.len() > before;
            } else {
                self.taken.extend(told);
            }
        }
        if is_refused {
            return None;
        }
        if let Some(own) = own.filter(|own| protection > Protection::Off && !is_on_disk && !own.is_default_network(definition)) {
            guard(&mut list, &uses, own);
            keep_behind_links(&mut list);
        }
        let lasts = |made: &&str| own.is_some_and(|own| own.lasts(made));
        let lasting = uses.made.iter().map(|made| made.what.as_str()).filter(lasts).map(str::to_owned).collect();
        let mut resolved = Resolved { list, args: selection.runtime_config(), device, protection, is_on_disk, lasting };
        self.tell(&mut resolved, is_default);
        Some(resolved)
    }

    /// The network of a selection that a controller has bound. Which namespaces may refer to its definition is asked as of any other; what
    /// the network uses of the host is the controller's choice, and no definition's. Addresses and MAC are the port's: the result tells
    /// whether they are those that were selected.
    fn bound(&mut self, selection: &Selection, bound: &'a Bound, refusals: &mut Vec<Refusal>) -> Option<Resolved> {
        let mut refuse = |error: CniError| refusals.push(Refusal { what: format!("network {selection}"), error });
        if let Some(isolation) = &self.asked.admission.isolation {
            isolation.check(&self.asked.pod.namespace, &selection.definition).map_err(&mut refuse).ok()?;
        }
        let device = self.device_of(selection, bound).map_err(&mut refuse).ok()?;
        let rest = Selection { ips: Vec::new(), mac: None, ..selection.clone() };
        if let Err(missing) = rest.verify(&bound.list) {
            refusals.extend(missing.into_iter().map(|m| Refusal { what: String::new(), error: m.into() }));
            return None;
        }
        let uses = Uses::default();
        let case = Case { is_on_disk: true, ..self.case(&self.asked.pod.namespace, &selection.definition, &uses) };
        self.allowed(&case, selection, refusals)?;
        let protection = self.asked.own.map_or(Protection::Off, |_| self.asked.admission.policy.protection(&case));
        let network = Resolved::of(bound.list.clone());
        let mut resolved = Resolved { args: rest.runtime_config(), device, protection, is_on_disk: true, ..network };
        self.tell(&mut resolved, false);
        Some(resolved)
    }

    /// The device of a selection that a controller has bound: one that the kubelet gave the pod.
    fn device_of(&mut self, selection: &Selection, bound: &'a Bound) -> Result<Option<Device>, CniError> {
        if self.asked.devices.is_none() && selection.device_id.is_some() {
            return Err(CniError::invalid(
                "deviceID",
                "a port of Neutron has a device that the kubelet gave the pod, or none: remove the key",
            ));
        }
        let needed = bound.resource.as_deref();
        let device = self.choice.next(needed.or(resource(&selection.definition, self.networks)), selection.device_id.as_deref())?;
        match (&device, needed.filter(|_| self.asked.devices.is_some())) {
            (None, Some(needed)) => {
                let next = format!("request it in the resources of a container ({needed}: 1)");
                Err(CniError::new(Code::INVALID_CONFIG, format!("the pod has no device of the resource {needed}: {next}")))
            }
            _ => Ok(device),
        }
    }

    /// The host ports that the plugins of a network are told to publish: each that gets them publishes all. Those of the pod's spec, which the
    /// runtime sends, count where a definition has more plugins that get them than one.
    fn host_ports_of(&self, list: &NetworkList, selection: &Selection, is_default: bool) -> usize {
        let plugins = list.plugins.iter().filter(|plugin| plugin.has_capability(PORTS)).count();
        let sent = self.asked.runtime_config.filter(|_| is_default).and_then(|sent| sent.get(PORTS)).and_then(Value::as_array);
        selection.port_mappings.len() * plugins + sent.map_or(0, <[_]>::len) * plugins.saturating_sub(1)
    }

    /// # Errors
    /// If a plugin of the default network would publish a port of the node's tunnels that the pod's spec has, which the runtime sends.
    fn leave_tunnels(&self, list: &NetworkList, is_default: bool) -> Result<(), CniError> {
        let sent = self.asked.runtime_config.filter(|_| is_default && list.has_capability(PORTS));
        let Some((sent, own)) = sent.and_then(|sent| sent.get(PORTS)?.as_array()).zip(self.asked.own) else { return Ok(()) };
        for mapping in sent {
            let Value::Object(mapping) = mapping else { continue };
            let is_udp = mapping.get("protocol").and_then(Value::as_str).is_some_and(|protocol| protocol.eq_ignore_ascii_case("udp"));
            let port = match mapping.get("hostPort") {
                Some(Value::Number(port)) => port.as_u64().and_then(|port| u16::try_from(port).ok()),
                _ => None,
            };
            if let Some((port, whose)) = port.filter(|_| is_udp).and_then(|port| Some((port, own.tunnel(port, Protocol::Udp)?))) {
                return Err(CniError::invalid("portMappings", format!("the pod has the hostPort {port}/udp, {whose}")));
            }
        }
        Ok(())
    }

    /// A definition's network, as a pod of a namespace selects it.
    fn case<'c>(&self, pod_namespace: &'c str, definition: &'c DefinitionRef, uses: &'c Uses) -> Case<'c> {
        let is_on_disk = self.is_on_disk(definition);
        Case { pod_namespace, definition, is_selected: true, uses, device: None, granted: None, is_on_disk }
    }

    /// Whether a definition means a network of the node's disk.
    fn is_on_disk(&self, definition: &DefinitionRef) -> bool {
        self.networks.definition(definition).is_some_and(|definition| !definition.has_config())
    }

    fn allowed(&self, case: &Case, what: &dyn fmt::Display, refusals: &mut Vec<Refusal>) -> Option<()> {
        let Err(forbidden) = self.asked.admission.policy.check(case) else { return Some(()) };
        refusals.extend(forbidden.into_iter().map(|error| Refusal { what: format!("network {what}"), error: error.into() }));
        None
    }

    /// Puts in what the runtime says to the default network (S55), and which device it is. The pod's own annotation says it
    /// more precisely than the runtime, and goes over it; ports of both are opened.
    fn tell(&self, resolved: &mut Resolved, is_default: bool) {
        let Resolved { list, args, device, .. } = resolved;
        for (key, value) in self.asked.runtime_config.filter(|_| is_default).into_iter().flat_map(Object::iter) {
            match (value, args.get(key)) {
                _ if !list.has_capability(key) => {}
                (Value::Array(sent), Some(Value::Array(own))) if key == PORTS => args.set(key, [sent.as_slice(), own.as_slice()].concat()),
                (_, Some(_)) => {}
                (_, None) => args.set(key, value.clone()),
            }
        }
        if let Some(device) = device {
            device.tell(list, args);
        }
    }
}

/// # Errors
/// If one pod must not publish as many ports.
fn host_ports_fit(count: usize) -> Result<(), CniError> {
    if count <= MAX_HOST_PORTS {
        return Ok(());
    }
    let why = format!(
        "with this network, the pod publishes {count} host ports: at most {MAX_HOST_PORTS} are accepted, those that several plugins publish \
         counted for each; publish fewer"
    );
    Err(CniError::invalid("portMappings", why))
}

/// # Errors
/// If one network must not have as many.
fn destinations_fit(count: usize) -> Result<(), CniError> {
    if count <= MAX_DESTINATIONS {
        return Ok(());
    }
    let why = format!(
        "{count} addresses, ranges, gateways and routes, counted in each plugin that has them, are too many: at most {MAX_DESTINATIONS} are \
         accepted; ask for fewer, or split the definition into several"
    );
    Err(CniError::invalid("spec.config", why))
}

/// Keeps the pod to its own addresses on a bridge whose other ports are kept to theirs, whatever the configuration says of that.
fn guard(list: &mut NetworkList, uses: &Uses, own: &dyn NodeOwn) {
    for (plugin, bridge) in uses.ports().filter_map(|(plugin, bridge)| Some((plugin?, bridge))) {
        for key in own.guards(&bridge.what) {
            list.set_in_plugin(plugin, key, true);
        }
    }
}

/// Lets the host take from the pod's own links only what is behind them, whatever the configuration says of that: the host routes from there to
/// networks whose ports are kept to their addresses.
fn keep_behind_links(list: &mut NetworkList) {
    const KEY: &str = "strictReversePath";
    for number in 0..list.plugins.len() {
        let Some(plugin) = list.plugins.get(number) else { continue };
        match plugin.kind.as_str() {
            "bridge" | "ptp" => list.set_in_plugin(number, KEY, true),
            // Flannel itself refuses a delegate that is not an object.
            "flannel" if plugin.raw().get(DELEGATE).is_none_or(|delegate| delegate.as_object().is_some()) => {
                let mut delegate = plugin.raw().object(DELEGATE).cloned().unwrap_or_default();
                delegate.set(KEY, true);
                list.set_in_plugin(number, DELEGATE, Value::Object(delegate));
            }
            _ => {}
        }
    }
}

/// The key under which flannel has the configuration of the plugin that it executes.
const DELEGATE: &str = "delegate";

/// Has flannel's delegate, and its plugin for addresses, stated once: a policy judges what is executed, and not what two readers of several
/// objects under one key, or of `null`, may take for it.
fn state_delegates(list: &mut NetworkList) {
    for number in 0..list.plugins.len() {
        for key in [DELEGATE, "ipam"] {
            let Some(plugin) = list.plugins.get(number).filter(|plugin| plugin.kind.as_str() == "flannel") else { continue };
            // Flannel itself refuses one that is not an object.
            let Some(given) = plugin.raw().object(key) else { continue };
            let stated = plugin.raw().merged(key);
            if stated != *given {
                list.set_in_plugin(number, key, Value::Object(stated));
            }
        }
    }
}

/// The one key of `runtimeConfig` of which there may be some of the runtime and some of the pod's annotation.
const PORTS: &str = "portMappings";

/// The resource that a definition's attachments need a device of.
fn resource<'a>(reference: &DefinitionRef, networks: &'a dyn Networks) -> Option<&'a str> {
    networks.definition(reference)?.resource_name.as_deref().filter(|resource| !resource.is_empty())
}

fn network(reference: &DefinitionRef, networks: &dyn Networks) -> Result<NetworkList, CniError> {
    let Some(definition) = networks.definition(reference) else {
        let (name, namespace) = (&reference.name, &reference.namespace);
        let msg = format!("cannot find a network-attachment-definition ({name}) in namespace ({namespace})");
        return Err(CniError::new(Code::INVALID_CONFIG, msg));
    };
    match network_of(definition)? {
        Some(list) => Ok(list),
        None if definition.is_neutron => {
            let why =
                "its attachments are ports of OpenStack's Neutron, which are not plugged here: set openstackVIFs in the agent's settings";
            Err(CniError::new(Code::INVALID_CONFIG, format!("definition {reference} has the annotation {}: {why}", npwg::KURYR_CONFIG)))
        }
        None => networks.on_disk(&definition.name).map_err(|e| e.within("a definition without a config means a network of this node")),
    }
}

/// The network that a definition describes; `None` where it means one of the node's disk.
///
/// # Errors
/// If it describes none, or a larger one than is accepted.
pub fn network_of(definition: &Definition) -> Result<Option<NetworkList>, CniError> {
    let size = definition.config.as_ref().map_or(0, String::len);
    if size > MAX_DEFINITION {
        let why = format!("{size} bytes are too large: at most {MAX_DEFINITION} are accepted");
        return Err(CniError::invalid("spec.config", why));
    }
    // Before it is read: read, it may be thirty times as large.
    let Size { values, depth } = definition.config.as_ref().map(|config| Size::of(config.as_bytes())).unwrap_or_default();
    if values > MAX_VALUES {
        let why = format!("{values} values are too many: at most {MAX_VALUES} are accepted; split it into several definitions");
        return Err(CniError::invalid("spec.config", why));
    }
    if depth > MAX_LEVELS {
        let why = format!("{depth} levels of lists and objects are too deep: at most {MAX_LEVELS} are accepted; nest fewer");
        return Err(CniError::invalid("spec.config", why));
    }
    let Some(list) = definition.network()? else { return Ok(None) };
    match list.plugins.len() {
        count if count > MAX_PLUGINS => {
            let why = format!("{count} plugins are too many: at most {MAX_PLUGINS} are accepted");
            Err(CniError::invalid("spec.config.plugins", why))
        }
        _ => {
            let why = list.plugins.iter().find_map(|plugin| {
                let often = || {
                    Some(format!("an object has the key {:?} more than {MAX_REPEATS} times: keep the last one", too_often(plugin.raw())?))
                };
                let long = |key| format!("the key that begins with {key:?} is too long: at most {MAX_KEY} bytes are accepted; shorten it");
                too_long(plugin.raw()).map(long).or_else(often)
            });
            why.map_or(Ok(Some(list)), |why| Err(CniError::invalid("spec.config", why)))
        }
    }
}

/// The beginning of a key that is too long, at any depth.
fn too_long(object: &Object) -> Option<String> {
    let own = object.iter().find(|(key, _)| key.len() > MAX_KEY).map(|(key, _)| key.chars().take(60).collect());
    own.or_else(|| object.iter().find_map(|(_, value)| too_long_below(value)))
}

fn too_long_below(value: &Value) -> Option<String> {
    match value {
        Value::Array(list) => list.iter().find_map(too_long_below),
        Value::Object(object) => too_long(object),
        _ => None,
    }
}

/// The beginning of a key that an object has too often.
fn too_often(object: &Object) -> Option<String> {
    let mut keys: Vec<String> = object.iter().map(|(key, _)| json::folded(key).collect()).collect();
    keys.sort_unstable();
    let same = keys.chunk_by(|a, b| a == b).find(|same| same.len() > MAX_REPEATS).and_then(<[String]>::first);
    let own = same.map(|key| key.chars().take(60).collect());
    own.or_else(|| object.iter().find_map(|(_, value)| too_often_below(value)))
}

fn too_often_below(value: &Value) -> Option<String> {
    match value {
        Value::Array(list) => list.iter().find_map(too_often_below),
        Value::Object(object) => too_often(object),
        _ => None,
    }
}
