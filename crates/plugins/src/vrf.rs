//! `vrf`: an interface that another plugin made joins a routing domain (VRF) of the container.
//!
//! ```text
//!   red (VRF, table 1)  <- net1, net2       blue (VRF, table 2)  <- net3
//! ```
//!
//! A VRF comes with its first member and goes with its last; one that was there before stays: ours are known by their group. Members come and go at the same time, so whoever changes
//! that holds the namespace's lock. When the kernel takes a link into a VRF, or out of it, it sets it down and up again, and
//! what it forgets by that is put back (`carry.rs`).

mod carry;

use std::time::{Duration, Instant};

use cni::{AddResult, CniError, Code, Config, IfName, Version};
use linux::link::{self, Change, Kind};
use linux::{Errno, Link, LinkSpec, Netlink, RouteFilter, route};
use plugin::{About, Call, Cx, Draft, Key, Plugin, Stage};
use serde::Deserialize;

use crate::{identity, internal, open, verify};
use carry::Saved;

/// The plugin `vrf`.
pub(crate) struct Vrf;

/// What the reference plugin says where no plugin stands before it.
const ALONE: &str = "missing prevResult from earlier plugin";

static ABOUT: About = About {
    name: "vrf",
    summary: "moves an interface that another plugin created into a routing domain of the container (VRF)",
    versions: &[Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0],
    capabilities: &[],
    keys: &[
        Key::new("vrfname", "string", "required", "the VRF, created if it is missing"),
        Key::new("table", "number", "the first free one", "its routing table; an existing VRF must have this one"),
    ],
    needs_link: false,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    vrfname: String,
    table: i64,
}

/// The checked configuration.
#[derive(Clone)]
struct Conf {
    name: IfName,
    table: Option<u32>,
}

impl Conf {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        if keys.vrfname.is_empty() {
            return Err(
                CniError::new(Code::INVALID_CONFIG, "configuration is expected to have a valid vrf name: set \"vrfname\"").at("vrfname")
            );
        }
        let name = IfName::parse(&keys.vrfname).map_err(|e| CniError::invalid("vrfname", e))?;
        let table = match u32::try_from(keys.table) {
            Ok(0) => None,
            Ok(table) => Some(table),
            Err(_) => return Err(CniError::invalid("table", format!("{} is not between 0 and {}", keys.table, u32::MAX))),
        };
        Ok(Conf { name, table })
    }
}

/// What ADD is to do, from what is there.
#[derive(Clone)]
struct Join {
    /// Index of the interface.
    index: u32,
    /// The VRF's table, and its index where it is there already.
    table: u32,
    vrf: Option<u32>,
    saved: Saved,
}

impl Plugin for Vrf {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config)?;
        draft.chained(ABOUT.name, ALONE)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name, ALONE)?;
        let netns = call.netns()?;
        let name = call.id.ifname.as_str();
        let lock = netns.lock(cx.deadline).map_err(locked)?;
        let join = netns.enter(|inside| plan(&mut open(inside)?, &conf, name)).map_err(internal)??;
        let (of_undo, undone, vrf) = (netns.clone(), join.clone(), conf.name.clone());
        cx.teardown.at(Stage::Devices, format!("remove {name} from VRF {vrf}"), move |_| {
            // It is called where ADD has failed, and so was its lock given back.
            let _lock = of_undo.lock(Instant::now() + PATIENCE).map_err(locked)?;
            of_undo.enter(|inside| undo(&mut open(inside)?, &vrf, &undone)).map_err(internal)?
        });
        netns.enter(|inside| enslave(&mut open(inside)?, &conf.name, &join)).map_err(internal)??;
        drop(lock);
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        call.prev()?;
        let name = call.id.ifname.as_str();
        call.netns()?.enter(|inside| unchanged(&mut open(inside)?, &conf, name)).map_err(internal)?
    }

    /// The interface goes by itself, with the plugin that made it; it is taken out of the VRF where it stays.
    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // A configuration that ADD refused has made nothing.
        let (Ok(conf), Some(netns)) = (Conf::read(call.config), call.netns.cloned()) else { return Ok(()) };
        let (name, by, done) = (call.id.ifname.clone(), cx.deadline, call.prev.is_some());
        // After the links: only then it shows whether this one was the last.
        cx.teardown.at(Stage::Leases, format!("remove {name} from VRF {}", conf.name), move |_| {
            let _lock = netns.lock(by).map_err(locked)?;
            netns.enter(|inside| leave(&mut open(inside)?, &conf.name, name.as_str(), done)).map_err(internal)?
        });
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?;
        match link::probe(cx.host.netlink()?, "vrf").map_err(internal)? {
            true => Ok(()),
            false => Err(no_vrf()),
        }
    }
}

/// How long an undo waits for others of the same container.
const PATIENCE: Duration = Duration::from_secs(30);

fn locked(e: linux::file::LockError) -> CniError {
    CniError::new(Code::TRY_AGAIN_LATER, e.to_string())
}

fn no_vrf() -> CniError {
    CniError::new(
        Code::NOT_AVAILABLE,
        "this kernel has no VRF devices: load the module vrf (modprobe vrf), or use a kernel with CONFIG_NET_VRF",
    )
}

/// The VRF of that name, `None` if the name is free.
fn vrf_of<'a>(links: &'a [Link], name: &IfName) -> Result<Option<&'a Link>, CniError> {
    match links.iter().find(|l| l.name == name.as_str()) {
        Some(other) if !other.is("vrf") => {
            let kind = other.kind.as_deref().unwrap_or("device without a kind");
            Err(CniError::invalid("vrfname", format!("{name} is not a VRF: the container has a {kind} of that name")))
        }
        found => Ok(found),
    }
}

fn plan(netlink: &mut Netlink, conf: &Conf, name: &str) -> Result<Join, CniError> {
    let links = netlink.links().map_err(internal)?;
    let link = links.iter().find(|l| l.name == name);
    let link =
        link.ok_or_else(|| internal(format!("could not get link by name {name}: vrf needs the interface that an earlier plugin created")))?;
    let vrf = vrf_of(&links, &conf.name)?;
    if let Some(master) = link.master {
        let of = links.iter().find(|l| l.index == master).map_or("one that is gone", |l| l.name.as_str());
        return Err(internal(format!("interface {name} has already a master set: {of}; it can belong to one only")));
    }
    let table = match (vrf.and_then(|v| v.vrf_table), conf.table) {
        (Some(found), Some(wanted)) if found != wanted => {
            let text = format!("cmdAdd failed: VRF {} already exist with different routing table {found}", conf.name);
            return Err(CniError::worded(text, format_args!("leave \"table\" out, or set it to {found}")));
        }
        (Some(found), _) => found,
        (None, Some(wanted)) => wanted,
        (None, None) => free_table(netlink, &links)?,
    };
    let saved = carry::save(netlink, link.index)?;
    Ok(Join { index: link.index, table, vrf: vrf.map(|v| v.index), saved })
}

/// The first table that nothing names: no VRF, as in the reference plugin, and no rule and no route.
fn free_table(netlink: &mut Netlink, links: &[Link]) -> Result<u32, CniError> {
    let mut taken: Vec<u32> = links.iter().filter_map(|l| l.vrf_table).collect();
    taken.extend(netlink.rules(None).map_err(internal)?.iter().map(|r| r.table));
    taken.extend(netlink.routes(RouteFilter::default()).map_err(internal)?.iter().map(|r| r.table));
    // `default`, `main` and `local`, which may be empty.
    taken.extend([253, 254, 255]);
    let free = (1..u32::MAX).find(|table| !taken.contains(table));
    free.ok_or_else(|| internal("every routing table is in use: set \"table\""))
}

fn enslave(netlink: &mut Netlink, name: &IfName, join: &Join) -> Result<(), CniError> {
    linux::crash_point!("vrf-planned");
    let vrf = match join.vrf {
        Some(index) => index,
        None => create(netlink, name, join.table)?,
    };
    linux::crash_point!("vrf-there");
    let master = Change { master: Some(vrf), ..Change::default() };
    netlink.send_one(link::set(join.index, &master)).map_err(internal)?;
    linux::crash_point!("vrf-joined");
    join.saved.put_back(netlink, join.table)?;
    linux::crash_point!("vrf-carried");
    Ok(())
}

fn create(netlink: &mut Netlink, name: &IfName, table: u32) -> Result<u32, CniError> {
    let spec = LinkSpec { up: true, group: Some(identity::vrf_group(name)), ..LinkSpec::new(name.clone(), Kind::Vrf { table }) };
    netlink.send_one(link::create(&spec)).map_err(|e| match e.errno() {
        Errno::EOPNOTSUPP => no_vrf(),
        _ => internal(format!("could not add VRF {name}: {e}")),
    })?;
    let made = netlink.link(name.as_str()).map_err(internal)?;
    made.map(|l| l.index).ok_or_else(|| internal(format!("VRF {name} disappeared while it was created")))
}

/// As it was before ADD.
fn undo(netlink: &mut Netlink, name: &IfName, join: &Join) -> Result<(), CniError> {
    let links = netlink.links().map_err(internal)?;
    let Ok(Some(vrf)) = vrf_of(&links, name) else { return Ok(()) };
    let joined = links.iter().any(|l| l.index == join.index && l.master == Some(vrf.index));
    let others = links.iter().any(|l| l.index != join.index && l.master == Some(vrf.index));
    if joined {
        netlink.send_one(link::set(join.index, &Change { master: Some(0), ..Change::default() })).map_err(internal)?;
    }
    if join.vrf.is_none() && is_ours(vrf) && !others {
        netlink.send_one(link::delete(vrf.index).tolerate(Errno::ENODEV)).map_err(internal)?;
    }
    if joined { join.saved.put_back(netlink, route::MAIN) } else { Ok(()) }
}

/// Whether this plugin made it. One of another implementation's has no mark: it stays, and goes with its namespace.
fn is_ours(vrf: &Link) -> bool {
    IfName::parse(&vrf.name).is_ok_and(|name| vrf.group == identity::vrf_group(&name))
}

/// DEL. With its last member a VRF of ours goes. The member of another one is taken out if ADD was `done`: where it was
/// refused, somebody else has put it in.
fn leave(netlink: &mut Netlink, vrf: &IfName, name: &str, done: bool) -> Result<(), CniError> {
    let links = netlink.links().map_err(internal)?;
    let Ok(Some(vrf)) = vrf_of(&links, vrf) else { return Ok(()) };
    let (own, others): (Vec<&Link>, Vec<&Link>) = links.iter().filter(|l| l.master == Some(vrf.index)).partition(|l| l.name == name);
    let request = match own.first() {
        _ if others.is_empty() && is_ours(vrf) => link::delete(vrf.index),
        Some(own) if done || is_ours(vrf) => link::set(own.index, &Change { master: Some(0), ..Change::default() }),
        _ => return Ok(()),
    };
    netlink.send_one(request.tolerate(Errno::ENODEV)).map_err(internal)?;
    linux::crash_point!("vrf-left");
    Ok(())
}

/// CHECK
fn unchanged(netlink: &mut Netlink, conf: &Conf, name: &str) -> Result<(), CniError> {
    let links = netlink.links().map_err(internal)?;
    let changed = |what: String| Err(verify::changed(name, what));
    let Some(link) = links.iter().find(|l| l.name == name) else { return changed("it is gone from the container".to_owned()) };
    let Some(vrf) = vrf_of(&links, &conf.name)? else { return changed(format!("VRF {} is gone", conf.name)) };
    if link.master != Some(vrf.index) {
        return changed(format!("failed to find {name} associated to vrf {}", conf.name));
    }
    match (conf.table, vrf.vrf_table) {
        (Some(wanted), Some(found)) if wanted != found => changed(format!("the table of VRF {} is {found}, not {wanted}", conf.name)),
        _ if !vrf.flags.up() => changed(format!("VRF {} is down", conf.name)),
        _ => Ok(()),
    }
}
