//! Set elements: the unit that an attachment adds, a record stores and a teardown
//! deletes. All a kernel needs to find one again is in a [`SetElement`], and its
//! [`Display`](std::fmt::Display) text reads back to the same value.

use std::fmt;
use std::str::FromStr;

use super::Family;
use super::expr::{COUNTER, EXPR_DATA, EXPR_NAME};
use super::wire::{self, Writer};

pub(super) const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
pub(super) const ELEMENT_USERDATA: u16 = 6;
const ELEMENT_EXPR: u16 = 7;
const ELEMENT_KEY_END: u16 = 10;
pub(super) const DATA_VALUE: u16 = 1;
pub(super) const DATA_VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const NFT_JUMP: i32 = -3;
const LIST_ELEM: u16 = 1;

pub(super) const LIST_TABLE: u16 = 1;
pub(super) const LIST_SET: u16 = 2;
pub(super) const LIST_ELEMENTS: u16 = 3;

/// `NFTNL_UDATA_SET_ELEM_COMMENT`
const UDATA_COMMENT: u8 = 0;
/// A type of our own, far from those that `nft` counts up from 0; it passes over what it does not know.
const UDATA_NOTE: u8 = 0xf0;

/// The longest comment in bytes: 128 with the closing NUL (`NFTNL_UDATA_COMMENT_MAXLEN`).
pub const COMMENT_MAX: usize = 127;

/// One element of a set, as the kernel compares it: bytes in network order, each field
/// of a concatenation padded to four bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    /// The key; in a set of intervals, the lower ends of all fields.
    pub key: Vec<u8>,
    /// In a concatenation with intervals: the upper ends of all fields, included.
    pub key_end: Option<Vec<u8>>,
    /// In a map: what the key leads to.
    pub data: Option<Data>,
    /// What `nft list` shows behind `comment`: at most [`COMMENT_MAX`] bytes. The kernel
    /// keeps it but does not compare it.
    pub comment: Option<String>,
    /// A number that the kernel keeps beside the comment, and `nft` does not show: of how many
    /// elements this one is the last, say.
    pub note: Option<u16>,
}

/// What an element of a map leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Data {
    /// `jump CHAIN`: a chain of the same table, and after it on with the rule behind.
    Jump(String),
    /// Fields, in network order and each padded to four bytes, as a key.
    Value(Vec<u8>),
}

/// What has met an element of a set that counts, since it was added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Count {
    /// Packets, or frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An element and where it is.
///
/// Its text is `FAMILY TABLE SET KEY[-KEY_END][>CHAIN|=VALUE][ COMMENT]` with keys and values in hexadecimal,
/// as in `inet netloom masquerade4 0a580005>outside-10.88.0.0/24 lab/pod-1/eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetElement {
    /// The table's family.
    pub family: Family,
    /// The table's name.
    pub table: String,
    /// The set's name.
    pub set: String,
    /// The element itself.
    pub element: Element,
}

/// Why a text is no [`SetElement`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseElementError {
    /// Less than family, table, set and key.
    #[error("set element `{text}` is incomplete: expected `FAMILY TABLE SET KEY`")]
    Incomplete {
        /// The whole text.
        text: String,
    },
    /// A family that is not ours.
    #[error("unknown nftables family `{family}`: expected `inet`, `ip`, `ip6` or `bridge`")]
    Family {
        /// As written.
        family: String,
    },
    /// A key that is not pairs of hexadecimal digits.
    #[error("set element key `{key}` is not hexadecimal")]
    Key {
        /// As written.
        key: String,
    },
}

// === impl Element ===

impl Element {
    /// Writes the element as an `NFTA_LIST_ELEM`; attributes in the order of `nft`. What it
    /// leads to matters only where it is added.
    pub(super) fn write(&self, w: &mut Writer, with_data: bool) {
        w.nested(LIST_ELEM, |w| {
            w.nested(ELEMENT_KEY, |w| w.bytes(DATA_VALUE, &self.key));
            if let Some(end) = &self.key_end {
                w.nested(ELEMENT_KEY_END, |w| w.bytes(DATA_VALUE, end));
            }
            if let (Some(data), true) = (&self.data, with_data) {
                w.nested(ELEMENT_DATA, |w| data.write(w));
            }
            match self.userdata() {
                Some(value) if value.is_empty() => {}
                Some(value) => w.bytes(ELEMENT_USERDATA, &value),
                None => w.refuse(),
            }
        });
    }

    fn userdata(&self) -> Option<Vec<u8>> {
        let mut value = self.comment.as_deref().map_or(Some(Vec::new()), |comment| userdata(UDATA_COMMENT, comment))?;
        if let Some(note) = self.note {
            value.extend([UDATA_NOTE, 2]);
            value.extend(note.to_be_bytes());
        }
        Some(value)
    }

    /// Reads one `NFTA_LIST_ELEM`. `None` for what has no key, as the catch-all element.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let data = |kind| wire::find(wire::find(bytes, kind)?, DATA_VALUE).map(<[u8]>::to_vec);
        Some(Self {
            key: data(ELEMENT_KEY)?,
            key_end: data(ELEMENT_KEY_END),
            data: wire::find(bytes, ELEMENT_DATA).and_then(Data::read),
            comment: wire::find(bytes, ELEMENT_USERDATA).and_then(|udata| read_comment(udata, UDATA_COMMENT)),
            note: wire::find(bytes, ELEMENT_USERDATA).and_then(read_note),
        })
    }

    /// The same place in the set: what the kernel compares.
    #[must_use]
    pub fn is_at(&self, other: &Self) -> bool {
        self.key == other.key && self.key_end == other.key_end
    }
}

// === impl Count ===

impl Count {
    /// Reads the counter of one `NFTA_LIST_ELEM`. `None` for an element that has none.
    pub(super) fn read(element: &[u8]) -> Option<Self> {
        const BYTES: u16 = 1;
        const PACKETS: u16 = 2;
        let expr = wire::find(element, ELEMENT_EXPR)?;
        let is_counter = wire::find(expr, EXPR_NAME).is_some_and(|name| wire::text(name) == COUNTER);
        let data = wire::find(expr, EXPR_DATA).filter(|_| is_counter)?;
        let number = |kind| Some(u64::from_be_bytes(*wire::find(data, kind)?.first_chunk()?));
        Some(Self { packets: number(PACKETS)?, bytes: number(BYTES)? })
    }
}

// === impl Data ===

impl Data {
    fn write(&self, w: &mut Writer) {
        match self {
            Self::Jump(chain) => write_jump(w, chain),
            Self::Value(value) => w.bytes(DATA_VALUE, value),
        }
    }

    /// `None` for what we never write.
    fn read(bytes: &[u8]) -> Option<Self> {
        if let Some(value) = wire::find(bytes, DATA_VALUE) {
            return Some(Self::Value(value.to_vec()));
        }
        read_jump(bytes).map(Self::Jump)
    }
}

/// The chain of `jump CHAIN`; `None` for any other verdict, and for a value.
pub(super) fn read_jump(data: &[u8]) -> Option<String> {
    let verdict = wire::find(data, DATA_VERDICT)?;
    let is_jump = wire::find(verdict, VERDICT_CODE) == Some(&NFT_JUMP.to_be_bytes());
    wire::find(verdict, VERDICT_CHAIN).filter(|_| is_jump).map(wire::text)
}

/// `jump CHAIN`, as the data of an element or of an expression.
pub(super) fn write_jump(w: &mut Writer, chain: &str) {
    w.nested(DATA_VERDICT, |w| {
        w.bytes(VERDICT_CODE, &NFT_JUMP.to_be_bytes());
        w.name(VERDICT_CHAIN, chain);
    });
}

/// Writes userdata as libnftnl does.
pub(super) fn write_comment(w: &mut Writer, attribute: u16, udata: u8, comment: &str) {
    match userdata(udata, comment) {
        Some(value) => w.bytes(attribute, &value),
        None => w.refuse(),
    }
}

/// One byte of type, one of length, the text, NUL; `None` for text that is too long.
fn userdata(udata: u8, comment: &str) -> Option<Vec<u8>> {
    let length = u8::try_from(comment.len() + 1).ok().filter(|_| comment.len() <= COMMENT_MAX)?;
    let mut value = vec![udata, length];
    value.extend_from_slice(comment.as_bytes());
    value.push(0);
    Some(value)
}

/// The text of this type in userdata, whoever wrote it.
pub(super) fn read_comment(udata: &[u8], wanted: u8) -> Option<String> {
    find_userdata(udata, wanted).map(wire::text)
}

fn read_note(udata: &[u8]) -> Option<u16> {
    find_userdata(udata, UDATA_NOTE).and_then(|value| value.try_into().ok()).map(u16::from_be_bytes)
}

fn find_userdata(mut udata: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, rest @ ..] = udata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(value);
        }
        udata = rest.get(usize::from(*length)..)?;
    }
    None
}

// === impl SetElement ===

impl SetElement {
    /// Writes the place and the one element, as add, delete and get take it.
    pub(super) fn write(&self, w: &mut Writer, with_data: bool) {
        w.name(LIST_TABLE, &self.table);
        w.name(LIST_SET, &self.set);
        w.nested(LIST_ELEMENTS, |w| self.element.write(w, with_data));
    }
}

impl fmt::Display for SetElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| bytes.iter().try_for_each(|b| write!(f, "{b:02x}"));
        write!(f, "{} {} {} ", self.family, self.table, self.set)?;
        hex(f, &self.element.key)?;
        if let Some(end) = &self.element.key_end {
            f.write_str("-")?;
            hex(f, end)?;
        }
        match &self.element.data {
            None => {}
            Some(Data::Jump(chain)) => write!(f, ">{chain}")?,
            Some(Data::Value(value)) => {
                f.write_str("=")?;
                hex(f, value)?;
            }
        }
        match &self.element.comment {
            Some(comment) => write!(f, " {comment}"),
            None => Ok(()),
        }
    }
}

impl FromStr for SetElement {
    type Err = ParseElementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let incomplete = || ParseElementError::Incomplete { text: text.to_owned() };
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next().filter(|w| !w.is_empty()).ok_or_else(incomplete);
        let (family, table, set, keys) = (word()?, word()?, word()?, word()?);
        let comment = words.next().map(str::to_owned);
        let (keys, data) = match (keys.split_once('>'), keys.split_once('=')) {
            (Some((keys, chain)), _) => (keys, Some(Data::Jump(chain.to_owned()))),
            (None, Some((keys, value))) => (keys, Some(Data::Value(unhex(value)?))),
            (None, None) => (keys, None),
        };
        let (key, key_end) = match keys.split_once('-') {
            Some((key, end)) => (unhex(key)?, Some(unhex(end)?)),
            None => (unhex(keys)?, None),
        };
        Ok(Self {
            family: family.parse()?,
            table: table.to_owned(),
            set: set.to_owned(),
            element: Element { key, key_end, data, comment, note: None },
        })
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, ParseElementError> {
    let digit = |d: &u8| char::from(*d).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    pairs
        .iter()
        .map(|[high, low]| Some(digit(high)? << 4 | digit(low)?))
        .collect::<Option<Vec<u8>>>()
        .filter(|bytes| rest.is_empty() && !bytes.is_empty())
        .ok_or_else(|| ParseElementError::Key { key: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SetElement {
        SetElement {
            family: Family::Inet,
            table: "netloom".into(),
            set: "home4".into(),
            element: Element {
                key: vec![10, 88, 0, 5, 10, 88, 0, 0],
                key_end: Some(vec![10, 88, 0, 5, 10, 88, 0, 255]),
                data: Some(Data::Jump("out-10.88.0.0/24".into())),
                comment: Some("lab/pod 1/eth0".into()),
                note: None,
            },
        }
    }

    #[test]
    fn text_reads_back() {
        let whole = sample();
        let text = whole.to_string();
        assert_eq!(text, "inet netloom home4 0a5800050a580000-0a5800050a5800ff>out-10.88.0.0/24 lab/pod 1/eth0");
        assert_eq!(text.parse(), Ok(whole.clone()));
        let mut valued = whole.clone();
        valued.element.data = Some(Data::Value(vec![10, 0, 0, 1, 0, 80, 0, 0]));
        assert!(valued.to_string().contains("-0a5800050a5800ff=0a00000100500000 lab"), "{valued}");
        assert_eq!(valued.to_string().parse(), Ok(valued));
        let mut bare = whole;
        bare.element.key_end = None;
        bare.element.data = None;
        bare.element.comment = None;
        assert_eq!(bare.to_string().parse(), Ok(bare));
    }

    #[test]
    fn broken_texts() {
        for text in ["", "inet", "inet a b", "inet a b 0", "inet a b 0g", "inet  b c 00", "x a b 00", "inet a b 00=", "inet a b 00=0g"] {
            assert!(text.parse::<SetElement>().is_err(), "{text}");
        }
    }

    #[test]
    fn attributes_read_back() {
        let mut valued = sample().element;
        valued.data = Some(Data::Value(vec![10, 0, 0, 1, 0, 80, 0, 0]));
        for element in [sample().element, valued] {
            let mut w = Writer::default();
            element.write(&mut w, true);
            let bytes = w.finish().unwrap();
            assert_eq!(wire::find(&bytes, LIST_ELEM).and_then(Element::read), Some(element));
        }
    }

    #[test]
    fn a_comment_is_found_behind_other_userdata() {
        assert_eq!(read_comment(&[1, 2, 9, 9, 0, 3, b'a', b'b', 0], 0), Some("ab".into()));
        assert_eq!(read_comment(&[0, 200, b'a'], 0), None);
        assert_eq!(read_comment(&[0], 0), None);
    }

    #[test]
    fn the_longest_comment() {
        for (length, fits) in [(COMMENT_MAX, true), (COMMENT_MAX + 1, false), (400, false)] {
            let mut w = Writer::default();
            write_comment(&mut w, ELEMENT_USERDATA, UDATA_COMMENT, &"x".repeat(length));
            assert_eq!(w.finish().is_some(), fits, "{length}");
        }
    }
}
