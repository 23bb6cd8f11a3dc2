//! What is created in the cluster: a namespace, and in it pods that ask and answer, and Services that lead to them.
//!
//! ```text
//!   each node     client-N  server-N   pods of the default network; they publish a port each
//!                 host-N               in the node's own network
//!   one backend   client-N, server-N   of that name
//!   two           beside-N: client-N and server-N      across-N: client-N and the next node's client
//!   policy Local  local: every client    local-servers: every server    local-server: the first server alone
//!   by hand       manual: an EndpointSlice with the first node's own address
//! ```
//!
//! Everything is in the one namespace and goes with it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use verify::PORT;

/// The label by which a namespace is known as one that a verification made.
pub(crate) const LABEL: &str = "netloom.io/verify";
/// The Service port that is another one than the pods'.
pub(crate) const REMAPPED: u16 = 80;
/// What the run that made a namespace changes as long as it is at work. Without it nobody is.
pub(crate) const ALIVE: &str = "netloom.io/alive";
/// Who made it.
pub(crate) const STARTED: &str = "netloom.io/started";
/// How long a pod runs if nobody ends it, in seconds: longer than any verification that ends by itself.
pub(crate) const ENDS_AFTER: u64 = 6 * 3600;
/// Seconds that a probe may take to end. Without any, the API server forgets a pod before its port is free again, and the next run's probe finds
/// it taken.
const ENDS_IN: u64 = 1;
/// The annotations that limit a pod's bandwidth, to bits in a second.
const LIMITS: [&str; 2] = ["kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"];
/// Bits in a second: far less than any network has, and enough to be measured in a few seconds.
pub(crate) const LIMIT: u64 = 20_000_000;
/// The container's name in each pod.
pub(crate) const CONTAINER: &str = "probe";

/// A node that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its addresses (`InternalIP`), one of each family at most.
    pub(crate) addresses: Vec<IpAddr>,
}

/// What a probe's pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Asks, and answers.
    Client,
    /// Answers.
    Server,
    /// Is in the node's own network.
    Host,
    /// Has a limit of its bandwidth.
    Limited,
}

/// A probe's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Which node of those that take part it is on.
    pub(crate) node: usize,
}

/// A Service, and the pods that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    /// The label that its pods have; none: an EndpointSlice is written.
    pub(crate) selector: Option<String>,
    pub(crate) is_local: bool,
    /// The names of its pods.
    pub(crate) backends: Vec<String>,
}

/// What all pods have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodSpec<'a> {
    pub(crate) image: &'a str,
    /// What pods get besides the default network, as the annotation names it.
    pub(crate) networks: &'a [String],
    pub(crate) services: &'a [Wanted],
    /// Whether pods take bytes as fast as they come.
    pub(crate) has_sinks: bool,
    /// The seconds after which they end if nobody ends them; `None`: they are wanted for as long as a person likes.
    pub(crate) ends_after: Option<u64>,
}

// === impl Probe ===

impl Probe {
    /// The pods for so many nodes; with one that has a limit, on the first.
    pub(crate) fn of(nodes: usize, is_limited: bool) -> Vec<Probe> {
        let probe = |role: Role, node| Probe { name: role.pod(node), role, node };
        let of_node = |node| [Role::Client, Role::Server, Role::Host].map(|role| probe(role, node));
        let limited = is_limited.then(|| probe(Role::Limited, 0));
        (0..nodes).flat_map(of_node).chain(limited).collect()
    }
}

// === impl Role ===

impl Role {
    /// The node's port that it publishes.
    pub(crate) fn host_port(self) -> Option<u16> {
        match self {
            Role::Client => Some(PORT + 1),
            Role::Server => Some(PORT + 2),
            Role::Host | Role::Limited => None,
        }
    }

    fn pod(self, node: usize) -> String {
        let word = match self {
            Role::Client => "client",
            Role::Server => "server",
            Role::Host => "host",
            Role::Limited => "limited",
        };
        format!("{word}-{}", node + 1)
    }
}

// === impl Wanted ===

impl Wanted {
    /// The Services for so many nodes.
    pub(crate) fn of(nodes: usize) -> Vec<Wanted> {
        let (client, server) = (|node| Role::Client.pod(node), |node| Role::Server.pod(node));
        let service = |name: String, is_local, backends| Wanted { selector: Some(label(&name)), name, is_local, backends };
        let mut all = Vec::new();
        for node in 0..nodes {
            for pod in [client(node), server(node)] {
                all.push(service(pod.clone(), false, vec![pod]));
            }
            all.push(service(format!("beside-{}", node + 1), false, vec![client(node), server(node)]));
            if nodes > 1 {
                all.push(service(format!("across-{}", node + 1), false, vec![client(node), client((node + 1) % nodes)]));
            }
        }
        all.push(service("local".to_owned(), true, (0..nodes).map(client).collect()));
        all.push(service("local-servers".to_owned(), true, (0..nodes).map(server).collect()));
        all.push(service("local-server".to_owned(), true, vec![server(0)]));
        all.push(Wanted { name: "manual".to_owned(), selector: None, is_local: false, backends: Vec::new() });
        all
    }

    /// Whether nobody but the verification writes its endpoints.
    pub(crate) fn is_manual(&self) -> bool {
        self.selector.is_none()
    }
}

/// The label of a Service's pods.
fn label(service: &str) -> String {
    format!("in-{service}")
}

/// The namespace. Pods in a node's own network are privileged in the sense of the Pod Security Standards; nothing else of them is.
pub(crate) fn namespace(name: &str, started: &str) -> Result<Namespace, serde_json::Error> {
    serde_json::from_value(json!({"metadata": {"name": name,
        "labels": {LABEL: "probes", "app.kubernetes.io/managed-by": "netloom", "pod-security.kubernetes.io/enforce": "privileged",
            "pod-security.kubernetes.io/warn": "privileged", "pod-security.kubernetes.io/audit": "privileged"},
        "annotations": {STARTED: started, ALIVE: "0"}}}))
}

/// The account of the pods, which has no rights. Its own: the account `default` of a new namespace comes a moment later.
pub(crate) fn account() -> Result<ServiceAccount, serde_json::Error> {
    serde_json::from_value(json!({"metadata": {"name": CONTAINER}, "automountServiceAccountToken": false}))
}

/// A pod with a probe that answers with its place's name.
pub(crate) fn pod(probe: &Probe, node: &Node, place: &str, spec: &PodSpec<'_>) -> Result<Pod, serde_json::Error> {
    let PodSpec { image, networks, services, has_sinks, ends_after } = spec;
    let is_host = probe.role == Role::Host;
    let mut labels = BTreeMap::from([("app", CONTAINER)]);
    let mut annotations = BTreeMap::new();
    let mut ports = json!([]);
    let mut command = vec!["/netloom", "probe", "serve", "--name", place];
    if !is_host {
        for selector in services.iter().filter(|service| service.backends.contains(&probe.name)).filter_map(|s| s.selector.as_deref()) {
            labels.insert(selector, "");
        }
        let port = |host_port| ["TCP", "UDP"].map(|protocol| json!({"containerPort": PORT, "hostPort": host_port, "protocol": protocol}));
        ports = probe.role.host_port().into_iter().flat_map(port).collect();
        if !networks.is_empty() && probe.role != Role::Limited {
            annotations.insert("k8s.v1.cni.cncf.io/networks", networks.join(","));
        }
        command.extend(has_sinks.then_some("--sink"));
    }
    if probe.role == Role::Limited {
        annotations.extend(LIMITS.map(|annotation| (annotation, LIMIT.to_string())));
    }
    serde_json::from_value(json!({
        "metadata": {"name": probe.name, "labels": labels, "annotations": annotations},
        "spec": {
            "nodeName": node.name, "hostNetwork": is_host, "restartPolicy": "Always", "terminationGracePeriodSeconds": ENDS_IN,
            "activeDeadlineSeconds": ends_after,
            "serviceAccountName": CONTAINER, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "runAsGroup": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": CONTAINER, "image": image, "imagePullPolicy": "IfNotPresent",
                "command": command, "ports": ports,
                "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }))
}

/// A Service, which a load balancer leads to if there is one.
pub(crate) fn service(wanted: &Wanted, is_balanced: bool) -> Result<Service, serde_json::Error> {
    let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port, "targetPort": PORT});
    let selector = wanted.selector.iter().map(|label| (label.as_str(), "")).collect::<BTreeMap<_, _>>();
    let spec = json!({
        "selector": selector,
        "type": if is_balanced { "LoadBalancer" } else { "NodePort" }, "ipFamilyPolicy": "PreferDualStack",
        "externalTrafficPolicy": if wanted.is_local { "Local" } else { "Cluster" },
        "ports": [port("tcp", "TCP", PORT), port("udp", "UDP", PORT), port("tcp-remapped", "TCP", REMAPPED), port("udp-remapped", "UDP", REMAPPED)],
    });
    serde_json::from_value(json!({"metadata": {"name": wanted.name}, "spec": spec}))
}

/// The EndpointSlice that a person would write: it leads to the probe in a node's own network.
pub(crate) fn endpoints(service: &str, address: IpAddr) -> Result<EndpointSlice, serde_json::Error> {
    let (family, suffix) = if address.is_ipv4() { ("IPv4", "4") } else { ("IPv6", "6") };
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": PORT});
    let ports: Value =
        [("tcp", "TCP"), ("udp", "UDP"), ("tcp-remapped", "TCP"), ("udp-remapped", "UDP")].map(|(n, p)| port(n, p)).into_iter().collect();
    serde_json::from_value(json!({
        "metadata": {"name": format!("{service}-{suffix}"), "labels": {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "netloom"}},
        "addressType": family, "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}], "ports": ports,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A Service selects its backends and no other pod, also of two nodes and of one.
    #[test]
    fn each_service_selects_its_own_pods() {
        for nodes in 1..=3 {
            let services = Wanted::of(nodes);
            let spec = PodSpec { image: "netloom:1", networks: &[], services: &services, has_sinks: true, ends_after: Some(ENDS_AFTER) };
            let node = Node { name: "n".to_owned(), addresses: Vec::new() };
            let pods: Vec<Pod> = Probe::of(nodes, true).iter().map(|probe| pod(probe, &node, "pod/v/p", &spec).unwrap()).collect();
            for wanted in services.iter().filter(|wanted| !wanted.is_manual()) {
                let selector = service(wanted, false).unwrap().spec.unwrap().selector.unwrap();
                let selects = |pod: &&Pod| selector.keys().all(|label| pod.metadata.labels.as_ref().unwrap().contains_key(label));
                let mut selected: Vec<String> = pods.iter().filter(selects).map(|pod| pod.metadata.name.clone().unwrap()).collect();
                let mut backends = wanted.backends.clone();
                selected.sort();
                backends.sort();
                assert_eq!(selected, backends, "{nodes} nodes, Service {}", wanted.name);
            }
        }
    }

    /// What a killed run has left does not run for ever; what lasts as long as a person likes does.
    #[test]
    fn a_probe_ends_by_itself() {
        let services = Wanted::of(1);
        let node = Node { name: "n".to_owned(), addresses: Vec::new() };
        for (ends_after, ends) in [(Some(ENDS_AFTER), Some(6 * 3600)), (None, None)] {
            let spec = PodSpec { image: "netloom:1", networks: &[], services: &services, has_sinks: true, ends_after };
            for probe in Probe::of(1, false) {
                let pod = pod(&probe, &node, "pod/v/p", &spec).unwrap().spec.unwrap();
                assert_eq!((pod.active_deadline_seconds, pod.termination_grace_period_seconds), (ends, Some(1)));
            }
        }
    }

    /// No probe is privileged, and only those in a node's network share it.
    #[test]
    fn no_probe_has_a_privilege() {
        let services = Wanted::of(2);
        let spec = PodSpec {
            image: "netloom:1",
            networks: &["storage".to_owned()],
            services: &services,
            has_sinks: true,
            ends_after: Some(ENDS_AFTER),
        };
        let node = Node { name: "n".to_owned(), addresses: Vec::new() };
        for probe in Probe::of(2, true) {
            let pod = pod(&probe, &node, "pod/v/p", &spec).unwrap();
            let spec = pod.spec.unwrap();
            assert_eq!((spec.host_network == Some(true), spec.automount_service_account_token), (probe.role == Role::Host, Some(false)));
            let context = spec.containers.first().unwrap().security_context.clone().unwrap();
            assert_eq!(
                (context.allow_privilege_escalation, context.privileged, context.read_only_root_filesystem),
                (Some(false), None, Some(true))
            );
            assert_eq!(context.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
            assert_eq!(pod.metadata.annotations.unwrap_or_default().is_empty(), probe.role == Role::Host);
        }
    }
}
