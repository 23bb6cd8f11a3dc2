//! Forgetting connections that the kernel tracks (`conntrack -D`): where a connection goes is decided with its first packet,
//! and kept. Of a protocol without an end, as UDP, it is kept for as long as packets come, whatever rules are there by then.
//!
//! The same netlink protocol as nf_tables, another subsystem (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::fmt;
use std::net::IpAddr;

use nix::errno::Errno;

use super::Socket;
use super::wire::{self, ACK, DUMP, Frame, REQUEST, Writer};
use crate::receive::Buffer;
use crate::route::Family;

/// `NFNL_SUBSYS_CTNETLINK`, and its messages `IPCTNL_MSG_CT_*`.
const NEW: u16 = 0x100;
const GET: u16 = 0x101;
const DELETE: u16 = 0x102;

const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
const FILTER_ORIG_FLAGS: u16 = 1;
const FILTER_REPLY_FLAGS: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const PROTO_DST_PORT: u16 = 3;

/// `CTA_FILTER_F_*` of net/netfilter/nf_conntrack_netlink.c: what of a tuple is to be compared.
const BY_SOURCE: u32 = 1;
const BY_DESTINATION: u32 = 1 << 1;
const BY_PROTOCOL: u32 = 1 << 3;
const BY_PORT: u32 = 1 << 5;

/// Connections to a port, as their first packet had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flows {
    /// Of this family.
    pub family: Family,
    /// Of this protocol, as an IP header numbers it.
    pub protocol: u8,
    /// To this port.
    pub port: u16,
    /// To this address; `None`: to any.
    pub destination: Option<IpAddr>,
    /// Answered by this address; `None`: by any.
    pub answered_by: Option<IpAddr>,
}

/// What names a connection: its tuple, its zone, its number, as attributes.
type Tracked = Vec<(u16, Vec<u8>)>;

/// Why connections may still be tracked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("cannot delete {what} from conntrack: {errno}")]
pub struct ForgetError {
    /// Which connections.
    pub what: String,
    /// The kernel's answer, or that of `send` or `recv`.
    pub errno: Errno,
}

// === impl Socket ===

impl Socket {
    /// Forgets connections: the next packet of each is the first of a new one. None there is done, and so is a kernel that
    /// tells nobody what it tracks. Costs a walk over all that is tracked.
    ///
    /// # Errors
    /// [`ForgetError`]
    pub fn forget(&mut self, flows: &Flows) -> Result<(), ForgetError> {
        // The kernel (6.18) takes the IPv6 addresses that are *not* the one asked for.
        let addressed = flows.destination.is_some() || flows.answered_by.is_some();
        let filtered = match flows.family {
            Family::V6 if addressed => Err(Errno::EOPNOTSUPP),
            _ => self.forget_filtered(flows),
        };
        let done = match filtered {
            // An older kernel takes one deletion for one connection.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => self.forget_each(flows),
            other => other,
        };
        match done {
            // No such subsystem: CONFIG_NF_CT_NETLINK.
            Ok(()) | Err(Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(()),
            Err(errno) => Err(ForgetError { what: flows.to_string(), errno }),
        }
    }

    fn forget_filtered(&mut self, flows: &Flows) -> Result<(), Errno> {
        self.delete_tracked(flows.family, |w| flows.write(w))
    }

    /// One by one. The kernel lists those of the port, one before Linux 5.8 all that there are.
    pub(super) fn forget_each(&mut self, flows: &Flows) -> Result<(), Errno> {
        let sequence = self.numbers(1);
        let mut w = Writer::default();
        let of_port = Flows { destination: None, answered_by: None, ..*flows };
        w.framed(GET, REQUEST | DUMP, sequence, [flows.family.number(), 0, 0, 0], |w| of_port.write(w));
        self.send(&w.finish().ok_or(Errno::EMSGSIZE)?)?;
        for tracked in self.tracked(sequence, flows)? {
            match self.delete_tracked(flows.family, |w| tracked.iter().for_each(|(kind, value)| w.bytes(*kind, value))) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn tracked(&mut self, sequence: u32, flows: &Flows) -> Result<Vec<Tracked>, Errno> {
        let mut found = Vec::new();
        let mut buffer = Buffer::take();
        loop {
            self.receive(&mut buffer)?;
            for frame in wire::frames(&buffer).filter(|f| f.sequence == sequence) {
                match frame.kind {
                    NEW if flows.have(&frame) => found.push(named(&frame)),
                    wire::DONE => return Ok(found),
                    wire::ERROR => return verdict(&frame).map(|()| found),
                    _ => {}
                }
            }
        }
    }

    fn delete_tracked(&mut self, family: Family, body: impl FnOnce(&mut Writer)) -> Result<(), Errno> {
        let sequence = self.numbers(1);
        let mut w = Writer::default();
        w.framed(DELETE, REQUEST | ACK, sequence, [family.number(), 0, 0, 0], body);
        self.send(&w.finish().ok_or(Errno::EMSGSIZE)?)?;
        let mut buffer = Buffer::take();
        loop {
            self.receive(&mut buffer)?;
            let answer = wire::frames(&buffer).find(|f| f.sequence == sequence && f.kind == wire::ERROR);
            if let Some(frame) = answer {
                return verdict(&frame);
            }
        }
    }
}

/// What names the connection that a message tells of.
fn named(frame: &Frame<'_>) -> Tracked {
    let kept = |kind: u16| if kind == TUPLE_ORIG { kind | wire::NESTED } else { kind };
    let names = wire::attributes(frame.body()).filter(|(kind, _)| matches!(*kind, TUPLE_ORIG | ZONE | ID));
    names.map(|(kind, value)| (kept(kind), value.to_vec())).collect()
}

/// For the fuzz target: what a message tells of a connection, and what would be sent to forget it.
#[cfg(fuzzing)]
pub(super) fn fuzz(frame: &Frame<'_>) {
    let _ = verdict(frame);
    for ip in [IpAddr::from([10, 1, 0, 5]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 5])] {
        let all = Flows { family: Family::of(ip), protocol: 17, port: 53, destination: None, answered_by: None };
        let one = Flows { destination: Some(ip), answered_by: Some(ip), ..all };
        assert!(!one.have(frame) || all.have(frame));
    }
    let mut w = Writer::default();
    let names = named(frame);
    w.framed(DELETE, REQUEST | ACK, 1, [0; 4], |w| names.iter().for_each(|(kind, value)| w.bytes(*kind, value)));
    let sent = w.finish().unwrap_or_default();
    let again: Vec<Tracked> = wire::frames(&sent).map(|frame| named(&frame)).collect();
    assert_eq!(again, [names]);
}

/// Zero is an acknowledgement.
fn verdict(frame: &Frame<'_>) -> Result<(), Errno> {
    match frame.verdict().ok_or(Errno::EPROTO)?.errno {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

// === impl Flows ===

impl Flows {
    /// `CTA_IP_V4_SRC` or `CTA_IP_V6_SRC`; that of the destination is the next.
    fn source_kind(&self) -> u16 {
        match self.family {
            Family::V4 => 1,
            Family::V6 => 3,
        }
    }

    fn write(&self, w: &mut Writer) {
        let ip = |w: &mut Writer, kind, ip: IpAddr| {
            w.nested(TUPLE_IP, |w| match ip {
                IpAddr::V4(ip) => w.bytes(kind, &ip.octets()),
                IpAddr::V6(ip) => w.bytes(kind, &ip.octets()),
            });
        };
        w.nested(TUPLE_ORIG, |w| {
            if let Some(destination) = self.destination {
                ip(w, self.source_kind() + 1, destination);
            }
            w.nested(TUPLE_PROTO, |w| {
                w.bytes(PROTO_NUM, &[self.protocol]);
                w.bytes(PROTO_DST_PORT, &self.port.to_be_bytes());
            });
        });
        if let Some(answers) = self.answered_by {
            w.nested(TUPLE_REPLY, |w| ip(w, self.source_kind(), answers));
        }
        // The one attribute here that is in the machine's own order.
        let by_destination = if self.destination.is_some() { BY_DESTINATION } else { 0 };
        w.nested(FILTER, |w| {
            w.bytes(FILTER_ORIG_FLAGS, &(BY_PROTOCOL | BY_PORT | by_destination).to_ne_bytes());
            if self.answered_by.is_some() {
                w.bytes(FILTER_REPLY_FLAGS, &BY_SOURCE.to_ne_bytes());
            }
        });
    }

    /// Whether a connection is one of these.
    fn have(&self, frame: &Frame<'_>) -> bool {
        let value = |tuple: u16, part: u16, kind: u16| wire::find(wire::find(wire::find(frame.body(), tuple)?, part)?, kind);
        let is = |address: Option<IpAddr>, found: Option<&[u8]>| match address {
            None => true,
            Some(IpAddr::V4(ip)) => found == Some(&ip.octets()),
            Some(IpAddr::V6(ip)) => found == Some(&ip.octets()),
        };
        value(TUPLE_ORIG, TUPLE_PROTO, PROTO_NUM) == Some(&[self.protocol])
            && value(TUPLE_ORIG, TUPLE_PROTO, PROTO_DST_PORT) == Some(&self.port.to_be_bytes())
            && is(self.destination, value(TUPLE_ORIG, TUPLE_IP, self.source_kind() + 1))
            && is(self.answered_by, value(TUPLE_REPLY, TUPLE_IP, self.source_kind()))
    }
}

impl fmt::Display for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connections of protocol {} to ", self.protocol)?;
        if let Some(destination) = self.destination {
            write!(f, "{destination} ")?;
        }
        write!(f, "port {}", self.port)
    }
}
