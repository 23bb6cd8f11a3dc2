//! A DHCPv4 message as bytes (RFC 2131 section 2): the types of `dhcproto`, read with care.
//!
//! ```text
//!   bytes --borrowed::Message--> fields, options of all three areas --joined (RFC 3396)--> each alone --DhcpOption::decode--> Message
//! ```
//!
//! What a server sends is not given to `Message::decode`: it ends at the first option that it cannot read, such as a name that is no
//! UTF-8, so that the lease's time would be lost with it; it knows no options in other fields; and of some options, which a client has
//! no use for, a wrong length makes it panic where overflows are checked. One option alone, of those that are used, does none of that.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::{self, DhcpOptionIterator};
use dhcproto::v4::{DhcpOption, HType, MAGIC, MIN_PACKET_SIZE, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Decodable, Encodable};
use linux::packet::EtherAddr;

/// Where a message has its fields `sname`, `file` and the magic cookie.
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
const COOKIE: std::ops::Range<usize> = 236..240;

/// What a client reads. What it has no use for is not kept.
const READ: &[OptionCode] = &[
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::DomainName,
    OptionCode::StaticRoutingTable,
    OptionCode::AddressLeaseTime,
    OptionCode::MessageType,
    OptionCode::ServerIdentifier,
    OptionCode::Message,
    OptionCode::Renewal,
    OptionCode::Rebinding,
    OptionCode::DomainSearch,
    OptionCode::ClasslessStaticRoute,
];

/// The value of an option of a message (of either family), if it is there: `said!(message, Router)`.
macro_rules! said {
    ($message:expr, $name:ident) => {
        match $message.opts().get(OptionCode::$name) {
            Some(DhcpOption::$name(value)) => Some(value),
            _ => None,
        }
    };
}
pub(crate) use said;

/// A client's message that says nothing but what it is.
pub(crate) fn new(kind: MessageType, xid: u32, own: EtherAddr) -> Message {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, none, none, none, none, &own);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    message
}

/// An option whose value is bytes that somebody chose.
pub(crate) fn raw(code: OptionCode, value: &[u8]) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(code, value.to_vec()))
}

/// Some servers and relays drop what is shorter than a BOOTP message.
pub(crate) fn print(message: &Message) -> Vec<u8> {
    // It fails for names that are too long, and [`parse`] lets none of those in.
    let mut bytes = message.to_vec().unwrap_or_default();
    bytes.resize(bytes.len().max(MIN_PACKET_SIZE), 0);
    bytes
}

/// Reads a message over Ethernet that says what it is; `None` for anything else.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
    let fields = borrowed::Message::new(bytes).ok()?;
    let opcode = fields.opcode();
    let ethernet = fields.htype() == HType::Eth && fields.hlen() == 6;
    if !matches!(opcode, Opcode::BootRequest | Opcode::BootReply) || !ethernet || bytes.get(COOKIE)? != MAGIC {
        return None;
    }
    let mut message =
        Message::new_with_id(fields.xid(), fields.ciaddr(), fields.yiaddr(), fields.siaddr(), fields.giaddr(), fields.chaddr());
    message.set_opcode(opcode).set_secs(fields.secs()).set_flags(fields.flags());
    for (code, value) in options(bytes, fields.opts())? {
        let code = OptionCode::from(code);
        if READ.contains(&code)
            && let Some(option) = read(code, &value)
        {
            message.opts_mut().insert(option);
        }
    }
    kind(&message).is_some().then_some(message)
}

/// What a message is.
pub(crate) fn kind(message: &Message) -> Option<MessageType> {
    said!(message, MessageType).copied()
}

/// Which server sent it, or is to read it.
pub(crate) fn server(message: &Message) -> Option<Ipv4Addr> {
    said!(message, ServerIdentifier).copied()
}

/// Options by number; what came in several parts, and wherever, is one.
fn options(bytes: &[u8], own: DhcpOptionIterator<'_>) -> Option<BTreeMap<u8, Vec<u8>>> {
    let mut found: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let mut collect = |area: DhcpOptionIterator<'_>| {
        for option in area {
            found.entry(option.code().into()).or_default().extend_from_slice(option.data());
        }
        found.get(&OptionCode::OptionOverload.into()).and_then(|v| v.first().copied()).unwrap_or(0)
    };
    let overload = collect(own);
    if overload & 1 != 0 {
        collect(DhcpOptionIterator::new(bytes.get(FILE)?));
    }
    if overload & 2 != 0 {
        collect(DhcpOptionIterator::new(bytes.get(SNAME)?));
    }
    Some(found)
}

/// One option; `None` for one that is torn, or says nothing.
fn read(code: OptionCode, value: &[u8]) -> Option<DhcpOption> {
    let parts = raw(code, value).to_vec().ok()?;
    let option = DhcpOption::from_bytes(&parts).ok()?;
    option.to_vec().is_ok_and(|bytes| !bytes.is_empty()).then_some(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut message = new(MessageType::Request, 0xdead_beef, [2, 0, 0, 1, 2, 3]);
        message.set_flags(message.flags().set_broadcast()).set_ciaddr([10, 0, 0, 7]).set_secs(9);
        message.opts_mut().insert(DhcpOption::ServerIdentifier([10, 0, 0, 1].into()));
        // More than one option holds.
        message.opts_mut().insert(DhcpOption::DomainNameServer(vec![[10, 0, 0, 9].into(); 100]));
        let bytes = print(&message);
        assert!(bytes.len() >= 300);
        assert_eq!(parse(&bytes), Some(message));
    }

    #[test]
    fn bytes_that_somebody_chose() {
        let mut message = new(MessageType::Discover, 1, [2; 6]);
        message.opts_mut().insert(DhcpOption::ClientIdentifier(vec![0, 255, 1]));
        message.opts_mut().insert(raw(OptionCode::UserClass, &[b'x'; 300]));
        message.opts_mut().insert(raw(OptionCode::from(200), &[0xff, 0]));
        let bytes = print(&message);
        let expected = [&[77, 255][..], &[b'x'; 255], &[77, 45], &[b'x'; 45], &[200, 2, 0xff, 0, 255]].concat();
        let options = [&[53, 1, 1, 61, 3, 0, 255, 1][..], &expected].concat();
        assert_eq!(bytes[240..240 + options.len()], options);
        // Said once, as the last one said it.
        message.opts_mut().insert(raw(OptionCode::ClientIdentifier, b"\0mine"));
        assert_eq!(print(&message)[243..250], *b"\x3d\x05\0mine");
    }

    #[test]
    fn torn_messages_are_none_or_shorter() {
        let mut message = new(MessageType::Ack, 1, [2; 6]);
        message.opts_mut().insert(DhcpOption::Router(vec![[10, 0, 0, 1].into()]));
        let bytes = print(&message);
        for end in 0..bytes.len() {
            let read = parse(&bytes[..end]);
            assert!(read.is_none() || end > COOKIE.end, "{end}");
        }
    }

    /// An acknowledgement with these bytes as its options, after what it is.
    fn with(options: &[u8]) -> Vec<u8> {
        let mut bytes = print(&new(MessageType::Ack, 1, [2; 6]));
        bytes.truncate(243);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn options_in_other_fields() {
        let mut bytes = with(&[52, 1, 3, 255]);
        bytes[FILE.start..FILE.start + 7].copy_from_slice(&[3, 4, 10, 0, 0, 1, 255]);
        bytes[SNAME.start..SNAME.start + 7].copy_from_slice(&[1, 4, 255, 0, 0, 0, 255]);
        let read = parse(&bytes).unwrap();
        assert_eq!(said!(read, Router), Some(&vec![Ipv4Addr::new(10, 0, 0, 1)]));
        assert_eq!(said!(read, SubnetMask), Some(&Ipv4Addr::new(255, 0, 0, 0)));
    }

    /// What cannot be read takes nothing else with it.
    #[test]
    fn one_bad_option_is_one() {
        let bad = [&[15, 2, 0xff, 0xfe][..], &[1, 3, 255, 0, 0], &[151, 0], &[81, 1, 0], &[80, 1, 9], &[116, 1, 7], &[2, 1, 1]].concat();
        let read = parse(&with(&[&bad[..], &[51, 4, 0, 0, 14, 16, 255]].concat())).unwrap();
        assert_eq!((said!(read, AddressLeaseTime), said!(read, SubnetMask), said!(read, DomainName)), (Some(&3600), None, None));
        // Parts that are not beside each other.
        let parts = parse(&with(&[3, 3, 10, 0, 0, 12, 1, b'h', 3, 1, 1, 255])).unwrap();
        assert_eq!(said!(parts, Router), Some(&vec![Ipv4Addr::new(10, 0, 0, 1)]));
    }
}
