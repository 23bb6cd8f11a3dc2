//! One connection to ovsdb-server.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use json::{Object, Value};
use linux::Errno;

use crate::datum::Row;
use crate::error::OvsdbError;
use crate::frames::Frames;
use crate::message::{self, Message};
use crate::operation::{Operation, Outcome};

/// So many bytes are read at once.
const CHUNK: usize = 16 << 10;

/// A connection. Whatever it is asked must be answered by its deadline.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    socket: PathBuf,
    frames: Frames,
    serial: u64,
    deadline: Instant,
    /// What monitors have said and nobody has taken.
    updates: VecDeque<Value>,
}

/// The answer to the request of a number.
struct Answer {
    id: u64,
    result: Result<Value, Value>,
}

// === impl Client ===

impl Client {
    /// Connects to a server's socket.
    ///
    /// # Errors
    /// [`OvsdbError::Connect`]; [`OvsdbError::Connection`] if the server accepts nobody.
    pub fn connect(socket: &Path, deadline: Instant) -> Result<Self, OvsdbError> {
        let time = deadline.saturating_duration_since(Instant::now());
        let stream = linux::local::connect(socket, time).map_err(|errno| match errno {
            // Whose queue is full accepts nobody.
            Errno::EAGAIN => OvsdbError::Connection { socket: socket.to_owned(), method: "connect", kind: io::ErrorKind::TimedOut },
            errno => OvsdbError::Connect { socket: socket.to_owned(), kind: io::Error::from(errno).kind() },
        })?;
        let (socket, frames, updates) = (socket.to_owned(), Frames::new(), VecDeque::new());
        Ok(Client { stream, socket, frames, serial: 0, deadline, updates })
    }

    /// Where the server listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What is asked from now on must be answered by this deadline.
    pub fn answer_by(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Does some operations, all of them or none (RFC 7047, 4.1.3): what came of each.
    ///
    /// # Errors
    /// [`OvsdbError`]; the first operation that the database refused.
    pub fn transact(&mut self, database: &str, operations: &[Operation]) -> Result<Vec<Outcome>, OvsdbError> {
        const METHOD: &str = "transact";
        let params = [Value::from(database)].into_iter().chain(operations.iter().map(Operation::print)).collect();
        let result = self.ask(METHOD, params)?;
        let Some(list) = result.as_array() else { return Err(self.malformed(METHOD, format!("{} in place of a list", result.kind()))) };
        // What the commit itself was refused for comes behind the operations.
        let failed = |object: &Object| Some((object.str("error")?.to_owned(), object.str("details").unwrap_or_default().to_owned()));
        if let Some((error, details)) = list.iter().filter_map(Value::as_object).find_map(failed) {
            let error = if details.is_empty() { error } else { format!("{error}: {details}") };
            return Err(OvsdbError::Refused { socket: self.socket.clone(), method: METHOD, error });
        }
        match list.iter().map(Outcome::parse).collect::<Option<Vec<_>>>() {
            Some(outcomes) if outcomes.len() == operations.len() => Ok(outcomes),
            _ => Err(self.malformed(METHOD, format!("{} results for {} operations", list.len(), operations.len()))),
        }
    }

    /// Follows columns of a table (RFC 7047, 4.1.5), and returns the rows as they are. Changes come by [`Client::next_rows`].
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn monitor(&mut self, database: &str, table: &str, columns: &[&str]) -> Result<Vec<Row>, OvsdbError> {
        const METHOD: &str = "monitor";
        let columns = Value::Array(columns.iter().map(|column| (*column).into()).collect());
        let object = |key: &str, value: Value| Value::Object([(key.to_owned(), value)].into_iter().collect());
        let wanted = object(table, object("columns", columns));
        let rows = self.ask(METHOD, vec![database.into(), table.into(), wanted])?;
        rows_of(&rows, table).ok_or_else(|| self.malformed(METHOD, "rows that cannot be read".to_owned()))
    }

    /// Waits for the next change of a table that is followed: the changed rows as they are now. A row that is gone is not among them.
    ///
    /// # Errors
    /// [`OvsdbError`], with [`io::ErrorKind::TimedOut`] in it where the deadline came first.
    pub fn next_rows(&mut self, table: &str) -> Result<Vec<Row>, OvsdbError> {
        const METHOD: &str = "monitor";
        loop {
            if let Some(update) = self.updates.pop_front() {
                return rows_of(&update, table).ok_or_else(|| self.malformed(METHOD, "a change that cannot be read".to_owned()));
            }
            self.receive(METHOD)?;
        }
    }

    fn ask(&mut self, method: &'static str, params: Vec<Value>) -> Result<Value, OvsdbError> {
        self.serial += 1;
        self.send(method, &message::request(self.serial, method, params))?;
        loop {
            match self.receive(method)? {
                Some(Answer { id, result: Ok(result) }) if id == self.serial => return Ok(result),
                Some(Answer { id, result: Err(error) }) if id == self.serial => {
                    let error = error.as_str().map_or_else(|| json::compact(&error), str::to_owned);
                    return Err(OvsdbError::Refused { socket: self.socket.clone(), method, error });
                }
                // What was asked before, and not waited for to the end.
                _ => {}
            }
        }
    }

    /// One message: an answer is returned, a request answered, a change kept.
    fn receive(&mut self, method: &'static str) -> Result<Option<Answer>, OvsdbError> {
        let text = self.text(method)?;
        match Message::parse(&text) {
            Ok(Some(Message::Answer { id, result })) => Ok(Some(Answer { id, result })),
            // The server ends a connection that does not answer its probes (RFC 7047, 4.1.11).
            Ok(Some(Message::Request { method: asked, params, id })) if asked == "echo" => {
                self.send(method, &message::answer(id, params)).map(|()| None)
            }
            Ok(Some(Message::Notification { method: said, params })) if said == "update" => {
                self.updates.extend(params.into_iter().nth(1));
                Ok(None)
            }
            Ok(Some(_)) => Ok(None),
            Ok(None) => Err(self.malformed(method, "something that is not a message".to_owned())),
            Err(e) => Err(self.malformed(method, e.to_string())),
        }
    }

    fn text(&mut self, method: &'static str) -> Result<Vec<u8>, OvsdbError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.frames.next_text() {
                Ok(Some(text)) => return Ok(text),
                Ok(None) => {}
                Err(e) => return Err(self.malformed(method, e.to_string())),
            }
            let read = self.limit().and_then(|()| self.stream.read(&mut chunk));
            match read {
                Ok(0) => return Err(self.broken(method, io::ErrorKind::UnexpectedEof)),
                Ok(length) => self.frames.push(chunk.get(..length).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.broken(method, e.kind())),
            }
        }
    }

    fn send(&mut self, method: &'static str, text: &str) -> Result<(), OvsdbError> {
        let sent = self.limit().and_then(|()| self.stream.write_all(text.as_bytes()));
        sent.map_err(|e| self.broken(method, e.kind()))
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

    /// A socket whose time is over says that it would block.
    fn broken(&self, method: &'static str, kind: io::ErrorKind) -> OvsdbError {
        let kind = if kind == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut } else { kind };
        OvsdbError::Connection { socket: self.socket.clone(), method, kind }
    }

    fn malformed(&self, method: &'static str, what: String) -> OvsdbError {
        OvsdbError::Malformed { socket: self.socket.clone(), method, what }
    }
}

/// `<table-updates>` of one table: the rows that are there.
fn rows_of(updates: &Value, table: &str) -> Option<Vec<Row>> {
    let Some(rows) = updates.as_object()?.get(table) else { return Some(Vec::new()) };
    let new = |(_, update): (&str, &Value)| update.as_object().map(|update| update.get("new").map(Row::parse));
    // One without `new` is gone.
    rows.as_object()?.iter().filter_map(|row| new(row).unwrap_or(Some(None))).collect()
}
