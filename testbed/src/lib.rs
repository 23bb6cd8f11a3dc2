//! A real Kubernetes on one machine: control plane, nodes in namespaces, pods. For tests, benchmarks and a person.
//!
//! ```text
//!   ControlPlane   etcd, API server; controller manager and scheduler where pods are to run
//! ```
//!
//! All of it runs in [`Den`]s: it ends with the process that made it, also when that is killed.

mod control;
mod den;
mod peer;
mod process;

pub use control::ControlPlane;
pub use den::Den;
pub use peer::peer;
pub use process::{Process, Signal};
