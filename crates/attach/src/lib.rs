//! A pod's attachments: plan, execute, record, report.
//!
//! ```text
//!   pod's annotations + definitions + default network + devices that the pod holds
//!      --plan--> Plan (everything checked, nothing touched)
//!      --Attacher::add--> record of the sandbox, then the chains in order --> Record with results --> network-status
//!      --Attacher::del--> from the record alone: all attachments in reverse, one teardown, then the record goes
//!      --Attacher::retire--> its first half, for a caller that stays --Attacher::finish--> the second, of many at once
//!      --Attacher::restore--> what is missing of the firewall, of every sandbox that is attached
//! ```
//!
//! An ADD and a DEL of one sandbox may meet, and either may be killed: module `records` says how that ends well.
//! `examples/sandbox.rs` is a caller in one file.
//!
//! Nothing here knows Kubernetes: selections and definitions are handed in, from an API server or from manifests.

mod admission;
mod default_route;
mod device;
mod execute;
mod idle_bridge;
mod others;
mod plan;
mod policy;
mod record;
mod records;
mod report;
mod restore;
mod retire;
mod spool;
mod unreadable;

pub use admission::{Admission, InvalidAnnotation, Isolation};
pub use device::{Device, Devices, ReportedDevice};
pub use execute::{AddError, Attacher, CheckAttachment, DelError, Lost, Sandbox};
pub use others::{AGENT_RECORDS, Others, PLUGIN_RECORDS};
pub use plan::{
    Bound, ImplicitNetwork, MAX_DEFINITION, MAX_DESTINATIONS, MAX_HOST_PORTS, MAX_LEVELS, MAX_NETWORKS, MAX_NETWORKS_VALUES, MAX_PLUGINS,
    MAX_VALUES, Networks, Plan, PlanRequest, Planned, PodView, Refusal, Source, network_of, plan,
};
pub use policy::{
    AddressRun, AddressSource, Allow, Case, Claim, Forbidden, Glob, NodeOwn, OWN, Parent, Policy, PolicyError, Protection, RoutedPod,
    RoutedPods, Rule, Uses, handed_out, lease_dirs, protected, source_of, taken_by_result,
};
pub use record::{Record, State, Step};
pub use records::{RecordError, Records, SandboxLock};
pub use report::{added_interfaces, network_status};
pub use restore::Restored;
pub use retire::Retired;
pub use spool::{SPOOL, Spool, SpoolError, Spooled};
