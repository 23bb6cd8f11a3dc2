//! "Message Protocol": a header of fixed length, header fields, a body. Little-endian as we write it; read in either order.

use std::fmt;

use crate::Object;

/// The part of each message that says how long the rest is.
pub(crate) const HEADER: usize = 16;

const LITTLE: u8 = b'l';
const BIG: u8 = b'B';
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// "Header Fields"
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;
/// `NO_AUTO_START`: who is not there is not started for us.
const NO_AUTO_START: u8 = 2;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// `s`, `o`, `g`
    Text(String),
    /// `b`
    Boolean(bool),
    /// `u`
    Number(u32),
}

/// A message that came: what it answers, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The call that it answers; `None` for a signal or a call.
    pub reply_to: Option<u32>,
    /// The name of an error.
    pub error: Option<String>,
    /// The values, up to the first one of a type that is not read.
    pub body: Vec<Reply>,
}

// === impl Reply ===

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Text(text) => text.fmt(f),
            Reply::Boolean(value) => value.fmt(f),
            Reply::Number(number) => number.fmt(f),
        }
    }
}

/// A call with strings.
pub(crate) fn call(serial: u32, of: Object<'_>, method: &str, strings: &[&str]) -> Vec<u8> {
    let mut body = Writer::default();
    strings.iter().for_each(|s| body.text(s));
    let mut w = Writer::default();
    w.0.extend([LITTLE, METHOD_CALL, NO_AUTO_START, 1]);
    w.number(length(&body.0));
    w.number(serial);
    let mut fields = Writer::default();
    // Their alignment is that of the message: they begin behind 16 bytes.
    for (field, kind, value) in
        [(PATH, b'o', of.path), (INTERFACE, b's', of.interface), (MEMBER, b's', method), (DESTINATION, b's', of.service)]
    {
        fields.pad(8);
        fields.0.extend([field, 1, kind, 0]);
        fields.text(value);
    }
    if !strings.is_empty() {
        fields.pad(8);
        fields.0.extend([SIGNATURE, 1, b'g', 0]);
        fields.signature(&"s".repeat(strings.len()));
    }
    w.number(length(&fields.0));
    w.0.append(&mut fields.0);
    w.pad(8);
    w.0.append(&mut body.0);
    w.0
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// How many bytes follow behind the first 16 of a message.
pub(crate) fn rest(header: &[u8]) -> Option<usize> {
    let mut r = Reader::begin(header)?;
    r.skip(4)?;
    let body = usize::try_from(r.number()?).ok()?;
    r.number()?;
    let fields = usize::try_from(r.number()?).ok()?;
    fields.checked_next_multiple_of(8)?.checked_add(body)
}

/// Reads a whole message; `None` for what is none.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Message> {
    let mut r = Reader::begin(bytes)?;
    let kind = *bytes.get(1)?;
    r.skip(12)?;
    let end = HEADER.checked_add(usize::try_from(r.number()?).ok()?)?;
    let (mut reply_to, mut error, mut signature) = (None, None, String::new());
    while r.at < end {
        r.pad(8)?;
        let field = r.byte()?;
        let kinds = r.signature()?;
        let value = r.value(kinds.bytes().next()?)?;
        match (field, value) {
            (REPLY_SERIAL, Reply::Number(serial)) => reply_to = Some(serial),
            (ERROR_NAME, Reply::Text(name)) => error = Some(name),
            (SIGNATURE, Reply::Text(kinds)) => signature = kinds,
            _ => {}
        }
    }
    r.pad(8)?;
    let mut body = Vec::new();
    for kind in signature.bytes() {
        if !b"sogbu".contains(&kind) {
            break;
        }
        body.push(r.value(kind)?);
    }
    let answers = kind == METHOD_RETURN || kind == ERROR;
    Some(Message { reply_to: reply_to.filter(|_| answers), error: error.filter(|_| kind == ERROR), body })
}

#[derive(Default)]
struct Writer(Vec<u8>);

// === impl Writer ===

impl Writer {
    fn pad(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, value: u32) {
        self.pad(4);
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(length(text.as_bytes()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// Its length is one byte.
    fn signature(&mut self, kinds: &str) {
        self.0.push(u8::try_from(kinds.len()).unwrap_or(u8::MAX));
        self.0.extend(kinds.as_bytes());
        self.0.push(0);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    little: bool,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn begin(bytes: &'a [u8]) -> Option<Self> {
        let little = match *bytes.first()? {
            LITTLE => true,
            BIG => false,
            _ => return None,
        };
        Some(Reader { bytes, at: 0, little })
    }

    fn skip(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let skipped = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(skipped)
    }

    fn pad(&mut self, to: usize) -> Option<()> {
        let padding = self.at.next_multiple_of(to) - self.at;
        self.skip(padding).map(drop)
    }

    fn byte(&mut self) -> Option<u8> {
        self.skip(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.pad(4)?;
        let bytes = *self.skip(4)?.first_chunk::<4>()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        self.text_of(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.text_of(length.into())
    }

    fn text_of(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8_lossy(self.skip(length)?).into_owned();
        self.byte()?;
        Some(text)
    }

    fn value(&mut self, kind: u8) -> Option<Reply> {
        match kind {
            b's' | b'o' => self.text().map(Reply::Text),
            b'g' => self.signature().map(Reply::Text),
            b'b' => self.number().map(|n| Reply::Boolean(n != 0)),
            b'u' => self.number().map(Reply::Number),
            _ => None,
        }
    }
}
