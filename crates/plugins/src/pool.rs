//! `pool`: addresses of a pool, which are on the disk before the container has them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use ::pool::{Allocator, Ask, Family, Lease, Pod, Want};
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, IpConfig, Version};
use ipam::{Pool as Grant, PoolStore, RawRoute, RequestedSources};
use ipnet::IpNet;
use plugin::{About, Call, Cx, Key, Plugin, Stage};
use serde::Deserialize;

use crate::internal;

/// The plugin `pool`.
pub(crate) struct Pool;

static ABOUT: About = About {
    name: "pool",
    summary: "gives addresses of a pool, durably: nobody else gets one that is in use, whatever crashes",
    versions: Version::ALL,
    capabilities: &["ips"],
    keys: &[
        Key::new("ipam.pool", "string", "required", "the pool: its file below ipam.pools has this name and .json behind it"),
        Key::new("ipam.pools", "path", "/etc/netloom/pools", "where the pools' files are, each an IPPool"),
        Key::new("ipam.families", "list", "those of the pool", "\"ipv4\", \"ipv6\": one address of each, all or none"),
        Key::new("ipam.routes", "list", "none", "routes {dst, gw, mtu, advmss, priority, table, scope} for the container"),
        Key::new("ipam.dataDir", "path", "/var/lib/netloom/ipam", "where the journal is"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    ipam: IpamKeys,
    runtime_config: IpsKeys,
    args: ArgsKeys,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct IpamKeys {
    pool: String,
    pools: String,
    families: Vec<String>,
    routes: Vec<RawRoute>,
    data_dir: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKeys {
    cni: IpsKeys,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IpsKeys {
    ips: Vec<String>,
}

impl Keys {
    fn grant(&self, x: &Cx<'_>) -> Result<Grant, CniError> {
        if self.ipam.pool.is_empty() {
            return Err(CniError::invalid("ipam.pool", "missing: of which pool are the addresses to be?"));
        }
        let dir = x.host.dirs.configured(&self.ipam.pools, &x.host.dirs.pools);
        Ok(ipam::read_pool(&dir, &self.ipam.pool)?)
    }

    /// What is asked for: the requested addresses, and one of each family without a request.
    fn wants(&self, grant: &Grant, args: &CniArgs) -> Result<Vec<Want>, CniError> {
        let requested =
            ipam::requested_addresses(RequestedSources { args, args_ips: &self.args.cni.ips, runtime_ips: &self.runtime_config.ips })?;
        let has = |family: Family| grant.runs.iter().any(|run| run.family() == family);
        let families: Vec<Family> = match self.ipam.families.as_slice() {
            [] => Family::ALL.into_iter().filter(|f| has(*f)).collect(),
            named => named.iter().enumerate().map(|(i, name)| family(i, name)).collect::<Result<_, _>>()?,
        };
        let want = |family, address| Want { pool: self.ipam.pool.clone(), family, address };
        let mut wants = Vec::new();
        for family in families {
            let of_family: Vec<IpAddr> = requested.iter().copied().filter(|a| Family::of(*a) == family).collect();
            wants.extend(of_family.iter().map(|a| want(family, Some(*a))));
            if of_family.is_empty() {
                wants.push(want(family, None));
            }
        }
        match requested.iter().find(|a| !wants.iter().any(|w| w.address == Some(**a))) {
            Some(other) => {
                Err(CniError::invalid("ipam", format!("{other} is requested, but no {} address is given here", Family::of(*other))))
            }
            None => Ok(wants),
        }
    }
}

fn family(i: usize, name: &str) -> Result<Family, CniError> {
    match name.to_ascii_lowercase().as_str() {
        "ipv4" => Ok(Family::V4),
        "ipv6" => Ok(Family::V6),
        _ => Err(CniError::invalid(&format!("ipam.families[{i}]"), format!("{name:?} is unknown: \"ipv4\" and \"ipv6\" are known"))),
    }
}

impl Plugin for Pool {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let keys: Keys = call.config.read()?;
        call.args.only(&["IP", "MAC", "GATEWAY"])?;
        let grant = keys.grant(x)?;
        let wants = keys.wants(&grant, call.args)?;
        ipam::one_per_family(call.config.version, wants.iter().map(|w| w.family == Family::V4))?;
        let routes = ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        let at = At::of(&keys.ipam.data_dir, x);
        let store = at.open()?;
        store.follow(&grant)?;
        let lease = store.reserve(&Ask { key: key(call.id), pod: pod(call.args), claim: None, wants })?;
        // Others wait for it.
        drop(store);
        linux::crash_point!("pool-reserved");
        give_back(at, call.id, Some(lease.generation), x);
        Ok(AddResult { ips: ips(&grant, &lease)?, routes, ..AddResult::default() })
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = call.config.read()?;
        let store = At::of(&keys.ipam.data_dir, x).open()?;
        let held = store.lease(&key(call.id));
        let held =
            held.ok_or_else(|| internal(format!("pool: {} holds no address: {} has none for it", call.id, store.dir().display())))?;
        // An address that has left the pool meanwhile is its holder's still; one of another plugin was never of this pool.
        let ours = |ip: &&IpConfig| store.look(|all| has(all, &keys.ipam.pool, ip.address.addr()));
        let lost = |ip: &&IpConfig| !held.addresses.iter().any(|l| l.address == ip.address.addr());
        match call.prev.and_then(|prev| prev.ips.iter().filter(ours).find(lost)) {
            None => Ok(()),
            Some(ip) => Err(internal(format!("pool: address {} is not held by {} any more", ip.address, call.id))),
        }
    }

    fn del(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        // A pool that is gone, or was never there, is no reason for DEL to fail: nothing else of the configuration is read.
        let dir = call.config.raw().objects("ipam").rev().find_map(|ipam| ipam.str("dataDir")).unwrap_or_default();
        give_back(At::of(dir, x), call.id, None, x);
        Ok(())
    }

    fn status(&self, config: &Config, x: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        let keys: Keys = config.read()?;
        let grant = keys.grant(x).map_err(unavailable)?;
        let at = At::of(&keys.ipam.data_dir, x);
        // What the runtime will ask for is not known here.
        let keys = Keys { args: ArgsKeys::default(), runtime_config: IpsKeys::default(), ..keys };
        let wants = keys.wants(&grant, &CniArgs::default())?;
        let store = at.open().map_err(unavailable)?;
        let nobody = ::pool::Key { network: String::new(), container: String::new(), ifname: String::new() };
        store.would_grant(&grant, &Ask { key: nobody, pod: None, claim: None, wants }).map_err(|e| unavailable(e.into()))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = config.read()?;
        give_back_others(At::of(&keys.ipam.data_dir, x), config, valid, x);
        Ok(())
    }
}

/// What is opened then is not kept from others until then.
pub(crate) fn give_back(at: At, id: &AttachmentId, generation: Option<u64>, x: &mut Cx<'_>) {
    let key = key(id);
    x.teardown.at(Stage::Leases, format!("free the addresses of {id}"), move |_| match at.open_what_is_there()? {
        Some(store) => Ok(store.release(&key, generation).map(drop)?),
        None => Ok(()),
    });
}

/// The same for all attachments of a network but these.
pub(crate) fn give_back_others(at: At, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) {
    let valid: HashSet<_> = valid.iter().map(key).collect();
    let network = config.network.as_str().to_owned();
    x.teardown.at(Stage::Leases, format!("free addresses of {network}"), move |_| match at.open_what_is_there()? {
        Some(store) => Ok(store.release_others(&network, &valid)?),
        None => Ok(()),
    });
}

fn has(all: &Allocator, pool: &str, address: IpAddr) -> bool {
    all.blocks(pool, Family::of(address)).any(|(block, _)| block.run.contains(address))
}

pub(crate) fn key(id: &AttachmentId) -> ::pool::Key {
    let (network, container, ifname) = (id.network.to_string(), id.container.to_string(), id.ifname.to_string());
    ::pool::Key { network, container, ifname }
}

pub(crate) fn pod(args: &CniArgs) -> Option<Pod> {
    let of = |name: &str| args.get(name).unwrap_or_default().to_owned();
    let pod = Pod { namespace: of("K8S_POD_NAMESPACE"), name: of("K8S_POD_NAME"), uid: of("K8S_POD_UID") };
    (!pod.name.is_empty()).then_some(pod)
}

fn ips(grant: &Grant, lease: &Lease) -> Result<Vec<IpConfig>, CniError> {
    let ip = |address: IpAddr| {
        let terms = grant.spec.terms(Family::of(address));
        let prefix = if terms.prefix == 0 { Family::of(address).bits() } else { terms.prefix };
        Ok(IpConfig { interface: None, address: IpNet::new(address, prefix).map_err(internal)?, gateway: terms.gateway })
    };
    lease.addresses.iter().map(|leased| ip(leased.address)).collect()
}

/// Where a store is, and until when it is waited for.
pub(crate) struct At {
    dir: PathBuf,
    deadline: Instant,
}

impl At {
    pub(crate) fn of(data_dir: &str, x: &Cx<'_>) -> Self {
        At { dir: x.host.dirs.configured(data_dir, &x.host.dirs.journal), deadline: x.deadline }
    }

    /// The store, `None` where nobody was ever given anything: nor is it made then.
    pub(crate) fn open_what_is_there(&self) -> Result<Option<Arc<PoolStore>>, CniError> {
        if matches!(self.dir.try_exists(), Ok(false)) { Ok(None) } else { self.open().map(Some) }
    }

    /// The store. A process opens it once, however many attachments it makes at a time, and closes it when the last of them
    /// has what it asked for: other processes wait for it.
    pub(crate) fn open(&self) -> Result<Arc<PoolStore>, CniError> {
        static OPEN: Mutex<Option<HashMap<PathBuf, Weak<PoolStore>>>> = Mutex::new(None);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.get_or_insert_default();
        if let Some(store) = known.get(&self.dir).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let store = Arc::new(PoolStore::open(&self.dir, self.deadline)?);
        known.insert(self.dir.clone(), Arc::downgrade(&store));
        Ok(store)
    }
}
