//! DELs that came while there was no agent: `netloom-cni` has kept them on disk, and told the runtime that they are done.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use attach::Spooled;
use cni::{CniArgs, CniError, Code};
use plugin::{Host, InHost};

use crate::call::{PodName, Sandbox};
use crate::log::Line;
use crate::{Agent, lock};

/// Which kept DELs are being carried out. A DEL of one pod waits for no other pod's.
#[derive(Debug, Default)]
pub(crate) struct Carrying {
    files: Mutex<HashSet<PathBuf>>,
    ended: Condvar,
}

/// A kept DEL that is carried out until this is dropped.
struct Carried<'a> {
    of: &'a Carrying,
    file: &'a Path,
}

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

    /// Each by one thread: what is carried out before an ADD must not be carried out after it once more.
    fn carry_out_kept(&self, kept: &Spooled, host: &mut Host) -> Result<(), String> {
        let _one = self.carrying.begin(kept.path());
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

// === impl Carrying ===

impl Carrying {
    /// Waits until nobody else carries out this one.
    fn begin<'a>(&'a self, file: &'a Path) -> Carried<'a> {
        let files = self.ended.wait_while(lock(&self.files), |files| files.contains(file));
        files.unwrap_or_else(PoisonError::into_inner).insert(file.to_owned());
        Carried { of: self, file }
    }
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        lock(&self.of.files).remove(self.file);
        self.of.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One lock for all was held over a whole DEL: an innocent ADD waited for the kept DELs of others.
    #[test]
    fn a_kept_del_waits_for_none_but_itself() {
        let (carrying, [a, b]) = (Carrying::default(), ["a.del", "b.del"].map(Path::new));
        let first = carrying.begin(a);
        drop(carrying.begin(b));
        std::thread::scope(|scope| {
            let again = scope.spawn(|| drop(carrying.begin(a)));
            assert_eq!(*lock(&carrying.files), HashSet::from([a.to_owned()]));
            drop(first);
            again.join().unwrap();
        });
        assert!(lock(&carrying.files).is_empty());
    }
}
