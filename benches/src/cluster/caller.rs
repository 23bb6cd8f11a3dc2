//! The two that are compared, as a runtime calls them: a pod's four networks through the agent, and one network by the
//! reference plugins.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::agent::Agent;
use super::plane::Pod;
use crate::namespace::Namespace;
use crate::network::Verb;
use crate::side::{Job, plugin_job};

/// One side.
pub(crate) struct Caller<'a> {
    /// The namespace that stands for its host.
    pub(crate) host: &'a Namespace,
    /// The directory of its executables, and which of them the runtime's configuration names.
    pub(crate) plugins: &'a Path,
    pub(crate) plugin: &'a str,
    pub(crate) config: Value,
    /// Whose containers are attached, by their numbers.
    pub(crate) pods: &'a [Pod],
}

/// Many calls at once: each one's time, and from the first start to the last end.
#[derive(Debug, Clone)]
pub(crate) struct Crowd {
    pub(crate) each: Vec<Duration>,
    pub(crate) all: Duration,
}

// === impl Caller ===

impl<'a> Caller<'a> {
    /// As a runtime calls an agent.
    pub(crate) fn of_agent(host: &'a Namespace, plugins: &'a Path, agent: &Agent, pods: &'a [Pod]) -> Self {
        let config = json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom", "agent": agent.socket()});
        Caller { host, plugins, plugin: "netloom", config, pods }
    }
}

impl Caller<'_> {
    /// One call. What is timed is the process, from before its fork until it is gone.
    pub(crate) fn call(&self, verb: Verb, container: &Namespace, number: usize) -> Result<Duration> {
        self.host.enter(|| self.here(verb, container, number))
    }

    fn here(&self, verb: Verb, container: &Namespace, number: usize) -> Result<Duration> {
        self.job(verb, container, self.pods.get(number)).run(verb)
    }

    /// The call of a pod's container.
    pub(crate) fn job(&self, verb: Verb, container: &Namespace, pod: Option<&Pod>) -> Job {
        let mut job = plugin_job(self.plugins, self.plugin, verb, container, "eth0", &self.config);
        if let Some(Pod { namespace, name, uid }) = pod {
            let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}");
            job.env.push(("CNI_ARGS".to_owned(), args));
        }
        job
    }

    /// Makes one call for each container, from this number of callers.
    pub(crate) fn crowd(&self, verb: Verb, containers: &[Namespace], callers: usize) -> Result<Crowd> {
        at_once(self.host, containers, callers, |container, number| self.here(verb, container, number))
    }
}

/// Makes one call for each container, from this number of callers in the namespace of a host. A caller takes the next container that no other
/// caller has taken. A call returns its own time.
pub(crate) fn at_once(
    host: &Namespace,
    containers: &[Namespace],
    callers: usize,
    call: impl Fn(&Namespace, usize) -> Result<Duration> + Sync,
) -> Result<Crowd> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let start = Instant::now();
    let work = || {
        let mut times = Vec::new();
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(container) = containers.get(number) else { return Ok(times) };
            times.push(call(container, number)?);
        }
    };
    let each = thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(|| host.enter(work))).collect();
        let done = callers.into_iter().map(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?);
        done.collect::<Result<Vec<Vec<Duration>>>>()
    })?;
    Ok(Crowd { each: each.concat(), all: start.elapsed() })
}
