//! The node's WireGuard keys: made here, kept in a file of root's alone. When they change is decided elsewhere ([`between::rotation`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use between::rotation::{KeyRing, Newest, Step};
use fabric::KeyError;
use linux::file::{self, Durability, Links, ReadError};
use linux::wireguard::{Key, PrivateKey};
use linux::{Inside, Netlink};
use serde::{Deserialize, Serialize};

/// More than the file ever has.
const MAX_FILE: usize = 4 << 10;
/// The name of the file in `stateDir`.
const FILE: &str = "wireguard-keys.json";

/// The node's keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// What others may know of them.
    pub(crate) ring: KeyRing,
    /// In the order of the ring's.
    private: Vec<PrivateKey>,
    /// When the last rotation began, since the beginning of 1970: for a person, as a clock can be set.
    since: Duration,
    /// The same in this process: the file was read after that. `None`: long ago.
    begun: Option<Instant>,
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    rotation: u64,
    moved: u64,
    newest: Option<bool>,
    /// In seconds.
    since: u64,
    keys: Vec<WrittenKey>,
}

/// One of its keys.
#[derive(Serialize, Deserialize)]
struct WrittenKey {
    rotation: u64,
    /// Base64.
    key: String,
}

/// Keys cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeysError {
    /// The file is not what it was written as.
    #[error(
        "cannot read the node's WireGuard keys: {path}: {why}; tunnels stay as they are; if the file cannot be restored, delete it, and the \
         agent makes a new key",
        path = .path.display()
    )]
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
    /// The keys that are kept; else a new one, of the rotation that most others have.
    pub(crate) fn first(state_dir: &Path, others: &[u64], inside: &Inside, netlink: &mut Netlink) -> Result<Self, KeysError> {
        if let Some((written, private)) = read(state_dir)? {
            let mut public = |private: &PrivateKey| fabric::public_key(inside, netlink, private).map_err(KeysError::Kernel);
            let of_file = written.keys.iter().zip(&private);
            let keys = of_file.map(|(key, private)| Ok((key.rotation, public(private)?))).collect::<Result<_, KeysError>>()?;
            let ring = KeyRing { rotation: written.rotation, moved: written.moved, newest: newest_of(written.newest), keys };
            return Ok(Keys { ring, private, since: Duration::from_secs(written.since), begun: Some(Instant::now()) });
        }
        // A kernel without WireGuard leaves no file behind.
        let (key, private) = made(inside, netlink)?;
        let keys = Keys { ring: KeyRing::first(key, others), private: vec![private], since: now(), begun: None };
        keys.write(state_dir)?;
        Ok(keys)
    }

    /// The private keys by their public ones.
    pub(crate) fn private(&self) -> BTreeMap<Key, PrivateKey> {
        self.ring.keys.iter().map(|(_, key)| *key).zip(self.private.iter().cloned()).collect()
    }

    /// How long ago the last rotation began; nothing where the clock was set back.
    pub(crate) fn age(&self) -> Duration {
        now().saturating_sub(self.since)
    }

    /// How long ago the last rotation began, as far as this process knows: by a clock that nobody sets.
    pub(crate) fn begun(&self) -> Duration {
        self.begun.map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Takes a step of the rotation. It is on the disk when this returns.
    pub(crate) fn take(&mut self, step: Step, state_dir: &Path, inside: &Inside, netlink: &mut Netlink) -> Result<(), KeysError> {
        let mut later = self.clone();
        match step {
            Step::Begin(rotation) => {
                let made = later.ring.needs_key(rotation).then(|| made(inside, netlink)).transpose()?;
                later.ring.begin(rotation, made.as_ref().map(|(key, _)| *key));
                later.private.extend(made.map(|(_, private)| private));
                (later.since, later.begun) = (now(), Some(Instant::now()));
            }
            Step::Try(newest) => later.ring.newest = newest,
            Step::Move => later.ring.moved = later.ring.rotation,
            Step::End => {
                later.ring.end();
                later.private.drain(..later.private.len().saturating_sub(1));
            }
        }
        later.write(state_dir)?;
        *self = later;
        Ok(())
    }

    fn write(&self, state_dir: &Path) -> Result<(), KeysError> {
        let key = |((rotation, _), PrivateKey(private)): (&(u64, Key), &PrivateKey)| WrittenKey {
            rotation: *rotation,
            key: STANDARD.encode(private),
        };
        let KeyRing { rotation, moved, newest, ref keys } = self.ring;
        let keys = keys.iter().zip(&self.private).map(key).collect();
        let written = Written { rotation, moved, newest: written_as(newest), since: self.since.as_secs(), keys };
        let bytes = serde_json::to_vec(&written).map_err(|e| KeysError::Unwritten(e.to_string()))?;
        file::write_atomic(&path(state_dir), &bytes, 0o600, Durability::Durable).map_err(|e| KeysError::Unwritten(e.to_string()))
    }
}

impl std::fmt::Debug for WrittenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WrittenKey({}, ..)", self.rotation)
    }
}

/// Whether the newest key's device was made; nothing: nobody has tried.
fn written_as(newest: Newest) -> Option<bool> {
    match newest {
        Newest::Pending => None,
        Newest::Refused => Some(false),
        Newest::Stands => Some(true),
    }
}

fn newest_of(written: Option<bool>) -> Newest {
    written.map_or(Newest::Pending, |is_made| if is_made { Newest::Stands } else { Newest::Refused })
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
    let key = |written: &WrittenKey| STANDARD.decode(&written.key).ok().and_then(|bytes| bytes.try_into().ok()).map(PrivateKey);
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

    use super::*;

    fn keys(rotation: u64, names: &[u8]) -> Keys {
        let of = |(at, name): (usize, &u8)| (rotation + 1 + at as u64 - names.len() as u64, [*name; 32]);
        let ring = KeyRing { rotation, moved: 0, newest: Newest::Stands, keys: names.iter().enumerate().map(of).collect() };
        let private = names.iter().map(|name| PrivateKey([name + 100; 32])).collect();
        Keys { ring, private, since: Duration::ZERO, begun: None }
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
        assert_eq!(written.keys.iter().map(|key| key.rotation).collect::<Vec<_>>(), [2, 3]);
        let secret = STANDARD.encode([101; 32]);
        assert!(!format!("{own:?} {written:?}").contains("101") && !format!("{written:?}").contains(&secret));
        assert!(std::fs::read_to_string(dir.join(FILE)).unwrap().contains(&secret));
        for bad in ["", "{", r#"{"rotation":1,"moved":1,"newest":true,"since":1,"keys":[]}"#] {
            std::fs::write(dir.join(FILE), bad).unwrap();
            let why = read(&dir).map(drop).unwrap_err().to_string();
            assert!(why.contains(FILE) && why.contains("delete it"), "{why}");
        }
        std::fs::write(dir.join(FILE), format!(r#"{{"rotation":1,"moved":1,"newest":true,"since":"{secret}"}}"#)).unwrap();
        assert!(!read(&dir).map(drop).unwrap_err().to_string().contains(&secret), "a key is not quoted");
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Its devices are what the guard of tunnels lets through.
    #[test]
    fn the_name_of_each_device_begins_as_the_firewall_knows_it() {
        for port in [1, 51820, u16::MAX] {
            let name = fabric::device_name(&between::Device::WireGuard { port });
            assert!(name.is_some_and(|name| name.starts_with(rules::TUNNEL_PREFIX)));
        }
    }
}
