//! `netloom lab down`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::{Downed, LabName};

use super::{labs, name, plural};
use crate::cli::DownArgs;
use crate::output::{BAD, GOOD, ODD, putln};

pub(crate) fn run(args: &DownArgs) -> anyhow::Result<ExitCode> {
    super::must_be_root()?;
    linux::on_interrupt(|| crate::output::eputln!("{BAD}interrupted{BAD:#}: run the command again to continue"))
        .context("wait for Ctrl-C")?;
    if !args.all {
        take_down(&name(&args.which)?, args.force)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = labs().names()?;
    if names.is_empty() {
        putln!("no lab is up");
    }
    // One that cannot be taken down holds up no other one.
    let mut code = ExitCode::SUCCESS;
    for name in names {
        if let Err(e) = take_down(&name, args.force) {
            crate::output::eputln!("{BAD}error:{BAD:#} {e:#}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn take_down(name: &LabName, force: bool) -> anyhow::Result<()> {
    let start = Instant::now();
    let downed = lab::down(&labs(), name, force)?;
    tell(name, &downed, start.elapsed());
    Ok(())
}

fn tell(name: &LabName, downed: &Downed, took: Duration) {
    let Downed { pods, foreign, errors, .. } = downed;
    for error in errors {
        crate::output::eputln!("{ODD}warning:{ODD:#} not detached, and ignored because of --force: {error}");
    }
    for netns in foreign {
        crate::output::eputln!("{ODD}warning:{ODD:#} the network namespace {netns} does not belong to the lab, and was not removed");
    }
    let left = if errors.is_empty() { ", nothing left" } else { "" };
    let ms = took.as_secs_f64() * 1e3;
    putln!("{GOOD}lab \"{name}\" is down{GOOD:#}: {pods} pod{} detached{left}, in {ms:.0} ms", plural(*pods));
}
