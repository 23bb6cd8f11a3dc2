//! The rotation of WireGuard's keys: what a node does next, given what the others announce and what its tunnels show. No clock: times come as
//! ages.
//!
//! ```text
//!           Begin                 Try                        Move                             End
//!   one key ----> a second one,   ----> it is announced:     ----> all packets leave by the  ----> the new one alone
//!                 with a device         a tunnel on each of        new tunnels; that is
//!                 of its own            both devices               announced
//! ```
//!
//! A rotation is the whole cluster's, because a device has room for one key of each node: two nodes that both have a new key need a second
//! device each. So rotations are numbered, a node that sees a higher number begins its own, and two nodes have a tunnel for each rotation
//! that both have a key of. Keys of odd rotations have the port after the one of even rotations.
//!
//! **No packet is lost** because nobody takes away what another one still sends by: a node accepts packets by both keys from Begin to End, and
//! sends by the new one only to who has shown by a handshake that he has it. It ends only when each node that answers by the old key has
//! announced that it sends by the new one, to everybody. So an agent may die between any two steps: its kernel goes on as it is, and the
//! others wait.
//!
//! **What a node may do to others.** It makes them rotate, once in each `overlap`, by however much it raises the number. That a number is
//! further ahead than one counts only if most nodes say so: then it is the own node that was away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Device, NodeSeen, Plan, PublicKey};

/// A handshake is repeated after two minutes in use, and a session ends after three (`REJECT_AFTER_TIME`, drivers/net/wireguard/messages.h).
pub const SESSION: Duration = Duration::from_secs(180);

/// How long what is seen has to stay so before a step that cannot be taken back: until then each tunnel was asked for a handshake twice
/// (`REKEY_TIMEOUT`), and what was sent by the old tunnel has arrived.
pub const SETTLED: Duration = Duration::from_secs(10);

/// How far ahead of the own one a rotation may be at all: a number from which there is no way on is no rotation.
const FOLLOWED: u64 = 1 << 20;

/// The last handshakes of the own node's tunnels, by own port and the peer's key: how long ago; `None`: never.
pub type Handshakes = BTreeMap<(u16, [u8; 32]), Option<Duration>>;

/// The own node's keys, as far as others may know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    /// The rotation that was followed last.
    pub rotation: u64,
    /// To every node that has a key of this rotation packets leave by the tunnel of that.
    pub moved: u64,
    /// Whether others may be told of the newest key.
    pub newest: Newest,
    /// The newest last, each with the rotation that it is of: one, or two.
    pub keys: Vec<(u64, [u8; 32])>,
}

/// What is known of the newest key's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newest {
    /// It was not tried yet.
    Pending,
    /// It cannot be made, such as while another program has its port. Others are told that this node follows without a second key, so
    /// that they do not wait for it.
    Refused,
    /// It was made, and others are told of the key.
    Stands,
}

/// What a node knows when it decides.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// [`Settings::wireguard_port`](crate::Settings::wireguard_port).
    pub base: u16,
    /// All other nodes.
    pub peers: &'a [NodeSeen],
    /// What the kernel has, if it has all of it.
    pub plan: Option<&'a Plan>,
    /// `None`: they cannot be read, and nothing follows from that.
    pub handshakes: Option<&'a Handshakes>,
    /// Whether the newest key's device is there, or none is needed; `None`: it was not tried.
    pub is_made: Option<bool>,
    /// Whether a person has asked for a rotation.
    pub is_asked: bool,
    /// How long ago the last rotation began, by a clock that nobody sets.
    pub begun: Duration,
    /// How long nobody has been [awaited](KeyRing::awaited).
    pub quiet: Duration,
    /// How long a rotation lasts at the least, and how long after its beginning no other node's is followed.
    pub overlap: Duration,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`KeyRing::begin`] this rotation.
    Begin(u64),
    /// The new key may be announced, or may not: [`KeyRing::newest`].
    Try(Newest),
    /// Packets have left the old tunnels: [`KeyRing::moved`].
    Move,
    /// [`KeyRing::end`].
    End,
}

/// How far a peer is with the own node's rotation.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// There was a handshake over the new tunnel.
    Proven,
    /// It answers by the old one alone, or nobody knows.
    Old,
    /// It does not answer, has no tunnel to this node, or follows the rotation without a second key.
    Apart,
}

// === impl KeyRing ===

impl KeyRing {
    /// A first key, of a cluster whose other nodes have announced these rotations.
    #[must_use]
    pub fn first(key: [u8; 32], others: &[u64]) -> Self {
        let rotation = most_have(others).filter(|most| *most <= FOLLOWED).unwrap_or_default();
        KeyRing { rotation, moved: rotation, newest: Newest::Stands, keys: vec![(rotation, key)] }
    }

    /// Whether it has a second key.
    #[must_use]
    pub fn is_rotating(&self) -> bool {
        self.keys.len() > 1
    }

    /// What other nodes are told: the newest last.
    #[must_use]
    pub fn announced(&self, base: u16) -> Vec<PublicKey> {
        let told = self.keys.len() - usize::from(self.is_rotating() && self.newest != Newest::Stands);
        self.keys.iter().take(told).map(|key| public(base, *key)).collect()
    }

    /// The rotation that other nodes are told of.
    #[must_use]
    pub fn announced_rotation(&self) -> u64 {
        // Who dies before it has tried the device does not follow yet, and is waited for.
        let former = self.keys.first().filter(|_| self.is_rotating() && self.newest == Newest::Pending);
        former.map_or(self.rotation, |(rotation, _)| *rotation)
    }

    /// The key whose device is to be made before others are told of it.
    #[must_use]
    pub fn spare(&self, base: u16) -> Option<PublicKey> {
        self.keys.last().filter(|_| self.is_rotating() && self.newest != Newest::Stands).map(|key| public(base, *key))
    }

    /// Whether a rotation needs a new key. Who has missed an even number of rotations has the right port already, and keeps its key until
    /// the next one: two devices cannot have one port.
    #[must_use]
    pub fn needs_key(&self, rotation: u64) -> bool {
        self.keys.last().is_none_or(|(newest, _)| newest % 2 != rotation % 2)
    }

    /// Begins a rotation, with a new key if it [needs](KeyRing::needs_key) one.
    pub fn begin(&mut self, rotation: u64, key: Option<[u8; 32]>) {
        self.rotation = rotation;
        match (key, self.keys.last_mut()) {
            (Some(key), _) => {
                self.keys.push((rotation, key));
                self.newest = Newest::Pending;
            }
            (None, Some(newest)) => {
                newest.0 = rotation;
                self.moved = rotation;
            }
            (None, None) => {}
        }
    }

    /// Ends it: the old key goes.
    pub fn end(&mut self) {
        self.keys.drain(..self.keys.len().saturating_sub(1));
    }

    /// The next step, if one is due.
    #[must_use]
    pub fn step(&self, seen: &Evidence<'_>) -> Option<Step> {
        if !self.is_rotating() {
            let ahead = self.ahead(seen.peers).filter(|_| seen.begun >= seen.overlap);
            let asked = seen.is_asked.then(|| self.rotation.saturating_add(1));
            return ahead.or(asked).map(Step::Begin);
        }
        if self.newest != Newest::Stands {
            let newest = if seen.is_made? { Newest::Stands } else { Newest::Refused };
            return (newest != self.newest).then_some(Step::Try(newest));
        }
        let (_, (newest, _)) = self.both()?;
        if self.moved < newest {
            let is_done = seen.begun >= SETTLED && seen.plan.is_some() && self.unmoved(seen)?.is_empty();
            return is_done.then_some(Step::Move);
        }
        let is_over = seen.begun >= seen.overlap && seen.quiet >= SETTLED && self.awaited(seen)?.is_empty();
        is_over.then_some(Step::End)
    }

    /// The rotation to follow, if another node is ahead.
    fn ahead(&self, peers: &[NodeSeen]) -> Option<u64> {
        let next = self.rotation.checked_add(1)?;
        let most = self.rotation.saturating_add(FOLLOWED);
        let others: Vec<u64> = peers.iter().map(|peer| peer.rotation).filter(|rotation| *rotation <= most).collect();
        others.iter().any(|rotation| *rotation >= next).then(|| most_have(&others).unwrap_or_default().max(next))
    }

    /// Peers of the newest key's device that have not shown yet that they have the own new key. Once packets have moved there are none: a
    /// node that comes later is sent to by the new key alone.
    #[must_use]
    pub fn unproven(&self, base: u16, peers: &[NodeSeen], handshakes: &Handshakes) -> BTreeSet<(u16, [u8; 32])> {
        let Some((_, (newest, key))) = self.both().filter(|(_, (newest, _))| self.moved < *newest) else { return BTreeSet::new() };
        let port = public(base, (newest, key)).port.unwrap_or(base);
        let of_newest = peers.iter().flat_map(|peer| &peer.keys).filter(|key| key.rotation == newest).map(|key| (port, key.key));
        of_newest.filter(|tunnel| handshakes.get(tunnel).copied().flatten().is_none()).collect()
    }

    /// The nodes to which packets have to leave by the old key; `None` if nobody knows.
    fn unmoved<'a>(&self, seen: &Evidence<'a>) -> Option<BTreeSet<&'a str>> {
        let handshakes = seen.handshakes?;
        let is_unmoved = |peer: &&NodeSeen| self.progress(seen, handshakes, peer) == Progress::Old;
        Some(seen.peers.iter().filter(is_unmoved).map(|peer| peer.name.as_str()).collect())
    }

    /// The nodes that may still send by the old key: a rotation does not end before they do not. `None` if nobody knows.
    #[must_use]
    pub fn awaited<'a>(&self, seen: &Evidence<'a>) -> Option<BTreeSet<&'a str>> {
        let handshakes = seen.handshakes?;
        let ((_, _), (newest, _)) = self.both()?;
        let is_awaited = |peer: &&NodeSeen| match self.progress(seen, handshakes, peer) {
            Progress::Old => true,
            Progress::Proven => peer.moved < newest && self.is_on_old(seen, handshakes, peer),
            Progress::Apart => false,
        };
        Some(seen.peers.iter().filter(is_awaited).map(|peer| peer.name.as_str()).collect())
    }

    fn progress(&self, seen: &Evidence<'_>, handshakes: &Handshakes, peer: &NodeSeen) -> Progress {
        let Some((_, new)) = self.both() else { return Progress::Apart };
        let port = public(seen.base, new).port.unwrap_or(seen.base);
        let mut of_new = peer.keys.iter().filter(|key| key.rotation == new.0).peekable();
        // Its second device cannot be made: it goes on with the old key, and nobody waits for it longer than for the overlap.
        if of_new.peek().is_none() && peer.rotation >= new.0 && seen.begun >= seen.overlap {
            return Progress::Apart;
        }
        if of_new.any(|key| handshakes.get(&(port, key.key)).copied().flatten().is_some()) {
            return Progress::Proven;
        }
        if self.is_on_old(seen, handshakes, peer) { Progress::Old } else { Progress::Apart }
    }

    /// Whether a peer answers on the old key's device, or is to be there and is not: then nobody knows.
    fn is_on_old(&self, seen: &Evidence<'_>, handshakes: &Handshakes, peer: &NodeSeen) -> bool {
        let Some((old, _)) = self.both() else { return false };
        let port = public(seen.base, old).port.unwrap_or(seen.base);
        let is_planned = |key: [u8; 32]| seen.plan.is_none_or(|plan| plan.peers.contains_key(&(Device::WireGuard { port }, key)));
        peer.keys.iter().any(|key| match handshakes.get(&(port, key.key)) {
            Some(handshake) => handshake.is_some_and(|age| age < SESSION),
            None => key.rotation == old.0 && is_planned(key.key),
        })
    }

    /// The old key and the new one, if others know of both.
    #[allow(clippy::type_complexity, reason = "two of what the ring has")]
    fn both(&self) -> Option<((u64, [u8; 32]), (u64, [u8; 32]))> {
        match self.keys.as_slice() {
            [old, new] if self.newest == Newest::Stands => Some((*old, *new)),
            _ => None,
        }
    }
}

/// A key as it is announced.
fn public(base: u16, (rotation, key): (u64, [u8; 32])) -> PublicKey {
    PublicKey { key, port: Some(base.saturating_add(u16::from(rotation % 2 == 1))), rotation }
}

/// The highest number that more than half of them have reached.
fn most_have(rotations: &[u64]) -> Option<u64> {
    let mut sorted = rotations.to_vec();
    sorted.sort_unstable();
    sorted.get(rotations.len().checked_sub(1)? / 2).copied()
}
