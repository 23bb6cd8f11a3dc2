//! WireGuard's part of a round: the node has its keys, and takes the steps of their rotation.
//!
//! ```text
//!   plan_anew --> ready: keys of the file --.
//!   each 2 s, while keys are rotated:        +--> KeyRing::step (pure) --> Keys::take --> what the plan is made with
//!     look: handshakes of the kernel -------'                                             (OwnKeys)
//! ```
//!
//! A look reads handshakes, and nothing is planned if they change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use between::rotation::{Evidence, Handshakes, Newest, Step};
use between::{Change, Device, Entry, NodeSeen, PublicKey};
use cluster::Node;
use fabric::{Applied, EntryError};
use ipnet::IpNet;
use linux::Inside;
use linux::wireguard::{Key, Peer};

use super::Network;
use crate::lock;
use crate::log::Line;
use crate::provided::KeysState;
use crate::provided::keys::Keys;

/// While a key is rotated: between two looks at which peers have it. The kernel reports no handshake.
const LOOK: Duration = Duration::from_secs(2);

/// What the thread knows of WireGuard. All of it is empty where the mode has none.
#[derive(Default)]
pub(super) struct WireGuard {
    /// `None`: they cannot be had.
    keys: Option<Keys>,
    /// Why they cannot be had, or not be rotated.
    lack: Option<String>,
    /// Without keys: those that the devices have, and the Node announces.
    held: Vec<PublicKey>,
    /// Which ranges the devices allow to which key: before the first plan as the kernel has it, then as the last plan.
    known: BTreeMap<Key, BTreeSet<IpNet>>,
    /// The other Nodes, while a key is rotated.
    peers: Vec<NodeSeen>,
    /// When each tunnel's last handshake was noticed, with the time that the kernel has for it: that is of a clock that can be set, and ages
    /// that it gives would end a rotation while a peer still sends by the old key. One that was there before the first look counts from then.
    noticed: BTreeMap<(u16, Key), (Duration, Instant)>,
    /// The last handshakes, as far as they could be read.
    handshakes: Option<Handshakes>,
    /// Whether they are those of the last look.
    is_fresh: bool,
    /// Since when nobody is awaited.
    quiet_since: Option<Instant>,
    /// What the last plan was made with.
    unproven: BTreeSet<(u16, Key)>,
    spare: Option<PublicKey>,
    /// The device of the new key, while that is tried beside the old one.
    trial: Option<Device>,
    /// What became of the last plan: the devices that could not be made, and whether all else is as it says.
    is_applied: bool,
    broken: BTreeSet<Device>,
    is_kept: bool,
}

/// What the plan takes from WireGuard.
pub(super) struct OwnKeys {
    /// What others are told of.
    pub(super) keys: Vec<PublicKey>,
    pub(super) spare: Option<PublicKey>,
    pub(super) unproven: BTreeSet<(u16, Key)>,
    pub(super) known: BTreeMap<Key, BTreeSet<IpNet>>,
}

// === impl WireGuard ===

impl WireGuard {
    /// Whether tunnels can be made, or are there.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.is_some() || !self.held.is_empty()
    }

    /// Why keys cannot be had, or not be rotated.
    pub(super) fn lack(&self) -> Option<&String> {
        self.lack.as_ref()
    }

    /// Takes what came of a plan: which ranges have which key from now on.
    pub(super) fn planned(&mut self, peers: &BTreeMap<(Device, Key), between::Peer>) {
        (self.is_applied, self.is_kept) = (false, false);
        self.known = known(peers.iter().map(|((_, key), peer)| (*key, &peer.allowed)));
    }

    /// Takes what became of it in the kernel.
    pub(super) fn applied(&mut self, applied: &Applied) {
        self.is_applied = true;
        self.broken.clone_from(&applied.broken);
        // Who keeps a range with a route of his own keeps no packet in an old tunnel.
        let is_route = |error: &EntryError| matches!(error, EntryError::RouteTaken { .. });
        self.is_kept = applied.skipped == 0 && applied.errors.iter().all(is_route);
    }

    /// Whether an error concerns the device of the new key alone, so that the old one goes on.
    pub(super) fn is_on_trial(&self, error: &EntryError) -> bool {
        let Some(device) = self.trial else { return false };
        match error {
            EntryError::NameTaken { name, .. } => fabric::device_name(&device).as_ref() == Some(name),
            EntryError::Refused { change: Change::Add(entry) | Change::Replace(entry), .. } => {
                matches!(entry, Entry::Device(found, _) | Entry::Peer(found, ..) if *found == device)
            }
            _ => false,
        }
    }

    /// Whether the device of the new key could not be made, and is to be tried again.
    pub(super) fn waits(&self) -> bool {
        self.trial.is_some_and(|device| self.broken.contains(&device))
    }

    /// Whether keys are rotated, so that handshakes are to be looked at.
    pub(super) fn is_rotating(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.ring.is_rotating())
    }
}

impl Network<'_> {
    /// Has this node's WireGuard keys ready, and takes the step of their rotation that is due.
    ///
    /// # Errors
    /// Nothing can be planned: what packets leave by depends on handshakes that cannot be read.
    pub(super) fn wireguard_keys(&mut self, nodes: &[Arc<Node>]) -> Result<OwnKeys, String> {
        let own = self.agent.cluster.node();
        self.wireguard.peers = nodes.iter().filter(|node| node.name != own).map(|node| NodeSeen::from(node.as_ref())).collect();
        self.wireguard.lack = self.keep_keys(nodes).err();
        let base = self.provided.settings.wireguard_port;
        if self.plan.is_none()
            && let Ok(tunnels) = self.tunnels()
        {
            self.wireguard.known = known(tunnels.iter().map(|((_, key), peer)| (*key, &peer.allowed)));
        }
        let wireguard = &mut self.wireguard;
        let known = wireguard.known.clone();
        let Some(keys) = &wireguard.keys else {
            let keys = wireguard.held.clone();
            (wireguard.spare, wireguard.trial, wireguard.unproven) = (None, None, BTreeSet::new());
            return Ok(OwnKeys { keys, spare: None, unproven: BTreeSet::new(), known });
        };
        let ring = &keys.ring;
        if ring.is_rotating() && wireguard.handshakes.is_none() {
            return Err("cannot read which nodes have the new WireGuard key: tunnels stay as they are; this is retried".to_owned());
        }
        wireguard.unproven =
            wireguard.handshakes.as_ref().map(|handshakes| ring.unproven(base, &wireguard.peers, handshakes)).unwrap_or_default();
        wireguard.spare = ring.spare(base);
        let newest = wireguard.spare.or_else(|| ring.announced(base).pop());
        let port = newest.filter(|_| ring.is_rotating()).and_then(|newest| newest.port);
        wireguard.trial = port.map(|port| Device::WireGuard { port });
        Ok(OwnKeys { keys: ring.announced(base), spare: wireguard.spare, unproven: wireguard.unproven.clone(), known })
    }

    fn keep_keys(&mut self, nodes: &[Arc<Node>]) -> Result<(), String> {
        let (inside, state_dir) = (Inside::here(), &self.agent.settings.state_dir);
        if self.wireguard.keys.is_none() {
            let others: Vec<u64> = self.wireguard.peers.iter().map(|peer| peer.rotation).collect();
            let netlink = self.host.netlink().map_err(|e| e.to_string())?;
            let first = Keys::first(state_dir, &others, &inside, netlink).map_err(|e| e.to_string());
            self.wireguard.held = if first.is_err() { self.held_keys(nodes) } else { Vec::new() };
            // Also without keys, what is there can be read and changed.
            self.fabric.set_keys(&inside, BTreeMap::new()).map_err(|e| e.to_string())?;
            self.wireguard.keys = Some(first?);
        }
        let looked = self.look_at_handshakes();
        let is_asked = self.provided.takes_rotation();
        let step = self.next_step(is_asked);
        let (wireguard, netlink) = (&mut self.wireguard, self.host.netlink().map_err(|e| e.to_string())?);
        let Some(keys) = &mut wireguard.keys else { return Ok(()) };
        let taken = step.map_or(Ok(()), |step| keys.take(step, state_dir, &inside, netlink).map_err(|e| e.to_string()));
        if let Some(step) = step.filter(|_| taken.is_ok()) {
            let now = match step {
                Step::Begin(_) => "a new key is made, and its device",
                Step::Try(Newest::Stands) => "the new key is announced, and tried beside the old one",
                Step::Try(_) => "the new key waits for its device, and other nodes do not wait for it",
                Step::Move => "all packets leave by the new key",
                Step::End => "the new key alone is used",
            };
            Line::info("cluster network").with("rotation", keys.ring.rotation).with("now", now).end();
            wireguard.quiet_since = None;
        }
        let private = keys.private();
        self.fabric.set_keys(&inside, private).map_err(|e| e.to_string())?;
        taken.and(looked)
    }

    /// The keys that devices in the kernel have and the Node announces: with those, tunnels go on though nobody knows the private ones.
    fn held_keys(&mut self, nodes: &[Arc<Node>]) -> Vec<PublicKey> {
        let Ok(netlink) = self.host.netlink() else { return Vec::new() };
        let devices = fabric::own_keys(&Inside::here(), netlink).unwrap_or_default();
        let own = nodes.iter().find(|node| node.name == self.agent.cluster.node());
        let announced = own.and_then(|node| node.announced.as_ref()?.as_ref().ok()).map(|announced| announced.keys.clone());
        let rotation_of = |key: Key| announced.iter().flatten().find(|announced| announced.key == key).map_or(0, |found| found.rotation);
        let mut keys: Vec<PublicKey> =
            devices.into_iter().map(|(port, key)| PublicKey { key, port: Some(port), rotation: rotation_of(key) }).collect();
        keys.sort_by_key(|key| key.rotation);
        keys
    }

    /// Reads the handshakes, while they matter.
    fn look_at_handshakes(&mut self) -> Result<(), String> {
        self.wireguard.is_fresh = false;
        if !self.wireguard.is_rotating() {
            self.wireguard.handshakes = None;
            self.wireguard.noticed.clear();
            return Ok(());
        }
        let tunnels = self.tunnels()?;
        let stamps: BTreeMap<(u16, Key), Option<Duration>> = tunnels.into_iter().map(|(tunnel, peer)| (tunnel, peer.handshake)).collect();
        self.wireguard.handshakes = Some(ages(&stamps, &mut self.wireguard.noticed, Instant::now()));
        self.wireguard.is_fresh = true;
        Ok(())
    }

    fn tunnels(&mut self) -> Result<BTreeMap<(u16, Key), Peer>, String> {
        let netlink = self.host.netlink().map_err(|e| e.to_string())?;
        fabric::tunnels(&Inside::here(), netlink).map_err(|e| e.to_string())
    }

    /// The step that is due.
    fn next_step(&mut self, is_asked: bool) -> Option<Step> {
        let seen = self.evidence(is_asked)?;
        let ring = self.wireguard.keys.as_ref().map(|keys| &keys.ring)?;
        let is_quiet = ring.awaited(&seen).is_some_and(|awaited| awaited.is_empty());
        let step = ring.step(&seen);
        self.wireguard.quiet_since = is_quiet.then(|| self.wireguard.quiet_since.unwrap_or_else(Instant::now));
        step
    }

    fn evidence(&self, is_asked: bool) -> Option<Evidence<'_>> {
        let (wireguard, settings) = (&self.wireguard, &self.provided.settings);
        let (keys, base) = (wireguard.keys.as_ref()?, settings.wireguard_port);
        let spare = keys.ring.spare(base);
        let device = spare.and_then(|spare| spare.port).map(|port| Device::WireGuard { port });
        let is_needed = |device: &Device| self.plan.as_ref().is_none_or(|plan| plan.devices.contains_key(device));
        let is_made = |device: Device| !(is_needed(&device) && wireguard.broken.contains(&device));
        Some(Evidence {
            base,
            peers: &wireguard.peers,
            plan: self.plan.as_deref().filter(|_| wireguard.is_kept),
            handshakes: wireguard.handshakes.as_ref().filter(|_| wireguard.is_fresh),
            is_made: device.filter(|_| wireguard.spare == spare && wireguard.is_applied).map(is_made),
            is_asked,
            begun: keys.begun(),
            quiet: wireguard.quiet_since.map(|since| since.elapsed()).unwrap_or_default(),
            overlap: settings.wireguard_overlap,
        })
    }

    /// How long until handshakes are to be looked at; nothing, where no key is rotated.
    pub(super) fn look_is_due(&self) -> Option<Duration> {
        self.wireguard.is_rotating().then_some(LOOK)
    }

    /// Looks at handshakes. Whether they are a reason for another plan.
    pub(super) fn look(&mut self) -> bool {
        if self.look_at_handshakes().is_err() {
            // Why is told by the next round.
            return self.wireguard.lack.is_none();
        }
        let is_due = self.next_step(false).is_some();
        lock(&self.provided.state).keys = self.keys_state();
        let (wireguard, base) = (&self.wireguard, self.provided.settings.wireguard_port);
        let (Some(keys), Some(handshakes)) = (&wireguard.keys, &wireguard.handshakes) else { return true };
        is_due || keys.ring.unproven(base, &wireguard.peers, handshakes) != wireguard.unproven
    }

    /// What is told of the keys.
    pub(super) fn keys_state(&self) -> Option<KeysState> {
        let (keys, base) = (self.wireguard.keys.as_ref()?, self.provided.settings.wireguard_port);
        let awaited =
            self.evidence(false).and_then(|seen| keys.ring.awaited(&seen).map(|names| names.into_iter().map(str::to_owned).collect()));
        Some(KeysState {
            announced: keys.ring.announced(base),
            rotation: keys.ring.announced_rotation(),
            moved: keys.ring.moved,
            age: keys.ring.is_rotating().then(|| keys.age()),
            awaited: awaited.unwrap_or_default(),
        })
    }
}

/// How long ago each handshake was noticed.
fn ages(
    stamps: &BTreeMap<(u16, Key), Option<Duration>>,
    noticed: &mut BTreeMap<(u16, Key), (Duration, Instant)>,
    now: Instant,
) -> Handshakes {
    noticed.retain(|tunnel, (stamp, _)| stamps.get(tunnel) == Some(&Some(*stamp)));
    let mut age = |tunnel, stamp| {
        let (_, at) = noticed.entry(tunnel).or_insert((stamp, now));
        now.saturating_duration_since(*at)
    };
    stamps.iter().map(|(tunnel, stamp)| (*tunnel, stamp.map(|stamp| age(*tunnel, stamp)))).collect()
}

/// Which ranges belong to which key.
fn known<'a>(peers: impl Iterator<Item = (Key, &'a BTreeSet<IpNet>)>) -> BTreeMap<Key, BTreeSet<IpNet>> {
    let mut known: BTreeMap<Key, BTreeSet<IpNet>> = BTreeMap::new();
    for (key, allowed) in peers {
        known.entry(key).or_default().extend(allowed);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a step of more than a session's length would make every peer one that does not answer.
    #[test]
    fn the_age_of_a_handshake_follows_no_clock_that_can_be_set() {
        let (start, tunnel) = (Instant::now(), (51820, [7; 32]));
        let mut noticed = BTreeMap::new();
        let mut look = |stamp: Option<u64>, after: u64| {
            let stamps = [(tunnel, stamp.map(Duration::from_secs))].into();
            ages(&stamps, &mut noticed, start + Duration::from_secs(after))[&tunnel].map(|age| age.as_secs())
        };
        assert_eq!(look(None, 0), None);
        // As the kernel's clock has it, this one is of long ago, or of the future.
        for stamp in [1, 1 << 40] {
            assert_eq!((look(Some(stamp), 10), look(Some(stamp), 130)), (Some(0), Some(120)));
        }
        assert_eq!(look(Some(2), 140), Some(0), "another handshake");
        assert_eq!((look(None, 150), look(Some(2), 160)), (None, Some(0)), "a peer that was made again");
    }
}
