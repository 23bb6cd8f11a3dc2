//! `pool`: addresses of a pool, which are on the disk before the container has them.

use std::cell::Cell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::pool::{Allocator, Ask, Family, Lease, Origin, Spec, Want};
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, IpConfig, Version};
use ipam::{Pool as Grant, PoolError, PoolStore, RawRoute, RequestedSources};
use ipnet::IpNet;
use plugin::{About, Call, Conflict, Cx, Draft, Key, Plugin, ROUTE};
use serde::Deserialize;

use crate::internal;
use crate::pool_store::{ADD_WAIT, KNOWN_ARGS, StoreHandle, claim, give_back, give_back_others, granted, key, met, not_here, pod};

/// The plugin `pool`.
pub(crate) struct Pool;

/// As a configuration names it.
pub(crate) const NAME: &str = "pool";

static ABOUT: About = About {
    name: NAME,
    summary: "assigns addresses of a pool, and never one that is in use, even after a crash",
    versions: Version::ALL,
    capabilities: &["ips"],
    keys: &[
        Key::new("ipam.pool", "string", "default", "the pool: a file NAME.json in ipam.pools, or a pool of the cluster"),
        Key::new(
            "ipam.network",
            "string",
            "any",
            "if ipam.pool is not set: the network whose pools may select the pod; if none does, the pool of that name",
        ),
        Key::path("ipam.pools", "/etc/netloom/pools", &[], "directory of the pool files, each an IPPool"),
        Key::new("ipam.families", "list", "those of the pool", "\"ipv4\", \"ipv6\": one address of each, all or none"),
        Key::new(
            "ipam.hostPrefix",
            "bool",
            "false",
            "addresses get the prefix length 32 or 128 instead of the pool's: everything is behind the gateway",
        ),
        Key::new("ipam.routes", "list", "none", "routes {dst, gw, mtu, advmss, priority, table, scope} for the container").of(ROUTE),
        Key::new("ipam.addWait", "seconds", "20", "how long ADD waits for a free address; 0: it fails at once, with code 11"),
        Key::path("ipam.dataDir", "/var/lib/netloom/ipam", &[], "directory of the journal"),
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
    network: String,
    pools: String,
    families: Vec<String>,
    routes: Vec<RawRoute>,
    host_prefix: bool,
    data_dir: String,
    add_wait: Option<u32>,
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
    fn name(&self) -> &str {
        ipam::pool_name(&self.ipam.pool, &self.ipam.network)
    }

    fn wait(&self) -> Duration {
        self.ipam.add_wait.map_or(ADD_WAIT, |seconds| Duration::from_secs(seconds.into()))
    }

    /// A directory that is another one for each caller would have a journal for each: what one has given the others give again.
    fn has_place(&self) -> Result<(), CniError> {
        let dir = &self.ipam.data_dir;
        match dir.is_empty() || Path::new(dir).is_absolute() {
            true => Ok(()),
            false => {
                Err(CniError::invalid("ipam.dataDir", format!("{:?} is not an absolute path", dir.chars().take(80).collect::<String>())))
            }
        }
    }

    fn dir(&self, cx: &Cx<'_>) -> PathBuf {
        cx.host.dirs.configured(&self.ipam.pools, &cx.host.dirs.pools)
    }

    /// The pool in its file; without one it may be a cluster's, and why it is not here is told.
    fn file(&self, cx: &Cx<'_>) -> Result<Result<Grant, PoolError>, CniError> {
        match ipam::read_pool(&self.dir(cx), self.name()) {
            Err(e) if !e.is_missing() => Err(e.into()),
            read => Ok(read),
        }
    }

    fn requested<'a>(&'a self, args: &'a CniArgs) -> RequestedSources<'a> {
        RequestedSources { args, args_list: true, args_ips: &self.args.cni.ips, runtime_ips: &self.runtime_config.ips }
    }

    /// The families that are named, each once; none: those of the pool.
    fn families(&self) -> Result<Vec<Family>, CniError> {
        let named = self.ipam.families.iter().enumerate();
        let families: Vec<Family> = named.map(|(i, name)| family(i, name)).collect::<Result<_, _>>()?;
        match (1..families.len()).find(|i| families.iter().take(*i).any(|family| families.get(*i) == Some(family))) {
            Some(i) => Err(CniError::invalid(&format!("ipam.families[{i}]"), "is listed twice: one address of each family is assigned")),
            None => Ok(families),
        }
    }

    /// What is asked for: the requested addresses, and one of each family without a request.
    fn wants(&self, spec: &Spec, args: &CniArgs) -> Result<Vec<Want>, CniError> {
        let requested = ipam::requested_addresses(self.requested(args))?;
        let mut families = self.families()?;
        if families.is_empty() {
            families.extend(Family::ALL.into_iter().filter(|f| spec.has(*f)));
        }
        let want = |family, address| Want { pool: self.name().to_owned(), family, address };
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
                Err(CniError::invalid("ipam", format!("{other} is requested, but no {} address is assigned here", Family::of(*other))))
            }
            None => Ok(wants),
        }
    }
}

/// The pool's terms: as its file says, else as the cluster said last.
fn terms(name: &str, read: &Result<Grant, PoolError>, store: &PoolStore) -> Result<Spec, CniError> {
    match read {
        Ok(grant) => {
            store.follow(grant)?;
            Ok(grant.spec.clone())
        }
        Err(missing) => store.cluster_pool(name).ok_or_else(|| match store.expects() {
            true => not_here(store, name, nowhere(missing)),
            false => missing.clone().into(),
        }),
    }
}

/// A pool of which neither this host nor its cluster knows anything.
fn nowhere(missing: &PoolError) -> String {
    let cluster = "the cluster has granted this node no pool of that name: check with `kubectl get ippools.netloom.io` that it exists and that its \
        nodeSelector matches this node, and that the operator runs";
    match missing {
        PoolError::Read { path, .. } => format!("there is no file {}, and {cluster}", path.display()),
        other => format!("{other}, and {cluster}"),
    }
}

fn family(i: usize, name: &str) -> Result<Family, CniError> {
    let unknown = || CniError::invalid(&format!("ipam.families[{i}]"), format!("{name:?} is unknown: use \"ipv4\" or \"ipv6\""));
    ipam::family(name).ok_or_else(unknown)
}

impl Plugin for Pool {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        let keys: Keys = draft.config.read()?;
        keys.has_place()?;
        keys.families()?;
        ipam::requested_addresses(keys.requested(&CniArgs::default()))?;
        ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        Ok(())
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let keys: Keys = call.config.read()?;
        call.args.only(KNOWN_ARGS)?;
        keys.has_place()?;
        let file = ipam::pool_path(&keys.dir(cx), keys.name());
        let routes = ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        let at = StoreHandle::of(&keys.ipam.data_dir, cx);
        // A pool that is none is refused before anything is made.
        let first = at.expect(keys.file(cx)?)?;
        let wants = |spec: &Spec| -> Result<Vec<Want>, CniError> {
            let wants = keys.wants(spec, call.args)?;
            ipam::one_per_family(call.config.version, wants.iter().map(|w| w.family == Family::V4))?;
            Ok(wants)
        };
        first.as_ref().map_or(Ok(()), |grant| wants(&grant.spec).map(drop))?;
        let first = Cell::new(Some(first));
        let ask = |store: &PoolStore| {
            // It may have changed while it was waited for.
            let read = first.take().map_or_else(|| keys.file(cx), Ok)?;
            let spec = terms(keys.name(), &read, store)?;
            let claim = claim(call).filter(|_| spec.origin == Origin::Cluster);
            // Another pod of the claim may answer for it: the ledger says that it is the claim's.
            let probe = spec.probe && claim.is_none();
            Ok((Ask { key: key(call.id), pod: pod(call.args), claim, wants: wants(&spec)? }, (spec, probe)))
        };
        let (new, (spec, probe)) = at.reserve(call.id, keys.wait(), &file, cx.delegate, ask)?;
        linux::crash_point!("pool-reserved");
        let lease = granted(new, at, call.id, cx);
        cx.probe = probe;
        Ok(AddResult { ips: ips(&spec, &lease, keys.ipam.host_prefix)?, routes, ..AddResult::default() })
    }

    fn conflict(&self, call: &Call<'_>, conflict: &Conflict, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let keys: Keys = call.config.read()?;
        met(&StoreHandle::of(&keys.ipam.data_dir, cx), call.id, conflict)?;
        self.add(call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = call.config.read()?;
        StoreHandle::of(&keys.ipam.data_dir, cx).look(call.id, |store| {
            let held = store.lease(&key(call.id));
            let held = held
                .ok_or_else(|| internal(format!("pool: {} has no address: there is none for it in {}", call.id, store.dir().display())))?;
            // An address that has left the pool meanwhile is its holder's still; one of another plugin was never of this pool.
            let ours = |ip: &&IpConfig| store.look(|all| has(all, keys.name(), ip.address.addr()));
            let lost = |ip: &&IpConfig| !held.addresses.iter().any(|l| l.address == ip.address.addr());
            match call.prev.and_then(|prev| prev.ips.iter().filter(ours).find(lost)) {
                None => Ok(()),
                Some(ip) => Err(internal(format!("pool: address {} is not assigned to {} any more", ip.address, call.id))),
            }
        })
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // A pool that is gone, or was never there, is no reason for DEL to fail: nothing else of the configuration is read.
        let dir = call.config.raw().objects("ipam").rev().find_map(|ipam| ipam.str("dataDir")).unwrap_or_default();
        give_back(StoreHandle::of(dir, cx), call.id, None, cx);
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        let keys: Keys = config.read()?;
        keys.has_place()?;
        let at = StoreHandle::of(&keys.ipam.data_dir, cx);
        let read = keys.file(cx).and_then(|read| at.expect(read)).map_err(unavailable)?;
        // What the runtime will ask for is not known here.
        let keys = Keys { args: ArgsKeys::default(), runtime_config: IpsKeys::default(), ..keys };
        let store = at.open().map_err(unavailable)?;
        let spec = match &read {
            Ok(grant) => grant.spec.clone(),
            Err(_) => terms(keys.name(), &read, &store).map_err(unavailable)?,
        };
        let wants = keys.wants(&spec, &CniArgs::default())?;
        let nobody = ::pool::Key { network: String::new(), container: String::new(), ifname: String::new() };
        let ask = Ask { key: nobody, pod: None, claim: None, wants };
        store.would_grant(read.ok().as_ref(), &ask).map_err(|e| unavailable(e.into()))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = config.read()?;
        give_back_others(StoreHandle::of(&keys.ipam.data_dir, cx), config, valid, cx);
        Ok(())
    }
}

fn has(all: &Allocator, pool: &str, address: IpAddr) -> bool {
    all.blocks(pool, Family::of(address)).any(|(block, _)| block.run.contains(address))
}

/// The addresses of a lease on the pool's terms; `alone`: each without a subnet.
fn ips(spec: &Spec, lease: &Lease, alone: bool) -> Result<Vec<IpConfig>, CniError> {
    let ip = |address: IpAddr| {
        let (terms, family) = (spec.terms(Family::of(address)), Family::of(address));
        let prefix = if alone || terms.prefix == 0 { family.bits() } else { terms.prefix };
        Ok(IpConfig { interface: None, address: IpNet::new(address, prefix).map_err(internal)?, gateway: terms.gateway })
    };
    lease.addresses.iter().map(|leased| ip(leased.address)).collect()
}
