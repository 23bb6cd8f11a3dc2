//! A message on its way: its length, then its JSON.

use std::io::{ErrorKind, Read, Write};

use json::{Object, Value};

use crate::MAX_MESSAGE;

/// What is sent as one message.
pub trait Message: Sized {
    /// As JSON.
    fn to_object(&self) -> Object;

    /// From JSON; keys that it does not know are passed over.
    ///
    /// # Errors
    /// [`WireError`] for a message of another kind, and for a value that is not what its key needs.
    fn from_object(object: &Object) -> Result<Self, WireError>;
}

/// A message could not be sent or received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection broke.
    #[error("cannot {step}: {kind}")]
    Connection {
        /// What was attempted.
        step: &'static str,
        /// Why; [`ErrorKind::WouldBlock`] if the connection has a time limit, and it is over.
        kind: ErrorKind,
    },
    /// The connection ended in the middle of a message.
    #[error("the peer closed the connection in the middle of a message, after {received} of {length} bytes")]
    Cut {
        /// Bytes that came.
        received: usize,
        /// Bytes that were announced; 4 where the length itself did not come whole.
        length: usize,
    },
    /// More bytes than [`MAX_MESSAGE`](crate::MAX_MESSAGE). Nothing of it was sent, or read.
    #[error("a message of {length} bytes is larger than the maximum of {limit}")]
    TooLarge {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no JSON object.
    #[error("a message is not a JSON object: {reason}; check that the peer uses this protocol")]
    NotJson {
        /// What was met instead.
        reason: String,
    },
    /// A message, but none that is expected from this peer.
    #[error("a message has the keys {found:?} where one of {known:?} is expected; the peer may be a newer version")]
    Unexpected {
        /// The first keys that it has.
        found: Vec<String>,
        /// The kinds that are known.
        known: &'static [&'static str],
    },
    /// A value is not what its key needs, or not there.
    #[error("message {message:?}: {key}: expected {expected}, found {found}")]
    Field {
        /// The message's kind.
        message: &'static str,
        /// The key.
        key: &'static str,
        /// What it needs.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
}

/// A message as bytes, without its length.
pub fn print<M: Message>(message: &M) -> Vec<u8> {
    json::compact(&message.to_object()).into_bytes()
}

/// A message from bytes, without its length.
///
/// # Errors
/// [`WireError`]: everything but what only a connection can have.
pub fn parse<M: Message>(bytes: &[u8]) -> Result<M, WireError> {
    match json::parse_at_most(bytes, MAX_MESSAGE) {
        Ok(Value::Object(object)) => M::from_object(&object),
        Ok(other) => Err(WireError::NotJson { reason: format!("found {}", other.kind()) }),
        Err(json::ParseError::TooLarge { size, max }) => Err(WireError::TooLarge { length: size, limit: max }),
        Err(e) => Err(WireError::NotJson { reason: e.to_string() }),
    }
}

/// Sends one message, with one write where the connection takes it. Its last byte ends a line: a server of HTTP, which may
/// listen in the place of the one that is meant, answers when it has one, and is known by its answer.
///
/// # Errors
/// [`WireError::Connection`]; [`WireError::TooLarge`], after which another message may be sent.
pub fn send<M: Message>(w: &mut impl Write, message: &M) -> Result<(), WireError> {
    send_at_most(w, message, MAX_MESSAGE)
}

/// The same, where fewer bytes are the most that the peer reads.
///
/// # Errors
/// As [`send`].
pub fn send_at_most<M: Message>(w: &mut impl Write, message: &M, most: usize) -> Result<(), WireError> {
    let bytes = framed(message, most)?;
    w.write_all(&bytes).and_then(|()| w.flush()).map_err(|e| WireError::Connection { step: "send a message", kind: e.kind() })
}

/// A message as it is sent, with its length.
///
/// # Errors
/// [`WireError::TooLarge`]
pub fn framed<M: Message>(message: &M, most: usize) -> Result<Vec<u8>, WireError> {
    let mut json = print(message);
    json.push(b'\n');
    let limit = most.min(MAX_MESSAGE);
    let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= limit);
    let length = length.ok_or(WireError::TooLarge { length: json.len(), limit })?;
    let mut bytes = Vec::with_capacity(json.len() + 4);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

/// Receives one message; `None` if the peer has closed the connection between two of them.
///
/// # Errors
/// [`WireError`]. After one the connection is of no further use, as nobody knows where the next message begins.
pub fn receive<M: Message>(r: &mut impl Read) -> Result<Option<M>, WireError> {
    receive_at_most(r, MAX_MESSAGE)
}

/// The same, where fewer bytes are the most that is read.
///
/// # Errors
/// As [`receive`].
pub fn receive_at_most<M: Message>(r: &mut impl Read, most: usize) -> Result<Option<M>, WireError> {
    let head = piece(r, 4)?;
    let length = match <[u8; 4]>::try_from(head.as_slice()) {
        Ok(head) => usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX),
        Err(_) if head.is_empty() => return Ok(None),
        Err(_) => return Err(WireError::Cut { received: head.len(), length: 4 }),
    };
    let limit = most.min(MAX_MESSAGE);
    if length > limit {
        return Err(WireError::TooLarge { length, limit });
    }
    let body = piece(r, length)?;
    if body.len() < length {
        return Err(WireError::Cut { received: body.len(), length });
    }
    parse(&body).map(Some)
}

/// As many bytes, or fewer if the connection ends. Memory is taken as they come, so that who only announces them costs none.
fn piece(r: &mut impl Read, length: usize) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::with_capacity(length.min(64 << 10));
    match r.take(length as u64).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(WireError::Connection { step: "receive a message", kind: e.kind() }),
    }
}
