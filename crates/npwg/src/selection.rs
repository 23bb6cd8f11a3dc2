//! What a pod selects: the annotation [`NETWORKS`] (S13 to S28).
//!
//! ```text
//! annotation --form--> raw elements (JSON objects as received) --element.rs--> Selection (checked)
//!                                                                  --rules between elements--> all, or every violation
//! ```

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use cni::{IfName, Mac};
use json::{Object, Value};

use crate::DefinitionRef;
use crate::element::{Element, name_of};
use crate::problem::{AnnotationPlace, Problem, SelectionErrors, shortened};

/// The pod's annotation that selects networks besides the default one (S13).
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The pod's annotation that replaces the cluster's default network; Multus's, not in the standard.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// The elements of one annotation at the most. More than any pod has interfaces, and so few that a full node has some thousand.
pub const MAX_ELEMENTS: usize = 64;

/// The bytes of one annotation at the most: what the API server takes for all annotations of an object together.
pub const MAX_ANNOTATION: usize = 256 << 10;

/// The values of one annotation in JSON at the most: read, each takes up to thirty times its text.
pub const MAX_ANNOTATION_VALUES: usize = 4096;

/// One attachment that a pod asks for, checked (S18 to S28).
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// What to attach to (S18, S19).
    pub definition: DefinitionRef,
    /// Name of the interface in the pod (S22); chosen for the pod if not given.
    pub interface: Option<IfName>,
    /// Addresses that the attachment must get (S20).
    pub ips: Vec<RequestedIp>,
    /// Hardware address that the interface must get: 6 bytes, or the 20 of IP over InfiniBand (S21).
    pub mac: Option<Mac>,
    /// GUID of 8 bytes that the interface must get (S27).
    pub infiniband_guid: Option<Mac>,
    /// Keys for the plugins' `args.cni` (S23).
    pub cni_args: Option<Object>,
    /// Host ports that lead to the pod (S24).
    pub port_mappings: Vec<PortMapping>,
    /// Limits of the traffic (S25).
    pub bandwidth: Option<Bandwidth>,
    /// The pod's default route leads through this attachment, over these gateways; over none in particular where the
    /// list is empty (S26).
    pub default_route: Option<Vec<IpAddr>>,
    /// The IPAMClaim that holds the attachment's addresses (S28).
    pub ipam_claim: Option<String>,
    /// Whether its pod says that it may have the claim's addresses at the same time as another pod that says so ([`MIGRATION`]).
    pub migrates: bool,
    /// The device to use; Multus's `deviceID`.
    pub device_id: Option<String>,
    /// Keys with a period, which belong to implementations, as they came (S17).
    pub extensions: Object,
}

/// A requested address (S20).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedIp {
    /// The address.
    pub address: IpAddr,
    /// Its prefix length in bits, if one was given (since 1.1 of the standard).
    pub prefix: Option<u8>,
    /// Both as they were written, which is how the plugins get them.
    pub text: String,
}

/// A port of the host that leads to a port of the pod (S24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortMapping {
    /// Port of the host; never 0.
    pub host_port: u16,
    /// Port of the pod; never 0.
    pub container_port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The host's address that listens; every one if not given. Not in the standard, known to Multus and the
    /// `portmap` plugin.
    pub host_ip: Option<IpAddr>,
}

/// A transport protocol that has ports (S24).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP, which is meant where none is given.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Limits of an attachment's traffic (S25), as seen from the pod. A burst is given only with its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Towards the pod, bit/s; never 0.
    pub ingress_rate: Option<u64>,
    /// Towards the pod, bits at once; never 0.
    pub ingress_burst: Option<u64>,
    /// From the pod, bit/s; never 0.
    pub egress_rate: Option<u64>,
    /// From the pod, bits at once; never 0.
    pub egress_burst: Option<u64>,
}

// === impl Protocol ===

impl Protocol {
    /// In lower case, as runtimes send it to plugins.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The annotation on two pods of one claim, with the value `true`, that lets both have its addresses at the same time, as the one migrates to
/// the other. The project's own.
pub const MIGRATION: &str = "netloom.io/migration";

// === impl Selection ===

impl Selection {
    /// A selection that asks for nothing in particular.
    pub fn new(definition: DefinitionRef) -> Self {
        Selection {
            definition,
            interface: None,
            ips: Vec::new(),
            mac: None,
            infiniband_guid: None,
            cni_args: None,
            port_mappings: Vec::new(),
            bandwidth: None,
            default_route: None,
            ipam_claim: None,
            migrates: false,
            device_id: None,
            extensions: Object::new(),
        }
    }
}

/// The families, IPv4 and IPv6, whose default route these gateways take (S26): an empty list takes both away.
pub fn default_routes(gateways: &[IpAddr]) -> [bool; 2] {
    [true, false].map(|v4| gateways.is_empty() || gateways.iter().any(|gateway| gateway.is_ipv4() == v4))
}

/// In the comma form: `namespace/name`, with `@interface` if one is requested.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.definition.fmt(f)?;
        match &self.interface {
            Some(name) => write!(f, "@{name}"),
            None => Ok(()),
        }
    }
}

/// Reads the annotation [`NETWORKS`] of a pod in `namespace`: the JSON form if it contains any of `[`, `{` and `"`,
/// else the comma form (S14 to S16), which may name interfaces as Multus has it: `[namespace/]name[@interface]`. A
/// blank annotation selects nothing.
///
/// # Errors
/// [`SelectionErrors`] with every violation of S17 to S28.
pub fn parse(annotation: &str, namespace: &str) -> Result<Vec<Selection>, SelectionErrors> {
    read(NETWORKS, annotation, namespace)
}

/// Reads the annotation [`DEFAULT_NETWORK`], which selects exactly one network in the same two forms; `namespace` is
/// where the cluster's own definitions are.
///
/// # Errors
/// [`SelectionErrors`] with every violation.
pub fn default_network(annotation: &str, namespace: &str) -> Result<Selection, SelectionErrors> {
    let mut selections = read(DEFAULT_NETWORK, annotation, namespace)?;
    match (selections.pop(), selections.len()) {
        (Some(one), 0) => Ok(one),
        (last, before) => {
            let mut errors = SelectionErrors::none(DEFAULT_NETWORK);
            errors.push(AnnotationPlace::Whole, Problem::NotOne(before + usize::from(last.is_some())));
            Err(errors)
        }
    }
}

fn read(key: &'static str, annotation: &str, namespace: &str) -> Result<Vec<Selection>, SelectionErrors> {
    let mut errors = SelectionErrors::none(key);
    let raw = match raw_elements(annotation, &mut errors) {
        Ok(raw) => raw,
        Err(problem) => {
            errors.push(AnnotationPlace::Whole, problem);
            return Err(errors);
        }
    };
    let mut selections = Vec::with_capacity(raw.len());
    let mut seen = UniqueKeys::default();
    for (number, object) in raw {
        let checked = Element::new(number, &object, &mut errors).check(namespace);
        seen.compare(number, &object, &checked, &mut errors);
        selections.extend(checked.selection);
    }
    errors.or(selections)
}

/// The elements as received, numbered from 1; those that are none are reported.
fn raw_elements(annotation: &str, errors: &mut SelectionErrors) -> Result<Vec<(usize, Object)>, Problem> {
    if annotation.len() > MAX_ANNOTATION {
        return Err(Problem::TooMany { what: "bytes", count: annotation.len(), max: MAX_ANNOTATION });
    }
    if annotation.trim().is_empty() {
        return Ok(Vec::new());
    }
    match annotation.contains(['[', '{', '"']) {
        true => json_form(annotation, errors),
        false => comma_form(annotation, errors),
    }
}

fn json_form(annotation: &str, errors: &mut SelectionErrors) -> Result<Vec<(usize, Object)>, Problem> {
    let values = json::Size::of(annotation.as_bytes()).values;
    if values > MAX_ANNOTATION_VALUES {
        return Err(Problem::TooMany { what: "values", count: values, max: MAX_ANNOTATION_VALUES });
    }
    let list = match json::parse(annotation.as_bytes()) {
        Ok(Value::Array(list)) => list,
        Ok(Value::Object(_)) => return Err(Problem::NotInAList),
        Ok(other) => return Err(Problem::Unexpected { expected: "a list of objects", found: found(&other) }),
        Err(e) => return Err(Problem::NotJson(e)),
    };
    few(list.len())?;
    let mut objects = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        match value {
            Value::Object(object) => objects.push((index + 1, object)),
            other => {
                let expected = r#"an object like {"name": "net1"}"#;
                errors.push(element(index + 1), Problem::Unexpected { expected, found: found(&other) });
            }
        }
    }
    Ok(objects)
}

fn comma_form(annotation: &str, errors: &mut SelectionErrors) -> Result<Vec<(usize, Object)>, Problem> {
    few(annotation.split(',').count())?;
    let mut objects = Vec::new();
    for (index, text) in annotation.split(',').map(str::trim).enumerate() {
        match short_element(text) {
            Some(object) => objects.push((index + 1, object)),
            None if text.is_empty() => errors.push(element(index + 1), Problem::Blank),
            None => errors.push(element(index + 1), Problem::Syntax(shortened(text))),
        }
    }
    Ok(objects)
}

/// `[namespace/]name[@interface]` as the object that the JSON form would have.
fn short_element(text: &str) -> Option<Object> {
    let (rest, interface) = match text.split_once('@') {
        Some((rest, interface)) => (rest, Some(interface.trim())),
        None => (text, None),
    };
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace.trim()), name.trim()),
        None => (None, rest.trim()),
    };
    let blank = |part: Option<&str>| part == Some("");
    if name.is_empty() || blank(namespace) || blank(interface) || name.contains('/') || interface.is_some_and(|i| i.contains(['@', '/'])) {
        return None;
    }
    let mut object = Object::new();
    object.set("name", name);
    for (key, value) in [("namespace", namespace), ("interface", interface)] {
        if let Some(value) = value {
            object.set(key, value);
        }
    }
    Some(object)
}

fn few(count: usize) -> Result<(), Problem> {
    match count > MAX_ELEMENTS {
        true => Err(Problem::TooMany { what: "elements", count, max: MAX_ELEMENTS }),
        false => Ok(()),
    }
}

fn element(number: usize) -> AnnotationPlace {
    AnnotationPlace::Element { number, name: String::new(), key: String::new() }
}

/// A value in a message: a word for what it is, and a little of it.
pub(crate) fn found(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) => format!("{} ({})", value.kind(), shortened(&json::compact(value))),
        Value::String(s) => format!("a string ({:?})", shortened(s)),
        other => other.kind().to_owned(),
    }
}

/// What only one element of an annotation may have.
#[derive(Default)]
struct UniqueKeys {
    interfaces: HashMap<IfName, usize>,
    /// Of IPv4 and of IPv6.
    default_routes: [Option<usize>; 2],
}

impl UniqueKeys {
    /// Holds an element against those before it (S22, S26). Selecting a definition twice is no violation (S30).
    fn compare(&mut self, number: usize, raw: &Object, checked: &crate::element::Checked, errors: &mut SelectionErrors) {
        let place = |key: &str| AnnotationPlace::Element { number, name: name_of(raw), key: key.to_owned() };
        if let Some(name) = &checked.interface {
            match self.interfaces.get(name) {
                Some(&other) => errors.push(place("interface"), Problem::DuplicateInterface { name: name.to_string(), other }),
                None => drop(self.interfaces.insert(name.clone(), number)),
            }
        }
        let taken = self.default_routes.iter().zip(checked.default_routes).find_map(|(before, now)| before.filter(|_| now));
        match taken {
            Some(other) => errors.push(place("default-route"), Problem::SecondDefaultRoute(other)),
            None => {
                for (route, _) in self.default_routes.iter_mut().zip(checked.default_routes).filter(|(_, now)| *now) {
                    *route = Some(number);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
