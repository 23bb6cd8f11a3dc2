//! The device that the runtime chooses for a container, where a device plugin gave it one.

use serde::Deserialize;

/// `runtimeConfig` of a plugin with the capability `deviceID`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct RuntimeKeys {
    /// The device's ID, such as a PCI address; empty where none was chosen.
    #[serde(rename = "deviceID")]
    pub(crate) device_id: String,
}
