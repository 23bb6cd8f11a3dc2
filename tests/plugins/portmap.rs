//! `portmap`, judged by packets: who answers at a port of the host, and as whom it sees who asks.

mod conditions;
mod life;
mod packets;
mod refusals;
mod scene;
mod told;
mod tracked;
mod words;
