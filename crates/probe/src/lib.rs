//! A small server and a small client: who answers, and as whom the one who asks is seen.
//!
//! ```text
//!   ask --TCP: connects----------> serve:  NAME ADDRESS
//!       --UDP: NUMBER, filled up-> serve:  NUMBER NAME ADDRESS, filled up to the same length
//! ```
//!
//! A socket belongs to the namespace in which it was opened, wherever it is used: [`Listener::open`] and [`ask`] are called inside of it. One
//! thread serves any number of namespaces.

mod client;
mod datagram;
mod server;

pub use client::{Answer, AskError, Question, ask};
pub use server::{ListenError, Listener, Transport, serve};
