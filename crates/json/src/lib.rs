//! JSON as Go's `encoding/json` reads it.
//!
//! Every program that a CNI configuration or a Kubernetes annotation was written for reads it with Go, and real
//! files rely on how Go reads: the case of an object's keys does not matter, `null` stands for "not given", the last
//! of several equal keys wins (an object over an object key by key), and unknown keys are ignored. This crate reads the same way, in one place:
//!
//! ```text
//! bytes --parse--> Value (order, duplicates and unknown keys kept) --read--> any `serde::Deserialize` type
//!                    |
//!                    +--print--> bytes: what was not understood survives the round trip
//!
//! text + path --locate--> line and column, for a message
//! ```
//!
//! ```
//! # use netloom_json as json;
//! #[derive(serde::Deserialize, Default)]
//! #[serde(default, rename_all = "camelCase")]
//! struct Bridge { is_gateway: bool, mtu: u32 }
//!
//! let value = json::parse(br#"{"ISGATEWAY": true, "mtu": null, "somebody.else/key": 1}"#)?;
//! let bridge: Bridge = json::read(&value)?;
//! assert!(bridge.is_gateway && bridge.mtu == 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod object;
mod place;
mod print;
mod read;
mod size;
mod value;

pub use error::{ParseError, ReadError};
pub use object::{Object, folded, same_key};
pub use place::{Located, Span, after_key, locate};
pub use print::{compact, indented};
pub use read::{read, read_object};
pub use size::Size;
pub use value::{Value, parse, parse_at_most};

/// The number of an input's bytes above which [`parse`] refuses it: 16 MiB. Far more than any configuration that a
/// person wrote; it bounds what a hostile one can make us hold.
pub const MAX_INPUT: usize = 16 << 20;

/// How many levels of lists and objects [`parse`] reads at the most. Who puts what was read into something larger, and
/// means to read that again, asks [`Value::depth`].
pub const MAX_DEPTH: usize = 127;
