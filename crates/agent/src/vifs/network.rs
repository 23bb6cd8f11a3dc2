//! From a VIF to the network that plugs it: the configuration of a plugin, as anybody could write it.
//!
//! ```text
//!   VIFOpenVSwitch   ovs, with the port's ID, by which Neutron's agent knows it
//!   VIFBridge        ovs-hybrid, the same behind a Linux bridge
//!   VIFVHostUser     ovs-vhost-user, with a socket in a directory of the settings
//!   VIFVlanNested    vlan, and tuning for its hardware address, on the node's trunk port
//!   VIFMacvlanNested macvlan, on the node's port
//!   VIFSriov         sriov-vf, with a device that the kubelet gave the pod
//!   VIFDPDKNested    dpdk-device, with the machine's device of the port's hardware address, or one of the kubelet's
//! ```
//!
//! Addresses, gateways, routes and name servers are the subnets': `static` assigns them. A route of the pod's default network is not taken
//! away by one of a subnet.

use std::path::Path;

use cni::{IfName, NetworkList};
use osvif::{PortProfile, Subnet, VhostUserMode, Vif, VifKind};
use serde_json::{Map, Value, json};

use crate::settings::Vifs;

/// A VIF that this node does not plug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unpluggable {
    /// Its kind is not supported.
    #[error("a VIF of kind {0} is not supported: use a Neutron port of binding:vif_type ovs, a trunk's subport, nested macvlan or SR-IOV")]
    Kind(String),
    /// It does not say where it is plugged into.
    #[error("its VIF names no bridge: set ovs_bridge in the controller's settings")]
    NoBridge,
    /// It is plugged into a bridge that the node does not offer.
    #[error("its VIF names the bridge {bridge:?}, and the agent's openstackBridges are {offered}: add it there")]
    Bridge {
        /// The bridge.
        bridge: String,
        /// Those of the settings.
        offered: String,
    },
    /// Its socket is in no directory that the node offers.
    #[error("its VIF names the socket {path:?}: set openstackVhostDir to its directory; its name must be {name}")]
    Socket {
        /// The socket.
        path: String,
        /// What it would have to be called there.
        name: String,
    },
    /// There is nothing that it could stand on.
    #[error("it is nested, and this node has no default route whose interface it could stand on: set openstackLink")]
    NoLink,
    /// Nobody says which devices are on its physical network.
    #[error(
        "no resource has devices on its physical network {physnet:?}: set openstackResources, or the annotation {} of its definition",
        npwg::RESOURCE_NAME
    )]
    NoResource {
        /// The physical network.
        physnet: String,
    },
    /// The pod asks for the device in its resources, and for its default network it cannot.
    #[error("the port of the default network cannot be a virtual function: select it as an additional network")]
    DefaultFunction,
    /// No configuration can be made of it.
    #[error("its VIF cannot be used: {0}")]
    Unusable(String),
}

/// What of the node a VIF is plugged into, as far as the VIF does not say it itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Base<'a> {
    /// What nested ones stand on.
    pub(crate) link: Option<&'a str>,
    /// The resource that the definition names.
    pub(crate) resource: Option<&'a str>,
}

/// The resource of which a VIF must have a device, if it needs one.
pub(crate) fn resource<'a>(vif: &'a Vif, settings: &'a Vifs, base: Base<'a>) -> Result<Option<&'a str>, Unpluggable> {
    let VifKind::Sriov { physnet } = &vif.kind else { return Ok(None) };
    let found = base.resource.or_else(|| settings.resources.get(physnet).map(String::as_str));
    let missing = || Unpluggable::NoResource { physnet: physnet.chars().take(80).collect() };
    found.ok_or_else(missing).map(Some)
}

/// The network of a VIF; that of the pod's default network has default routes.
pub(crate) fn network(vif: &Vif, settings: &Vifs, base: Base<'_>, is_default: bool) -> Result<NetworkList, Unpluggable> {
    let Base { link, .. } = base;
    let mut plugin = match &vif.kind {
        VifKind::OpenVSwitch { bridge_name } => switched("ovs", vif, bridge_name.as_ref().or_else(|| of_network(vif)), settings)?,
        // The bridge that it names is the Linux one.
        VifKind::Bridge { .. } => switched("ovs-hybrid", vif, of_network(vif), settings)?,
        VifKind::VhostUser { mode, path } => vhost_user(vif, *mode, path, settings)?,
        VifKind::VlanNested { vlan_id } => json!({"type": "vlan", "master": link.ok_or(Unpluggable::NoLink)?, "vlanId": vlan_id}),
        VifKind::MacvlanNested => json!({"type": "macvlan", "master": link.ok_or(Unpluggable::NoLink)?, "mode": "bridge"}),
        VifKind::Sriov { .. } if is_default => return Err(Unpluggable::DefaultFunction),
        VifKind::Sriov { .. } => virtual_function(vif, resource(vif, settings, base)?, settings),
        VifKind::DpdkNested { .. } => dpdk_device(vif, settings),
        other => return Err(Unpluggable::Kind(other.name().to_owned())),
    };
    let network = vif.network.as_ref();
    let mtu = [network.and_then(|network| network.mtu), settings.max_mtu].into_iter().flatten().min();
    let has_link = !matches!(vif.kind, VifKind::DpdkNested { .. });
    if let Some(mtu) = mtu.filter(|mtu| *mtu > 0 && has_link) {
        put(&mut plugin, "mtu", mtu.into());
    }
    // A VLAN has its parent's hardware address, until `tuning` gives it another one.
    let mut behind = None;
    if let Some(mac) = &vif.address {
        match vif.kind {
            // It is the device's own.
            VifKind::DpdkNested { .. } => {}
            VifKind::VlanNested { .. } => behind = Some(json!({"type": "tuning", "mac": mac})),
            _ => put(&mut plugin, "mac", mac.as_str().into()),
        }
    }
    let subnets = network.and_then(|network| network.subnets.as_ref()).map(|list| list.objects.as_slice()).unwrap_or_default();
    addresses(subnets, is_default, &mut plugin)?;
    let name = network.map_or(vif.id.as_str(), |network| network.id.as_str());
    let plugins: Vec<Value> = [plugin].into_iter().chain(behind).collect();
    let list = json!({"cniVersion": "1.1.0", "name": name, "plugins": plugins});
    NetworkList::parse(list.to_string().as_bytes(), None).map_err(|e| Unpluggable::Unusable(e.to_string()))
}

/// A port that a program in the pod uses over a socket: the directory must be the node's, and the name that which the plugin gives it.
fn vhost_user(vif: &Vif, mode: VhostUserMode, path: &str, settings: &Vifs) -> Result<Value, Unpluggable> {
    let name = format!("vhu{}", plugins::short_id(port_id(vif)));
    let dir = settings.vhost_dir.as_ref().filter(|dir| Path::new(path) == dir.join(&name));
    let Some(dir) = dir else { return Err(Unpluggable::Socket { path: path.chars().take(120).collect(), name }) };
    let mut plugin = switched("ovs-vhost-user", vif, of_network(vif), settings)?;
    put(&mut plugin, "socketDir", dir.to_string_lossy().as_ref().into());
    put(&mut plugin, "mode", if mode == VhostUserMode::Client { "client" } else { "server" }.into());
    Ok(plugin)
}

/// A virtual function; which one the kubelet says. The card adds and removes the tags of a network that is a VLAN.
fn virtual_function(vif: &Vif, resource: Option<&str>, settings: &Vifs) -> Value {
    let mut plugin = json!({"type": "sriov-vf", "capabilities": {"deviceID": true}});
    let network = vif.network.as_ref().filter(|network| network.should_provide_vlan == Some(true));
    if let Some(vlan) = network.and_then(|network| network.vlan) {
        put(&mut plugin, "vlan", vlan.into());
    }
    if let Some(driver) = resource.and_then(|resource| settings.drivers.get(resource)) {
        put(&mut plugin, "driver", driver.as_str().into());
    }
    plugin
}

/// A device of the machine, which its cloud has given it for the pod. One that the kubelet gave the pod comes first.
fn dpdk_device(vif: &Vif, settings: &Vifs) -> Value {
    let mut plugin = json!({"type": "dpdk-device", "capabilities": {"deviceID": true}});
    let dir = settings.pci_dir.as_ref().map(|dir| dir.to_string_lossy().into_owned());
    for (key, text) in [("hwaddr", &vif.address), ("driver", &settings.dpdk_driver), ("pciDir", &dir)] {
        if let Some(text) = text {
            put(&mut plugin, key, text.as_str().into());
        }
    }
    plugin
}

fn of_network(vif: &Vif) -> Option<&String> {
    vif.network.as_ref()?.bridge.as_ref()
}

/// A port of Open vSwitch.
fn switched(kind: &str, vif: &Vif, bridge: Option<&String>, settings: &Vifs) -> Result<Value, Unpluggable> {
    let mut plugin = json!({"type": kind, "bridge": offered(bridge, &settings.bridges)?, "iface_id": port_id(vif)});
    if settings.isolate {
        put(&mut plugin, "isolate", true.into());
    }
    if let Some(socket) = &settings.socket {
        put(&mut plugin, "socket_file", socket.to_string_lossy().as_ref().into());
    }
    Ok(plugin)
}

/// The port's ID as the switch is told it.
pub(super) fn port_id(vif: &Vif) -> &str {
    match &vif.port_profile {
        Some(PortProfile::OpenVSwitch { interface_id: Some(id), .. }) => id,
        _ => &vif.id,
    }
}

/// A bridge, if it is one of the settings'.
fn offered<'a>(bridge: Option<&'a String>, bridges: &[IfName]) -> Result<&'a str, Unpluggable> {
    let bridge = bridge.ok_or(Unpluggable::NoBridge)?;
    match bridges.iter().any(|offered| offered.as_str() == bridge) {
        true => Ok(bridge),
        false => {
            let offered = bridges.iter().map(IfName::as_str).collect::<Vec<_>>().join(", ");
            Err(Unpluggable::Bridge { bridge: bridge.chars().take(80).collect(), offered })
        }
    }
}

fn addresses(subnets: &[Subnet], is_default: bool, plugin: &mut Value) -> Result<(), Unpluggable> {
    let (mut addresses, mut routes, mut servers): (Vec<Value>, Vec<Value>, Vec<Value>) = Default::default();
    for subnet in subnets {
        let Some(cidr) = subnet.cidr else { return Err(Unpluggable::Unusable("a subnet has no range".to_owned())) };
        for ip in subnet.ips.iter().flat_map(|list| &list.objects) {
            let mut address = json!({"address": format!("{}/{}", ip.address, cidr.prefix_len())});
            if let Some(gateway) = subnet.gateway {
                put(&mut address, "gateway", gateway.to_string().into());
            }
            addresses.push(address);
        }
        if let Some(gateway) = subnet.gateway.filter(|_| is_default) {
            routes.push(json!({"dst": if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" }, "gw": gateway.to_string()}));
        }
        for route in subnet.routes.iter().flat_map(|list| &list.objects) {
            let Some(dst) = route.cidr.filter(|dst| dst.prefix_len() > 0) else { continue };
            let mut wanted = json!({"dst": dst.to_string()});
            if let Some(gateway) = route.gateway {
                put(&mut wanted, "gw", gateway.to_string().into());
            }
            routes.push(wanted);
        }
        servers.extend(subnet.dns.iter().flatten().map(|server| Value::from(server.to_string())));
    }
    if !addresses.is_empty() {
        servers.dedup();
        let mut ipam = json!({"type": "static", "addresses": addresses});
        for (key, list) in [("routes", routes), ("dns", servers)] {
            match key {
                _ if list.is_empty() => {}
                "dns" => put(&mut ipam, key, json!({"nameservers": list})),
                _ => put(&mut ipam, key, list.into()),
            }
        }
        put(plugin, "ipam", ipam);
    }
    Ok(())
}

fn put(object: &mut Value, key: &str, value: Value) {
    object.as_object_mut().unwrap_or(&mut Map::new()).insert(key.to_owned(), value);
}
