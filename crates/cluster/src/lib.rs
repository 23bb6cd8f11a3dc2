//! Everything that a node's agent asks of the Kubernetes API and of the kubelet.
//!
//! ```text
//! kubeconfig, service account --client--> Connection --Cluster::start--> Cluster
//!   pods of this node, definitions of all namespaces  --list, watch--> caches --pod, pods, definition, pod_changes-->
//!   what the caches do not have                       <--fetch_pod, fetch_definition-->
//!   a pod's network status, events                    <--write_status, event--
//!   this node's CiliumNode  --list, watch--> OwnObject --now, changed-->      <--write_cilium_status--
//!   this node's Node  --fetch_own_node--> which one it is
//!   all Nodes, for the network between them  --list, watch--> Nodes --all, own, changed-->  <--write_own_network--
//!   this node's NodeIPPool  --list, watch--> OwnObject --now, changed-->      <--write_node_ip_pool_status--
//!   KuryrPorts of this node, where it plugs them  --list, watch--> KuryrPorts --of, changed-->
//!   ranges of Services, the API server's own addresses  --list, watch--> ServiceRanges, ApiEndpoints --all-->
//!   labels of namespaces, where a pool asks for them  --list, watch--> Namespaces --labels-->  <--fetch_namespace-->
//! kubelet: podresources or checkpoint; ResourceClaims --devices--> which device a pod was given
//! ```
//!
//! Objects are trimmed while they are read: of a pod some hundred bytes are kept. The caches survive whatever happens to
//! the server, and change only by what it says.

mod addresses;
mod announced;
mod cache;
mod call;
mod cilium_node;
mod claim;
mod cluster;
mod connect;
mod definition;
mod devices;
mod endpoints;
mod error;
mod event;
mod event_dedup;
mod exec;
#[cfg(fuzzing)]
pub mod fuzz;
mod kuryr_ports;
mod list;
mod namespaces;
mod node_blocks;
mod node_pool;
mod nodes;
mod own;
mod own_network;
mod own_node;
mod own_object;
mod pod;
mod reached;
mod read;
mod services;
mod status;
mod watch;

pub use announced::{Announced, AnnouncedError, BETWEEN, MAX_ANNOUNCED};
pub use cache::{Failing, Listed};
pub use cilium_node::cilium_node_definition;
pub use cluster::{Cluster, PodChange, PodChanges, Synced};
pub use connect::{ConnectError, Connection, client};
pub use definition::{MAX_CONFIG, TooLarge};
pub use devices::{CHECKPOINT, DeviceError, SOCKET};
pub use endpoints::ApiEndpoints;
pub use error::{ApiError, RequestedObject, StatusError};
pub use event::{AGENT_CONTROLLER, About, Event, EventKind, OPERATOR_CONTROLLER, note};
pub use event_dedup::Recorded;
pub use exec::{Container, Exec, ExecError, MAX_OUTPUT, OpenExec};
pub use kuryr_ports::{KuryrPorts, NodePort};
pub use namespaces::{Labels, Namespaces};
pub use node_blocks::{Blocks, NodeBlocks};
pub use node_pool::NodeIpPool;
pub use nodes::{ConditionDigest, Node, Nodes};
pub use own::Own;
pub use own_network::{OwnNetwork, Unavailable};
pub use own_node::OwnNode;
pub use own_object::OwnObject;
pub use pod::{Digest, ExtendedRequest, Phase, Pod, PodClaim, PodRef};
pub use reached::Services;
pub use read::{ClusterNetworks, ReadError, read_all, read_networks};
pub use services::ServiceRanges;
