//! Ports that exist already, and that definitions name (`portId`): they are given to a pod, given back, and never deleted.
//!
//! ```text
//!   portId --ReadPort: nobody has it--> TagPort, with the pod's tags --> ReadPort, TakePort if nobody has changed it --> a port as any other
//!   the pod is gone --ReadPort, FreePort--> bound to nothing --ReadPort, TagPort with its own tags--> as it was before
//! ```
//!
//! Its tags come first, and go last: whoever is killed in between is followed by one that finds it. Whose tags it has when it is read again has it, if
//! two clusters wanted it at once.

use openstack::resource::Port;

use crate::owner::{is_tagged, own_tags};
use crate::snapshot::{Element, Key, Pod};
use crate::step::{Call, DEVICE_OWNER, Index};
use crate::{Owner, Refused};

// === impl Index ===

impl<'w> Index<'w> {
    /// Gives the port that an element names the pod's tags, if nobody has it.
    pub(crate) fn tag_existing(&mut self, (uid, number): Key, element: &Element, id: &str) -> Result<(), Refused> {
        let owner = Owner { pod: uid, element: number };
        let in_use = |by: &str| Refused::PortInUse { port: id.to_owned(), by: by.to_owned() };
        let is_asked = |call: &Call| matches!(call, Call::TagPort(of, _) if of == id);
        let is_ours = self.world.ports.as_ref().is_some_and(|ports| ports.contains_key(id));
        if is_ours || self.step.calls.iter().chain(&self.taking).any(is_asked) {
            return Err(in_use("another pod"));
        }
        let Some(port) = self.existing(id)? else { return Ok(()) };
        if is_tagged(port) && Owner::of(port, &self.world.cluster).as_ref() != Some(&owner) {
            return Err(in_use("a pod of another cluster"));
        }
        is_free(port, &owner.pod)?;
        has_all(port, element)?;
        let tags = own_tags(port).into_iter().chain(owner.tags_of_existing(&self.world.cluster)).collect();
        self.taking.push(Call::TagPort(id.to_owned(), tags));
        Ok(())
    }

    /// Whether the pod has the port, which has its tags; else it is given to the pod.
    pub(crate) fn is_taken(&mut self, uid: &str, pod: &Pod, port: &Port) -> Result<bool, Refused> {
        if port.device_id == uid && port.host == pod.node {
            return Ok(true);
        }
        let Some(now) = self.existing(&port.id)? else { return Ok(false) };
        if Owner::of(now, &self.world.cluster) != Owner::of(port, &self.world.cluster) {
            return Err(Refused::PortInUse { port: port.id.clone(), by: "a pod of another cluster".to_owned() });
        }
        is_free(now, uid)?;
        let (port, revision) = (port.id.clone(), now.revision_number);
        self.taking.push(Call::TakePort { port, revision, uid: uid.to_owned(), host: pod.node.clone() });
        Ok(false)
    }

    /// Gives a port back: as it is now, nobody has it, or its pod.
    pub(crate) fn give_back(&mut self, port: &Port) {
        let owner = Owner::of(port, &self.world.cluster);
        let call = match self.world.existing.get(&port.id) {
            None => Call::ReadPort(port.id.clone()),
            Some(None) => return,
            Some(Some(now)) if owner.is_some_and(|owner| owner.pod == now.device_id) => {
                Call::FreePort { port: port.id.clone(), revision: now.revision_number }
            }
            Some(Some(now)) => Call::TagPort(port.id.clone(), own_tags(now)),
        };
        if !self.step.calls.contains(&call) {
            self.step.calls.push(call);
        }
    }

    /// A port that exists already; none where it has to be read first.
    fn existing(&mut self, id: &str) -> Result<Option<&'w Port>, Refused> {
        self.known(self.world.existing.get(id), || Refused::NoPort(id.to_owned()), || Call::ReadPort(id.to_owned()))
    }
}

/// Whether nobody has the port, or this pod.
fn is_free(port: &Port, uid: &str) -> Result<(), Refused> {
    let is_its = port.device_id == uid && port.device_owner == DEVICE_OWNER;
    if is_its || has_nobody(port) {
        return Ok(());
    }
    let by = match (&port.trunk, port.device_owner.as_str()) {
        (Some(trunk), _) => format!("trunk {trunk}"),
        (None, "") => format!("device {}", port.device_id),
        (None, owner) => format!("{owner} {}", port.device_id).trim_end().to_owned(),
    };
    Err(Refused::PortInUse { port: port.id.clone(), by })
}

/// Whether nobody has the port, as far as Neutron says it.
#[must_use]
pub fn has_nobody(port: &Port) -> bool {
    port.device_id.is_empty() && port.device_owner.is_empty() && port.trunk.is_none()
}

/// Whether the port has what the selection asks for.
fn has_all(port: &Port, element: &Element) -> Result<(), Refused> {
    let without = |wanted: String| Refused::PortWithout { port: port.id.clone(), wanted };
    let has = |ip: &std::net::IpAddr| port.fixed_ips.iter().any(|of| of.ip_address.parse() == Ok(*ip));
    if let Some(ip) = element.ips.iter().find(|ip| !has(ip)) {
        return Err(without(format!("the address {ip}")));
    }
    match element.mac.as_ref().filter(|mac| !mac.eq_ignore_ascii_case(&port.mac_address)) {
        Some(mac) => Err(without(format!("the hardware address {mac}"))),
        None => Ok(()),
    }
}
