//! Pods that were attached before us, by the runtime itself or by Multus: their DELs come to us, and we have no record. What kuryr-cni has
//! plugged: `vifs/kuryr_cni.rs`.
//!
//! ```text
//!   runtime   ADD of network "pods"     -> /var/lib/cni/results/pods-CONTAINER-eth0           configuration, arguments, result
//!   Multus    ADD of each of its networks -> /var/lib/cni/multus/results/NETWORK-CONTAINER-IFNAME, and .../multus/CONTAINER
//!   agent     DEL of CONTAINER, no record -> the DEL of what is there, with what is there
//! ```
//!
//! The runtime itself looks its file up by the name of the network that it is configured with, which is ours now; without
//! this the pod's addresses would stay held for ever.

use std::path::Path;

use chain::{Cache, Cached, Chain, Runtime};
use cni::{CniError, Code, NetworkList};
use plugin::Host;

use crate::Agent;
use crate::call::{Request, Sandbox};
use crate::log::Line;
use crate::vifs::is_kuryr_list;

/// Where runtimes keep what they have attached, and where Multus does.
pub(crate) const RUNTIMES: &str = "/var/lib/cni";
pub(crate) const MULTUS: &str = "multus";

/// What somebody else has attached of a pod.
pub(crate) struct ForeignPod {
    /// Who has kept it: `Multus`, or `the runtime`.
    pub(crate) by: &'static str,
    /// What was kept.
    pub(crate) cached: Cached,
}

impl Agent {
    /// What others have attached of a pod in this boot, as far as they have kept it.
    pub(crate) fn strangers_of(&self, namespace: &str, name: &str) -> Vec<ForeignPod> {
        let runtimes = self.settings.plugin_state_dir.as_deref().unwrap_or(Path::new(RUNTIMES));
        let is_of = |cached: &Cached| {
            cached.args.get("K8S_POD_NAMESPACE") == Some(namespace)
                && cached.args.get("K8S_POD_NAME") == Some(name)
                && cached.id.ifname.as_str() != "lo"
        };
        let of = |by, dir: &Path| {
            let (found, _) = Cache::new(dir).of_this_boot();
            found.into_iter().filter(is_of).map(move |cached| ForeignPod { by, cached }).collect::<Vec<_>>()
        };
        of("Multus", &runtimes.join(MULTUS)).into_iter().chain(of("the runtime", runtimes)).collect()
    }

    /// Detaches what somebody else has attached of a sandbox that has no record; whether there was anything. Where there is nothing,
    /// it costs a look into two directories.
    ///
    /// # Errors
    /// Those of the networks; what could not be detached is still there for the next DEL.
    pub(crate) fn detach_strangers(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<bool, CniError> {
        let runtimes = request.settings.plugin_state_dir.as_deref().unwrap_or(Path::new(RUNTIMES));
        let (mut errors, mut any) = (Vec::new(), false);
        for dir in [runtimes.join(MULTUS), runtimes.to_owned()] {
            let cache = Cache::new(&dir);
            let (found, unreadable) = cache.of_container(&sandbox.container);
            errors.extend(unreadable.into_iter().map(CniError::from));
            // What the runtime keeps of its calls to us is its own business; so are its other interfaces, `lo` above all.
            let is_ours = |cached: &Cached| cached.id.network == request.config.network;
            let is_other = |cached: &Cached| dir == runtimes && cached.id.ifname != sandbox.ifname;
            for cached in found.into_iter().rev().filter(|cached| !is_ours(cached) && !is_other(cached)) {
                any = true;
                let done = self.detach_stranger(request, sandbox, (&cache, &cached), host);
                errors.extend(done.err().map(|e| e.within(cached.id.network.as_str())));
            }
        }
        if errors.is_empty() {
            // What Multus has noted of the container besides: its own DEL, which will not come, would take it away.
            drop(std::fs::remove_file(runtimes.join(MULTUS).join(sandbox.container.as_str())));
        }
        CniError::first_of(errors).map_or(Ok(any), Err)
    }

    fn detach_stranger(
        &self,
        request: &Request,
        sandbox: &Sandbox,
        (cache, cached): (&Cache, &Cached),
        host: &mut Host,
    ) -> Result<(), CniError> {
        let list = NetworkList::parse(&cached.config, Some(&cached.id.network)).map_err(|e| {
            let path = cache.path(&cached.id);
            CniError::new(Code::DECODE, format!("{}: {e}; inspect and remove it", path.display()))
        })?;
        // kuryr-cni asks a daemon that is gone where this agent is installed.
        if is_kuryr_list(&list) {
            self.unplug_of_kuryr(request, sandbox, host)?;
            return cache.remove(&cached.id).map_err(CniError::from);
        }
        let chain = Chain::new(self.finder(request), Some(cache.clone()));
        let runtime = Runtime {
            container: cached.id.container.clone(),
            ifname: cached.id.ifname.clone(),
            netns: Some(request.netns.clone()).filter(|path| !path.as_os_str().is_empty()),
            args: cached.args.clone(),
            capability_args: cached.capability_args.clone(),
        };
        // It forgets the cached result last.
        chain.del(&list, &runtime, host, request.by)?;
        Line::info("stranger")
            .with("container", &cached.id.container)
            .with("network", &cached.id.network)
            .with("what", "detached: it was attached before this agent was installed")
            .end();
        Ok(())
    }
}
