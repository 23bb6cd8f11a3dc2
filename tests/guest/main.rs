//! What needs a kernel with modules; `boot` runs the tests of `kernel` and a part of `parity` in a guest.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod boot;
mod kernel;
