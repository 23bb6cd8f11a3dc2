//! The drawing for a terminal: a box per node, pods left, links right, wires outside.

use crate::topology::{Interface, Link, LinkKind, Node, Pod};

use super::Style;
use super::canvas::{Area, Canvas, Weight};
use super::columns::{Columns, PAD};
use super::layout::{LinkPlan, NodePlan, PodPlan};
use super::palette::Paint;
use super::scene::{Scene, line_label, link_lines};
use super::signs::Signs;
use super::text::{clean, columns, cut, shorten};
use super::tree;

mod wires;

/// Below this many columns boxes beside each other have no room.
const NARROW: usize = 60;

/// Draws the lab within the width of the style.
pub(super) fn draw(scene: &Scene, style: &Style) -> String {
    let signs = Signs::new(style.unicode);
    let fit = if style.width < NARROW { None } else { Columns::fit(scene, style.width, &signs) };
    match fit {
        Some(columns) => Painter { scene, signs, columns, ends: Vec::new() }.draw(style),
        None => tree::draw(scene, style, &signs),
    }
}

/// Where a link leaves its node.
struct Exit {
    node: String,
    link: String,
    row: usize,
}

struct Painter<'a> {
    scene: &'a Scene,
    signs: Signs,
    columns: Columns,
    ends: Vec<Exit>,
}

// === impl Painter ===

impl Painter<'_> {
    fn draw(mut self, style: &Style) -> String {
        let plans: Vec<NodePlan> = self.scene.nodes().iter().map(|node| NodePlan::new(node, &self.columns.breaking)).collect();
        let boxes: usize = plans.iter().map(|plan| plan.rows + 2).sum();
        let mut canvas = Canvas::new(self.columns.total.min(style.width), 1 + boxes + wires::rows(self.scene) + 2);
        let mut top = 1;
        for (node, plan) in self.scene.nodes().iter().zip(&plans) {
            self.node(&mut canvas, node, plan, top);
            top += plan.rows + 2;
        }
        wires::draw(self.scene, &self.columns, &self.signs, &self.ends, top, &mut canvas);
        let body = canvas.print(style.unicode, style.color);
        let lines = body.lines().filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect::<String>();
        format!("{}{lines}{}", title(self.scene, style, &self.signs), footer(self.scene, style, &self.signs))
    }

    /// Cleaned text, shortened in its middle.
    fn name(&self, text: &str, width: usize) -> String {
        shorten(&clean(text, self.signs.unicode), width, self.signs.ellipsis)
    }

    fn node(&mut self, canvas: &mut Canvas, node: &Node, plan: &NodePlan, top: usize) {
        let width = self.columns.node;
        canvas.frame(Area { x: 0, y: top, width, height: plan.rows + 2 }, Paint::Faint, false);
        let name = self.name(&node.name, width.saturating_sub(6));
        canvas.text(2, top, &format!(" {name} "), Paint::Strong);
        let first = top + 1;
        if node.pods.is_empty() {
            canvas.text(PAD, first, "no pods", Paint::Faint);
        }
        for (pod, rows) in node.pods.iter().zip(&plan.pods) {
            let paint = if pod.failure().is_some() { Paint::Bad } else { Paint::Faint };
            let area = Area { x: PAD, y: first + rows.top, width: self.columns.pod(), height: rows.bottom - rows.top + 1 };
            canvas.frame(area, paint, false);
        }
        for (pod, rows) in node.pods.iter().zip(&plan.pods) {
            self.pod(canvas, pod, rows, first);
        }
        for (link, rows) in node.links.iter().zip(&plan.links) {
            self.link(canvas, node, link, rows, first);
        }
        self.tracks(canvas, node, plan, first);
    }

    fn pod(&self, canvas: &mut Canvas, pod: &Pod, rows: &PodPlan, first: usize) {
        let (x, inner) = (PAD + 2, self.columns.inner());
        let (suffix, paint) = match pod.failure() {
            Some(_) => (format!("{} failed ", self.signs.failed), Paint::StrongBad),
            None => (String::new(), Paint::Strong),
        };
        let name = self.name(&pod.title(), inner.saturating_sub(2 + columns(&suffix)));
        canvas.text(x, first + rows.top, &format!(" {name} {suffix}"), paint);
        for (interface, row) in pod.interfaces.iter().zip(&rows.interfaces) {
            self.interface(canvas, interface, first + row);
        }
        let (row, reason) = &rows.reason;
        for (line, text) in reason.iter().enumerate() {
            canvas.text(x, first + row + line, text, Paint::Bad);
        }
        if pod.interfaces.is_empty() && reason.is_empty() {
            canvas.text(x, first + rows.top + 1, "no interfaces", Paint::Faint);
        }
    }

    fn interface(&self, canvas: &mut Canvas, interface: &Interface, row: usize) {
        let (widths, number) = (&self.columns, self.scene.number(&interface.network));
        let x = PAD + 2;
        canvas.text(x, row, &self.signs.of(interface).to_string(), Paint::Network(number));
        let paint = if interface.up { Paint::Plain } else { Paint::Faint };
        canvas.text(x + 2, row, &self.name(&interface.name, widths.name), paint);
        let x = x + 2 + widths.name + 2;
        let paint = if interface.default { Paint::StrongNetwork(number) } else { Paint::Network(number) };
        canvas.text(x, row, &self.name(&interface.network, widths.network), paint);
        let x = x + widths.network + 2;
        for (line, text) in widths.address_lines(interface).iter().enumerate() {
            canvas.text(x, row + line, &self.name(text, widths.address), Paint::Plain);
        }
    }

    fn link(&mut self, canvas: &mut Canvas, node: &Node, link: &Link, rows: &LinkPlan, first: usize) {
        let (x, width) = (self.columns.link_x(), self.columns.link + 4);
        let missing = link.kind == LinkKind::Missing;
        let frame = if missing { Paint::Bad } else { Paint::Faint };
        canvas.frame(Area { x, y: first + rows.top, width, height: rows.rows }, frame, true);
        let paint = match self.scene.network_of(node, link) {
            _ if missing => Paint::StrongBad,
            Some(network) => Paint::StrongNetwork(self.scene.number(network)),
            None => Paint::Strong,
        };
        let name = self.name(&link.name, self.columns.link.saturating_sub(2));
        canvas.text(x + 2, first + rows.top, &format!(" {name} "), paint);
        for (line, text) in link_lines(link).iter().enumerate() {
            let paint = if missing { Paint::Bad } else { Paint::Faint };
            let paint = if text.contains('/') { Paint::Plain } else { paint };
            canvas.text(x + 2, first + rows.exit + line, &self.name(text, self.columns.link), paint);
        }
        self.ends.push(Exit { node: node.name.clone(), link: link.name.clone(), row: first + rows.exit });
    }

    /// The lines from interfaces to links: first those that go down, so that those that go across can pass behind.
    fn tracks(&self, canvas: &mut Canvas, node: &Node, plan: &NodePlan, first: usize) {
        let interface = |pod: usize, number: usize| node.pods.get(pod).and_then(|pod| pod.interfaces.get(number));
        let paint = |interface: Option<&Interface>| interface.map_or(Paint::Faint, |one| Paint::Network(self.scene.number(&one.network)));
        let from = PAD + self.columns.pod() - 1;
        let column = |column: usize| self.columns.track_x(column);
        for track in &plan.tracks {
            let own = track.joins.first().map_or(Paint::Faint, |join| paint(interface(join.pod, join.interface)));
            canvas.down(column(track.column), first + track.from, first + track.to, Weight::Thin, own);
        }
        for track in &plan.tracks {
            let mut own = Paint::Faint;
            for join in &track.joins {
                let one = interface(join.pod, join.interface);
                own = paint(one);
                canvas.across(first + join.row, from, column(track.column), Weight::Thin, own);
                if let Some(one) = one.filter(|one| self.columns.label > 0 && !line_label(one).is_empty()) {
                    canvas.text(from + 2, first + join.row, &format!(" {} ", self.name(line_label(one), self.columns.label)), Paint::Faint);
                }
            }
            canvas.across(first + track.exit, column(track.column), self.columns.link_x(), Weight::Thin, own);
            if let Some(link) = node.links.get(track.link).filter(|_| track.tail) {
                let x = column(track.column);
                canvas.across(first + track.to, x, x + 1, Weight::Thin, own);
                let room = self.columns.node.saturating_sub(x + 4);
                canvas.text(x + 2, first + track.to, &format!(" {}", self.name(&link.name, room)), own);
            }
        }
    }
}

/// The line above the drawing: the lab's name and how much there is of what.
pub(super) fn title(scene: &Scene, style: &Style, signs: &Signs) -> String {
    let name = cut(&clean(scene.lab(), style.unicode), style.width, signs.ellipsis);
    let rest = cut(&format!("  {}", scene.summary()), style.width.saturating_sub(columns(&name)), signs.ellipsis);
    format!("{}{}\n", painted(&name, Paint::Strong, style), painted(&rest, Paint::Faint, style))
}

/// What ends the drawing: a line that says what the signs mean, if there are any.
pub(super) fn footer(scene: &Scene, style: &Style, signs: &Signs) -> String {
    match cut(&signs.legend(scene), style.width, signs.ellipsis) {
        legend if legend.is_empty() => String::new(),
        legend => format!("{}\n", painted(&legend, Paint::Faint, style)),
    }
}

/// Text in a colour, if the style has colours.
pub(super) fn painted(text: &str, paint: Paint, style: &Style) -> String {
    if style.color && paint != Paint::Plain && !text.is_empty() { format!("{}{text}\x1b[0m", paint.style()) } else { text.to_owned() }
}
