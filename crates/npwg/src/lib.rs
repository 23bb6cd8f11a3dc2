//! The multi-network standard of the Kubernetes Network Plumbing Working Group as plain types: parse, validate,
//! convert, print. No I/O.
//!
//! ```text
//! NetworkAttachmentDefinition --Definition::network--> cni::NetworkList, or none: then one on disk is meant
//! pod annotation "networks"   --parse--> Selections --capabilities, args--> what the network's plugins are given
//! device information file     --DeviceInfo::parse--> DeviceInfo, which goes into the status
//! cni::AddResult              --NetworkStatus::from_result, to_json--> pod annotation "network-status"
//! ```
//!
//! The source is the Kubernetes Network Custom Resource Definition De-facto Standard, versions 1.0 to 1.3, whose
//! clauses are cited as `S1` to `S68`, and, where programs rely on it, what Multus and its client library do. An
//! annotation that breaks a rule is refused with every violation named; nothing that a pod asked for is ever dropped
//! silently.
//!
//! ```
//! # use netloom_npwg as npwg;
//! let selections = npwg::parse("storage, infra/backup@bak0", "default")?;
//! assert_eq!(selections[0].definition.to_string(), "default/storage");
//! assert_eq!(selections[1].to_string(), "infra/backup@bak0");
//!
//! let refused = npwg::parse(r#"[{"name": "storage", "ip": ["10.1.1.5"]}]"#, "default").unwrap_err();
//! assert!(refused.to_string().contains(r#"did you mean "ips"?"#));
//! # Ok::<(), npwg::SelectionErrors>(())
//! ```

mod capability;
mod code;
mod definition;
mod device;
mod device_file;
mod element;
mod keys;
mod name;
mod problem;
mod selection;
mod status;
mod status_read;
mod sticky;
mod traffic;

pub use capability::{Demand, MissingCapability, NotHonoured};
pub use cni::nearest;
pub use definition::{Definition, DefinitionError, DefinitionRef, KURYR_CONFIG, RESOURCE_NAME, crd};
pub use device::{
    Device, DeviceInfo, DeviceInfoError, MAX_DEVICE_INFO, MemifDevice, MemifMode, MemifRole, PciDevice, VdpaDevice, VdpaDriver,
    VhostUserDevice, VhostUserMode,
};
pub use device_file::{DeviceFileError, attachment_file, device_plugin_file};
pub use keys::{SELECTION_KEYS, SelectionKey};
pub use name::{NameProblem, NameRule};
pub use problem::{AnnotationPlace, Problem, SelectionError, SelectionErrors};
pub use selection::{
    Bandwidth, DEFAULT_NETWORK, MAX_ANNOTATION, MAX_ANNOTATION_VALUES, MAX_ELEMENTS, MIGRATION, NETWORKS, PortMapping, Protocol,
    RequestedIp, Selection, default_network, default_routes, parse,
};
pub use status::{NETWORK_STATUS, NetworkStatus, StatusIps, to_json};
pub use status_read::{StatusError, parse_status};
pub use sticky::{STICKY, claim_name, stick};
