//! The node's daemon: CNI calls in, attachments and status out.
//!
//! ```text
//!   runtime -> netloom-cni --wire--> serve -> call -> add, del, verbs --> attach::Attacher --> the kernel
//!                                              |  \                            |
//!                     pods, networks <---------'   `--> statuses, events      retired (links go, addresses are free)
//!                        ^                               |
//!                    cluster (caches) <-- API server <---'      reconcile: records, links and API, every few minutes
//! ```
//!
//! Calls are served by threads, because what they ask of the kernel blocks; what is asked of the API server runs on one
//! asynchronous thread beside them. Everything that must survive is on disk before the kernel is touched
//! (`attach::Records`): the agent may be killed at any instruction.

mod abandoned;
mod add;
mod addresses;
mod admin;
mod agent;
mod attached_pod;
mod call;
mod cilium_node;
mod cluster_addresses;
mod default_network;
mod del;
mod embedded;
mod events;
mod exec;
mod firewall;
mod foreign_pods;
mod gc;
mod health;
pub mod install;
mod network_table;
mod networks;
mod node_own;
mod node_traffic;
mod observe;
mod observe_node;
mod pods;
mod preflight;
mod provided;
mod reconcile;
mod report;
mod reserve_hint;
mod retired;
mod room;
mod serve;
pub mod settings;
mod shares;
mod spooled;
mod statuses;
mod unclaimed;
mod verbs;
mod vifs;

use daemon::log;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use agent::{Agent, RunError, run, run_on};
pub use attached_pod::attached_pod;
pub use embedded::Embedded;
pub use observe::{PeerNamespace, observe};
pub use observe_node::observe_node;
pub use preflight::{Finding, preflight};
pub use provided::{
    Addresses as ProvidedAddresses, BRIDGE as PROVIDED_BRIDGE, PodPorts as ProvidedPorts, Provide, Source, list as provided_list,
};
pub use settings::Settings;

/// What a mutex protects, also after a thread that held it has panicked: everything behind ours is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
