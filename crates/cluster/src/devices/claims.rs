//! Devices that were allocated by resource claims (Dynamic Resource Allocation, `resource.k8s.io/v1`).
//!
//! A driver publishes its devices in ResourceSlices; two attributes say what a network needs. A device without them is
//! for something else, a GPU say, and is passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::Request;
use kube::core::params::GetParams;
use serde::Deserialize;
use tokio::time::timeout;

use super::DeviceError;
use crate::call::LIST;
use crate::{ApiError, Cluster, ExtendedRequest, Pod, RequestedObject};

/// The attribute with the device's ID.
pub(super) const DEVICE_ID: &str = "k8s.cni.cncf.io/deviceID";
/// The attribute with the resource's name, as definitions have it.
pub(super) const RESOURCE_NAME: &str = "k8s.cni.cncf.io/resourceName";

const GROUP: &str = "resource.k8s.io";
/// How long all questions about one pod may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The most slices in a page: each has up to 128 devices.
const PAGE: u32 = 50;

#[derive(Deserialize)]
struct Claim {
    #[serde(default)]
    status: Option<ClaimStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaimStatus {
    allocation: Option<Allocation>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allocation {
    devices: Option<Results>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Results {
    results: Option<Vec<Allocated>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allocated {
    request: String,
    driver: String,
    pool: String,
    device: String,
}

#[derive(Deserialize)]
struct Slices {
    metadata: SlicesMeta,
    items: Option<Vec<Slice>>,
}

#[derive(Deserialize)]
struct SlicesMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
}

#[derive(Deserialize)]
struct Slice {
    spec: SliceSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SliceSpec {
    driver: String,
    pool: Pool,
    devices: Option<Vec<Device>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pool {
    name: String,
    generation: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Device {
    name: String,
    attributes: Option<BTreeMap<String, Attribute>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Attribute {
    string: Option<String>,
}

/// The slices of one driver and pool, newest generation only; filled as they are needed.
type DevicesByPool = BTreeMap<(String, String), Vec<Device>>;

// === impl Device ===

impl Device {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.as_ref()?.get(name)?.string.as_deref().filter(|text| !text.is_empty())
    }
}

// === impl Cluster ===

impl Cluster {
    /// The devices of a pod's claims, as pairs of resource name and device ID.
    pub(super) async fn claimed(&self, pod: &Pod) -> Result<Vec<(String, String)>, DeviceError> {
        match timeout(LIMIT, self.of_claims(pod)).await {
            Ok(found) => found,
            Err(_) => {
                let asked =
                    RequestedObject { verb: "get", group: GROUP, resource: "resourceclaims", of: pod.reference().to_string().into() };
                let server = self.inner.caller.server();
                let cause = Box::new(ApiError::TimedOut { asked, server, after: LIMIT });
                Err(DeviceError::Api { claim: format!("of pod {}/{}", pod.namespace, pod.name), cause })
            }
        }
    }

    async fn of_claims(&self, pod: &Pod) -> Result<Vec<(String, String)>, DeviceError> {
        let (mut known, mut found) = (DevicesByPool::new(), Vec::new());
        for claim in &pod.claims {
            let label = format!("{}/{}", pod.namespace, claim.claim);
            let results = self.allocated(&pod.namespace, &claim.claim, &label).await?;
            match &claim.extended {
                None => {
                    for result in &results {
                        found.extend(self.device(result, &label, &mut known).await?);
                    }
                }
                Some(requests) => {
                    for request in requests {
                        found.extend(self.extended(request, &results, &label, &mut known).await?);
                    }
                }
            }
        }
        Ok(found)
    }

    /// What a claim was given.
    async fn allocated(&self, namespace: &str, name: &str, label: &str) -> Result<Vec<Allocated>, DeviceError> {
        let asked = RequestedObject { verb: "get", group: GROUP, resource: "resourceclaims", of: label.into() };
        let path = format!("/apis/{GROUP}/v1/namespaces/{namespace}/resourceclaims");
        let request = Request::new(path).get(name, &GetParams::default());
        let claim = self.inner.caller.get::<Claim>(&asked, request).await;
        let claim = claim.map_err(|e| DeviceError::Api { claim: label.to_owned(), cause: Box::new(e) })?;
        let claim = claim.ok_or_else(|| DeviceError::NoClaim { claim: label.to_owned() })?;
        let results = claim.status.and_then(|s| s.allocation).and_then(|a| a.devices).and_then(|d| d.results);
        results.ok_or_else(|| DeviceError::NotAllocated { claim: label.to_owned() })
    }

    /// The devices of one extended resource: each has to call itself by that resource.
    async fn extended(
        &self,
        wanted: &ExtendedRequest,
        results: &[Allocated],
        label: &str,
        known: &mut DevicesByPool,
    ) -> Result<Vec<(String, String)>, DeviceError> {
        let ExtendedRequest { resource, request } = wanted;
        let mut matching = results.iter().filter(|result| result.request == *request).peekable();
        if matching.peek().is_none() {
            let (request, resource) = (request.clone(), resource.clone());
            return Err(DeviceError::NoRequest { claim: label.to_owned(), request, resource });
        }
        let mut found = Vec::new();
        for result in matching {
            if let Some((own, id)) = self.device(result, label, known).await? {
                if own != *resource {
                    let (device, resource) = (result.device.clone(), resource.clone());
                    return Err(DeviceError::OtherResource { claim: label.to_owned(), device, found: own, resource });
                }
                found.push((own, id));
            }
        }
        Ok(found)
    }

    /// Resource name and ID of a device; `None` if it is none for a network.
    async fn device(&self, wanted: &Allocated, label: &str, known: &mut DevicesByPool) -> Result<Option<(String, String)>, DeviceError> {
        let Allocated { driver, pool, device, .. } = wanted;
        let key = (driver.clone(), pool.clone());
        if !known.contains_key(&key) {
            let devices = self.pool(driver, pool).await;
            let devices = devices.map_err(|e| DeviceError::Api { claim: label.to_owned(), cause: Box::new(e) })?;
            known.insert(key.clone(), devices);
        }
        let Some(found) = known.get(&key).and_then(|devices| devices.iter().find(|d| d.name == *device)) else {
            let (driver, pool, device) = (driver.clone(), pool.clone(), device.clone());
            return Err(DeviceError::NoDevice { claim: label.to_owned(), driver, pool, device });
        };
        let both = found.attribute(RESOURCE_NAME).zip(found.attribute(DEVICE_ID));
        Ok(both.map(|(resource, id)| (resource.to_owned(), id.to_owned())))
    }

    /// The devices of a pool: of this node's slices first, and of all if it is no node's own pool.
    async fn pool(&self, driver: &str, pool: &str) -> Result<Vec<Device>, ApiError> {
        let of_node = format!("spec.driver={driver},spec.nodeName={}", self.inner.node);
        let found = self.slices(&of_node, driver, pool).await?;
        if found.is_empty() { self.slices(&format!("spec.driver={driver}"), driver, pool).await } else { Ok(found) }
    }

    async fn slices(&self, fields: &str, driver: &str, pool: &str) -> Result<Vec<Device>, ApiError> {
        let asked = RequestedObject { verb: "list", group: GROUP, resource: "resourceslices", of: fields.into() };
        let mut params = ListParams { field_selector: Some(fields.to_owned()), limit: Some(PAGE), ..ListParams::default() };
        let (mut newest, mut devices) = (i64::MIN, Vec::new());
        loop {
            let request = Request::new(format!("/apis/{GROUP}/v1/resourceslices")).list(&params);
            let page: Slices = self.inner.caller.ask(&asked, request, LIST).await?;
            let specs = page.items.into_iter().flatten().map(|slice| slice.spec);
            for spec in specs.filter(|spec| spec.driver == driver && spec.pool.name == pool) {
                // Slices of an older generation are what the pool was.
                if spec.pool.generation < newest {
                    continue;
                }
                if spec.pool.generation > newest {
                    devices.clear();
                    newest = spec.pool.generation;
                }
                devices.extend(spec.devices.into_iter().flatten());
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => params.continue_token = Some(more),
                None => return Ok(devices),
            }
        }
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    drop(serde_json::from_slice::<Claim>(bytes));
    drop(serde_json::from_slice::<Slices>(bytes));
}
