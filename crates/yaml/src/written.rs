//! How a string is written: where each place of it stands in its document.

/// A string of a document, and where its lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    text: String,
    /// One for each line of the text; `None`: no place in the document reads as this line does.
    lines: Vec<Option<Row>>,
}

/// Where a line of a string stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    line: usize,
    columns: Columns,
}

/// Where the characters of a line stand, as columns that count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Columns {
    /// One after the other, from this one on.
    From(usize),
    /// Each where it says, and the end of the line: of what is written with escapes.
    Each(Vec<usize>),
}

// === impl Written ===

impl Written {
    /// `rest` is the document from where the string begins, at the line and column `start`.
    pub(crate) fn of(text: &str, rest: &str, start: (usize, usize)) -> Self {
        let quoted = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let lines = quoted.and_then(|quote| unquoted(text, rest, quote, start)).unwrap_or_else(|| verbatim(text, rest, start));
        Written { text: text.to_owned(), lines }
    }

    /// The place in the document of a place in the string: both count from 1, `column` in bytes, that in the document in characters.
    pub fn place(&self, line: usize, column: usize) -> Option<(usize, usize)> {
        let index = line.checked_sub(1)?;
        let row = self.lines.get(index)?.as_ref()?;
        let text = self.text.split('\n').nth(index)?;
        let before = text.char_indices().take_while(|(at, _)| at + 1 < column).count();
        // A column inside of a character is that character's.
        let before = if text.is_char_boundary(column.saturating_sub(1)) { before } else { before.saturating_sub(1) };
        let column = match &row.columns {
            Columns::From(first) => first + before,
            Columns::Each(columns) => *columns.get(before).or(columns.last())?,
        };
        Some((row.line, column))
    }
}

/// Lines that read as they are written: of block scalars, and of others on one line.
fn verbatim(text: &str, rest: &str, (line, column): (usize, usize)) -> Vec<Option<Row>> {
    // A block's place is its first line that is not blank.
    let blank = text.chars().take_while(|c| *c == '\n').count();
    let mut written = rest.split('\n');
    let row = |(index, wanted): (usize, &str)| {
        let row = index.checked_sub(blank)?;
        let found = written.next()?;
        let at = found.get(..found.find(wanted)?)?.chars().count();
        Some(Row { line: line + row, columns: Columns::From(if row == 0 { column } else { 1 } + at) })
    };
    text.split('\n').enumerate().map(row).collect()
}

/// What stands in quotes, if it is written on one line: longer ones are folded.
fn unquoted(text: &str, rest: &str, quote: char, (line, column): (usize, usize)) -> Option<Vec<Option<Row>>> {
    let mut chars = rest.chars().enumerate().skip(1).peekable();
    let (mut rows, mut columns, mut read) = (Vec::new(), Vec::new(), String::new());
    loop {
        let (at, first) = chars.next()?;
        columns.push(column + at);
        let c = match (first, quote) {
            ('\n', _) => return None,
            ('\'', '\'') if chars.peek().is_some_and(|(_, next)| *next == '\'') => chars.next()?.1,
            ('\\', '"') => escaped(&mut chars.by_ref().map(|(_, c)| c))?,
            (c, _) if c == quote => break,
            (c, _) => c,
        };
        read.push(c);
        if c == '\n' {
            rows.push(std::mem::take(&mut columns));
        }
    }
    rows.push(columns);
    let rows = rows.into_iter().map(|columns| Some(Row { line, columns: Columns::Each(columns) }));
    (read == text).then(|| rows.collect())
}

/// The character that stands behind a backslash (YAML 1.2, 5.7).
fn escaped(chars: &mut dyn Iterator<Item = char>) -> Option<char> {
    let digits = match chars.next()? {
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        'b' => return Some('\u{8}'),
        'f' => return Some('\u{c}'),
        same @ (' ' | '"' | '/' | '\\') => return Some(same),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let number: String = chars.take(digits).collect();
    char::from_u32(u32::from_str_radix(&number, 16).ok()?)
}
