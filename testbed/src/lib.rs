//! A real Kubernetes on one machine: control plane, nodes in namespaces, pods; and a real Neutron with its Keystone or its agents. For tests,
//! benchmarks and a person.
//!
//! ```text
//!   Cluster
//!    |-- ControlPlane   etcd, API server; controller manager and scheduler where pods are to run
//!    `-- Node ...       containerd and kubelet; /etc, /run, /var/lib, /var/log and /opt/cni are its own
//!   openstack::Neutron, openstack::Keystone
//! ```
//!
//! All of it runs in [`Den`]s: it ends with the process that made it, also when that is killed. A control plane alone
//! serves for tests that only speak to the API.

mod cluster;
mod control;
mod den;
mod images;
mod node;
pub mod openstack;
mod outside;
mod peer;
mod process;
mod sweep;

pub use cluster::{Cluster, DefaultNetwork, Families, Options};
pub use control::ControlPlane;
pub use den::Den;
pub use images::{BUSYBOX, NETLOOM, PAUSE};
pub use node::Node;
pub use outside::{BALANCED, METADATA, Outside};
pub use peer::peer;
pub use process::{Process, Signal};
pub use sweep::{PLACE, owner, sweep};
