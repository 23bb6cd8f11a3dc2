//! What a daemon says of itself: lines ([`log`]), and pages for probes ([`health`]).

pub mod health;
pub mod log;
