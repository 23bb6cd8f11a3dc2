//! How fast we are against the reference plugins, as whole processes: `make bench`.
//!
//! ```text
//!   Options --> two Sides, each in a namespace that stands for its host
//!            --> rounds: for each verb one side, then the other --> Figures (p50, p99, ratio) --> table, JSON
//! ```
//!
//! A round gives each side a fresh container namespace, made outside of what is timed, and runs the same configuration
//! through both: `VERSION`, `ADD`, `DEL`. Who goes first changes with every round, so that neither profits from what
//! the other one left in the caches. What is timed is what a runtime waits for: from before the fork until the process
//! is gone and its output read.

mod figures;
mod machine;
mod namespace;
mod options;
mod rounds;
mod side;

use std::process::ExitCode;

use anyhow::{Context, Result};

use options::Options;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("bench: {e:#}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            print!("{}", options::HELP);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprint!("bench: {e:#}\n\n{}", options::HELP);
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    let machine = machine::Machine::look(&options.data_dir)?;
    println!("{machine}");
    println!("rounds     {}, the two turn by turn", options.rounds);
    let figures = rounds::run(options)?;
    print!("\n{}", figures::table(&figures));
    if let Some(file) = &options.json {
        let report = figures::report(&machine, options.rounds, &figures);
        std::fs::write(file, format!("{report:#}\n")).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
