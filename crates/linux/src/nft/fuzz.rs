//! What reads the kernel's answers, without a kernel.

use super::element::{LIST_ELEMENTS, read_comment};
use super::range::{Boundary, between};
use super::wire::{self, Writer};
use super::{Count, Element, Family, SetElement};

/// Reads one datagram as every question would.
pub(crate) fn read(bytes: &[u8]) {
    for frame in wire::frames(bytes) {
        let _ = (frame.verdict(), super::Commented::read(frame.body()), super::ForwardDrop::read(Family::Inet, frame.body()));
        for (_, value) in wire::attributes(frame.body()) {
            let _ = (read_comment(value, 0), wire::text(value));
        }
        super::listing::fuzz(frame.body());
        let mut boundaries = Vec::new();
        let list = wire::find(frame.body(), LIST_ELEMENTS).unwrap_or_default();
        for (_, element) in wire::attributes(list) {
            let _ = Count::read(element);
            boundaries.extend(Boundary::read(element));
            for (element, family) in Element::read(element).into_iter().flat_map(|e| [(e.clone(), Family::Inet), (e, Family::Bridge)]) {
                write(SetElement { family, table: "netloom".to_owned(), set: "set".to_owned(), element });
            }
        }
        assert!(between(boundaries).iter().all(|range| range.first() <= range.last()));
    }
}

/// Reads one datagram about tracked connections.
pub(crate) fn read_tracked(bytes: &[u8]) {
    wire::frames(bytes).for_each(|frame| super::flow::fuzz(&frame));
}

/// What was read of an element can be asked for and noted, as a teardown does.
fn write(element: SetElement) {
    let mut w = Writer::default();
    element.write(&mut w, true);
    let _ = w.finish();
    let _ = element.to_string().parse::<SetElement>();
}
