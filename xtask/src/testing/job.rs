//! One process that tests something, from its command to what came of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

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
        args: &[String],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut argv = as_root();
        let limit = std::env::var("NETLOOM_TEST_LIMIT").unwrap_or_else(|_| LIMIT.as_secs().to_string());
        argv.extend(["timeout", "--foreground", "--kill-after=10", &limit].map(str::to_owned));
        let at = argv.len();
        argv.push(program.display().to_string());
        argv.extend(args.iter().cloned());
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

/// A test executable's arguments where filters narrow down what a suite runs of it: `None` if that has none of those tests.
///
/// Libtest runs what any word matches. Where the suite has words of its own, the names are looked up that match one of those as well.
pub(super) fn narrowed(program: &Path, args: &[&str], filters: &[String]) -> Result<Option<Vec<String>>> {
    let own: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    if filters.is_empty() || !has_words(args) {
        return Ok(Some([&own, filters].concat()));
    }
    let output =
        Command::new(program).args(args).args(["--list", "--format", "terse"]).output().with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{} --list: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.filter(|name| filters.iter().any(|word| name.contains(word.as_str()))).map(str::to_owned).collect();
    let flags = ["--ignored", "--include-ignored"].into_iter().filter(|flag| args.contains(flag)).chain(["--exact"]).map(str::to_owned);
    Ok((!names.is_empty()).then(|| flags.chain(names).collect()))
}

/// Whether some of libtest's arguments are words that names must contain.
fn has_words(args: &[&str]) -> bool {
    let before = std::iter::once(&"").chain(args);
    before.zip(args).any(|(before, arg)| !arg.starts_with("--") && *before != "--skip")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_from_flags() {
        let words: [(&[&str], bool); 5] = [
            (&[], false),
            (&["--ignored"], false),
            (&["--ignored", "--skip", "child"], false),
            (&["--ignored", "repair::"], true),
            (&["boot::"], true),
        ];
        words.iter().for_each(|(args, has)| assert_eq!(has_words(args), *has, "{args:?}"));
    }

    /// A suite's own words and those of its caller both hold.
    #[test]
    fn filters_choose_among_what_a_suite_runs() {
        let own = std::env::current_exe().unwrap();
        let chosen = |args: &[&str], filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(|word| (*word).to_owned()).collect();
            narrowed(&own, args, &filters).unwrap().map(|args| args.join(" "))
        };
        assert_eq!(chosen(&["report::"], &[]).unwrap(), "report::");
        assert_eq!(chosen(&["--skip", "x"], &["units"]).unwrap(), "--skip x units");
        assert_eq!(chosen(&["testing::report::"], &["units"]).unwrap(), "--exact testing::report::tests::times_have_units");
        assert_eq!(chosen(&["testing::report::"], &["filters_choose"]), None);
    }
}
