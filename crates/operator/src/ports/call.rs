//! One call, made: of Neutron, or of the API server.

use std::collections::BTreeSet;

use binding::{Call, DEVICE_OWNER, Key, ObjectName};
use http::Method;
use kube::Client;
use kube::api::ListParams;
use kube::core::DynamicObject;
use neutron::{Answered, Error, Neutron, PortFilter, Refusal};
use openstack::resource::{AddressPair, Network, NewPort, Port, PortUpdate, SubPort, Subnet, Trunk};
use osvif::{KuryrPort, PORT_FINALIZER, PodState, VIF_ANNOTATION};
use serde_json::{Value, json};

use super::known::Followed;
use super::namespace_network::{FormerNetwork, NamespaceNetwork, NotMade};
use crate::apply_write::{Outcome, delete, make, send};

/// A call with all that it needs.
#[derive(Clone)]
pub(super) enum Task {
    /// Which extensions this Neutron has.
    Extensions,
    /// All ports with this tag, and, where tags come later, those that have none yet.
    List {
        tag: String,
        with_untagged: bool,
    },
    /// Ports by their IDs.
    Poll(Vec<String>),
    Subnet(String),
    Network(String),
    /// The ports that have a node's address.
    NodePorts(String),
    /// A node's port.
    Carrier(String),
    Trunk(String),
    AddSubPorts(String, Vec<SubPort>),
    RemoveSubPorts(String, Vec<String>),
    /// The address pairs of a node's port with this revision.
    Pairs {
        port: String,
        revision: u64,
        pairs: Vec<AddressPair>,
        adds: bool,
    },
    Create(Vec<(Key, NewPort)>),
    Tag(String, Vec<String>),
    /// Change a port, whatever its revision is.
    Update {
        slot: Slot,
        port: String,
        update: PortUpdate,
    },
    Delete(String),
    /// A port that exists already.
    Port(String),
    /// Give it to a pod, or back, if it has this revision.
    Hand {
        port: String,
        revision: u64,
        update: PortUpdate,
    },
    Write(ObjectName, Option<String>, Box<KuryrPort>),
    Release(ObjectName, Box<KuryrPort>),
    /// The annotation of the pod of this name, if it has this UID; none: without it. The text is made when the call begins.
    Annotate {
        name: ObjectName,
        uid: String,
        text: Option<String>,
        digest: Option<u64>,
    },
    /// Which of these UIDs are of pods that the API server has.
    Confirm(BTreeSet<String>),
    /// Networks with the cluster's tag.
    Networks(String),
    MakeNetwork(Box<NamespaceNetwork>),
    RemoveNetwork(Box<FormerNetwork>),
}

/// What came of it.
pub(super) enum Came {
    Extensions(Result<BTreeSet<String>, Error>),
    Listed(Result<Vec<Port>, Error>),
    Polled(Vec<String>, Result<Vec<Port>, Error>),
    Subnet(String, Result<Option<Subnet>, Error>),
    Network(String, Result<Option<Network>, Error>),
    NodePorts(String, Result<Vec<Port>, Error>),
    Carrier(String, Result<Option<Box<Port>>, Error>),
    Trunk(String, Result<Option<Trunk>, Error>),
    AddedSubPorts(String, Vec<SubPort>, Result<(), Error>),
    RemovedSubPorts(String, Vec<String>, Result<(), Error>),
    Paired(String, Result<Box<Port>, Error>),
    Created(Vec<(Key, NewPort)>, Result<Answered<Vec<Port>>, Error>),
    Tagged(String, Vec<String>, Result<(), Error>),
    Updated(Result<Box<Port>, Error>),
    Deleted(String, Result<Answered<bool>, Error>),
    Port(String, Result<Option<Box<Port>>, Error>),
    Handed(String, Result<Box<Port>, Error>),
    Wrote(ObjectName, Outcome),
    Released(ObjectName, Outcome),
    Annotated { name: ObjectName, uid: String, digest: Option<u64>, outcome: Outcome },
    Confirmed(BTreeSet<String>, Result<BTreeSet<String>, String>),
    Networks(Result<Vec<Network>, Error>),
    MadeNetwork(String, Result<(Box<DynamicObject>, Network), NotMade>),
    RemovedNetwork(String, Result<(), String>),
}

/// By what a call is known while it is on its way: there is one of each at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    Extensions,
    List,
    Poll,
    Subnet(String),
    Network(String),
    NodePorts(String),
    Carrier(String),
    Trunk(String),
    /// A trunk, and the first port of those that are put on it.
    AddSubPorts(String, String),
    RemoveSubPorts(String),
    /// A node's port, and whether it gets new pairs: it can lose some where it has no place for more.
    Pairs(String, bool),
    /// The first key of a bulk.
    Create(Key),
    /// Also where a port that exists already is given to a pod, or back.
    Tag(String),
    Port(String),
    /// What follows the definition: security groups, address pairs.
    Groups(String),
    Bind(String),
    Delete(String),
    Object(ObjectName),
    Annotation(ObjectName),
    Networks,
    /// The network of a namespace.
    Namespace(String),
    Confirm,
}

// === impl Slot ===

impl Slot {
    /// The call that reads it; none of what is not read.
    pub(super) fn call(&self) -> Option<Call> {
        match self {
            Slot::Subnet(id) => Some(Call::ReadSubnet(id.clone())),
            Slot::Network(id) => Some(Call::ReadNetwork(id.clone())),
            _ => None,
        }
    }

    /// The first word of the log's line about a failure: which server failed. A namespace's network needs both.
    pub(super) fn logged_as(&self) -> &'static str {
        match self {
            Slot::Object(_) | Slot::Annotation(_) | Slot::Confirm => "kubernetes",
            Slot::Namespace(_) => "namespace",
            _ => "neutron",
        }
    }

    /// What is not known while this is on its way.
    pub(super) fn excludes(&self, busy: &Slot) -> bool {
        match (self, busy) {
            (Slot::Trunk(id), Slot::AddSubPorts(of, _) | Slot::RemoveSubPorts(of))
            | (Slot::AddSubPorts(id, _), Slot::AddSubPorts(of, _) | Slot::Trunk(of))
            | (Slot::RemoveSubPorts(id), Slot::Trunk(of))
            | (Slot::Pairs(id, _), Slot::Pairs(of, _) | Slot::Carrier(of))
            | (Slot::Port(id), Slot::Tag(of))
            | (Slot::Tag(id), Slot::Port(of)) => id == of,
            _ => false,
        }
    }
}

// === impl Task ===

impl Task {
    /// Neutron tries to bind a port that is not bound whenever it is changed.
    pub(super) fn bind(port: String, host: &str) -> Self {
        let update = PortUpdate { host: Some(host.to_owned()), ..PortUpdate::default() };
        Task::Update { slot: Slot::Bind(port.clone()), port, update }
    }

    /// A call that was decided.
    pub(super) fn of(call: Call, list: impl Fn() -> Task, stored: impl Fn(&ObjectName) -> Option<KuryrPort>) -> Option<Self> {
        Some(match call {
            Call::ListPorts => list(),
            Call::ReadSubnet(id) => Task::Subnet(id),
            Call::ReadNetwork(id) => Task::Network(id),
            Call::ReadNodePorts(address) => Task::NodePorts(address),
            Call::ReadCarrier(id) => Task::Carrier(id),
            Call::ReadTrunk(id) => Task::Trunk(id),
            Call::AddSubPorts(id, ports) => Task::AddSubPorts(id, ports),
            Call::RemoveSubPorts(id, ports) => Task::RemoveSubPorts(id, ports),
            Call::SetPairs { port, revision, pairs, adds } => Task::Pairs { port, revision, pairs, adds },
            Call::CreatePorts(wanted) => Task::Create(wanted),
            Call::TagPort(id, tags) => Task::Tag(id, tags),
            Call::SetGroups(port, groups) => {
                let update = PortUpdate { security_groups: Some(groups), ..PortUpdate::default() };
                Task::Update { slot: Slot::Groups(port.clone()), port, update }
            }
            Call::AllowPairs(port, pairs) => {
                let update = PortUpdate { allowed_address_pairs: Some(pairs), ..PortUpdate::default() };
                Task::Update { slot: Slot::Groups(port.clone()), port, update }
            }
            Call::DeletePort(id) => Task::Delete(id),
            Call::ReadPort(id) => Task::Port(id),
            Call::TakePort { port, revision, uid, host } => Task::Hand { port, revision, update: handed(DEVICE_OWNER, uid, host) },
            Call::FreePort { port, revision } => Task::Hand { port, revision, update: handed("", String::new(), String::new()) },
            Call::WriteKuryrPort { name, version, object } => Task::Write(name, version, object),
            Call::ReleaseKuryrPort { name, .. } => {
                let object = stored(&name)?;
                Task::Release(name, Box::new(object))
            }
            Call::AnnotatePod { name, uid } => Task::Annotate { name, uid, text: None, digest: None },
        })
    }

    pub(super) fn slot(&self) -> Slot {
        match self {
            Task::Extensions => Slot::Extensions,
            Task::List { .. } => Slot::List,
            Task::Poll(_) => Slot::Poll,
            Task::Subnet(id) => Slot::Subnet(id.clone()),
            Task::Network(id) => Slot::Network(id.clone()),
            Task::NodePorts(address) => Slot::NodePorts(address.clone()),
            Task::Carrier(id) => Slot::Carrier(id.clone()),
            Task::Trunk(id) => Slot::Trunk(id.clone()),
            Task::AddSubPorts(id, ports) => Slot::AddSubPorts(id.clone(), ports.first().map(|sub| sub.port_id.clone()).unwrap_or_default()),
            Task::RemoveSubPorts(id, _) => Slot::RemoveSubPorts(id.clone()),
            Task::Pairs { port, adds, .. } => Slot::Pairs(port.clone(), *adds),
            Task::Create(wanted) => Slot::Create(wanted.first().map(|(key, _)| key.clone()).unwrap_or_default()),
            Task::Tag(id, _) | Task::Hand { port: id, .. } => Slot::Tag(id.clone()),
            Task::Port(id) => Slot::Port(id.clone()),
            Task::Update { slot, .. } => slot.clone(),
            Task::Delete(id) => Slot::Delete(id.clone()),
            Task::Write(name, ..) | Task::Release(name, _) => Slot::Object(name.clone()),
            Task::Annotate { name, .. } => Slot::Annotation(name.clone()),
            Task::Networks(_) => Slot::Networks,
            Task::MakeNetwork(network) => Slot::Namespace(network.namespace.clone()),
            Task::RemoveNetwork(network) => Slot::Namespace(network.namespace.clone()),
            Task::Confirm(_) => Slot::Confirm,
        }
    }

    pub(super) async fn run(self, client: Client, neutron: Neutron) -> Came {
        match self {
            Task::Extensions => Came::Extensions(neutron.extensions().await),
            Task::List { tag, with_untagged } => Came::Listed(all_ports(&neutron, tag, with_untagged).await),
            Task::Poll(ids) => {
                let listed = neutron.ports(&PortFilter { ids: ids.clone(), ..PortFilter::default() }).await;
                Came::Polled(ids, listed)
            }
            Task::Subnet(id) => {
                let read = neutron.subnet(&id).await.map(Some).or_else(absent);
                Came::Subnet(id, read)
            }
            Task::Network(id) => {
                let read = neutron.network(&id).await.map(Some).or_else(absent);
                Came::Network(id, read)
            }
            Task::NodePorts(address) => {
                let listed = neutron.ports(&PortFilter { address: Some(address.clone()), ..PortFilter::default() }).await;
                Came::NodePorts(address, listed)
            }
            Task::Carrier(id) => {
                let read = neutron.port(&id).await.map(Some).or_else(absent);
                Came::Carrier(id, read.map(|port| port.map(Box::new)))
            }
            Task::Trunk(id) => {
                let read = neutron.trunk(&id).await.map(Some).or_else(absent);
                Came::Trunk(id, read)
            }
            Task::AddSubPorts(id, ports) => {
                let added = neutron.add_sub_ports(&id, &ports).await;
                if added.is_ok() {
                    linux::crash_point!("operator-subports-added");
                }
                Came::AddedSubPorts(id, ports, added)
            }
            Task::RemoveSubPorts(id, ports) => {
                let removed = neutron.remove_sub_ports(&id, &ports.iter().map(String::as_str).collect::<Vec<_>>()).await;
                if removed.is_ok() {
                    linux::crash_point!("operator-subports-removed");
                }
                Came::RemovedSubPorts(id, ports, removed)
            }
            Task::Pairs { port, revision, pairs, .. } => {
                let update = PortUpdate { allowed_address_pairs: Some(pairs), ..PortUpdate::default() };
                let paired = neutron.update_port(&port, &update, Some(revision)).await;
                if paired.is_ok() {
                    linux::crash_point!("operator-pairs-set");
                }
                Came::Paired(port, paired.map(Box::new))
            }
            Task::Create(wanted) => {
                let ports: Vec<NewPort> = wanted.iter().map(|(_, port)| port.clone()).collect();
                let made = neutron.create_ports(&ports).await;
                if made.is_ok() {
                    linux::crash_point!("operator-port-made");
                }
                Came::Created(wanted, made)
            }
            Task::Port(id) => {
                let read = neutron.port(&id).await.map(Some).or_else(absent);
                Came::Port(id, read.map(|port| port.map(Box::new)))
            }
            Task::Hand { port, revision, update } => {
                let handed = neutron.update_port(&port, &update, Some(revision)).await;
                if handed.is_ok() {
                    linux::crash_point!("operator-port-handed");
                }
                Came::Handed(port, handed.map(Box::new))
            }
            Task::Tag(id, tags) => {
                let tagged = neutron.set_port_tags(&id, &tags).await;
                if tagged.is_ok() {
                    linux::crash_point!("operator-port-tagged");
                }
                Came::Tagged(id, tags, tagged)
            }
            Task::Update { port, update, .. } => Came::Updated(neutron.update_port(&port, &update, None).await.map(Box::new)),
            Task::Delete(id) => {
                let deleted = neutron.delete_port(&id).await;
                if deleted.is_ok() {
                    linux::crash_point!("operator-port-deleted");
                }
                Came::Deleted(id, deleted)
            }
            Task::Write(name, version, object) => {
                let outcome = write(&client, &name, version, *object).await;
                if matches!(outcome, Outcome::Done(_)) {
                    linux::crash_point!("operator-kuryrport-written");
                }
                Came::Wrote(name, outcome)
            }
            Task::Release(name, object) => {
                let outcome = release(&client, &name, &object).await;
                Came::Released(name, outcome)
            }
            Task::Annotate { name, uid, text, digest } => {
                let outcome = annotate(&client, &name, &uid, text).await;
                if matches!(outcome, Outcome::Done(_)) {
                    linux::crash_point!("operator-pod-annotated");
                }
                Came::Annotated { name, uid, digest, outcome }
            }
            Task::Networks(tag) => Came::Networks(neutron.networks_tagged(&tag).await),
            Task::MakeNetwork(network) => {
                let namespace = network.namespace.clone();
                Came::MadeNetwork(namespace, network.make(&client, &neutron).await)
            }
            Task::RemoveNetwork(network) => {
                let namespace = network.namespace.clone();
                Came::RemovedNetwork(namespace, network.remove(&client, &neutron).await)
            }
            Task::Confirm(uids) => {
                let live = live(&client, &uids).await;
                Came::Confirmed(uids, live)
            }
        }
    }
}

/// Who has a port, and where it is bound.
pub(super) fn handed(owner: &str, uid: String, host: String) -> PortUpdate {
    PortUpdate { device_owner: Some(owner.to_owned()), device_id: Some(uid), host: Some(host), ..PortUpdate::default() }
}

/// The cluster's ports: by their tag, and those that have only a description yet.
pub(super) async fn all_ports(neutron: &Neutron, tag: String, with_untagged: bool) -> Result<Vec<Port>, Error> {
    let mut all = Vec::new();
    // First what has no tag yet: it may have one in between.
    if with_untagged {
        let untagged = PortFilter { not_tags: vec![tag.clone()], device_owner: Some(DEVICE_OWNER.to_owned()), ..PortFilter::default() };
        let is_of = |port: &Port| port.description.split(' ').any(|word| word == tag);
        all.extend(neutron.ports(&untagged).await?.into_iter().filter(is_of));
    }
    all.extend(neutron.ports(&PortFilter { tags: vec![tag], ..PortFilter::default() }).await?);
    Ok(all)
}

#[allow(clippy::result_large_err, reason = "it is passed on as it came")]
fn absent<T>(e: Error) -> Result<Option<T>, Error> {
    if e.refusal() == Some(Refusal::NotFound) { Ok(None) } else { Err(e) }
}

fn path(name: &ObjectName) -> String {
    format!("/apis/{}/namespaces/{}/{}", osvif::KURYR_PORT_VERSION, name.namespace, osvif::crd::PLURAL)
}

async fn write(client: &Client, name: &ObjectName, version: Option<String>, object: KuryrPort) -> Outcome {
    let value = object.write();
    let request = match version {
        None => make(Method::POST, path(name), "application/json", &value),
        // Its metadata have the version that was read.
        Some(_) => make(Method::PUT, format!("{}/{}", path(name), name.name), "application/json", &value),
    };
    send(client, request).await
}

/// Takes the finalizer off, and deletes the object where nobody has yet. A kill between leaves one without a finalizer, which the next
/// operator deletes.
async fn release(client: &Client, name: &ObjectName, object: &KuryrPort) -> Outcome {
    let of = |key: &str| object.metadata.get(key).cloned().unwrap_or_default();
    let others = of("finalizers").as_array().map(|all| all.iter().filter(|one| **one != PORT_FINALIZER).cloned().collect::<Vec<_>>());
    let place = format!("{}/{}", path(name), name.name);
    let patch = json!({"metadata": {"resourceVersion": of("resourceVersion"), "finalizers": others.unwrap_or_default()}});
    let patched = send(client, make(Method::PATCH, place.clone(), "application/merge-patch+json", &patch)).await;
    if !matches!(patched, Outcome::Done(_)) {
        return patched;
    }
    linux::crash_point!("operator-kuryrport-released");
    if of("deletionTimestamp") != Value::Null {
        return Outcome::Done(None);
    }
    let options = json!({"preconditions": {"uid": of("uid")}});
    match delete(client, make(Method::DELETE, place, "application/json", &options)).await {
        Outcome::Conflict => Outcome::Done(None),
        other => other,
    }
}

/// The annotation of a pod with this KuryrPort; none where it has no VIFs.
pub(super) fn annotation_of(object: &KuryrPort) -> Option<String> {
    let vifs = &object.status.vifs;
    (!vifs.is_empty()).then(|| PodState::of_vifs(vifs).annotation())
}

async fn annotate(client: &Client, name: &ObjectName, uid: &str, text: Option<String>) -> Outcome {
    let patch = json!({"metadata": {"uid": uid, "annotations": {VIF_ANNOTATION: text}}});
    let place = format!("/api/v1/namespaces/{}/pods/{}", name.namespace, name.name);
    match send(client, make(Method::PATCH, place, "application/merge-patch+json", &patch)).await {
        // Another pod has the name by now.
        Outcome::Refused(why) if why.contains("metadata.uid") => Outcome::Conflict,
        other => other,
    }
}

/// Which of these pods are there: one consistent list of all, page by page. A pod has no address by its UID.
async fn live(client: &Client, uids: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    let api = Followed::Pod.api(client.clone());
    let (mut live, mut token) = (BTreeSet::new(), None);
    loop {
        let params = ListParams { limit: Some(100), continue_token: token, ..ListParams::default() };
        let page = api.list(&params).await.map_err(|e| e.to_string())?;
        let uid = |object: DynamicObject| object.metadata.uid;
        live.extend(page.items.into_iter().filter_map(uid).filter(|uid| uids.contains(uid)));
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(live);
        }
    }
}
