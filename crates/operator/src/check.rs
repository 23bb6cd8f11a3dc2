//! What cannot be, with the pods that it is about: for the operator's own audit, and for a person who asks.
//!
//! ```text
//!   lists, or what is followed --ledger::audit--> violations --users of the holding node, pods of the other one--> Found
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use cluster::{ConnectError, Connection};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use ledger::{Violation, audit};
use npwg::NETWORK_STATUS;
use serde::Serialize;
use tokio::time::timeout;

use crate::import::attachments;
use crate::store::{CLAIM_KINDS, Inner, KINDS, Store};
use crate::taken::StoredObject;

/// Between the two looks of [`check`]: lists of several kinds are not of one moment.
const APART: Duration = Duration::from_secs(2);
/// How long the list of a node's pods may take: nodes wait for blocks meanwhile.
const ANSWER: Duration = Duration::from_secs(5);

/// The pods of nodes that were asked for, by address.
pub(crate) type Pods = BTreeMap<String, BTreeMap<IpAddr, String>>;

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No connection could be prepared.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No requests can be sent.
    #[error("cannot start the asynchronous runtime: {0}")]
    Runtime(String),
    /// A list cannot be read. Nothing is guessed.
    #[error("cannot list objects of kind {kind}: {error}")]
    List {
        /// Of which kind.
        kind: &'static str,
        /// Why.
        error: Box<kube::Error>,
    },
}

/// Something that nobody repairs on their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The node whose object it is about; empty where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// What it is, and what to do.
    pub what: String,
    /// Addresses that two pods have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<OfTwo>,
}

/// An address that two pods have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfTwo {
    /// The address.
    pub ip: String,
    /// The pods, `namespace/name`.
    pub pods: [String; 2],
    /// Their nodes.
    pub nodes: [String; 2],
}

// === impl Finding ===

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        for (at, OfTwo { ip, pods: [pod, other], nodes: [node, elsewhere] }) in self.addresses.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{ip} belongs to pod {pod} on {node} and pod {other} on {elsewhere}")?;
        }
        Ok(())
    }
}

/// [`check`], for who has no connection yet: by a kubeconfig, or as a pod.
///
/// # Errors
/// [`CheckError`]
pub fn check_by(kubeconfig: Option<&Path>) -> Result<Vec<Finding>, CheckError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| CheckError::Runtime(e.to_string()))?;
    runtime.block_on(async { check(&cluster::client(kubeconfig).await?).await })
}

/// Compares what all nodes have with the ledger and with each other, twice: what is found both times.
///
/// # Errors
/// [`CheckError`]
pub async fn check(connection: &Connection) -> Result<Vec<Finding>, CheckError> {
    let client = connection.client();
    let mut seen = read(&client).await?;
    let mut found = audit(&seen.lock().world);
    if !found.is_empty() {
        tokio::time::sleep(APART).await;
        seen = read(&client).await?;
        let again = audit(&seen.lock().world);
        found.retain(|violation| again.contains(violation));
    }
    let (mut all, mut pods) = (Vec::with_capacity(found.len()), Pods::new());
    for violation in found {
        all.push(named(&client, &seen, &violation, &mut pods).await);
    }
    Ok(all)
}

/// A violation, with the pods that it is about as far as they are known.
pub(crate) async fn named(client: &Client, seen: &Store, violation: &Violation, pods: &mut Pods) -> Finding {
    let mut found = Finding { node: violation.node().unwrap_or_default().to_owned(), what: violation.to_string(), addresses: Vec::new() };
    let Violation::HeldElsewhere { network, block, nodes: [holder, node] } = violation else { return found };
    let users = users(&seen.lock(), node, network, block);
    if users.is_empty() {
        return found;
    }
    if !pods.contains_key(holder) {
        // The nodes are named in any case.
        let listed = timeout(ANSWER, pods_of(client, holder)).await.map(Result::unwrap_or_default).unwrap_or_default();
        pods.insert(holder.clone(), listed);
    }
    let of_holder = &pods[holder];
    let of_two = |(ip, pod): (IpAddr, String)| {
        let other = of_holder.get(&ip)?.clone();
        Some(OfTwo { ip: ip.to_string(), pods: [pod, other], nodes: [node.clone(), holder.clone()] })
    };
    found.addresses = users.into_iter().filter_map(of_two).collect();
    found
}

/// Who has addresses of a block, as their node says.
fn users(inner: &Inner, node: &str, network: &str, block: &str) -> Vec<(IpAddr, String)> {
    let held = inner.world.node_pools.get(node).into_iter().flat_map(|seen| &seen.status.holding);
    let of_block = held.filter(|held| held.network == network && held.cidr == block);
    of_block.flat_map(|held| &held.users).filter_map(|user| Some((user.ip.parse().ok()?, user.pod.clone()))).collect()
}

/// The pods of a node that have an own network and have not ended, by each of their addresses.
async fn pods_of(client: &Client, node: &str) -> Result<BTreeMap<IpAddr, String>, kube::Error> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"));
    let mut found = BTreeMap::new();
    for pod in Api::<Pod>::all(client.clone()).list(&of_node).await? {
        if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            continue;
        }
        let meta = pod.metadata;
        let name = format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
        let text = meta.annotations.unwrap_or_default().remove(NETWORK_STATUS).unwrap_or_default();
        let attached = attachments(&text).unwrap_or_default().into_iter().flat_map(|attachment| attachment.addresses);
        let own = pod.status.unwrap_or_default().pod_ips.into_iter().flatten().filter_map(|own| own.ip.parse().ok());
        found.extend(attached.chain(own).map(|ip| (ip, name.clone())));
    }
    Ok(found)
}

/// Everything that an audit needs. A kind that the cluster does not have has no objects.
async fn read(client: &Client) -> Result<Store, CheckError> {
    let seen = Store::default();
    for kind in KINDS.into_iter().chain(CLAIM_KINDS) {
        let mut params = ListParams::default().limit(kind.page());
        let mut all = Vec::new();
        loop {
            let list = match kind.api(client.clone()).list(&params).await {
                Err(kube::Error::Api(status)) if status.code == 404 && CLAIM_KINDS.contains(&kind) => break,
                other => other.map_err(|error| CheckError::List { kind: kind.name(), error: Box::new(error) })?,
            };
            all.extend(list.items.into_iter().filter_map(|object| StoredObject::of(kind, object)));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
        seen.replace(kind, all);
    }
    Ok(seen)
}
