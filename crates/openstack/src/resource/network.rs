//! Networks and subnets.

use serde::{Deserialize, Serialize};

use super::or_default;

/// A network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its ID.
    pub id: String,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// In bytes.
    pub mtu: Option<u32>,
    /// Whose it is.
    #[serde(deserialize_with = "or_default")]
    pub project_id: String,
    /// Its subnets' IDs.
    #[serde(deserialize_with = "or_default")]
    pub subnets: Vec<String>,
    /// Its tags.
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// What somebody has written of it.
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    /// `vlan`, `vxlan`, ...: told to who may know it.
    #[serde(rename = "provider:network_type")]
    pub provider_type: Option<String>,
    /// Which of the hosts' networks it is.
    #[serde(rename = "provider:physical_network")]
    pub physical_network: Option<String>,
    /// The VLAN ID or VNI of it.
    #[serde(rename = "provider:segmentation_id")]
    pub segment: Option<u32>,
}

/// A subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Subnet {
    /// Its ID.
    pub id: String,
    /// Its network's.
    pub network_id: String,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Whose it is.
    #[serde(deserialize_with = "or_default")]
    pub project_id: String,
    /// Its range.
    pub cidr: String,
    /// The router for everything else.
    pub gateway_ip: Option<String>,
    /// The addresses that Neutron gives away.
    #[serde(deserialize_with = "or_default")]
    pub allocation_pools: Vec<AllocationPool>,
    /// Name servers.
    #[serde(deserialize_with = "or_default")]
    pub dns_nameservers: Vec<String>,
    /// Other routes.
    #[serde(deserialize_with = "or_default")]
    pub host_routes: Vec<HostRoute>,
    /// Its tags.
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
}

/// A network that is to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewNetwork {
    /// Its name.
    pub name: String,
    /// Whose it is to be.
    pub project_id: String,
    /// What it is for: Neutron takes no tags with a new network, and it is found again by this.
    pub description: String,
}

/// A subnet that is to be made, with a range that Neutron chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewSubnet {
    /// Its name.
    pub name: String,
    /// Whose it is to be.
    pub project_id: String,
    /// Its network's ID.
    pub network_id: String,
    /// 4 or 6, as the pool's.
    pub ip_version: u8,
    /// The pool that its range is taken from.
    pub subnetpool_id: String,
    /// Whether Neutron serves DHCP in it.
    pub enable_dhcp: bool,
}

/// A pool of ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SubnetPool {
    /// Its ID.
    pub id: String,
    /// 4 or 6.
    pub ip_version: u8,
}

/// Addresses, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct AllocationPool {
    /// The first one.
    pub start: String,
    /// The last one.
    pub end: String,
}

/// A route of a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct HostRoute {
    /// Where it leads.
    pub destination: String,
    /// By way of whom.
    pub nexthop: String,
}
