//! The least that an ADD with its status can take on this machine: the same links by bare netlink, and one PATCH of a pod's status by a client
//! whose connection is open.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::plane::{Plane, Pod};
use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::options::Options;
use crate::side::Side;

/// What one is compared with, in the place of an agent.
pub(crate) struct Floor {
    side: Side,
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
    requests: usize,
}

/// What it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Least {
    pub(crate) links: Duration,
    pub(crate) patch: Duration,
}

// === impl Floor ===

impl Floor {
    /// The API server is one of the calling thread's network namespace.
    pub(crate) fn start(options: &Options, plane: &Plane, data: &std::path::Path) -> Result<Self> {
        let side = Side::floor(&options.floor, data)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
        let connection = runtime.block_on(::cluster::client(Some(&plane.kubeconfig())))?;
        Ok(Floor { side, runtime, client: connection.client(), requests: 0 })
    }

    /// The links of a network, and the status of a pod that nobody attaches meanwhile.
    pub(crate) fn add(&mut self, network: Network, container: &Namespace, number: usize, pod: &Pod) -> Result<Least> {
        let links = self.side.time(network, Verb::Add, container, number)?;
        self.requests += 1;
        let interfaces: Vec<_> = network
            .attachments(std::path::Path::new(""))
            .into_iter()
            .map(|(interface, _)| {
                json!({"name": interface, "interface": interface, "ips": [format!("10.77.1.{}", self.requests % 250)],
                    "mac": "02:00:00:00:00:01", "default": interface == "eth0", "dns": {}})
            })
            .collect();
        let annotation = json!(interfaces).to_string();
        let body = json!({"metadata": {"uid": pod.uid, "annotations": {"k8s.v1.cni.cncf.io/network-status": annotation}}});
        let request = http::Request::patch(format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name))
            .header("content-type", "application/merge-patch+json")
            .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
            .body(body.to_string().into_bytes())?;
        let begin = Instant::now();
        self.runtime.block_on(self.client.request_text(request)).context("PATCH a pod's status")?;
        Ok(Least { links, patch: begin.elapsed() })
    }

    /// What [`Floor::add`] has made.
    pub(crate) fn del(&self, network: Network, container: &Namespace, number: usize) -> Result<()> {
        self.side.time(network, Verb::Del, container, number).map(drop)
    }
}
