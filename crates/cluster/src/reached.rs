//! Where Services are reached beside the ranges of the cluster (`Service`, core/v1), followed: addresses of load balancers, external ones,
//! cluster addresses of whatever range, and ports of every node.
//!
//! Of a Service its addresses and ports are kept, and no name: nobody asks whose they are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use npwg::Protocol;
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::Cluster;
use crate::addresses::Addresses;
use crate::cache::{Cache, Limit, Listed};
use crate::watch::{Watch, Watched};

/// How many addresses, and how many ports, are kept of one Service.
const MOST_OF_ONE: usize = 256;
/// What is kept of all together, in bytes: that of 40,000 usual ones. The largest ones go first.
const MOST: usize = 4 << 20;

/// Where Services are reached; followed until this is dropped if a cluster is.
pub struct Services {
    cache: Arc<Cache<Arc<Reached>>>,
    addresses: Addresses<()>,
    watch: Option<AbortHandle>,
}

/// Where one Service is reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    addresses: Box<[IpAddr]>,
    /// Ports of every node.
    ports: Box<[(Protocol, u16)]>,
    /// Ports at these addresses.
    served: Box<[(Protocol, u16)]>,
}

/// The kind, for a watch.
pub(crate) struct EveryService;

/// What is read of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartialObject {
    metadata: Meta,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    namespace: String,
    name: String,
    resource_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "clusterIPs")]
    cluster: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    external: Option<Vec<String>>,
    ports: Option<Vec<Port>>,
    #[serde(rename = "healthCheckNodePort")]
    health: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    protocol: Option<String>,
    port: Option<i64>,
    node_port: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    load_balancer: Option<LoadBalancer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Option<Vec<Ingress>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Ingress {
    ip: Option<String>,
}

// === impl Reached ===

impl Reached {
    /// What all together may have.
    const LIMIT: Limit<Arc<Reached>> = Limit { most: MOST, weight: Reached::weight, light: |_| Arc::default() };

    /// In bytes.
    fn weight(reached: &Arc<Self>) -> usize {
        size_of_val(&*reached.addresses) + size_of_val(&*reached.ports) + size_of_val(&*reached.served)
    }

    fn of(spec: Spec, status: Status) -> Self {
        let ingress = status.load_balancer.unwrap_or_default().ingress.unwrap_or_default();
        let listed = [spec.cluster, spec.external].into_iter().flatten().flatten();
        // A Service without an address has `None` for one.
        let addresses = listed.chain(ingress.into_iter().filter_map(|one| one.ip)).filter_map(|text| text.parse::<IpAddr>().ok());
        let port = |number: Option<i64>| u16::try_from(number?).ok().filter(|port| *port != 0);
        let listed = spec.ports.unwrap_or_default();
        let of = |number: fn(&Port) -> Option<i64>| {
            listed.iter().filter_map(move |one| Some((protocol(one.protocol.as_deref())?, port(number(one))?))).take(MOST_OF_ONE)
        };
        let served = of(|one| one.port).collect();
        let ports = of(|one| one.node_port);
        let health = port(spec.health).map(|port| (Protocol::Tcp, port));
        Reached {
            addresses: addresses.map(|address| address.to_canonical()).take(MOST_OF_ONE).collect(),
            ports: health.into_iter().chain(ports).take(MOST_OF_ONE).collect(),
            served,
        }
    }
}

/// TCP unless the object says otherwise.
fn protocol(word: Option<&str>) -> Option<Protocol> {
    match word.unwrap_or("TCP") {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}

// === impl EveryService ===

impl Watched for EveryService {
    type PartialObject = PartialObject;
    type Stored = Arc<Reached>;
    const RESOURCE: (&'static str, &'static str) = ("", "services");
    const PATH: &'static str = "/api/v1/services";
    const PAGE: u32 = 500;

    fn version(seen: &PartialObject) -> Option<&str> {
        Some(&seen.metadata.resource_version)
    }

    fn keep(seen: PartialObject) -> (Box<str>, Self::Stored) {
        let key = format!("{}/{}", seen.metadata.namespace, seen.metadata.name);
        (key.into(), Arc::new(Reached::of(seen.spec.unwrap_or_default(), seen.status.unwrap_or_default())))
    }
}

// === impl Services ===

impl Default for Services {
    /// None.
    fn default() -> Self {
        Services { cache: Arc::new(Cache::limited(Some(Reached::LIMIT))), addresses: Addresses::default(), watch: None }
    }
}

impl Services {
    /// These, as they were listed.
    pub(crate) fn of(all: impl IntoIterator<Item = (Box<str>, Arc<Reached>)>) -> Self {
        let services = Services::default();
        services.cache.replace(all.into_iter().collect::<HashMap<_, _>>());
        services
    }

    /// One that is reached at these addresses, at the ports `served`, and at these ports of every node.
    pub fn reached(
        addresses: impl IntoIterator<Item = IpAddr>,
        served: impl IntoIterator<Item = (Protocol, u16)>,
        ports: impl IntoIterator<Item = (Protocol, u16)>,
    ) -> Self {
        let (addresses, served) = (addresses.into_iter().collect(), served.into_iter().collect());
        let one = Reached { addresses, served, ports: ports.into_iter().collect() };
        Services::of([("/".into(), Arc::new(one))])
    }

    /// An address at which a Service is reached, from `first` to `last`, both of one family.
    pub fn address_in(&self, first: IpAddr, last: IpAddr) -> Option<IpAddr> {
        let of = |reached: &Arc<Reached>| reached.addresses.iter().map(|address| (*address, ())).collect::<Vec<_>>();
        self.addresses.first_in(&self.cache, of, first, last).map(|(address, ())| address)
    }

    /// One of the addresses at which Services have this port, if one is meant.
    pub fn serves(&self, port: u16, protocol: Protocol, is_meant: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let has_port = |reached: &Reached| reached.served.contains(&(protocol, port));
        self.cache.find(|reached| reached.addresses.iter().copied().find(|address| has_port(reached) && is_meant(*address)))
    }

    /// Whether a Service is reached at this port of every node: as a NodePort, or to ask for its health.
    pub fn has_node_port(&self, port: u16, protocol: Protocol) -> bool {
        self.cache.find(|reached| reached.ports.contains(&(protocol, port)).then_some(())).is_some()
    }

    /// Whether they can be trusted.
    pub fn listed(&self) -> Listed {
        self.cache.listed()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Follows where Services are reached from now on. Must be called within a tokio runtime.
    pub fn follow_services(&self) -> Services {
        let services = Services::default();
        let watch = Watch::<EveryService> { caller: self.inner.caller.clone(), cache: Arc::clone(&services.cache), selector: None };
        let cache = Arc::clone(&services.cache);
        Services { watch: Some(tokio::spawn(watch.run()).abort_handle()), cache, addresses: Addresses::default() }
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(seen) = serde_json::from_slice::<PartialObject>(bytes) else { return };
    let (_, reached) = EveryService::keep(seen);
    assert!(reached.addresses.len() <= MOST_OF_ONE && reached.ports.len() <= MOST_OF_ONE, "{reached:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(objects: &[&str]) -> Services {
        Services::of(objects.iter().map(|text| EveryService::keep(serde_json::from_str(text).unwrap())))
    }

    #[test]
    fn addresses_and_ports_of_objects_as_the_api_server_writes_them() {
        let services = services(&[
            r#"{"metadata":{"namespace":"web","name":"shop","resourceVersion":"7"},"spec":{"clusterIP":"10.200.0.7","clusterIPs":["10.200.0.7","fd00:9::7"],
                "externalIPs":["192.0.2.7"],"healthCheckNodePort":32009,"type":"LoadBalancer",
                "ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":"http","nodePort":30080},{"port":53,"protocol":"UDP","nodePort":30053}]},
                "status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7","ipMode":"VIP"},{"hostname":"lb.example.com"}]}}}"#,
            r#"{"metadata":{"namespace":"web","name":"headless"},"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]},"status":{"loadBalancer":{}}}"#,
            r#"{"metadata":{"namespace":"web","name":"elsewhere"},"spec":{"type":"ExternalName","externalName":"example.com","ports":null},"status":null}"#,
        ]);
        let is_there = |text: &str| {
            let address = text.parse().unwrap();
            services.address_in(address, address).is_some()
        };
        for own in ["10.200.0.7", "fd00:9::7", "192.0.2.7", "203.0.113.7"] {
            assert!(is_there(own), "{own}");
        }
        assert!(!is_there("203.0.113.8"));
        let ports = |protocol| [30080, 30053, 32009, 80].map(|port| services.has_node_port(port, protocol));
        assert_eq!(ports(Protocol::Tcp), [true, false, true, false]);
        assert_eq!(ports(Protocol::Udp), [false, true, false, false]);
        assert_eq!(ports(Protocol::Sctp), [false; 4]);
        let serves =
            |port, protocol| services.serves(port, protocol, |address| address == "192.0.2.7".parse::<IpAddr>().unwrap()).is_some();
        assert!(serves(80, Protocol::Tcp) && serves(53, Protocol::Udp) && !serves(53, Protocol::Tcp) && !serves(30080, Protocol::Tcp));
        assert_eq!(services.serves(80, Protocol::Tcp, |address| address == "203.0.113.8".parse::<IpAddr>().unwrap()), None);
        assert!(services.listed().complete && !Services::default().listed().complete);
    }

    /// Who may write Services must not fill the agent, nor drive the addresses of others out.
    #[test]
    fn large_ones_are_bounded_and_leave_the_others() {
        let many = |name: usize, of: usize| {
            let list: Vec<String> = (0..of).map(|n| format!("\"2001:db8::{name:x}:{n:x}\"")).collect();
            format!(r#"{{"metadata":{{"namespace":"a","name":"{name}"}},"spec":{{"externalIPs":[{}]}}}}"#, list.join(","))
        };
        let large: Vec<String> = (0..2000).map(|name| many(name, 300)).collect();
        let usual = r#"{"metadata":{"namespace":"b","name":"b"},"spec":{"clusterIPs":["10.200.0.7"]}}"#;
        let services = services(&large.iter().map(String::as_str).chain([usual]).collect::<Vec<_>>());
        let kept: usize = services.cache.all().iter().map(|reached| reached.addresses.len()).sum();
        assert!(kept * size_of::<IpAddr>() <= MOST && kept > 0, "{kept}");
        assert!(services.cache.all().iter().all(|reached| reached.addresses.len() <= MOST_OF_ONE));
        let small: IpAddr = "10.200.0.7".parse().unwrap();
        assert_eq!(services.address_in(small, small), Some(small));
    }
}
