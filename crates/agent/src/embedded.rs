//! An agent inside another program: no socket, no signals, nothing that goes on by itself.
//!
//! ```text
//!   caller's thread --Call, Host, Exec--> Agent::answer --> the kernel
//!                                             |
//!                                   a thread of its own <--> client: an embedded store, or an API server
//! ```
//!
//! Nobody compares records with the kernel and nobody finishes what a DEL has retired: who embeds the agent sets
//! `teardown` to [`Wait`](crate::settings::Teardown::Wait), and reads records itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::Connection;
use ipnet::IpNet;
use plugin::{Dirs, Exec, Host};
use tokio::sync::oneshot;
use wire::{Answer, Call};

use crate::{Agent, Settings, log};

/// Between two looks whether all Events were told.
const LOOK: Duration = Duration::from_micros(200);

/// An agent that is called in this process. It ends when it is dropped.
pub struct Embedded {
    agent: Arc<Agent>,
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

// === impl Embedded ===

impl Embedded {
    /// Starts an agent. `connect` is called inside the asynchronous runtime, which the client of an embedded store needs. Level and
    /// format of the settings' log hold for the whole process.
    ///
    /// # Errors
    /// If the kernel refuses a thread or its descriptors, or another process has the addresses of pools.
    pub fn start(settings: Settings, connect: impl FnOnce() -> Connection) -> std::io::Result<Self> {
        log::set(settings.log_level, settings.log_format);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let agent = {
            let _inside = runtime.enter();
            let agent = Agent::start(settings, connect()).map_err(|e| std::io::Error::other(e.to_string()))?;
            // Each caller has a thread of its own: nobody need stand in for who waits.
            crate::addresses::follow(&agent, |_| {});
            agent
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move || drop(runtime.block_on(stopped));
        let thread = std::thread::Builder::new().name("api".to_owned()).spawn(work)?;
        Ok(Embedded { agent, stop: Some(stop), thread: Some(thread) })
    }

    /// Serves one call on this thread, in the network namespace that it is in: that is the node's. External plugins are
    /// executed by `exec`.
    pub fn call(&self, call: &Call, host: &mut Host, exec: Arc<dyn Exec>) -> Answer {
        self.agent.answer(call, host, exec)
    }

    /// Makes the node's part of the cluster's network, where the settings provide it: on this thread, in the network namespace that it is in.
    /// Nobody keeps it afterwards, but who calls [`Embedded::keep`]. What this node's pods lack of it, and what is wrong with other nodes or with ranges.
    pub fn provide(&self, dirs: Dirs, within: Duration) -> BTreeSet<String> {
        let provided = self.agent.provided.as_ref();
        provided.map(|provided| crate::provided::once(&self.agent, provided, dirs, within)).unwrap_or_default()
    }

    /// Waits until every Node announces a WireGuard key, as far as this agent knows; its own one does after a first
    /// [`Embedded::provide`]. Whether they do in time.
    pub fn knows_keys(&self, within: Duration) -> bool {
        settled(within, || self.agent.provided.as_ref().is_none_or(crate::provided::Provided::knows_keys))
    }

    /// Keeps the node's part of the cluster's network, and pods' firewall entries, from now on, as an agent of its own process does: in the network namespace that this
    /// thread is in, for as long as the process lives.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn keep(&self, dirs: Dirs) -> std::io::Result<()> {
        crate::firewall::watch(&self.agent, dirs.clone())?;
        crate::provided::start(&self.agent, dirs)
    }

    /// Whether pods get addresses of exactly these ranges now, where the settings provide the network.
    pub fn has_ranges(&self, ranges: &[IpNet]) -> bool {
        self.agent.provided.as_ref().is_none_or(|provided| provided.has_ranges(ranges))
    }

    /// Waits until the caches have what the API server has, so that a call asks it for nothing but what is new. Whether they have
    /// it in time.
    pub fn synced(&self, within: Duration) -> bool {
        settled(within, || self.agent.cluster.synced().complete())
    }

    /// Whether the cache has a pod, so that a call for it asks the API server for nothing. Never waits.
    pub fn knows(&self, namespace: &str, name: &str) -> bool {
        self.agent.cluster.pod(namespace, name).is_some()
    }

    /// One look at addresses that are kept for attachments of others, as reconciling takes it; how many are given back by it.
    pub fn return_kept(&self) -> usize {
        self.agent.return_kept()
    }

    /// What the node's `CiliumNode` lacks before pods get addresses of it, if that is where they come from.
    pub fn waits_for(&self) -> Option<String> {
        self.agent.waits.why()
    }

    /// Waits until every Event is told and every status written. Whether they are in time.
    pub fn told(&self, within: Duration) -> bool {
        settled(within, || self.agent.events.is_idle() && self.agent.statuses.waiting().is_empty())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It can only have panicked, which it has said.
            drop(thread.join());
        }
    }
}

fn settled(within: Duration, is: impl Fn() -> bool) -> bool {
    let until = Instant::now() + within;
    while !is() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
