//! What an interface was before it was changed: `<dataDir>/<container>_<interface>.json`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cni::{AttachmentId, CniError, Code, Mac, NetworkName};
use json::{Object, Value};
use linux::file::{self, Durability, Links};
use linux::link::Change;

/// Every key of the file. `network` is ours alone: GC finds by it what belongs to a network.
const KEYS: [&str; 6] = ["mac", "promisc", "mtu", "allmulti", "txQLen", "network"];

/// What such a file may have, in bytes: it has about a hundred.
const MAX_FILE: usize = 64 << 10;

/// The file of one attachment.
#[derive(Debug, Clone)]
pub(super) struct Backup {
    path: PathBuf,
    network: NetworkName,
}

/// The properties that are to be restored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Before {
    pub(super) mac: Option<Mac>,
    pub(super) promisc: Option<bool>,
    pub(super) mtu: Option<u32>,
    pub(super) allmulti: Option<bool>,
    pub(super) txqlen: Option<u32>,
}

impl Before {
    /// One change for each property: what one cannot have does not keep the others from being restored.
    pub(super) fn changes(&self) -> Vec<Change<'_>> {
        let Before { mac, promisc, mtu, allmulti, txqlen } = self.clone();
        let one = |change: Change<'static>| change;
        [
            mac.map(|mac| one(Change { mac: Some(mac), ..Change::default() })),
            promisc.map(|on| one(Change { promisc: Some(on), ..Change::default() })),
            mtu.map(|mtu| one(Change { mtu: Some(mtu), ..Change::default() })),
            allmulti.map(|on| one(Change { allmulti: Some(on), ..Change::default() })),
            txqlen.map(|len| one(Change { txqlen: Some(len), ..Change::default() })),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What was there first: a second `tuning` of the same chain sees what the first one has changed.
    fn first(self, earlier: Option<Before>) -> Before {
        let Some(earlier) = earlier else { return self };
        Before {
            mac: earlier.mac.or(self.mac),
            promisc: earlier.promisc.or(self.promisc),
            mtu: earlier.mtu.or(self.mtu),
            allmulti: earlier.allmulti.or(self.allmulti),
            txqlen: earlier.txqlen.or(self.txqlen),
        }
    }
}

impl Backup {
    pub(super) fn of(dir: &Path, id: &AttachmentId) -> Self {
        Backup { path: dir.join(file_name(id)), network: id.network.clone() }
    }

    /// Those of a network in `dir`, but for valid attachments'. Of a file that does not name its network, as the
    /// reference plugin writes it, nobody knows whose it is.
    pub(super) fn stale(dir: &Path, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<Self>, CniError> {
        let fail = |e: std::io::Error| CniError::new(Code::IO, format!("list {}: {e}", dir.display()));
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let keep: HashSet<String> = valid.iter().map(file_name).collect();
        let mut stale = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let backup = Backup { path: entry.path(), network: network.clone() };
            let kept = entry.file_name().to_str().is_none_or(|name| keep.contains(name));
            if !kept && backup.object().is_some_and(|o| o.str("network") == Some(network.as_str())) {
                stale.push(backup);
            }
        }
        Ok(stale)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, before: Before) -> Result<(), CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: String| CniError::new(Code::IO, format!("store the previous settings in {}: {e}", self.path.display()));
        if let Some(dir) = self.path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| fail(e.to_string()))?;
        }
        let before = before.first(self.read());
        let mut o = Object::new();
        o.set("network", self.network.as_str());
        if let Some(mac) = &before.mac {
            o.set("mac", mac.to_string());
        }
        if let Some(promisc) = before.promisc {
            o.set("promisc", promisc);
        }
        if let Some(mtu) = before.mtu {
            o.set("mtu", u64::from(mtu));
        }
        if let Some(allmulti) = before.allmulti {
            o.set("allmulti", allmulti);
        }
        if let Some(len) = before.txqlen {
            o.set("txQLen", u64::from(len));
        }
        let text = json::indented(&o, 1);
        file::write_atomic(&self.path, text.as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }

    /// Removes it; a file of that name that is no backup is somebody else's.
    pub(super) fn remove(&self) -> Result<(), CniError> {
        if self.path.symlink_metadata().is_ok() && self.read().is_none() {
            return Ok(());
        }
        file::remove(&self.path).map_err(|e| CniError::new(Code::IO, e.to_string()))
    }

    /// `None` if nothing was kept, or what was kept cannot be understood: DEL goes on without it.
    pub(super) fn read(&self) -> Option<Before> {
        let o = self.object()?;
        self.parse(&o)
    }

    /// The other network under whose name it was made.
    pub(super) fn of_other(&self) -> Option<NetworkName> {
        let network = NetworkName::parse(self.object()?.str("network")?).ok()?;
        (network != self.network).then_some(network)
    }

    fn parse(&self, o: &Object) -> Option<Before> {
        // Of another network's attachment of this name: what was refused because of it must not undo it.
        if o.str("network").is_some_and(|network| network != self.network.as_str()) {
            return None;
        }
        let number = |key: &str| match o.get(key) {
            Some(Value::Number(n)) => n.as_u64().and_then(|n| u32::try_from(n).ok()),
            _ => None,
        };
        Some(Before {
            mac: o.str("mac").and_then(|s| s.parse::<Mac>().ok()),
            promisc: o.get("promisc").and_then(Value::as_bool),
            mtu: number("mtu"),
            allmulti: o.get("allmulti").and_then(Value::as_bool),
            txqlen: number("txQLen"),
        })
    }

    fn object(&self) -> Option<Object> {
        object(&file::read(&self.path, MAX_FILE, Links::Refused).ok()?)
    }
}

fn object(bytes: &[u8]) -> Option<Object> {
    let Ok(Value::Object(o)) = json::parse(bytes) else { return None };
    let is_ours = o.iter().all(|(key, _)| KEYS.contains(&key));
    is_ours.then_some(o)
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(network) = NetworkName::parse("net") else { return };
    let backup = Backup { path: PathBuf::new(), network };
    object(bytes).and_then(|o| backup.parse(&o)).iter().for_each(|before| drop(before.changes()));
}

fn file_name(id: &AttachmentId) -> String {
    format!("{}_{}.json", id.container, id.ifname)
}
