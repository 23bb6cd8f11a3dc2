//! How things are shown: aligned tables, colours where there is a terminal, JSON and YAML.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::cli::Structured;
use crate::terminal::{plain, safe};

/// Bold, for what things are called.
pub(crate) const TITLE: Style = Style::new().bold();
/// All is well.
pub(crate) const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
/// Something is wrong.
pub(crate) const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
/// Something wants a look.
pub(crate) const ODD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));
/// Beside the point.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Prints to standard output, with colours where somebody sees them. A reader that has gone away (`| head`) is no
/// failure; a disk that is full is one, and there is nothing to go on with. While [`StdoutGuard`] is there, this process goes on.
pub(crate) fn write(text: std::fmt::Arguments<'_>) {
    hide_progress();
    let text = text.to_string();
    let mut stdout = anstream::stdout().lock();
    let Err(e) = stdout.write_all(safe(&text).as_bytes()).and_then(|()| stdout.flush()) else { return };
    if raise() {
        return;
    }
    if e.kind() != std::io::ErrorKind::BrokenPipe {
        write_error(format_args!("{BAD}error:{BAD:#} write to standard output: {e}\n"));
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// What is raised when nothing can be written to standard output.
static RAISED: Mutex<Option<Raised>> = Mutex::new(None);

struct Raised {
    /// What ends the work.
    flag: Arc<AtomicBool>,
    /// Whether it has happened.
    lost: Arc<AtomicBool>,
}

/// As long as it is there, a standard output that takes nothing more does not end this process: it raises a flag, for what has to be removed first.
pub(crate) struct StdoutGuard {
    lost: Arc<AtomicBool>,
}

// === impl StdoutGuard ===

impl StdoutGuard {
    pub(crate) fn new(flag: Arc<AtomicBool>) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        *raised() = Some(Raised { flag, lost: Arc::clone(&lost) });
        StdoutGuard { lost }
    }

    /// Whether something could not be written.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for StdoutGuard {
    fn drop(&mut self) {
        *raised() = None;
    }
}

/// Raises the flag, if this process is to go on.
fn raise() -> bool {
    let raised = raised();
    let Some(Raised { flag, lost }) = raised.as_ref() else { return false };
    lost.store(true, Ordering::Relaxed);
    flag.store(true, Ordering::Relaxed);
    true
}

fn raised() -> MutexGuard<'static, Option<Raised>> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`write()`], with arguments as `print!` has them.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// [`write()`], with arguments as `println!` has them.
macro_rules! putln {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error, as [`write()`] does to standard output. Where nobody reads it, there is nothing to be done.
pub(crate) fn write_error(text: std::fmt::Arguments<'_>) {
    hide_progress();
    let text = text.to_string();
    let _ = anstream::stderr().lock().write_all(safe(&text).as_bytes());
}

/// Since when a line of progress is shown, below all that was printed.
static PROGRESS: Mutex<Option<Instant>> = Mutex::new(None);
/// How long a line of progress stays until the next one takes its place.
const STAYS: Duration = Duration::from_millis(100);
/// To the beginning of the line, which is then empty.
const CLEAR: &[u8] = b"\r\x1b[K";

/// Shows a line on the terminal of standard error until something else is printed, or the next such line; without a terminal nothing.
pub(crate) fn show_progress(text: &str) {
    let mut shown = PROGRESS.lock().unwrap_or_else(PoisonError::into_inner);
    if shown.is_some_and(|since| since.elapsed() < STAYS) || !is_rewritable() {
        return;
    }
    *shown = Some(Instant::now());
    let _ = std::io::stderr().lock().write_all(CLEAR);
    let _ = write!(anstream::stderr().lock(), "{FAINT}{}{FAINT:#}", plain(text));
}

/// Whether standard error is a terminal whose lines can be written again.
fn is_rewritable() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

fn hide_progress() {
    if PROGRESS.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
        let _ = std::io::stderr().lock().write_all(CLEAR);
    }
}

/// [`write_error()`], with arguments as `eprintln!` has them.
macro_rules! eputln {
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {eputln, put, putln};

/// Rows under a header, columns aligned, no lines.
pub(crate) struct Rows(Table);

impl Rows {
    /// A table with a header.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(Cell::new));
        Rows(table)
    }

    /// One more row.
    pub(crate) fn push(&mut self, cells: Vec<String>) {
        self.0.add_row(cells.iter().map(|cell| plain(cell)));
    }

    /// Whether it fits the terminal; it does where there is none.
    pub(crate) fn fits(&self) -> bool {
        self.fits_in(columns())
    }

    /// Whether it fits so many columns; it does where there is no limit.
    pub(crate) fn fits_in(&self, columns: Option<usize>) -> bool {
        columns.is_none_or(|columns| self.width() <= columns)
    }

    /// Columns that its widest line takes.
    pub(crate) fn width(&self) -> usize {
        self.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// The header, then a line for each row, as no cell has a line break.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        // The preset puts a space at the left of each column.
        self.0.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned())
    }

    /// Prints it, the header in bold and each line through `paint`.
    pub(crate) fn print(&self, paint: impl Fn(&str) -> Style) {
        for (i, line) in self.lines().enumerate() {
            let style = if i == 0 { TITLE } else { paint(&line) };
            putln!("{style}{line}{style:#}");
        }
    }
}

/// A number with its noun: `1 address`, `2 addresses`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Prints a value as JSON or YAML.
pub(crate) fn structured(value: &impl Serialize, format: Structured) -> anyhow::Result<()> {
    match format {
        Structured::Json => putln!("{}", serde_json::to_string_pretty(value).context("print as JSON")?),
        // By way of one type: the printer of YAML is large, and made anew for each type that is given to it.
        Structured::Yaml => {
            let value = json::parse(&serde_json::to_vec(value).context("print as JSON")?).context("print as YAML")?;
            put!("{}", serde_saphyr::to_string(&value).context("print as YAML")?);
        }
    }
    Ok(())
}

/// Whether lines and bars can be drawn: as the locale says; without one they can, as on nearly every terminal.
pub(crate) fn speaks_unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|v| std::env::var(v).ok().filter(|v| !v.is_empty()));
    locale.is_none_or(|l| !matches!(l.as_str(), "C" | "POSIX"))
}

/// How many columns the terminal has; `None` where no terminal shows what is printed.
pub(crate) fn columns() -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size().filter(|_| std::io::stdout().is_terminal())?;
    Some(usize::from(columns))
}

/// A text in lines of so many columns: broken between words, inside a word only where it has no room at all.
pub(crate) fn wrap(text: &str, room: Option<usize>) -> Vec<String> {
    let lines = text.trim_end().split('\n').map(str::trim_end);
    let Some(room) = room else { return lines.map(str::to_owned).collect() };
    lines.flat_map(|line| wrap_line(line, room.max(1))).collect()
}

fn wrap_line(line: &str, room: usize) -> Vec<String> {
    if line.width() <= room {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in line.split(' ') {
        let width = word.width();
        let gap = if used > 0 { " " } else { "" };
        if used + gap.len() + width <= room {
            push(&mut lines, gap);
            push(&mut lines, word);
            used += gap.len() + width;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let width = c.to_string().width();
            if used + width > room {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, &c.to_string());
            used += width;
        }
    }
    lines
}

fn push(lines: &mut [String], text: &str) {
    if let Some(last) = lines.last_mut() {
        last.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_standard_output_ends_the_work_and_not_the_process() {
        let flag = Arc::new(AtomicBool::new(false));
        let guard = StdoutGuard::new(Arc::clone(&flag));
        assert!(!guard.is_lost());
        assert!(raise());
        assert!(guard.is_lost() && flag.load(Ordering::Relaxed));
        drop(guard);
        assert!(!raise());
    }
}
