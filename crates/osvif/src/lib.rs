//! OpenStack's description of a virtual interface, as Kuryr-Kubernetes keeps it in a cluster: plain types, no I/O.
//!
//! The objects are those of os_vif 5.3.0 and of Kuryr 10.0.0, in the form that oslo.versionedobjects gives them. The same VIF is kept
//! in one of two places:
//!
//! ```text
//!   KuryrPort             status.vifs: {eth0: {default: true, vif: VIF}, eth1: ...}      an object beside the pod, of its name
//!   pod annotation        openstack.org/kuryr-vif: PodState, a text                      older versions: {eth0: VIF, ...}, or one VIF
//!
//!   VIF                   port ID, MAC, MTU of the network, plugin, what its kind has
//!    `-- Network -- List<Subnet> -- List<FixedIp>, List<Route>
//! ```
//!
//! A [`KuryrNetwork`] says which network of Neutron the pods of a namespace have.
//!
//! What a reader does not know survives: each object has a [`Rest`], and is written again with all that it came with. A field that is
//! `null` counts as not given, and is written as `null` again. Keys are printed in alphabetical order, and [`PodState::annotation`]
//! prints what Python's `json.dumps(sort_keys=True)` does, to the byte.

mod fields;
mod kuryr_network;
mod kuryr_port;
mod network;
mod object;
mod pod_state;
mod port_profile;
mod problem;
mod python;
mod vif;

pub use kuryr_network::{KuryrNetwork, NETWORK_FINALIZER, network_crd};
pub use kuryr_port::{
    KURYR_PORT_VERSION, KuryrPort, KuryrPortSpec, KuryrPortStatus, MAX_KURYR_PORT, NODE_LABEL, PORT_FINALIZER, PodVif, REASON_ANNOTATION,
    crd, memory_of, node_label,
};
pub use network::{FixedIp, Network, Route, Subnet};
pub use object::{List, Rest};
pub use pod_state::{DEFAULT_INTERFACE, PodState, VIF_ANNOTATION};
pub use port_profile::PortProfile;
pub use problem::{Problem, Reason};
pub use vif::{VhostUserMode, Vif, VifKind};
