//! The little of D-Bus that asking a system service takes: a connection, a call with strings, its answer.
//!
//! ```text
//! Bus::connect   unix socket, "AUTH EXTERNAL uid", Hello
//! Bus::call      METHOD_CALL -> METHOD_RETURN or ERROR        signals that come meanwhile are passed over
//! ```
//!
//! By the D-Bus specification 0.43: <https://dbus.freedesktop.org/doc/dbus-specification.html>, whose chapters the comments
//! name. Anything but strings, numbers and booleans in an answer is not read: nobody here asks for it.

mod message;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linux::Errno;
use message::{HEADER, Message};
pub use message::{Reply, parse};

/// Where the system bus listens ("System message bus").
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// The socket that a bus's address names ("Server Addresses"), as `unix:path=/run/bus`: the first one that is a path. There is
/// none in an empty address, nor in that of another transport.
pub fn socket_of(address: &str) -> Option<PathBuf> {
    let transports = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    let mut paths = transports.flat_map(|keys| keys.split(',')).filter_map(|pair| pair.strip_prefix("path="));
    paths.find_map(unescaped)
}

/// "%2f" is the byte of that number.
fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let (byte, after) = match (first, more) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?, after)
            }
            _ => (*first, more),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// An answer may be so long. The specification allows 128 MiB; what is asked for here is a word.
const MAX_MESSAGE: usize = 1 << 20;
/// Where the bus itself is, as a service.
const BUS: Object<'static> = Object { service: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

/// Where a method is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// The bus name of the service.
    pub service: &'a str,
    /// The object's path.
    pub path: &'a str,
    /// The interface that the method is of.
    pub interface: &'a str,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// Nothing listens there, or it may not be spoken to.
    #[error("cannot connect to the system bus at {}: {kind} (check that dbus-daemon runs and that its socket is visible here)", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// It does not take us for who we are.
    #[error("the system bus refused the connection: {said:?}")]
    Refused {
        /// The line that it answered with.
        said: String,
    },
    /// The connection broke, or nothing came in time.
    #[error("the system bus did not answer {method}: {kind}")]
    Connection {
        /// The method that was called.
        method: String,
        /// Why; [`io::ErrorKind::TimedOut`] when the time was over.
        kind: io::ErrorKind,
    },
    /// What came is no message.
    #[error("the system bus answered {method} with something that is not a message")]
    Malformed {
        /// The method that was called.
        method: String,
    },
    /// The service answered with an error.
    #[error("{method}: {name}: {text}")]
    Service {
        /// The method that was called.
        method: String,
        /// The error's name: `org.freedesktop.DBus.Error.ServiceUnknown`.
        name: String,
        /// What it says.
        text: String,
    },
}

/// A connection to a bus.
#[derive(Debug)]
pub struct Bus {
    stream: UnixStream,
    serial: u32,
    deadline: Instant,
}

// === impl Bus ===

impl Bus {
    /// Connects to the bus that listens at a socket. All that is asked over it must be answered by the deadline.
    ///
    /// # Errors
    /// [`BusError`]
    pub fn connect(path: &Path, uid: u32, deadline: Instant) -> Result<Self, BusError> {
        let stream = linux::local::connect(path, deadline.saturating_duration_since(Instant::now())).map_err(|errno| match errno {
            // Whose queue is full accepts nobody.
            Errno::EAGAIN => BusError::Connection { method: "connect".to_owned(), kind: io::ErrorKind::TimedOut },
            errno => BusError::Connect { path: path.to_owned(), kind: io::Error::from(errno).kind() },
        })?;
        let mut bus = Bus { stream, serial: 0, deadline };
        bus.authenticate(uid)?;
        bus.call(BUS, "Hello", &[])?;
        Ok(bus)
    }

    /// What is asked from now on must be answered by this deadline.
    pub fn answer_by(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Whether somebody has a name on the bus. Nobody is started for it.
    ///
    /// # Errors
    /// [`BusError`]
    pub fn has_owner(&mut self, name: &str) -> Result<bool, BusError> {
        Ok(self.call(BUS, "NameHasOwner", &[name])?.first() == Some(&Reply::Boolean(true)))
    }

    /// The number of the process that has a name on the bus, as the bus sees it; `None`: it does not tell.
    ///
    /// # Errors
    /// [`BusError`], also where nobody has the name.
    pub fn process_of(&mut self, name: &str) -> Result<Option<u32>, BusError> {
        match self.call(BUS, "GetConnectionUnixProcessID", &[name])?.first() {
            Some(Reply::Number(pid)) => Ok(Some(*pid)),
            _ => Ok(None),
        }
    }

    /// Calls a method with strings.
    ///
    /// # Errors
    /// [`BusError`]; an answer that is an error among them.
    pub fn call(&mut self, of: Object<'_>, method: &str, strings: &[&str]) -> Result<Vec<Reply>, BusError> {
        self.serial += 1;
        let broken = |e: io::Error| BusError::Connection { method: method.to_owned(), kind: said(&e) };
        let bytes = message::call(self.serial, of, method, strings);
        self.limit().and_then(|()| self.stream.write_all(&bytes)).map_err(broken)?;
        loop {
            let bytes = self.receive().map_err(broken)?;
            let Some(message) = parse(&bytes) else { return Err(BusError::Malformed { method: method.to_owned() }) };
            match message {
                Message { reply_to: Some(serial), error, body } if serial == self.serial => {
                    let text = || body.first().map(ToString::to_string).unwrap_or_default();
                    return match error {
                        None => Ok(body),
                        Some(name) => Err(BusError::Service { method: method.to_owned(), name, text: text() }),
                    };
                }
                // A signal, or an answer to what was asked before.
                _ => {}
            }
        }
    }

    /// "Authentication Protocol": who we are the socket says; the bus compares.
    fn authenticate(&mut self, uid: u32) -> Result<(), BusError> {
        let broken = |e: io::Error| BusError::Connection { method: "AUTH EXTERNAL".to_owned(), kind: said(&e) };
        let identity: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        self.limit().and_then(|()| self.stream.write_all(format!("\0AUTH EXTERNAL {identity}\r\n").as_bytes())).map_err(broken)?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < HEADER * 64 {
            let mut byte = [0];
            self.limit().and_then(|()| self.stream.read_exact(&mut byte)).map_err(broken)?;
            line.extend(byte);
        }
        let said = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !said.starts_with("OK") {
            return Err(BusError::Refused { said });
        }
        self.stream.write_all(b"BEGIN\r\n").map_err(broken)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; HEADER];
        self.fill(&mut bytes)?;
        let rest = message::rest(&bytes).filter(|rest| *rest <= MAX_MESSAGE).ok_or(io::ErrorKind::InvalidData)?;
        let mut more = vec![0; rest];
        self.fill(&mut more)?;
        bytes.append(&mut more);
        Ok(bytes)
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            self.limit()?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => buffer = buffer.get_mut(length..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// What is read or written next has so much time as is left.
    fn limit(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = left.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }
}

/// A socket whose time is over says that it would block.
fn said(e: &io::Error) -> io::ErrorKind {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut } else { e.kind() }
}

#[cfg(test)]
mod tests;
