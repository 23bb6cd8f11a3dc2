//! The configuration of `host-device`, and the device that it means.

use std::path::{Component, Path, PathBuf};

use cni::{CniError, Config, Dns, IfName, Mac};
use linux::sysfs::{self, Bus};
use linux::{Link, Netlink};
use serde::Deserialize;

use crate::internal;

/// Drivers whose devices have no interface: a program in the container drives them (DPDK).
const USERSPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    device: String,
    hwaddr: String,
    kernelpath: String,
    #[serde(rename = "pciBusID")]
    pci_bus_id: String,
    #[serde(rename = "DPDKMode")]
    dpdk_mode: bool,
    runtime_config: RuntimeKeys,
    dns: Dns,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RuntimeKeys {
    #[serde(rename = "deviceID")]
    device_id: String,
}

/// How the device is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Device {
    /// By its interface's name.
    Name(IfName),
    /// By its interface's hardware address.
    Mac(Mac),
    /// By its folder below `/sys`, and the words for it.
    Folder(PathBuf, String),
}

/// The checked configuration.
pub(super) struct Conf {
    /// `None`: a program in the container drives it, there is no interface.
    pub(super) device: Option<Device>,
    pub(super) dns: Dns,
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let (device, pci) = Device::of(&keys)?;
        let dpdk = match pci {
            Some((folder, words)) => is_for_userspace(&folder, &words)?,
            None => keys.dpdk_mode,
        };
        Ok(Conf { device: (!dpdk).then_some(device), dns: keys.dns })
    }

    /// Whether a device is named at all: STATUS comes without what the runtime chooses for a container.
    pub(super) fn names_one(config: &Config) -> Result<bool, CniError> {
        let keys: Keys = config.read()?;
        let ways = [&keys.device, &keys.hwaddr, &keys.kernelpath, &keys.pci_bus_id, &keys.runtime_config.device_id];
        Ok(ways.iter().any(|way| !way.is_empty()))
    }

    /// The name that `device` gives; DEL asks for no more, and gets an answer whatever else is wrong.
    pub(super) fn name(config: &Config) -> Option<IfName> {
        config.raw().str("device").and_then(|name| IfName::parse(name).ok())
    }
}

type Pci = (PathBuf, String);

// === impl Device ===

impl Device {
    /// The device, and the PCI device that a driver is looked up of.
    fn of(keys: &Keys) -> Result<(Self, Option<Pci>), CniError> {
        let id = keys.runtime_config.device_id.as_str();
        if !id.is_empty() {
            if let Some(folder) = Bus::Pci.device(id) {
                let pci = (folder, format!("PCI device {id}"));
                return Ok((Device::Folder(pci.0.clone(), pci.1.clone()), Some(pci)));
            }
            let folder = Bus::Auxiliary.device(id).ok_or_else(|| {
                let why = "is neither in /sys/bus/pci/devices nor in /sys/bus/auxiliary/devices";
                CniError::invalid("runtimeConfig.deviceID", format!("runtime config DeviceID {id} not found or unsupported: it {why}"))
            })?;
            return Ok((Device::Folder(folder, format!("auxiliary device {id}")), None));
        }
        let id = keys.pci_bus_id.as_str();
        let pci = match (id.is_empty(), Bus::Pci.device(id)) {
            (true, _) => None,
            (false, Some(folder)) => Some((folder, format!("PCI device {id}"))),
            (false, None) => {
                return Err(CniError::invalid("pciBusID", format!("there is no PCI device {id:?}; `ls /sys/bus/pci/devices`")));
            }
        };
        let device = if !keys.device.is_empty() {
            Device::Name(IfName::parse(&keys.device).map_err(|e| CniError::invalid("device", e))?)
        } else if !keys.hwaddr.is_empty() {
            Device::Mac(keys.hwaddr.parse().map_err(|e| CniError::invalid("hwaddr", e))?)
        } else if !keys.kernelpath.is_empty() {
            Device::Folder(kernel_path(&keys.kernelpath)?, format!("device {}", keys.kernelpath))
        } else if let Some((folder, words)) = &pci {
            Device::Folder(folder.clone(), words.clone())
        } else {
            return Err(CniError::invalid("device", "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\""));
        };
        Ok((device, pci))
    }

    /// Its interface, where `netlink` is.
    pub(super) fn find(&self, netlink: &mut Netlink) -> Result<Link, CniError> {
        let link = match self {
            Device::Name(name) => netlink.link(name.as_str()).map_err(internal)?.ok_or_else(|| self.missing(netlink, name))?,
            Device::Mac(mac) => {
                let links = netlink.links().map_err(internal)?;
                let found = links.into_iter().find(|l| l.mac.as_ref() == Some(mac));
                found.ok_or_else(|| CniError::invalid("hwaddr", format!("no interface of this host has the hardware address {mac}")))?
            }
            Device::Folder(folder, words) => {
                let name = sysfs::interface(folder).map_err(|e| internal(format!("{words}: {}: {e}", folder.display())))?;
                let name = name.ok_or_else(|| {
                    internal(format!("{words} has no interface here: is it in another container, or without its network driver?"))
                })?;
                let link = netlink.link(&name).map_err(internal)?;
                link.ok_or_else(|| internal(format!("{words} is interface {name}, which is not in this network namespace")))?
            }
        };
        match link.flags.loopback() {
            true => Err(CniError::invalid("device", format!("{} is the loopback interface: every namespace keeps its own", link.name))),
            false => Ok(link),
        }
    }

    fn missing(&self, netlink: &mut Netlink, name: &IfName) -> CniError {
        let links = netlink.links().unwrap_or_default();
        // What the kernel gave back when a container's namespace went, or a crash left.
        let stray = links.iter().find(|l| l.alias.as_deref() == Some(name.as_str()));
        let hint = match stray {
            Some(l) => {
                format!("; {} has the alias {name}: its container is gone; the DEL or GC of its network gives it its name back", l.name)
            }
            None => "; is it in another container?".to_owned(),
        };
        CniError::invalid("device", format!("there is no interface {name} on this host{hint}"))
    }
}

/// `/sys/devices/...`, and nothing that leads out of it.
fn kernel_path(path: &str) -> Result<PathBuf, CniError> {
    let is_plain = Path::new(path).components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match path.starts_with("/sys/devices/") && is_plain {
        true => Ok(path.into()),
        false => Err(CniError::invalid("kernelpath", format!("kernel device path {path:?} must be absolute and begin with /sys/devices/"))),
    }
}

fn is_for_userspace(folder: &Path, words: &str) -> Result<bool, CniError> {
    match sysfs::driver(folder) {
        Ok(Some(driver)) => Ok(USERSPACE_DRIVERS.contains(&driver.as_str())),
        Ok(None) => Err(internal(format!("error with host device: {words} has no driver; bind it to one"))),
        Err(e) => Err(internal(format!("error with host device: {words}: {}: {e}", folder.display()))),
    }
}
