//! `portmap`: what comes for a port of the host goes to a port of the container. See crate `rules`, `hostports.rs`.

mod conf;
mod tracked;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Version};
use ipnet::IpNet;
use linux::Sysctl;
use linux::nft::SetElement;
use plugin::{About, Call, Cx, Host, Key, Plugin, Stage};
use rules::{AddError, HOST_PORTS};

use crate::internal;
use conf::Conf;

/// The plugin `portmap`.
pub(crate) struct PortMap;

static ABOUT: About = About {
    name: "portmap",
    summary: "publishes ports of the container at the host's addresses",
    versions: Version::ALL,
    capabilities: &["portMappings"],
    keys: &[
        Key::new("snat", "bool", "true", "what comes from the container's own network, or from 127.0.0.1, gets the host's address"),
        Key::new("masqAll", "bool", "false", "with snat: whatever comes through a host port gets the host's address"),
        Key::new("backend", "string", "nftables", "\"nftables\" is the one there is"),
        Key::new(
            "runtimeConfig.portMappings",
            "list",
            "none",
            "{\"hostPort\", \"containerPort\", \"protocol\", \"hostIP\"}: what the runtime asks for",
        ),
    ],
    needs_link: false,
};

impl Plugin for PortMap {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name)?;
        let elements = elements(&conf, call.id, prev);
        if elements.is_empty() {
            return Ok(prev.clone());
        }
        linux::crash_point!("portmap-unpublished");
        unpublish(elements.clone(), x);
        rules::install_and_add(x.host.nft()?, &elements).map_err(refused)?;
        linux::crash_point!("portmap-published");
        tracked::forget_before_us(&elements, x.host)?;
        linux::crash_point!("portmap-forgotten");
        if conf.rewrite.is_some() {
            answer_loopback(prev, call.id.ifname.as_str(), x)?;
            linux::crash_point!("portmap-loopback");
        }
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.prev()?;
        let elements = elements(&conf, call.id, prev);
        rules::check(x.host.nft()?, &elements).map_err(internal)?;
        if elements.is_empty() || conf.rewrite.is_none() {
            return Ok(());
        }
        match localnet(prev, call.id.ifname.as_str(), x.host)? {
            Some((link, _, value)) if value != "1" => Err(internal(format!(
                "route_localnet of {link} is {value}, not 1: connections from 127.0.0.1 to host ports have no way back"
            ))),
            _ => Ok(()),
        }
    }

    fn del(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let gone = published(call, x)?;
        unpublish(gone, x);
        Ok(())
    }

    fn status(&self, config: &Config, x: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?;
        let missing = |e: String| {
            let msg = format!("portmap needs nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT) in this kernel: {e}");
            CniError::new(Code::NOT_AVAILABLE, msg)
        };
        let nft = x.host.nft().map_err(|e| missing(e.to_string()))?;
        nft.has_table(linux::nft::Family::Inet, rules::TABLE).map_err(|e| missing(e.to_string()))?;
        Ok(())
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
        let gone = rules::stale(x.host.nft()?, &HOST_PORTS, &config.network, valid).map_err(internal)?;
        unpublish(gone, x);
        Ok(())
    }
}

/// Elements go first, then what is known of connections through them: the next packet of each is the first of a new one.
fn unpublish(elements: Vec<SetElement>, x: &mut Cx<'_>) {
    let to_us = tracked::to_us(&elements);
    x.teardown.elements(elements);
    if !to_us.is_empty() {
        x.teardown.at(Stage::Devices, "forget connections to host ports", move |host| tracked::forget(&to_us, host));
    }
}

/// The first address of each family that the container's interface has.
fn addresses(prev: &AddResult, name: &str) -> Vec<IpNet> {
    let interface = |i: i64| usize::try_from(i).ok().and_then(|i| prev.interfaces.get(i));
    let ours = |i: i64| interface(i).is_none_or(|i| i.name == name && !i.sandbox.is_empty());
    let all: Vec<IpNet> = prev.ips.iter().filter(|ip| ip.interface.is_none_or(ours)).map(|ip| ip.address).collect();
    let first = |v4: bool| all.iter().find(|net| net.addr().is_ipv4() == v4).copied();
    [first(true), first(false)].into_iter().flatten().collect()
}

/// What ADD makes of this configuration and result.
fn elements(conf: &Conf, id: &AttachmentId, prev: &AddResult) -> Vec<SetElement> {
    let mut elements = Vec::new();
    for address in addresses(prev, id.ifname.as_str()) {
        let ports = conf.ports(address);
        if ports.is_empty() {
            continue;
        }
        elements.extend(rules::host_ports(id, &ports));
        elements.extend(conf.rewrite.map(|rewrite| rules::sources(id, address, rewrite)));
    }
    elements
}

/// What the attachment has. Those that call DEL with all that ADD had are spared a look at every port of this host; for
/// others, and where something of it is missing, the comments tell.
fn published(call: &Call<'_>, x: &mut Cx<'_>) -> Result<Vec<SetElement>, CniError> {
    let conf = Conf::read(call.config).ok();
    let told = conf.zip(call.prev).map(|(conf, prev)| elements(&conf, call.id, prev)).unwrap_or_default();
    let nft = x.host.nft()?;
    let found = nft.find(&told).map_err(internal)?;
    let is_there = |(told, found): (&SetElement, &Option<_>)| found.as_ref() == Some(&told.element);
    if !told.is_empty() && told.iter().zip(&found).all(is_there) {
        return Ok(told);
    }
    rules::owned_by(nft, &HOST_PORTS, call.id).map_err(internal)
}

/// Lets connections from 127.0.0.1 cross the interface that leads to the container. Others may need it as well: it stays.
fn answer_loopback(prev: &AddResult, name: &str, x: &mut Cx<'_>) -> Result<(), CniError> {
    match localnet(prev, name, x.host)? {
        Some((_, setting, value)) if value != "1" => {
            setting.write(x.host.inside(), "1").map_err(|e| internal(format!("unable to enable route_localnet: {e}")))
        }
        _ => Ok(()),
    }
}

/// The interface that leads to the container's IPv4 address, its `route_localnet`, and the value. `None`: there is no such
/// address, or no way to it.
fn localnet(prev: &AddResult, name: &str, host: &mut Host) -> Result<Option<(String, Sysctl, String)>, CniError> {
    let Some(v4) = addresses(prev, name).into_iter().find(|net| net.addr().is_ipv4()) else { return Ok(None) };
    let netlink = host.netlink()?;
    let route = netlink.route_to(v4.addr()).map_err(internal)?;
    let Some(index) = route.and_then(|route| route.ways().find_map(|(_, oif)| oif)) else { return Ok(None) };
    let Some(link) = netlink.link_by_index(index).map_err(internal)? else { return Ok(None) };
    let setting = Sysctl::new(["net", "ipv4", "conf", &link.name, "route_localnet"]).map_err(internal)?;
    let value = setting.read(host.inside()).map_err(internal)?;
    Ok(Some((link.name, setting, value)))
}

fn refused(e: AddError) -> CniError {
    match e {
        AddError::Held { .. } => CniError::new(Code::TRY_AGAIN_LATER, format!("host port {e}")),
        _ => internal(e),
    }
}
