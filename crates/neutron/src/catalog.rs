//! What a token's answer says: until when it is good, and where the services are. Pure.

use std::time::Duration;

use openstack::Interface;
use serde::Deserialize;

/// The body of an answer of `POST /v3/auth/tokens`.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenBody {
    token: Token,
}

#[derive(Debug, Deserialize)]
struct Token {
    issued_at: Option<String>,
    /// `2026-11-23T10:00:20.000000Z`. Without it a token never ends.
    expires_at: Option<String>,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    /// What `region` was called later.
    region_id: Option<String>,
    region: Option<String>,
    url: String,
}

// === impl TokenBody ===

impl TokenBody {
    /// For how long the token is good, by the server's own clock.
    pub(crate) fn life(&self) -> Option<Duration> {
        let at = |text: &Option<String>| text.as_ref()?.parse::<jiff::Timestamp>().ok();
        let (from, until) = (at(&self.token.issued_at)?, at(&self.token.expires_at)?);
        Some(Duration::try_from(until.duration_since(from)).unwrap_or_default())
    }

    /// Neutron's address: of the first interface that the region has.
    pub(crate) fn network(&self, region: Option<&str>, interfaces: &[Interface]) -> Option<&str> {
        let services = || self.token.catalog.iter().filter(|service| service.kind == "network");
        let endpoints = || services().flat_map(|service| &service.endpoints).filter(|endpoint| endpoint.is_in(region));
        interfaces.iter().find_map(|interface| endpoints().find(|endpoint| endpoint.interface == interface.name())).map(|e| e.url.as_str())
    }

    /// The endpoints of Neutron that there are, for a message.
    pub(crate) fn known(&self) -> String {
        let services = self.token.catalog.iter().filter(|service| service.kind == "network");
        let named = |endpoint: &Endpoint| format!("{} in {}", endpoint.interface, endpoint.name().unwrap_or("no region"));
        let known: Vec<String> = services.flat_map(|service| &service.endpoints).map(named).collect();
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    }
}

// === impl Endpoint ===

impl Endpoint {
    fn name(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }

    fn is_in(&self, region: Option<&str>) -> bool {
        region.is_none() || self.name() == region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Keystone 22 answers, users and roles left out.
    const BODY: &str = r#"{"token": {"methods": ["password"], "issued_at": "2026-11-23T10:00:00.000000Z", "expires_at": "2026-11-23T10:00:20.500000Z",
        "catalog": [
            {"type": "identity", "name": "keystone", "endpoints": [{"interface": "public", "region_id": "R1", "region": "R1", "url": "http://k"}]},
            {"type": "network", "name": "neutron", "endpoints": [
                {"id": "1", "interface": "public", "region_id": "R1", "region": "R1", "url": "http://r1:9696"},
                {"id": "2", "interface": "internal", "region_id": "R2", "region": "R2", "url": "http://r2i:9696"},
                {"id": "3", "interface": "public", "region": "R2", "url": "http://r2:9696"}]}]}}"#;

    #[test]
    fn the_endpoint_is_that_of_region_and_interface() {
        let body: TokenBody = serde_json::from_str(BODY).unwrap();
        let of = |region, interfaces: &[Interface]| body.network(region, interfaces);
        assert_eq!(of(None, &[Interface::Public]), Some("http://r1:9696"));
        assert_eq!(of(Some("R2"), &[Interface::Public]), Some("http://r2:9696"));
        assert_eq!(of(Some("R2"), &[Interface::Internal, Interface::Public]), Some("http://r2i:9696"));
        assert_eq!(of(Some("R1"), &[Interface::Internal, Interface::Public]), Some("http://r1:9696"));
        assert_eq!((of(Some("R3"), &[Interface::Public]), of(None, &[Interface::Admin])), (None, None));
        assert_eq!(body.known(), "public in R1, internal in R2, public in R2");
        assert_eq!(body.life(), Some(Duration::from_millis(20_500)));
    }
}
