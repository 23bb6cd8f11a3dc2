//! The project's own kinds, as requests name them.

use kube::Api;
use kube::core::{ApiResource, GroupVersionKind, Resource};

/// Group and version of all of them.
const GROUP: &str = "netloom.io";
const VERSION: &str = "v1alpha1";

/// One of our kinds. All are cluster-scoped; those with a status have it under a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Own {
    /// Addresses that pods of a network get.
    IpPool,
    /// What one node was granted; its name is the node's.
    NodeIpPool,
    /// Which node has which block.
    IpLedgerShard,
}

// === impl Own ===

impl Own {
    /// `kind`
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Own::IpPool => "IPPool",
            Own::NodeIpPool => "NodeIPPool",
            Own::IpLedgerShard => "IPLedgerShard",
        }
    }

    /// The resource, as in paths and in a role's rule.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Own::IpPool => "ippools",
            Own::NodeIpPool => "nodeippools",
            Own::IpLedgerShard => "ipledgershards",
        }
    }

    /// `apiVersion`
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{GROUP}/{VERSION}")
    }

    /// The path of all objects; of one with `/` and its name behind.
    #[must_use]
    pub fn path(self) -> String {
        format!("/apis/{GROUP}/{VERSION}/{}", self.plural())
    }

    /// What a typed request asks for.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, self.kind()), self.plural())
    }

    /// Requests about these objects, read as any type that has this resource at run time.
    #[must_use]
    pub fn api<K: Resource<DynamicType = ApiResource>>(self, client: kube::Client) -> Api<K> {
        Api::all_with(client, &self.resource())
    }
}
