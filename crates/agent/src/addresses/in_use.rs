//! The addresses that are in the namespaces of this machine.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use linux::{Netlink, Netns, NetnsId};

use crate::abandoned::namespaces_in_use;

/// Namespaces that have names, besides those with processes.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// What a look at all namespaces but the one that this thread is in has brought.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// Each with the namespaces that have it.
    pub(super) addresses: HashMap<IpAddr, Vec<PathBuf>>,
    /// Whether everything could be seen.
    pub(super) complete: bool,
}

// === impl InUse ===

impl InUse {
    pub(super) fn look() -> Self {
        let mut seen = InUse { complete: true, ..InUse::default() };
        for path in seen.namespaces().into_values() {
            let found = match Netns::open(&path) {
                Ok(Some(netns)) => netns.enter(|inside| Netlink::open(inside).ok()?.addresses(None).ok()).ok().flatten(),
                // It has ended meanwhile.
                Ok(None) | Err(linux::NetnsError::NotANamespace { .. }) => Some(Vec::new()),
                Err(_) => None,
            };
            seen.complete &= found.is_some();
            for address in found.unwrap_or_default() {
                let places = seen.addresses.entry(address.net.addr()).or_default();
                // Once for each namespace, on however many interfaces.
                if places.last() != Some(&path) {
                    places.push(path.clone());
                }
            }
        }
        seen
    }

    /// Whether an address is somewhere, or may be.
    pub(super) fn may_have(&self, address: IpAddr) -> bool {
        !self.complete || self.addresses.contains_key(&address)
    }

    fn namespaces(&mut self) -> BTreeMap<NetnsId, PathBuf> {
        let with_processes = namespaces_in_use();
        self.complete &= with_processes.is_some();
        let mut spaces = with_processes.unwrap_or_default();
        let named: Vec<PathBuf> = NAMED.into_iter().flat_map(|dir| self.entries(Path::new(dir))).collect();
        for entry in named {
            match Netns::open(&entry) {
                Ok(Some(netns)) => drop(spaces.entry(netns.id()).or_insert(entry)),
                // What is left of one that is gone.
                Ok(None) | Err(linux::NetnsError::NotANamespace { .. }) => {}
                Err(_) => self.complete = false,
            }
        }
        match Netns::current() {
            Ok(own) => drop(spaces.remove(&own.id())),
            Err(_) => self.complete = false,
        }
        spaces
    }

    fn entries(&mut self, dir: &Path) -> Vec<PathBuf> {
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            entries => entries.and_then(Iterator::collect::<Result<Vec<_>, _>>),
        };
        self.complete &= entries.is_ok();
        entries.unwrap_or_default().into_iter().map(|entry| entry.path()).collect()
    }
}
