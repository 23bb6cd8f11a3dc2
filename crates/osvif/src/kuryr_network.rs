//! `KuryrNetwork`, group `openstack.org`, version `v1`: the network of Neutron that the pods of a namespace have, in an object of the namespace's
//! name, in that namespace.
//!
//! The object has no status subresource: an account that may write it may write all of it.

use serde_json::{Value, json};

use crate::Problem;
use crate::fields::{self, Fields};

/// Where KuryrNetworks are in the Kubernetes API.
pub mod network_crd {
    /// Kind of an object.
    pub const KIND: &str = "KuryrNetwork";
    /// Plural, as in a path.
    pub const PLURAL: &str = "kuryrnetworks";
}

/// What keeps a KuryrNetwork until its network is gone.
pub const NETWORK_FINALIZER: &str = "kuryrnetwork.finalizers.kuryr.openstack.org";

/// A namespace's network. What else the object has is not kept: nothing here replaces it as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KuryrNetwork {
    /// The namespace.
    pub namespace: String,
    /// The project of the network.
    pub project_id: String,
    /// The network, once it was made.
    pub network: Option<String>,
    /// Its subnet, once that was made.
    pub subnet: Option<String>,
    /// The range of the subnet.
    pub cidr: Option<String>,
    /// The router, once the subnet is connected to it.
    pub router: Option<String>,
}

// === impl KuryrNetwork ===

impl KuryrNetwork {
    /// Reads an object.
    ///
    /// # Errors
    /// [`Problem`]: what is wrong, and where.
    pub fn read(value: Value) -> Result<Self, Problem> {
        let mut object = Fields::of(value)?;
        let read = object.required("spec", KuryrNetwork::read_spec)?;
        let status = object.optional("status", KuryrNetwork::read_status)?.unwrap_or_default();
        Ok(KuryrNetwork { namespace: read.namespace, project_id: read.project_id, ..status })
    }

    /// Its `spec`. Kuryr keeps the labels of the namespace in it, for security groups of NetworkPolicies.
    #[must_use]
    pub fn spec(&self) -> Value {
        json!({"nsName": self.namespace, "projectId": self.project_id, "nsLabels": {}})
    }

    /// Its `status`.
    #[must_use]
    pub fn status(&self) -> Value {
        let KuryrNetwork { network, subnet, cidr, router, .. } = self;
        json!({"netId": network, "subnetId": subnet, "subnetCIDR": cidr, "routerId": router, "populated": true, "nsLabels": {}})
    }

    /// Its subnet, if pods can have it: it is connected.
    #[must_use]
    pub fn ready(&self) -> Option<&str> {
        self.subnet.as_deref().filter(|_| self.network.is_some() && self.router.is_some())
    }

    fn read_spec(value: Value) -> Result<Self, Problem> {
        let mut spec = Fields::of(value)?;
        let (namespace, project_id) = (spec.required("nsName", fields::text)?, spec.required("projectId", fields::text)?);
        Ok(KuryrNetwork { namespace, project_id, ..KuryrNetwork::default() })
    }

    fn read_status(value: Value) -> Result<Self, Problem> {
        let mut status = Fields::of(value)?;
        Ok(KuryrNetwork {
            network: status.optional("netId", fields::uuid)?,
            subnet: status.optional("subnetId", fields::uuid)?,
            cidr: status.optional("subnetCIDR", fields::text)?,
            router: status.optional("routerId", fields::uuid)?,
            ..KuryrNetwork::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_kuryrs_is_read_and_written_with_its_words() {
        let id = |n: u8| format!("d1e40f3e-d1a4-4044-a4f3-90d82f439e{n:02x}");
        let status =
            json!({"netId": id(1), "subnetId": id(2), "subnetCIDR": "10.9.0.0/24", "routerId": id(3), "populated": true, "nsLabels": {}});
        let spec = json!({"nsName": "web", "projectId": "p", "nsLabels": {"a": "b"}});
        let read = KuryrNetwork::read(json!({"metadata": {"name": "web"}, "spec": spec, "status": status}));
        let read = read.unwrap_or_default();
        assert_eq!((read.status(), read.ready()), (status, Some(id(2).as_str())));
        assert_eq!(read.spec(), json!({"nsName": "web", "projectId": "p", "nsLabels": {}}));
        let begun = KuryrNetwork::read(json!({"spec": spec, "status": {"netId": id(1), "subnetId": id(2)}})).unwrap_or_default();
        assert_eq!((begun.ready(), &begun.network), (None, &Some(id(1))), "it is not connected yet");
        let wrong = KuryrNetwork::read(json!({"spec": spec, "status": {"subnetId": "../x"}})).map_err(|e| e.to_string());
        assert_eq!(wrong, Err(r#"status.subnetId: "../x" is not a UUID"#.to_owned()));
    }
}
