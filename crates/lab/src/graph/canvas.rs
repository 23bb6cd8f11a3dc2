//! A grid of character cells on which text and lines are put, and which becomes text at the end.
//!
//! Lines are kept as arms of cells, so that what meets is joined: a frame's side and a line that begins there become
//! `├`. A line that only passes another one does not touch it: the one that goes down stays whole.

use std::fmt::Write as _;

use super::palette::Paint;
use super::text::char_columns;

/// How heavy a line is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Weight {
    /// No line.
    #[default]
    None,
    /// Inside a node.
    Thin,
    /// Between nodes.
    Double,
}

/// A rectangle of cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arms {
    north: Weight,
    east: Weight,
    south: Weight,
    west: Weight,
    square: bool,
}

#[derive(Debug, Clone, Copy, Default)]
enum Glyph {
    #[default]
    Blank,
    Text(char),
    /// The second half of a character of two columns.
    Behind,
    Line(Arms),
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    glyph: Glyph,
    paint: Paint,
}

/// The grid. What is put outside of it is left out.
pub(super) struct Canvas {
    width: usize,
    cells: Vec<Cell>,
}

// === impl Canvas ===

impl Canvas {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Canvas { width: width.max(1), cells: vec![Cell::default(); width.max(1) * height] }
    }

    fn cell(&mut self, x: usize, y: usize) -> Option<&mut Cell> {
        if x >= self.width {
            return None;
        }
        self.cells.get_mut(y * self.width + x)
    }

    /// Puts cleaned text and returns the column after it.
    pub(super) fn text(&mut self, x: usize, y: usize, text: &str, paint: Paint) -> usize {
        let mut at = x;
        for c in text.chars() {
            if at + char_columns(c) > self.width {
                break;
            }
            for part in 0..char_columns(c) {
                if let Some(cell) = self.cell(at + part, y) {
                    *cell = Cell { glyph: if part == 0 { Glyph::Text(c) } else { Glyph::Behind }, paint };
                }
            }
            at += char_columns(c);
        }
        at
    }

    /// A frame around an area. `square` corners are those of links; pods and nodes have round ones.
    pub(super) fn frame(&mut self, area: Area, paint: Paint, square: bool) {
        let (right, bottom) = (area.x + area.width.max(1) - 1, area.y + area.height.max(1) - 1);
        self.across(area.y, area.x, right, Weight::Thin, paint);
        self.across(bottom, area.x, right, Weight::Thin, paint);
        self.down(area.x, area.y, bottom, Weight::Thin, paint);
        self.down(right, area.y, bottom, Weight::Thin, paint);
        for (x, y) in [(area.x, area.y), (right, area.y), (area.x, bottom), (right, bottom)] {
            self.join(x, y, paint, |arms| arms.square = square);
        }
    }

    /// A vertical line, both ends included.
    pub(super) fn down(&mut self, x: usize, from: usize, to: usize, weight: Weight, paint: Paint) {
        for y in from..=to {
            self.join(x, y, paint, |arms| {
                arms.north = if y > from { weight } else { arms.north };
                arms.south = if y < to { weight } else { arms.south };
            });
        }
    }

    /// A horizontal line, both ends included. It joins what it begins and ends at, and passes behind what goes down
    /// between.
    pub(super) fn across(&mut self, y: usize, from: usize, to: usize, weight: Weight, paint: Paint) {
        for x in from..=to {
            let inner = x > from && x < to;
            if inner && self.goes_down(x, y) {
                continue;
            }
            self.join(x, y, paint, |arms| {
                arms.west = if x > from { weight } else { arms.west };
                arms.east = if x < to { weight } else { arms.east };
            });
        }
    }

    fn goes_down(&mut self, x: usize, y: usize) -> bool {
        match self.cell(x, y).map(|cell| cell.glyph) {
            Some(Glyph::Line(arms)) => arms.north != Weight::None || arms.south != Weight::None,
            _ => false,
        }
    }

    fn join(&mut self, x: usize, y: usize, paint: Paint, change: impl FnOnce(&mut Arms)) {
        if let Some(cell) = self.cell(x, y) {
            let mut arms = if let Glyph::Line(arms) = cell.glyph { arms } else { Arms::default() };
            change(&mut arms);
            *cell = Cell { glyph: Glyph::Line(arms), paint };
        }
    }

    /// The whole grid, line by line, without spaces at the ends of lines.
    pub(super) fn print(&self, unicode: bool, color: bool) -> String {
        let mut out = String::new();
        for row in self.cells.chunks(self.width) {
            print_row(row, unicode, color, &mut out);
            out.push('\n');
        }
        out
    }
}

fn print_row(row: &[Cell], unicode: bool, color: bool, out: &mut String) {
    let used = row.iter().rposition(|cell| !matches!(cell.glyph, Glyph::Blank)).map_or(0, |last| last + 1);
    let mut paint = Paint::Plain;
    for cell in row.iter().take(used) {
        let c = match cell.glyph {
            Glyph::Behind => continue,
            Glyph::Blank => ' ',
            Glyph::Text(c) => c,
            Glyph::Line(arms) if unicode => arms.drawn(),
            Glyph::Line(arms) => arms.typed(),
        };
        if color && cell.paint != paint && c != ' ' {
            let reset = if paint == Paint::Plain { "" } else { "\x1b[0m" };
            // Writing to a String cannot fail.
            let _ = write!(out, "{reset}{}", cell.paint.style());
            paint = cell.paint;
        }
        out.push(c);
    }
    if paint != Paint::Plain {
        out.push_str("\x1b[0m");
    }
}

// === impl Arms ===

impl Arms {
    fn drawn(self) -> char {
        let Arms { north, east, south, west, square } = self;
        let thin = [north, east, south, west].map(|arm| arm != Weight::None);
        let double = [north, east, south, west].map(|arm| arm == Weight::Double);
        match (thin, double) {
            (_, [false, false, false, false]) => thin_line(thin, square),
            ([true, true, true, true], [false, true, false, true]) => '╪',
            ([true, true, true, false], [false, true, false, false]) => '╞',
            _ => double_line(double),
        }
    }

    fn typed(self) -> char {
        let (vertical, horizontal) = ([self.north, self.south], [self.east, self.west]);
        let any = |arms: [Weight; 2]| arms.iter().any(|arm| *arm != Weight::None);
        let double = |arms: [Weight; 2]| arms.contains(&Weight::Double);
        match (any(vertical), any(horizontal)) {
            _ if double(vertical) => '#',
            (true, true) => '+',
            (true, false) => '|',
            (false, _) if double(horizontal) => '=',
            (false, _) => '-',
        }
    }
}

/// The character of a thin line with arms to north, east, south and west.
fn thin_line(arms: [bool; 4], square: bool) -> char {
    match (arms, square) {
        ([true, true, true, true], _) => '┼',
        ([true, true, true, false], _) => '├',
        ([true, false, true, true], _) => '┤',
        ([true, true, false, true], _) => '┴',
        ([false, true, true, true], _) => '┬',
        ([true, true, false, false], true) => '└',
        ([true, false, false, true], true) => '┘',
        ([false, true, true, false], true) => '┌',
        ([false, false, true, true], true) => '┐',
        ([true, true, false, false], false) => '╰',
        ([true, false, false, true], false) => '╯',
        ([false, true, true, false], false) => '╭',
        ([false, false, true, true], false) => '╮',
        ([true, false, _, false] | [false, false, true, false], _) => '│',
        _ => '─',
    }
}

/// The character of a double line with arms to north, east, south and west.
fn double_line(arms: [bool; 4]) -> char {
    match arms {
        [true, true, true, true] => '╬',
        [true, true, true, false] => '╠',
        [true, false, true, true] => '╣',
        [true, true, false, true] => '╩',
        [false, true, true, true] => '╦',
        [true, true, false, false] => '╚',
        [true, false, false, true] => '╝',
        [false, true, true, false] => '╔',
        [false, false, true, true] => '╗',
        [false, _, false, _] => '═',
        _ => '║',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(unicode: bool) -> String {
        let mut canvas = Canvas::new(16, 4);
        canvas.frame(Area { x: 0, y: 0, width: 4, height: 4 }, Paint::Plain, true);
        canvas.down(6, 1, 2, Weight::Thin, Paint::Plain);
        canvas.down(8, 0, 3, Weight::Thin, Paint::Plain);
        canvas.across(1, 3, 6, Weight::Thin, Paint::Plain);
        canvas.across(2, 6, 10, Weight::Thin, Paint::Plain);
        canvas.down(13, 1, 3, Weight::Double, Paint::Plain);
        canvas.across(1, 10, 13, Weight::Double, Paint::Plain);
        canvas.text(14, 3, "漢x", Paint::Plain);
        canvas.print(unicode, false)
    }

    #[test]
    fn lines_join_what_they_end_at_and_pass_what_lies_between() {
        assert_eq!(drawing(true), "┌──┐    │\n│  ├──╮ │ ═══╗\n│  │  ╰─│──  ║\n└──┘    │    ║漢\n");
        assert_eq!(drawing(false), "+--+    |\n|  +--+ | ===#\n|  |  +-|--  #\n+--+    |    #漢\n");
    }
}
