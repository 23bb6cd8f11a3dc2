//! The drawing as SVG: one file without scripts or fonts, for light and dark pages, with MAC and MTU as tooltips.
//!
//! It stands on the terminal's plan, a cell being `CELL` pixels, so both show the same lab in the same places.

use std::fmt::Write as _;

use crate::topology::{Interface, Link, LinkKind, Node, Pod, WireKind};

use super::columns::{Columns, PAD};
use super::layout::{LinkPlan, NodePlan, PodPlan};
use super::scene::{Scene, line_label, link_lines};
use super::signs::Signs;
use super::text::{clean, shorten};

mod markup;
mod sheet;

pub use markup::{Markup, Point};
use markup::{Path, escape};

/// A cell's width and height in pixels.
const CELL: (f64, f64) = (7.3, 22.0);
/// Columns that the picture tries to keep within: about 1100 pixels.
const WIDTH: usize = 150;
/// Space around the picture, in pixels.
const MARGIN: f64 = 20.0;
/// Rows above the first node.
const HEAD: usize = 2;

struct Painter<'a> {
    scene: &'a Scene,
    signs: Signs,
    columns: Columns,
    out: Markup,
    /// Node, link and row of everything that a wire could reach.
    exits: Vec<(&'a str, &'a str, usize)>,
}

/// Draws the lab.
pub(super) fn draw(scene: &Scene) -> String {
    let signs = Signs::new(true);
    let columns = Columns::fit(scene, WIDTH, &signs).unwrap_or_else(|| Columns::natural(scene, &signs));
    Painter { scene, signs, columns, out: Markup::new(), exits: Vec::new() }.draw()
}

/// A whole document: for light pages and dark ones, with a title and a summary for who does not see it, and styles besides those of
/// the drawing. Width and height are in pixels.
#[must_use]
pub fn document(title: &str, summary: &str, (width, height): Point, styles: &str, body: Markup) -> String {
    let (title, summary) = (escape(title), escape(summary));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" aria-labelledby=\"title summary\">\n<title id=\"title\">{title}</title>\n<desc id=\"summary\">{summary}</desc>\n\
         <style>\n{}{styles}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
        sheet::css(),
        body.into_text(),
    )
}

/// Left edge of a column.
fn px(column: usize) -> f64 {
    MARGIN + column as f64 * CELL.0
}

/// Middle of a column.
fn mid(column: usize) -> f64 {
    px(column) + CELL.0 / 2.0
}

/// Upper edge of a row.
fn py(row: usize) -> f64 {
    MARGIN + row as f64 * CELL.1
}

/// Middle of a row.
fn level(row: usize) -> f64 {
    py(row) + CELL.1 / 2.0
}

// === impl Painter ===

impl<'a> Painter<'a> {
    fn draw(mut self) -> String {
        let scene = self.scene;
        let plans: Vec<NodePlan> = scene.nodes().iter().map(|node| NodePlan::new(node, &self.columns.breaking)).collect();
        let mut top = HEAD;
        for (node, plan) in scene.nodes().iter().zip(&plans) {
            self.node(node, plan, top);
            top += plan.rows + 2;
        }
        self.wires(top);
        let foot = top + scene.wires().len();
        self.legend(foot);
        let width = px(self.columns.total.max(60)) + MARGIN;
        let height = py(foot + 1) + MARGIN;
        self.finish(width, height)
    }

    fn finish(self, width: f64, height: f64) -> String {
        let mut head = Markup::new();
        head.text(px(0), py(1) - 8.0, "lab", &self.name(self.scene.lab(), 40));
        head.text(px(0), py(1) + 10.0, "faint sans", &self.scene.summary());
        head.append(self.out);
        document(&format!("Lab {}", self.scene.lab()), &self.scene.summary(), (width, height), "", head)
    }

    /// Text as it is shown: shortened in its middle.
    fn name(&self, text: &str, width: usize) -> String {
        shorten(&clean(text, true), width, self.signs.ellipsis)
    }

    fn number(&self, network: &str) -> usize {
        sheet::class(self.scene.number(network))
    }

    fn node(&mut self, node: &'a Node, plan: &NodePlan, top: usize) {
        let (first, right) = (top + 1, px(self.columns.node));
        self.out.rect("node", (px(0), py(top) - 4.0), (right, py(first + plan.rows) + 7.0), 10.0);
        let name = self.name(&node.name, self.columns.node.saturating_sub(6));
        self.out.text(px(PAD), level(top) + 3.0, "strong sans", &name);
        if node.pods.is_empty() {
            self.out.text(px(PAD), level(first) + 4.0, "faint sans", "no pods");
        }
        // Lines come first: what they begin and end at is drawn over their ends.
        self.tracks(node, plan, first);
        self.stands(node, plan, first);
        let shared = matches!(plan.pods.as_slice(), [one, next, ..] if one.bottom == next.top);
        for (pod, rows) in node.pods.iter().zip(&plan.pods) {
            self.pod(pod, rows, first, shared);
        }
        for (link, rows) in node.links.iter().zip(&plan.links) {
            self.link(node, link, rows, first);
        }
    }

    fn pod(&mut self, pod: &Pod, rows: &PodPlan, first: usize, shared: bool) {
        let left = PAD + 2;
        let class = if pod.failure().is_some() { "pod failed" } else { "pod" };
        // Where pods share a row, the title of the next one stands in the last one of this.
        let (above, below) = if shared { (1.0, -1.0) } else { (-1.0, 7.0) };
        let (top, bottom) = (py(first + rows.top) + above, py(first + rows.bottom) + below);
        self.out.open(&pod.title());
        self.out.rect(class, (px(PAD), top), (px(PAD + self.columns.pod()), bottom), 6.0);
        let suffix = if pod.failure().is_some() { " ✗ failed" } else { "" };
        let name = self.name(&pod.title(), self.columns.inner().saturating_sub(suffix.chars().count()));
        let class = if suffix.is_empty() { "strong" } else { "strong bad" };
        self.out.text(px(left), level(first + rows.top) + 5.0, class, &format!("{name}{suffix}"));
        self.out.close();
        for (interface, row) in pod.interfaces.iter().zip(&rows.interfaces) {
            self.interface(interface, first + row);
        }
        let (row, reason) = &rows.reason;
        for (line, text) in reason.iter().enumerate() {
            self.out.text(px(left), level(first + row + line) + 4.0, "bad", text);
        }
        if pod.interfaces.is_empty() && reason.is_empty() {
            self.out.text(px(left), level(first + rows.top + 1) + 4.0, "faint sans", "no interfaces");
        }
    }

    fn interface(&mut self, interface: &Interface, row: usize) {
        let (widths, number) = (self.columns, self.number(&interface.network));
        let (x, y) = (PAD + 2, level(row));
        self.out.open(&about(interface));
        self.out.sign((mid(x), y), number, interface.default, interface.up);
        let class = if interface.up { "" } else { "faint" };
        self.out.text(px(x + 2), y + 4.0, class, &self.name(&interface.name, widths.name));
        let x = x + 2 + widths.name + 2;
        let weight = if interface.default { " strong" } else { "" };
        self.out.text(px(x), y + 4.0, &format!("f{number}{weight}"), &self.name(&interface.network, widths.network));
        let x = x + widths.network + 2;
        for (line, text) in widths.address_lines(interface).iter().enumerate() {
            self.out.text(px(x), level(row + line) + 4.0, "", &self.name(text, widths.address));
        }
        self.out.close();
    }

    fn link(&mut self, node: &'a Node, link: &'a Link, rows: &LinkPlan, first: usize) {
        let (x, missing) = (self.columns.link_x(), link.kind == LinkKind::Missing);
        let corner = (px(x), py(first + rows.top) - 1.0);
        let end = (px(x + self.columns.link + 4), py(first + rows.top + rows.rows) - 15.0);
        self.out.open(&format!("{}: {}", link.name, link_lines(link).join(", ")));
        self.out.rect(if missing { "link failed" } else { "link" }, corner, end, 3.0);
        let network = self.scene.network_of(node, link).map(|network| self.number(network));
        if let Some(number) = network.filter(|_| !missing) {
            self.out.rect(&format!("f{number}"), corner, (corner.0 + 4.0, end.1), 2.0);
        }
        let class = match network {
            _ if missing => "strong bad".to_owned(),
            Some(number) => format!("strong f{number}"),
            None => "strong".to_owned(),
        };
        self.out.text(px(x + 2), level(first + rows.top) + 5.0, &class, &self.name(&link.name, self.columns.link));
        for (line, text) in link_lines(link).iter().enumerate() {
            let class = match text.contains('/') {
                true => "",
                false if missing => "bad",
                false => "faint",
            };
            self.out.text(px(x + 2), level(first + rows.exit + line) + 4.0, class, &self.name(text, self.columns.link));
        }
        self.out.close();
        self.exits.push((&node.name, &link.name, first + rows.exit));
    }

    /// From every interface over its track to its link.
    fn tracks(&mut self, node: &Node, plan: &NodePlan, first: usize) {
        let from = px(PAD + self.columns.pod());
        let (mut labels, link_x) = (Vec::new(), px(self.columns.link_x()));
        for track in &plan.tracks {
            let x = mid(self.columns.track_x(track.column));
            let mut last = 0;
            for join in &track.joins {
                let Some(one) = node.pods.get(join.pod).and_then(|pod| pod.interfaces.get(join.interface)) else { continue };
                last = self.number(&one.network);
                let (start, end) = ((from, level(first + join.row)), (link_x, level(first + track.exit)));
                // The outermost draw the whole way, those between only their way into it: a line of a hundred would be bold.
                let outermost = track.joins.first() == Some(join) || track.joins.last() == Some(join) || join.row == track.exit;
                let way = if outermost { Path::from(start).over(x, end) } else { Path::from(start).into_line(x, end.1) };
                self.out.path(&format!("line s{last}"), &way);
                if self.columns.label > 0 && !line_label(one).is_empty() {
                    labels.push((first + join.row, line_label(one)));
                }
            }
            if let Some(link) = node.links.get(track.link).filter(|_| track.tail) {
                let end = (x + 12.0, level(first + track.to));
                self.out.path(&format!("line s{last}"), &Path::from((x, level(first + track.exit))).down_to(end));
                self.out.text(end.0 + 4.0, end.1 + 4.0, &format!("f{last}"), &self.name(&link.name, 15));
            }
        }
        for (row, label) in labels {
            let (text, x) = (self.name(label, self.columns.label), from + 2.0 * CELL.0);
            let width = super::text::columns(&text) as f64 * CELL.0;
            self.out.rect("paper", (x - 4.0, level(row) - 7.0), (x + width + 2.0, level(row) + 7.0), 0.0);
            self.out.text(x, level(row) + 4.0, "faint small", &text);
        }
    }

    /// From a link that stands on another one to that one, to the right of both.
    fn stands(&mut self, node: &Node, plan: &NodePlan, first: usize) {
        let right = px(self.columns.node - PAD);
        for (link, rows) in node.links.iter().zip(&plan.links) {
            let base = link.attached_to.as_ref().and_then(|name| node.links.iter().position(|other| other.name == *name));
            if let Some(base) = base.and_then(|number| plan.links.get(number)) {
                let way = Path::from((right, level(first + rows.exit + 1))).over(right + 8.0, (right, level(first + base.top)));
                self.out.path("stands", &way);
            }
        }
    }

    fn wires(&mut self, top: usize) {
        let scene = self.scene;
        let (plugged, idle): (Vec<_>, Vec<_>) = scene.wires().iter().partition(|wire| !wire.connects.is_empty());
        for (number, wire) in plugged.iter().enumerate() {
            let (x, row) = (mid(self.columns.wire_x(number)), top + number);
            let start = x - 3.0 * CELL.0;
            self.out.open(&wire.title());
            let ends: Vec<usize> = self
                .exits
                .iter()
                .filter(|(node, link, _)| wire.connects.iter().any(|end| end.node == *node && end.link == *link))
                .map(|(_, _, row)| *row)
                .collect();
            // A band of the page's colour below: where wires cross, this one passes over those before it.
            let line = if wire.kind == WireKind::Tunnel { "wire tunnel" } else { "wire" };
            for (class, left) in [("wire band", px(self.columns.node) + 4.0), (line, px(self.columns.node - PAD))] {
                for exit in &ends {
                    self.out.path(class, &Path::from((left, level(*exit))).over(x, (start, level(row))));
                }
            }
            let name = self.name(&wire.name, self.columns.wire_x(number).saturating_sub(6));
            self.out.text_end(start - CELL.0, level(row) + 4.0, "strong sans", &name);
            self.out.close();
        }
        for (number, wire) in idle.iter().enumerate() {
            let text = format!("{} (nothing plugged in)", self.name(&wire.name, 40));
            self.out.text(px(0), level(top + plugged.len() + number) + 4.0, "faint sans", &text);
        }
    }

    fn legend(&mut self, row: usize) {
        let interfaces: Vec<&Interface> = self.scene.nodes().iter().flat_map(|node| &node.pods).flat_map(|pod| &pod.interfaces).collect();
        let meanings =
            [(true, true, "default network"), (false, true, "other network"), (true, false, "default, down"), (false, false, "down")];
        let mut x = px(0) + 6.0;
        for (default, up, meaning) in meanings {
            if interfaces.iter().any(|one| (one.default, one.up) == (default, up)) {
                self.out.sign((x, level(row) + 6.0), usize::MAX, default, up);
                self.out.text(x + 10.0, level(row) + 10.0, "faint sans", meaning);
                x += 30.0 + meaning.len() as f64 * 6.6;
            }
        }
    }
}

/// What a tooltip tells of an interface.
fn about(interface: &Interface) -> String {
    let mut out = format!("{} on {}", interface.name, interface.network);
    for address in &interface.addresses {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n{address}");
    }
    let state = if interface.up { "up" } else { "down" };
    let _ = write!(out, "\n{}{}{state}", interface.kind, if interface.kind.is_empty() { "" } else { ", " });
    if let Some(mac) = &interface.mac {
        let _ = write!(out, "\nMAC {mac}");
    }
    if let Some(mtu) = interface.mtu {
        let _ = write!(out, "\nMTU {mtu}");
    }
    if let Some(via) = &interface.via {
        let _ = write!(out, "\nhost side {via}");
    }
    if let Some(link) = &interface.attached_to {
        let _ = write!(out, "\nattached to {link}");
    }
    out
}
