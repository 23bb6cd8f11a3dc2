//! One element of the annotation: from the object as received to a [`Selection`], every violation reported.

use std::collections::HashSet;
use std::net::IpAddr;

use cni::{IfName, Mac};
use json::{Object, Value};

use crate::keys::{is_known, meant};
use crate::problem::{AnnotationPlace, Problem, SelectionErrors, shortened};
use crate::selection::{default_routes, found};
use crate::{DefinitionRef, NameRule, RequestedIp, Selection};

/// The addresses or gateways of one element at the most.
const MAX_ADDRESSES: usize = 64;
/// The bytes of a device's name at the most.
const MAX_DEVICE: usize = 253;

/// The levels of lists and objects of `cni-args` at the most: they stand four deeper in the network that is recorded, which
/// must be readable.
const MAX_ARGS_DEPTH: usize = 64;

/// An element on its way through the checks.
pub(crate) struct Element<'a> {
    number: usize,
    name: String,
    raw: &'a Object,
    errors: &'a mut SelectionErrors,
}

/// What the checks made of an element. The last two are told even where other keys are bad, so that the rules between
/// elements see them.
pub(crate) struct Checked {
    /// The selection; `None` if its definition cannot be told. It counts only if nothing was reported.
    pub(crate) selection: Option<Selection>,
    /// The requested interface.
    pub(crate) interface: Option<IfName>,
    /// The families, IPv4 and IPv6, whose default route the key `default-route` takes.
    pub(crate) default_routes: [bool; 2],
}

/// What an element selects as it was written, for messages.
pub(crate) fn name_of(raw: &Object) -> String {
    let name = raw.str("name").unwrap_or_default();
    match raw.str("namespace").unwrap_or_default() {
        "" => shortened(name),
        namespace => shortened(&format!("{namespace}/{name}")),
    }
}

// === impl Element ===

impl<'a> Element<'a> {
    pub(crate) fn new(number: usize, raw: &'a Object, errors: &'a mut SelectionErrors) -> Self {
        Element { number, name: name_of(raw), raw, errors }
    }

    /// Checks every key, in the order of the standard.
    pub(crate) fn check(mut self, namespace: &str) -> Checked {
        let extensions = self.extensions();
        let definition = self.definition(namespace);
        let ips = self.ips();
        let mac = self.hardware("mac", &[6, 20], "hardware address: expected 6 bytes like 02:00:00:12:34:56, or 20 for IP over InfiniBand");
        let interface = self.interface();
        let cni_args = self.cni_args();
        let port_mappings = self.port_mappings();
        let bandwidth = self.bandwidth();
        let default_route = self.default_route();
        let infiniband_guid = self.hardware("infiniband-guid", &[8], "GUID: expected 8 bytes like c2:11:22:33:44:55:66:77");
        let ipam_claim = self.ipam_claim();
        let device_id = self.device_id();
        let default_routes = default_route.as_deref().map_or([false; 2], default_routes);
        let selection = definition.map(|definition| Selection {
            definition,
            interface: interface.clone(),
            ips,
            mac,
            infiniband_guid,
            cni_args,
            port_mappings,
            bandwidth,
            default_route,
            ipam_claim,
            migrates: false,
            device_id,
            extensions,
        });
        Checked { selection, interface, default_routes }
    }

    pub(crate) fn report(&mut self, key: impl Into<String>, problem: Problem) {
        let place = AnnotationPlace::Element { number: self.number, name: self.name.clone(), key: shortened(&key.into()) };
        self.errors.push(place, problem);
    }

    pub(crate) fn unexpected(&mut self, key: impl Into<String>, expected: &'static str, value: &Value) {
        self.report(key, Problem::Unexpected { expected, found: found(value) });
    }

    /// A string; an empty one is not given, as Go cannot tell the two apart.
    fn text(&mut self, key: &str) -> Option<&'a str> {
        match self.raw.get(key)? {
            Value::String(s) => Some(s.as_str()).filter(|s| !s.is_empty()),
            other => {
                self.unexpected(key, "a string", other);
                None
            }
        }
    }

    pub(crate) fn list(&mut self, key: &str, what: &'static str, max: usize, expected: &'static str) -> Option<&'a [Value]> {
        match self.raw.get(key)? {
            Value::Array(list) if list.len() > max => {
                self.report(key, Problem::TooMany { what, count: list.len(), max });
                None
            }
            Value::Array(list) => Some(list),
            other => {
                self.unexpected(key, expected, other);
                None
            }
        }
    }

    pub(crate) fn object(&mut self, key: &str) -> Option<&'a Object> {
        match self.raw.get(key)? {
            Value::Object(object) => Some(object),
            other => {
                self.unexpected(key, "an object", other);
                None
            }
        }
    }

    /// S23.
    fn cni_args(&mut self) -> Option<Object> {
        let args = self.object("cni-args")?;
        let depth = args.depth();
        if depth > MAX_ARGS_DEPTH {
            self.report("cni-args", Problem::TooMany { what: "levels of lists and objects", count: depth, max: MAX_ARGS_DEPTH });
            return None;
        }
        Some(args.clone())
    }

    /// S17: keys with a period are kept, other unknown ones refused.
    fn extensions(&mut self) -> Object {
        let raw = self.raw;
        for (key, _) in raw.iter().filter(|(key, _)| !key.contains('.') && !is_known(key)) {
            // Looking for a near miss is work: not for the thousands of keys of a hostile annotation.
            let meant = if self.errors.is_full() { None } else { meant(key) };
            self.report(key, Problem::UnknownKey { meant });
        }
        raw.iter().filter(|(key, _)| key.contains('.')).map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// S18, S19.
    fn definition(&mut self, pods: &str) -> Option<DefinitionRef> {
        let namespace = self.text("namespace").unwrap_or(pods);
        let namespace =
            NameRule::Namespace.check(namespace).map(|()| namespace).map_err(|e| self.report("namespace", Problem::Name(e))).ok();
        let name = match self.raw.get("name") {
            None => {
                self.report("name", Problem::Missing("the name of a NetworkAttachmentDefinition"));
                None
            }
            Some(Value::String(name)) => match NameRule::Definition.check(name) {
                Ok(()) => Some(name),
                Err(e) => {
                    self.report("name", Problem::Name(e));
                    None
                }
            },
            Some(other) => {
                self.unexpected("name", "a string", other);
                None
            }
        };
        Some(DefinitionRef { namespace: namespace?.to_owned(), name: name?.clone() })
    }

    /// S20.
    fn ips(&mut self) -> Vec<RequestedIp> {
        let Some(list) = self.list("ips", "addresses", MAX_ADDRESSES, r#"a list like ["10.1.1.5/24"]"#) else { return Vec::new() };
        if list.is_empty() {
            self.report("ips", Problem::Empty("at least one address"));
        }
        let mut seen = HashSet::new();
        let mut ips = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let key = format!("ips[{i}]");
            let Value::String(text) = value else {
                self.unexpected(key, "a string", value);
                continue;
            };
            match requested_ip(text) {
                Err(problem) => self.report(key, problem),
                Ok(ip) if !seen.insert(ip.address) => self.report(key, Problem::Twice(ip.address.to_string())),
                Ok(ip) => ips.push(ip),
            }
        }
        ips
    }

    /// S21, S27.
    fn hardware(&mut self, key: &str, lengths: &[usize], expected: &'static str) -> Option<Mac> {
        let text = self.text(key)?;
        let address = text.parse::<Mac>().ok().filter(|mac| lengths.contains(&mac.as_bytes().len()));
        let Some(address) = address else {
            self.report(key, Problem::Hardware { text: shortened(text), expected });
            return None;
        };
        // The group bit is Ethernet's; an IPoIB address begins with flags, a GUID with a vendor's number.
        let unusable = match address.as_bytes().len() {
            6 => !address.is_unicast(),
            _ => address.as_bytes().iter().all(|b| *b == 0),
        };
        if unusable {
            self.report(key, Problem::Unusable { text: shortened(text), what: "a multicast address or all zeros" });
            return None;
        }
        Some(address)
    }

    /// S22, with Multus's older spelling.
    fn interface(&mut self) -> Option<IfName> {
        let own = self.text("interface");
        let older = self.text("interfaceRequest");
        if let (Some(a), Some(b)) = (own, older)
            && a != b
        {
            self.report("interfaceRequest", Problem::TwoInterfaces);
        }
        let key = if own.is_some() { "interface" } else { "interfaceRequest" };
        let text = own.or(older)?;
        if text.len() > 80 {
            self.report(key, Problem::TooMany { what: "bytes of an interface's name", count: text.len(), max: 15 });
            return None;
        }
        IfName::parse(text).map_err(|e| self.report(key, Problem::Interface(e))).ok()
    }

    /// S26.
    fn default_route(&mut self) -> Option<Vec<IpAddr>> {
        self.raw.get("default-route")?;
        let list = self.list("default-route", "gateways", MAX_ADDRESSES, r#"a list like ["10.1.1.1"]"#).unwrap_or_default();
        let mut gateways = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let key = format!("default-route[{i}]");
            match value {
                Value::String(text) => match bare_ip(text).and_then(|ip| usable(ip, text)) {
                    Ok(ip) if gateways.contains(&ip) => self.report(key, Problem::Twice(ip.to_string())),
                    Ok(ip) => gateways.push(ip),
                    Err(problem) => self.report(key, problem),
                },
                other => self.unexpected(key, "a string", other),
            }
        }
        Some(gateways)
    }

    /// S28.
    fn ipam_claim(&mut self) -> Option<String> {
        let key = "ipam-claim-reference";
        let text = self.text(key)?;
        if self.raw.get("ips").is_some() {
            self.report(key, Problem::ClaimAndIps);
        }
        NameRule::Claim.check(text).map(|()| text.to_owned()).map_err(|e| self.report(key, Problem::Name(e))).ok()
    }

    /// Multus's `deviceID`: a PCI address or what a device plugin calls its device.
    fn device_id(&mut self) -> Option<String> {
        let text = self.text("deviceID")?;
        match text.len() <= MAX_DEVICE && text.chars().all(|c| c.is_ascii_graphic()) {
            true => Some(text.to_owned()),
            false => {
                let expected = "a device's name of at most 253 printable characters without spaces";
                self.report("deviceID", Problem::Unexpected { expected, found: format!("{:?}", shortened(text)) });
                None
            }
        }
    }
}

pub(crate) fn bare_ip(text: &str) -> Result<IpAddr, Problem> {
    text.parse::<IpAddr>().map_err(|_| Problem::BareAddress(shortened(text)))
}

/// `address` or `address/prefix`.
fn requested_ip(text: &str) -> Result<RequestedIp, Problem> {
    let bad = || Problem::Address(shortened(text));
    let (address, prefix) = match text.split_once('/') {
        // `ipnet` also reads "10.0.0.1/08" and "/+8"; Go, which the plugins are written in, does neither.
        Some((_, digits)) if digits.len() > 1 && digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(bad());
        }
        Some(_) => {
            let net: ipnet::IpNet = text.parse().map_err(|_| bad())?;
            (net.addr(), Some(net.prefix_len()))
        }
        None => (text.parse().map_err(|_| bad())?, None),
    };
    Ok(RequestedIp { address: usable(address, text)?, prefix, text: text.to_owned() })
}

/// Refuses what no interface can own.
fn usable(address: IpAddr, text: &str) -> Result<IpAddr, Problem> {
    let what = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_multicast() => "a multicast address",
        IpAddr::V4(a) if a.is_broadcast() => "the broadcast address",
        // Go reads these as IPv4, other plugins as IPv6: nobody could say what would be assigned.
        IpAddr::V6(a) if a.to_ipv4_mapped().is_some() => "an IPv4 address in IPv6 form",
        _ => return Ok(address),
    };
    Err(Problem::Unusable { text: shortened(text), what })
}
