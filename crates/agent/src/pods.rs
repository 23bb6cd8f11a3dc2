//! The pod of a call: from the cache, and from the API server where the cache has not seen it, or does not keep what it asks for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use attach::PodView;
use cluster::{ApiError, Pod, PodChanges};
use cni::{CniError, Code};
use npwg::{Definition, DefinitionRef};

use crate::Agent;
use crate::call::PodName;

/// How long one question to the API server may take: longer than a server needs that has anything to say.
const QUESTION: Duration = Duration::from_secs(5);

/// How long a pod is waited for that the API server does not have, as with Multus: a kubelet starts what its own files say at once,
/// and registers it a moment later.
const ARRIVAL: Duration = Duration::from_millis(2500);

impl Agent {
    /// The pod as the API server has it. One that it does not have yet is waited for, for a moment. Its UID must be the one that the
    /// runtime named: another pod of the same name has other networks.
    pub(crate) fn pod(&self, wanted: &PodName, by: Instant) -> Result<Arc<Pod>, CniError> {
        let changes = self.cluster.pod_changes();
        if let Some(pod) = self.pod_now(wanted, by)? {
            return Ok(pod);
        }
        self.wait_for(wanted, changes, by.min(Instant::now() + ARRIVAL));
        // Asked in any case: a watch may be behind.
        self.pod_now(wanted, by)?.ok_or_else(|| {
            let msg = format!("pod {wanted} is not in the API: it was deleted, or the kubelet has not registered it yet");
            CniError::new(Code::TRY_AGAIN_LATER, msg)
        })
    }

    fn pod_now(&self, wanted: &PodName, by: Instant) -> Result<Option<Arc<Pod>>, CniError> {
        if let Some(pod) = self.cluster.pod(&wanted.namespace, &wanted.name).filter(|pod| wanted.is(pod) && pod.is_whole) {
            return Ok(Some(pod));
        }
        match self.ask(self.cluster.fetch_pod(&wanted.namespace, &wanted.name), by) {
            Ok(Some(pod)) if wanted.is(&pod) => Ok(Some(Arc::new(pod))),
            Ok(Some(pod)) => {
                let msg =
                    format!("pod {wanted}: expected pod UID {:?} but got {:?} from Kube API", wanted.uid.as_deref().unwrap_or(""), pod.uid);
                Err(CniError::new(Code::TRY_AGAIN_LATER, msg)
                    .with_details("the pod was deleted and recreated; its next sandbox is attached"))
            }
            Ok(None) => Ok(None),
            Err(e) => Err(e.within(format!("pod {wanted} is not in the agent's cache, and the API server cannot be asked"))),
        }
    }

    /// Waits until a pod of that name is in the cache.
    fn wait_for(&self, wanted: &PodName, mut changes: PodChanges, until: Instant) {
        let is_there = || self.cluster.pod(&wanted.namespace, &wanted.name).is_some();
        let come = async { while !is_there() && changes.next().await.is_some() {} };
        let limit = until.saturating_duration_since(Instant::now());
        drop(self.runtime.block_on(async { tokio::time::timeout(limit, come).await }));
    }

    /// A definition; `None` if there is none.
    pub(crate) fn definition(&self, wanted: &DefinitionRef, by: Instant) -> Result<Option<Arc<Definition>>, CniError> {
        let cached = self.cluster.definition(wanted).map_err(|e| CniError::new(Code::INVALID_CONFIG, e.to_string()))?;
        if let Some(definition) = cached {
            return Ok(Some(definition));
        }
        let asked = self.ask(self.cluster.fetch_definition(wanted), by);
        let place = || format!("network-attachment-definition {wanted} is not in the agent's cache, and the API server cannot be asked");
        asked.map_err(|e| e.within(place()))
    }

    /// Waits for what the API server says, on a thread that is not the runtime's.
    pub(crate) fn ask<T>(&self, question: impl Future<Output = Result<T, ApiError>>, by: Instant) -> Result<T, CniError> {
        let limit = QUESTION.min(by.saturating_duration_since(Instant::now()));
        let late = || {
            CniError::new(
                Code::TRY_AGAIN_LATER,
                format!("the API server has not answered within {:.1} s; see `netloom status`", limit.as_secs_f64()),
            )
        };
        match self.runtime.block_on(async { tokio::time::timeout(limit, question).await }) {
            Ok(answered) => answered.map_err(api_error),
            Err(_) => Err(late()),
        }
    }
}

/// The pod as a plan looks at it. The UID is the API's: a static pod's runtime knows another one.
pub(crate) fn view(pod: &Pod) -> PodView {
    PodView {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: Some(pod.uid.clone()),
        networks: pod.networks.clone(),
        default_network: pod.default_network.clone(),
        sticky: pod.sticky,
        migrates: pod.migrates,
    }
}

/// What is the definition's own fault is no reason to try again.
fn api_error(e: ApiError) -> CniError {
    let code = if matches!(e, ApiError::TooLarge(_)) { Code::INVALID_CONFIG } else { Code::TRY_AGAIN_LATER };
    CniError::new(code, e.to_string())
}
