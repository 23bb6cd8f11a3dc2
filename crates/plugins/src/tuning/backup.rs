//! What an interface was before it was changed: `<dataDir>/<container>_<interface>.json`.

use std::path::{Path, PathBuf};

use cni::{AttachmentId, CniError, Code, Mac};
use json::{Object, Value};
use linux::file::{self, Durability, Links};
use linux::link::Change;

/// Every key of the file.
const KEYS: [&str; 5] = ["mac", "promisc", "mtu", "allmulti", "txQLen"];

/// What such a file may have, in bytes: it has about a hundred.
const MAX_FILE: usize = 64 << 10;

/// The file of one attachment.
#[derive(Debug, Clone)]
pub(super) struct Backup {
    path: PathBuf,
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
        Backup { path: dir.join(format!("{}_{}.json", id.container, id.ifname)) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, before: Before) -> Result<(), CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: String| CniError::new(Code::IO, format!("keep what is tuned in {}: {e}", self.path.display()));
        if let Some(dir) = self.path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| fail(e.to_string()))?;
        }
        let before = before.first(self.read());
        let mut o = Object::new();
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
        let bytes = file::read(&self.path, MAX_FILE, Links::Refused).ok()?;
        let Ok(Value::Object(o)) = json::parse(&bytes) else { return None };
        if o.iter().any(|(key, _)| !KEYS.contains(&key)) {
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
}
