//! A port as the node's side needs to know it: Kuryr's translation (`os_vif_util.py` of 10.0.0), rule by rule.

use std::net::IpAddr;
use std::str::FromStr;

use openstack::resource::{Network, Port, Subnet};
use osvif::{List, PortProfile, Rest, Route, Vif, VifKind};

use crate::Refused;
use crate::owner::is_existing;

/// The kernel's limit of an interface's name is 15, Kuryr's 14.
const NAME_LENGTH: usize = 14;

/// The VIF of a port that is bound. `subnets` are those in which its addresses are.
///
/// # Errors
/// [`Refused`]: it is not bound, or in a way that nobody here can plug.
pub fn vif(port: &Port, network: &Network, subnets: &[&Subnet], bridge: Option<&str>) -> Result<Vif, Refused> {
    match port.vif_type.as_str() {
        "ovs" | "hw_veb" => {}
        "binding_failed" => {
            let (id, host) = (port.id.clone(), port.host.clone());
            return Err(Refused::Binding { interface: id.clone(), port: id, host });
        }
        other => return Err(Refused::VifType { port: port.id.clone(), vif_type: other.to_owned() }),
    }
    if port.vif_type == "hw_veb" {
        return function(port, network, subnets);
    }
    let bridge = port.vif_details.bridge_name.as_deref().or(bridge).ok_or_else(|| Refused::NoBridge(port.id.clone()))?;
    let kind = match port.vif_details.ovs_hybrid_plug {
        true => VifKind::Bridge { bridge_name: Some(named("qbr", &port.id)) },
        false => VifKind::OpenVSwitch { bridge_name: Some(bridge.to_owned()) },
    };
    Ok(Vif {
        id: port.id.clone(),
        address: Some(port.mac_address.clone()),
        network: Some(osvif::Network { bridge: Some(bridge.to_owned()), ..network_of(port, network, subnets)? }),
        plugin: Some(port.vif_type.clone()),
        vif_name: Some(named("tap", &port.id)),
        active: Some(port.is_active()),
        preserve_on_delete: Some(is_existing(port)),
        has_traffic_filtering: Some(port.vif_details.port_filter),
        port_profile: Some(PortProfile::OpenVSwitch { interface_id: Some(port.id.clone()), rest: Rest::default() }),
        kind,
        rest: Rest::default(),
    })
}

/// The VIF of a virtual function, as Kuryr wrote it until the release Yoga, but for the names of its pod.
fn function(port: &Port, network: &Network, subnets: &[&Subnet]) -> Result<Vif, Refused> {
    let missing = || Refused::NoPhysicalNetwork { port: port.id.clone(), network: network.id.clone() };
    let physnet = network.physical_network.clone().ok_or_else(missing)?;
    Ok(Vif {
        id: port.id.clone(),
        address: Some(port.mac_address.clone()),
        network: Some(network_of(port, network, subnets)?),
        plugin: Some("sriov".to_owned()),
        vif_name: Some(named("tap", &port.id)),
        active: Some(port.is_active()),
        preserve_on_delete: Some(is_existing(port)),
        has_traffic_filtering: Some(port.vif_details.port_filter),
        port_profile: None,
        kind: VifKind::Sriov { physnet },
        rest: Rest::default(),
    })
}

/// The VIF of a port that the node's own port carries, by `kind`. One of a macvlan counts as ACTIVE, and as unfiltered, as Kuryr wrote it.
///
/// # Errors
/// [`Refused`]: Neutron says something that means nothing.
pub fn nested_vif(port: &Port, network: &Network, subnets: &[&Subnet], kind: VifKind) -> Result<Vif, Refused> {
    let is_macvlan = matches!(kind, VifKind::MacvlanNested);
    Ok(Vif {
        id: port.id.clone(),
        address: Some(port.mac_address.clone()),
        network: Some(network_of(port, network, subnets)?),
        plugin: Some("noop".to_owned()),
        vif_name: Some(named("tap", &port.id)),
        active: Some(is_macvlan || port.is_active()),
        preserve_on_delete: Some(false),
        has_traffic_filtering: Some(!is_macvlan && port.vif_details.port_filter),
        port_profile: None,
        kind,
        rest: Rest::default(),
    })
}

fn network_of(port: &Port, network: &Network, subnets: &[&Subnet]) -> Result<osvif::Network, Refused> {
    let vlan = network.segment.filter(|_| network.provider_type.as_deref() == Some("vlan"));
    let subnets = subnets.iter().map(|subnet| subnet_of(port, subnet)).collect::<Result<Vec<_>, _>>()?;
    Ok(osvif::Network {
        id: network.id.clone(),
        label: Some(network.name.clone()),
        mtu: network.mtu,
        multi_host: Some(false),
        should_provide_bridge: Some(false),
        should_provide_vlan: Some(vlan.is_some()),
        vlan,
        subnets: Some(List::from(subnets)),
        ..osvif::Network::default()
    })
}

fn subnet_of(port: &Port, subnet: &Subnet) -> Result<osvif::Subnet, Refused> {
    let ips = port.fixed_ips.iter().filter(|ip| ip.subnet_id == subnet.id);
    let ips = ips.map(|ip| read::<IpAddr>("fixed_ips", &ip.ip_address).map(osvif::FixedIp::from)).collect::<Result<Vec<_>, _>>()?;
    let route = |route: &openstack::resource::HostRoute| {
        let (cidr, gateway) = (Some(read("host_routes", &route.destination)?), Some(read("host_routes", &route.nexthop)?));
        Ok(Route { cidr, gateway, rest: Rest::default() })
    };
    let routes = subnet.host_routes.iter().map(route).collect::<Result<Vec<_>, _>>()?;
    let dns = subnet.dns_nameservers.iter().map(|server| read("dns_nameservers", server)).collect::<Result<Vec<_>, _>>()?;
    Ok(osvif::Subnet {
        cidr: Some(read("cidr", &subnet.cidr)?),
        dns: Some(dns),
        gateway: subnet.gateway_ip.as_deref().map(|gateway| read("gateway_ip", gateway)).transpose()?,
        ips: Some(List::from(ips)),
        routes: Some(List::from(routes)),
        rest: Rest::default(),
    })
}

fn named(prefix: &str, id: &str) -> String {
    prefix.chars().chain(id.chars()).take(NAME_LENGTH).collect()
}

fn read<T: FromStr>(what: &'static str, text: &str) -> Result<T, Refused> {
    text.parse().map_err(|_| Refused::Unreadable { what, text: text.chars().take(80).collect() })
}
