//! The programs: where they are found, and what they say.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::Errno;
use linux::file::LockHolder;
use linux::process::{self, Output, ProcessError, Program};

use super::{Iptables, LOCK};

/// More than a table of a hundred thousand rules: 64 MiB.
const MAX_OUTPUT: usize = 64 << 20;
/// How much of what they say on their standard error is told.
const SAID: usize = 500;

/// Why iptables was not asked, or refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IptablesError {
    /// It is not installed.
    #[error("{program} is not on PATH, nor in {}: install iptables on the host, or use nftables instead (backend \"nftables\")", process::USUAL_DIRS.join(", "))]
    NotFound {
        /// `iptables-restore`, `ip6tables-save`
        program: String,
    },
    /// The host's mount namespace is not to be reached.
    #[error(
        "cannot run {program} on the host: open /proc/1/ns/mnt: {errno}; check that the agent has hostPID and may read the host's processes"
    )]
    HostMounts {
        /// The program.
        program: String,
        /// Why.
        errno: Errno,
    },
    /// It could not be run to its end.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It refused; nothing has changed.
    #[error("{}: {}{}", path.display(), if said.is_empty() { ended } else { said }, told(input.as_deref()))]
    Refused {
        /// The program.
        path: PathBuf,
        /// The line of its input that it names, from 1.
        line: Option<usize>,
        /// That line.
        input: Option<String>,
        /// What it said.
        said: String,
        /// How it ended, in words.
        ended: String,
        /// Its exit code: 1 for what is missing or there already, 2 for words it does not know, 3 or 4 for the kernel's refusal.
        code: Option<i32>,
    },
    /// Another program has the lock of all tables; nothing has changed.
    #[error("{}: waited {} s for the lock of all tables, {LOCK}{}: end what holds it", program.display(), waited.as_secs(), holder.as_ref().map(|holder| format!(", which {holder} has")).unwrap_or_default())]
    Locked {
        /// The program.
        program: PathBuf,
        /// For how long.
        waited: Duration,
        /// Who has it, where that is to be seen from here.
        holder: Option<LockHolder>,
    },
    /// Somebody's rules in the same table cannot be said in its words.
    #[error(
        "{program}: table {table} has nftables rules that iptables cannot show (see `nft list ruleset`): move them to a table of their own"
    )]
    Incompatible {
        /// The program.
        program: String,
        /// The table.
        table: String,
    },
    /// A line break, or another character that no rule has.
    #[error("a rule must not have control characters: {line:?}")]
    ControlCharacter {
        /// The line that was to be.
        line: String,
    },
}

fn told(input: Option<&str>) -> String {
    input.map(|line| format!(" (the line is: {line})")).unwrap_or_default()
}

// === impl IptablesError ===

impl IptablesError {
    /// Whether the reason can be that another program has changed the same table.
    pub(super) fn may_be_overtaken(&self) -> bool {
        matches!(self, IptablesError::Refused { .. })
    }

    /// Whether iptables of this family cannot be used here at all: it is not installed, or the kernel has it not.
    #[must_use]
    pub fn is_unusable(&self) -> bool {
        matches!(self, IptablesError::NotFound { .. } | IptablesError::Refused { code: Some(3), .. })
    }

    /// Whether another attempt may go better.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            IptablesError::Locked { .. } | IptablesError::Process(ProcessError::TimedOut { .. } | ProcessError::TextFileBusy { .. })
        )
    }
}

/// Runs a family's `save` or `restore`; what it printed.
pub(super) fn run(of: &Iptables, what: &str, args: &[&str], stdin: &str) -> Result<String, IptablesError> {
    let name = of.program(what);
    // What our own caller left open is none of the program's business. (Before Linux 5.11 it cannot be said for all at once.)
    let _ = process::close_on_exec();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let env = vec![(OsString::from("PATH"), path), (OsString::from("LC_ALL"), OsString::from("C"))];
    // Killed with us: nobody would undo what it does afterwards.
    let (stdin, deadline, bound) = (stdin.as_bytes(), of.deadline, true);
    let asked = Program { path: Path::new(""), args, env, stdin, deadline, max_output: MAX_OUTPUT, mounts: None, bound, sole: false };
    // A look is cheaper than a fork.
    if let Some(program) = process::places(&name).find(|program| program.exists()) {
        let ran = process::run(&Program { path: &program, ..asked })?;
        return answer(&program, stdin, ran);
    }
    let mounts = process::host_mounts().map_err(|errno| IptablesError::HostMounts { program: name.clone(), errno })?;
    let Some(mounts) = mounts.as_ref().map(AsFd::as_fd) else { return Err(IptablesError::NotFound { program: name }) };
    for program in process::places(&name) {
        match process::run(&Program { path: &program, mounts: Some(mounts), ..asked.clone() }) {
            Err(ProcessError::NotFound { .. }) => {}
            ran => return answer(&program, stdin, ran?),
        }
    }
    Err(IptablesError::NotFound { program: name })
}

fn answer(path: &Path, input: &[u8], out: Output) -> Result<String, IptablesError> {
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Try `")).collect::<Vec<_>>().join("; ");
    // `xtables_lock_or_exit` (iptables/xshared.c)
    if out.status.code() == Some(4) && said.contains("holding the xtables lock") {
        return Err(IptablesError::Locked { program: path.to_owned(), waited: Duration::ZERO, holder: None });
    }
    let line = line_of(&said);
    let input = String::from_utf8_lossy(input);
    let text = line.and_then(|n| input.lines().nth(n.checked_sub(1)?)).map(str::to_owned);
    let (ended, code) = (out.status.to_string(), out.status.code());
    Err(IptablesError::Refused { path: path.to_owned(), line, input: text, said: said.chars().take(SAID).collect(), ended, code })
}

/// The line that a message names: `line 3 failed`, `Error occurred at line: 3`, `line 3: CHAIN_ADD failed`.
fn line_of(said: &str) -> Option<usize> {
    said.match_indices("line").find_map(|(at, word)| {
        let rest = said.get(at + word.len()..)?.trim_start_matches([':', ' ']);
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_no_refusal() {
        use std::os::unix::process::ExitStatusExt;
        let ended = |code: i32, said: &str| Output {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: Vec::new(),
            stderr: said.as_bytes().to_vec(),
        };
        let said = "Another app is currently holding the xtables lock. Stopped waiting after 1s.\n";
        let e = answer(Path::new("/sbin/iptables-restore"), b"", ended(4, said)).unwrap_err();
        assert!(matches!(e, IptablesError::Locked { .. }) && e.may_pass(), "{e}");
        let e = answer(Path::new("/sbin/iptables-restore"), b"", ended(4, "iptables-restore: line 2 failed")).unwrap_err();
        assert!(matches!(e, IptablesError::Refused { code: Some(4), .. }), "{e}");
    }

    #[test]
    fn the_line_that_a_message_names() {
        for (said, line) in [
            ("iptables-restore: line 2 failed", Some(2)),
            ("unknown option \"--frob\"; Error occurred at line: 12", Some(12)),
            ("iptables-nft-restore v1.8.9 (nf_tables): ; line 3: CHAIN_DEL failed (Device or resource busy): chain FOO", Some(3)),
            ("no such thing", None),
            ("a line", None),
        ] {
            assert_eq!(line_of(said), line, "{said}");
        }
    }
}
