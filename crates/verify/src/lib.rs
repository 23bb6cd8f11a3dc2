//! Whether a network works, and where it does not.
//!
//! ```text
//!   case ---.
//!            +-- plan --> checks --(somebody probes)--> observations -- judge --> passed, or failed
//!   site ---'                                                                         |
//!                              snapshot --(somebody observes)--> explain --> Finding: the hop, and why
//! ```
//!
//! Pure: no I/O, no clock. A [`case`] is data, and so is a [`Site`], which says who is there. Those who probe and observe stand above: `lab` and
//! `agent`. A [`Snapshot`] may come from a file as well as from the kernel.

pub mod case;
mod explain;
mod fault;
mod judge;
mod network;
mod plan;
pub mod promise;
mod site;
mod snapshot;
mod unread;
mod walk;

pub use case::{CASES, Case, Protocol};
pub use explain::{TUNNELS, explain, explain_silence, predict, tunnels};
pub use fault::{Direction, Fault, Finding};
pub use judge::{Observation, judge};
pub use plan::{Check, Expected, ExpectedSource, PORT, Planned, SINK, plan};
pub use site::{Attachment, LimitedPod, Limits, Outside, Publication, Reach, ServicePort, Site, SiteNode, SitePod, SiteService};
pub use snapshot::{
    Address, BridgePort, End, FdbEntry, FullTable, Link, Namespace, Neighbour, NoPlace, Place, PortVlan, QueueDiscipline, Route, RouteKind,
    Rule, Snapshot, SnapshotError, Tunnel, Unobserved,
};
pub use unread::{IPVS, LEGACY};
