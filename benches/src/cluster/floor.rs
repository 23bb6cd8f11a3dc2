//! The least that an ADD with its status can take on this machine: the same links by bare netlink, and one PATCH of a pod's status by a client
//! whose connection is open.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::caller::{Crowd, at_once};
use super::plane::{Plane, Pod};
use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::options::Options;
use crate::side::Side;

/// The hardware address of its statuses, which no pod has.
pub(crate) const MAC: &str = "02:00:00:00:00:01";

/// What one is compared with, in the place of an agent.
pub(crate) struct Floor {
    side: Side,
    one: Client,
    many: Client,
}

/// A connection that is open, and what it runs on.
struct Client {
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
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
    pub(crate) fn start(options: &Options, plane: &Plane, data: &Path) -> Result<Self> {
        let side = Side::floor(&options.floor, data)?;
        // Alone, the thread that asks also sends and receives.
        let one = Client::connect(&mut tokio::runtime::Builder::new_current_thread(), plane)?;
        let many = Client::connect(tokio::runtime::Builder::new_multi_thread().worker_threads(1), plane)?;
        Ok(Floor { side, one, many })
    }

    /// The links of a network, and the status of a pod that nobody attaches meanwhile.
    pub(crate) fn add(&self, network: Network, container: &Namespace, number: usize, pod: &Pod) -> Result<Least> {
        let links = self.side.time(network, Verb::Add, container, number)?;
        Ok(Least { links, patch: self.one.patch(network, pod)? })
    }

    /// The links of a pod's four networks and one PATCH for each container, from this number of callers, by one client. A connection serves one request
    /// at a time: there is one for each caller before the first that is timed. The API server is one of `host`.
    pub(crate) fn crowd(&self, host: &Namespace, containers: &[Namespace], callers: usize, pods: &[Pod]) -> Result<Crowd> {
        self.many.connect_often(callers)?;
        at_once(host, containers, callers, |container, number| {
            let pod = pods.get(number).context("the API server has too few pods")?;
            Ok(self.side.time(Network::Pod, Verb::Add, container, number)? + self.many.patch(Network::Pod, pod)?)
        })
    }

    /// What [`Floor::add`] has made.
    pub(crate) fn del(&self, network: Network, container: &Namespace, number: usize) -> Result<()> {
        self.side.time(network, Verb::Del, container, number).map(drop)
    }
}

// === impl Client ===

impl Client {
    fn connect(builder: &mut tokio::runtime::Builder, plane: &Plane) -> Result<Self> {
        let runtime = builder.enable_all().build().context("start tokio")?;
        let connection = runtime.block_on(::cluster::client(Some(&plane.kubeconfig())))?;
        let client = connection.client();
        // The connection is there before the first one that is timed.
        runtime.block_on(client.apiserver_version()).context("ask the API server for its version")?;
        Ok(Client { runtime, client })
    }

    /// Opens this number of connections.
    fn connect_often(&self, number: usize) -> Result<()> {
        let versions = (0..number).map(|_| self.client.apiserver_version());
        self.runtime.block_on(futures::future::try_join_all(versions)).context("ask the API server for its version")?;
        Ok(())
    }

    /// The status of these networks, with another address each time.
    fn patch(&self, network: Network, pod: &Pod) -> Result<Duration> {
        static PATCHES: AtomicUsize = AtomicUsize::new(0);
        let number = PATCHES.fetch_add(1, Ordering::Relaxed);
        let interfaces: Vec<_> = network
            .attachments(Path::new(""))
            .into_iter()
            .map(|(interface, _)| {
                json!({"name": interface, "interface": interface, "ips": [format!("10.77.{}.{}", number / 250 % 250, number % 250)],
                    "mac": MAC, "default": interface == "eth0", "dns": {}})
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
        Ok(begin.elapsed())
    }
}
