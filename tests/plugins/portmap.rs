//! `portmap`, judged by packets: who answers at a port of the host, and as whom it sees who asks.

mod conditions;
mod iptables;
mod life;
mod packets;
mod refusals;
mod rules_command;
mod scene;
mod tracked;
