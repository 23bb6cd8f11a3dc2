//! Who may hand out an address: every order of events, explored by a model checker (`stateright`). What decides is the very code
//! that decides in a cluster; what is around it is a model of few lines.
//!
//! ```text
//!   tests/protocol   ledger::step x 2 operators, pool::Allocator and ipam::Granted x 3 hosts, an API server with versions:
//!                    blocks granted, frozen, returned; views that are old, stores and ledgers that are lost, nodes made anew
//!   tests/store      pool::Allocator x ADD, DEL, freeze at once; a disk that fails, a process that is killed at any step
//! ```
//!
//! Each guard can be taken away, and a test says what breaks then: a guard without which nothing breaks is none, and a model that
//! finds nothing sees nothing. What is found is printed with a way there, step by step.
//!
//! The bounds: blocks of two addresses, one or two cells, two or three lives of each, an attachment per host. One operator has read
//! everything; each watch of the other one may stand still once, at any time and for any time. As every write carries the version
//! that was read, this is also the write that arrives late, and the one whose answer is lost. Time does not pass: what waits for a
//! time may happen at any time.
