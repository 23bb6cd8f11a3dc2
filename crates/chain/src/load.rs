//! Networks from configuration directories, by the reference library's rules.

use std::path::{Path, PathBuf};

use cni::{CniError, Code, ConfigError, NetworkList, NetworkName, Version};
use json::Object;
use linux::file::{self, Links};

/// A configuration that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("read {}: {reason}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file is no configuration.
    #[error("{}: {source}", path.display())]
    Config {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: ConfigError,
    },
    /// There is no configuration file at all.
    #[error("no network configuration in {}: it has no .conflist, .conf or .json file", dir.display())]
    Empty {
        /// Where they were looked for.
        dir: PathBuf,
    },
    /// No configuration has that name.
    #[error("no network configuration named {name:?} in {}: it has {there}{unreadable}", dir.display())]
    NotFound {
        /// The name.
        name: String,
        /// Where it was looked for.
        dir: PathBuf,
        /// The names that are there.
        there: String,
        /// Files that could not be read, as a further clause; empty if none.
        unreadable: String,
    },
    /// A list without plugins, inlined or beside it.
    #[error("{}: no plugin configs found: neither \"plugins\" nor {}/*.conf has one", path.display(), beside.display())]
    NoPlugins {
        /// The list.
        path: PathBuf,
        /// The directory for plugin files.
        beside: PathBuf,
    },
}

impl From<LoadError> for CniError {
    fn from(e: LoadError) -> Self {
        match e {
            LoadError::Config { path, source } => CniError::from(source).within(path.display()),
            LoadError::Read { .. } => CniError::new(Code::IO, e.to_string()),
            _ => CniError::new(Code::INVALID_CONFIG, e.to_string()),
        }
    }
}

/// Finds a network by the `name` inside the files of a directory: `*.conflist` in lexical order, then `*.conf` and
/// `*.json`; the first of that name wins. A file that is broken hides no other; it is told of if the name is not found.
///
/// # Errors
/// [`LoadError`] with what is there.
pub fn load(dir: &Path, name: &str) -> Result<NetworkList, LoadError> {
    let files = files(dir)?;
    if files.is_empty() {
        return Err(LoadError::Empty { dir: dir.to_owned() });
    }
    let (mut there, mut unreadable) = (Vec::new(), Vec::new());
    for path in files {
        match read(&path).and_then(|bytes| NetworkList::name_of(&bytes).map_err(|source| LoadError::Config { path: path.clone(), source }))
        {
            Ok(found) if found == name && !name.is_empty() => return from_file(&path, None),
            Ok(found) if found.is_empty() => {}
            Ok(found) => there.push(found),
            Err(e) => unreadable.push(e.to_string()),
        }
    }
    let there = if there.is_empty() { "none with a name".to_owned() } else { cni::near_names(name, there.iter().map(String::as_str)) };
    let unreadable = if unreadable.is_empty() { String::new() } else { format!("; not readable: {}", unreadable.join("; ")) };
    Err(LoadError::NotFound { name: name.to_owned(), dir: dir.to_owned(), there, unreadable })
}

/// Loads one file of either kind. Plugin files `<directory>/<name>/*.conf` are appended to a list's own plugins,
/// unless the list says `loadOnlyInlinedPlugins`. A name that is missing is taken from `named`.
///
/// # Errors
/// [`LoadError`] with the file that is bad.
pub fn from_file(path: &Path, named: Option<&NetworkName>) -> Result<NetworkList, LoadError> {
    let bytes = read(path)?;
    let bad = |source| LoadError::Config { path: path.to_owned(), source };
    let mut list = NetworkList::parse(&bytes, named).map_err(bad)?;
    for file in plugin_files(path, &list)? {
        list.append(&read(&file)?).map_err(|source| LoadError::Config { path: file.clone(), source })?;
    }
    if list.plugins.is_empty() {
        return Err(LoadError::NoPlugins { path: path.to_owned(), beside: directory_beside(path, &list) });
    }
    Ok(list)
}

/// What a list depends on besides its own file: the directory of plugins beside that, whether or not it is there, and its files.
/// Nothing for a configuration that takes none.
pub fn beside(path: &Path, list: &NetworkList) -> Vec<PathBuf> {
    match takes_plugins(path, list) {
        true => [vec![directory_beside(path, list)], plugin_files(path, list).unwrap_or_default()].concat(),
        false => Vec::new(),
    }
}

fn takes_plugins(path: &Path, list: &NetworkList) -> bool {
    path.extension().is_some_and(|e| e == "conflist") && !list.load_only_inlined_plugins
}

fn directory_beside(path: &Path, list: &NetworkList) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).join(list.name.as_str())
}

fn plugin_files(path: &Path, list: &NetworkList) -> Result<Vec<PathBuf>, LoadError> {
    match takes_plugins(path, list) {
        true => with_extensions(&directory_beside(path, list), &["conf"]),
        false => Ok(Vec::new()),
    }
}

/// A network of which there is no file: its plugins are the files of `<directory>/<name>/*.conf`, after `passthru`, which gives
/// the first of them a result to change, as with Multus. `None` if there are none.
///
/// # Errors
/// [`LoadError`] with the file that is bad.
pub fn from_directory(dir: &Path, name: &str, version: Version) -> Result<Option<NetworkList>, LoadError> {
    let beside = dir.join(name);
    let mut head = Object::new();
    head.set("cniVersion", version.as_str());
    head.set("name", name);
    let bad = |path: &Path| {
        let path = path.to_owned();
        |source| LoadError::Config { path, source }
    };
    let mut list = NetworkList::parse(json::compact(&head).as_bytes(), None).map_err(bad(&beside))?;
    let files = with_extensions(&beside, &["conf"])?;
    if files.is_empty() {
        return Ok(None);
    }
    list.append(br#"{"type":"passthru"}"#).map_err(bad(&beside))?;
    for file in files {
        list.append(&read(&file)?).map_err(bad(&file))?;
    }
    Ok(Some(list))
}

/// All configuration files of a directory, lists first.
fn files(dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = with_extensions(dir, &["conflist"])?;
    files.extend(with_extensions(dir, &["conf", "json"])?);
    Ok(files)
}

fn with_extensions(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |e: std::io::Error| LoadError::Read { path: dir.to_owned(), reason: e.to_string() };
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(fail)?.path();
        let fits = path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e));
        if fits && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    // One who arranges such a directory may do it with links, as a mounted ConfigMap does.
    file::read(path, json::MAX_INPUT, Links::Followed).map_err(|e| LoadError::Read { path: path.to_owned(), reason: e.to_string() })
}
