//! A plan carried out, and undone.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chain::{Chain, Runtime, Verified};
use cni::{AddResult, CniArgs, CniError, Code, ContainerId, Interface};
use json::Value;
use linux::boot::BootIdError;
use linux::{Netns, NetnsError, NetnsId, boot_id};
use plugin::{Host, PlannedChange, Teardown};

use crate::idle_bridge::Left;
use crate::records::Tombstone;
use crate::{Plan, Planned, PodView, Record, RecordError, Records, ReportedDevice, State, Step, default_route, device};

/// A sandbox as its runtime describes it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Its container ID.
    pub id: ContainerId,
    /// The path of its namespace.
    pub netns: PathBuf,
    /// The namespace, where the caller has opened it already, as [`chain::open_netns`] does.
    pub opened: Option<Arc<Netns>>,
    /// `CNI_ARGS`
    pub args: CniArgs,
    /// The pod.
    pub pod: PodView,
}

/// Looks at what one of an attachment's plugins is about to do, and at its result; it is the one of that number in its list.
pub type CheckAttachment<'a> = dyn FnMut(&Planned, usize, PlannedChange<'_>, &mut Host) -> Result<(), CniError> + 'a;

/// Attaches sandboxes and detaches them.
pub struct Attacher {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
}

/// What DEL does for a sandbox whose record was lost in a power cut. Links and rules went with it, addresses did not.
#[derive(Debug, Clone, Copy)]
pub enum Lost<'a> {
    /// Every address of the container is freed, of whatever network: where all networks of the host are of one owner.
    EveryAddress,
    /// What an ADD would make today is unmade.
    Planned(&'a Plan),
}

/// An attachment that failed; everything before it was undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", CniError::from(self.clone()))]
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
#[error("{}", CniError::from(self.clone()))]
pub struct DelError {
    /// Every failure, in the order in which they happened.
    pub errors: Vec<CniError>,
}

impl From<CniError> for AddError {
    fn from(error: CniError) -> Self {
        AddError { network: String::new(), error, left: Vec::new() }
    }
}

impl From<AddError> for CniError {
    /// Begins with Multus's words, by which runbooks know it. What could not be undone goes into the details.
    fn from(e: AddError) -> Self {
        let error = CniError::from(chain::AddError { error: e.error, left: e.left });
        if e.network.is_empty() { error } else { error.within(format_args!("error adding container to network {:?}", e.network)) }
    }
}

impl From<DelError> for CniError {
    /// The first, with the others in its details.
    fn from(e: DelError) -> Self {
        CniError::first_of(e.errors).unwrap_or_else(|| CniError::new(Code::INTERNAL, "DEL failed"))
    }
}

impl From<CniError> for DelError {
    fn from(e: CniError) -> Self {
        DelError { errors: vec![e] }
    }
}

// === impl Sandbox ===

impl Sandbox {
    /// As its record has it.
    pub(crate) fn of(record: &Record) -> Self {
        let Record { sandbox, netns, args, pod, .. } = record;
        Sandbox { id: sandbox.clone(), netns: netns.clone(), opened: None, args: args.clone(), pod: pod.clone() }
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
        self.verified(plan).map(drop)
    }

    /// What is found of each network.
    fn verified(&self, plan: &Plan) -> Result<Vec<Verified>, Vec<AddError>> {
        let (mut found, mut missing) = (Vec::with_capacity(plan.attachments.len()), Vec::new());
        for p in &plan.attachments {
            match self.chain.verify(&p.list, &p.capability_args) {
                Ok(verified) => found.push(verified),
                Err(error) => missing.push(AddError { network: p.name(), error, left: Vec::new() }),
            }
        }
        if missing.is_empty() { Ok(found) } else { Err(missing) }
    }

    /// Makes every attachment of a plan, in order; a failure stops it and undoes what was done. So does a DEL that comes
    /// meanwhile (code 11). What an ADD that was killed, or a DEL that was, has left of the sandbox goes first, and so does
    /// what is retired in its namespace.
    ///
    /// # Errors
    /// [`AddError`]
    pub fn add(&self, sandbox: &Sandbox, plan: &Plan, host: &mut Host, by: Instant) -> Result<Record, AddError> {
        self.add_checked(sandbox, plan, host, by, &mut |_, _, _, _| Ok(()))
    }

    /// The same; `check` looks at what each plugin is about to do, and at its result before anything else is made, and ends the ADD with its error.
    ///
    /// # Errors
    /// [`AddError`], as of [`Attacher::add`].
    pub fn add_checked(
        &self,
        sandbox: &Sandbox,
        plan: &Plan,
        host: &mut Host,
        by: Instant,
        check: &mut CheckAttachment<'_>,
    ) -> Result<Record, AddError> {
        let verified = self.verified(plan).map_err(|missing| {
            let mut missing = missing.into_iter();
            let first = missing.next().unwrap_or_else(|| CniError::new(Code::INTERNAL, "no plugin is missing").into());
            AddError { error: first.error.and("", missing.map(CniError::from)), ..first }
        })?;
        self.make_way(sandbox, host, by)?;
        let added = {
            let earlier = self.records.tombstone_of(&sandbox.id);
            let _lock = self.records.lock(&sandbox.id, by).map_err(CniError::from)?;
            self.clear(&sandbox.id, earlier, host, by)?;
            self.add_all(sandbox, (plan, verified), host, by, check)
        };
        linux::crash_point!("attach-unlocked");
        match added {
            // A DEL that came after the last look, and may be dead or have given up by now.
            Ok(_) if self.records.tombstone_of(&sandbox.id).is_some() => {
                let left = self.del(&sandbox.id, Lost::Planned(plan), host, by.max(Instant::now() + chain::UNDO));
                Err(AddError { left: left.err().map(|e| e.errors).unwrap_or_default(), ..deleted(&sandbox.id).into() })
            }
            other => other,
        }
    }

    /// Only a sandbox of which nothing is there is attached. The tombstone that was there before we had the lock is not
    /// meant for us.
    fn clear(&self, sandbox: &ContainerId, earlier: Option<Tombstone>, host: &mut Host, by: Instant) -> Result<(), CniError> {
        if let Some(record) = self.records.read(sandbox)? {
            if record.is_made() && earlier.is_none() {
                let msg = format!("sandbox {sandbox} is attached already; DEL it first");
                return Err(CniError::new(Code::INVALID_ENVIRONMENT, msg));
            }
            linux::crash_point!("attach-uncleared");
            let place = || format!("sandbox {sandbox} is partly attached and cannot be cleaned up; fix the cause and DEL the sandbox");
            let failed = |e: DelError| CniError::new(e.errors.first().map_or(Code::IO, |e| e.code), format!("{}: {e}", place()));
            self.undo(&record, host, by).map_err(failed)?;
            self.records.remove(sandbox)?;
            self.records.places.forget(sandbox);
        }
        match self.records.take_tombstone(sandbox)? {
            Some(tombstone) if Some(&tombstone) != earlier.as_ref() => Err(deleted(sandbox)),
            _ => Ok(()),
        }
    }

    fn add_all(
        &self,
        sandbox: &Sandbox,
        (plan, verified): (&Plan, Vec<Verified>),
        host: &mut Host,
        by: Instant,
        check: &mut CheckAttachment<'_>,
    ) -> Result<Record, AddError> {
        // The same one for all attachments, whatever comes to its path meanwhile.
        let netns = sandbox.opened.clone().map_or_else(|| chain::open_netns(&sandbox.netns).map(Arc::new), Ok)?;
        let mut record = intent(sandbox, &netns, plan, &host.dirs.devices, &self.chain)?;
        linux::crash_point!("attach-unrecorded");
        self.records.write(&record).map_err(CniError::from)?;
        linux::crash_point!("attach-intended");
        let mut verified = verified.into_iter();
        for at in 0..record.steps.len() {
            let verified = verified.next();
            let (Some(planned), Some(step)) = (plan.attachments.get(at), record.steps.get_mut(at)) else { continue };
            let done = match self.records.tombstone_of(&sandbox.id).is_some() {
                true => Err(deleted(&sandbox.id).into()),
                false => self.add_one(AddTarget { sandbox, netns: &netns, by }, (planned, verified), step, host, check),
            };
            let is_last = at + 1 == plan.attachments.len();
            if let Err(failed) = done.and_then(|()| if is_last { Ok(()) } else { self.keep_result(planned, &record) }) {
                // What the failing one could not undo is tried again with the others.
                record.steps.truncate(if failed.left.is_empty() { at } else { at + 1 });
                return Err(self.give_up(record, failed, host, by));
            }
        }
        if let Err(failed) = default_route::settle(&mut record, &netns) {
            return Err(self.give_up(record, failed, host, by));
        }
        linux::crash_point!("attach-unconfirmed");
        match self.records.write_outcome(&record) {
            Ok(()) => Ok(record),
            Err(e) => Err(self.give_up(record, CniError::from(e).into(), host, by)),
        }
    }

    /// Undoes what is in the record. What cannot be undone stays in it, with its results, for DEL.
    fn give_up(&self, record: Record, failed: AddError, host: &mut Host, by: Instant) -> AddError {
        linux::crash_point!("attach-failed");
        let by = by.max(Instant::now() + chain::UNDO);
        let forget = || Ok(self.records.forget(&record.sandbox).map_err(CniError::from)?);
        let mut left = match self.undo(&record, host, by).and_then(|()| forget()) {
            Ok(()) => return AddError { left: Vec::new(), ..failed },
            Err(e) => e.errors,
        };
        linux::crash_point!("attach-left");
        self.records.write_tombstone(&record.sandbox);
        left.extend(self.records.write(&record).err().map(CniError::from));
        AddError { left, ..failed }
    }

    fn add_one(
        &self,
        AddTarget { sandbox, netns, by }: AddTarget<'_>,
        (planned, verified): (&Planned, Option<Verified>),
        step: &mut Step,
        host: &mut Host,
        check: &mut CheckAttachment<'_>,
    ) -> Result<(), AddError> {
        let failed = |e: CniError| AddError { network: planned.name(), error: e, left: Vec::new() };
        let offered = device::offer(planned.device.as_ref(), step, &host.dirs.devices).map_err(failed)?;
        let runtime = runtime(sandbox, step, Some(sandbox.netns.clone()));
        let begin = Instant::now();
        let mut check = |plugin, foreseen: PlannedChange<'_>, host: &mut Host| check(planned, plugin, foreseen, host);
        (host.is_transient, host.lasting) = (step.is_chosen(), planned.lasting.clone());
        let made = self.chain.add_in(&step.list, &runtime, (Some(netns), verified), host, by, &mut check);
        (host.is_transient, host.lasting) = (false, Vec::new());
        let result = match made {
            Ok(result) => result,
            Err(e) => {
                let mut files = Teardown::new();
                device::collect(step, &mut files);
                let mut bridges = Left::default();
                bridges.add(step, &sandbox.id);
                bridges.note(&self.records, &mut files);
                let left = [e.left, files.commit(host).err().unwrap_or_default()].concat();
                return Err(AddError { network: planned.name(), error: e.error, left });
            }
        };
        linux::crash_point!("attachment-made");
        step.took = Some(Duration::from_micros(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)));
        step.device = device::told(step, offered);
        let missing = not_honoured(planned, step, netns, &result);
        step.state = State::Added(result);
        if let Some(error) = missing {
            // It was made, and goes with the others before it.
            let left = vec![error.clone()];
            return Err(AddError { network: planned.name(), error, left });
        }
        Ok(())
    }

    /// Only an external plugin's DEL needs its result, if this process ends before all is done.
    fn keep_result(&self, planned: &Planned, record: &Record) -> Result<(), AddError> {
        if !self.chain.is_builtin(&planned.list) {
            self.records.write(record).map_err(CniError::from)?;
            linux::crash_point!("attachment-recorded");
        }
        Ok(())
    }

    /// Unmakes every attachment of a sandbox, in reverse, from its record alone: the namespace, the definitions and the
    /// configuration may be gone. A sandbox without a record is gone already. An ADD that is still running is told to undo
    /// itself, and waited for. `lost` says what is to be done for a record that a power cut has taken.
    ///
    /// # Errors
    /// [`DelError`] with everything that failed; the record is then kept. Code 11 if the ADD, or another DEL, was still
    /// running at the deadline: an ADD undoes itself later.
    pub fn del(&self, sandbox: &ContainerId, lost: Lost<'_>, host: &mut Host, by: Instant) -> Result<(), DelError> {
        if !self.records.knows(sandbox) {
            return Ok(());
        }
        let _lock = self.records.lock_to_remove(sandbox, by).map_err(|e| busy(e, self.records.tombstone_of(sandbox).is_some()))?;
        self.remove(sandbox, self.records.read(sandbox), lost, host, by)
    }

    /// The rest of [`Attacher::del`], as the holder of the lock.
    pub(crate) fn remove(
        &self,
        sandbox: &ContainerId,
        read: Result<Option<Record>, RecordError>,
        lost: Lost<'_>,
        host: &mut Host,
        by: Instant,
    ) -> Result<(), DelError> {
        match read {
            Ok(Some(record)) => self.undo(&record, host, by)?,
            Ok(None) => {}
            // The kernel has lost the rest, and what a plugin of somebody else keeps is for its own collection.
            Err(RecordError::Lost { .. }) => {
                match lost {
                    Lost::EveryAddress => drop(ipam::release_container(&host.dirs.addresses, sandbox, by).map_err(CniError::from)?),
                    Lost::Planned(plan) => self.undo(&unremembered(sandbox, plan, &host.dirs.devices, &self.chain)?, host, by)?,
                }
                linux::crash_point!("lost-freed");
            }
            Err(e) => return Err(CniError::from(e).into()),
        }
        linux::crash_point!("detach-unforgotten");
        self.forget(sandbox)
    }

    pub(crate) fn forget(&self, sandbox: &ContainerId) -> Result<(), DelError> {
        self.records.forget(sandbox).map_err(CniError::from)?;
        self.records.places.forget(sandbox);
        Ok(())
    }

    /// Everything of a record goes in one teardown; the record stays.
    pub(crate) fn undo(&self, record: &Record, host: &mut Host, by: Instant) -> Result<(), DelError> {
        let mut teardown = Teardown::new();
        let mut bridges = Left::default();
        let mut errors = self.collect(record, &mut teardown, &mut bridges, host, by)?;
        bridges.note(&self.records, &mut teardown);
        linux::crash_point!("detach-collected");
        errors.extend(teardown.commit(host).err().unwrap_or_default());
        if errors.is_empty() { Ok(()) } else { Err(DelError { errors }) }
    }

    /// What is to go of a sandbox, but for `bridges`, of which the caller makes a note for all of its sandboxes at once; returns what could not
    /// be found out.
    pub(crate) fn collect(
        &self,
        record: &Record,
        teardown: &mut Teardown,
        bridges: &mut Left,
        host: &mut Host,
        by: Instant,
    ) -> Result<Vec<CniError>, CniError> {
        let netns = same_netns(record)?;
        let sandbox = Sandbox::of(record);
        let mut errors = Vec::new();
        for step in record.steps.iter().rev() {
            let runtime = runtime(&sandbox, step, netns.clone());
            let failed = self.chain.collect_del(&step.list, &runtime, step.result(), host, teardown, by);
            if failed.is_empty() {
                device::collect(step, teardown);
                bridges.add(step, &record.sandbox);
            }
            errors.extend(failed);
            teardown.next_attachment();
        }
        Ok(errors)
    }

    /// Whether every plugin of a sandbox's networks is built in: then nothing is executed for it.
    pub fn is_builtin(&self, record: &Record) -> bool {
        record.steps.iter().all(|step| self.chain.is_builtin(&step.list))
    }

    /// Whether every attachment of a sandbox is still as it was made. Of one that is retired none is.
    ///
    /// # Errors
    /// Every attachment that is not, with its name.
    pub fn check(&self, record: &Record, host: &mut Host, by: Instant) -> Result<(), Vec<AddError>> {
        if self.records.tombstone_of(&record.sandbox).is_some() {
            let msg = format!("sandbox {} was deleted; ADD it again if it is needed", record.sandbox);
            return Err(vec![CniError::new(Code::UNKNOWN_CONTAINER, msg).into()]);
        }
        let sandbox = Sandbox::of(record);
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

/// Where an attachment is made, and until when.
#[derive(Clone, Copy)]
struct AddTarget<'a> {
    sandbox: &'a Sandbox,
    netns: &'a Arc<Netns>,
    by: Instant,
}

/// Why an ADD that met a DEL undid itself.
fn deleted(sandbox: &ContainerId) -> CniError {
    let msg = format!("sandbox {sandbox} was deleted while it was being attached; ADD it again if it is needed");
    CniError::new(Code::TRY_AGAIN_LATER, msg)
}

/// A DEL that could not wait any longer.
pub(crate) fn busy(e: RecordError, is_told: bool) -> CniError {
    match matches!(e, RecordError::Busy { .. }) && is_told {
        true => CniError::from(e).with_details("an ADD undoes its changes when its current step has finished, even without another DEL"),
        false => e.into(),
    }
}

/// A record of an earlier boot in which all was intended.
pub(crate) fn unremembered(sandbox: &ContainerId, plan: &Plan, devices: &Path, chain: &Chain) -> Result<Record, CniError> {
    let earlier = "00000000-0000-0000-0000-000000000000".parse().map_err(|e: BootIdError| CniError::new(Code::INTERNAL, e.to_string()))?;
    Ok(Record {
        sandbox: sandbox.clone(),
        boot: earlier,
        netns: PathBuf::new(),
        netns_id: NetnsId { dev: 0, ino: 0 },
        netns_cookie: None,
        made_at: None,
        pod: PodView::default(),
        args: CniArgs::default(),
        steps: intended(sandbox, plan, devices, chain),
    })
}

/// What will be done, as it is written down before.
fn intent(sandbox: &Sandbox, netns: &Netns, plan: &Plan, devices: &Path, chain: &Chain) -> Result<Record, CniError> {
    Ok(Record {
        sandbox: sandbox.id.clone(),
        boot: boot_id().map_err(|e| CniError::new(Code::IO, e.to_string()))?,
        netns: sandbox.netns.clone(),
        netns_id: netns.id(),
        netns_cookie: netns.cookie().map_err(|e| CniError::new(Code::INVALID_NETNS, e.to_string()))?,
        made_at: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs()),
        pod: sandbox.pod.clone(),
        args: sandbox.args.clone(),
        steps: intended(&sandbox.id, plan, devices, chain),
    })
}

fn intended(sandbox: &ContainerId, plan: &Plan, devices: &Path, chain: &Chain) -> Vec<Step> {
    let step = |p: &Planned| Step {
        name: p.name(),
        default: p.source.is_default(),
        list: p.list.clone(),
        ifname: p.ifname.clone(),
        capability_args: device::runtime_config(p, sandbox, devices),
        device: ReportedDevice::Nothing,
        default_route: p.source.selection().and_then(|s| s.default_route.clone()),
        made_by: chain.made_by(&p.list),
        state: State::Intended,
        took: None,
    };
    plan.attachments.iter().map(step).collect()
}

pub(crate) fn runtime(sandbox: &Sandbox, step: &Step, netns: Option<PathBuf>) -> Runtime {
    Runtime {
        container: sandbox.id.clone(),
        ifname: step.ifname.clone(),
        netns,
        args: args(&sandbox.args, step),
        capability_args: step.capability_args.clone(),
    }
}

/// The runtime's `CNI_ARGS`, with the addresses that the pod asked for where plugins without capabilities look for them, as with
/// Multus. Where a plugin declares the capability, `runtimeConfig` has them: several addresses are then not said again, which
/// `host-local` would refuse.
fn args(of_runtime: &CniArgs, step: &Step) -> CniArgs {
    let requested = &step.capability_args;
    let ips: Vec<&str> = requested.get("ips").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let is_said = |capability| step.list.has_capability(capability);
    let ip = Some(ips.join(",")).filter(|_| !ips.is_empty() && !(is_said("ips") && (step.default || ips.len() > 1)));
    let mac = requested.str("mac").filter(|_| !(is_said("mac") && step.default)).map(str::to_owned);
    // What a runtime asks for by address is meant for its own network, as its `runtimeConfig` is (S55).
    let meant: &[&str] = if step.default { &[] } else { &["IP", "MAC", "GATEWAY"] };
    let over: Vec<&str> = [("IP", &ip), ("MAC", &mac)].iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key).collect();
    let mut args = of_runtime.without(meant).without(&over);
    if !over.is_empty() && args.get("IgnoreUnknown").is_none() {
        args.push("IgnoreUnknown", "1");
    }
    for (key, value) in [("IP", ip), ("MAC", mac)] {
        if let Some(value) = value {
            args.push(key, &value);
        }
    }
    args
}

/// What the pod asked for and the network did not do (S20, S21, S29). Where the result tells of no interface, as none does before
/// 0.3.0, the kernel says which hardware address there is.
fn not_honoured(planned: &Planned, step: &Step, netns: &Netns, result: &AddResult) -> Option<CniError> {
    let selection = planned.source.selection()?;
    let mut result = Cow::Borrowed(result);
    if selection.mac.is_some() && !result.interfaces.iter().any(|i| !i.sandbox.is_empty() && !i.mac.is_empty()) {
        result.to_mut().interfaces.extend(interface_of(step, netns));
    }
    selection.not_honoured(&planned.list, &result).into_iter().next().map(CniError::from)
}

/// The interface that an attachment has in its namespace, if there is one.
fn interface_of(step: &Step, netns: &Netns) -> Option<Interface> {
    let link = netns.route(|netlink| netlink.link(step.ifname.as_str())).ok()?.ok()??;
    let (name, mac) = (step.ifname.to_string(), link.mac.as_ref()?.to_string());
    Some(Interface { name, mac, sandbox: netns.path().display().to_string(), ..Interface::default() })
}

/// The namespace's path, if it still is that namespace: after a reboot, or when the path was used again, it is not.
pub(crate) fn same_netns(record: &Record) -> Result<Option<PathBuf>, CniError> {
    let io = |e: String| CniError::new(Code::IO, e);
    if boot_id().map_err(|e| io(e.to_string()))? != record.boot {
        return Ok(None);
    }
    match Netns::open(&record.netns) {
        Ok(Some(netns)) if netns.id() == record.netns_id => {
            let same = record.netns_cookie.is_none() || netns.cookie().map_err(|e| io(e.to_string()))? == record.netns_cookie;
            Ok(same.then(|| record.netns.clone()))
        }
        Ok(_) | Err(NetnsError::NotANamespace { .. }) => Ok(None),
        Err(e) => Err(io(e.to_string())),
    }
}
