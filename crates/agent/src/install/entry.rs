//! The runtime's configuration: the one file by which a runtime comes to us.

use std::path::{Path, PathBuf};

use cni::{NetworkList, Version};
use json::Object;
use linux::file::{self, Durability, Links};

use super::{InstallError, Places, io};

/// Its name: runtimes take the first file of their directory, in lexical order.
pub const FILE: &str = "00-netloom.conflist";
/// Name of the network that a runtime sees, and type of its plugin.
const NAME: &str = "netloom";
/// What runtimes may offer a default network: declared as long as nobody knows what it takes.
const OFFERED: [&str; 4] = ["bandwidth", "dns", "ipRanges", "portMappings"];
/// The version that every runtime in use can read.
const VERSION: Version = Version::V1_0_0;
/// What a runtime may choose from (SPEC 1.1.0); before 0.3.1 there were no lists that could be deleted in order.
const VERSIONS: [Version; 4] = [Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];
/// A configuration that is larger is nobody's.
const MAX_FILE: usize = 1 << 20;

/// What the runtime is to read: one plugin, which declares what the plugins of the default network take of a runtime
/// (`portMappings`, ...), so that it is sent to us, and on to them. Without a default network, it declares all.
pub fn runtime_config(places: &Places, default: Option<&NetworkList>) -> Object {
    let mut taken: Vec<&str> = match default {
        Some(list) => list.plugins.iter().flat_map(|plugin| plugin.capabilities()).collect(),
        None => OFFERED.to_vec(),
    };
    taken.sort_unstable();
    taken.dedup();
    let mut plugin = Object::new();
    plugin.set("type", NAME);
    if !taken.is_empty() {
        let mut capabilities = Object::new();
        taken.iter().for_each(|name| capabilities.set(name, true));
        plugin.set("capabilities", capabilities);
    }
    if places.socket != Path::new(wire::SOCKET) {
        plugin.set("agent", places.socket.to_string_lossy().into_owned());
    }
    if let Some(wait) = places.agent_wait {
        plugin.set("agentWait", format!("{}ms", wait.as_millis()));
    }
    if let Some(dir) = &places.spool {
        plugin.set("spool", dir.to_string_lossy().into_owned());
    }
    let mut list = Object::new();
    list.set("cniVersion", places.version.unwrap_or(VERSION).as_str());
    // One that was chosen is meant.
    let allowed = |version: &&Version| places.version.is_none_or(|highest| **version <= highest);
    list.set("cniVersions", VERSIONS.iter().filter(allowed).map(|version| version.as_str()).collect::<Vec<_>>());
    list.set("name", NAME);
    list.set("plugins", vec![plugin]);
    list
}

/// Writes it, unless it is there. Whether it was written.
pub(super) fn write(places: &Places, default: Option<&NetworkList>) -> Result<bool, InstallError> {
    let text = json::indented(&runtime_config(places, default), 2) + "\n";
    let path = places.entry();
    if is_there(places, text.as_bytes()) {
        return Ok(false);
    }
    if places.dedicated {
        std::fs::create_dir_all(&places.config_dir).map_err(|e| io("make", &places.config_dir, &e))?;
    }
    let _one_writer = super::binary::lock(&places.config_dir)?;
    file::write_atomic(&path, text.as_bytes(), 0o600, Durability::Durable).map_err(|e| io(e.step, &e.path, &e.errno))?;
    Ok(true)
}

fn is_there(places: &Places, text: &[u8]) -> bool {
    file::read(&places.entry(), MAX_FILE, Links::Refused).is_ok_and(|there| there == text)
}

/// Takes it away: from now on the runtime uses the next one. Whether it was there.
pub(super) fn remove(places: &Places) -> Result<bool, InstallError> {
    let path = places.entry();
    if !places.config_dir.is_dir() {
        return Ok(false);
    }
    let _one_writer = super::binary::lock(&places.config_dir)?;
    let there = path.symlink_metadata().is_ok();
    file::remove(&path).map_err(|e| io(e.step, &e.path, &e.errno))?;
    file::sync_folder(&path).map_err(|e| io(e.step, &e.path, &e.errno))?;
    Ok(there)
}

/// Files that the runtime prefers to ours, in its order.
pub(crate) fn before_ours(dir: &Path) -> Vec<PathBuf> {
    let mut before = super::network_types::configurations(dir);
    before.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes() < FILE.as_bytes()));
    before
}

/// What a person should know of such a file.
pub(super) fn is_before(path: &Path) -> String {
    format!("{} sorts before {FILE}: the runtime uses it instead of Netloom's", path.display())
}
