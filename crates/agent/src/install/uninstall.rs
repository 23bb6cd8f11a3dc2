//! The way back: the runtime gets along without us, and pods that we have attached can still be deleted.

use std::collections::BTreeSet;

use attach::Records;
use cni::ContainerId;
use linux::file::{self, Durability};

use super::{InstallError, Places, Report, Step, binary, entry, io, network_types};

/// How many pods are named.
const NAMED: usize = 10;

/// Takes the runtime's configuration away, so that new pods get what the next one says: the default network itself. Links
/// and `netloom-cni` go when no sandbox of ours is left, because a runtime runs them for DEL; with `force` at once. What
/// another configuration of the directory names stays in any case. An agent that still runs serves these DELs, writes no
/// configuration any more, and takes apart what is gone without one; `detach_gone` does so here, after the runtime's configuration
/// has gone.
///
/// # Errors
/// [`InstallError`] with what is left to be done.
pub fn uninstall_from(places: &Places, force: bool, detach_gone: &mut dyn FnMut() -> Vec<Step>) -> Result<Report, InstallError> {
    let mut report = Report::default();
    let (marker, path) = (places.marker(), places.entry());
    if let Some(dir) = marker.parent() {
        std::fs::create_dir_all(dir).map_err(|e| io("make", dir, &e))?;
    }
    // First, or an agent that runs would put the configuration back.
    file::write_atomic(&marker, b"", 0o600, Durability::Volatile).map_err(|e| io(e.step, &e.path, &e.errno))?;
    linux::crash_point!("uninstall-marked");
    match entry::remove(places)? {
        true => report.add(Step::Removed(path)),
        false => report.add(Step::Note(format!("{} does not exist", path.display()))),
    }
    linux::crash_point!("uninstall-entry-removed");
    tell_what_is_next(places, &mut report);
    report.steps.extend(detach_gone());
    let left = Records::new(places.records.clone()).sandboxes()?;
    if !left.is_empty() {
        let pods = pods(places, &left);
        if !force {
            let why = format!("{pods} need it to be deleted; run this command again when they are gone, or use --force");
            let path = places.bin_dir.join(super::PROGRAM);
            report.add(match path.exists() {
                true => Step::Kept { path, why },
                false => {
                    Step::Note(format!("{pods} are left, but {} does not exist: the runtime cannot have them detached", path.display()))
                }
            });
            return Ok(report);
        }
        report.add(Step::Note(format!("{pods} are left: only an agent can detach their secondary networks")));
    }
    let needed = network_types::named_in(&places.config_dir);
    let removed = binary::remove(&places.bin_dir, &needed)?;
    if removed.is_empty() {
        let pods = if left.is_empty() { ", and it has attached no pod" } else { "" };
        report.add(Step::Note(format!("nothing of Netloom is left in {}{pods}", places.bin_dir.display())));
    }
    report.steps.extend(removed);
    Ok(report)
}

/// What the runtime will use now.
fn tell_what_is_next(places: &Places, report: &mut Report) {
    let next = network_types::configurations(&places.config_dir);
    report.add(Step::Note(match next.first() {
        Some(next) => format!("the runtime now uses {}", next.display()),
        None => {
            format!("no network configuration is left in {}: this node cannot start pods until there is one", places.config_dir.display())
        }
    }));
    let named: BTreeSet<String> = network_types::named_in(&places.config_dir);
    if named.contains("multus") || named.contains("multus-shim") {
        let dir = places.config_dir.display();
        report.add(Step::Note(format!(
            "a configuration in {dir} names Multus: remove it, or the runtime keeps calling Netloom under that \
                name"
        )));
    }
}

fn pods(places: &Places, sandboxes: &[ContainerId]) -> String {
    let records = Records::new(places.records.clone());
    let name = |id: &ContainerId| match records.read(id) {
        Ok(Some(record)) => format!("{}/{}", record.pod.namespace, record.pod.name),
        _ => format!("sandbox {id}"),
    };
    let mut named: Vec<String> = sandboxes.iter().take(NAMED).map(name).collect();
    if sandboxes.len() > NAMED {
        named.push(format!("{} more", sandboxes.len() - NAMED));
    }
    format!("{} pods ({})", sandboxes.len(), named.join(", "))
}
