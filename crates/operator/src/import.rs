//! Brings over what whereabouts has handed out: into the ledger, as addresses that are kept for the pods that have them.
//!
//! ```text
//!   whereabouts' IPPools and reservations, pods, nodes, definitions --list--> ipam::plan_import --> IPPools made, cells of shards changed
//! ```
//!
//! It can be run again at any time, and again after a part of it has failed: what is there is not changed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{CellState, IpLedgerShardSpec};
use cluster::{ConnectError, Connection, Own};
use http::{Method, Request};
use ipam::{ImportPlan, Inventory, LivingPod, PodAttachment, Reservation, TheirPool, TheirReservation, plan_import, range_pools};
use kube::Client;
use ledger::{CellPosition, FINALIZER, NodePoolSeen, SharedError, Snapshot, assign, delegate, root_name};
use npwg::{NETWORK_STATUS, NetworkStatus, parse_status};
use pool::{Family, Run};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::apply_write::make;
use crate::defined::{DEFINITIONS, WHEREABOUTS};
use crate::store::part;
use crate::tombstones;

/// So often is a shard that others change at the same time read again.
const TRIES: u32 = 16;
/// So many seconds a list is tried again.
const PATIENCE: u32 = 30;

/// What was done, or would be.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// What becomes of each address.
    pub plan: ImportPlan,
    /// Addresses that the ledger has for somebody else, and for whom.
    pub refused: Vec<(Reservation, String)>,
    /// So many were entered; those that were there before are not counted.
    pub entered: usize,
}

/// Why nothing was brought over, or not everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// No connection could be prepared.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No requests can be sent.
    #[error("cannot start the asynchronous runtime: {0}")]
    Runtime(String),
    /// A list cannot be read. Nothing is guessed.
    #[error("cannot list {what}: {error}")]
    List {
        /// Of what.
        what: &'static str,
        /// Why.
        error: Box<kube::Error>,
    },
    /// Something cannot be written.
    #[error("cannot write {kind} {name}: {error}; fix the cause and run the command again, which continues")]
    Write {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why.
        error: String,
    },
}

/// [`import`], for who has no connection yet: by a kubeconfig, or as a pod.
///
/// # Errors
/// [`ImportError`]
pub fn import_by(kubeconfig: Option<&Path>, dry: bool) -> Result<Imported, ImportError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| ImportError::Runtime(e.to_string()))?;
    runtime.block_on(async { import(&cluster::client(kubeconfig).await?, dry).await })
}

/// What whereabouts has handed out becomes the pods' here. `dry`: it is only told.
///
/// # Errors
/// [`ImportError`]
pub async fn import(connection: &Connection, dry: bool) -> Result<Imported, ImportError> {
    let client = connection.client();
    let inventory = inventory(&client).await?;
    let mut done = Imported { plan: plan_import(&inventory), ..Imported::default() };
    let mut shards: BTreeMap<(String, String), Vec<Reservation>> = BTreeMap::new();
    for kept in &done.plan.kept {
        let place = CellPosition::of(kept.address, Family::of(kept.address).bits());
        shards.entry((kept.network.clone(), place.shard_name(&kept.network))).or_default().push(kept.clone());
    }
    if dry {
        for ((network, name), kept) in shards {
            done.refused.extend(would_refuse(&client, &network, &name, &kept).await?);
        }
        return Ok(done);
    }
    for name in done.plan.kept.iter().map(|kept| &kept.pool).collect::<std::collections::BTreeSet<_>>() {
        let Some(defined) = inventory.meant.pools.get(name) else { continue };
        let definitions = defined.definitions.iter().cloned().collect::<Vec<_>>().join(",");
        let metadata = json!({"name": name, "labels": {DEFINITIONS: WHEREABOUTS}, "annotations": {DEFINITIONS: definitions}});
        create(&client, Own::IpPool, name, metadata, json!(defined.spec)).await?;
    }
    for ((network, name), kept) in shards {
        let (entered, refused) = enter(&client, &network, &name, &kept).await?;
        done.entered += entered;
        done.refused.extend(refused);
    }
    Ok(done)
}

/// Lists a kind. A server to which the kind is new asks for a moment's patience (429).
pub(crate) async fn list<T: DeserializeOwned>(client: &Client, what: &'static str, path: &str) -> Result<Vec<T>, ImportError> {
    #[derive(serde::Deserialize)]
    struct List<T> {
        items: Vec<T>,
    }
    let failed = |error| ImportError::List { what, error: Box::new(error) };
    let mut patience = PATIENCE;
    loop {
        let request = Request::get(path).body(Vec::new()).map_err(|e| failed(kube::Error::HttpError(e)))?;
        match client.request::<List<T>>(request).await {
            Err(kube::Error::Api(e)) if e.code == 429 && patience > 0 => {
                patience -= 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            listed => return Ok(listed.map_err(failed)?.items),
        }
    }
}

pub(crate) async fn inventory(client: &Client) -> Result<Inventory, ImportError> {
    let text = |object: &Value, at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = |object: &Value| format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut all = Inventory::default();
    for object in list::<Value>(client, "whereabouts' IPPools", "/apis/whereabouts.cni.cncf.io/v1alpha1/ippools").await? {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let pool: TheirPool = serde_json::from_value(spec).unwrap_or_default();
        all.pools.push(TheirPool { name: text(&object, "/metadata/name"), ..pool });
    }
    for object in reservations(client).await? {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let reservation: TheirReservation = serde_json::from_value(spec).unwrap_or_default();
        all.reservations.push(TheirReservation { name: text(&object, "/metadata/name"), ..reservation });
    }
    for node in list::<Value>(client, "Nodes", "/api/v1/nodes").await? {
        all.nodes.insert(text(&node, "/metadata/name"), text(&node, "/metadata/uid"));
    }
    for pod in list::<Value>(client, "Pods", "/api/v1/pods").await? {
        let status = pod.pointer("/metadata/annotations").and_then(|all| all.get(NETWORK_STATUS)).and_then(Value::as_str);
        let over = ["Succeeded", "Failed"].contains(&text(&pod, "/status/phase").as_str());
        let living = LivingPod { node: text(&pod, "/spec/nodeName"), over, attachments: status.and_then(attachments) };
        all.pods.insert(named(&pod), living);
    }
    let path = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
    let definitions: Vec<(String, String)> = list::<Value>(client, "NetworkAttachmentDefinitions", path)
        .await?
        .iter()
        .map(|object| (named(object), text(object, "/spec/config")))
        .collect();
    all.meant = range_pools(definitions.iter().map(|(name, config)| (name.as_str(), config.as_str())));
    Ok(all)
}

/// Releases of whereabouts that are old enough know no such kind.
async fn reservations(client: &Client) -> Result<Vec<Value>, ImportError> {
    let path = "/apis/whereabouts.cni.cncf.io/v1alpha1/overlappingrangeipreservations";
    match list(client, "whereabouts' OverlappingRangeIPReservations", path).await {
        Err(ImportError::List { error, .. }) if matches!(&*error, kube::Error::Api(status) if status.code == 404) => Ok(Vec::new()),
        listed => listed,
    }
}

/// `None` of what cannot be read: then it is not known what the pod has.
pub(crate) fn attachments(status: &str) -> Option<Vec<PodAttachment>> {
    let address = |ip: &String| ip.split('/').next()?.parse::<IpAddr>().ok();
    let one = |entry: NetworkStatus| PodAttachment {
        addresses: entry.ips.iter().filter_map(address).collect(),
        definition: entry.name,
        ifname: entry.interface.unwrap_or_default(),
    };
    Some(parse_status(status).ok()?.into_iter().map(one).collect())
}

/// Enters addresses of one shard; how many are new, and which the ledger has for somebody else.
async fn enter(
    client: &Client,
    network: &str,
    name: &str,
    kept: &[Reservation],
) -> Result<(usize, Vec<(Reservation, String)>), ImportError> {
    let unwritten = |error: String| ImportError::Write { kind: Own::IpLedgerShard.kind(), name: name.to_owned(), error };
    for _ in 0..TRIES {
        let (version, before) = shard(client, network, name, kept).await?;
        let mut spec = before.clone();
        let (entered, refused) = put_all(&mut spec, kept);
        if spec == before {
            return Ok((0, refused));
        }
        let steps = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/spec", "value": spec},
        ]);
        let request = make(Method::PATCH, format!("{}/{name}", Own::IpLedgerShard.path()), "application/json-patch+json", &steps);
        match client.request_text(request.map_err(|e| unwritten(e.to_string()))?).await {
            Ok(_) => return Ok((entered, refused)),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(e) => return Err(unwritten(e.to_string())),
        }
    }
    Err(unwritten("it is changed by others all the time".to_owned()))
}

/// Which addresses of one shard the ledger has for somebody else, as it is now.
async fn would_refuse(client: &Client, network: &str, name: &str, kept: &[Reservation]) -> Result<Vec<(Reservation, String)>, ImportError> {
    let Some(first) = kept.first() else { return Ok(Vec::new()) };
    let family = Family::of(first.address);
    found(client, &root_name(network, family), family.bits()).await?;
    let there = found(client, name, family.bits()).await?;
    let mut spec = there.map_or_else(|| IpLedgerShardSpec { cell_prefix: family.bits(), ..IpLedgerShardSpec::default() }, |(_, spec)| spec);
    Ok(put_all(&mut spec, kept).1)
}

/// A shard as it is now; it and the object that says how large its network's blocks are, made if they are not there.
async fn shard(client: &Client, network: &str, name: &str, kept: &[Reservation]) -> Result<(String, IpLedgerShardSpec), ImportError> {
    let Some(first) = kept.first() else { return Ok(Default::default()) };
    let family = Family::of(first.address);
    let (root, bits) = (root_name(network, family), family.bits());
    let of = |base: String, first_epoch| IpLedgerShardSpec {
        network: network.to_owned(),
        base,
        cell_prefix: bits,
        first_epoch,
        ..IpLedgerShardSpec::default()
    };
    let mut all = of(Run::network(family.address(0), 0).to_string(), 0);
    if found(client, &root, bits).await?.is_none() {
        all.gathering = is_lost(client, network, family).await?;
    }
    found_or_made(client, &root, &all).await?;
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    found_or_made(client, name, &of(CellPosition::of(first.address, bits).base().to_string(), epoch)).await
}

/// Whether nodes may hold addresses of a network that has no ledger now: its ledger was lost, and nothing of it is granted before every
/// node has told. Where it is not known it may be so.
async fn is_lost(client: &Client, network: &str, family: Family) -> Result<bool, ImportError> {
    // In which namespace the operator is nobody has said here.
    let path = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{}", tombstones::NAME);
    let maps = match list::<Value>(client, "ConfigMaps", &path).await {
        Ok(maps) => maps,
        Err(ImportError::List { error, .. }) if matches!(&*error, kube::Error::Api(status) if status.code == 403) => return Ok(true),
        Err(e) => return Err(e),
    };
    let mut world = Snapshot::default();
    for map in maps {
        world.ledgers.extend(map.get("data").and_then(Value::as_object).into_iter().flat_map(|data| data.keys().cloned()));
    }
    for node in list::<Value>(client, "NodeIPPools", &Own::NodeIpPool.path()).await? {
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (spec, status) = (part(&node, "spec").unwrap_or_default(), part(&node, "status").unwrap_or_default());
        world.node_pools.insert(name, NodePoolSeen { spec, status, ..NodePoolSeen::default() });
    }
    Ok(ledger::is_lost(&world, network, family))
}

/// An object of the ledger as it is now, if it is there.
async fn found(client: &Client, name: &str, cell_prefix: u8) -> Result<Option<(String, IpLedgerShardSpec)>, ImportError> {
    let failed = |error: String| ImportError::Write { kind: Own::IpLedgerShard.kind(), name: name.to_owned(), error };
    let request = Request::get(format!("{}/{name}", Own::IpLedgerShard.path())).body(Vec::new()).map_err(|e| failed(e.to_string()))?;
    let object = match client.request::<Value>(request).await {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(e) => return Err(failed(e.to_string())),
    };
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec: IpLedgerShardSpec =
        serde_json::from_value(object.get("spec").cloned().unwrap_or_default()).map_err(|e| failed(e.to_string()))?;
    if spec.cell_prefix != cell_prefix {
        return Err(failed(format!("its network is divided into /{} blocks already, but ranges need single addresses", spec.cell_prefix)));
    }
    Ok(Some((version, spec)))
}

/// An object of the ledger as it is now, made as `new` if it is not there.
async fn found_or_made(client: &Client, name: &str, new: &IpLedgerShardSpec) -> Result<(String, IpLedgerShardSpec), ImportError> {
    let failed = |error: String| ImportError::Write { kind: Own::IpLedgerShard.kind(), name: name.to_owned(), error };
    for _ in 0..TRIES {
        if let Some(found) = found(client, name, new.cell_prefix).await? {
            return Ok(found);
        }
        let metadata = json!({"name": name, "finalizers": [FINALIZER]});
        create(client, Own::IpLedgerShard, name, metadata, json!(new)).await?;
    }
    Err(failed("it does not exist after its creation".to_owned()))
}

/// Keeps addresses for their pods; how many are new, and which somebody else has.
fn put_all(spec: &mut IpLedgerShardSpec, kept: &[Reservation]) -> (usize, Vec<(Reservation, String)>) {
    let (mut entered, mut refused) = (0, Vec::new());
    for kept in kept {
        match put(spec, kept) {
            Ok(new) => entered += usize::from(new),
            Err(why) => refused.push((kept.clone(), why)),
        }
    }
    (entered, refused)
}

/// Keeps an address for its pod, on the pod's node. Whether that is new.
fn put(spec: &mut IpLedgerShardSpec, kept: &Reservation) -> Result<bool, String> {
    let place = CellPosition::of(kept.address, spec.cell_prefix);
    let before = spec.cells.get(&place.cell().to_string()).cloned().unwrap_or_default();
    if before.state == CellState::Granted && before.node_uid == kept.node_uid && before.pool == kept.pool && !kept.is_noted() {
        // A pod that the node's agent has attached: it has a lease there. Of what whereabouts has handed out the agent knows nothing.
        return Ok(false);
    }
    let mut cell = before.clone();
    let told = |e: SharedError| e.to_string();
    assign(&mut cell, &place, kept.address, &kept.pool, &kept.owner, spec.first_epoch).map_err(told)?;
    delegate(&mut cell, &place, kept.address, &kept.node, &kept.node_uid).map_err(told)?;
    let new = cell != before;
    spec.cells.insert(place.cell().to_string(), cell);
    Ok(new)
}

/// Makes an object, unless there is one of that name.
async fn create(client: &Client, own: Own, name: &str, metadata: Value, spec: Value) -> Result<(), ImportError> {
    let failed = |error: String| ImportError::Write { kind: own.kind(), name: name.to_owned(), error };
    let object = json!({"apiVersion": own.api_version(), "kind": own.kind(), "metadata": metadata, "spec": spec});
    let request = make(Method::POST, own.path(), "application/json", &object).map_err(|e| failed(e.to_string()))?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(e) => Err(failed(e.to_string())),
    }
}
