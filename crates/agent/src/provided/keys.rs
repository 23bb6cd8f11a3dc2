//! The node's WireGuard keys: made here, kept in a file of root's alone, and rotated.
//!
//! ```text
//!   made ----> one key --rotation begins: by hand, or because another node has begun--> two keys, each with a port and a device
//!                 ^                                                                       |
//!                 '--- the overlap has passed, and no node is reached by the old one alone'
//! ```
//!
//! A rotation is the whole cluster's, because a device has room for one key of each node: two nodes that both have a new key need a second
//! device each. So rotations are numbered, and a node that sees a higher number begins its own. The newest key of rotation N has the port
//! `wireguardPort` + N mod 2, the one before the other of both ports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use between::{Device, Plan, PublicKey};
use fabric::KeyError;
use linux::file::{self, Durability, Links, ReadError};
use linux::wireguard::{Key, Peer, PrivateKey};
use linux::{Inside, Netlink};
use serde::{Deserialize, Serialize};

/// More than the file ever has.
const MAX_FILE: usize = 4 << 10;
/// The name of the file in `stateDir`.
const FILE: &str = "wireguard-keys.json";
/// A handshake is repeated after two minutes in use, and a session ends after three (`REJECT_AFTER_TIME`, drivers/net/wireguard/messages.h).
pub(crate) const SESSION: Duration = Duration::from_secs(180);
/// How far ahead of the own one a rotation may be that is followed: a number from which there is no way on is no rotation.
const FOLLOWED: u64 = 1 << 20;

/// The tunnels that the kernel has, by the own port and the peer's key.
pub(crate) type Tunnels = BTreeMap<(u16, Key), Peer>;

/// The node's keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// Which rotation the newest key is of.
    pub(crate) rotation: u64,
    /// When that began, since the beginning of 1970.
    since: Duration,
    /// The newest last; one, or two during a rotation.
    keys: Vec<(Key, PrivateKey)>,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Written {
    rotation: u64,
    /// In seconds.
    since: u64,
    /// Base64.
    keys: Vec<String>,
}

/// Keys cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeysError {
    /// The file is not what it was written as.
    #[error("cannot read the node's WireGuard keys: {path}: {why}; delete the file, and the agent makes a new key", path = .path.display())]
    Unreadable { path: PathBuf, why: String },
    /// The file cannot be written.
    #[error("cannot keep the node's WireGuard keys: {0}")]
    Unwritten(String),
    /// The kernel gives no random numbers.
    #[error("cannot make a WireGuard key: {0}")]
    Random(linux::Errno),
    /// The kernel has no WireGuard, or refuses the key.
    #[error("{0}")]
    Kernel(KeyError),
}

// === impl Keys ===

impl Keys {
    /// The keys that are kept; else a new one, of the rotation that others have.
    pub(crate) fn first(state_dir: &Path, others: &[u64], inside: &Inside, netlink: &mut Netlink) -> Result<Self, KeysError> {
        if let Some(kept) = read(state_dir)? {
            let public = |private: PrivateKey| Ok((fabric::public_key(inside, netlink, &private).map_err(KeysError::Kernel)?, private));
            let keys = kept.1.into_iter().map(public).collect::<Result<Vec<_>, _>>()?;
            return Ok(Keys { rotation: kept.0.rotation, since: Duration::from_secs(kept.0.since), keys });
        }
        // A kernel without WireGuard leaves no file behind.
        let none = Keys { rotation: 0, since: now(), keys: Vec::new() };
        let keys = Keys { rotation: none.ahead(others.iter().copied()).unwrap_or_default(), keys: vec![made(inside, netlink)?], ..none };
        keys.write(state_dir)?;
        Ok(keys)
    }

    /// What other nodes have to know.
    pub(crate) fn announced(&self, base: u16) -> Vec<PublicKey> {
        self.ports(base).zip(&self.keys).map(|(port, (key, _))| PublicKey { key: *key, port: Some(port) }).collect()
    }

    /// The private keys by their public ones.
    pub(crate) fn private(&self) -> BTreeMap<Key, PrivateKey> {
        self.keys.iter().cloned().collect()
    }

    /// Whether there is a second key.
    pub(crate) fn is_rotating(&self) -> bool {
        self.keys.len() > 1
    }

    /// How long ago the last rotation began; nothing where the clock was set back.
    pub(crate) fn age(&self) -> Duration {
        now().saturating_sub(self.since)
    }

    /// The next rotation.
    pub(crate) fn next(&self) -> u64 {
        self.rotation.saturating_add(1)
    }

    /// The highest rotation that others have announced, if it is another one than the own and is to be followed.
    pub(crate) fn ahead(&self, others: impl Iterator<Item = u64>) -> Option<u64> {
        let is_ahead = |other: &u64| (self.rotation.saturating_add(1)..=self.rotation.saturating_add(FOLLOWED)).contains(other);
        others.filter(is_ahead).max().filter(|_| !self.is_rotating())
    }

    /// Begins a rotation. The new key is on the disk when this returns. Who has missed an even number of rotations has the right port
    /// already, and keeps its key until the next one: two devices cannot have one port.
    pub(crate) fn begin(&mut self, rotation: u64, state_dir: &Path, inside: &Inside, netlink: &mut Netlink) -> Result<(), KeysError> {
        let mut later = Keys { rotation, since: now(), ..self.clone() };
        if rotation % 2 != self.rotation % 2 {
            later.keys.push(made(inside, netlink)?);
        }
        later.write(state_dir)?;
        *self = later;
        Ok(())
    }

    /// Ends a rotation: the old key goes.
    pub(crate) fn end(&mut self, state_dir: &Path) -> Result<(), KeysError> {
        let later = Keys { keys: self.keys.last().cloned().into_iter().collect(), ..self.clone() };
        later.write(state_dir)?;
        *self = later;
        Ok(())
    }

    /// Peers with whom no handshake has been complete on the port of the new key, of those that announce one there.
    pub(crate) fn unproven<'a>(
        &self,
        base: u16,
        tunnels: &Tunnels,
        announced: impl Iterator<Item = &'a PublicKey>,
    ) -> BTreeSet<(u16, Key)> {
        if !self.is_rotating() {
            return BTreeSet::new();
        }
        let of = |key: &PublicKey| (key.port.unwrap_or(base), key.key);
        announced.map(of).filter(|tunnel| tunnels.get(tunnel).is_none_or(|peer| peer.handshake.is_none())).collect()
    }

    /// The addresses of nodes that still answer, and only by the old key: a rotation does not end before they have the new one.
    pub(crate) fn awaited(&self, base: u16, plan: &Plan, tunnels: &Tunnels) -> BTreeSet<std::net::IpAddr> {
        let mut ports = self.ports(base);
        let (Some(old), Some(new)) = (ports.next(), ports.next()) else { return BTreeSet::new() };
        let on = |wanted: u16| {
            let of_port = move |(device, _): &&(Device, Key)| *device == Device::WireGuard { port: wanted };
            plan.peers
                .iter()
                .filter(move |(at, _)| of_port(at))
                .map(move |((_, key), peer)| (peer.endpoint.ip(), tunnels.get(&(wanted, *key))))
        };
        let proven: BTreeSet<_> =
            on(new).filter(|(_, found)| found.is_some_and(|peer| peer.handshake.is_some())).map(|(ip, _)| ip).collect();
        let is_alive = |found: Option<&Peer>| found.and_then(|peer| peer.handshake).is_some_and(|at| now().saturating_sub(at) < SESSION);
        on(old).filter(|(ip, found)| is_alive(*found) && !proven.contains(ip)).map(|(ip, _)| ip).collect()
    }

    /// The ports of the keys, in their order.
    fn ports(&self, base: u16) -> impl Iterator<Item = u16> + use<> {
        let newest = u16::from(self.rotation % 2 == 1);
        let first = if self.keys.len() > 1 { 1 - newest } else { newest };
        [base.saturating_add(first), base.saturating_add(1 - first)].into_iter().take(self.keys.len())
    }

    fn write(&self, state_dir: &Path) -> Result<(), KeysError> {
        let keys = self.keys.iter().map(|(_, PrivateKey(private))| STANDARD.encode(private)).collect();
        let written = Written { rotation: self.rotation, since: self.since.as_secs(), keys };
        let bytes = serde_json::to_vec(&written).map_err(|e| KeysError::Unwritten(e.to_string()))?;
        file::write_atomic(&path(state_dir), &bytes, 0o600, Durability::Durable).map_err(|e| KeysError::Unwritten(e.to_string()))
    }
}

fn made(inside: &Inside, netlink: &mut Netlink) -> Result<(Key, PrivateKey), KeysError> {
    let private = PrivateKey::random().map_err(KeysError::Random)?;
    Ok((fabric::public_key(inside, netlink, &private).map_err(KeysError::Kernel)?, private))
}

fn read(state_dir: &Path) -> Result<Option<(Written, Vec<PrivateKey>)>, KeysError> {
    let path = path(state_dir);
    let unreadable = |why: String| KeysError::Unreadable { path: path.clone(), why };
    let bytes = match file::read(&path, MAX_FILE, Links::Refused) {
        Ok(bytes) => bytes,
        Err(ReadError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(unreadable(e.to_string())),
    };
    // What is wrong is not quoted: it may be a key.
    let written: Written = serde_json::from_slice(&bytes).map_err(|e| unreadable(format!("not as it was written (line {})", e.line())))?;
    let key = |text: &String| STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok()).map(PrivateKey);
    let keys: Option<Vec<PrivateKey>> = written.keys.iter().map(key).collect();
    match keys {
        Some(keys) if matches!(keys.len(), 1 | 2) => Ok(Some((written, keys))),
        _ => Err(unreadable("not one key or two".to_owned())),
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How long ago a handshake was.
pub(crate) fn age_of(handshake: Duration) -> Duration {
    now().saturating_sub(handshake)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use between::Peer as Planned;

    use super::*;

    const BASE: u16 = 51820;

    fn keys(rotation: u64, names: &[u8]) -> Keys {
        Keys { rotation, since: Duration::ZERO, keys: names.iter().map(|name| ([*name; 32], PrivateKey([name + 100; 32]))).collect() }
    }

    fn ports(keys: &Keys) -> Vec<(u8, u16)> {
        keys.announced(BASE).into_iter().map(|key| (key.key[0], key.port.unwrap())).collect()
    }

    #[test]
    fn a_key_keeps_its_port_while_a_newer_one_comes_and_after_it() {
        assert_eq!(ports(&keys(0, &[1])), [(1, BASE)]);
        assert_eq!(ports(&keys(1, &[1, 2])), [(1, BASE), (2, BASE + 1)]);
        assert_eq!(ports(&keys(1, &[2])), [(2, BASE + 1)]);
        assert_eq!(ports(&keys(2, &[2, 3])), [(2, BASE + 1), (3, BASE)]);
        assert_eq!(ports(&keys(2, &[3])), [(3, BASE)]);
    }

    #[test]
    fn a_rotation_that_is_ahead_is_followed_once_the_own_one_is_over() {
        let ahead = |keys: &Keys, others: &[u64]| keys.ahead(others.iter().copied());
        let own = keys(4, &[1]);
        assert_eq!(ahead(&own, &[]), None);
        assert_eq!(ahead(&own, &[3, 4]), None);
        assert_eq!(ahead(&own, &[4, 5, 7]), Some(7));
        assert_eq!(ahead(&own, &[u64::MAX]), None, "no rotation could follow");
        assert_eq!(ahead(&own, &[u64::MAX, 5]), Some(5), "nor does it hide another one");
        assert_eq!(ahead(&keys(4, &[1, 2]), &[5]), None);
        assert_eq!(ahead(&keys(u64::MAX - 1, &[1]), &[u64::MAX]), Some(u64::MAX));
    }

    #[test]
    fn what_is_kept_is_read_again_by_root_alone_and_is_not_printed() {
        let dir = std::env::temp_dir().join(format!("netloom-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(read(&dir).unwrap().is_none());
        let own = keys(3, &[1, 2]);
        own.write(&dir).unwrap();
        assert_eq!(std::fs::metadata(dir.join(FILE)).unwrap().permissions().mode() & 0o7777, 0o600);
        let (written, private) = read(&dir).unwrap().unwrap();
        assert_eq!((written.rotation, private), (3, vec![PrivateKey([101; 32]), PrivateKey([102; 32])]));
        let secret = STANDARD.encode([101; 32]);
        assert!(!format!("{own:?}").contains("101") && std::fs::read_to_string(dir.join(FILE)).unwrap().contains(&secret));
        let mut own = own;
        own.end(&dir).unwrap();
        assert_eq!((ports(&own), read(&dir).unwrap().unwrap().1.len()), (vec![(2, BASE + 1)], 1));
        for bad in ["", "{", r#"{"rotation":1,"since":1,"keys":[]}"#, r#"{"rotation":1,"since":1,"keys":["AQ=="]}"#] {
            std::fs::write(dir.join(FILE), bad).unwrap();
            let why = read(&dir).map(drop).unwrap_err().to_string();
            assert!(why.contains(FILE) && why.contains("delete the file"), "{why}");
        }
        std::fs::write(dir.join(FILE), format!(r#"{{"rotation":1,"since":"{secret}"}}"#)).unwrap();
        assert!(!read(&dir).map(drop).unwrap_err().to_string().contains(&secret), "a key is not quoted");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_rotation_waits_for_nodes_that_answer_by_the_old_key_alone() {
        let own = keys(1, &[1, 2]);
        let (old, new) = (BASE, BASE + 1);
        let peer =
            |ip: &str, port: u16| Planned { endpoint: format!("{ip}:{port}").parse().unwrap(), allowed: BTreeSet::new(), keepalive: 25 };
        let mut plan = Plan::default();
        for (ip, port, key) in [("192.0.2.2", old, 21), ("192.0.2.2", new, 22), ("192.0.2.3", old, 31)] {
            plan.peers.insert((Device::WireGuard { port }, [key; 32]), peer(ip, port));
        }
        let shaken = |ago: u64| Peer { handshake: Some(now() - Duration::from_secs(ago)), ..Peer::default() };
        let awaited = |tunnels: &[(u16, u8, Option<u64>)]| {
            let of = |(port, key, ago): &(u16, u8, Option<u64>)| ((*port, [*key; 32]), ago.map(shaken).unwrap_or_default());
            own.awaited(BASE, &plan, &tunnels.iter().map(of).collect()).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(awaited(&[]), [""; 0], "nobody answers at all");
        assert_eq!(awaited(&[(old, 21, Some(10)), (new, 22, None), (old, 31, Some(10))]), ["192.0.2.2", "192.0.2.3"]);
        assert_eq!(awaited(&[(old, 21, Some(10)), (new, 22, Some(5)), (old, 31, Some(10))]), ["192.0.2.3"]);
        assert_eq!(awaited(&[(old, 21, Some(10)), (new, 22, Some(5)), (old, 31, Some(500))]), [""; 0], "it is away");
        let announced = [PublicKey { key: [22; 32], port: Some(new) }, PublicKey { key: [31; 32], port: None }];
        let proven: Tunnels = [((new, [22; 32]), shaken(5))].into();
        assert_eq!(own.unproven(BASE, &proven, announced.iter()), [(old, [31; 32])].into());
        assert_eq!(keys(0, &[1]).unproven(BASE, &Tunnels::new(), announced.iter()), BTreeSet::new());
    }
}
