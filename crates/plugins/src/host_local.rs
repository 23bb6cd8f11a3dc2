//! `host-local`: addresses of this node, kept in files.

use std::net::IpAddr;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Dns, IpConfig, Route, Version};
use ipam::{Owner, RangeSet, RangeSources, RawRange, RawRoute, RequestedSources, Store};
use plugin::{About, Call, Cx, Draft, Key, Plugin, ROUTE, Stage};
use serde::Deserialize;

use crate::address;

/// The plugin `host-local`.
pub(crate) struct HostLocal;

/// Where a node's own resolv.conf is.
const RESOLV_CONF: &[&str] = &["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"];

/// The keys of a range.
const RANGE: &[&str] = &["subnet", "rangeStart", "rangeEnd", "gateway"];

static ABOUT: About = About {
    name: "host-local",
    summary: "assigns addresses of ranges, recorded in files of this host",
    versions: Version::ALL,
    capabilities: &["ips", "ipRanges"],
    keys: &[
        Key::new("ipam.ranges", "list", "none", "sets of ranges {subnet, rangeStart, rangeEnd, gateway}; one address of each set")
            .of(RANGE),
        Key::new("ipam.subnet", "network", "none", "a single range without a list, with rangeStart, rangeEnd and gateway next to it"),
        Key::new("ipam.routes", "list", "none", "routes {dst, gw, mtu, advmss, priority, table, scope} for the container").of(ROUTE),
        Key::path("ipam.dataDir", "/var/lib/cni/networks", &[], "directory of the files"),
        Key::path("ipam.resolvConf", "none", RESOLV_CONF, "a resolv.conf whose content the result carries as DNS"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    ipam: IpamKeys,
    runtime_config: RuntimeKeys,
    args: ArgsKeys,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct IpamKeys {
    ranges: Vec<Vec<RawRange>>,
    subnet: String,
    range_start: Option<String>,
    range_end: Option<String>,
    gateway: Option<String>,
    routes: Vec<RawRoute>,
    data_dir: String,
    resolv_conf: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RuntimeKeys {
    ips: Vec<String>,
    ip_ranges: Vec<Vec<RawRange>>,
}

/// The checked configuration.
struct Conf {
    keys: Keys,
    sets: Vec<RangeSet>,
    requested: Vec<IpAddr>,
    routes: Vec<Route>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKeys {
    cni: CniKeys,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CniKeys {
    ips: Vec<String>,
}

impl Keys {
    fn sets(&self) -> Result<Vec<RangeSet>, CniError> {
        let IpamKeys { ranges, subnet, range_start, range_end, gateway, .. } = &self.ipam;
        let single =
            RawRange { subnet: subnet.clone(), range_start: range_start.clone(), range_end: range_end.clone(), gateway: gateway.clone() };
        let single = (!subnet.is_empty()).then_some(&single);
        Ok(RangeSet::check_all(RangeSources { runtime: &self.runtime_config.ip_ranges, single, ranges })?)
    }

    fn has_no_ranges(&self) -> bool {
        self.ipam.ranges.is_empty() && self.ipam.subnet.is_empty() && self.runtime_config.ip_ranges.is_empty()
    }

    fn store(&self, network: &cni::NetworkName, cx: &Cx<'_>) -> Store {
        store(&self.ipam.data_dir, network, cx)
    }

    fn dns(&self) -> Result<Dns, CniError> {
        match self.ipam.resolv_conf.as_str() {
            "" => Ok(Dns::default()),
            path => Ok(ipam::read_resolv_conf(path.as_ref())?),
        }
    }
}

impl Conf {
    fn of(keys: Keys, config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        address::told(config)?;
        let sets = keys.sets()?;
        ipam::one_per_family(config.version, sets.iter().map(RangeSet::is_ipv4))?;
        args.only(&["IP", "MAC", "GATEWAY"])?;
        let requested = ipam::requested_addresses(RequestedSources {
            args,
            args_list: false,
            args_ips: &keys.args.cni.ips,
            runtime_ips: &keys.runtime_config.ips,
        })?;
        let routes = ipam::check_routes("ipam.routes", &keys.ipam.routes)?;
        ipam::can_be_requested(&sets, &requested)?;
        Ok(Conf { keys, sets, requested, routes })
    }
}

impl Plugin for HostLocal {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        let keys: Keys = draft.config.read()?;
        // Ranges that the runtime sends are not known here.
        let come_later = draft.may_get("ipRanges") && keys.has_no_ranges();
        if come_later { Ok(()) } else { Conf::of(keys, draft.config, &CniArgs::default()).map(drop) }
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Conf { keys, sets, requested, routes } = Conf::of(call.config.read()?, call.config, call.args)?;
        let dns = keys.dns()?;
        let store = keys.store(&call.config.network, cx).lock_by(cx.deadline);
        let got = store.allocate(&owner(call.id), &sets, &requested)?;
        free_later(store, call.id, cx);
        let ips = got.into_iter().map(|a| IpConfig { interface: None, address: a.address, gateway: a.gateway }).collect();
        Ok(AddResult { ips, routes, dns, ..AddResult::default() })
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = call.config.read()?;
        let store = keys.store(&call.config.network, cx);
        let held = store.held(&owner(call.id))?;
        if held.is_empty() {
            let msg = format!(
                "host-local: Failed to find address added by container {}: there is none for it in {}",
                call.id.container, call.id.network
            );
            return Err(CniError::new(Code::INTERNAL, msg));
        }
        // What the result says must be what is held: an address of another plugin is none of our ranges.
        let sets = keys.sets()?;
        let ours = |ip: &&IpConfig| sets.iter().any(|s| s.range_for(ip.address.addr()).is_some());
        match call.prev.and_then(|p| p.ips.iter().filter(ours).find(|ip| !held.contains(&ip.address.addr()))) {
            None => Ok(()),
            Some(lost) => Err(CniError::new(
                Code::INTERNAL,
                format!("host-local: address {} is not assigned to this container any more", lost.address),
            )),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // Ranges that ADD refused are no reason for DEL to fail: nothing else of the configuration is read.
        let dir = call.config.raw().objects("ipam").rev().find_map(|ipam| ipam.str("dataDir")).unwrap_or_default();
        let store = store(dir, &call.config.network, cx).lock_by(cx.deadline);
        free_later(store, call.id, cx);
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        let keys: Keys = config.read()?;
        address::told(config)?;
        // Ranges that the runtime sends are not known here.
        if !keys.has_no_ranges() {
            keys.sets().map_err(unavailable)?;
        }
        keys.store(&config.network, cx).is_usable().map_err(|e| unavailable(e.into()))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let keys: Keys = config.read()?;
        let store = keys.store(&config.network, cx).lock_by(cx.deadline);
        let valid: Vec<Owner> = valid.iter().map(owner).collect();
        cx.teardown.at(Stage::Leases, format!("free addresses of {}", config.network), move |_| Ok(store.gc(&valid).map(drop)?));
        Ok(())
    }
}

fn store(data_dir: &str, network: &cni::NetworkName, cx: &Cx<'_>) -> Store {
    let dir = cx.host.dirs.configured(data_dir, &cx.host.dirs.addresses);
    Store::open(&dir, network)
}

fn owner(id: &AttachmentId) -> Owner {
    Owner { id: id.container.clone(), ifname: id.ifname.clone() }
}

fn free_later(store: Store, id: &AttachmentId, cx: &mut Cx<'_>) {
    let owner = owner(id);
    cx.teardown.at(Stage::Leases, format!("free the addresses of {id}"), move |_| Ok(store.release(&owner).map(drop)?));
}
