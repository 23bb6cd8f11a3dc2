//! Messages between `netloom-cni`, which a runtime executes, and the agent; and between the command line and the agent.
//!
//! ```text
//!   runtime --env, stdin--> netloom-cni --Call--> agent              one connection for each call
//!                                       <--Run---                    an external plugin: executed by who waits,
//!                                       ---Ran-->                    which sees the host's files (any number of times)
//!                                       <-Answer-                    what to print, and the exit code
//!   person ------argv-----> netloom ------Ask---> agent --Told--> netloom
//! ```
//!
//! A message is a length (four bytes, the highest first) and as many bytes of JSON: an object whose only key says what it is,
//! and the end of a line.
//! Executable and agent may be of different versions, so unknown keys are passed over, and missing ones have their empty
//! value unless nothing can be done without them. What need not be text stands as a string where it is UTF-8, and as
//! `{"base64": ...}` where it is not.
//!
//! ```
//! # use netloom_wire as wire;
//! use wire::{Answer, ToShim};
//! let mut sent = Vec::new();
//! wire::send(&mut sent, &ToShim::Answer(Answer { exit: 0, stdout: b"{}".to_vec(), again: false, probe: false }))?;
//! assert_eq!(sent, b"\x00\x00\x00\x24{\"answer\":{\"exit\":0,\"stdout\":\"{}\"}}\n");
//! let received: Option<ToShim> = wire::receive(&mut sent.as_slice())?;
//! assert_eq!(received, Some(ToShim::Answer(Answer { exit: 0, stdout: b"{}".to_vec(), again: false, probe: false })));
//! # Ok::<(), wire::WireError>(())
//! ```

mod admin;
mod bytes;
mod call;
mod fields;
mod frame;

pub use admin::{AdminReply, Ask};
pub use call::{Answer, Call, Ran, Run, ToAgent, ToShim};
pub use frame::{Message, WireError, framed, parse, print, receive, receive_at_most, send, send_at_most};

/// Where the agent waits for calls.
pub const SOCKET: &str = "/run/netloom/agent.sock";

/// Where the agent waits for a person's questions.
pub const ADMIN_SOCKET: &str = "/run/netloom/admin.sock";

/// The version of these messages. It grows only when an older agent or executable would do the wrong thing with a message;
/// a new key needs no new version.
pub const PROTOCOL: u32 = 1;

/// How many bytes of JSON a [`Call`] to the agent may have, and what an external plugin printed: many callers are heard at a time. A
/// configuration comes from the node's disk, and takes a few thousand.
pub const MAX_CALL: usize = 1 << 20;

/// How many bytes of JSON one message has at the most: a configuration of [`json::MAX_INPUT`] fits in, as does all that an
/// external plugin may print, however they are written.
pub const MAX_MESSAGE: usize = 2 * json::MAX_INPUT;
