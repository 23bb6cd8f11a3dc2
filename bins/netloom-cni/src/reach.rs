//! The way to the agent: where its socket is, and how long an agent that is not there is waited for.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use attach::Spool;
use cni::{CniError, Code};
use json::{Object, Value};
use linux::{Errno, Watch, local};

/// How long an agent is waited for where the configuration does not say.
const WAIT: Duration = Duration::from_secs(30);

/// How long an agent may leave a connection, or a part of a message, lying there.
const ACCEPT: Duration = Duration::from_secs(60);

/// The pauses between two attempts that nothing has called for: a socket that was made, but is not listened to yet, tells
/// nothing when it is.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(500));

/// The way to the agent, as the configuration has it.
pub(crate) struct AgentEndpoint {
    socket: PathBuf,
    /// How long an agent that is not there is waited for.
    pub(crate) wait: Duration,
    /// Where DELs are kept for it.
    pub(crate) spool: Spool,
}

/// The agent was not reached.
pub(crate) enum Unreached {
    /// Nobody answers there.
    Absent { socket: PathBuf, errno: Errno, waited: Duration },
    /// Somebody is there, who is not to be trusted.
    Stranger { socket: PathBuf, uid: u32 },
    /// It is not to be reached from here.
    Refused { socket: PathBuf, errno: Errno },
}

// === impl AgentEndpoint ===

impl AgentEndpoint {
    /// `agent` is the socket, `socketDir` the directory of one with the usual name, `agentWait` a number of seconds, or a
    /// number with `ms`, `s` or `m`, `spool` the directory of DELs that wait.
    pub(crate) fn read(config: &Object) -> Result<Self, CniError> {
        let usual = Path::new(wire::SOCKET);
        let socket = match (config.get("agent"), config.get("socketDir")) {
            (None | Some(Value::Bool(true)), None) => usual.to_owned(),
            (None | Some(Value::Bool(true)), Some(dir)) => absolute("socketDir", dir)?.join(usual.file_name().unwrap_or_default()),
            (Some(socket), _) => absolute("agent", socket)?,
        };
        let wait = match config.get("agentWait") {
            None => WAIT,
            Some(value) => duration(value).ok_or_else(|| CniError::invalid("agentWait", WAIT_EXPECTED))?,
        };
        let spool = config.get("spool").map(|dir| absolute("spool", dir)).transpose()?;
        Ok(AgentEndpoint { socket, wait, spool: spool.map_or_else(Spool::default, Spool::new) })
    }

    /// Connects; waits for an agent that is not there.
    pub(crate) fn reach(&self, wait: Duration) -> Result<UnixStream, Unreached> {
        let start = Instant::now();
        let by = start + wait;
        let mut pause = PAUSES.0;
        let mut watch: Option<Watch> = None;
        loop {
            let errno = match self.connect() {
                Err(Unreached::Absent { errno, .. }) => errno,
                other => return other,
            };
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Unreached::Absent { socket: self.socket.clone(), errno, waited: start.elapsed() });
            }
            // The first time there is no pause: it may have come before it was watched for. Without a watch, as there may be
            // too many on this machine, there are the attempts alone.
            let Some(watching) = &mut watch else {
                watch = Watch::on(std::slice::from_ref(&self.socket)).ok();
                if watch.is_none() {
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(PAUSES.1);
                }
                continue;
            };
            match watching.wait(Some(pause.min(left))) {
                Ok(changed) if changed.is_empty() => pause = (pause * 2).min(PAUSES.1),
                Ok(_) => pause = PAUSES.0,
                Err(_) => std::thread::sleep(pause.min(left)),
            }
        }
    }

    fn connect(&self) -> Result<UnixStream, Unreached> {
        let socket = || self.socket.clone();
        let stream = local::connect(&self.socket, ACCEPT).map_err(|errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED | Errno::EAGAIN | Errno::ENOTDIR => {
                Unreached::Absent { socket: socket(), errno, waited: Duration::ZERO }
            }
            errno => Unreached::Refused { socket: socket(), errno },
        })?;
        // What it asks to be executed is executed.
        let peer = local::peer(&stream).map_err(|errno| Unreached::Refused { socket: socket(), errno })?;
        if peer.uid != 0 { Err(Unreached::Stranger { socket: socket(), uid: peer.uid }) } else { Ok(stream) }
    }

    /// What to look at when it does not answer.
    pub(crate) fn hint(&self) -> String {
        format!(
            "check that the agent runs on this node: kubectl -n kube-system get pods -l app=netloom -o wide, or systemctl status \
                netloom; its socket is {}",
            self.socket.display()
        )
    }
}

fn absolute(key: &str, value: &Value) -> Result<PathBuf, CniError> {
    match value {
        Value::String(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        Value::String(path) => Err(CniError::invalid(key, format!("{path:?} is not an absolute path"))),
        other => Err(CniError::invalid(key, format!("expected a path, found {}", other.kind()))),
    }
}

/// An agent that is not there after an hour does not come.
const LONGEST: Duration = Duration::from_secs(3600);
const WAIT_EXPECTED: &str = "expected seconds, or a number with a unit such as \"30s\", \"500ms\" or \"2m\"; at most an hour";

fn duration(value: &Value) -> Option<Duration> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let time = match text.get(digits.len()..)? {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    };
    (time <= LONGEST).then_some(time)
}

// === impl Unreached ===

impl Unreached {
    /// Whether nobody is there, so that a DEL is to be kept.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Unreached::Absent { .. })
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Unreached::Absent { .. } => Code::TRY_AGAIN_LATER,
            Unreached::Stranger { .. } | Unreached::Refused { .. } => Code::IO,
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreached::Absent { socket, errno, waited } => {
                let why = match errno {
                    Errno::ENOENT | Errno::ENOTDIR => "there is no such socket",
                    Errno::ECONNREFUSED => "nothing listens on it",
                    _ => "its queue is full",
                };
                write!(f, "cannot reach the agent at {}: {why}; waited {:.1} s", socket.display(), waited.as_secs_f64())
            }
            Unreached::Stranger { socket, uid } => {
                write!(f, "{} is not the agent's socket: user {uid} listens on it, not root", socket.display())
            }
            Unreached::Refused { socket, errno } => write!(f, "cannot connect to the agent at {}: {errno}", socket.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> Result<AgentEndpoint, CniError> {
        let Ok(Value::Object(config)) = json::parse(text.as_bytes()) else { panic!("{text}") };
        AgentEndpoint::read(&config)
    }

    #[test]
    fn the_configuration_says_where_and_how_long() {
        for (text, socket, millis) in [
            ("{}", "/run/netloom/agent.sock", 30_000),
            (r#"{"daemonSocketDir": "/run/multus", "agent": true}"#, "/run/netloom/agent.sock", 30_000),
            (r#"{"socketDir": "/run/x", "agentWait": 0}"#, "/run/x/agent.sock", 0),
            (r#"{"agent": "/run/y.sock", "agentWait": "500ms"}"#, "/run/y.sock", 500),
            (r#"{"agentWait": "2m"}"#, "/run/netloom/agent.sock", 120_000),
        ] {
            let way = way(text).unwrap();
            assert_eq!((way.socket.to_str(), way.wait.as_millis()), (Some(socket), millis), "{text}");
        }
        let spool = |text: &str| way(text).unwrap().spool.dir().to_owned();
        assert_eq!(spool("{}"), Path::new(attach::SPOOL));
        assert_eq!(spool(r#"{"spool": "/var/lib/other/spool"}"#), Path::new("/var/lib/other/spool"));
        for (text, key) in [
            (r#"{"agent": "run/y.sock"}"#, "agent: "),
            (r#"{"agent": 7}"#, "agent: "),
            (r#"{"spool": "lib/spool"}"#, "spool: "),
            (r#"{"agent": false}"#, "agent: "),
            (r#"{"socketDir": ""}"#, "socketDir: "),
            (r#"{"agentWait": "2h"}"#, "agentWait: "),
            (r#"{"agentWait": -1}"#, "agentWait: "),
            (r#"{"agentWait": 3601}"#, "agentWait: "),
            (r#"{"agentWait": 18446744073709551615}"#, "agentWait: "),
        ] {
            let e = way(text).err().unwrap();
            assert!(e.code == Code::INVALID_CONFIG && e.msg.starts_with(key), "{text}: {e}");
        }
    }
}
