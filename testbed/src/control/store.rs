//! What etcd has, kept and put back: as who keeps copies of a cluster, and needs one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{ControlPlane, ENDING, start_etcd};
use crate::den::printed;

// === impl ControlPlane ===

impl ControlPlane {
    /// Keeps what etcd has now, for [`ControlPlane::put_back`]. API server and etcd are away meanwhile.
    ///
    /// # Errors
    /// If it cannot be copied, or one of them does not start again.
    pub fn keep(&mut self) -> Result<()> {
        let (there, kept) = (self.data(), self.kept());
        self.still(|| copy(&there, &kept))?;
        self.start_api()
    }

    /// Makes etcd what it was at [`ControlPlane::keep`]. The API server does not run then: [`ControlPlane::start_api`] starts it.
    ///
    /// # Errors
    /// If nothing was kept, or etcd does not start again.
    pub fn put_back(&mut self) -> Result<()> {
        let (there, kept) = (self.data(), self.kept());
        self.still(|| {
            std::fs::metadata(&kept).with_context(|| format!("{} was not kept", kept.display()))?;
            std::fs::remove_dir_all(&there).with_context(|| format!("{} cannot be removed", there.display()))?;
            copy(&kept, &there)
        })
    }

    /// Does something while nobody writes.
    fn still(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.stop_api()?;
        self.etcd.stop(ENDING)?;
        let done = work();
        self.etcd = start_etcd(&self.den, &self.program, &self.dir, self.ports)?;
        done
    }

    fn data(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    fn kept(&self) -> PathBuf {
        self.dir.join("etcd.kept")
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("cp").arg("-a").args([from, to]).output().context("cp (coreutils) cannot be started")?;
    printed(&format!("cp -a {} {}", from.display(), to.display()), output).map(drop)
}
