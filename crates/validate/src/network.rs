//! What is wrong with one network.

use cni::{Config, IfName, NetworkList, PluginEntry};
use json::{Object, Value};
use plugin::{Builtins, Draft, KnownLinks, Plugin};

use crate::finding::{Finding, MOST_FINDINGS, Severity, under};
use crate::{gateway, keys};

/// How often a refused key is left out, so that the next mistake is found as well.
const MOST_MISTAKES: usize = 8;

/// A pod's interface, in plugins that look at its name.
const ANY_NAME: &str = "net1";

/// Plugins that nobody has built in and that stand for a piece of hardware.
const OF_DEVICES: [&str; 5] = ["sriov", "ib-sriov", "ovs", "rdma", "accelerated-bridge"];

/// Plugins of others with names near to ours: they are not misspelt.
const OF_OTHERS: [&str; 3] = ["macvtap", "ipvtap", "veth"];

/// What is known of the place where networks are to be used.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The plugins that are built in.
    pub builtins: Builtins,
    /// The nodes' interfaces; none are known of a cluster's nodes.
    pub links: &'a KnownLinks,
    /// Whether nodes have no interfaces but those that networks name as `master`, and no devices: those of a lab.
    pub is_lab: bool,
}

/// One plugin of a network, and where it stands in the text.
pub(crate) struct Entry<'a> {
    pub(crate) entry: &'a PluginEntry,
    /// Its path: `plugins[1]`; empty for a plugin without a list.
    pub(crate) prefix: String,
    pub(crate) plugin: Option<&'static dyn Plugin>,
    pub(crate) ipam: Option<&'static dyn Plugin>,
    is_first: bool,
}

/// What is wrong with the network in a text, which was read as `list`; `resource` is the resource of its definition.
pub fn network(text: &str, list: &NetworkList, resource: Option<&str>, around: &Surroundings<'_>) -> Vec<Finding> {
    let Ok(Value::Object(root)) = json::parse(text.as_bytes()) else { return Vec::new() };
    let is_list = is_list(&root);
    let mut found = if is_list { keys::of_list(&root) } else { Vec::new() };
    for entry in entries(list, is_list, around.builtins) {
        found.extend(types(&entry, resource, around));
        if let Some(plugin) = entry.plugin {
            let ipam = entry.ipam.map(Plugin::about);
            found.extend(keys::of_plugin(entry.entry.raw(), plugin.about(), ipam, &entry.prefix));
            found.extend(keys::capabilities(entry.entry.raw(), plugin.about(), ipam, &entry.prefix));
        }
        found.extend(runtime_config(&root, &entry.prefix));
        found.extend(refusals(list, &entry, &Object::new(), around.links));
        let apart = gateway::unreachable(&entry);
        if apart.is_empty() {
            found.extend(gateway::missing(&entry));
        }
        found.extend(apart);
        found.truncate(MOST_FINDINGS);
    }
    once(found)
}

/// Runtime and pod say what an attachment gets, and not who wrote the network: it is left out of a definition.
fn runtime_config(root: &Object, prefix: &str) -> Option<Finding> {
    let index = prefix.strip_prefix("plugins[").and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
    let plugin = match index {
        None => root,
        Some(index) => root.get("plugins")?.as_array()?.get(index)?.as_object()?,
    };
    plugin.get("runtimeConfig")?;
    let message = "\"runtimeConfig\" of a definition is not used: it says what one pod's attachment gets";
    let help = "declare the capability, \"capabilities\": {\"mac\": true} for example, and let the pod's annotation ask for it";
    Some(Finding::warning(under(prefix, "runtimeConfig"), message).at_key().help(help))
}

/// Whether a text is a list of plugins, and not a single one.
pub(crate) fn is_list(root: &Object) -> bool {
    root.get("plugins").is_some()
}

/// The plugins of a network.
pub(crate) fn entries(list: &NetworkList, is_list: bool, builtins: Builtins) -> Vec<Entry<'_>> {
    let builtin = |name: &str| builtins.iter().copied().find(|plugin| plugin.about().name == name);
    let reads_ipam = |plugin: &dyn Plugin| plugin.about().keys.iter().any(|key| key.name == "ipam");
    let all = list.plugins.iter().enumerate().map(|(at, entry)| {
        let plugin = builtin(entry.kind.as_str());
        let ipam = ipam_type(entry).and_then(builtin).filter(|_| plugin.is_none_or(reads_ipam));
        let prefix = if is_list { format!("plugins[{at}]") } else { String::new() };
        Entry { entry, prefix, plugin, ipam, is_first: at == 0 }
    });
    all.collect()
}

fn ipam_type(entry: &PluginEntry) -> Option<&str> {
    entry.raw().objects("ipam").rev().find_map(|ipam| ipam.str("type")).filter(|kind| !kind.is_empty())
}

/// Types that are nearly those of built-in plugins, that stand in the wrong place, or that need more than an executable.
fn types(entry: &Entry<'_>, resource: Option<&str>, around: &Surroundings<'_>) -> Vec<Finding> {
    let kind = entry.entry.kind.as_str();
    let at = under(&entry.prefix, "type");
    let names = |ipam: bool| around.builtins.iter().map(|plugin| plugin.about()).filter(move |about| about.gives_addresses() == ipam);
    let mut found = Vec::new();
    match entry.plugin {
        Some(plugin) if plugin.about().gives_addresses() => {
            let message = format!("{kind} only assigns addresses: it makes no interface");
            found
                .push(Finding::error(at, message).help(format!("name the plugin that makes the interface, and put {kind} below \"ipam\"")));
        }
        Some(_) if around.is_lab && ["host-device", "sriov-vf", "dpdk-device"].contains(&kind) => found.push(stand_in(entry, &at)),
        Some(_) => {}
        None if OF_OTHERS.contains(&kind) => {}
        None if OF_DEVICES.contains(&kind) => found.push(of_device(kind, &at, entry, resource)),
        None => found.extend(cni::nearest(kind, names(false).map(|about| about.name)).map(|near| misspelt(kind, near, at))),
    }
    let Some(ipam) = ipam_type(entry.entry) else { return found };
    let at = under(&entry.prefix, "ipam.type");
    match entry.ipam {
        Some(plugin) if !plugin.about().gives_addresses() => {
            let known = cni::near_names(ipam, names(true).map(|about| about.name));
            found.push(Finding::error(at, format!("{ipam} assigns no addresses")).help(format!("use one of {known}")));
        }
        Some(_) => {}
        None => found.extend(cni::nearest(ipam, names(true).map(|about| about.name)).map(|near| misspelt(ipam, near, at))),
    }
    found
}

fn misspelt(kind: &str, near: &str, at: String) -> Finding {
    Finding::error(at, format!("no plugin {kind:?} is built in")).help(format!("did you mean {near:?}?"))
}

/// What a network of devices needs.
fn of_device(kind: &str, at: &str, entry: &Entry<'_>, resource: Option<&str>) -> Finding {
    let needs = "needs its executable on every node, and a device plugin that gives pods their devices";
    let help = format!(
        "in a lab, a link on a parent stands in for the device: {{\"type\": \"macvlan\", \"master\": \"eth1\"}} in place of {kind:?}"
    );
    let named = ["deviceID", "pciBusID", "device"].iter().any(|key| entry.entry.raw().str(key).is_some());
    if resource.is_none() && !named && kind != "ovs" {
        let message = format!("nothing gives pods a device for {kind}: the definition names no resource");
        let help = format!("set the annotation {} to the device plugin's resource, such as intel.com/sriov_netdevice", npwg::RESOURCE_NAME);
        return Finding::error(at, message).help(help);
    }
    Finding::new(Severity::Note, at, format!("{kind} is not built in: it {needs}")).help(help)
}

/// A lab's nodes have no devices but their parents.
fn stand_in(entry: &Entry<'_>, at: &str) -> Finding {
    let raw = entry.entry.raw();
    let device = ["device", "hwaddr", "kernelpath", "pciBusID"].iter().find_map(|key| raw.str(key)).unwrap_or("a device");
    let message = format!("the nodes of a lab have no device to lend: {device} is one of a real node");
    let name = raw.str("device").unwrap_or("eth1");
    let help = format!(
        "a link on a parent stands in for it: {{\"type\": \"macvlan\", \"master\": {name:?}}} in place of {:?}",
        entry.entry.kind.as_str()
    );
    Finding::error(at, message).help(help)
}

/// What ADD would refuse of a plugin and of its IPAM plugin, with what a runtime sends.
pub(crate) fn refusals(list: &NetworkList, entry: &Entry<'_>, runtime: &Object, links: &KnownLinks) -> Vec<Finding> {
    let capabilities: Vec<&str> = entry.entry.capabilities().collect();
    let Ok(ifname) = IfName::parse(ANY_NAME) else { return Vec::new() };
    let config = match list.derive(entry.entry, runtime) {
        Ok(config) => config,
        Err(e) => return vec![Finding::of_add(&entry.prefix, e.into())],
    };
    let of = |plugin: &dyn Plugin| {
        let is_first = entry.is_first;
        mistakes(&config, |config| plugin.validate(&Draft { config, ifname: &ifname, is_first, capabilities: &capabilities, links }))
    };
    let ipam = entry.ipam.filter(|ipam| ipam.about().gives_addresses());
    let all = entry.plugin.into_iter().chain(ipam).flat_map(of);
    once(all.map(|e| Finding::of_add(&entry.prefix, e)).collect())
}

/// The first mistake, and those that show when the keys of the earlier ones are left out. What is missing then is no mistake.
fn mistakes(config: &Config, validate: impl Fn(&Config) -> Result<(), cni::CniError>) -> Vec<cni::CniError> {
    let mut config = config.clone();
    let mut found: Vec<cni::CniError> = Vec::new();
    while let Err(e) = validate(&config) {
        let rest = without(config.raw(), &e.at);
        if found.is_empty() || rest.is_some() {
            found.push(e);
        }
        match rest.and_then(|raw| Config::from_object(raw).ok()) {
            Some(rest) if found.len() < MOST_MISTAKES => config = rest,
            _ => break,
        }
    }
    found
}

/// The object without the value at a path; `None` if it has none there.
fn without(object: &Object, path: &str) -> Option<Object> {
    let replaced = |value: &Value, rest: &str| match (value, rest) {
        (_, "") => Some(Value::Null),
        (Value::Object(inner), rest) => without(inner, rest).map(Value::Object),
        (Value::Array(list), rest) => without_element(list, rest).map(Value::Array),
        _ => None,
    };
    let (key, value, rest) = object
        .iter()
        .filter(|(_, value)| !matches!(value, Value::Null))
        .filter_map(|(key, value)| Some((key, value, json::after_key(path, key)?)))
        .min_by_key(|(_, _, rest)| rest.len())?;
    let (key, value) = (key.to_owned(), replaced(value, rest)?);
    let all = object.iter().map(|(k, v)| (k.to_owned(), if k == key { value.clone() } else { v.clone() }));
    Some(all.collect())
}

fn without_element(list: &[Value], path: &str) -> Option<Vec<Value>> {
    let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
    let index: usize = index.parse().ok()?;
    let value = match (list.get(index)?, rest.strip_prefix('.').unwrap_or(rest)) {
        (Value::Null, _) => return None,
        (_, "") => Value::Null,
        (Value::Object(inner), rest) => Value::Object(without(inner, rest)?),
        (Value::Array(inner), rest) => Value::Array(without_element(inner, rest)?),
        _ => return None,
    };
    Some(list.iter().enumerate().map(|(i, v)| if i == index { value.clone() } else { v.clone() }).collect())
}

/// Each finding once: a key is read by more than one plugin.
pub(crate) fn once(all: Vec<Finding>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::with_capacity(all.len());
    for finding in all {
        if !found.iter().any(|other| other.path == finding.path && (other.message == finding.message || other.is_key == finding.is_key)) {
            found.push(finding);
        }
    }
    found
}
