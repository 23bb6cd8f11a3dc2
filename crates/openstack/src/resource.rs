//! Neutron's resources, as its API v2.0 has them: what is read of them, and what is asked for.
//!
//! Only the attributes that something here uses are named. A resource is never written back whole, so nothing else is kept.

mod network;
mod port;
mod trunk;

pub use network::{AllocationPool, HostRoute, Network, NewNetwork, NewSubnet, Subnet, SubnetPool};
pub use port::{AddressPair, FixedIp, NewPort, Port, PortUpdate, VifDetails, WantedIp};
pub use trunk::{NewTrunk, SubPort, Trunk};

use serde::{Deserialize, Deserializer};

/// `null` is what Neutron writes for what is not there.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
