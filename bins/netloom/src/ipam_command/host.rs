//! This host's pools as they are now: what the journal has, as the pools' files would have it.

use std::path::PathBuf;

use ipam::HostPools;
use pool::{Family, Spec};

use crate::cli::Store;
use crate::output::BAD;

/// Where a pool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// A file of this host.
    File(PathBuf),
    /// The networks' configurations have it, as ranges of whereabouts: there is no file.
    Configuration,
    /// What the cluster grants this node.
    Cluster,
    /// Its file is gone, or the cluster has it no more for this node: who has an address of it keeps it.
    Gone(pool::Origin),
}

/// All pools of a host.
pub(super) struct Host {
    pub(super) seen: HostPools,
    /// What is wrong with files, by their pools' names.
    pub(super) wrong: Vec<(String, String)>,
    files: Vec<(String, PathBuf)>,
}

// === impl Origin ===

impl Origin {
    /// As programs read it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Origin::File(_) => "file",
            Origin::Configuration => "configuration",
            Origin::Cluster => "cluster",
            Origin::Gone(_) => "gone",
        }
    }
}

// === impl Host ===

impl Host {
    /// As they are now.
    pub(super) fn look(of: &Store) -> anyhow::Result<Self> {
        let mut seen = HostPools::read(&of.dir)?;
        let (mut wrong, mut files) = (Vec::new(), Vec::new());
        for name in ipam::pool_names(&of.pools)? {
            let why = match ipam::read_pool(&of.pools, &name) {
                Ok(pool) => seen.follow(&pool).err().map(|e| e.to_string()),
                Err(e) => Some(e.to_string()),
            };
            wrong.extend(why.map(|why| (name.clone(), why)));
            files.push((name.clone(), ipam::pool_path(&of.pools, &name)));
        }
        Ok(Host { seen, wrong, files })
    }

    /// Tells what is wrong with files.
    pub(super) fn complain(&self) {
        self.wrong.iter().for_each(|(_, e)| crate::output::eputln!("{BAD}error:{BAD:#} {e}"));
    }

    /// The names of its pools, also of those that are gone and of which something is left: all, or the one that is asked for.
    pub(super) fn names(&self, only: Option<&str>) -> anyhow::Result<Vec<String>> {
        let names: Vec<String> = self.seen.allocator.every_pool().map(str::to_owned).collect();
        let Some(only) = only else { return Ok(names) };
        if names.iter().any(|name| name == only) {
            return Ok(vec![only.to_owned()]);
        }
        if let Some((_, wrong)) = self.wrong.iter().find(|(name, _)| name == only) {
            anyhow::bail!("{wrong}");
        }
        let there = match names.as_slice() {
            [] => "it has no pool".to_owned(),
            names => format!("it has {}", cni::near_names(only, names.iter().map(String::as_str))),
        };
        anyhow::bail!("there is no pool {only:?} on this host; {there}")
    }

    /// The terms of a pool, or its last ones.
    pub(super) fn spec(&self, pool: &str) -> Option<&Spec> {
        self.seen.allocator.last_spec(pool)
    }

    /// What it says where there is no pool at all.
    pub(super) fn none(of: &Store) -> String {
        format!("this host has no pool: there is no pool file in {}, and no journal in {}", of.pools.display(), of.dir.display())
    }

    /// The families of which it has blocks.
    pub(super) fn families(&self, pool: &str) -> Vec<Family> {
        Family::ALL.into_iter().filter(|family| self.seen.allocator.blocks(pool, *family).next().is_some()).collect()
    }

    /// Where it comes from.
    pub(super) fn origin(&self, name: &str) -> Origin {
        let origin = self.seen.allocator.origin(name).unwrap_or_default();
        let file = self.files.iter().find(|(of, _)| of == name);
        match (origin, file) {
            _ if self.seen.allocator.spec(name).is_none() => Origin::Gone(origin),
            (pool::Origin::File, None) if self.spec(name).is_some_and(ipam::is_whereabouts_pool) => Origin::Configuration,
            (pool::Origin::File, None) => Origin::Gone(origin),
            (pool::Origin::File, Some((_, path))) => Origin::File(path.clone()),
            _ => Origin::Cluster,
        }
    }
}
