//! `netloom lab`, and what the documents say of the commands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod command;
mod default_route;
mod device;
mod documents;
mod validate;
mod verify;
