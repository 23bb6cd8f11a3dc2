//! Which pool an attachment's addresses are of where its configuration names none: IPPools select pods by their labels.
//!
//! ```text
//!   selectors of pools  <-- NodeIPPool.spec.pools (follow)         labels of the pod, and of its namespace
//!          |                                                             |
//!          +------------------------------> one pool <-------------------+
//!                                              |
//!   "ipam": {"type": "pool"} --> "ipam": {"type": "pool", "pool": ...}, for the plugin, the record and CHECK
//! ```
//!
//! None of them takes the pod: the configuration stays as it is, and means the pool of its network's name. Several do: nobody knows which
//! one is meant, and the ADD fails. Where the host has the pool that the configuration means in a file of its own, nobody is asked.
//!
//! What was heard last is beside the journal, as the blocks are in it: an agent that starts without an API server chooses as before.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::{GrantedPool, LabelSelector, NodeIpPoolSpec};
use attach::Plan;
use cluster::{Cluster, Labels, Namespaces, Pod};
use cni::{AttachmentId, CniArgs, CniError, Code, Config, NetworkList};
use ipam::PoolStore;
use json::{Object, Value};
use linux::file::{self, Links};
use plugin::Dirs;
use serde::{Deserialize, Serialize};

use super::Addresses;
use crate::call::PodName;
use crate::log::Line;
use crate::settings::Ipam;
use crate::{Agent, lock};

/// For so long an ADD waits to hear of the selectors where its configuration does not say.
const WAIT: Duration = Duration::from_secs(20);

/// Beside the journal: what was heard last.
const FILE: &str = "selectors";
/// More than the selectors of all pools that a node's object has room for.
const MAX_FILE: usize = 4 << 20;

/// The selectors of the pools that this node may use, as they were seen last.
pub(super) struct Selectors {
    file: PathBuf,
    seen: Mutex<PoolSelectors>,
}

struct PoolSelectors {
    /// `None`: nobody has said yet whether there are any.
    known: Option<Arc<Selecting>>,
    /// The file says so.
    is_written: bool,
}

/// Pools that select pods.
struct Selecting {
    pools: Vec<PoolSelector>,
    /// Followed where one of them asks for labels of namespaces.
    namespaces: Option<Arc<Namespaces>>,
}

/// Whom a pool is for.
#[derive(PartialEq, Serialize, Deserialize)]
struct PoolSelector {
    pool: String,
    network: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<LabelSelector>,
}

/// A plugin's `ipam` that does not say of which pool it is.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Open {
    #[serde(rename = "type")]
    kind: String,
    pool: String,
    /// Of which network the pool is to be; empty: of any.
    network: String,
    /// Where the host's own pools are, if not in their place.
    pools: String,
    add_wait: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OpenKeys {
    ipam: Open,
}

// === impl Selectors ===

impl Selectors {
    /// What was heard before the agent began, of a store in this directory.
    pub(super) fn of(store: &PoolStore) -> Self {
        let file = store.dir().join(FILE);
        let read = file::read(&file, MAX_FILE, Links::Refused).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_written = read.is_some();
        // Pools of the cluster without a word of it are of an agent that knew no selectors.
        let read = read.or_else(|| (!store.cluster_pools().is_empty()).then(Vec::new));
        let known = read.map(|pools| Arc::new(Selecting { pools, namespaces: None }));
        Selectors { file, seen: Mutex::new(PoolSelectors { known, is_written }) }
    }

    /// These are the terms of the node's pools now. Whether they select otherwise than before.
    pub(super) fn see(&self, spec: &NodeIpPoolSpec, cluster: &Cluster) -> bool {
        let pools: Vec<PoolSelector> = spec.pools.iter().filter_map(|(name, terms)| PoolSelector::of(name, terms)).collect();
        let mut seen = lock(&self.seen);
        let followed = seen.known.as_ref().and_then(|known| known.namespaces.clone());
        let by_namespace = pools.iter().any(|pool| pool.namespaces.is_some());
        let is_same = seen.known.as_ref().is_some_and(|known| known.pools == pools);
        if !(is_same && seen.is_written) {
            let text = serde_json::to_vec(&pools).unwrap_or_default();
            let written = file::write_atomic(&self.file, &text, 0o600, file::Durability::Durable);
            seen.is_written = written.is_ok();
            if let Err(e) = written {
                Line::warn("addresses")
                    .with("what", "the pools' selectors are not stored for the next start of the agent")
                    .with("error", e)
                    .end();
            }
        }
        let namespaces = by_namespace.then(|| followed.unwrap_or_else(|| Arc::new(cluster.follow_namespaces())));
        seen.known = Some(Arc::new(Selecting { pools, namespaces }));
        !is_same
    }

    /// There are no terms. What was known before stays.
    pub(super) fn see_none(&self) -> bool {
        let known = &mut lock(&self.seen).known;
        let is_new = known.is_none();
        known.get_or_insert_with(|| Arc::new(Selecting { pools: Vec::new(), namespaces: None }));
        is_new
    }

    fn known(&self) -> Option<Arc<Selecting>> {
        lock(&self.seen).known.clone()
    }
}

// === impl Selecting ===

impl Selecting {
    /// Those of a network; of every one where it is empty.
    fn of<'s>(&'s self, network: &'s str) -> impl Iterator<Item = &'s PoolSelector> {
        self.pools.iter().filter(move |pool| network.is_empty() || pool.network == network)
    }
}

// === impl PoolSelector ===

impl PoolSelector {
    /// `None`: it selects nobody, or hands out nothing any more.
    fn of(name: &str, terms: &GrantedPool) -> Option<Self> {
        let selects = !terms.ending && (terms.pod_selector.is_some() || terms.namespace_selector.is_some());
        selects.then(|| PoolSelector {
            pool: name.to_owned(),
            network: if terms.network.is_empty() { name.to_owned() } else { terms.network.clone() },
            pods: terms.pod_selector.clone(),
            namespaces: terms.namespace_selector.clone(),
        })
    }

    fn takes(&self, pod: &Labels, namespace: &Labels) -> bool {
        let takes = |selector: &Option<LabelSelector>, labels| selector.as_ref().is_none_or(|selector| selector.takes(labels));
        takes(&self.pods, pod) && takes(&self.namespaces, namespace)
    }
}

// === impl Open ===

impl Open {
    /// What a plugin's configuration leaves open.
    fn of(plugin: &Object) -> Option<Self> {
        // What cannot be read the plugin refuses.
        let ipam = json::read_object::<OpenKeys>(plugin).ok()?.ipam;
        (ipam.kind == "pool" && ipam.pool.is_empty()).then_some(ipam)
    }

    fn of_list(list: &NetworkList) -> Option<Self> {
        list.plugins.iter().find_map(|plugin| Open::of(plugin.raw()))
    }

    /// The pool that is meant where none selects the pod.
    fn otherwise(&self) -> &str {
        ipam::pool_name("", &self.network)
    }

    fn wait(&self) -> Duration {
        self.add_wait.map_or(WAIT, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Whether that one is the host's own.
    fn is_of_host(&self, dirs: &Dirs) -> bool {
        ipam::pool_path(&dirs.configured(&self.pools, &dirs.pools), self.otherwise()).exists()
    }
}

/// A plugin's `ipam` with the pool that was chosen, if it leaves that open.
fn named(ipam: Option<&Value>, pool: &str) -> Option<Value> {
    let plugin: Object = [("ipam".to_owned(), ipam?.clone())].into_iter().collect();
    Open::of(&plugin)?;
    let mut ipam = ipam?.as_object()?.clone();
    ipam.set("pool", pool);
    Some(Value::Object(ipam))
}

// === impl Agent ===

impl Agent {
    /// Names the pool in every network of a pod's plan that leaves it open, where one selects the pod.
    pub(crate) fn name_pools(&self, pod: &Pod, plan: &mut Plan, dirs: &Dirs, by: Instant) -> Result<(), CniError> {
        // Where none selects anybody, which is known, no configuration is read for it.
        if self.addresses.as_ref().is_none_or(|addresses| addresses.selectors.known().is_some_and(|known| known.pools.is_empty())) {
            return Ok(());
        }
        for planned in &mut plan.attachments {
            let network = planned.name();
            let Some(open) = Open::of_list(&planned.list) else { continue };
            let within = |e: CniError| e.within(format!("network {network}"));
            let Some(pool) = self.choose(|| Ok(pod), &open, dirs, by).map_err(within)? else { continue };
            if let Some(claim) = planned.source.selection().and_then(|selection| selection.ipam_claim.as_deref())
                && pool != open.otherwise()
            {
                let why = format!(
                    "names no pool, so the addresses of IPAMClaim {claim:?} come from {:?}, but the selectors of IPPool {pool:?} match \
                        pod {}: name the pool, or change the selectors",
                    open.otherwise(),
                    pod.reference()
                );
                return Err(within(CniError::invalid("ipam.pool", why)));
            }
            planned.list.set_in_plugins("ipam", |ipam| named(ipam, &pool));
        }
        Ok(())
    }

    /// The pool of an attachment that a plugin in a process of its own is about: as it has it already, else the one that selects the pod.
    pub(super) fn name_pool(
        &self,
        config: Config,
        id: &AttachmentId,
        args: &CniArgs,
        dirs: &Dirs,
        by: Instant,
    ) -> Result<Config, CniError> {
        let (Some(addresses), Some(open)) = (&self.addresses, Open::of(config.raw())) else { return Ok(config) };
        let held = addresses.store.lease(&plugins::pool_key(id)).and_then(|lease| Some(lease.addresses.first()?.pool.clone()));
        let pool = match (held, PodName::of(args)) {
            (Some(pool), _) => Some(pool),
            (None, Some(name)) => self.choose(|| self.pod(&name, by), &open, dirs, by)?,
            (None, None) => None,
        };
        match pool {
            Some(pool) => with_pool(&config, &pool),
            None => Ok(config),
        }
    }

    /// What is asked whether an ADD would be served, where a configuration leaves open which pool it is about: the one that is meant
    /// otherwise, and all that select pods.
    pub(crate) fn possible_pools(&self, list: &NetworkList) -> Vec<NetworkList> {
        let chosen = Open::of_list(list).map(|open| self.selecting(&open.network)).unwrap_or_default();
        let named = chosen.into_iter().map(|pool| {
            let mut list = list.clone();
            list.set_in_plugins("ipam", |ipam| named(ipam, &pool));
            list
        });
        [list.clone()].into_iter().chain(named).collect()
    }

    /// The same for a plugin in a process of its own.
    pub(super) fn possible_configs(&self, config: &Config) -> Result<Vec<Config>, CniError> {
        let chosen = Open::of(config.raw()).map(|open| self.selecting(&open.network)).unwrap_or_default();
        let named = chosen.iter().map(|pool| with_pool(config, pool));
        [Ok(config.clone())].into_iter().chain(named).collect()
    }

    fn selecting(&self, network: &str) -> Vec<String> {
        let known = self.addresses.as_ref().and_then(|addresses| addresses.selectors.known());
        known.map(|known| known.of(network).map(|pool| pool.pool.clone()).collect()).unwrap_or_default()
    }

    /// The pool that selects a pod; `None`: none does, or nobody is asked. The pod is looked for only where it matters which one it is.
    fn choose<P: Deref<Target = Pod>>(
        &self,
        pod: impl FnOnce() -> Result<P, CniError>,
        open: &Open,
        dirs: &Dirs,
        by: Instant,
    ) -> Result<Option<String>, CniError> {
        let Some(addresses) = self.addresses.as_ref().filter(|_| !open.is_of_host(dirs)) else { return Ok(None) };
        let known = match addresses.selectors_by(by.min(Instant::now() + open.wait()), self.settings.ipam == Ipam::Pool) {
            Some(known) => known,
            None if self.settings.ipam == Ipam::Pool => return Err(self.unknown(open)),
            // There may be no operator, and the pool is the CiliumNode's.
            None => return Ok(None),
        };
        if known.of(&open.network).next().is_none() {
            return Ok(None);
        }
        let pod = pod()?;
        let by_namespace = known.of(&open.network).any(|pool| pool.namespaces.is_some());
        let namespace = if by_namespace { self.labels_of(&pod.namespace, &known, by)? } else { Arc::default() };
        let mut taking = known.of(&open.network).filter(|pool| pool.takes(&pod.labels, &namespace)).map(|pool| pool.pool.as_str());
        match (taking.next(), taking.next()) {
            (first, None) => Ok(first.map(str::to_owned)),
            (first, Some(second)) => {
                let all: Vec<&str> = first.into_iter().chain([second]).chain(taking).collect();
                let why = format!(
                    "is not named, and the selectors of {} IPPools match pod {}: {}. Let only one match (podSelector, \
                        namespaceSelector), or name the pool, or its network in ipam.network",
                    all.len(),
                    pod.reference(),
                    all.join(", ")
                );
                Err(CniError::invalid("ipam.pool", why))
            }
        }
    }

    fn labels_of(&self, namespace: &str, known: &Selecting, by: Instant) -> Result<Arc<Labels>, CniError> {
        if let Some(seen) = known.namespaces.as_ref().and_then(|all| all.labels(namespace)) {
            return Ok(seen);
        }
        let found = self.ask(self.cluster.fetch_namespace(namespace), by);
        let place =
            |e: CniError| e.within(format!("pools select by the labels of namespace {namespace:?}, which the agent has not received yet"));
        let gone = || CniError::new(Code::TRY_AGAIN_LATER, "the API server has no such namespace");
        found.and_then(|found| found.map(Arc::new).ok_or_else(gone)).map_err(place)
    }

    fn unknown(&self, open: &Open) -> CniError {
        let msg = format!(
            "pool {:?} is not granted to this node (yet): the node has no NodeIPPool {:?}, so it is unknown whether another pool \
                selects the pod: check that the operator runs",
            open.otherwise(),
            self.cluster.node()
        );
        CniError::new(Code::TRY_AGAIN_LATER, msg)
    }
}

fn with_pool(config: &Config, pool: &str) -> Result<Config, CniError> {
    let mut raw = config.raw().clone();
    if let Some(ipam) = named(raw.get("ipam"), pool) {
        raw.set("ipam", ipam);
    }
    Ok(Config::from_object(raw)?)
}

// === impl Addresses ===

impl Addresses {
    /// The selectors, when they are known; `None`: not until then, or nobody waits for that.
    fn selectors_by(&self, until: Instant, waits: bool) -> Option<Arc<Selecting>> {
        loop {
            let seen = self.store.version();
            match self.selectors.known() {
                Some(known) => return Some(known),
                None if !waits || Instant::now() >= until => return None,
                None if !self.store.wait_past(seen, until) => return None,
                None => {}
            }
        }
    }
}
