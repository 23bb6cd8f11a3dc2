//! A small server and a small client: who answers, and as whom the one who asks is seen.
//!
//! ```text
//!   ask --TCP, SCTP: connects----> serve:  NAME ADDRESS
//!       --UDP: NUMBER, filled up-> serve:  NUMBER NAME ADDRESS, filled up to the same length
//! ```
//!
//! A socket belongs to the namespace in which it was opened, wherever it is used: [`Listener::open`] and [`ask`] are called inside of it. One
//! thread serves any number of namespaces.
//!
//! ```text
//!   plan --checks--> run: workers --Runner::ask--> observations --verify::judge--> CaseResult, in the order of the cases
//!                                                  what failed --Runner::observe, verify::explain--> Finding
//! ```
//!
//! A [`Runner`] says how a check is asked and how the network is observed. A lab enters namespaces; a cluster executes in pods.

mod client;
mod datagram;
mod measure;
mod perf;
mod recorded;
mod run;
mod sctp;
mod server;
mod watch;
mod work;

pub use client::{Answer, AskError, Question, ask};
pub use measure::{Measured, Pair, pairs};
pub use perf::{MEASURED, Sink, Speed, speed, sustained};
pub use recorded::Recorded;
pub use run::{CaseResult, Event, Failure, Run, Runner, run};
pub use sctp::has_sctp;
pub use server::{ListenError, Listener, Transport, serve};
pub use verify::SINK;
pub use watch::{Change, LostProbe, MOST_WATCHED, Now, watch, watched};
pub use work::{Asking, Here, HereLink, Measuring, Order, Outcome, ProbeTask, Reply, Timing, work};
