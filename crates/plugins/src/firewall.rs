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
mod policy;

use std::net::IpAddr;

use cni::{AddResult, AttachmentId, CniError, Code, Config, Version};
use linux::Family;
use linux::nft::SetElement;
use plugin::{About, Call, Cx, Key, Plugin};
use rules::{FORWARDED, Gate, INGRESS, Part};

use crate::internal;
use conf::{Backend, Conf};

/// The plugin `firewall`.
pub(crate) struct Firewall;

static ABOUT: About = About {
    name: "firewall",
    summary: "lets what a container sends and receives pass the host's firewall",
    versions: &[Version::V0_4_0, Version::V1_0_0, Version::V1_1_0],
    capabilities: &[],
    keys: &[
        Key::new(
            "backend",
            "string",
            "firewalld if it runs, else nftables",
            "\"nftables\", \"iptables\" or \"firewalld\"; iptables where iptablesAdminChainName is set",
        ),
        Key::new("iptablesAdminChainName", "string", "CNI-ADMIN", "iptables: a chain of yours, which comes before the container's rules"),
        Key::new("firewalldZone", "string", "trusted", "firewalld: the zone that the container's addresses become sources of"),
        Key::new(
            "ingressPolicy",
            "string",
            "open",
            "\"same-bridge\": nothing from other bridges with a policy; \"isolated\": nothing from the own bridge either",
        ),
    ],
    needs_link: false,
};

impl Plugin for Firewall {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name)?;
        let addresses = addresses(prev);
        let policy = conf.policy(prev)?;
        let _ = Backend::Auto;
        let mut elements = rules::forwarded(call.id, &addresses);
        if let Some((policy, bridge)) = &policy {
            elements.extend(rules::policed(call.id, &addresses, bridge, *policy));
        }
        open_gates(&addresses, x)?;
        linux::crash_point!("firewall-gate-open");
        x.teardown.elements(elements.clone());
        rules::install_and_add(x.host.nft()?, &elements).map_err(internal)?;
        linux::crash_point!("firewall-added");
        policy::isolate(policy.as_ref(), prev, x)?;
        Ok(prev.clone())
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config)?;
        let prev = call.chained(ABOUT.name)?;
        let addresses = addresses(prev);
        let policy = conf.policy(prev)?;
        let mut elements = rules::forwarded(call.id, &addresses);
        if let Some((policy, bridge)) = &policy {
            elements.extend(rules::policed(call.id, &addresses, bridge, *policy));
        }
        rules::check(x.host.nft()?, &elements).map_err(internal)?;
        gates_are_open(&addresses, x)?;
        policy::is_isolated(policy.as_ref(), prev, x)
    }

    fn del(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let mut gone = Vec::new();
        for part in PARTS {
            gone.extend(rules::owned_by(x.host.nft()?, part, call.id).map_err(internal)?);
        }
        take_back(gone, x);
        Ok(())
    }

    fn status(&self, config: &Config, x: &mut Cx<'_>) -> Result<(), CniError> {
        Conf::read(config)?;
        let missing = |e: String| {
            let msg = format!("firewall needs nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET, CONFIG_NFT_CT) in this kernel: {e}");
            CniError::new(Code::NOT_AVAILABLE, msg)
        };
        let nft = x.host.nft().map_err(|e| missing(e.to_string()))?;
        nft.has_table(linux::nft::Family::Inet, rules::TABLE).map_err(|e| missing(e.to_string()))?;
        Ok(())
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
        let mut gone = Vec::new();
        for part in PARTS {
            gone.extend(rules::stale(x.host.nft()?, part, &config.network, valid).map_err(internal)?);
        }
        take_back(gone, x);
        Ok(())
    }
}

/// What elements of ours can be in.
const PARTS: [&Part; 2] = [&FORWARDED, &INGRESS];

fn take_back(elements: Vec<SetElement>, x: &mut Cx<'_>) {
    x.teardown.elements(elements);
}

/// Every address of the result.
fn addresses(prev: &AddResult) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = prev.ips.iter().map(|ip| ip.address.addr()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Those of these addresses, once each.
fn families(addresses: &[IpAddr]) -> impl Iterator<Item = Family> {
    [Family::V4, Family::V6].into_iter().filter(|family| addresses.iter().any(|a| Family::of(*a) == *family))
}

fn open_gates(addresses: &[IpAddr], x: &mut Cx<'_>) -> Result<(), CniError> {
    for family in families(addresses) {
        rules::open_gate(x.host.nft()?, family, x.deadline).map_err(internal)?;
    }
    Ok(())
}

fn gates_are_open(addresses: &[IpAddr], x: &mut Cx<'_>) -> Result<(), CniError> {
    for family in families(addresses) {
        if rules::gate(x.host.nft()?, family, x.deadline).map_err(internal)? == Gate::Closed {
            let program = if family == Family::V4 { "iptables" } else { "ip6tables" };
            let msg = format!(
                "FORWARD has no rule `-j NETLOOM-FORWARD` any more, or that chain is empty (`{program} -S`): did another program flush it? \
                 The next ADD puts it back"
            );
            return Err(internal(msg));
        }
    }
    Ok(())
}
