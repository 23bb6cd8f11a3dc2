//! The client's side of DHCPv6 (RFC 8415 section 18.2): single exchanges, from inside a namespace.
//!
//! ```text
//!   acquire   SOLICIT -> ADVERTISE -> REQUEST -> REPLY (SOLICIT -> REPLY with rapid commit), then the address is probed for: DECLINE
//!   extend    RENEW to its server (T1), REBIND to all (T2) -> REPLY
//!   release   RELEASE
//! ```
//!
//! From the link-local address to all servers and relays of the link.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use dhcproto::v6::{DhcpOption, Message, MessageType, ORO, OptionCode, Status};
use linux::AddrFlags;

use super::message::{self, association, status};
use super::terms;
use crate::family::Ask;
use crate::link::open;
use crate::probe::Probe;
use crate::random;
use crate::trouble::{Trouble, io, shown};
use crate::v4::message::said;

const CLIENT: u16 = 546;
const SERVER: u16 = 547;
/// All_DHCP_Relay_Agents_and_Servers (7.1).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// How often it is asked whether somebody still waits.
const SLICE: Duration = Duration::from_millis(100);
/// More than any message over Ethernet.
const BUFFER: usize = 9216;

/// A lease, as its server granted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) reply: Message,
    /// When it was asked for, since the machine's start.
    pub(crate) begun: Duration,
}

/// A client on one link, inside its namespace.
pub(crate) struct Client<'a> {
    socket: UdpSocket,
    ask: Ask<'a>,
}

// === impl Grant ===

impl Grant {
    pub(crate) fn granted(&self) -> Ipv6Addr {
        terms::granted(&self.reply).map_or(Ipv6Addr::UNSPECIFIED, |a| a.addr)
    }

    fn server(&self) -> &[u8] {
        server(&self.reply)
    }
}

// === impl Client ===

impl<'a> Client<'a> {
    /// Waits for a link-local address that may be used.
    pub(crate) fn open(ask: Ask<'a>) -> Result<Self, Trouble> {
        let by = Instant::now() + ask.wait;
        loop {
            if let Some(own) = link_local(ask)? {
                let socket = UdpSocket::bind(SocketAddrV6::new(own, CLIENT, 0, ask.link.index)).map_err(io("open a UDP socket"))?;
                return Ok(Client { socket, ask });
            }
            if (ask.stop)() {
                return Err(Trouble::Stopped);
            }
            if Instant::now() >= by {
                return Err(Trouble::NoLinkLocal);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for any address, or for one if it is to be had.
    pub(crate) fn acquire(&self, old: Option<Ipv6Addr>) -> Result<Grant, Trouble> {
        let begun = linux::boot::uptime();
        let mut solicit = self.message(MessageType::Solicit, None, old);
        solicit.opts_mut().insert(DhcpOption::RapidCommit);
        let mut refused = None;
        // The first that offers something; one that has nothing left is heard, but not waited for.
        let offer = self.exchange(&solicit, self.ask.wait, |m| {
            let rapid = m.msg_type() == MessageType::Reply && m.opts().get(OptionCode::RapidCommit).is_some();
            if !rapid && m.msg_type() != MessageType::Advertise {
                return false;
            }
            let offers = terms::granted(m).is_some();
            if !offers {
                refused = Some(refusal(m));
            }
            offers
        })?;
        let offer = offer.ok_or_else(|| refused.unwrap_or(Trouble::Silence("SOLICIT (DHCPv6)")))?;
        let offered = terms::granted(&offer).map_or(Ipv6Addr::UNSPECIFIED, |a| a.addr);
        let probe = Probe::begin(self.ask, offered.into())?;
        let asked = Instant::now();
        let reply = match offer.msg_type() {
            MessageType::Reply => offer,
            _ => {
                let request = self.message(MessageType::Request, Some(server(&offer)), Some(offered));
                let reply = self.exchange(&request, self.ask.wait, |m| m.msg_type() == MessageType::Reply)?;
                reply.ok_or(Trouble::Silence("REQUEST (DHCPv6)"))?
            }
        };
        let round_trip = asked.elapsed();
        let Some(address) = terms::granted(&reply).map(|a| a.addr) else { return Err(refusal(&reply)) };
        let grant = Grant { reply, begun };
        let probe = if address == offered { probe } else { Probe::begin(self.ask, address.into())? };
        match probe.map(|probe| probe.end(round_trip)).transpose()?.flatten() {
            None => Ok(grant),
            Some(station) => {
                self.decline(&grant)?;
                Err(Trouble::Conflict { address: address.into(), station })
            }
        }
    }

    /// Asks for more time: the server that granted the lease, or all.
    pub(crate) fn extend(&self, lease: &Grant, all: bool) -> Result<Grant, Trouble> {
        let (begun, address) = (linux::boot::uptime(), lease.granted());
        let (kind, server) = if all { (MessageType::Rebind, None) } else { (MessageType::Renew, Some(lease.server())) };
        let request = self.message(kind, server, Some(address));
        let silence = Trouble::Silence(if all { "REBIND (DHCPv6)" } else { "RENEW (DHCPv6)" });
        let reply = self.exchange(&request, self.ask.wait, |m| m.msg_type() == MessageType::Reply)?.ok_or(silence)?;
        match terms::granted(&reply) {
            Some(granted) if granted.addr == address => Ok(Grant { reply, begun }),
            _ => Err(refusal(&reply)),
        }
    }

    /// Gives the address back. The answer is not waited for.
    pub(crate) fn release(&self, lease: &Grant) -> Result<(), Trouble> {
        self.send(&self.message(MessageType::Release, Some(lease.server()), Some(lease.granted())))
    }

    /// Tells the server that somebody else has the address. The answer is not waited for.
    fn decline(&self, lease: &Grant) -> Result<(), Trouble> {
        self.send(&self.message(MessageType::Decline, Some(lease.server()), Some(lease.granted())))
    }

    fn message(&self, kind: MessageType, server: Option<&[u8]>, address: Option<Ipv6Addr>) -> Message {
        let mut message = Message::new_with_id(kind, random::number().to_be_bytes().last_chunk().copied().unwrap_or_default());
        let options = message.opts_mut();
        options.insert(DhcpOption::ClientId(self.ask.client_id.to_vec()));
        if let Some(server) = server {
            options.insert(DhcpOption::ServerId(server.to_vec()));
        }
        options.insert(terms::wanted(address));
        options.insert(DhcpOption::ElapsedTime(0));
        if !matches!(kind, MessageType::Release | MessageType::Decline) {
            options.insert(DhcpOption::ORO(ORO { opts: vec![OptionCode::DomainNameServers, OptionCode::DomainSearchList] }));
        }
        message
    }

    fn send(&self, message: &Message) -> Result<(), Trouble> {
        let to = SocketAddrV6::new(SERVERS, SERVER, 0, self.ask.link.index);
        self.socket.send_to(&message::print(message), to).map(drop).map_err(io("send (DHCPv6)"))
    }

    /// Sends a message, and again after a second, two, ... (section 15), until there is an answer that is `wanted`; `None` if there is
    /// none in time.
    fn exchange(&self, message: &Message, wait: Duration, mut wanted: impl FnMut(&Message) -> bool) -> Result<Option<Message>, Trouble> {
        let by = Instant::now() + wait;
        let mut pause = Duration::from_secs(1);
        loop {
            self.send(message)?;
            if let Some(answer) = self.answer(message, by.min(Instant::now() + pause), &mut wanted)? {
                return Ok(Some(answer));
            }
            if Instant::now() >= by {
                return Ok(None);
            }
            pause *= 2;
        }
    }

    fn answer(&self, to: &Message, by: Instant, wanted: &mut impl FnMut(&Message) -> bool) -> Result<Option<Message>, Trouble> {
        let mut buffer = vec![0; BUFFER];
        loop {
            if (self.ask.stop)() {
                return Err(Trouble::Stopped);
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left.min(SLICE))).map_err(io("receive (DHCPv6)"))?;
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => continue,
                Err(e) => return Err(io("receive (DHCPv6)")(e)),
            };
            let ours = |m: &Message| {
                m.xid() == to.xid() && said!(m, ClientId).is_some_and(|id| id == self.ask.client_id) && said!(m, ServerId).is_some()
            };
            let message = buffer.get(..length).and_then(message::parse);
            if let Some(message) = message.filter(|m| ours(m) && wanted(m)) {
                return Ok(Some(message));
            }
        }
    }
}

/// Which server sent it, by its identifier.
fn server(message: &Message) -> &[u8] {
    said!(message, ServerId).map(Vec::as_slice).unwrap_or_default()
}

/// What a server said that grants nothing.
fn refusal(message: &Message) -> Trouble {
    let of_address = association(message, terms::IAID).and_then(|ia| status(&ia.opts));
    let (code, text) = of_address.or_else(|| status(message.opts())).map_or((Status::Success, ""), |s| (s.status, s.msg.as_str()));
    let meaning = match code {
        Status::NoAddrsAvail => "NoAddrsAvail",
        Status::NoBinding => "NoBinding",
        Status::NotOnLink => "NotOnLink",
        _ => "no address",
    };
    let server: String = server(message).iter().take(32).map(|b| format!("{b:02x}")).collect();
    let reason = format!("{meaning} (DHCPv6 status {}) {}", u16::from(code), shown(text));
    Trouble::Refused { server, reason: reason.trim_end().to_owned() }
}

/// The link-local address, once it may be used.
fn link_local(ask: Ask<'_>) -> Result<Option<Ipv6Addr>, Trouble> {
    let mut netlink = open(ask.inside).map_err(|_| Trouble::NoLinkLocal)?;
    let addresses = netlink.addresses(Some(ask.link.index)).map_err(|_| Trouble::NoLinkLocal)?;
    let usable = addresses.iter().filter(|a| !a.flags.contains(AddrFlags::TENTATIVE) && !a.flags.contains(AddrFlags::DADFAILED));
    let own = usable.filter_map(|a| match a.net.addr() {
        std::net::IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
        _ => None,
    });
    Ok(own.into_iter().next())
}
