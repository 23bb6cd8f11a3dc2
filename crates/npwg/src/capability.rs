//! What a selection demands of a network, and what its plugins are given for it.

use std::collections::HashSet;
use std::net::IpAddr;

use cni::{AddResult, Mac, NetworkList};
use json::{Object, Value};

use crate::{Bandwidth, MIGRATION, PortMapping, Selection};

/// The burst in bits that is sent where only a rate is requested: the reference `bandwidth` plugin refuses a rate
/// without one, S25 lets an implementation choose, and this is what the kubelet's own network code chose.
const BURST: u64 = i32::MAX as u64;

/// The selection's key, and the plugins': in `args.cni`, and in `runtimeConfig` with a capability of that name.
const IPAM_CLAIM: &str = "ipam-claim-reference";

/// Keys of a selection that a network may serve without the capability: older plugins find them in `CNI_ARGS` and `args.cni`, and
/// the result of ADD tells whether they did ([`Selection::not_honoured`]).
const SHOWN_BY_RESULT: &[&str] = &["ips", "mac"];

/// One capability that a network must have for a selection.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// The capability, and the key of `runtimeConfig`.
    pub capability: &'static str,
    /// The selection's key that demands it.
    pub key: &'static str,
    /// The value for `runtimeConfig`.
    pub value: Value,
}

/// A network that cannot do what a selection demands (S24, S25, S27).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{selection}, {key}: no plugin of network {network:?} has the capability {capability:?}: add \"capabilities\": \
     {{\"{capability}\": true}} to the one that serves it, or remove the key"
)]
pub struct MissingCapability {
    /// The selection, as `namespace/name`.
    pub selection: String,
    /// Its key.
    pub key: &'static str,
    /// The capability.
    pub capability: &'static str,
    /// The network's name.
    pub network: String,
}

/// A request that is not in the result of ADD (S29).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{selection}, {key}: {wanted} was requested, but the network's plugins report {got}: they ignored the request{}",
    if *is_declared { String::new() } else { format!("; none of them declares \"capabilities\": {{\"{key}\": true}}") }
)]
pub struct NotHonoured {
    /// The selection, as `namespace/name`.
    pub selection: String,
    /// Its key.
    pub key: &'static str,
    /// What was requested.
    pub wanted: String,
    /// What there is.
    pub got: String,
    /// Whether a plugin of the network declares the capability of that name.
    pub is_declared: bool,
}

// === impl Selection ===

impl Selection {
    /// The capabilities that serve what is asked for, with the values that plugins get which have them.
    pub fn capabilities(&self) -> Vec<Demand> {
        let text = |mac: &Mac| Value::from(mac.to_string());
        let values = [
            ("ips", "ips", self.ip_texts()),
            ("mac", "mac", self.mac.as_ref().map(text)),
            ("infinibandGUID", "infiniband-guid", self.infiniband_guid.as_ref().map(text)),
            ("portMappings", "portMappings", list(self.port_mappings.iter().map(port_mapping).collect())),
            ("bandwidth", "bandwidth", self.bandwidth.as_ref().map(bandwidth)),
        ];
        let demand = |(capability, key, value): (_, _, Option<Value>)| value.map(|value| Demand { capability, key, value });
        values.into_iter().filter_map(demand).collect()
    }

    /// Whether the network has every capability without which a demand would be ignored, and nobody could tell. Whether requested
    /// addresses and hardware addresses were given, the result says: they need none.
    ///
    /// # Errors
    /// One [`MissingCapability`] for each that it lacks.
    pub fn verify(&self, network: &NetworkList) -> Result<(), Vec<MissingCapability>> {
        let lacking =
            self.capabilities().into_iter().filter(|d| !SHOWN_BY_RESULT.contains(&d.key) && !network.has_capability(d.capability));
        let lacking: Vec<_> = lacking
            .map(|d| MissingCapability {
                selection: self.definition.to_string(),
                key: d.key,
                capability: d.capability,
                network: network.name.to_string(),
            })
            .collect();
        if lacking.is_empty() { Ok(()) } else { Err(lacking) }
    }

    /// `runtimeConfig` for the network: what is demanded, and what a plugin takes if it knows of it: the device, and the
    /// IPAMClaim (S28). A plugin gets of it what its own capabilities ask for ([`NetworkList::derive`]).
    pub fn runtime_config(&self) -> Object {
        let demanded = self.capabilities().into_iter().map(|d| (d.capability.to_owned(), d.value));
        let offered = [("deviceID", &self.device_id), (IPAM_CLAIM, &self.ipam_claim)];
        let offered = offered.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::from(text.as_deref()?))));
        demanded.chain(offered).collect()
    }

    /// `args` for a plugin whose configuration has `own`: what the selection says in `cni-args` goes before what the
    /// definition says (S23). Requested addresses and hardware address stand there too, where plugins of the age of
    /// version 1.0 look for them (S29), and the name of the IPAMClaim (S28), which the standard gives no other place: a
    /// plugin that knows no claims finds nothing that it must refuse. So it is with [`MIGRATION`]. `None` if there is nothing at all.
    pub fn args(&self, own: Option<&Object>) -> Option<Object> {
        let mut cni: Vec<(&str, Value)> = Vec::new();
        if let Some(ips) = self.ip_texts() {
            cni.push(("ips", ips));
        }
        if let Some(mac) = &self.mac {
            cni.push(("mac", Value::from(mac.to_string())));
        }
        if let Some(claim) = &self.ipam_claim {
            cni.push((IPAM_CLAIM, Value::from(claim.as_str())));
            if self.migrates {
                cni.push((MIGRATION, Value::from(true)));
            }
        }
        let cni = over(cni, self.cni_args.as_ref());
        if cni.is_empty() {
            return own.cloned();
        }
        let mut args = own.cloned().unwrap_or_default();
        let below = args.object("cni").cloned().unwrap_or_default();
        let below = below.iter().map(|(k, v)| (k, v.clone())).collect();
        args.set("cni", over(below, Some(&cni)));
        Some(args)
    }

    /// What was requested and is not in the result of a network's ADD: then the attachment must not stay (S29). Addresses are
    /// compared without their prefix length, which the network decides.
    pub fn not_honoured(&self, network: &NetworkList, result: &AddResult) -> Vec<NotHonoured> {
        let mut missing = Vec::new();
        let mut miss = |key, wanted: String, got: String| {
            let got = if got.is_empty() { "none".to_owned() } else { got };
            let is_declared = network.has_capability(key);
            missing.push(NotHonoured { selection: self.definition.to_string(), key, wanted, got, is_declared });
        };
        let given: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.addr()).collect();
        for ip in self.ips.iter().filter(|ip| !given.contains(&ip.address)) {
            miss("ips", ip.text.clone(), given.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "));
        }
        if let Some(mac) = &self.mac {
            let inside = || result.interfaces.iter().filter(|i| !i.sandbox.is_empty() && !i.mac.is_empty());
            if !inside().any(|i| i.mac.parse::<Mac>().as_ref() == Ok(mac)) {
                miss("mac", mac.to_string(), inside().map(|i| i.mac.as_str()).collect::<Vec<_>>().join(", "));
            }
        }
        missing
    }

    fn ip_texts(&self) -> Option<Value> {
        list(self.ips.iter().map(|ip| Value::from(ip.text.as_str())).collect())
    }
}

fn list(values: Vec<Value>) -> Option<Value> {
    (!values.is_empty()).then_some(Value::Array(values))
}

/// `below` with the pairs of `above` in place of its own, as a reader that ignores the case of keys takes them.
fn over(below: Vec<(&str, Value)>, above: Option<&Object>) -> Object {
    let above = || above.into_iter().flat_map(Object::iter);
    let given: HashSet<String> = above().map(|(key, _)| key.to_ascii_lowercase()).collect();
    let kept = below.into_iter().filter(|(key, _)| !given.contains(&key.to_ascii_lowercase()));
    kept.chain(above().map(|(k, v)| (k, v.clone()))).map(|(k, v)| (k.to_owned(), v)).collect()
}

fn port_mapping(mapping: &PortMapping) -> Value {
    let mut o = Object::new();
    o.set("hostPort", u64::from(mapping.host_port));
    o.set("containerPort", u64::from(mapping.container_port));
    o.set("protocol", mapping.protocol.as_str());
    if let Some(ip) = mapping.host_ip {
        o.set("hostIP", ip.to_string());
    }
    o.into()
}

fn bandwidth(limits: &Bandwidth) -> Value {
    let mut o = Object::new();
    let pairs = [
        ("ingressRate", "ingressBurst", limits.ingress_rate, limits.ingress_burst),
        ("egressRate", "egressBurst", limits.egress_rate, limits.egress_burst),
    ];
    for (rate_key, burst_key, rate, burst) in pairs {
        let Some(rate) = rate else { continue };
        o.set(rate_key, rate);
        o.set(burst_key, burst.unwrap_or(BURST));
    }
    o.into()
}
