//! A call of the runtime, and what is said until it is answered.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use json::{Object, Value};

use crate::bytes::to_value;
use crate::fields::{Fields, kind, os, pair, wrap};
use crate::{Message, WireError};

/// A call, as the runtime made it: checked by nobody but for what an executable checks before it reads its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// [`PROTOCOL`](crate::PROTOCOL) of who sends it.
    pub protocol: u32,
    /// The name under which the runtime runs us: `netloom`, `multus` or `multus-shim`.
    pub program: String,
    /// `CNI_COMMAND`: `ADD`, `DEL`, `CHECK`, `STATUS` or `GC`.
    pub verb: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_NETNS`, a path on the host.
    pub netns: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// `CNI_ARGS`
    pub args: String,
    /// `CNI_PATH`
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`: the container may share the host's namespace.
    pub netns_override: bool,
    /// Standard input, unread.
    pub config: Vec<u8>,
    /// For how many milliseconds the caller will wait; 0 where it does not say.
    pub millis: u64,
    /// Of the verb `CONFLICT`, to an IPAM plugin: the address that another machine has, and its hardware address; empty otherwise.
    pub conflict: (String, String),
}

/// From the executable to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToAgent {
    /// The first message.
    Call(Call),
    /// The answer to a [`Run`].
    Ran(Ran),
}

/// From the agent to the executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToShim {
    /// Execute this, then say how it went.
    Run(Run),
    /// The call is over.
    Answer(Answer),
}

/// An external plugin that the waiting executable is to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// The plugin, a path on the host.
    pub path: PathBuf,
    /// Variables that go over the executable's own environment, in the place of every `CNI_` variable that it has.
    pub env: Vec<(OsString, OsString)>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// Milliseconds after which it is killed.
    pub millis: u64,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// It came to its end.
    Done {
        /// Whether its exit code was 0.
        success: bool,
        /// Its exit code, or what ended it, in words.
        ended: String,
        /// Standard output.
        stdout: Vec<u8>,
        /// Standard error.
        stderr: Vec<u8>,
    },
    /// It could not be started, or was killed.
    Failed {
        /// Whether another attempt may go better, as the cause is one that passes.
        try_again: bool,
        /// Why, for a person.
        reason: String,
    },
}

/// What the runtime gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The exit code.
    pub exit: u8,
    /// Standard output: a result, an error object or nothing.
    pub stdout: Vec<u8>,
    /// An ADD has made nothing that is to be undone: the attachment had all of it before.
    pub again: bool,
    /// The network is to be asked whether another machine has the addresses, before they are set.
    pub probe: bool,
}

// === impl Call ===

impl Message for Call {
    fn to_object(&self) -> Object {
        let text = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
        let pairs = [
            ("protocol", Value::from(u64::from(self.protocol))),
            ("program", text(&self.program)),
            ("verb", text(&self.verb)),
            ("containerId", text(&self.container_id)),
            ("netns", text(&self.netns)),
            ("ifname", text(&self.ifname)),
            ("args", text(&self.args)),
            ("path", text(&self.path)),
            ("netnsOverride", if self.netns_override { Value::from(true) } else { Value::Null }),
            ("config", to_value(&self.config)),
            ("millis", if self.millis > 0 { Value::from(self.millis) } else { Value::Null }),
            ("conflict", text(&self.conflict.0)),
            ("conflictBy", text(&self.conflict.1)),
        ];
        wrap("call", pairs)
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        kind(object, &["call"])?;
        let f = Fields::of_kind("call", object)?;
        Ok(Call {
            protocol: f.number("protocol")?,
            program: f.text("program")?,
            verb: f.text("verb")?,
            container_id: f.text("containerId")?,
            netns: f.text("netns")?,
            ifname: f.text("ifname")?,
            args: f.text("args")?,
            path: f.text("path")?,
            netns_override: f.flag("netnsOverride")?,
            config: f.bytes("config")?,
            millis: if f.has("millis") { f.number("millis")? } else { 0 },
            conflict: (f.text("conflict")?, f.text("conflictBy")?),
        })
    }
}

// === impl Run ===

impl Message for Run {
    fn to_object(&self) -> Object {
        let env: Vec<Value> = self.env.iter().map(pair).collect();
        let pairs = [
            ("path", os(self.path.as_os_str())),
            ("env", Value::Array(env)),
            ("stdin", to_value(&self.stdin)),
            ("millis", Value::from(self.millis)),
        ];
        wrap("run", pairs)
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        let f = Fields::of_kind("run", object)?;
        let path = PathBuf::from(OsString::from_vec(f.bytes("path")?));
        Ok(Run { path, env: f.pairs("env")?, stdin: f.bytes("stdin")?, millis: f.number("millis")? })
    }
}

// === impl Ran ===

impl Message for Ran {
    fn to_object(&self) -> Object {
        match self {
            Ran::Done { success, ended, stdout, stderr } => {
                let pairs = [
                    ("success", Value::from(*success)),
                    ("ended", Value::from(ended.as_str())),
                    ("stdout", to_value(stdout)),
                    ("stderr", to_value(stderr)),
                ];
                wrap("ran", pairs)
            }
            Ran::Failed { try_again, reason } => {
                wrap("failed", [("tryAgain", Value::from(*try_again)), ("reason", Value::from(reason.as_str()))])
            }
        }
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        if kind(object, &["ran", "failed"])? == "failed" {
            let f = Fields::of_kind("failed", object)?;
            return Ok(Ran::Failed { try_again: f.flag("tryAgain")?, reason: f.text("reason")? });
        }
        let f = Fields::of_kind("ran", object)?;
        let (stdout, stderr) = (f.bytes("stdout")?, f.bytes("stderr")?);
        Ok(Ran::Done { success: f.needed_flag("success")?, ended: f.text("ended")?, stdout, stderr })
    }
}

// === impl Answer ===

impl Message for Answer {
    fn to_object(&self) -> Object {
        let flag = |set: bool| if set { Value::from(true) } else { Value::Null };
        let (again, probe) = (flag(self.again), flag(self.probe));
        wrap(
            "answer",
            [("exit", Value::from(u64::from(self.exit))), ("stdout", to_value(&self.stdout)), ("again", again), ("probe", probe)],
        )
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        let f = Fields::of_kind("answer", object)?;
        Ok(Answer { exit: f.number("exit")?, stdout: f.bytes("stdout")?, again: f.flag("again")?, probe: f.flag("probe")? })
    }
}

// === impl ToAgent, ToShim ===

impl Message for ToAgent {
    fn to_object(&self) -> Object {
        match self {
            ToAgent::Call(call) => call.to_object(),
            ToAgent::Ran(ran) => ran.to_object(),
        }
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        match kind(object, &["call", "ran", "failed"])? {
            "call" => Call::from_object(object).map(ToAgent::Call),
            _ => Ran::from_object(object).map(ToAgent::Ran),
        }
    }
}

impl Message for ToShim {
    fn to_object(&self) -> Object {
        match self {
            ToShim::Run(run) => run.to_object(),
            ToShim::Answer(answer) => answer.to_object(),
        }
    }

    fn from_object(object: &Object) -> Result<Self, WireError> {
        match kind(object, &["run", "answer"])? {
            "run" => Run::from_object(object).map(ToShim::Run),
            _ => Answer::from_object(object).map(ToShim::Answer),
        }
    }
}
