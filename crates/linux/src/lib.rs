//! Everything Netloom asks of the Linux kernel, and the only crate that says `unsafe` or enters a namespace.
//!
//! ```text
//!   netns    a namespace found, made, entered ----> Inside, the proof of being there
//!                                                      |
//!            +----------------------+------------------+---+
//!            v                      v                      v
//!   netlink  links, addresses,   sysctl /proc/sys       nft  nftables
//!            routes: a Batch of
//!            Requests, one send
//!               |-- link   veth, bridge, macvlan; ports; deletion together
//!               |-- addr
//!               |-- route
//!               |-- rule
//!               |-- neigh, fdb   who is a link's neighbour, and behind which endpoint
//!               |-- wireguard    a device's key, and its peers
//!               `-- tc    what a link sends, and how fast
//!
//!   process  a program with limits      file  written whole, locked      boot  since when the kernel remembers
//! ```
//!
//! Nothing here knows what a pod or a plugin is. Every call blocks, and none needs a runtime.
//!
//! ```no_run
//! use linux::{Batch, Netns, Netlink, addr, link};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pod = Netns::open("/run/netns/pod".as_ref())?.ok_or("the pod is gone")?;
//! let links = pod.enter(|inside| {
//!     let mut netlink = Netlink::open(inside)?;
//!     let mut batch = Batch::new();
//!     batch.push(link::set(1, &link::Change { up: Some(true), ..Default::default() }));
//!     netlink.send(batch)?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(netlink.links()?)
//! })?;
//! # Ok(())
//! # }
//! ```

pub mod addr;
mod batch;
pub mod boot;
#[cfg(test)]
mod captured;
#[cfg(all(target_arch = "x86_64", any(target_env = "musl", test)))]
mod copy;
#[cfg(any(debug_assertions, feature = "crash-points"))]
#[doc(hidden)]
pub mod crash;
mod echo;
mod end;
mod exec;
pub mod fdb;
pub mod file;
mod forwarding;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod interrupt;
mod limit;
pub mod link;
pub mod local;
mod memory;
mod monitor;
pub mod neigh;
mod neighbour_table;
mod netconf;
mod netlink;
mod netns;
pub mod nft;
mod nsid;
pub mod offload;
pub mod packet;
mod proc_sys;
pub mod process;
mod receive;
pub mod route;
pub mod rule;
mod sysctl;
pub mod sysfs;
pub mod tc;
pub mod tuntap;
mod uapi;
mod view;
mod watch;
mod whole;
mod wire;
pub mod wireguard;
pub mod xtables;

pub use addr::{AddrFlags, Address};
pub use batch::{Batch, BatchError, Failure, Reply, Request};
pub use boot::{BootId, boot_id};
pub use echo::{Answers, echo};
pub use end::end_process;
pub use exec::{ExecError, exec_in};
pub use fdb::FdbEntry;
pub use forwarding::{ForwardError, Written, forward};
pub use interrupt::on_interrupt;
pub use link::{IpvlanMode, Link, LinkSpec, MacvlanMode, PortFlags};
pub use memory::{SmallBlocks, give_own_blocks, reserve};
pub use monitor::{Monitor, Notice, Object};
pub use neigh::Neighbour;
pub use neighbour_table::NeighbourTable;
pub use netlink::{Netlink, OpenError, ReadError};
pub use netns::{ConnectError, EnterError, Inside, Netns, NetnsError, NetnsFile, NetnsId, NetnsIdError, NetnsLock, reachable};
pub use nix::errno::Errno;
pub use proc_sys::make_sysctls_writable;
pub use route::{Family, Hop, Route, RouteFilter, RouteKind, Scope};
pub use rule::{Rule, RuleAction};
pub use sysctl::{Sysctl, SysctlError};
pub use view::{Snapshot, View};
pub use watch::{Watch, WatchError};
pub use whole::send_whole;

/// A place where a test may kill this process: between two steps, of which a crash may see the first without the second.
/// Each has a name of its own. Nothing in a release, unless the feature `crash-points` is on.
#[cfg(any(debug_assertions, feature = "crash-points"))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash::reached($name)
    };
}

/// A place where a test may kill this process. This is a release: nothing happens.
#[cfg(not(any(debug_assertions, feature = "crash-points")))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}
