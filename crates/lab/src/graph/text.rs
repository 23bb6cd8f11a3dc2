//! Foreign text on a terminal: made harmless, measured, shortened, wrapped.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// Columns that a character takes: 1 or 2 in what [`clean`] has passed.
pub(super) fn char_columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Text that can neither move the cursor nor hide: control characters become spaces, and what has no width (escapes
/// of bidirectional text, joiners, combining marks) is left out, so that columns can be counted. Without `unicode`
/// everything else that is not ASCII becomes `?`.
pub(super) fn clean(text: &str, unicode: bool) -> String {
    text.chars()
        .filter_map(|c| match c {
            c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => Some(' '),
            c if char_columns(c) == 0 => None,
            c if unicode || c.is_ascii() => Some(c),
            _ => Some('?'),
        })
        .collect()
}

/// Shortens a name in its middle: its head says what it is, its tail which one.
pub(super) fn shorten(text: &str, width: usize, ellipsis: char) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let tail: Vec<char> = take_columns(text.chars().rev(), room / 2);
    let head = take_columns(text.chars(), room - tail.iter().copied().map(char_columns).sum::<usize>());
    head.into_iter().chain([ellipsis]).chain(tail.into_iter().rev()).collect()
}

/// Cuts a text off at its end.
pub(super) fn cut(text: &str, width: usize, ellipsis: char) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    take_columns(text.chars(), room).into_iter().chain([ellipsis]).collect()
}

fn take_columns(chars: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut left = room;
    chars
        .map_while(|c| {
            left = left.checked_sub(char_columns(c))?;
            Some(c)
        })
        .collect()
}

/// Breaks a sentence into at most `limit` lines, at spaces where there are some; the last says with an ellipsis that
/// there was more.
pub(super) fn wrap(text: &str, width: usize, limit: usize, ellipsis: char) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let space = usize::from(!line.is_empty());
        if columns(&line) + space + columns(word) > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if columns(&line) + char_columns(c) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > limit {
        lines.truncate(limit);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last}{ellipsis}{ellipsis}"), width.min(columns(last) + 1), ellipsis);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_text_cannot_steer_a_terminal() {
        assert_eq!(clean("a\x1b[31mb\r\n\tc", true), "a [31mb   c");
        assert_eq!(clean("a\u{202e}b\u{200d}c\u{301}", true), "abc");
        assert_eq!(clean("ü漢", true), "ü漢");
        assert_eq!(clean("ü漢a", false), "??a");
    }

    #[test]
    fn shortening_keeps_head_and_tail() {
        assert_eq!(shorten("web-7d9f-x2k9l", 14, '…'), "web-7d9f-x2k9l");
        assert_eq!(shorten("web-7d9f-x2k9l", 9, '…'), "web-…2k9l");
        assert_eq!(shorten("漢字漢字", 4, '…'), "漢…");
        assert_eq!(shorten("abc", 1, '…'), "…");
        assert_eq!(shorten("abc", 0, '…'), "");
        for width in 0..20 {
            assert!(columns(&shorten("a漢b字c漢d字e", width, '…')) <= width);
            assert!(columns(&cut("a漢b字c漢d字e", width, '…')) <= width);
        }
    }

    #[test]
    fn wrapping_breaks_at_spaces() {
        assert_eq!(wrap("no address left in 10.1.0.0/30", 12, 9, '…'), ["no address", "left in", "10.1.0.0/30"]);
        assert_eq!(wrap("abcdefgh ij", 3, 9, '…'), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("one two three four", 5, 2, '…'), ["one", "two…"]);
        assert_eq!(wrap("one three four", 5, 2, '…'), ["one", "thre…"]);
        assert_eq!(wrap(" ", 5, 2, '…'), Vec::<String>::new());
    }
}
