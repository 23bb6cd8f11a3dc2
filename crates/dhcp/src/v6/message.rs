//! A DHCPv6 message as bytes (RFC 8415 sections 8 and 21): the types of `dhcproto`, read with care.
//!
//! What a server sends is not given to `Message::decode`: it ends at the first option that it cannot read, goes into as many options in
//! options as somebody sends, past the stack's end, and a status that is too short makes it panic where overflows are checked. So
//! options are cut out first, and those that hold others are read here.

use dhcproto::v6::{DhcpOption, DhcpOptions, IAAddr, IANA, Message, MessageType, OptionCode, StatusCode};
use dhcproto::{Decodable, Decoder, Encodable};

/// What a client reads of a message. What it has no use for is not kept.
const READ: &[OptionCode] = &[
    OptionCode::ClientId,
    OptionCode::ServerId,
    OptionCode::IANA,
    OptionCode::StatusCode,
    OptionCode::RapidCommit,
    OptionCode::DomainNameServers,
    OptionCode::DomainSearchList,
];
/// And of an association.
const READ_INSIDE: &[OptionCode] = &[OptionCode::IAAddr, OptionCode::StatusCode];

pub(crate) fn print(message: &Message) -> Vec<u8> {
    // It fails for names that are too long, and [`parse`] lets none of those in.
    message.to_vec().unwrap_or_default()
}

/// Reads a message between client and server; `None` for anything else.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
    use MessageType::{Advertise, Confirm, Decline, Rebind, Release, Renew, Reply, Request, Solicit};
    let mut rest = Decoder::new(bytes);
    let kind = MessageType::from(rest.read_u8().ok()?);
    if !matches!(kind, Solicit | Advertise | Request | Confirm | Renew | Rebind | Reply | Release | Decline) {
        return None;
    }
    let mut message = Message::new_with_id(kind, rest.read().ok()?);
    message.set_opts(options(rest, READ));
    Some(message)
}

/// The association of this number.
pub(crate) fn association(message: &Message, number: u32) -> Option<&IANA> {
    message.opts().iter().find_map(|option| match option {
        DhcpOption::IANA(ia) if ia.id == number => Some(ia),
        _ => None,
    })
}

/// What a server says of an association, or of the whole.
pub(crate) fn status(options: &DhcpOptions) -> Option<&StatusCode> {
    options.iter().find_map(|option| match option {
        DhcpOption::StatusCode(status) => Some(status),
        _ => None,
    })
}

/// Options until one is torn.
fn options(mut rest: Decoder<'_>, known: &[OptionCode]) -> DhcpOptions {
    let next = || {
        let mut begin = rest;
        let (code, length) = (rest.read_u16().ok()?, rest.read_u16().ok()?);
        let value = rest.read_slice(length.into()).ok()?;
        Some((OptionCode::from(code), begin.read_slice(4 + value.len()).ok()?, value))
    };
    let all = std::iter::from_fn(next).filter(|(code, ..)| known.contains(code));
    all.filter_map(|(code, whole, value)| one(code, whole, value)).collect()
}

/// One option, with its head and without; `None` for one that is too short.
fn one(code: OptionCode, whole: &[u8], value: &[u8]) -> Option<DhcpOption> {
    let mut value = Decoder::new(value);
    let mut number = || value.read_u32().ok();
    let option = match code {
        OptionCode::IANA => {
            let (id, t1, t2) = (number()?, number()?, number()?);
            DhcpOption::IANA(IANA { id, t1, t2, opts: options(value, READ_INSIDE) })
        }
        OptionCode::IAAddr => {
            let addr = value.read::<16>().ok()?.into();
            let (preferred_life, valid_life) = (value.read_u32().ok()?, value.read_u32().ok()?);
            DhcpOption::IAAddr(IAAddr { addr, preferred_life, valid_life, opts: DhcpOptions::new() })
        }
        OptionCode::StatusCode => {
            let status = value.read_u16().ok()?.into();
            DhcpOption::StatusCode(StatusCode { status, msg: String::from_utf8_lossy(value.buffer()).into_owned() })
        }
        _ => DhcpOption::from_bytes(whole).ok()?,
    };
    option.to_vec().is_ok().then_some(option)
}

#[cfg(test)]
mod tests {
    use super::super::terms::{IAID, wanted};
    use super::*;

    #[test]
    fn there_and_back() {
        let mut message = Message::new(MessageType::Request);
        message.set_xid_num(0x12ab_cdef);
        message.opts_mut().insert(DhcpOption::ClientId(vec![0, 4, 1, 2]));
        message.opts_mut().insert(wanted(Some("fd00::5".parse().unwrap())));
        let bytes = print(&message);
        let read = parse(&bytes).unwrap();
        assert_eq!(read, message);
        assert_eq!(read.xid_num(), 0x00ab_cdef);
        assert!(association(&read, IAID).is_some() && association(&read, 8).is_none());
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]).is_some(), end >= 4, "{end}");
        }
    }

    /// What cannot be read takes nothing else with it.
    #[test]
    fn one_bad_option_is_one() {
        let head = [7, 0, 0, 1];
        let bad: [&[u8]; 5] =
            [&[0, 13, 0, 1, 0], &[0, 3, 0, 2, 0, 0], &[0, 23, 0, 3, 1, 2, 3], &[0, 11, 0, 1, 0], &[0, 7, 0, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1]];
        let inside = [&[0, 3, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0, 13, 0, 1, 0]].concat();
        let good = [0, 2, 0, 3, 1, 2, 3];
        let read = parse(&[&head[..], &bad.concat(), &inside, &good].concat()).unwrap();
        assert_eq!(read.opts().get(OptionCode::ServerId), Some(&DhcpOption::ServerId(vec![1, 2, 3])));
        assert!(association(&read, 1).is_some_and(|ia| ia.opts == DhcpOptions::new()));
        assert_eq!(status(read.opts()), None);
        // A status of bytes that are no text is one.
        let latin = parse(&[&head[..], &[0, 13, 0, 3, 0, 2, 0xe4]].concat()).unwrap();
        assert_eq!(status(latin.opts()).map(|s| u16::from(s.status)), Some(2));
        // As deep as a datagram holds.
        let deep: Vec<u8> = (0..570_u16).flat_map(|n| [&[0, 3][..], &(9132 - n * 16).to_be_bytes(), &[0; 12]].concat()).collect();
        assert!(parse(&[&head[..], &deep].concat()).is_some());
    }
}
