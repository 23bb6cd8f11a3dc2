//! What an element says about its traffic: `portMappings` (S24) and `bandwidth` (S25).

use std::collections::HashSet;
use std::net::IpAddr;

use json::{Object, Value};

use crate::element::{Element, bare_ip};
use crate::keys::{BANDWIDTH_KEYS, PORT_KEYS};
use crate::problem::Problem;
use crate::{Bandwidth, PortMapping, Protocol};

/// The port mappings of one element at the most.
const MAX_PORTS: usize = 1024;

// === impl Element ===

impl Element<'_> {
    /// S24.
    pub(crate) fn port_mappings(&mut self) -> Vec<PortMapping> {
        let expected = r#"a list like [{"hostPort": 8080, "containerPort": 80}]"#;
        let Some(list) = self.list("portMappings", "port mappings", MAX_PORTS, expected) else { return Vec::new() };
        if list.is_empty() {
            self.report("portMappings", Problem::Empty("at least one mapping"));
        }
        let mut seen = HashSet::new();
        let mut mappings = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let key = format!("portMappings[{i}]");
            let Value::Object(object) = value else {
                self.unexpected(key, r#"an object like {"hostPort": 8080, "containerPort": 80}"#, value);
                continue;
            };
            let Some(mapping) = self.port_mapping(&key, object) else { continue };
            match seen.insert((mapping.host_port, mapping.protocol, mapping.host_ip)) {
                true => mappings.push(mapping),
                false => self.report(key, Problem::Twice(format!("host port {}/{}", mapping.host_port, mapping.protocol))),
            }
        }
        mappings
    }

    fn port_mapping(&mut self, place: &str, object: &Object) -> Option<PortMapping> {
        self.only(place, object, PORT_KEYS, "hostPort, containerPort, protocol and hostIP");
        let host_port = self.port(place, "hostPort", object);
        let container_port = self.port(place, "containerPort", object);
        let protocol = self.protocol(place, object);
        let host_ip = self.host_ip(place, object);
        Some(PortMapping { host_port: host_port?, container_port: container_port?, protocol: protocol?, host_ip: host_ip? })
    }

    fn only(&mut self, place: &str, object: &Object, keys: &[&str], known: &'static str) {
        for (key, _) in object.iter().filter(|(key, _)| !keys.iter().any(|k| k.eq_ignore_ascii_case(key))) {
            self.report(format!("{place}.{key}"), Problem::UnknownUnder { known });
        }
    }

    fn port(&mut self, place: &str, key: &str, object: &Object) -> Option<u16> {
        let place = format!("{place}.{key}");
        let Some(value) = object.get(key) else {
            self.report(place, Problem::Missing("a port from 1 to 65535"));
            return None;
        };
        let port = whole(value).and_then(|n| u16::try_from(n).ok());
        if port.is_none() {
            self.unexpected(place, "a port from 1 to 65535", value);
        }
        port
    }

    fn protocol(&mut self, place: &str, object: &Object) -> Option<Protocol> {
        let known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let Some(value) = object.get("protocol").filter(|v| v.as_str() != Some("")) else { return Some(Protocol::default()) };
        let protocol = value.as_str().and_then(|text| known.into_iter().find(|p| p.as_str().eq_ignore_ascii_case(text)));
        if protocol.is_none() {
            self.unexpected(format!("{place}.protocol"), "\"TCP\", \"UDP\" or \"SCTP\"", value);
        }
        protocol
    }

    fn host_ip(&mut self, place: &str, object: &Object) -> Option<Option<IpAddr>> {
        let place = format!("{place}.hostIP");
        match object.get("hostIP") {
            None => Some(None),
            Some(Value::String(text)) if text.is_empty() => Some(None),
            Some(Value::String(text)) => bare_ip(text).map(Some).map_err(|problem| self.report(place, problem)).ok(),
            Some(other) => {
                self.unexpected(place, "a string", other);
                None
            }
        }
    }

    /// S25.
    pub(crate) fn bandwidth(&mut self) -> Option<Bandwidth> {
        let object = self.object("bandwidth")?;
        if object.is_empty() {
            self.report("bandwidth", Problem::Empty("at least one rate"));
        }
        self.only("bandwidth", object, BANDWIDTH_KEYS, "ingressRate, ingressBurst, egressRate and egressBurst");
        let mut amount = |key: &str| {
            let value = object.get(key)?;
            let amount = whole(value);
            if amount.is_none() {
                self.unexpected(format!("bandwidth.{key}"), "a whole number of bits, at least 1", value);
            }
            amount
        };
        let bandwidth = Bandwidth {
            ingress_rate: amount("ingressRate"),
            ingress_burst: amount("ingressBurst"),
            egress_rate: amount("egressRate"),
            egress_burst: amount("egressBurst"),
        };
        for (rate, burst) in [("ingressRate", "ingressBurst"), ("egressRate", "egressBurst")] {
            if object.get(burst).is_some() && object.get(rate).is_none() {
                self.report(format!("bandwidth.{burst}"), Problem::BurstWithoutRate(rate));
            }
        }
        (bandwidth != Bandwidth::default()).then_some(bandwidth)
    }
}

/// A number above 0 without a fraction.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n.as_u64().filter(|n| *n > 0),
        _ => None,
    }
}
