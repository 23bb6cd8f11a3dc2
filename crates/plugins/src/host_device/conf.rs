//! The configuration of `host-device`, and the device that it means.

use std::path::{Component, Path, PathBuf};

use cni::{CniError, Code, Config, Dns, Mac};
use linux::sysfs::{self, Bus};
use linux::{Link, Netlink};
use serde::Deserialize;

use super::loan::Loan;
use crate::card::USERSPACE_DRIVERS;
use crate::device_id::RuntimeKeys;
use crate::{internal, parent};

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

/// How the configuration names the device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DeviceSelector {
    Name(String),
    Mac(Mac),
    KernelPath(PathBuf),
    PciBus(String),
    /// Chosen by the runtime.
    Id(String),
}

/// The device that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Device {
    /// By its interface's name or altname.
    Name(String),
    /// By its interface's hardware address.
    Mac(Mac),
    /// By its folder below `/sys`, with the key that names it and the words for it.
    Folder {
        /// Without symbolic links.
        folder: PathBuf,
        key: &'static str,
        words: String,
    },
}

/// The configuration, checked as far as it goes without a look at what is there.
pub(super) struct Conf {
    way: DeviceSelector,
    /// The PCI device whose driver says whether there is an interface at all.
    pci: Option<String>,
    dpdk: bool,
    pub(super) dns: Dns,
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let pci = Some(keys.pci_bus_id.clone()).filter(|id| !id.is_empty() && keys.runtime_config.device_id.is_empty());
        Ok(Conf { way: DeviceSelector::of(&keys)?, pci, dpdk: keys.dpdk_mode, dns: keys.dns })
    }

    /// Whether a device is named at all: STATUS comes without what the runtime chooses for a container.
    pub(super) fn names_one(config: &Config) -> Result<bool, CniError> {
        let keys: Keys = config.read()?;
        let ways = [&keys.device, &keys.hwaddr, &keys.kernelpath, &keys.pci_bus_id, &keys.runtime_config.device_id];
        Ok(ways.iter().any(|way| !way.is_empty()))
    }

    /// The device; `None`: a program in the container drives it, there is no interface.
    pub(super) fn device(&self) -> Result<Option<Device>, CniError> {
        let pci = self.pci.as_ref().map(|id| pci_device(id)).transpose()?;
        let (device, driven) = match &self.way {
            DeviceSelector::Name(name) => (Device::Name(name.clone()), pci),
            DeviceSelector::Mac(mac) => (Device::Mac(mac.clone()), pci),
            DeviceSelector::KernelPath(path) => (kernel_device(path)?, pci),
            DeviceSelector::PciBus(id) => (pci_device(id)?, pci),
            DeviceSelector::Id(id) => match Bus::Pci.device(id) {
                Some(folder) => {
                    let device = Device::folder("runtimeConfig.deviceID", &folder, format!("PCI device {id}"))?;
                    (device.clone(), Some(device))
                }
                None => (auxiliary_device(id)?, None),
            },
        };
        let dpdk = match driven {
            Some(Device::Folder { folder, key, words }) => is_for_userspace(&folder, key, &words)?,
            _ => self.dpdk,
        };
        Ok((!dpdk).then_some(device))
    }
}

// === impl DeviceSelector ===

impl DeviceSelector {
    fn of(keys: &Keys) -> Result<Self, CniError> {
        Ok(if !keys.runtime_config.device_id.is_empty() {
            DeviceSelector::Id(keys.runtime_config.device_id.clone())
        } else if !keys.device.is_empty() {
            parent::any_name("device", &keys.device)?;
            DeviceSelector::Name(keys.device.clone())
        } else if !keys.hwaddr.is_empty() {
            DeviceSelector::Mac(keys.hwaddr.parse().map_err(|e| CniError::invalid("hwaddr", e))?)
        } else if !keys.kernelpath.is_empty() {
            DeviceSelector::KernelPath(kernel_path(&keys.kernelpath)?)
        } else if !keys.pci_bus_id.is_empty() {
            DeviceSelector::PciBus(keys.pci_bus_id.clone())
        } else {
            return Err(
                CniError::new(Code::INVALID_CONFIG, "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"").at("device")
            );
        })
    }
}

// === impl Device ===

impl Device {
    fn folder(key: &'static str, folder: &Path, words: String) -> Result<Self, CniError> {
        let folder = folder.canonicalize().map_err(|e| CniError::invalid(key, format!("{words} does not exist: {e}")))?;
        Ok(Device::Folder { folder, key, words })
    }

    /// Its interface, where `netlink` is; `loan` says who has it, if it is known to be away.
    pub(super) fn find(&self, netlink: &mut Netlink, loan: Option<&Loan>) -> Result<Link, CniError> {
        let has = loan.map(|loan| format!("container {} has it as {} (network {})", loan.id.container, loan.id.ifname, loan.id.network));
        match self {
            Device::Name(name) => netlink.link(name).map_err(internal)?.ok_or_else(|| missing(netlink, name, has)),
            Device::Mac(mac) => {
                let links = netlink.links().map_err(internal)?;
                let found = links.into_iter().find(|l| l.mac.as_ref() == Some(mac));
                found.ok_or_else(|| {
                    let hint = has.map(|has| format!(": {has}")).unwrap_or_default();
                    CniError::worded(
                        "failed to find host device: failed to find physical interface",
                        format_args!("hwaddr: no interface of this host has the hardware address {mac}{hint}"),
                    )
                })
            }
            Device::Folder { folder, key, words } => {
                let shown = sysfs::interface(folder).map_err(|e| internal(format!("{words}: {}: {e}", folder.display())))?;
                let shown = shown.ok_or_else(|| {
                    let why = has.unwrap_or_else(|| "it may be in another container, or without its network driver".to_owned());
                    CniError::invalid(key, format!("{words} has no interface here: {why}"))
                })?;
                let link = netlink.link(&shown.name).map_err(internal)?;
                link.filter(|link| shown.is(link)).ok_or_else(|| {
                    let why = "which is not in this network namespace but in the one where /sys was mounted";
                    CniError::invalid(key, format!("{words} is interface {}, {why}", shown.name))
                })
            }
        }
    }

    /// Whether a link is the device, wherever it is, as far as that can be told when `find` does not find it any more: a link
    /// keeps its original name as its alias.
    pub(super) fn is(&self, link: &Link) -> bool {
        match self {
            Device::Name(name) => link.alias.as_ref() == Some(name) || link.altnames.contains(name),
            Device::Mac(mac) => [&link.permanent_mac, &link.mac].contains(&&Some(mac.clone())),
            Device::Folder { folder, .. } => link.device.as_ref().and_then(sysfs::folder).is_some_and(|its| its.starts_with(folder)),
        }
    }
}

/// No link of these can be lent.
pub(super) fn may_be_lent(link: &Link) -> Result<(), CniError> {
    match link.flags.loopback() {
        true => Err(CniError::invalid("device", format!("{} is the loopback interface, which cannot be moved", link.name))),
        false => Ok(()),
    }
}

fn missing(netlink: &mut Netlink, name: &str, has: Option<String>) -> CniError {
    let links = netlink.links().unwrap_or_default();
    // What the kernel gave back when a container's namespace went, or a crash left.
    let stray = links.iter().find(|l| l.alias.as_deref() == Some(name));
    let hint = match stray {
        Some(l) => {
            format!("; {} has the alias {name}: its container is gone; a DEL or GC of its network restores the name", l.name)
        }
        None => format!("; {}", has.unwrap_or_else(|| "it may be in another container".to_owned())),
    };
    CniError::worded("failed to find host device: Link not found", format_args!("device: there is no interface {name} on this host{hint}"))
}

fn pci_device(id: &str) -> Result<Device, CniError> {
    if let Some(folder) = Bus::Pci.device(id) {
        return Device::folder("pciBusID", &folder, format!("PCI device {id}"));
    }
    // lspci leaves the domain out where there is only one.
    let hint = match id.split([':', '.']).map(str::len).eq([2, 2, 1]) {
        true => format!("; with its domain, which lspci leaves out, it would be 0000:{id}"),
        false => String::new(),
    };
    Err(CniError::invalid("pciBusID", format!("there is no PCI device {id:?}{hint}; `ls /sys/bus/pci/devices`")))
}

fn auxiliary_device(id: &str) -> Result<Device, CniError> {
    let key = "runtimeConfig.deviceID";
    let folder = Bus::Auxiliary.device(id).ok_or_else(|| {
        let why = "is neither in /sys/bus/pci/devices nor in /sys/bus/auxiliary/devices";
        CniError::worded(format_args!("runtime config DeviceID {id} not found or unsupported"), format_args!("{key} {why}"))
    })?;
    Device::folder(key, &folder, format!("auxiliary device {id}"))
}

/// `/sys/devices/...`, and nothing that leads out of it.
fn kernel_path(path: &str) -> Result<PathBuf, CniError> {
    let is_plain = Path::new(path).components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match path.starts_with("/sys/devices/") && is_plain {
        true => Ok(path.into()),
        false => Err(CniError::worded(
            format_args!("failed to find host device: kernel device path {path:?} must be absolute and begin with /sys/devices/"),
            "kernelpath",
        )
        .at("kernelpath")),
    }
}

/// A device has one path, by which the cluster owner's policy knows it. Symbolic links below it lead to any other device.
fn kernel_device(path: &Path) -> Result<Device, CniError> {
    let words = format!("device {}", path.display());
    match Device::folder("kernelpath", path, words)? {
        Device::Folder { folder, .. } if folder.as_os_str() != path.as_os_str() => {
            Err(CniError::invalid("kernelpath", format!("{} contains symbolic links; use {}", path.display(), folder.display())))
        }
        device => Ok(device),
    }
}

fn is_for_userspace(folder: &Path, key: &str, words: &str) -> Result<bool, CniError> {
    match sysfs::driver(folder) {
        Ok(Some(driver)) => Ok(USERSPACE_DRIVERS.contains(&driver.as_str())),
        Ok(None) => Err(CniError::invalid(key, format!("error with host device: {words} has no driver; bind one to it"))),
        Err(e) => Err(internal(format!("error with host device: {words}: {}: {e}", folder.display()))),
    }
}
