//! Addresses in one directory: what a call costs when a few are held, and when 60,000 are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::namespace::Namespace;
use crate::network::Verb;
use crate::side::{Job, plugin_job};

/// How many addresses are held.
pub(crate) const HELD: [usize; 2] = [10, 60_000];

/// Few rounds: the reference reads every file in each.
pub(crate) const ROUNDS: usize = 40;

/// One verb of one implementation: its times with each number of addresses held.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    pub(crate) spreads: Vec<Spread>,
}

/// `host-local` alone, by both, with a directory for each number of addresses.
pub(crate) fn run(netloom: &Path, reference: &Path, scratch: &Path, tell: &mut dyn FnMut(usize)) -> Result<Vec<Scale>> {
    let container = Namespace::make("scale")?;
    let sides = [("netloom", netloom), ("reference", reference)];
    let mut configs = Vec::new();
    for (name, plugins) in sides {
        for held in HELD {
            configs.push((plugins, filled(&scratch.join(format!("{name}-{held}")), held)?));
        }
    }
    let verbs = [Verb::Add, Verb::Del];
    let mut times = vec![vec![Vec::new(); configs.len()]; verbs.len()];
    for round in 0..ROUNDS + 2 {
        for (at, (plugins, config)) in configs.iter().enumerate() {
            for (verb, times) in verbs.iter().zip(&mut times) {
                let time = job(plugins, *verb, &container, config).run(*verb)?;
                if let Some(times) = times.get_mut(at).filter(|_| round >= 2) {
                    times.push(time);
                }
            }
        }
        tell(round);
    }
    let mut scales = Vec::new();
    for (verb, times) in verbs.into_iter().zip(times) {
        for ((name, _), times) in sides.iter().zip(times.chunks(HELD.len())) {
            scales.push(Scale { name, verb, spreads: times.iter().cloned().map(Spread::of).collect() });
        }
    }
    scales.sort_by_key(|s| s.name);
    Ok(scales)
}

fn job(plugins: &Path, verb: Verb, container: &Namespace, config: &Value) -> Job {
    plugin_job(plugins, "host-local", verb, container, "eth0", config)
}

/// A directory in which so many addresses are held, in the files that both understand; the configuration for it.
pub(crate) fn filled(data: &Path, held: usize) -> Result<Value> {
    let dir: PathBuf = data.join("scale");
    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    // From the second address on: the first is the gateway's.
    for number in 2..held + 2 {
        let [_, _, high, low] = u32::try_from(number).unwrap_or_default().to_be_bytes();
        fs::write(dir.join(format!("10.64.{high}.{low}")), format!("held{number}\r\neth0")).context("hold an address")?;
    }
    let ipam = json!({"type": "host-local", "dataDir": data, "ranges": [[{"subnet": "10.64.0.0/14"}]]});
    Ok(json!({"cniVersion": "1.0.0", "name": "scale", "type": "any", "ipam": ipam}))
}

// === impl Scale ===

impl Scale {
    /// How many times as long it takes with the most as with the fewest.
    pub(crate) fn growth(&self) -> f64 {
        match self.spreads.as_slice() {
            [few, .., many] => few.ratio(*many),
            _ => f64::NAN,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let spreads: Vec<Value> = self.spreads.iter().map(|s: &Spread| s.json()).collect();
        json!({"side": self.name, "verb": self.verb.name(), "held": HELD, "times": spreads})
    }

    /// By the medians.
    pub(crate) fn p50(&self) -> Vec<Duration> {
        self.spreads.iter().map(|s| s.p50).collect()
    }
}
