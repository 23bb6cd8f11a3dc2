//! `netloom explain`: what one pod asked for, what came of it, and why.
//!
//! ```text
//!   head          which pod, how it is, what its annotations ask for, each selection with its number
//!   sandboxes     each attachment: selection -> definition -> network -> plugins, and what it got
//!   call          where the time of the last call went, or exactly why it failed
//!   plan          where there is no record: what an ADD would do now
//! ```

mod asked;
mod sandbox;

use std::process::ExitCode;

use anstyle::Style;
use anyhow::Context;
use json::{Object, Value};

use self::asked::Selections;
use super::answer::{NONE, flag, micros, number, objects, shown, text};
use super::ask::ask;
use super::{laps, pods};
use crate::cli::ExplainArgs;
use crate::output::{BAD, FAINT, GOOD, ODD, TITLE, put, structured};
use crate::page::{Hang, Look, Page};

/// The longest key of a pod, in columns.
const KEYS: usize = 15;
/// Below a title.
const BELOW: Hang = Hang { first: "  ", rest: "  " };

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    if let (Some(given), Some(own)) = (&args.namespace, &args.pod.namespace) {
        anyhow::ensure!(given == own, "--namespace {given} contradicts the pod {own}/{}", args.pod.name);
    }
    let namespace = args.pod.namespace.as_deref().or(args.namespace.as_deref()).unwrap_or("default");
    let value = ask(&args.asked.socket, "explain", &[("namespace", namespace), ("name", &args.pod.name)]);
    let value = value.map_err(|e| elsewhere(args, e))?;
    let pod = value.as_object().context("the agent's answer is not an object: use the version of netloom that the agent has")?;
    match args.output {
        Some(format) => structured(&value, format)?,
        None => put!("{}", render(pod, Look::here())),
    }
    Ok(ExitCode::SUCCESS)
}

/// Who gave no namespace may have meant another one than `default`.
fn elsewhere(args: &ExplainArgs, e: anyhow::Error) -> anyhow::Error {
    if args.pod.namespace.is_some() || args.namespace.is_some() {
        return e;
    }
    let Ok(Value::Array(pods)) = ask(&args.asked.socket, "pods", &[]) else { return e };
    let named = pods.iter().filter_map(Value::as_object).filter(|pod| pod.str("name") == Some(&args.pod.name));
    let mut places: Vec<String> = named.filter_map(|pod| text(pod, "namespace")).collect();
    places.sort();
    places.dedup();
    let names: Vec<String> = places.iter().map(|namespace| format!("{namespace}/{}", args.pod.name)).collect();
    if names.is_empty() { e } else { anyhow::anyhow!("{e:#}; did you mean {}?", names.join(" or ")) }
}

/// The whole story.
pub(super) fn render(o: &Object, look: Look) -> String {
    let mut page = Page::new(look);
    let selections = Selections::of(o);
    let sandboxes: Vec<&Object> = objects(o, "sandboxes");
    let call = o.object("lastCall");
    head(&mut page, o, sandboxes.last().copied(), call);
    selections.draw(&mut page, flag(o, "hostNetwork") == Some(true));
    for sandbox in &sandboxes {
        page.gap();
        sandbox::draw(&mut page, sandbox, &selections);
    }
    let others = objects(o, "others");
    if !others.is_empty() {
        page.gap();
        sandbox::others(&mut page, &others);
    }
    let failed_add = call.and_then(|call| call.object("failedAdd"));
    for (title, call) in [("call before", failed_add), ("last call", call)] {
        if let Some(call) = call {
            page.gap();
            one_call(&mut page, title, call);
        }
    }
    match o.object("plan") {
        // What somebody else has attached is not attached again.
        Some(_) if !others.is_empty() => {}
        Some(plan) => {
            page.gap();
            let failed = failed_add.or(call).is_some_and(|call| call.str("verb") == Some("ADD") && call.get("code").is_some());
            sandbox::would(&mut page, plan, &selections, failed);
        }
        None if sandboxes.is_empty() && flag(o, "hostNetwork") == Some(true) => {
            page.gap();
            page.line(Hang::default(), &[(FAINT, "it uses its node's network: nothing is attached")]);
        }
        None => {}
    }
    page.into_text()
}

/// Whose story it is, and how it is.
fn head(page: &mut Page, o: &Object, sandbox: Option<&Object>, call: Option<&Object>) {
    let (style, state) = state(o, sandbox, call);
    let name = format!("{}/{}", shown(o, "namespace"), shown(o, "name"));
    page.line(Hang::default(), &[(TITLE, &name), (Style::new(), ": "), (style, &state)]);
    page.pair(BELOW, "UID", KEYS, Style::new(), &shown(o, "uid"));
    let phase = shown(o, "phase");
    page.pair(BELOW, "phase", KEYS, Style::new(), if phase == NONE { "- (not in the API server, or not received yet)" } else { &phase });
}

fn state(o: &Object, sandbox: Option<&Object>, call: Option<&Object>) -> (Style, String) {
    let failed = call.filter(|call| call.get("error").is_some() || call.get("code").is_some());
    let same = |call: &Object| sandbox.is_none_or(|s| s.str("container") == call.str("container"));
    if let Some(call) = failed.filter(|call| same(call)) {
        return (BAD, format!("Failed ({} at {})", shown(call, "verb"), shown(call, "at")));
    }
    match sandbox.map(|s| shown(s, "state")) {
        Some(state) if state == "Attached" => (GOOD, state),
        Some(state) => (pods::style(&state), state),
        None if flag(o, "hostNetwork") == Some(true) => (Style::new(), "on the network of its node".to_owned()),
        None if !objects(o, "others").is_empty() => (ODD, "Attached by another program".to_owned()),
        None => (ODD, "Not attached".to_owned()),
    }
}

/// Where the time of a call went, or why it failed.
fn one_call(page: &mut Page, title: &str, call: &Object) {
    let failed = call.get("error").is_some() || call.get("code").is_some();
    let took = micros(call, "tookMicros");
    let (style, how) = if failed { (BAD, "failed after") } else { (GOOD, "took") };
    let (verb, time) = (shown(call, "verb"), took.map_or_else(|| NONE.to_owned(), laps::shown));
    page.line(Hang::default(), &[(TITLE, title), (Style::new(), ": "), (style, &format!("{verb} {how} {time}"))]);
    page.pair(BELOW, "at", KEYS, Style::new(), &shown(call, "at"));
    page.pair(BELOW, "container", KEYS, Style::new(), &shown(call, "container"));
    if failed {
        let code = number(call, "code").map_or_else(|| NONE.to_owned(), told_code);
        page.pair(BELOW, "code", KEYS, BAD, &code);
        page.pair(BELOW, "message", KEYS, BAD, &shown(call, "error"));
        if let Some(details) = text(call, "details") {
            page.pair(BELOW, "details", KEYS, Style::new(), &details);
        }
    }
    let own: Vec<_> = call.object("laps").map(parts).unwrap_or_default();
    let told = own.iter().map(|(_, took)| *took).sum();
    let rest = took.and_then(|took| took.checked_sub(told)).filter(|rest| rest.as_micros() >= 50);
    let all: Vec<_> = own.into_iter().chain(rest.map(|rest| ("other".to_owned(), rest))).collect();
    if !all.is_empty() {
        page.line(BELOW, &[(FAINT, "where the time went:")]);
    }
    laps::draw(page, BELOW, KEYS, &all, took.unwrap_or(told));
}

fn parts(laps: &Object) -> Vec<(String, std::time::Duration)> {
    laps.iter().filter_map(|(name, _)| Some((super::answer::line(name), micros(laps, name)?))).collect()
}

/// What a code of the specification means (SPEC 5).
fn told_code(code: u64) -> String {
    let meaning = match code {
        1 => "the configuration's CNI version is not supported",
        2 => "a key or value is not supported",
        3 => "the container is unknown",
        4 => "the runtime's environment variables are missing or invalid",
        5 => "reading or writing failed",
        6 => "invalid JSON",
        7 => "an annotation, definition or configuration is invalid",
        8 => "the namespace cannot be used",
        11 => "temporary failure: the runtime retries",
        50 | 51 => "the network is not available now",
        999 => "a plugin failed",
        100.. => "a code of the plugin's own",
        _ => return code.to_string(),
    };
    format!("{code}: {meaning}")
}
