//! The keys of `firewall`, as received and as checked.

use cni::{AddResult, CniError, Config, IfName, Interface};
use rules::Policy;
use serde::Deserialize;

use crate::internal;

/// The chain that comes first in CNI-FORWARD.
const ADMIN: &str = "CNI-ADMIN";
/// What iptables allows (`XT_EXTENSION_MAXNAMELEN`, without its NUL).
const CHAIN_MAX: usize = 28;

/// No chain of an administrator: a jump there would let everybody pass, or lead round in a circle.
const TAKEN: [&str; 10] = ["ACCEPT", "DROP", "QUEUE", "RETURN", "REJECT", "INPUT", "FORWARD", "OUTPUT", "CNI-FORWARD", "NETLOOM-FORWARD"];

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    backend: String,
    iptables_admin_chain_name: String,
    firewalld_zone: String,
    ingress_policy: String,
}

/// The checked configuration.
pub(super) struct Conf {
    pub(super) backend: Backend,
    /// The administrator's chain of iptables.
    pub(super) admin: String,
    /// firewalld's zone.
    pub(super) zone: String,
    /// As written, and what it means; `None`: open.
    pub(super) policy: Option<(String, Policy)>,
}

/// A policy, and where it holds.
pub(super) struct Ingress {
    pub(super) policy: Policy,
    /// The bridge that the container is at.
    pub(super) bridge: IfName,
    /// What the container's packets come in by: the bridge, or the host's interface in the container's VLAN.
    pub(super) enters: IfName,
}

/// Which firewall is to let the addresses through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// firewalld where it runs, else nftables.
    Auto,
    Nftables,
    Iptables,
    Firewalld,
}

// === impl Conf ===

impl Conf {
    pub(super) fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let or = |named: String, default: &str| if named.is_empty() { default.to_owned() } else { named };
        let backend = match keys.backend.as_str() {
            "" if !keys.iptables_admin_chain_name.is_empty() => Backend::Iptables,
            "" => Backend::Auto,
            "nftables" => Backend::Nftables,
            "iptables" => Backend::Iptables,
            "firewalld" => Backend::Firewalld,
            other => {
                let why = format!("unrecognized firewall backend {other:?}: use \"nftables\", \"iptables\" or \"firewalld\"");
                return Err(CniError::invalid("backend", why));
            }
        };
        let admin = or(keys.iptables_admin_chain_name, ADMIN);
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"'\\!".contains(c);
        if TAKEN.contains(&admin.as_str()) {
            let why = format!("{admin:?} is a chain of iptables or of this plugin: name another chain");
            return Err(CniError::invalid("iptablesAdminChainName", why));
        }
        if admin.len() > CHAIN_MAX || admin.starts_with('-') || !admin.chars().all(is_plain) {
            let why = format!(
                "{admin:?} is not a valid chain name: at most {CHAIN_MAX} letters, digits and signs, without spaces and \
                quotes"
            );
            return Err(CniError::invalid("iptablesAdminChainName", why));
        }
        let zone = or(keys.firewalld_zone, "trusted");
        if zone.len() > 64 || !zone.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c)) {
            return Err(CniError::invalid("firewalldZone", format!("{zone:?} is not a valid zone name (see `firewall-cmd --get-zones`)")));
        }
        let policy = match keys.ingress_policy.as_str() {
            "" | "open" => None,
            "same-bridge" => Some(Policy::SameBridge),
            "isolated" => Some(Policy::Isolated),
            other => {
                let why = format!("unknown ingress policy: {other:?}; use \"open\", \"same-bridge\" or \"isolated\"");
                return Err(CniError::invalid("ingressPolicy", why));
            }
        };
        Ok(Conf { backend, admin, zone, policy: policy.map(|policy| (keys.ingress_policy, policy)) })
    }

    /// The policy, and the bridge that the container is at by the result: its first interface.
    pub(super) fn policy(&self, prev: &AddResult) -> Result<Option<Ingress>, CniError> {
        let Some((named, policy)) = &self.policy else { return Ok(None) };
        let Some(first) = prev.interfaces.first() else {
            let why = format!(
                "interface needs to be set for ingress policy {named:?}, make sure to chain \"firewall\" plugin with \"bridge\": the \
                    previous plugin's result names no interface"
            );
            return Err(internal(why));
        };
        if first.name.is_empty() {
            return Err(internal("got empty bridge name: the first interface of the previous result has none"));
        }
        if !first.sandbox.is_empty() {
            return Err(at_no_bridge(named, &first.name, "is the container's own"));
        }
        let name = |name: &str| IfName::parse(name).map_err(|e| CniError::invalid("prevResult.interfaces", e));
        let bridge = name(&first.name)?;
        let of_vlan = |i: &&Interface| i.sandbox.is_empty() && is_vlan_of(&i.name, &first.name);
        let enters = prev.interfaces.iter().find(of_vlan).map_or(Ok(bridge.clone()), |gateway| name(&gateway.name))?;
        Ok(Some(Ingress { policy: *policy, bridge, enters }))
    }
}

/// Whether it is the host's interface in one of a bridge's VLANs, as the plugin `bridge` names it: `br0.100`.
fn is_vlan_of(name: &str, bridge: &str) -> bool {
    let number = name.strip_prefix(bridge).and_then(|rest| rest.strip_prefix('.'));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The first interface of the result is no bridge of the host: `is` says what instead.
pub(super) fn at_no_bridge(policy: &str, first: &str, is: &str) -> CniError {
    let why = format!(
        "{policy:?} is for containers at a bridge, and {first}, the first interface of the previous result, {is}: chain firewall behind \
            bridge, or remove ingressPolicy"
    );
    CniError::invalid("ingressPolicy", why)
}
