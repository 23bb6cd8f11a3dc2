//! What one ADD costs besides time: memory, instructions, system calls; and the size on disk.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::namespace::Namespace;
use crate::network::{Network, Verb};
use crate::side::{Job, Side, output_of};

/// One side's costs of an ADD; what could not be measured is missing.
#[derive(Debug)]
pub(crate) struct Costs {
    /// The executables that it takes.
    pub(crate) size_kib: u64,
    /// The largest process.
    pub(crate) peak_kib: u64,
    /// In user space, by callgrind; or why there is no such number.
    pub(crate) instructions: Result<u64, String>,
    /// Of all threads and processes, by strace; or why there is no such number.
    pub(crate) system_calls: Result<u64, String>,
}

/// Looks at one ADD of a network by each side.
pub(crate) fn look(sides: &[Side], network: Network, launcher: &Path) -> Result<Vec<Costs>> {
    sides.iter().map(|side| of(side, network, launcher).with_context(|| format!("the costs of {}", side.name()))).collect()
}

fn of(side: &Side, network: Network, launcher: &Path) -> Result<Costs> {
    let add = |number, launch: &(dyn Fn(&Job, &Path) -> Result<String> + Sync)| add((side, network), number, launch);
    // The kernel counts what a process was before it became the program: a small one has to start it.
    let peak = add(1, &|job, _| launched(launcher, &["peak".to_owned()], job))?;
    let peak = peak.lines().find_map(|l| l.strip_prefix("peak ")?.trim().parse().ok()).context("no peak was told")?;
    let calls = ["-f", "-qq", "-c", "-U", "calls,name", "-o"].map(str::to_owned);
    let system_calls = add(2, &|job, file| {
        let told = launched(Path::new("strace"), &[&calls[..], &[file.display().to_string()]].concat(), job)?;
        Ok(fs::read_to_string(file).unwrap_or(told))
    });
    let valgrind = ["--tool=callgrind", "--trace-children=yes", "--callgrind-out-file=/dev/null"].map(str::to_owned);
    let instructions = add(3, &|job, _| match side.is_one_program() {
        // Under valgrind a program does not find itself on CNI_PATH, and would take its own names for other programs.
        true => launched(Path::new("valgrind"), &valgrind, &job.with("CNI_PATH", "/nonexistent")),
        false => launched(Path::new("valgrind"), &valgrind, job),
    });
    Ok(Costs {
        size_kib: side.executables().iter().filter_map(|f| fs::metadata(f).ok()).map(|m| m.len()).sum::<u64>() / 1024,
        peak_kib: peak,
        instructions: number(instructions, |l| l.split_once("Collected : ").map(|(_, n)| n.to_owned())),
        system_calls: number(system_calls, |l| l.trim().strip_suffix("total").map(|n| n.trim().to_owned())),
    })
}

/// The sum of a number that stands in some lines; or why there is none.
fn number(told: Result<String>, number: impl Fn(&str) -> Option<String>) -> Result<u64, String> {
    let text =
        told.map_err(|e| format!("{e:#}").lines().find(|l| l.len() > 20).unwrap_or_default().chars().take(140).collect::<String>())?;
    let sum = text.lines().filter_map(|l| number(l)?.parse::<u64>().ok()).reduce(|a, b| a + b);
    sum.ok_or_else(|| "it told no number".to_owned())
}

/// An ADD in a container of its own, started by `launch`, then the DEL.
fn add((side, network): (&Side, Network), number: usize, launch: &(dyn Fn(&Job, &Path) -> Result<String> + Sync)) -> Result<String> {
    let container = Namespace::make(&format!("cost{number}"))?;
    let file = std::env::temp_dir().join(format!("nlb-{}-cost", std::process::id()));
    let job = |verb| side.jobs(network, verb, &container, number);
    let told = side.host().enter(|| {
        let told = job(Verb::Add).iter().map(|job| launch(job, &file)).collect::<Result<String>>();
        for job in job(Verb::Del) {
            job.run(Verb::Del)?;
        }
        told
    });
    let _ = fs::remove_file(&file);
    told
}

/// Runs a job under another program; what that prints as errors.
fn launched(launcher: &Path, args: &[String], job: &Job) -> Result<String> {
    let mut command = Command::new(launcher);
    command.args(args).arg(&job.program).args(&job.args).env_clear().envs(job.env.iter().cloned());
    if job.env.is_empty() {
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    }
    let output = output_of(command, &job.input).with_context(|| format!("run {}", launcher.display()))?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{} under {}: {told}", job.program.display(), launcher.display());
    }
    Ok(told)
}

// === impl Costs ===

impl Costs {
    pub(crate) fn json(&self) -> Value {
        json!({
            "size_kib": self.size_kib, "peak_kib": self.peak_kib, "instructions": self.instructions.as_ref().ok(),
            "system_calls": self.system_calls.as_ref().ok(),
        })
    }
}
