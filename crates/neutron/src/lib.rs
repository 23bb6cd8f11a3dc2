//! Everything that is asked of OpenStack: tokens of Keystone; ports, networks, subnets and trunks of Neutron (API v2.0).
//!
//! ```text
//!   openstack::Cloud --> Neutron --call--> a place in flight --> token --> http --answer--> a resource, or an error with Neutron's words
//!                           ^                                     |         |
//!                           |                       Keystone, before it ends |
//!                           '---- again: after a pause, if that is safe <---'
//! ```
//!
//! A call is repeated where it was certainly not carried out, or does no harm a second time (module `retry`). A POST that was sent and not
//! answered is neither: it fails with [`Error::NoAnswer`], and its caller looks for what it may have made. Deleting what is gone is no
//! error.
//!
//! It speaks HTTP/1.1 over the TLS that the rest of the program uses; connections are kept and used again.

mod catalog;
mod error;
mod http1;
mod keystone;
mod networks;
mod neutron;
mod ports;
mod query;
mod retry;
mod routers;
mod tls;
mod trunks;

pub use error::{Error, Refusal, RequestLine, SetupError};
pub use keystone::KeystoneError;
pub use neutron::{Answered, Limits, Neutron, Observer, Sent};
pub use ports::PortFilter;
