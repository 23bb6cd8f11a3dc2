//! What kuryr-cni has plugged of a pod before us: the pod's DEL comes to us, and we have no record.
//!
//! ```text
//!   VIFOpenVSwitch   pod's end --- tapXXXXXXXX-XX, a port of Open vSwitch
//!   VIFBridge        pod's end --- tapXXXXXXXX-XX --> qbrXXXXXXXX-XX <-- qvb... --- qvo..., a port of Open vSwitch
//!   nested           a VLAN or a macvlan in the pod: it goes with the pod's namespace
//! ```
//!
//! The names have the first characters of the port's ID. It is known by the pod's KuryrPort, as it was seen last, and by the host's end of a
//! pair whose other end is in the pod: neither Neutron nor the API server is asked. One pod may have a sandbox that failed and one that
//! runs, both with the same port: a link whose other end is elsewhere belongs to the other one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use cni::{CniError, Code, IfName, NetworkList};
use linux::{Link, Netlink};
use osvif::{PodVif, VifKind};
use ovsdb::{OvsdbError, Port, Switch};
use plugin::{Host, LinkIdentity, LinkToDelete, Teardown};

use crate::Agent;
use crate::call::{Request, Sandbox};
use crate::log::Line;

/// The plugin, as the runtime's configuration names it.
const KURYR_CNI: &str = "kuryr-cni";
/// By which the ports of kuryr-cni are known among those of other programs.
const VM_UUID: (&str, &str) = ("vm-uuid", "kuryr");

// === impl Agent ===

impl Agent {
    /// Unplugs what kuryr-cni has plugged of a sandbox that has no record; whether there was anything.
    ///
    /// # Errors
    /// Those of Open vSwitch's database and of the links; what is left then is there for the next DEL.
    pub(crate) fn unplug_of_kuryr(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<bool, CniError> {
        let inside = taps_into(&request.netns, host)?;
        let (mut ids, has_bridge) = self.ids_of_kuryr_port(sandbox);
        ids.extend(inside.iter().cloned());
        let (mut teardown, mut ports, mut has_links) = (Teardown::new(), Vec::new(), false);
        for id in &ids {
            let names = ["tap", "qvo", "qbr"].map(|prefix| IfName::parse(&format!("{prefix}{id}")));
            let [Ok(tap), Ok(qvo), Ok(qbr)] = names else { continue };
            let found = [&tap, &qvo, &qbr].map(|name| link_of(host, name));
            let [of_tap, of_qvo, of_qbr] = found;
            let links = [of_tap?, of_qvo?, of_qbr?];
            // A link with a group is of an attachment of ours; a pair that does not lead into this sandbox is another sandbox's.
            if links.iter().flatten().any(|link| link.group != 0) || links[0].is_some() && !inside.contains(id) {
                continue;
            }
            has_links |= links.iter().any(Option::is_some);
            ports.extend([(tap.to_string(), id.clone()), (qvo.to_string(), id.clone())]);
            for (kind, name) in [("veth", tap), ("veth", qvo), ("bridge", qbr)] {
                teardown.link(LinkToDelete { netns: None, kind, mark: LinkIdentity::Foreign(name), lasting: false });
            }
        }
        if ports.is_empty() {
            return Ok(false);
        }
        match unplug(&self.switch_socket(), &ports, request.by) {
            // What no packet reaches any more waits for GC, which does not find ports of hybrid plugs: os_vif names the pod in their vm-uuid.
            Err(e) if e.is_unreachable() && !has_links && !has_bridge => return Ok(false),
            Err(e) => return Err(failed(e)),
            Ok(0) if !has_links => return Ok(false),
            Ok(_) => {}
        }
        linux::crash_point!("kuryr-unplugged");
        teardown.commit(host).map_err(|errors| CniError::first_of(errors).unwrap_or_else(|| CniError::new(Code::INTERNAL, "links")))?;
        let what = "unplugged: kuryr-cni had plugged it before this agent was installed";
        Line::info("stranger").with("container", &sandbox.container).with("what", what).end();
        Ok(true)
    }

    /// Takes ports of kuryr-cni away whose links are gone: their pods went while nobody could take them down, or the node was rebooted.
    /// kuryr-cni makes the link before the port.
    ///
    /// # Errors
    /// Those of Open vSwitch's database.
    pub(crate) fn collect_of_kuryr(&self, host: &mut Host, by: Instant) -> Result<(), CniError> {
        let mut switch = match Switch::connect(&self.switch_socket(), by) {
            Err(e) if e.is_unreachable() => return Ok(()),
            connected => connected.map_err(failed)?,
        };
        let mut gone = Vec::new();
        for port in switch.ports_with_interface(&[VM_UUID]).map_err(failed)? {
            if is_of_kuryr(&port) && host.netlink()?.link(&port.name).map_err(internal)?.is_none() {
                gone.push(port);
            }
        }
        switch.remove_ports(&gone).map_err(failed)?;
        for port in gone {
            Line::info("gc")
                .with("port", &port.name)
                .with("what", "removed from Open vSwitch: kuryr-cni made it, and its link is gone")
                .end();
        }
        Ok(())
    }

    pub(super) fn switch_socket(&self) -> std::path::PathBuf {
        self.settings.vifs.socket.clone().unwrap_or_else(|| ovsdb::DEFAULT_SOCKET.into())
    }

    /// The beginnings of the IDs of ports that the pod's KuryrPort has, as it was seen last, and whether one of them is plugged by way of a bridge.
    fn ids_of_kuryr_port(&self, sandbox: &Sandbox) -> (BTreeSet<String>, bool) {
        let vifs = self.vifs_of_kuryr_port(sandbox);
        let is_switched = |kind: &VifKind| matches!(kind, VifKind::OpenVSwitch { .. } | VifKind::Bridge { .. });
        let has_bridge = vifs.values().any(|vif| matches!(vif.vif.kind, VifKind::Bridge { .. }));
        let switched = vifs.values().map(|vif| &vif.vif).filter(|vif| is_switched(&vif.kind));
        (switched.map(|vif| plugins::short_id(&vif.id)).collect(), has_bridge)
    }

    /// The VIFs of the pod's KuryrPort, as it was seen last; none where it is another pod's.
    pub(super) fn vifs_of_kuryr_port(&self, sandbox: &Sandbox) -> BTreeMap<String, PodVif> {
        let (Some(pod), Some(ports)) = (&sandbox.pod, &self.kuryr_ports) else { return BTreeMap::new() };
        let seen = ports.of(&pod.namespace, &pod.name);
        let Some(Ok(port)) = seen.as_ref().and_then(|seen| seen.read.as_ref()) else { return BTreeMap::new() };
        match pod.uid.as_ref().is_some_and(|uid| *uid != port.spec.pod_uid) {
            true => BTreeMap::new(),
            false => port.status.vifs.clone(),
        }
    }
}

/// Whether a network is Kuryr's: kuryr-cni is the only plugin of its list.
pub(crate) fn is_kuryr_list(list: &NetworkList) -> bool {
    list.plugins.iter().all(|plugin| plugin.kind.as_str() == KURYR_CNI)
}

/// The beginnings of the IDs of ports whose pairs lead into a namespace; none where it is gone, and the pairs with it.
pub(super) fn taps_into(netns: &Path, host: &mut Host) -> Result<BTreeSet<String>, CniError> {
    if netns.as_os_str().is_empty() {
        return Ok(BTreeSet::new());
    }
    let Ok(netns) = chain::open_netns(netns) else { return Ok(BTreeSet::new()) };
    let ends = |inside: &linux::Inside| Netlink::open(inside).map_err(internal)?.links().map_err(internal);
    let ends: Vec<Link> = netns.enter(ends).map_err(internal)??;
    // A pod that may make links chooses their indexes: two that name each other are a pair only if each is where the other one says.
    let Some(number) = host.netlink()?.number_of(&netns).map_err(internal)? else { return Ok(BTreeSet::new()) };
    let mut ids = BTreeSet::new();
    for end in ends.iter().filter(|end| end.is("veth") && end.link_netnsid.is_some()) {
        let other = host.netlink()?.link_by_index(end.other_end()).map_err(internal)?;
        let is_here = |other: &Link| other.other_end() == end.index && other.link_netnsid == Some(number);
        let is_pair = |other: &Link| other.is("veth") && is_here(other) && other.group == 0;
        let id = other.filter(is_pair).and_then(|other| other.name.strip_prefix("tap").map(str::to_owned));
        ids.extend(id.filter(|id| id.len() == plugins::SHORT_ID));
    }
    Ok(ids)
}

fn link_of(host: &mut Host, name: &IfName) -> Result<Option<Link>, CniError> {
    host.netlink()?.link(name.as_str()).map_err(internal)
}

/// Takes the ports of these names off their bridges where they have the IDs that begin so; how many there were.
fn unplug(socket: &Path, names: &[(String, String)], by: Instant) -> Result<usize, OvsdbError> {
    let mut switch = Switch::connect(socket, by)?;
    let mut ports = Vec::new();
    for (name, id) in names {
        ports.extend(port_of(&mut switch, name, id)?);
    }
    switch.remove_ports(&ports)?;
    Ok(ports.len())
}

/// The port of this name, if kuryr-cni has made it and it has an ID that begins so.
pub(super) fn port_of(switch: &mut Switch, name: &str, id: &str) -> Result<Option<Port>, OvsdbError> {
    let Some(port) = switch.port(name)?.filter(is_of_kuryr) else { return Ok(None) };
    let interface = switch.interface(name)?;
    Ok(interface.and_then(|interface| interface.iface_id).is_some_and(|found| found.starts_with(id)).then_some(port))
}

/// Our own ports, and those of ovs-cni, say whose they are.
fn is_of_kuryr(port: &Port) -> bool {
    port.id("owner").is_none()
}

fn failed(e: OvsdbError) -> CniError {
    CniError::new(Code::TRY_AGAIN_LATER, format!("unplug what kuryr-cni has plugged: {e}"))
}

fn internal(e: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INTERNAL, format!("look for what kuryr-cni has plugged: {e}"))
}
