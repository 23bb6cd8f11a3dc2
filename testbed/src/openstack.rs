//! A real OpenStack as far as pods' ports need one: Neutron, and Keystone before it where wanted. Debian's packages, on SQLite.
//!
//! ```text
//!   Keystone   tokens, and the catalogue with Neutron in it        keystone-wsgi-public
//!   Neutron    ML2 with two mechanism drivers: Open vSwitch, and `fakebind`, which stands for the agents of all hosts
//!              and without Keystone for who trusts everybody       neutron-server, in-process message bus
//!              or with Open vSwitch alone, and its real agents      neutron-openvswitch-agent, RabbitMQ
//! ```
//!
//! Both listen on 127.0.0.1, on ports that are free, with all files in their own directory, and end with who made them. A machine that
//! builds beside them needs half a minute until they answer, an idle one 6 seconds.

mod keystone;
mod kuryr;
mod kuryr_controller;
mod neutron;
mod rabbit;
mod request;
mod switch_agent;

use std::path::Path;

use anyhow::Result;

pub use keystone::Keystone;
pub use kuryr::Kuryr;
pub use kuryr_controller::KuryrController;
pub use neutron::Neutron;
pub use request::request;
pub use switch_agent::SwitchAgent;

use crate::Den;

/// The one physical network, on which networks of type `vlan` are.
pub const PHYSICAL: &str = "physnet1";

/// Sets SQLite's write-ahead log, for good. With its other journal a connection that has only read keeps every writer out until it is used
/// again, and the servers' pools have such connections: a request fails as `database is locked`.
fn let_read_while_written(den: &Den, database: &Path) -> Result<()> {
    const SCRIPT: &str = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode=WAL')";
    den.run(&["/usr/bin/python3", "-c", SCRIPT, &database.display().to_string()]).map(drop)
}
