//! The addresses by which a load balancer leads to a Service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

/// How long a look-up of a name may take: a resolver that does not answer holds up no look at the Services.
const LOOKUP: Duration = Duration::from_secs(5);

/// The addresses of names that were looked up with success.
pub(crate) type Names = Mutex<BTreeMap<String, Vec<IpAddr>>>;

/// Writes the addresses of a load balancer that has a name instead, as far as they are known: in some clouds they are later than the name.
pub(crate) async fn resolve(service: &mut Service, names: &Names) {
    let balancer = service.status.iter_mut().flat_map(|status| &mut status.load_balancer);
    for ingress in balancer.flat_map(|balancer| &mut balancer.ingress) {
        for at in 0..ingress.len() {
            let Some(name) = ingress.get(at).filter(|ingress| ingress.ip.is_none()).and_then(|ingress| ingress.hostname.clone()) else {
                continue;
            };
            let addresses = addresses_of(name, names).await;
            ingress.extend(addresses.iter().map(|ip| LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() }));
        }
    }
}

async fn addresses_of(name: String, names: &Names) -> Vec<IpAddr> {
    let known = names.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
    if let Some(known) = known {
        return known;
    }
    let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((name.as_str(), 0))).await;
    let mut addresses: Vec<IpAddr> = found.into_iter().flatten().flatten().map(|to| to.ip()).collect();
    addresses.sort();
    addresses.dedup();
    if !addresses.is_empty() {
        names.lock().unwrap_or_else(PoisonError::into_inner).insert(name, addresses.clone());
    }
    addresses
}

/// Whether a load balancer has a name whose addresses are not known.
pub(crate) fn lacks_a_name(service: &Service) -> bool {
    let ingress = service.status.iter().flat_map(|status| &status.load_balancer).flat_map(|balancer| balancer.ingress.iter().flatten());
    addresses(service).is_empty() && ingress.into_iter().any(|ingress| ingress.hostname.is_some())
}

/// The load balancer's addresses of a Service.
pub(crate) fn addresses(service: &Service) -> Vec<IpAddr> {
    let ingress = service.status.iter().flat_map(|status| &status.load_balancer).flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Some clouds give a load balancer a name, and no address.
    #[tokio::test]
    async fn a_load_balancer_with_a_name_has_its_addresses() {
        let named = |name: &str| -> Service {
            serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": [{"hostname": name}]}}})).unwrap()
        };
        let names = Names::default();
        let mut service = named("127.0.0.9");
        resolve(&mut service, &names).await;
        assert_eq!(addresses(&service), [IpAddr::from([127, 0, 0, 9])]);
        assert!(!lacks_a_name(&service));
        // It is not known yet.
        let mut service = named("no such name");
        resolve(&mut service, &names).await;
        assert_eq!(addresses(&service), Vec::<IpAddr>::new());
        assert!(lacks_a_name(&service));
        // What was found once is not looked up again.
        names.lock().unwrap().insert("no such name".to_owned(), vec![IpAddr::from([192, 0, 2, 7])]);
        let mut service = named("no such name");
        resolve(&mut service, &names).await;
        assert_eq!(addresses(&service), [IpAddr::from([192, 0, 2, 7])]);
        let known: Vec<String> = names.lock().unwrap().keys().cloned().collect();
        assert_eq!(known, ["127.0.0.9", "no such name"]);
    }
}
