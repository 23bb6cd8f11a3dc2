//! Pods: what is attached to networks.

use std::collections::HashSet;

use npwg::{Protocol, Selection, SelectionErrors};

use super::definition::json_place;
use super::error::{FindingKind, ManifestProblem};
use super::fields::{Field, Object};
use super::near::nearest;
use super::object::{Kind, Metadata, address, ignore, metadata};
use super::relations::Reading;
use super::text::Text;
use super::{Annotation, ContainerPort, Origin, PodManifest, SYSTEM_NAMESPACE, Workload};

pub(crate) fn read(object: &Object<'_>, reading: &mut Reading) {
    let Some(metadata) = metadata(object, Kind::Pod, reading) else { return };
    let spec = object.object("spec", reading);
    if let Some(reason) = without_network(object, spec.as_ref(), reading) {
        return ignore(object, "Pod", reason, reading);
    }
    let mut pod = selecting(&metadata, object, reading);
    pod.workload = Workload { names: owners(object), copies: None };
    let mut host_ports = Vec::new();
    if let Some(spec) = spec {
        spec.warn_of_near_misses(&["nodeName", "hostNetwork", "containers"], reading);
        pod.node = node(&spec, reading);
        (pod.ports, host_ports) = ports(&spec, reading);
    }
    reading.add_pod(pod, annotation(&metadata.annotated), host_ports);
}

/// Reads the pods of a workload, of which a cluster makes some and a lab none.
pub(crate) fn template(object: &Object<'_>, reading: &mut Reading) {
    fn of<'a>(object: &Object<'a>, key: &str) -> Option<Object<'a>> {
        object.get(key)?.as_object()
    }
    let spec = of(object, "spec");
    // A CronJob makes Jobs.
    let spec = spec.as_ref().and_then(|spec| of(&of(spec, "jobTemplate")?, "spec")).or(spec);
    let Some(template) = spec.and_then(|spec| of(&spec, "template")) else { return };
    let Some(owner) = metadata(object, Kind::Workload, reading) else { return };
    let (Some(inner), spec) = (of(&template, "metadata"), of(&template, "spec")) else { return };
    let (annotations, annotated) = (inner.strings("annotations", reading), of(&inner, "annotations"));
    let is_on_host = spec.as_ref().and_then(|spec| spec.get("hostNetwork")).and_then(|field| field.boolean(reading)) == Some(true);
    let metadata = Metadata { annotations, annotated, labels: inner.strings("labels", reading), uid: None, ..owner };
    if !is_on_host {
        let mut pod = selecting(&metadata, object, reading);
        pod.workload = workload(object);
        reading.add_pod(pod, annotation(&metadata.annotated), Vec::new());
    }
}

/// A pod with what its annotations select.
fn selecting(metadata: &Metadata<'_>, object: &Object<'_>, reading: &mut Reading) -> PodManifest {
    let networks = networks(metadata, reading);
    let default_network = default_network(metadata, reading);
    PodManifest {
        namespace: metadata.namespace.to_owned(),
        name: metadata.name.to_owned(),
        uid: metadata.uid.map(str::to_owned),
        node: None,
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        networks,
        default_network,
        ports: Vec::new(),
        origin: object.origin(),
        workload: Workload::default(),
    }
}

/// The workload of a template, and those that it comes from itself.
fn workload(object: &Object<'_>) -> Workload {
    let text = |object: &Object<'_>, key: &str| object.get(key).and_then(|field| field.as_str().map(str::to_owned));
    let (kind, metadata) = (text(object, "kind").unwrap_or_default(), object.get("metadata").and_then(|field| field.as_object()));
    let name = metadata.and_then(|metadata| text(&metadata, "name")).unwrap_or_default();
    let spec = object.get("spec").and_then(|field| field.as_object());
    let key = if kind == "Job" { "parallelism" } else { "replicas" };
    // A DaemonSet's pods are each on a node of its own; a CronJob's come one after the other.
    let copies = spec.and_then(|spec| spec.get(key)?.number()).filter(|_| kind != "DaemonSet").unwrap_or(1);
    let mut names = vec![format!("{kind}/{name}")];
    names.extend(owners(object));
    Workload { names, copies: Some(copies) }
}

/// The controller of an object, and the workload that makes such controllers: a ReplicaSet is a Deployment's, a Job may be a CronJob's.
fn owners(object: &Object<'_>) -> Vec<String> {
    let text = |object: &Object<'_>, key: &str| object.get(key).and_then(|field| field.as_str().map(str::to_owned));
    let metadata = object.get("metadata").and_then(|field| field.as_object());
    let references = metadata.and_then(|metadata| metadata.get("ownerReferences")).map(|field| field.elements()).unwrap_or_default();
    let mut names = Vec::new();
    for owner in references.iter().filter_map(Field::as_object) {
        let (Some(kind), Some(name)) = (text(&owner, "kind"), text(&owner, "name")) else { continue };
        let above = match kind.as_str() {
            "ReplicaSet" => Some("Deployment"),
            "Job" => Some("CronJob"),
            _ => None,
        };
        names.extend(above.zip(name.rsplit_once('-')).map(|(above, (stem, _))| format!("{above}/{stem}")));
        names.push(format!("{kind}/{name}"));
    }
    names
}

/// Where the selections are written.
fn annotation(annotated: &Option<Object<'_>>) -> Option<Text> {
    annotated.as_ref()?.get(npwg::NETWORKS).map(|field| Text::of(&field))
}

/// Why a pod has no network of its own, if it has none.
fn without_network(object: &Object<'_>, spec: Option<&Object<'_>>, reading: &mut Reading) -> Option<&'static str> {
    if spec.and_then(|spec| spec.get("hostNetwork")).and_then(|field| field.boolean(reading)) == Some(true) {
        return Some("hostNetwork: true: it uses its node's network and gets no attachments");
    }
    let status = object.object("status", reading)?;
    match status.string("phase", reading)? {
        "Succeeded" | "Failed" => Some("its status.phase says that it has finished"),
        _ => None,
    }
}

fn node(spec: &Object<'_>, reading: &mut Reading) -> Option<String> {
    let field = spec.get("nodeName")?;
    let name = field.string(reading).filter(|name| !name.is_empty())?;
    match super::names::check(name) {
        Ok(()) => reading.link_node(name, &field),
        Err(problem) => field.report(ManifestProblem::Name(problem), reading),
    }
    Some(name.to_owned())
}

fn networks(metadata: &Metadata<'_>, reading: &mut Reading) -> Option<Annotation<Vec<Selection>>> {
    let annotated = metadata.annotated.as_ref()?;
    warn_of_near_annotations(metadata, annotated, reading);
    let field = annotated.get(npwg::NETWORKS)?;
    // One of another type was reported with the metadata.
    let text = field.as_str()?;
    match npwg::parse(text, metadata.namespace) {
        Ok(selected) => {
            let place = Text::of(&field);
            for (number, selection) in selected.iter().enumerate() {
                let (origin, _) = place.find(text, &format!("[{number}].name"), false);
                reading.link_definition(&selection.definition, origin, &field);
            }
            Some(Annotation { text: text.to_owned(), selected, origin: field.origin() })
        }
        Err(e) => {
            refuse(&field, e, reading);
            Some(Annotation { text: text.to_owned(), selected: Vec::new(), origin: field.origin() })
        }
    }
}

fn default_network(metadata: &Metadata<'_>, reading: &mut Reading) -> Option<Annotation<Option<Selection>>> {
    let field = metadata.annotated.as_ref()?.get(npwg::DEFAULT_NETWORK)?;
    let text = field.as_str()?;
    match npwg::default_network(text, SYSTEM_NAMESPACE) {
        Ok(selected) => {
            reading.link_definition(&selected.definition, field.origin(), &field);
            Some(Annotation { text: text.to_owned(), selected: Some(selected), origin: field.origin() })
        }
        Err(e) => {
            refuse(&field, e, reading);
            Some(Annotation { text: text.to_owned(), selected: None, origin: field.origin() })
        }
    }
}

/// Tells of every violation in an annotation, at the place inside of its text if there is one. As in a cluster, which takes
/// any text, such a pod fails for itself and holds up no other one.
fn refuse(field: &Field<'_>, errors: SelectionErrors, reading: &mut Reading) {
    let (place, text) = (Text::of(field), field.as_str().unwrap_or_default());
    for mut error in errors.errors {
        let is_key = matches!(error.problem, npwg::Problem::UnknownKey { .. });
        let origin = match (&mut error.problem, &error.place) {
            (npwg::Problem::NotJson(e), _) => json_place(field, e).unwrap_or_else(|| field.origin()),
            (_, npwg::AnnotationPlace::Element { number, key, .. }) => {
                place.find(text, format!("[{}].{key}", number.saturating_sub(1)).trim_end_matches('.'), is_key).0
            }
            _ => field.origin(),
        };
        reading.found(origin, &field.path, FindingKind::PodWillFail(ManifestProblem::Selection(error)));
    }
    if errors.more > 0 {
        reading.found(field.origin(), &field.path, FindingKind::PodWillFail(ManifestProblem::MoreSelections(errors.more)));
    }
}

/// Warns of annotations that nobody reads and that were meant to select networks.
fn warn_of_near_annotations(metadata: &Metadata<'_>, annotated: &Object<'_>, reading: &mut Reading) {
    const KNOWN: [&str; 2] = [npwg::NETWORKS, npwg::DEFAULT_NETWORK];
    const OTHERS: [&str; 2] = [npwg::NETWORK_STATUS, npwg::RESOURCE_NAME];
    let keys = metadata.annotations.keys().map(String::as_str);
    for key in keys.filter(|key| !KNOWN.contains(key) && !OTHERS.contains(key)) {
        // With another version or domain before it the name is as good as right.
        let of_cncf = key.ends_with("/networks") && key.contains("cni.cncf.io");
        let near = nearest(key, KNOWN).or(of_cncf.then_some(npwg::NETWORKS));
        let meant = KNOWN.into_iter().find(|known| near == Some(known));
        if let (Some(meant), Some(field)) = (meant, annotated.get(key)) {
            reading.found(field.origin(), &annotated.path, FindingKind::NearMiss { key: key.to_owned(), meant });
        }
    }
}

/// The ports of all containers, and where those are that have a host port.
fn ports(spec: &Object<'_>, reading: &mut Reading) -> (Vec<ContainerPort>, Vec<(Origin, String)>) {
    let (mut ports, mut places) = (Vec::new(), Vec::new());
    let mut on_host = HashSet::new();
    for container in spec.objects("containers", reading) {
        for object in container.objects("ports", reading) {
            let Some(port) = port(&object, reading) else { continue };
            let host = port.host_port.map(|host_port| (host_port, port.protocol, port.host_ip));
            if let Some((host_port, protocol, _)) = host.filter(|host| !on_host.insert(*host)) {
                reading.error(object.origin(), &object.path, ManifestProblem::HostPortTwice(host_port, protocol));
            }
            if let Some(field) = object.get("hostPort").filter(|_| port.host_port.is_some()) {
                places.push((field.origin(), field.path));
            }
            ports.push(port);
        }
    }
    (ports, places)
}

fn port(object: &Object<'_>, reading: &mut Reading) -> Option<ContainerPort> {
    object.warn_of_near_misses(&["containerPort", "hostPort", "hostIP", "protocol", "name"], reading);
    let host_port = object.get("hostPort").and_then(|field| field.port(reading));
    let host_ip = object.get("hostIP").filter(|f| f.as_str() != Some("")).and_then(|f| address(&f, reading));
    let protocol = object.get("protocol").map_or(Some(Protocol::Tcp), |field| protocol(&field, reading));
    let field = object.required("containerPort", "expected a port, a number from 1 to 65535", reading)?;
    let before = reading.errors.len();
    let container_port = field.port(reading);
    if container_port.is_none() && reading.errors.len() == before {
        field.unexpected("a port, a number from 1 to 65535", reading);
    }
    Some(ContainerPort { container_port: container_port?, host_port, host_ip, protocol: protocol? })
}

/// In upper case, as the API server has it.
fn protocol(field: &Field<'_>, reading: &mut Reading) -> Option<Protocol> {
    match field.string(reading)? {
        "" | "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => {
            field.unexpected("TCP, UDP or SCTP", reading);
            None
        }
    }
}
