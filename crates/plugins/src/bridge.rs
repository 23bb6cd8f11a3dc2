//! `bridge`: a veth pair between the container and a bridge of the host.
//!
//! ```text
//!   host:  bridge <- veth...      container:  eth0
//!             gateway   \_____ one pair _____/   addresses, routes
//! ```

mod check;
mod conf;
mod host;
mod pair;
mod vlan;

use std::net::IpAddr;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Mac, Route, Version};
use ipnet::IpNet;
use linux::link::Ipv6Conf;
use linux::{Inside, Link, Netlink};
use plugin::{About, Call, Cx, Draft, Key, PlannedChange, Plugin, Restore};

use crate::address::{self, Addresses, Dad};
use crate::conflict::Wire;
use crate::{internal, mac, masquerade, open, reverse, spoof, strict, verify, veth};
use conf::Conf;

/// The plugin `bridge`.
pub(crate) struct Bridge;

static ABOUT: About = About {
    name: "bridge",
    summary: "connects the container to a bridge of the host with a veth pair",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("bridge", "string", "cni0", "the bridge, created if it is missing"),
        Key::new("isGateway", "bool", "false", "the bridge gets the gateway's address, and the host forwards"),
        Key::new("isDefaultGateway", "bool", "false", "like isGateway, and the container's default route uses it"),
        Key::new("forceAddress", "bool", "false", "replaces another address of the bridge instead of failing"),
        Key::new("ipMasq", "bool", "false", "traffic that leaves the network gets the host's address (masquerading)"),
        Key::new("ipMasqBackend", "string", "nftables", "\"nftables\" and \"iptables\" both use nftables"),
        Key::new("mtu", "bytes", "the bridge's", "MTU of the pair, and of a bridge that is created"),
        veth::Queues::KEY,
        Key::new("hairpinMode", "bool", "false", "a container may reach itself through the bridge"),
        Key::new("promiscMode", "bool", "false", "the bridge receives every frame"),
        Key::new("macspoofchk", "bool", "false", "drops frames from another hardware address than the container's own"),
        Key::new("strictSource", "bool", "false", "drops packets from another IP address than the container's own"),
        Key::new("portIsolation", "bool", "false", "isolates the containers of this bridge from each other"),
        Key::new("vlan", "number", "0", "the VLAN to which the container belongs, up to 4094; 0: none"),
        Key::new(
            "vlanTrunk",
            "list",
            "none",
            "VLANs that the container sends and receives with their tags: {\"id\"}, {\"minID\", \"maxID\"}",
        )
        .of(&["id", "minID", "maxID"]),
        Key::new("preserveDefaultVlan", "bool", "false", "with `vlan` or `vlanTrunk` the port stays in the bridge's default VLAN as well"),
        Key::new("enabledad", "bool", "false", "IPv6 addresses wait for duplicate address detection"),
        Key::new("disableContainerInterface", "bool", "false", "the container's end is left down"),
        Key::new("mac", "string", "set by the kernel", "hardware address of the container's end"),
        mac::FROM_IP,
        Key::new("ipam", "object", "none", "addresses; without it the pair has none"),
    ],
    needs_link: false,
};

impl Plugin for Bridge {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config, &CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let mut conf = Conf::read(call.config, call.args)?;
        let netns = call.netns()?;
        let addresses = Addresses::before_link(conf.ipam.clone(), call, cx)?;
        conf.mac = mac::of_new_link(call.config, conf.mac, &addresses, cx)?;
        if conf.mac_spoof_check {
            // The guard has to know it before the container can send.
            conf.mac = conf.mac.or_else(mac::random);
        }
        if let Some(result) = addresses.known().filter(|_| conf.is_gateway) {
            // Before anything is made, where that can be.
            nobody_has_gateway(&conf, result)?;
        }
        conf.bridge_mac = of_gateway(&conf, call.config, &addresses)?;
        linux::crash_point!("bridge-addresses-known");
        // Until the container is a port, the bridge may be taken for one without any.
        let stays = cx.host.keep_idle_links();
        let bridge = host::ensure_bridge(cx.host, &conf)?;
        linux::crash_point!("bridge-there");
        if let Some(mtu) = conf.mtu.filter(|mtu| *mtu < bridge.mtu) {
            // The kernel gives a bridge the smallest MTU of its ports.
            cx.review(PlannedChange::Mtu(&bridge, mtu))?;
        }
        let outer = pair::make(cx.host.netlink()?, &conf, call, &bridge)?;
        cx.host.let_idle_links_go(stays);
        cx.teardown.link(veth::link_to_delete(call, &outer));
        linux::crash_point!("bridge-pair-made");
        // It takes no address from router advertisements of the container (CVE-2020-10749).
        address::set_ipv6(cx.host.inside(), &outer, Ipv6Conf::AcceptRa, 0)?;
        linux::crash_point!("bridge-pair-quiet");
        if let Some(mac) = conf.mac.as_ref().filter(|_| conf.mac_spoof_check) {
            spoof::add(call, cx, &outer, mac, conf.strict_source)?;
        }

        let wire = if conf.disable_container_interface { Wire::None } else { Wire::Port(outer.index) };
        let mut result = addresses.with_link(call, cx, &wire)?;
        let mut gateway = None;
        let is_gateway = conf.is_gateway && !result.ips.is_empty();
        if is_gateway {
            gateways(&conf, &mut result)?;
        }
        address::put_gateways_on_link(&mut result);
        // Also before rules: masquerading knows a pod by its address.
        cx.review(PlannedChange::Result(&result))?;
        if is_gateway {
            gateway = vlan::ensure_gateway_link(cx.host, &conf, &bridge)?;
            host::ensure_gateway(cx.host, gateway.as_ref().unwrap_or(&bridge), &result, conf.force_address)?;
            linux::crash_point!("bridge-gateway-there");
        }
        if conf.strict_reverse_path {
            reverse::add_to_bridge(cx.host, [Some(&bridge), gateway.as_ref()].into_iter().flatten())?;
        }
        if conf.strict_source {
            let guarded = conf.mac.as_ref().filter(|_| conf.mac_spoof_check);
            strict::add(call, cx, &result, guarded.map(|mac| (outer.index, mac)))?;
        }
        let link = netns
            .enter_with(|inside, netlink| configure(inside, netlink, (outer.other_end(), call), &conf, &mut result))
            .map_err(internal)??;
        cx.host.made_link(netns.id(), link.index);
        let bridge = host::meet(cx.host.netlink()?, bridge, gateway.as_ref(), &outer, &result)?;
        if conf.ip_masq {
            masquerade::add(call, cx, &result)?;
        }
        result.interfaces = vec![address::of_host(&bridge), address::of_host(&outer), address::interface(&link, netns)];
        result.interfaces.extend(gateway.iter().map(address::of_host));
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(2));
        address::name_resolution(call.config, conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        verify::ipam(call, cx)?;
        let (prev, name) = (&verify::told(call, cx)?, call.id.ifname.as_str());
        let up = !conf.disable_container_interface;
        call.netns()?.enter(|inside| verify::inside(&mut open(inside)?, prev, name, "veth", up)).map_err(internal)??;
        check::check(call, cx.host, &conf)?;
        if conf.ip_masq {
            masquerade::check(call, cx, prev)?;
        }
        if conf.mac_spoof_check {
            spoof::check(call, cx, prev)?;
        }
        if conf.strict_source {
            strict::check(call, cx, prev)?;
        }
        if conf.strict_reverse_path {
            let elements = reverse::of_bridge(cx.host, &conf.own_links()?)?;
            rules::check(cx.host.nft()?, &elements).map_err(internal)?;
        }
        Ok(())
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let outer = pair::find(cx.host.netlink()?, call)?;
        if let Some(outer) = &outer {
            cx.teardown.link(veth::link_to_delete(call, outer));
        }
        masquerade::del(call, cx)?;
        spoof::del(call, cx, outer.map(|outer| outer.index))?;
        strict::del(call, cx)?;
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, &CniArgs::default())?;
        host::usable(cx.host.netlink()?, &conf).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        if conf.mac_spoof_check {
            spoof::status(cx)?;
        }
        if conf.strict_source {
            strict::status(cx)?;
        }
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        masquerade::gc(config, valid, cx)?;
        spoof::gc(config, valid, cx)?;
        for outer in veth::stale(cx.host.netlink()?, &config.network, valid)? {
            cx.teardown.link(outer);
        }
        address::gc(config, valid, cx)
    }

    fn restore(&self, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let conf = Conf::read(call.config, call.args)?;
        if conf.ip_masq {
            masquerade::restore(call, into)?;
        }
        if conf.strict_reverse_path {
            into.elements(reverse::of_bridge(cx.host, &conf.own_links()?)?);
        }
        if conf.mac_spoof_check {
            spoof::restore(call, cx, into, conf.strict_source)?;
        }
        if conf.strict_source { strict::restore(call, cx, into, conf.mac_spoof_check) } else { Ok(()) }
    }
}

/// Every address gets a gateway, the first address of its network if IPAM named none; a default route of each family
/// goes there, unless IPAM gave one with a next hop.
fn gateways(conf: &Conf, result: &mut AddResult) -> Result<(), CniError> {
    nobody_has_gateway(conf, result)?;
    for ip in &mut result.ips {
        if ip.gateway.is_none() {
            ip.gateway = Some(host::first_address(&ip.address)?);
        }
    }
    if !conf.is_default_gateway {
        return Ok(());
    }
    for ip in &result.ips {
        let default = match ip.address {
            IpNet::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
            IpNet::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
        };
        let there = result.routes.iter().any(|r| r.network() == default && r.gw.is_some());
        if !there {
            result.routes.push(Route::new(default, ip.gateway));
        }
    }
    Ok(())
}

/// A gateway that nobody named is no address that the container was given: the bridge would have it as well.
fn nobody_has_gateway(conf: &Conf, result: &AddResult) -> Result<(), CniError> {
    for ip in result.ips.iter().filter(|ip| ip.gateway.is_none()) {
        let Ok(gateway) = host::first_address(&ip.address) else { continue };
        if let Some(given) = result.ips.iter().find(|given| given.address.addr() == gateway) {
            let msg = format!(
                "the container was assigned {}, but bridge {} would use {gateway} as the gateway of {}, because no gateway is \
                    configured: set a \"gateway\" in the pool, the range or the address",
                given.address,
                conf.bridge,
                ip.address.trunc(),
            );
            return Err(CniError::invalid("isGateway", msg));
        }
    }
    Ok(())
}

/// With `macFromIP` a bridge that is made as a gateway has its address in its hardware address, too, as kubenet's has: the
/// containers' entries for it stay true when it is made anew. A VLAN's gateway is another link.
fn of_gateway(conf: &Conf, config: &Config, addresses: &Addresses) -> Result<Option<Mac>, CniError> {
    let Some(result) = addresses.known() else { return Ok(None) };
    let v4 = result.ips.iter().find(|ip| ip.address.addr().is_ipv4());
    let Some(ip) = v4.filter(|_| conf.is_gateway) else { return Ok(None) };
    if conf.vlans.gateway_name(&conf.bridge)?.is_some() || !mac::from_ip(config)? {
        return Ok(None);
    }
    Ok(match ip.gateway.map_or_else(|| host::first_address(&ip.address), Ok)? {
        IpAddr::V4(gateway) => mac::of_address(gateway),
        IpAddr::V6(_) => None,
    })
}

/// The container's end, from inside.
fn configure(
    inside: &Inside,
    netlink: &mut Netlink,
    (index, call): (u32, &Call<'_>),
    conf: &Conf,
    result: &mut AddResult,
) -> Result<Link, CniError> {
    let name = call.id.ifname.as_str();
    if !conf.disable_container_interface && !conf.enable_dad && address::is_ipv4_alone(inside, call, result) {
        return address::configure_new(netlink, index, name, result);
    }
    let link = netlink.link(name).map_err(internal)?.ok_or_else(|| internal(format!("{name} disappeared while it was configured")))?;
    if conf.disable_container_interface {
        return Ok(link);
    }
    let (dad, settings) = match conf.enable_dad {
        false => (Dad::Off, [(Ipv6Conf::AcceptDad, 0)].as_slice()),
        true => (Dad::On, [(Ipv6Conf::EnhancedDad, 1), (Ipv6Conf::AcceptDad, 1)].as_slice()),
    };
    address::ipv6(inside, &link, call, result, settings)?;
    address::configure(netlink, &link, result, dad)?;
    Ok(link)
}
