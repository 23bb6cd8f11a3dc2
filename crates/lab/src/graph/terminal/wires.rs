//! Wires: they leave the nodes at the right, run down beside them and are named at their lower ends.

use crate::graph::canvas::{Canvas, Weight};
use crate::graph::columns::{Columns, PAD};
use crate::graph::palette::Paint;
use crate::graph::scene::Scene;
use crate::graph::signs::Signs;
use crate::graph::text::{self, clean, shorten};

use super::Exit;

/// Rows that the names of the wires take below the nodes.
pub(super) fn rows(scene: &Scene) -> usize {
    scene.wires().len()
}

/// Draws all wires; `top` is the row of the first name.
pub(super) fn draw(scene: &Scene, columns: &Columns, signs: &Signs, exits: &[Exit], top: usize, canvas: &mut Canvas) {
    let (border, link_side) = (columns.node.saturating_sub(1), columns.node.saturating_sub(PAD + 1));
    let (plugged, idle): (Vec<_>, Vec<_>) = scene.wires().iter().partition(|wire| !wire.connects.is_empty());
    let mut ends = Vec::new();
    for (number, wire) in plugged.iter().enumerate() {
        let is_end = |exit: &&Exit| wire.connects.iter().any(|end| end.node == exit.node && end.link == exit.link);
        let rows: Vec<usize> = exits.iter().filter(is_end).map(|exit| exit.row).collect();
        let x = columns.wire_x(number);
        // The leftmost ends first, so that no name stands in another wire's way.
        let row = top + number;
        canvas.down(x, rows.iter().copied().min().unwrap_or(row), row, Weight::Double, Paint::Wire);
        ends.push((x, row, rows));
    }
    for ((x, row, rows), wire) in ends.iter().zip(&plugged) {
        for exit in rows {
            canvas.across(*exit, link_side, border, Weight::Double, Paint::Wire);
            canvas.across(*exit, border, *x, Weight::Double, Paint::Wire);
        }
        let name = shorten(&clean(&wire.title(), signs.unicode), x.saturating_sub(4), signs.ellipsis);
        let start = x.saturating_sub(4 + text::columns(&name));
        canvas.text(start, *row, &name, Paint::Strong);
        canvas.across(*row, x.saturating_sub(3), *x, Weight::Double, Paint::Wire);
    }
    for (number, wire) in idle.iter().enumerate() {
        let name = clean(&format!("{} (nothing plugged in)", wire.title()), signs.unicode);
        canvas.text(0, top + plugged.len() + number, &shorten(&name, columns.total, signs.ellipsis), Paint::Faint);
    }
}
