//! What can go wrong on the way to nf_tables and back.

use std::fmt;

use nix::errno::Errno;

/// One step that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its place in the transaction, from 0.
    pub step: usize,
    /// What it was, in the words of `nft`.
    pub what: String,
    /// The kernel's answer.
    pub errno: Errno,
    /// The kernel's own words, if it had any (extended acknowledgement).
    pub kernel: Option<String>,
}

/// Why a socket to nf_tables could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("cannot open a netfilter socket: {errno} (check that this kernel has nf_tables)")]
pub struct OpenError {
    /// Of `socket`, `setsockopt` or `connect`.
    pub errno: Errno,
}

impl OpenError {
    /// Whether the kernel, or the emulator between it and us, has no netfilter netlink at all.
    pub fn is_absent(&self) -> bool {
        self.errno == Errno::EPROTONOSUPPORT
    }
}

/// Why a transaction changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The kernel refused some of the steps; all are listed, a first refusal is often the
    /// cause of later ones.
    #[error("nftables refused to {}", Listed(refusals))]
    Refused {
        /// In the order of the steps; never empty.
        refusals: Vec<Refusal>,
    },
    /// The kernel refused the transaction before it looked at a step.
    #[error("nftables rejected the transaction: {errno}{} (check CAP_NET_ADMIN, and that this kernel has nf_tables)", QuotedText(kernel))]
    Rejected {
        /// The kernel's answer.
        errno: Errno,
        /// The kernel's own words, if it had any.
        kernel: Option<String>,
    },
    /// A step holds more than its message can: a name, a comment over
    /// [`COMMENT_MAX`](super::COMMENT_MAX) bytes.
    #[error("cannot {what}: a name, a comment or a value in it is too long for nftables")]
    TooLong {
        /// The step's place in the transaction, from 0.
        step: usize,
        /// What it was, in the words of `nft`.
        what: String,
    },
    /// The transaction could not be handed over.
    #[error("cannot send an nftables transaction: {errno}")]
    Send {
        /// Of `send`.
        errno: Errno,
    },
    /// The outcome could not be read. The transaction may have been taken.
    #[error("cannot read the outcome of an nftables transaction: {errno}")]
    Receive {
        /// Of `recv`; EAGAIN when the kernel said nothing at all.
        errno: Errno,
    },
}

/// Why a ruleset could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The kernel refused.
    #[error("nftables refused to list {what}: {errno}{}", QuotedText(kernel))]
    Refused {
        /// What was asked for, in the words of `nft`.
        what: String,
        /// The kernel's answer.
        errno: Errno,
        /// The kernel's own words, if it had any.
        kernel: Option<String>,
    },
    /// What was asked for has a name longer than a message can hold.
    #[error("cannot list {what}: a name in it is too long for nftables")]
    TooLong {
        /// What was asked for, in the words of `nft`.
        what: String,
    },
    /// Others changed the rules during every attempt.
    #[error("cannot list {what}: it changed during each of {attempts} attempts; retry")]
    Interrupted {
        /// What was asked for, in the words of `nft`.
        what: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The question could not be sent.
    #[error("cannot ask nftables for {what}: {errno}")]
    Send {
        /// What was asked for, in the words of `nft`.
        what: String,
        /// Of `send`.
        errno: Errno,
    },
    /// The answer could not be read.
    #[error("cannot read nftables' answer about {what}: {errno}")]
    Receive {
        /// What was asked for, in the words of `nft`.
        what: String,
        /// Of `recv`; EAGAIN when the kernel's answer is incomplete.
        errno: Errno,
    },
}

/// Why elements may still be there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeleteError {
    /// Whose they are could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel kept them.
    #[error(transparent)]
    Commit(#[from] TransactionError),
}

// === impl Refusal ===

impl Refusal {
    /// Whether it was for something that is not there (ENOENT).
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.errno == Errno::ENOENT
    }

    /// Whether it was for something that is there already, or overlaps what is there
    /// (EEXIST).
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.errno == Errno::EEXIST
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.what, self.errno, QuotedText(&self.kernel))
    }
}

// === impl TransactionError ===

impl TransactionError {
    /// Whether a step failed as its table, set, chain or element is not there (ENOENT).
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.refusals().iter().any(Refusal::is_missing)
    }

    /// Whether a step failed as what it creates is there already, or overlaps what is
    /// there (EEXIST).
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.refusals().iter().any(Refusal::is_present)
    }

    /// The steps that the kernel refused; empty when it was not for a step.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Self::Refused { refusals } => refusals,
            _ => &[],
        }
    }
}

struct QuotedText<'a>(&'a Option<String>);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(words) => write!(f, " ({words})"),
            None => Ok(()),
        }
    }
}

struct Listed<'a>(&'a [Refusal]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("commit"),
            [one] => one.fmt(f),
            [first, rest @ ..] => write!(f, "{first}; and {} more", rest.len()),
        }
    }
}
