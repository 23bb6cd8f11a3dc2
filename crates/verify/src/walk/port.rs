//! What a port of a bridge keeps out by what it is set to.

use std::net::IpAddr;

use cni::Mac;

use super::Walk;
use crate::fault::{Fault, Finding};
use crate::network::Device;
use crate::snapshot::BridgePort;

impl<'a> Walk<'a> {
    /// A frame that comes into a bridge by a port: a locked one takes it only if it has an entry for the sender.
    pub(super) fn enters(&self, bridge: Device<'a>, port: Device<'a>, sender: &Mac) -> Result<(), Finding> {
        let has_entry = bridge.link.fdb.iter().any(|entry| entry.mac == *sender && entry.port == Some(port.link.index));
        if has_entry || !is(port, |flags| flags.locked) {
            return Ok(());
        }
        let evidence = format!("it is locked, and bridge {} has no entry for {sender} behind it", bridge.link.name);
        let next_step = format!("bridge link set dev {} locked off, if it is not intended", port.link.name);
        Err(Finding { next_step, ..self.at(Fault::BridgePortRestricted, port, evidence) })
    }

    /// A frame that leaves a bridge by a port, and before it the question who has the next address: what the bridge does not know, and what is
    /// for everybody, it may not send there.
    pub(super) fn leaves(
        &self,
        (bridge, port): (Device<'a>, Device<'a>),
        receiver: &Mac,
        (sender, next): (Device<'a>, IpAddr),
    ) -> Result<(), Finding> {
        let has_entry = bridge.link.fdb.iter().any(|entry| entry.mac == *receiver);
        let is_known = sender.link.neighbour(next).is_some_and(|neighbour| neighbour.mac.is_some());
        let (evidence, setting) = match () {
            () if !has_entry && is(port, |flags| flags.no_flood) => {
                let evidence = format!("it gets no frames for addresses that bridge {} does not know, as {receiver}", bridge.link.name);
                (evidence, "flood")
            }
            () if !is_known && next.is_ipv4() && is(port, |flags| flags.no_broadcast) => {
                (format!("it gets no broadcast, and {sender} must ask who has {next}"), "bcast_flood")
            }
            () => return Ok(()),
        };
        let next_step = format!("bridge link set dev {} {setting} on, if it is not intended", port.link.name);
        Err(Finding { next_step, ..self.at(Fault::BridgePortRestricted, port, evidence) })
    }
}

fn is(port: Device<'_>, flag: fn(&BridgePort) -> bool) -> bool {
    port.link.port.as_ref().is_some_and(flag)
}
