//! `firewall`: what a container sends and receives passes the host's firewall. See crate `rules`, `firewall.rs`, `gate.rs` and
//! `ingress.rs`.
//!
//! ```text
//!   nftables    elements of our table, which mark; the host's filter accepts what is marked
//!   iptables    two rules an address in CNI-FORWARD       } noted in our table,
//!   firewalld   the address is a source of a zone         } so that a DEL that is told nothing knows
//!   ingressPolicy, with any of them                         elements of our table; `isolated`: the port of the bridge, too
//! ```

mod conf;
mod firewalld;
mod iptables;
mod policy;

pub(crate) use policy::isolates;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, Config, Version};
use dbus::Bus;
use linux::Family;
use linux::nft::{Element, SetElement};
use plugin::{About, Call, Cx, Draft, Key, Plugin, Restore, Stage};
use rules::{DELEGATED, FORWARDED, Gate, INGRESS, Subject};

use crate::internal;
use conf::{Backend, Conf, Ingress};
use firewalld::ZoneState;

/// The plugin `firewall`.
pub(crate) struct Firewall;

/// What the reference plugin says where no plugin stands before it.
const ALONE: &str = "missing prevResult from earlier plugin";

static ABOUT: About = About {
    name: "firewall",
    summary: "lets what a container sends and receives pass the host's firewall",
    versions: &[Version::V0_4_0, Version::V1_0_0, Version::V1_1_0],
    capabilities: &[],
    keys: &[
        Key::new(
            "backend",
            "string",
            "auto",
            "\"nftables\", \"iptables\" or \"firewalld\"; unset: firewalld if it runs, iptables with an admin chain, else nftables",
        ),
        Key::firewall("iptablesAdminChainName", "string", "CNI-ADMIN", "iptables: your chain, which comes before the container's rules"),
        Key::new("firewalldZone", "string", "trusted", "firewalld: the zone that gets the container's addresses as sources"),
        Key::new(
            "ingressPolicy",
            "string",
            "open",
            "\"same-bridge\": nothing from other bridges with a policy; \"isolated\": nothing from the container's own bridge either",
        ),
    ],
    needs_link: false,
};

impl Plugin for Firewall {
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
        let addresses = addresses(prev);
        let policy = conf.policy(prev)?;
        policy::is_at_bridge(policy.as_ref(), cx)?;
        let mut through = Through::of(&conf, cx)?;
        let firewall = through.firewall(&conf);
        let elements = elements(call.id, &addresses, firewall.as_ref(), policy.as_ref());
        if firewall.is_none() {
            open_gates(&addresses, cx)?;
            linux::crash_point!("firewall-gate-open");
        }
        take_back(elements.clone(), cx);
        if policy.is_some() {
            policy::forget_idle_bridges(cx);
        }
        rules::install_and_add(cx.host.nft()?, &elements).map_err(internal)?;
        linux::crash_point!("firewall-added");
        match &mut through {
            Through::Nftables => {}
            Through::Iptables => iptables::add(&addresses, &conf.admin, cx.deadline)?,
            Through::Firewalld(bus) => firewalld::add(bus, &conf.zone, &addresses)?,
        }
        linux::crash_point!("firewall-told");
        policy::isolate(policy.as_ref(), prev, cx)?;
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name, ALONE)?;
        let addresses = addresses(prev);
        let policy = conf.policy(prev)?;
        let told = told(&conf, call.id, &addresses, cx)?;
        let elements = elements(call.id, &addresses, told.as_ref(), policy.as_ref());
        rules::check(cx.host.nft()?, &elements).map_err(internal)?;
        match &told {
            None => gates_are_open(&addresses, cx)?,
            Some(rules::Firewall::Iptables) => iptables::check(&addresses, &conf.admin, cx.deadline)?,
            Some(rules::Firewall::Firewalld { zone }) => {
                let mut bus = firewalld::required(cx.host.inside(), cx.deadline)?;
                firewalld::check(&mut bus, zone, &addresses)?;
            }
        }
        policy::is_isolated(policy.as_ref(), prev, cx)
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let ours = owned(call, cx)?;
        // Also where an earlier DEL has come as far as the elements.
        let has_policy = |conf: Conf| conf.policy.is_some();
        if ours.iter().any(|e| rules::policy_of(e).is_some()) || Conf::read(call.config).is_ok_and(has_policy) {
            policy::forget_idle_bridges(cx);
        }
        if ours.is_empty()
            && let Some(prev) = call.prev
        {
            let addresses = unowned(call.id, addresses(prev), cx)?;
            foreign_rules(&addresses, Conf::read(call.config).ok(), cx)?;
        }
        take_back(ours, cx);
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config)?;
        let missing = |e: String| {
            let msg = format!("firewall needs nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, CONFIG_NFT_CT) in this kernel: {e}");
            CniError::new(Code::NOT_AVAILABLE, msg)
        };
        let nft = cx.host.nft().map_err(|e| missing(e.to_string()))?;
        nft.has_table(linux::nft::Family::Inet, rules::TABLE).map_err(|e| missing(e.to_string()))?;
        match conf.backend {
            Backend::Iptables => {
                let unusable = |e| CniError::new(Code::NOT_AVAILABLE, format!("firewall's backend \"iptables\" cannot be used: {e}"));
                iptables::status(cx.deadline).map_err(unusable)
            }
            Backend::Firewalld => firewalld::required(cx.host.inside(), cx.deadline).map(drop),
            Backend::Auto | Backend::Nftables => Ok(()),
        }
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let mut gone = Vec::new();
        for part in PARTS {
            gone.extend(rules::stale(cx.host.nft()?, part, &config.network, valid).map_err(internal)?);
        }
        policy::forget_idle_bridges(cx);
        take_back(gone, cx);
        Ok(())
    }

    fn restore(&self, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.prev()?;
        let addresses = addresses(prev);
        let policy = conf.policy(prev)?;
        let firewall = told_or_would_be(&conf, call.id, &addresses, cx)?;
        into.elements(elements(call.id, &addresses, firewall.as_ref(), policy.as_ref()));
        if !addresses.is_empty() {
            put_back(firewall, conf, addresses, into);
        }
        Ok(())
    }
}

/// What elements of ours can be in.
const PARTS: [&Subject; 3] = [&FORWARDED, &INGRESS, &DELEGATED];
/// How long another firewall has to take back an address, and to say whether it is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What lets a container's addresses through.
enum Through {
    Nftables,
    Iptables,
    Firewalld(Bus),
}

// === impl Through ===

impl Through {
    fn of(conf: &Conf, cx: &Cx<'_>) -> Result<Self, CniError> {
        Ok(match conf.backend {
            Backend::Nftables => Through::Nftables,
            Backend::Iptables => Through::Iptables,
            Backend::Firewalld => Through::Firewalld(firewalld::required(cx.host.inside(), cx.deadline)?),
            Backend::Auto => match firewalld::find(cx.host.inside(), cx.deadline)? {
                ZoneState::Running(bus) => Through::Firewalld(bus),
                ZoneState::Absent(_) => Through::Nftables,
            },
        })
    }

    /// The other program's firewall that it is.
    fn firewall(&self, conf: &Conf) -> Option<rules::Firewall> {
        match self {
            Through::Nftables => None,
            Through::Iptables => Some(rules::Firewall::Iptables),
            Through::Firewalld(_) => Some(rules::Firewall::Firewalld { zone: conf.zone.clone() }),
        }
    }
}

/// What ADD makes in our table.
fn elements(id: &AttachmentId, addresses: &[IpAddr], firewall: Option<&rules::Firewall>, ingress: Option<&Ingress>) -> Vec<SetElement> {
    let mut elements = match firewall {
        None => rules::forwarded(id, addresses),
        Some(firewall) => rules::delegated(id, addresses, firewall),
    };
    if let Some(Ingress { policy, enters, .. }) = ingress {
        elements.extend(rules::policed(id, addresses, enters, *policy));
    }
    elements
}

/// Which firewall an ADD with this configuration has told: where that depended on what ran then, our notes know.
fn told(conf: &Conf, id: &AttachmentId, addresses: &[IpAddr], cx: &mut Cx<'_>) -> Result<Option<rules::Firewall>, CniError> {
    let firewalld = || rules::Firewall::Firewalld { zone: conf.zone.clone() };
    match conf.backend {
        Backend::Nftables => Ok(None),
        Backend::Iptables => Ok(Some(rules::Firewall::Iptables)),
        Backend::Firewalld => Ok(Some(firewalld())),
        Backend::Auto => {
            let notes = rules::delegated(id, addresses, &firewalld());
            let found = cx.host.nft()?.find(&notes).map_err(internal)?;
            Ok(found.iter().any(Option::is_some).then(firewalld))
        }
    }
}

/// As [`told`], where our notes may have been flushed as well: then it is what an ADD would tell now.
fn told_or_would_be(conf: &Conf, id: &AttachmentId, addresses: &[IpAddr], cx: &mut Cx<'_>) -> Result<Option<rules::Firewall>, CniError> {
    let told = told(conf, id, addresses, cx)?;
    if told.is_some() || conf.backend != Backend::Auto {
        return Ok(told);
    }
    let found = cx.host.nft()?.find(&rules::forwarded(id, addresses)).map_err(internal)?;
    if found.iter().any(Option::is_some) { Ok(None) } else { Ok(Through::of(conf, cx)?.firewall(conf)) }
}

/// What is not in our table, to be put back.
fn put_back(firewall: Option<rules::Firewall>, conf: Conf, addresses: Vec<IpAddr>, into: &mut Restore) {
    match firewall {
        None => into.rules("firewall entries for forwarding", move |host, by| {
            let mut any = false;
            for family in families(&addresses) {
                // Also where the whole filter is gone: whoever makes it anew, to drop what passes, is noticed by nobody.
                if rules::gate(host.nft()?, family, by).map_err(internal)? != Gate::Open {
                    rules::open_gate(host.nft()?, family, by).map_err(internal)?;
                    any |= rules::gate(host.nft()?, family, by).map_err(internal)? == Gate::Open;
                }
            }
            Ok(any)
        }),
        Some(rules::Firewall::Iptables) => into.rules("iptables rules", move |_, by| {
            if iptables::check(&addresses, &conf.admin, by).is_ok() {
                return Ok(false);
            }
            iptables::add(&addresses, &conf.admin, by).map(|()| true)
        }),
        Some(rules::Firewall::Firewalld { zone }) => into.rules(format!("sources of firewalld's zone {zone}"), move |host, by| {
            let mut bus = firewalld::required(host.inside(), by)?;
            if firewalld::check(&mut bus, &zone, &addresses).is_ok() {
                return Ok(false);
            }
            firewalld::add(&mut bus, &zone, &addresses).map(|()| true)
        }),
    }
}

/// What the attachment has in our table, whatever the configuration says now: what counts is what ADD did. Those that call DEL
/// with the addresses that ADD had are spared a look at all others' elements; for others the comments tell.
fn owned(call: &Call<'_>, cx: &mut Cx<'_>) -> Result<Vec<SetElement>, CniError> {
    if let Some(prev) = call.prev {
        let addresses = addresses(prev);
        let places = rules::places(call.id, &addresses);
        let found = cx.host.nft()?.find(&places).map_err(internal)?;
        let is_ours = |(place, found): (SetElement, Option<Element>)| {
            let element = found.filter(|found| found.comment == place.element.comment)?;
            Some(SetElement { element, ..place })
        };
        let ours: Vec<SetElement> = places.into_iter().zip(found).filter_map(is_ours).collect();
        // Each address has one that lets it through.
        let through = ours.iter().filter(|e| rules::policy_of(e).is_none()).count();
        if through > 0 && through == addresses.len() {
            return Ok(ours);
        }
    }
    let mut found = Vec::new();
    for part in PARTS {
        found.extend(rules::owned_by(cx.host.nft()?, part, call.id).map_err(internal)?);
    }
    Ok(found)
}

/// Those of these addresses that no attachment of ours has: a DEL that comes late, or again, must not take what its address
/// was given to another with.
fn unowned(id: &AttachmentId, addresses: Vec<IpAddr>, cx: &mut Cx<'_>) -> Result<Vec<IpAddr>, CniError> {
    let nft = cx.host.nft()?;
    let forwarded = nft.find(&rules::forwarded(id, &addresses)).map_err(internal)?;
    let told = nft.find(&rules::delegated(id, &addresses, &rules::Firewall::Iptables)).map_err(internal)?;
    let free = addresses.into_iter().zip(forwarded.iter().zip(&told)).filter(|(_, found)| matches!(found, (None, None)));
    Ok(free.map(|(address, _)| address).collect())
}

/// What another implementation's ADD may have made of these addresses: nothing of it is in our table.
fn foreign_rules(addresses: &[IpAddr], conf: Option<Conf>, cx: &mut Cx<'_>) -> Result<(), CniError> {
    if addresses.is_empty() {
        return Ok(());
    }
    let backend = conf.as_ref().map_or(Backend::Auto, |conf| conf.backend);
    let zone = conf.map_or_else(String::new, |conf| conf.zone);
    if matches!(backend, Backend::Auto | Backend::Iptables) && iptables::may_have_any(cx.host.nft()?)? {
        give_back(rules::Firewall::Iptables, addresses.to_vec(), cx);
    }
    if matches!(backend, Backend::Auto | Backend::Firewalld) && !zone.is_empty() {
        give_back(rules::Firewall::Firewalld { zone }, addresses.to_vec(), cx);
    }
    Ok(())
}

/// Elements go; notes of what another firewall was told go when that has given the addresses back.
fn take_back(elements: Vec<SetElement>, cx: &mut Cx<'_>) {
    let mut told = BTreeMap::<rules::Firewall, (Vec<IpAddr>, Vec<SetElement>)>::new();
    let (notes, ours): (Vec<_>, Vec<_>) = elements.into_iter().partition(|e| rules::delegated_of(e).is_some());
    cx.teardown.elements(ours);
    for note in notes {
        let Some((address, firewall)) = rules::delegated_of(&note) else { continue };
        let (addresses, of_them) = told.entry(firewall).or_default();
        addresses.push(address);
        of_them.push(note);
    }
    for (firewall, (addresses, notes)) in told {
        give_back(firewall, addresses, cx);
        cx.teardown
            .at(Stage::Devices, "remove entries of another firewall", move |host| host.nft()?.delete_missing_ok(&notes).map_err(internal));
    }
}

/// The other firewall gives addresses back.
fn give_back(firewall: rules::Firewall, addresses: Vec<IpAddr>, cx: &mut Cx<'_>) {
    let deadline = || Instant::now() + PATIENCE;
    match firewall {
        rules::Firewall::Iptables => {
            cx.teardown.at(Stage::Devices, "remove iptables rules", move |_| iptables::remove(&addresses, deadline()));
        }
        rules::Firewall::Firewalld { zone } => {
            let what = format!("remove sources of firewalld's zone {zone}");
            cx.teardown.at(Stage::Devices, what, move |host| match firewalld::find(host.inside(), deadline())? {
                ZoneState::Running(mut bus) => firewalld::remove(&mut bus, &zone, &addresses),
                // What it was told at run time has ended with it.
                ZoneState::Absent(_) => Ok(()),
            });
        }
    }
}

/// Every address of the result.
fn addresses(prev: &AddResult) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = prev.ips.iter().map(|ip| ip.address.addr()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// An address as the network of one host.
fn host(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

/// The families of these addresses, once each.
fn families(addresses: &[IpAddr]) -> impl Iterator<Item = Family> {
    [Family::V4, Family::V6].into_iter().filter(|family| addresses.iter().any(|a| Family::of(*a) == *family))
}

fn open_gates(addresses: &[IpAddr], cx: &mut Cx<'_>) -> Result<(), CniError> {
    for family in families(addresses) {
        rules::open_gate(cx.host.nft()?, family, cx.deadline).map_err(internal)?;
    }
    Ok(())
}

fn gates_are_open(addresses: &[IpAddr], cx: &mut Cx<'_>) -> Result<(), CniError> {
    for family in families(addresses) {
        if rules::gate(cx.host.nft()?, family, cx.deadline).map_err(internal)? == Gate::Closed {
            let program = if family == Family::V4 { "iptables" } else { "ip6tables" };
            let msg = format!(
                "FORWARD has no rule `-j NETLOOM-FORWARD` any more, or that chain is empty or lacks `-j CNI-ADMIN` (see `{program} \
                    -S`): another program may have flushed it; the next ADD restores it"
            );
            return Err(internal(msg));
        }
    }
    Ok(())
}
