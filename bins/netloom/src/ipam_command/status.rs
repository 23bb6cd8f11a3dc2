//! `netloom ipam status`: of each pool, how many addresses are what.

use std::process::ExitCode;

use ipam::Figures;
use pool::Family;
use serde::Serialize;
use serde_json::Value;

use super::host::{Host, Origin};
use super::{NOT_WELL, addresses, words};
use crate::cli::{IpamStatusArgs, Store};
use crate::output::{BAD, FAINT, Rows, TITLE, putln, structured};

/// The columns of a bar.
const BAR: usize = 20;

/// One of the figures.
type Figure = fn(&Figures) -> u128;

/// One family of a pool.
struct Line {
    pool: String,
    family: Family,
    origin: Origin,
    figures: Figures,
}

/// The same as data.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    pool: &'a str,
    family: String,
    origin: &'static str,
    capacity: Value,
    held: u64,
    outside: u64,
    cooling: u64,
    quarantined: u64,
    free: Value,
    reserved: Value,
    frozen: Value,
}

pub(super) fn run(of: &Store, args: &IpamStatusArgs) -> anyhow::Result<ExitCode> {
    let host = Host::look(of)?;
    if args.all_addresses {
        let used = addresses::used(&host.seen.allocator, &host.names(args.pool.as_deref())?);
        match args.output {
            Some(format) => structured(&used, format)?,
            None => addresses::lines(&used).iter().for_each(|line| putln!("{line}")),
        }
        host.complain();
        return Ok(if host.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) });
    }
    let mut lines = Vec::new();
    for pool in host.names(args.pool.as_deref())? {
        let origin = host.origin(&pool);
        lines.extend(host.families(&pool).into_iter().map(|family| {
            let figures = host.seen.figures(&pool, family);
            Line { pool: pool.clone(), family, origin: origin.clone(), figures }
        }));
    }
    match args.output {
        Some(format) => structured(&lines.iter().map(Line::view).collect::<Vec<_>>(), format)?,
        None if lines.is_empty() && host.wrong.is_empty() => {
            putln!("{}", Host::none(of));
        }
        None => print(&lines),
    }
    host.complain();
    let well = host.wrong.is_empty() && !lines.iter().any(Line::is_short);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn print(lines: &[Line]) {
    let rows = rows(lines);
    let width = rows.width();
    for (i, text) in rows.lines().enumerate() {
        let Some(line) = i.checked_sub(1).and_then(|i| lines.get(i)) else {
            putln!("{TITLE}{text}{TITLE:#}");
            continue;
        };
        let style = line.style();
        let [held, cooling, quarantined] = line.parts();
        let bar = words::bar(BAR, held, cooling, quarantined, line.figures.capacity);
        putln!("{style}{text:width$}{style:#}  {bar}");
    }
}

/// What few pools have, a column only where one has it.
fn rows(lines: &[Line]) -> Rows {
    let more: [(&str, Figure); 4] = [
        ("OUTSIDE", |f| f.outside.into()),
        ("QUARANTINED", |f| f.quarantined.into()),
        ("RESERVED", |f| f.reserved),
        ("FROZEN", |f| f.frozen),
    ];
    let more: Vec<_> = more.into_iter().filter(|(_, of)| lines.iter().any(|line| of(&line.figures) > 0)).collect();
    let usual = ["POOL", "FAMILY", "CAPACITY", "HELD", "COOLING", "FREE"];
    let header: Vec<&str> = usual.into_iter().chain(more.iter().map(|(title, _)| *title)).chain(["USED"]).collect();
    let mut rows = Rows::new(&header);
    let mut last = "";
    for Line { pool, family, figures: f, .. } in lines {
        let name = if last == pool { String::new() } else { pool.clone() };
        last = pool;
        let usual = [name, family.to_string(), words::count(f.capacity), f.held.to_string(), f.cooling.to_string(), words::count(f.free)];
        let used = words::percent(f.capacity - f.free, f.capacity);
        rows.push(usual.into_iter().chain(more.iter().map(|(_, of)| words::count(of(f)))).chain([used]).collect());
    }
    rows
}

// === impl Line ===

impl Line {
    /// Nothing is left of a host's own pool. A cluster's node that uses all it has gets more when somebody waits.
    fn is_short(&self) -> bool {
        self.figures.free == 0 && matches!(self.origin, Origin::File(_) | Origin::Configuration)
    }

    /// What is held, cools down and is in quarantine, of the addresses that the percent are of: what claims alone get is none of these.
    fn parts(&self) -> [u128; 3] {
        let Figures { capacity, free, quarantined, cooling, .. } = self.figures;
        let used = capacity - free;
        let quarantined = used.min(quarantined.into());
        let cooling = (used - quarantined).min(cooling.into());
        [used - quarantined - cooling, cooling, quarantined]
    }

    fn style(&self) -> anstyle::Style {
        match self {
            _ if matches!(self.origin, Origin::Gone(_)) => FAINT,
            _ if self.is_short() => BAD,
            _ => anstyle::Style::new(),
        }
    }

    fn view(&self) -> View<'_> {
        let Figures { capacity, held, outside, cooling, quarantined, free, reserved, frozen } = self.figures;
        View {
            pool: &self.pool,
            family: self.family.to_string(),
            origin: self.origin.word(),
            capacity: words::exact(capacity),
            held,
            outside,
            cooling,
            quarantined,
            free: words::exact(free),
            reserved: words::exact(reserved),
            frozen: words::exact(frozen),
        }
    }
}
