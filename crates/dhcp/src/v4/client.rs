//! The client's side of DHCPv4 (RFC 2131 section 4.4): single exchanges, from inside a namespace.
//!
//! ```text
//!   acquire   DISCOVER -> OFFER -> REQUEST -> ACK    the address is probed for meanwhile (ARP): DECLINE if somebody has it
//!   reboot    REQUEST for the address from before -> ACK, or NAK
//!   extend    REQUEST to its server (T1), to all (T2) -> ACK, or NAK
//!   release   RELEASE
//! ```
//!
//! Everything goes through one packet socket, also what carries the leased address as its sender: it needs no route, no
//! neighbour entry and no address on the interface. So a RELEASE is on the wire when it has been sent, and the link may go.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode};
use linux::packet::{BROADCAST, EtherAddr, PacketSocket, Packets};

use super::message::{self, kind, raw, said, server};
use super::{datagram, terms};
use crate::family::Ask;
use crate::probe::Probe;
use crate::random;
use crate::trouble::{Trouble, kernel, shown};

/// What is received at once: more than any message over Ethernet.
const BUFFER: usize = 9216;
/// How often it is asked whether somebody still waits.
const SLICE: Duration = Duration::from_millis(100);
/// How large an answer may be, as the client says (option 57).
const LARGEST: u16 = 1500;

/// A lease, as its server granted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) ack: Message,
    /// Who sent it: the server, or the relay that leads to it.
    pub(crate) station: EtherAddr,
    /// When it was asked for, since the machine's start.
    pub(crate) begun: Duration,
}

/// A client on one link, inside its namespace.
pub(crate) struct Client<'a> {
    socket: PacketSocket,
    ask: Ask<'a>,
}

// === impl Grant ===

impl Grant {
    pub(crate) fn server(&self) -> Ipv4Addr {
        server(&self.ack).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

// === impl Client ===

impl<'a> Client<'a> {
    pub(crate) fn open(ask: Ask<'a>) -> Result<Self, Trouble> {
        let packets = Packets::UdpV4To(datagram::CLIENT);
        let socket = PacketSocket::open(ask.inside, ask.link.index, packets).map_err(kernel("open a packet socket"))?;
        Ok(Client { socket, ask })
    }

    /// Asks for any address, or for one if it is to be had, `times` times at the most, and waits so long for an offer; as long
    /// again for the address.
    pub(crate) fn acquire(&self, xid: u32, secs: u16, old: Option<Ipv4Addr>, times: u32) -> Result<Grant, Trouble> {
        let begun = linux::boot::uptime();
        let mut discover = self.message(MessageType::Discover, xid);
        discover.set_secs(secs);
        if let Some(old) = old {
            discover.opts_mut().insert(DhcpOption::RequestedIpAddress(old));
        }
        let offers = |m: &Message| kind(m) == Some(MessageType::Offer) && server(m).is_some();
        let mut offer = None;
        for _ in 0..times {
            self.to_all(&discover, Ipv4Addr::UNSPECIFIED)?;
            offer = self.answer(xid, self.ask.wait / times, offers)?;
            if offer.is_some() {
                break;
            }
        }
        let (offer, _) = offer.ok_or(Trouble::Silence("DHCPDISCOVER"))?;
        let server = server(&offer).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let mut request = self.message(MessageType::Request, xid);
        request.set_secs(secs).opts_mut().insert(DhcpOption::ServerIdentifier(server));
        self.request(request, offer.yiaddr(), Some(server), begun)
    }

    /// Asks whether the address from before is still this client's (INIT-REBOOT).
    pub(crate) fn reboot(&self, old: Ipv4Addr) -> Result<Grant, Trouble> {
        let request = self.message(MessageType::Request, random::number());
        self.request(request, old, None, linux::boot::uptime())
    }

    /// A request by who has no address yet. While the server is asked the link is, too.
    fn request(&self, mut request: Message, address: Ipv4Addr, server: Option<Ipv4Addr>, begun: Duration) -> Result<Grant, Trouble> {
        request.opts_mut().insert(DhcpOption::RequestedIpAddress(address));
        let probe = Probe::begin(self.ask, address.into())?;
        let half = self.ask.wait / 2;
        let answers = |m: &Message| of_server(m, server);
        let mut asked = Instant::now();
        self.to_all(&request, Ipv4Addr::UNSPECIFIED)?;
        let answer = match self.answer(request.xid(), half, answers)? {
            Some(answer) => Some(answer),
            None => {
                asked = Instant::now();
                self.to_all(&request, Ipv4Addr::UNSPECIFIED)?;
                self.answer(request.xid(), half, answers)?
            }
        };
        let round_trip = asked.elapsed();
        let (ack, station) = granted(answer.ok_or(Trouble::Silence("DHCPREQUEST"))?)?;
        let grant = Grant { ack, station, begun };
        let granted = grant.ack.yiaddr();
        if let Err(useless) = terms::address(&grant.ack) {
            // Its server need not keep it.
            let _ = self.release(&grant);
            return Err(useless.into());
        }
        let probe = if granted == address { probe } else { Probe::begin(self.ask, granted.into())? };
        match probe.map(|probe| probe.end(round_trip)).transpose()?.flatten() {
            None => Ok(grant),
            Some(station) => {
                self.decline(&grant)?;
                Err(Trouble::Conflict { address: granted.into(), station })
            }
        }
    }

    /// Asks for more time: the server that granted the lease, or all.
    pub(crate) fn extend(&self, lease: &Grant, all: bool) -> Result<Grant, Trouble> {
        let (begun, address) = (linux::boot::uptime(), lease.ack.yiaddr());
        // Somebody listens there, or the kernel would tell the server that nobody does.
        let _listens = UdpSocket::bind((address, datagram::CLIENT));
        let mut request = self.message(MessageType::Request, random::number());
        request.set_ciaddr(address).set_flags(Flags::default());
        let server = (!all).then(|| lease.server());
        for _ in 0..2 {
            match server {
                Some(server) => self.to(lease.station, address, server, &request)?,
                None => self.to_all(&request, address)?,
            }
            if let Some(answer) = self.answer(request.xid(), self.ask.wait / 2, |m| of_server(m, server))? {
                let (ack, station) = granted(answer)?;
                if ack.yiaddr() != address {
                    let reason = format!("it grants {} in the place of {address}", ack.yiaddr());
                    return Err(refused(&ack, reason));
                }
                terms::address(&ack)?;
                return Ok(Grant { ack, station, begun });
            }
        }
        Err(Trouble::Silence(if all { "DHCPREQUEST to all (rebind)" } else { "DHCPREQUEST (renew)" }))
    }

    /// Gives the address back. There is no answer.
    pub(crate) fn release(&self, lease: &Grant) -> Result<(), Trouble> {
        let mut release = self.bare(MessageType::Release, random::number());
        release.set_ciaddr(lease.ack.yiaddr()).opts_mut().insert(DhcpOption::ServerIdentifier(lease.server()));
        self.to(lease.station, lease.ack.yiaddr(), lease.server(), &release)
    }

    /// Tells the server that somebody else has the address.
    fn decline(&self, lease: &Grant) -> Result<(), Trouble> {
        let mut decline = self.bare(MessageType::Decline, random::number());
        decline.opts_mut().insert(DhcpOption::RequestedIpAddress(lease.ack.yiaddr()));
        decline.opts_mut().insert(DhcpOption::ServerIdentifier(lease.server()));
        self.to_all(&decline, Ipv4Addr::UNSPECIFIED)
    }

    /// A message that says who the client is, and nothing else.
    fn bare(&self, kind: MessageType, xid: u32) -> Message {
        let mut message = message::new(kind, xid, self.ask.link.mac);
        message.opts_mut().insert(DhcpOption::ClientIdentifier(self.ask.client_id.to_vec()));
        if let Some((code, value)) = self.ask.wanted.provide.iter().find(|(code, _)| *code == OptionCode::ClientIdentifier) {
            message.opts_mut().insert(raw(*code, value));
        }
        message
    }

    fn message(&self, kind: MessageType, xid: u32) -> Message {
        let mut message = self.bare(kind, xid);
        if self.ask.broadcast {
            message.set_flags(Flags::default().set_broadcast());
        }
        let options = message.opts_mut();
        options.insert(DhcpOption::MaxMessageSize(LARGEST));
        for (code, value) in &self.ask.wanted.provide {
            options.insert(raw(*code, value));
        }
        if !self.ask.wanted.request.is_empty() {
            options.insert(DhcpOption::ParameterRequestList(self.ask.wanted.request.clone()));
        }
        message
    }

    fn to_all(&self, message: &Message, from: Ipv4Addr) -> Result<(), Trouble> {
        self.to(BROADCAST, from, Ipv4Addr::BROADCAST, message)
    }

    fn to(&self, station: EtherAddr, from: Ipv4Addr, to: Ipv4Addr, message: &Message) -> Result<(), Trouble> {
        let packet = datagram::print(from, to, &message::print(message));
        self.socket.send(station, &packet).map_err(kernel("send"))
    }

    /// The first answer to this client that is `wanted`; `None` if there is none in time.
    fn answer(&self, xid: u32, wait: Duration, wanted: impl Fn(&Message) -> bool) -> Result<Option<(Message, EtherAddr)>, Trouble> {
        let by = Instant::now() + wait;
        let mut buffer = vec![0; BUFFER];
        loop {
            if (self.ask.stop)() {
                return Err(Trouble::Stopped);
            }
            let now = Instant::now();
            let Some((length, station)) = self.socket.receive(&mut buffer, by.min(now + SLICE)).map_err(kernel("receive"))? else {
                if now >= by {
                    return Ok(None);
                }
                continue;
            };
            let payload = buffer.get(..length).and_then(datagram::parse);
            let message = payload.and_then(|(_, payload)| message::parse(payload));
            let ours = |m: &Message| m.opcode() == Opcode::BootReply && m.xid() == xid && m.chaddr() == self.ask.link.mac;
            if let Some(message) = message.filter(|m| ours(m) && wanted(m)) {
                return Ok(Some((message, station)));
            }
        }
    }
}

/// Whether it decides about a request to a server, or to all.
fn of_server(m: &Message, server: Option<Ipv4Addr>) -> bool {
    let from = message::server(m);
    let decides = matches!(kind(m), Some(MessageType::Ack | MessageType::Nak));
    decides && from.is_some() && server.is_none_or(|server| from == Some(server))
}

fn granted((message, station): (Message, EtherAddr)) -> Result<(Message, EtherAddr), Trouble> {
    if kind(&message) == Some(MessageType::Ack) {
        return Ok((message, station));
    }
    let reason: String = said!(message, Message).map(|text| shown(text)).unwrap_or_default();
    Err(refused(&message, format!("DHCPNAK {reason}").trim_end().to_owned()))
}

fn refused(by: &Message, reason: String) -> Trouble {
    let server = server(by).unwrap_or(Ipv4Addr::UNSPECIFIED);
    Trouble::Refused { server: server.to_string(), reason }
}
