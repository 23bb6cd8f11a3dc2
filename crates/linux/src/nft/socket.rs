//! The socket, and the way of a transaction through it: one send, and whatever the
//! kernel has to say is there when the send returns.

use netlink_sys::{Socket as Netlink, SocketAddr};
use nix::errno::Errno;
use nix::libc::MSG_DONTWAIT;
use nix::sys::socket::{setsockopt, sockopt};

use super::wire::{self, ACK, BATCH_BEGIN, BATCH_END, Writer};
use super::{OpenError, Refusal, Transaction, TransactionError};
use crate::limit::Limit;
use crate::netns::Inside;
use crate::receive::Buffer;

/// What a datagram from nf_tables fits in: the kernel fills up to 32 KiB in a dump.
const DATAGRAM: usize = 64 * 1024;

/// A socket's default buffers hold this much without asking for more: half of the 208 KiB
/// that the kernel counts, as it counts its own overhead too.
const DEFAULT_ROOM: usize = 100 * 1024;

/// What the kernel counts for one short answer.
const ANSWER_ROOM: usize = 1024;

/// How many questions or deletions go in one send, so that the answers fit the default
/// receive buffer: an answer too many is lost, and the kernel tells only that one was.
pub(super) const PER_SEND: usize = 100;

/// A connection to the nftables of one network namespace.
///
/// A short-lived process closes it last: after a change, the close waits until no packet
/// is in the old rules any more.
#[derive(Debug)]
pub struct Socket {
    netlink: Netlink,
    sequence: u32,
    /// How much of lists is kept.
    pub(super) limit: Limit,
}

// === impl Socket ===

impl Socket {
    /// Opens a socket to the nftables of the namespace that this thread is in.
    ///
    /// # Errors
    /// [`OpenError`] if the kernel has no netfilter netlink or no descriptor is left.
    pub fn open(_inside: &Inside) -> Result<Self, OpenError> {
        let open = || {
            let netlink = Netlink::new(wire::PROTOCOL)?;
            netlink.set_ext_ack(true)?;
            // Refusals name the step by its number: no need to echo it.
            netlink.set_cap_ack(true)?;
            // Connected to the kernel, so that nobody else's messages are taken for its.
            netlink.connect(&SocketAddr::new(0, 0))?;
            Ok(Self { netlink, sequence: 0, limit: Limit::NONE })
        };
        open().map_err(|e: std::io::Error| OpenError { errno: errno(&e) })
    }

    /// Keeps so many bytes of the kernel's messages, of all lists from here on together. What is longer is read, and left out.
    pub fn limit_lists(&mut self, bytes: usize) {
        self.limit = Limit::of(bytes);
    }

    /// Bytes that were left out of lists since this was last asked.
    pub fn left_out(&mut self) -> usize {
        self.limit.left_out()
    }

    /// Commits the steps: all or none (`nft -f`). Nothing to do is done.
    ///
    /// # Errors
    /// [`TransactionError::Refused`] names the steps at fault; nothing has changed then.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), TransactionError> {
        let steps = transaction.steps();
        if steps.is_empty() {
            return Ok(());
        }
        let begin = self.numbers(steps.len() + 2);
        let bytes = encode(transaction, begin)?;
        self.make_room(bytes.len(), steps.len());
        crate::crash_point!("nft-unsent");
        self.send(&bytes).map_err(|errno| TransactionError::Send { errno })?;
        crate::crash_point!("nft-sent");

        let first = begin.wrapping_add(1);
        let mut refusals = Vec::new();
        let mut answered = false;
        let mut buffer = Buffer::take();
        loop {
            match self.receive(&mut buffer) {
                Ok(()) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(TransactionError::Receive { errno }),
            }
            for frame in wire::frames(&buffer).filter(|f| f.kind == wire::ERROR) {
                let Some(verdict) = frame.verdict() else { continue };
                let errno = Errno::from_raw(verdict.errno);
                let step = frame.sequence.wrapping_sub(first) as usize;
                let Some(what) = steps.get(step) else {
                    if frame.sequence == begin && verdict.errno != 0 {
                        return Err(TransactionError::Rejected { errno, kernel: verdict.text });
                    }
                    continue;
                };
                answered = true;
                if verdict.errno != 0 {
                    let what = what.to_string();
                    refusals.push(Refusal { step, what, errno, kernel: verdict.text });
                }
            }
        }
        if !refusals.is_empty() {
            return Err(TransactionError::Refused { refusals });
        }
        answered.then_some(()).ok_or(TransactionError::Receive { errno: Errno::EAGAIN })
    }

    /// Takes so many sequence numbers; returns the first.
    pub(super) fn numbers(&mut self, how_many: usize) -> u32 {
        let first = self.sequence.wrapping_add(1);
        let many = u32::try_from(how_many).unwrap_or(u32::MAX);
        self.sequence = self.sequence.wrapping_add(many);
        first
    }

    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.netlink.send(bytes, 0).map(drop).map_err(|e| errno(&e))
    }

    /// Reads one datagram; EAGAIN when there is none. The kernel works while we send, and
    /// on a dump while we read, so what is not there will never come.
    pub(super) fn receive(&self, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        buffer.clear();
        buffer.reserve(DATAGRAM);
        self.netlink.recv(buffer, MSG_DONTWAIT).map(drop).map_err(|e| errno(&e))
    }

    /// Grows the buffers beyond the system's limit for what is large. A failure shows when
    /// sending.
    fn make_room(&self, bytes: usize, answers: usize) {
        if bytes > DEFAULT_ROOM {
            let _ = setsockopt(&self.netlink, sockopt::SndBufForce, &(bytes * 2));
        }
        if answers > PER_SEND {
            let _ = setsockopt(&self.netlink, sockopt::RcvBufForce, &(answers * ANSWER_ROOM));
        }
    }
}

/// The whole transaction as the bytes of one send.
fn encode(transaction: &Transaction, begin: u32) -> Result<Vec<u8>, TransactionError> {
    let steps = transaction.steps();
    let too_long = |step: usize| TransactionError::TooLong { step, what: steps.get(step).map(ToString::to_string).unwrap_or_default() };
    let mut w = Writer::default();
    w.batch(BATCH_BEGIN, begin);
    let mut sequence = begin;
    for (i, step) in steps.iter().enumerate() {
        sequence = sequence.wrapping_add(1);
        // One acknowledgement tells that the kernel has read to the end; each refusal is
        // told anyway.
        let flags = if i + 1 == steps.len() { ACK } else { 0 };
        step.write(&mut w, sequence, flags, u32::try_from(i + 1).unwrap_or(u32::MAX));
        if w.is_too_long() {
            return Err(too_long(i));
        }
    }
    w.batch(BATCH_END, sequence.wrapping_add(1));
    w.finish().ok_or_else(|| too_long(steps.len() - 1))
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
