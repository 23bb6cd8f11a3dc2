//! What help and man pages say beside the flags: examples, files, variables and exit codes of every command, from one table.
//!
//! ```text
//!   cli (clap: commands, flags) --+--> command(): -h, --help, completion
//!   help::pages (this table) -----+--> man(): one page for each command
//! ```

mod pages;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anstyle::Style;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::{Cli, Cnitool};

/// What a command's help has below its flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// The command without `netloom`, as `lab up`.
    pub(crate) path: &'static str,
    /// Paragraphs about what it does and does not do.
    pub(crate) notes: &'static [&'static str],
    /// A command line, and what it does.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Exit codes. Code 2, for a command line that is wrong, is common to all.
    pub(crate) exit: &'static [(&'static str, &'static str)],
    /// Files that it reads or writes.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Environment variables that no flag names.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

const WRONG: (&str, &str) = ("2", "The command line is wrong");

/// The sections in the order of a man page.
fn sections(page: &Page) -> [(&'static str, Vec<(&'static str, &'static str)>); 4] {
    let exit = if page.exit.is_empty() {
        Vec::new()
    } else {
        let mut exit = page.exit.to_vec();
        let at = exit.iter().position(|(code, _)| !["0", "1"].contains(code)).unwrap_or(exit.len());
        exit.insert(at, WRONG);
        exit
    };
    [
        ("Examples", page.examples.to_vec()),
        ("Files", page.files.to_vec()),
        ("Environment", page.environment.to_vec()),
        ("Exit status", exit),
    ]
}

/// The command line with all its help.
pub(crate) fn command() -> Command {
    with_pages(Cli::command(), "", &|text| text.to_owned())
}

/// The same for `cnitool`, which is `netloom cni` under another name.
pub(crate) fn cnitool() -> Command {
    with_pages(Cnitool::command(), "cni", &|text| text.replace("netloom cni", "cnitool"))
}

fn page(path: &str) -> Option<&'static Page> {
    pages::PAGES.iter().find(|page| page.path == path)
}

fn with_pages(mut command: Command, path: &str, rename: &dyn Fn(&str) -> String) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |sub| with_pages(sub, &path, rename));
    }
    match page(path) {
        Some(page) => command.after_help(rename(&text(page))),
        None => command,
    }
}

/// A page as a terminal shows it below the flags.
fn text(page: &Page) -> String {
    const HEADER: Style = Style::new().bold().underline();
    let mut text = page.notes.iter().map(|note| format!("{note}\n\n")).collect::<String>();
    for (title, rows) in sections(page).into_iter().filter(|(_, rows)| !rows.is_empty()) {
        let _ = writeln!(text, "{HEADER}{title}:{HEADER:#}");
        let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, what) in rows {
            // A command line has its own line, so that it can be copied.
            let _ = match title {
                "Examples" => writeln!(text, "  {key}\n      {what}"),
                _ => writeln!(text, "  {key:width$}  {what}"),
            };
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// Writes a man page for each command.
///
/// # Errors
/// What cannot be written.
pub(crate) fn man(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, "", dir)
}

fn write_page(command: &Command, path: &str, dir: &Path) -> anyhow::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let path = if path.is_empty() { sub.get_name().to_owned() } else { format!("{path} {}", sub.get_name()) };
        write_page(sub, &path, dir)?;
    }
    let man = Man::new(command.clone());
    let file = dir.join(man.get_filename());
    let mut bytes = Vec::new();
    render(&man, command, page(path), &mut bytes)
        .and_then(|()| std::fs::write(&file, bytes))
        .with_context(|| format!("write {}", file.display()))
}

fn render(man: &Man, command: &Command, page: Option<&Page>, out: &mut dyn Write) -> std::io::Result<()> {
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    let mut notes = Roff::new();
    for note in page.iter().flat_map(|page| page.notes) {
        notes.control("PP", []);
        notes.text([roman(*note)]);
    }
    notes.to_writer(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }
    let mut roff = Roff::new();
    for (title, rows) in page.map(sections).into_iter().flatten() {
        let mut rows: Vec<(String, String)> = rows.into_iter().map(|(key, what)| (key.to_owned(), what.to_owned())).collect();
        if title == "Environment" {
            rows.extend(command.get_arguments().filter_map(variable));
        }
        if rows.is_empty() {
            continue;
        }
        roff.control("SH", [title.to_uppercase().as_str()]);
        for (key, what) in rows {
            roff.control("TP", []);
            roff.text([bold(key)]);
            roff.text([roman(what)]);
        }
    }
    roff.to_writer(out)
}

/// The variable that a flag is taken from where it is not given.
fn variable(argument: &clap::Arg) -> Option<(String, String)> {
    let name = argument.get_env()?.to_string_lossy().into_owned();
    let flag = argument.get_long().map_or_else(|| argument.get_id().to_string(), |long| format!("--{long}"));
    Some((name, format!("Sets {flag} where the flag is not given")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words of help: what the command does.
    const VERBS: &[&str] = &[
        "Attach", "Bring", "Build", "Check", "Compare", "Delete", "Detach", "Draw", "Explain", "Export", "Import", "Install", "List",
        "Measure", "Print", "Release", "Remove", "Restore", "Rotate", "Run", "Show", "Take", "Trace", "Try", "Verify", "Write",
    ];

    fn each(command: &Command, path: &str, seen: &mut Vec<(String, Command)>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name()).trim().to_owned();
            seen.push((path.clone(), sub.clone()));
            each(sub, &path, seen);
        }
    }

    fn commands() -> Vec<(String, Command)> {
        let mut seen = Vec::new();
        each(&command(), "", &mut seen);
        seen
    }

    #[test]
    fn help_begins_with_a_verb_and_has_no_full_stop() {
        for (path, command) in commands() {
            let about = command.get_about().unwrap_or_else(|| panic!("{path} says nothing")).to_string();
            let verb = about.split_whitespace().next().unwrap().trim_end_matches(',');
            assert!(VERBS.contains(&verb), "{path}: {about:?} does not begin with one of {VERBS:?}");
            assert!(!about.ends_with('.'), "{path}: {about:?}");
        }
    }

    #[test]
    fn each_command_that_does_something_has_examples_and_exit_codes() {
        for (path, command) in commands().into_iter().filter(|(_, command)| command.get_subcommands().next().is_none()) {
            let page = page(&path).unwrap_or_else(|| panic!("bins/netloom/src/help/pages.rs lacks {path}"));
            assert!(!page.examples.is_empty(), "{path} has no examples");
            assert!(page.exit.iter().any(|(code, _)| code.starts_with('0')), "{path} does not say when its exit code is 0");
            let after = command.get_after_help().unwrap_or_else(|| panic!("{path}")).to_string();
            assert!(after.contains("Examples:") && after.contains("Exit status:"), "{path}: {after}");
        }
    }

    #[test]
    fn no_page_is_of_a_command_that_is_not_there_or_too_wide() {
        let commands = commands();
        for page in pages::PAGES {
            assert!(commands.iter().any(|(path, _)| path == page.path), "there is no {}", page.path);
            let lines = text(page);
            for line in lines.lines().filter(|line| !page.notes.contains(line)) {
                assert!(line.chars().filter(|c| !c.is_control()).count() <= 100, "{}: {line}", page.path);
            }
        }
    }

    /// An example that is no command line any more would be found by its reader.
    #[test]
    fn examples_are_command_lines_of_this_program() {
        for (example, _) in pages::PAGES.iter().flat_map(|page| page.examples) {
            let line = example.strip_prefix("sudo ").unwrap_or(example);
            let Some(line) = line.strip_prefix("netloom ") else { panic!("{example} does not run netloom") };
            let line = line.split(['|', '>']).next().unwrap();
            let words = ["netloom"].into_iter().chain(line.split_whitespace());
            match command().try_get_matches_from(words) {
                Ok(_) => {}
                Err(e) => panic!("{example}: {e}"),
            }
        }
    }

    #[test]
    fn man_pages_have_the_usual_sections() {
        let dir = std::env::temp_dir().join(format!("netloom-man-{}", std::process::id()));
        man(&dir).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        for (path, command) in commands().into_iter().filter(|(_, command)| command.get_subcommands().next().is_none()) {
            let page = read(&format!("netloom-{}.1", path.replace(' ', "-")));
            assert!(page.contains(".SH EXAMPLES\n") && page.contains(".SH \"EXIT STATUS\"\n"), "{path} ({}): {page}", command.get_name());
        }
        assert!(read("netloom-lab-up.1").contains(".SH ENVIRONMENT\n") && read("netloom-lab-up.1").contains(".SH FILES\n"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
