//! A DHCPv4 message as bytes (RFC 2131 section 2, RFC 2132, RFC 3396).

use std::net::Ipv4Addr;
use std::time::Duration;

use linux::packet::EtherAddr;

use super::option as code;
use crate::bytes::Bytes;

/// Before the options: op to file.
const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Some servers and relays drop what is shorter than a BOOTP message.
const SHORTEST: usize = 300;

/// What a message is (option 53).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
}

/// A message. What the client has no use for is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) from_server: bool,
    pub(crate) xid: u32,
    /// Seconds since the client began.
    pub(crate) secs: u16,
    /// The server is to answer to all, as this client cannot be reached before it has its address.
    pub(crate) broadcast: bool,
    /// The address that the client has, if it answers for it.
    pub(crate) ciaddr: Ipv4Addr,
    /// The address that the client gets.
    pub(crate) yiaddr: Ipv4Addr,
    pub(crate) chaddr: EtherAddr,
    pub(crate) options: Options,
}

/// Options in order, without `Kind`, padding and end; what came in several parts is one (RFC 3396).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(u8, Vec<u8>)>);

// === impl Kind ===

impl Kind {
    fn of(number: u8) -> Option<Self> {
        use Kind::{Ack, Decline, Discover, Nak, Offer, Release, Request};
        [Discover, Offer, Request, Decline, Ack, Nak, Release].into_iter().find(|k| *k as u8 == number)
    }
}

// === impl Options ===

impl Options {
    /// Sets an option, in the place of an earlier one.
    pub(crate) fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        let value = value.into();
        match self.0.iter_mut().find(|(c, _)| *c == code) {
            Some((_, earlier)) => *earlier = value,
            None => self.0.push((code, value)),
        }
    }

    pub(crate) fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.iter().find(|(c, _)| *c == code).map(|(_, value)| value.as_slice())
    }

    /// An option that is one address.
    pub(crate) fn address(&self, code: u8) -> Option<Ipv4Addr> {
        Bytes(self.get(code)?).v4()
    }

    /// An option that is a list of addresses.
    pub(crate) fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let mut bytes = Bytes(self.get(code).unwrap_or_default());
        std::iter::from_fn(|| bytes.v4()).collect()
    }

    /// An option that is a number of seconds; `None` also for one that means for ever.
    pub(crate) fn seconds(&self, code: u8) -> Option<Duration> {
        Bytes(self.get(code)?).u32().filter(|s| *s != u32::MAX).map(|s| Duration::from_secs(s.into()))
    }

    fn read(&mut self, mut bytes: Bytes<'_>) {
        while let Some(code) = bytes.u8() {
            match code {
                code::PAD => {}
                code::END => return,
                code => {
                    let value = bytes.u8().and_then(|length| bytes.take(length.into()));
                    // What follows a torn option cannot be told from it.
                    let Some(value) = value else { return };
                    match self.0.iter_mut().find(|(c, _)| *c == code) {
                        Some((_, earlier)) => earlier.extend_from_slice(value),
                        None => self.0.push((code, value.to_vec())),
                    }
                }
            }
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            // An empty one is one chunk all the same.
            let empty = value.is_empty().then_some([].as_slice());
            for chunk in empty.into_iter().chain(value.chunks(255)) {
                to.extend([*code, u8::try_from(chunk.len()).unwrap_or(u8::MAX)]);
                to.extend_from_slice(chunk);
            }
        }
    }
}

// === impl Message ===

impl Message {
    /// A client's message that has nothing in it yet.
    pub(crate) fn new(kind: Kind, xid: u32, chaddr: EtherAddr) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        let options = Options::default();
        Message { kind, from_server: false, xid, secs: 0, broadcast: false, ciaddr: none, yiaddr: none, chaddr, options }
    }

    pub(crate) fn print(&self) -> Vec<u8> {
        let mut bytes = vec![if self.from_server { 2 } else { 1 }, 1, 6, 0];
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend(self.secs.to_be_bytes());
        bytes.extend(if self.broadcast { [0x80, 0] } else { [0, 0] });
        bytes.extend(self.ciaddr.octets());
        bytes.extend(self.yiaddr.octets());
        bytes.extend([0; 8]);
        bytes.extend(self.chaddr);
        bytes.resize(FIXED, 0);
        bytes.extend(COOKIE);
        bytes.extend([code::MESSAGE_TYPE, 1, self.kind as u8]);
        self.options.write(&mut bytes);
        bytes.push(code::END);
        bytes.resize(bytes.len().max(SHORTEST), 0);
        bytes
    }

    /// Reads a message over Ethernet; `None` for anything else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut b = Bytes(bytes);
        let [op, htype, hlen, _] = b.array()?;
        if !matches!(op, 1 | 2) || htype != 1 || hlen != 6 {
            return None;
        }
        let (xid, secs, flags) = (b.u32()?, b.u16()?, b.u16()?);
        let (ciaddr, yiaddr) = (b.v4()?, b.v4()?);
        b.take(8)?;
        let chaddr = b.array()?;
        b.take(10)?;
        let (sname, file) = (b.take(64)?, b.take(128)?);
        if b.array()? != COOKIE {
            return None;
        }
        let mut options = Options::default();
        options.read(b);
        // Option 52 says that the two fields have options as well.
        let overload = options.get(code::OVERLOAD).and_then(|v| v.first().copied()).unwrap_or(0);
        if overload & 1 != 0 {
            options.read(Bytes(file));
        }
        if overload & 2 != 0 {
            options.read(Bytes(sname));
        }
        let kind = Kind::of(*options.get(code::MESSAGE_TYPE)?.first()?)?;
        options.0.retain(|(c, _)| *c != code::MESSAGE_TYPE);
        Some(Message { kind, from_server: op == 2, xid, secs, broadcast: flags & 0x8000 != 0, ciaddr, yiaddr, chaddr, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut message = Message::new(Kind::Request, 0xdead_beef, [2, 0, 0, 1, 2, 3]);
        message.broadcast = true;
        message.ciaddr = Ipv4Addr::new(10, 0, 0, 7);
        message.options.set(code::CLIENT_ID, b"\0c1/net/eth0".to_vec());
        message.options.set(77, vec![b'x'; 300]);
        let bytes = message.print();
        assert!(bytes.len() >= SHORTEST);
        assert_eq!(Message::parse(&bytes), Some(message));
    }

    #[test]
    fn torn_messages_are_none_or_shorter() {
        let mut message = Message::new(Kind::Ack, 1, [2; 6]);
        message.options.set(code::ROUTERS, [10, 0, 0, 1]);
        let bytes = message.print();
        for end in 0..bytes.len() {
            let read = Message::parse(&bytes[..end]);
            assert!(read.is_none() || end > FIXED, "{end}");
        }
    }

    #[test]
    fn options_in_other_fields() {
        let mut bytes = Message::new(Kind::Ack, 1, [2; 6]).print();
        // Router in `file`.
        bytes[108..115].copy_from_slice(&[3, 4, 10, 0, 0, 1, 255]);
        bytes[243..247].copy_from_slice(&[code::OVERLOAD, 1, 1, code::END]);
        let read = Message::parse(&bytes).unwrap();
        assert_eq!(read.options.address(code::ROUTERS), Some(Ipv4Addr::new(10, 0, 0, 1)));
    }
}
