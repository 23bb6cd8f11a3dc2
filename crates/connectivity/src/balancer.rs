//! The addresses by which a load balancer leads to a Service.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

/// Writes the addresses of a load balancer that has a name instead, as far as they are known: in some clouds they are later than the name.
pub(crate) async fn resolve(service: &mut Service) {
    let balancer = service.status.iter_mut().flat_map(|status| &mut status.load_balancer);
    for ingress in balancer.flat_map(|balancer| &mut balancer.ingress) {
        for at in 0..ingress.len() {
            let Some(name) = ingress.get(at).filter(|ingress| ingress.ip.is_none()).and_then(|ingress| ingress.hostname.clone()) else {
                continue;
            };
            let mut addresses: Vec<IpAddr> = tokio::net::lookup_host((name, 0)).await.into_iter().flatten().map(|to| to.ip()).collect();
            addresses.sort();
            addresses.dedup();
            ingress.extend(addresses.iter().map(|ip| LoadBalancerIngress { ip: Some(ip.to_string()), ..LoadBalancerIngress::default() }));
        }
    }
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
        let mut service = named("127.0.0.9");
        resolve(&mut service).await;
        assert_eq!(addresses(&service), [IpAddr::from([127, 0, 0, 9])]);
        // It is not known yet.
        let mut service = named("no such name");
        resolve(&mut service).await;
        assert_eq!(addresses(&service), Vec::<IpAddr>::new());
    }
}
