//! What other programs have in tables of their own: whether a chain is there, and rules by their comments.

use super::element::read_comment;
use super::wire::{self, Kind, REQUEST, Writer};
use super::{Family, ReadError, Socket};

/// A rule that somebody gave a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commented {
    /// By what it is deleted ([`Step::DeleteRule`](super::Step::DeleteRule)): unique in its table.
    pub handle: u64,
    /// As `nft` shows it.
    pub comment: String,
}

// === impl Socket ===

impl Socket {
    /// Whether there is such a chain (`nft list chain`). No table: no chain.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn has_chain(&mut self, family: Family, table: &str, chain: &str) -> Result<bool, ReadError> {
        let what = || format!("chain {family} {table} {chain}");
        let mut w = Writer::default();
        let first = self.numbers(1);
        w.message(Kind::GetChain, REQUEST, first, family.number(), |w| {
            w.name(1, table);
            w.name(3, chain);
        });
        let mut there = false;
        self.ask(w, first, 1, what, |_, _| there = true)?;
        Ok(there)
    }

    /// The rules of a chain that have a comment, in order (`nft -a list chain`). No chain: none.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn commented_rules(&mut self, family: Family, table: &str, chain: &str) -> Result<Vec<Commented>, ReadError> {
        self.of_rules(family, table, chain, |rule, found| found.extend(Commented::read(rule)))
    }
}

// === impl Commented ===

impl Commented {
    /// Reads the attributes of a rule.
    pub(super) fn read(rule: &[u8]) -> Option<Self> {
        const HANDLE: u16 = 3;
        const USERDATA: u16 = 7;
        const UDATA_COMMENT: u8 = 0;
        let handle = u64::from_be_bytes(*wire::find(rule, HANDLE)?.first_chunk()?);
        Some(Self { handle, comment: read_comment(wire::find(rule, USERDATA)?, UDATA_COMMENT)? })
    }
}
