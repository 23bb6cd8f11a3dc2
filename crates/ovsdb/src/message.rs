//! The messages of JSON-RPC 1.0, as RFC 7047, 4 has them.

use json::{Object, ParseError, Value};

/// What comes from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The answer to the request of a number: its result, or why there is none.
    Answer {
        /// The request's number.
        id: u64,
        /// The result, or the error.
        result: Result<Value, Value>,
    },
    /// A request, which is to be answered under its ID: `echo`.
    Request {
        /// What is asked.
        method: String,
        /// With what.
        params: Vec<Value>,
        /// Under which ID.
        id: Value,
    },
    /// A notification, which nobody answers: `update`.
    Notification {
        /// What it is.
        method: String,
        /// Its content.
        params: Vec<Value>,
    },
}

impl Message {
    /// Reads a text. `None` within: it is JSON, and no message.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, ParseError> {
        let value = json::parse(text)?;
        Ok(value.as_object().and_then(Message::read))
    }

    fn read(object: &Object) -> Option<Self> {
        let id = object.get("id");
        if let Some(method) = object.str("method") {
            let (method, params) = (method.to_owned(), object.get("params")?.as_array()?.to_vec());
            return Some(match id {
                Some(id) => Message::Request { method, params, id: id.clone() },
                None => Message::Notification { method, params },
            });
        }
        let Some(Value::Number(id)) = id else { return None };
        let result = match object.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(object.get("result").cloned().unwrap_or_default()),
        };
        Some(Message::Answer { id: id.as_u64()?, result })
    }
}

/// A request under a number of ours.
pub(crate) fn request(id: u64, method: &str, params: Vec<Value>) -> String {
    let mut object = Object::new();
    object.set("id", id);
    object.set("method", method);
    object.set("params", Value::Array(params));
    json::compact(&object)
}

/// The answer to a request of the server's.
pub(crate) fn answer(id: Value, result: Vec<Value>) -> String {
    let mut object = Object::new();
    object.set("id", id);
    object.set("error", Value::Null);
    object.set("result", Value::Array(result));
    json::compact(&object)
}
