//! `netloom status`

use std::process::ExitCode;

use anstyle::Style;
use anyhow::Context;
use json::Object;

use super::NOT_READY;
use super::answer::{NONE, flag, joined, number, shown, text, texts};
use super::ask::ask;
use crate::cli::{Format, StatusArgs};
use crate::output::{BAD, GOOD, ODD, TITLE, put, structured};
use crate::page::{Hang, Look, Page};

/// The longest key, in columns.
const KEYS: usize = 15;

/// Pods that are named in one line.
const NAMED: usize = 5;

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let value = ask(&args.asked.socket, "status", &[])?;
    let status = value.as_object().context("the agent's answer is not an object: use the version of netloom that the agent has")?;
    match args.output.and_then(Format::structured) {
        Some(format) => structured(&value, format)?,
        None => put!("{}", render(status, args.output == Some(Format::Wide), Look::here())),
    }
    // An agent that does not say that it is ready is not.
    Ok(if flag(status, "ready") == Some(true) { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// A line for each thing; `wide`: who it is that answers as well.
pub(super) fn render(o: &Object, wide: bool, look: Look) -> String {
    let mut page = Page::new(look);
    let mut put = |key: &str, style: Style, value: &str| page.pair(Hang::default(), key, KEYS, style, value);
    let plain = Style::new();
    put("node", TITLE, &shown(o, "node"));
    let (style, state) = readiness(o);
    put("state", style, &state);
    let api = shown(o, "api");
    // What keeps the agent from being ready is told once.
    let same = api != NONE && text(o, "why").is_some_and(|why| why == api);
    put("API server", plain, if same { "see above" } else { &api });
    for gap in texts(o, "unprotected") {
        put("protection", ODD, &gap);
    }
    put("default network", plain, &default_network(o));
    if let Some(network) = o.object("network") {
        let (style, told) = between(network);
        put("cluster network", style, &told);
        if let Some(rotation) = network.object("wireguard").and_then(rotation) {
            put("key rotation", plain, &rotation);
        }
        put("pod ranges", plain, &joined(network, "ranges"));
        for (key, style) in [("lacks", BAD), ("problems", ODD)] {
            texts(network, key).iter().for_each(|why| put("", style, why));
        }
    }
    let preferred = texts(o, "preferredByRuntime");
    if let Some(first) = preferred.first() {
        put("runtime", ODD, &format!("uses {first}, which sorts before Netloom's configuration"));
    }
    put("sandboxes", plain, &count(o, "sandboxes"));
    let differing = number(o, "differing");
    let told = match differing {
        Some(n) if n > 0 => format!("{n} changed since the attachment: see `netloom pods`"),
        _ => count(o, "differing"),
    };
    put("differing", odd(differing), &told);
    let calls = match (number(o, "calls"), number(o, "workers")) {
        (Some(busy), Some(workers)) => format!("{busy} of {workers} workers busy"),
        _ => format!("{} of {} workers busy", count(o, "calls"), count(o, "workers")),
    };
    let calls = match number(o, "callsWaiting") {
        None | Some(0) => calls,
        Some(n) => {
            let queued = format!("{calls}, {n} {} queued", if n == 1 { "call" } else { "calls" });
            number(o, "longestWaiting").map_or(queued.clone(), |seconds| format!("{queued} for up to {seconds} s"))
        }
    };
    let full = number(o, "calls").zip(number(o, "workers")).is_some_and(|(busy, workers)| busy >= workers && workers > 0);
    put("calls", if full { ODD } else { plain }, &calls);
    put("removals", plain, &of_sandboxes(number(o, "retired")));
    let (late, statuses) = statuses(o);
    put("statuses", if late { ODD } else { plain }, &statuses);
    if wide {
        put("version", plain, &shown(o, "version"));
        put("since", plain, &shown(o, "since"));
        put("pid", plain, &count(o, "pid"));
    }
    page.into_text()
}

fn readiness(o: &Object) -> (Style, String) {
    match (flag(o, "ready"), text(o, "why")) {
        (Some(true), _) => (GOOD, "READY".to_owned()),
        (Some(false), Some(why)) => (BAD, format!("NOT READY: {why}")),
        (Some(false), None) => (BAD, "NOT READY: see the agent's log".to_owned()),
        (None, _) => (ODD, NONE.to_owned()),
    }
}

fn default_network(o: &Object) -> String {
    match (text(o, "defaultNetwork"), text(o, "defaultNetworkName")) {
        (Some(place), Some(name)) if place != name => format!("{name} ({place})"),
        (Some(one), _) | (None, Some(one)) => one,
        (None, None) => NONE.to_owned(),
    }
}

/// How packets get to other nodes, and to how many.
fn between(network: &Object) -> (Style, String) {
    let mode = shown(network, "mode");
    let (peers, reached) = (number(network, "peers"), number(network, "peersReached"));
    let told = match (peers, reached) {
        (Some(0), _) => "no other node".to_owned(),
        (Some(peers), Some(reached)) => format!("{reached} of {peers} other nodes reached"),
        _ => NONE.to_owned(),
    };
    let mtu = number(network, "mtu").map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
    (if peers > reached { ODD } else { Style::new() }, format!("{mode}, {told}{mtu}"))
}

/// A rotation of WireGuard's keys, while there is one.
fn rotation(wireguard: &Object) -> Option<String> {
    let seconds = number(wireguard, "rotatingSeconds")?;
    let awaited = texts(wireguard, "awaits");
    let named: Vec<&str> = awaited.iter().take(NAMED).map(String::as_str).collect();
    let more = awaited.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let awaits = if named.is_empty() { String::new() } else { format!(", {}{more} still without the new key", named.join(", ")) };
    Some(format!("{}, began {seconds} s ago{awaits}", count(wireguard, "rotation")))
}

/// Sandboxes whose DEL was answered, and whose links and addresses are still to go.
fn of_sandboxes(retired: Option<u64>) -> String {
    match retired {
        None => NONE.to_owned(),
        Some(0) => "none pending".to_owned(),
        Some(1) => "1 sandbox pending".to_owned(),
        Some(n) => format!("{n} sandboxes pending"),
    }
}

/// Pods whose status the API server has not taken yet, by name or counted; and whether there are any.
fn statuses(o: &Object) -> (bool, String) {
    let names = texts(o, "statusesWaiting");
    let total = number(o, "statusesWaiting").or_else(|| o.get("statusesWaiting")?.as_array().map(|list| list.len() as u64));
    let told = match total {
        None => return (false, NONE.to_owned()),
        Some(0) => return (false, "none pending".to_owned()),
        Some(1) => "1 pending".to_owned(),
        Some(n) => format!("{n} pending"),
    };
    let named: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let whose = if named.is_empty() { String::new() } else { format!(": {}{more}", named.join(", ")) };
    (true, format!("{told} for the API server{whose}"))
}

fn count(o: &Object, key: &str) -> String {
    number(o, key).map_or_else(|| NONE.to_owned(), |n| n.to_string())
}

fn odd(n: Option<u64>) -> Style {
    if n.is_some_and(|n| n > 0) { ODD } else { Style::new() }
}
