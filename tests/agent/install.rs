//! `netloom agent install` and `uninstall` as a person runs them, killed at every step, and what a runtime makes of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use netloom_tests::{Host, netloom, plugin_dir};

const ENTRY: &str = "/etc/cni/net.d/00-netloom.conflist";
const DEFAULT: &str = r#"{"cniVersion": "1.0.0", "name": "default", "plugins": [{"type": "bridge", "bridge": "br0",
    "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

/// A node with a default network.
struct Node(Host);

impl Node {
    fn new() -> Self {
        let host = Host::new();
        host.write("/etc/cni/net.d/10-default.conflist", DEFAULT);
        host.write("/run/settings.yaml", "binDir: /var/lib/bin\n");
        Node(host)
    }

    fn netloom(&self, args: &[&str], vars: &[(&str, &str)]) -> Output {
        let mut command = self.0.command("", netloom());
        command.arg("agent").args(args).args(["--config", "/run/settings.yaml"]).envs(vars.iter().copied()).output().unwrap()
    }

    fn install(&self, vars: &[(&str, &str)]) -> Output {
        let program = plugin_dir().join("netloom-cni");
        self.netloom(&["install", "--multus", "--timeout", "0", "--from", program.to_str().unwrap()], vars)
    }

    fn bin(&self) -> Vec<String> {
        self.all("/var/lib/bin")
    }

    fn all(&self, dir: &str) -> Vec<String> {
        self.0.run("", &["sh", "-c", &format!("ls -A {dir} 2>/dev/null || true")]).lines().map(str::to_owned).collect()
    }

    /// Whatever is there under a name that a runtime looks for is whole.
    fn is_whole(&self, when: &str) {
        let text = self.0.run("", &["sh", "-c", &format!("cat {ENTRY} 2>/dev/null || true")]);
        assert!(text.is_empty() || serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{when}: {text}");
        for name in self.bin().iter().filter(|name| !name.starts_with('.')) {
            let program = format!("/var/lib/bin/{name}");
            if name == "netloom-cni" {
                self.0.run("", &[&program, "--version"]);
                continue;
            }
            let said = self.0.run("", &["env", "CNI_COMMAND=VERSION", &program]);
            assert!(said.contains("supportedVersions"), "{when}: {name}: {said}");
        }
    }
}

fn points(node: &Node, step: impl Fn(&Node, &[(&str, &str)]) -> Output) -> Vec<String> {
    let output = step(node, &[("NETLOOM_CRASH_TRACE", "/run/trace")]);
    assert!(output.status.success(), "{output:?}");
    let text = node.0.run("", &["cat", "/run/trace"]);
    node.0.run("", &["rm", "/run/trace"]);
    let mut times = std::collections::HashMap::<String, u32>::new();
    let number = |line: &str| {
        let name = line.split(' ').next().unwrap().to_owned();
        let time = times.entry(name.clone()).or_default();
        *time += 1;
        format!("{name}:{time}")
    };
    text.lines().map(number).collect()
}

#[test]
fn an_install_that_is_killed_leaves_nothing_half_and_nothing_behind() {
    let node = Node::new();
    let points = points(&node, Node::install);
    let own: BTreeSet<&str> =
        points.iter().filter_map(|point| point.split(':').next()).filter(|name| name.starts_with("install-")).collect();
    assert_eq!(own, BTreeSet::from(["install-copied", "install-linked", "install-replaced"]));
    let whole = ["multus", "multus-shim", "netloom", "netloom-cni"];
    assert_eq!(node.bin(), whole);
    for point in points {
        node.0.run("", &["sh", "-c", &format!("rm -rf /var/lib/bin {ENTRY}")]);
        let killed = node.install(&[("NETLOOM_CRASH_AT", &point)]);
        assert!(killed.status.code().is_none(), "{point}: {killed:?}");
        node.is_whole(&point);
        let output = node.install(&[]);
        assert!(output.status.success(), "{point}: {output:?}");
        assert_eq!(node.bin(), whole, "{point}");
        assert_eq!(node.all("/etc/cni/net.d"), ["00-netloom.conflist", "10-default.conflist"], "{point}");
        node.is_whole(&point);
    }
}

#[test]
fn an_uninstall_that_is_killed_can_be_repeated() {
    let node = Node::new();
    let uninstall = |node: &Node, vars: &[(&str, &str)]| node.netloom(&["uninstall"], vars);
    assert!(node.install(&[]).status.success());
    let points = points(&node, uninstall);
    assert!(points.contains(&"uninstall-marked:1".to_owned()) && points.contains(&"uninstall-entry-removed:1".to_owned()), "{points:?}");
    for point in points {
        assert!(node.install(&[]).status.success());
        let killed = uninstall(&node, &[("NETLOOM_CRASH_AT", &point)]);
        assert!(killed.status.code().is_none(), "{point}: {killed:?}");
        node.is_whole(&point);
        assert!(uninstall(&node, &[]).status.success(), "{point}");
        assert_eq!(node.bin(), [""; 0], "{point}");
        assert_eq!(node.all("/etc/cni/net.d"), ["10-default.conflist"], "{point}");
    }
}

#[test]
fn s48_without_a_default_network_the_runtime_has_no_configuration_of_ours() {
    let node = Node::new();
    node.0.run("", &["rm", "/etc/cni/net.d/10-default.conflist"]);
    let output = node.install(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("default network is not ready"), "{said}");
    assert!(!Path::new(&node.0.path(ENTRY)).exists());
    // The programs are there: only the last step is missing.
    node.0.write("/etc/cni/net.d/10-default.conflist", DEFAULT);
    assert!(node.install(&[]).status.success());
    let text = std::fs::read_to_string(node.0.path(ENTRY)).unwrap();
    assert!(text.contains("portMappings"), "{text}");
}
