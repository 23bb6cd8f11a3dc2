//! Whether what the kernel reports contradicts what was left there.
//!
//! The kernel reports our own changes as well. They agree with the tables, so it does not matter who made a change, which the kernel does not
//! always know.

use between::{Device, Wanted};
use linux::{Address, FdbEntry, Link, Neighbour, Notice, Object, route};

use crate::apply::State;
use crate::{PROTOCOL, device, entry, observe};

// === impl State ===

impl State {
    /// Whether the kernel is no longer as it was left; or, where it could not be left as wanted (`is_current` is false), whether that may
    /// have changed.
    pub(crate) fn is_contradicted(&self, notice: &Notice, is_current: bool) -> bool {
        match notice {
            Notice::Lost => true,
            Notice::Present(object) => self.differs(object, true, is_current),
            Notice::Gone(object) => self.differs(object, false, is_current),
        }
    }

    fn differs(&self, object: &Object, is_there: bool, is_current: bool) -> bool {
        match object {
            Object::Link(link) => self.link_differs(link, is_there, is_current),
            Object::Address(address) => self.address_differs(address, is_there, is_current),
            Object::Route(route) => self.route_differs(route, is_there),
            Object::Neighbour(neighbour) => self.neighbour_differs(neighbour, is_there),
            Object::Fdb(found) => self.forwarding_differs(found, is_there),
            _ => true,
        }
    }

    /// Of a device of ours; of a link that routes lead over: with it, or while it is down, they are gone; and of a link that keeps a device
    /// of ours from being made.
    fn link_differs(&self, link: &Link, is_there: bool, is_current: bool) -> bool {
        if self.uplinks.contains(&link.index) {
            return !is_there || !link.flags.up() || !is_current;
        }
        let named = device::named(&link.name).and_then(|device| Some((device, self.tables.devices.get(&device)?)));
        match named {
            Some((device, wanted)) => {
                let is_ours = self.links.get(&device) == Some(&link.index) && device::recognise(link) == Some(device);
                !(is_there && is_ours && device::is_as_wanted(link, wanted))
            }
            // One of ours by another name, or another program's that had the network of one.
            None => self.own(link.index).is_some() || (!is_there && self.tables.devices.keys().any(|device| device::is_twin(link, device))),
        }
    }

    fn address_differs(&self, address: &Address, is_there: bool, is_current: bool) -> bool {
        let Some(wanted) = self.own(address.index).and_then(|own| self.tables.devices.get(own)) else {
            // With its last address a link loses its routes.
            return self.uplinks.contains(&address.index) && !(is_there && is_current);
        };
        let (Wanted::Vxlan { addresses, .. } | Wanted::WireGuard { addresses, .. }) = wanted;
        let is_wanted = device::is_whole(address) && addresses.contains(&address.net.addr());
        device::counts(address) && is_wanted != is_there
    }

    fn route_differs(&self, route: &linux::Route, is_there: bool) -> bool {
        if route.table != route::MAIN {
            return false;
        }
        let wanted = self.tables.routes.get(&route.dst);
        if route.proto != PROTOCOL {
            return match self.foreign.get(&route.dst) {
                Some(known) => !is_there || known != route,
                None => is_there && observe::keeps_range(route, &self.tables),
            };
        }
        if observe::is_closed(route) {
            return is_there != self.tables.closed.contains(&route.dst);
        }
        if route.priority != entry::metric(route.dst) {
            return is_there;
        }
        if is_there { wanted != Some(&observe::as_planned(route, &self.links)) } else { wanted.is_some() }
    }

    fn neighbour_differs(&self, neighbour: &Neighbour, is_there: bool) -> bool {
        let Some(own) = self.own(neighbour.index) else { return false };
        let wanted = self.tables.neighbours.get(&(*own, neighbour.address));
        match entry::mac_of(neighbour) {
            Some(mac) if is_there => wanted != Some(&mac),
            _ => wanted.is_some(),
        }
    }

    fn forwarding_differs(&self, found: &FdbEntry, is_there: bool) -> bool {
        let Some(own) = self.own(found.index) else { return false };
        let wanted = |mac| self.tables.forwarding.get(&(*own, mac));
        match entry::forwarding(found) {
            Some((mac, endpoint)) if is_there => wanted(mac) != Some(&endpoint),
            Some((mac, _)) => wanted(mac).is_some(),
            // Not as any plan would have it.
            None => is_there || device::ethernet(&found.mac).and_then(wanted).is_some(),
        }
    }

    /// The device of ours with this index.
    fn own(&self, index: u32) -> Option<&Device> {
        self.links.iter().find(|(_, own)| **own == index).map(|(device, _)| device)
    }
}
