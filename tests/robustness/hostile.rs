//! A hostile environment: input of every size, plugins that misbehave, paths and files that are not what they should be.
//!
//! Through the executables, as a runtime or a person would meet it. A call ends in good time and within its memory, the
//! error has the right code and says what is wrong, what was begun is undone, and nothing of somebody else is touched.

mod files;
mod names;
mod namespaces;
mod plugins;
mod sizes;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use netloom_tests::{Cni, Host, Outcome, netloom, plugin_dir};
use serde_json::{Value, json};

/// What a call may have, in MiB. The debug executables need about a tenth of it for a call that is not hostile.
const MEMORY: u64 = 64;

/// `netloom` with arguments, within [`MEMORY`].
fn command(host: &Host, args: &[&str]) -> Command {
    limited_command(host, MEMORY, args)
}

fn limited_command(host: &Host, mib: u64, args: &[&str]) -> Command {
    let mut command = host.limited(mib, netloom());
    command.args(args).env("CNI_PATH", "/run/bin");
    command
}

/// Runs it to its end.
fn outcome(mut command: Command) -> Outcome {
    let out = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome { code: out.status.code().unwrap_or(-1), stdout: text(&out.stdout), stderr: text(&out.stderr) }
}

/// An executable of a test's own on the machine, for `CNI_PATH=/run/bin`.
fn plugin(host: &Host, name: &str, script: &str) {
    host.write(&format!("/run/bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
    host.sh("", &format!("chmod 755 /run/bin/{name}"));
}

/// `bridge` on `br0`, with keys replaced.
fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// Our plugins with `/run/bin` before them on `CNI_PATH`, within [`MEMORY`], for container `c1`.
fn cni(host: &Host) -> Cni<'_> {
    let path: PathBuf = plugin_dir().into();
    host.cni(&path).set("CNI_PATH", &format!("/run/bin:{}", path.display())).limited(MEMORY).at("c1", "eth0")
}

/// A machine with a container, on which everything that the first ADD makes and nobody removes is there.
fn used() -> Host {
    let host = Host::new();
    host.container("c1");
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    let result = one.add(&bridge(json!({})));
    one.del(&bridge(json!({})), &result);
    host.write("/etc/cni/net.d/0.conf", &json!({"cniVersion": "1.0.0", "name": "first", "type": "loopback"}).to_string());
    for verb in ["add", "del"] {
        let done = outcome(command(&host, &["cni", verb, "first", "/run/netns/c1"]));
        assert_eq!(done.code, 0, "{done:?}");
    }
    host
}
