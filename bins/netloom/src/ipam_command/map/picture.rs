//! A pool as SVG: a square for each cell, with a tooltip that says whose it is.

use lab::graph::svg::{Markup, document};

use super::area::{Area, Kind};

/// A cell and the gap behind it, in pixels.
const CELL: f64 = 12.0;
const GAP: f64 = 2.0;
/// Space around the picture.
const MARGIN: f64 = 20.0;
/// A line of text.
const LINE: f64 = 20.0;
/// The width of a letter.
const LETTER: f64 = 7.3;

/// Colours on light pages, and on dark ones.
const STYLES: &str = ".held { fill: #15803d }
.some { fill: #4ade80 }
.cooling { fill: #0e7490 }
.quarantined { fill: #dc2626 }
.free { fill: #e2e8f0 }
.kept { fill: #65a30d }
.reserved { fill: #7e22ce }
.frozen { fill: #1d4ed8 }
.gateway { fill: #ca8a04 }
.excluded { fill: #ffffff; stroke: #cbd5e1 }
@media (prefers-color-scheme: dark) {
.held { fill: #4ade80 }
.some { fill: #15803d }
.cooling { fill: #22d3ee }
.quarantined { fill: #f87171 }
.free { fill: #1e293b }
.kept { fill: #a3e635 }
.reserved { fill: #c084fc }
.frozen { fill: #60a5fa }
.gateway { fill: #facc15 }
.excluded { fill: #0b1120; stroke: #3b4a63 }
}
";

/// All areas of a pool below each other, and what the colours mean.
pub(super) fn draw(pool: &str, summary: &[String], areas: &[Area]) -> String {
    let letters = areas.iter().flat_map(Area::labels).map(|label| label.chars().count()).max().unwrap_or(0);
    let left = MARGIN + letters as f64 * LETTER + 10.0;
    let mut out = Markup::new();
    let mut y = MARGIN + LINE;
    out.text(MARGIN, y, "lab", pool);
    for line in summary {
        y += LINE;
        out.text(MARGIN, y, "faint sans", line);
    }
    let mut widest = 0;
    let mut kinds: Vec<Kind> = Vec::new();
    for area in areas {
        y += LINE * 1.5;
        let each = if area.each == 1 { String::new() } else { format!(", {} addresses per square", super::words::count(area.each)) };
        out.text(MARGIN, y, "strong", &format!("{}{each}", area.title()));
        y += GAP * 4.0;
        for (label, cells) in area.labels().iter().zip(area.rows()) {
            out.text(MARGIN, y + CELL - GAP, "faint", label);
            for (i, cell) in cells.iter().enumerate() {
                let x = left + i as f64 * (CELL + GAP);
                out.open(&cell.told);
                out.rect(class(cell.kind, cell.full), (x, y), (x + CELL, y + CELL), 2.0);
                out.close();
                kinds.push(cell.kind);
            }
            widest = widest.max(cells.len());
            y += CELL + GAP;
        }
        if area.rest > 0 {
            y += LINE - GAP;
            out.text(MARGIN, y, "faint sans", &format!("and {} more addresses that were never used", super::words::count(area.rest)));
        }
    }
    kinds.sort();
    kinds.dedup();
    y += LINE;
    let mut x = MARGIN;
    for kind in kinds {
        out.rect(class(kind, true), (x, y), (x + CELL, y + CELL), 2.0);
        out.text(x + CELL + 6.0, y + CELL - GAP, "sans", kind.word());
        x += CELL + 30.0 + kind.word().len() as f64 * LETTER;
    }
    let width = (left + widest as f64 * (CELL + GAP)).max(x).max(480.0) + MARGIN;
    document(&format!("Pool {pool}"), &summary.join("; "), (width, y + CELL + MARGIN), STYLES, out)
}

fn class(kind: Kind, full: bool) -> &'static str {
    match kind {
        Kind::Held if full => "held",
        Kind::Held => "some",
        Kind::Cooling => "cooling",
        Kind::Quarantined => "quarantined",
        Kind::Free => "free",
        Kind::Kept => "kept",
        Kind::Reserved => "reserved",
        Kind::Frozen => "frozen",
        Kind::Gateway => "gateway",
        Kind::Excluded => "excluded",
    }
}
