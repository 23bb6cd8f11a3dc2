//! The daemon's flags, as the units that start the reference plugin's daemon write them: `-flag value`, `-flag=value`, with one
//! dash or two.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::store::on_host;
use crate::wanted::SOCKET;

/// How the daemon runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where its process ID is written; nowhere if `None`.
    pub pidfile: Option<PathBuf>,
    /// What stands before every path of the host, as it is seen from here: empty where that is the host.
    pub hostprefix: PathBuf,
    /// Where it listens, below `hostprefix`.
    pub socketpath: PathBuf,
    /// Whether servers are asked to answer to all: for links whose hardware address several have, as with ipvlan.
    pub broadcast: bool,
    /// How long one message waits for its answer at the most.
    pub timeout: Duration,
    /// The longest pause between two attempts of an ADD.
    pub resendmax: Duration,
    /// How long an ADD goes on.
    pub resendtimeout: Duration,
}

/// A flag that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlagError {
    /// It was asked what there is.
    #[error("{}", usage())]
    Help,
    /// There is no such flag.
    #[error("flag provided but not defined: -{0}; known flags are {known}", known = NAMES.join(", "))]
    Unknown(String),
    /// It stands at the end.
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    /// Its value is of the wrong form.
    #[error("invalid value {value:?} for flag -{flag}: expected {expected}")]
    Value {
        /// The flag.
        flag: String,
        /// What stands there.
        value: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Something that is no flag.
    #[error("unexpected argument {0:?}: only flags are allowed")]
    Argument(String),
}

const NAMES: [&str; 7] = ["-pidfile", "-hostprefix", "-socketpath", "-broadcast", "-timeout", "-resendmax", "-resendtimeout"];

/// What each of [`NAMES`] takes, and means.
const MEANINGS: [(&str, &str); 7] = [
    ("file", "file to write the process ID to (default none)"),
    ("directory", "prefix of every path of the host, where the host's files are mounted elsewhere (default none)"),
    ("file", "socket to listen on, unless systemd passes one; leases are stored beside it (default /run/cni/dhcp.sock)"),
    ("", "ask servers to broadcast their replies, for links that share a hardware address"),
    ("time", "how long to wait for the reply to a message (default 10s)"),
    ("time", "the longest pause between two attempts (default 62s)"),
    ("time", "how long an ADD retries, within its caller's time limit (default 208s)"),
];

/// What `-h` shows.
fn usage() -> String {
    let line = |(name, (value, meaning)): (&&str, &(&str, &str))| format!("\n  {:<26}{meaning}", format!("{name} {value}"));
    let flags: String = NAMES.iter().zip(&MEANINGS).map(line).collect();
    format!("Usage: dhcp daemon [flags]\nRuns the daemon that renews the leases of the dhcp plugin. Flags:{flags}")
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Settings {
            pidfile: None,
            hostprefix: PathBuf::new(),
            socketpath: SOCKET.into(),
            broadcast: false,
            timeout: Duration::from_secs(10),
            resendmax: Duration::from_secs(62),
            resendtimeout: Duration::from_secs(208),
        }
    }
}

impl Settings {
    /// Reads what stands after `dhcp daemon`.
    ///
    /// # Errors
    /// [`FlagError`] naming the flag.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, FlagError> {
        let mut settings = Settings::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { return Err(FlagError::Argument(arg)) };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (flag.to_owned(), None),
            };
            if name == "h" || name == "help" {
                return Err(FlagError::Help);
            }
            // As Go has it: a switch takes no argument of its own.
            if name == "broadcast" {
                settings.broadcast = switch(&name, value.as_deref().unwrap_or("true"))?;
                continue;
            }
            if !NAMES.iter().any(|known| known.strip_prefix('-') == Some(&name)) {
                return Err(FlagError::Unknown(name));
            }
            let value = value.or_else(|| args.next()).ok_or_else(|| FlagError::NoValue(name.clone()))?;
            settings.set(&name, &value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), FlagError> {
        match name {
            "pidfile" if value.is_empty() => self.pidfile = None,
            "pidfile" if !Path::new(value).is_absolute() => return Err(bad(name, value, "an absolute path")),
            "pidfile" => self.pidfile = Some(value.into()),
            "hostprefix" => self.hostprefix = value.into(),
            "socketpath" if value.is_empty() => self.socketpath = SOCKET.into(),
            "socketpath" => self.socketpath = value.into(),
            "timeout" => self.timeout = time(name, value)?,
            "resendmax" => self.resendmax = time(name, value)?,
            _ => self.resendtimeout = time(name, value)?,
        }
        Ok(())
    }

    /// A path of the host, as it is seen from here.
    pub(crate) fn on_host(&self, path: &Path) -> PathBuf {
        on_host(&self.hostprefix, path)
    }
}

fn bad(flag: &str, value: &str, expected: &'static str) -> FlagError {
    FlagError::Value { flag: flag.to_owned(), value: value.to_owned(), expected }
}

fn switch(flag: &str, value: &str) -> Result<bool, FlagError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(bad(flag, value, "true or false")),
    }
}

fn time(flag: &str, value: &str) -> Result<Duration, FlagError> {
    duration(value).filter(|d| !d.is_zero()).ok_or_else(|| bad(flag, value, "a time such as 10s, 1m30s or 500ms"))
}

/// A time as Go writes it: numbers with units, one after the other.
pub fn duration(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (Duration::ZERO, text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (left, unit) = units.iter().find_map(|(name, unit)| Some((after.strip_prefix(name)?, unit)))?;
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = left;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Settings, FlagError> {
        Settings::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn as_units_write_them() {
        let settings = parse("-pidfile=/run/d.pid --socketpath /run/x.sock -broadcast -timeout 1m2.5s -hostprefix /host").unwrap();
        assert_eq!(settings.pidfile, Some("/run/d.pid".into()));
        assert_eq!(settings.on_host(&settings.socketpath), Path::new("/host/run/x.sock"));
        assert!(settings.broadcast && settings.timeout == Duration::from_millis(62_500));
        assert!(!parse("--broadcast=false").unwrap().broadcast);
        assert_eq!(parse(""), Ok(Settings::default()));
    }

    #[test]
    fn refusals() {
        for (line, told) in [
            ("-h", "-socketpath file"),
            ("-nonsense", "not defined: -nonsense"),
            ("-timeout", "needs an argument: -timeout"),
            ("-timeout 5", "expected a time"),
            ("-timeout 0s", "expected a time"),
            ("-pidfile x", "absolute"),
            ("-broadcast=perhaps", "true or false"),
            ("word", "only flags are allowed"),
        ] {
            let e = parse(line).unwrap_err().to_string();
            assert!(e.contains(told), "{line}: {e}");
        }
        assert_eq!(duration("1h1ms"), Some(Duration::from_millis(3_600_001)));
        for bad in ["", "s", "1", "1x", "-1s", "1.2.3s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
