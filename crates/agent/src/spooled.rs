//! DELs that came while there was no agent: `netloom-cni` has kept them on disk, and told the runtime that they are done.

use std::sync::Arc;

use attach::Spooled;
use cni::{CniArgs, CniError, Code};
use plugin::{Host, InHost};

use crate::call::{PodName, Sandbox};
use crate::log::Line;
use crate::{Agent, lock};

impl Agent {
    /// Carries out the DELs that are kept for an attachment, before an ADD of it, and for former sandboxes of its pod: they have what the
    /// new one asks for, its addresses and its ports at Neutron. One of another sandbox that fails fails no ADD.
    pub(crate) fn before_add(&self, sandbox: &Sandbox, host: &mut Host) -> Result<(), CniError> {
        let place = "the DEL that was stored for this container while the agent was down";
        let failed = |e: String| CniError::new(Code::TRY_AGAIN_LATER, format!("{place}: {e}"));
        match self.spool.find(&sandbox.container, &sandbox.ifname) {
            Ok(None) => {}
            Ok(Some(kept)) => self.carry_out_kept(&kept, host).map_err(failed)?,
            Err(e) => return Err(failed(e.to_string())),
        }
        self.carry_out_those(host, |kept| match (PodName::of(&CniArgs::read(&kept.call.args)), &sandbox.pod) {
            (Some(of), Some(pod)) => (&of.namespace, &of.name) == (&pod.namespace, &pod.name),
            _ => false,
        });
        Ok(())
    }

    /// Carries out everything that is kept. What fails stays, and is tried again.
    pub(crate) fn carry_out_all_kept(&self, host: &mut Host) {
        self.carry_out_those(host, |_| true);
    }

    fn carry_out_those(&self, host: &mut Host, is_wanted: impl Fn(&Spooled) -> bool) {
        let files = match self.spool.files() {
            Ok(files) => files,
            Err(e) => return Line::error("spool").with("error", e).end(),
        };
        for file in files {
            let done = match self.spool.read(&file) {
                Ok(Some(kept)) if is_wanted(&kept) => self.carry_out_kept(&kept, host),
                Ok(_) => continue,
                Err(e) => Err(e.to_string()),
            };
            if let Err(e) = done {
                Line::warn("spool").with("file", file.display()).with("error", e).end();
            }
        }
    }

    /// One at a time: what is carried out before an ADD must not be carried out after it once more.
    fn carry_out_kept(&self, kept: &Spooled, host: &mut Host) -> Result<(), String> {
        let _one = lock(&self.carrying);
        if self.spool.read(kept.path()).map_err(|e| e.to_string())?.as_ref() != Some(kept) {
            return Ok(());
        }
        let answer = self.answer(&kept.call, host, Arc::new(InHost));
        if answer.exit != 0 {
            return Err(CniError::parse(&answer.stdout).map_or_else(|| "it failed".to_owned(), |e| e.to_string()));
        }
        linux::crash_point!("agent-spooled-done");
        self.spool.done(kept).map_err(|e| e.to_string())
    }
}
