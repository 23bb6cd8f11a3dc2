//! Trunks: <https://docs.openstack.org/api-ref/network/v2/#trunk-networking>.

use http::Method;
use openstack::resource::{NewTrunk, SubPort, Trunk};
use serde::Serialize;

use crate::Error;
use crate::neutron::{Call, Neutron, path_of};

/// A port that leaves a trunk.
#[derive(Serialize)]
struct Leaving<'a> {
    port_id: &'a str,
}

// === impl Neutron ===

impl Neutron {
    /// A trunk.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where there is none.
    pub async fn trunk(&self, id: &str) -> Result<Trunk, Error> {
        self.read(Call::get(path_of("trunks", id)), "trunk").await
    }

    /// Makes a trunk of a port that is not bound.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_trunk(&self, trunk: &NewTrunk) -> Result<Trunk, Error> {
        self.read(Call::new(Method::POST, "trunks").with("trunk", trunk), "trunk").await
    }

    /// Puts ports on a trunk, all or none.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::InUse`] where a VLAN ID is taken. Where it [is uncertain](Error::is_uncertain), they may be on it.
    pub async fn add_sub_ports(&self, trunk: &str, ports: &[SubPort]) -> Result<(), Error> {
        let path = format!("{}/add_subports", path_of("trunks", trunk));
        self.send(Call::new(Method::PUT, path).with("sub_ports", &ports).once()).await.map(drop)
    }

    /// Takes ports off a trunk, all or none.
    ///
    /// # Errors
    /// [`Error`]; [`crate::Refusal::NotFound`] where one is not on it.
    pub async fn remove_sub_ports(&self, trunk: &str, ports: &[&str]) -> Result<(), Error> {
        let path = format!("{}/remove_subports", path_of("trunks", trunk));
        let ports: Vec<Leaving<'_>> = ports.iter().map(|port_id| Leaving { port_id }).collect();
        self.send(Call::new(Method::PUT, path).with("sub_ports", &ports).once()).await.map(drop)
    }

    /// Deletes a trunk; whether it was there. Its ports stay.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_trunk(&self, id: &str) -> Result<bool, Error> {
        self.delete(path_of("trunks", id)).await.map(|answered| answered.value)
    }
}
