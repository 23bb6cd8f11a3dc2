//! `netloom lab up --watch`: the lab grows with its files, until somebody takes it down.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::manifest;
use lab::{Event, LabName, Phase, Running};
use linux::Watch;

use super::up::shown;
use super::{labs, plural};
use crate::output::{BAD, FAINT, GOOD, ODD, putln};

/// After a change, until files are read: an editor writes more than once.
const GATHER: Duration = Duration::from_millis(100);

/// The files of a lab, and its description.
pub(super) struct Files {
    watch: Watch,
    description: PathBuf,
    files: Vec<PathBuf>,
}

impl Files {
    /// Watches from now on; who reads the files after this misses nothing.
    pub(super) fn of(name: &LabName, files: &[PathBuf]) -> anyhow::Result<Self> {
        let description = labs().blank(name).description();
        // What came by standard input does not change.
        let files: Vec<PathBuf> = files.iter().filter(|file| *file != Path::new("-")).cloned().collect();
        let paths: Vec<PathBuf> = files.iter().cloned().chain([description.clone()]).collect();
        Ok(Files { watch: Watch::on(&paths).context("watch the manifests")?, description, files })
    }

    /// Follows them for as long as the lab is up.
    pub(super) fn follow(mut self, running: &mut Running) -> anyhow::Result<()> {
        running.keep()?;
        let name = running.outcome.lab.name.clone();
        putln!("{FAINT}the agents keep the network and follow the manifests; Ctrl-C ends them, and the lab stays up{FAINT:#}");
        while is_up(&name) {
            let changed = self.watch.wait(None).context("watch the manifests")?;
            if changed.iter().all(|path| self.description.starts_with(path)) {
                continue;
            }
            std::thread::sleep(GATHER);
            if let Err(e) = grow(running, &self.files) {
                anstream::eprintln!("{BAD}error:{BAD:#} {e:#}");
            }
        }
        putln!("{FAINT}the lab was taken down{FAINT:#}");
        Ok(())
    }
}

fn is_up(name: &LabName) -> bool {
    labs().open(name).is_ok_and(|lab| lab.phase == Phase::Up)
}

/// Reads the files again, and adds what is new.
fn grow(running: &mut Running, files: &[PathBuf]) -> anyhow::Result<()> {
    let manifests = manifest::load(files, &mut std::io::empty())?;
    for warning in &manifests.warnings {
        anstream::eprintln!("{ODD}warning:{ODD:#} {warning}");
    }
    let start = Instant::now();
    let mut tell = |event: Event<'_>| match event {
        Event::Problem(problem) => anstream::eprintln!("{ODD}warning:{ODD:#} {problem}"),
        Event::Pod { pod, .. } => {
            if let Some(failure) = &pod.failure {
                anstream::eprintln!("{BAD}{}{BAD:#}: {failure}", pod.full_name());
            }
        }
        _ => {}
    };
    let (nodes, pods) = running.grow(&manifests, &mut tell)?;
    if nodes + pods > 0 {
        let lab = &running.outcome.lab.name;
        putln!(
            "{GOOD}lab \"{lab}\" has grown{GOOD:#}: {nodes} node{}, {pods} pod{}, in {}",
            plural(nodes),
            plural(pods),
            shown(start.elapsed())
        );
    }
    Ok(())
}
