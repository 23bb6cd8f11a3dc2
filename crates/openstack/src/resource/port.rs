//! Ports.

use serde::{Deserialize, Serialize};

use super::or_default;

/// A port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its ID.
    pub id: String,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its network.
    pub network_id: String,
    /// Whose it is.
    #[serde(deserialize_with = "or_default")]
    pub project_id: String,
    /// Its MAC address.
    #[serde(deserialize_with = "or_default")]
    pub mac_address: String,
    /// `ACTIVE`, `DOWN`, `BUILD` or `ERROR`.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    /// What it is for: `compute:kuryr`, `trunk:subport`.
    #[serde(deserialize_with = "or_default")]
    pub device_owner: String,
    /// Who has it: of ours, the pod's UID.
    #[serde(deserialize_with = "or_default")]
    pub device_id: String,
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub fixed_ips: Vec<FixedIp>,
    /// Its security groups.
    #[serde(deserialize_with = "or_default")]
    pub security_groups: Vec<String>,
    /// Addresses that its packets may have besides.
    #[serde(deserialize_with = "or_default")]
    pub allowed_address_pairs: Vec<AddressPair>,
    /// Its tags.
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// A text of who made it.
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    /// Counts its changes.
    #[serde(deserialize_with = "or_default")]
    pub revision_number: u64,
    /// The host that it is bound to; empty where it is not.
    #[serde(rename = "binding:host_id", deserialize_with = "or_default")]
    pub host: String,
    /// How it is plugged there: `ovs`, `bridge`, `unbound`, `binding_failed`.
    #[serde(rename = "binding:vif_type", deserialize_with = "or_default")]
    pub vif_type: String,
    /// What else there is to know for that.
    #[serde(rename = "binding:vif_details", deserialize_with = "or_default")]
    pub vif_details: VifDetails,
    /// The trunk whose parent it is.
    #[serde(deserialize_with = "trunk_id", rename = "trunk_details")]
    pub trunk: Option<String>,
}

/// An address of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedIp {
    /// Its subnet.
    pub subnet_id: String,
    /// The address.
    pub ip_address: String,
}

/// An address that a port's packets may have besides its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPair {
    /// An address, or a range.
    pub ip_address: String,
    /// With this MAC address; without one, with the port's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// What a mechanism driver says of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VifDetails {
    /// Whether security groups are enforced.
    #[serde(deserialize_with = "or_default")]
    pub port_filter: bool,
    /// Whether a Linux bridge stands before Open vSwitch.
    #[serde(deserialize_with = "or_default")]
    pub ovs_hybrid_plug: bool,
    /// The switch's bridge.
    pub bridge_name: Option<String>,
    /// `system` or `netdev`.
    pub datapath_type: Option<String>,
    /// `client` or `server`, of a vhost-user socket.
    pub vhostuser_mode: Option<String>,
}

/// A port to be made. What is empty is not sent: Neutron chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewPort {
    /// Its network.
    pub network_id: String,
    /// Whose it is to be; needed where Neutron does not ask who we are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether it carries packets.
    pub admin_state_up: bool,
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device_owner: String,
    /// Who has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device_id: String,
    /// Its addresses, or the subnets to choose them from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixed_ips: Vec<WantedIp>,
    /// Its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Its security groups; without, the project's default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// The host that it is bound to.
    #[serde(rename = "binding:host_id", skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// `normal`, `direct`, ...
    #[serde(rename = "binding:vnic_type", skip_serializing_if = "Option::is_none")]
    pub vnic_type: Option<String>,
    /// Addresses that its packets may have besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_address_pairs: Vec<AddressPair>,
    /// Its QoS policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos_policy_id: Option<String>,
    /// A text, at most 255 characters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its tags, where Neutron takes them with the port (`tag-ports-during-bulk-creation`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// An address to be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WantedIp {
    /// In this subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// This one; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
}

/// What of a port is to be another. What is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PortUpdate {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_owner: Option<String>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// The host that it is bound to; an empty one unbinds it.
    #[serde(rename = "binding:host_id", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its security groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_groups: Option<Vec<String>>,
    /// Addresses that its packets may have besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_address_pairs: Option<Vec<AddressPair>>,
}

#[derive(Deserialize)]
struct TrunkDetails {
    trunk_id: String,
}

fn trunk_id<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<TrunkDetails>::deserialize(from)?.map(|details| details.trunk_id))
}

// === impl Port ===

impl Port {
    /// Whether the switch has been told of it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }

    /// Whether no mechanism driver can serve it on its host.
    #[must_use]
    pub fn is_unbindable(&self) -> bool {
        self.vif_type == "binding_failed"
    }
}
