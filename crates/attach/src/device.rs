//! The device of an attachment: which one it gets, and what is told of it (S68).
//!
//! ```text
//!   plan   definition's resourceName, selection's deviceID, what the pod holds --Choice--> Device
//!             its name goes into every plugin's configuration, and into runtimeConfig
//!   ADD    dp/RESOURCE-DEVICE-device.json --offer--> cni/CONTAINER@INTERFACE-device.json
//!             plugins with the capability CNIDeviceInfoFile read it, or write it where there was none
//!          --told--> the record, network-status
//!   DEL    the file goes, last of all
//! ```
//!
//! Information that cannot be used fails no attachment. The pod asked for a network, which it has, over a device that
//! works; to refuse it for a description that most pods never look at would turn one bad version of a device plugin into
//! pods that do not start. The status lacks `device-info` then, and the record says why.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cni::{CniError, Code, ContainerId, NetworkList};
use json::{Object, Value};
use linux::file::{self, Durability};
use npwg::{DeviceInfo, MAX_DEVICE_INFO};
use plugin::{Stage, Teardown};

use crate::{Planned, Step};

/// The capability, and the key of `runtimeConfig`, with the path of an attachment's file.
const FILE: &str = "CNIDeviceInfoFile";

/// The device that an attachment gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What its device plugin calls it; often a PCI address.
    pub id: String,
    /// The resource that it is one of, as `intel.com/nic`.
    pub resource: Option<String>,
}

/// The devices that the kubelet gave a pod: by resource, in the order of their allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    held: BTreeMap<String, Vec<String>>,
}

/// What is known of an attachment's device.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ReportedDevice {
    /// It has none, or nobody says anything of it.
    #[default]
    Nothing,
    /// This.
    Info(DeviceInfo),
    /// Somebody said something that cannot be used: why.
    Unusable(String),
}

/// Gives each attachment its device.
pub(crate) struct Choice<'a> {
    held: Option<&'a Devices>,
    /// Those that the pod names, or that an earlier attachment got: with their resource, as two resources may call their
    /// devices the same.
    taken: Vec<(Option<&'a str>, &'a str)>,
}

// === impl Devices ===

impl Devices {
    /// From pairs of a resource and a device.
    pub fn new<R: Into<String>, D: Into<String>>(pairs: impl IntoIterator<Item = (R, D)>) -> Self {
        let mut held = BTreeMap::<String, Vec<String>>::new();
        for (resource, device) in pairs {
            held.entry(resource.into()).or_default().push(device.into());
        }
        Devices { held }
    }
}

// === impl Choice ===

impl<'a> Choice<'a> {
    /// Without `held` nobody knows what the pod holds, and it gets what it names.
    pub(crate) fn new(held: Option<&'a Devices>, named: impl Iterator<Item = (Option<&'a str>, &'a str)>) -> Self {
        Choice { held, taken: named.collect() }
    }

    /// The device of the next attachment, whose definition has this resource and whose selection names this device. The
    /// n-th attachment of a resource gets the n-th device, as every implementation has it.
    ///
    /// A resource of which the pod holds no device at all gives none: it may be one that only counts, as the bridges that
    /// KubeVirt's bridge marker reports. A plugin that needs a device says so itself.
    pub(crate) fn next(&mut self, resource: Option<&'a str>, named: Option<&str>) -> Result<Option<Device>, CniError> {
        let device = |id: &str| Some(Device { id: id.to_owned(), resource: resource.map(str::to_owned) });
        let Some(Devices { held }) = self.held else { return Ok(named.and_then(device)) };
        let of_resource = resource.and_then(|resource| held.get(resource)).map(Vec::as_slice).unwrap_or_default();
        if let Some(id) = named {
            let is_held = match resource {
                Some(_) => of_resource.iter().any(|d| d == id),
                None => held.values().flatten().any(|d| d == id),
            };
            let what = resource.unwrap_or("any resource");
            let why = format!("the pod does not have this device of {what}; remove the key to get one of its devices");
            return if is_held { Ok(device(id)) } else { Err(CniError::invalid("deviceID", format!("{id:?}: {why}"))) };
        }
        let is_free = |id: &&String| !self.taken.iter().any(|(of, taken)| taken == *id && (of.is_none() || *of == resource));
        match of_resource.iter().find(is_free) {
            Some(id) => {
                self.taken.push((resource, id));
                Ok(device(id))
            }
            None if of_resource.is_empty() => Ok(None),
            None => {
                let (resource, held) = (resource.unwrap_or_default(), of_resource.len());
                let why = format!("the pod has {held}, but more attachments need one: request more in its resources");
                Err(CniError::new(Code::INVALID_CONFIG, format!("resource {resource}: {why}")))
            }
        }
    }
}

// === impl Device ===

impl Device {
    /// Tells every plugin of the network: under the two keys that plugins for devices look for, one of which is right only
    /// for PCI devices, and as `runtimeConfig` for those with the capability.
    pub(crate) fn tell(&self, list: &mut NetworkList, runtime_config: &mut Object) {
        for key in ["deviceID", "pciBusID"] {
            list.set_in_plugins(key, |_| Some(Value::from(self.id.as_str())));
        }
        runtime_config.set("deviceID", self.id.as_str());
    }
}

// === impl ReportedDevice ===

impl ReportedDevice {
    /// What is known.
    pub fn info(&self) -> Option<&DeviceInfo> {
        match self {
            ReportedDevice::Info(info) => Some(info),
            ReportedDevice::Nothing | ReportedDevice::Unusable(_) => None,
        }
    }

    /// Puts it into the JSON form of a step.
    pub(crate) fn write(&self, step: &mut Object) {
        match self {
            ReportedDevice::Nothing => {}
            ReportedDevice::Info(info) => step.set("deviceInfo", info.raw().clone()),
            ReportedDevice::Unusable(why) => step.set("deviceProblem", why.as_str()),
        }
    }

    /// From the JSON form of a step.
    pub(crate) fn read(step: &Object) -> Result<Self, String> {
        match (step.get("deviceInfo"), step.str("deviceProblem")) {
            (Some(info), _) => DeviceInfo::read(info).map(ReportedDevice::Info).map_err(|e| e.to_string()),
            (None, Some(why)) => Ok(ReportedDevice::Unusable(why.to_owned())),
            (None, None) => Ok(ReportedDevice::Nothing),
        }
    }
}

/// `runtimeConfig` of an attachment, with the path of its file where it has one: the intent names it in advance.
pub(crate) fn runtime_config(planned: &Planned, sandbox: &ContainerId, dir: &Path) -> Object {
    let mut config = planned.capability_args.clone();
    if planned.device.is_some() || planned.list.has_capability(FILE) {
        config.set(FILE, dir.join(npwg::attachment_file(sandbox, &planned.ifname)).to_string_lossy().into_owned());
    }
    config
}

fn file_of(step: &Step) -> Option<PathBuf> {
    step.capability_args.str(FILE).map(PathBuf::from)
}

/// Before ADD: puts what the device plugin says into the attachment's file. `ReportedDevice::Unusable` if that cannot be used.
pub(crate) fn offer(device: Option<&Device>, step: &Step, dir: &Path) -> Result<ReportedDevice, CniError> {
    let Some(path) = file_of(step) else { return Ok(ReportedDevice::Nothing) };
    let fail = |e: String| CniError::new(Code::IO, format!("device information: {e}"));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| fail(format!("make {}: {e}", folder.display())))?;
    }
    // Of an attachment of that name that nobody detached.
    file::remove(&path).map_err(|e| fail(e.to_string()))?;
    match device.map(|device| of_device_plugin(device, dir)).transpose().map(Option::flatten) {
        Ok(None) => Ok(ReportedDevice::Nothing),
        Ok(Some((bytes, info))) => {
            file::write_atomic(&path, &bytes, 0o600, Durability::Volatile).map_err(|e| fail(e.to_string()))?;
            linux::crash_point!("device-info-offered");
            Ok(ReportedDevice::Info(info))
        }
        Err(why) => Ok(ReportedDevice::Unusable(why)),
    }
}

/// After ADD: what stands in the attachment's file. Where nothing does, what was `offered` still holds.
pub(crate) fn told(step: &Step, offered: ReportedDevice) -> ReportedDevice {
    let Some(path) = file_of(step) else { return offered };
    match read(&path) {
        Ok(None) => offered,
        Ok(Some((_, info))) => ReportedDevice::Info(info),
        Err(why) => ReportedDevice::Unusable(why),
    }
}

/// What the device plugin says of a device, if it says anything (S66).
fn of_device_plugin(device: &Device, dir: &Path) -> Result<Option<(Vec<u8>, DeviceInfo)>, String> {
    let Some(resource) = &device.resource else { return Ok(None) };
    let path = npwg::device_plugin_file(resource, &device.id).map_err(|e| e.to_string())?;
    read(&dir.join(path))
}

fn read(path: &Path) -> Result<Option<(Vec<u8>, DeviceInfo)>, String> {
    let Some(bytes) = file::read_small(path, MAX_DEVICE_INFO).map_err(|e| e.to_string())? else { return Ok(None) };
    match DeviceInfo::parse(&bytes) {
        Ok(info) => Ok(Some((bytes, info))),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// The file of an attachment that is undone goes with its other files.
pub(crate) fn collect(step: &Step, teardown: &mut Teardown) {
    if let Some(path) = file_of(step) {
        let remove = move |_: &mut plugin::Host| file::remove(&path).map_err(|e| CniError::new(Code::IO, e.to_string()));
        teardown.at(Stage::Files, "device information", remove);
    }
}

#[cfg(test)]
mod tests;
