//! Nodes: the machines of a lab.

use ipnet::IpNet;
use yaml::shortened;

use super::NodeManifest;
use super::error::ManifestProblem;
use super::fields::{Field, Object};
use super::object::{Kind, address, metadata};
use super::relations::Reading;
use crate::underlay::ZONE;

pub(crate) fn read(object: &Object<'_>, reading: &mut Reading) {
    let Some(metadata) = metadata(object, Kind::Node, reading) else { return };
    let name = metadata.name.to_owned();
    let pod_cidrs = object.object("spec", reading).map_or(Vec::new(), |spec| pod_cidrs(&spec, &name, reading));
    let addresses = object.object("status", reading).map_or(Vec::new(), |status| {
        let mut internal = Vec::new();
        for entry in status.objects("addresses", reading) {
            // Host names and outer addresses are of no use in a lab.
            if entry.string("type", reading) != Some("InternalIP") {
                continue;
            }
            let field = entry.required("address", "expected an IP address", reading);
            if let Some((address, field)) = field.and_then(|field| Some((address(&field, reading)?, field))) {
                reading.take_address(address, &name, &field);
                internal.push(address);
            }
        }
        internal
    });
    let zone = metadata.labels.get(ZONE).cloned().unwrap_or_default();
    reading.nodes.push(NodeManifest { name, pod_cidrs, zone, addresses, annotations: metadata.annotations, origin: object.origin() });
}

/// `podCIDRs`, and `podCIDR`, which is its first where both are given.
fn pod_cidrs(spec: &Object<'_>, node: &str, reading: &mut Reading) -> Vec<IpNet> {
    spec.warn_of_near_misses(&["podCIDR", "podCIDRs"], reading);
    let mut fields = spec.list("podCIDRs", reading);
    // An empty string is how the API server prints none.
    let single = spec.get("podCIDR").filter(|f| f.as_str() != Some(""));
    if fields.is_empty() {
        fields.extend(single.clone());
    }
    let mut cidrs: Vec<IpNet> = Vec::new();
    for field in fields {
        let Some(cidr) = cidr(&field, reading) else { continue };
        let second = cidrs.iter().any(|other| other.addr().is_ipv4() == cidr.addr().is_ipv4());
        if second {
            field.report(ManifestProblem::SecondOfFamily(cidr), reading);
            continue;
        }
        reading.take_cidr(cidr, node, &field);
        cidrs.push(cidr);
    }
    let other = single.filter(|_| spec.get("podCIDRs").is_some()).and_then(|field| Some((cidr(&field, reading)?, field)));
    if let Some((cidr, field)) = other.filter(|(cidr, _)| cidrs.first().is_some_and(|first| first != cidr)) {
        field.report(ManifestProblem::NotFirst(cidr), reading);
    }
    cidrs
}

fn cidr(field: &Field<'_>, reading: &mut Reading) -> Option<IpNet> {
    let text = field.string(reading)?;
    let Ok(cidr) = text.parse::<IpNet>() else {
        field.report(ManifestProblem::Cidr(shortened(text)), reading);
        return None;
    };
    if cidr.trunc() != cidr {
        field.report(ManifestProblem::HostBits { text: text.to_owned(), network: cidr.trunc() }, reading);
        return None;
    }
    Some(cidr)
}
