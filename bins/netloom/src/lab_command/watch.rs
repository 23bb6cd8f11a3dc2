//! `netloom lab up --watch`: the lab grows with its files, until somebody takes it down.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::manifest;
use lab::{Event, Growth, LabName, Running};
use linux::Watch;

use super::up::shown;
use super::{labs, plural};
use crate::output::{BAD, FAINT, GOOD, ODD, putln};

/// Files are read when nothing has changed for this long: who saves writes more than once.
const GATHER: Duration = Duration::from_millis(100);

/// Whether the lab is being changed now.
static GROWS: AtomicBool = AtomicBool::new(false);

/// The files of a lab, and its description.
pub(super) struct Files {
    watch: Watch,
    description: PathBuf,
    files: Vec<PathBuf>,
    /// Findings that were printed.
    told: BTreeSet<String>,
}

impl Files {
    /// Watches from now on; who reads the files after this misses nothing.
    pub(super) fn of(name: &LabName, files: &[PathBuf]) -> anyhow::Result<Self> {
        let description = labs().blank(name).description();
        // What came by standard input does not change.
        let files: Vec<PathBuf> = files.iter().filter(|file| *file != Path::new("-")).cloned().collect();
        anyhow::ensure!(!files.is_empty(), "--watch needs a file or a folder: standard input does not change");
        let paths: Vec<PathBuf> = files.iter().cloned().chain([description.clone()]).collect();
        Ok(Files { watch: Watch::on(&paths).context("watch the manifests")?, description, files, told: BTreeSet::new() })
    }

    /// Follows them for as long as the lab is up.
    pub(super) fn follow(mut self, running: &mut Running) -> anyhow::Result<()> {
        running.keep()?;
        putln!("{FAINT}the agents keep the network and follow the manifests; Ctrl-C ends them, and the lab stays up{FAINT:#}");
        while running.is_up()? {
            let mut changed = self.wait(None)?;
            if changed.iter().all(|path| self.description.starts_with(path)) {
                continue;
            }
            while !changed.is_empty() {
                changed = self.wait(Some(GATHER))?;
            }
            GROWS.store(true, Ordering::Relaxed);
            match self.grow(running) {
                Ok(Growth::Gone) => break,
                Ok(Growth::Added { .. }) => {}
                Err(e) => crate::output::eputln!("{BAD}error:{BAD:#} {e:#}"),
            }
            GROWS.store(false, Ordering::Relaxed);
        }
        putln!("{FAINT}the lab is taken down{FAINT:#}");
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> anyhow::Result<BTreeSet<PathBuf>> {
        self.watch.wait(timeout).context("watch the manifests")
    }

    /// Reads the files again, and adds what is new. Files are saved one after the other: a pod that lacks its network has it when the
    /// next one is there.
    fn grow(&mut self, running: &mut Running) -> anyhow::Result<Growth> {
        let manifests = manifest::load(&self.files, &mut std::io::empty())?;
        for finding in &manifests.findings {
            if self.told.insert(finding.to_string()) {
                crate::output::eputln!("{ODD}{}:{ODD:#} {finding}", finding.severity().as_str());
            }
        }
        let start = Instant::now();
        let mut tell = |event: Event<'_>| match event {
            Event::Problem(problem) => crate::output::eputln!("{ODD}warning:{ODD:#} {problem}"),
            Event::Pod { pod, .. } => {
                if let Some(failure) = &pod.failure {
                    crate::output::eputln!("{BAD}{}{BAD:#}: {failure}", pod.full_name());
                }
            }
            _ => {}
        };
        let growth = running.grow(&manifests, &mut tell)?;
        if let Growth::Added { nodes, pods } = growth
            && nodes + pods > 0
        {
            let (lab, took) = (&running.outcome.lab.name, shown(start.elapsed()));
            let added = format!("{nodes} node{}, {pods} pod{}", plural(nodes), plural(pods));
            putln!("{GOOD}lab \"{lab}\" has grown{GOOD:#}: {added}, in {took}");
        }
        Ok(growth)
    }
}

/// What Ctrl-C leaves.
pub(super) fn last_words(name: &LabName) -> String {
    let down = format!("`netloom lab down --name {name}` takes down what is there");
    match GROWS.load(Ordering::Relaxed) {
        true => format!("the lab was growing; {down}"),
        false => format!("the lab stays up without its agents; {down}"),
    }
}
