//! Ports: <https://docs.openstack.org/api-ref/network/v2/#ports>.

use http::Method;
use openstack::resource::{NewPort, Port, PortUpdate};

use crate::Error;
use crate::neutron::{Answered, Call, Neutron, path_of};
use crate::query::Query;

/// So many IDs stand in one request: its line has at most 8 KiB in front of Neutron's own server.
const IDS: usize = 100;

/// Which ports are listed. What is empty does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortFilter {
    /// Those with one of these IDs.
    pub ids: Vec<String>,
    /// Those that have all of these tags. No tag has a comma in it.
    pub tags: Vec<String>,
    /// Those that have not all of these tags.
    pub not_tags: Vec<String>,
    /// Those of this device owner.
    pub device_owner: Option<String>,
    /// Those of this device.
    pub device_id: Option<String>,
    /// Those of this network.
    pub network_id: Option<String>,
    /// Those that are bound to this host.
    pub host: Option<String>,
    /// The one that has this address.
    pub address: Option<String>,
    /// Those with this description.
    pub description: Option<String>,
}

// === impl PortFilter ===

impl PortFilter {
    fn query(&self, ids: &[String]) -> Query {
        let mut query = Query::default();
        for id in ids {
            query.add("id", id);
        }
        if !self.tags.is_empty() {
            query.add("tags", &self.tags.join(","));
        }
        if !self.not_tags.is_empty() {
            query.add("not-tags", &self.not_tags.join(","));
        }
        let address = self.address.as_ref().map(|address| format!("ip_address={address}"));
        let named = [
            ("device_owner", &self.device_owner),
            ("device_id", &self.device_id),
            ("network_id", &self.network_id),
            ("binding:host_id", &self.host),
            ("fixed_ips", &address),
            ("description", &self.description),
        ];
        for (key, value) in named {
            if let Some(value) = value {
                query.add(key, value);
            }
        }
        query
    }
}

// === impl Neutron ===

impl Neutron {
    /// A port.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn port(&self, id: &str) -> Result<Port, Error> {
        self.read(Call::get(path_of("ports", id)), "port").await
    }

    /// All ports that fit, in as many requests as it needs.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn ports(&self, filter: &PortFilter) -> Result<Vec<Port>, Error> {
        if filter.ids.is_empty() {
            return self.list("ports", &filter.query(&[])).await;
        }
        let mut all = Vec::new();
        for ids in filter.ids.chunks(IDS) {
            all.extend(self.list("ports", &filter.query(ids)).await?);
        }
        Ok(all)
    }

    /// Makes all of these ports, or none: one that is refused refuses all.
    ///
    /// # Errors
    /// [`Error`]; where it [is uncertain](Error::is_uncertain), the ports may be there.
    pub async fn create_ports(&self, ports: &[NewPort]) -> Result<Answered<Vec<Port>>, Error> {
        self.answered(Call::new(Method::POST, "ports").with("ports", &ports), "ports").await
    }

    /// Changes a port; with a revision, only if nobody else has changed it.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::Changed`] where somebody has.
    pub async fn update_port(&self, id: &str, update: &PortUpdate, revision: Option<u64>) -> Result<Port, Error> {
        self.read(Call::new(Method::PUT, path_of("ports", id)).with("port", update).if_revision(revision), "port").await
    }

    /// Gives a port these tags, and no others.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_port_tags(&self, id: &str, tags: &[String]) -> Result<(), Error> {
        self.set_tags("ports", id, tags).await
    }

    /// Deletes a port; whether it was there.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::InUse`] where it is on a trunk.
    pub async fn delete_port(&self, id: &str) -> Result<Answered<bool>, Error> {
        self.delete(path_of("ports", id)).await
    }
}
