//! What could not be read of a namespace, and which findings rest on it.
//!
//! Each note begins with what it is of, as `agent::observe` writes it: `routes: ...`, `entries of nl4: ...`, `nftables: ...`.

use crate::fault::{Fault, Finding};
use crate::snapshot::Namespace;
use crate::walk::POLICY;

/// How the note begins that iptables of the older kind has rules for IPv4, and the same for IPv6: netlink does not show them.
pub const LEGACY: [&str; 2] = ["legacy iptables", "legacy ip6tables"];
/// How the note begins that IPVS takes connections.
pub const IPVS: &str = "IPVS";

/// The notes that may matter to a packet of a family.
pub(crate) fn of(namespace: &Namespace, is_ipv4: bool) -> impl Iterator<Item = &str> {
    let [four, six] = LEGACY;
    let other = if is_ipv4 { six } else { four };
    namespace.unread.iter().map(String::as_str).filter(move |note| !note.starts_with(other))
}

/// Whether a finding may be wrong because this was not read: what is missing may be there, or a rule may let the packet pass.
pub(crate) fn is_below(finding: &Finding, note: &str) -> bool {
    let of = |whats: &[&str]| whats.iter().any(|what| note.starts_with(what));
    let of_device = |what: &str| match finding.device.as_deref() {
        Some(device) => note.starts_with(&format!("{what} {device}:")),
        None => note.starts_with(what),
    };
    let of_rules = || of(&["nftables"]) || of(&LEGACY);
    // With what more than there is room for, the note of all lists begins with links.
    let of_links = of(&["netlink", "links"]);
    match finding.fault {
        Fault::BridgePortMissing | Fault::TunnelMissing => of_links,
        Fault::AddressMissing | Fault::GatewayMissing => of_links || of(&["addresses"]),
        Fault::NoRoute | Fault::NoDefaultRoute => of_links || of(&["addresses", "routes", "rules of policy routing"]),
        Fault::VlanFiltered => of_links || of_device("VLANs of"),
        Fault::TunnelEntryMissing => of_links || of_device("entries of") || of_device("neighbours of"),
        Fault::ForwardingOff => note.contains("forwarding"),
        Fault::MasqueradeMissing | Fault::HostPortMissing => of_rules(),
        Fault::ServiceUnserved => of_rules() || of(&[IPVS]),
        // A rule that was not read may let it pass before the policy drops it. One of legacy iptables cannot.
        _ => finding.evidence.contains(POLICY) && of(&["nftables"]),
    }
}
