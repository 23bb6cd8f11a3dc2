//! The Lease that keeps several operators from doing the same work.
//!
//! It saves conflicts and nothing else: who believes to lead and does not any more has its writes refused. So no clock is compared with
//! another machine's; a holder is taken for dead when its Lease has not changed for a while, as seen from here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::log::Line;
use crate::metrics::Metrics;

/// The Lease's name.
const NAME: &str = "netloom-operator";
/// A holder that has not been heard of for so long is dead.
const DEAD: Duration = Duration::from_secs(15);
/// A holder stops its work if it could not say for so long that it is there.
const LOST: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Whether this operator is the one that works.
pub(crate) struct Leadership {
    leads: AtomicBool,
    changed: Notify,
    metrics: Arc<Metrics>,
}

/// What was seen of another holder: the Lease's version, and since when.
type Observed = Option<(String, Instant)>;

// === impl Leadership ===

impl Leadership {
    pub(crate) fn new(leads: bool, metrics: Arc<Metrics>) -> Self {
        metrics.leads(leads);
        Leadership { leads: AtomicBool::new(leads), changed: Notify::new(), metrics }
    }

    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Until it may be another one than when this was called last.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn set(&self, leads: bool, why: &str) {
        if self.leads.swap(leads, Ordering::AcqRel) != leads {
            Line::info("lease").with("leads", leads).with("why", why).end();
            self.metrics.leads(leads);
            self.changed.notify_one();
        }
    }

    /// Tries to be the one, and to stay it, for ever.
    pub(crate) async fn hold(&self, client: Client, namespace: &str, identity: &str) {
        let api: Api<Lease> = Api::namespaced(client, namespace);
        let (mut observed, mut renewed): (Observed, _) = (None, Instant::now());
        loop {
            // An answer that comes after this is too late to be believed.
            let begun = Instant::now();
            match timeout(LOST / 2, look(&api, identity, &mut observed)).await.unwrap_or(Err("no answer".to_owned())) {
                Ok(true) => {
                    renewed = begun;
                    self.set(true, "acquired the Lease");
                }
                Ok(false) => self.set(false, "another operator has the Lease"),
                Err(e) if renewed.elapsed() >= LOST => self.set(false, &e),
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Gives the Lease up, so that the next one need not wait.
    pub(crate) async fn release(&self, client: Client, namespace: &str, identity: &str) {
        if !self.leads() {
            return;
        }
        let api: Api<Lease> = Api::namespaced(client, namespace);
        let Ok(Ok(mut lease)) = timeout(LOOK, api.get(NAME)).await else { return };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_deref() == Some(identity)) else { return };
        spec.holder_identity = None;
        drop(timeout(LOOK, api.replace(NAME, &PostParams::default(), &lease)).await);
    }
}

/// Whether there is a Lease at all: an operator makes it, and it stays.
///
/// # Errors
/// What the API server says.
pub(crate) async fn exists(client: &Client, namespace: &str) -> Result<bool, String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let read = timeout(LOST, api.get_opt(NAME)).await.map_err(|_| "no answer".to_owned())?;
    Ok(read.map_err(|e| e.to_string())?.is_some())
}

/// Who holds the Lease, if it was renewed as long as this looks.
pub(crate) async fn holder(client: &Client, namespace: &str) -> Result<Option<String>, String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let read = || async { timeout(LOST, api.get_opt(NAME)).await.map_err(|_| "no answer".to_owned())?.map_err(|e| e.to_string()) };
    let version = |lease: &Lease| lease.metadata.resource_version.clone();
    let of = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty());
    let Some(first) = read().await?.filter(|lease| of(lease).is_some()) else { return Ok(None) };
    let begun = Instant::now();
    while begun.elapsed() < DEAD {
        tokio::time::sleep(LOOK).await;
        match read().await? {
            Some(lease) if version(&lease) != version(&first) => return Ok(of(&lease)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Whether the Lease is ours now.
async fn look(api: &Api<Lease>, identity: &str, observed: &mut Observed) -> Result<bool, String> {
    let now = MicroTime(Timestamp::now());
    let Some(mut lease) = api.get_opt(NAME).await.map_err(|e| e.to_string())? else {
        let mut lease = Lease::default();
        lease.metadata.name = Some(NAME.to_owned());
        lease.spec = Some(ours(LeaseSpec { acquire_time: Some(now.clone()), ..LeaseSpec::default() }, identity, now));
        return taken(api.create(&PostParams::default(), &lease).await);
    };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    let spec = lease.spec.take().unwrap_or_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if !holder.is_empty() && holder != identity {
        match observed {
            Some((known, since)) if *known == version && since.elapsed() >= DEAD => {}
            Some((known, _)) if *known == version => return Ok(false),
            _ => {
                *observed = Some((version, Instant::now()));
                return Ok(false);
            }
        }
    }
    let mut spec = ours(spec, identity, now.clone());
    if holder != identity {
        spec.acquire_time = Some(now);
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
    }
    lease.spec = Some(spec);
    taken(api.replace(NAME, &PostParams::default(), &lease).await)
}

fn ours(spec: LeaseSpec, identity: &str, now: MicroTime) -> LeaseSpec {
    let seconds = i32::try_from(DEAD.as_secs()).unwrap_or(i32::MAX);
    LeaseSpec { holder_identity: Some(identity.to_owned()), lease_duration_seconds: Some(seconds), renew_time: Some(now), ..spec }
}

fn taken(written: kube::Result<Lease>) -> Result<bool, String> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}
