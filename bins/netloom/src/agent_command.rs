//! The node's agent (`run`), and what is asked of it: one file for each command.
//!
//! ```text
//!   argv -> ask: Ask over the socket, Told back -> JSON or YAML as it came
//!                                              `-> answer: its values, each of which may be missing -> page: a terminal
//! ```
//!
//! The agent may be older or newer than this program: a key that is not known is passed over (`-o json` shows it all the
//! same), one that is missing is shown as `-`.

mod answer;
mod ask;
pub(crate) mod explain;
mod laps;
pub(crate) mod nodes;
pub(crate) mod pods;
mod preflight;
mod rotate_keys;
pub(crate) mod run;
pub(crate) mod status;
#[cfg(test)]
mod tests;

pub(crate) use ask::ask;

/// The exit code where the agent answers and not all is well: it is not ready, or a pod lacks what it asked for.
pub(crate) const NOT_READY: u8 = 3;
