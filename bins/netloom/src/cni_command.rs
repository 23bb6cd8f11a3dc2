//! `netloom cni`: the reference library's cnitool, also under that name.

mod valid;

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use chain::{Cache, Chain, Runtime};
use cni::{CniError, Code, ContainerId, IfName, NetworkList};
use json::{Object, Value};
use plugin::{Dirs, Finder, Host, Prefer};
use plugins::BUILTINS;
use sha2::{Digest, Sha512};

use crate::cli::{Attachment, CniArgs, CniCommand};
use crate::output::{GOOD, Rows, putln};

/// Runs one verb. A failure prints the specification's error object on standard output, and what to do on standard error.
pub(crate) fn run(args: &CniArgs) -> anyhow::Result<ExitCode> {
    match verb(args)? {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) => {
            putln!("{}", e.print(cni::Version::LATEST));
            Err(anyhow::anyhow!("{e} (code {})", e.code))
        }
    }
}

fn verb(args: &CniArgs) -> anyhow::Result<Result<(), CniError>> {
    let path = std::env::var_os("CNI_PATH").unwrap_or_default();
    let finder = Finder::new(BUILTINS, std::env::split_paths(&path).collect(), Prefer::Path, std::env::vars_os().collect())
        .telling(plugin::process::tell);
    let chain = Chain::new(finder, Some(Cache::new(&args.cache_dir)));
    let mut host = Host::here(Dirs::default());
    let by = Instant::now() + Duration::from_secs(args.timeout);
    let load = |network: &str| chain::load(&args.conf_dir, network).map_err(CniError::from);
    Ok(match &args.command {
        CniCommand::Add(a) => attachment(args, a)?.and_then(|(list, runtime)| {
            let result = chain.add(&list, &runtime, &mut host, by)?;
            putln!("{}", result.print(list.version)?);
            Ok(())
        }),
        CniCommand::Del(a) => attachment(args, a)?.and_then(|(list, runtime)| chain.del(&list, &runtime, &mut host, by)),
        CniCommand::Check(a) => attachment(args, a)?.and_then(|(list, runtime)| chain.check(&list, &runtime, None, &mut host, by)),
        CniCommand::Gc(gc) => {
            let said = valid::read(gc)?;
            load(&gc.of.network).and_then(|list| {
                let valid = said.map(|said| said.of(&list.name)).transpose()?;
                chain.gc(&list, valid.as_deref(), &mut host, by)
            })
        }
        CniCommand::Status(n) => load(&n.network).and_then(|list| {
            chain.status(&list, &mut host, by)?;
            crate::output::eputln!("{GOOD}network {} is ready{GOOD:#}", list.name);
            Ok(())
        }),
        CniCommand::Version(n) => load(&n.network).and_then(|list| {
            let mut rows = Rows::new(&["PLUGIN", "CNI VERSIONS"]);
            for (kind, versions) in chain.versions(&list, by)? {
                rows.push(vec![kind, versions.join(", ")]);
            }
            rows.print(|_| anstyle::Style::new());
            Ok(())
        }),
    })
}

/// The network and the runtime's side of it. What is wrong with the command line is an error of its own kind.
fn attachment(args: &CniArgs, a: &Attachment) -> anyhow::Result<Result<(NetworkList, Runtime), CniError>> {
    let ifname = IfName::parse(&args.ifname).context("--ifname, CNI_IFNAME")?;
    let netns = absolute(&a.netns)?;
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let cni_args = cni::CniArgs::parse(&variable("CNI_ARGS"))?;
    let capability_args = capability_args(&variable("CAP_ARGS"))?;
    let container = container_id(&netns)?;
    let runtime = Runtime { container, ifname, netns: Some(netns), args: cni_args, capability_args };
    Ok(chain::load(&args.conf_dir, &a.network).map(|list| (list, runtime)).map_err(CniError::from))
}

/// Absolute, and without `.` and `..`, as the reference tool has it: the container's ID is made from it.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path).with_context(|| format!("NETNS {}", path.display()))?;
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    Ok(clean)
}

fn capability_args(text: &str) -> anyhow::Result<Object> {
    if text.is_empty() {
        return Ok(Object::new());
    }
    match json::parse(text.as_bytes()).context("CAP_ARGS")? {
        Value::Object(object) => Ok(object),
        other => anyhow::bail!("CAP_ARGS: expected a JSON object, such as {{\"ips\": [\"10.1.0.7/16\"]}}, found {}", other.kind()),
    }
}

/// The same ID that the reference tool makes, so that either can delete what the other added.
fn container_id(netns: &Path) -> anyhow::Result<ContainerId> {
    let digest = Sha512::digest(netns.as_os_str().as_encoded_bytes());
    let hex: String = digest.iter().take(10).map(|b| format!("{b:02x}")).collect();
    ContainerId::parse(&format!("cnitool-{hex}")).map_err(|e| CniError::new(Code::INTERNAL, e.to_string()).into())
}
