//! The keys about ports of OpenStack's Neutron that this agent plugs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cni::IfName;
use json::{Object, Value};

use super::{SettingsError, values};

/// How the Neutron ports of pods are plugged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vifs {
    /// Where a controller says which ports a pod has.
    pub source: VifSource,
    /// How long an ADD waits for a pod's ports, and again until they are ACTIVE.
    pub wait: Duration,
    /// Whether an ADD waits until they are ACTIVE.
    pub until_active: bool,
    /// Whether nothing passes a port until Neutron's agent of the node has given it a VLAN, for which an ADD waits as well.
    pub isolate: bool,
    /// Whether the pod's default network is a port of Neutron, too.
    pub default_network: bool,
    /// The bridges of Open vSwitch that a port may be plugged into.
    pub bridges: Vec<IfName>,
    /// What nested ports stand on; the interface of the default route if not given.
    pub link: Option<String>,
    /// The largest MTU, in bytes, that an interface gets.
    pub max_mtu: Option<u32>,
    /// The socket of ovsdb-server; the usual one if not given.
    pub socket: Option<PathBuf>,
    /// The directory of the sockets of vhost-user ports; without it none is plugged.
    pub vhost_dir: Option<PathBuf>,
    /// By physical network, the resource of a device plugin whose devices are virtual functions of a card on it.
    pub resources: BTreeMap<String, String>,
    /// By such a resource, the driver to which a virtual function is bound for a program in the pod; without it the one that it has stays.
    pub drivers: BTreeMap<String, String>,
    /// The driver to which the device of a nested DPDK port is bound; the plugin's choice if not given.
    pub dpdk_driver: Option<String>,
    /// The directory of the files that tell programs in pods the PCI addresses of their nested DPDK ports.
    pub pci_dir: Option<PathBuf>,
}

/// Where a controller says which Neutron ports a pod has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VifSource {
    /// Nowhere: none is plugged.
    #[default]
    Nowhere,
    /// In KuryrPort objects.
    KuryrPorts,
    /// In an annotation of the pod.
    Annotation,
}

/// The keys that mean something only where ports are plugged.
const OTHERS: &[&str] = &[
    "openstackDefault",
    "openstackWait",
    "openstackActive",
    "openstackBridges",
    "openstackLink",
    "openstackMTU",
    "openstackSocket",
    "openstackVhostDir",
    "openstackVLAN",
    "openstackResources",
    "openstackDrivers",
    "openstackDPDKDriver",
    "openstackPCIDir",
];

impl Vifs {
    pub(super) fn read(keys: &Object) -> Result<Self, SettingsError> {
        let sources = [("none", VifSource::Nowhere), ("kuryrports", VifSource::KuryrPorts), ("annotation", VifSource::Annotation)];
        let source = values::word(keys, "openstackVIFs", &sources)?;
        if let Some(key) = OTHERS.iter().find(|key| source == VifSource::Nowhere && keys.get(key).is_some()) {
            return Err(SettingsError::Without { key, needed: "openstackVIFs: kuryrports" });
        }
        let bridges = values::strings(keys, "openstackBridges")?.unwrap_or_else(|| vec!["br-int".to_owned()]);
        let bridge = |name: String| {
            let refused = |e| values::wrong("openstackBridges", &format!("names of bridges ({e})"), &Value::String(name.clone()));
            IfName::parse(&name).map_err(refused)
        };
        let mtu = keys.get("openstackMTU").map(|_| values::count(keys, "openstackMTU", 0, 65535)).transpose()?;
        Ok(Vifs {
            source,
            wait: values::duration(keys, "openstackWait", Duration::from_secs(60))?,
            default_network: values::word(keys, "openstackDefault", &[("none", false), ("port", true)])?,
            until_active: values::word(keys, "openstackActive", &[("wait", true), ("later", false)])?,
            isolate: values::word(keys, "openstackVLAN", &[("agent", true), ("none", false)])?,
            bridges: bridges.into_iter().map(bridge).collect::<Result<_, _>>()?,
            link: values::text(keys, "openstackLink")?,
            max_mtu: mtu.and_then(|mtu| u32::try_from(mtu).ok()),
            socket: values::path(keys, "openstackSocket")?,
            vhost_dir: values::path(keys, "openstackVhostDir")?,
            resources: values::texts(keys, "openstackResources")?,
            drivers: values::texts(keys, "openstackDrivers")?,
            dpdk_driver: values::text(keys, "openstackDPDKDriver")?,
            pci_dir: values::path(keys, "openstackPCIDir")?,
        })
    }
}
