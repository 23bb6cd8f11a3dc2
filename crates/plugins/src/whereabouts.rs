//! `whereabouts`: configurations that were written for it, served from pools.

use std::net::IpAddr;
use std::time::Duration;

use ::pool::{Ask, Family, Want};
use cni::{AddResult, AttachmentId, CniError, Code, Config, IpConfig, Route, Version};
use ipam::{Pool, PoolStore, RequestedSources, WhereaboutsKeys, WhereaboutsRange};
use ipnet::IpNet;
use plugin::{About, Call, Conflict, Cx, DNS, Draft, Key, Plugin, ROUTE};
use serde::Deserialize;

use crate::internal;
use crate::pool_agent::agent_was_there;
use crate::pool_store::{ADD_WAIT, KNOWN_ARGS, StoreHandle, claim, give_back, give_back_others, granted, is_held, key, met, not_here, pod};

/// The plugin `whereabouts`.
pub(crate) struct Whereabouts;

/// The keys of an element of `ipRanges`.
const RANGE: &[&str] = &["range", "range_start", "range_end", "exclude"];

static ABOUT: About = About {
    name: "whereabouts",
    summary: "assigns addresses of ranges that a cluster shares, with configurations written for whereabouts",
    versions: Version::ALL,
    capabilities: &["ips"],
    keys: &[
        Key::new("ipam.range", "range", "none", "one address of it: network, or start-end/length"),
        Key::new("ipam.range_start", "address", "first usable", "the first one of range"),
        Key::new("ipam.range_end", "address", "last usable", "the last one of range"),
        Key::new("ipam.exclude", "list", "none", "networks and addresses of range that are not assigned"),
        Key::new("ipam.ipRanges", "list", "none", "more ranges {range, range_start, range_end, exclude}: one address of each").of(RANGE),
        Key::new("ipam.gateway", "address", "none", "gateway of the ranges of its family"),
        Key::new("ipam.routes", "list", "none", "routes {dst, gw, mtu, advmss, priority, table, scope} for the container").of(ROUTE),
        Key::new("ipam.dns", "object", "none", "{nameservers, domain, search, options}").of(DNS),
        Key::new("ipam.addresses", "list", "none", "additional {address, gateway} of the container").of(&["address", "gateway"]),
        Key::new("ipam.network_name", "string", "none", "where an address is unique: two networks may use the same one"),
        Key::new("ipam.enable_overlapping_ranges", "bool", "true", "false: an address is unique only in ranges of the same CIDR"),
        Key::new("ipam.node_slice_size", "prefix length", "none", "how many addresses a node reserves, in a cluster; at most 64"),
        Key::new("ipam.addWait", "seconds", "20", "how long ADD waits for free addresses"),
        Key::path(
            "ipam.configuration_path",
            "none",
            ipam::WHEREABOUTS_FILES,
            "a file with the keys that are missing here, read before whereabouts' own files",
        ),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    ipam: WhereaboutsKeys,
    runtime_config: IpsKeys,
    args: ArgsKeys,
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

/// A configuration, checked.
struct Conf {
    keys: WhereaboutsKeys,
    ranges: Vec<WhereaboutsRange>,
    requested: Vec<IpAddr>,
    wait: Duration,
}

/// What an attachment is to get.
struct RequestedAddresses {
    /// Of ranges.
    wants: Vec<Want>,
    /// That the configuration itself names.
    extras: Vec<IpConfig>,
    routes: Vec<Route>,
}

// === impl Conf ===

impl Conf {
    fn of(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let ipam = keys.ipam.with_flat_file()?;
        Conf::checked(Keys { ipam, ..keys })
    }

    fn checked(Keys { ipam: keys, runtime_config, args }: Keys) -> Result<Self, CniError> {
        let ranges = ipam::Whereabouts::check(&keys)?.ranges;
        // `IP` of CNI_ARGS is no request here: it comes on top.
        let none = cni::CniArgs::default();
        let sources = RequestedSources { args: &none, args_list: false, args_ips: &args.cni.ips, runtime_ips: &runtime_config.ips };
        let requested = ipam::requested_addresses(sources)?;
        let wait = keys.add_wait.map_or(ADD_WAIT, |seconds| Duration::from_secs(seconds.into()));
        Ok(Conf { keys, ranges, requested, wait })
    }

    /// One address of each range, in order; that which is requested, where it is of the range.
    fn wants(&self) -> Result<Vec<Want>, CniError> {
        let mut requested = self.requested.clone();
        let want = |range: &WhereaboutsRange| {
            let at = requested.iter().position(|address| range.run.contains(*address));
            Want { pool: range.pool.clone(), family: range.family(), address: at.map(|at| requested.remove(at)) }
        };
        let wants = self.ranges.iter().map(want).collect();
        match requested.first() {
            Some(other) => Err(CniError::invalid("ipam", format!("{other} is requested, but no range has it"))),
            None => Ok(wants),
        }
    }

    /// What an attachment gets, or would get; `all`: there are no files whose keys could be added.
    fn told(&self, config: &Config, args: &cni::CniArgs, all: bool) -> Result<RequestedAddresses, CniError> {
        let (wants, extras) = (self.wants()?, self.keys.extras(args)?);
        if all && wants.is_empty() && extras.is_empty() {
            return Err(CniError::invalid("ipam.range", "missing: set the network to take addresses from"));
        }
        let families = wants.iter().map(|w| w.family == Family::V4).chain(extras.iter().map(|ip| ip.address.addr().is_ipv4()));
        ipam::one_per_family(config.version, families)?;
        let routes = ipam::check_routes("ipam.routes", &self.keys.routes)?;
        Ok(RequestedAddresses { wants, extras, routes })
    }

    /// A host that has the ranges for itself: they are its pools. Those of a cluster come from the cluster.
    fn follow(&self, store: &PoolStore) -> Result<(), CniError> {
        if self.of_cluster(store) {
            return self.ranges.iter().try_for_each(|range| there(store, &range.pool));
        }
        for pool in self.pools()? {
            own(store, &pool.spec.name)?;
            store.follow(&pool)?;
        }
        Ok(())
    }

    fn of_cluster(&self, store: &PoolStore) -> bool {
        store.expects() || self.ranges.iter().any(|range| store.cluster_pool(&range.pool).is_some())
    }

    fn pools(&self) -> Result<Vec<Pool>, CniError> {
        self.ranges.iter().map(|range| range.to_pool().map_err(CniError::from)).collect()
    }

    /// The addresses of a lease as a result has them.
    fn ips(&self, addresses: impl Iterator<Item = IpAddr>) -> Result<Vec<IpConfig>, CniError> {
        let ip = |(address, range): (IpAddr, &WhereaboutsRange)| {
            let address = IpNet::new(address, range.prefix).map_err(internal)?;
            Ok(IpConfig { interface: None, address, gateway: range.gateway })
        };
        addresses.zip(&self.ranges).map(ip).collect()
    }
}

/// Whether a cluster's pool is this node's.
fn there(store: &PoolStore, pool: &str) -> Result<(), CniError> {
    if store.cluster_pool(pool).is_some() {
        return Ok(());
    }
    Err(not_here(
        store,
        pool,
        "the operator creates it from a NetworkAttachmentDefinition with this range (docs/operate/whereabouts.md): check that the \
            operator runs",
    ))
}

/// Where there was an agent, a range that nobody has seen here yet may be the cluster's.
fn own(store: &PoolStore, pool: &str) -> Result<(), CniError> {
    if is_held(store.dir()) || store.look(|all| all.origin(pool).is_some()) || !agent_was_there(store.dir()) {
        return Ok(());
    }
    let file = store.dir().join(ipam::AGENT);
    let next = format!("start the agent; if this host has none any more, remove {}", file.display());
    Err(CniError::new(Code::TRY_AGAIN_LATER, format!("pool {pool:?} may belong to the cluster, which only the agent knows: {next}")))
}

impl Plugin for Whereabouts {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        let keys: Keys = draft.config.read()?;
        // A node's own file may have the range.
        Conf::checked(keys)?.told(draft.config, &cni::CniArgs::default(), false).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::of(call.config)?;
        call.args.only(KNOWN_ARGS)?;
        let RequestedAddresses { wants, extras, routes } = conf.told(call.config, call.args, true)?;
        let mut ips = Vec::new();
        if !wants.is_empty() {
            let at = StoreHandle::of("", cx);
            let ask = |claim| Ask { key: key(call.id), pod: pod(call.args), claim, wants: wants.clone() };
            let (new, probe) = at.reserve(call.id, conf.wait, &cx.host.dirs.journal.join(ipam::FREED), cx.delegate, |store| {
                conf.follow(store)?;
                let probe = wants.iter().any(|want| store.look(|all| all.spec(&want.pool).is_some_and(|spec| spec.probe)));
                let claim = claim(call).filter(|_| conf.of_cluster(store));
                // Another pod of the claim may answer for it: the ledger says that it is the claim's.
                let probe = probe && claim.is_none();
                Ok((ask(claim), probe))
            })?;
            linux::crash_point!("whereabouts-reserved");
            let lease = granted(new, at, call.id, cx);
            cx.probe = probe;
            ips = conf.ips(lease.addresses.iter().map(|leased| leased.address))?;
        }
        ips.extend(extras);
        Ok(AddResult { ips, routes, dns: conf.keys.dns, ..AddResult::default() })
    }

    fn conflict(&self, call: &Call<'_>, conflict: &Conflict, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        met(&StoreHandle::of("", cx), call.id, conflict)?;
        self.add(call, cx)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::of(call.config)?;
        let (prev, extras) = (call.prev()?, conf.keys.extras(call.args)?);
        if let Some(lost) = extras.iter().find(|extra| !prev.ips.iter().any(|ip| ip.address == extra.address)) {
            return Err(internal(format!("whereabouts: address {} is not in the result of the ADD", lost.address)));
        }
        if conf.ranges.is_empty() {
            return Ok(());
        }
        let held = StoreHandle::of("", cx).look(call.id, |store| {
            let nothing =
                || internal(format!("whereabouts: {} has no address: there is none for it in {}", call.id, store.dir().display()));
            store.lease(&key(call.id)).ok_or_else(nothing)
        })?;
        // A range may have changed since the ADD: the address is its holder's still. One of another plugin is none of these.
        let told = |address: IpAddr| prev.ips.iter().any(|ip| ip.address.addr() == address);
        if let Some(lost) = held.addresses.iter().find(|leased| !told(leased.address)) {
            return Err(internal(format!("whereabouts: address {} is not in the result of the ADD", lost.address)));
        }
        let ours = |ip: &&IpConfig| conf.ranges.iter().any(|range| range.run.contains(ip.address.addr()));
        let known = |ip: &IpConfig| {
            extras.iter().any(|extra| extra.address == ip.address) || held.addresses.iter().any(|l| l.address == ip.address.addr())
        };
        match prev.ips.iter().filter(ours).find(|ip| !known(ip)) {
            Some(ip) => Err(internal(format!("whereabouts: address {} is not assigned to {} any more", ip.address, call.id))),
            None => Ok(()),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // No key is needed for it: a configuration that means nothing any more is no reason for DEL to fail.
        give_back(StoreHandle::of("", cx), call.id, None, cx);
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        // What the runtime will ask for is not known here.
        let conf = Conf { requested: Vec::new(), ..Conf::of(config)? };
        ipam::check_routes("ipam.routes", &conf.keys.routes)?;
        let (pools, wants) = (conf.pools()?, conf.wants()?);
        let store = StoreHandle::of("", cx).open().map_err(unavailable)?;
        let own_ranges = !conf.of_cluster(&store);
        for (pool, want) in pools.iter().zip(wants) {
            let nobody = ::pool::Key { network: String::new(), container: String::new(), ifname: String::new() };
            let ask = Ask { key: nobody, pod: None, claim: None, wants: vec![want] };
            if own_ranges { own(&store, &pool.spec.name) } else { there(&store, &pool.spec.name) }.map_err(unavailable)?;
            store.would_grant(own_ranges.then_some(pool), &ask).map_err(|e| unavailable(e.into()))?;
        }
        Ok(())
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        give_back_others(StoreHandle::of("", cx), config, valid, cx);
        Ok(())
    }
}
