//! Each plugin beside the reference plugin of its name, v1.9.1: what a machine, a container and a caller see of both.
//!
//! ```text
//!   cases/PLUGIN.rs   configurations, every key at least once
//!     scene           each on two machines: prepare, STATUS, ADD, probes, CHECK, DEL, DEL again    --> two Lives
//!       state         links, addresses, routes, rules, ports, VLANs, settings, files, as `ip` and `bridge` say
//!       labels        what is random gets a name: a hardware address, the host's end of a pair
//!     difference      what one of them has, or has otherwise
//!   explained.rs      why; a difference without an explanation fails, an explanation without a difference too
//!     page            --> docs/internals/parity.md
//! ```
//!
//! `NETLOOM_PARITY=write` writes the page instead of comparing it, `NETLOOM_PARITY=show` prints every difference
//! and compares no page; `NETLOOM_PARITY_ONLY=bridge` looks at one plugin.

mod case;
mod cases;
mod difference;
mod explained;
mod labels;
mod page;
mod running;
mod scene;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use case::{Case, Kernel};
use difference::{Difference, differences};
use explained::Explained;
use netloom_tests::{guest, netloom, peers_dir, plugin_dir};
use page::Page;
use scene::Life;
use serde_json::Value;

/// One configuration's lives: the reference's and ours.
pub(crate) struct Compared {
    case: Case,
    theirs: Life,
    ours: Life,
    differences: Vec<Difference>,
}

/// Built-in plugins that have no table here, and why.
const WITHOUT_TABLE: &[(&str, &str)] = &[
    ("flannel", "it has left the reference set with version 1.0"),
    ("ovs-hybrid", "the reference set has none like it: tests/plugins/ovs/neutron.rs"),
    ("ovs-vhost-user", "the reference set has none like it: tests/plugins/ovs/vhost_user.rs"),
    ("ovs", "the reference set has none like it: tests/plugins/ovs.rs has what ovs-cni does otherwise"),
    ("sriov-vf", "the reference set has none like it: tests/guest/kernel/cards.rs"),
    ("dpdk-device", "the reference set has none like it: tests/guest/kernel/cards.rs"),
    ("passthru", "it is Multus's, and does nothing"),
    ("pool", "the reference set has none like it"),
    ("whereabouts", "its own reference needs a cluster: tests/addresses/whereabouts has what it is known to answer"),
    ("firewall", "its rules have another form: tests/plugins/firewall compares what packets do"),
];

fn wanted(plugin: &str) -> bool {
    std::env::var("NETLOOM_PARITY_ONLY").map_or(true, |only| only.split(',').any(|o| o == plugin))
}

/// Runs all configurations that this kernel can, some at once.
fn compare(kernel: Kernel) -> Vec<Compared> {
    let mut queue: Vec<Case> = cases::all().into_iter().filter(|c| c.kernel == kernel && wanted(c.plugin)).collect();
    let mut plugins = BTreeSet::new();
    queue.iter_mut().for_each(|case| case.first = plugins.insert(case.plugin));
    let (left, done) = (Mutex::new(queue.into_iter().enumerate()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..if guest::in_guest() { 4 } else { 6 } {
            scope.spawn(|| {
                loop {
                    let Some((number, case)) = left.lock().unwrap().next() else { return };
                    let begun = std::time::Instant::now();
                    let theirs = scene::live(&case, peers_dir());
                    let ours = scene::live(&case, plugin_dir());
                    let differences = differences(&case, &theirs, &ours);
                    if guest::in_guest() {
                        // A guest is slow: how far did it come?
                        let (seconds, found) = (begun.elapsed().as_secs_f64(), differences.len());
                        println!("{}: {}: {found} differences, {seconds:.1} s", case.plugin, case.name);
                    }
                    done.lock().unwrap().insert(number, Compared { case, theirs, ours, differences });
                }
            });
        }
    });
    done.into_inner().unwrap().into_values().collect()
}

/// The explanations by difference, and what is wrong with them.
fn judge(kernel: Kernel, all: &[Compared]) -> (BTreeMap<usize, Vec<&Difference>>, Vec<String>) {
    let explained = Explained::all();
    let (mut used, mut wrong): (BTreeMap<usize, Vec<&Difference>>, _) = (BTreeMap::new(), Vec::new());
    for difference in all.iter().flat_map(|c| &c.differences) {
        match explained.iter().position(|e| e.covers(difference)) {
            Some(number) => used.entry(number).or_default().push(difference),
            None => wrong.push(format!("nobody explains: {difference}")),
        }
    }
    let cases: Vec<Case> = cases::all().into_iter().filter(|c| wanted(c.plugin)).collect();
    let idle = explained.iter().enumerate().filter(|(n, e)| e.is_due(kernel, &cases) && !used.contains_key(n));
    wrong.extend(idle.map(|(_, e)| format!("does not occur any more: {:?}: {} | {}", e.of, e.case, e.at)));
    (used, wrong)
}

fn parity(kernel: Kernel) {
    let all = compare(kernel);
    let (used, wrong) = judge(kernel, &all);
    let mode = std::env::var("NETLOOM_PARITY").unwrap_or_default();
    if mode == "show" {
        let known = used.iter().flat_map(|(n, list)| list.iter().map(move |d| format!("{}: {d}", Explained::all()[*n].what)));
        return wrong.iter().cloned().chain(known).for_each(|line| println!("{line}"));
    }
    assert!(wrong.is_empty(), "{} of {} configurations:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    if std::env::var_os("NETLOOM_PARITY_ONLY").is_none() {
        Page::of(kernel, &all, &used).keep(mode == "write");
    }
}

/// This kernel's part.
#[test]
fn what_differs_here_is_explained() {
    parity(Kernel::Here);
}

/// The part that needs modules which this kernel may lack: dummy, vlan, ipvlan, vrf, a bridge's VLAN filter. By itself it is
/// run for the page: `guest` runs it with all else that needs modules.
#[test]
#[ignore = "`guest` runs it in the guest; by itself it boots another one, and can write the page"]
fn what_differs_in_the_guest_is_explained() {
    let _ = (plugin_dir(), peers_dir());
    let executable = std::env::current_exe().unwrap();
    let run = guest::run(
        &[executable.to_str().unwrap(), "--ignored", "--nocapture", "--exact", "configurations::in_the_guest"],
        Duration::from_secs(3000),
    );
    if std::env::var_os("NETLOOM_PARITY").is_some_and(|mode| mode == "write") {
        Page::take_over(&run.output);
    }
    assert!(
        run.code == 0 && run.output.contains("test result: ok. 1 passed"),
        "the guest, or what ran in it, ended badly:\n{}",
        run.output
    );
}

#[test]
#[ignore = "needs modules: `guest` runs it in the guest"]
fn in_the_guest() {
    parity(Kernel::Guest);
}

/// What `netloom plugins -o json` tells of each plugin.
fn abouts() -> Vec<Value> {
    let output = Command::new(netloom()).args(["plugins", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_key_of_every_plugin_is_in_a_configuration() {
    let cases = cases::all();
    let mut missing = Vec::new();
    for about in abouts() {
        let plugin = about["name"].as_str().unwrap();
        if WITHOUT_TABLE.iter().any(|(name, _)| *name == plugin) {
            continue;
        }
        let used: BTreeSet<String> = cases.iter().flat_map(|c| c.keys_of(plugin)).collect();
        let keys = about["keys"].as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap().to_owned());
        let capabilities = about["capabilities"].as_array().unwrap().iter().map(|c| format!("runtimeConfig.{}", c.as_str().unwrap()));
        missing.extend(keys.chain(capabilities).filter(|k| !used.contains(k)).map(|k| format!("{plugin}: {k}")));
        if !cases.iter().any(|c| c.plugin == plugin) {
            missing.push(format!("{plugin} itself"));
        }
    }
    assert!(missing.is_empty(), "no configuration of tests/parity/configurations/cases has:\n{}", missing.join("\n"));
}

#[test]
fn names_are_there_once() {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = cases::all().iter().map(|c| format!("{}: {}", c.plugin, c.name)).filter(|n| !seen.insert(n.clone())).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
