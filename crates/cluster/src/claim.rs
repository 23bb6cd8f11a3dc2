//! An IPAMClaim, asked for where an ADD has waited for its addresses in vain.

use api::IpamClaimStatus;
use kube::api::GetParams;
use kube::core::Request;
use serde::Deserialize;

use crate::{ApiError, Cluster, RequestedObject};

#[derive(Deserialize)]
struct PartialObject {
    #[serde(default)]
    status: IpamClaimStatus,
}

// === impl Cluster ===

impl Cluster {
    /// What the operator tells of a claim. `None`: there is no such claim.
    ///
    /// # Errors
    /// [`ApiError`]: then nothing is known of it.
    pub async fn fetch_claim(&self, namespace: &str, name: &str) -> Result<Option<IpamClaimStatus>, ApiError> {
        let asked =
            RequestedObject { verb: "get", group: "k8s.cni.cncf.io", resource: "ipamclaims", of: format!("{namespace}/{name}").into() };
        let path = format!("/apis/{}/namespaces/{namespace}/ipamclaims", api::CLAIM_VERSION);
        let seen: Option<PartialObject> = self.inner.caller.get(&asked, Request::new(path).get(name, &GetParams::default())).await?;
        Ok(seen.map(|seen| seen.status))
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<PartialObject>(bytes));
}
