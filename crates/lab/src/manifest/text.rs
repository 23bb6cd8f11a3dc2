//! Texts inside of manifests that have a grammar of their own: a definition's configuration, a pod's selections.

use yaml::Written;

use super::Origin;
use super::fields::Field;
use super::source::Placement;

/// Where such a text is written.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// Where its value begins.
    pub(crate) origin: Origin,
    /// The field that has it.
    pub(crate) path: String,
    placement: Placement,
    written: Option<Written>,
}

// === impl Text ===

impl Text {
    pub(crate) fn of(field: &Field<'_>) -> Self {
        let document = field.document;
        let written = field.node.written(&document.text);
        Text { origin: field.origin(), path: field.path.clone(), placement: document.placement.clone(), written }
    }

    /// A place in the text, both counted from 1 and the column in bytes, as a place in its file.
    pub(crate) fn place(&self, line: usize, column: usize) -> Option<Origin> {
        let (line, column) = self.written.as_ref()?.place(line, column)?;
        Some(self.placement.origin(line, column))
    }

    /// Where a path in the text is, and how many characters it has there; the key itself if that `is_key`. The text as a whole if there is
    /// no telling.
    pub(crate) fn find(&self, text: &str, path: &str, is_key: bool) -> (Origin, usize) {
        let span = match text.trim_start().starts_with(['{', '[']) {
            true => json::locate(text, path).map(|found| found.key.filter(|_| is_key && found.is_whole).unwrap_or(found.value)),
            false => element(text, path),
        };
        let ends = span.and_then(|at| Some((self.place(at.line, at.column)?, self.place(at.line, at.column + at.len)?)));
        match ends {
            None => (self.origin.clone(), 1),
            Some((start, end)) => {
                let width = end.column.saturating_sub(start.column).max(1);
                (start, width)
            }
        }
    }
}

/// The element of a list with commas that a path such as `[1].mac` begins with.
fn element(text: &str, path: &str) -> Option<json::Span> {
    let index: usize = path.strip_prefix('[')?.split(']').next()?.parse().ok()?;
    let before: usize = text.split(',').take(index).map(|element| element.len() + 1).sum();
    let element = text.get(before..)?.split(',').next()?;
    let start = before + element.len() - element.trim_start().len();
    let line_start = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(..start)?.matches('\n').count() + 1;
    Some(json::Span { line, column: start - line_start + 1, len: element.trim().len() })
}
