//! Rules in the words of iptables, for what is said in those words alone: one `iptables-restore --noflush` a family.
//!
//! ```text
//! Iptables::change --> iptables-save -t TABLE --> Saved, what is there --> the caller's Changes, whole
//!        ^                                                                       |
//!        |                                                       iptables-restore --noflush -w
//!        +---- refused, and another program has changed the table meanwhile -----+
//! ```
//!
//! All lines take effect together or not at all, and in their order. `:CHAIN - [0:0]` makes a chain, and empties one that is
//! there; `-N` refuses one that is there; `-D`, `-X` refuse what is not. So whoever changes a table looks first, and who was
//! overtaken looks anew.
//!
//! The host alone knows which of the two kinds of iptables it uses, and has it on its PATH. Where this process has none, in the
//! agent's container, the programs run in the mount namespace of the machine's first process. They act on the network namespace of
//! the calling thread.

mod names;
mod run;
mod saved;
mod text;

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use linux::Family;
use linux::file::{LockHolder, TURN, goes_on};

pub use names::{Outside, names_outside};
pub use run::IptablesError;
pub use saved::Saved;
pub use text::{Changes, Rule};

/// What the older kind of iptables locks (`XT_LOCK_NAME`, iptables/xshared.h).
const LOCK: &str = "/run/xtables.lock";
/// How often a change is tried while others keep changing the same table.
const ROUNDS: u32 = 50;

/// One family's iptables.
#[derive(Debug, Clone, Copy)]
pub struct Iptables {
    family: Family,
    deadline: Instant,
}

// === impl Iptables ===

impl Iptables {
    /// Those of a family, with the moment at which each program must have ended.
    #[must_use]
    pub fn new(family: Family, deadline: Instant) -> Self {
        Iptables { family, deadline }
    }

    /// What is in a table: `iptables-save -t TABLE`.
    ///
    /// # Errors
    /// [`IptablesError`]
    pub fn saved(&self, table: &str) -> Result<Saved, IptablesError> {
        let printed = run::run(self, "save", &["-t", table], "")?;
        if printed.contains("is incompatible, use 'nft' tool") {
            return Err(IptablesError::Incompatible { program: self.program("save"), table: table.to_owned() });
        }
        Ok(Saved::parse(table, &printed))
    }

    /// Changes a table, all at once: `iptables-restore --noflush -w`. Nothing is run for no changes. The older kind of iptables waits for
    /// the lock of all tables: a second at a time, and no longer than somebody waits for us ([`linux::file::ask_while_waiting`]).
    ///
    /// # Errors
    /// [`IptablesError`]; nothing has changed then.
    pub fn restore(&self, changes: &Changes) -> Result<(), IptablesError> {
        if changes.is_empty() {
            return Ok(());
        }
        let (input, begun) = (changes.text()?, Instant::now());
        let turn = TURN.as_secs().to_string();
        loop {
            match run::run(self, "restore", &["--noflush", "-w", &turn], &input) {
                Err(IptablesError::Locked { program, .. }) => {
                    let lock = File::open(LOCK).ok();
                    if Instant::now() >= self.deadline || !goes_on(lock.as_ref(), Path::new(LOCK), begun.elapsed()) {
                        return Err(IptablesError::Locked {
                            program,
                            waited: begun.elapsed(),
                            holder: lock.as_ref().and_then(LockHolder::of),
                        });
                    }
                }
                ran => return ran.map(drop),
            }
        }
    }

    /// Changes a table as seen fit when it is known what is there, and again where another program was faster. Returns what
    /// was there before.
    ///
    /// # Errors
    /// [`IptablesError`]; nothing has changed then.
    pub fn change(&self, table: &str, wanted: impl Fn(&Saved) -> Changes) -> Result<Saved, IptablesError> {
        let mut saved = self.saved(table)?;
        for round in 0.. {
            let Err(refused) = self.restore(&wanted(&saved)) else { break };
            if round >= ROUNDS || !refused.may_be_overtaken() {
                return Err(refused);
            }
            let now = self.saved(table)?;
            if now == saved {
                return Err(refused);
            }
            saved = now;
        }
        Ok(saved)
    }

    /// Whether a table has all these rules, in whatever words: the first one that it has not. `iptables -C`, many at once.
    ///
    /// # Errors
    /// [`IptablesError`] if it could not be asked.
    pub fn missing<'a>(&self, table: &str, rules: &'a [(String, Rule)]) -> Result<Option<&'a (String, Rule)>, IptablesError> {
        let mut asked = Changes::of(table);
        for (chain, rule) in rules {
            asked.look_for(chain, rule);
        }
        match self.restore(&asked) {
            Ok(()) => Ok(None),
            Err(IptablesError::Refused { line: Some(line), code: Some(1), .. }) if rules.get(line.saturating_sub(2)).is_some() => {
                Ok(rules.get(line.saturating_sub(2)))
            }
            Err(e) => Err(e),
        }
    }

    /// The name of one of its programs.
    fn program(&self, what: &str) -> String {
        let family = if self.family == Family::V4 { "iptables" } else { "ip6tables" };
        format!("{family}-{what}")
    }
}

#[cfg(test)]
mod tests;
