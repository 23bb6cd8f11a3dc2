//! The backend `iptables`: the rules of the reference plugin, word for word, so that either takes away what the other made.
//!
//! ```text
//! -A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD                       first, when it is put there
//! -A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN           likewise
//! -A CNI-FORWARD -d 10.88.0.5/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
//! -A CNI-FORWARD -s 10.88.0.5/32 -j ACCEPT
//! ```

use std::net::IpAddr;
use std::time::Instant;

use cni::CniError;
use linux::Family;
use linux::nft::{self, Socket};
use rules::iptables::{Changes, Iptables, IptablesError, Rule, Saved};

use super::families;
use crate::internal;

/// iptables' table, and its chain for what passes through.
const FILTER: &str = "filter";
const FORWARD: &str = "FORWARD";
/// The chain with the containers' rules.
const CHAIN: &str = "CNI-FORWARD";

/// Adds the rules of these addresses, and the chains where they are missing: one `iptables-restore` a family.
pub(super) fn add(addresses: &[IpAddr], admin: &str, deadline: Instant) -> Result<(), CniError> {
    for family in families(addresses) {
        let own = own(addresses, family);
        Iptables::new(family, deadline).change(FILTER, |saved| added(saved, admin, &own)).map_err(refused)?;
        linux::crash_point!("firewall-iptables-added");
    }
    Ok(())
}

/// CHECK: all of them are there.
pub(super) fn check(addresses: &[IpAddr], admin: &str, deadline: Instant) -> Result<(), CniError> {
    for family in families(addresses) {
        let to = |chain: &str, rule: Rule| (chain.to_owned(), rule);
        let mut rules = vec![to(FORWARD, enter()), to(CHAIN, overrides(admin))];
        rules.extend(own(addresses, family).into_iter().map(|rule| to(CHAIN, rule)));
        if let Some((chain, rule)) = Iptables::new(family, deadline).missing(FILTER, &rules).map_err(refused)? {
            let why = "another program or a reload of firewalld may have flushed it: attach the container again";
            return Err(internal(format!("expected {chain} rule {rule} not found: {why}")));
        }
    }
    Ok(())
}

/// Takes away the rules of these addresses that are there, the reference plugin's as well. The chains stay.
pub(super) fn remove(addresses: &[IpAddr], deadline: Instant) -> Result<(), CniError> {
    for family in families(addresses) {
        let own = own(addresses, family);
        let gone = |saved: &Saved| {
            let mut changes = Changes::of(FILTER);
            own.iter().filter(|rule| saved.has(CHAIN, rule)).for_each(|rule| changes.delete(CHAIN, rule));
            changes
        };
        // Where there is no iptables, there are none of its rules.
        if let Err(e) = Iptables::new(family, deadline).change(FILTER, gone)
            && !e.is_unusable()
        {
            return Err(refused(e));
        }
        linux::crash_point!("firewall-iptables-removed");
    }
    Ok(())
}

/// STATUS: it is installed, and answers.
pub(super) fn status(deadline: Instant) -> Result<(), IptablesError> {
    Iptables::new(Family::V4, deadline).saved(FILTER).map(drop)
}

/// Whether another implementation's rules may be there: asked without a process where that can be.
pub(super) fn may_have_any(nft: &mut Socket) -> Result<bool, CniError> {
    for (family, table) in [(Family::V4, nft::Family::Ip), (Family::V6, nft::Family::Ip6)] {
        if rules::is_legacy(family) || nft.count_rules(table, FILTER, CHAIN).map_err(internal)? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is to be added to what is there.
fn added(saved: &Saved, admin: &str, own: &[Rule]) -> Changes {
    let mut changes = Changes::of(FILTER);
    [CHAIN, admin].iter().filter(|chain| !saved.has_chain(chain)).for_each(|chain| changes.new_chain(chain));
    for (chain, rule) in [(FORWARD, enter()), (CHAIN, overrides(admin))] {
        if !saved.has(chain, &rule) {
            changes.insert(chain, &rule);
        }
    }
    own.iter().filter(|rule| !saved.has(CHAIN, rule)).for_each(|rule| changes.append(CHAIN, rule));
    changes
}

fn enter() -> Rule {
    Rule::new(["-m", "comment", "--comment", "CNI firewall plugin rules", "-j", CHAIN])
}

fn overrides(admin: &str) -> Rule {
    Rule::new(["-m", "comment", "--comment", "CNI firewall plugin admin overrides", "-j", admin])
}

/// The rules of those of these addresses that are of a family.
fn own(addresses: &[IpAddr], family: Family) -> Vec<Rule> {
    let of = |address: &IpAddr| {
        let host = super::host(*address);
        let to = Rule::new(["-d", &host, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"]);
        [to, Rule::new(["-s", &host, "-j", "ACCEPT"])]
    };
    addresses.iter().filter(|a| Family::of(**a) == family).flat_map(of).collect()
}

fn refused(e: IptablesError) -> CniError {
    if e.may_pass() { CniError::new(cni::Code::TRY_AGAIN_LATER, e.to_string()) } else { internal(e) }
}
