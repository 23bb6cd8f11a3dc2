//! Images without a registry: busybox, and what holds a pod's namespaces, as one archive.
//!
//! The archive is what `docker save` writes: `manifest.json`, a configuration for each image, and one layer that both
//! share. Programs of the machine make it: `busybox` (static), `tar`, `sha256sum`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::den::printed;

/// The image of the pods that a test makes; every applet is in `/bin`. Use it with `imagePullPolicy: Never`.
pub const BUSYBOX: &str = "localhost/busybox:1";

/// The image that holds a pod's namespaces.
pub const PAUSE: &str = "localhost/pause:1";

/// The image of `netloom`, as deploy/Dockerfile makes it: [`crate::Cluster::import_netloom`].
pub const NETLOOM: &str = "localhost/netloom:1";

/// Makes the file system of `netloom`, without what a debugger needs and with what it links: a test's is no static executable.
const NETLOOM_LAYER: &str = "set -e
mkdir -p root/etc root/tmp root/proc root/sys root/dev root/run root/var
strip -o root/netloom \"$NETLOOM\"
for library in $(ldd \"$NETLOOM\" | grep -o '/[^ )]*'); do
    mkdir -p root${library%/*}
    cp -L $library root$library
done
tar -C root --owner=0 --group=0 --numeric-owner -cf layer.tar .
rm -r root
sha256sum layer.tar";

/// Makes the file system of the layer, and the layer. A container's process 1 is busybox itself.
const LAYER: &str = "set -e
busybox=$(command -v busybox)
mkdir -p root/bin root/etc root/tmp root/proc root/sys root/dev root/var/www
cp \"$busybox\" root/bin/busybox
for applet in $(\"$busybox\" --list); do [ -e root/bin/$applet ] || ln -s busybox root/bin/$applet; done
echo 'root:x:0:0:root:/:/bin/sh' >root/etc/passwd
echo 'root:x:0:' >root/etc/group
tar -C root --owner=0 --group=0 --numeric-owner -cf layer.tar .
rm -r root
sha256sum layer.tar";

/// Writes the archive `images.tar` into a directory, and removes what it is made of.
pub(crate) fn write_archive(dir: &Path) -> Result<()> {
    let image = |command: &[&str]| json!({"Cmd": command, "Env": ["PATH=/bin"]});
    let images = [(BUSYBOX, "busybox.json", image(&["sh"])), (PAUSE, "pause.json", image(&["/bin/busybox", "sleep", "2147483647"]))];
    write(dir, "images", (LAYER, Path::new("")), &images)
}

/// Writes the archive `netloom.tar` with the image of this executable.
pub(crate) fn write_netloom(dir: &Path, netloom: &Path) -> Result<()> {
    write(dir, "netloom", (NETLOOM_LAYER, netloom), &[(NETLOOM, "netloom.json", json!({"Entrypoint": ["/netloom"], "Env": ["PATH=/"]}))])
}

fn write(dir: &Path, name: &str, (layer, netloom): (&str, &Path), images: &[(&str, &str, Value)]) -> Result<()> {
    let place = dir.join(name);
    std::fs::create_dir_all(&place).context("the directory of the images")?;
    let mut shell = Command::new("sh");
    shell.args(["-c", layer]).env("NETLOOM", netloom).current_dir(&place);
    let output = shell.output().context("sh cannot be started")?;
    let sum = printed("the images' layer (busybox-static, binutils, tar, sha256sum)", output)?;
    let sum = sum.split_whitespace().next().context("sha256sum printed nothing")?;
    for (_, file, runs) in images {
        std::fs::write(place.join(file), config(sum, runs).to_string()).context("an image's configuration")?;
    }
    let manifest: Value =
        images.iter().map(|(name, file, _)| json!({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]})).collect();
    std::fs::write(place.join("manifest.json"), manifest.to_string()).context("the images' manifest")?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&place).arg("-cf").arg(dir.join(format!("{name}.tar")));
    tar.args(["manifest.json", "layer.tar"]).args(images.iter().map(|(_, file, _)| *file));
    printed("tar of the images", tar.output().context("tar cannot be started")?)?;
    std::fs::remove_dir_all(&place).context("the directory of the images")
}

fn config(layer: &str, runs: &Value) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture, "os": "linux",
        "config": runs,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    })
}
