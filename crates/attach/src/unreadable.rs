//! A sandbox whose record cannot be read, or was never written: what is provably its own all the same.
//!
//! ```text
//!   the namespace that the runtime names     every link in it but lo goes down: what had the addresses answers for them no more
//!   rules whose comment has the container    host ports, masquerade, ...: gone
//!   addresses whose holder is the container  free
//! ```

use std::path::Path;
use std::time::Instant;

use cni::{CniError, Code, ContainerId};
use linux::link::{self, Change};
use linux::{Batch, Errno, Netlink};
use plugin::{Host, Teardown};

use crate::execute::{busy, unremembered};
use crate::{Attacher, DelError, Plan};

impl Attacher {
    /// Frees what a sandbox has, of whatever network, and leaves its record as it is: for a DEL of a record that cannot be read.
    /// `netns`: the sandbox's namespace, where the runtime names one that is still there.
    ///
    /// # Errors
    /// [`DelError`] with what failed; it can be repeated.
    pub fn free_known(&self, sandbox: &ContainerId, netns: Option<&Path>, host: &mut Host, by: Instant) -> Result<(), DelError> {
        // Where links may still be up, their addresses are nobody else's.
        netns.map_or(Ok(()), quiet)?;
        let mut teardown = Teardown::new();
        let found = rules::of_container(host.nft()?, sandbox).map_err(|e| CniError::new(Code::INTERNAL, e.to_string()))?;
        teardown.elements(found);
        let mut errors = teardown.commit(host).err().unwrap_or_default();
        errors.extend(ipam::release_container(&host.dirs.addresses, sandbox, by).err().map(CniError::from));
        if errors.is_empty() { Ok(()) } else { Err(DelError { errors }) }
    }

    /// Unmakes what a plan would make, for a sandbox that has no record: what somebody else has attached, or what was left when the
    /// record went. Of what is inside of `netns`, the namespace that the runtime names, only the links go down, before an address of
    /// theirs is somebody else's: the rest goes with it.
    ///
    /// # Errors
    /// [`DelError`] with everything that failed.
    pub fn del_planned(
        &self,
        sandbox: &ContainerId,
        plan: &Plan,
        netns: Option<&Path>,
        host: &mut Host,
        by: Instant,
    ) -> Result<(), DelError> {
        let _lock = self.records.lock_to_remove(sandbox, by).map_err(|e| busy(e, self.records.tombstone_of(sandbox).is_some()))?;
        // An ADD that came meanwhile has its own DEL.
        if self.records.read(sandbox).map_err(CniError::from)?.is_none() {
            let quiet = netns.map_or(Ok(()), quiet);
            self.undo(&unremembered(sandbox, plan, &host.dirs.devices, &self.chain)?, host, by)?;
            quiet?;
        }
        self.forget(sandbox)
    }
}

/// Takes the links of a namespace down.
fn quiet(netns: &Path) -> Result<(), CniError> {
    // It is gone, and its links with it.
    let Ok(netns) = chain::open_netns(netns) else { return Ok(()) };
    let failed = |e: String| CniError::new(Code::INTERNAL, format!("take the links of {} down: {e}", netns.path().display()));
    let work = |inside: &linux::Inside| -> Result<(), String> {
        let mut netlink = Netlink::open(inside).map_err(|e| e.to_string())?;
        let mut batch = Batch::new();
        for link in netlink.links().map_err(|e| e.to_string())?.iter().filter(|link| !link.flags.loopback() && link.flags.up()) {
            let down = link::set(link.index, &Change { up: Some(false), ..Change::default() });
            batch.push(down.tolerate(Errno::ENODEV).called(format!("take {} down", link.name)));
        }
        if batch.is_empty() { Ok(()) } else { netlink.send(batch).map(drop).map_err(|e| e.to_string()) }
    };
    netns.enter(work).map_err(|e| failed(e.to_string()))?.map_err(failed)
}
