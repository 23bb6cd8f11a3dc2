//! What is sent: requests, batched, and what comes back for each.
//!
//! A batch is no transaction. The kernel runs its messages in order, and after one that fails the rest still runs:
//! [`BatchError`] therefore holds every failure, not only the first.

use std::fmt;
use std::marker::PhantomData;

use nix::errno::Errno;

use crate::addr::Address;
use crate::link::Link;
use crate::route::Route;
use crate::rule::Rule;
use crate::tc::Qdisc;
use crate::uapi::netlink::NLM_F_ECHO;
use crate::uapi::rtnetlink::RTM_GETLINK;
use crate::wire::{self, Message};

/// One change or question, ready to be sent. `'fd` is the life of the namespace descriptors that it names by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'fd> {
    pub(crate) what: String,
    pub(crate) message: Vec<u8>,
    pub(crate) tolerated: [Option<Errno>; 2],
    /// Whether it is answered by what it asks for.
    question: bool,
    borrows: PhantomData<&'fd ()>,
}

/// Requests that are sent together, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch<'fd> {
    pub(crate) requests: Vec<Request<'fd>>,
}

/// What the kernel answered to one request of a batch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// Done; nothing to say.
    Done,
    /// Refused with an errno that the request tolerates.
    Tolerated(Errno),
    /// The link asked for, or the one that an echoed request has made.
    Link(Box<Link>),
    /// The address that an echoed request has made.
    Address(Box<Address>),
    /// The route asked for, or the one that an echoed request has made.
    Route(Box<Route>),
    /// The rule that an echoed request has made.
    Rule(Box<Rule>),
    /// The queueing discipline asked for.
    Qdisc(Box<Qdisc>),
    /// The number of the namespace asked for; below 0: it has none.
    NetnsNumber(i32),
    /// Whether packets are forwarded: the value of the sysctl.
    Forwarding(i32),
}

/// One request that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Position in the batch, from 0.
    pub index: usize,
    /// The request in words of `ip`.
    pub what: String,
    /// Why. `ENOBUFS`: the answer was lost, the request may have been carried out.
    pub errno: Errno,
    /// The kernel's own explanation, where it gives one (extended acknowledgement).
    pub text: Option<String>,
}

/// One or more requests of a batch failed; all others were carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchError {
    first: Failure,
    more: Vec<Failure>,
    sent: usize,
}

// === impl Request ===

impl<'fd> Request<'fd> {
    /// One to rtnetlink, whose questions are the `RTM_GET*` types: every fourth.
    pub(crate) fn new(what: String, message: Message) -> Self {
        let message = message.finish();
        let question = wire::kind_of(&message) & 3 == RTM_GETLINK & 3;
        Request { what, message, tolerated: [None; 2], question, borrows: PhantomData }
    }

    /// One to another part of the kernel, which only acknowledges it.
    pub(crate) fn command(what: String, message: Message) -> Self {
        Request { what, message: message.finish(), tolerated: [None; 2], question: false, borrows: PhantomData }
    }

    /// Takes this errno for success; at most two of them. (`EEXIST` where something may be there already, `ENODEV` where
    /// it may be gone.)
    #[must_use]
    pub fn tolerate(mut self, errno: Errno) -> Self {
        if let Some(free) = self.tolerated.iter_mut().find(|t| t.is_none()) {
            *free = Some(errno);
        }
        self
    }

    /// Asks for what was made to be sent back (`ip -echo`, `NLM_F_ECHO`): [`Reply::Link`] with the index that the kernel
    /// chose. For links, kernels before 6.2 ignore it and the reply is [`Reply::Done`].
    #[must_use]
    pub fn echo(mut self) -> Self {
        wire::stamp(&mut self.message, 0, NLM_F_ECHO);
        self
    }

    /// Replaces the words that stand for this request in an error, for a caller who knows a name where the message has
    /// only an index.
    #[must_use]
    pub fn called(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The request in words of `ip`.
    pub fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn is_question(&self) -> bool {
        self.question
    }

    pub(crate) fn tolerates(&self, errno: Errno) -> bool {
        self.tolerated.contains(&Some(errno))
    }
}

// === impl Batch ===

impl<'fd> Batch<'fd> {
    /// An empty batch; sending it does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a request.
    pub fn push(&mut self, request: Request<'fd>) -> &mut Self {
        self.requests.push(request);
        self
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl<'fd> FromIterator<Request<'fd>> for Batch<'fd> {
    fn from_iter<I: IntoIterator<Item = Request<'fd>>>(requests: I) -> Self {
        Batch { requests: requests.into_iter().collect() }
    }
}

impl<'fd> Extend<Request<'fd>> for Batch<'fd> {
    fn extend<I: IntoIterator<Item = Request<'fd>>>(&mut self, requests: I) {
        self.requests.extend(requests);
    }
}

impl<'fd> From<Request<'fd>> for Batch<'fd> {
    fn from(request: Request<'fd>) -> Self {
        Batch { requests: vec![request] }
    }
}

// === impl BatchError ===

impl BatchError {
    /// `None` when nothing failed.
    pub(crate) fn from_failures(failures: Vec<Failure>, sent: usize) -> Option<Self> {
        let mut failures = failures.into_iter();
        let first = failures.next()?;
        Some(BatchError { first, more: failures.collect(), sent })
    }

    /// Every failure, in the order of the batch.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// The first failure.
    pub fn first(&self) -> &Failure {
        &self.first
    }

    /// Errno of the first failure.
    pub fn errno(&self) -> Errno {
        self.first.errno
    }
}

impl std::error::Error for BatchError {}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.more.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more of {} requests failed)", self.sent),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.errno)?;
        match &self.text {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_first_failure_and_counts_the_others() {
        let failure = |index, text: Option<&str>| Failure {
            index,
            what: format!("ip link del dev if{index}"),
            errno: Errno::EPERM,
            text: text.map(Into::into),
        };
        let one = BatchError::from_failures(vec![failure(2, Some("no such thing"))], 3).unwrap();
        assert_eq!(one.to_string(), "ip link del dev if2: EPERM: Operation not permitted: no such thing");
        let two = BatchError::from_failures(vec![failure(0, None), failure(2, None)], 3).unwrap();
        assert_eq!(two.to_string(), "ip link del dev if0: EPERM: Operation not permitted (and 1 more of 3 requests failed)");
        assert_eq!((two.errno(), two.failures().count()), (Errno::EPERM, 2));
        assert_eq!(BatchError::from_failures(vec![], 3), None);
    }
}
