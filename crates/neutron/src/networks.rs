//! Networks, subnets and their pools: <https://docs.openstack.org/api-ref/network/v2/#networks>.

use http::Method;
use openstack::resource::{Network, NewNetwork, NewSubnet, Subnet, SubnetPool};
use serde_json::{Value, json};

use crate::Error;
use crate::neutron::{Call, Neutron, path_of};
use crate::query::Query;

// === impl Neutron ===

impl Neutron {
    /// A network.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn network(&self, id: &str) -> Result<Network, Error> {
        self.read(Call::get(path_of("networks", id)), "network").await
    }

    /// A subnet.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn subnet(&self, id: &str) -> Result<Subnet, Error> {
        self.read(Call::get(path_of("subnets", id)), "subnet").await
    }

    /// The networks of a project with this description.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn networks_described(&self, description: &str, project: &str) -> Result<Vec<Network>, Error> {
        self.list("networks", Query::default().add("description", description).add("project_id", project)).await
    }

    /// The networks that have this tag.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn networks_tagged(&self, tag: &str) -> Result<Vec<Network>, Error> {
        self.list("networks", Query::default().add("tags", tag)).await
    }

    /// Gives a network this description.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn describe_network(&self, id: &str, description: &str) -> Result<Network, Error> {
        let call = Call::new(Method::PUT, path_of("networks", id));
        self.read(call.with("network", &json!({"description": description})), "network").await
    }

    /// Makes a network.
    ///
    /// # Errors
    /// [`Error`]; where it [is uncertain](Error::is_uncertain), it may be there.
    pub async fn create_network(&self, network: &NewNetwork) -> Result<Network, Error> {
        self.read(Call::new(Method::POST, "networks").with("network", network), "network").await
    }

    /// Deletes a network with its subnets; whether it was there.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::InUse`] where it has a port.
    pub async fn delete_network(&self, id: &str) -> Result<bool, Error> {
        self.delete(path_of("networks", id)).await.map(|answered| answered.value)
    }

    /// Makes a subnet.
    ///
    /// # Errors
    /// [`Error`]; where it [is uncertain](Error::is_uncertain), it may be there.
    pub async fn create_subnet(&self, subnet: &NewSubnet) -> Result<Subnet, Error> {
        self.read(Call::new(Method::POST, "subnets").with("subnet", subnet), "subnet").await
    }

    /// A pool of subnets' ranges.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn subnet_pool(&self, id: &str) -> Result<SubnetPool, Error> {
        self.read(Call::get(path_of("subnetpools", id)), "subnetpool").await
    }

    /// Gives one of `networks`, `subnets` or `ports` these tags, and no others.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_tags(&self, resource: &str, id: &str, tags: &[String]) -> Result<(), Error> {
        let path = format!("{}/tags", path_of(resource, id));
        self.read::<Value>(Call::new(Method::PUT, path).with("tags", &json!(tags)), "tags").await.map(drop)
    }

    /// The subnets of a network.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn subnets_of(&self, network_id: &str) -> Result<Vec<Subnet>, Error> {
        self.list("subnets", Query::default().add("network_id", network_id)).await
    }
}
