//! Devices on a bus, as `/sys` shows them: which driver has one, and which interface it is.
//!
//! Of interfaces `/sys` shows those of the namespace in which it was mounted.

use std::fs::{read_dir, read_to_string};
use std::io;
use std::path::{Path, PathBuf};

use crate::Link;
use crate::link::BusDevice;

/// A bus whose devices have names of their own (`/sys/bus/NAME/devices`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bus {
    /// PCI; a device is called as `0000:03:00.1`.
    Pci,
    /// Parts of a device that other drivers use (Documentation/driver-api/auxiliary_bus.rst), as `mlx5_core.sf.4`.
    Auxiliary,
}

// === impl Bus ===

impl Bus {
    /// The folder of a device; `None` if there is none of that name.
    pub fn device(self, id: &str) -> Option<PathBuf> {
        if matches!(id, "" | "." | "..") || id.contains(['/', '\0']) {
            return None;
        }
        let bus = match self {
            Bus::Pci => "pci",
            Bus::Auxiliary => "auxiliary",
        };
        Some(Path::new("/sys/bus").join(bus).join("devices").join(id)).filter(|path| path.exists())
    }
}

/// The name of the driver that a device is bound to; `None` if none is.
///
/// # Errors
/// If it cannot be read.
pub fn driver(device: &Path) -> io::Result<Option<String>> {
    match device.join("driver").canonicalize() {
        Ok(path) => Ok(path.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// A network interface as `/sys` shows it: in the namespace in which `/sys` was mounted, which need not be this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name there.
    pub name: String,
    /// Its index there.
    pub index: Option<u32>,
    /// Its hardware address, as `/sys` writes it.
    pub address: String,
    /// The name of the device that it is the interface of: the one asked for, or the virtio device on it.
    pub device: String,
}

// === impl Interface ===

impl Interface {
    /// Whether a link of this namespace is that very interface, and not another one that has its name.
    pub fn is(&self, link: &Link) -> bool {
        let same_device = link.device.as_ref().is_none_or(|device| device.name == self.device);
        let same_mac = link.mac.as_ref().is_none_or(|mac| self.address.parse().as_ref() == Ok(mac));
        self.index == Some(link.index) && same_device && same_mac
    }
}

/// The first network interface of a device, or of the virtio device on it; `None` if it has none here: another namespace has it,
/// or no network driver.
///
/// # Errors
/// If a folder is there and cannot be read.
pub fn interface(device: &Path) -> io::Result<Option<Interface>> {
    if let Some(found) = of(device)? {
        return Ok(Some(found));
    }
    match first(device, "virtio")? {
        Some(virtio) => of(&device.join(virtio)),
        None => Ok(None),
    }
}

/// The first network interface of this device alone.
fn of(device: &Path) -> io::Result<Option<Interface>> {
    let Some(name) = first(&device.join("net"), "")? else { return Ok(None) };
    let folder = device.join("net").join(&name);
    let line = |file: &str| Ok::<_, io::Error>(read_to_string(folder.join(file))?.trim_end().to_owned());
    let device = device.canonicalize()?.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Some(Interface { index: line("ifindex")?.parse().ok(), address: line("address")?, name, device }))
}

/// The folder of a device below `/sys/devices`, which has one path only; `None` if the device is gone.
pub fn folder(device: &BusDevice) -> Option<PathBuf> {
    Path::new("/sys/bus").join(&device.bus).join("devices").join(&device.name).canonicalize().ok()
}

/// The first name in a folder that begins so, in the order of the alphabet.
fn first(dir: &Path, prefix: &str) -> io::Result<Option<String>> {
    let entries = match read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with(prefix)));
    }
    Ok(names.into_iter().min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_elsewhere() {
        for id in ["", ".", "..", "../pci", "a/b", "a\0b", "no such device"] {
            assert_eq!((Bus::Pci.device(id), Bus::Auxiliary.device(id)), (None, None), "{id:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_none() {
        let nowhere = Path::new("/sys/no/such/device");
        assert_eq!(driver(nowhere).unwrap(), None);
        assert_eq!(interface(nowhere).unwrap(), None);
    }
}
