//! From what the kernel has to what is wanted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use between::{Change, Device, Entry, Plan};
use ipnet::IpNet;
use linux::wireguard::{PrivateKey, WireGuardError};
use linux::{Batch, Errno, Inside, Netlink};

use crate::device::{self, SetUpError};
use crate::entry;
use crate::error::{ApplyError, EntryError};
use crate::observe::{self, Observed};
use crate::wireguard::{self, Secrets};

/// How many changes are messages at a time: enough that a message costs only itself, few enough that thousands of nodes take little memory.
const AT_ONCE: usize = 1024;

/// The link that the kernel has routes without a way on: `lo`, the first of each namespace (`blackhole_netdev` is seen by nobody).
const LOOPBACK: Device = Device::Link(1);

/// What is to be done that no plan says. Nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Sets `net.ipv4.conf.DEVICE.rp_filter` to 2 on each tunnel device, when it is made or repaired. The strict filter (1) drops what comes
    /// over a tunnel while the route back is a direct one, as between two nodes of which only one has seen a change yet. The kernel uses the
    /// larger value of `conf.all` and `conf.DEVICE`, so 2 counts whatever `conf.all` has.
    pub loose_rp_filter: bool,
}

/// The tables of one node's kernel.
#[derive(Debug, Default)]
pub struct Fabric {
    options: Options,
    secrets: Secrets,
    state: Option<State>,
    /// Whether the kernel is as remembered, as far as is known.
    is_current: bool,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many entries were added, replaced or removed.
    pub changes: usize,
    /// How many were not, because they need a device that could not be made, or packets still take the old path.
    pub skipped: usize,
    /// What is not as it is wanted.
    pub errors: Vec<EntryError>,
    /// The devices that could not be made, or not as they are wanted.
    pub broken: BTreeSet<Device>,
    /// The devices of ours that are still there although the plan has none of them: they could not be removed, or packets still take them.
    pub remaining: BTreeSet<Device>,
}

/// What the kernel has after an [`Fabric::apply`], as far as it was carried out.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) tables: Plan,
    pub(crate) links: BTreeMap<Device, u32>,
    /// Routes of others to ranges that are wanted.
    pub(crate) foreign: BTreeMap<IpNet, linux::Route>,
    /// The links that direct routes lead over.
    pub(crate) uplinks: BTreeSet<u32>,
}

// === impl Fabric ===

impl Fabric {
    /// Knows nothing yet: the first [`Fabric::apply`] reads what the kernel has.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Fabric { options, ..Fabric::default() }
    }

    /// Gives it the private keys of WireGuard devices, by their public ones; the namespace is that of the later calls.
    ///
    /// # Errors
    /// [`WireGuardError`]; the keys are as before.
    pub fn set_keys(&mut self, inside: &Inside, keys: BTreeMap<[u8; 32], PrivateKey>) -> Result<(), WireGuardError> {
        self.secrets.set(inside, keys)
    }

    /// Makes the kernel what the plan says, in the namespace of the socket. Only differences are written: to what was left the last time if
    /// nothing contradicts that, else to what the kernel has. What cannot be done keeps nothing else from being done, and is tried again by
    /// the next call. The kernel does not report everything that it waits for, such as a UDP port that another program gives back: after an
    /// error repeat the call after a while.
    ///
    /// # Errors
    /// [`ApplyError`]: the kernel cannot be read. What was done before stays. What the kernel refuses of the plan is in [`Applied::errors`].
    pub fn apply(&mut self, netlink: &mut Netlink, wanted: &Plan) -> Result<Applied, ApplyError> {
        let mut before = 0;
        if let Some(state) = self.recall(netlink) {
            let applied = self.lead(netlink, state, wanted, Applied::default())?;
            if self.is_current {
                return Ok(applied);
            }
            // Perhaps the kernel was not as remembered: once more, after a look.
            before = applied.changes;
        }
        let mut applied = Applied { changes: before, ..Applied::default() };
        let state = look(netlink, &mut self.secrets, wanted, &mut applied)?;
        self.lead(netlink, state, wanted, applied)
    }

    /// Takes a notice of the kernel's, from a [`linux::Monitor`] that was opened before the first [`Fabric::apply`]. Whether it contradicts
    /// what that has left: then it is to be called again, with the same plan if there is no newer one.
    pub fn notice(&mut self, notice: &linux::Notice) -> bool {
        let Some(state) = &self.state else { return false };
        let contradicts = state.is_contradicted(notice, self.is_current);
        self.is_current &= !contradicts;
        contradicts
    }

    /// What is remembered, if the devices are still so: a notice may be lost, or come only after this.
    fn recall(&mut self, netlink: &mut Netlink) -> Option<State> {
        let state = self.state.take().filter(|_| self.is_current)?;
        let is_there = |(device, index): (&Device, &u32)| {
            let found = netlink.link_by_index(*index).ok().flatten();
            found.is_some_and(|link| {
                let wanted = state.tables.devices.get(device);
                let is_ours = device::recognise(&link).as_ref() == Some(device);
                is_ours
                    && wanted.is_some_and(|wanted| device::is_as_wanted(&link, wanted))
                    && self.secrets.agree(&link, *device, &state.tables)
            })
        };
        state.links.iter().all(is_there).then_some(state)
    }

    /// Leads from a state to the wanted one, and remembers it.
    fn lead(&mut self, netlink: &mut Netlink, mut state: State, wanted: &Plan, applied: Applied) -> Result<Applied, ApplyError> {
        let mut pass = Pass { netlink, secrets: &mut self.secrets, applied, options: self.options };
        if pass.make_devices(&mut state, wanted) {
            // With another hardware address or without its last address a device loses neighbours and routes, which is not reported.
            state = look(pass.netlink, pass.secrets, wanted, &mut pass.applied)?;
        }
        state.foreign.retain(|_, route| observe::keeps_range(route, wanted));
        let target = if state.foreign.is_empty() { Cow::Borrowed(wanted) } else { Cow::Owned(without(wanted, &state.foreign)) };
        let changes = state.tables.difference(&target);
        let of_entries = |change: &&Change| !matches!(change, Change::Add(Entry::Device(..)) | Change::Replace(Entry::Device(..)));
        let (go, come): (Vec<&Change>, Vec<&Change>) =
            changes.iter().filter(of_entries).partition(|change| matches!(change, Change::Remove(_)));
        let (peers, come): (Vec<&Change>, Vec<&Change>) = come.into_iter().partition(|change| wireguard::is_of_peer(change));
        pass.set_peers(&peers, &state.links, &state.tables);
        let failed = pass.send(&come, &state.links);
        // Packets that still take the old path need all of it.
        let kept = failed.iter().filter_map(|change| match change {
            Change::Replace(Entry::Route(range, _)) => state.tables.routes.get(range).map(|route| route.device),
            _ => None,
        });
        pass.take(&go, &kept.collect(), &mut state.links, &state.tables);
        let mut applied = pass.applied;
        applied.remaining = state.links.keys().filter(|device| !wanted.devices.contains_key(device)).copied().collect();
        self.is_current = applied.errors.is_empty() && applied.skipped == 0;
        for (range, route) in &state.foreign {
            let other = observe::described(netlink, route);
            applied.errors.push(EntryError::RouteTaken { range: *range, other, proto: route.proto });
        }
        let uplinks = target.routes.values().filter_map(|route| if let Device::Link(index) = route.device { Some(index) } else { None });
        state.uplinks = uplinks.collect();
        // A copy of all tables takes longer than most changes.
        changes.into_iter().for_each(|change| state.tables.take(change));
        self.state = Some(state);
        Ok(applied)
    }
}

/// Reads what the kernel has, and takes away what is ours and can be in no plan.
fn look(netlink: &mut Netlink, secrets: &mut Secrets, wanted: &Plan, applied: &mut Applied) -> Result<State, ApplyError> {
    let Observed { tables, links, foreign, strays } = Observed::read(netlink, secrets, wanted).map_err(ApplyError::Read)?;
    applied.changes += strays.len();
    if let Err(refusals) = netlink.send(strays.into_iter().collect()) {
        let errors = refusals.failures().map(|failure| EntryError::Stray { failure: failure.clone() });
        applied.errors.extend(errors);
    }
    Ok(State { tables, links, foreign, uplinks: BTreeSet::new() })
}

/// The tables of a plan, without the routes to ranges that others have.
fn without(wanted: &Plan, foreign: &BTreeMap<IpNet, linux::Route>) -> Plan {
    let routes = wanted.routes.iter().filter(|(range, _)| !foreign.contains_key(range));
    Plan {
        devices: wanted.devices.clone(),
        peers: wanted.peers.clone(),
        forwarding: wanted.forwarding.clone(),
        neighbours: wanted.neighbours.clone(),
        routes: routes.map(|(range, route)| (*range, *route)).collect(),
        closed: wanted.closed.clone(),
        ..Plan::default()
    }
}

/// One way through the changes.
struct Pass<'a> {
    netlink: &'a mut Netlink,
    secrets: &'a mut Secrets,
    options: Options,
    applied: Applied,
}

// === impl Pass ===

impl Pass<'_> {
    /// Makes the devices that are wanted, and makes those that are there what they are to be. Whether there were such.
    fn make_devices(&mut self, state: &mut State, wanted: &Plan) -> bool {
        let mut some_were_there = false;
        for (device, as_wanted) in &wanted.devices {
            let before = state.tables.devices.get(device);
            if before == Some(as_wanted) {
                continue;
            }
            let entry = Entry::Device(*device, as_wanted.clone());
            let change = if before.is_some() { Change::Replace(entry) } else { Change::Add(entry) };
            some_were_there |= before.is_some();
            let set_up = device::set_up(self.netlink, self.secrets, device, as_wanted, self.options);
            if let Ok(index) | Err(SetUpError::Incomplete { index, .. }) = set_up {
                state.links.insert(*device, index);
            }
            match set_up {
                Ok(_) => self.applied.changes += 1,
                Err(e) => {
                    self.applied.broken.insert(*device);
                    let error = self.explain(&change, device, e);
                    self.applied.errors.push(error);
                }
            }
        }
        some_were_there
    }

    /// Carries out what goes: devices are last, and take their entries along.
    fn take(&mut self, changes: &[&Change], kept: &BTreeSet<Device>, links: &mut BTreeMap<Device, u32>, before: &Plan) {
        let going: BTreeSet<&Device> =
            changes.iter().filter_map(|change| removed_device(change)).filter(|device| !kept.contains(device)).collect();
        let (mut entries, mut peers) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            match change {
                Change::Remove(
                    Entry::Neighbour(device, ..) | Entry::Forwarding(device, ..) | Entry::Peer(device, ..) | Entry::Device(device, _),
                ) if kept.contains(device) => {
                    self.applied.skipped += 1;
                }
                Change::Remove(Entry::Neighbour(device, ..) | Entry::Forwarding(device, ..) | Entry::Peer(device, ..))
                    if going.contains(device) =>
                {
                    self.applied.changes += 1;
                }
                Change::Remove(Entry::Device(..)) => {}
                Change::Remove(Entry::Peer(..)) => peers.push(*change),
                other => entries.push(*other),
            }
        }
        self.send(&entries, links);
        self.set_peers(&peers, links, before);
        for change in changes {
            let Some(device) = removed_device(change).filter(|device| going.contains(device)) else { continue };
            match device::remove(self.netlink, device) {
                Ok(()) => {
                    links.remove(device);
                    self.applied.changes += 1;
                }
                Err(failure) => self.refuse(change, device, failure),
            }
        }
    }

    /// Sends changes of entries. What was not carried out.
    fn send<'c>(&mut self, changes: &[&'c Change], links: &BTreeMap<Device, u32>) -> Vec<&'c Change> {
        let mut failed = Vec::new();
        for some in changes.chunks(AT_ONCE) {
            let mut batch = Batch::new();
            let mut sent = Vec::with_capacity(some.len());
            for change in some {
                match entry::request(change, links) {
                    Some(request) => {
                        batch.push(request);
                        sent.push(*change);
                    }
                    None => failed.push(*change),
                }
            }
            self.applied.skipped += some.len() - sent.len();
            self.applied.changes += sent.len();
            let Err(refusals) = self.netlink.send(batch) else { continue };
            for failure in refusals.failures() {
                let Some(change) = sent.get(failure.index) else { continue };
                self.applied.changes -= 1;
                self.refuse(change, device_of(change), failure.clone());
                failed.push(*change);
            }
        }
        failed
    }

    /// Carries out changes of peers, those of each device in their order.
    fn set_peers(&mut self, changes: &[&Change], links: &BTreeMap<Device, u32>, before: &Plan) {
        for of_device in changes.chunk_by(|one, other| device_of(one) == device_of(other)) {
            let Some(index) = of_device.first().and_then(|change| links.get(device_of(change))) else {
                self.applied.skipped += of_device.len();
                continue;
            };
            self.applied.changes += of_device.len();
            for (at, failure) in self.secrets.set_peers(*index, of_device, before) {
                let Some(change) = of_device.get(at) else { continue };
                self.applied.changes -= 1;
                self.refuse(change, device_of(change), failure);
            }
        }
    }

    fn refuse(&mut self, change: &Change, device: &Device, failure: linux::Failure) {
        let on = device::shown(self.netlink, device);
        self.applied.errors.push(EntryError::Refused { change: change.clone(), on, failure });
    }

    /// Why a device could not be made.
    fn explain(&mut self, change: &Change, device: &Device, error: SetUpError) -> EntryError {
        let name = device::name(device).unwrap_or_default();
        let failure = match error {
            SetUpError::NameTaken { kind } => return EntryError::NameTaken { name, kind },
            SetUpError::Refused(failure) | SetUpError::Incomplete { failure, .. } => failure,
        };
        let links = if failure.errno == Errno::EEXIST { self.netlink.links() } else { Ok(Vec::new()) };
        if let Some(twin) = links.unwrap_or_default().into_iter().find(|link| device::is_twin(link, device)) {
            return EntryError::NetworkTaken { name, other: twin.name };
        }
        EntryError::Refused { change: change.clone(), on: name, failure }
    }
}

fn removed_device(change: &Change) -> Option<&Device> {
    match change {
        Change::Remove(Entry::Device(device, _)) => Some(device),
        _ => None,
    }
}

/// The device that an entry is on.
fn device_of(change: &Change) -> &Device {
    let (Change::Add(entry) | Change::Replace(entry) | Change::Remove(entry)) = change;
    match entry {
        Entry::Device(device, _) | Entry::Peer(device, ..) | Entry::Forwarding(device, ..) | Entry::Neighbour(device, ..) => device,
        Entry::Route(_, route) => &route.device,
        Entry::Closed(_) => &LOOPBACK,
    }
}
