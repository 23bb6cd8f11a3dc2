//! The host's side of the kernel, as one thread sees it.

use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use cni::CniError;
use linux::{Inside, Netlink, NetnsFile, NetnsId, NetnsLock, nft};

/// How long somebody who removes idle links is waited for, who has the lock for some milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Directories of state. The defaults are those that every CNI program on a node shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// `host-local`'s addresses where `ipam.dataDir` is not set.
    pub addresses: PathBuf,
    /// The pools of `pool` where `ipam.pools` is not set, each a file.
    pub pools: PathBuf,
    /// `pool`'s journal where `ipam.dataDir` is not set.
    pub journal: PathBuf,
    /// `tuning`'s backups where `dataDir` is not set.
    pub tuning: PathBuf,
    /// What the devices that containers have borrowed were before.
    pub borrowed: PathBuf,
    /// What is told of devices: `dp/` by device plugins, `cni/` for each attachment (S66, S67).
    pub devices: PathBuf,
    /// The socket of the Open vSwitch that stands for the host's, in the place of each of its usual ones; `None`: the usual ones.
    pub switch: Option<PathBuf>,
    /// Directories that a configuration names are below this one; `None`: they are what they say.
    pub root: Option<PathBuf>,
}

/// The namespace that stands for the host in this call: that of the calling thread. Sockets are opened when they are
/// first needed and live as long as the call.
pub struct Host {
    inside: Inside,
    route: Option<Netlink>,
    nft: Option<nft::Socket>,
    /// The namespace's file between two locks.
    netns: Option<NetnsFile>,
    /// Where state is kept.
    pub dirs: Dirs,
    newest: Option<(NetnsId, u32)>,
    /// Whether what plugins make for all containers of a network goes with the last one: it is marked so. Otherwise it stays.
    pub is_transient: bool,
    /// Names of links that stay all the same: those of networks that pods get without asking, whoever makes them.
    pub lasting: Vec<String>,
}

// === impl Dirs ===

impl Default for Dirs {
    fn default() -> Self {
        Dirs {
            addresses: "/var/lib/cni/networks".into(),
            pools: "/etc/netloom/pools".into(),
            journal: "/var/lib/netloom/ipam".into(),
            tuning: "/run/cni/tuning".into(),
            borrowed: "/run/netloom/borrowed".into(),
            devices: "/var/run/k8s.cni.cncf.io/devinfo".into(),
            switch: None,
            root: None,
        }
    }
}

impl Dirs {
    /// All directories below one, also those that a configuration names: for a lab or a test that shares nothing with
    /// the machine.
    pub fn below(root: &Path) -> Self {
        let configured = Some(root.join("configured"));
        Dirs {
            addresses: root.join("networks"),
            pools: root.join("pools"),
            journal: root.join("ipam"),
            tuning: root.join("tuning"),
            borrowed: root.join("borrowed"),
            devices: root.join("devices"),
            switch: None,
            root: configured,
        }
    }

    /// The directory that a configuration names, or the default where it names none.
    pub fn configured(&self, named: &str, default: &Path) -> PathBuf {
        match (&self.root, named) {
            (_, "") => default.to_owned(),
            (None, named) => named.into(),
            (Some(root), named) => {
                let plain = Path::new(named).components().filter(|c| matches!(c, Component::Normal(_)));
                plain.fold(root.clone(), |dir, part| dir.join(part))
            }
        }
    }
}

// === impl Host ===

impl Host {
    /// The namespace that the calling thread is in.
    pub fn here(dirs: Dirs) -> Self {
        Host { inside: Inside::here(), route: None, nft: None, netns: None, newest: None, dirs, is_transient: false, lasting: Vec::new() }
    }

    /// The proof that sockets and sysctls need.
    pub fn inside(&self) -> &Inside {
        &self.inside
    }

    /// Whether a link that plugins make for all containers of a network goes with the last one.
    pub fn is_transient(&self, link: &str) -> bool {
        self.is_transient && !self.lasting.iter().any(|lasting| lasting == link)
    }

    /// Keeps links of the host that were made for definitions, and that look as if nobody used them, as long as it lives: for who has found one
    /// and is about to use it. `None`: somebody in the host's namespace has held the lock for a second, who is to keep nobody from a network.
    pub fn keep_idle_links(&mut self) -> Option<NetnsLock> {
        let by = Instant::now() + PATIENCE;
        self.netns.take().map_or_else(|| NetnsLock::shared(&self.inside, by), |file| file.shared(by))
    }

    /// Idle links may go again. The next call of [`Host::keep_idle_links`] does not open what this one locked.
    pub fn let_idle_links_go(&mut self, kept: Option<NetnsLock>) {
        self.netns = kept.and_then(NetnsLock::unlock);
    }

    /// The routing socket of the host.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn netlink(&mut self) -> Result<&mut Netlink, CniError> {
        if self.route.is_none() {
            self.route = Some(Netlink::open(&self.inside).map_err(crate::external::internal)?);
        }
        self.route.as_mut().ok_or_else(|| crate::external::internal("no routing socket"))
    }

    /// Notes the index of a link that was made in a container's namespace.
    pub fn made_link(&mut self, netns: NetnsId, index: u32) {
        self.newest = Some((netns, index));
    }

    /// The index that the kernel will probably give to the next link there: a link that is made with it can be configured without a look at
    /// it first. It may be taken all the same.
    pub fn next_index(&self, netns: NetnsId) -> Option<u32> {
        self.newest.filter(|(of, _)| *of == netns)?.1.checked_add(1)
    }

    /// The nftables socket of the host.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn nft(&mut self) -> Result<&mut nft::Socket, CniError> {
        if self.nft.is_none() {
            self.nft = Some(nft::Socket::open(&self.inside).map_err(crate::external::internal)?);
        }
        self.nft.as_mut().ok_or_else(|| crate::external::internal("no nftables socket"))
    }

    /// Whether the kernel has nftables to speak with. Where it has none, no rule of ours is there to be taken away.
    ///
    /// # Errors
    /// If a socket cannot be opened for another reason.
    pub fn has_nft(&mut self) -> Result<bool, CniError> {
        if self.nft.is_some() {
            return Ok(true);
        }
        match nft::Socket::open(&self.inside) {
            Ok(socket) => {
                self.nft = Some(socket);
                Ok(true)
            }
            Err(e) if e.is_absent() => Ok(false),
            Err(e) => Err(crate::external::internal(e)),
        }
    }
}
