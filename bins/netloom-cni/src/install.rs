//! `netloom-cni install DIR`: one copy, and a link to it for each plugin; with `--multus` for its names, too.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;

use crate::agent;

/// Puts this executable and its names into a directory. Each is put in place with one rename, so that a runtime never
/// finds half a file; what is there under these names is replaced.
pub(crate) fn install(dir: &Path, multus: bool) -> ExitCode {
    let names: Vec<&str> = crate::plugins().map(|about| about.name).chain(multus.then_some(agent::MULTUS).into_iter().flatten()).collect();
    match put(dir, &names) {
        Ok(()) => {
            println!("installed netloom-cni as {} in {}", names.join(", "), dir.display());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("netloom-cni: install into {}: {e}", dir.display());
            ExitCode::FAILURE
        }
    }
}

fn put(dir: &Path, names: &[&str]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let own = dir.join("netloom-cni");
    in_place(&own, |new| {
        std::fs::copy("/proc/self/exe", new)?;
        std::fs::set_permissions(new, std::fs::Permissions::from_mode(0o755))
    })?;
    names.iter().try_for_each(|name| in_place(&dir.join(name), |new| symlink("netloom-cni", new)))
}

/// Makes it beside its place, then renames it there.
fn in_place(place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = place.with_file_name(format!(".{}", name.to_string_lossy()));
    let made = make(&new).and_then(|()| std::fs::rename(&new, place));
    if made.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    made
}
