//! Devices on a bus, as `/sys` shows them: which driver has one, which interface it is, and of which card it is a virtual function.
//!
//! Of interfaces `/sys` shows those of the namespace in which it was mounted.

use std::fs::{File, read_dir, read_to_string};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::Link;
use crate::link::BusDevice;
use crate::proc_sys::make_sysfs_writable;

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

/// Whether a PCI device is a network card, by its class (`lspci -n`: 02).
///
/// # Errors
/// If it cannot be read.
pub fn is_network_card(device: &Path) -> io::Result<bool> {
    Ok(read_to_string(device.join("class"))?.starts_with("0x02"))
}

/// The physical function of a virtual one (SR-IOV), and the number that it has there; `None` if it is none.
///
/// # Errors
/// If a folder is there and cannot be read.
pub fn physical_function(device: &Path) -> io::Result<Option<(PathBuf, u32)>> {
    let card = match device.join("physfn").canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        card => card?,
    };
    let device = device.canonicalize()?;
    for entry in read_dir(&card)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("virtfn")).and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|_: &u32| entry.path().canonicalize().is_ok_and(|function| function == device)) {
            return Ok(Some((card, number)));
        }
    }
    Ok(None)
}

/// The driver that a PCI device is bound to whatever other drivers know it, as `driverctl` and the like have set it; `None` if the kernel chooses.
///
/// # Errors
/// If it cannot be read.
pub fn driver_override(device: &Path) -> io::Result<Option<String>> {
    let text = read_to_string(device.join("driver_override"))?;
    Ok(Some(text.trim_end()).filter(|text| !matches!(*text, "" | "(null)")).map(str::to_owned))
}

/// Says which driver a PCI device is bound to from now on (Documentation/ABI/testing/sysfs-bus-pci, `driver_override`); `None`: the kernel chooses.
///
/// # Errors
/// If it cannot be written.
pub fn set_driver_override(device: &Path, driver: Option<&str>) -> io::Result<()> {
    write(&device.join("driver_override"), driver.unwrap_or("\n"))
}

/// Takes a PCI device away from its driver, if it has one, and gives it to the one that its override or its ID says. The driver must have been loaded:
/// else the device has none afterwards.
///
/// # Errors
/// If it cannot be written.
pub fn rebind(device: &Path) -> io::Result<()> {
    let device = device.canonicalize()?;
    let Some(id) = device.file_name().and_then(|name| name.to_str()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    if driver(&device)?.is_some() {
        write(&device.join("driver/unbind"), id)?;
    }
    write(Path::new("/sys/bus/pci/drivers_probe"), id)
}

/// Writes to a file that is there. A container's runtime may have mounted `/sys` read-only.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let write = || File::options().write(true).open(path)?.write_all(text.as_bytes());
    match write() {
        Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem && make_sysfs_writable()? => write(),
        written => written,
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

/// The address of the PCI device that a link is the interface of, itself or the virtio device on it; `None` if it is no PCI device's.
pub fn pci_address(link: &Link) -> Option<String> {
    let device = link.device.as_ref()?;
    let folder = folder(device)?;
    let folder = if device.bus == "pci" { folder.as_path() } else { folder.parent()? };
    let id = folder.file_name()?.to_str()?;
    Bus::Pci.device(id).map(|_| id.to_owned())
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
        assert_eq!(physical_function(nowhere).unwrap(), None);
    }
}
