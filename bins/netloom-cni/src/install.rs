//! `netloom-cni install DIR`: one copy, and a link to it for each plugin; with `--multus` for its names, too. With `--force` also in place of another
//! program's `ovs`.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;

use crate::agent;

/// Plugins that are not among the reference plugins: what is there under such a name is another project's, with ports of its own.
const OTHERS: [&str; 1] = ["ovs"];

/// Puts this executable and its names into a directory. Each is put in place with one rename, so that a runtime never
/// finds half a file; what is there under these names is replaced, but another project's only by `force`.
pub(crate) fn install(dir: &Path, multus: bool, force: bool) -> ExitCode {
    let names = crate::plugins().map(|about| about.name).chain(multus.then_some(agent::MULTUS).into_iter().flatten());
    let (left, names): (Vec<&str>, Vec<&str>) = names.partition(|name| !force && OTHERS.contains(name) && is_others(&dir.join(name)));
    match put(dir, &names) {
        Ok(()) => {
            println!("installed netloom-cni as {} in {}", names.join(", "), dir.display());
            for name in left {
                println!("left {} as it is, which is another program's: --force replaces it", dir.join(name).display());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("netloom-cni: install into {}: {e}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// Whether something is there that was not installed from here.
fn is_others(place: &Path) -> bool {
    place.symlink_metadata().is_ok() && !std::fs::read_link(place).is_ok_and(|to| to.ends_with("netloom-cni"))
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
