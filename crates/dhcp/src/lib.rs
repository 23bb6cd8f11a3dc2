//! Addresses from a DHCP server, and the daemon that keeps them.
//!
//! ```text
//!   plugin `dhcp` --wire::Call--> Daemon (ask) ~~socket~~> daemon --> table --> exchange, maintain --> v4, v6 --> linux::packet
//!                                                                      `--> store: a file for each lease
//! ```
//!
//! A lease has to be renewed long after the plugin that asked for it has ended, so a daemon keeps it. It runs as `netloom dhcp`, or
//! as `dhcp daemon`, which is what units for the reference plugin start.
//!
//! Blocking calls and a few threads: the crate is linked into what a runtime executes. `dhcproto` has the messages of
//! both protocols; what the kernel does for who has an address, IP, UDP and ARP, is here.

mod ask;
mod daemon;
mod exchange;
mod family;
mod flags;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzz;
mod lease;
mod link;
mod log;
mod maintain;
mod names;
mod probe;
mod random;
mod store;
mod table;
mod times;
mod trouble;
mod turns;
mod v4;
mod v6;
mod wanted;
mod who_has;

pub use ask::{Daemon, Unanswered};
pub use daemon::{DaemonError, run};
pub use flags::{FlagError, Settings, duration};
pub use wanted::{SOCKET, Wanted, is_identity, socket};
pub use who_has::who_has;
