//! After somebody has flushed the firewall: `netloom repair`, and the agent by itself.

pub(crate) mod agent;
mod cached;
mod records;
mod restart;
mod streams;
