//! One process that tests something, from its command to what came of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::report::Outcome;

/// A process that takes longer than this is ended, and has failed: none of them takes a third of it.
const LIMIT: Duration = Duration::from_secs(1500);

/// How many tests of one executable run at a time. Most wait for other processes.
const THREADS: &str = "6";

/// A process to be run.
#[derive(Clone)]
pub(super) struct Task {
    suite: &'static str,
    /// What it is called in a line.
    label: String,
    argv: Vec<String>,
    /// Where in `argv` a test executable stands; its arguments follow.
    program: Option<usize>,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    /// Whether its output is libtest's.
    is_libtest: bool,
}

impl Task {
    pub(super) fn executable(
        suite: &'static str,
        label: &str,
        program: PathBuf,
        folder: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
        filters: &[String],
    ) -> Self {
        let mut argv = as_root();
        let limit = std::env::var("NETLOOM_TEST_LIMIT").unwrap_or_else(|_| LIMIT.as_secs().to_string());
        argv.extend(["timeout", "--foreground", "--kill-after=10", &limit].map(str::to_owned));
        let at = argv.len();
        argv.push(program.display().to_string());
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        argv.extend(filters.iter().cloned());
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Task { suite, label: label.to_owned(), argv, program: Some(at), folder: folder.to_owned(), variables, is_libtest: true }
    }

    /// The examples in the documentation of every crate.
    pub(super) fn documentation(suite: &'static str, root: &Path) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let argv = [&cargo, "test", "--workspace", "--doc", "--quiet"].map(str::to_owned).to_vec();
        Task {
            suite,
            label: "documentation".to_owned(),
            argv,
            program: None,
            folder: root.to_owned(),
            variables: Vec::new(),
            is_libtest: true,
        }
    }

    /// A command of this checkout.
    pub(super) fn command(suite: &'static str, root: &Path, argv: &[&str]) -> Self {
        let label = argv.join(" ");
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Task { suite, label, argv, program: None, folder: root.to_owned(), variables: Vec::new(), is_libtest: false }
    }

    /// The same executable, with these of its tests only, one after the other. `None` for what is no executable of ours.
    pub(super) fn only(&self, tests: &[String]) -> Option<Self> {
        let mut again = self.clone();
        again.argv.truncate(self.program? + 1);
        again.argv.extend(["--exact", "--include-ignored", "--test-threads=1"].map(str::to_owned));
        again.argv.extend(tests.iter().cloned());
        Some(again)
    }

    /// Runs it to its end.
    pub(super) fn run(&self) -> Outcome {
        let begun = Instant::now();
        let mut command = Command::new(self.argv.first().map_or("", String::as_str));
        command.args(self.argv.iter().skip(1)).current_dir(&self.folder).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.is_libtest && self.label != "documentation" {
            // What they execute was built before, and lies beside them: cargo is not asked for it.
            command.env_remove("CARGO");
            if std::env::var_os("RUST_TEST_THREADS").is_none() {
                command.env("RUST_TEST_THREADS", THREADS);
            }
        }
        let (ok, output) = match command.output() {
            Ok(output) => {
                (output.status.success(), [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
            }
            Err(error) => (false, format!("{}: {error}", self.argv.join(" "))),
        };
        Outcome::of(self.suite, &self.label, self.is_libtest, ok, output, begun.elapsed())
    }
}

/// What stands before a command that needs root: nothing where this is root.
fn as_root() -> Vec<String> {
    let id = Command::new("id").arg("-u").output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if id.is_ok_and(|id| id == "0") {
        return Vec::new();
    }
    let path = format!("PATH={}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    ["sudo", "-E", "env", &path].map(str::to_owned).to_vec()
}
