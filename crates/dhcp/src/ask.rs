//! The plugin's side: a call to the daemon, and what is done where there is none.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, NetworkName, Version};
use linux::file::Lock;
use linux::{Errno, local};
use wire::{Answer, Call, ToAgent, ToShim, WireError};

use crate::store::Store;
use crate::table::give_back;
use crate::wanted::SOCKET;

/// How long a daemon that is there, but accepts nobody, is waited for.
const ACCEPT: Duration = Duration::from_secs(5);
/// How long a DEL, GC, CHECK or STATUS takes at the most.
const SOON: Duration = Duration::from_secs(15);
/// How long what listens may say nothing until it is asked whether it is a daemon of ours, and how long it has for that answer.
const SILENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// How long an ADD is waited for before it counts as one that waits: a server that is there has answered by then.
const PROMPT: Duration = Duration::from_millis(100);
/// How often it is asked whether somebody waits for the answer any longer.
const TURN: Duration = Duration::from_secs(1);
/// How long a daemon that starts, and has its files already, may take until it listens.
const STARTING: Duration = Duration::from_secs(5);

/// How long a daemon takes from its socket's name to its listening, at the most.
const BINDING: Duration = Duration::from_millis(20);

/// A daemon's socket.
#[derive(Debug, Clone)]
pub struct Daemon {
    socket: PathBuf,
}

/// Why the daemon gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// It is not there.
    #[error("error dialing DHCP daemon: {}: {errno}; start it ({})", socket.display(), start(socket))]
    Absent {
        /// Where it was looked for.
        socket: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// It did not answer in time.
    #[error("the DHCP daemon at {} did not answer within {seconds} s; see its log, or restart it: it keeps its leases", socket.display())]
    Late {
        /// Its socket.
        socket: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Nobody waited for its answer any longer.
    #[error("the caller closed the connection while the DHCP daemon at {} was acquiring the lease", socket.display())]
    Abandoned {
        /// Its socket.
        socket: PathBuf,
    },
    /// It ended without an answer.
    #[error("the DHCP daemon at {} stopped in the middle of the call: {reason}", socket.display())]
    Died {
        /// Its socket.
        socket: PathBuf,
        /// How that was noticed.
        reason: String,
    },
    /// It speaks another language.
    #[error("the program that listens at {} is not Netloom's DHCP daemon: {reason}; it may be the reference plugin's: stop it and start \
        Netloom's", socket.display())]
    Foreign {
        /// Its socket.
        socket: PathBuf,
        /// What it said.
        reason: String,
    },
}

/// How a daemon is started that listens there.
fn start(socket: &Path) -> String {
    match socket.to_str() {
        Some(SOCKET) => "netloom dhcp, or: systemctl start netloom-dhcp.socket".to_owned(),
        _ => format!("netloom dhcp -socketpath {}", socket.display()),
    }
}

impl From<Unanswered> for CniError {
    fn from(e: Unanswered) -> Self {
        CniError::new(Code::TRY_AGAIN_LATER, e.to_string())
    }
}

// === impl Daemon ===

impl Daemon {
    /// The one that listens there.
    pub fn at(socket: &Path) -> Self {
        Daemon { socket: socket.to_owned() }
    }

    /// ADD: the lease of the attachment that `call` names. `goes_on` is asked about once in a second where the answer does not come at once;
    /// where it says no, the daemon, whose caller hangs up then, acquires no lease.
    ///
    /// # Errors
    /// Code 11 without a daemon, and if no server answers in time; else what the daemon says.
    pub fn add(&self, call: Call, by: Instant, goes_on: &dyn Fn() -> bool) -> Result<AddResult, CniError> {
        let left = by.saturating_duration_since(Instant::now());
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        // It answers by then; a little more is for its answer to come.
        let stdout = self.ask_while(Call { millis, verb: "ADD".to_owned(), ..call }, left + Duration::from_secs(1), goes_on)??;
        Ok(AddResult::parse(&stdout, Version::LATEST)?.0)
    }

    /// CHECK.
    ///
    /// # Errors
    /// Code 11 without a daemon; else what has changed.
    pub fn check(&self, call: Call) -> Result<(), CniError> {
        self.ask(Call { verb: "CHECK".to_owned(), ..call }, SOON)?.map(drop)
    }

    /// STATUS.
    ///
    /// # Errors
    /// Code 50 with what to start.
    pub fn status(&self) -> Result<(), CniError> {
        let unavailable = |e: Unanswered| CniError::new(Code::NOT_AVAILABLE, e.to_string());
        self.ask(Call { verb: "STATUS".to_owned(), ..Call::default() }, SOON).map_err(unavailable)?.map(drop)
    }

    /// DEL: by the daemon, or without it from the lease's file. Where neither knows the lease it is gone. A daemon that hangs
    /// finds its file gone, and lets go.
    ///
    /// # Errors
    /// If the files cannot be reached.
    pub fn del(&self, id: &AttachmentId, call: Call) -> Result<(), CniError> {
        let call = Call { verb: "DEL".to_owned(), ..call };
        match self.ask_or_lock(call)? {
            DaemonCall::Answered(answer) => answer.map(drop),
            DaemonCall::Alone(store, _lock) => {
                if let Some(lease) = store.load(id) {
                    give_back(&lease);
                }
                store.remove(id)
            }
            DaemonCall::Hangs(store) => store.remove(id),
            DaemonCall::Nothing => Ok(()),
        }
    }

    /// GC, in the same two ways; `valid` are the attachments that keep what they have.
    ///
    /// # Errors
    /// As [`Daemon::del`].
    pub fn gc(&self, network: &NetworkName, valid: &[AttachmentId], call: Call) -> Result<(), CniError> {
        let (store, _lock) = match self.ask_or_lock(Call { verb: "GC".to_owned(), ..call })? {
            DaemonCall::Answered(answer) => return answer.map(drop),
            DaemonCall::Alone(store, lock) => (store, lock),
            DaemonCall::Hangs(_) => return Err(Unanswered::Late { socket: self.socket.clone(), seconds: SOON.as_secs() }.into()),
            DaemonCall::Nothing => return Ok(()),
        };
        let stale = store.load_all()?.leases.into_iter().filter(|lease| lease.id.network == *network && !valid.contains(&lease.id));
        let done = stale.map(|lease| {
            give_back(&lease);
            store.remove(&lease.id)
        });
        CniError::first_of(done.filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// The daemon's answer, or the files without it: who has their lock is alone.
    fn ask_or_lock(&self, call: Call) -> Result<DaemonCall, CniError> {
        let by = Instant::now() + STARTING;
        loop {
            let unanswered = match self.ask(call.clone(), SOON) {
                Ok(answer) => return Ok(DaemonCall::Answered(answer)),
                Err(e) => e,
            };
            let store = Store::beside(&self.socket)?;
            if store.is_missing() {
                // There never was a daemon of ours.
                return Ok(DaemonCall::Nothing);
            }
            if let Some(lock) = store.lock(Duration::from_millis(200))? {
                return Ok(DaemonCall::Alone(store, lock));
            }
            if matches!(unanswered, Unanswered::Late { .. }) || Instant::now() >= by {
                return Ok(DaemonCall::Hangs(store));
            }
        }
    }

    fn connect(&self) -> Result<UnixStream, Errno> {
        match local::connect(&self.socket, ACCEPT) {
            Err(Errno::ECONNREFUSED) => {
                // Left by a daemon that is gone; or one starts, which has its name before it listens.
                std::thread::sleep(BINDING);
                local::connect(&self.socket, ACCEPT)
            }
            connected => connected,
        }
    }

    /// Whether a daemon of netloom's has the socket, which answers STATUS at once whatever else it does, or systemd, which starts one.
    fn is_ours(&self, stream: &UnixStream) -> bool {
        let status = Call { verb: "STATUS".to_owned(), ..Call::default() };
        let answers = || self.begin(status, SILENT.1).is_ok_and(|mut asked| self.answer(&mut asked, SILENT.1).is_ok());
        local::peer(stream).is_ok_and(|peer| peer.pid == 1) || answers()
    }

    fn ask(&self, call: Call, time: Duration) -> Result<Result<Vec<u8>, CniError>, Unanswered> {
        self.ask_while(call, time, &|| true)
    }

    fn ask_while(&self, call: Call, time: Duration, goes_on: &dyn Fn() -> bool) -> Result<Result<Vec<u8>, CniError>, Unanswered> {
        let until = Instant::now() + time;
        let mut asked = self.begin(call, time)?;
        let socket = || self.socket.clone();
        let speaks = |turn: Duration| {
            let left = until.saturating_duration_since(Instant::now());
            local::speaks(&asked.stream, turn.min(left)).map_err(|errno| Unanswered::Died { socket: socket(), reason: errno.to_string() })
        };
        let mut is_known = false;
        let mut turn = PROMPT;
        while !speaks(turn)? {
            if !goes_on() {
                return Err(Unanswered::Abandoned { socket: socket() });
            }
            if !is_known && turn > PROMPT {
                is_known = self.is_ours(&asked.stream);
                if !is_known {
                    let reason = "it says nothing, not even to STATUS (one of netloom's that hangs is to be started anew)".to_owned();
                    return Err(Unanswered::Foreign { socket: socket(), reason });
                }
            }
            if Instant::now() >= until {
                return Err(Unanswered::Late { socket: socket(), seconds: time.as_secs() });
            }
            turn = if turn == PROMPT { SILENT.0 } else { TURN };
        }
        self.answer(&mut asked, time)
    }

    /// Says what is wanted.
    fn begin(&self, mut call: Call, time: Duration) -> Result<PendingCall, Unanswered> {
        call.protocol = wire::PROTOCOL;
        "dhcp".clone_into(&mut call.program);
        let mut stream = self.connect().map_err(|errno| Unanswered::Absent { socket: self.socket.clone(), errno })?;
        let died = |e: std::io::Error| Unanswered::Died { socket: self.socket.clone(), reason: e.to_string() };
        stream.set_read_timeout(Some(time.max(Duration::from_millis(1)))).map_err(died)?;
        let sent = wire::send(&mut stream, &ToAgent::Call(call));
        Ok(PendingCall { stream, sent })
    }

    fn answer(&self, asked: &mut PendingCall, time: Duration) -> Result<Result<Vec<u8>, CniError>, Unanswered> {
        let socket = || self.socket.clone();
        let died = |reason: String| Unanswered::Died { socket: socket(), reason };
        match (wire::receive(&mut asked.stream), &asked.sent) {
            (Ok(Some(ToShim::Answer(Answer { exit: 0, stdout, .. }))), _) => Ok(Ok(stdout)),
            (Ok(Some(ToShim::Answer(answer))), _) => {
                let nothing = || CniError::new(Code::INTERNAL, "the DHCP daemon failed without a message");
                Ok(Err(CniError::parse(&answer.stdout).unwrap_or_else(nothing)))
            }
            (Ok(Some(ToShim::Run(_))), _) => Err(Unanswered::Foreign {
                socket: socket(),
                reason: "it asked for a plugin to be \
                executed"
                    .to_owned(),
            }),
            (Err(WireError::Connection { kind: ErrorKind::WouldBlock | ErrorKind::TimedOut, .. }), _) => {
                Err(Unanswered::Late { socket: socket(), seconds: time.as_secs() })
            }
            (Err(e @ (WireError::Connection { .. } | WireError::Cut { .. })), _) => Err(died(e.to_string())),
            (Ok(None), Err(e)) => Err(died(e.to_string())),
            (Ok(None), Ok(())) => Err(died("it closed the connection".to_owned())),
            (Err(e), _) => Err(Unanswered::Foreign { socket: socket(), reason: e.to_string() }),
        }
    }
}

/// A call on its way.
struct PendingCall {
    stream: UnixStream,
    sent: Result<(), WireError>,
}

enum DaemonCall {
    /// The daemon's.
    Answered(Result<Vec<u8>, CniError>),
    /// There is no daemon, and the files are ours.
    Alone(Store, Lock),
    /// A daemon has the files, and does not answer.
    Hangs(Store),
    /// There is neither a daemon nor a file.
    Nothing,
}
