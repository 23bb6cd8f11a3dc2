//! What ovsdb-server, or who pretends to be it, sends: cut into texts, then read.
#![no_main]

use ovsdb::{Frames, Message, Row};

fn texts<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let (mut frames, mut texts) = (Frames::new(), Vec::new());
    for chunk in chunks {
        frames.push(chunk);
        while let Ok(Some(text)) = frames.next_text() {
            texts.push(text);
        }
    }
    texts
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = texts(std::iter::once(bytes));
    assert_eq!(whole, texts(bytes.chunks(3)), "where a stream is cut makes no difference");
    for text in &whole {
        let Ok(Some(message)) = Message::parse(text) else { continue };
        let value = match message {
            Message::Answer { result: Ok(value), .. } | Message::Answer { result: Err(value), .. } => value,
            Message::Request { params, .. } | Message::Notification { params, .. } => json::Value::Array(params),
        };
        let rows = value.as_array().into_iter().flatten().filter_map(Row::parse);
        rows.for_each(|row| assert_eq!(Row::parse(&row.print()), Some(row)));
    }
});
