//! What a borrowed device was before: `<borrowed>/<container>_<interface>.json`.
//!
//! It need not outlive a reboot, after which a device is as its driver and the host's own programs make it.

use std::path::{Path, PathBuf};

use cni::{AttachmentId, CniError, Code, Config, Mac};
use json::{Object, Value};
use linux::file::{self, Durability, Links};
use linux::{Link, Netns};

/// What such a file may have, in bytes: it has about three hundred.
const MAX_FILE: usize = 64 << 10;

/// The file of one attachment.
#[derive(Debug, Clone)]
pub(super) struct LoanFile {
    path: PathBuf,
}

/// What is to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loan {
    /// Who has it.
    pub(super) id: AttachmentId,
    /// Its name on the host.
    pub(super) device: String,
    pub(super) group: u32,
    pub(super) alias: String,
    pub(super) up: bool,
    pub(super) mtu: u32,
    pub(super) mac: Option<Mac>,
    /// Where it was moved to.
    pub(super) netns: PathBuf,
}

// === impl Loan ===

impl Loan {
    /// `link` as it is now. What an attachment of this very name left on it, which nobody cleared up, counts for nothing.
    pub(super) fn of(link: &Link, id: &AttachmentId, own_group: u32, netns: &Netns) -> Self {
        Loan {
            id: id.clone(),
            device: link.name.clone(),
            group: if link.group == own_group { 0 } else { link.group },
            alias: link.alias.clone().unwrap_or_default(),
            up: link.flags.up(),
            mtu: link.mtu,
            mac: link.mac.clone(),
            netns: netns.path().to_owned(),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let Ok(Value::Object(o)) = json::parse(bytes) else { return None };
        let number = |key: &str| match o.get(key) {
            Some(Value::Number(n)) => n.as_u64().and_then(|n| u32::try_from(n).ok()),
            _ => None,
        };
        Some(Loan {
            id: AttachmentId {
                network: o.str("network")?.parse().ok()?,
                container: o.str("container")?.parse().ok()?,
                ifname: o.str("ifname")?.parse().ok()?,
            },
            device: o.str("device")?.to_owned(),
            group: number("group")?,
            alias: o.str("alias").unwrap_or_default().to_owned(),
            up: o.get("up").and_then(Value::as_bool)?,
            mtu: number("mtu")?,
            mac: o.str("mac").and_then(|s| s.parse().ok()),
            netns: o.str("netns")?.into(),
        })
    }

    fn print(&self) -> String {
        let mut o = Object::new();
        o.set("network", self.id.network.as_str());
        o.set("container", self.id.container.as_str());
        o.set("ifname", self.id.ifname.as_str());
        o.set("device", self.device.as_str());
        o.set("group", u64::from(self.group));
        o.set("alias", self.alias.as_str());
        o.set("up", self.up);
        o.set("mtu", u64::from(self.mtu));
        if let Some(mac) = &self.mac {
            o.set("mac", mac.to_string());
        }
        o.set("netns", self.netns.to_string_lossy().into_owned());
        json::indented(&o, 1)
    }
}

// === impl LoanFile ===

impl LoanFile {
    pub(super) fn of(dir: &Path, id: &AttachmentId) -> Self {
        LoanFile { path: dir.join(format!("{}_{}.json", id.container, id.ifname)) }
    }

    /// Those that can be read in `dir`, with what is in them.
    pub(super) fn all(dir: &Path) -> Result<Vec<(Self, Loan)>, CniError> {
        let fail = |e: std::io::Error| CniError::new(Code::IO, format!("list {}: {e}", dir.display()));
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let file = LoanFile { path: entry.map_err(fail)?.path() };
            // A file that is being written has no name that ends so.
            let is_whole = file.path.extension().is_some_and(|e| e == "json");
            if let Some(loan) = file.read().filter(|_| is_whole) {
                all.push((file, loan));
            }
        }
        Ok(all)
    }

    /// Those of a network whose attachments are not in `valid`.
    pub(super) fn stale(dir: &Path, config: &Config, valid: &[AttachmentId]) -> Result<Vec<(Self, Loan)>, CniError> {
        let mut all = LoanFile::all(dir)?;
        all.retain(|(_, loan)| loan.id.network == config.network && !valid.contains(&loan.id));
        Ok(all)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, loan: &Loan) -> Result<(), CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: String| CniError::new(Code::IO, format!("keep what {} was in {}: {e}", loan.device, self.path.display()));
        if let Some(dir) = self.path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| fail(e.to_string()))?;
        }
        file::write_atomic(&self.path, loan.print().as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }

    /// `None` if nothing was kept, or what was kept cannot be understood: DEL goes on with what the device itself tells.
    pub(super) fn read(&self) -> Option<Loan> {
        Loan::parse(&file::read(&self.path, MAX_FILE, Links::Refused).ok()?)
    }

    pub(super) fn remove(&self) -> Result<(), CniError> {
        file::remove(&self.path).map_err(|e| CniError::new(Code::IO, e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = AttachmentId { network: "net".parse().unwrap(), container: "c1".parse().unwrap(), ifname: "eth0".parse().unwrap() };
        let loan = Loan {
            id,
            device: "ens5".into(),
            group: 7,
            alias: "uplink \"1\"".into(),
            up: true,
            mtu: 9000,
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            netns: "/run/netns/c1".into(),
        };
        assert_eq!(Loan::parse(loan.print().as_bytes()), Some(loan.clone()));
        let without = Loan { mac: None, up: false, alias: String::new(), ..loan };
        assert_eq!(Loan::parse(without.print().as_bytes()), Some(without));
        for bad in ["", "{}", "[]", "{\"network\":\"net\"}"] {
            assert_eq!(Loan::parse(bad.as_bytes()), None);
        }
    }
}
