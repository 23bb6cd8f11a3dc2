//! What crosses crates, judged from outside: the built executables, run in namespaces of a test's own.
//!
//! ```text
//!   Host ----- a network namespace that stands for a machine, with files of its own; containers are namespaces in it
//!    |-- cni(dir)  runs a plugin of a directory: environment in, exit code and JSON out     (plugin_dir, peers_dir)
//!    |-- tcp, udp  pass a line of text
//!    |-- run       runs `ip`, `nft`, `ping`, ... there or in a container
//!    `-- traces    the leak oracle: what is there now, as `ip`, `nft` and the directories say
//!   Node ----- a `Host` with an agent, before a real API server
//!    |-- agent     started, killed, terminated; its log
//!    `-- pod()     an object, a namespace, and the calls that a runtime makes for them
//!   addresses ----- who has which address, in namespaces, in nodes' objects and in the ledger
//!   until ----- waits for a fact: the only place that looks, sleeps and looks again
//!   sizes ----- networks of every size, and all their addresses
//!   guest::run ----- a kernel with every module, in which a test's executable is run
//! ```
//!
//! Nothing here shares code with what is tested. A test panics where it is disappointed, and so does this crate; a
//! [`Host`] vanishes with the test that made it, however that ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's support fails the test by panicking"
)]

pub mod addresses;
mod api;
mod api_proxy;
mod call;
mod executables;
pub mod guest;
mod host;
pub mod leases;
mod memory;
mod node;
mod oracle;
mod pod;
mod prompted;
mod running;
mod sandbox;
pub mod sizes;
mod switch;
mod traffic;
mod until;
pub mod wired;

pub use api::Api;
pub use api_proxy::ApiProxy;
pub use call::{Cni, Outcome, at, ips};
pub use executables::{netloom, netloom_testbed, peers_dir, plugin_dir, sandbox_program};
pub use host::{Host, LinkView};
pub use memory::MemoryLimit;
pub use node::{Agent, Node, SETTINGS, SOCKET};
pub use oracle::{Traces, attached_once, differences, used};
pub use pod::Pod;
pub use prompted::Prompted;
pub use running::Running;
pub use sandbox::SandboxScene;
pub use switch::Switch;
pub use traffic::answer_to;
pub use until::{seen_within, until, until_seen};
