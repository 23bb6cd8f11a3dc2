//! `netloom pods`

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anstyle::Style;
use json::{Object, Value};

use super::NOT_READY;
use super::answer::{NONE, joined, line, objects, shown, text, texts};
use super::ask::ask;
use crate::cli::{Format, PodsArgs};
use crate::output::{BAD, FAINT, ODD, Rows, TITLE, put, putln, structured};
use crate::page::{Hang, Look, Page};

pub(crate) fn run(args: &PodsArgs) -> anyhow::Result<ExitCode> {
    let mut value = ask(&args.asked.socket, "pods", &[])?;
    let Value::Array(pods) = &mut value else {
        anyhow::bail!("the agent's answer is {}, not a list: use the version of netloom that the agent has", value.kind())
    };
    if let Some(namespace) = &args.namespace {
        pods.retain(|pod| pod.as_object().is_none_or(|o| in_namespace(o, namespace)));
    }
    pods.sort_by_key(|pod| pod.as_object().map(place));
    let objects: Vec<&Object> = pods.iter().filter_map(Value::as_object).collect();
    let well = !objects.iter().any(|o| matters(o));
    match args.output.and_then(Format::structured) {
        Some(format) => structured(&value, format)?,
        None if objects.is_empty() => match &args.namespace {
            Some(namespace) => putln!("no pod of namespace {} is attached on this node", line(namespace)),
            None => putln!("no pod is attached on this node"),
        },
        None => put!("{}", render(&objects, args.output == Some(Format::Wide), Look::here())),
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// The names of this node's pods by their containers; none where no agent answers.
pub(crate) fn names(socket: &Path) -> BTreeMap<String, String> {
    let pods = ask(socket, "pods", &[]).ok();
    let pods = pods.as_ref().and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_object);
    pods.filter(|pod| text(pod, "name").is_some()).filter_map(|pod| Some((pod.str("container")?.to_owned(), full_name(pod)))).collect()
}

/// Whether a pod is to be listed. A record that cannot be read may be of any namespace.
pub(super) fn in_namespace(o: &Object, namespace: &str) -> bool {
    o.str("namespace").is_none_or(|own| own.is_empty() || own == namespace)
}

/// By namespace and name; what has neither comes last.
fn place(o: &Object) -> (bool, String, String) {
    let text = |key| o.str(key).unwrap_or_default().to_owned();
    (text("name").is_empty(), text("namespace"), text("name"))
}

/// Whether somebody must look at it.
fn matters(o: &Object) -> bool {
    matches!(o.str("state"), Some("Failed" | "Changed" | "Unreadable"))
}

/// How a pod in this state is painted.
pub(super) fn style(state: &str) -> Style {
    match state {
        "Failed" | "Unreadable" => BAD,
        "Changed" | "Attaching" => ODD,
        "Removing" => FAINT,
        _ => Style::new(),
    }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Pod,
    State,
    Network,
    Interface,
    Addresses,
    Mac,
    Gateway,
    Container,
    Since,
}

/// Every column.
const WIDE: &[Column] = &[
    Column::Pod,
    Column::State,
    Column::Network,
    Column::Interface,
    Column::Addresses,
    Column::Mac,
    Column::Gateway,
    Column::Container,
    Column::Since,
];

/// What most want to know.
const USUAL: &[Column] = &[Column::Pod, Column::State, Column::Network, Column::Interface, Column::Addresses];

/// What a narrow terminal gets.
const NARROW: &[Column] = &[Column::Pod, Column::State, Column::Interface, Column::Addresses];

/// What stands below a pod's name where even that is too wide.
const BELOW: &[Column] = &[Column::State, Column::Interface, Column::Addresses];

/// A table, with the pod that each of its rows belongs to.
struct Listing<'a> {
    rows: Rows,
    /// Whether pods have a column; else their names are to stand above their rows.
    named: bool,
    pods: Vec<&'a Object>,
}

/// A row for each attachment; the pod's name stands in its first, and what is wrong with it below its last. A narrow
/// terminal gets a row for each address, then fewer columns, then names on lines of their own.
pub(super) fn render(pods: &[&Object], wide: bool, look: Look) -> String {
    let forms = if wide { vec![(WIDE, false)] } else { vec![(USUAL, false), (USUAL, true), (NARROW, true), (BELOW, true)] };
    let listings: Vec<Listing<'_>> = forms.into_iter().map(|(columns, apart)| listing(pods, columns, apart)).collect();
    let mut page = Page::new(look);
    let Some(listing) = listings.iter().find(|l| l.fits(look.width)).or(listings.last()) else { return page.into_text() };
    let indent = if listing.named { "" } else { "  " };
    let mut lines = listing.rows.lines();
    if !listing.named {
        page.row(TITLE, Column::Pod.title());
    }
    page.row(TITLE, &format!("{indent}{}", lines.next().unwrap_or_default()));
    let mut last: Option<&Object> = None;
    for (i, (row, pod)) in lines.zip(&listing.pods).enumerate() {
        let style = style(pod.str("state").unwrap_or_default());
        if !listing.named && !last.is_some_and(|last| std::ptr::eq(last, *pod)) {
            page.row(style, &line(&full_name(pod)));
        }
        last = Some(pod);
        page.row(style, &format!("{indent}{row}"));
        let next = listing.pods.get(i + 1);
        if next.is_none_or(|next| !std::ptr::eq(*next, *pod)) {
            for reason in texts(pod, "reasons") {
                page.line(Hang { first: "  ", rest: "  " }, &[(style, &reason)]);
            }
        }
    }
    page.into_text()
}

fn listing<'a>(pods: &[&'a Object], columns: &[Column], apart: bool) -> Listing<'a> {
    let titles: Vec<&str> = columns.iter().map(|column| column.title()).collect();
    let mut listing = Listing { rows: Rows::new(&titles), named: columns.contains(&Column::Pod), pods: Vec::new() };
    for pod in pods {
        let networks = objects(pod, "networks");
        let none = Object::new();
        let rows = if networks.is_empty() { vec![&none] } else { networks };
        for (i, network) in rows.iter().enumerate() {
            let addresses = if apart { texts(network, "ips") } else { Vec::new() };
            let cell = |column: &Column| match (column, addresses.first()) {
                (column, _) if i > 0 && column.of_pod() => String::new(),
                (Column::Addresses, Some(first)) => line(first),
                _ => line(&column.cell(pod, network)),
            };
            listing.push(pod, columns.iter().map(cell).collect());
            for address in addresses.iter().skip(1) {
                let cell = |column: &Column| if *column == Column::Addresses { line(address) } else { String::new() };
                listing.push(pod, columns.iter().map(cell).collect());
            }
        }
    }
    listing
}

// === impl Listing ===

impl<'a> Listing<'a> {
    fn fits(&self, width: Option<usize>) -> bool {
        self.rows.fits_in(width.map(|width| if self.named { width } else { width.saturating_sub(2) }))
    }

    fn push(&mut self, pod: &'a Object, cells: Vec<String>) {
        self.rows.push(cells);
        self.pods.push(pod);
    }
}

// === impl Column ===

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Pod => "POD",
            Column::State => "STATE",
            Column::Network => "NETWORK",
            Column::Interface => "INTERFACE",
            Column::Addresses => "ADDRESSES",
            Column::Mac => "MAC",
            Column::Gateway => "GATEWAY",
            Column::Container => "CONTAINER",
            Column::Since => "SINCE",
        }
    }

    /// Whether it is the same in all rows of a pod.
    fn of_pod(self) -> bool {
        matches!(self, Column::Pod | Column::State | Column::Container | Column::Since)
    }

    fn cell(self, pod: &Object, network: &Object) -> String {
        match self {
            Column::Pod => full_name(pod),
            Column::State => shown(pod, "state"),
            Column::Network => shown(network, "name"),
            Column::Interface => shown(network, "interface"),
            Column::Addresses => joined(network, "ips"),
            Column::Mac => shown(network, "mac"),
            Column::Gateway => joined(network, "gateway"),
            Column::Container => short(&shown(pod, "container")),
            Column::Since => shown(pod, "at"),
        }
    }
}

/// `namespace/name`; a record that cannot be read tells only its container.
fn full_name(pod: &Object) -> String {
    match (text(pod, "namespace"), text(pod, "name"), text(pod, "container")) {
        (namespace, Some(name), _) => format!("{}/{name}", namespace.as_deref().unwrap_or(NONE)),
        (_, None, Some(container)) => format!("container {}", short(&container)),
        (_, None, None) => NONE.to_owned(),
    }
}

/// As much of a container's ID as tells it from others; `crictl` takes it too.
pub(crate) fn short(container: &str) -> String {
    container.chars().take(13).collect()
}
