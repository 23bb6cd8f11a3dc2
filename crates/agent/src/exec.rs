//! External plugins, executed by the process of the runtime's that waits for our answer.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use plugin::{Environment, Exec, ExecError, Output};
use wire::{Ran, Run, ToAgent, ToShim, WireError};

use crate::agent::OnWait;

/// How much longer than a plugin's own time the caller is waited for: it has to tell how it went.
const TELL: Duration = Duration::from_secs(10);

/// Lets the caller run executables: it sees the host's files, and stands outside the agent's limits.
///
/// One at a time: a message that is asked for is the answer to the last one that was sent. After a failure of the connection
/// nothing more is sent over it, and each further executable fails in the same way.
pub(crate) struct RunByCaller {
    connection: Mutex<Connection>,
    on_wait: Option<OnWait>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// Why it is of no more use.
    broken: Option<String>,
}

// === impl RunByCaller ===

impl RunByCaller {
    /// Over the connection of a call, which must be in blocking mode.
    pub(crate) fn new(stream: UnixStream) -> Self {
        RunByCaller { connection: Mutex::new(Connection { stream, broken: None }), on_wait: None }
    }

    /// Reports when its call begins to wait for somebody else, and when it goes on.
    pub(crate) fn reporting(self, on_wait: Option<OnWait>) -> Self {
        RunByCaller { on_wait, ..self }
    }
}

impl Exec for RunByCaller {
    fn is_waited_for(&self) -> bool {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.broken.is_none() && !linux::local::hung_up(&connection.stream).unwrap_or(false)
    }

    fn waits(&self, begins: bool) {
        self.on_wait.iter().for_each(|on_wait| on_wait(begins));
    }

    fn exec(&self, path: &Path, env: &Environment, stdin: &[u8], by: Instant) -> Result<Output, ExecError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what the call is about: the rest of our environment is none of the host's business.
        let env = env.iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CNI_")).cloned().collect();
        let left = by.saturating_duration_since(Instant::now());
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let run = Run { path: path.to_owned(), env, stdin: stdin.to_owned(), millis };
        match connection.ask(run, left + TELL) {
            Ok(Ran::Done { success, ended, stdout, stderr }) => Ok(Output { success, ended, stdout, stderr }),
            Ok(Ran::Failed { try_again, reason }) => Err(ExecError::ByCaller { try_again, reason }),
            Err(Refusal::Gone(reason)) => Err(ExecError::CallerGone { path: path.to_owned(), reason }),
            Err(Refusal::Unsent(e)) => Err(ExecError::ByCaller { try_again: false, reason: format!("cannot run {}: {e}", path.display()) }),
        }
    }
}

/// Why there is no word of how it went.
enum Refusal {
    Gone(String),
    Unsent(WireError),
}

// === impl Connection ===

impl Connection {
    fn ask(&mut self, run: Run, patience: Duration) -> Result<Ran, Refusal> {
        if let Some(reason) = &self.broken {
            return Err(Refusal::Gone(reason.clone()));
        }
        let reason = match self.converse(run, patience) {
            Ok(ran) => return Ok(ran),
            Err(e @ Refusal::Unsent(_)) => return Err(e),
            Err(Refusal::Gone(reason)) => reason,
        };
        self.broken = Some(reason.clone());
        Err(Refusal::Gone(reason))
    }

    fn converse(&mut self, run: Run, patience: Duration) -> Result<Ran, Refusal> {
        let gone = |e: &dyn std::fmt::Display| Refusal::Gone(e.to_string());
        let limit = |time| self.stream.set_read_timeout(time).and_then(|()| self.stream.set_write_timeout(time));
        limit(Some(patience)).map_err(|e| gone(&e))?;
        match wire::send(&mut self.stream, &ToShim::Run(run)) {
            Err(e @ WireError::TooLarge { .. }) => return Err(Refusal::Unsent(e)),
            sent => sent.map_err(|e| gone(&e))?,
        }
        match wire::receive_at_most::<ToAgent>(&mut self.stream, wire::MAX_CALL).map_err(|e| gone(&e))? {
            Some(ToAgent::Ran(ran)) => Ok(ran),
            Some(ToAgent::Call(_)) => Err(gone(&"it sent a second call before the first one ended")),
            None => Err(gone(&"it closed the connection")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Given = (Result<Output, ExecError>, Result<Output, ExecError>);

    /// Two executables, and a caller that does this with the first message.
    fn with_caller(caller: impl FnOnce(UnixStream) + Send + 'static) -> Given {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let caller = std::thread::spawn(move || caller(theirs));
        let exec = RunByCaller::new(ours);
        let env = vec![("CNI_COMMAND".into(), "ADD".into()), ("SECRET".into(), "1".into())];
        let run = || exec.exec(Path::new("/opt/cni/bin/x"), &env, b"{}", Instant::now() + Duration::from_secs(60));
        let given = (run(), run());
        drop(exec);
        caller.join().unwrap();
        given
    }

    fn received(stream: &mut UnixStream) -> Option<Run> {
        match wire::receive(stream).unwrap() {
            Some(ToShim::Run(run)) => Some(run),
            _ => None,
        }
    }

    #[test]
    fn what_the_caller_says_is_what_is_told() {
        let (first, second) = with_caller(|mut stream| {
            let run = received(&mut stream).unwrap();
            assert_eq!((run.path.to_str(), run.stdin.as_slice()), (Some("/opt/cni/bin/x"), b"{}".as_slice()));
            assert_eq!(run.env, [("CNI_COMMAND".into(), "ADD".into())]);
            assert!((30_000..=60_000).contains(&run.millis), "{run:?}");
            let done = Ran::Done { success: false, ended: "exit status: 3".to_owned(), stdout: vec![255], stderr: vec![1] };
            wire::send(&mut stream, &ToAgent::Ran(done)).unwrap();
            received(&mut stream).unwrap();
            let failed = Ran::Failed { try_again: true, reason: "busy".to_owned() };
            wire::send(&mut stream, &ToAgent::Ran(failed)).unwrap();
            assert_eq!(wire::receive::<ToShim>(&mut stream), Ok(None));
        });
        assert_eq!(first.unwrap(), Output { success: false, ended: "exit status: 3".to_owned(), stdout: vec![255], stderr: vec![1] });
        assert_eq!(second, Err(ExecError::ByCaller { try_again: true, reason: "busy".to_owned() }));
    }

    #[test]
    fn a_caller_that_is_gone_stays_gone() {
        let (first, second) = with_caller(drop);
        for given in [first, second] {
            assert!(matches!(given, Err(ExecError::CallerGone { .. })), "{given:?}");
        }
        let (first, second) = with_caller(|mut stream| {
            received(&mut stream);
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        for given in [first, second] {
            assert!(matches!(given, Err(ExecError::CallerGone { .. })), "{given:?}");
        }
    }
}
