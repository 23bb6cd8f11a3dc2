//! The drawing for a narrow terminal: the same lab as an indented tree.

use crate::topology::{Interface, Link, LinkKind, Node, Pod};

use super::Style;
use super::palette::Paint;
use super::scene::{Scene, link_lines};
use super::signs::Signs;
use super::terminal::{footer, painted, title};
use super::text::{clean, columns, cut, wrap};

/// Rows that a failure's reason takes at most.
const REASON_ROWS: usize = 8;

struct Tree<'a> {
    scene: &'a Scene,
    style: &'a Style,
    signs: &'a Signs,
    out: String,
}

/// Draws the lab as a tree within the width of the style.
pub(super) fn draw(scene: &Scene, style: &Style, signs: &Signs) -> String {
    let mut tree = Tree { scene, style, signs, out: title(scene, style, signs) };
    for node in scene.nodes() {
        tree.node(node);
    }
    for wire in scene.wires() {
        tree.line(&[(&wire.title(), Paint::Strong)]);
        for (number, end) in wire.connects.iter().enumerate() {
            let stem = tree.stem(number + 1 == wire.connects.len());
            tree.line(&[(stem.0, Paint::Faint), (&format!("{} {}", end.node, end.link), Paint::Plain)]);
        }
    }
    let Tree { out, .. } = tree;
    out + &footer(scene, style, signs)
}

// === impl Tree ===

impl Tree<'_> {
    /// What stands before an item, and before what belongs to it.
    fn stem(&self, last: bool) -> (&'static str, &'static str) {
        match (self.style.unicode, last) {
            (true, false) => ("├─ ", "│  "),
            (true, true) => ("╰─ ", "   "),
            (false, false) => ("|- ", "|  "),
            (false, true) => ("`- ", "   "),
        }
    }

    /// A line of pieces, cut off at the width.
    fn line(&mut self, pieces: &[(&str, Paint)]) {
        let mut room = self.style.width;
        for (text, paint) in pieces {
            // Stems are drawn by us; everything else may be foreign.
            let text = if *paint == Paint::Faint { (*text).to_owned() } else { clean(text, self.style.unicode) };
            let text = cut(&text, room, self.signs.ellipsis);
            room -= columns(&text);
            self.out.push_str(&painted(&text, *paint, self.style));
        }
        self.out.push('\n');
    }

    fn node(&mut self, node: &Node) {
        self.line(&[(&node.name, Paint::Strong)]);
        let items = node.links.len() + node.pods.len();
        for (number, link) in node.links.iter().enumerate() {
            self.link(node, link, number + 1 == items);
        }
        for (number, pod) in node.pods.iter().enumerate() {
            self.pod(pod, node.links.len() + number + 1 == items);
        }
    }

    fn link(&mut self, node: &Node, link: &Link, last: bool) {
        let (stem, under) = self.stem(last);
        let (name, rest) = match self.scene.network_of(node, link) {
            _ if link.kind == LinkKind::Missing => (Paint::StrongBad, Paint::Bad),
            Some(network) => (Paint::StrongNetwork(self.scene.number(network)), Paint::Plain),
            None => (Paint::Strong, Paint::Plain),
        };
        let lines = link_lines(link);
        let (first, more) = lines.split_first().map_or(("", [].as_slice()), |(first, more)| (first.as_str(), more));
        self.line(&[(stem, Paint::Faint), (&link.name, name), ("  ", Paint::Plain), (first, rest)]);
        for text in more {
            self.line(&[(under, Paint::Faint), ("   ", Paint::Plain), (text, Paint::Plain)]);
        }
    }

    fn pod(&mut self, pod: &Pod, last: bool) {
        let (stem, under) = self.stem(last);
        let Some(reason) = pod.failure() else {
            self.line(&[(stem, Paint::Faint), (&pod.title(), Paint::Strong)]);
            return self.interfaces(pod, under);
        };
        self.line(&[(stem, Paint::Faint), (&pod.title(), Paint::StrongBad), (&format!(" {} failed", self.signs.failed), Paint::StrongBad)]);
        self.interfaces(pod, under);
        let room = self.style.width.saturating_sub(columns(under) + 3);
        for text in wrap(&clean(reason, self.style.unicode), room, REASON_ROWS, self.signs.ellipsis) {
            self.line(&[(under, Paint::Faint), ("   ", Paint::Plain), (&text, Paint::Bad)]);
        }
    }

    fn interfaces(&mut self, pod: &Pod, under: &str) {
        for (number, interface) in pod.interfaces.iter().enumerate() {
            self.interface(interface, under, number + 1 == pod.interfaces.len());
        }
    }

    fn interface(&mut self, interface: &Interface, under: &str, last: bool) {
        let (stem, below) = self.stem(last);
        let hue = Paint::Network(self.scene.number(&interface.network));
        let sign = format!("{} ", self.signs.of(interface));
        let arrow = if self.style.unicode { " → " } else { " -> " };
        let reached = interface.attached_to.as_ref().map(|link| format!("{arrow}{link}")).unwrap_or_default();
        let name = format!("{}  ", interface.name);
        let parts = [(under, Paint::Faint), (stem, Paint::Faint), (&sign, hue), (&name, Paint::Plain), (&interface.network, hue)];
        self.line(&[parts.as_slice(), &[(reached.as_str(), Paint::Plain)]].concat());
        for address in &interface.addresses {
            self.line(&[(under, Paint::Faint), (below, Paint::Faint), ("  ", Paint::Plain), (&address.to_string(), Paint::Plain)]);
        }
    }
}
