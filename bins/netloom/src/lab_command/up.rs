//! `netloom lab up`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use between::{Mode, Tunnel};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::manifest::{self, Manifests, Purpose};
use lab::{DefaultNetwork, Event, PlannedPod, Pod, Running, Setup};
use serde::Serialize;

use super::watch::{self, Files};
use super::{SOME_FAILED, labs, name, plural, status};
use crate::cli::{Between, Structured, UpArgs};
use crate::diagnostics;
use crate::output::{BAD, FAINT, GOOD, ODD, Rows, TITLE, counted, putln, structured};

/// Each node may have one with each other node.
const MOST_PROBLEMS: usize = 12;

pub(crate) fn run(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let name = name(&args.which)?;
    let watched = if args.watch { Some(Files::of(&name, &args.files)?) } else { None };
    let examined = manifest::examine(&args.files, &mut std::io::stdin(), Purpose::Lab);
    let diagnostics = diagnostics::of(&examined);
    let manifests = examined.manifests?;
    diagnostics::print_to_stderr(&diagnostics);
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let setup = setup(args)?;
    let plans = lab::dry_run(&labs(), &name, &manifests, &setup)?;
    if args.dry_run {
        let code = show_plan(&plans, args.output)?;
        return Ok(if errors > 0 { ExitCode::from(SOME_FAILED) } else { code });
    }
    super::must_be_root()?;
    if !args.keep_going {
        can_be_built(errors, &plans)?;
    }
    let start = Instant::now();
    let mut running = build(&name, &manifests, &setup, args.watch)?;
    let outcome = &running.outcome;
    for (pod, what) in outcome.warnings() {
        crate::output::eputln!("{ODD}warning:{ODD:#} {pod}: {what}");
    }
    match args.output {
        Some(format) => status::structured_all(&outcome.lab, format)?,
        None => {
            status::table(&lab::status(&outcome.lab)?);
            summary(outcome, start.elapsed());
        }
    }
    if let Some(files) = watched {
        files.follow(&mut running)?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = &running.outcome;
    Ok(if outcome.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

/// Nothing is built of manifests with a mistake in them: a lab that is half there is harder to understand than a message.
fn can_be_built(errors: usize, plans: &[PlannedPod]) -> anyhow::Result<()> {
    const NEXT: &str = "nothing was built; mend them, or build what can be built with --keep-going";
    anyhow::ensure!(errors == 0, "{} in the manifests: {NEXT}", counted(errors, "error"));
    let refused: Vec<&PlannedPod> = plans.iter().filter(|planned| planned.plan.is_err()).collect();
    for planned in &refused {
        let refusals = planned.plan.as_ref().err().into_iter().flatten();
        refusals.for_each(|refusal| crate::output::eputln!("{BAD}{}{BAD:#}: {refusal}", planned.pod.full_name()));
    }
    anyhow::ensure!(refused.is_empty(), "{} of {} cannot be attached: {NEXT}", refused.len(), counted(plans.len(), "pod"));
    Ok(())
}

/// A folder may bring what its nodes have on their disks: configurations in `net.d`, plugins in `bin`.
fn setup(args: &UpArgs) -> anyhow::Result<Setup> {
    let beside = |sub: &str| args.files.iter().map(|f| f.join(sub)).filter(|d| d.is_dir()).collect::<Vec<PathBuf>>();
    let mut conf_dirs = beside("net.d");
    conf_dirs.push(args.conf_dir.clone());
    let mut cni_path = super::directories(&args.cni_path);
    for dir in beside("bin") {
        cni_path.push(std::path::absolute(&dir).with_context(|| format!("{}", dir.display()))?);
    }
    let default_network = match args.default_network.as_deref() {
        None => DefaultNetwork::Cluster(mode(args.between)),
        Some(path) if path == Path::new("none") => DefaultNetwork::None,
        Some(path) => DefaultNetwork::Given(Box::new(chain::from_file(path, None).context("--default-network")?)),
    };
    Ok(Setup { default_network, conf_dirs, cni_path })
}

fn mode(between: Between) -> Mode {
    match between {
        Between::Auto => Mode::Auto(Tunnel::Vxlan),
        Between::Direct => Mode::Direct,
        Between::Vxlan => Mode::Vxlan,
        Between::Wireguard => Mode::WireGuard,
        Between::AutoWireguard => Mode::Auto(Tunnel::WireGuard),
    }
}

/// Builds the lab under a progress bar that is gone when it is done.
fn build(name: &lab::LabName, manifests: &Manifests, setup: &Setup, watches: bool) -> anyhow::Result<Running> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {bar:30} {pos}/{len} pods  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    let (shown_bar, of_lab) = (bar.clone(), name.clone());
    linux::on_interrupt(move || {
        if shown_bar.is_finished() && watches {
            crate::output::eputln!("{FAINT}{}{FAINT:#}", watch::last_words(&of_lab));
            return;
        }
        let (done, all) = (shown_bar.position(), shown_bar.length().unwrap_or(0));
        shown_bar.finish_and_clear();
        crate::output::eputln!(
            "{BAD}interrupted{BAD:#} after {done} of {all} pods; `netloom lab down --name {of_lab}` takes down what is there"
        );
    })
    .context("wait for Ctrl-C")?;
    let mut problems = 0;
    let mut tell = |event: Event<'_>| match event {
        Event::Building { nodes, pods } => {
            bar.set_length(pods as u64);
            bar.set_message(format!("building {nodes} node{}", plural(nodes)));
        }
        Event::Problem(problem) => {
            problems += 1;
            if problems <= MOST_PROBLEMS {
                bar.suspend(|| crate::output::eputln!("{ODD}warning:{ODD:#} {problem}"));
            }
        }
        Event::Pod { pod, took } => {
            bar.set_message(format!("{} ({})", pod.full_name(), shown(took)));
            bar.inc(1);
        }
        _ => {}
    };
    let running = lab::up(&labs(), name, manifests, setup, &mut tell);
    bar.finish_and_clear();
    if let Some(more) = problems.checked_sub(MOST_PROBLEMS).filter(|more| *more > 0) {
        crate::output::eputln!("{ODD}warning:{ODD:#} {more} more of other nodes");
    }
    Ok(running?)
}

fn summary(outcome: &lab::Outcome, took: Duration) {
    let lab = &outcome.lab;
    let (pods, failed) = (lab.pods.len(), outcome.failed());
    putln!();
    for pod in &lab.pods {
        if let Some(failure) = &pod.failure {
            crate::output::eputln!("{BAD}{}{BAD:#}: {failure}", pod.full_name());
        }
    }
    let nodes = format!("{} node{}", lab.nodes.len(), plural(lab.nodes.len()));
    let in_time = format!("in {}", shown(took));
    match failed {
        0 => putln!("{GOOD}lab \"{}\" is up{GOOD:#}: {pods} pod{} on {nodes}, {in_time}", lab.name, plural(pods)),
        _ => {
            let others = match pods - failed {
                0 => "no pod has its networks",
                1 => "the other one is up",
                _ => "the others are up",
            };
            putln!("{BAD}lab \"{}\": {failed} of {pods} pod{} failed{BAD:#}; {others}, on {nodes}, {in_time}", lab.name, plural(pods));
        }
    }
    let which = if lab.name.as_str() == "lab" { String::new() } else { format!(" --name {}", lab.name) };
    putln!(
        "{FAINT}draw it: netloom lab graph{which}   enter a pod: netloom lab exec{which} POD -- ip addr   end it: netloom lab \
            down{which}{FAINT:#}"
    );
}

pub(crate) fn shown(took: Duration) -> String {
    match took.as_millis() {
        0..1000 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

/// One attachment of a dry run.
#[derive(Serialize)]
struct Planned {
    network: String,
    interface: String,
    plugins: Vec<String>,
    #[serde(rename = "runtimeConfig")]
    runtime_config: serde_json::Value,
}

/// One pod of a dry run.
#[derive(Serialize)]
struct PodPlan {
    pod: String,
    node: String,
    attachments: Vec<Planned>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<String>,
}

fn show_plan(plans: &[PlannedPod], output: Option<Structured>) -> anyhow::Result<ExitCode> {
    let plans: Vec<PodPlan> = plans.iter().map(pod_plan).collect();
    let refused = plans.iter().filter(|p| !p.refusals.is_empty()).count();
    match output {
        Some(format) => structured(&plans, format)?,
        None => plan_table(&plans),
    }
    if refused > 0 {
        crate::output::eputln!("{BAD}{refused} of {} pod{} cannot be attached{BAD:#}", plans.len(), plural(plans.len()));
        return Ok(ExitCode::from(SOME_FAILED));
    }
    if output.is_none() {
        putln!("{TITLE}nothing was changed{TITLE:#}: run it without --dry-run to build this");
    }
    Ok(ExitCode::SUCCESS)
}

fn pod_plan(planned: &PlannedPod) -> PodPlan {
    let Pod { node, .. } = &planned.pod;
    let (attachments, refusals) = match &planned.plan {
        Ok(plan) => (plan.attachments.iter().map(attachment).collect(), Vec::new()),
        Err(refusals) => (Vec::new(), refusals.iter().map(ToString::to_string).collect()),
    };
    PodPlan { pod: planned.pod.full_name(), node: node.clone(), attachments, refusals }
}

fn attachment(p: &attach::Planned) -> Planned {
    let ipam = |raw: &json::Object| raw.object("ipam").and_then(|o| o.str("type")).map(|t| format!("+{t}")).unwrap_or_default();
    Planned {
        network: p.name(),
        interface: p.ifname.to_string(),
        plugins: p.list.plugins.iter().map(|plugin| format!("{}{}", plugin.kind, ipam(plugin.raw()))).collect(),
        runtime_config: serde_json::to_value(&p.capability_args).unwrap_or_default(),
    }
}

fn plan_table(plans: &[PodPlan]) {
    let mut rows = Rows::new(&["POD", "NODE", "INTERFACE", "NETWORK", "PLUGINS", "RUNTIME CONFIG"]);
    for pod in plans {
        let (mut name, mut node) = (pod.pod.as_str(), pod.node.as_str());
        for a in &pod.attachments {
            let config =
                if a.runtime_config.as_object().is_some_and(|o| !o.is_empty()) { a.runtime_config.to_string() } else { "-".into() };
            rows.push(vec![name.into(), node.into(), a.interface.clone(), a.network.clone(), a.plugins.join(", "), config]);
            (name, node) = ("", "");
        }
        if !pod.refusals.is_empty() {
            rows.push(vec![name.into(), node.into(), "-".into(), "REFUSED".into(), "-".into(), "-".into()]);
        }
    }
    rows.print(|line| if line.contains(" REFUSED ") { BAD } else { anstyle::Style::new() });
    putln!();
    for pod in plans {
        pod.refusals.iter().for_each(|refusal| crate::output::eputln!("{BAD}{}{BAD:#}: {refusal}", pod.pod));
    }
}
