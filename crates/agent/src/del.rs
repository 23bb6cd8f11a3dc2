//! DEL, and what else unmakes a sandbox: from its record alone.

use attach::{DelError, Lost, Retired};
use cni::{CniError, ContainerId};
use plugin::Host;

use crate::Agent;
use crate::call::{Request, Sandbox};
use crate::report::Laps;
use crate::settings::Teardown;

impl Agent {
    pub(crate) fn del(&self, request: &Request, sandbox: &Sandbox, host: &mut Host, laps: &mut Laps) -> Result<(), CniError> {
        let known = self.records.knows(&sandbox.container);
        let mut done = self.detach(request, &sandbox.container, host).map_err(CniError::from);
        if !known && done.is_ok() {
            done = self.detach_strangers(request, sandbox, host);
        }
        laps.lap("detach");
        done
    }

    /// Detaches a sandbox, so far as the runtime has to wait for it: links are down and belong to nobody any more. That they
    /// and the addresses go follows, unless the settings say that the runtime waits.
    pub(crate) fn detach(&self, request: &Request, sandbox: &ContainerId, host: &mut Host) -> Result<(), DelError> {
        let attacher = self.attacher(request);
        // All networks of a pod are ours: what a record that was lost in a power cut had named belongs to nobody else.
        let lost = Lost::EveryAddress;
        match request.settings.teardown {
            Teardown::Wait => attacher.del(sandbox, lost, host, request.by),
            Teardown::Deferred => match attacher.retire(sandbox, lost, host, request.by)? {
                Retired::Gone => Ok(()),
                Retired::Later => {
                    self.retired.push(sandbox.clone());
                    Ok(())
                }
            },
        }
    }
}
