//! `netloom rules`: what attachments have in the table `inet netloom`, in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use json::{Object, Value};
use linux::nft::Socket;
use linux::{Inside, Netns};
use rules::{Firewall, HostPort, Meaning, OwnerKey, Policy, meanings};

use crate::agent_command;
use crate::cli::RulesArgs;
use crate::output::{FAINT, TITLE, put, putln, structured};

/// Shows them; nothing is changed.
pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<ExitCode> {
    let mut found = match &args.netns {
        None => look(&Inside::here())?,
        Some(path) => {
            let netns = Netns::open(path)?.with_context(|| format!("there is no network namespace at {}", path.display()))?;
            netns.enter(look)??
        }
    };
    let pods = agent_command::pods::names(&args.asked.socket);
    found.sort_by_cached_key(|(owner, meaning)| (holder(owner, &pods), owner.clone(), meaning.clone()));
    match args.output {
        Some(format) => structured(&Value::Array(found.iter().map(|(owner, meaning)| object(owner, meaning, &pods)).collect()), format)?,
        None if found.is_empty() => putln!("no attachment has rules here: none publishes a port of the host, and none is masqueraded"),
        None => put!("{}", render(&found, &pods)),
    }
    Ok(ExitCode::SUCCESS)
}

fn look(inside: &Inside) -> anyhow::Result<Vec<(OwnerKey, Meaning)>> {
    let mut socket = Socket::open(inside).context("look at nftables")?;
    meanings(&mut socket).context("read the table inet netloom (only root may)")
}

/// The pod of an attachment, where the agent knows it, or its container.
fn holder(owner: &OwnerKey, pods: &BTreeMap<String, String>) -> String {
    let [_, container, _] = owner.parts();
    pods.get(container).cloned().unwrap_or_else(|| format!("container {}", agent_command::pods::short(container)))
}

/// An attachment's name, and below it what it has.
fn render(found: &[(OwnerKey, Meaning)], pods: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    let mut last = None;
    for (owner, meaning) in found {
        if last != Some(owner) {
            let [network, _, ifname] = owner.parts();
            let _ = writeln!(text, "{TITLE}{}{TITLE:#} {FAINT}{ifname} on {network}{FAINT:#}", holder(owner, pods));
            last = Some(owner);
        }
        let _ = writeln!(text, "  {}", words(meaning));
    }
    text
}

fn words(meaning: &Meaning) -> String {
    match meaning {
        Meaning::HostPort(HostPort { protocol, at, port, to }) => {
            let at = at.map_or_else(|| "any address of the host".to_owned(), |at| at.to_string());
            format!("{:10} of {at} leads to {to}", format!("{}/{port}", protocol.name()))
        }
        Meaning::Rewrite { address, from } => {
            let from = match from {
                None => "anywhere".to_owned(),
                Some(from) if from.addr().is_ipv4() => format!("{from} and 127.0.0.0/8"),
                Some(from) => from.to_string(),
            };
            format!("hairpin    connections to its host ports from {from} reach {address} with the host's address")
        }
        Meaning::Masquerade { address, network } => format!("masquerade {address} leaves as the host, for anywhere but {network}"),
        Meaning::Forwarded { address } => format!("forward    {address} passes the host's filter, and answers to it"),
        Meaning::Told { address, firewall: Firewall::Iptables } => {
            format!("forward    {address} passes by rules of iptables (CNI-FORWARD)")
        }
        Meaning::Told { address, firewall: Firewall::Firewalld { zone } } => {
            format!("forward    {address} passes as a source of firewalld's zone {zone}")
        }
        Meaning::Policed { address, policy: Policy::SameBridge, bridge } => {
            format!("ingress    {address} gets nothing from other bridges with a policy than {bridge}")
        }
        Meaning::Policed { address, policy: Policy::Isolated, bridge } => {
            format!("ingress    {address} gets nothing from bridges with a policy, its own, {bridge}, among them")
        }
        Meaning::SpoofGuard { port, mac, dropped } => {
            let mac = mac.as_ref().map_or_else(|| "no hardware address".to_owned(), |mac| format!("{mac} alone"));
            format!("spoofing   {port} sends from {mac}; {} frames from others dropped", dropped.packets)
        }
    }
}

fn object(owner: &OwnerKey, meaning: &Meaning, pods: &BTreeMap<String, String>) -> Value {
    let [network, container, ifname] = owner.parts();
    let mut o = Object::new();
    if let Some(pod) = pods.get(container) {
        o.set("pod", pod.as_str());
    }
    o.set("container", container);
    o.set("network", network);
    o.set("interface", ifname);
    match meaning {
        Meaning::HostPort(HostPort { protocol, at, port, to }) => {
            o.set("kind", "hostPort");
            o.set("protocol", protocol.name());
            if let Some(at) = at {
                o.set("hostIP", at.to_string());
            }
            o.set("hostPort", u64::from(*port));
            o.set("address", to.ip().to_string());
            o.set("containerPort", u64::from(to.port()));
        }
        Meaning::Rewrite { address, from } => {
            o.set("kind", "hairpin");
            o.set("address", address.to_string());
            o.set("from", from.map_or_else(|| "any".to_owned(), |from| from.to_string()));
        }
        Meaning::Masquerade { address, network } => {
            o.set("kind", "masquerade");
            o.set("address", address.to_string());
            o.set("except", network.to_string());
        }
        Meaning::Forwarded { address } => {
            o.set("kind", "forward");
            o.set("address", address.to_string());
            o.set("by", "nftables");
        }
        Meaning::Told { address, firewall } => {
            o.set("kind", "forward");
            o.set("address", address.to_string());
            match firewall {
                Firewall::Iptables => o.set("by", "iptables"),
                Firewall::Firewalld { zone } => {
                    o.set("by", "firewalld");
                    o.set("zone", zone.as_str());
                }
            }
        }
        Meaning::Policed { address, policy, bridge } => {
            o.set("kind", "ingressPolicy");
            o.set("address", address.to_string());
            o.set("policy", policy.name());
            o.set("bridge", bridge.as_str());
        }
        Meaning::SpoofGuard { port, mac, dropped } => {
            o.set("kind", "spoofGuard");
            o.set("port", port.as_str());
            if let Some(mac) = mac {
                o.set("mac", mac.to_string());
            }
            o.set("droppedFrames", dropped.packets);
            o.set("droppedBytes", dropped.bytes);
        }
    }
    Value::Object(o)
}
