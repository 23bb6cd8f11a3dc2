//! `netloom lab exec`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use lab::{Lab, PodRef};
use linux::Netns;

use super::open;
use crate::cli::Which;

/// Becomes the command inside the pod, or inside a node: its exit code is ours.
pub(crate) fn run(which: &Which, pod: &PodRef, command: &[OsString]) -> anyhow::Result<ExitCode> {
    super::must_be_root()?;
    let lab = open(which)?;
    let path = place(&lab, pod)?;
    let netns = Netns::open(&path)?.with_context(|| {
        format!(
            "{pod}: its network namespace {} is gone; recreate the lab with `netloom lab down` \
            and `netloom lab up`",
            path.display()
        )
    })?;
    let shell = [std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
    let e = linux::exec_in(&netns, if command.is_empty() { &shell } else { command });
    crate::output::eputln!("netloom: {e}");
    // As a shell has it: 127 for a program that is not there, 126 for one that cannot be run.
    Ok(match e {
        linux::ExecError::Start { errno: linux::Errno::ENOENT, .. } => ExitCode::from(127),
        linux::ExecError::Start { .. } => ExitCode::from(126),
        _ => ExitCode::FAILURE,
    })
}

/// The namespace of `node/NAME` or of a pod; a namespace of Kubernetes may be called `node` too.
fn place(lab: &Lab, wanted: &PodRef) -> anyhow::Result<PathBuf> {
    if wanted.namespace.as_deref() != Some("node") {
        return Ok(lab.pod_netns(lab.pod(wanted)?));
    }
    match (lab.node(&wanted.name), lab.pod(wanted)) {
        (Some(node), Err(_)) => Ok(lab.node_netns(&node.name)),
        (None, Ok(pod)) => Ok(lab.pod_netns(pod)),
        (Some(node), Ok(pod)) => {
            let enter = |path: PathBuf| format!("`ip netns exec {} CMD`", path.file_name().unwrap_or_default().to_string_lossy());
            let (node, pod) = (enter(lab.node_netns(&node.name)), enter(lab.pod_netns(pod)));
            anyhow::bail!("{wanted} is both a node and a pod of lab {}: run {node} for the node, {pod} for the pod", lab.name)
        }
        (None, Err(_)) => {
            let nodes: Vec<&str> = lab.nodes.iter().map(|n| n.name.as_str()).collect();
            anyhow::bail!("lab {} has no node {}; it has {}", lab.name, wanted.name, cni::near_names(&wanted.name, nodes))
        }
    }
}
