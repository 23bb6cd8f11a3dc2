//! What a device does with the frames that leave by it and come in by it: rules of the family `netdev`, traffic control.
//!
//! ```text
//!   leaves by it:    netdev egress, traffic control           comes in by it:    traffic control, netdev and inet ingress
//! ```

use super::filter::{Hook, HookPoint};
use super::{Packet, Walk};
use crate::fault::{Fault, Finding};
use crate::network::Device;

/// Which way frames pass a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Its namespace sends them by it.
    Out,
    /// They come into its namespace by it.
    In,
}

/// Which way frames pass the device at a place of their way; `None`: they stay below it, from one of its ports to another one.
pub(super) fn pass(frames: &[Device<'_>], at: usize) -> Option<Pass> {
    let device = frames.get(at)?;
    let (before, after) = (at.checked_sub(1).and_then(|at| frames.get(at)), frames.get(at + 1));
    let is_below = |upper: &Device<'_>| {
        let is_here = upper.namespace.place == device.namespace.place;
        let below =
            upper.link.other.as_ref().is_some_and(|other| other.place == device.namespace.place && other.index == device.link.index);
        is_here && device.link.master == Some(upper.link.index) || below && upper.link.kind != "veth"
    };
    let is_port_of_it = |port: &Device<'_>| port.namespace.place == device.namespace.place && port.link.master == Some(device.link.index);
    match (before, after) {
        (None, _) => Some(Pass::Out),
        // From port to port, or from one macvlan to another one.
        (Some(before), Some(after)) if is_port_of_it(before) && is_port_of_it(after) || is_below(before) && is_below(after) => None,
        (Some(before), _) if is_below(before) => Some(Pass::Out),
        (Some(_), _) => Some(Pass::In),
    }
}

impl<'a> Walk<'a> {
    /// What a device does with a frame that passes it.
    pub(super) fn by_device(&mut self, device: Device<'a>, pass: Pass, packet: &mut Packet) -> Result<(), Finding> {
        let Device { namespace, link } = device;
        let (hook, iif, oif) = match pass {
            Pass::Out => (Hook::Egress, None, Some(link)),
            Pass::In => (Hook::Ingress, Some(link), None),
        };
        self.shaped(device, pass);
        self.filter(&HookPoint { namespace, hook, in_bridge: false, iif, oif }, packet).map(drop)
    }

    /// Traffic control is not read: it counts what it drops.
    fn shaped(&mut self, device: Device<'a>, pass: Pass) {
        let link = device.link;
        let meets = |kind: &str| match kind {
            "clsact" => true,
            "ingress" => pass == Pass::In,
            _ => pass == Pass::Out,
        };
        for qdisc in link.qdiscs.iter().filter(|qdisc| meets(&qdisc.kind)) {
            let show = format!("tc -s qdisc show dev {0}; tc filter show dev {0} ingress; tc filter show dev {0} egress", link.name);
            let counted = format!("its {} has dropped {} packets", qdisc.kind, qdisc.dropped);
            let finding = match qdisc.grown {
                Some(grown) if grown > 0 => {
                    let evidence = format!("{counted}, {grown} of them while the probe was repeated");
                    self.at(Fault::TrafficControlDrops, device, evidence)
                }
                _ => self.at(Fault::NotObserved, device, format!("not read: traffic control; {counted}")),
            };
            let finding = Finding { next_step: format!("{}: {show}", finding.next_step), ..finding };
            match finding.fault {
                Fault::NotObserved => self.blind.push(finding),
                // What drops packets now is suspected before what may be a consequence of it.
                _ => self.suspicions.insert(0, finding),
            }
        }
    }
}
