//! The reference `host-local`'s own code in one process: `tests/peers/addresses`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{POOL, SUBNET};

/// The process; it ends with its input.
pub(super) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

// === impl Peer ===

impl Peer {
    /// Over a directory in which so many addresses are held, from the second one on.
    pub(super) fn start(program: &Path, data: &Path, held: usize) -> Result<Self> {
        let dir = data.join(POOL);
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        for number in 2..held + 2 {
            let [_, _, high, low] = u32::try_from(number)?.to_be_bytes();
            fs::write(dir.join(format!("10.64.{high}.{low}")), format!("{number:064x}\r\neth0")).context("hold an address")?;
        }
        let mut command = Command::new(program);
        command.arg(data).args([POOL, SUBNET]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("run {} (`make peers` builds it)", program.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("its output")?);
        Ok(Peer { child, input, output: BufReader::new(output) })
    }

    /// The time of each of so many addresses, taken by so many callers at once; they are given back.
    pub(super) fn times(&mut self, count: usize, callers: usize) -> Result<Vec<Duration>> {
        writeln!(self.input.as_mut().context("its input")?, "{count} {callers}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let times = line.split_whitespace().map(|ns| Ok(Duration::from_nanos(ns.parse()?))).collect::<Result<Vec<_>>>()?;
        ensure!(times.len() == count, "the reference's code ended before it had all addresses");
        Ok(times)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
