//! What is known of an attachment's device: the Device Information specification 1.1.0 (S61 to S65).
//!
//! ```text
//!   {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:18:02.5"}}     a file (S66, S67), or
//!      --parse, read--> DeviceInfo                                                   `device-info` of the status (S44)
//!                         |-- device()   what the standard knows of it, checked
//!                         +-- printed as it came: unknown keys, and the types of a newer version, survive
//! ```

use json::{Object, Value};
use serde::{Serialize, Serializer};

use crate::problem::shortened;

/// The bytes of one device's information at the most. Real ones have some hundred; every attachment of a pod must fit into
/// its annotation.
pub const MAX_DEVICE_INFO: usize = 16 << 10;

/// The levels of lists and objects at the most: it stands deeper in the record of a sandbox, which must be readable.
const MAX_LEVELS: usize = 16;

/// The newest version of the specification that is known here. A type that is not known is refused up to it.
const KNOWN: Version = Version { major: 1, minor: 1, patch: 0 };

/// Information on one device, checked, and as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    device: Option<Device>,
    raw: Object,
}

/// A device by its type (S61).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// `pci` (S62)
    Pci(PciDevice),
    /// `vdpa` (S63)
    Vdpa(VdpaDevice),
    /// `vhost-user` (S64)
    VhostUser(VhostUserDevice),
    /// `memif` (S65)
    Memif(MemifDevice),
}

/// A PCI device (S62). Addresses are `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address.
    pub pci_address: String,
    /// The path of its vhost-net device, over which packets reach the kernel.
    pub vhost_net: Option<String>,
    /// The name of its RDMA device.
    pub rdma_device: Option<String>,
    /// The address of the physical function that it belongs to.
    pub pf_pci_address: Option<String>,
    /// The interface that stands for it in the switch of its physical function.
    pub representor_device: Option<String>,
}

/// A vDPA device (S63).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdpaDevice {
    /// Its name on the vDPA bus.
    pub parent_device: String,
    /// What drives it.
    pub driver: VdpaDriver,
    /// The path of the vhost or virtio device.
    pub path: String,
    /// The address of the PCI device behind it.
    pub pci_address: Option<String>,
    /// The address of that one's physical function.
    pub pf_pci_address: Option<String>,
    /// The interface that stands for it in the switch of its physical function.
    pub representor_device: Option<String>,
}

/// What drives a vDPA device (S63).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VdpaDriver {
    /// A process, through `/dev/vhost-vdpa*`.
    Vhost,
    /// The kernel, as a network interface.
    Virtio,
}

/// A vhost-user socket (S64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VhostUserDevice {
    /// Which end makes the socket's file.
    pub mode: VhostUserMode,
    /// The socket.
    pub path: String,
}

/// The pod's end of a vhost-user socket (S64).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VhostUserMode {
    /// The pod connects to a socket that the host has made.
    Client,
    /// The pod makes the socket.
    Server,
}

/// A memif socket (S65).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemifDevice {
    /// Which end makes the socket's file.
    pub role: MemifRole,
    /// The socket.
    pub path: String,
    /// What goes through it.
    pub mode: MemifMode,
}

/// The pod's end of a memif socket (S65).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemifRole {
    /// The pod makes the socket.
    Master,
    /// The pod connects to a socket that the host has made.
    Slave,
}

/// What goes through a memif socket (S65).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemifMode {
    /// Ethernet frames.
    Ethernet,
    /// IP packets.
    Ip,
    /// Reserved: `inject-punt` in the specification, `punt` in the Go library that most programs use.
    InjectPunt,
}

/// Information on a device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceInfoError {
    /// More than [`MAX_DEVICE_INFO`] bytes.
    #[error("device information of {0} bytes: at most {MAX_DEVICE_INFO} are accepted")]
    TooLong(usize),
    /// Nested too deeply.
    #[error("device information with {0} levels of lists and objects: at most {MAX_LEVELS} are accepted")]
    TooDeep(usize),
    /// Not JSON.
    #[error("device information: {0}")]
    Json(json::ParseError),
    /// A key that must be there is not.
    #[error("device information: {key}: missing: expected {expected}")]
    Missing {
        /// The key, as `pci.pci-address`.
        key: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A value of another kind, or one that is not allowed.
    #[error("device information: {key}: expected {expected}, found {found}")]
    Unexpected {
        /// The key, as `pci.pci-address`.
        key: String,
        /// What belongs there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

// === impl DeviceInfo ===

impl DeviceInfo {
    /// Reads a device information file.
    ///
    /// # Errors
    /// [`DeviceInfoError`] naming the key.
    pub fn parse(bytes: &[u8]) -> Result<Self, DeviceInfoError> {
        if bytes.len() > MAX_DEVICE_INFO {
            return Err(DeviceInfoError::TooLong(bytes.len()));
        }
        Self::read(&json::parse(bytes).map_err(DeviceInfoError::Json)?)
    }

    /// Reads the value of the status' key `device-info` (S44).
    ///
    /// # Errors
    /// [`DeviceInfoError`] naming the key.
    pub fn read(value: &Value) -> Result<Self, DeviceInfoError> {
        let raw = value.as_object().ok_or_else(|| unexpected("the whole", "an object", value))?;
        let depth = raw.depth();
        if depth > MAX_LEVELS {
            return Err(DeviceInfoError::TooDeep(depth));
        }
        let whole = Keys { of: "", map: raw };
        let kind = whole.text("type", KINDS)?;
        let version = whole.text("version", VERSION)?;
        let newer = Version::parse(version).ok_or_else(|| whole.bad("version", VERSION))? > KNOWN;
        let device = match kind {
            "pci" => Some(Device::Pci(whole.under("pci")?.pci()?)),
            "vdpa" => Some(Device::Vdpa(whole.under("vdpa")?.vdpa()?)),
            "vhost-user" => Some(Device::VhostUser(whole.under("vhost-user")?.vhost_user()?)),
            "memif" => Some(Device::Memif(whole.under("memif")?.memif()?)),
            _ if newer => None,
            _ => return Err(whole.bad("type", KINDS)),
        };
        Ok(DeviceInfo { device, raw: raw.clone() })
    }

    /// The device; `None` if it has a type of a newer version than is known here.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Its type, as `pci`.
    pub fn kind(&self) -> &str {
        self.raw.str("type").unwrap_or_default()
    }

    /// Everything, as it came.
    pub fn raw(&self) -> &Object {
        &self.raw
    }
}

impl Serialize for DeviceInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

// === impl Version ===

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse().ok()).flatten()
        });
        let version = Version { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }
}

const KINDS: &str = r#""pci", "vdpa", "vhost-user" or "memif""#;
const VERSION: &str = r#"a version like "1.1.0""#;
const ADDRESS: &str = r#"a PCI address like "0000:18:02.5""#;
const PATH: &str = "a path";

/// An object of device information, and its place in the whole.
struct Keys<'a> {
    of: &'static str,
    map: &'a Object,
}

// === impl Keys ===

impl<'a> Keys<'a> {
    fn place(&self, key: &str) -> String {
        if self.of.is_empty() { key.to_owned() } else { format!("{}.{key}", self.of) }
    }

    fn under(&self, kind: &'static str) -> Result<Keys<'a>, DeviceInfoError> {
        match self.map.get(kind) {
            Some(Value::Object(map)) => Ok(Keys { of: kind, map }),
            Some(other) => Err(unexpected(kind, "an object", other)),
            None => Err(DeviceInfoError::Missing { key: kind.to_owned(), expected: "what belongs to its type" }),
        }
    }

    fn bad(&self, key: &str, expected: &'static str) -> DeviceInfoError {
        match self.map.get(key) {
            Some(value) => unexpected(&self.place(key), expected, value),
            None => DeviceInfoError::Missing { key: self.place(key), expected },
        }
    }

    /// A string; an empty one is not given, as Go cannot tell the two apart.
    fn optional(&self, key: &str, expected: &'static str) -> Result<Option<&'a str>, DeviceInfoError> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.bad(key, expected)),
        }
    }

    fn text(&self, key: &str, expected: &'static str) -> Result<&'a str, DeviceInfoError> {
        self.optional(key, expected)?.ok_or_else(|| DeviceInfoError::Missing { key: self.place(key), expected })
    }

    fn name(&self, key: &str) -> Result<Option<String>, DeviceInfoError> {
        Ok(self.optional(key, "a string")?.map(str::to_owned))
    }

    fn address(&self, key: &str) -> Result<Option<String>, DeviceInfoError> {
        match self.optional(key, ADDRESS)? {
            Some(text) if !is_pci_address(text) => Err(self.bad(key, ADDRESS)),
            text => Ok(text.map(str::to_owned)),
        }
    }

    fn one_of<T: Copy>(&self, key: &str, expected: &'static str, known: &[(&str, T)]) -> Result<T, DeviceInfoError> {
        let text = self.text(key, expected)?;
        let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.ok_or_else(|| self.bad(key, expected))
    }

    fn pci(&self) -> Result<PciDevice, DeviceInfoError> {
        Ok(PciDevice {
            pci_address: self.address("pci-address")?.ok_or_else(|| self.bad("pci-address", ADDRESS))?,
            vhost_net: self.name("vhost-net")?,
            rdma_device: self.name("rdma-device")?,
            pf_pci_address: self.address("pf-pci-address")?,
            representor_device: self.name("representor-device")?,
        })
    }

    fn vdpa(&self) -> Result<VdpaDevice, DeviceInfoError> {
        let drivers = [("vhost", VdpaDriver::Vhost), ("virtio", VdpaDriver::Virtio)];
        Ok(VdpaDevice {
            parent_device: self.text("parent-device", "a device of the vDPA bus")?.to_owned(),
            driver: self.one_of("driver", r#""vhost" or "virtio""#, &drivers)?,
            path: self.text("path", PATH)?.to_owned(),
            pci_address: self.address("pci-address")?,
            pf_pci_address: self.address("pf-pci-address")?,
            representor_device: self.name("representor-device")?,
        })
    }

    fn vhost_user(&self) -> Result<VhostUserDevice, DeviceInfoError> {
        let modes = [("client", VhostUserMode::Client), ("server", VhostUserMode::Server)];
        let mode = self.one_of("mode", r#""client" or "server""#, &modes)?;
        Ok(VhostUserDevice { mode, path: self.text("path", PATH)?.to_owned() })
    }

    fn memif(&self) -> Result<MemifDevice, DeviceInfoError> {
        let roles = [("master", MemifRole::Master), ("slave", MemifRole::Slave)];
        let modes = [
            ("ethernet", MemifMode::Ethernet),
            ("ip", MemifMode::Ip),
            ("inject-punt", MemifMode::InjectPunt),
            ("punt", MemifMode::InjectPunt),
        ];
        Ok(MemifDevice {
            role: self.one_of("role", r#""master" or "slave""#, &roles)?,
            path: self.text("path", PATH)?.to_owned(),
            mode: self.one_of("mode", r#""ethernet", "ip" or "inject-punt""#, &modes)?,
        })
    }
}

fn unexpected(key: &str, expected: &'static str, value: &Value) -> DeviceInfoError {
    DeviceInfoError::Unexpected { key: key.to_owned(), expected, found: shortened(&crate::selection::found(value)) }
}

/// `dddd:BB:DD.f`; some controllers have domains of more than four digits.
fn is_pci_address(text: &str) -> bool {
    let hex =
        |part: &str, digits: std::ops::RangeInclusive<usize>| digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let [domain, bus, device, function] = parts.as_slice() else { return false };
    let separators = text.matches(':').count() == 2 && text.rfind('.') > text.rfind(':');
    separators && hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1)
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
