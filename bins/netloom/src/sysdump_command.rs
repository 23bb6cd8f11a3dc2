//! `netloom sysdump`: what a bug report needs, as one archive.
//!
//! ```text
//!   node or lab --collect--> (name, bytes) --redact--> tar, gzip --> netloom-sysdump-NAME-TIME.tar.gz, or standard output
//!                                                                      versions, snapshot, settings, records, journal, logs
//!   cluster --connectivity::collect--> each node's archive by exec, logs and events by the API, with the rights of the caller --> the same
//! ```
//!
//! What cannot be collected is noted in the archive and passed over: a node in trouble is the one that matters.

mod archive;
mod cluster;
mod collect;
mod redact;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::agent_command;
use crate::cli::SysdumpArgs;
use crate::lab_command::must_be_root;
use crate::output::{GOOD, ODD, counted, eputln, putln};
use archive::Target;
pub(crate) use archive::each_snapshot;
use collect::{Collected, Collection};
pub(crate) use redact::Redactor;

pub(crate) fn run(args: &SysdumpArgs) -> anyhow::Result<ExitCode> {
    for path in &args.add {
        // A name that is mistyped would be missed when it is too late.
        std::fs::symlink_metadata(path).with_context(|| format!("--add {}", path.display()))?;
    }
    if args.cluster {
        let (name, target, collection) = cluster::collect(args)?;
        return ended(args, &name, &target, collection);
    }
    must_be_root()?;
    match &args.lab {
        Some(name) => {
            let (target, mut collection) = begin(args, name)?;
            collection.host()?;
            collect::lab(&mut collection, name)?;
            ended(args, name, &target, collection)
        }
        None => {
            let settings = agent_command::run::settings_of(args.config.as_deref())?;
            let (target, mut collection) = begin(args, &settings.node_name)?;
            collection.host()?;
            collect::node(&mut collection, &settings, args.config.as_deref(), &args.agents)?;
            ended(args, &settings.node_name, &target, collection)
        }
    }
}

/// An archive for what has this name.
fn begin(args: &SysdumpArgs, name: &str) -> anyhow::Result<(Target, Collection)> {
    let taken = daemon::log::now();
    let stamp: String = taken.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    let stem = format!("netloom-sysdump-{name}-{stamp}");
    let target = match &args.output {
        Some(path) if path == Path::new("-") => Target::Stdout,
        Some(path) => Target::File(path.clone()),
        None => Target::File(PathBuf::from(format!("{stem}.tar.gz"))),
    };
    let collection = Collection::new(&target, &stem, taken)?;
    Ok((target, collection))
}

fn ended(args: &SysdumpArgs, name: &str, target: &Target, mut collection: Collection) -> anyhow::Result<ExitCode> {
    for path in &args.add {
        collection.add_named(path)?;
    }
    let Collected { files, missing } = collection.finish()?;
    for what in &missing {
        eputln!("{ODD}warning:{ODD:#} not in the archive: {what}");
    }
    match target {
        Target::File(path) => {
            let path = path.display();
            putln!("{GOOD}{path}{GOOD:#}: {}, without secrets; look into it before you send it", counted(files, "file"));
            putln!("explain from it: netloom verify --from {path}");
        }
        Target::Stdout => eputln!("{name}: {}, without secrets; look into the archive before you send it", counted(files, "file")),
    }
    Ok(ExitCode::SUCCESS)
}
