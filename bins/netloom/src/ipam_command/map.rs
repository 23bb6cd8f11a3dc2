//! `netloom ipam map POOL`: a pool's addresses, drawn.
//!
//! ```text
//!   blocks of the pool, those beside each other as one --> Area --cells of n addresses--> Cell --> terminal, SVG
//! ```

mod area;
mod picture;

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use pool::{Family, Spec};

use area::{Area, Cell, Kind};

use super::host::Host;
use super::words;
use crate::cli::{IpamMapArgs, Store};
use crate::output::{BAD, FAINT, TITLE, columns, put, speaks_unicode};

/// Columns where there is no terminal.
const USUAL: usize = 80;
/// At most so many cells in a row, and rows for an area.
const ROW: usize = 64;
const ROWS: usize = 16;

pub(super) fn run(of: &Store, args: &IpamMapArgs) -> anyhow::Result<ExitCode> {
    let host = Host::look(of)?;
    host.names(Some(&args.pool))?;
    let spec = host.spec(&args.pool).context("the pool is gone")?;
    let areas = |row: usize| -> Vec<Area> {
        host.families(&args.pool).into_iter().flat_map(|family| area::areas(&host.seen, spec, family, row, ROWS)).collect()
    };
    match &args.svg {
        None => put!("{}", terminal(&host, spec, areas)),
        Some(path) => {
            let picture = picture::draw(&args.pool, &summary(&host, spec), &areas(ROW));
            match path.to_str() {
                Some("-") => put!("{picture}"),
                _ => std::fs::write(path, picture).with_context(|| format!("write {}", path.display()))?,
            }
        }
    }
    host.complain();
    Ok(ExitCode::SUCCESS)
}

/// A line for each family.
fn summary(host: &Host, spec: &Spec) -> Vec<String> {
    let line = |family: Family| {
        let f = host.seen.figures(&spec.name, family);
        let outside = if f.outside == 0 { String::new() } else { format!("; {} more held outside the pool", f.outside) };
        let (free, capacity) = (words::count(f.free), words::count(f.capacity));
        format!("{family}: {} held, {} cooling down, {free} free of {capacity}{outside}", f.held, f.cooling)
    };
    host.families(&spec.name).into_iter().map(line).collect()
}

fn terminal(host: &Host, spec: &Spec, areas: impl Fn(usize) -> Vec<Area>) -> String {
    let unicode = speaks_unicode();
    let mut text = format!("{TITLE}{}{TITLE:#}\n", spec.name);
    summary(host, spec).iter().for_each(|line| text += &format!("  {line}\n"));
    // As wide as the terminal, and a row is a power of two: so it begins where a network may begin.
    let label = areas(ROW).iter().flat_map(Area::labels).map(|label| label.len()).max().unwrap_or(0);
    let room = columns().unwrap_or(USUAL).saturating_sub(label + 3).clamp(8, ROW);
    let row = 1 << room.ilog2();
    let mut kinds: Vec<(Kind, bool)> = Vec::new();
    for area in areas(row) {
        let each = if area.each == 1 { String::new() } else { format!(", {} addresses per character", words::count(area.each)) };
        text += &format!("\n{TITLE}{}{TITLE:#}{each}\n", area.title());
        for (label_of_row, cells) in area.labels().into_iter().zip(area.cells.chunks(row)) {
            let signs: String = cells.iter().map(|cell| cell.painted(unicode)).collect();
            text += &format!("  {FAINT}{label_of_row:<label$}{FAINT:#} {signs}\n");
        }
        if area.rest > 0 {
            text += &format!("  {FAINT}and {} more addresses that were never used{FAINT:#}\n", words::count(area.rest));
        }
        // Whether it is all of a sign shows in what is held alone.
        kinds.extend(area.cells.iter().map(|cell| (cell.kind, cell.kind == Kind::Held && !cell.full)));
    }
    kinds.sort();
    kinds.dedup();
    let word = |kind: Kind, partly: bool| if partly { "partly held" } else { kind.word() };
    let sign = |kind: Kind, partly: bool| Cell { kind, full: !partly, told: String::new() }.painted(unicode);
    let legend: Vec<String> = kinds.into_iter().map(|(kind, partly)| format!("{} {}", sign(kind, partly), word(kind, partly))).collect();
    text + &format!("\n{}\n", legend.join("  "))
}

// === impl Cell ===

impl Cell {
    fn painted(&self, unicode: bool) -> String {
        let style = self.kind.style();
        let sign = match (self.kind, self.full, unicode) {
            (Kind::Held, true, true) => '█',
            (Kind::Held, false, true) => '▄',
            (Kind::Held, true, false) => '#',
            (Kind::Held, false, false) => '+',
            (Kind::Cooling, _, true) => '▒',
            (Kind::Cooling, _, false) => '~',
            (Kind::Quarantined, ..) => '!',
            (Kind::Free, _, true) => '·',
            (Kind::Free, _, false) => '.',
            (Kind::Kept, ..) => 'k',
            (Kind::Reserved, ..) => 'r',
            (Kind::Frozen, ..) => '*',
            (Kind::Gateway, ..) => 'g',
            (Kind::Excluded, _, true) => '×',
            (Kind::Excluded, _, false) => 'x',
        };
        format!("{style}{sign}{style:#}")
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Held => "held",
            Kind::Cooling => "cooling down",
            Kind::Quarantined => "in quarantine",
            Kind::Free => "free",
            Kind::Kept => "kept for somebody",
            Kind::Reserved => "reserved",
            Kind::Frozen => "being released",
            Kind::Gateway => "gateway",
            Kind::Excluded => "excluded",
        }
    }

    fn style(self) -> Style {
        let color = |color: AnsiColor| Style::new().fg_color(Some(anstyle::Color::Ansi(color)));
        match self {
            Kind::Held => color(AnsiColor::Green),
            Kind::Cooling => words::COOLING,
            Kind::Quarantined => BAD,
            Kind::Free => Style::new(),
            Kind::Kept => color(AnsiColor::Green),
            Kind::Reserved => color(AnsiColor::Magenta),
            Kind::Frozen => color(AnsiColor::Blue),
            Kind::Gateway => color(AnsiColor::Yellow),
            Kind::Excluded => FAINT,
        }
    }
}
