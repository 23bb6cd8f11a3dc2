//! What a person reads: keys and values in two columns, wrapped to the terminal, hung in a tree.

use std::fmt::Write;

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use crate::output::{FAINT, columns, speaks_unicode, wrap};
use crate::terminal::plain;

/// Columns that a value has at the least, however narrow the terminal is.
const NARROWEST: usize = 24;

/// How it is to look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Columns of the terminal; `None` where a program reads: nothing is wrapped.
    pub(crate) width: Option<usize>,
    /// Whether lines and bars can be drawn.
    pub(crate) unicode: bool,
}

/// A piece of a line, and how it looks.
pub(crate) type Span<'a> = (Style, &'a str);

/// Where a line hangs: what stands before its first line, and before those that follow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hang {
    pub(crate) first: &'static str,
    pub(crate) rest: &'static str,
}

/// A text that grows line by line, with colours; they go where nobody sees them when it is written.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) look: Look,
    text: String,
}

// === impl Look ===

impl Look {
    /// As standard output is.
    pub(crate) fn here() -> Self {
        Look { width: columns(), unicode: speaks_unicode() }
    }

    /// The branch of a tree, and what its own lines hang on.
    pub(crate) fn branch(self, last: bool) -> (Hang, Hang) {
        let (fork, own) = match (self.unicode, last) {
            (true, false) => ("├─ ", "│    "),
            (true, true) => ("└─ ", "     "),
            (false, false) => ("|- ", "|    "),
            (false, true) => ("`- ", "     "),
        };
        (Hang { first: fork, rest: own }, Hang { first: own, rest: own })
    }

    /// From one thing to what came of it.
    pub(crate) fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }

    /// What a bar is made of.
    pub(crate) fn bar(self) -> &'static str {
        if self.unicode { "━" } else { "=" }
    }
}

// === impl Page ===

impl Page {
    pub(crate) fn new(look: Look) -> Self {
        Page { look, text: String::new() }
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A line, wrapped.
    pub(crate) fn line(&mut self, hang: Hang, spans: &[Span<'_>]) {
        self.write(hang, "", 0, spans);
    }

    /// A line as it is, however wide: the row of a table.
    pub(crate) fn row(&mut self, style: Style, text: &str) {
        let width = self.look.width.take();
        self.line(Hang::default(), &[(style, text)]);
        self.look.width = width;
    }

    /// A key, padded to `width`, and its value: wrapped, each line in the column of the first.
    pub(crate) fn pair(&mut self, hang: Hang, key: &str, width: usize, style: Style, value: &str) {
        self.write(hang, key, width + 2, &[(style, value)]);
    }

    fn write(&mut self, hang: Hang, key: &str, pad: usize, spans: &[Span<'_>]) {
        let left = hang.first.width().max(hang.rest.width()) + pad;
        let room = self.look.width.map(|columns| columns.saturating_sub(left).max(NARROWEST));
        let spans: Vec<_> = spans.iter().map(|(style, text)| (*style, plain(text))).collect();
        let text: String = spans.iter().map(|(_, text)| text.as_ref()).collect();
        let mut paint = spans.iter().flat_map(|(style, text)| text.chars().map(|c| (*style, c)));
        for (i, line) in wrap(&text, room).iter().enumerate() {
            let (hang, key) = if i == 0 { (hang.first, key) } else { (hang.rest, "") };
            if hang.trim().is_empty() {
                self.text.push_str(hang);
            } else {
                let _ = write!(self.text, "{FAINT}{hang}{FAINT:#}");
            }
            let _ = write!(self.text, "{key}{}", " ".repeat(pad.saturating_sub(key.width())));
            self.painted(line, &mut paint);
            self.text.truncate(self.text.trim_end_matches(' ').len());
            self.text.push('\n');
        }
    }

    /// A line of a wrapped text, each character in its own style; what was left out where it was broken is passed over.
    fn painted(&mut self, line: &str, paint: &mut impl Iterator<Item = (Style, char)>) {
        let mut now = Style::new();
        for c in line.chars() {
            let style = paint.by_ref().find(|(_, own)| *own == c).map_or(now, |(style, _)| style);
            if style != now {
                let _ = write!(self.text, "{now:#}{style}");
                now = style;
            }
            self.text.push(c);
        }
        let _ = write!(self.text, "{now:#}");
    }
}
