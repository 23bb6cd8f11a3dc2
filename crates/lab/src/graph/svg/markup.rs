//! SVG elements, written one after another; all foreign text passes through [`escape`].

use std::fmt::Write as _;

use crate::graph::text::clean;

/// A point: pixels from the left, pixels from the top.
pub type Point = (f64, f64);

/// Radius of the corners of lines, in pixels.
const RADIUS: f64 = 7.0;

/// A document's body under construction. Writing to it cannot fail.
#[derive(Debug, Default)]
pub struct Markup(String);

/// A line of straight pieces with round corners, as path data.
pub(super) struct Path {
    data: String,
    at: Point,
}

/// Text that means nothing but itself in XML, as content and in attributes; what XML 1.0 cannot hold is gone.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split('\n').enumerate() {
        if line.0 > 0 {
            out.push('\n');
        }
        for c in clean(line.1, true).chars() {
            match c {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
                c => out.push(c),
            }
        }
    }
    out
}

// === impl Markup ===

impl Markup {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Markup(String::new())
    }

    /// What was written.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// What another one has, behind it.
    pub(super) fn append(&mut self, other: Markup) {
        self.0.push_str(&other.0);
    }

    /// Begins a group with a tooltip.
    pub fn open(&mut self, tooltip: &str) {
        let _ = writeln!(self.0, "<g><title>{}</title>", escape(tooltip));
    }

    /// Ends the group.
    pub fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// A rectangle from its upper left to its lower right corner.
    pub fn rect(&mut self, class: &str, from: Point, to: Point, radius: f64) {
        let (width, height) = (to.0 - from.0, to.1 - from.1);
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>",
            from.0, from.1
        );
    }

    /// Text that begins at a point of its base line.
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put_text(x, y, class, "", text);
    }

    /// Text that ends at a point of its base line.
    pub(super) fn text_end(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put_text(x, y, class, " text-anchor=\"end\"", text);
    }

    fn put_text(&mut self, x: f64, y: f64, class: &str, more: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\"{class}{more} xml:space=\"preserve\">{}</text>", escape(text));
    }

    /// An interface's sign: a diamond for the default network, a disc for another one; hollow if it is down.
    pub(super) fn sign(&mut self, (x, y): Point, number: usize, default: bool, up: bool) {
        let class = match (number, up) {
            (usize::MAX, true) => "key".to_owned(),
            (usize::MAX, false) => "key hollow".to_owned(),
            (number, true) => format!("f{number}"),
            (number, false) => format!("s{number} hollow"),
        };
        let _ = match default {
            true => writeln!(self.0, "<path class=\"{class}\" d=\"M{x:.1} {:.1}l5 5-5 5-5-5z\"/>", y - 5.0),
            false => writeln!(self.0, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        };
    }

    /// A line.
    pub(super) fn path(&mut self, class: &str, path: &Path) {
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{}\"/>", path.data);
    }
}

// === impl Path ===

impl Path {
    /// A line that begins here.
    pub(super) fn from(at: Point) -> Self {
        Path { data: format!("M{:.1} {:.1}", at.0, at.1), at }
    }

    /// Across to a column, along it, and across to the end.
    pub(super) fn over(self, x: f64, end: Point) -> Self {
        let Corner { dx: before, dy, r } = Corner::new(self.at, x, end);
        if dy == 0.0 && (end.0 - x) * before > 0.0 {
            return self.line(end);
        }
        let after = (end.0 - x).signum();
        let from = self.at.1;
        let path = self.line((x - before * r, from)).curve((x, from), (x, from + dy * r));
        path.line((x, end.1 - dy * r)).curve((x, end.1), (x + after * r, end.1)).line(end)
    }

    /// Across to a line that goes down or up to `level`, and into it.
    pub(super) fn into_line(self, x: f64, level: f64) -> Self {
        let Corner { dx, dy, r } = Corner::new(self.at, x, (x, level));
        let from = self.at.1;
        self.line((x - dx * r, from)).curve((x, from), (x, from + dy * r))
    }

    /// Down, and across to the end.
    pub(super) fn down_to(self, end: Point) -> Self {
        let x = self.at.0;
        self.line((x, end.1 - RADIUS)).curve((x, end.1), (x + RADIUS, end.1)).line(end)
    }

    fn line(mut self, to: Point) -> Self {
        let _ = write!(self.data, "L{:.1} {:.1}", to.0, to.1);
        self.at = to;
        self
    }

    fn curve(mut self, corner: Point, to: Point) -> Self {
        let _ = write!(self.data, "Q{:.1} {:.1} {:.1} {:.1}", corner.0, corner.1, to.0, to.1);
        self.at = to;
        self
    }
}

/// The directions of a way over a column, each -1, 0 or 1, and the radius that its corners have room for.
struct Corner {
    dx: f64,
    dy: f64,
    r: f64,
}

// === impl Corner ===

impl Corner {
    fn new(from: Point, x: f64, to: Point) -> Self {
        let rise = to.1 - from.1;
        let dy = if rise == 0.0 { 0.0 } else { rise.signum() };
        Corner { dx: (x - from.0).signum(), dy, r: RADIUS.min(rise.abs() / 2.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_only_text() {
        assert_eq!(escape("<a href=\"x\" b='y'>&amp;"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;");
        assert_eq!(escape("a\x1b\u{0}b\n\u{202e}c]]>\u{ffff}"), "a  b\nc]]&gt;\u{fffd}");
    }

    #[test]
    fn a_level_way_is_a_straight_line() {
        assert_eq!(Path::from((0.0, 5.0)).over(10.0, (20.0, 5.0)).data, "M0.0 5.0L20.0 5.0");
        assert!(Path::from((0.0, 5.0)).over(10.0, (20.0, 50.0)).data.contains("Q10.0 5.0 10.0 12.0"));
        assert!(Path::from((0.0, 5.0)).over(10.0, (0.0, 1.0)).data.contains("Q10.0 1.0 8.0 1.0"));
    }
}
