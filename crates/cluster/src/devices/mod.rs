//! Which devices a pod was given, from whom knows it: the kubelet for device plugins, the API for resource claims.
//!
//! ```text
//! <root>/var/lib/kubelet/pod-resources/kubelet.sock                 there: podresources v1, Get or List
//! <root>/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint no socket: the kubelet's own file
//! pod's claims -> ResourceClaim -> its allocation -> ResourceSlice -> the device's attributes
//! ```
//!
//! The order is that of the allocation, container by container, and is never sorted: the n-th definition with a resource
//! gets its n-th device, and a sorted list mixes up the devices of a pod's containers.

mod checkpoint;
mod claims;
mod podresources;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{ApiError, Cluster, Pod};

/// The kubelet's socket, below the node's root.
pub const SOCKET: &str = "var/lib/kubelet/pod-resources/kubelet.sock";
/// The kubelet's checkpoint of device allocations, below the node's root.
pub const CHECKPOINT: &str = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// It is not known which devices a pod has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The kubelet's socket is there, but the kubelet does not answer as it should.
    #[error("kubelet's podresources at {}: {cause}: check that the kubelet runs, and its log", socket.display())]
    Kubelet {
        /// The socket.
        socket: PathBuf,
        /// What happened.
        cause: String,
    },
    /// The kubelet is silent.
    #[error("kubelet's podresources at {}: no answer in {} s: check that the kubelet runs, and its log", socket.display(), after.as_secs())]
    TimedOut {
        /// The socket.
        socket: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The kubelet's checkpoint is unreadable.
    #[error("kubelet's checkpoint {}: {cause}: check that the kubelet's directory is the node's, and readable", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The API server was asked in vain for claims or slices.
    #[error("devices of resource claim {claim}: {cause}")]
    Api {
        /// The claim's namespace and name.
        claim: String,
        /// Why.
        cause: Box<ApiError>,
    },
    /// A claim of the pod does not exist.
    #[error("resource claim {claim} does not exist: check who deleted it; the pod names it in its status")]
    NoClaim {
        /// The claim's namespace and name.
        claim: String,
    },
    /// A claim has no devices yet.
    #[error("resource claim {claim} has no devices allocated: check the scheduler's and the driver's events on it")]
    NotAllocated {
        /// The claim's namespace and name.
        claim: String,
    },
    /// A request of an extended resource is missing in the claim that stands for it.
    #[error("resource claim {claim} has no result for request {request} of the extended resource {resource}: check the scheduler")]
    NoRequest {
        /// The claim's namespace and name.
        claim: String,
        /// The request.
        request: String,
        /// The extended resource.
        resource: String,
    },
    /// No slice has the device.
    #[error(
        "resource claim {claim}: no ResourceSlice of driver {driver} and pool {pool} has device {device}: check that the driver \
         runs on this node"
    )]
    NoDevice {
        /// The claim's namespace and name.
        claim: String,
        /// The driver.
        driver: String,
        /// The pool.
        pool: String,
        /// The device.
        device: String,
    },
    /// A device calls itself by another resource than the one that it was allocated for.
    #[error(
        "resource claim {claim}: device {device} has the resource name {found}, but was allocated for {resource}: correct the \
         driver's attribute {}, or the DeviceClass",
        claims::RESOURCE_NAME
    )]
    OtherResource {
        /// The claim's namespace and name.
        claim: String,
        /// The device.
        device: String,
        /// What its attribute says.
        found: String,
        /// The extended resource of the pod.
        resource: String,
    },
}

// === impl Cluster ===

impl Cluster {
    /// The devices of a pod, as pairs of resource name and device ID, in the order of their allocation. `root` is where
    /// the node's root directory is. Neither socket nor checkpoint means that no device plugin gave any.
    ///
    /// # Errors
    /// [`DeviceError`]: then it is not known which devices it has.
    pub async fn devices(&self, pod: &Pod, root: &Path) -> Result<Vec<(String, String)>, DeviceError> {
        let socket = root.join(SOCKET);
        let mut found = match socket.try_exists() {
            Ok(false) => checkpoint::devices(&root.join(CHECKPOINT), &pod.uid)?,
            _ => podresources::devices(&socket, &pod.namespace, &pod.name).await?,
        };
        if !pod.claims.is_empty() {
            found.extend(self.claimed(pod).await?);
        }
        Ok(found)
    }
}

#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    checkpoint::fuzz(bytes);
    claims::fuzz(bytes);
    podresources::fuzz(bytes);
}
