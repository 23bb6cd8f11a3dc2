//! `cargo xtask test`: builds every test in one call of cargo, then runs suites.
//!
//! ```text
//!   SUITES --> set-up, once --> cargo build --message-format json --> executables
//!          --> those of `make test`, three at a time; then the others, one suite after the other --> a line for each, and the sum
//! ```
//!
//! Cargo builds as the user who calls it; tests need root and get it through sudo.

mod job;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::suites::{Job, Need, Place, SUITES, Suite};
use job::{Task, narrowed};
use report::{Outcome, Report};

/// How many executables run at a time. Most of their tests wait for other processes.
const AT_A_TIME: usize = 3;

/// What is built: one selection for every call, or features differ, and everything is built again.
const WHAT: [&str; 3] = ["--workspace", "--bins", "--examples"];

/// Test executables by package and target.
type Executables = BTreeMap<(String, String), PathBuf>;

/// Runs what the arguments name; whether all passed.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let (all, words) = match args.split_first() {
        Some((first, rest)) if first == "--all" => (true, rest),
        _ => (false, args),
    };
    let (chosen, filters): (Vec<&Suite>, &[String]) = match words.split_first() {
        None => (SUITES.iter().filter(|suite| all || suite.place == Place::Test).collect(), &[]),
        Some((name, filters)) => (vec![named(name)?], filters),
    };
    set_up(root, &chosen)?;
    let begun = Instant::now();
    let executables = build(root, &chosen)?;
    println!("built in {}", report::time(begun.elapsed()));
    let report = Mutex::new(Report::new(filters));
    let (beside, alone): (Vec<&Suite>, Vec<&Suite>) = chosen.into_iter().partition(|suite| suite.place == Place::Test);
    pool(beside.iter().map(|suite| tasks(root, suite, &executables, filters)).collect::<Result<Vec<_>>>()?.concat(), AT_A_TIME, &report);
    for suite in alone {
        pool(tasks(root, suite, &executables, filters)?, 1, &report);
    }
    let mut report = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    repeat(&mut report);
    report.print_sum(begun.elapsed());
    Ok(report.passed())
}

fn named(name: &str) -> Result<&'static Suite> {
    let names = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    SUITES.iter().find(|suite| suite.name == name).with_context(|| format!("there is no suite {name:?}: there are {}", names()))
}

/// Installs and builds what suites need and this machine lacks.
fn set_up(root: &Path, suites: &[&Suite]) -> Result<()> {
    let mut done: Vec<Need> = Vec::new();
    for need in suites.iter().flat_map(|suite| suite.needs) {
        if done.contains(need) {
            continue;
        }
        done.push(*need);
        let (script, args): (&str, &[&str]) = match need {
            Need::Packages(of) => ("scripts/setup.sh", &[of]),
            Need::Peers => ("scripts/peers.sh", &[]),
            Need::Guest => ("scripts/guest.sh", &["--fetch"]),
        };
        let status = Command::new(root.join(script)).args(args).current_dir(root).status().with_context(|| script.to_owned())?;
        ensure!(status.success(), "{script} {} failed: what it said is above", args.join(" "));
    }
    Ok(())
}

/// Builds the executables that tests run, and the tests themselves where a suite has some.
fn build(root: &Path, suites: &[&Suite]) -> Result<Executables> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("build").args(WHAT).arg("--message-format=json-render-diagnostics").current_dir(root).stdout(Stdio::piped());
    let jobs = || suites.iter().flat_map(|suite| suite.jobs);
    // Some of other packages: cargo knows their names by the package alone.
    if jobs().any(|job| matches!(job, Job::Units | Job::Of(..))) {
        command.arg("--tests");
    } else {
        let targets: BTreeSet<&str> =
            jobs().filter_map(|job| if let Job::Tests(target, ..) = job { Some(*target) } else { None }).collect();
        for target in targets {
            command.args(["--test", target]);
        }
        // The guest's parity needs its executable, too.
        if suites.iter().any(|suite| suite.needs.contains(&Need::Guest)) {
            command.args(["--test", "parity"]);
        }
    }
    let mut child = command.spawn().context("cargo build")?;
    let mut found = Executables::new();
    for line in BufReader::new(child.stdout.take().context("cargo's output")?).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        if message.pointer("/profile/test") == Some(&Value::Bool(true))
            && let (Some(id), Some(target), Some(path)) = (text("/package_id"), text("/target/name"), text("/executable"))
        {
            found.insert((package_of(id).to_owned(), target.to_owned()), path.into());
        }
    }
    if !child.wait()?.success() {
        bail!("what is tested does not build: see above");
    }
    Ok(found)
}

/// Builds what tests run, and says where the executable of that name is.
///
/// # Errors
/// It does not build, or there is none of that name.
pub(crate) fn program(root: &Path, name: &str) -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet"]).args(WHAT).arg("--message-format=json-render-diagnostics").current_dir(root);
    let output = command.stderr(Stdio::inherit()).output().context("cargo build")?;
    ensure!(output.status.success(), "{name} does not build: see above");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = |message: Value| message.pointer("/executable").and_then(Value::as_str).map(PathBuf::from);
    let found = messages.filter_map(executable).find(|path| path.file_name().is_some_and(|n| n == name));
    found.with_context(|| format!("cargo has built no {name}"))
}

/// The name in a package's identity: `path+file:///x/crates/linux#netloom-linux@0.1.0`, or `...#0.1.0` where the folder has its name.
fn package_of(id: &str) -> &str {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, ""));
    version.split_once('@').map_or_else(|| place.rsplit('/').next().unwrap_or(place), |(name, _)| name)
}

fn tasks(root: &Path, suite: &'static Suite, executables: &Executables, filters: &[String]) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    // What runs in a guest is chosen there.
    let in_guest = suite.needs.contains(&Need::Guest).then(|| ("GUEST_TESTS", filters.join(" "))).filter(|(_, words)| !words.is_empty());
    let filters = if in_guest.is_some() { &[] } else { filters };
    let executable = |package: &str, target: &str| {
        // A library's target has underscores where its package has hyphens.
        let found =
            [target.to_owned(), target.replace('-', "_")].iter().find_map(|name| executables.get(&(package.to_owned(), name.clone())));
        found.cloned().with_context(|| format!("{package} has no test executable {target}"))
    };
    let mut push = |label: &str, program: PathBuf, folder: &Path, args: &[&str], variables: &[(&str, &str)]| -> Result<()> {
        if let Some(args) = narrowed(&program, args, filters)? {
            tasks.push(Task::executable(suite.name, label, program, folder, &args, variables));
        }
        Ok(())
    };
    for job in suite.jobs {
        match job {
            Job::Tests(target, args, variables) => {
                let guest = in_guest.iter().map(|(name, words)| (*name, words.as_str()));
                let variables: Vec<(&str, &str)> = variables.iter().copied().chain(guest).collect();
                push(target, executable("netloom-tests", target)?, &root.join("tests"), args, &variables)?;
            }
            Job::Of(package, target, args) => {
                let label = format!("{} {target}", package.trim_start_matches("netloom-"));
                push(&label, executable(package, target)?, &folder_of(root, package), args, &[])?;
            }
            Job::Units => {
                for ((package, target), program) in executables.iter().filter(|((package, _), _)| package != "netloom-tests") {
                    let label = format!("{} {target}", package.trim_start_matches("netloom-"));
                    push(&label, program.clone(), &folder_of(root, package), &[], &[])?;
                }
            }
            Job::Documentation | Job::Command(_) => {}
        }
    }
    for job in suite.jobs.iter().filter(|_| filters.is_empty()) {
        match job {
            Job::Documentation => tasks.push(Task::documentation(suite.name, root)),
            Job::Command(argv) => tasks.push(Task::command(suite.name, root, argv)),
            Job::Tests(..) | Job::Of(..) | Job::Units => {}
        }
    }
    Ok(tasks)
}

/// Where a package's tests run, as under `cargo test`: its own folder.
fn folder_of(root: &Path, package: &str) -> PathBuf {
    let short = package.trim_start_matches("netloom-");
    let folders =
        [format!("crates/{short}"), format!("bins/{package}"), short.to_owned(), format!("tests/{short}"), format!("benches/{short}")];
    let special = match package {
        "netloom-cni-spec" => Some(root.join("crates/cni")),
        _ => folders.iter().map(|folder| root.join(folder)).find(|folder| folder.join("Cargo.toml").is_file()),
    };
    special.unwrap_or_else(|| root.to_owned())
}

/// Runs tasks, so many at a time, and tells of each when it ends.
fn pool(tasks: Vec<Task>, at_a_time: usize, report: &Mutex<Report>) {
    let left = Mutex::new(tasks.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                    let Some(task) = next else { return };
                    let outcome: Outcome = task.run();
                    report.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(task, outcome);
                }
            });
        }
    });
}

/// Repeats, one after the other, what failed beside others, where `NETLOOM_TEST_REPEAT` allows that for so many tests of a run, and no more
/// have failed: one machine in a hundred stands still at the wrong moment. What passes now is reported as unsteady, and is to be mended.
fn repeat(report: &mut Report) {
    let most = std::env::var("NETLOOM_TEST_REPEAT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if report.failures().map(|(_, outcome)| outcome.failed().len()).sum::<usize>() > most {
        return;
    }
    for (task, outcome) in report.failures() {
        let Some(again) = task.only(outcome.failed()).filter(|_| !outcome.failed().is_empty()) else { continue };
        println!("again, alone: {}", outcome.failed().join(" "));
        if again.run().passed() == outcome.failed().len() {
            outcome.passed_alone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_known_by_its_identity() {
        assert_eq!(package_of("path+file:///x/crates/linux#netloom-linux@0.1.0"), "netloom-linux");
        assert_eq!(package_of("path+file:///x/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn every_suite_is_there_once_and_has_work() {
        let mut names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SUITES.len());
        assert!(SUITES.iter().all(|suite| !suite.jobs.is_empty() && !suite.proves.is_empty()));
    }
}
