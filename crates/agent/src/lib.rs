//! The node's daemon: CNI calls in, attachments and status out.

mod exec;

pub use exec::RunByCaller;
