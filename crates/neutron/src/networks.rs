//! Networks and subnets, which are only read.

use openstack::resource::{Network, Subnet};

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

    /// The subnets of a network.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn subnets_of(&self, network_id: &str) -> Result<Vec<Subnet>, Error> {
        self.list("subnets", Query::default().add("network_id", network_id)).await
    }
}
