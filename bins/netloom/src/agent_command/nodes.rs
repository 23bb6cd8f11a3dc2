//! `netloom nodes`

use std::process::ExitCode;
use std::time::Duration;

use anstyle::Style;
use json::{Object, Value};

use super::NOT_READY;
use super::answer::{NONE, flag, joined, line, micros, number, objects, shown, text, texts};
use super::ask::ask;
use crate::cli::{Format, NodesArgs};
use crate::output::{BAD, FAINT, ODD, Rows, TITLE, put, putln, structured};
use crate::page::{Hang, Look, Page};

const TITLES: [&str; 8] = ["NODE", "POD RANGES", "WAY", "TO", "ANSWERS", "HANDSHAKE", "RECEIVED", "SENT"];
/// How many of them there are where no tunnel of WireGuard is.
const ALWAYS: usize = 5;

pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<ExitCode> {
    let value = ask(&args.asked.socket, "nodes", &[])?;
    let Value::Array(nodes) = &value else {
        anyhow::bail!("the agent's answer is {}, not a list: use the version of netloom that the agent has", value.kind())
    };
    let nodes: Vec<&Object> = nodes.iter().filter_map(Value::as_object).collect();
    let well = !nodes.iter().any(|node| matters(node));
    match args.output.and_then(Format::structured) {
        Some(format) => structured(&value, format)?,
        None if nodes.is_empty() => putln!("the agent has not seen any Node yet: see `netloom status`"),
        None => put!("{}", render(&nodes, Look::here())),
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// Whether somebody must look at it.
fn matters(node: &Object) -> bool {
    let is_silent = |way: &&Object| flag(way, "answers") == Some(false);
    flag(node, "reached") == Some(false) || objects(node, "ways").iter().any(is_silent)
}

/// How a node is painted: one that is not reached, or of which something is wrong.
fn style(node: &Object) -> Style {
    let ways = objects(node, "ways");
    match flag(node, "own") {
        Some(true) if texts(node, "problems").is_empty() => FAINT,
        _ if flag(node, "reached") == Some(false) => BAD,
        _ if !texts(node, "problems").is_empty() || ways.iter().any(|way| flag(way, "answers") == Some(false)) => ODD,
        _ => Style::new(),
    }
}

/// A row for each range of a node; what is wrong with it stands below.
pub(super) fn render(nodes: &[&Object], look: Look) -> String {
    let is_tunnel = |way: &&Object| text(way, "way").as_deref() == Some("wireguard");
    let has_tunnel = nodes.iter().any(|node| objects(node, "ways").iter().any(is_tunnel));
    let mut rows = Rows::new(TITLES.get(..if has_tunnel { TITLES.len() } else { ALWAYS }).unwrap_or(&TITLES));
    let mut of_rows: Vec<&Object> = Vec::new();
    for node in nodes {
        for mut cells in cells(node) {
            cells.truncate(if has_tunnel { TITLES.len() } else { ALWAYS });
            rows.push(cells);
            of_rows.push(node);
        }
    }
    let mut page = Page::new(look);
    let mut lines = rows.lines();
    page.row(TITLE, &lines.next().unwrap_or_default());
    for (i, (row, node)) in lines.zip(&of_rows).enumerate() {
        page.row(style(node), &row);
        if of_rows.get(i + 1).is_none_or(|next| !std::ptr::eq(*next, *node)) {
            for problem in texts(node, "problems") {
                page.line(Hang { first: "  ", rest: "  " }, &[(style(node), &problem)]);
            }
        }
    }
    page.into_text()
}

fn cells(node: &Object) -> Vec<Vec<String>> {
    let name = line(&shown(node, "name"));
    let ways = objects(node, "ways");
    if flag(node, "own") == Some(true) {
        return vec![vec![name, joined(node, "ranges"), "this node".to_owned(), joined(node, "addresses"), String::new()]];
    }
    if ways.is_empty() {
        let way = if texts(node, "ranges").is_empty() { NONE } else { "not reached" };
        return vec![vec![name, joined(node, "ranges"), way.to_owned(), joined(node, "addresses"), String::new()]];
    }
    let of_way = |(i, way): (usize, &&Object)| {
        let name = if i == 0 { name.clone() } else { String::new() };
        let by = format!("{} by {}", shown(way, "way"), shown(way, "link"));
        let answers = match (flag(way, "answers"), micros(way, "microseconds")) {
            (Some(true), Some(took)) => milliseconds(took),
            (Some(true), None) => "yes".to_owned(),
            (Some(false), _) => "no".to_owned(),
            (None, _) => NONE.to_owned(),
        };
        let mut cells = vec![name, shown(way, "range"), line(&by), shown(way, "to"), answers];
        if text(way, "way").as_deref() == Some("wireguard") {
            cells.push(number(way, "handshakeSeconds").map_or_else(|| "none yet".to_owned(), |seconds| format!("{seconds} s ago")));
            cells.extend(["received", "sent"].map(|key| number(way, key).map_or_else(|| NONE.to_owned(), bytes)));
        }
        cells
    };
    ways.iter().enumerate().map(of_way).collect()
}

fn milliseconds(took: Duration) -> String {
    format!("{:.2} ms", took.as_secs_f64() * 1e3)
}

/// `9999 B`, `12 KiB`
fn bytes(count: u64) -> String {
    let mut whole = count;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if whole < 10_000 {
            return format!("{whole} {unit}");
        }
        whole /= 1024;
    }
    format!("{whole} TiB")
}
