//! A WireGuard device, in the planner's words and in the kernel's: what rtnetlink does not tell of it.
//!
//! The kernel reports no change of keys and peers. So they are read before each [`apply`](crate::Fabric::apply), and compared with what was
//! left there. Of endpoints alone the kernel knows more than a plan: a peer whose packets come from elsewhere is answered there, because
//! nobody else has its key. So an endpoint is written when it is another one than was written before, and when the peer is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use between::rotation::SESSION;
use between::{Change, Device, Entry, Peer, Plan, Wanted};
use cni::IfName;
use linux::link::Kind;
use linux::wireguard::{Key, PeerChange, PrivateKey, WireGuard, WireGuardError};
use linux::{Errno, Failure, Inside, Link, LinkSpec, Netlink, ReadError, link, wireguard};
use thiserror::Error;

use crate::device;

/// The link that lends its arithmetic: it is deleted as soon as it has told a public key.
const FOR_A_KEY: &str = "nlw-key";

/// WireGuard's socket, and the private keys by their public ones. There is neither where the mode needs none.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    socket: Option<WireGuard>,
    keys: BTreeMap<Key, PrivateKey>,
    /// Which endpoint each peer was given.
    endpoints: BTreeMap<(Device, Key), SocketAddr>,
}

/// A public key could not be computed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// WireGuard cannot be used.
    #[error("{0}")]
    WireGuard(WireGuardError),
    /// The kernel refuses the device that is made for that, or its key.
    #[error("cannot compute a WireGuard key: {0}")]
    Refused(Failure),
    /// The device had no key.
    #[error("cannot compute a WireGuard key: the device {FOR_A_KEY} was changed meanwhile; this is retried")]
    Missing,
}

/// The public key of a private one, as the kernel computes it: of a device that is down and then deleted.
///
/// # Errors
/// [`KeyError`]
pub fn public_key(inside: &Inside, netlink: &mut Netlink, private: &PrivateKey) -> Result<Key, KeyError> {
    let mut socket = WireGuard::open(inside).map_err(KeyError::WireGuard)?;
    let name = IfName::parse(FOR_A_KEY).map_err(|_| KeyError::Missing)?;
    let refused = |e: linux::BatchError| KeyError::Refused(e.first().clone());
    // One that was killed may have left it.
    netlink.send_one(link::create(&LinkSpec::new(name, Kind::WireGuard)).tolerate(Errno::EEXIST)).map_err(refused)?;
    let found = netlink.link(FOR_A_KEY).map_err(|e| KeyError::Refused(device::failure(e)))?;
    let made = found.filter(|link| link.kind.as_deref() == Some("wireguard")).ok_or(KeyError::Missing)?;
    let key = socket.set_device(made.index, Some(private), None, None).map_err(KeyError::Refused).and_then(|()| {
        let device = socket.device(made.index).map_err(|e| KeyError::Refused(device::failure(e)))?;
        device.and_then(|device| device.key).ok_or(KeyError::Missing)
    });
    netlink.send_one(link::delete(made.index).tolerate(Errno::ENODEV)).map_err(refused)?;
    key
}

/// The public keys that WireGuard devices of ours have, by their ports.
///
/// # Errors
/// [`KeyError`]
pub fn own_keys(inside: &Inside, netlink: &mut Netlink) -> Result<BTreeMap<u16, Key>, KeyError> {
    let keys = devices(inside, netlink)?.into_iter().filter_map(|(port, device)| Some((port, device.key?)));
    Ok(keys.collect())
}

/// The peers of all WireGuard devices of ours: how much came from each and went to it, and when its last handshake was.
///
/// # Errors
/// [`KeyError`]
pub fn tunnels(inside: &Inside, netlink: &mut Netlink) -> Result<BTreeMap<(u16, Key), wireguard::Peer>, KeyError> {
    let of_device = |(port, device): (u16, wireguard::Device)| device.peers.into_iter().map(move |(key, peer)| ((port, key), peer));
    Ok(devices(inside, netlink)?.into_iter().flat_map(of_device).collect())
}

fn devices(inside: &Inside, netlink: &mut Netlink) -> Result<Vec<(u16, wireguard::Device)>, KeyError> {
    let failed = |e: ReadError| KeyError::Refused(device::failure(e));
    let mut all = Vec::new();
    let mut socket = None;
    for link in netlink.links().map_err(failed)? {
        let Some(Device::WireGuard { port }) = device::recognise(&link) else { continue };
        let socket = match &mut socket {
            Some(open) => open,
            none => none.insert(WireGuard::open(inside).map_err(KeyError::WireGuard)?),
        };
        all.extend(socket.device(link.index).map_err(failed)?.map(|found| (port, found)));
    }
    Ok(all)
}

// === impl Secrets ===

impl Secrets {
    /// Takes other keys; opens the socket, also where there is no key: peers of a device that has one can be changed.
    pub(crate) fn set(&mut self, inside: &Inside, keys: BTreeMap<Key, PrivateKey>) -> Result<(), WireGuardError> {
        if self.socket.is_none() {
            self.socket = Some(WireGuard::open(inside)?);
        }
        self.keys = keys;
        Ok(())
    }

    /// What a device has; `None` without a socket, or a device.
    pub(crate) fn read(&mut self, link: &Link) -> Result<Option<wireguard::Device>, ReadError> {
        let Some(socket) = self.socket.as_mut().filter(|_| is_wireguard(link)) else { return Ok(None) };
        socket.device(link.index)
    }

    /// Whether a WireGuard device has the key and the peers of these tables; any other device has no such thing.
    pub(crate) fn agree(&mut self, link: &Link, device: Device, tables: &Plan) -> bool {
        let (Device::WireGuard { port }, Some(Wanted::WireGuard { key, .. })) = (device, tables.devices.get(&device)) else { return true };
        let Ok(Some(found)) = self.read(link) else { return false };
        let mut wanted = tables.peers.iter().filter(|((on, _), _)| *on == device).map(|((_, key), peer)| (*key, peer.clone()));
        found.key.as_ref() == Some(key) && (found.port, found.mark) == (port, 0) && self.peers(device, &found).eq(wanted.by_ref())
    }

    /// Gives a device its key and its port. It is down when it is made, so no packet meets it before.
    pub(crate) fn set_up(&mut self, found: &Link, port: u16, key: &Key) -> Result<(), Failure> {
        let now = self.read(found).map_err(device::failure)?.unwrap_or_default();
        let failed = |errno| Failure { index: 0, what: format!("wg set {} private-key", found.name), errno, text: None };
        let (Some(socket), Some(private)) = (&mut self.socket, self.keys.get(key)) else { return Err(failed(Errno::ENOKEY)) };
        let private = (now.key.as_ref() != Some(key)).then_some(private);
        let port = (now.port != port).then_some(port);
        // Rules may lead packets with a mark elsewhere.
        let mark = (now.mark != 0).then_some(0);
        if private.is_some() || port.is_some() || mark.is_some() {
            socket.set_device(found.index, private, port, mark)?;
        }
        Ok(())
    }

    /// Carries out changes of peers of a device, which were so before. What was refused, by its place.
    pub(crate) fn set_peers(&mut self, index: u32, changes: &[&Change], before: &Plan) -> Vec<(usize, Failure)> {
        for change in changes {
            match change {
                Change::Add(Entry::Peer(device, key, peer)) | Change::Replace(Entry::Peer(device, key, peer)) => {
                    self.endpoints.insert((*device, *key), peer.endpoint);
                }
                Change::Remove(Entry::Peer(device, key, _)) => drop(self.endpoints.remove(&(*device, *key))),
                _ => {}
            }
        }
        let changes: Vec<PeerChange> = changes.iter().filter_map(|change| peer_change(change, before)).collect();
        match &mut self.socket {
            Some(socket) => socket.set_peers(index, &changes),
            None => Vec::new(),
        }
    }

    /// Peers as a plan would want them. One that no plan would want differs from whatever is wanted.
    pub(crate) fn peers(&self, device: Device, found: &wireguard::Device) -> impl Iterator<Item = (Key, Peer)> {
        found.peers.iter().map(move |(key, peer)| {
            let given = self.endpoints.get(&(device, *key)).filter(|_| has_spoken(peer)).copied();
            let endpoint = given.or(peer.endpoint).filter(|_| !peer.has_preshared);
            let planned = endpoint.map(|endpoint| Peer { endpoint, allowed: peer.allowed.clone(), keepalive: peer.keepalive });
            (*key, planned.unwrap_or_else(altered))
        })
    }
}

/// A peer that no plan has.
fn altered() -> Peer {
    Peer { endpoint: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), allowed: BTreeSet::new(), keepalive: u16::MAX }
}

/// Whether the peer's endpoint is where it was heard from a short time ago.
fn has_spoken(peer: &wireguard::Peer) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    peer.handshake.is_some_and(|at| now.saturating_sub(at) < SESSION)
}

fn peer_change(change: &Change, before: &Plan) -> Option<PeerChange> {
    Some(match change {
        Change::Add(Entry::Peer(device, key, peer)) | Change::Replace(Entry::Peer(device, key, peer)) => {
            let (endpoint, keepalive) = (peer.endpoint, peer.keepalive);
            match keeps_ranges(before.peers.get(&(*device, *key)), peer) {
                None => PeerChange::Set { key: *key, endpoint, allowed: peer.allowed.clone(), keepalive },
                Some(old) => PeerChange::Update {
                    key: *key,
                    endpoint: (old.endpoint != endpoint).then_some(endpoint),
                    added: peer.allowed.difference(&old.allowed).copied().collect(),
                    keepalive: (old.keepalive != keepalive).then_some(keepalive),
                },
            }
        }
        Change::Remove(Entry::Peer(_, key, _)) => PeerChange::Remove { key: *key },
        _ => return None,
    })
}

/// What a peer was, if all that it was allowed stays so.
fn keeps_ranges<'p>(before: Option<&'p Peer>, now: &Peer) -> Option<&'p Peer> {
    before.filter(|old| **old != altered() && old.allowed.is_subset(&now.allowed))
}

/// Whether a change is one of a peer.
pub(crate) fn is_of_peer(change: &Change) -> bool {
    matches!(change, Change::Add(Entry::Peer(..)) | Change::Replace(Entry::Peer(..)) | Change::Remove(Entry::Peer(..)))
}

pub(crate) fn is_wireguard(link: &Link) -> bool {
    link.kind.as_deref() == Some("wireguard")
}
