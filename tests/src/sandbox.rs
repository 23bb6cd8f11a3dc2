//! A sandbox, attached and detached as an agent does it.

use std::process::{Command, Stdio};

use crate::{Host, Outcome, Traces, sandbox_program};

/// A machine with the sandbox `c1`, which is attached to a bridge and to another network.
pub struct SandboxScene {
    /// The machine.
    pub host: Host,
    /// What was there when the sandbox had come and gone once.
    pub before: Traces,
}

/// Keeps a file for each container that it has attached, and takes its time where `/run/slow` is there.
const NOTER: &str = r#"#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
DEL) rm -f /run/noted-$CNI_CONTAINERID ;;
ADD)
    : >/run/noted-$CNI_CONTAINERID
    # Sleeps: a plugin that waits to be told.
    while [ -e /run/slow ]; do : >/run/waits; sleep 0.01; done
    echo '{"cniVersion":"1.0.0"}' ;;
esac
"#;

const BRIDGE: &str = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,
    "ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}]}"#;

const MACVLAN: &str = r#"{"cniVersion":"0.3.1","name":"mac","plugins":[{"type":"macvlan","master":"wire0",
    "ipam":{"type":"host-local","subnet":"10.2.0.0/24"}},{"type":"tuning","mtu":1400}]}"#;

// === impl SandboxScene ===

impl Default for SandboxScene {
    fn default() -> Self {
        SandboxScene::new()
    }
}

impl SandboxScene {
    /// A machine on which it has been attached before. The other network is somebody else's.
    pub fn new() -> Self {
        let host = Host::new();
        host.write("/run/bin/noter", NOTER);
        host.sh("", "chmod 755 /run/bin/noter");
        SandboxScene::with(host, r#"{"cniVersion":"1.0.0","name":"noted","plugins":[{"type":"noter"}]}"#)
    }

    /// The same with plugins that are all built in: it can be retired. The other network is a macvlan on `wire0`.
    pub fn builtin() -> Self {
        let host = Host::new();
        for words in ["add wire0 type veth peer name wire1", "set wire0 up", "set wire1 up"] {
            host.sh("", &format!("ip link {words}"));
        }
        SandboxScene::with(host, MACVLAN)
    }

    fn with(host: Host, second: &str) -> Self {
        host.write("/run/net/1.conflist", BRIDGE);
        host.write("/run/net/2.conflist", second);
        host.container("c1");
        let mut scene = SandboxScene { host, before: Traces::new() };
        scene.must("add");
        scene.must("del");
        scene.before = scene.host.traces();
        scene
    }

    /// A call, `add`, `del`, `retire` or `finish`, that waits for as many seconds. The networks are those in `/run/net`, in
    /// the files' order.
    pub fn command(&self, verb: &str, patience: u32) -> Command {
        self.command_for("c1", verb, patience)
    }

    /// As [`SandboxScene::command`], for any container ID, in the namespace of `c1`.
    pub fn command_for(&self, id: &str, verb: &str, patience: u32) -> Command {
        let mut command = self.host.command("", sandbox_program());
        command.args([verb, id]).env("CNI_PATH", "/run/bin").env("PATIENCE", patience.to_string());
        if verb == "add" {
            command.arg("/run/netns/c1").args(self.host.list("/run/net").iter().map(|name| format!("/run/net/{name}")));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A call, and what came of it.
    pub fn call(&self, verb: &str, patience: u32) -> Outcome {
        self.command(verb, patience).output().unwrap().into()
    }

    /// A call that succeeds.
    ///
    /// # Panics
    /// If it does not.
    pub fn must(&self, verb: &str) {
        let outcome = self.call(verb, 20);
        assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
    }

    /// As after a power cut: of the record there is only this, the lease is there, and the kernel knows nothing.
    pub fn lose(&self, left: &str) {
        self.host.write("/run/netloom/sandboxes/c1.json", left);
        self.host.sh("", "touch -d 2001-02-03 /run/netloom/sandboxes/c1.json");
        self.host.write("/var/lib/cni/networks/net/10.1.0.200", "c1\r\neth0");
    }

    /// Nothing is left of it.
    ///
    /// # Panics
    /// If something is.
    pub fn clean(&self, when: &str) {
        self.host.expect_traces(&self.before, when);
    }
}
