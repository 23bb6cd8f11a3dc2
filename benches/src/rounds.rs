//! The rounds: both sides, turn by turn, in fresh containers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::figures::Figures;
use crate::namespace::Namespace;
use crate::options::Options;
use crate::side::{Side, Verb};

/// Rounds before the first one that counts: the bridge is made, executables and directories are in the page cache.
const WARM_UP: usize = 5;

/// Rounds for which containers are made at once. A namespace's end takes the kernel tens of milliseconds after `ip
/// netns del` has returned, under locks that every link's creation and removal wants: so containers end between batches.
const BATCH: usize = 25;

/// How long the kernel gets for that.
const SETTLE: Duration = Duration::from_millis(400);

/// Times of one verb, ours first.
type Times = (Vec<Duration>, Vec<Duration>);

/// A directory that is removed when this is dropped.
struct Scratch(PathBuf);

/// Runs all rounds. The first error ends it: a time without an effect is no figure.
pub(crate) fn run(options: &Options) -> Result<Vec<Figures>> {
    let scratch = Scratch::make(&options.data_dir)?;
    let ours = Side::new("ours", install(&options.netloom_cni, &scratch.0)?, &scratch.0)?;
    let reference = Side::new("reference", options.peers.clone(), &scratch.0)?;
    let mut times: BTreeMap<Verb, Times> = BTreeMap::new();
    let total = WARM_UP + options.rounds;
    for first in (0..total).step_by(BATCH) {
        batch(&ours, &reference, first..total.min(first + BATCH), &mut times)?;
    }
    ours.check_nothing_left()?;
    reference.check_nothing_left()?;
    Ok(times.into_iter().map(|(verb, (ours, reference))| Figures::new(verb, ours, reference)).collect())
}

fn batch(ours: &Side, reference: &Side, rounds: std::ops::Range<usize>, times: &mut BTreeMap<Verb, Times>) -> Result<()> {
    let containers = rounds.clone().map(|round| Ok((Namespace::make(&format!("o{round}"))?, Namespace::make(&format!("r{round}"))?)));
    let containers = containers.collect::<Result<Vec<_>>>()?;
    thread::sleep(SETTLE);
    for (round, (our_container, their_container)) in rounds.zip(&containers) {
        for verb in Verb::ALL {
            let (our_time, their_time) = if round % 2 == 0 {
                let our_time = ours.time(verb, our_container)?;
                (our_time, reference.time(verb, their_container)?)
            } else {
                let their_time = reference.time(verb, their_container)?;
                (ours.time(verb, our_container)?, their_time)
            };
            if round >= WARM_UP {
                let (our_times, their_times) = times.entry(verb).or_default();
                our_times.push(our_time);
                their_times.push(their_time);
            }
        }
    }
    drop(containers);
    thread::sleep(SETTLE);
    Ok(())
}

/// Puts our executable under its plugins' names.
fn install(netloom_cni: &Path, scratch: &Path) -> Result<PathBuf> {
    let dir = scratch.join("plugins");
    if !netloom_cni.is_file() {
        bail!("{} is missing: `make` builds it", netloom_cni.display());
    }
    let executable = fs::canonicalize(netloom_cni).with_context(|| format!("find {}", netloom_cni.display()))?;
    let output = Command::new(&executable).arg("install").arg(&dir).output();
    let output = output.with_context(|| format!("run {}", executable.display()))?;
    if !output.status.success() {
        bail!("{} install: {}", executable.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(dir)
}

// === impl Scratch ===

impl Scratch {
    fn make(below: &Path) -> Result<Self> {
        let path = below.join(format!("nlb-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("bench: remove {}: {e}", self.0.display());
        }
    }
}
