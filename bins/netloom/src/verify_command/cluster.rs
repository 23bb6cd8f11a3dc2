//! The cluster that is verified: what the options mean, and the progress.

use std::io::BufRead;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use connectivity::{Balancer, Options, Perf, Reports, Verified, Watching};
use ipnet::IpNet;
use linux::file::{Durability, write_atomic};
use probe::{Change, Event, Measured};
use verify::{Case, Snapshot};

use crate::cli::{PerfCluster, ProbedCluster, VerifyArgs, VerifyCluster};
use crate::output::{FAINT, ODD, StdoutGuard, write_error};
use crate::sysdump_command::Redactor;

/// The most addresses of a range that are looked at: more Services than these are never created.
const MOST: usize = 1024;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Verifies a cluster; `event` is called with what is done, and says whether to wait for Enter: then a case has failed.
pub(super) fn verify(
    args: &VerifyArgs,
    wanted: &dyn Fn(&Case) -> bool,
    how: probe::Run,
    event: &mut dyn FnMut(&Event<'_>) -> bool,
) -> anyhow::Result<Verified> {
    let options = Options { bandwidth: args.bandwidth, ..options(&args.cluster, args.pause_on_fail)? };
    let interrupted = Arc::new(AtomicBool::new(false));
    let stdout = StdoutGuard::new(Arc::clone(&interrupted));
    let paused = Arc::clone(&interrupted);
    let mut event = |next: Event<'_>| {
        if event(&next)
            && let Event::Case(result) = next
        {
            write_error(format_args!("{ODD}{} failed; press Enter to go on{ODD:#} ", result.case.id));
            wait_for_enter(&paused);
        }
    };
    let began = Instant::now();
    let progress = |line: &str| crate::output::eputln!("{FAINT}{:5.1} s  {line}{FAINT:#}", began.elapsed().as_secs_f64());
    let mut reports = Reports { progress: &progress, event: &mut event, interrupted };
    let verified = connectivity::verify(&options, wanted, how, &mut reports);
    is_read(&stdout)?;
    Ok(verified?)
}

/// That somebody has read what was printed until all was removed.
fn is_read(stdout: &StdoutGuard) -> anyhow::Result<()> {
    anyhow::ensure!(!stdout.is_lost(), "standard output takes nothing more: the verification ended before all was shown");
    Ok(())
}

/// Writes what the nodes had to a file, whole or not at all. Only its owner can read it.
pub(super) fn record(mut snapshot: Snapshot, file: &Path) -> anyhow::Result<()> {
    let redactor = Redactor::new();
    snapshot.namespaces.iter_mut().for_each(|namespace| redactor.namespace(namespace));
    let text = serde_json::to_vec(&snapshot).with_context(|| format!("--record {}", file.display()))?;
    // Where a link leads; what is there and no file, as a pipe, is written to.
    let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    match std::fs::metadata(&target) {
        Ok(there) if !there.is_file() => std::fs::write(&target, text).with_context(|| format!("--record {}", file.display())),
        _ => write_atomic(&target, &text, 0o600, Durability::Volatile).with_context(|| format!("--record {}", file.display())),
    }
}

/// Watches a cluster's paths until somebody presses Ctrl-C.
pub(super) fn watch(
    args: &VerifyCluster,
    wanted: &dyn Fn(&Case) -> bool,
    timeout: Duration,
    begins: &dyn Fn(usize),
    change: &mut dyn FnMut(&Change<'_>),
) -> anyhow::Result<()> {
    let options = options(args, true)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let stdout = StdoutGuard::new(Arc::clone(&interrupted));
    let began = Instant::now();
    let progress = |line: &str| crate::output::eputln!("{FAINT}{:5.1} s  {line}{FAINT:#}", began.elapsed().as_secs_f64());
    let mut watching = Watching { progress: &progress, begins, change, interrupted };
    let watched = connectivity::watch(&options, wanted, timeout, &mut watching);
    is_read(&stdout)?;
    Ok(watched?)
}

/// Measures a cluster's networks that are wanted; `pair` is called with each pair of pods that was measured.
pub(super) fn perf(
    args: &PerfCluster,
    wanted: &dyn Fn(&str) -> bool,
    (time, patience): (Duration, Duration),
    pair: &mut dyn FnMut(&Measured),
) -> anyhow::Result<Vec<Measured>> {
    let options = Options { networks: args.attach.clone(), measure: true, ..probed(&args.probed)? };
    let interrupted = Arc::new(AtomicBool::new(false));
    let stdout = StdoutGuard::new(Arc::clone(&interrupted));
    let began = Instant::now();
    let progress = |line: &str| crate::output::eputln!("{FAINT}{:5.1} s  {line}{FAINT:#}", began.elapsed().as_secs_f64());
    let mut perf = Perf { wanted, time, patience, progress: &progress, measured: pair, interrupted };
    let all = connectivity::perf(&options, &mut perf);
    is_read(&stdout)?;
    Ok(all?)
}

fn options(args: &VerifyCluster, is_open_ended: bool) -> anyhow::Result<Options> {
    Ok(Options {
        networks: args.network.clone(),
        internet: args.internet.clone(),
        metadata: args.metadata,
        public: args.public.clone(),
        load_balancer: balancer(&args.load_balancer)?,
        node_command: args.node_command.clone(),
        is_open_ended,
        record: args.record.is_some(),
        ..probed(&args.probed)?
    })
}

/// The cluster and its probes, with nothing outside.
fn probed(args: &ProbedCluster) -> anyhow::Result<Options> {
    Ok(Options {
        kubeconfig: args.of.file()?,
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        nodes: args.node.clone(),
        node_count: args.nodes.into(),
        networks: Vec::new(),
        bandwidth: false,
        measure: false,
        internet: Vec::new(),
        metadata: None,
        public: None,
        load_balancer: None,
        agents: args.agents.clone(),
        node_command: None,
        keep: args.keep,
        is_open_ended: false,
        record: false,
    })
}

fn balancer(given: &[String]) -> anyhow::Result<Option<Balancer>> {
    let range = |text: &String| -> anyhow::Result<Vec<IpAddr>> {
        let net: IpNet =
            text.parse().with_context(|| format!("--load-balancer {text:?}: expected `cloud` or a range as 203.0.113.0/26"))?;
        Ok(net.hosts().take(MOST).collect())
    };
    match given {
        [] => Ok(None),
        [one] if one == "cloud" => Ok(Some(Balancer::Cloud)),
        ranges => Ok(Some(Balancer::Range { text: ranges.join(","), addresses: ranges.iter().map(range).collect::<Result<_, _>>()? })),
    }
}

/// Waits for Enter, or until somebody has pressed Ctrl-C.
fn wait_for_enter(interrupted: &AtomicBool) {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        let _ = sender.send(());
    });
    while !interrupted.load(Ordering::Relaxed) && receiver.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {}
}
