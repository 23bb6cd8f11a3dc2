//! The style sheet: colours for light pages, and for dark ones where the reader prefers those. Colours are written out
//! in both, as not every viewer knows CSS variables.

use std::fmt::Write as _;

use crate::graph::palette::HUES;

/// Shapes, sizes and the colours of light pages.
const LIGHT: &str = r#"text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2937; white-space: pre }
.sans { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
.lab { font: 600 18px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
.strong { font-weight: 600 }
.small { font-size: 11px }
.line, .wire, .stands, .hollow { fill: none }
.line { stroke-width: 1.75; stroke-linecap: round }
.line:hover { stroke-width: 4 }
.wire { stroke: #475569; stroke-width: 4; stroke-linecap: round }
.tunnel { stroke-width: 2; stroke-dasharray: 6 4 }
.band { stroke: #ffffff; stroke-width: 9 }
.stands { stroke: #64748b; stroke-width: 1.5; stroke-dasharray: 3 3 }
.hollow { stroke-width: 1.5 }
.page { fill: #ffffff }
.node { fill: #f8fafc; stroke: #cbd5e1 }
.paper { fill: #f8fafc }
.pod, .link { fill: #ffffff; stroke: #cbd5e1 }
.failed { fill: #fef2f2; stroke: #dc2626 }
text.faint { fill: #5b6676 }
text.bad { fill: #b91c1c }
.key { fill: #64748b; stroke: #64748b }
.key.hollow { fill: none }
"#;

/// The colours of dark pages.
const DARK: &str = r#".page { fill: #0b1120 }
text { fill: #e2e8f0 }
.node { fill: #111a2e; stroke: #334155 }
.paper { fill: #111a2e }
.pod, .link { fill: #0b1120; stroke: #3b4a63 }
.failed { fill: #2a1016; stroke: #f87171 }
.wire { stroke: #94a3b8 }
.band { stroke: #0b1120 }
.stands { stroke: #94a3b8 }
text.faint { fill: #94a3b8 }
text.bad { fill: #fca5a5 }
.key { fill: #94a3b8; stroke: #94a3b8 }
.key.hollow { fill: none }
"#;

/// The number in the class of a network's colour: `f3` fills, `s3` strokes.
pub(super) fn class(network: usize) -> usize {
    network % HUES.len()
}

/// The whole sheet.
pub(super) fn css() -> String {
    let mut out = LIGHT.to_owned();
    for (number, hue) in HUES.iter().enumerate() {
        rules(&mut out, number, hue.light);
    }
    out.push_str("@media (prefers-color-scheme: dark) {\n");
    out.push_str(DARK);
    for (number, hue) in HUES.iter().enumerate() {
        rules(&mut out, number, hue.dark);
    }
    out.push_str("}\n");
    out
}

fn rules(out: &mut String, number: usize, color: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, ".f{number}, text.f{number} {{ fill: {color} }}\n.s{number} {{ stroke: {color} }}");
}
