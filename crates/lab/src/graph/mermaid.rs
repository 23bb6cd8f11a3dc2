//! The drawing as a Mermaid flowchart: a subgraph per node and per pod, a shape per interface and link.

use std::fmt::Write as _;

use crate::topology::{Interface, Link, LinkKind, Node, Pod, WireKind};

use super::palette::HUES;
use super::scene::{Scene, line_label, link_lines};
use super::text::clean;

struct Chart<'a> {
    scene: &'a Scene,
    out: String,
    /// Edges so far: Mermaid styles them by their numbers.
    edges: usize,
    /// Which edges a network has.
    styles: Vec<Vec<usize>>,
}

/// Draws the lab.
pub(super) fn draw(scene: &Scene) -> String {
    let styles = vec![Vec::new(); HUES.len()];
    let mut chart = Chart { scene, out: "flowchart LR\n".to_owned(), edges: 0, styles };
    for (number, node) in scene.nodes().iter().enumerate() {
        chart.node(number, node);
    }
    chart.wires();
    chart.colors();
    chart.out
}

// === impl Chart ===

impl Chart<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn class(&self, network: &str) -> usize {
        self.scene.number(network) % HUES.len()
    }

    fn node(&mut self, number: usize, node: &Node) {
        self.line(&format!("  subgraph n{number}[{}]", label(&[&node.name])));
        if node.pods.is_empty() && node.links.is_empty() {
            self.line(&format!("    n{number}e[\"no pods\"]"));
        }
        for (index, pod) in node.pods.iter().enumerate() {
            self.pod(&format!("n{number}p{index}"), pod);
        }
        for (index, link) in node.links.iter().enumerate() {
            self.link(&format!("n{number}l{index}"), node, link);
        }
        self.line("  end");
        let position = |name: &Option<String>| node.links.iter().position(|link| Some(&link.name) == name.as_ref());
        for (index, pod) in node.pods.iter().enumerate() {
            for (place, interface) in pod.interfaces.iter().enumerate() {
                if let Some(link) = position(&interface.attached_to) {
                    self.attachment(&format!("n{number}p{index}i{place}"), interface, &format!("n{number}l{link}"));
                }
            }
        }
        for (index, link) in node.links.iter().enumerate() {
            if let Some(base) = position(&link.attached_to) {
                self.line(&format!("  n{number}l{index} -.- n{number}l{base}"));
                self.edges += 1;
            }
        }
    }

    fn pod(&mut self, id: &str, pod: &Pod) {
        let mark = if pod.failure().is_some() { " ✗ failed" } else { "" };
        self.line(&format!("    subgraph {id}[{}]", label(&[&format!("{}{mark}", pod.title())])));
        for (place, interface) in pod.interfaces.iter().enumerate() {
            let class = self.class(&interface.network);
            let state = if interface.up { "" } else { " (down)" };
            let first = format!("{}{state}", interface.name);
            let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
            let lines: Vec<&str> = [first.as_str(), &interface.network].into_iter().chain(addresses.iter().map(String::as_str)).collect();
            self.line(&format!("      {id}i{place}[{}]:::c{class}", label(&lines)));
        }
        match pod.failure() {
            Some(reason) => {
                let lines = super::text::wrap(&clean(reason, true), 48, 12, '…');
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                self.line(&format!("      {id}r[{}]:::failed", label(&lines)));
            }
            // A subgraph without anything in it would be drawn as a shape of its own.
            None if pod.interfaces.is_empty() => self.line(&format!("      {id}r[\"no interfaces\"]")),
            None => {}
        }
        self.line("    end");
    }

    fn link(&mut self, id: &str, node: &Node, link: &Link) {
        let text = link_lines(link);
        let lines: Vec<&str> = [link.name.as_str()].into_iter().chain(text.iter().map(String::as_str)).collect();
        let class = match self.scene.network_of(node, link) {
            _ if link.kind == LinkKind::Missing => ":::failed".to_owned(),
            Some(network) => format!(":::c{}", self.class(network)),
            None => String::new(),
        };
        self.line(&format!("    {id}[[{}]]{class}", label(&lines)));
    }

    fn attachment(&mut self, from: &str, interface: &Interface, to: &str) {
        let line = match line_label(interface) {
            "" => format!("  {from} --- {to}"),
            text => format!("  {from} ---|{}| {to}", label(&[text])),
        };
        self.line(&line);
        let class = self.class(&interface.network);
        if let Some(edges) = self.styles.get_mut(class) {
            edges.push(self.edges);
        }
        self.edges += 1;
    }

    fn wires(&mut self) {
        for (number, wire) in self.scene.wires().iter().enumerate() {
            self.line(&format!("  w{number}([{}])", label(&[&wire.title()])));
            for end in &wire.connects {
                let node = self.scene.nodes().iter().position(|node| node.name == end.node);
                let links = node.and_then(|node| self.scene.nodes().get(node)).map(|node| node.links.as_slice());
                let link = links.and_then(|links| links.iter().position(|link| link.name == end.link));
                if let (Some(node), Some(link)) = (node, link) {
                    let edge = if wire.kind == WireKind::Tunnel { "-.-" } else { "===" };
                    self.line(&format!("  n{node}l{link} {edge} w{number}"));
                    self.edges += 1;
                }
            }
        }
    }

    /// Strokes only: fills and text are the theme's, so that light and dark pages both stay readable.
    fn colors(&mut self) {
        let used = self.scene.networks().len().min(HUES.len());
        for (number, hue) in HUES.iter().enumerate().take(used) {
            self.line(&format!("  classDef c{number} stroke:{},stroke-width:2px", hue.light));
        }
        self.line("  classDef failed stroke:#dc2626,stroke-width:2px,color:#dc2626");
        for (edges, hue) in std::mem::take(&mut self.styles).iter().zip(&HUES) {
            let mut list = String::new();
            for edge in edges {
                // Writing to a String cannot fail.
                let _ = write!(list, "{}{edge}", if list.is_empty() { "" } else { "," });
            }
            if !list.is_empty() {
                self.line(&format!("  linkStyle {list} stroke:{}", hue.light));
            }
        }
    }
}

/// Lines of text in quotes, every one of which could be anything. What Mermaid or the Markdown and HTML that it makes
/// of it would read as more than text is written as its character's number, `#34;`; colons are where there are such
/// numbers, as Mermaid takes the last `;` off what looks like `style x:#..;`.
fn label(lines: &[&str]) -> String {
    let text = lines.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
    let text = if text.contains('#') { text.replace(':', "#58;") } else { text };
    format!("\"{text}\"")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text, true).chars() {
        match c {
            ' ' | '.' | '/' | '-' | ',' | ':' | '(' | ')' => out.push(c),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_only_text() {
        assert_eq!(label(&["eth0", "fd00::1/64"]), "\"eth0<br>fd00::1/64\"");
        assert_eq!(escape("a\"]<b>`#x;`&end"), "a#34;#93;#60;b#62;#96;#35;x#59;#96;#38;end");
        assert_eq!(label(&["style", "fd00::1", "\"y_"]), "\"style<br>fd00#58;#58;1<br>#34;y#95;\"");
        assert_eq!(escape("a\nb\u{202e}ü漢"), "a bü漢");
    }
}
