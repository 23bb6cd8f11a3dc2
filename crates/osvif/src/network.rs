//! The Neutron network of a VIF, as far as an interface on it needs to know it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::fields::{self, Fields};
use crate::object::{self, Object, put};
use crate::{List, Problem, Rest};

/// A network (os_vif `Network` 1.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Neutron's ID.
    pub id: String,
    /// Its name there.
    pub label: Option<String>,
    /// The Open vSwitch bridge of its ports on a node.
    pub bridge: Option<String>,
    /// In bytes.
    pub mtu: Option<u32>,
    /// Nova's; always false.
    pub multi_host: Option<bool>,
    /// Whether who plugs makes the bridge.
    pub should_provide_bridge: Option<bool>,
    /// Whether who plugs makes the VLAN.
    pub should_provide_vlan: Option<bool>,
    /// The VLAN of a provider network of type `vlan`.
    pub vlan: Option<u32>,
    /// Its subnets in which the VIF has addresses.
    pub subnets: Option<List<Subnet>>,
    /// What else it has.
    pub rest: Rest,
}

/// A subnet (os_vif `Subnet` 1.0).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnet {
    /// Its range.
    pub cidr: Option<IpNet>,
    /// Name servers.
    pub dns: Option<Vec<IpAddr>>,
    /// The router for everything else.
    pub gateway: Option<IpAddr>,
    /// The VIF's addresses.
    pub ips: Option<List<FixedIp>>,
    /// Neutron's `host_routes`.
    pub routes: Option<List<Route>>,
    /// What else it has.
    pub rest: Rest,
}

/// An address of the VIF (os_vif `FixedIP` 1.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedIp {
    /// The address.
    pub address: IpAddr,
    /// What else it has.
    pub rest: Rest,
}

/// A route (os_vif `Route` 1.0).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub cidr: Option<IpNet>,
    /// By way of whom.
    pub gateway: Option<IpAddr>,
    /// What else it has.
    pub rest: Rest,
}

// === impl Network ===

impl Object for Network {
    const NAME: &'static str = "Network";
    const LIST: &'static str = "NetworkList";
    const VERSION: &'static str = "1.1";

    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Network {
            id: fields.required("id", fields::uuid)?,
            label: fields.optional("label", fields::text)?,
            bridge: fields.optional("bridge", fields::text)?,
            mtu: fields.optional("mtu", fields::number)?,
            multi_host: fields.optional("multi_host", fields::flag)?,
            should_provide_bridge: fields.optional("should_provide_bridge", fields::flag)?,
            should_provide_vlan: fields.optional("should_provide_vlan", fields::flag)?,
            vlan: fields.optional("vlan", fields::number)?,
            subnets: fields.optional("subnets", object::read_list)?,
            rest: Rest::default(),
        })
    }

    fn write(self, data: &mut Map<String, Value>) {
        put(data, "id", Some(self.id));
        put(data, "label", self.label);
        put(data, "bridge", self.bridge);
        put(data, "mtu", self.mtu);
        put(data, "multi_host", self.multi_host);
        put(data, "should_provide_bridge", self.should_provide_bridge);
        put(data, "should_provide_vlan", self.should_provide_vlan);
        put(data, "vlan", self.vlan);
        put(data, "subnets", self.subnets.map(object::write_list));
    }

    fn rest(&mut self) -> &mut Rest {
        &mut self.rest
    }
}

// === impl Subnet ===

impl Object for Subnet {
    const NAME: &'static str = "Subnet";
    const LIST: &'static str = "SubnetList";
    const VERSION: &'static str = "1.0";

    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Subnet {
            cidr: fields.optional("cidr", fields::cidr)?,
            dns: fields.optional("dns", fields::addresses)?,
            gateway: fields.optional("gateway", fields::address)?,
            ips: fields.optional("ips", object::read_list)?,
            routes: fields.optional("routes", object::read_list)?,
            rest: Rest::default(),
        })
    }

    fn write(self, data: &mut Map<String, Value>) {
        put(data, "cidr", self.cidr.map(|cidr| cidr.to_string()));
        put(data, "dns", self.dns.map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>()));
        put(data, "gateway", self.gateway.map(|gateway| gateway.to_string()));
        put(data, "ips", self.ips.map(object::write_list));
        put(data, "routes", self.routes.map(object::write_list));
    }

    fn rest(&mut self) -> &mut Rest {
        &mut self.rest
    }
}

// === impl FixedIp ===

impl From<IpAddr> for FixedIp {
    fn from(address: IpAddr) -> Self {
        FixedIp { address, rest: Rest::default() }
    }
}

impl Object for FixedIp {
    const NAME: &'static str = "FixedIP";
    const LIST: &'static str = "FixedIPList";
    const VERSION: &'static str = "1.0";

    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        fields.required("address", fields::address).map(FixedIp::from)
    }

    fn write(self, data: &mut Map<String, Value>) {
        put(data, "address", Some(self.address.to_string()));
    }

    fn rest(&mut self) -> &mut Rest {
        &mut self.rest
    }
}

// === impl Route ===

impl Object for Route {
    const NAME: &'static str = "Route";
    const LIST: &'static str = "RouteList";
    const VERSION: &'static str = "1.0";

    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        let (cidr, gateway) = (fields.optional("cidr", fields::cidr)?, fields.optional("gateway", fields::address)?);
        Ok(Route { cidr, gateway, rest: Rest::default() })
    }

    fn write(self, data: &mut Map<String, Value>) {
        put(data, "cidr", self.cidr.map(|cidr| cidr.to_string()));
        put(data, "gateway", self.gateway.map(|gateway| gateway.to_string()));
    }

    fn rest(&mut self) -> &mut Rest {
        &mut self.rest
    }
}
