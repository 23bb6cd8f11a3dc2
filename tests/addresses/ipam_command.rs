//! `netloom ipam`, run as a person runs it, beside plugins that hand out addresses. Judged by what `netloom-cni` was told, and by
//! `ip`.

mod check;
mod lab;
mod look;
mod nodes;
mod rebuild;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use netloom_tests::{Host, Outcome, netloom, plugin_dir};
use serde_json::{Value, json};

/// Where the tests have their pools: `/etc` is the machine's own.
const POOLS: &str = "/var/lib/pools";
/// Where the journal is.
const JOURNAL: &str = "/var/lib/netloom/ipam";

/// A machine with the pool `lab` and containers on a bridge. Every namespace of the real machine is looked at, so each scene has
/// addresses of its own: `net` is the beginning of its IPv4 addresses, `net6` of its IPv6 addresses.
struct Scene {
    host: Host,
    net: String,
    net6: String,
}

impl Scene {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let (net, net6) = (format!("10.{}.{n}", 20 + std::process::id() % 200), format!("fd00:{:x}:{n:x}:", std::process::id() % 65_536));
        let scene = Scene { host: Host::new(), net, net6 };
        scene.grant(&scene.dual());
        scene
    }

    fn dual(&self) -> Value {
        let Scene { net, net6, .. } = self;
        json!({"ipv4": {"entries": [{"cidr": format!("{net}.0/24")}], "gateway": format!("{net}.1")},
            "ipv6": {"entries": [{"cidr": format!("{net6}:/64")}], "gateway": format!("{net6}:1")},
            "exclude": [format!("{net}.128/25")], "reuse": {"cooldownSeconds": 3000}})
    }

    /// The pool `lab` is so from now on.
    fn grant(&self, spec: &Value) {
        let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "lab"}, "spec": spec});
        self.host.write(&format!("{POOLS}/new"), &pool.to_string());
        std::fs::rename(self.host.path(format!("{POOLS}/new")), self.host.path(format!("{POOLS}/lab.json"))).unwrap();
    }

    fn bridge() -> Value {
        json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
            "ipam": {"type": "pool", "pool": "lab", "pools": POOLS, "addWait": 0}})
    }

    /// As a runtime without a cache of results calls it.
    fn call(&self, verb: &str, container: &str) -> Outcome {
        let pod = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{container}");
        let cni = self.host.cni(plugin_dir()).at(container, "eth0").set("CNI_ARGS", &format!("IgnoreUnknown=1;{pod}"));
        cni.call(verb, "bridge", Self::bridge().to_string())
    }

    /// Makes a container and attaches it: its addresses, without prefix lengths.
    fn add(&self, container: &str) -> Vec<String> {
        self.host.container(container);
        netloom_tests::ips(&self.call("ADD", container).result())
    }

    fn del(&self, container: &str) {
        self.call("DEL", container).silent();
    }

    /// The same with `netloom cni`, which keeps results.
    fn cached_add(&self, container: &str) -> Vec<String> {
        self.host.container(container);
        let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [Self::bridge()]});
        self.host.write("/var/lib/net.d/net.conflist", &list.to_string());
        netloom_tests::ips(&serde_json::from_slice(&self.cached("add", container)).unwrap())
    }

    fn cached_del(&self, container: &str) {
        self.cached("del", container);
    }

    fn cached(&self, verb: &str, container: &str) -> Vec<u8> {
        let mut command = self.host.command("", netloom());
        command.args(["cni", verb, "net", &format!("/run/netns/{container}"), "--conf-dir", "/var/lib/net.d"]);
        let output = command.env("CNI_PATH", plugin_dir()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    /// `netloom ipam` with these arguments.
    fn ipam(&self, args: &[&str]) -> Output {
        self.command(netloom(), args).output().unwrap()
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = self.host.command("", program);
        command.args(["ipam", "--dir", JOURNAL, "--pools", POOLS]).args(args);
        command
    }

    /// The same, of which the exit code is asked and what it tells as JSON.
    fn told(&self, args: &[&str]) -> (i32, Value) {
        let output = self.ipam(&[args, &["-o", "json"]].concat());
        let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"));
        (output.status.code().unwrap(), value)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
