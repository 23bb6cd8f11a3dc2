//! Addresses of a cluster while things fail: real agents with pods' namespaces, the real operator, and an object store between them.
//! Judged by `netloom_tests::addresses`, which shares nothing with what hands addresses out: no address twice (O1), each in a lease
//! and in the ledger (O2), no lease of nobody (O3); how long an ADD took (O4) and what was written (O5) are printed.
//!
//! `docs/internals/ipam-failures.md` has the list of all failures and the tests of each.

mod cluster;
mod crowd;
mod faults;
mod kinds;
mod names;
mod outage;
mod returned;
mod shapes;
