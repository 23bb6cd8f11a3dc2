//! The result cache: what an ADD was given and returned, for CHECK, DEL and GC.
//!
//! One file per attachment, `results/<network>-<container>-<ifname>`, in the reference library's format
//! (`cniCacheV1`), but written to the side and renamed, so that a crash leaves the old file or none.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, ContainerId, IfName, NetworkList, NetworkName, Version};
use json::{Object, Value};
use linux::file::{self, Durability, Links, ReadError};

use crate::{MadeBy, Runtime};

const KIND: &str = "cniCacheV1";

/// What a result of any version may have.
const RESULT_KEYS: [&str; 7] = ["cniVersion", "interfaces", "ips", "routes", "dns", "ip4", "ip6"];

/// What a file may have, in bytes. A configuration of [`json::MAX_INPUT`] in base64 and a result of that size fit in.
const MAX_FILE: usize = 4 * json::MAX_INPUT;

/// The directory of cached results.
#[derive(Debug, Clone)]
pub struct Cache {
    results: PathBuf,
}

/// One cached ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct Cached {
    /// The attachment.
    pub id: AttachmentId,
    /// The namespace's path at ADD; empty if it was not told.
    pub netns: String,
    /// The configuration list as it was.
    pub config: Vec<u8>,
    /// `CNI_ARGS` of the ADD.
    pub args: CniArgs,
    /// `runtimeConfig` of the ADD.
    pub capability_args: Object,
    /// Who made it, where that was kept: the reference library does not.
    pub made_by: MadeBy,
    /// The result; `None` if it is missing or cannot be read any more.
    pub result: Option<AddResult>,
}

/// A cache that cannot be written or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step} {}: {reason}", path.display())]
pub struct CacheError {
    /// What failed.
    pub step: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl From<CacheError> for CniError {
    fn from(e: CacheError) -> Self {
        CniError::new(Code::IO, format!("result cache: {e}"))
    }
}

// === impl Cache ===

impl Cache {
    /// The cache below a directory, by default `/var/lib/cni`.
    pub fn new(dir: &Path) -> Self {
        Cache { results: dir.join("results") }
    }

    /// The file of an attachment.
    pub fn path(&self, id: &AttachmentId) -> PathBuf {
        self.results.join(format!("{}-{}-{}", id.network, id.container, id.ifname))
    }

    /// Makes sure that a later [`Cache::write`] has a directory to write to.
    ///
    /// # Errors
    /// [`CacheError`]
    pub fn prepare(&self) -> Result<(), CacheError> {
        let made = linux::file::make_own_dir(&self.results);
        made.map_err(|e| CacheError { step: "create", path: self.results.clone(), reason: e.to_string() })
    }

    /// Keeps an ADD.
    ///
    /// # Errors
    /// [`CacheError`]
    pub fn write(
        &self,
        id: &AttachmentId,
        list: &NetworkList,
        runtime: &Runtime,
        result: &AddResult,
        made_by: &MadeBy,
    ) -> Result<(), CacheError> {
        let path = self.path(id);
        let fail = |reason: String| CacheError { step: "write", path: path.clone(), reason };
        let mut o = Object::new();
        o.set("kind", KIND);
        o.set("containerId", id.container.as_str());
        o.set("config", STANDARD.encode(&list.source));
        o.set("ifName", id.ifname.as_str());
        o.set("networkName", id.network.as_str());
        if let Some(netns) = &runtime.netns {
            o.set("netns", netns.to_string_lossy().into_owned());
        }
        if !runtime.args.is_empty() {
            o.set("cniArgs", runtime.args.iter().map(|(k, v)| Value::from(vec![k, v])).collect::<Vec<_>>());
        }
        if !runtime.capability_args.is_empty() {
            o.set("capabilityArgs", runtime.capability_args.clone());
        }
        o.set("result", result.to_value(list.version).map_err(|e| fail(e.to_string()))?);
        o.set(MadeBy::KEY, made_by.to_object());
        let text = json::compact(&o);
        if text.len() > MAX_FILE {
            return Err(fail(format!("{} bytes are more than the maximum of {MAX_FILE}", text.len())));
        }
        file::write_atomic(&path, text.as_bytes(), 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))
    }

    /// The ADD of an attachment; `None` if there is no file, or one that cannot be understood at all: a writer that is
    /// not careful may have been killed.
    ///
    /// # Errors
    /// [`CacheError`] if it cannot even be read.
    pub fn read(&self, id: &AttachmentId) -> Result<Option<Cached>, CacheError> {
        let Some(bytes) = read(&self.path(id))? else { return Ok(None) };
        Ok(match decode(&bytes) {
            Ok(Some(cached)) => Some(cached).filter(|c| c.id == *id),
            Ok(None) | Err(_) => legacy(&bytes, id),
        })
    }

    /// Whether the file belongs to another attachment: names may have a `-` in them, so `a-b` and `c` share a file with
    /// `a` and `b-c`.
    pub fn is_anothers(&self, id: &AttachmentId) -> bool {
        let cached = read(&self.path(id)).ok().flatten().and_then(|bytes| decode(&bytes).ok().flatten());
        cached.is_some_and(|c| c.id != *id)
    }

    /// Forgets an ADD; one that is not there is forgotten already, and another attachment's stays.
    ///
    /// # Errors
    /// [`CacheError`]
    pub fn remove(&self, id: &AttachmentId) -> Result<(), CacheError> {
        if self.is_anothers(id) {
            return Ok(());
        }
        let path = self.path(id);
        file::remove(&path).map_err(|e| CacheError { step: "remove", path, reason: e.to_string() })
    }

    /// Every cached ADD of a network, by file name, and what could not be read. As in the reference library a file
    /// that does not say whose it is belongs to nobody: names may have a `-` in them, so its own does not tell.
    pub fn of_network(&self, network: &NetworkName) -> (Vec<Cached>, Vec<CacheError>) {
        let prefix = format!("{network}-");
        self.find(|file| file.starts_with(&prefix), |_, id| id.network == *network, |_| false)
    }

    /// Every cached ADD of a container, as [`Cache::of_network`].
    pub fn of_container(&self, container: &ContainerId) -> (Vec<Cached>, Vec<CacheError>) {
        let part = format!("-{container}-");
        self.find(|file| file.contains(&part), |_, id| id.container == *container, |_| false)
    }

    /// Every cached ADD of this boot, as [`Cache::of_network`]: what is older the kernel has forgotten. A copy of a file, which no
    /// DEL would remove, is none. A file of this boot that is cut off or does not say whose it is is an error: it may be the only trace of a
    /// container that runs. The reference library writes in place, so that its writer may also be in the middle.
    pub fn of_this_boot(&self) -> (Vec<Cached>, Vec<CacheError>) {
        let is_of_now = |path: &Path| !linux::boot::is_of_an_earlier(path);
        // What begins with a dot is one of ours before it gets its name: no network's name begins so.
        self.find(|file| !file.starts_with('.'), |path, id| path == self.path(id) && is_of_now(path), is_of_now)
    }

    /// `needs_owner`: whether a file that does not say whose it is is an error.
    fn find(
        &self,
        may_be: impl Fn(&str) -> bool,
        is: impl Fn(&Path, &AttachmentId) -> bool,
        needs_owner: impl Fn(&Path) -> bool,
    ) -> (Vec<Cached>, Vec<CacheError>) {
        let fail = |path: &Path, e: std::io::Error| CacheError { step: "read", path: path.to_owned(), reason: e.to_string() };
        let entries = match std::fs::read_dir(&self.results) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Default::default(),
            Err(e) => return (Vec::new(), vec![fail(&self.results, e)]),
            Ok(entries) => entries,
        };
        let (mut paths, mut errors) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                Ok(entry) if may_be(&entry.file_name().to_string_lossy()) => paths.push(entry.path()),
                Ok(_) => {}
                Err(e) => errors.push(fail(&self.results, e)),
            }
        }
        paths.sort();
        let mut cached = Vec::new();
        for path in paths {
            match read(&path) {
                Ok(None) => {}
                Ok(Some(bytes)) => match decode(&bytes) {
                    Ok(one) => cached.extend(one.filter(|c| is(&path, &c.id))),
                    Err(reason) if needs_owner(&path) => errors.push(CacheError { step: "read", path, reason }),
                    Err(_) => {}
                },
                Err(e) => errors.push(e),
            }
        }
        (cached, errors)
    }
}

/// `None` if there is no file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, CacheError> {
    match file::read(path, MAX_FILE, Links::Refused) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::NotFound { .. }) => Ok(None),
        Err(e) => Err(CacheError { step: "read", path: path.to_owned(), reason: e.to_string() }),
    }
}

/// `None` for an object of another kind, such as a bare result.
///
/// # Errors
/// Why it does not say whose it is.
fn decode(bytes: &[u8]) -> Result<Option<Cached>, String> {
    let value = json::parse_at_most(bytes, MAX_FILE).map_err(|e| format!("it is not a whole cached result: {e}"))?;
    let o = value.as_object().ok_or("it is not a JSON object")?;
    if o.str("kind") != Some(KIND) {
        return Ok(None);
    }
    let text = |key: &str| o.str(key).ok_or_else(|| format!("it has no {key:?}"));
    let id = AttachmentId {
        network: NetworkName::parse(text("networkName")?).map_err(|e| e.to_string())?,
        container: ContainerId::parse(text("containerId")?).map_err(|e| e.to_string())?,
        ifname: IfName::parse(text("ifName")?).map_err(|e| e.to_string())?,
    };
    let config = STANDARD.decode(o.str("config").unwrap_or_default()).unwrap_or_default();
    let mut args = CniArgs::default();
    for pair in o.get("cniArgs").and_then(Value::as_array).unwrap_or_default() {
        if let [Value::String(k), Value::String(v)] = pair.as_array().unwrap_or_default() {
            args.push(k, v);
        }
    }
    Ok(Some(Cached {
        id,
        netns: o.str("netns").unwrap_or_default().to_owned(),
        config,
        args,
        capability_args: o.object("capabilityArgs").cloned().unwrap_or_default(),
        made_by: MadeBy::read(o),
        result: o.get("result").and_then(|r| AddResult::read(r, Version::V0_1_0).ok()).map(|(r, _)| r),
    }))
}

/// Before 0.7 the reference library kept the bare result. Every key of a result may be missing, so that any object would
/// be one: a file of another kind, or one with none of the keys, is not.
fn legacy(bytes: &[u8], id: &AttachmentId) -> Option<Cached> {
    let value = json::parse(bytes).ok()?;
    let o = value.as_object()?;
    if o.get("kind").is_some() || RESULT_KEYS.iter().all(|key| o.get(key).is_none()) {
        return None;
    }
    let (result, _) = AddResult::read(&value, Version::V0_1_0).ok()?;
    let empty = (String::new(), Vec::new(), CniArgs::default(), Object::new());
    let (netns, config, args, capability_args) = empty;
    Some(Cached { id: id.clone(), netns, config, args, capability_args, made_by: MadeBy::default(), result: Some(result) })
}
