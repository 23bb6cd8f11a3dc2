//! A person's question to the agent.

use json::{Object, Value};

use crate::fields::{Fields, kind, wrap};
use crate::{Message, WireError};

/// What a person wants to know, or have done: one for each connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ask {
    /// The command's word: `status`, `pods`, `explain`, ...
    pub what: String,
    /// Its arguments, by name.
    pub args: Object,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AdminReply {
    /// What was asked for.
    Value(Value),
    /// Why there is no answer, for a person.
    Refused(String),
}

impl Message for Ask {
    fn to_object(&self) -> Object {
        wrap("ask", [("what", Value::from(self.what.as_str())), ("args", Value::Object(self.args.clone()))])
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        kind(object, &["ask"])?;
        let f = Fields::of_kind("ask", object)?;
        Ok(Ask { what: f.text("what")?, args: f.object("args")? })
    }
}

impl Message for AdminReply {
    fn to_object(&self) -> Object {
        match self {
            AdminReply::Value(value) => wrap("told", [("value", value.clone())]),
            AdminReply::Refused(reason) => wrap("refused", [("reason", Value::from(reason.as_str()))]),
        }
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        match kind(object, &["told", "refused"])? {
            "told" => Ok(AdminReply::Value(Fields::of_kind("told", object)?.value("value"))),
            _ => Ok(AdminReply::Refused(Fields::of_kind("refused", object)?.text("reason")?)),
        }
    }
}
