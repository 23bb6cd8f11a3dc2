//! The attachment's port in the database of Open vSwitch.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{AttachmentId, CniError, Code, Config, IfName, Mac};
use linux::{Link, Netlink};
use ovsdb::{Bridge, NewPort, OvsdbError, Port, Switch, Vlans};
use plugin::{Call, Cx, Dirs, Stage};

use super::conf::{Conf, USUAL_SOCKETS};
use crate::{internal, verify};

/// How long the switch may take to apply a port, or the database to answer a DEL: a switch with thousands of ports takes seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long STATUS waits for what was changed a moment ago.
const SETTLED: Duration = Duration::from_secs(2);

/// Who made a port, as an external ID.
const OWNER: (&str, &str) = ("owner", "netloom");
/// What ovs-cni says there: its pods may have been here before.
const OVS_CNI: &str = "ovs-cni.network.kubevirt.io";
const NETWORK: &str = "netloom-network";
const CONTAINER: &str = "netloom-container";
const INTERFACE: &str = "netloom-interface";
/// By which the agents of Neutron and OVN know a port.
const IFACE_ID: &str = "iface-id";
/// For a person who wonders why: the container's end computes its checksums.
const TX_CHECKSUM_OFF: (&str, &str) = ("netloom-tx-checksum", "off");

/// The database, which has until the caller's deadline, but no more than its own time.
pub(crate) fn connect(conf: &Conf, cx: &Cx<'_>) -> Result<Switch, CniError> {
    open(&conf.socket, cx, PATIENCE)
}

/// The same of the socket that a configuration names.
fn open(named: &Path, cx: &Cx<'_>, patience: Duration) -> Result<Switch, CniError> {
    Switch::connect(&socket(named, &cx.host.dirs), cx.deadline.min(Instant::now() + patience)).map_err(failed)
}

/// Whether this names the host's Open vSwitch in one of the usual ways.
pub fn is_usual(named: &Path) -> bool {
    [ovsdb::DEFAULT_SOCKET].iter().chain(USUAL_SOCKETS).any(|usual| named == Path::new(usual))
}

/// Where the socket that a configuration names is on this host: a lab's node has a switch of its own.
fn socket(named: &Path, dirs: &Dirs) -> PathBuf {
    match &dirs.switch {
        Some(own) if is_usual(named) => own.clone(),
        _ => dirs.configured(&named.to_string_lossy(), named),
    }
}

/// The configured bridge.
pub(crate) fn bridge(switch: &mut Switch, conf: &Conf) -> Result<Bridge, CniError> {
    switch.bridge(conf.bridge.as_str()).map_err(failed)?.ok_or_else(|| missing(conf))
}

fn missing(conf: &Conf) -> CniError {
    let (bridge, socket) = (conf.bridge.as_str(), conf.socket.display());
    CniError::invalid("bridge", format!("Open vSwitch at {socket} has no bridge {bridge:?}: make it first (ovs-vsctl add-br {bridge})"))
}

/// The pair's MTU, where nothing else is asked for that of the bridge's own interface: ovs-vswitchd gives the bridge the smallest one of its
/// ports (`update_mtu_ofproto`), also one that others stand on. `None`: the bridge has no interface here.
pub(crate) fn mtu(netlink: &mut Netlink, conf: &Conf) -> Result<Option<u32>, CniError> {
    match conf.mtu {
        Some(mtu) => Ok(Some(mtu)),
        None => Ok(netlink.link(conf.bridge.as_str()).map_err(internal)?.map(|bridge| bridge.mtu)),
    }
}

/// The name is free for the new port. One of ours under it is what a reboot has left, or a kill. ovs-vswitchd must have applied that it is
/// gone, also where a DEL removed it a moment ago: it knows ports by name, and one that goes and comes between two of its looks stays on the
/// link of before, which is gone.
pub(crate) fn make_way(switch: &mut Switch, name: &IfName) -> Result<(), CniError> {
    if let Some(old) = switch.port(name.as_str()).map_err(failed)? {
        if !is_ours(&old) {
            let owner = old.id(OWNER.0).unwrap_or("somebody else");
            let next = format!("remove it (ovs-vsctl del-port {name})");
            return Err(internal(format!("Open vSwitch has a port {name} already, which {owner} made: {next}")));
        }
        switch.remove_ports(&[old]).map_err(failed)?;
    }
    let generation = switch.generation().map_err(failed)?;
    switch.applied(generation).map_err(failed)
}

/// Nobody else has a port of this name that ovs-vswitchd uses. Of one that stands on a link the link says so.
pub(crate) fn is_free(switch: &mut Switch, name: &IfName, id: &AttachmentId) -> Result<(), CniError> {
    let Some(port) = switch.port(name.as_str()).map_err(failed)?.filter(|port| is_ours(port) && !is_of(port, id)) else { return Ok(()) };
    let is_used = switch.interface(name.as_str()).map_err(failed)?.is_some_and(|interface| interface.ofport.is_some());
    if !is_used {
        return Ok(());
    }
    let container = port.id(CONTAINER).unwrap_or("another container");
    let msg = format!("Open vSwitch has a port {name} already, which {container} has: wait until it is gone, or DEL it");
    Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
}

/// How many characters of a port's ID at Neutron are in the names of its links and sockets, as Neutron's agent expects them.
pub const SHORT_ID: usize = 11;

/// These characters.
#[must_use]
pub fn short_id(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

/// A port that is to be made.
pub(crate) struct New<'a> {
    /// Its name, and that of its link, where it has one.
    pub(crate) name: &'a str,
    /// The hardware address behind it.
    pub(crate) mac: Option<&'a Mac>,
    /// Its type, where it has no link.
    pub(crate) kind: Option<&'a str>,
    /// What that type is to know.
    pub(crate) options: &'a [(&'a str, &'a str)],
    /// Its MTU, where it has no link.
    pub(crate) mtu: Option<u32>,
}

impl<'a> New<'a> {
    /// One that stands on a link.
    pub(crate) fn on(outer: &'a Link, mac: Option<&'a Mac>) -> Self {
        New { name: &outer.name, mac, kind: None, options: &[], mtu: None }
    }
}

/// Adds the port, and waits until ovs-vswitchd has it.
pub(crate) fn add(switch: &mut Switch, conf: &Conf, bridge: &Bridge, call: &Call<'_>, new: &New<'_>) -> Result<(), CniError> {
    let (name, id) = (new.name, call.id);
    let mac = new.mac.map(ToString::to_string).unwrap_or_default();
    let mut port_ids = vec![OWNER, (NETWORK, id.network.as_str()), (CONTAINER, id.container.as_str()), (INTERFACE, id.ifname.as_str())];
    port_ids.extend((bridge.is_userspace && new.kind.is_none()).then_some(TX_CHECKSUM_OFF));
    // As Open vSwitch's own integration guide names them.
    let mut interface_ids = vec![("attached-mac", mac.as_str()), ("iface-status", "active")];
    if let Some(port) = &conf.iface_id {
        not_plugged(switch, port, name)?;
        interface_ids.extend([(IFACE_ID, port.as_str()), ("vm-uuid", id.container.as_str())]);
    }
    let port = NewPort {
        name,
        vlans: if conf.isolate { Some(&Vlans::Dead) } else { conf.vlans.as_ref() },
        kind: new.kind,
        options: new.options,
        mtu_request: new.mtu,
        ofport_request: conf.ofport_request,
        port_ids: &port_ids,
        interface_ids: &interface_ids,
    };
    let added = switch.add_port(conf.bridge.as_str(), &port).map_err(failed)?;
    linux::crash_point!("ovs-port-added");
    switch.applied(added.ok_or_else(|| missing(conf))?).map_err(failed)?;
    linux::crash_point!("ovs-port-applied");
    usable(switch, name, &conf.bridge)
}

/// Another pod may still have the port: Neutron's agent would take both for one, and give the new one what the other one has. A row without a link
/// is what a reboot has left.
fn not_plugged(switch: &mut Switch, id: &str, name: &str) -> Result<(), CniError> {
    for other in switch.ports_of(id).map_err(failed)?.into_iter().filter(|other| other.name != name) {
        let is_used = switch.interface(&other.name).map_err(failed)?.is_some_and(|interface| interface.ofport.is_some());
        if is_used {
            let next = "wait until the pod that had it is gone, or remove it";
            let msg = format!("{IFACE_ID} {id} is that of port {} already: {next} (ovs-vsctl del-port {})", other.name, other.name);
            return Err(CniError::new(Code::TRY_AGAIN_LATER, msg));
        }
    }
    Ok(())
}

/// Whether the agents of Neutron and OVN still know the port by this ID.
pub(crate) fn has_id(switch: &mut Switch, name: &str, id: &str) -> Result<(), CniError> {
    let interface = switch.interface(name).map_err(failed)?;
    match interface.and_then(|interface| interface.iface_id) {
        Some(found) if found == id => Ok(()),
        found => Err(verify::changed(name, format!("its external ID {IFACE_ID} is {}, not {id}", found.as_deref().unwrap_or("missing")))),
    }
}

/// Whether ovs-vswitchd uses the port: it has an OpenFlow number then.
pub(crate) fn usable(switch: &mut Switch, name: &str, bridge: impl std::fmt::Display) -> Result<(), CniError> {
    let interface = switch.interface(name).map_err(failed)?;
    match interface {
        None => Err(internal(format!("port {name} disappeared from Open vSwitch's bridge {bridge}"))),
        Some(interface) if interface.ofport.is_none() => {
            let why = interface.error.unwrap_or_else(|| "it has no OpenFlow port number".to_owned());
            Err(internal(format!("ovs-vswitchd cannot use port {name} of bridge {bridge}: {why}")))
        }
        Some(_) => Ok(()),
    }
}

/// Whether an attachment that is to go may have a port. An ADD that was refused has left nothing: its DEL needs no switch to be sure of that. One
/// that was killed may have added its port; a container that is gone has taken along the link that would say so.
pub(crate) fn may_be_made(call: &Call<'_>, has_link: bool) -> bool {
    has_link || call.prev.is_some() || call.netns.is_none()
}

/// Notes that ports of ours are to go, before their links do. Where none may have been made, a database that is not there is no error.
pub(crate) fn note_removal(socket: &Path, names: Vec<String>, was_made: bool, cx: &mut Cx<'_>) {
    note_removal_of(None, socket, names, was_made, cx);
}

/// The same of ports of one attachment alone: another one may have a port of that name after it.
pub(crate) fn note_removal_of(id: Option<&AttachmentId>, socket: &Path, names: Vec<String>, was_made: bool, cx: &mut Cx<'_>) {
    let socket = self::socket(socket, &cx.host.dirs);
    let what = format!("remove port {} from Open vSwitch", names.join(", "));
    let id = id.cloned();
    let is_meant = move |port: &Port| is_ours(port) && id.as_ref().is_none_or(|id| is_of(port, id));
    cx.teardown.at(Stage::Devices, what, move |_| match remove(&socket, &names, is_meant) {
        Err(e) if e.is_unreachable() && !was_made => Ok(()),
        done => done.map_err(failed),
    });
}

/// ovs-vswitchd is not waited for: it may be down, and no packet reaches a port whose link goes next.
fn remove(socket: &Path, names: &[String], is_meant: impl Fn(&Port) -> bool) -> Result<(), OvsdbError> {
    let mut switch = Switch::connect(socket, Instant::now() + PATIENCE)?;
    let mut ports = Vec::new();
    for name in names {
        ports.extend(switch.port(name)?.filter(&is_meant));
    }
    linux::crash_point!("ovs-ports-found");
    switch.remove_ports(&ports)?;
    linux::crash_point!("ovs-ports-gone");
    Ok(())
}

fn is_ours(port: &Port) -> bool {
    port.id(OWNER.0).is_some_and(|owner| [OWNER.1, OVS_CNI].contains(&owner))
}

fn is_of(port: &Port, id: &AttachmentId) -> bool {
    (port.id(CONTAINER), port.id(INTERFACE)) == (Some(id.container.as_str()), Some(id.ifname.as_str()))
}

/// The ports of a network that belong to no valid attachment.
pub(crate) fn stale(socket: &Path, config: &Config, valid: &[AttachmentId], cx: &Cx<'_>) -> Result<Vec<String>, CniError> {
    let mut switch = open(socket, cx, PATIENCE)?;
    let ports = switch.ports_with(&[OWNER, (NETWORK, config.network.as_str())]).map_err(failed)?;
    let keep: HashSet<(&str, &str)> = valid.iter().map(|id| (id.container.as_str(), id.ifname.as_str())).collect();
    let is_kept = |port: &Port| port.id(CONTAINER).zip(port.id(INTERFACE)).is_some_and(|of| keep.contains(&of));
    Ok(ports.into_iter().filter(|port| !is_kept(port)).map(|port| port.name).collect())
}

/// STATUS: whether the bridge is there, and ovs-vswitchd keeps up with the database.
pub(crate) fn status(conf: &Conf, cx: &Cx<'_>) -> Result<(), CniError> {
    let mut switch = open(&conf.socket, cx, SETTLED)?;
    bridge(&mut switch, conf)?;
    let generation = switch.generation().map_err(failed)?;
    switch.applied(generation).map_err(failed)
}

/// A switch that does not answer may do so later.
pub(crate) fn failed(e: OvsdbError) -> CniError {
    let code = match e {
        OvsdbError::Connect { .. } | OvsdbError::Connection { .. } | OvsdbError::NotApplied { .. } => Code::TRY_AGAIN_LATER,
        _ => Code::INTERNAL,
    };
    CniError::new(code, e.to_string())
}
