//! The agent from outside, before a real API server: killed, cut off, asked by nobody, lied to.
//!
//! Each test has a node of its own, and a namespace of its own in the API; the API server is shared, but where it is
//! stopped.

mod calls;
pub(crate) mod chance;
mod cilium;
mod disk;
mod hostile;
mod idle_bridges;
mod kills;
mod links;
mod memory;
mod open_files;
mod outage;
mod own_traffic;
pub(crate) mod points;
mod preflight;
mod recorded;
mod restart;
mod reverse_paths;
mod services;
mod silent_server;
