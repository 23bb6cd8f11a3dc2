//! Why the database could not be asked.

use std::io;
use std::path::PathBuf;

/// Why there is no answer, or none that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OvsdbError {
    /// Nobody listens there, or it may not be spoken to.
    #[error("cannot connect to ovsdb-server at {}: {kind} (check that ovsdb-server runs and that its socket is visible here)", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// The connection broke, or nothing came in time.
    #[error("ovsdb-server at {} did not answer {method}: {kind}", socket.display())]
    Connection {
        /// The socket.
        socket: PathBuf,
        /// What was asked.
        method: &'static str,
        /// Why; [`io::ErrorKind::TimedOut`] when the time was over.
        kind: io::ErrorKind,
    },
    /// What came is no answer as RFC 7047 has them.
    #[error("ovsdb-server at {} answered {method} with {what}", socket.display())]
    Malformed {
        /// The socket.
        socket: PathBuf,
        /// What was asked.
        method: &'static str,
        /// What came.
        what: String,
    },
    /// The database refused a request or one operation of a transaction: nothing of it was done.
    #[error("ovsdb-server at {} refused {method}: {error}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// What was asked.
        method: &'static str,
        /// The database's own words: `constraint violation: ...`.
        error: String,
    },
    /// ovs-vswitchd does not apply what the database has.
    #[error("ovs-vswitchd did not apply the change in time: check that ovs-vswitchd runs (database {}, cur_cfg {current}, wanted {wanted})", socket.display())]
    NotApplied {
        /// The database's socket.
        socket: PathBuf,
        /// What ovs-vswitchd has applied.
        current: i64,
        /// What it was to apply.
        wanted: i64,
    },
}

impl OvsdbError {
    /// Whether the database could not be reached at all, so that nothing was asked.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, OvsdbError::Connect { .. })
    }
}
