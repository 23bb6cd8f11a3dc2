//! A blocking rtnetlink client: one socket, one namespace.
//!
//! ```text
//!  Batch --one sendmsg--> kernel runs every message --> failures of any, and the last one's acknowledgement
//!  question ------------> link, address or route
//!  dump ----------------> all of them, asked for again when the kernel says that they changed meanwhile
//! ```
//!
//! The kernel carries out what it is sent before `sendmsg` returns, and reports a failure whether or not it was asked to
//! acknowledge. So only the last message of a batch asks: a batch that succeeds costs two system calls, whatever its
//! length. For the same reason nothing here waits: an answer that is not there is lost.

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc::{MSG_DONTWAIT, MSG_TRUNC};

use crate::addr::Address;
use crate::batch::{Batch, BatchError, Failure, Reply, Request};
use crate::limit::Limit;
use crate::link::Link;
use crate::netconf;
use crate::netns::Inside;
use crate::nsid;
use crate::receive::Buffer;
use crate::route::Route;
use crate::rule::Rule;
use crate::tc::Qdisc;
use crate::uapi::netlink::*;
use crate::uapi::rtnetlink::*;
use crate::wire::{self, Attributes, Message, Messages, Received, i32_at, text, u32_at};

/// What holds a dump's datagram, for which the kernel fills at most 32 KiB of the reader's buffer.
const BUFFER: usize = 32 * 1024;
/// Requests in one `sendmsg`. The refusals of so many fit the socket's receive buffer (208 KiB, each takes up to 1.3).
const AT_ONCE: usize = 128;
/// Why nothing is known of a request.
const LOST: &str = "the kernel's answer was lost";
/// How often a dump is asked for until one is not torn by a change.
const DUMPS: usize = 64;

/// A socket to the kernel's routing and link configuration (`NETLINK_ROUTE`) of one network namespace.
///
/// It belongs to the namespace in which it was opened, wherever it is used, and keeps that namespace alive: do not hold
/// one of a pod's namespace for longer than a call.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Buffer,
    /// What the buffer has room for at least: grows with what did not fit.
    room: usize,
    /// How much of lists is kept.
    limit: Limit,
}

/// The socket could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `socket(2)` failed.
    #[error("cannot open a netlink socket: {0} (check the limit of open files)")]
    Socket(Errno),
    /// The kernel does not know an option of the socket.
    #[error("cannot set {option} on a netlink socket: {errno} (needs Linux 4.20 or later)")]
    Option {
        /// The option's name in linux/netlink.h.
        option: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// Something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The kernel refused.
    #[error("{0}")]
    Refused(Failure),
    /// Every attempt met a change in the middle.
    #[error("{what}: changed {DUMPS} times while it was being read; retry when the node is less busy")]
    Torn {
        /// What was read, in words of `ip`.
        what: String,
    },
}

// === impl ReadError ===

impl ReadError {
    /// What the kernel said; `EINTR` for a torn dump.
    pub fn errno(&self) -> Errno {
        match self {
            ReadError::Refused(failure) => failure.errno,
            ReadError::Torn { .. } => Errno::EINTR,
        }
    }
}

/// Whether a datagram fitted the buffer.
enum Datagram {
    Whole,
    Cut,
}

/// How one attempt at a dump ended.
enum Dumped<T> {
    Whole(Vec<T>),
    Torn,
    Failed(Errno, Option<String>),
}

/// What has come back for a batch.
struct Answers {
    replies: Vec<Reply>,
    failures: Vec<Failure>,
}

// === impl Answers ===

impl Answers {
    /// Files one message; whether it ends its request.
    fn take(&mut self, index: usize, request: &Request<'_>, message: &Received<'_>) -> bool {
        if message.kind != NLMSG_ERROR {
            if let (Some(answer), Some(reply)) = (parse(message), self.replies.get_mut(index)) {
                *reply = answer;
            }
            return request.is_question();
        }
        match (refusal(message), self.replies.get_mut(index)) {
            (Some((errno, _)), Some(reply)) if request.tolerates(errno) => *reply = Reply::Tolerated(errno),
            (Some((errno, text)), _) => self.refuse(index, request, errno, text),
            (None, _) => {}
        }
        true
    }

    fn refuse(&mut self, index: usize, request: &Request<'_>, errno: Errno, text: Option<String>) {
        self.failures.push(Failure { index, what: request.what.clone(), errno, text });
    }
}

// === impl Netlink ===

impl Netlink {
    /// Opens a socket in the namespace that the calling thread is in.
    ///
    /// # Errors
    /// [`OpenError`] when there is no descriptor left, or the kernel is older than 4.20.
    pub fn open(inside: &Inside) -> Result<Self, OpenError> {
        Self::of_protocol(inside, NETLINK_ROUTE)
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The same to another part of the kernel (`NETLINK_*`, linux/netlink.h).
    pub(crate) fn of_protocol(_: &Inside, protocol: isize) -> Result<Self, OpenError> {
        let socket = Socket::new(protocol).map_err(|e| OpenError::Socket(errno(&e)))?;
        let option = |option, result: std::io::Result<()>| result.map_err(|e| OpenError::Option { option, errno: errno(&e) });
        option("NETLINK_EXT_ACK", socket.set_ext_ack(true))?;
        option("NETLINK_CAP_ACK", socket.set_cap_ack(true))?;
        // Without it the kernel ignores a dump's filters.
        option("NETLINK_GET_STRICT_CHK", socket.set_netlink_get_strict_chk(true))?;
        Ok(Netlink { socket, sequence: 0, buffer: Buffer::take(), room: BUFFER, limit: Limit::NONE })
    }

    /// Keeps so many bytes of the kernel's messages, of all lists from here on together. What is longer is read, and left out.
    pub fn limit_lists(&mut self, bytes: usize) {
        self.limit = Limit::of(bytes);
    }

    /// Bytes that were left out of lists since this was last asked.
    pub fn left_out(&mut self) -> usize {
        self.limit.left_out()
    }

    /// Sends all requests in one `sendmsg` (per 128 of them) and collects the answers: one per request, in order.
    ///
    /// # Errors
    /// [`BatchError`] with every request that failed. The others were carried out.
    pub fn send(&mut self, batch: Batch<'_>) -> Result<Vec<Reply>, BatchError> {
        let mut answers = Answers { replies: Vec::with_capacity(batch.len()), failures: Vec::new() };
        for requests in batch.requests.chunks(AT_ONCE) {
            self.exchange(requests, &mut answers);
        }
        match BatchError::from_failures(answers.failures, batch.len()) {
            Some(error) => Err(error),
            None => Ok(answers.replies),
        }
    }

    /// Sends a single request.
    ///
    /// # Errors
    /// [`BatchError`] with that one failure.
    pub fn send_one(&mut self, request: Request<'_>) -> Result<Reply, BatchError> {
        self.send(Batch::from(request)).map(|mut replies| replies.pop().unwrap_or(Reply::Done))
    }

    fn exchange(&mut self, requests: &[Request<'_>], answers: &mut Answers) {
        let first = self.sequence.wrapping_add(1);
        let offset = answers.replies.len();
        let bytes = self.join(requests);
        crate::crash_point!("netlink-unsent");
        answers.replies.resize(offset + requests.len(), Reply::Done);
        let mut answered = 0;
        let mut lost = transmit(&self.socket, &bytes).err().map(|e| (e, None));
        crate::crash_point!("netlink-sent");
        while answered < requests.len() && lost.is_none() {
            match self.receive() {
                Ok(_) => {}
                Err(Errno::EAGAIN) => lost = Some((Errno::ENOBUFS, Some(LOST))),
                Err(e) => lost = Some((e, Some(LOST))),
            }
            for message in Messages(&self.buffer) {
                // What is left of an earlier question has a lower number, which wraps to a high one.
                let i = message.sequence.wrapping_sub(first) as usize;
                if let Some(request) = requests.get(i)
                    && answers.take(offset + i, request, &message)
                {
                    answered = answered.max(i + 1);
                }
            }
        }
        if let Some((errno, text)) = lost {
            // From here on nothing is known.
            for (i, request) in requests.iter().enumerate().skip(answered) {
                answers.refuse(offset + i, request, errno, text.map(str::to_owned));
            }
        }
    }

    /// The requests as one buffer, numbered; the last one asks for an acknowledgement.
    fn join(&mut self, requests: &[Request<'_>]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(requests.iter().map(|request| request.message.len()).sum());
        for (i, request) in requests.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            // A question is answered by what it asks for; an acknowledgement after that would only have to be read as well.
            let acknowledge = i + 1 == requests.len() && !request.is_question();
            let start = bytes.len();
            bytes.extend_from_slice(&request.message);
            if let Some(message) = bytes.get_mut(start..) {
                wire::stamp(message, self.sequence, NLM_F_REQUEST | if acknowledge { NLM_F_ACK } else { 0 });
            }
        }
        bytes
    }

    /// Reads one datagram of the kernel's.
    fn receive(&mut self) -> Result<Datagram, Errno> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(self.room);
            match self.socket.recv_from(&mut *self.buffer, MSG_DONTWAIT | MSG_TRUNC) {
                // Whoever has CAP_NET_ADMIN in the namespace, a pod's root for one, may send to our port.
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((length, _)) if length > self.buffer.len() => {
                    self.room = length.next_power_of_two();
                    return Ok(Datagram::Cut);
                }
                Ok(_) => return Ok(Datagram::Whole),
                Err(e) if errno(&e) == Errno::EINTR => {}
                Err(e) => return Err(errno(&e)),
            }
        }
    }

    /// Asks one question; `None` when the kernel refuses with one of the errnos that the request tolerates.
    pub(crate) fn ask(&mut self, request: Request<'_>) -> Result<Option<Reply>, ReadError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.send_one(request.clone()) {
                Ok(Reply::Tolerated(_)) => return Ok(None),
                Ok(reply) => return Ok(Some(reply)),
                // It did not fit; next time it will.
                Err(e) if e.errno() == Errno::ENOBUFS && attempts < 3 => {}
                Err(e) => return Err(ReadError::Refused(e.first().clone())),
            }
        }
    }

    /// Asks for everything of a kind. What `parse` does not want, or cannot read, is left out. An errno in `none` stands
    /// for an empty answer.
    pub(crate) fn dump<T>(
        &mut self,
        what: &str,
        request: Message,
        none: &[Errno],
        parse: impl Fn(&Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, ReadError> {
        self.collect(what, request, NLM_F_DUMP, none, parse)
    }

    /// Asks one question that is answered by any number of messages, and an acknowledgement behind them.
    pub(crate) fn question<T>(
        &mut self,
        what: &str,
        request: Message,
        none: &[Errno],
        parse: impl Fn(&Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, ReadError> {
        self.collect(what, request, NLM_F_ACK, none, parse)
    }

    fn collect<T>(
        &mut self,
        what: &str,
        request: Message,
        flags: u16,
        none: &[Errno],
        parse: impl Fn(&Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, ReadError> {
        let mut request = request.finish();
        for attempt in 0..DUMPS {
            self.sequence = self.sequence.wrapping_add(1);
            wire::stamp(&mut request, self.sequence, NLM_F_REQUEST | flags);
            match self.dump_once(&request, &parse) {
                Dumped::Whole(all) => return Ok(all),
                Dumped::Failed(errno, _) if none.contains(&errno) => return Ok(Vec::new()),
                Dumped::Failed(errno, text) => {
                    return Err(ReadError::Refused(Failure { index: 0, what: what.to_owned(), errno, text }));
                }
                // Others are at work: let them finish.
                Dumped::Torn if attempt > 8 => std::thread::sleep(std::time::Duration::from_micros(200)),
                Dumped::Torn => {}
            }
        }
        Err(ReadError::Torn { what: what.to_owned() })
    }

    fn dump_once<T>(&mut self, request: &[u8], parse: &impl Fn(&Received<'_>) -> Option<T>) -> Dumped<T> {
        let mut all = Vec::new();
        let mut torn = false;
        let mut limit = self.limit;
        if let Err(e) = transmit(&self.socket, request) {
            // Busy with the dump of an earlier attempt that was cut short: reading on ends it.
            if e != Errno::EBUSY {
                return Dumped::Failed(e, None);
            }
            torn = true;
        }
        loop {
            match self.receive() {
                Ok(Datagram::Whole) => {}
                Ok(Datagram::Cut) => torn = true,
                Err(Errno::ENOBUFS) => {
                    torn = true;
                    continue;
                }
                Err(Errno::EAGAIN) => return Dumped::Torn,
                Err(e) => return Dumped::Failed(e, None),
            }
            for message in Messages(&self.buffer).filter(|m| m.sequence == self.sequence) {
                torn |= message.flags & NLM_F_DUMP_INTR != 0 || message.kind == NLMSG_OVERRUN;
                match message.kind {
                    NLMSG_DONE | NLMSG_ERROR => {
                        return match refusal(&message) {
                            Some((Errno::EINTR | Errno::EAGAIN, _)) => Dumped::Torn,
                            Some((errno, text)) => Dumped::Failed(errno, text),
                            None if torn => Dumped::Torn,
                            None => {
                                self.limit = limit;
                                Dumped::Whole(all)
                            }
                        };
                    }
                    _ if limit.keeps(wire::HEADER + message.payload.len()) => all.extend(parse(&message)),
                    _ => {}
                }
            }
        }
    }
}

pub(crate) fn parse(message: &Received<'_>) -> Option<Reply> {
    Some(match message.kind {
        RTM_NEWLINK => Reply::Link(Box::new(Link::parse(message)?)),
        RTM_NEWADDR => Reply::Address(Box::new(Address::parse(message)?)),
        RTM_NEWROUTE => Reply::Route(Box::new(Route::parse(message)?)),
        RTM_NEWRULE => Reply::Rule(Box::new(Rule::parse(message)?)),
        RTM_NEWQDISC => Reply::Qdisc(Box::new(Qdisc::parse(message)?)),
        RTM_NEWNSID => Reply::NetnsNumber(nsid::parse(message)?),
        RTM_NEWNETCONF => Reply::Forwarding(netconf::parse(message)?),
        _ => return None,
    })
}

/// The errno and explanation in an `NLMSG_ERROR` or `NLMSG_DONE`; `None` when it says that all is well.
pub(crate) fn refusal(message: &Received<'_>) -> Option<(Errno, Option<String>)> {
    let code = i32_at(message.payload).unwrap_or(0);
    if code >= 0 {
        return None;
    }
    let echoed = match message.kind {
        NLMSG_DONE => 0,
        _ if message.flags & NLM_F_CAPPED != 0 => wire::HEADER,
        _ => usize::try_from(u32_at(message.payload.get(4..).unwrap_or(&[])).unwrap_or(0)).unwrap_or(usize::MAX - 4).next_multiple_of(4),
    };
    let attributes = match message.flags & NLM_F_ACK_TLVS {
        0 => &[],
        _ => message.payload.get(echoed.saturating_add(4)..).unwrap_or(&[]),
    };
    let explanation = Attributes(attributes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG).map(|(_, value)| text(value));
    Some((Errno::from_raw(code.saturating_neg()), explanation))
}

fn transmit(socket: &Socket, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match socket.send_to(bytes, &SocketAddr::new(0, 0), 0) {
            Ok(_) => return Ok(()),
            Err(e) if errno(&e) == Errno::EINTR => {}
            Err(e) => return Err(errno(&e)),
        }
    }
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Message::new(kind, flags, payload).finish();
        wire::stamp(&mut bytes, 1, 0);
        bytes
    }

    #[test]
    fn the_kernels_explanation_is_found() {
        // Captured: what `ip link add x type nosuch` gets, whose socket has NETLINK_EXT_ACK and not NETLINK_CAP_ACK.
        let whole = [
            &[0x64, 0, 0, 0, 2, 0, 0, 2, 0xa7, 0x68, 1, 0x6b, 0x87, 0x31, 0, 0, 0xa1, 0xff, 0xff, 0xff][..],
            &[0x38, 0, 0, 0, 0x10, 0, 5, 6, 0xa7, 0x68, 1, 0x6b, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 3, 0, 0x78, 0, 0, 0, 0x10, 0, 0x12, 0, 0x0a, 0, 1, 0],
            b"nosuch\0\0",
            &[0x18, 0, 1, 0],
            b"Unknown device type\0",
        ];
        let expected = Some((Errno::EOPNOTSUPP, Some("Unknown device type".to_owned())));
        let bytes = whole.concat();
        assert_eq!(refusal(&Messages(&bytes).next().unwrap()), expected);
        // The same as our sockets get it: of the request only the header is repeated.
        let [start, header, _, _, attribute, text] = whole;
        let payload = [&start[16..], header, attribute, text].concat();
        let bytes = answer(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &payload);
        assert_eq!(refusal(&Messages(&bytes).next().unwrap()), expected);
    }

    #[test]
    fn a_buffer_that_is_too_small_grows() {
        for room in [17, 64, 1000] {
            let open = || Netlink { room, ..Netlink::open(&Inside::here()).unwrap() };
            assert_eq!(open().link("lo").unwrap().unwrap().index, 1);
            assert!(open().links().unwrap().iter().any(|link| link.name == "lo"));
        }
    }

    #[test]
    fn a_list_is_kept_up_to_a_limit() {
        let mut netlink = Netlink::open(&Inside::here()).unwrap();
        let all = netlink.routes(crate::RouteFilter::default()).unwrap();
        assert!(!all.is_empty() && netlink.left_out() == 0);
        netlink.limit_lists(1);
        assert_eq!(netlink.routes(crate::RouteFilter::default()).unwrap(), []);
        assert!(netlink.left_out() > 0 && netlink.left_out() == 0);
    }

    #[test]
    fn odd_answers_do_no_harm() {
        for payload in [&[][..], &[1], &[0xff; 4], &[0xff; 7], &[0xff; 40], &[0x80, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff]] {
            for flags in [0, NLM_F_CAPPED, NLM_F_ACK_TLVS, NLM_F_CAPPED | NLM_F_ACK_TLVS] {
                for kind in [NLMSG_ERROR, NLMSG_DONE, RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE] {
                    let bytes = answer(kind, flags, payload);
                    for message in Messages(&bytes) {
                        let _ = (refusal(&message), parse(&message));
                    }
                }
            }
        }
    }
}
