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
//! one is meant, and the ADD fails.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::{GrantedPool, LabelSelector, NodeIpPoolSpec};
use attach::Plan;
use cluster::{Cluster, Labels, Namespaces, Pod};
use cni::{AttachmentId, CniArgs, CniError, Code, Config, NetworkList};
use json::{Object, Value};
use plugin::Dirs;
use serde::Deserialize;

use super::Addresses;
use crate::call::PodName;
use crate::{Agent, lock};

/// For so long an ADD waits to hear of the selectors where its configuration does not say.
const WAIT: Duration = Duration::from_secs(20);

/// The selectors of the pools that this node may use, as they were seen last. `None`: nobody has said yet whether there are any.
#[derive(Default)]
pub(super) struct Selectors(Mutex<Option<Arc<Selecting>>>);

/// Pools that select pods.
struct Selecting {
    pools: Vec<PoolSelector>,
    /// Followed where one of them asks for labels of namespaces.
    namespaces: Option<Arc<Namespaces>>,
}

/// Whom a pool is for.
#[derive(PartialEq)]
struct PoolSelector {
    pool: String,
    network: String,
    pods: Option<LabelSelector>,
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
    /// These are the terms of the node's pools now. Whether they select otherwise than before.
    pub(super) fn see(&self, spec: &NodeIpPoolSpec, cluster: &Cluster) -> bool {
        let pools: Vec<PoolSelector> = spec.pools.iter().filter_map(|(name, terms)| PoolSelector::of(name, terms)).collect();
        let mut known = lock(&self.0);
        if known.as_ref().is_some_and(|known| known.pools == pools) {
            return false;
        }
        let followed = known.as_ref().and_then(|known| known.namespaces.clone());
        let by_namespace = pools.iter().any(|pool| pool.namespaces.is_some());
        let namespaces = by_namespace.then(|| followed.unwrap_or_else(|| Arc::new(cluster.follow_namespaces())));
        *known = Some(Arc::new(Selecting { pools, namespaces }));
        true
    }

    /// There are no terms. What was known before stays.
    pub(super) fn see_none(&self) -> bool {
        let mut known = lock(&self.0);
        let is_new = known.is_none();
        known.get_or_insert_with(|| Arc::new(Selecting { pools: Vec::new(), namespaces: None }));
        is_new
    }

    fn known(&self) -> Option<Arc<Selecting>> {
        lock(&self.0).clone()
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
        dirs.configured(&self.pools, &dirs.pools).join(format!("{}.json", self.otherwise())).exists()
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
        for planned in &mut plan.attachments {
            let network = planned.name();
            let Some(open) = Open::of_list(&planned.list) else { continue };
            let within = |e: CniError| e.within(format!("network {network}"));
            let Some(pool) = self.choose(pod, &open, dirs, by).map_err(within)? else { continue };
            if let Some(claim) = planned.source.selection().and_then(|selection| selection.ipam_claim.as_deref())
                && pool != open.otherwise()
            {
                let why = format!(
                    "names no pool, and the addresses of IPAMClaim {claim:?} are of {:?} then, but the selectors of IPPool {pool:?} take pod \
                     {}: name the one that is meant, or let the selectors not take the pod",
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
        let key = pool::Key { network: id.network.to_string(), container: id.container.to_string(), ifname: id.ifname.to_string() };
        let held = addresses.store.lease(&key).and_then(|lease| Some(lease.addresses.first()?.pool.clone()));
        let pool = match (held, PodName::of(args)) {
            (Some(pool), _) => pool,
            (None, Some(name)) if self.may_select(&open) => match self.choose(&*self.pod(&name, by)?, &open, dirs, by)? {
                Some(pool) => pool,
                None => return Ok(config),
            },
            (None, _) => return Ok(config),
        };
        with_pool(&config, &pool)
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

    /// Whether it matters which pod asks.
    fn may_select(&self, open: &Open) -> bool {
        let known = self.addresses.as_ref().map(|addresses| addresses.selectors.known());
        known.is_some_and(|known| known.is_none_or(|known| known.of(&open.network).next().is_some()))
    }

    /// The pool that selects a pod; `None`: none does.
    fn choose(&self, pod: &Pod, open: &Open, dirs: &Dirs, by: Instant) -> Result<Option<String>, CniError> {
        let Some(addresses) = &self.addresses else { return Ok(None) };
        let until = by.min(Instant::now() + open.wait());
        let Some(known) = addresses.selectors_by(until, || open.is_of_host(dirs)) else {
            return if open.is_of_host(dirs) { Ok(None) } else { Err(self.unknown(open)) };
        };
        let mut namespace = Arc::default();
        if known.of(&open.network).any(|pool| pool.namespaces.is_some()) {
            let seen = known.namespaces.as_ref().and_then(|all| all.labels(&pod.namespace));
            namespace = match seen {
                Some(labels) => labels,
                None => Arc::new(self.ask(self.cluster.fetch_namespace(&pod.namespace), by)?.unwrap_or_default()),
            };
        }
        let mut taking = known.of(&open.network).filter(|pool| pool.takes(&pod.labels, &namespace)).map(|pool| pool.pool.as_str());
        match (taking.next(), taking.next()) {
            (first, None) => Ok(first.map(str::to_owned)),
            (first, Some(second)) => {
                let all: Vec<&str> = first.into_iter().chain([second]).chain(taking).collect();
                let why = format!(
                    "is not named, and the selectors of {} IPPools take pod {}: {}. Let one of them take it (podSelector, \
                     namespaceSelector), or name the pool, or its network in ipam.network",
                    all.len(),
                    pod.reference(),
                    all.join(", ")
                );
                Err(CniError::invalid("ipam.pool", why))
            }
        }
    }

    fn unknown(&self, open: &Open) -> CniError {
        let msg = format!(
            "pool {:?} is not this node's, or not yet: the cluster has not said what this node was granted (NodeIPPool {:?}), nor so whether \
             another pool selects the pod: does the operator run?",
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
    /// The selectors, when they are known; `None`: not until then, or they do not matter.
    fn selectors_by(&self, until: Instant, do_not_matter: impl Fn() -> bool) -> Option<Arc<Selecting>> {
        loop {
            let seen = self.store.version();
            match self.selectors.known() {
                Some(known) => return Some(known),
                None if Instant::now() >= until || do_not_matter() => return None,
                None => self.store.wait_past(seen, until),
            }
        }
    }
}
