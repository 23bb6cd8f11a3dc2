//! What is to change, step by step, as one transaction: all of it or nothing.

use std::fmt;

use super::wire::{APPEND, CREATE, EXCLUSIVE, Kind, REQUEST, Writer};
use super::{Chain, Family, Rule, Set, SetElement, SetRange, Table};

/// What happens when the thing is there already: the difference between `nft add` and
/// `nft create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Then nothing changes, and the step succeeds (`nft add`).
    Add,
    /// Then the step fails with EEXIST, and with it the transaction (`nft create`): of
    /// several who create at once, exactly one succeeds.
    Create,
}

/// One change. Its `Display` is the `nft` command that it equals.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// `nft add table`
    Table(Mode, Table),
    /// `nft delete table`: with all that is in it.
    DeleteTable {
        /// Its family.
        family: Family,
        /// Its name.
        name: String,
    },
    /// `nft add chain`
    Chain(Mode, Chain),
    /// `nft delete chain`, with its rules: EBUSY, and no transaction, while an element or a rule leads to it; ENOENT, if it is not there.
    DeleteChain {
        /// The family of its table.
        family: Family,
        /// Its table.
        table: String,
        /// Its name.
        name: String,
    },
    /// `nft add set`
    Set(Mode, Set),
    /// `nft add rule`
    Rule(Rule),
    /// `nft flush chain`: takes all its rules away.
    FlushChain {
        /// The family of its table.
        family: Family,
        /// Its table.
        table: String,
        /// Its name.
        name: String,
    },
    /// `nft delete rule`: ENOENT, and no transaction, if it is not there.
    DeleteRule {
        /// The family of its table.
        family: Family,
        /// Its table.
        table: String,
        /// Its chain.
        chain: String,
        /// Its number in the table.
        handle: u64,
    },
    /// `nft add element`. One element a step, so that a refusal names the one at fault and
    /// no list outgrows the 64 KiB of a netlink attribute.
    Element(Mode, SetElement),
    /// `nft delete element`: ENOENT, and no transaction, if it is not there.
    DeleteElement(SetElement),
    /// `nft add element`, of a range. One that overlaps another is refused with EEXIST, whatever the mode.
    Range(Mode, SetRange),
    /// `nft delete element`, of a range, from the first to the last: ENOENT, and no transaction, if it is not there.
    DeleteRange(SetRange),
}

/// Steps that the kernel takes together or not at all (`nft -f`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    steps: Vec<Step>,
}

// === impl Transaction ===

impl Transaction {
    /// With nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step behind the others.
    pub fn push(&mut self, step: Step) -> &mut Self {
        self.steps.push(step);
        self
    }

    /// The steps so far, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl FromIterator<Step> for Transaction {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Self {
        Self { steps: steps.into_iter().collect() }
    }
}

impl Extend<Step> for Transaction {
    fn extend<I: IntoIterator<Item = Step>>(&mut self, steps: I) {
        self.steps.extend(steps);
    }
}

// === impl Mode ===

impl Mode {
    fn flags(self) -> u16 {
        match self {
            Self::Add => CREATE,
            Self::Create => CREATE | EXCLUSIVE,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Create => "create",
        }
    }
}

// === impl Step ===

impl Step {
    /// Writes the one message that the step is. `id` is unique among a transaction's sets.
    pub(super) fn write(&self, w: &mut Writer, sequence: u32, flags: u16, id: u32) {
        let (kind, more) = match self {
            Self::Table(mode, _) => (Kind::NewTable, mode.flags()),
            Self::DeleteTable { .. } => (Kind::DelTable, 0),
            Self::Chain(mode, _) => (Kind::NewChain, mode.flags()),
            Self::DeleteChain { .. } => (Kind::DelChain, 0),
            Self::Set(mode, _) => (Kind::NewSet, mode.flags()),
            Self::Rule(_) => (Kind::NewRule, CREATE | APPEND),
            Self::FlushChain { .. } | Self::DeleteRule { .. } => (Kind::DelRule, 0),
            Self::Element(mode, _) | Self::Range(mode, _) => (Kind::NewElement, mode.flags()),
            Self::DeleteElement(_) | Self::DeleteRange(_) => (Kind::DelElement, 0),
        };
        w.message(kind, REQUEST | flags | more, sequence, self.family().number(), |w| match self {
            Self::Table(_, table) => table.write(w),
            Self::DeleteTable { name, .. } => w.name(1, name),
            Self::Chain(_, chain) => chain.write(w),
            Self::DeleteChain { table, name, .. } => {
                w.name(1, table);
                w.name(3, name);
            }
            Self::Set(_, set) => set.write(w, id),
            Self::Rule(rule) => rule.write(w),
            Self::FlushChain { table, name, .. } => {
                w.name(1, table);
                w.name(2, name);
            }
            Self::DeleteRule { table, chain, handle, .. } => {
                w.name(1, table);
                w.name(2, chain);
                w.bytes(3, &handle.to_be_bytes());
            }
            Self::Element(_, element) => element.write(w, true),
            Self::DeleteElement(element) => element.write(w, false),
            Self::Range(_, range) | Self::DeleteRange(range) => range.write(w),
        });
    }

    fn family(&self) -> Family {
        match self {
            Self::Table(_, Table { family, .. })
            | Self::DeleteTable { family, .. }
            | Self::FlushChain { family, .. }
            | Self::DeleteChain { family, .. }
            | Self::DeleteRule { family, .. }
            | Self::Chain(_, Chain { family, .. })
            | Self::Set(_, Set { family, .. })
            | Self::Rule(Rule { family, .. })
            | Self::Element(_, SetElement { family, .. })
            | Self::DeleteElement(SetElement { family, .. })
            | Self::Range(_, SetRange { family, .. })
            | Self::DeleteRange(SetRange { family, .. }) => *family,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family();
        match self {
            Self::Table(mode, t) => write!(f, "{} table {family} {}", mode.verb(), t.name),
            Self::DeleteTable { name, .. } => write!(f, "delete table {family} {name}"),
            Self::Chain(mode, c) => write!(f, "{} chain {family} {} {}", mode.verb(), c.table, c.name),
            Self::DeleteChain { table, name, .. } => write!(f, "delete chain {family} {table} {name}"),
            Self::Set(mode, s) => write!(f, "{} set {family} {} {}", mode.verb(), s.table, s.name),
            Self::Rule(r) => write!(f, "add rule {family} {} {}", r.table, r.chain),
            Self::FlushChain { table, name, .. } => write!(f, "flush chain {family} {table} {name}"),
            Self::DeleteRule { table, chain, handle, .. } => write!(f, "delete rule {family} {table} {chain} handle {handle}"),
            Self::Element(mode, e) => write!(f, "{} element {e}", mode.verb()),
            Self::DeleteElement(e) => write!(f, "delete element {e}"),
            Self::Range(mode, r) => write!(f, "{} element {r}", mode.verb()),
            Self::DeleteRange(r) => write!(f, "delete element {r}"),
        }
    }
}
