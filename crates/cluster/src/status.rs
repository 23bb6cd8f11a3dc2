//! The network status, written to the pod that it is of and to no other.

use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use npwg::NETWORK_STATUS;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::call::ANSWER;
use crate::{ApiError, Cluster, PodRef, RequestedObject, StatusError};

/// What the agent is called in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "netloom";

/// The answer is the whole object otherwise, some kilobytes that nobody reads. A server that cannot leave it out sends it.
pub(crate) const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");

// === impl Cluster ===

impl Cluster {
    /// Writes the annotation [`npwg::NETWORK_STATUS`] of a pod, with its UID as the precondition. Writes once; whether to
    /// try again is the caller's choice. Through `pods/status`, so that the agent needs no right to change pods otherwise.
    ///
    /// # Errors
    /// [`StatusError`]; with `Gone` there is nobody to write it for.
    pub async fn write_status(&self, pod: &PodRef, annotation: &str) -> Result<(), StatusError> {
        let asked = RequestedObject { verb: "patch", group: "", resource: "pods/status", of: pod.to_string().into() };
        let change = Patch::Merge(json!({"metadata": {"uid": pod.uid, "annotations": {NETWORK_STATUS: annotation}}}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let request = Request::new(path).patch_subresource("status", &pod.name, &params, &change).map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            request
        });
        match self.inner.caller.ask::<IgnoredAny>(&asked, request, ANSWER).await {
            Ok(IgnoredAny) => Ok(()),
            Err(cause) => Err(self.why_refused(pod, cause).await),
        }
    }

    /// A refusal may mean that there is another pod of that name: the server has several words for that (409 for the
    /// precondition, 422 for a changed UID, 404), so it is asked who is there.
    async fn why_refused(&self, pod: &PodRef, cause: ApiError) -> StatusError {
        let name = pod.to_string();
        if cause.is_passing() {
            return StatusError::Unreachable { pod: name, cause: Box::new(cause) };
        }
        if !matches!(cause.code(), Some(404 | 409 | 422)) {
            return StatusError::Refused { pod: name, cause: Box::new(cause) };
        }
        match self.fetch_pod(&pod.namespace, &pod.name).await {
            Ok(Some(there)) if there.uid == pod.uid => match cause.code() {
                // Somebody else changed the pod at the same time, again and again: that passes.
                Some(409) => StatusError::Unreachable { pod: name, cause: Box::new(cause) },
                _ => StatusError::Refused { pod: name, cause: Box::new(cause) },
            },
            Ok(_) => StatusError::Gone { pod: name, uid: pod.uid.clone() },
            Err(e) if e.is_passing() => StatusError::Unreachable { pod: name, cause: Box::new(e) },
            Err(_) => StatusError::Refused { pod: name, cause: Box::new(cause) },
        }
    }
}
