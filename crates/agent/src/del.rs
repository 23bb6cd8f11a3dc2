//! DEL, and what else unmakes a sandbox: from its record alone. Without one, from what the runtime, Multus or kuryr-cni has left, else from
//! what the pod selects; what a record that cannot be read does not tell, its container's ID tells in part.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use attach::{DelError, Lost, PlanRequest, Retired};
use cni::{CniError, ContainerId};
use plugin::Host;
use plugins::BUILTINS;

use crate::call::{Request, Sandbox};
use crate::log::Line;
use crate::pods::view;
use crate::report::Timings;
use crate::settings::{Teardown, VifSource};
use crate::{Agent, lock};

impl Agent {
    pub(crate) fn del(&self, request: &Request, sandbox: &Sandbox, host: &mut Host, laps: &mut Timings) -> Result<(), CniError> {
        let known = self.records.knows(&sandbox.container);
        let mut done = self.detach(request, &sandbox.container, host);
        if let Err(e) = &mut done
            && self.records.is_unreadable(&sandbox.container)
        {
            let freed = self.attacher(request).free_known(&sandbox.container, netns_of(request), host, request.by);
            e.errors.extend(freed.err().into_iter().flat_map(|e| e.errors));
        }
        let mut done = done.map_err(CniError::from);
        if !known && done.is_ok() {
            done = self.detach_unrecorded(request, sandbox, host);
        }
        laps.lap("detach");
        done
    }

    /// What others have attached of a sandbox that has no record: the runtime itself, Multus or kuryr-cni.
    fn detach_unrecorded(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<(), CniError> {
        if self.detach_strangers(request, sandbox, host)? || self.detached.has(&sandbox.container) {
            return Ok(());
        }
        if self.settings.vifs.source != VifSource::Nowhere && self.unplug_of_kuryr(request, sandbox, host)? {
            self.detached.note(&sandbox.container);
        } else {
            self.detach_planned(request, sandbox, host);
        }
        Ok(())
    }

    /// What the pod selects today is unmade for a sandbox of which nobody has kept anything, as Multus does where the pod is still
    /// there. The API server is asked for nothing. Most likely there is nothing: what fails is told in the log alone. A sandbox that
    /// was detached here a moment ago, or whose ADD failed, has nothing any more.
    fn detach_planned(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) {
        let name = sandbox.pod.as_ref();
        let pod = name.and_then(|name| self.cluster.pod(&name.namespace, &name.name).filter(|pod| name.is(pod) && pod.is_whole));
        let Some(pod) = pod else { return };
        let view = view(&pod);
        // What is not at hand is not waited for.
        let Ok(known) = self.known(&request.settings, &view, Instant::now()) else { return };
        let asked = PlanRequest { admission: &request.settings.admission, ..PlanRequest::new(&view, &sandbox.ifname, BUILTINS) };
        let Ok(plan) = attach::plan(&asked, &known) else { return };
        if let Err(e) = self.attacher(request).del_planned(&sandbox.container, &plan, netns_of(request), host, request.by) {
            let what = "it has no record; detaching what its pod selects";
            Line::warn("unrecorded").with("container", &sandbox.container).with("what", what).with("error", e).end();
        }
        self.detached.note(&sandbox.container);
    }

    /// Detaches a sandbox, so far as the runtime has to wait for it: links are down and belong to nobody any more. That they
    /// and the addresses go follows, unless the settings say that the runtime waits.
    pub(crate) fn detach(&self, request: &Request, sandbox: &ContainerId, host: &mut Host) -> Result<(), DelError> {
        let (attacher, known) = (self.attacher(request), self.records.knows(sandbox));
        // All networks of a pod are ours: what a record that was lost in a power cut had named belongs to nobody else.
        let lost = Lost::EveryAddress;
        match request.settings.teardown {
            Teardown::Wait => attacher.del(sandbox, lost, host, request.by)?,
            Teardown::Deferred => match attacher.retire(sandbox, lost, host, request.by)? {
                Retired::Gone => {}
                Retired::Later => self.retired.push(sandbox.clone()),
            },
        }
        if known {
            self.detached.note(sandbox);
        }
        Ok(())
    }
}

/// The namespace that the runtime names, if it does.
fn netns_of(request: &Request) -> Option<&Path> {
    Some(request.netns.as_path()).filter(|path| !path.as_os_str().is_empty())
}

/// The sandboxes that were detached last, or whose ADD failed, from the oldest on: a kubelet sends a further DEL for each.
#[derive(Default)]
pub(crate) struct Detached(Mutex<VecDeque<ContainerId>>);

/// The most of them.
const DETACHED: usize = 512;

// === impl Detached ===

impl Detached {
    pub(crate) fn note(&self, sandbox: &ContainerId) {
        let mut all = lock(&self.0);
        all.push_back(sandbox.clone());
        if all.len() > DETACHED {
            all.pop_front();
        }
    }

    fn has(&self, sandbox: &ContainerId) -> bool {
        lock(&self.0).contains(sandbox)
    }
}
