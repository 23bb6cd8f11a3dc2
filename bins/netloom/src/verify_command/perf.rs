//! `netloom verify perf`: a row for each pair of pods on each network.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use probe::Measured;
use regex_lite::Regex;
use serde::Serialize;

use super::{SOME_FAILED, cluster};
use crate::cli::PerfArgs;
use crate::lab_command::{must_be_root, open};
use crate::output::{BAD, Rows, counted, structured};

/// What was measured, for a program: times in microseconds, throughput in bits per second.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    network: String,
    from: String,
    to: String,
    address: String,
    #[serde(flatten)]
    speed: Option<SpeedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedView {
    p50: f64,
    p90: f64,
    p99: f64,
    lost: usize,
    bits_per_second: u64,
}

pub(super) fn run(args: &PerfArgs) -> anyhow::Result<ExitCode> {
    let pattern = args.network.as_deref().map(|text| Regex::new(text).with_context(|| format!("--network {text:?}"))).transpose()?;
    let wanted = |network: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(network));
    let times = (Duration::from_secs(args.duration), Duration::from_secs(args.timeout));
    let is_cluster = args.cluster.probed.wanted;
    let explains = if is_cluster { "netloom verify --cluster" } else { "netloom verify" };
    let mut report = |measured: &Measured| {
        if let Err(e) = &measured.speed {
            crate::output::eputln!(
                "{BAD}{} to {}{BAD:#} on {}: {e}; see why with {explains}",
                measured.from,
                measured.to,
                measured.network
            );
        }
    };
    let all = if is_cluster {
        cluster::perf(&args.cluster, &wanted, times, &mut report)?
    } else {
        must_be_root()?;
        lab::perf(&open(&args.which)?, &wanted, times, &mut report)?
    };
    let next = if is_cluster { "name the probes' networks with --attach" } else { "see netloom lab status" };
    anyhow::ensure!(!all.is_empty(), "no two pods have such a network in common, or nothing is promised of it: {next}");
    match args.output {
        Some(format) => structured(&all.iter().map(view).collect::<Vec<_>>(), format)?,
        None => table(&all),
    }
    Ok(if all.iter().any(|measured| measured.speed.is_err()) { ExitCode::from(SOME_FAILED) } else { ExitCode::SUCCESS })
}

fn view(measured: &Measured) -> View {
    let micros = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
    let speed = measured.speed.as_ref().ok().map(|speed| SpeedView {
        p50: micros(speed.p50),
        p90: micros(speed.p90),
        p99: micros(speed.p99),
        lost: speed.lost,
        bits_per_second: speed.bits_per_second,
    });
    View {
        network: measured.network.clone(),
        from: measured.from.to_string(),
        to: measured.to.to_string(),
        address: measured.address.to_string(),
        speed,
        error: measured.speed.as_ref().err().map(ToString::to_string),
    }
}

fn table(all: &[Measured]) {
    let mut rows = Rows::new(&["NETWORK", "FROM", "TO", "ADDRESS", "P50", "P90", "P99", "LOST", "THROUGHPUT"]);
    for measured in all {
        let mut row = vec![measured.network.clone(), measured.from.to_string(), measured.to.to_string(), measured.address.to_string()];
        match &measured.speed {
            Ok(speed) => {
                row.extend([speed.p50, speed.p90, speed.p99].map(micros));
                row.push(counted(speed.lost, "datagram"));
                row.push(bits(speed.bits_per_second as f64));
            }
            Err(_) => row.extend(["-"; 5].map(str::to_owned)),
        }
        rows.push(row);
    }
    rows.print(|_| anstyle::Style::new());
}

fn micros(time: Duration) -> String {
    format!("{:.1} \u{b5}s", time.as_secs_f64() * 1e6)
}

/// Bits in a second.
fn bits(bits: f64) -> String {
    match bits {
        bits if bits >= 1e9 => format!("{:.2} Gbit/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.2} Mbit/s", bits / 1e6),
        bits => format!("{:.2} kbit/s", bits / 1e3),
    }
}
