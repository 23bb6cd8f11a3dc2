//! A DHCPv6 message as bytes (RFC 8415 section 8 and 21).

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::bytes::Bytes;

/// Options (RFC 8415 21, RFC 3646).
pub(crate) mod option {
    pub(crate) const CLIENT_ID: u16 = 1;
    pub(crate) const SERVER_ID: u16 = 2;
    pub(crate) const IA_NA: u16 = 3;
    pub(crate) const IA_ADDRESS: u16 = 5;
    pub(crate) const REQUEST_LIST: u16 = 6;
    pub(crate) const ELAPSED: u16 = 8;
    pub(crate) const STATUS: u16 = 13;
    pub(crate) const RAPID_COMMIT: u16 = 14;
    pub(crate) const DNS: u16 = 23;
    pub(crate) const SEARCH: u16 = 24;
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Solicit = 1,
    Advertise = 2,
    Request = 3,
    Confirm = 4,
    Renew = 5,
    Rebind = 6,
    Reply = 7,
    Release = 8,
    Decline = 9,
}

/// A message between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Its transaction, 24 bits.
    pub(crate) xid: u32,
    pub(crate) options: Options,
}

/// Options in order; one may be there several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(u16, Vec<u8>)>);

/// Addresses under one number of the client's (IA_NA, 21.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Association {
    pub(crate) iaid: u32,
    /// T1 and T2; `None` where the server leaves them to the client, or means never.
    pub(crate) t1: Option<Duration>,
    pub(crate) t2: Option<Duration>,
    pub(crate) addresses: Vec<Lifetime>,
    pub(crate) status: Option<(u16, String)>,
}

/// One address of it (21.6). Seconds; all ones mean for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) address: Ipv6Addr,
    pub(crate) preferred: u32,
    pub(crate) valid: u32,
}

// === impl Kind ===

impl Kind {
    fn of(number: u8) -> Option<Self> {
        use Kind::{Advertise, Confirm, Decline, Rebind, Release, Renew, Reply, Request, Solicit};
        [Solicit, Advertise, Request, Confirm, Renew, Rebind, Reply, Release, Decline].into_iter().find(|k| *k as u8 == number)
    }
}

// === impl Options ===

impl Options {
    pub(crate) fn add(&mut self, code: u16, value: impl Into<Vec<u8>>) {
        self.0.push((code, value.into()));
    }

    pub(crate) fn get(&self, code: u16) -> Option<&[u8]> {
        self.0.iter().find(|(c, _)| *c == code).map(|(_, value)| value.as_slice())
    }

    fn all(&self, code: u16) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(c, _)| *c == code).map(|(_, value)| value.as_slice())
    }

    fn read(mut bytes: Bytes<'_>) -> Self {
        let mut options = Options::default();
        while let (Some(code), Some(length)) = (bytes.u16(), bytes.u16()) {
            let Some(value) = bytes.take(length.into()) else { break };
            options.add(code, value);
        }
        options
    }

    fn write(&self, to: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            to.extend(code.to_be_bytes());
            to.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
            to.extend_from_slice(value);
        }
    }

    /// What the server says of the whole, or of an association: 0 is success.
    pub(crate) fn status(&self) -> Option<(u16, String)> {
        let mut bytes = Bytes(self.get(option::STATUS)?);
        let code = bytes.u16()?;
        let text = String::from_utf8_lossy(bytes.0).chars().filter(|c| !c.is_control()).take(120).collect();
        Some((code, text))
    }

    /// Name servers.
    pub(crate) fn dns(&self) -> Vec<Ipv6Addr> {
        let mut bytes = Bytes(self.get(option::DNS).unwrap_or_default());
        std::iter::from_fn(|| bytes.v6()).collect()
    }

    /// The client's association.
    pub(crate) fn association(&self, iaid: u32) -> Option<Association> {
        self.all(option::IA_NA).filter_map(Association::read).find(|ia| ia.iaid == iaid)
    }
}

// === impl Association ===

impl Association {
    fn read(value: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(value);
        let iaid = bytes.u32()?;
        let mut time = || bytes.u32().map(|s| (s != 0 && s != u32::MAX).then(|| Duration::from_secs(s.into())));
        let (t1, t2) = (time()?, time()?);
        let options = Options::read(bytes);
        let address = |value: &[u8]| {
            let mut bytes = Bytes(value);
            Some(Lifetime { address: bytes.v6()?, preferred: bytes.u32()?, valid: bytes.u32()? })
        };
        let addresses = options.all(option::IA_ADDRESS).filter_map(address).collect();
        Some(Association { iaid, t1, t2, addresses, status: options.status() })
    }

    /// As a client asks for it: times are the server's to say.
    pub(crate) fn wanted(iaid: u32, address: Option<Ipv6Addr>) -> Vec<u8> {
        let mut bytes = [iaid.to_be_bytes(), [0; 4], [0; 4]].concat();
        let mut options = Options::default();
        if let Some(address) = address {
            options.add(option::IA_ADDRESS, [&address.octets()[..], &[0; 8]].concat());
        }
        options.write(&mut bytes);
        bytes
    }
}

// === impl Message ===

impl Message {
    pub(crate) fn new(kind: Kind, xid: u32) -> Self {
        Message { kind, xid: xid & 0x00ff_ffff, options: Options::default() }
    }

    pub(crate) fn print(&self) -> Vec<u8> {
        let [_, xid @ ..] = self.xid.to_be_bytes();
        let mut bytes = vec![self.kind as u8];
        bytes.extend(xid);
        self.options.write(&mut bytes);
        bytes
    }

    /// `None` for anything else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut b = Bytes(bytes);
        let kind = Kind::of(b.u8()?)?;
        let [x, y, z] = b.array()?;
        Some(Message { kind, xid: u32::from_be_bytes([0, x, y, z]), options: Options::read(b) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut message = Message::new(Kind::Request, 0x12ab_cdef);
        message.options.add(option::CLIENT_ID, [0, 4, 1, 2]);
        message.options.add(option::IA_NA, Association::wanted(7, Some("fd00::5".parse().unwrap())));
        let read = Message::parse(&message.print()).unwrap();
        assert_eq!(read, message);
        assert_eq!(read.xid, 0x00ab_cdef);
        let ia = read.options.association(7).unwrap();
        assert_eq!((ia.addresses[0].address, ia.t1), ("fd00::5".parse().unwrap(), None));
        assert_eq!(read.options.association(8), None);
        let bytes = message.print();
        for end in 0..bytes.len() {
            assert_eq!(Message::parse(&bytes[..end]).is_some(), end >= 4, "{end}");
        }
    }
}
