//! What was delegated: `<dataDir>/<container>`, the delegate's configuration as the plugin in Go keeps it.
//!
//! There one container has one such file. A second network of the same container has `<container>@<interface>` here, and
//! each file says in a key of its own which interface it is for.

use std::path::{Path, PathBuf};

use cni::{AttachmentId, CniError, Code, Config, NetworkName};
use json::{Object, Value};
use linux::file::{self, Durability, Links};

/// Our own key. A delegate knows none of this name, and gets none.
const INTERFACE: &str = "netloom.interface";
/// What such a file may have, in bytes: what a configuration may.
const MAX_FILE: usize = json::MAX_INPUT;

/// The file of one attachment.
#[derive(Debug, Clone)]
pub(super) struct SavedDelegate {
    path: PathBuf,
}

impl SavedDelegate {
    /// The file that a new attachment is to have: the one that it has, if it is there already.
    pub(super) fn for_new(dir: &Path, id: &AttachmentId) -> Result<Self, CniError> {
        use std::os::unix::fs::DirBuilderExt;
        let fail = |e: std::io::Error| CniError::new(Code::IO, format!("dataDir: create {}: {e}", dir.display()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
        if let Some(kept) = Self::find(dir, id) {
            return Ok(kept);
        }
        let [own, shared] = Self::places(dir, id);
        let taken = shared.object().is_some_and(|o| !is_of(&o, id));
        Ok(if taken { own } else { shared })
    }

    /// The file of an attachment, where there is one.
    pub(super) fn find(dir: &Path, id: &AttachmentId) -> Option<Self> {
        Self::places(dir, id).into_iter().find(|kept| kept.object().is_some_and(|o| is_of(&o, id)))
    }

    fn places(dir: &Path, id: &AttachmentId) -> [Self; 2] {
        let at = |name: String| SavedDelegate { path: dir.join(name) };
        // No container's ID has an `@`.
        [at(format!("{}@{}", id.container, id.ifname)), at(id.container.to_string())]
    }

    /// Those of a network, but for valid attachments'.
    pub(super) fn stale(dir: &Path, network: &NetworkName, valid: &[AttachmentId]) -> Result<Vec<Self>, CniError> {
        let fail = |e: std::io::Error| CniError::new(Code::IO, format!("list {}: {e}", dir.display()));
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        let mut stale = Vec::new();
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let Some(container) = name.to_str().and_then(|name| name.split('@').next()) else { continue };
            let kept = SavedDelegate { path: entry.path() };
            let Some(object) = kept.object().filter(|o| o.str("name") == Some(network.as_str())) else { continue };
            if !valid.iter().any(|id| id.container.as_str() == container && is_of(&object, id)) {
                stale.push(kept);
            }
        }
        Ok(stale)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&self, id: &AttachmentId, config: &Config) -> Result<(), CniError> {
        let mut object = config.raw().clone();
        object.set(INTERFACE, id.ifname.as_str());
        self.write_text(json::compact(&object).as_bytes())
    }

    fn write_text(&self, text: &[u8]) -> Result<(), CniError> {
        let fail = |e: file::WriteError| CniError::new(Code::IO, format!("store the delegated configuration: {e}"));
        file::write_atomic(&self.path, text, 0o600, Durability::Volatile).map_err(fail)
    }

    /// What the file says now, `None` if there is none.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        file::read(&self.path, MAX_FILE, Links::Refused).ok()
    }

    /// The file as it was before [`SavedDelegate::write`].
    pub(super) fn put_back(&self, before: Option<&[u8]>) -> Result<(), CniError> {
        before.map_or_else(|| self.remove(), |text| self.write_text(text))
    }

    /// `None` where it cannot be understood.
    pub(super) fn read(&self) -> Option<Config> {
        let mut object = self.object()?;
        object.remove(INTERFACE);
        Config::from_object(object).ok()
    }

    pub(super) fn remove(&self) -> Result<(), CniError> {
        file::remove(&self.path).map_err(|e| CniError::new(Code::IO, e.to_string()))
    }

    fn object(&self) -> Option<Object> {
        match json::parse(&self.text()?) {
            Ok(Value::Object(object)) => Some(object),
            _ => None,
        }
    }
}

/// Whether a file is an attachment's, whose container's ID is its name. The plugin in Go does not say which interface.
fn is_of(object: &Object, id: &AttachmentId) -> bool {
    object.str("name") == Some(id.network.as_str()) && object.str(INTERFACE).is_none_or(|ifname| ifname == id.ifname.as_str())
}
