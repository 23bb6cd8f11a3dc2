//! `lab down`: everything that `up` made goes, and is gone when this returns.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attach::Lost;
use cni::ContainerId;
use linux::{Inside, Netlink, Netns, NetnsId};
use plugin::Host;

use crate::error::StateError;
use crate::journal::{self, Claim, NamespaceState};
use crate::labs::{LabName, Labs};
use crate::state::{Lab, Phase};
use crate::switch;
use crate::up::attacher;
use crate::wire;

/// The time that one pod's detachment has.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the kernel may take to let go of namespaces that nobody uses any more.
const KERNEL: Duration = Duration::from_secs(10);

/// A process that keeps a namespace of the lab alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its process ID.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// The namespace's name, as `ip netns` has it.
    pub netns: String,
}

/// A lab that could not be taken down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// Its state could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// Programs run in its namespaces; nothing was changed.
    #[error("still in use: {}; stop them, or use --force, which leaves them without a network", shown(.0))]
    InUse(Vec<Leftover>),
    /// Something could not be detached; the lab stays as far as it is.
    #[error("not everything could be detached: {}; fix the cause and run `netloom lab down` again, or use --force", .0.join("; "))]
    Left(Vec<String>),
}

fn shown(leftovers: &[Leftover]) -> String {
    let one = |l: &Leftover| format!("process {} ({}) in {}", l.pid, l.command, l.netns);
    leftovers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A lab that is down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Downed {
    /// How many pods were detached.
    pub pods: usize,
    /// Namespaces that have the names of the lab's and are somebody else's: they stay.
    pub foreign: Vec<String>,
    /// What could not be detached; empty unless it was forced.
    pub errors: Vec<String>,
}

/// Takes a lab down: every pod is detached by its record, as in a cluster, then the namespaces go.
///
/// # Errors
/// [`DownError`]; with `force` only what keeps a namespace from being removed.
pub fn down(labs: &Labs, name: &LabName, force: bool) -> Result<Downed, DownError> {
    labs.may_be(name)?;
    let _lock = labs.lock(name)?;
    let done = take_down(labs, name, force);
    // Also where there was no lab, and the lock's file was made for nothing.
    labs.forget_lock(name);
    done
}

fn take_down(labs: &Labs, name: &LabName, force: bool) -> Result<Downed, DownError> {
    let (mut lab, whole) = match labs.open(name) {
        Err(StateError::Broken { .. }) if force => (labs.salvage(name), false),
        other => (other?, true),
    };
    let claims = match lab.journal().read() {
        Err(_) if force => lab.journal().by_name(),
        other => other?,
    };
    let (own, users): (Vec<Leftover>, Vec<Leftover>) = users(&claims).into_iter().partition(|user| switch::is_own(&lab, user.pid));
    let own: Vec<u32> = own.into_iter().map(|process| process.pid).collect();
    if !users.is_empty() && !force {
        return Err(DownError::InUse(users));
    }
    lab.phase = Phase::GoingDown;
    if whole {
        // Only for who looks at the lab meanwhile: a full disk must not hold up what makes room.
        let _ = lab.write();
    }
    switch::revive(&lab);
    let mut downed = detach_all(&lab, &claims);
    if !downed.errors.is_empty() && !force {
        return Err(DownError::Left(downed.errors));
    }
    // A port is taken out of its switch by the switch's own database.
    downed.errors.extend(switch::stop_all(&lab, &own));
    if !downed.errors.is_empty() && !force {
        return Err(DownError::Left(downed.errors));
    }
    downed.foreign = unbuild(labs, &lab, &claims)?;
    Ok(downed)
}

/// Undoes an `up` that failed. The error is for a person.
pub(crate) fn undo(labs: &Labs, lab: &Lab) -> Result<(), String> {
    let claims = lab.journal().read().map_err(|e| e.to_string())?;
    let mut left = detach_all(lab, &claims).errors;
    if left.is_empty() {
        left = switch::stop_all(lab, &[]);
    }
    if !left.is_empty() {
        return Err(left.join("; "));
    }
    unbuild(labs, lab, &claims).map_err(|e| e.to_string())?;
    labs.forget_lock(&lab.name);
    Ok(())
}

/// Takes away what a growth has made that failed: new pods, then new namespaces. What is left, for a person.
pub(crate) fn shrink(lab: &Lab, before: &Lab, new: &[PathBuf]) -> Option<String> {
    let Ok(claims) = lab.journal().read() else { return Some("the namespaces that it has made".to_owned()) };
    let mut downed = Downed::default();
    for pod in lab.pods.iter().filter(|pod| !before.is_attached(pod)) {
        let done = lab.sandbox(pod).map_err(|e| e.to_string()).and_then(|id| detach_from(lab, &pod.node, &[id], &claims, &mut downed));
        downed.errors.extend(done.err());
    }
    for node in &lab.nodes {
        let is_old = before.nodes.iter().any(|old| old.name == node.name);
        if !is_old || lab.bridges.len() > before.bridges.len() {
            downed.errors.extend(switch::withdraw(lab, &node.name, if is_old { before.bridges.len() } else { 0 }));
        }
    }
    let wires: Vec<String> = (before.wires.len()..lab.wires.len()).map(wire::bridge).collect();
    if let Ok(Some(netns)) = journal::open(&claims, &lab.wires_netns()) {
        downed.errors.extend(wire::remove(&netns, &wires).err().map(|e| e.to_string()));
    }
    for claim in claims.iter().rev().filter(|claim| new.iter().any(|path| path == claim.path())) {
        downed.errors.extend(claim.remove().err().map(|e| e.to_string()));
    }
    for node in lab.nodes.iter().filter(|node| !before.nodes.iter().any(|old| old.name == node.name)) {
        drop(std::fs::remove_dir_all(lab.node_dir(&node.name)));
    }
    (!downed.errors.is_empty()).then(|| downed.errors.join("; "))
}

/// Detaches every pod that has a record.
fn detach_all(lab: &Lab, claims: &[Claim]) -> Downed {
    let mut downed = Downed::default();
    for node in &lab.nodes {
        let done = detach_node(lab, &node.name, claims, &mut downed);
        downed.errors.extend(done.err().map(|e| format!("node {}: {e}", node.name)));
    }
    downed
}

/// The pods of a node, in its namespace. One whose namespace is gone still has addresses and files to give back: that is
/// done from an empty one.
fn detach_node(lab: &Lab, node: &str, claims: &[Claim], downed: &mut Downed) -> Result<(), String> {
    let sandboxes = attacher(lab, node).records().sandboxes().map_err(|e| e.to_string())?;
    detach_from(lab, node, &sandboxes, claims, downed)
}

/// Some of them.
fn detach_from(lab: &Lab, node: &str, sandboxes: &[ContainerId], claims: &[Claim], downed: &mut Downed) -> Result<(), String> {
    if sandboxes.is_empty() {
        return Ok(());
    }
    let attacher = attacher(lab, node);
    let netns = match journal::open(claims, &lab.node_netns(node)).map_err(|e| e.to_string())? {
        Some(own) => own,
        None => Netns::unnamed().map_err(|e| e.to_string())?,
    };
    let detach = |_: &Inside| {
        let mut host = Host::here(lab.dirs(node));
        for sandbox in sandboxes {
            match attacher.del(sandbox, Lost::EveryAddress, &mut host, Instant::now() + PATIENCE) {
                Ok(()) => downed.pods += 1,
                Err(e) => downed.errors.push(format!("{sandbox}: {e}")),
            }
        }
    };
    netns.enter(detach).map_err(|e| e.to_string())
}

/// Removes the namespaces and waits until the kernel has let go of them. What is not the lab's stays, and is told.
fn unbuild(labs: &Labs, lab: &Lab, claims: &[Claim]) -> Result<Vec<String>, StateError> {
    let (wires, others): (Vec<&Claim>, Vec<&Claim>) = claims.iter().partition(|c| c.path() == lab.wires_netns());
    let open = journal::open(claims, &lab.wires_netns()).ok().flatten();
    let mut foreign = Vec::new();
    let mut remove = |claim: &Claim| match claim.remove() {
        Ok(true) => Ok(()),
        Ok(false) => {
            foreign.push(claim.name());
            Ok(())
        }
        Err(e) => Err(StateError::Io { step: "remove", path: claim.path().to_owned(), reason: e.to_string() }),
    };
    // Pods were made last.
    others.into_iter().rev().try_for_each(&mut remove)?;
    // The nodes' ends of the wires vanish with the nodes, and the nodes' ends of the pods with the pods.
    if let Some(open) = open {
        wait_for_empty(&open);
    }
    wires.into_iter().try_for_each(remove)?;
    labs.forget(lab)?;
    Ok(foreign)
}

fn wait_for_empty(wires: &Netns) {
    let until = Instant::now() + KERNEL;
    let _ = wires.enter(|inside| {
        let Ok(mut netlink) = Netlink::open(inside) else { return };
        while Instant::now() < until {
            let ports = netlink.links().map(|links| links.iter().filter(|l| l.is("veth")).count());
            if ports.unwrap_or(0) == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

/// The processes that are in the lab's namespaces.
fn users(claims: &[Claim]) -> Vec<Leftover> {
    use std::os::unix::fs::MetadataExt;
    let ours = |claim: &Claim| match claim.find() {
        Ok(NamespaceState::Ours(netns)) => Some((netns.id(), claim.name())),
        _ => None,
    };
    let ours: Vec<(NetnsId, String)> = claims.iter().filter_map(ours).collect();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let user = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let meta = std::fs::metadata(entry.path().join("ns/net")).ok()?;
        let (_, netns) = ours.iter().find(|(id, _)| id.dev == meta.dev() && id.ino == meta.ino())?;
        let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned();
        Some(Leftover { pid, command, netns: netns.clone() })
    };
    processes.flatten().filter_map(user).collect()
}
