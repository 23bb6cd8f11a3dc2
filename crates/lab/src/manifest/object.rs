//! From a document to its objects: which kind each is, and what all kinds have in common.

use std::collections::BTreeMap;

use yaml::{Value, parse, shortened};

use super::error::{FindingKind, ManifestProblem};
use super::fields::{Field, Object};
use super::near::nearest;
use super::relations::Reading;
use super::source::Document;
use super::{DEFAULT_NAMESPACE, Purpose, definition, node, pod, pool};

/// A kind that a lab reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    Definition,
    Pool,
    Pod,
    /// What makes pods in a cluster.
    Workload,
}

/// Every kind that a lab reads, with its name, its `apiVersion` and who reads it.
type KindRow = (Kind, &'static str, &'static str, fn(&Object<'_>, &mut Reading));
const KINDS: [KindRow; 4] = [
    (Kind::Node, "Node", "v1", node::read),
    (Kind::Definition, npwg::crd::KIND, npwg::crd::API_VERSION, definition::read),
    (Kind::Pool, "IPPool", api::API_VERSION, pool::read),
    (Kind::Pod, "Pod", "v1", pod::read),
];

/// The kinds whose controllers make pods.
const WORKLOADS: [&str; 7] = ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// What every object has.
pub(crate) struct Metadata<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: Option<&'a str>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The annotations with their places, if there are any.
    pub(crate) annotated: Option<Object<'a>>,
}

/// Reads one document: an object, a list of them, or nothing.
pub(crate) fn read(document: &Document, reading: &mut Reading) {
    let root = match parse(&document.text) {
        Ok(root) => root,
        Err(broken) => {
            let origin = broken.place.map_or_else(|| document.whole(), |(line, column)| document.origin(line, column));
            return reading.unreadable(origin, broken.problem.into());
        }
    };
    if !matches!(root.value, Value::Null) {
        object(&Field { document, node: &root, path: String::new() }, None, reading);
    }
}

/// Reads an object; `inherited` is the kind that its list gives it.
fn object(field: &Field<'_>, inherited: Option<&'static KindRow>, reading: &mut Reading) {
    let Some(object) = field.object("an object with apiVersion, kind and metadata", reading) else { return reading.lose() };
    let kind = match (object.get("kind"), inherited) {
        (None, Some(row)) => return row.3(&object, reading),
        _ => object.required("kind", "expected Pod, Node, NetworkAttachmentDefinition, IPPool or List", reading),
    };
    let kind = kind.and_then(|kind| Some((kind.string(reading)?, kind)));
    let Some((name, kind)) = kind else { return reading.lose() };
    let api_version = object.string("apiVersion", reading).unwrap_or_default();
    if let Some(row) = KINDS.iter().find(|row| row.1 == name) {
        return known(row, api_version, &object, reading);
    }
    if let Some(of) = name.strip_suffix("List") {
        let row = KINDS.iter().find(|row| row.1 == of);
        if row.is_some() || of.is_empty() {
            return object.list("items", reading).iter().for_each(|item| self::object(item, row, reading));
        }
    }
    match nearest(name, KINDS.iter().map(|row| row.1)).and_then(|near| KINDS.iter().find(|row| row.1 == near)) {
        Some(row) => {
            kind.report(ManifestProblem::Kind { found: shortened(name), meant: row.1 }, reading);
            reading.lose();
        }
        None if reading.purpose == Purpose::Cluster && WORKLOADS.contains(&name) => pod::template(&object, reading),
        None => ignore(&object, name, reason(name), reading),
    }
}

fn known(row: &KindRow, api_version: &str, object: &Object<'_>, reading: &mut Reading) {
    let (kind, name, expected, read) = row;
    if api_version == *expected {
        return read(object, reading);
    }
    // Other projects have a Node, a Pod or an IPPool of their own, whose group is a domain.
    let group = |version: &'_ str| version.split_once('/').map(|(group, _)| group.to_owned());
    let is_others = group(api_version).is_some_and(|of| of.contains('.') && Some(of) != group(expected));
    if *kind != Kind::Definition && is_others {
        return ignore(object, &format!("{name}.{api_version}"), "this kind belongs to another API", reading);
    }
    reading.lose();
    match object.get("apiVersion") {
        Some(field) => {
            field.report(ManifestProblem::ApiVersion { kind: name, found: shortened(api_version), expected }, reading);
        }
        None => drop(object.required("apiVersion", wanted(*kind), reading)),
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Node | Kind::Pod | Kind::Workload => "expected v1",
        Kind::Definition => "expected k8s.cni.cncf.io/v1",
        Kind::Pool => "expected netloom.io/v1alpha1",
    }
}

fn reason(kind: &str) -> &'static str {
    match kind {
        kind if WORKLOADS.contains(&kind) => "a lab runs no controllers: write each pod as kind: Pod",
        "Namespace" => "a lab needs none: a namespace exists as soon as an object names it",
        _ => "a lab consists of Pods, Nodes, NetworkAttachmentDefinitions and IPPools",
    }
}

/// Warns that an object is left out.
pub(crate) fn ignore(object: &Object<'_>, kind: &str, reason: &'static str, reading: &mut Reading) {
    if reading.purpose == Purpose::Cluster {
        return;
    }
    // Nothing in such an object is held against it.
    let metadata = object.get("metadata").and_then(|field| field.as_object());
    let text = |key: &str| metadata.as_ref()?.get(key)?.as_str().map(shortened);
    let name = [text("namespace"), text("name")].into_iter().flatten().collect::<Vec<_>>().join("/");
    let object_name = format!("{} {name}", shortened(kind)).trim_end().to_owned();
    reading.found(object.origin(), &object.path, FindingKind::Ignored { object: object_name, reason });
}

/// Reads what every object has, and takes the name for it. `None` if it has none.
pub(crate) fn metadata<'a>(object: &Object<'a>, kind: Kind, reading: &mut Reading) -> Option<Metadata<'a>> {
    object.warn_of_near_misses(&["apiVersion", "kind", "metadata", "spec", "status"], reading);
    let metadata = object.required("metadata", "expected an object with a name", reading).and_then(|m| m.object("an object", reading));
    let Some(metadata) = metadata else {
        reading.lose();
        return None;
    };
    let keys = ["name", "namespace", "generateName", "generation", "uid", "labels", "annotations"];
    metadata.warn_of_near_misses(&keys, reading);
    let labels = metadata.strings("labels", reading);
    let annotations = metadata.strings("annotations", reading);
    let annotated = metadata.get("annotations").and_then(|field| field.as_object());
    let uid = metadata.get("uid").and_then(|field| uid(&field, reading));
    let namespace = namespace(&metadata, kind, reading);
    let Some(name) = name(&metadata, kind, reading) else {
        reading.lose();
        return None;
    };
    // Workloads are of many kinds: two of one name are no mistake.
    if kind != Kind::Workload {
        let at = metadata.get("name").map(|field| field.origin());
        reading.take(kind, title(kind), namespace, name, &object.origin(), at);
    }
    Some(Metadata { namespace, name, uid, labels, annotations, annotated })
}

fn title(kind: Kind) -> &'static str {
    KINDS.iter().find(|row| row.0 == kind).map_or("", |row| row.1)
}

/// A uid goes into `CNI_ARGS`, where some characters have a meaning.
fn uid<'a>(field: &Field<'a>, reading: &mut Reading) -> Option<&'a str> {
    let uid = field.string(reading)?;
    if uid.is_empty() || uid.len() > 64 || !uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        field.unexpected("letters, digits and '-', at most 64 of them", reading);
    }
    Some(uid)
}

/// The namespace of an object of a kind that has one.
fn namespace<'a>(metadata: &Object<'a>, kind: Kind, reading: &mut Reading) -> &'a str {
    if matches!(kind, Kind::Node | Kind::Pool) {
        return "";
    }
    let Some(field) = metadata.get("namespace") else { return DEFAULT_NAMESPACE };
    match field.string(reading) {
        None | Some("") => DEFAULT_NAMESPACE,
        Some(text) => {
            if let Err(problem) = npwg::NameRule::Namespace.check(text) {
                field.report(ManifestProblem::Reference(problem), reading);
            }
            text
        }
    }
}

fn name<'a>(metadata: &Object<'a>, kind: Kind, reading: &mut Reading) -> Option<&'a str> {
    if let (None, Some(field)) = (metadata.get("name"), metadata.get("generateName")) {
        // A server makes the name.
        if reading.purpose != Purpose::Cluster {
            field.report(ManifestProblem::GenerateName, reading);
        }
        return None;
    }
    let field = metadata.required("name", "every object of a lab needs a name", reading)?;
    let text = field.string(reading)?;
    let problem = match kind {
        Kind::Definition => npwg::NameRule::Definition.check(text).err().map(ManifestProblem::Reference),
        Kind::Node | Kind::Pool | Kind::Pod | Kind::Workload => super::names::check(text).err().map(ManifestProblem::Name),
    };
    if let Some(problem) = problem {
        field.report(problem, reading);
    }
    Some(text)
}

/// An address without a prefix length.
pub(crate) fn address(field: &Field<'_>, reading: &mut Reading) -> Option<std::net::IpAddr> {
    let text = field.string(reading)?;
    let address = text.parse().ok();
    if address.is_none() {
        field.report(ManifestProblem::Address(shortened(text)), reading);
    }
    address
}
