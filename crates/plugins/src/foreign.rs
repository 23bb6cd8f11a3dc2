//! Rules of other implementations in tables of their own, found by their comments or by the names of their chains.

use std::time::{Duration, Instant};

use cni::{CniError, Code};
use linux::nft::{self, Socket, Step};
use linux::{Family, xtables};
use plugin::Host;
use rules::iptables::{Changes, Iptables, IptablesError, Saved};
use sha2::{Digest, Sha512};

use crate::internal;

/// The table of iptables.
pub(crate) const NAT: &str = "nat";
/// How often to look again, where another program has deleted a rule meanwhile.
const ROUNDS: u32 = 10;
/// How long what is taken away may take, for each family.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A chain of nftables.
pub(crate) type Chain = (nft::Family, &'static str, &'static str);

/// What deletes the rules of these chains whose comments are such.
pub(crate) fn rules(nft: &mut Socket, chains: &[Chain], is: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, CniError> {
    let mut found = Vec::new();
    for &(family, table, chain) in chains {
        let rules = nft.commented_rules(family, table, chain).map_err(internal)?;
        let (table, chain) = (table.to_owned(), chain.to_owned());
        let gone = |handle| Step::DeleteRule { family, table: table.clone(), chain: chain.clone(), handle };
        found.extend(rules.into_iter().filter(|rule| is(&rule.comment)).map(|rule| gone(rule.handle)));
    }
    Ok(found)
}

/// Deletes them.
pub(crate) fn remove_rules(nft: &mut Socket, chains: &[Chain], is: &dyn Fn(&str) -> bool) -> Result<(), CniError> {
    for round in 0.. {
        let gone = rules(nft, chains, is)?;
        match nft.commit(&gone.into_iter().collect()) {
            Err(e) if e.is_missing() && round < ROUNDS => {}
            done => return done.map_err(internal),
        }
    }
    Ok(())
}

/// Whether the newer kind of iptables has such a chain in its table `nat`.
pub(crate) fn has_chain(family: Family, chain: &str, host: &mut Host) -> Result<bool, CniError> {
    let table = if family == Family::V4 { nft::Family::Ip } else { nft::Family::Ip6 };
    host.nft()?.has_chain(table, NAT, chain).map_err(internal)
}

/// Whether the older kind has that table.
pub(crate) fn is_legacy(family: Family, host: &Host) -> Result<bool, CniError> {
    let tables = xtables::legacy_tables(host.inside(), family);
    let tables = tables.map_err(|e| internal(format!("read the list of iptables' tables below /proc/net: {e}")))?;
    Ok(tables.iter().any(|table| table == NAT))
}

/// Removes chains of the table `nat`, and the rules that lead to them; `more` notes what else is to go then. Returns what was there
/// before; nothing, and no program is run, where the first one is not there.
pub(crate) fn remove_chains(
    family: Family,
    chains: &[String],
    more: impl Fn(&Saved, &mut Changes),
    host: &mut Host,
) -> Result<Option<Saved>, CniError> {
    let first = chains.first().map(String::as_str).unwrap_or_default();
    // Without nftables in the kernel only the older kind can have it.
    if !has_chain(family, first, host).unwrap_or(false) && !is_legacy(family, host)? {
        return Ok(None);
    }
    let removal = |saved: &Saved| {
        let mut changes = removal(saved, chains);
        more(saved, &mut changes);
        changes
    };
    Iptables::new(family, Instant::now() + PATIENCE).change(NAT, removal).map(Some).map_err(refused)
}

/// What takes them away.
fn removal(saved: &Saved, chains: &[String]) -> Changes {
    let mut changes = Changes::of(NAT);
    for chain in chains.iter().filter(|chain| saved.has_chain(chain)) {
        for (of, rule) in saved.leading_to(chain) {
            changes.delete(of, rule);
        }
        changes.remove_chain(chain);
    }
    changes
}

/// What iptables refuses, with the code of the specification.
pub(crate) fn refused(e: IptablesError) -> CniError {
    let code = match &e {
        e if e.may_pass() => Code::TRY_AGAIN_LATER,
        // Words that it does not know: a condition, or a chain that is not there.
        IptablesError::Refused { code: Some(2), .. } | IptablesError::ControlCharacter { .. } => Code::INVALID_CONFIG,
        _ => Code::INTERNAL,
    };
    CniError::new(code, e.to_string())
}

/// The first characters of a SHA-512 in hexadecimal digits: how the reference plugins name what is an attachment's.
pub(crate) fn hash(of: &str, length: usize) -> String {
    let digest = Sha512::digest(of);
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).take(length).collect()
}
