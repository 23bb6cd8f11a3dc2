//! Sandboxes that their runtime has forgotten, though their namespaces are still there.
//!
//! A containerd before 1.7 that is killed while it makes a pod's sandbox knows nothing of it afterwards: no DEL ever comes, and
//! the namespace stays. What is gone is known from two sides, both of which have to say so, in two rounds:
//!
//! ```text
//!   processes   none has the namespace: a sandbox that lives has one, which holds its namespaces
//!   API server  its pod is gone, or has a sandbox that was made after this one
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use attach::{PodView, Record};
use cni::ContainerId;
use linux::{Netns, NetnsId};

use crate::Agent;

/// A sandbox that lives: what of its record all others' are compared with. A record has its networks too, and a node two hundred of them.
pub(crate) struct Living {
    pub(crate) sandbox: ContainerId,
    /// Without its annotations.
    pub(crate) pod: PodView,
    pub(crate) is_made: bool,
    pub(crate) made_at: Option<u64>,
    netns_id: NetnsId,
}

// === impl Living ===

impl From<Record> for Living {
    fn from(record: Record) -> Self {
        let (is_made, Record { sandbox, pod, made_at, netns_id, .. }) = (record.is_made(), record);
        Living { sandbox, pod: PodView { networks: None, default_network: None, ..pod }, is_made, made_at, netns_id }
    }
}

impl Agent {
    /// Those of these sandboxes that are abandoned, as far as one look can tell.
    pub(crate) fn abandoned(&self, living: &[Living]) -> BTreeSet<ContainerId> {
        let suspects: Vec<&Living> = living.iter().filter(|record| self.has_no_pod(record, living)).collect();
        if suspects.is_empty() {
            return BTreeSet::new();
        }
        let Some(in_use) = namespaces_in_use() else { return BTreeSet::new() };
        suspects.into_iter().filter(|record| !in_use.contains_key(&record.netns_id)).map(|record| record.sandbox.clone()).collect()
    }

    fn has_no_pod(&self, record: &Living, living: &[Living]) -> bool {
        if self.cluster.synced().missing().is_some() || record.pod.uid.is_none() {
            return false;
        }
        let is_gone = self.cluster.pod(&record.pod.namespace, &record.pod.name).is_none_or(|pod| Some(&pod.uid) != record.pod.uid.as_ref());
        let is_newer = |other: &Living| other.pod.uid == record.pod.uid && other.is_made && other.made_at > record.made_at;
        is_gone || living.iter().any(is_newer)
    }
}

/// Whether a namespace that its path does not lead to any more may still be there: of this boot, and with a process in it
/// or with processes that cannot be seen.
pub(crate) fn may_live(record: &Record) -> bool {
    let of_this_boot = linux::boot_id().is_ok_and(|boot| boot == record.boot);
    // Its number is given to the next namespace soon, its cookie to no other one.
    let is_it = |process: &PathBuf| match (Netns::open(process), record.netns_cookie) {
        (Ok(None), _) => false,
        (Ok(Some(netns)), Some(cookie)) => netns.cookie().is_ok_and(|own| own == Some(cookie)),
        _ => true,
    };
    of_this_boot && namespaces_in_use().is_none_or(|in_use| in_use.get(&record.netns_id).is_some_and(is_it))
}

/// The network namespaces that processes are in, each with where one of them has it; `None` if not all processes of the host are to be seen from here.
pub(crate) fn namespaces_in_use() -> Option<BTreeMap<NetnsId, PathBuf>> {
    // Without the host's processes (`hostPID`), a container's first process is its own.
    if std::process::id() == 1 {
        return None;
    }
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").ok()? {
        let path = entry.ok()?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        // The host's first process is in no pod, and may have rights that we have not, so that we may not look at it.
        if pid == "1" {
            continue;
        }
        let path = path.join("ns/net");
        match std::fs::metadata(&path) {
            Ok(about) => {
                found.insert(NetnsId { dev: about.dev(), ino: about.ino() }, path);
            }
            // It has ended meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            // Of one that ends between the look-up and this the kernel says so.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !Path::new("/proc").join(pid).exists() => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_namespace_of_a_process_is_in_use_and_no_other() {
        let own = linux::Netns::current().unwrap().id();
        // Where a process ends at the wrong moment nothing is known.
        let in_use = || (0..1000).find_map(|_| namespaces_in_use()).unwrap();
        assert!(in_use().contains_key(&own));
        let alone = linux::Netns::unnamed().unwrap();
        assert!(!in_use().contains_key(&alone.id()), "nobody is in it");
    }
}
