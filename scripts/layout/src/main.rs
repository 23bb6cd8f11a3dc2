//! `netloom-layout LIST PROGRAM [ARGUMENT...]`: executes a program, and lists its functions that were executed, in the order of their first
//! time, by the names that the linker knows. For `--symbol-ordering-file` of lld: what is used together lies together.
//!
//! ```text
//! nm PROGRAM --> the first byte of every function becomes a breakpoint
//!            --> the first thread that comes by: the function is noted, and gets its byte back
//! ```
//!
//! Each function costs one stop in its life, so the program runs at almost full speed. Its threads and children are followed. When this
//! program ends, so does the one that it executes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// `int3` of x86-64.
const BREAKPOINT: u8 = 0xcc;
/// The list is written whenever it has grown by so many: whoever kills this program has it nearly whole.
const AT_ONCE: usize = 50;

type Failure = Box<dyn std::error::Error>;

struct Functions {
    /// Names by address: several where the linker has folded equal functions.
    names: HashMap<u64, Vec<String>>,
    /// The first bytes of those that have a breakpoint.
    bytes: HashMap<u64, u8>,
    executed: Vec<u64>,
}

// === impl Functions ===

impl Functions {
    /// Rust's functions in an executable that is linked to a place of its own, as `nm` lists them.
    fn of(program: &Path) -> Result<Self, Failure> {
        let listed = Command::new("nm").arg("--defined-only").arg(program).output()?;
        let mut names: HashMap<u64, Vec<String>> = HashMap::new();
        for line in String::from_utf8(listed.stdout)?.lines() {
            let [address, kind, name] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            if "tTwW".contains(kind) && (name.starts_with("_ZN") || name.starts_with("_R")) {
                names.entry(u64::from_str_radix(address, 16)?).or_default().push(name.to_owned());
            }
        }
        if names.is_empty() {
            return Err(format!("{}: nm finds no function of Rust: is it stripped?", program.display()).into());
        }
        Ok(Functions { names, bytes: HashMap::new(), executed: Vec::new() })
    }

    fn set_breakpoints(&mut self, pid: Pid) -> io::Result<()> {
        let memory = memory(pid)?;
        for address in self.names.keys() {
            let mut byte = [0];
            if memory.read_at(&mut byte, *address).is_ok() && memory.write_at(&[BREAKPOINT], *address).is_ok() {
                self.bytes.insert(*address, byte[0]);
            }
        }
        Ok(())
    }

    /// A thread has stopped at a breakpoint, which another thread may have taken away meanwhile. Whether it was one of ours.
    fn stopped(&mut self, thread: Pid) -> Result<bool, Failure> {
        let mut registers = ptrace::getregs(thread)?;
        let address = registers.rip - 1;
        let Some(byte) = self.bytes.get(&address) else { return Ok(false) };
        memory(thread)?.write_at(&[*byte], address)?;
        registers.rip = address;
        ptrace::setregs(thread, registers)?;
        if !self.executed.contains(&address) {
            self.executed.push(address);
        }
        Ok(true)
    }

    fn write(&self, list: &Path) -> io::Result<()> {
        let mut file = io::BufWriter::new(File::create(list)?);
        for name in self.executed.iter().filter_map(|address| self.names.get(address)).flatten() {
            writeln!(file, "{name}")?;
        }
        file.flush()
    }
}

fn memory(pid: Pid) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// A process that stands still just before it executes the program.
fn start(program: &Path, arguments: &[String]) -> Result<Pid, Failure> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(program).args(arguments);
    let pid = Pid::from_raw(i32::try_from(shell.spawn()?.id())?);
    while !std::fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let options = Options::PTRACE_O_EXITKILL
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK;
    ptrace::seize(pid, options)?;
    kill(pid, Signal::SIGCONT)?;
    Ok(pid)
}

fn run(list: &Path, program: &Path, arguments: &[String]) -> Result<u8, Failure> {
    let mut functions = Functions::of(program)?;
    let main = start(program, arguments)?;
    let mut written = 0;
    loop {
        // A thread that is gone when it is told to go on has been killed.
        match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Exited(pid, code) if pid == main => {
                functions.write(list)?;
                return Ok(u8::try_from(code)?);
            }
            WaitStatus::Signaled(pid, signal, _) if pid == main => {
                functions.write(list)?;
                return Err(format!("{} was ended by {signal}", program.display()).into());
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                if event == Event::PTRACE_EVENT_EXEC as i32 && pid == main && functions.bytes.is_empty() {
                    functions.set_breakpoints(pid)?;
                }
                let _ = ptrace::cont(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => {
                let is_ours = signal == Signal::SIGSTOP || signal == Signal::SIGTRAP && functions.stopped(pid).unwrap_or(true);
                let _ = ptrace::cont(pid, Some(signal).filter(|_| !is_ours));
            }
            _ => {}
        }
        if functions.executed.len() >= written + AT_ONCE {
            written = functions.executed.len();
            functions.write(list)?;
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [list, program, arguments @ ..] = arguments.as_slice() else {
        eprintln!("usage: netloom-layout LIST PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match run(Path::new(list), Path::new(program), arguments) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("netloom-layout: {e}");
            ExitCode::FAILURE
        }
    }
}
