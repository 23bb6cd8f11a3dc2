//! What a lab's pods have: from their records, and whether the kernel still agrees.

use std::time::{Duration, Instant};

use attach::{Record, network_status};
use cni::CniError;
use linux::Netns;
use npwg::{NetworkStatus, StatusIps};
use plugin::Host;

use crate::state::{Lab, Phase, Pod};
use crate::switch;
use crate::up::attacher;

/// One pod of a lab.
#[derive(Debug)]
pub struct PodStatus {
    /// The pod.
    pub pod: Pod,
    /// How it is.
    pub health: Health,
    /// One entry for each attachment, as the annotation has them.
    pub networks: Vec<NetworkStatus>,
    /// The whole record; `None` for a pod that could not be attached.
    pub record: Option<Record>,
}

/// How a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Every attachment is as it was made.
    Ready,
    /// It could not be attached.
    Failed(String),
    /// An attachment is not as it was made: which, and what changed.
    Changed(Vec<String>),
}

/// The pods of a lab, each checked against the kernel with CHECK.
///
/// # Errors
/// If a node cannot be entered.
pub fn status(lab: &Lab) -> Result<Vec<PodStatus>, CniError> {
    let mut all = Vec::with_capacity(lab.pods.len());
    for node in &lab.nodes {
        let attacher = attacher(lab, &node.name);
        let pods: Vec<&Pod> = lab.pods.iter().filter(|p| p.node == node.name).collect();
        let internal = |e: &dyn std::fmt::Display| CniError::new(cni::Code::INTERNAL, format!("node {}: {e}", node.name));
        let gone = || internal(&"its network namespace is gone: recreate the lab");
        let netns = match Netns::open(&lab.node_netns(&node.name)).map_err(|e| internal(&e))? {
            Some(netns) => netns,
            // It is about to be made.
            None if lab.phase == Phase::Building => {
                let unmade = |pod: &&Pod| PodStatus {
                    pod: (*pod).clone(),
                    health: Health::Failed(unrecorded(lab)),
                    networks: Vec::new(),
                    record: None,
                };
                all.extend(pods.iter().map(unmade));
                continue;
            }
            None => return Err(gone()),
        };
        let look = |_: &linux::Inside| {
            let mut host = Host::here(lab.dirs(&node.name));
            pods.iter().map(|pod| one(lab, &attacher, pod, &mut host)).collect::<Vec<_>>()
        };
        all.extend(netns.enter(look).map_err(|e| internal(&e))?);
    }
    Ok(all)
}

fn one(lab: &Lab, attacher: &attach::Attacher, pod: &Pod, host: &mut Host) -> PodStatus {
    let record = lab.sandbox(pod).map_err(|e| e.to_string()).and_then(|id| attacher.records().read(&id).map_err(|e| e.to_string()));
    let (record, health) = match (record, &pod.failure) {
        (Err(e), _) => (None, Health::Failed(e)),
        (Ok(record), Some(failure)) => (record, Health::Failed(failure.clone())),
        (Ok(None), None) => (None, Health::Failed(unrecorded(lab))),
        (Ok(Some(record)), None) => {
            let changed = attacher.check(&record, host, Instant::now() + Duration::from_secs(30)).err().unwrap_or_default();
            let mut changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
            changed.extend(unswitched(lab, pod, &record));
            (Some(record), if changed.is_empty() { Health::Ready } else { Health::Changed(changed) })
        }
    };
    let networks = record.as_ref().filter(|_| pod.failure.is_none()).map(|r| network_status(r, StatusIps::Bare)).unwrap_or_default();
    PodStatus { pod: pod.clone(), health, networks, record }
}

/// What the database of a switch does not know: that nobody forwards its packets.
fn unswitched(lab: &Lab, pod: &Pod, record: &Record) -> Option<String> {
    let step = record.steps.iter().find(|step| switch::of(&step.list).next().is_some())?;
    let why = format!("ovs-vswitchd of node {} does not run: run `netloom lab down --name {}` and `up` again", pod.node, lab.name);
    (!switch::forwards(lab, &pod.node)).then(|| format!("{}: {why}", step.name))
}

/// Why a pod that did not fail has no record.
fn unrecorded(lab: &Lab) -> String {
    let down = format!("`netloom lab down --name {}`", lab.name);
    match lab.phase {
        Phase::Building => format!("it was never attached: `up` did not come to its end; run {down} and begin again"),
        Phase::Up => format!("its record is gone, but its interfaces may still exist: run {down} and `up` again"),
        Phase::GoingDown => format!("its attachments are gone, but `down` did not finish: run {down} again"),
    }
}
