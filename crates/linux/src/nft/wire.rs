//! Netlink framing as nf_tables wants it: headers, attributes within attributes, and
//! the way back. Everything is padded to four bytes; lengths are the machine's byte
//! order, values are the network's (`include/uapi/linux/netlink.h`, `nfnetlink.h`).

/// `NETLINK_NETFILTER`.
pub(super) const PROTOCOL: isize = 12;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of every message type.
pub(super) const SUBSYSTEM: u16 = 10;

pub(super) const BATCH_BEGIN: u16 = 0x10;
pub(super) const BATCH_END: u16 = 0x11;
pub(super) const ERROR: u16 = 2;
pub(super) const DONE: u16 = 3;
pub(super) const OVERRUN: u16 = 4;

pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
/// On an answer to a dump: the table changed meanwhile, the list may have gaps.
pub(super) const DUMP_INTERRUPTED: u16 = 0x10;
pub(super) const DUMP: u16 = 0x300;
pub(super) const EXCLUSIVE: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
/// On an error: only the header of what failed is echoed, attributes follow it.
const CAPPED: u16 = 0x100;
/// On an error: attributes with the kernel's own words follow.
const ACK_TLVS: u16 = 0x200;
const ACK_MESSAGE: u16 = 1;

pub(super) const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;
const HEADER: usize = 16;

/// `NFT_MSG_*`, without the subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    NewTable = 0,
    GetTable = 1,
    DelTable = 2,
    NewChain = 3,
    GetChain = 4,
    DelChain = 5,
    NewRule = 6,
    GetRule = 7,
    DelRule = 8,
    NewSet = 9,
    GetSet = 10,
    NewElement = 12,
    GetElement = 13,
    DelElement = 14,
}

impl Kind {
    pub(super) fn number(self) -> u16 {
        (SUBSYSTEM << 8) | u16::from(self as u8)
    }
}

/// Bytes on their way to the kernel: any number of messages, one after the other.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

// === impl Writer ===

impl Writer {
    /// The finished messages, or `None` when something outgrew its length field.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        (!self.too_long).then_some(self.bytes)
    }

    /// Whether something written so far outgrew its length field.
    pub(super) fn is_too_long(&self) -> bool {
        self.too_long
    }

    /// Notes that a value may not be sent: the kernel's limit for it is lower than ours.
    pub(super) fn refuse(&mut self) {
        self.too_long = true;
    }

    /// One nf_tables message about `family` with the attributes that `body` writes.
    pub(super) fn message(&mut self, kind: Kind, flags: u16, sequence: u32, family: u8, body: impl FnOnce(&mut Self)) {
        self.framed(kind.number(), flags, sequence, [family, 0, 0, 0], body);
    }

    /// `NFNL_MSG_BATCH_BEGIN` or `_END`: what lies between is committed as one.
    pub(super) fn batch(&mut self, kind: u16, sequence: u32) {
        let [high, low] = SUBSYSTEM.to_be_bytes();
        self.framed(kind, REQUEST, sequence, [0, 0, high, low], |_| {});
    }

    /// A message of any subsystem.
    pub(super) fn framed(&mut self, kind: u16, flags: u16, sequence: u32, nfgenmsg: [u8; 4], body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        // The kernel fills in the sender's port.
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&nfgenmsg);
        body(self);
        match u32::try_from(self.bytes.len() - start) {
            Ok(length) => self.patch(start, &length.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
    }

    /// An attribute with these bytes.
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.attribute(kind, |w| w.bytes.extend_from_slice(value));
    }

    /// An attribute with a number, big-endian as all of nf_tables.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// An attribute with a name, closed by NUL.
    pub(super) fn name(&mut self, kind: u16, value: &str) {
        self.attribute(kind, |w| {
            w.bytes.extend_from_slice(value.as_bytes());
            w.bytes.push(0);
        });
    }

    /// An attribute whose value is the attributes that `body` writes.
    pub(super) fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.attribute(kind | NESTED, body);
    }

    fn attribute(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.patch(start, &length.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }

    fn patch(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
}

/// One message from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// What an `NLMSG_ERROR` says: errno (0 is an acknowledgement) and the kernel's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) errno: i32,
    pub(super) text: Option<String>,
}

/// The messages in one datagram; ends at the first whose length cannot be.
pub(super) fn frames(mut rest: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(*rest.first_chunk()?)).ok()?;
        let message = rest.get(..length)?;
        let (header, payload) = message.split_at_checked(HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Frame {
            kind: u16::from_ne_bytes(*header.get(4..)?.first_chunk()?),
            flags: u16::from_ne_bytes(*header.get(6..)?.first_chunk()?),
            sequence: u32::from_ne_bytes(*header.get(8..)?.first_chunk()?),
            payload,
        })
    })
}

/// The attributes in a value, kind without its flags; ends at the first that cannot be.
pub(super) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let attribute = rest.get(..length)?;
        let (header, value) = attribute.split_at_checked(4)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes(*header.get(2..)?.first_chunk()?);
        Some((kind & KIND_MASK, value))
    })
}

/// The first attribute of this kind.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(k, value)| (k == kind).then_some(value))
}

impl<'a> Frame<'a> {
    /// The attributes of an nf_tables message, behind its four-byte nfgenmsg.
    pub(super) fn body(&self) -> &'a [u8] {
        self.payload.get(4..).unwrap_or_default()
    }

    /// Reads an `NLMSG_ERROR`, or the errno that closes a failed dump.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let errno = i32::from_ne_bytes(*self.payload.first_chunk()?).saturating_neg();
        // nlmsgerr: errno, the failed header, and unless capped the whole failed message.
        let echoed = self.payload.get(4..).unwrap_or_default();
        let skip = if self.flags & CAPPED != 0 {
            HEADER
        } else {
            let length = echoed.first_chunk().copied().map_or(0, u32::from_ne_bytes);
            usize::try_from(length).ok()?.max(HEADER)
        };
        let text = (self.flags & ACK_TLVS != 0).then(|| find(echoed.get(skip..)?, ACK_MESSAGE)).flatten().map(text);
        Some(Verdict { errno, text })
    }
}

/// A NUL-closed name from the kernel; what is not UTF-8 is replaced.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_padding_and_flags() {
        let mut w = Writer::default();
        w.message(Kind::NewTable, REQUEST, 7, 1, |w| {
            w.name(1, "ab");
            w.nested(2, |w| w.number(1, 5));
        });
        let bytes = w.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let frame = frames(&bytes).next().unwrap();
        assert_eq!((frame.kind, frame.sequence), (0x0a00, 7));
        let found: Vec<_> = attributes(frame.body()).collect();
        assert_eq!(found[0], (1, &b"ab\0"[..]));
        assert_eq!(found[1].0, 2);
        assert_eq!(find(found[1].1, 1), Some(&[0, 0, 0, 5][..]));
    }

    #[test]
    fn what_outgrows_its_length_is_refused() {
        let mut w = Writer::default();
        w.bytes(1, &[0; 65_531]);
        assert!(!w.is_too_long());
        w.nested(1, |w| w.bytes(1, &[0; 65_531]));
        assert!(w.finish().is_none());
    }

    #[test]
    fn odd_bytes_end_the_reading() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..20_000 {
            let bytes: Vec<u8> = (0..round % 97)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    // Mostly small numbers, so that lengths are often plausible.
                    if seed & 3 == 0 { (seed >> 32) as u8 } else { (seed >> 40) as u8 & 0x1f }
                })
                .collect();
            for frame in frames(&bytes) {
                let _ = frame.verdict();
                for (_, value) in attributes(frame.body()) {
                    attributes(value).for_each(drop);
                    let _ = text(value);
                }
            }
        }
    }
}
