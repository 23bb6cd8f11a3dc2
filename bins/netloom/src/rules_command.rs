//! `netloom rules`: what attachments have in our nftables tables, and in the queues of their links, in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use cni::AttachmentId;
use json::{Object, Value};
use linux::nft::Socket;
use linux::{Inside, Netlink, Netns};
use plugins::{Limits, Rate, host_end, limits};
use rules::{Firewall, HostPort, Meaning, OwnerKey, Policy, meanings};

use crate::agent_command;
use crate::cli::RulesArgs;
use crate::output::{FAINT, TITLE, put, putln, structured};

/// Names of pods by their containers.
pub(crate) type Pods = BTreeMap<String, String>;

/// Something that is installed, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Installed {
    /// The pod, or its container, or a link where nothing tells whose it is.
    holder: String,
    owner: Option<OwnerKey>,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Of the tables.
    Element(Meaning),
    /// Of a link: how fast the container may receive.
    Receives(String, Rate),
    /// How fast it may send.
    Sends(String, Rate),
}

/// Shows them; nothing is changed.
pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<ExitCode> {
    let (elements, limits) = match &args.netns {
        None => look(&Inside::here())?,
        Some(path) => {
            let netns = Netns::open(path)?.with_context(|| format!("there is no network namespace at {}", path.display()))?;
            netns.enter(look)??
        }
    };
    let pods = agent_command::pods::names(&args.asked.socket);
    let mut found = installed(elements, limits, &pods);
    if let Some(pod) = &args.pod {
        found.retain(|i| i.is_of(pod));
    }
    match (args.output, &args.pod) {
        (Some(format), _) => structured(&Value::Array(found.iter().map(|i| i.object(&pods)).collect()), format)?,
        (None, Some(pod)) if found.is_empty() => putln!(
            "{pod} has no firewall entries here; run the command without a name to see \
            those of every attachment"
        ),
        (None, None) if found.is_empty() => putln!(
            "no attachment has firewall entries here: no published port, masquerading, forwarding (firewall), spoof guard (macspoofchk) \
                or rate limit (bandwidth). The pods of a lab's node have theirs in the node's network namespace: use --netns"
        ),
        (None, _) => put!("{}", render(&found)),
    }
    Ok(ExitCode::SUCCESS)
}

type OwnedRules = (Vec<(OwnerKey, Meaning)>, Vec<Limits>);

fn look(inside: &Inside) -> anyhow::Result<OwnedRules> {
    let mut socket = Socket::open(inside).context("open nftables")?;
    let elements = meanings(&mut socket).context("read Netloom's firewall entries, which only root may")?;
    let mut netlink = Netlink::open(inside).context("list network interfaces")?;
    Ok((elements, limits(&mut netlink).context("read rate limits")?))
}

/// All of it, in order. A link is known by its name, which is made from its attachment: whose element is there, its link is known.
fn installed(elements: Vec<(OwnerKey, Meaning)>, limits: Vec<Limits>, pods: &Pods) -> Vec<Installed> {
    let ends: BTreeMap<String, OwnerKey> = elements.iter().filter_map(|(owner, _)| Some((end_of(owner)?, owner.clone()))).collect();
    let mut all: Vec<Installed> = elements
        .into_iter()
        .map(|(owner, meaning)| Installed { holder: holder(&owner, pods), owner: Some(owner), what: What::Element(meaning) })
        .collect();
    for Limits { link, ingress, egress } in limits {
        let owner = ends.get(&link).cloned();
        let holder = owner.as_ref().map_or_else(|| format!("link {link}"), |owner| holder(owner, pods));
        let one = |what| Installed { holder: holder.clone(), owner: owner.clone(), what };
        all.extend(ingress.map(|rate| one(What::Receives(link.clone(), rate))));
        all.extend(egress.map(|rate| one(What::Sends(link.clone(), rate))));
    }
    all.sort();
    all
}

/// The name of the host's end of an attachment's pair; `None` if not all of the attachment's name is known.
fn end_of(owner: &OwnerKey) -> Option<String> {
    let [network, container, ifname] = owner.parts();
    let id = AttachmentId { network: network.parse().ok()?, container: container.parse().ok()?, ifname: ifname.parse().ok()? };
    host_end(&id)
}

/// The pod of an attachment, where the agent knows it, or its container.
pub(crate) fn holder(owner: &OwnerKey, pods: &Pods) -> String {
    let [_, container, _] = owner.parts();
    pods.get(container).cloned().unwrap_or_else(|| format!("container {}", agent_command::pods::short(container)))
}

/// An attachment's name, and below it what it has.
fn render(found: &[Installed]) -> String {
    let mut text = String::new();
    let mut last = None;
    for installed in found {
        let title = (&installed.holder, &installed.owner);
        if last != Some(title) {
            let place = installed.owner.as_ref().map(|owner| {
                let [network, _, ifname] = owner.parts();
                format!(" {FAINT}{ifname} on {network}{FAINT:#}")
            });
            let _ = writeln!(text, "{TITLE}{}{TITLE:#}{}", installed.holder, place.unwrap_or_default());
            last = Some(title);
        }
        let line = match &installed.what {
            What::Element(meaning) => words(meaning),
            What::Receives(_, rate) => format!("shaping    receives {}", speed(rate)),
            What::Sends(_, rate) => format!("shaping    sends {}", speed(rate)),
        };
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn speed(rate: &Rate) -> String {
    let partly = if rate.partly { ", not for all networks" } else { "" };
    format!("at most {}bit/s, bursts of {}bit{partly}", scaled(rate.bits), scaled(rate.burst))
}

/// As `8 M` or `1.5 G`.
fn scaled(bits: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| bits >= *size) else { return format!("{bits} ") };
    // One digit behind the point, if it is not 0.
    let tenths = (bits + size / 20) / (size / 10);
    let point = if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
    format!("{}{point} {unit}", tenths / 10)
}

pub(crate) fn words(meaning: &Meaning) -> String {
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
            format!("hairpin    connections from {from} to its host ports reach {address} with the host's address")
        }
        Meaning::Masquerade { address, network } => format!("masquerade {address} leaves with the host's address, except to {network}"),
        Meaning::Forwarded { address } => format!("forward    {address} passes the host's filter in both directions"),
        Meaning::Delegated { address, firewall: Firewall::Iptables } => {
            format!("forward    {address} passes by iptables rules (CNI-FORWARD)")
        }
        Meaning::Delegated { address, firewall: Firewall::Firewalld { zone } } => {
            format!("forward    {address} passes as a source of firewalld's zone {zone}")
        }
        Meaning::Policed { address, policy: Policy::SameBridge, bridge } => {
            format!("ingress    {address} is closed to other bridges that have a policy than {bridge}")
        }
        Meaning::Policed { address, policy: Policy::Isolated, bridge } => {
            format!("ingress    {address} is closed to every bridge that has a policy, including its own, {bridge}")
        }
        Meaning::SpoofGuard { port, mac, dropped } => {
            let mac = mac.as_ref().map_or_else(|| "no hardware address".to_owned(), |mac| format!("{mac} only"));
            format!("spoofing   {port} sends from {mac}; {} frames from others dropped", dropped.packets)
        }
        Meaning::StrictSource { port, addresses, dropped } => {
            let from = match addresses.as_slice() {
                [] => "no IP address".to_owned(),
                some => format!("{} only", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            };
            format!("source     {port} sends from {from}; {} frames from others dropped", dropped.packets)
        }
        Meaning::ReversePath { link } => format!("reverse    {link} reaches the host only from addresses that are behind it"),
    }
}

// === impl Installed ===

impl Installed {
    /// Whether it is of the pod (`NAMESPACE/NAME`, or `NAME`), or of the container whose ID begins so.
    fn is_of(&self, pod: &str) -> bool {
        let name = self.holder == pod || self.holder.split_once('/').is_some_and(|(_, name)| name == pod);
        name || self.owner.as_ref().is_some_and(|owner| owner.parts()[1].starts_with(pod))
    }

    fn object(&self, pods: &Pods) -> Value {
        let mut o = self.owner.as_ref().map(|owner| of_owner(owner, pods)).unwrap_or_default();
        match &self.what {
            What::Element(meaning) => set_meaning(&mut o, meaning),
            What::Receives(link, rate) => set_rate(&mut o, "ingress", link, rate),
            What::Sends(link, rate) => set_rate(&mut o, "egress", link, rate),
        }
        Value::Object(o)
    }
}

/// One element of an attachment, for programs.
pub(crate) fn object(owner: &OwnerKey, meaning: &Meaning, pods: &Pods) -> Value {
    let mut o = of_owner(owner, pods);
    set_meaning(&mut o, meaning);
    Value::Object(o)
}

/// Whose something is.
pub(crate) fn of_owner(owner: &OwnerKey, pods: &Pods) -> Object {
    let [network, container, ifname] = owner.parts();
    let mut o = Object::new();
    if let Some(pod) = pods.get(container) {
        o.set("pod", pod.as_str());
    }
    o.set("container", container);
    o.set("network", network);
    o.set("interface", ifname);
    o
}

fn set_rate(o: &mut Object, direction: &str, link: &str, rate: &Rate) {
    o.set("kind", "limit");
    o.set("direction", direction);
    o.set("link", link);
    o.set("rate", rate.bits);
    o.set("burst", rate.burst);
    o.set("everything", !rate.partly);
}

fn set_meaning(o: &mut Object, meaning: &Meaning) {
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
        Meaning::Delegated { address, firewall } => {
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
        Meaning::StrictSource { port, addresses, dropped } => {
            o.set("kind", "strictSource");
            o.set("port", port.as_str());
            o.set("addresses", addresses.iter().map(ToString::to_string).collect::<Vec<_>>());
            o.set("droppedFrames", dropped.packets);
            o.set("droppedBytes", dropped.bytes);
        }
        Meaning::ReversePath { link } => {
            o.set("kind", "reversePath");
            o.set("port", link.as_str());
        }
    }
}
