//! Who is there: nodes and probes as the API server and the probes themselves have them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::{Pod, Service};
use probe::{Here, HereLink, Outcome, ProbeTask};
use serde::Deserialize;
use verify::case::Need;
use verify::{
    Attachment, LimitedPod, Limits, Outside, PORT, Place, Protocol, Publication, Reach, ServicePort, Site, SiteNode, SitePod, SiteService,
};

use crate::definitions::{self, Promises};
use crate::objects::{LIMIT, Probe, REMAPPED, Role};
use crate::stage::Stage;
use crate::worker::Worker;
use crate::{ConnectivityError, Options, balancer};

/// Where kube-proxy says its mode.
const PROXY_MODE: (SocketAddr, &str) = (SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_249), "/proxyMode");
/// How long it may take.
const PROXY: Duration = Duration::from_secs(3);

/// The workers, by the place where they ask.
pub(crate) type Workers = HashMap<Place, Worker>;

/// One entry of the annotation `k8s.v1.cni.cncf.io/network-status`, as far as it is needed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    #[serde(default)]
    interface: String,
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default)]
    pub(crate) default: bool,
    /// What the interface was made with.
    #[serde(default)]
    mtu: Option<u32>,
}

/// The site. `looks`: what each probe sees around it.
pub(crate) async fn of(
    stage: &Stage<'_>,
    workers: &Workers,
    options: &Options,
    pods: &BTreeMap<String, Pod>,
    services: &BTreeMap<String, Service>,
) -> Result<Site, ConnectivityError> {
    let looked = stage.probes.iter().map(|probe| async move {
        let place = stage.place(probe);
        let Some(worker) = workers.get(&place) else { return Ok((probe, Here::default())) };
        let others = stage.probes.iter().filter(|other| probe.role == Role::Host && other.node != probe.node && other.role == Role::Client);
        let ways = others.filter_map(|other| pods.get(&other.name)).flat_map(addresses).collect();
        Ok::<_, ConnectivityError>((probe, worker.look(&place.to_string(), ways).await?))
    });
    let looks: Vec<(&Probe, Here)> = try_join_all(looked).await?;
    let nodes = looks.iter().filter(|(probe, _)| probe.role == Role::Host).filter_map(|(probe, here)| node(stage, pods, probe, here));
    let promises = definitions::of(stage, pods).await;
    let members = looks.iter().filter(|(probe, _)| matches!(probe.role, Role::Client | Role::Server));
    let limited = stage.probes.iter().filter(|probe| probe.role == Role::Limited);
    let limited = limited.filter_map(|probe| limited_pod(stage, pods.get(&probe.name)?, probe));
    let site_pods: Vec<SitePod> =
        members.filter_map(|(probe, here)| pod(stage, pods.get(&probe.name)?, (probe, here), &promises)).collect();
    let on_networks = site_pods.iter().filter(|_| options.bandwidth).flat_map(|pod| limited_members(pod, &promises));
    let proxies = stage.probes.iter().filter(|probe| probe.role == Role::Host);
    let proxied = join_all(proxies.map(|probe| mode(workers.get(&stage.place(probe))))).await;
    let (outside, lacks) = outside(options, workers).await?;
    let is_localnet = looks.iter().filter(|(probe, _)| probe.role == Role::Host).all(|(_, here)| here.route_localnet);
    Ok(Site {
        nodes: nodes.collect(),
        limited: limited.chain(on_networks).collect(),
        pods: site_pods,
        outside,
        lacks,
        // Probe pods publish ports over TCP and UDP.
        unsupported: Vec::new(),
        services: stage.services.iter().filter_map(|wanted| Some(service(stage, wanted, services.get(&wanted.name)?))).collect(),
        loopback_node_ports: of_all(&proxied).map(|mode| mode == "iptables" && is_localnet),
    })
}

/// What all say, if they say the same.
fn of_all(modes: &[Option<String>]) -> Option<&str> {
    let first = modes.first()?.as_deref()?;
    modes.iter().all(|mode| mode.as_deref() == Some(first)).then_some(first)
}

/// kube-proxy's mode on a node, if one runs there and answers.
async fn mode(worker: Option<&Worker>) -> Option<String> {
    let patience = u64::try_from(PROXY.as_millis()).unwrap_or(u64::MAX);
    let get = ProbeTask::Get { to: PROXY_MODE.0, path: PROXY_MODE.1.to_owned(), patience };
    match worker?.order(get, PROXY).await {
        Outcome::Body(mode) => Some(mode.trim().to_owned()),
        _ => None,
    }
}

/// A pod's addresses as the API server has them.
fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let ips = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    ips.filter_map(|ip| ip.ip.parse().ok()).collect()
}

fn node(stage: &Stage<'_>, pods: &BTreeMap<String, Pod>, probe: &Probe, here: &Here) -> Option<SiteNode> {
    let node = stage.nodes.get(probe.node)?;
    let is_tunnel = |name: &str| here.links.iter().any(|link| link.name == name && verify::TUNNELS.contains(&link.kind.as_str()));
    let tunnels = here.ways.iter().filter(|(_, link)| is_tunnel(link)).filter_map(|(address, _)| {
        let of = stage.probes.iter().find(|other| pods.get(&other.name).is_some_and(|pod| addresses(pod).contains(address)))?;
        Some((stage.nodes.get(of.node)?.name.clone(), address.is_ipv4()))
    });
    Some(SiteNode {
        name: node.name.clone(),
        addresses: node.addresses.clone(),
        sources: here.links.iter().flat_map(|link| link.addresses.iter().copied()).collect(),
        tunnels: tunnels.collect(),
    })
}

fn limited_pod(stage: &Stage<'_>, pod: &Pod, probe: &Probe) -> Option<LimitedPod> {
    let Place::Pod(name) = stage.place(probe) else { return None };
    let limits = Limits { receives: Some(LIMIT), sends: Some(LIMIT) };
    Some(LimitedPod { name, node: stage.nodes.get(probe.node)?.name.clone(), network: None, addresses: addresses(pod), limits })
}

/// The interfaces of a pod on networks that limit its bandwidth.
fn limited_members(pod: &SitePod, promises: &Promises) -> impl Iterator<Item = LimitedPod> {
    pod.attachments.iter().filter(|attachment| !attachment.is_default).filter_map(|attachment| {
        let limits = promises.get(&attachment.network)?.limits;
        let network = Some(attachment.network.clone());
        let limited =
            LimitedPod { name: pod.name.clone(), node: pod.node.clone(), network, addresses: attachment.addresses.clone(), limits };
        (limits != Limits::default()).then_some(limited)
    })
}

fn pod(stage: &Stage<'_>, pod: &Pod, (probe, here): (&Probe, &Here), promises: &Promises) -> Option<SitePod> {
    let statuses = statuses(pod);
    let link_of = |name: &str, ips: &[IpAddr]| -> Option<&HereLink> {
        here.links
            .iter()
            .find(|link| link.name == name)
            .or_else(|| here.links.iter().find(|link| ips.iter().any(|ip| link.addresses.contains(ip))))
    };
    let attachment = |network: &str, interface: &str, mtu: Option<u32>, is_default: bool, addresses: Vec<IpAddr>| -> Option<Attachment> {
        let link = link_of(interface, &addresses)?;
        let promised = promises.get(network).filter(|_| !is_default);
        let reach = if is_default { Reach::Everywhere } else { promised.map_or(Reach::Unknown, |promise| promise.reach) };
        // Where neither the configuration nor the attachment's result says it, the link does.
        let mtu = promised.and_then(|promise| promise.mtu).or(mtu).or(promised.map(|_| link.mtu).filter(|mtu| *mtu > 0));
        Some(Attachment { network: network.to_owned(), is_default, addresses, mtu, reach, zone: None })
    };
    let own = addresses(pod);
    let of_statuses = statuses.iter().filter(|status| !status.default).filter_map(|status| {
        let ips = status.ips.iter().filter_map(|ip| ip.split('/').next()?.parse().ok()).collect();
        attachment(&status.name, &status.interface, status.mtu, false, ips)
    });
    let default = statuses.iter().find(|status| status.default);
    let (name, mtu) = default.map_or(("default", None), |status| (status.name.as_str(), status.mtu));
    let attachments = attachment(name, "", mtu, true, own).into_iter().chain(of_statuses).collect();
    let host_port = probe.role.host_port()?;
    let port = |protocol| Publication { protocol, at: None, host_port, pod_port: PORT };
    let Place::Pod(name) = stage.place(probe) else { return None };
    let node = stage.nodes.get(probe.node)?.name.clone();
    Some(SitePod { name, node, attachments, ports: vec![port(Protocol::Tcp), port(Protocol::Udp)] })
}

/// What a pod is attached to, as its annotation says.
pub(crate) fn statuses(pod: &Pod) -> Vec<Status> {
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get("k8s.v1.cni.cncf.io/network-status"));
    annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn service(stage: &Stage<'_>, wanted: &crate::objects::Wanted, service: &Service) -> SiteService {
    let spec = service.spec.as_ref();
    let of_pods = stage.probes.iter().filter(|probe| wanted.backends.contains(&probe.name)).map(|probe| stage.place(probe));
    // The one that is written by hand leads to the first node's own probe.
    let by_hand = stage.nodes.iter().take(usize::from(wanted.is_manual())).map(|node| Place::Node(node.name.clone()));
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let protocol = if port.protocol.as_deref() == Some("UDP") { Protocol::Udp } else { Protocol::Tcp };
        let number = u16::try_from(port.port).ok()?;
        let node_port = port.node_port.and_then(|port| u16::try_from(port).ok());
        Some(ServicePort { protocol, port: number, node_port, remaps: number == REMAPPED })
    };
    let cluster_ips = spec.and_then(|spec| spec.cluster_ips.as_deref()).unwrap_or_default();
    SiteService {
        name: wanted.name.clone(),
        backends: of_pods.chain(by_hand).collect(),
        is_manual: wanted.is_manual(),
        is_local: wanted.is_local,
        cluster_ips: cluster_ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        balancer_ips: balancer::addresses(service),
        ports: spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default().iter().filter_map(port).collect(),
    }
}

/// The hosts outside that options name, and what is missing.
async fn outside(options: &Options, workers: &Workers) -> Result<(Vec<Outside>, Vec<(Need, String)>), ConnectivityError> {
    let (mut outside, mut lacks) = (Vec::new(), Vec::new());
    let mut named = |role: Need, name: &str, addresses: Vec<IpAddr>, option: &str| {
        if addresses.is_empty() {
            lacks.push((role, format!("it needs {role}: name it with {option}")));
        } else {
            outside.push(Outside { role, place: Place::Outside(name.to_owned()), addresses, seen_as: Vec::new() });
        }
    };
    named(Need::Internet, "internet", options.internet.clone(), "--internet");
    named(Need::Metadata, "metadata", options.metadata.into_iter().collect(), "--metadata");
    let public = public();
    let addresses = match workers.get(&public) {
        Some(worker) => {
            let here = worker.look(&public.to_string(), Vec::new()).await?;
            here.links.iter().flat_map(|link| link.addresses.iter().copied()).filter(|address| !address.is_loopback()).collect()
        }
        None => Vec::new(),
    };
    named(Need::PublicClient, "public", addresses, "--public");
    if options.load_balancer.is_none() {
        lacks.push((Need::LoadBalancer, "it needs a load balancer: name it with --load-balancer".to_owned()));
    }
    Ok((outside, lacks))
}

/// The client outside.
pub(crate) fn public() -> Place {
    Place::Outside("public".to_owned())
}
