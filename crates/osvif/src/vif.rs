//! A virtual interface.

use serde_json::{Map, Value};

use crate::fields::{self, Fields};
use crate::object::{self, Opened, put};
use crate::{Network, PortProfile, Problem, Rest};

/// A virtual interface: a Neutron port, and how it is plugged (os_vif `VIFBase` 1.0 and what is derived from it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vif {
    /// The port's ID.
    pub id: String,
    /// Its MAC address.
    pub address: Option<String>,
    /// Its network.
    pub network: Option<Network>,
    /// Who plugs it: `ovs`, or `noop` for nested ones.
    pub plugin: Option<String>,
    /// The name of the node's end, as `tapd1e40f3e-d1`.
    pub vif_name: Option<String>,
    /// Whether Neutron reports the port as ACTIVE.
    pub active: Option<bool>,
    /// Whether the port outlives the pod.
    pub preserve_on_delete: Option<bool>,
    /// Whether the switch enforces security groups.
    pub has_traffic_filtering: Option<bool>,
    /// What the port is to the switch.
    pub port_profile: Option<PortProfile>,
    /// How it is plugged.
    pub kind: VifKind,
    /// What else it has.
    pub rest: Rest,
}

/// How a VIF is plugged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VifKind {
    /// `VIFOpenVSwitch` 1.0: one end of a veth is a port of the bridge.
    OpenVSwitch {
        /// The bridge.
        bridge_name: Option<String>,
    },
    /// `VIFBridge` 1.0: a Linux bridge stands between the pod and Open vSwitch ("hybrid plug").
    Bridge {
        /// The Linux bridge.
        bridge_name: Option<String>,
    },
    /// Kuryr's `VIFVlanNested` 1.0: a VLAN of the node's own trunk port.
    VlanNested {
        /// 1 to 4094.
        vlan_id: u16,
    },
    /// Kuryr's `VIFMacvlanNested` 1.0: a macvlan of the node's own port.
    MacvlanNested,
    /// Kuryr's `VIFDPDKNested` 1.0: a device of the node's own, for a userspace driver.
    DpdkNested {
        /// The device; empty until the node knows it.
        pci_address: Option<String>,
        /// Its driver; empty until the node knows it.
        dev_driver: Option<String>,
    },
    /// Kuryr's `VIFSriov` 1.1: a virtual function that a device plugin gives the pod.
    Sriov {
        /// The physical network on which its card must be.
        physnet: String,
    },
    /// `VIFVHostUser` 1.1: a socket.
    VhostUser {
        /// Who opens the socket.
        mode: VhostUserMode,
        /// The socket.
        path: String,
    },
    /// One of another kind, kept as it came.
    Other {
        /// Its name.
        name: String,
    },
}

/// What QEMU, or what stands in its place, is to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VhostUserMode {
    /// It connects.
    Client,
    /// It listens.
    Server,
}

// === impl Vif ===

impl Vif {
    /// Reads one, in its envelope.
    ///
    /// # Errors
    /// [`Problem`]: what is wrong, and where. One of an unknown kind is read as [`VifKind::Other`].
    pub fn read(value: Value) -> Result<Self, Problem> {
        let mut opened = Opened::of(value)?;
        let kind = VifKind::read(&opened.name, &mut opened.fields)?;
        let fields = &mut opened.fields;
        Ok(Vif {
            id: fields.required("id", fields::uuid)?,
            address: fields.optional("address", fields::mac)?,
            network: fields.optional("network", object::read)?,
            plugin: fields.optional("plugin", fields::text)?,
            vif_name: fields.optional("vif_name", fields::text)?,
            active: fields.optional("active", fields::flag)?,
            preserve_on_delete: fields.optional("preserve_on_delete", fields::flag)?,
            has_traffic_filtering: fields.optional("has_traffic_filtering", fields::flag)?,
            port_profile: fields.optional("port_profile", PortProfile::read)?,
            rest: opened.rest(kind.version()),
            kind,
        })
    }

    /// As it is written, in its envelope.
    #[must_use]
    pub fn write(self) -> Value {
        let (name, version) = (self.kind.name().to_owned(), self.kind.version());
        self.rest.close(&name, version, |data| {
            put(data, "id", Some(self.id));
            put(data, "address", self.address);
            put(data, "network", self.network.map(object::write));
            put(data, "plugin", self.plugin);
            put(data, "vif_name", self.vif_name);
            put(data, "active", self.active);
            put(data, "preserve_on_delete", self.preserve_on_delete);
            put(data, "has_traffic_filtering", self.has_traffic_filtering);
            put(data, "port_profile", self.port_profile.map(PortProfile::write));
            self.kind.write(data);
        })
    }
}

// === impl VifKind ===

impl VifKind {
    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            VifKind::OpenVSwitch { .. } => "VIFOpenVSwitch",
            VifKind::Bridge { .. } => "VIFBridge",
            VifKind::VlanNested { .. } => "VIFVlanNested",
            VifKind::MacvlanNested => "VIFMacvlanNested",
            VifKind::DpdkNested { .. } => "VIFDPDKNested",
            VifKind::Sriov { .. } => "VIFSriov",
            VifKind::VhostUser { .. } => "VIFVHostUser",
            VifKind::Other { name } => name,
        }
    }

    fn version(&self) -> &'static str {
        match self {
            VifKind::Sriov { .. } | VifKind::VhostUser { .. } => "1.1",
            // It was read, and has its version.
            VifKind::Other { .. } => "",
            _ => "1.0",
        }
    }

    fn read(name: &str, fields: &mut Fields) -> Result<Self, Problem> {
        Ok(match name {
            "VIFOpenVSwitch" => VifKind::OpenVSwitch { bridge_name: fields.optional("bridge_name", fields::text)? },
            "VIFBridge" => VifKind::Bridge { bridge_name: fields.optional("bridge_name", fields::text)? },
            "VIFVlanNested" => VifKind::VlanNested { vlan_id: fields.required("vlan_id", vlan_id)? },
            "VIFMacvlanNested" => VifKind::MacvlanNested,
            "VIFDPDKNested" => VifKind::DpdkNested {
                pci_address: fields.optional("pci_address", fields::text)?,
                dev_driver: fields.optional("dev_driver", fields::text)?,
            },
            "VIFSriov" => VifKind::Sriov { physnet: fields.required("physnet", fields::text)? },
            "VIFVHostUser" => VifKind::VhostUser { mode: fields.required("mode", mode)?, path: fields.required("path", fields::text)? },
            name => VifKind::Other { name: name.to_owned() },
        })
    }

    fn write(self, data: &mut Map<String, Value>) {
        match self {
            VifKind::OpenVSwitch { bridge_name } | VifKind::Bridge { bridge_name } => put(data, "bridge_name", bridge_name),
            VifKind::VlanNested { vlan_id } => put(data, "vlan_id", Some(vlan_id)),
            VifKind::DpdkNested { pci_address, dev_driver } => {
                put(data, "pci_address", pci_address);
                put(data, "dev_driver", dev_driver);
            }
            VifKind::Sriov { physnet } => put(data, "physnet", Some(physnet)),
            VifKind::VhostUser { mode, path } => {
                put(data, "mode", Some(if mode == VhostUserMode::Client { "client" } else { "server" }));
                put(data, "path", Some(path));
            }
            VifKind::MacvlanNested | VifKind::Other { .. } => {}
        }
    }
}

fn vlan_id(value: Value) -> Result<u16, Problem> {
    let number = fields::number(value)?;
    let id = u16::try_from(number).ok().filter(|id| (1..=4094).contains(id));
    id.ok_or_else(|| fields::wrong("a VLAN ID, 1 to 4094", &number.to_string()))
}

fn mode(value: Value) -> Result<VhostUserMode, Problem> {
    match fields::text(value)?.as_str() {
        "client" => Ok(VhostUserMode::Client),
        "server" => Ok(VhostUserMode::Server),
        other => Err(fields::wrong("\"client\" or \"server\"", other)),
    }
}
