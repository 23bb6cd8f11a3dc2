//! The Container Network Interface (CNI) specification as plain types: parse, validate, convert, print. No I/O.
//!
//! ```text
//! configuration file --NetworkList--> one Config for each plugin --stdin--> plugin
//! plugin --stdout--> AddResult (one form in memory; versions exist only in parse and print) or CniError
//! ```
//!
//! Sources: the specification 0.1.0 to 1.1.0 and, where it is silent, what the reference library does. JSON is read
//! as Go reads it (crate `json`).

mod args;
mod attachments;
mod config;
mod error;
mod list;
mod names;
mod near;
mod result;
mod result_print;
mod version;

pub use args::CniArgs;
pub use config::{Config, ConfigError};
pub use error::{CniError, Code};
pub use list::{NetworkList, PluginEntry};
pub use names::{ContainerId, IfName, Mac, MacError, NameError, NetworkName, PluginType};
pub use near::{near_names, nearest};
pub use result::{AddResult, DecodeError, Dns, Interface, IpConfig, Route};
pub use result_print::ConvertError;
pub use version::{Family, Version, VersionError};

/// What identifies an attachment to everyone (SPEC 2): network, container ID, interface name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId {
    /// The network's name.
    pub network: NetworkName,
    /// The container.
    pub container: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
}

impl std::fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}
