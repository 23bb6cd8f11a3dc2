//! WireGuard's devices: key, port and peers (`wg set`, `wg show`), by generic netlink. The device itself is a link
//! ([`Kind::WireGuard`](crate::link::Kind::WireGuard)).
//!
//! ```text
//!   SET_DEVICE  index [private key, port]  peers: key, endpoint, allowed ranges ...    as many as one message holds, then the next one
//!   GET_DEVICE  index --> messages: the first one has the device; a peer whose ranges do not fit goes on in the next one
//! ```
//!
//! The kernel computes the public key, so nothing here does cryptography.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use crate::batch::{Failure, Request};
use crate::netlink::{Netlink, OpenError, ReadError};
use crate::netns::Inside;
use crate::uapi::genetlink::*;
use crate::wire::{Attributes, u16_at};

mod message;

use message::{MessagePart, family_question, get, set_device, set_peers};

/// Bytes of peers in one message: far below the 64 KiB that an attribute may have, and the socket's send buffer.
const ROOM: usize = 24 * 1024;
/// Allowed ranges of a peer in one message; more follow in the next ones.
const RANGES: usize = 256;

/// A public key.
pub type Key = [u8; 32];

/// A private key. It is in no message, log or `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(pub [u8; 32]);

/// A device as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// The link's index.
    pub index: u32,
    /// The public key; `None` while it has no private one.
    pub key: Option<Key>,
    /// The UDP port that it listens on.
    pub port: u16,
    /// The mark of packets that it sends (`fwmark`); 0: none.
    pub mark: u32,
    /// Whom it talks to, by their public keys.
    pub peers: BTreeMap<Key, Peer>,
}

/// A peer of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Where it listens; `None`: it has to send first.
    pub endpoint: Option<SocketAddr>,
    /// Where packets for it go to and its packets come from.
    pub allowed: BTreeSet<IpNet>,
    /// The seconds between two packets that keep the tunnel up without others (`persistent-keepalive`); 0: none.
    pub keepalive: u16,
    /// Whether there is a secret besides the keys (`preshared-key`).
    pub has_preshared: bool,
    /// When the last handshake was complete, since the beginning of 1970; `None`: never.
    pub handshake: Option<Duration>,
    /// Bytes received, with those of handshakes.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// What is to become of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerChange {
    /// It is there, with exactly this; a preshared key goes.
    Set {
        /// Its public key.
        key: Key,
        /// Where it listens.
        endpoint: SocketAddr,
        /// What it is allowed; each range is taken from the peer that has it.
        allowed: BTreeSet<IpNet>,
        /// As [`Peer::keepalive`].
        keepalive: u16,
    },
    /// Something changes of a peer that is there: nothing happens to one that is not. Packets of the ranges that it has pass all the time,
    /// while [`PeerChange::Set`] takes them away for a moment.
    Update {
        /// Its public key.
        key: Key,
        /// Where it listens; `None`: where its last packet came from, or as it was.
        endpoint: Option<SocketAddr>,
        /// What it is allowed in addition.
        added: BTreeSet<IpNet>,
        /// As [`Peer::keepalive`]; `None`: as it was.
        keepalive: Option<u16>,
    },
    /// It goes.
    Remove {
        /// Its public key.
        key: Key,
    },
}

/// A connection to the kernel's WireGuard in one network namespace.
#[derive(Debug)]
pub struct WireGuard {
    netlink: Netlink,
    family: u16,
}

/// WireGuard cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireGuardError {
    /// The kernel has none, and could not load it.
    #[error("this kernel has no WireGuard: load its module with `modprobe wireguard`, or choose another mode")]
    Missing,
    /// There is no socket.
    #[error("{0}")]
    Open(OpenError),
    /// The kernel does not say.
    #[error("{0}")]
    Read(ReadError),
}

// === impl PrivateKey ===

impl PrivateKey {
    /// A new one. Waits until the kernel has collected enough randomness, as early in a boot.
    ///
    /// # Errors
    /// What the kernel says: `ENOSYS`, where a filter keeps the process from asking.
    pub fn random() -> Result<Self, Errno> {
        let mut key = [0_u8; 32];
        loop {
            // SAFETY: the pointer and length are those of a local array that the call fills.
            let filled = unsafe { nix::libc::getrandom(key.as_mut_ptr().cast(), key.len(), 0) };
            match Errno::result(filled) {
                // Up to 256 bytes are given whole (getrandom(2)).
                Ok(length) if usize::try_from(length) == Ok(key.len()) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        // As the kernel has it then (RFC 7748 section 5, `curve25519_clamp_secret`), and `wg` shows it.
        let [first, .., last] = &mut key;
        *first &= 0xf8;
        *last = (*last & 0x7f) | 0x40;
        Ok(PrivateKey(key))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

// === impl WireGuard ===

impl WireGuard {
    /// Opens a socket in the namespace that the calling thread is in. The kernel loads its module for that.
    ///
    /// # Errors
    /// [`WireGuardError`]
    pub fn open(inside: &Inside) -> Result<Self, WireGuardError> {
        let mut netlink = Netlink::of_protocol(inside, NETLINK_GENERIC).map_err(WireGuardError::Open)?;
        let what = "genl ctrl get name wireguard";
        let answers = netlink.question(what, family_question(), &[Errno::ENOENT], |message| {
            let attributes = message.payload.get(GENL_HEADER..).filter(|_| message.kind == GENL_ID_CTRL)?;
            Attributes(attributes).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID).and_then(|(_, id)| u16_at(id))
        });
        let family = answers.map_err(WireGuardError::Read)?.into_iter().next().ok_or(WireGuardError::Missing)?;
        Ok(WireGuard { netlink, family })
    }

    /// A device with all its peers (`wg show DEVICE`); `None` if there is no link with this index, or of another type.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Torn`] where it changes too fast to be read.
    pub fn device(&mut self, index: u32) -> Result<Option<Device>, ReadError> {
        let family = self.family;
        let none = [Errno::ENODEV, Errno::EOPNOTSUPP];
        let parts = self.netlink.dump(&format!("wg show if{index}"), get(family, index), &none, |message| {
            message.payload.get(GENL_HEADER..).filter(|_| message.kind == family).map(MessagePart::parse)
        })?;
        Ok(message::joined(parts))
    }

    /// Gives a device its private key, its port and the mark of its packets, those of them that are given (`wg set DEVICE private-key FILE
    /// listen-port PORT fwmark MARK`). Peers stay.
    ///
    /// # Errors
    /// `ENODEV`, `EOPNOTSUPP`: it is no such device; `EADDRINUSE`: another socket has the port, and the device is up.
    pub fn set_device(&mut self, index: u32, key: Option<&PrivateKey>, port: Option<u16>, mark: Option<u32>) -> Result<(), Failure> {
        let what = port.map_or_else(|| format!("wg set if{index}"), |port| format!("wg set if{index} listen-port {port}"));
        let request = Request::command(what, set_device(self.family, index, key, port, mark));
        self.netlink.send_one(request).map(drop).map_err(|e| e.first().clone())
    }

    /// Changes peers, in this order (`wg set DEVICE peer KEY ...`). What was refused, each with its place in `changes`; all others are carried
    /// out.
    pub fn set_peers(&mut self, index: u32, changes: &[PeerChange]) -> Vec<(usize, Failure)> {
        let mut refused = Vec::new();
        for (first, some) in message::packed(changes) {
            if let Err(failure) = self.send_peers(index, some) {
                if let [_] = some {
                    refused.push((first, failure));
                    continue;
                }
                // The kernel stops at the peer that it refuses, and does not say which one that is.
                for (at, change) in some.iter().enumerate() {
                    refused.extend(self.send_peers(index, std::slice::from_ref(change)).err().map(|failure| (first + at, failure)));
                }
            }
        }
        refused
    }

    fn send_peers(&mut self, index: u32, changes: &[PeerChange]) -> Result<(), Failure> {
        for message in set_peers(self.family, index, changes) {
            let request = Request::command(format!("wg set if{index} peer ..."), message);
            self.netlink.send_one(request).map_err(|e| e.first().clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
