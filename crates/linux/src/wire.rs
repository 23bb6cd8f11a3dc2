//! Netlink's framing, written and read: a message is a header, a fixed structure and attributes, all native-endian.
//!
//! Hand-made rather than taken from `netlink-packet-route`: there one attribute that cannot be read (an interface alias
//! that is no UTF-8, which whoever is root in a pod may set) fails the whole dump, and a message costs an allocation per
//! attribute. Here a reader skips what it does not understand and cannot panic, and a message is one buffer. The tests
//! compare what we send with what `ip` sends, byte for byte.

/// Length of `struct nlmsghdr` (linux/netlink.h): length, type, flags, sequence, port.
pub(crate) const HEADER: usize = 16;
/// Set in the type of an attribute that holds attributes (linux/netlink.h).
pub(crate) const NLA_F_NESTED: u16 = 0x8000;
/// What remains of an attribute's type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// A message under construction. Lengths are filled in by [`Message::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

/// One message received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// The messages of one datagram.
#[derive(Debug, Clone)]
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

/// The attributes that fill a slice: type without its flag bits, and value.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

// === impl Message ===

impl Message {
    /// A message of this type with its fixed structure.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(192);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(fixed);
        let mut message = Message { bytes };
        message.pad();
        message
    }

    /// Appends one attribute.
    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    pub(crate) fn put_u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    pub(crate) fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub(crate) fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// Appends a string with its final NUL.
    pub(crate) fn put_str(&mut self, kind: u16, value: &str) {
        let length = u16::try_from(value.len() + 5).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// Appends an attribute that holds whatever `fill` appends. `NLA_F_NESTED` only where the caller asks for it, as in
    /// `ip`: old parts of rtnetlink predate the flag, and the bridge reads one attribute differently without it.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let [low, high] = kind.to_ne_bytes();
        self.record(&[0, 0, low, high], fill);
    }

    /// Appends a structure that begins with its own 16-bit length (`struct rtnexthop`), and what `fill` appends to it.
    pub(crate) fn record(&mut self, fixed: &[u8], fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.append(fixed);
        fill(self);
        // Too long for its length field: the kernel refuses the message, nothing is cut in silence.
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.overwrite(start, &length.to_ne_bytes());
    }

    /// Appends bytes that are no attribute, padded.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    /// The bytes, length filled in; sequence number and port are zero.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.overwrite(0, &length.to_ne_bytes());
        self.bytes
    }

    fn overwrite(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }

    fn pad(&mut self) {
        let aligned = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(aligned, 0);
    }
}

/// Writes sequence number and additional flags into the header of a finished message.
pub(crate) fn stamp(message: &mut [u8], sequence: u32, flags: u16) {
    if let Some(header) = message.first_chunk_mut::<HEADER>() {
        let [_, _, _, _, _, _, low, high, s0, s1, s2, s3, ..] = header;
        [*low, *high] = (u16::from_ne_bytes([*low, *high]) | flags).to_ne_bytes();
        [*s0, *s1, *s2, *s3] = sequence.to_ne_bytes();
    }
}

/// The type of a finished message; 0 when there is no header.
pub(crate) fn kind_of(message: &[u8]) -> u16 {
    message.get(4..).and_then(u16_at).unwrap_or(0)
}

// === impl Messages ===

impl<'a> Iterator for Messages<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        let length = usize::try_from(u32_at(self.0)?).ok()?;
        let message = self.0.get(..length)?;
        let received = Received {
            kind: u16_at(message.get(4..)?)?,
            flags: u16_at(message.get(6..)?)?,
            sequence: u32_at(message.get(8..)?)?,
            payload: message.get(HEADER..)?,
        };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(received)
    }
}

// === impl Attributes ===

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0)?);
        let kind = u16_at(self.0.get(2..)?)?;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind & NLA_TYPE_MASK, value))
    }
}

/// The native-endian number at the start of a slice.
pub(crate) fn u16_at(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().copied().map(u16::from_ne_bytes)
}

/// The native-endian number at the start of a slice.
pub(crate) fn u32_at(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The native-endian number at the start of a slice.
pub(crate) fn i32_at(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().copied().map(i32::from_ne_bytes)
}

/// A string up to its NUL; bytes that are no UTF-8 are replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// An IPv4 or IPv6 address by its length.
pub(crate) fn ip(bytes: &[u8]) -> Option<std::net::IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}

/// Runs `f` over the address's bytes in network order.
pub(crate) fn with_octets<T>(ip: std::net::IpAddr, f: impl FnOnce(&[u8]) -> T) -> T {
    match ip {
        std::net::IpAddr::V4(ip) => f(&ip.octets()),
        std::net::IpAddr::V6(ip) => f(&ip.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut m = Message::new(16, 5, &[1, 2, 3, 4]);
        m.put_u8(1, 7);
        m.put_str(3, "eth0");
        m.nest(18, |m| {
            m.put_u32(2, 9);
            m.nest(3, |m| m.put_u16(1, 1));
        });
        let mut bytes = m.finish();
        stamp(&mut bytes, 77, 0x100);
        assert_eq!(bytes.len() % 4, 0);
        let got: Vec<_> = Messages(&bytes).collect();
        assert_eq!(got.len(), 1);
        assert_eq!((got[0].kind, got[0].flags, got[0].sequence), (16, 0x105, 77));
        let attributes: Vec<_> = Attributes(&got[0].payload[4..]).collect();
        assert_eq!(attributes[0], (1, &[7][..]));
        assert_eq!(attributes[1], (3, &b"eth0\0"[..]));
        assert_eq!(attributes[2].0, 18);
        assert_eq!(Attributes(attributes[2].1).count(), 2);
    }

    /// Every cut and every changed byte of a message is read to an end without a panic.
    #[test]
    fn odd_bytes_are_skipped() {
        let mut m = Message::new(16, 0, &[0; 16]);
        m.put_str(3, "eth0");
        m.nest(18, |m| m.put_str(1, "veth"));
        let bytes = m.finish();
        let read = |bytes: &[u8]| {
            for m in Messages(bytes) {
                for (_, value) in Attributes(m.payload.get(16..).unwrap_or(&[])) {
                    for (_, inner) in Attributes(value) {
                        let _ = (text(inner), u32_at(inner), ip(inner));
                    }
                }
            }
        };
        for cut in 0..bytes.len() {
            read(&bytes[..cut]);
            for byte in [0, 1, 3, 0x7f, 0xff] {
                let mut odd = bytes.clone();
                odd[cut] = byte;
                read(&odd);
            }
        }
    }
}
