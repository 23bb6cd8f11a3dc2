//! The project's own Kubernetes objects, as plain types: what a manifest says, as it says it. Nothing is checked here but the
//! shape; who uses an object checks what it means.
//!
//! Group `netloom.io`, version `v1alpha1`. An unknown key is an error: a word that is misspelt must not be a rule that is not
//! kept.

mod ip_pool;

pub use ip_pool::{Entry, IpPool, IpPoolFamily, IpPoolSpec, Reclaim, Reuse, ReuseOrder, Scaling};

use serde::{Deserialize, Serialize};

/// The group and version of all of them.
pub const API_VERSION: &str = "netloom.io/v1alpha1";

/// What every object has; the rest of it is the API server's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
}
