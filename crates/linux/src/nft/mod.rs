//! nftables without `nft`: our own encoder for the kernel's nf_tables
//! (`include/uapi/linux/netfilter/nf_tables.h`), for the few things we ask of it.
//!
//! ```text
//! Step, Step, ... -> Transaction -> Socket::commit -> BATCH_BEGIN steps BATCH_END, one send
//!                                                  <- one acknowledgement, or a Refusal per step
//! Socket::find, elements, counts, table            -> what is there, comments included
//! SetElement                                       -> Socket::delete_missing_ok
//! Socket::ranges                                   -> what a set of address ranges has
//! Socket::ruleset                                  -> everything that is there, whoever made it
//! Flows                                            -> Socket::forget: connections that are tracked
//! Watch::next                                      <- somebody has removed something
//! ```
//!
//! Rules are written once per namespace; what comes and goes with an attachment are
//! [`SetElement`]s, whose comment names their owner. A rule costs a transaction that waits
//! for packets on their way (some 15 ms), an element only its own insertion.
//!
//! Adding an expression is a variant of [`Expr`] and its arm in `write_data`; adding a key
//! type is a variant of [`Field`] with its two numbers.

mod element;
mod error;
mod expr;
mod flow;
mod foreign;
#[cfg(fuzzing)]
pub(crate) mod fuzz;
mod listing;
mod range;
mod read;
mod ruleset;
mod socket;
mod transaction;
mod watch;
mod wire;
mod xtables;

use std::fmt;
use std::str::FromStr;

pub use element::{COMMENT_MAX, Count, Data, Element, ParseElementError, SetElement};
pub use error::{DeleteError, OpenError, ReadError, Refusal, TransactionError};
pub use expr::{Cmp, Ct, Expr, Header, Meta, Original, Reg, Verdict};
pub use flow::{Flows, ForgetError};
pub use foreign::{Commented, ForwardDrop};
pub use listing::{
    ListedBase, ListedChain, ListedData, ListedElement, ListedHeader, ListedRule, ListedSet, ListedTable, ListedVerdict, Op,
};
pub use range::{Range, SetRange};
pub use read::TableInfo;
pub use ruleset::{Base, Chain, ChainType, Field, Hook, MapTo, Rule, Set, Table};
pub use socket::Socket;
pub use transaction::{Mode, Step, Transaction};
pub use watch::{Deleted, Removal, Removed, Watch};

/// Which packets a table's chains see (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Family {
    /// `inet`: IPv4 and IPv6.
    Inet,
    /// `ip`: IPv4, where `iptables-nft` has its tables.
    Ip,
    /// `ip6`: IPv6, where `ip6tables-nft` has its own.
    Ip6,
    /// `bridge`: frames that come by a port of a bridge (`CONFIG_NF_TABLES_BRIDGE`).
    Bridge,
    /// `netdev`: frames as they come in by a link and leave by it (`CONFIG_NF_TABLES_NETDEV`).
    Netdev,
}

// === impl Family ===

impl Family {
    fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Ip6 => 10,
            Self::Bridge => 7,
            Self::Netdev => 5,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        })
    }
}

impl FromStr for Family {
    type Err = ParseElementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "inet" => Ok(Self::Inet),
            "ip" => Ok(Self::Ip),
            "ip6" => Ok(Self::Ip6),
            "bridge" => Ok(Self::Bridge),
            "netdev" => Ok(Self::Netdev),
            _ => Err(ParseElementError::Family { family: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests;
