//! What runs on this host, as far as it tells of addresses: sandboxes' records, runtimes' cached results, and every namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use attach::Records;
use chain::Cache;
use cni::AddResult;
use ipam::{Whereabouts, WhereaboutsError};
use json::{Object, Value};
use linux::{Inside, Netlink, Netns, NetnsError, NetnsId};
use pool::{Key, Pod};

use crate::cli::IpamCheckArgs;
use crate::repair_command::record_dirs;

/// All of it, at one moment.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Attachments that a record or a cached result tells of, by container and interface.
    pub(super) attachments: BTreeMap<(String, String), Attachment>,
    /// Containers of which there is a record that cannot be read: they may have anything.
    pub(super) unreadable: BTreeSet<String>,
    /// Namespaces, and the addresses in each.
    pub(super) places: Vec<LeasePlace>,
    /// What could not be looked at.
    pub(super) unseen: Vec<String>,
}

/// An attachment that was made.
#[derive(Debug, Clone)]
pub(super) struct Attachment {
    /// As the plugin `pool` would name it.
    pub(super) key: Key,
    pub(super) pod: Option<Pod>,
    pub(super) namespace: Namespace,
    /// The addresses of its result.
    pub(super) addresses: Vec<IpAddr>,
    /// What its plugins' configurations say of where they are from.
    pub(super) sources: Vec<Source>,
}

/// Where addresses of an attachment are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A pool, by its name.
    Pool(String),
    /// Ranges that are pools without files; or why they cannot be told.
    Ranges(Result<Whereabouts, WhereaboutsError>),
}

/// Whether an attachment's namespace is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Namespace {
    There,
    Gone,
    /// It cannot be told: nothing follows from it.
    Unknown,
}

/// A namespace that there is.
#[derive(Debug)]
pub(super) struct LeasePlace {
    pub(super) name: String,
    /// The one that this command is in.
    pub(super) is_own: bool,
    pub(super) addresses: BTreeSet<IpAddr>,
}

// === impl Attachment ===

impl Attachment {
    /// The pools that its plugins name.
    pub(super) fn pools(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().filter_map(|source| if let Source::Pool(pool) = source { Some(pool.as_str()) } else { None })
    }

    /// The ranges that its plugins name.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Whereabouts> {
        self.sources.iter().filter_map(|source| if let Source::Ranges(Ok(ranges)) = source { Some(ranges) } else { None })
    }
}

// === impl Evidence ===

impl Evidence {
    /// Looks at all of it.
    pub(super) fn gather(args: &IpamCheckArgs) -> anyhow::Result<Self> {
        let mut all = Evidence::default();
        for dir in record_dirs(&args.records)? {
            all.of_records(&Records::new(dir))?;
        }
        for dir in &args.cache_dir {
            all.of_cache(&Cache::new(dir));
        }
        all.of_namespaces()?;
        Ok(all)
    }

    /// Whether anything tells that this attachment is still there.
    pub(super) fn has(&self, key: &Key) -> Option<&'static str> {
        if self.unreadable.contains(&key.container) {
            return None;
        }
        match self.attachments.get(&(key.container.clone(), key.ifname.clone())).map(|one| &one.namespace) {
            Some(Namespace::There | Namespace::Unknown) => None,
            Some(Namespace::Gone) => Some("its namespace is gone"),
            None => Some("it has no record, no cached result and no namespace"),
        }
    }

    /// The namespaces that have an address.
    pub(super) fn places_of(&self, address: IpAddr) -> Vec<&str> {
        self.places.iter().filter(|place| place.addresses.contains(&address)).map(|place| place.name.as_str()).collect()
    }

    fn of_records(&mut self, records: &Records) -> anyhow::Result<()> {
        for sandbox in records.sandboxes()? {
            let record = match records.read(&sandbox) {
                Ok(Some(record)) => record,
                // One that is being made, or unmade, has none at the moment.
                Ok(None) => {
                    self.unreadable.insert(sandbox.to_string());
                    continue;
                }
                Err(e) => {
                    self.unseen.push(e.to_string());
                    self.unreadable.insert(sandbox.to_string());
                    continue;
                }
            };
            let namespace = match record.namespace() {
                Ok(Some(_)) => Namespace::There,
                Ok(None) => Namespace::Gone,
                Err(_) => Namespace::Unknown,
            };
            let pod = &record.pod;
            let pod = Pod { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone().unwrap_or_default() };
            for step in &record.steps {
                let key = Key { network: step.list.name.to_string(), container: sandbox.to_string(), ifname: step.ifname.to_string() };
                let sources = step.list.plugins.iter().filter_map(|plugin| source_of(plugin.raw())).collect();
                let (namespace, pod) = (namespace.clone(), Some(pod.clone()).filter(|pod| !pod.name.is_empty()));
                self.add(Attachment { key, pod, namespace, addresses: addresses(step.result()), sources });
            }
        }
        Ok(())
    }

    fn of_cache(&mut self, cache: &Cache) {
        let (cached, errors) = cache.of_this_boot();
        self.unseen.extend(errors.iter().map(ToString::to_string));
        for one in cached {
            let key = plugins::pool_key(&one.id);
            let namespace = match Netns::open(Path::new(&one.netns)) {
                _ if one.netns.is_empty() => Namespace::Unknown,
                Ok(Some(_)) => Namespace::There,
                Ok(None) | Err(NetnsError::NotANamespace { .. }) => Namespace::Gone,
                Err(_) => Namespace::Unknown,
            };
            let of = |name: &str| one.args.get(name).unwrap_or_default().to_owned();
            let pod = Pod { namespace: of("K8S_POD_NAMESPACE"), name: of("K8S_POD_NAME"), uid: of("K8S_POD_UID") };
            let pod = Some(pod).filter(|pod| !pod.name.is_empty());
            self.add(Attachment { key, pod, namespace, addresses: addresses(one.result.as_ref()), sources: sources_of(&one.config) });
        }
    }

    /// A record knows better than a cached result of the same attachment.
    fn add(&mut self, one: Attachment) {
        self.attachments.entry((one.key.container.clone(), one.key.ifname.clone())).or_insert(one);
    }

    fn of_namespaces(&mut self) -> anyhow::Result<()> {
        let own = Inside::here().id()?;
        for (id, path) in linux::reachable()? {
            match look(id, &path) {
                Ok(Some(addresses)) => {
                    let name = if id == own { "this host".to_owned() } else { path.display().to_string() };
                    self.places.push(LeasePlace { name, is_own: id == own, addresses });
                }
                Ok(None) => {}
                Err(reason) => self.unseen.push(format!("{}: {reason}", path.display())),
            }
        }
        Ok(())
    }
}

/// The addresses in a namespace; `None` where it is gone, or another one is there by now.
fn look(id: NetnsId, path: &Path) -> Result<Option<BTreeSet<IpAddr>>, String> {
    let Some(netns) = Netns::open(path).map_err(|e| e.to_string())?.filter(|netns| netns.id() == id) else { return Ok(None) };
    let addresses = netns.enter(|inside| {
        let all = Netlink::open(inside).map_err(|e| e.to_string())?.addresses(None).map_err(|e| e.to_string())?;
        Ok::<_, String>(all.into_iter().map(|address| address.net.addr()).collect())
    });
    addresses.map_err(|e| e.to_string())?.map(Some)
}

fn addresses(result: Option<&AddResult>) -> Vec<IpAddr> {
    result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.addr()).collect()
}

/// Where the addresses are from that a plugin's configuration asks for, if they are of pools.
fn source_of(plugin: &Object) -> Option<Source> {
    let ipam = plugin.objects("ipam").rev().find(|ipam| ipam.str("type").is_some_and(|kind| !kind.is_empty()))?;
    let text = |key: &str| ipam.str(key).unwrap_or_default();
    match text("type") {
        "pool" => Some(Source::Pool(ipam::pool_name(text("pool"), text("network")).to_owned())),
        "whereabouts" => Some(Source::Ranges(Whereabouts::of_plugin(plugin))),
        _ => None,
    }
}

/// The same of a list, as a runtime has cached it.
fn sources_of(config: &[u8]) -> Vec<Source> {
    let Ok(Value::Object(list)) = json::parse(config) else { return Vec::new() };
    let plugins = list.get("plugins").and_then(Value::as_array).unwrap_or_default();
    plugins.iter().filter_map(Value::as_object).chain([&list]).filter_map(source_of).collect()
}

#[cfg(test)]
mod tests {
    use super::{Source, sources_of};

    #[test]
    fn a_configuration_without_a_pool_means_the_one_of_its_network() {
        let config = br#"{"name": "n", "plugins": [
            {"type": "bridge", "ipam": {"type": "pool", "pool": "a", "network": "b"}},
            {"type": "bridge", "ipam": {"type": "pool", "network": "b"}},
            {"type": "bridge", "ipam": {"type": "pool"}},
            {"type": "bridge", "ipam": {"type": "static"}},
            {"type": "bridge"}]}"#;
        assert_eq!(sources_of(config), ["a", "b", "default"].map(|name| Source::Pool(name.to_owned())));
    }

    #[test]
    fn ranges_are_told_or_why_they_are_not() {
        let of =
            |range: &str| sources_of(format!(r#"{{"type": "bridge", "ipam": {{"type": "whereabouts", "range": "{range}"}}}}"#).as_bytes());
        let told = |source: &Source| match source {
            Source::Ranges(ranges) => ranges.as_ref().map(|w| w.ranges[0].pool.clone()).map_err(ToString::to_string),
            Source::Pool(pool) => panic!("{pool}"),
        };
        assert_eq!(told(&of("10.67.0.0/24")[0]).unwrap(), "whereabouts-10.67.0.0-24");
        assert!(told(&of("10.67")[0]).unwrap_err().starts_with("ipam.range"));
    }
}
