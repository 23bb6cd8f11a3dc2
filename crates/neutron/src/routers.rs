//! Routers, to which subnets are connected: <https://docs.openstack.org/api-ref/network/v2/#routers-routers>.

use http::Method;
use serde_json::json;

use crate::neutron::{Call, Neutron, path_of};
use crate::{Error, Refusal};

// === impl Neutron ===

impl Neutron {
    /// Connects a subnet to a router, with the subnet's gateway address as the router's; whether it was not before.
    ///
    /// # Errors
    /// [`Error`]; [`Refusal::NotFound`] where there is no such router.
    pub async fn connect_subnet(&self, router: &str, subnet: &str) -> Result<bool, Error> {
        match self.interface(router, "add_router_interface", subnet).await {
            // "Router already has a port on subnet"
            Err(e) if e.refusal() == Some(Refusal::Invalid) && e.to_string().contains("already has a port on subnet") => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Takes a subnet off a router; whether it was on it.
    ///
    /// # Errors
    /// [`Error`]; [`Refusal::InUse`] where a route or a floating address needs it.
    pub async fn disconnect_subnet(&self, router: &str, subnet: &str) -> Result<bool, Error> {
        match self.interface(router, "remove_router_interface", subnet).await {
            Err(e) if e.refusal() == Some(Refusal::NotFound) => Ok(false),
            other => other.map(|()| true),
        }
    }

    async fn interface(&self, router: &str, what: &str, subnet: &str) -> Result<(), Error> {
        let path = format!("{}/{what}", path_of("routers", router));
        self.send(Call::new(Method::PUT, path).with("subnet_id", &json!(subnet))).await.map(drop)
    }
}
