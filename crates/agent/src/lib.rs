//! The node's daemon: CNI calls in, attachments and status out.

pub mod install;
