//! `netloom verify --cluster` on a real Kubernetes: every case of the matrix, faults that are named, and nothing that is left.
//!
//! The host outside, which is the internet, the metadata service and the client, is a namespace on the nodes' network.

mod faults;
mod networks;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use netloom_tests::netloom;
use serde_json::{Value, json};
use testbed::{BALANCED, DefaultNetwork, Families, METADATA, NETLOOM, Options, Outside};

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
        let log = |name: &str| scene.cluster.dir().join(name);
        let mut answers = outside.den().command(netloom());
        answers.args(["probe", "serve", "--name", "outside/internet"]);
        outside.start("internet", &log("internet.log"), answers).unwrap();
        let mut metadata = outside.den().command("busybox");
        metadata.args(["httpd", "-f", "-p", &format!("{METADATA}:80"), "-h", "/usr/share"]);
        if families != Families::V6 {
            outside.start("metadata", &log("metadata.log"), metadata).unwrap();
        }
        scene.said("image, outside");
        Verified { scene, outside, families }
    }

    /// The command with everything that it needs to try every case.
    fn command(&self, more: &[&str]) -> Command {
        let (program, cluster) = (netloom().display().to_string(), &self.scene.cluster);
        let mut command = Command::new(netloom());
        command.args(["verify", "--cluster", "--image", NETLOOM, "--concurrency", "32"]);
        command.arg("--kubeconfig").arg(cluster.control().kubeconfig());
        for address in self.outside.addresses() {
            command.args(["--internet", address]);
        }
        if self.families != Families::V6 {
            command.args(["--metadata", METADATA]);
        }
        let balanced = BALANCED.split(',').filter(|range| match self.families {
            Families::V4 => !range.contains(':'),
            Families::V6 => range.contains(':'),
            Families::Dual => true,
        });
        command.args(["--load-balancer", &balanced.collect::<Vec<_>>().join(",")]);
        command.arg("--public").arg(format!("nsenter --net=/proc/{}/ns/net -- {program}", self.outside.den().pid()));
        let on_node = format!("nsenter -t $(cat {}/{{node}}.pid) --mount --pid --net --uts -- {program}", cluster.dir().display());
        command.args(["--node-command", &on_node]).args(more).stdin(Stdio::null());
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

    /// Every case of the matrix passes; those are skipped that a family cannot have.
    fn every_case_passes(&mut self, mode: &str) {
        let (verified, code) = self.run(mode, &[]);
        let failed: Vec<&Value> = verified["cases"].as_array().unwrap().iter().filter(|case| case["state"] == "failed").collect();
        assert!(code == 0 && failed.is_empty(), "{mode}: {failed:#?}");
        let not_tried = verified["cases"].as_array().unwrap().iter().filter(|case| case["id"].as_str().unwrap().parse::<u8>().is_ok());
        let not_tried: Vec<&str> = not_tried.filter(|case| case["state"] != "passed").map(|case| case["id"].as_str().unwrap()).collect();
        assert_eq!(not_tried, if self.families == Families::V6 { &["9"][..] } else { &[] }, "{mode}: {verified:#?}");
        self.nothing_is_left();
        let table = self.command(&["--test", "^(2|14|49)$"]).output().unwrap();
        println!("{}", text(&table));
    }

    fn namespaces(&self) -> String {
        self.scene.kubectl(&["get", "namespaces", "-l", "netloom.io/verify", "-o", "name"])
    }

    fn nothing_is_left(&self) {
        assert_eq!(self.namespaces(), "");
    }

    /// Begins it, and waits until its pods run.
    fn begin(&self, more: &[&str]) -> Child {
        let child = self.command(more).process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = || self.scene.kubectl(&["get", "pods", "-n", NAMESPACE, "--field-selector=status.phase=Running", "-o", "name"]);
        until("a probe runs", running, |pods| !pods.is_empty());
        child
    }
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
}

#[test]
fn faults_are_named_and_nothing_is_left() {
    let mut verified = Verified::new("verify-faults", Families::V4, "between: direct");
    verified.scene.start_proxies("nftables");

    verified.scene.cluster.node("node-1").unwrap().run(&["nft", DROPS]).unwrap();
    let (dropped, code) = verified.run("a rule that drops", &["--test", "^2$"]);
    assert_eq!(code, 3, "{dropped:#?}");
    assert_eq!(causes(&dropped), ["ForeignRuleDrops at node/node-1"], "{dropped:#?}");
    verified.scene.cluster.node("node-1").unwrap().run(&["nft", "delete table inet others"]).unwrap();
    verified.nothing_is_left();

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
    let id = interrupted.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    verified.nothing_is_left();
    verified.scene.said("interrupted");

    // A namespace that nobody verified is not touched.
    verified.scene.kubectl(&["create", "namespace", NAMESPACE]);
    let refused = verified.command(&["--test", "^1$"]).output().unwrap();
    assert!(refused.status.code() == Some(1) && text(&refused).contains("--namespace"), "{}", text(&refused));
    verified.scene.kubectl(&["get", "namespace", NAMESPACE]);
}
