//! Sandboxes that their runtime has forgotten, though their namespaces are still there.
//!
//! A containerd before 1.7 that is killed while it makes a pod's sandbox knows nothing of it afterwards: no DEL ever comes, and
//! the namespace stays. What is gone is known from two sides, both of which have to say so, in two rounds:
//!
//! ```text
//!   processes   none has the namespace: a sandbox that lives has one, which holds its namespaces
//!   API server  its pod is gone, or has a sandbox that was made after this one
//! ```

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use attach::Record;
use cni::ContainerId;
use linux::NetnsId;

use crate::Agent;

impl Agent {
    /// Those of these sandboxes that are abandoned, as far as one look can tell.
    pub(crate) fn abandoned(&self, living: &[Record]) -> BTreeSet<ContainerId> {
        let suspects: Vec<&Record> = living.iter().filter(|record| self.has_no_pod(record, living)).collect();
        if suspects.is_empty() {
            return BTreeSet::new();
        }
        let Some(in_use) = namespaces_in_use() else { return BTreeSet::new() };
        suspects.into_iter().filter(|record| !in_use.contains(&record.netns_id)).map(|record| record.sandbox.clone()).collect()
    }

    fn has_no_pod(&self, record: &Record, living: &[Record]) -> bool {
        if self.cluster.synced().missing().is_some() || record.pod.uid.is_none() {
            return false;
        }
        let is_gone = self.cluster.pod(&record.pod.namespace, &record.pod.name).is_none_or(|pod| Some(&pod.uid) != record.pod.uid.as_ref());
        let is_newer = |other: &Record| other.pod.uid == record.pod.uid && other.is_made() && other.made_at > record.made_at;
        is_gone || living.iter().any(is_newer)
    }
}

/// The network namespace of every process; `None` if not all processes of the host are to be seen from here.
fn namespaces_in_use() -> Option<BTreeSet<NetnsId>> {
    // Without the host's processes (`hostPID`), a container's first process is its own.
    if std::process::id() == 1 {
        return None;
    }
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").ok()? {
        let path = entry.ok()?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        // The host's first process is in no pod, and may have rights that we have not, so that we may not look at it.
        if pid == "1" {
            continue;
        }
        match std::fs::metadata(path.join("ns/net")) {
            Ok(about) => {
                found.insert(NetnsId { dev: about.dev(), ino: about.ino() });
            }
            // It has ended meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
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
        let in_use = namespaces_in_use().unwrap();
        assert!(in_use.contains(&own));
        let alone = linux::Netns::unnamed().unwrap();
        assert!(!namespaces_in_use().unwrap().contains(&alone.id()), "nobody is in it");
    }
}
