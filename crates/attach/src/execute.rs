//! A plan carried out, and undone.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

use chain::{Chain, Runtime};
use cni::{AddResult, CniArgs, CniError, Code, ContainerId};
use linux::{Netns, NetnsError, boot_id};
use plugin::{Host, Teardown};

use crate::{Plan, Planned, PodView, Record, Records, State, Step, default_route};

/// A sandbox as its runtime describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Its container ID.
    pub id: ContainerId,
    /// The path of its namespace.
    pub netns: PathBuf,
    /// `CNI_ARGS`
    pub args: CniArgs,
    /// The pod.
    pub pod: PodView,
}

/// Attaches sandboxes and detaches them.
pub struct Attacher {
    chain: Chain,
    records: Records,
}

/// An attachment that failed; everything before it was undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{error}", if network.is_empty() { String::new() } else { format!("{network}: ") })]
pub struct AddError {
    /// Which network; empty if it failed before the first.
    pub network: String,
    /// The plugin's own error, its code unchanged.
    pub error: CniError,
    /// What could not be undone; the record is then kept, and DEL tries again.
    pub left: Vec<CniError>,
}

/// A DEL that could not do everything; it can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DelError {
    /// Every failure, in the order in which they happened.
    pub errors: Vec<CniError>,
}

impl From<CniError> for AddError {
    fn from(error: CniError) -> Self {
        AddError { network: String::new(), error, left: Vec::new() }
    }
}

impl From<CniError> for DelError {
    fn from(e: CniError) -> Self {
        DelError { errors: vec![e] }
    }
}

// === impl Attacher ===

impl Attacher {
    /// Networks are run by `chain`, which needs no result cache: results are in `records`.
    pub fn new(chain: Chain, records: Records) -> Self {
        Attacher { chain, records }
    }

    /// The records of all sandboxes.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Whether every plugin of a plan is there, before anything is done.
    ///
    /// # Errors
    /// Every network whose plugins are not, with its name.
    pub fn verify(&self, plan: &Plan) -> Result<(), Vec<AddError>> {
        let bad = |p: &Planned| {
            let error = self.chain.verify(&p.list, &p.capability_args).err()?;
            Some(AddError { network: p.name(), error, left: Vec::new() })
        };
        let errors: Vec<AddError> = plan.attachments.iter().filter_map(bad).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Makes every attachment of a plan, in order; a failure stops it and undoes what was done.
    ///
    /// # Errors
    /// [`AddError`]
    pub fn add(&self, sandbox: &Sandbox, plan: &Plan, host: &mut Host, by: Instant) -> Result<Record, AddError> {
        self.verify(plan).map_err(|mut errors| errors.swap_remove(0))?;
        let _lock = self.records.lock(&sandbox.id).map_err(CniError::from)?;
        if self.records.read(&sandbox.id).map_err(CniError::from)?.is_some() {
            let msg = format!("sandbox {} is attached already; DEL it first", sandbox.id);
            return Err(CniError::new(Code::INVALID_ENVIRONMENT, msg).into());
        }
        let mut record = intent(sandbox, plan)?;
        linux::crash_point!("attach-unrecorded");
        self.records.write(&record).map_err(CniError::from)?;
        linux::crash_point!("attach-intended");
        for at in 0..record.steps.len() {
            if let Err(failed) = self.add_one(sandbox, plan, &mut record, at, host, by) {
                // What the failing one could not undo is tried again with the others.
                record.steps.truncate(if failed.left.is_empty() { at } else { at + 1 });
                return Err(self.give_up(record, failed, host, by));
            }
        }
        linux::crash_point!("attach-unconfirmed");
        match self.records.write(&record) {
            Ok(()) => Ok(record),
            Err(e) => Err(self.give_up(record, CniError::from(e).into(), host, by)),
        }
    }

    /// Undoes what is in the record. What cannot be undone stays in it, with its results, for DEL.
    fn give_up(&self, record: Record, failed: AddError, host: &mut Host, by: Instant) -> AddError {
        linux::crash_point!("attach-failed");
        let mut left = match self.undo(&record, host, by) {
            Ok(()) => return AddError { left: Vec::new(), ..failed },
            Err(e) => e.errors,
        };
        linux::crash_point!("attach-left");
        left.extend(self.records.write(&record).err().map(CniError::from));
        AddError { left, ..failed }
    }

    fn add_one(
        &self,
        sandbox: &Sandbox,
        plan: &Plan,
        record: &mut Record,
        at: usize,
        host: &mut Host,
        by: Instant,
    ) -> Result<(), AddError> {
        let (Some(planned), Some(step)) = (plan.attachments.get(at), record.steps.get_mut(at)) else { return Ok(()) };
        let of_network = |e: chain::AddError| AddError { network: planned.name(), error: e.error, left: e.left };
        let runtime = runtime(sandbox, step, Some(sandbox.netns.clone()));
        let result = self.chain.add(&step.list, &runtime, host, by).map_err(of_network)?;
        linux::crash_point!("attachment-made");
        let missing = not_honoured(planned, &result);
        step.state = State::Added(result);
        if let Some(error) = missing {
            // It was made, and goes with the others before it.
            let left = vec![error.clone()];
            return Err(AddError { network: planned.name(), error, left });
        }
        if let Some(gateways) = planned.source.selection().and_then(|s| s.default_route.as_deref()) {
            self.route_over(sandbox, record, at, gateways).map_err(|error| AddError {
                network: planned.name(),
                left: vec![error.clone()],
                error,
            })?;
        }
        // Only an external plugin's DEL needs its result, if this process ends before all is done.
        if at + 1 < plan.attachments.len() && !self.chain.is_builtin(&planned.list) {
            self.records.write(record).map_err(CniError::from)?;
            linux::crash_point!("attachment-recorded");
        }
        Ok(())
    }

    /// Moves the pod's default routes to an attachment that was just made (S26), in the kernel and in the results.
    fn route_over(&self, sandbox: &Sandbox, record: &mut Record, at: usize, gateways: &[IpAddr]) -> Result<(), CniError> {
        let Some(ifname) = record.steps.get(at).map(|step| step.ifname.clone()) else { return Ok(()) };
        default_route::move_to(&chain::open_netns(&sandbox.netns)?, &ifname, gateways)?;
        linux::crash_point!("default-route-moved");
        let results = record.steps.iter_mut().enumerate().filter_map(|(i, step)| match &mut step.state {
            State::Added(result) => Some((i == at, result)),
            State::Intended => None,
        });
        default_route::tell(results, gateways);
        Ok(())
    }

    /// Unmakes every attachment of a sandbox, in reverse, from its record alone: the namespace, the definitions and the
    /// configuration may be gone. A sandbox without a record is gone already.
    ///
    /// # Errors
    /// [`DelError`] with everything that failed; the record is then kept.
    pub fn del(&self, sandbox: &ContainerId, host: &mut Host, by: Instant) -> Result<(), DelError> {
        let _lock = self.records.lock(sandbox).map_err(CniError::from)?;
        match self.records.read(sandbox).map_err(CniError::from)? {
            // A record that was not written to its end may lie beside its place.
            None => Ok(self.records.remove(sandbox).map_err(CniError::from)?),
            Some(record) => self.undo(&record, host, by),
        }
    }

    /// Everything of a record goes in one teardown, then the record.
    fn undo(&self, record: &Record, host: &mut Host, by: Instant) -> Result<(), DelError> {
        let netns = same_netns(record)?;
        let sandbox =
            Sandbox { id: record.sandbox.clone(), netns: record.netns.clone(), args: record.args.clone(), pod: record.pod.clone() };
        let (mut teardown, mut errors) = (Teardown::new(), Vec::new());
        for step in record.steps.iter().rev() {
            let runtime = runtime(&sandbox, step, netns.clone());
            errors.extend(self.chain.collect_del(&step.list, &runtime, step.result(), host, &mut teardown, by));
            teardown.next_attachment();
        }
        linux::crash_point!("detach-collected");
        errors.extend(teardown.commit(host).err().unwrap_or_default());
        if !errors.is_empty() {
            return Err(DelError { errors });
        }
        linux::crash_point!("detach-unforgotten");
        Ok(self.records.remove(&record.sandbox).map_err(CniError::from)?)
    }

    /// Whether every attachment of a sandbox is still as it was made.
    ///
    /// # Errors
    /// Every attachment that is not, with its name.
    pub fn check(&self, record: &Record, host: &mut Host, by: Instant) -> Result<(), Vec<AddError>> {
        let sandbox =
            Sandbox { id: record.sandbox.clone(), netns: record.netns.clone(), args: record.args.clone(), pod: record.pod.clone() };
        let mut bad = Vec::new();
        for step in record.steps.iter().filter(|s| s.list.version.has_check()) {
            let runtime = runtime(&sandbox, step, Some(record.netns.clone()));
            if let Err(error) = self.chain.check(&step.list, &runtime, step.result(), host, by) {
                bad.push(AddError { network: step.name.clone(), error, left: Vec::new() });
            }
        }
        if bad.is_empty() { Ok(()) } else { Err(bad) }
    }
}

/// What will be done, as it is written down before.
fn intent(sandbox: &Sandbox, plan: &Plan) -> Result<Record, CniError> {
    let netns = chain::open_netns(&sandbox.netns)?;
    let step = |p: &Planned| Step {
        name: p.name(),
        default: p.source.is_default(),
        list: p.list.clone(),
        ifname: p.ifname.clone(),
        capability_args: p.capability_args.clone(),
        default_route: p.source.selection().and_then(|s| s.default_route.clone()),
        state: State::Intended,
    };
    Ok(Record {
        sandbox: sandbox.id.clone(),
        boot: boot_id().map_err(|e| CniError::new(Code::IO, e.to_string()))?,
        netns: sandbox.netns.clone(),
        netns_id: netns.id(),
        pod: sandbox.pod.clone(),
        args: sandbox.args.clone(),
        steps: plan.attachments.iter().map(step).collect(),
    })
}

fn runtime(sandbox: &Sandbox, step: &Step, netns: Option<PathBuf>) -> Runtime {
    Runtime {
        container: sandbox.id.clone(),
        ifname: step.ifname.clone(),
        netns,
        args: sandbox.args.clone(),
        capability_args: step.capability_args.clone(),
    }
}

/// What the pod asked for and the network did not do (S20, S21, S29).
fn not_honoured(planned: &Planned, result: &AddResult) -> Option<CniError> {
    let missing = planned.source.selection()?.not_honoured(result);
    missing.into_iter().next().map(CniError::from)
}

/// The namespace's path, if it still is that namespace: after a reboot, or when the path was used again, it is not.
fn same_netns(record: &Record) -> Result<Option<PathBuf>, CniError> {
    let io = |e: String| CniError::new(Code::IO, e);
    if boot_id().map_err(|e| io(e.to_string()))? != record.boot {
        return Ok(None);
    }
    match Netns::open(&record.netns) {
        Ok(Some(netns)) if netns.id() == record.netns_id => Ok(Some(record.netns.clone())),
        Ok(_) | Err(NetnsError::NotANamespace { .. }) => Ok(None),
        Err(e) => Err(io(e.to_string())),
    }
}
