//! The drawing for Graphviz: a cluster per node, a table per pod, an edge per attachment.
//!
//! `netloom lab graph --format dot | dot -Tsvg > lab.svg`

use std::fmt::Write as _;

use crate::topology::{Interface, Link, LinkKind, Node, Pod, WireKind};

use super::scene::{Scene, line_label, link_lines};
use super::text::clean;

/// What stands before the first node. Colours are readable on white, which a dark page has to be told.
const HEAD: &str = r##"  rankdir=LR
  bgcolor="white"
  fontname="Helvetica,Arial,sans-serif"
  fontsize=12
  labeljust=l
  ranksep=1.2
  nodesep=0.2
  node [shape=plain fontname="Helvetica,Arial,sans-serif" fontsize=11]
  edge [fontname="Helvetica,Arial,sans-serif" fontsize=9 fontcolor="#64748b"]
"##;
const FAILED: &str = "#b91c1c";
const FAINT: &str = "#64748b";

/// Draws the lab.
pub(super) fn draw(scene: &Scene) -> String {
    let mut out = format!("graph {} {{\n{HEAD}", quoted(scene.lab()));
    for (number, node) in scene.nodes().iter().enumerate() {
        cluster(scene, number, node, &mut out);
    }
    for (number, wire) in scene.wires().iter().enumerate() {
        let label = wire.title();
        let (shape, edge) = match wire.kind {
            WireKind::Wire => ("rounded,bold", "bold"),
            WireKind::Tunnel => ("rounded,dashed", "dashed"),
        };
        put(&mut out, &format!("  w{number} [shape=box style=\"{shape}\" label={}]\n", quoted(&label)));
        for end in &wire.connects {
            let node = scene.nodes().iter().position(|node| node.name == end.node);
            let link = node.and_then(|node| Some((node, scene.nodes().get(node)?.links.iter().position(|link| link.name == end.link)?)));
            if let Some((node, link)) = link {
                put(&mut out, &format!("  n{node}l{link}:name:e -- w{number}:w [style={edge} color=\"#475569\"]\n"));
            }
        }
    }
    out.push_str("}\n");
    out
}

fn put(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = out.write_str(text);
}

fn cluster(scene: &Scene, number: usize, node: &Node, out: &mut String) {
    put(out, &format!("  subgraph cluster_n{number} {{\n    label={}\n    style=rounded\n    color=\"#cbd5e1\"\n", quoted(&node.name)));
    for (index, pod) in node.pods.iter().enumerate() {
        put(out, &format!("    n{number}p{index} [label=<{}>]\n", pod_table(scene, pod)));
    }
    for (index, link) in node.links.iter().enumerate() {
        put(out, &format!("    n{number}l{index} [label=<{}>]\n", link_table(scene, node, link)));
    }
    // Also what nothing reaches stands right of the pods.
    let links: Vec<String> = (0..node.links.len()).map(|index| format!("n{number}l{index}")).collect();
    if !links.is_empty() {
        put(out, &format!("    {{ rank=same {} }}\n", links.join(" ")));
    }
    for (index, link) in node.links.iter().enumerate() {
        let base = link.attached_to.as_ref().and_then(|name| node.links.iter().position(|other| other.name == *name));
        if let Some(base) = base {
            put(out, &format!("    n{number}l{index} -- n{number}l{base} [style=dashed color=\"{FAINT}\"]\n"));
        }
    }
    for (index, pod) in node.pods.iter().enumerate() {
        for (place, interface) in pod.interfaces.iter().enumerate() {
            let link = interface.attached_to.as_ref().and_then(|name| node.links.iter().position(|link| link.name == *name));
            if let Some(link) = link {
                let (color, label) = (color(scene, &interface.network), quoted(line_label(interface)));
                let edge = format!("    n{number}p{index}:i{place}:e -- n{number}l{link}:name:w [color=\"{color}\" label={label}]\n");
                put(out, &edge);
            }
        }
    }
    put(out, "  }\n");
}

fn color(scene: &Scene, network: &str) -> &'static str {
    scene.hue(network).map_or(FAINT, |hue| hue.light)
}

/// A pod as a table: its name, a row for each interface, its failure.
fn pod_table(scene: &Scene, pod: &Pod) -> String {
    let (frame, mark) = if pod.failure().is_some() { (FAILED, " ✗ failed") } else { ("#cbd5e1", "") };
    let mut out = format!("<table border=\"1\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"4\" color=\"{frame}\" style=\"rounded\">");
    put(&mut out, &format!("<tr><td align=\"left\" colspan=\"3\"><b>{}</b>{mark}</td></tr>", markup(&pod.title())));
    for (place, interface) in pod.interfaces.iter().enumerate() {
        let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
        let state = if interface.up { "" } else { " (down)" };
        let tip = markup(&about(interface));
        // A cell has a tooltip only if it links somewhere.
        put(&mut out, &format!("<tr><td align=\"left\" href=\"#\" tooltip=\"{tip}\">{}{state}</td>", markup(&interface.name)));
        let color = color(scene, &interface.network);
        put(&mut out, &format!("<td align=\"left\"><font color=\"{color}\">{}</font></td>", markup(&interface.network)));
        put(&mut out, &format!("<td align=\"left\" port=\"i{place}\">{}</td></tr>", markup(&addresses.join("  "))));
    }
    if let Some(reason) = pod.failure() {
        let lines = super::text::wrap(&clean(reason, true), 48, 12, '…');
        let lines: Vec<String> = lines.iter().map(|line| format!("{}<br align=\"left\"/>", markup(line))).collect();
        put(&mut out, &format!("<tr><td align=\"left\" colspan=\"3\"><font color=\"{FAILED}\">{}</font></td></tr>", lines.concat()));
    }
    out.push_str("</table>");
    out
}

fn link_table(scene: &Scene, node: &Node, link: &Link) -> String {
    let network = scene.network_of(node, link);
    let frame = match network {
        _ if link.kind == LinkKind::Missing => FAILED,
        Some(network) => color(scene, network),
        None => FAINT,
    };
    let lines: Vec<String> = link_lines(link).iter().map(|line| format!("<br align=\"left\"/>{}", markup(line))).collect();
    format!(
        "<table border=\"1\" cellborder=\"0\" cellspacing=\"0\" cellpadding=\"6\" color=\"{frame}\"><tr><td align=\"left\" port=\"name\">\
         <b>{}</b>{}<br align=\"left\"/></td></tr></table>",
        markup(&link.name),
        lines.concat()
    )
}

fn about(interface: &Interface) -> String {
    let mac = interface.mac.as_ref().map(|mac| format!(" MAC {mac}")).unwrap_or_default();
    let mtu = interface.mtu.map(|mtu| format!(" MTU {mtu}")).unwrap_or_default();
    format!("{}{mac}{mtu}", interface.kind)
}

/// A string in quotes. Graphviz reads first entities, then escapes in labels, so neither an ampersand nor a backslash
/// stands for itself.
fn quoted(text: &str) -> String {
    let inner = clean(text, true).replace('&', "&amp;").replace('\\', "\\\\").replace('"', "&quot;");
    format!("\"{inner}\"")
}

/// Text in an HTML-like label. An empty one is a syntax error inside of `<b>` or `<font>`.
fn markup(text: &str) -> String {
    match clean(text, true) {
        text if text.is_empty() => " ".to_owned(),
        text => {
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            text.replace('"', "&quot;").replace('\\', "&#92;").replace('\'', "&#39;")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        assert_eq!(quoted("a\"]; \\n &lt; <b>"), "\"a&quot;]; \\\\n &amp;lt; <b>\"");
        assert_eq!(markup("<b>&\"\\N"), "&lt;b&gt;&amp;&quot;&#92;N");
        assert_eq!(markup(""), " ");
    }
}
