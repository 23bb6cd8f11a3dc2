//! What an agent knew last of its node's part of the network: a node that starts while its API server is away has it at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::{CniError, NetworkList};
use ipnet::IpNet;
use linux::file::{self, Durability, Links, ReadError};
use serde::{Deserialize, Serialize};

use super::list;

/// More than the file ever has.
const MAX_FILE: usize = 64 << 10;
/// The name of the file in `stateDir`.
const FILE: &str = "cluster-network.json";

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Kept {
    /// What pods get addresses of.
    pub(crate) ranges: Vec<IpNet>,
    /// What pods got addresses of before: of each, one may still have an address.
    pub(crate) former: Vec<IpNet>,
    /// What pods' links get.
    pub(crate) mtu: Option<u32>,
}

// === impl Kept ===

impl Kept {
    /// What is there; nothing, with the reason, if it cannot be read.
    pub(crate) fn read(state_dir: &Path) -> (Self, Option<String>) {
        let path = path(state_dir);
        let read = match file::read(&path, MAX_FILE, Links::Refused) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display())),
            Err(ReadError::NotFound { .. }) => Ok(Kept::default()),
            Err(e) => Err(e.to_string()),
        };
        read.map_or_else(|why| (Kept::default(), Some(why)), |kept| (kept, None))
    }

    /// Writes it, on the disk when this returns.
    pub(crate) fn write(&self, state_dir: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        file::write_atomic(&path(state_dir), &bytes, 0o600, Durability::Durable).map_err(|e| e.to_string())
    }

    /// The default network of pods; `None` without a range. `strict`: they send with their own addresses only.
    pub(crate) fn list(&self, strict: bool) -> Result<Option<Arc<NetworkList>>, CniError> {
        if self.ranges.is_empty() {
            return Ok(None);
        }
        list(&self.ranges, self.mtu, strict).map(|list| Some(Arc::new(list)))
    }

    /// What is to be kept when pods get addresses of these ranges from now on.
    pub(crate) fn with(&self, ranges: Vec<IpNet>, mtu: Option<u32>) -> Self {
        let before = self.ranges.iter().chain(&self.former).copied();
        let mut former: Vec<IpNet> = before.filter(|range| !ranges.contains(range)).collect();
        former.sort();
        former.dedup();
        Kept { ranges, former, mtu }
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_that_is_given_again_is_former_no_longer() {
        let first = Kept::default().with(vec![net("10.1.1.0/24")], Some(1500));
        assert_eq!(first.former, []);
        let second = first.with(vec![net("10.1.2.0/24")], Some(1450));
        assert_eq!(second.former, [net("10.1.1.0/24")]);
        let third = second.with(vec![net("10.1.1.0/24")], Some(1450));
        assert_eq!((third.ranges, third.former), (vec![net("10.1.1.0/24")], vec![net("10.1.2.0/24")]));
    }

    #[test]
    fn what_was_written_is_read_and_what_is_no_file_of_ours_is_told() {
        let dir = std::env::temp_dir().join(format!("netloom-provided-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Kept::read(&dir), (Kept::default(), None));
        let kept = Kept { ranges: vec![net("10.1.1.0/24"), net("fd00:1::/64")], former: vec![net("10.9.0.0/16")], mtu: Some(1450) };
        kept.write(&dir).unwrap();
        assert_eq!(Kept::read(&dir), (kept, None));
        std::fs::write(dir.join(FILE), "{").unwrap();
        let (nothing, why) = Kept::read(&dir);
        assert!(nothing == Kept::default() && why.as_ref().is_some_and(|why| why.contains(FILE)), "{why:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
