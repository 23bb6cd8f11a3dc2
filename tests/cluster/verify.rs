//! `netloom verify --cluster` on a real Kubernetes: every case of the matrix, faults that are named, and nothing that is left.
//!
//! The host outside, which is the internet, the metadata service and the client, is a namespace on the nodes' network.

mod asked;
mod faults;
mod networks;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use netloom_tests::{Prompted, netloom};
use serde_json::{Value, json};
use testbed::{BALANCED, DefaultNetwork, Families, NETLOOM, Options, Outside};

use crate::path::scene::{Scene, until};

/// The namespace that the command creates.
const NAMESPACE: &str = "netloom-verify";

/// A cluster, and what is outside of it.
struct Verified {
    scene: Scene,
    outside: Outside,
    families: Families,
}

/// A file of `deploy/`.
fn manifest(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy").join(name)).unwrap()
}

impl Verified {
    fn new(name: &str, families: Families, settings: &'static str) -> Self {
        let provided = |options: Options| options.nodes(2).network(DefaultNetwork::Provided(settings)).families(families);
        let mut scene = Scene::of(name, provided);
        scene.cluster.import_netloom().unwrap();
        let mut outside = scene.cluster.outside().unwrap();
        outside.serve(netloom(), scene.cluster.dir()).unwrap();
        scene.said("image, outside");
        Verified { scene, outside, families }
    }

    /// The command with everything that it needs to try every case.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(netloom());
        command.args(self.scene.cluster.verification(&self.outside, netloom())).args(["--concurrency", "32"]).args(more);
        command.stdin(Stdio::null());
        command
    }

    /// The command with another value of an option.
    fn replaced(&self, option: &str, value: &str) -> Command {
        let mut args = self.scene.cluster.verification(&self.outside, netloom());
        let at = args.iter().position(|arg| arg == option).unwrap();
        args[at + 1] = value.to_owned();
        let mut command = Command::new(netloom());
        command.args(args).stdin(Stdio::null());
        command
    }

    /// The kubeconfig of a user who has the rights of deploy/verify.yaml and no other.
    fn granted(&self) -> PathBuf {
        let control = self.scene.cluster.control();
        control.apply(&manifest("verify.yaml")).unwrap();
        self.scene.kubectl(&["create", "serviceaccount", "anna", "-n", "default"]);
        self.scene.kubectl(&["create", "clusterrolebinding", "anna", "--clusterrole=netloom-verify", "--serviceaccount=default:anna"]);
        let token = self.scene.kubectl(&["create", "token", "anna", "-n", "default"]);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": {"server": control.url(), "certificate-authority": control.ca()}}],
            "users": [{"name": "anna", "user": {"token": token.trim()}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "anna"}}],
        });
        let path = self.scene.cluster.dir().join("anna.kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// The agents' DaemonSet as it is shipped, but for what its containers run: the agents of these nodes are services.
    fn start_agents_pods(&self) {
        let text = manifest("agent.yaml").replace("image: netloom:0.1.0", &format!("image: {NETLOOM}"));
        let serves = "args: [probe, serve, --name, agent, --port, \"26999\"]";
        let text = text.replace("args: [agent, run, --config, /etc/netloom/agent.yaml]", serves);
        let text = text.replace("args: [agent, install, --no-configuration, --config, /etc/netloom/agent.yaml]", "args: [version]");
        assert!(text.contains(serves) && text.contains("args: [version]"));
        self.scene.cluster.control().apply(&text).unwrap();
        let control = self.scene.cluster.control();
        let rolled = control.kubectl(&["rollout", "status", "-n", "kube-system", "daemonset/netloom", "--timeout=80s"], "");
        let why = || control.kubectl(&["describe", "-n", "kube-system", "pods"], "").unwrap_or_default();
        rolled.unwrap_or_else(|error| panic!("{error:#}\n{}", why()));
    }

    /// What it says as data, and its exit code.
    fn run(&mut self, what: &str, more: &[&str]) -> (Value, i32) {
        let command = self.command(&[more, &["-o", "json"]].concat());
        self.said(what, command)
    }

    fn said(&mut self, what: &str, mut command: Command) -> (Value, i32) {
        let output = command.output().unwrap();
        let (code, said) = (output.status.code().unwrap_or(-1), text(&output));
        assert!(code == 0 || code == 3, "{said}\n{}", self.scene.why());
        let verified: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        self.scene.said(&format!(
            "{what}: {} passed, {} failed, in {:.1} s",
            verified["passed"],
            verified["failed"],
            verified["seconds"].as_f64().unwrap()
        ));
        (verified, code)
    }

    /// Every case of the matrix passes in each family that the cluster has, but for what a family cannot have.
    fn every_case_passes(&mut self, mode: &str) {
        let (verified, code) = self.run(mode, &[]);
        let failed: Vec<&Value> = verified["cases"].as_array().unwrap().iter().filter(|case| case["state"] == "failed").collect();
        assert!(code == 0 && failed.is_empty(), "{mode}: {failed:#?}");
        let not_tried = verified["cases"].as_array().unwrap().iter().filter(|case| case["id"].as_str().unwrap().parse::<u8>().is_ok());
        let not_tried: Vec<&str> = not_tried.filter(|case| case["state"] != "passed").map(|case| case["id"].as_str().unwrap()).collect();
        assert_eq!(not_tried, if self.families == Families::V6 { &["9"][..] } else { &[] }, "{mode}: {verified:#?}");
        // A case that passes in one family may not be tried in the other one.
        let skipped = untried(&verified);
        assert_eq!(skipped, if self.families == Families::V4 { &[][..] } else { &["9 over IPv6"] }, "{mode}: {verified:#?}");
        self.nothing_is_left();
        let table = self.command(&["--test", "^(2|14|49)$"]).output().unwrap();
        println!("{}", text(&table));
    }

    /// Each node's archive, from within its agent's pod, whose files cannot be written; the logs of the agents' pods and of one that is named, and
    /// no other's. What a pod has said of secrets is not in it.
    fn a_cluster_is_collected(&mut self) {
        let talker = |name: &str, node: &str| {
            let line = format!("echo said-by-{name}; echo password: hunter2; exec sleep 1000");
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c",
                    "image": testbed::BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", line]}]}})
        };
        for (name, node) in [("named", "node-1"), ("netloom-unnamed", "node-2")] {
            self.scene.apply(&talker(name, node));
            self.scene.kubectl(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "-n", "default", "--timeout=80s"]);
        }
        // A network of the node's own, with a secret: the runtime takes another one, which comes first.
        let config = r#"{"cniVersion":"1.0.0","name":"zz","plugins":[{"type":"loopback","args":{"apiToken":"hunter2"}}]}"#;
        let write = format!("echo '{config}' > /etc/cni/net.d/99-zz.conflist");
        self.scene.cluster.node("node-1").unwrap().run(&["sh", "-c", &write]).unwrap();
        let archive = self.scene.cluster.dir().join("dump.tar.gz");
        let mut command = Command::new(netloom());
        command.args(["sysdump", "--cluster", "--logs", "default/named", "-o"]).arg(&archive).arg("--kubeconfig");
        let said = command.arg(self.scene.cluster.control().kubeconfig()).output().unwrap();
        assert!(said.status.success(), "{}", text(&said));
        let (names, all) = unpacked(&archive);
        for name in [
            "/nodes/node-1.tar.gz",
            "/nodes/node-2.tar.gz",
            "/logs/kube-system_netloom-",
            "/logs/default_named/c.log",
            "/events/kube-system.json",
            "/events/netloom.io.json",
        ] {
            assert!(names.contains(name), "{name}: {names}\n{}", text(&said));
        }
        assert!(all.contains("said-by-named") && all.contains("password: REDACTED"), "{names}");
        assert!(!all.contains("hunter2") && !all.contains("said-by-netloom-unnamed"), "{names}");
        // A node's archive is packed in it: its secrets are looked for in what it unpacks to.
        let folder = self.scene.cluster.dir().join("dump");
        std::fs::create_dir(&folder).unwrap();
        let tar = Command::new("tar").args(["-xz", "--strip-components=1", "-C"]).arg(&folder).arg("-f").arg(&archive).status().unwrap();
        assert!(tar.success());
        let (names, all) = unpacked(&folder.join("nodes/node-1.tar.gz"));
        for name in ["/snapshot.json", "/net.d/99-zz.conflist", "/sysdump.json"] {
            assert!(names.contains(name), "{name}: {names}");
        }
        assert!(all.contains("apiToken") && all.contains("REDACTED") && !all.contains("hunter2"), "{names}");
        // The nodes' snapshots are one network, with the rule that drops on one of them.
        let mut from = Command::new(netloom());
        let from = from.args(["verify", "-o", "json", "--from"]).arg(&archive).output().unwrap();
        let explained: Value = serde_json::from_slice(&from.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&from)));
        assert_eq!(causes(&explained), ["ForeignRuleDrops at node/node-1"], "{explained:#}");
        self.scene.said("sysdump");
    }

    fn namespaces(&self) -> String {
        self.scene.kubectl(&["get", "namespaces", "-l", "netloom.io/verify", "-o", "name"])
    }

    fn nothing_is_left(&self) {
        assert_eq!(self.namespaces(), "");
    }

    /// Begins it, and waits until its pods run.
    fn begin(&self, more: &[&str]) -> Child {
        let child = self.command(more).process_group(0).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let running = || self.scene.kubectl(&["get", "pods", "-n", NAMESPACE, "--field-selector=status.phase=Running", "-o", "name"]);
        until("a probe runs", running, |pods| !pods.is_empty());
        child
    }
}

/// The names of an archive's files, and what they contain.
fn unpacked(archive: &Path) -> (String, String) {
    let tar = Command::new("tar").arg("-xzOvf").arg(archive).output().unwrap();
    assert!(tar.status.success(), "{}: {}", archive.display(), String::from_utf8_lossy(&tar.stderr));
    (String::from_utf8_lossy(&tar.stderr).into_owned(), String::from_utf8_lossy(&tar.stdout).into_owned())
}

/// Sends a signal to a command; the exit code with which it ends.
fn signalled(mut child: Child, signal: &str) -> Option<i32> {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
    child.wait().unwrap().code()
}

fn text(output: &Output) -> String {
    format!("{}\n{}\n{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The causes that it names, as `FAULT at PLACE`.
fn causes(verified: &Value) -> Vec<String> {
    let failures = verified["cases"].as_array().unwrap().iter().flat_map(|case| case["failures"].as_array().into_iter().flatten());
    let mut causes: Vec<String> =
        failures.map(|failure| format!("{} at {}", failure["fault"].as_str().unwrap(), failure["place"].as_str().unwrap())).collect();
    causes.sort();
    causes.dedup();
    causes
}

/// The parts of the matrix that were not tried, as `CASE over FAMILY`.
fn untried(verified: &Value) -> Vec<String> {
    let cases = verified["cases"].as_array().unwrap().iter().filter(|case| case["id"].as_str().unwrap().parse::<u8>().is_ok());
    let of_case = |case: &Value| {
        let parts = case["skipped"].as_array().into_iter().flatten();
        let part = |part: &Value| format!("{} over {}", case["id"].as_str().unwrap(), part["family"].as_str().unwrap_or("any family"));
        parts.map(part).collect::<Vec<_>>()
    };
    cases.flat_map(of_case).collect()
}

fn matrix(name: &str, families: Families, settings: &'static str, modes: [&str; 2]) {
    let mut verified = Verified::new(name, families, settings);
    for mode in modes {
        verified.scene.start_proxies(mode);
        verified.scene.said(mode);
        verified.every_case_passes(mode);
    }
}

#[test]
fn the_matrix_over_direct_routes() {
    matrix("verify-direct", Families::V4, "between: direct", ["nftables", "iptables"]);
}

#[test]
fn the_matrix_over_vxlan() {
    matrix("verify-vxlan", Families::V4, "between: vxlan", ["iptables", "nftables"]);
}

#[test]
fn the_matrix_over_both_families() {
    matrix("verify-dual", Families::Dual, "", ["nftables", "iptables"]);
}

#[test]
fn the_matrix_over_ipv6_alone() {
    matrix("verify-six", Families::V6, "between: vxlan", ["nftables", "iptables"]);
}

/// A rule of another program, on one node: each case that meets it names it there.
const DROPS: &str = "table inet others { chain forward { type filter hook forward priority 0; iifname netloom0 udp dport 26767 drop; }; }";

/// With the rights of the manual and no other, the agents' image, and the nodes observed by exec in the agents' pods.
#[test]
fn the_granted_rights_suffice() {
    let mut verified = Verified::new("verify-granted", Families::V4, "between: vxlan");
    verified.scene.start_proxies("nftables");
    verified.start_agents_pods();
    verified.scene.said("the agents' pods");
    verified.scene.cluster.node("node-1").unwrap().run(&["nft", DROPS]).unwrap();
    let mut command = Command::new(netloom());
    command.args(["verify", "--cluster", "-o", "json", "--test", "^(2|43)$"]).stdin(Stdio::null());
    command.arg("--load-balancer").arg(BALANCED.split(',').next().unwrap()).arg("--kubeconfig").arg(verified.granted());
    let (dropped, code) = verified.said("as a user", command);
    assert_eq!((code, &dropped["passed"]), (3, &1.into()), "{dropped:#?}");
    assert_eq!(causes(&dropped), ["ForeignRuleDrops at node/node-1"], "{dropped:#?}");
    verified.nothing_is_left();
    verified.a_cluster_is_collected();
}

#[test]
fn faults_are_named_and_nothing_is_left() {
    let mut verified = Verified::new("verify-faults", Families::V4, "between: direct");
    verified.scene.start_proxies("nftables");

    verified.scene.cluster.node("node-1").unwrap().run(&["nft", DROPS]).unwrap();
    let (dropped, code) = verified.run("a rule that drops", &["--test", "^2$"]);
    assert_eq!(code, 3, "{dropped:#?}");
    assert_eq!(causes(&dropped), ["ForeignRuleDrops at node/node-1"], "{dropped:#?}");
    verified.nothing_is_left();

    // A case that fails is waited with, until somebody presses Enter.
    let prompt = "failed; press Enter to go on";
    let mut paused = Prompted::start(&mut verified.command(&["--pause-on-fail", "--test", "^(2|43)$"]));
    paused.waits(prompt, 1);
    assert!(paused.said().contains(&format!("2 {prompt}")), "{}", paused.said());
    assert_eq!(verified.namespaces().trim(), format!("namespace/{NAMESPACE}"), "the probes stay meanwhile");
    paused.enter();
    let (status, printed) = paused.end();
    assert!(status.code() == Some(3) && printed.contains("failed   2 ") && printed.contains("passed   43 "), "{status}: {printed}");
    verified.nothing_is_left();
    // Or Ctrl-C.
    let paused = Prompted::start(&mut verified.command(&["--pause-on-fail", "--test", "^2$"]));
    paused.waits(prompt, 1);
    assert!(Command::new("kill").args(["-INT", &paused.id().to_string()]).status().unwrap().success());
    assert_eq!(paused.end().0.code(), Some(1));
    verified.scene.said("paused");
    verified.nothing_is_left();
    verified.scene.cluster.node("node-1").unwrap().run(&["nft", "delete table inet others"]).unwrap();

    // Killed: the next one removes what it left, and works.
    let mut killed = verified.begin(&[]);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(verified.namespaces().trim(), format!("namespace/{NAMESPACE}"));
    let (again, code) = verified.run("after a kill", &["--test", "^1$"]);
    assert_eq!((code, &again["passed"]), (0, &1.into()), "{again:#?}");
    verified.nothing_is_left();

    // Interrupted: it removes what it has created.
    let interrupted = verified.begin(&[]);
    assert_eq!(signalled(interrupted, "INT"), Some(1));
    verified.nothing_is_left();
    verified.scene.said("interrupted");

    // Also while it observes nodes that do not answer.
    verified.scene.cluster.node("node-1").unwrap().run(&["nft", DROPS]).unwrap();
    for signal in ["INT", "TERM", "HUP"] {
        let observing = verified.scene.cluster.dir().join("observing");
        let hangs = format!("sh -c 'touch {}; exec sleep 1000' --", observing.display());
        let child =
            verified.replaced("--node-command", &hangs).args(["--test", "^2$"]).process_group(0).stdout(Stdio::null()).spawn().unwrap();
        until("it observes", || observing.exists(), |is_there| *is_there);
        assert_eq!(signalled(child, signal), Some(1), "SIG{signal}");
        verified.nothing_is_left();
        std::fs::remove_file(observing).unwrap();
    }
    verified.scene.cluster.node("node-1").unwrap().run(&["nft", "delete table inet others"]).unwrap();
    verified.scene.said("interrupted while it observes");

    // A second one at the same time says so, and leaves the first alone.
    let first = verified.begin(&["--keep"]);
    let second = verified.command(&["--test", "^1$"]).output().unwrap();
    assert!(second.status.code() == Some(1) && text(&second).contains("in use by netloom verify, process "), "{}", text(&second));
    verified.scene.kubectl(&["get", "namespace", NAMESPACE]);
    verified.scene.said("two at once");

    // What has its namespace's name by the time it ends is not removed.
    verified.scene.kubectl(&["delete", "namespace", NAMESPACE, "--wait"]);
    verified.scene.kubectl(&["create", "namespace", NAMESPACE]);
    let lost = first.wait_with_output().unwrap();
    assert!(lost.status.code() == Some(1) && text(&lost).contains("was removed while it was in use"), "{}", text(&lost));
    verified.scene.kubectl(&["get", "namespace", NAMESPACE]);
    verified.scene.kubectl(&["delete", "namespace", NAMESPACE, "--wait"]);

    // A namespace that nobody verified is not touched.
    verified.scene.kubectl(&["create", "namespace", NAMESPACE]);
    let refused = verified.command(&["--test", "^1$"]).output().unwrap();
    assert!(refused.status.code() == Some(1) && text(&refused).contains("--namespace"), "{}", text(&refused));
    let elsewhere = verified.command(&["--test", "^1$", "--namespace", "elsewhere"]).output().unwrap();
    assert!(elsewhere.status.success() && text(&elsewhere).contains("removing namespace elsewhere"), "{}", text(&elsewhere));
    verified.scene.kubectl(&["get", "namespace", NAMESPACE]);
}
