//! A cluster's networking on one machine: nodes and pods are network namespaces.
//!
//! ```text
//!   manifests --manifest--> Manifests --up--> namespaces + attachments (by each node's `agent`, as in a cluster)
//!                                              |        state: <state dir>/<lab>/
//!                                              +--observe--> Topology --graph--> terminal, SVG, mermaid, dot
//!                                              `--verification--> each case of `verify`, and where it fails
//!
//!   namespace of the wires        namespace of a node             namespace of a pod
//!     bridge w1  <---- veth ---->   eth0 (parent)
//!     bridge w2  <---- veth ---->   ovs-up1 of br1 (Open vSwitch, where a network needs it)
//!                                   netloom0 (default network) <-veth-> eth0
//! ```
//!
//! Everything is inside the lab's own namespaces: the machine's links, rules and settings are not touched, several labs
//! are up at once, and `down` leaves nothing.

mod down;
mod error;
pub mod graph;
mod journal;
mod labs;
pub mod manifest;
mod network;
mod node;
mod node_agent;
mod observe;
mod running;
mod state;
mod status;
mod store;
mod switch;
pub mod topology;
mod underlay;
mod up;
mod verification;
mod wire;

pub use down::{DownError, Downed, Leftover, down};
pub use error::StateError;
pub use labs::{LabName, Labs};
pub use observe::{NodeTunnels, observe, tunnels};
pub use running::{Growth, Running};
pub use state::{Lab, Node, NodeName, Phase, Pod, PodRef, PortMapping};
pub use status::{Health, PodStatus, status};
pub use store::store;
pub use up::{DefaultNetwork, Event, Outcome, PlannedPod, Setup, UpError, dry_run, up};
pub use verification::{VerifyError, perf, snapshot, verify, watch};
