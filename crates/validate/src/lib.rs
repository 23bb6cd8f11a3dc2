//! What is wrong with networks and pods, before anything is built: pure, no file is read and no kernel asked.
//!
//! ```text
//!   spec.config --network--> keys     keys that no plugin reads, by the tables in each plugin's `About`
//!                            plugin   what its ADD would refuse: `Plugin::validate`
//!                            gateway  gateways that no packet reaches
//!   networks + pods --between--> requests   what a pod asks for, held against the network that it selects
//!                                shared     addresses, hardware addresses and host ports that two pods would have
//!                                overlap    ranges of two networks on one wire
//!                                   |
//!                                   v
//!                                Finding: severity, path of the key, message, next step
//! ```
//!
//! Nobody here knows files: who has read a text finds line and column with `json::locate`.

mod between;
mod finding;
mod gateway;
mod keys;
mod network;
mod overlap;
mod requests;
mod shared;

pub use between::{About, Between, Network, Pod, Port, between};
pub use finding::{Finding, Severity};
pub use network::{Surroundings, network};
