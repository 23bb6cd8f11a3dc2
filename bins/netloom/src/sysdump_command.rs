//! `netloom sysdump`: what a bug report needs, as one archive.
//!
//! ```text
//!   node or lab --collect--> (name, bytes) --redact--> tar, gzip --> netloom-sysdump-NAME-TIME.tar.gz
//!                                                                      versions, snapshot, settings, records, journal, logs
//! ```
//!
//! What cannot be collected is noted in the archive and passed over: a node in trouble is the one that matters.

mod archive;
mod collect;
mod redact;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::SysdumpArgs;
use crate::lab_command::must_be_root;
use crate::output::{GOOD, ODD, counted, putln};
use archive::Archive;
pub(crate) use archive::snapshot_in;
use collect::{Collected, Collection};

pub(crate) fn run(args: &SysdumpArgs) -> anyhow::Result<ExitCode> {
    must_be_root()?;
    let mut collection = Collection::new();
    let name = match &args.lab {
        Some(name) => collect::lab(&mut collection, name)?,
        None => collect::node(&mut collection, args.config.as_deref())?,
    };
    for path in &args.add {
        collection.add(Path::new("added"), path);
    }
    let stamp: String = collection.taken.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    let stem = format!("netloom-sysdump-{name}-{stamp}");
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.tar.gz")));
    let mut archive = Archive::create(&path, &stem).with_context(|| format!("write {}", path.display()))?;
    let Collected { files, missing } = collection.finish()?;
    for (name, bytes) in &files {
        archive.put(name, bytes).with_context(|| format!("write {}", path.display()))?;
    }
    archive.finish().with_context(|| format!("write {}", path.display()))?;
    for what in &missing {
        anstream::eprintln!("{ODD}warning:{ODD:#} not in the archive: {what}");
    }
    putln!("{GOOD}{}{GOOD:#}: {}, without secrets; look into it before you send it", path.display(), counted(files.len(), "file"));
    putln!("explain from it: netloom verify --from {}", path.display());
    Ok(ExitCode::SUCCESS)
}
