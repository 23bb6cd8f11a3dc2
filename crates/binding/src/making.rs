//! Ports that are to be made: what is asked for, and how many by one request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use openstack::resource::{AllocationPool, NewPort, Subnet, WantedIp};

use crate::owner::Carrier;
use crate::snapshot::{Element, Key, ObjectName, Pod};
use crate::step::{Call, DEVICE_OWNER, Index, MAX_BULK};
use crate::{Owner, Refused, VnicType};

/// A subnet that has fewer addresses left than this, as far as is known, may have too few for a bulk.
const RESERVE: u128 = 2 * MAX_BULK as u128;

// === impl Index ===

impl Index<'_> {
    pub(crate) fn new_port(&self, uid: &str, pod: &Pod, element: &Element, network_id: &str, subnets: &[&Subnet]) -> NewPort {
        let defaults = &self.world.defaults;
        let owner = Owner { pod: uid.to_owned(), element: element.number };
        let (tags, description) = match defaults.tags_later {
            true => (Vec::new(), owner.description(&self.world.cluster)),
            false => (self.tags_of(&owner), String::new()),
        };
        let ObjectName { namespace, name } = &pod.name;
        let security_groups = element.security_groups.as_ref().unwrap_or(&defaults.security_groups).clone();
        NewPort {
            network_id: network_id.to_owned(),
            project_id: element.project.as_ref().unwrap_or(&defaults.project).clone(),
            name: if defaults.port_names { format!("{namespace}/{name}") } else { String::new() },
            admin_state_up: true,
            device_owner: DEVICE_OWNER.to_owned(),
            device_id: uid.to_owned(),
            fixed_ips: addresses(&element.ips, subnets),
            mac_address: element.mac.clone(),
            security_groups: Some(security_groups).filter(|groups| !groups.is_empty()),
            host: pod.node.clone(),
            tags,
            description,
            qos_policy_id: element.qos_policy.clone(),
            allowed_address_pairs: element.address_pairs.clone(),
            vnic_type: Some(element.vnic_type).filter(|of| *of != VnicType::Normal).map(|of| of.name().to_owned()),
        }
    }

    /// A port that is bound to no host. Neutron puts no port on a trunk that has a device.
    pub(crate) fn carried(&self, port: &mut NewPort, carrier: &Carrier) {
        port.host.clear();
        if matches!(carrier, Carrier::Trunk(_)) {
            port.device_id.clear();
        }
        match self.world.defaults.tags_later {
            true => port.description = format!("{} {}", port.description, carrier.tag()),
            false => port.tags.push(carrier.tag()),
        }
    }

    /// New ports, many at once; those that were refused together, one by one, and so those of subnets that may be full: where a subnet has
    /// too few addresses for a bulk, Neutron 21 forgets to free those that it had taken for it (`create_port_bulk`, `allocate_ips_for_ports`).
    pub(crate) fn make(&mut self) {
        let mut used: BTreeMap<&str, u128> = BTreeMap::new();
        for ip in self.world.ports.iter().flat_map(BTreeMap::values).flat_map(|port| &port.fixed_ips) {
            *used.entry(ip.subnet_id.as_str()).or_default() += 1;
        }
        let is_scarce = |id: &str| {
            let size = self.world.subnets.get(id).and_then(|subnet| size(&subnet.as_ref()?.cidr)).unwrap_or_default();
            self.world.scarce.contains(id) || size.saturating_sub(used.get(id).copied().unwrap_or_default()) < RESERVE
        };
        let is_alone = |key: &Key, port: &NewPort| {
            let of = port.fixed_ips.iter().filter_map(|ip| ip.subnet_id.as_deref());
            self.world.tried.contains_key(key) || self.world.scarce.contains(&port.network_id) || of.into_iter().any(is_scarce)
        };
        let (alone, together): (Vec<_>, Vec<_>) = std::mem::take(&mut self.new).into_iter().partition(|(key, port)| is_alone(key, port));
        let bulks = together.chunks(MAX_BULK).chain(alone.chunks(1));
        self.step.calls.extend(bulks.map(|bulk| Call::CreatePorts(bulk.to_vec())));
    }
}

/// How many addresses a range has.
fn size(cidr: &str) -> Option<u128> {
    let cidr: IpNet = cidr.parse().ok()?;
    Some(1_u128.checked_shl(u32::from(cidr.max_prefix_len() - cidr.prefix_len())).unwrap_or(u128::MAX))
}

/// Whether a pod may ask for an address: one that Neutron would give away, or with a rule that allows it another one of the subnet; never the
/// router's.
pub(crate) fn may_have(ip: IpAddr, subnets: &[&Subnet], outside_pools: bool) -> Result<(), Refused> {
    if subnets.is_empty() {
        return Err(Refused::AddressWithoutSubnet(ip));
    }
    let is_inside = |subnet: &&&Subnet| subnet.cidr.parse::<IpNet>().is_ok_and(|cidr| cidr.contains(&ip));
    let subnet = subnets.iter().find(is_inside).ok_or(Refused::AddressOutside(ip))?;
    let is = |text: &str, wanted: fn(IpAddr, IpAddr) -> bool| text.parse().is_ok_and(|other| wanted(ip, other));
    if subnets.iter().filter_map(|subnet| subnet.gateway_ip.as_deref()).any(|gateway| is(gateway, |ip, gateway| ip == gateway)) {
        return Err(Refused::AddressOfGateway(ip, subnet.id.clone()));
    }
    let is_in_pool = |pool: &AllocationPool| is(&pool.start, |ip, start| ip >= start) && is(&pool.end, |ip, end| ip <= end);
    match outside_pools || subnet.allocation_pools.iter().any(is_in_pool) {
        true => Ok(()),
        false => Err(Refused::AddressOutsidePools(ip, subnet.id.clone())),
    }
}

/// An address in each subnet: that which is asked for, where it is one of the subnet's. In a network without named subnets Neutron chooses.
fn addresses(ips: &[IpAddr], subnets: &[&Subnet]) -> Vec<WantedIp> {
    let subnet_of = |ip: &IpAddr| subnets.iter().find(|subnet| subnet.cidr.parse::<IpNet>().is_ok_and(|cidr| cidr.contains(ip)));
    let wanted = |subnet_id: Option<String>, ip: Option<&IpAddr>| WantedIp { subnet_id, ip_address: ip.map(ToString::to_string) };
    let asked = ips.iter().map(|ip| wanted(subnet_of(ip).map(|subnet| subnet.id.clone()), Some(ip)));
    let any = subnets.iter().filter(|subnet| !ips.iter().any(|ip| subnet_of(ip).is_some_and(|of| of.id == subnet.id)));
    asked.chain(any.map(|subnet| wanted(Some(subnet.id.clone()), None))).collect()
}
