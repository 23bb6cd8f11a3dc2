//! Text that a terminal takes for nothing but text.
//!
//! Names, messages and answers have what others wrote in them: pods, API objects, and answers of probes. No sequence in them may move the
//! cursor, clear the screen or set its title, and no mark may turn the direction of what is read. Everything that is printed passes here
//! ([`crate::output`]); our own colours alone are let through.

use std::borrow::Cow;

/// The longest sequence of a style, in bytes behind the escape.
const LONGEST: usize = 12;
/// What our styles set (SGR): nothing, bold, dimmed, italic, underlined, and the sixteen colours. What hides is not among them.
const STYLES: [std::ops::RangeInclusive<u8>; 3] = [0..=4, 30..=37, 90..=97];

/// What is printed: control characters are written as JSON writes them, `\u001b`, so that what is JSON stays so. Line breaks, tabs and our own
/// styles stay.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    filtered(text, true)
}

/// What others wrote: as [`safe`], and without styles.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    filtered(text, false)
}

fn filtered(text: &str, with_styles: bool) -> Cow<'_, str> {
    let Some(first) = text.find(is_order) else { return Cow::Borrowed(text) };
    let (begin, mut rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(begin);
    while let Some(c) = rest.chars().next() {
        if with_styles && let Some(style) = style(rest) {
            out.push_str(style);
            rest = rest.get(style.len()..).unwrap_or_default();
            continue;
        }
        if is_order(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    Cow::Owned(out)
}

/// Whether a terminal may take it for more than a letter.
fn is_order(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // What has no width, or turns the direction of what is read; all of them have four digits at the most.
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => true,
        c => c.is_control(),
    }
}

/// The style that a text begins with.
fn style(text: &str) -> Option<&str> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.bytes().take(LONGEST).position(|byte| byte == b'm')?;
    let is_ours = |code: &str| code.is_empty() || code.parse::<u8>().is_ok_and(|code| STYLES.iter().any(|range| range.contains(&code)));
    codes.get(..end)?.split(';').all(is_ours).then(|| text.get(..end + 3)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_styles_stay_and_nothing_else_does() {
        let ours = format!("{}a{:#} b\tc\n", crate::output::BAD.bold(), crate::output::BAD.bold());
        assert_eq!(safe(&ours), ours);
        assert_eq!(plain("\u{1b}[31mred"), "\\u001b[31mred");
        for (text, shown) in [
            ("a\u{1b}[2Jb", "a\\u001b[2Jb"),
            // Hidden, and a cursor that is moved with a style's end.
            ("\u{1b}[8mx", "\\u001b[8mx"),
            ("\u{1b}[38;5;1mx", "\\u001b[38;5;1mx"),
            ("\u{1b}[1;1Hm", "\\u001b[1;1Hm"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{9b}2J", "\\u009b2J"),
            ("over\rwritten", "over\\u000dwritten"),
            ("\u{202e}txt.exe", "\\u202etxt.exe"),
            ("\u{61c}txt.exe", "\\u061ctxt.exe"),
            ("\u{1b}", "\\u001b"),
            ("\u{1b}[", "\\u001b["),
            ("日本", "日本"),
        ] {
            assert_eq!(safe(text), shown);
        }
    }

    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({"name": "a\u{9b}2J\u{1b}[2J\u{202e}"});
        let printed = safe(&value.to_string()).into_owned();
        assert!(!printed.contains(['\u{9b}', '\u{202e}']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
    }
}
