//! Beside other programs that have rules, the real ones: nothing of theirs changes, and nothing of ours stops to work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod docker;
mod firewalld;
mod kube_proxy;

use std::process::{Child, Command, Stdio};

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Running(command.stdout(Stdio::null()).stderr(log()).spawn().unwrap())
    }
}

/// Nowhere, unless somebody wants to know why one of them does not run: `COEXISTENCE_LOG=FILE`.
fn log() -> Stdio {
    let open = |path| std::fs::File::options().create(true).append(true).open(path).unwrap();
    std::env::var_os("COEXISTENCE_LOG").map_or_else(Stdio::null, |path| open(path).into())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
