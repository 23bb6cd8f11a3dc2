//! Open vSwitch's configuration, asked for and changed over ovsdb-server's socket (RFC 7047).
//!
//! ```text
//!   Switch    bridges, ports and interfaces of the database "Open_vSwitch"; waits until ovs-vswitchd has applied a change
//!     Client  transact, monitor; answers the server's echo requests              blocking, with a deadline
//!       Message, Operation, Row                                                  plain types
//!         Frames                                                                 a stream of bytes -> one JSON text after the other
//! ```
//!
//! A call blocks: its callers are threads, and a plugin as an executable links no asynchronous runtime. Table and column names are
//! those of ovs-vswitchd.conf.db(5).

mod client;
mod datum;
mod error;
mod frames;
mod message;
mod operation;
mod switch;

pub use client::Client;
pub use datum::{Atom, Datum, Row, Uuid};
pub use error::OvsdbError;
pub use frames::Frames;
pub use message::Message;
pub use operation::{Condition, Operation, Outcome};
pub use switch::{Bridge, Generation, Interface, NewPort, Port, Switch, Vlans};

/// Where ovsdb-server listens on a host that has Open vSwitch from a distribution's package.
pub const DEFAULT_SOCKET: &str = "/var/run/openvswitch/db.sock";

#[cfg(test)]
mod tests;
