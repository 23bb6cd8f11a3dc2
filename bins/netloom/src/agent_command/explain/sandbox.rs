//! A sandbox's attachments, each with the way that leads to it.

use std::time::Duration;

use anstyle::Style;
use json::{Object, Value};

use super::super::answer::{NONE, flag, joined, line, micros, objects, shown, text, texts};
use super::super::{laps, pods};
use super::BELOW;
use super::asked::{Selections, Source};
use crate::output::{BAD, FAINT, GOOD, ODD, TITLE};
use crate::page::{Hang, Page};

/// The longest key of an attachment, in columns.
const KEYS: usize = 12;

/// A sandbox that has a record.
pub(super) fn draw(page: &mut Page, sandbox: &Object, selections: &Selections) {
    let state = shown(sandbox, "state");
    let style = if state == "Attached" { GOOD } else { pods::style(&state) };
    let container = shown(sandbox, "container");
    let at = text(sandbox, "at").map(|at| format!(" since {at}")).unwrap_or_default();
    let name = format!("sandbox {}", pods::short(&container));
    page.line(Hang::default(), &[(TITLE, &name), (Style::new(), ": "), (style, &state), (Style::new(), &at)]);
    for reason in texts(sandbox, "reasons") {
        page.line(BELOW, &[(style, &reason)]);
    }
    page.pair(BELOW, "container", KEYS, Style::new(), &container);
    page.pair(BELOW, "netns", KEYS, Style::new(), &shown(sandbox, "netns"));
    attachments(page, sandbox, selections, true);
}

/// What another program has attached.
pub(super) fn others(page: &mut Page, others: &[&Object]) {
    page.line(Hang::default(), &[(TITLE, "attached by another program"), (Style::new(), ", which recorded:")]);
    for other in others {
        let ips = texts(other, "ips");
        let ips = if ips.is_empty() { "no addresses".to_owned() } else { ips.join(", ") };
        let rest = format!(": network {}, {ips}, recorded by {}", shown(other, "network"), shown(other, "by"));
        page.line(BELOW, &[(TITLE, &shown(other, "interface")), (Style::new(), &rest)]);
    }
}

/// What an ADD would do now; `failed`: the last one did not come to its end.
pub(super) fn would(page: &mut Page, plan: &Object, selections: &Selections, failed: bool) {
    let refused = text(plan, "refused");
    let (style, how) = match (refused.is_some(), failed) {
        (true, _) => (BAD, "would be refused"),
        (false, true) => (ODD, "would retry; the last one failed, as shown above"),
        (false, false) => (GOOD, "would attach it (planned only: plugins were found but not run)"),
    };
    page.line(Hang::default(), &[(TITLE, "an ADD now"), (Style::new(), ": "), (style, how)]);
    if let Some(refused) = refused {
        return page.line(BELOW, &[(BAD, &refused)]);
    }
    attachments(page, plan, selections, false);
}

/// A branch for each attachment; `made`: there is more to tell than what is intended.
fn attachments(page: &mut Page, o: &Object, selections: &Selections, made: bool) {
    let all: Vec<&Object> = objects(o, "attachments");
    // A plan does not say which is the default network: it is the first.
    let default = |i: usize, one: &Object| flag(one, "default").unwrap_or(i == 0);
    let names: Vec<(&str, bool)> =
        all.iter().enumerate().map(|(i, one)| (one.str("definition").unwrap_or_default(), default(i, one))).collect();
    let sources = selections.sources(&names);
    let longest = all.iter().filter_map(|one| micros(one, "tookMicros")).max().unwrap_or_default();
    for (i, (one, source)) in all.iter().zip(&sources).enumerate() {
        let (fork, own) = page.look.branch(i + 1 == all.len());
        let way = way(page, one, source);
        page.line(fork, &[(TITLE, &shown(one, "interface")), (Style::new(), &way)]);
        if made {
            attachment(page, own, one, longest);
        }
    }
    if all.is_empty() {
        page.line(BELOW, &[(FAINT, "no attachments")]);
    }
}

/// Which selection became the interface, over which definition and network.
fn way(page: &Page, one: &Object, source: &Source) -> String {
    let arrow = page.look.arrow();
    let network = shown(one, "network");
    let definition = shown(one, "definition");
    let source = match source {
        Source::Default { asked: false } => "default network".to_owned(),
        Source::Default { asked: true } => "default network, as the pod asked".to_owned(),
        Source::Selection(number) => format!("selection {number}"),
        Source::EveryPod => "every pod's network".to_owned(),
        Source::Unknown => "attached".to_owned(),
    };
    let definition = if definition == network { String::new() } else { format!(" {arrow} {definition}") };
    format!(": {source}{definition} {arrow} network {network}")
}

fn attachment(page: &mut Page, hang: Hang, one: &Object, longest: Duration) {
    let mut put = |key: &str, style: Style, value: &str| page.pair(hang, key, KEYS, style, value);
    let plain = Style::new();
    if let Some(state) = text(one, "state").filter(|state| state != "Attached") {
        let told = if state == "Intended" { "missing: the attachment did not finish, and may exist in part".to_owned() } else { state };
        put("state", ODD, &told);
    }
    let plugins = texts(one, "plugins");
    let missing = plugins.iter().any(|plugin| plugin.ends_with("(not found)"));
    put("plugins", if missing { BAD } else { plain }, &if plugins.is_empty() { NONE.to_owned() } else { plugins.join(", ") });
    put("addresses", plain, &joined(one, "ips"));
    put("MAC", plain, &shown(one, "mac"));
    if text(one, "txChecksumOffload").as_deref() == Some("off") {
        put("offload", plain, "transmit checksums off, as Open vSwitch's userspace datapath needs it");
    }
    if let Some(config) = one.get("runtimeConfig").filter(|config| !matches!(config, Value::Null)) {
        put("asked to do", plain, &line(&json::compact(config)));
    }
    match micros(one, "tookMicros") {
        Some(took) => laps::draw(page, hang, KEYS, &[("took".to_owned(), took)], longest),
        None => put("took", plain, NONE),
    }
}
