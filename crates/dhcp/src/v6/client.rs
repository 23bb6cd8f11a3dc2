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

use linux::AddrFlags;

use super::message::{Association, Kind, Message, option};
use super::{neighbour, terms};
use crate::family::Ask;
use crate::link::open;
use crate::random;
use crate::trouble::{Trouble, io, kernel};

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
        terms::granted(&self.reply).map_or(Ipv6Addr::UNSPECIFIED, |a| a.address)
    }

    fn server(&self) -> &[u8] {
        self.reply.options.get(option::SERVER_ID).unwrap_or_default()
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
        let mut solicit = self.message(Kind::Solicit, None, old);
        solicit.options.add(option::RAPID_COMMIT, []);
        let mut refused = None;
        // The first that offers something; one that has nothing left is heard, but not waited for.
        let offer = self.exchange(&solicit, self.ask.wait, |m| {
            let rapid = m.kind == Kind::Reply && m.options.get(option::RAPID_COMMIT).is_some();
            if !rapid && m.kind != Kind::Advertise {
                return false;
            }
            let offers = terms::granted(m).is_some();
            if !offers {
                refused = Some(refusal(m));
            }
            offers
        })?;
        let offer = offer.ok_or_else(|| refused.unwrap_or(Trouble::Silence("SOLICIT (DHCPv6)")))?;
        let reply = match offer.kind {
            Kind::Reply => offer,
            _ => {
                let wanted = terms::granted(&offer).map(|a| a.address);
                let request = self.message(Kind::Request, offer.options.get(option::SERVER_ID), wanted);
                let reply = self.exchange(&request, self.ask.wait, |m| m.kind == Kind::Reply)?;
                reply.ok_or(Trouble::Silence("REQUEST (DHCPv6)"))?
            }
        };
        let Some(granted) = terms::granted(&reply) else { return Err(refusal(&reply)) };
        let grant = Grant { reply, begun };
        let Ask { inside, link, wanted, .. } = self.ask;
        match neighbour::probe(inside, link, granted.address, wanted.probe).map_err(kernel("probe for the address"))? {
            None => Ok(grant),
            Some(station) => {
                self.send(&self.message(Kind::Decline, Some(grant.server()), Some(granted.address)))?;
                Err(Trouble::Conflict { address: granted.address.into(), station })
            }
        }
    }

    /// Asks for more time: the server that granted the lease, or all.
    pub(crate) fn extend(&self, lease: &Grant, all: bool) -> Result<Grant, Trouble> {
        let (begun, address) = (linux::boot::uptime(), lease.granted());
        let (kind, server) = if all { (Kind::Rebind, None) } else { (Kind::Renew, Some(lease.server())) };
        let request = self.message(kind, server, Some(address));
        let silence = Trouble::Silence(if all { "REBIND (DHCPv6)" } else { "RENEW (DHCPv6)" });
        let reply = self.exchange(&request, self.ask.wait, |m| m.kind == Kind::Reply)?.ok_or(silence)?;
        match terms::granted(&reply) {
            Some(granted) if granted.address == address => Ok(Grant { reply, begun }),
            _ => Err(refusal(&reply)),
        }
    }

    /// Gives the address back. The answer is not waited for.
    pub(crate) fn release(&self, lease: &Grant) -> Result<(), Trouble> {
        self.send(&self.message(Kind::Release, Some(lease.server()), Some(lease.granted())))
    }

    fn message(&self, kind: Kind, server: Option<&[u8]>, address: Option<Ipv6Addr>) -> Message {
        let mut message = Message::new(kind, random::number());
        let options = &mut message.options;
        options.add(option::CLIENT_ID, self.ask.client_id);
        if let Some(server) = server {
            options.add(option::SERVER_ID, server);
        }
        options.add(option::IA_NA, Association::wanted(terms::IAID, address));
        options.add(option::ELAPSED, [0, 0]);
        if !matches!(kind, Kind::Release | Kind::Decline) {
            options.add(option::REQUEST_LIST, [option::DNS.to_be_bytes(), option::SEARCH.to_be_bytes()].concat());
        }
        message
    }

    fn send(&self, message: &Message) -> Result<(), Trouble> {
        let to = SocketAddrV6::new(SERVERS, SERVER, 0, self.ask.link.index);
        self.socket.send_to(&message.print(), to).map(drop).map_err(io("send (DHCPv6)"))
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
                m.xid == to.xid
                    && m.options.get(option::CLIENT_ID) == Some(self.ask.client_id)
                    && m.options.get(option::SERVER_ID).is_some()
            };
            let message = buffer.get(..length).and_then(Message::parse);
            if let Some(message) = message.filter(|m| ours(m) && wanted(m)) {
                return Ok(Some(message));
            }
        }
    }
}

/// What a server said that grants nothing.
fn refusal(message: &Message) -> Trouble {
    let of_address = message.options.association(terms::IAID).and_then(|ia| ia.status);
    let (code, text) = of_address.or_else(|| message.options.status()).unwrap_or_default();
    // Section 21.13.
    let meaning = match code {
        2 => "NoAddrsAvail",
        3 => "NoBinding",
        4 => "NotOnLink",
        _ => "no address",
    };
    let server = message.options.get(option::SERVER_ID).unwrap_or_default();
    let server: String = server.iter().take(32).map(|b| format!("{b:02x}")).collect();
    Trouble::Refused { server, reason: format!("{meaning} (DHCPv6 status {code}) {text}").trim_end().to_owned() }
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
