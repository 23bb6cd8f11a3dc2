//! Which plugins the configurations of a directory name: they are needed there, whoever's they are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use json::{Object, Value};
use linux::file::{self, Links};

/// Every configuration that a runtime would look at, in its order.
pub(super) fn configurations(dir: &Path) -> Vec<PathBuf> {
    let is_one = |path: &Path| path.extension().is_some_and(|e| e == "conf" || e == "conflist" || e == "json");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_one(path) && path.is_file()).collect();
    files.sort();
    files
}

/// The types that they name: of plugins, of their IPAM and of what they delegate to. A file that cannot be read names none.
pub(super) fn named_in(dir: &Path) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    for path in configurations(dir).into_iter().filter(|path| !path.ends_with(super::FILE)) {
        let read = file::read(&path, json::MAX_INPUT, Links::Followed).ok();
        if let Some(value) = read.and_then(|bytes| json::parse(&bytes).ok()) {
            collect(&value, &mut types);
        }
    }
    types
}

fn collect(value: &Value, types: &mut BTreeSet<String>) {
    if let Some(list) = value.as_array() {
        list.iter().for_each(|value| collect(value, types));
    }
    if let Some(object) = value.as_object() {
        types.extend(object.str("type").map(str::to_owned));
        Object::iter(object).for_each(|(_, value)| collect(value, types));
    }
}
