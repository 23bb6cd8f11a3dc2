//! Queueing disciplines: made, asked for, deleted.

use nix::errno::Errno;

use super::shaper::{Root, SeenRoot};
use super::{INGRESS, ROOT, TCMSG, header};
use crate::batch::{BatchError, Reply, Request};
use crate::netlink::{Netlink, ReadError};
use crate::uapi::netlink::{NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use crate::uapi::rtnetlink::*;
use crate::uapi::sched::*;
use crate::wire::{Attributes, Message, Received, text, u32_at};

/// A queueing discipline as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Qdisc {
    /// `tbf`, `htb`, `ingress`, ...
    pub kind: String,
    /// The link's index.
    pub link: u32,
    /// Its number, `1:` as 0x10000.
    pub handle: u32,
    /// Where it hangs: the class, or one of the kernel's own numbers.
    pub parent: u32,
    /// What it is made with, if it is one of those.
    pub root: Option<SeenRoot>,
    /// Packets that it has dropped.
    pub dropped: u32,
}

// === impl Qdisc ===

impl Qdisc {
    /// `None` for what has no kind.
    pub(crate) fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(TCMSG)?;
        let number = |at: usize| fixed.get(at..).and_then(u32_at);
        let mut qdisc = Qdisc { kind: String::new(), link: number(4)?, handle: number(8)?, parent: number(12)?, root: None, dropped: 0 };
        for (kind, value) in Attributes(attributes) {
            match kind {
                TCA_KIND => qdisc.kind = text(value),
                TCA_OPTIONS => qdisc.root = SeenRoot::parse(&qdisc.kind, value),
                // `struct gnet_stats_queue`: length, backlog, drops.
                TCA_STATS2 => {
                    let queue = Attributes(value).find(|(kind, _)| *kind == TCA_STATS_QUEUE);
                    qdisc.dropped = queue.and_then(|(_, queue)| u32_at(queue.get(8..)?)).unwrap_or(0);
                }
                _ => {}
            }
        }
        (!qdisc.kind.is_empty()).then_some(qdisc)
    }
}

/// Puts a shaper where a link's packets leave (`tc qdisc add dev LINK root handle 1: ...`). Errors: `EEXIST`, somebody has put
/// one there; `ENOENT`, the kernel lacks the kind; `ENODEV`, the link is gone.
pub fn add_root(index: u32, root: &Root) -> Request<'static> {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &header(index, ROOT, TC_H_ROOT, 0));
    message.put_str(TCA_KIND, root.kind());
    message.nest(TCA_OPTIONS, |options| root.write(options));
    Request::new(format!("tc qdisc add dev if{index} root handle 1: {root}"), message)
}

/// Makes a place for filters of what a link receives (`tc qdisc add dev LINK ingress`). Errors: as of [`add_root`].
pub fn add_ingress(index: u32) -> Request<'static> {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &header(index, INGRESS, TC_H_INGRESS, 0));
    message.put_str(TCA_KIND, "ingress");
    Request::new(format!("tc qdisc add dev if{index} ingress"), message)
}

/// Takes a link's shaper away, if it has the number `1:` (`tc qdisc del dev LINK root handle 1:`). Errors: `ENOENT` or
/// `EINVAL`, there is none, or it has another number; `ENODEV`, the link is gone.
pub fn delete_root(index: u32) -> Request<'static> {
    let message = Message::new(RTM_DELQDISC, 0, &header(index, ROOT, TC_H_ROOT, 0));
    Request::new(format!("tc qdisc del dev if{index} root handle 1:"), message)
}

/// Takes the filters of what a link receives away (`tc qdisc del dev LINK ingress`). Errors: `ENOENT` or `EINVAL`, there are
/// none; `ENODEV`, the link is gone.
pub fn delete_ingress(index: u32) -> Request<'static> {
    let mut message = Message::new(RTM_DELQDISC, 0, &header(index, INGRESS, TC_H_INGRESS, 0));
    message.put_str(TCA_KIND, "ingress");
    Request::new(format!("tc qdisc del dev if{index} ingress"), message)
}

impl Netlink {
    /// What a link sends through, if somebody has put something there (`tc qdisc show dev LINK root`).
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn root_qdisc(&mut self, index: u32) -> Result<Option<Qdisc>, ReadError> {
        self.qdisc(index, TC_H_ROOT, "root")
    }

    /// Where filters of what a link receives are (`tc qdisc show dev LINK ingress`).
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn ingress_qdisc(&mut self, index: u32) -> Result<Option<Qdisc>, ReadError> {
        self.qdisc(index, TC_H_INGRESS, "ingress")
    }

    /// What the packets of a class of ours wait in, if somebody has put something there (`tc qdisc show dev LINK parent 1:N`).
    ///
    /// # Errors
    /// [`ReadError::Refused`] when the kernel does not answer.
    pub fn class_qdisc(&mut self, index: u32, class: u32) -> Result<Option<Qdisc>, ReadError> {
        self.qdisc(index, ROOT | class, "of a class")
    }

    /// A dump would be one of every link of the namespace: the kernel has no filter for it.
    fn qdisc(&mut self, index: u32, parent: u32, word: &str) -> Result<Option<Qdisc>, ReadError> {
        // Without ECHO an old kernel tells only who listens to everything; of a qdisc of its own it tells nothing, and then the
        // acknowledgement ends the wait.
        let message = Message::new(RTM_GETQDISC, NLM_F_ECHO | NLM_F_ACK, &header(index, 0, parent, 0));
        let question = Request::new(format!("tc qdisc show dev if{index} {word}"), message);
        match self.ask(question.tolerate(Errno::ENOENT).tolerate(Errno::ENODEV))? {
            Some(Reply::Qdisc(qdisc)) => Ok(Some(*qdisc).filter(|q| q.handle != 0)),
            _ => Ok(None),
        }
    }
}

/// Whether the kernel has a queueing discipline, asked without making one: `lo` is told to take one without the
/// options that every one of ours needs. Its module is loaded if need be, as by `tc qdisc add`.
///
/// # Errors
/// What the kernel says besides, such as `EPERM`.
pub fn has_kind(netlink: &mut Netlink, kind: &str) -> Result<bool, BatchError> {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &header(crate::link::LOOPBACK, ROOT, TC_H_ROOT, 0));
    message.put_str(TCA_KIND, kind);
    known(netlink.send_one(Request::new(format!("ask for the queueing discipline {kind}"), message)))
}

/// Whether the kernel has an action of filters (`mirred`), asked without making one.
///
/// # Errors
/// What the kernel says besides, such as `EPERM`.
pub fn has_action(netlink: &mut Netlink, kind: &str) -> Result<bool, BatchError> {
    // `struct tcamsg` is a family and padding.
    let mut message = Message::new(RTM_NEWACTION, NLM_F_CREATE | NLM_F_EXCL, &[0; 4]);
    message.nest(TCA_ACT_TAB, |table| table.nest(1, |action| action.put_str(TCA_ACT_KIND, kind)));
    known(netlink.send_one(Request::new(format!("ask for the action {kind}"), message)))
}

/// `ENOENT`: there is no such thing. `EINVAL`: there is, and it wants to be told more; `EEXIST` of `lo` that has one.
fn known(answer: Result<Reply, BatchError>) -> Result<bool, BatchError> {
    match answer {
        Err(e) if matches!(e.errno(), Errno::ENOENT | Errno::EOPNOTSUPP) => Ok(false),
        Err(e) if !matches!(e.errno(), Errno::EINVAL | Errno::EEXIST) => Err(e),
        _ => Ok(true),
    }
}
