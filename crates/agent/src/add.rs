//! ADD: from the runtime's call to the pod's attachments.
//!
//! ```text
//!   pod (cache, else API) -> networks (cache, else API, disk) -> devices (kubelet, only where a definition needs one)
//!     -> attach::plan -> Attacher::add -> network-status -> the default network's result
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use attach::{
    Attacher, Claim, Devices, Lost, NodeOwn as _, Plan, PlanRequest, Planned, PodView, Protection, Record, Refusal, RoutedPod,
    Sandbox as Attached,
};
use cluster::{EventKind, Pod};
use cni::{AddResult, CniError, Code};
use linux::Link;
use plugin::{Host, PlannedChange};
use plugins::BUILTINS;

use crate::Agent;
use crate::addresses::NODE_GONE;
use crate::call::{Request, Sandbox};
use crate::events::Event;
use crate::networks::selects;
use crate::node_own::ThisNode;
use crate::pods::view;
use crate::provided;
use crate::report::Timings;
use crate::settings::{EventsTold, VifSource};
use crate::statuses::StatusWrite;

/// The reason of Events that tell of what is taken of the node's own.
const NODES_OWN: &str = "TakesTheNodesOwn";

impl Agent {
    /// Attaches a pod: the result for the runtime, which gets it when the status is written.
    pub(crate) fn add(
        &self,
        request: &Request,
        sandbox: &Sandbox,
        host: &mut Host,
        laps: &mut Timings,
    ) -> Result<(AddResult, StatusWrite), CniError> {
        let name = sandbox.pod.as_ref().ok_or_else(no_pod)?;
        self.before_add(sandbox, host)?;
        self.statuses.prepare();
        let pod = self.pod(name, request.by)?;
        laps.lap("pod");
        let view = view(&pod);
        let attached = self.plan_and_add(request, sandbox, &pod, &view, host, laps);
        self.tell_conflicts();
        let usable = attached.and_then(|record| match self.usable(request, &record) {
            Ok(result) => Ok((record, result)),
            Err(e) => Err(self.undo(request, sandbox, host, e)),
        });
        let (record, result) = usable.inspect_err(|e| {
            self.tell_owner(&pod, e);
            if !self.records.knows(&sandbox.container) {
                self.detached.note(&sandbox.container);
            }
        })?;
        let status = self.statuses.write(pod.reference(), self.status_of(&record), request.settings.status_wait);
        if self.settings.events == EventsTold::All {
            for added in attach::added_interfaces(&record) {
                self.event(&pod, EventKind::Normal, "AddedInterface", &added);
            }
        }
        Ok((result, status))
    }

    /// The result for the runtime, when other nodes reach the pod. An error if the version of the runtime's call cannot express it.
    fn usable(&self, request: &Request, record: &Record) -> Result<AddResult, CniError> {
        let first = record.steps.iter().find(|step| step.default).or(record.steps.first());
        let result = first.and_then(|step| step.result().cloned()).unwrap_or_default();
        result.print(request.config.version)?;
        let is_provided = first.is_some_and(|step| step.default && step.list.name.as_str() == provided::NAME);
        if let Some(provided) = self.provided.as_ref().filter(|_| is_provided) {
            provided.wait_for_way(&result, request.by)?;
        }
        Ok(result)
    }

    /// Takes back what a whole ADD has made that is not to stay; why not. It has time of its own: the ADD may have taken all that it had.
    fn undo(&self, request: &Request, sandbox: &Sandbox, host: &mut Host, e: CniError) -> CniError {
        let by = request.by.max(Instant::now() + chain::UNDO);
        let left = self.attacher(request).del(&sandbox.container, Lost::EveryAddress, host, by).err();
        e.and("its changes could not be undone: ", left.map(CniError::from))
    }

    fn plan_and_add(
        &self,
        request: &Request,
        sandbox: &Sandbox,
        pod: &Pod,
        view: &PodView,
        host: &mut Host,
        laps: &mut Timings,
    ) -> Result<Record, CniError> {
        if selects(&request.settings, view) {
            self.knows_cluster_addresses(request.by)?;
        }
        let mut known = self.known(&request.settings, view, request.by)?;
        laps.lap("networks");
        // A call that waits for ports holds all of this meanwhile.
        let is_waiting = self.settings.vifs.source != VifSource::Nowhere;
        let waiting = if is_waiting {
            Some(self.room.take(&pod.namespace, known.texts() + 3 * view.networks.as_ref().map_or(0, String::len))?)
        } else {
            None
        };
        let ports = self.ports_of(Some(request), pod, view, &mut known, host)?;
        drop(waiting);
        if self.settings.vifs.source != VifSource::Nowhere {
            laps.lap("vifs");
        }
        let need_devices = known.need_devices() || ports.need_devices();
        let devices = if request.settings.kubelet && need_devices { Some(self.devices(pod, request.by)?) } else { None };
        let asked = Rc::default();
        let own = self.this_node(host, known.given(), pod, &asked);
        let wanted = PlanRequest {
            devices: devices.as_ref(),
            runtime_config: request.config.raw().object("runtimeConfig"),
            admission: &request.settings.admission,
            own: Some(&own),
            bound: &ports.bound,
            ..PlanRequest::new(view, &sandbox.ifname, BUILTINS)
        };
        let mut plan = attach::plan(&wanted, &known).map_err(all)?;
        let parents = own.into_parents();
        let room = self.room.take(&pod.namespace, plan.memory(view))?;
        self.warn_of(pod, &plan);
        self.name_pools(pod, &mut plan, &host.dirs, request.by)?;
        laps.lap("plan");
        let attached = Attached {
            id: sandbox.container.clone(),
            netns: request.netns.clone(),
            opened: None,
            args: request.args.clone(),
            pod: view.clone(),
        };
        // Before its record is there, a DEL finds nothing; after it, a DEL stops it. Whoever sends one has ended our caller.
        self.is_waited_for(request)?;
        let foreseen = self.reserve_hint(sandbox.container.as_str(), &plan);
        let mut told = BTreeSet::new();
        let mut claim = self.routed_pods.claim();
        let mut keep_own = |planned: &Planned, plugin: usize, foreseen: PlannedChange<'_>, host: &mut Host| match foreseen {
            PlannedChange::Parent(link) if parents.contains(&link.index) => Ok(()),
            PlannedChange::Moved(link) if devices.is_some() && is_planned(planned, link) => Ok(()),
            PlannedChange::Result(result) => {
                let number = claim_result(&mut claim, pod, planned, result);
                let node = |host| self.this_node(host, known.given(), pod, &asked);
                self.keep_own(pod, planned, plugin, foreseen, || node(host).claimed_before(number), &mut told)?;
                if planned.protection > Protection::Off {
                    self.keep_guards(request, pod, &plan, planned, || self.this_node(host, known.given(), pod, &asked))?;
                }
                Ok(())
            }
            _ => self.keep_own(pod, planned, plugin, foreseen, || self.this_node(host, known.given(), pod, &asked), &mut told),
        };
        let added = self.attacher(request).add_checked(&attached, &plan, host, request.by, &mut keep_own);
        let record = added.map_err(|e| self.with_holder(CniError::from(e)))?;
        drop((foreseen, plan, claim));
        laps.lap("attach");
        let is_up = self.is_waited_for(request).and_then(|()| self.until_active(request, pod, &ports));
        if self.settings.vifs.source != VifSource::Nowhere {
            laps.lap("active");
        }
        drop(room);
        if let Err(e) = is_up {
            linux::crash_point!("add-unplugging");
            return Err(self.undo(request, sandbox, host, e));
        }
        Ok(record)
    }

    fn warn_of(&self, pod: &Pod, plan: &Plan) {
        for taken in &plan.taken {
            self.event(pod, EventKind::Warning, NODES_OWN, &taken.to_string());
        }
        for warning in &plan.warnings {
            self.event(pod, EventKind::Warning, "InvalidAnnotation", &warning.to_string());
        }
    }

    /// Which addresses a network gives, only the result of its plugins tells for certain, and which link a name means, only its use: neither
    /// they nor the host's routes to them are the node's own. `own`: the node, made only for networks that are held against it; `told`:
    /// what an Event has said already.
    fn keep_own<'n>(
        &self,
        pod: &Pod,
        planned: &Planned,
        plugin: usize,
        foreseen: PlannedChange<'_>,
        own: impl FnOnce() -> ThisNode<'n>,
        told: &mut BTreeSet<String>,
    ) -> Result<(), CniError> {
        let Some(selection) = planned.source.selection().filter(|_| planned.protection > Protection::Off) else { return Ok(()) };
        let own = own();
        let is_owners = planned.is_on_disk || own.is_default_network(&selection.definition);
        let all = match foreseen {
            PlannedChange::Result(result) => attach::taken_by_result(&planned.list, plugin, result, is_owners, BUILTINS, &own),
            // What the node's own configuration names is its owner's choice.
            _ if is_owners => Vec::new(),
            // An Event has said so of the link of that name.
            PlannedChange::Moved(_) | PlannedChange::Parent(_) | PlannedChange::Mtu(..) if planned.protection == Protection::Warn => {
                Vec::new()
            }
            foreseen => own.taken_by_use(foreseen).into_iter().collect(),
        };
        for what in all {
            let error = CniError::from(attach::protected(&selection.definition, what));
            if planned.protection == Protection::On {
                return Err(error);
            }
            let error = error.within(format!("network {selection}")).to_string();
            if told.insert(error.clone()) {
                self.event(pod, EventKind::Warning, NODES_OWN, &error);
            }
        }
        Ok(())
    }

    /// What an external plugin has made is no way past the guards of the default network's bridge.
    fn keep_guards<'n>(
        &self,
        request: &Request,
        pod: &Pod,
        plan: &Plan,
        planned: &Planned,
        own: impl FnOnce() -> ThisNode<'n>,
    ) -> Result<(), CniError> {
        let Some(selection) = planned.source.selection().filter(|_| !planned.is_on_disk) else { return Ok(()) };
        if self.chain_of(request).is_builtin(&planned.list) {
            return Ok(());
        }
        let others = plan.attachments.iter().map(|other| other.ifname.as_str()).filter(|name| *name != planned.ifname.as_str());
        let own = own();
        if own.is_default_network(&selection.definition) {
            return Ok(());
        }
        let Some(what) = own.past_guards(&request.netns, &others.collect()) else { return Ok(()) };
        let what = format!("the pod got the interface {what}");
        let error = CniError::from(attach::protected(&selection.definition, what));
        if planned.protection == Protection::On {
            return Err(error);
        }
        self.event(pod, EventKind::Warning, NODES_OWN, &error.within(format!("network {selection}")).to_string());
        Ok(())
    }

    /// An ADD that nobody hears the end of is not to be there: the sandbox may have been deleted while it was planned.
    pub(crate) fn is_waited_for(&self, request: &Request) -> Result<(), CniError> {
        let gone =
            || CniError::new(Code::TRY_AGAIN_LATER, "the caller closed the connection: the ADD was cancelled and its changes undone");
        if request.exec.is_waited_for() { Ok(()) } else { Err(gone()) }
    }

    /// Runs chains for this call: what is external is executed by who called.
    pub(crate) fn attacher(&self, request: &Request) -> Attacher {
        Attacher::new(self.chain_of(request), self.records.clone())
    }

    /// The devices that the kubelet gave the pod.
    fn devices(&self, pod: &Pod, by: Instant) -> Result<Devices, CniError> {
        let asked = async { self.cluster.devices(pod, Path::new("/")).await };
        let limit = by.saturating_duration_since(Instant::now());
        let late = || CniError::new(Code::TRY_AGAIN_LATER, "the kubelet did not report the pod's devices in time");
        let held = self.runtime.block_on(async { tokio::time::timeout(limit, asked).await }).map_err(|_| late())?;
        Ok(Devices::new(held.map_err(|e| CniError::new(Code::TRY_AGAIN_LATER, e.to_string()))?))
    }

    /// The annotation `network-status` of a record.
    pub(crate) fn status_of(&self, record: &Record) -> String {
        npwg::to_json(&attach::network_status(record, self.settings.status_ips))
    }

    /// What the pod's owner can mend is an Event: a configuration or an annotation that is wrong, or not allowed. What is
    /// the node's or the cluster's own trouble is for its operator, who has the log and the kubelet's own Event.
    fn tell_owner(&self, pod: &Pod, e: &CniError) {
        let reason = match e.code {
            Code::INVALID_CONFIG | Code::UNSUPPORTED_FIELD | Code::INCOMPATIBLE_VERSION => "InvalidNetworks",
            Code::TRY_AGAIN_LATER if e.msg.contains(NODE_GONE) => "NodeGone",
            Code::TRY_AGAIN_LATER if e.msg.contains("Neutron port") => "NeutronPortNotReady",
            // Before what it is short of: these words have a range's name where that is the pool.
            Code::TRY_AGAIN_LATER if e.msg.contains("is not granted to this node (yet)") => "PoolNotHere",
            Code::TRY_AGAIN_LATER if e.msg.contains("range") || on_this_node(e) => "AddressesExhausted",
            _ => return,
        };
        self.event(pod, EventKind::Warning, reason, &e.to_string());
    }

    /// Sends an Event without waiting for it.
    pub(crate) fn event(&self, pod: &Pod, kind: EventKind, reason: &'static str, message: &str) {
        self.events.tell(Event { pod: pod.reference(), kind, reason, message: message.to_owned() });
    }
}

fn no_pod() -> CniError {
    let msg = "CNI_ARGS does not name a pod (K8S_POD_NAMESPACE and K8S_POD_NAME): the agent attaches only pods of a cluster";
    CniError::new(Code::INVALID_ENVIRONMENT, msg).with_details("for a container without Kubernetes, list its networks in \"delegates\"")
}

/// Everything that is wrong, in one error. A definition that cannot be decoded is an invalid network for who called: code 6
/// is of what he has sent himself.
pub(crate) fn all(refusals: Vec<Refusal>) -> CniError {
    let code = |e: CniError| if e.code == Code::DECODE { CniError { code: Code::INVALID_CONFIG, ..e } } else { e };
    CniError::first_of(refusals.into_iter().map(CniError::from).map(code))
        .unwrap_or_else(|| CniError::new(Code::INTERNAL, "no plan, and no reason"))
}

/// Claims what the host is to route to a pod by the result of a network that it selected. The number says who has claimed before.
fn claim_result(claim: &mut Claim<'_>, pod: &Pod, planned: &Planned, result: &AddResult) -> u64 {
    let of_selection = || {
        let pod = format!("{}/{}", pod.namespace, pod.name);
        RoutedPod::of_result(&pod, &planned.name(), &planned.list, result, BUILTINS)
    };
    let pods = planned.source.selection().map(|_| of_selection()).unwrap_or_default();
    claim.hold(&planned.ifname, pods)
}

/// Whether a link is the interface of the device that an attachment is to get. Where the kubelet gave that to the pod, it is the pod's.
fn is_planned(planned: &Planned, link: &Link) -> bool {
    planned.device.as_ref().is_some_and(|device| ThisNode::is_of_device(link, &device.id))
}

/// Whether a pool of this node is short of addresses.
fn on_this_node(e: &CniError) -> bool {
    [" address on this node", " address left on this node"].iter().any(|words| e.msg.contains(words))
}
