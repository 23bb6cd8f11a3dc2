//! A real Kubernetes: its kubelets start pods through containerd and `netloom-cni`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netloom_tests::{netloom, netloom_testbed, plugin_dir, seen_within};
use serde_json::{Value, json};
use testbed::{BUSYBOX, Cluster, Den, Options, PLACE, Process};

/// What a kubelet likes to change for the whole machine.
const SYSCTLS: [&str; 4] = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"];

fn name(what: &str) -> String {
    format!("test-{}-{what}", std::process::id())
}

fn options(name: &str) -> Options {
    Options::new(name, plugin_dir().join("netloom-cni"))
}

fn sysctls() -> Vec<String> {
    SYSCTLS.iter().map(|key| std::fs::read_to_string(Path::new("/proc/sys").join(key)).unwrap()).collect()
}

/// Waits until something holds; the message says what was there instead.
fn until<T: std::fmt::Debug>(what: &str, seconds: u64, look: impl FnMut() -> T, holds: impl Fn(&T) -> bool) {
    let seen = seen_within(Duration::from_secs(seconds), look, holds);
    seen.unwrap_or_else(|seen| panic!("not within {seconds} s: {what}: {seen:?}"));
}

/// Four pods, two on each node.
fn deployment() -> Value {
    let spread = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "hello"}}});
    let container = json!({"name": "hello", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hello"}, "spec": {
        "replicas": 4, "selector": {"matchLabels": {"app": "hello"}},
        "template": {"metadata": {"labels": {"app": "hello"}}, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "topologySpreadConstraints": [spread], "containers": [container]}}}})
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.control().kubectl(&["get", "pods", "-o", "json"], "").unwrap();
    serde_json::from_str::<Value>(&list).unwrap()["items"].as_array().unwrap().clone()
}

/// The names of a node's links.
fn links(cluster: &Cluster, node: usize) -> Vec<String> {
    let list: Value = serde_json::from_str(&cluster.nodes()[node].run(&["ip", "-j", "link"]).unwrap()).unwrap();
    let mut names: Vec<String> = list.as_array().unwrap().iter().map(|l| l["ifname"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// The addresses that are held on a node.
fn leases(cluster: &Cluster, node: usize) -> Vec<String> {
    let entries = std::fs::read_dir(cluster.nodes()[node].path("/var/lib/cni/networks/pods")).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("10.")).collect()
}

fn ping_each_other(cluster: &Cluster) {
    let pods = pods(cluster);
    let text = |pod: &Value, pointer: &str| pod.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {pod}")).as_str().unwrap().to_owned();
    let addresses: Vec<String> = pods.iter().map(|pod| text(pod, "/status/podIP")).collect();
    for pod in &pods {
        let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
        let subnet = cluster.node(&node).unwrap().pods()[0].trim_end_matches("0/24");
        assert!(text(pod, "/status/podIP").starts_with(subnet), "{node} has {subnet}: {pod}");
        let line: Vec<String> = addresses.iter().map(|address| format!("ping -c1 -W30 {address}")).collect();
        cluster.control().kubectl(&["exec", &name, "--", "sh", "-c", &line.join(" && ")], "").unwrap();
    }
    let on_first = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == "node-1").count();
    assert_eq!((pods.len(), on_first), (4, 2), "two pods on each node");
}

/// Nothing of the cluster is on the machine.
fn gone(name: &str) -> Result<(), String> {
    let folder = format!("netloom-testbed-{name}");
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path().join(&folder));
    let mut left: Vec<String> = hierarchies.filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    left.extend(Some(Path::new(PLACE).join(name)).filter(|dir| dir.exists()).map(|dir| dir.display().to_string()));
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let cgroups = std::fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if cgroups.contains(&folder) || command.contains(&format!("{PLACE}/{name}/")) {
            left.push(format!("process {}: {command}", process.file_name().to_string_lossy()));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
}

#[test]
fn deployment_comes_and_goes_on_two_nodes() {
    let name = name("pods");
    let sysctls_before = sysctls();
    let mut cluster = options(&name).up().unwrap();
    let control = cluster.control();
    control.apply(&deployment().to_string()).unwrap();
    let rolled = control.kubectl(&["rollout", "status", "deployment/hello", "--timeout=180s"], "");
    rolled.unwrap_or_else(|error| panic!("{error:#}\n{}", control.kubectl(&["describe", "pods"], "").unwrap()));
    ping_each_other(&cluster);
    for node in 0..2 {
        assert_eq!((cluster.nodes()[node].namespaces().len(), leases(&cluster, node).len()), (2, 2), "node {node} has two pods");
    }

    // Pods do not notice.
    let namespaces = cluster.nodes()[0].namespaces();
    cluster.nodes_mut()[0].restart_containerd().unwrap();
    cluster.nodes_mut()[0].restart_kubelet().unwrap();
    until("the kubelet knows its pods", 120, || cluster.known_pods("node-1").unwrap_or_default(), |pods| pods.len() == 2);
    cluster.alive().unwrap();
    ping_each_other(&cluster);
    assert_eq!(cluster.nodes()[0].namespaces(), namespaces);

    cluster.control().kubectl(&["delete", "deployment", "hello", "--timeout=120s"], "").unwrap();
    until("no pod is left", 120, || pods(&cluster).len(), |n| *n == 0);
    for node in 0..2 {
        until("no namespace is left", 60, || cluster.nodes()[node].namespaces(), Vec::is_empty);
        until("no address is left", 60, || leases(&cluster, node), Vec::is_empty);
        until("no link is left", 60, || links(&cluster, node), |links| *links == ["cni0", "eth0", "eth1", "lo"]);
    }
    cluster.alive().unwrap();
    drop(cluster);
    until("everything is gone", 60, || gone(&name), Result::is_ok);
    assert_eq!(sysctls(), sysctls_before);
}

/// What a person types: the cluster is held by a process of its own, and goes with it, however that ends.
#[test]
fn cluster_goes_with_its_process() {
    let name = name("killed");
    // What it starts lies beside it.
    let cni = netloom().with_file_name("netloom-cni");
    plugin_dir();
    let run = |args: &[&str]| Command::new(netloom_testbed()).args(args).args(["--name", &name]).output().unwrap();
    let up = run(&["up", "--nodes", "1"]);
    let said = String::from_utf8_lossy(&up.stdout).into_owned();
    assert!(up.status.success(), "{up:?}");
    let dir = Path::new(PLACE).join(&name);
    let config = format!("{}/control/admin.kubeconfig", dir.display());
    assert!(said.contains(&format!("export KUBECONFIG={config}\n")), "it says what to type:\n{said}");

    let kubectl = |args: &[&str]| {
        let output = Command::new(testbed::peer().unwrap()).arg("kubectl").args(args).env("KUBECONFIG", &config).output().unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {output:?}");
    };
    kubectl(&["apply", "-f", dir.join("pods.yaml").to_str().unwrap()]);
    kubectl(&["rollout", "status", "deployment/hello", "--timeout=180s"]);
    assert!(gone(&name).is_err(), "processes, files and control groups are found");
    assert!(run(&["status"]).status.success());
    assert!(Options::new(&name, &cni).up().is_err(), "there cannot be two of one name");

    let owner = testbed::owner(&name).unwrap();
    assert!(Command::new("kill").args(["-KILL", &owner.to_string()]).status().unwrap().success());
    until("nobody holds it", 60, || testbed::owner(&name), Option::is_none);
    assert!(!run(&["status"]).status.success());
    let down = run(&["down"]);
    assert!(down.status.success(), "{down:?}");
    until("everything is gone", 60, || gone(&name), Result::is_ok);
    assert!(run(&["down"]).status.success(), "it is gone already");
}

/// Somebody stops a daemon and lets it go on, and knows nothing of `nsenter` around it, which has stopped with it: it can be killed all the same.
#[test]
fn a_daemon_that_others_have_stopped_is_killed() {
    let den = Den::new(None, "").unwrap();
    let log = std::env::temp_dir().join(name("stopped"));
    // Sleeps: the daemon, which is to do nothing else.
    let mut daemon = Process::start(&den, "sleep", &log, Path::new("sleep"), &["1000".to_owned()]).unwrap();
    until("it runs", 60, || daemon.pid(), Option::is_some);
    let pid = daemon.pid().unwrap().to_string();
    let state = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    let parent = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned()
    };
    let nsenter = parent();
    let kill = |signal: &str| assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    kill("-STOP");
    until("nsenter stops with it", 60, || state(&nsenter), |state| *state == Some('T'));
    kill("-CONT");
    until("it goes on", 60, || state(&pid), |state| *state != Some('T'));
    let (sender, killed) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(daemon.kill().map_err(|e| e.to_string())));
    killed.recv_timeout(Duration::from_secs(60)).expect("it is killed within a minute").unwrap();
    std::fs::remove_file(log).unwrap();
}
