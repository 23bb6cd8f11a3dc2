//! Whether Neutron's agent of this node has wired a port: it gives the port its VLAN last, when the port's flows and security groups are there.
//!
//! ```text
//!   plugged: VLAN 4095, nothing passes --neutron-openvswitch-agent--> the network's VLAN on this node
//! ```
//!
//! What a controller says of a port may be older than the plug: a port that was ACTIVE in the sandbox before is ACTIVE for minutes after it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use cni::{CniError, Code};
use ovsdb::{OvsdbError, Switch, Vlans};

use super::{LOOK, Port};
use crate::Agent;
use crate::call::Request;
use crate::shares::Aside;

// === impl Agent ===

impl Agent {
    /// Waits until each of these ports has a VLAN that carries packets.
    pub(super) fn until_wired(&self, request: &Request, ports: &[Port]) -> Result<(), CniError> {
        let settings = &self.settings.vifs;
        let socket = settings.socket.as_deref().unwrap_or(Path::new(ovsdb::DEFAULT_SOCKET));
        let until = request.by.min(Instant::now() + settings.wait);
        let mut waiting: Vec<&Port> = ports.iter().filter(|port| port.is_switched).collect();
        let mut connection = None;
        // Each look waits for a change: others are served meanwhile.
        let mut aside = Aside::new(self.waits_for_others.get());
        while !waiting.is_empty() {
            aside.step();
            let by = Instant::now() + LOOK;
            // A database that restarts is asked again.
            let looked = connected(&mut connection, socket, by).and_then(|switch| look(switch, &mut waiting, by));
            if waiting.is_empty() {
                break;
            }
            self.is_waited_for(request)?;
            if Instant::now() >= until {
                return Err(too_late(&waiting, looked.err(), settings.wait.as_secs()));
            }
            if looked.is_err() {
                connection = None;
                // Sleeps: nothing tells that a database is there again.
                std::thread::sleep(by.min(until).saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }
}

fn connected<'a>(connection: &'a mut Option<Switch>, socket: &Path, by: Instant) -> Result<&'a mut Switch, OvsdbError> {
    match connection {
        Some(switch) => Ok(switch),
        None => Ok(connection.insert(Switch::connect(socket, by)?)),
    }
}

/// Leaves those that are not wired; where there are some, returns after the next change of one of them, or after a while.
fn look(switch: &mut Switch, waiting: &mut Vec<&Port>, by: Instant) -> Result<(), OvsdbError> {
    switch.answer_by(by);
    let mut names = BTreeSet::new();
    let mut left = Vec::new();
    for port in waiting.iter() {
        let of_id = switch.ports_of(&port.switch_id)?;
        let is_wired = !of_id.is_empty() && of_id.iter().all(|port| matches!(port.vlans, Some(Vlans::Access(_))));
        if !is_wired {
            left.push(*port);
            names.extend(of_id.into_iter().map(|port| port.name));
        }
    }
    *waiting = left;
    if waiting.is_empty() { Ok(()) } else { switch.port_changed(&names, by) }
}

fn too_late(waiting: &[&Port], failed: Option<OvsdbError>, seconds: u64) -> CniError {
    let ports = waiting.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let failed = failed.map(|e| format!(" ({e})")).unwrap_or_default();
    let msg = format!(
        "no VLAN {seconds} s after it was plugged: {ports}{failed}; everything was unplugged: check that neutron-openvswitch-agent runs on this \
         node; where OVN wires ports, set openstackVLAN: none"
    );
    CniError::new(Code::TRY_AGAIN_LATER, msg)
}
