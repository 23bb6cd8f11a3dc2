//! `portmap`: what comes for a port of the host goes to a port of the container.
//!
//! ```text
//!   conf      keys, checked: which backend they ask for
//!   nftables  elements of maps: crate `rules`, `hostports.rs`
//!   iptables  words (when), chains (what)
//!   both      localnet (127.0.0.1), tracked (connections that are there already)
//! ```

mod chains;
mod conf;
mod foreign;
mod localnet;
mod tracked;
mod words;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Version};
use ipnet::IpNet;
use linux::nft::SetElement;
use plugin::{About, Call, Cx, Draft, Key, Plugin, Restore, Stage};
use rules::{AddError, CONDITIONS, HOST_PORTS, HostPort, Subject};

use crate::internal;
use conf::{Backend, Conf};

/// Where its elements are.
const PARTS: [&Subject; 2] = [&HOST_PORTS, &CONDITIONS];

/// The plugin `portmap`.
pub(crate) struct PortMap;

/// What the reference plugin says where no plugin stands before it.
const ALONE: &str = "must be called as chained plugin";

static ABOUT: About = About {
    name: "portmap",
    summary: "publishes ports of the container at the host's addresses",
    versions: Version::ALL,
    capabilities: &["portMappings"],
    keys: &[
        Key::new("snat", "bool", "true", "connections from the container's own network or 127.0.0.1 get the host's address"),
        Key::new("masqAll", "bool", "false", "with snat: all connections through a host port get the host's address"),
        Key::new("backend", "string", "by the other keys", "\"nftables\", or \"iptables\" where a key needs it"),
        Key::matches("conditionsV4", "what an IPv4 connection must match: nftables or iptables expressions"),
        Key::matches("conditionsV6", "the same for IPv6"),
        Key::firewall("markMasqBit", "int", "13", "iptables: the bit that marks traffic that gets the host's address"),
        Key::firewall("externalSetMarkChain", "string", "none", "iptables: the chain of another program that sets such a mark"),
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

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Conf::read(draft.config)?;
        draft.chained(ABOUT.name, ALONE)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name, ALONE)?;
        if conf.mappings.is_empty() {
            return Ok(prev.clone());
        }
        match &conf.backend {
            Backend::Nftables(_) => publish(&elements(&conf, call.id, prev), call.id, cx)?,
            Backend::Iptables(words) => {
                words::add(&conf, words, call, prev, cx)?;
                if conf.rewrite.is_some() {
                    localnet::guard(cx.host)?;
                }
            }
        }
        if conf.rewrite.is_some() {
            localnet::answer_loopback(prev, call.id.ifname.as_str(), cx)?;
            linux::crash_point!("portmap-loopback");
        }
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.prev()?;
        if conf.mappings.is_empty() {
            return Ok(());
        }
        match &conf.backend {
            Backend::Nftables(_) => rules::check(cx.host.nft()?, &elements(&conf, call.id, prev)).map_err(internal)?,
            Backend::Iptables(words) => words::check(&conf, words, call, prev, cx.deadline)?,
        }
        if conf.rewrite.is_some() { localnet::check(prev, call.id.ifname.as_str(), cx.host) } else { Ok(()) }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config).ok();
        if let Some(Conf { backend: Backend::Iptables(_), .. }) = conf {
            words::remove(call.id, cx);
            return Ok(());
        }
        let gone = published(conf.as_ref(), call, cx)?;
        if !gone.is_empty() {
            unpublish(gone, cx);
            return Ok(());
        }
        foreign::remove(call.id, cx)?;
        // The reference plugin takes iptables where nothing else is said.
        words::remove_foreign(call.id, conf.is_none_or(|conf| !conf.mappings.is_empty()), cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        if let Backend::Iptables(_) = Conf::read(config)?.backend {
            return words::status(cx.deadline);
        }
        let missing = |e: String| {
            let needed = "CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, CONFIG_NFT_CT, CONFIG_NFT_FIB_INET";
            let msg = format!("portmap needs nftables ({needed}) in this kernel: {e}");
            CniError::new(Code::NOT_AVAILABLE, msg)
        };
        let nft = cx.host.nft().map_err(|e| missing(e.to_string()))?;
        let lacks = rules::lacks_host_ports(nft).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..internal(e) })?;
        lacks.map_or(Ok(()), |lacks| Err(missing(lacks)))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        for part in PARTS {
            let gone = rules::stale(cx.host.nft()?, part, &config.network, valid).map_err(internal)?;
            unpublish(gone, cx);
        }
        words::gc(&config.network, valid, cx)
    }

    /// What came for a port while it led nowhere is tracked as the host's own, and would stay so.
    fn restore(&self, call: &Call<'_>, _: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.prev()?;
        match &conf.backend {
            Backend::Nftables(_) => {
                into.elements_then(elements(&conf, call.id, prev), |put, host| tracked::forget_before_us(&ports(put), host));
            }
            Backend::Iptables(words) => words::restore(&conf, words, call, prev, into),
        }
        Ok(())
    }
}

/// Adds the elements, with what undoes it. Ports of another container stay its own.
fn publish(elements: &[SetElement], id: &AttachmentId, cx: &mut Cx<'_>) -> Result<(), CniError> {
    let ports = ports(elements);
    rules::are_free(cx.host.nft()?, id, &ports).map_err(refused)?;
    linux::crash_point!("portmap-unpublished");
    unpublish(elements.to_vec(), cx);
    rules::install_and_add(cx.host.nft()?, elements).map_err(refused)?;
    linux::crash_point!("portmap-published");
    rules::are_free(cx.host.nft()?, id, &ports).map_err(refused)?;
    words::are_free(id, &ports, cx)?;
    tracked::forget_before_us(&ports, cx.host)?;
    linux::crash_point!("portmap-forgotten");
    Ok(())
}

fn ports(elements: &[SetElement]) -> Vec<HostPort> {
    elements.iter().filter_map(HostPort::of).collect()
}

/// Elements go first, then what is known of connections through them: the next packet of each is the first of a new one.
fn unpublish(elements: Vec<SetElement>, cx: &mut Cx<'_>) {
    let to_us = tracked::to_us(&ports(&elements));
    cx.teardown.elements(elements);
    if !to_us.is_empty() {
        cx.teardown.at(Stage::Devices, "forget connections to host ports", move |host| tracked::forget(&to_us, host));
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
        elements.extend(match conf.conditions(address) {
            Some(conditions) => rules::host_ports_if(id, &ports, conditions),
            None => rules::host_ports(id, &ports),
        });
        if let Some(rewrite) = conf.rewrite {
            let mut sources = rules::sources(id, address, rewrite);
            // A DEL that is told of fewer ports sees that there are more.
            sources.element.note = u16::try_from(ports.len()).ok();
            elements.push(sources);
        }
    }
    elements
}

/// What the attachment has. Those that call DEL with all that ADD had, which the note tells, are spared a look at every port of this
/// host; for others, and where something of it is missing, the comments tell.
fn published(conf: Option<&Conf>, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<Vec<SetElement>, CniError> {
    let told = conf.zip(call.prev).map(|(conf, prev)| elements(conf, call.id, prev)).unwrap_or_default();
    let nft = cx.host.nft()?;
    let found = nft.find(&told).map_err(internal)?;
    let is_there = |(told, found): (&SetElement, &Option<_>)| found.as_ref() == Some(&told.element);
    let noted = conf.is_some_and(|conf| conf.rewrite.is_some());
    if noted && !told.is_empty() && told.iter().zip(&found).all(is_there) {
        return Ok(told);
    }
    let mut found = Vec::new();
    for part in PARTS {
        found.extend(rules::owned_by(nft, part, call.id).map_err(internal)?);
    }
    Ok(found)
}

fn refused(e: AddError) -> CniError {
    match e {
        AddError::Held { .. } => CniError::new(Code::TRY_AGAIN_LATER, e.to_string()),
        _ => internal(e),
    }
}
