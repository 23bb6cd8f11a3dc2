//! What was read so far, and the checks between objects: names, references, addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use npwg::DefinitionRef;

use super::error::{Finding, FindingKind, ManifestError, ManifestErrors, ManifestProblem};
use super::fields::Field;
use super::near::{nearest, there_are};
use super::object::Kind;
use super::text::Text;
use super::{DefinitionManifest, Manifests, NodeManifest, Origin, PodManifest, PoolManifest, Purpose, check};

/// What was read so far, and what is wrong with it.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) errors: Vec<ManifestError>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) nodes: Vec<NodeManifest>,
    pub(crate) definitions: Vec<DefinitionManifest>,
    pub(crate) pools: Vec<PoolManifest>,
    pub(crate) pods: Vec<PodManifest>,
    /// Where each definition's configuration is written.
    pub(crate) configs: Vec<Option<Text>>,
    /// Where each pod's selections are written.
    pub(crate) annotations: Vec<Option<Text>>,
    /// Where each pod's host ports are, and their fields.
    pub(crate) host_ports: Vec<Vec<(Origin, String)>>,
    /// What the manifests are read for.
    pub(crate) purpose: Purpose,
    /// Every name that is taken, also by an object with errors; namespaces of nodes and pools are empty.
    taken: BTreeMap<Kind, BTreeMap<(String, String), Origin>>,
    links: Vec<Link>,
    cidrs: Vec<(IpNet, String, ManifestField)>,
    addresses: HashMap<IpAddr, (String, Origin)>,
    /// Something could not be read, so that what is missing may be in there.
    incomplete: bool,
}

/// A field, for a check that has to wait until everything is read.
struct ManifestField {
    origin: Origin,
    path: String,
}

/// A reference to another object.
struct Link {
    place: ManifestField,
    to: Target,
}

enum Target {
    Node(String),
    Definition(DefinitionRef),
}

// === impl ManifestField ===

impl ManifestField {
    fn of(field: &Field<'_>) -> Self {
        ManifestField { origin: field.origin(), path: field.path.clone() }
    }
}

// === impl Reading ===

impl Reading {
    /// Of manifests that are read for something.
    pub(crate) fn new(purpose: Purpose) -> Self {
        Reading { purpose, ..Reading::default() }
    }

    pub(crate) fn error(&mut self, origin: Origin, field: &str, problem: ManifestProblem) {
        self.errors.push(ManifestError { origin, field: field.to_owned(), problem });
    }

    pub(crate) fn found(&mut self, origin: Origin, field: &str, kind: FindingKind) {
        self.findings.push(Finding { origin, field: field.to_owned(), width: 1, kind });
    }

    /// Takes a pod, with where its selections and its host ports are written.
    pub(crate) fn add_pod(&mut self, pod: PodManifest, selections: Option<Text>, host_ports: Vec<(Origin, String)>) {
        self.pods.push(pod);
        self.annotations.push(selections);
        self.host_ports.push(host_ports);
    }

    /// Reports something of which nothing could be read.
    pub(crate) fn unreadable(&mut self, origin: Origin, problem: ManifestProblem) {
        self.error(origin, "", problem);
        self.lose();
    }

    /// An object could not be told: what is missing may be this one, so nothing is called missing.
    pub(crate) fn lose(&mut self) {
        self.incomplete = true;
    }

    /// Takes a name, which no other object of the kind may have. `at` is where the name stands.
    pub(crate) fn take(&mut self, kind: Kind, title: &str, namespace: &str, name: &str, object: &Origin, at: Option<Origin>) {
        let names = self.taken.entry(kind).or_default();
        let full = (namespace.to_owned(), name.to_owned());
        let here = at.unwrap_or_else(|| object.clone());
        if let Some(first) = names.get(&full).cloned() {
            let object = format!("{title} {namespace}{}{name}", if namespace.is_empty() { "" } else { "/" });
            return self.error(here, "metadata.name", ManifestProblem::Duplicate { object, first });
        }
        names.insert(full, here);
    }

    /// Takes a node's address.
    pub(crate) fn take_address(&mut self, address: IpAddr, node: &str, field: &Field<'_>) {
        match self.addresses.get(&address).cloned() {
            Some((node, origin)) => field.report(ManifestProblem::AddressTaken { address, node, origin }, self),
            None => drop(self.addresses.insert(address, (node.to_owned(), field.origin()))),
        }
    }

    /// Takes a node's range of addresses for its pods.
    pub(crate) fn take_cidr(&mut self, cidr: IpNet, node: &str, field: &Field<'_>) {
        self.cidrs.push((cidr, node.to_owned(), ManifestField::of(field)));
    }

    /// A pod is on a node.
    pub(crate) fn link_node(&mut self, name: &str, field: &Field<'_>) {
        self.links.push(Link { place: ManifestField::of(field), to: Target::Node(name.to_owned()) });
    }

    /// A pod selects a definition, at a place in a field.
    pub(crate) fn link_definition(&mut self, definition: &DefinitionRef, origin: Origin, field: &Field<'_>) {
        self.links.push(Link { place: ManifestField { origin, path: field.path.clone() }, to: Target::Definition(definition.clone()) });
    }

    /// Checks what is between objects; `first` is the first file, where that is to be reported which is in none.
    pub(crate) fn finish(mut self, first: Origin) -> Result<Manifests, ManifestErrors> {
        self.check_cidrs();
        let checked = check::findings(&self);
        self.findings.extend(checked);
        if !self.incomplete {
            self.check_links();
        }
        // A cluster has other objects.
        let nothing = self.purpose != Purpose::Cluster
            && self.nodes.is_empty()
            && self.definitions.is_empty()
            && self.pools.is_empty()
            && self.pods.is_empty();
        if self.errors.is_empty() && nothing {
            let ignored = self.findings.iter().filter(|w| matches!(w.kind, FindingKind::Ignored { .. })).count();
            self.error(first, "", ManifestProblem::Nothing(ignored));
        }
        let Reading { errors, findings, nodes, definitions, pools, pods, .. } = self;
        match errors.is_empty() {
            true => Ok(Manifests { nodes, definitions, pools, pods, findings }),
            false => Err(ManifestErrors { errors, findings }),
        }
    }

    fn names(&self, kind: Kind) -> impl Iterator<Item = &(String, String)> {
        self.taken.get(&kind).into_iter().flat_map(BTreeMap::keys)
    }

    fn check_links(&mut self) {
        // Without nodes there is one for all pods, whatever they call it.
        let any_nodes = self.names(Kind::Node).next().is_some();
        let any_definitions = self.names(Kind::Definition).next().is_some();
        let mut found = Vec::new();
        for Link { place, to } in &self.links {
            let problem = match to {
                Target::Node(name) if any_nodes => self.no_such_node(name),
                Target::Node(_) => None,
                // Whoever has no definition at all in the files has them in the cluster.
                Target::Definition(_) if self.purpose == Purpose::Cluster && !any_definitions => None,
                Target::Definition(name) => self.no_such_definition(name),
            };
            found.extend(problem.map(|problem| (place.origin.clone(), place.path.clone(), problem)));
        }
        for (origin, path, problem) in found {
            match problem {
                // As in a cluster, such a pod fails, and holds up no other one.
                ManifestProblem::NoSuchDefinition { .. } if self.purpose != Purpose::Cluster => {
                    self.found(origin, &path, FindingKind::PodWillFail(problem));
                }
                ManifestProblem::NoSuchDefinition { .. } => self.found(origin, &path, FindingKind::NotHere(problem)),
                problem => self.error(origin, &path, problem),
            }
        }
    }

    fn is_taken(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.taken.get(&kind).is_some_and(|names| names.contains_key(&(namespace.to_owned(), name.to_owned())))
    }

    fn no_such_node(&self, name: &str) -> Option<ManifestProblem> {
        if self.is_taken(Kind::Node, "", name) {
            return None;
        }
        let known = || self.names(Kind::Node).map(|(_, name)| name.as_str());
        let meant = nearest(name, known()).map(str::to_owned);
        Some(ManifestProblem::NoSuchNode { name: name.to_owned(), meant, known: there_are("Node", known()) })
    }

    fn no_such_definition(&self, wanted: &DefinitionRef) -> Option<ManifestProblem> {
        if self.is_taken(Kind::Definition, &wanted.namespace, &wanted.name) {
            return None;
        }
        let same_namespace = self.names(Kind::Definition).filter(|(namespace, _)| *namespace == wanted.namespace);
        // The same name elsewhere is likelier meant than another name here, and a definition's namespace often forgotten.
        let elsewhere = self.names(Kind::Definition).find(|(_, name)| *name == wanted.name);
        let near = elsewhere.map(|(namespace, name)| format!("{namespace}/{name}"));
        let near = near.or_else(|| {
            let name = nearest(&wanted.name, same_namespace.map(|(_, name)| name.as_str()))?;
            Some(format!("{}/{name}", wanted.namespace))
        });
        let known = self.names(Kind::Definition).map(|(namespace, name)| format!("{namespace}/{name}"));
        let known = there_are(npwg::crd::KIND, known);
        Some(ManifestProblem::NoSuchDefinition { name: wanted.clone(), meant: near, known })
    }

    fn check_cidrs(&mut self) {
        let mut cidrs = std::mem::take(&mut self.cidrs);
        // Ranges are apart or inside of each other, so in this order each is held against one other only.
        cidrs.sort_by_key(|(cidr, _, _)| (cidr.network(), cidr.prefix_len()));
        let mut outer: Option<&(IpNet, String, ManifestField)> = None;
        for one in &cidrs {
            let (cidr, _, place) = one;
            match outer.filter(|(other, _, _)| other.contains(cidr)) {
                Some((other, node, at)) => {
                    let problem = ManifestProblem::Overlap { cidr: *cidr, other: *other, node: node.clone(), origin: at.origin.clone() };
                    self.error(place.origin.clone(), &place.path, problem);
                }
                None => outer = Some(one),
            }
        }
    }
}
