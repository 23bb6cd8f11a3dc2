//! Trunks: a port that carries others as VLANs.

use serde::{Deserialize, Serialize};

use super::or_default;

/// A trunk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Trunk {
    /// Its ID.
    pub id: String,
    /// The port that carries the others.
    pub port_id: String,
    /// `ACTIVE`, `DOWN`, `BUILD`, `DEGRADED` or `ERROR`.
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    /// The others.
    #[serde(deserialize_with = "or_default")]
    pub sub_ports: Vec<SubPort>,
    /// Counts its changes.
    #[serde(deserialize_with = "or_default")]
    pub revision_number: u64,
}

/// A port on a trunk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubPort {
    /// The port.
    pub port_id: String,
    /// `vlan`.
    pub segmentation_type: String,
    /// Its VLAN ID on this trunk.
    pub segmentation_id: u16,
}

/// A trunk to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewTrunk {
    /// The port that is to carry others; it may not be bound yet.
    pub port_id: String,
    /// Whose it is to be; needed where Neutron does not ask who we are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_id: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The others.
    pub sub_ports: Vec<SubPort>,
}

// === impl SubPort ===

impl SubPort {
    /// A port by its VLAN ID, 1 to 4094.
    #[must_use]
    pub fn vlan(port_id: impl Into<String>, id: u16) -> Self {
        SubPort { port_id: port_id.into(), segmentation_type: "vlan".to_owned(), segmentation_id: id }
    }
}
