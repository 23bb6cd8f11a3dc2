//! What other programs have in tables of their own: whether a chain is there, which chains drop what the host forwards, and rules by
//! their comments.

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

/// A chain that drops each packet which passes through the host, or frame which passes a bridge, unless a rule accepts it:
/// `type filter hook forward ...; policy drop;`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardDrop {
    /// The family of its table.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
}

// === impl Socket ===

impl Socket {
    /// The chains of a family that drop what is forwarded and not accepted (`nft list chains`), whoever made them. What
    /// iptables' own tables (legacy) have is not among them.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn forward_drops(&mut self, family: Family) -> Result<Vec<ForwardDrop>, ReadError> {
        self.chains(family, |chain| ForwardDrop::read(family, chain))
    }

    /// The names of a table's chains that no hook calls (`nft list chains`). No table: none.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn plain_chains(&mut self, family: Family, table: &str) -> Result<Vec<String>, ReadError> {
        const TABLE: u16 = 1;
        const NAME: u16 = 3;
        const HOOK: u16 = 4;
        let name_of = |chain: &[u8]| {
            let text = |kind: u16| wire::find(chain, kind).map(wire::text);
            let is_meant = text(TABLE)? == table && wire::find(chain, HOOK).is_none();
            text(NAME).filter(|_| is_meant)
        };
        self.chains(family, name_of)
    }

    /// What `read` makes of each chain of a family.
    fn chains<T>(&mut self, family: Family, read: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, ReadError> {
        self.dump(
            &format!("chains {family}"),
            Kind::GetChain,
            family,
            |_| {},
            |frame, found| {
                if frame.kind == Kind::NewChain.number() {
                    found.extend(read(frame.body()));
                }
            },
        )
    }

    /// Whether a rule of a chain has these bytes in it, such as the name of a link. No chain: no.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn has_rule_with(&mut self, chain: &ForwardDrop, bytes: &[u8]) -> Result<bool, ReadError> {
        let ForwardDrop { family, table, chain } = chain;
        let has = |rule: &[u8]| !bytes.is_empty() && rule.windows(bytes.len()).any(|window| window == bytes);
        let found = self.of_rules(*family, table, chain, |rule, found| found.extend(has(rule).then_some(())))?;
        Ok(!found.is_empty())
    }

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

// === impl ForwardDrop ===

impl ForwardDrop {
    /// Reads the attributes of a chain.
    pub(super) fn read(family: Family, chain: &[u8]) -> Option<Self> {
        const TABLE: u16 = 1;
        const NAME: u16 = 3;
        const HOOK: u16 = 4;
        const POLICY: u16 = 5;
        const HOOK_NUMBER: u16 = 1;
        // NF_INET_FORWARD and NF_BR_FORWARD; NF_DROP.
        const FORWARD: u32 = 2;
        const DROP: u32 = 0;
        let number = |bytes: &[u8]| bytes.first_chunk().copied().map(u32::from_be_bytes);
        let hook = number(wire::find(wire::find(chain, HOOK)?, HOOK_NUMBER)?)?;
        let policy = number(wire::find(chain, POLICY)?)?;
        let text = |kind: u16| wire::find(chain, kind).map(wire::text);
        (hook == FORWARD && policy == DROP).then_some(Self { family, table: text(TABLE)?, chain: text(NAME)? })
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
