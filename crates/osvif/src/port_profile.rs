//! What a VIF's port is to the switch.

use serde_json::Value;

use crate::object::{Opened, put};
use crate::{Problem, Rest, fields};

/// A port profile (os_vif `VIFPortProfile...`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortProfile {
    /// `VIFPortProfileOpenVSwitch` 1.4.
    OpenVSwitch {
        /// The port's ID, as `external-ids:iface-id` of the switch's interface.
        interface_id: Option<String>,
        /// What else it has.
        rest: Rest,
    },
    /// One of another kind, kept as it came.
    Other {
        /// Its name.
        name: String,
        /// All that it has.
        rest: Rest,
    },
}

const OPEN_VSWITCH: &str = "VIFPortProfileOpenVSwitch";
const VERSION: &str = "1.4";

// === impl PortProfile ===

impl PortProfile {
    pub(crate) fn read(value: Value) -> Result<Self, Problem> {
        let mut opened = Opened::of(value)?;
        if opened.name != OPEN_VSWITCH {
            return Ok(PortProfile::Other { name: opened.name.clone(), rest: opened.rest("") });
        }
        let interface_id = opened.fields.optional("interface_id", fields::uuid)?;
        Ok(PortProfile::OpenVSwitch { interface_id, rest: opened.rest(VERSION) })
    }

    pub(crate) fn write(self) -> Value {
        match self {
            PortProfile::OpenVSwitch { interface_id, rest } => {
                rest.close(OPEN_VSWITCH, VERSION, |data| put(data, "interface_id", interface_id))
            }
            // It was read, and has its version.
            PortProfile::Other { name, rest } => rest.close(&name, "1.0", |_| {}),
        }
    }
}
