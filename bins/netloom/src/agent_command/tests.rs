//! What a person sees, from answers as agents give them: of this version, of older and of newer ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod explain;
mod nodes;
mod pods;
mod status;

use json::{Object, Value};
use unicode_width::UnicodeWidthStr;

use super::answer::clean;
use crate::output::wrap;
use crate::page::Look;

/// As a program reads it.
const PIPED: Look = Look { width: None, unicode: false };

/// A terminal of so many columns.
fn terminal(columns: usize) -> Look {
    Look { width: Some(columns), unicode: true }
}

fn value(json: &str) -> Value {
    json::parse(json.as_bytes()).unwrap()
}

fn object(json: &str) -> Object {
    value(json).as_object().expect("an object").clone()
}

/// Without colours.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// The widest line, in columns.
fn widest(text: &str) -> usize {
    plain(text).lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

#[test]
fn words_are_kept_whole_where_there_is_room() {
    assert_eq!(wrap("one two three", Some(8)), ["one two", "three"]);
    assert_eq!(wrap("one  two", Some(8)), ["one  two"]);
    assert_eq!(wrap("first\nsecond line", Some(8)), ["first", "second", "line"]);
    assert_eq!(wrap("0123456789abc x", Some(5)), ["01234", "56789", "abc x"]);
    assert_eq!(wrap("", Some(5)), [""]);
    assert_eq!(wrap("no limit at all", None), ["no limit at all"]);
    // Characters of two columns.
    assert_eq!(wrap("網路網路", Some(5)), ["網路", "網路"]);
}

#[test]
fn nothing_that_others_wrote_moves_a_cursor() {
    assert_eq!(clean("a\u{1b}[2Jb\rc\td\u{9b}e"), "a\\u{1b}[2Jbc d\\u{9b}e");
    assert_eq!(clean("abc\u{202e}def\u{200b}"), "abc\\u{202e}def\\u{200b}");
    assert_eq!(clean("Straße 網路"), "Straße 網路");
}
