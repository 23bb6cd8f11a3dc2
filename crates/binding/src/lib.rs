//! Which ports of Neutron the pods of a cluster are to have, and what is to be called next for it. Pure: no clock, no file, no request.
//!
//! ```text
//!   annotation of a pod, definitions, settings --elements--> what it wants, or why it gets nothing
//!
//!   World: pods and their elements, ports with the cluster's tag, subnets, KuryrPorts, what was refused before
//!     | step
//!     v
//!   Step: calls, each good by itself; whoever makes them puts what comes of them into the World, and asks again
//!
//!   a pod's life    no port --CreatePorts, TagPort--> ports --WriteKuryrPort--> plugged on the node --port is ACTIVE--> WriteKuryrPort
//!                   the pod is gone --DeletePort, each--> none is left --ReleaseKuryrPort--> nothing
//! ```
//!
//! Any call may be lost, or its answer, and the process may be killed between any two of them. What exists is always found again, because
//! a port is made together with its [`tags`](Owner::tags): cluster, pod and element; or, where Neutron takes none with a new port, with the same
//! words as its description, until it has them. Nothing is deleted that does not carry the cluster's
//! tag, or whose pod is not known to be gone. A pod that cannot get its ports holds up no other one.

mod config;
mod existing;
mod keeping;
mod making;
mod nested;
mod owner;
mod permit;
mod pool;
mod refused;
mod request;
mod snapshot;
mod step;
mod vif;

pub use config::{ConfigError, KURYR_CONFIG, PortConfig, VnicType};
pub use existing::has_nobody;
pub use keeping::new_kuryr_port;
pub use nested::address_pairs;
pub use owner::{Carrier, Cluster, ClusterName, ClusterNameError, Owner, counts_as_active, is_existing, own_tags};
pub use permit::{Forbidden, Permit};
pub use pool::PoolKind;
pub use refused::Refused;
pub use request::{ADDITIONAL_SUBNETS, KnownDefinition, RequestError, default_element, elements};
pub use snapshot::{Defaults, Element, Key, ObjectName, Pod, PoolSize, Snapshot, Stored, Tried};
pub use step::{CLUSTER_LABEL, Call, DEVICE_OWNER, MAX_BULK, Step, step};
pub use vif::{nested_vif, vif};
