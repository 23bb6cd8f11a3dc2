//! The manifests in `deploy/`, against a real API server: they apply, and an agent may do what it needs and nothing else.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use netloom_tests::{Host, netloom, plugin_dir, seen_within};
use serde_json::{Value, json};
use testbed::ControlPlane;

const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy")
}

/// A control plane on which the manifests were applied, as the manual says.
pub(crate) fn plane(name: &str) -> ControlPlane {
    let plane = ControlPlane::start(std::env::temp_dir().join(format!("netloom-deploy-{name}-{}", std::process::id()))).unwrap();
    plane.kubectl(&["apply", "-f", deploy().to_str().unwrap()], "").unwrap();
    plane
}

#[test]
fn s6_the_manifests_apply_and_apply_again() {
    let plane = plane("apply");
    let again = plane.kubectl(&["apply", "-f", deploy().to_str().unwrap()], "").unwrap();
    assert!(again.lines().count() >= 7 && again.lines().all(|line| line.ends_with("unchanged")), "{again}");
    plane.served("network-attachment-definitions.k8s.cni.cncf.io").unwrap();
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "default"}, "spec": {"config": "{}"},
    });
    plane.apply(&definition.to_string()).unwrap();
    for name in ["net-attach-def", "nad", "network-attachment-definition.k8s.cni.cncf.io"] {
        assert_eq!(plane.kubectl(&["get", name, "-o", "name"], "").unwrap().lines().count(), 1, "{name}");
    }
    let set: Value =
        serde_json::from_str(&plane.kubectl(&["get", "-n", "kube-system", "daemonset", "netloom", "-o", "json"], "").unwrap()).unwrap();
    let pod = &set["spec"]["template"]["spec"];
    for container in [&pod["containers"][0], &pod["initContainers"][0]] {
        assert_eq!(container["securityContext"]["privileged"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    }
    // A pod made from it is accepted too, service account, priority and all.
    let one = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "netloom-x", "namespace": "kube-system"}, "spec": pod});
    plane.kubectl(&["apply", "--dry-run=server", "-f", "-"], &one.to_string()).unwrap();
    // The manual's way to let agents see the sockets of vhost-user ports: nothing but that is added, and a pod of it is accepted.
    let file = deploy().join("openstack/patches/vhost-user.yaml");
    let patched =
        ["patch", "-n", "kube-system", "daemonset", "netloom", "--patch-file", file.to_str().unwrap(), "--dry-run=server", "-o", "json"];
    let patched: Value = serde_json::from_str(&plane.kubectl(&patched, "").unwrap()).unwrap();
    let (with, without) = (&patched["spec"]["template"]["spec"], pod);
    let added = |list: &str, of: fn(&Value) -> &Value| {
        let all = |pod: &Value| of(pod)[list].as_array().unwrap().clone();
        let before = all(without);
        all(with).into_iter().filter(|one| !before.contains(one)).collect::<Vec<_>>()
    };
    let mounts = added("volumeMounts", |pod| &pod["containers"][0]);
    let volumes = added("volumes", |pod| pod);
    assert_eq!(mounts, [json!({"name": "vhost-sockets", "mountPath": "/var/lib/vhost_sockets", "mountPropagation": "HostToContainer"})]);
    assert_eq!(volumes, [json!({"name": "vhost-sockets", "hostPath": {"path": "/var/lib/vhost_sockets", "type": "DirectoryOrCreate"}})]);
    let one = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "netloom-y", "namespace": "kube-system"}, "spec": with});
    plane.kubectl(&["apply", "--dry-run=server", "-f", "-"], &one.to_string()).unwrap();
    // The manual's way to take it off all nodes.
    let patch = r#"[{"op": "replace", "path": "/spec/template/spec/initContainers/0/args", "value": ["agent", "uninstall"]}]"#;
    plane.kubectl(&["patch", "-n", "kube-system", "daemonset", "netloom", "--type=json", "-p", patch], "").unwrap();
    plane.kubectl(&["delete", "-f", deploy().to_str().unwrap()], "").unwrap();
}

/// Lists of words: `[a, b]` of YAML's, `["a", "b"]` of JSON's.
fn words(text: &str, key: &str) -> Vec<Vec<String>> {
    let list = |rest: &str| rest.split(']').next().unwrap().split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect();
    text.split(&format!("{key}: [")).skip(1).map(list).collect()
}

#[test]
fn the_program_takes_the_arguments_that_the_manifests_and_the_manual_give_it() {
    let manual = std::fs::read_to_string(deploy().with_file_name("docs").join("operate/upgrade.md")).unwrap();
    let manifest = std::fs::read_to_string(deploy().join("agent.yaml")).unwrap();
    let operator = std::fs::read_to_string(deploy().join("operator.yaml")).unwrap();
    let (mut containers, patches) = (words(&manifest, "args"), words(&manual, "\"value\""));
    containers.extend(words(&operator, "args"));
    assert_eq!((containers.len(), patches.len()), (3, 1), "{containers:?} {patches:?}");
    for args in containers.into_iter().chain(patches) {
        // An argument that is unknown is an error also where help is asked for.
        let output = std::process::Command::new(netloom()).args(&args).arg("--help").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Built-in plugins run in the agent's container: what they use of the host is there.
#[test]
fn the_container_has_the_hosts_files_that_plugins_use() {
    let manifest = std::fs::read_to_string(deploy().join("agent.yaml")).unwrap();
    let container = manifest.split("- name: agent\n").nth(1).unwrap();
    let mounted: Vec<&str> = container.split("mountPath: ").skip(1).filter_map(|m| m.split([',', '}']).next()).collect();
    let plugins = std::process::Command::new(netloom()).args(["plugins", "-o", "json"]).output().unwrap();
    let plugins: Value = serde_json::from_slice(&plugins.stdout).unwrap();
    let keys = plugins.as_array().unwrap().iter().flat_map(|p| p["keys"].as_array().unwrap());
    let defaults: Vec<&str> = keys.filter_map(|key| key["default"].as_str()).filter(|d| d.starts_with('/')).collect();
    assert!(defaults.contains(&"/run/flannel/subnet.env"), "{defaults:?}");
    for path in defaults.into_iter().chain(["/dev/net/tun"]) {
        assert!(mounted.iter().any(|dir| std::path::Path::new(path).starts_with(dir)), "{path} is on none of {mounted:?}");
    }
}

#[test]
fn an_agent_may_do_what_it_needs_and_nothing_else() {
    let plane = plane("access");
    let may = |verb: &str, what: &str| {
        let (what, part) = what.split_once('/').unwrap_or((what, ""));
        let part = format!("--subresource={part}");
        let args = ["auth", "can-i", verb, what, &part, "--all-namespaces", "--as=system:serviceaccount:kube-system:netloom"];
        String::from_utf8(plane.try_kubectl(&args, "").unwrap().stdout).unwrap().trim() == "yes"
    };
    let needed = [
        ("get", "pods"),
        ("get", "nodes"),
        ("list", "nodes"),
        ("watch", "nodes"),
        ("patch", "nodes/status"),
        ("list", "pods"),
        ("watch", "pods"),
        ("patch", "pods/status"),
        ("get", "network-attachment-definitions.k8s.cni.cncf.io"),
        ("list", "network-attachment-definitions.k8s.cni.cncf.io"),
        ("watch", "network-attachment-definitions.k8s.cni.cncf.io"),
        ("get", "resourceclaims.resource.k8s.io"),
        ("get", "ipamclaims.k8s.cni.cncf.io"),
        ("list", "resourceslices.resource.k8s.io"),
        ("watch", "servicecidrs.networking.k8s.io"),
        ("list", "services"),
        ("watch", "services"),
        ("create", "events.events.k8s.io"),
        ("patch", "events.events.k8s.io"),
        ("watch", "nodeippools.netloom.io"),
        ("patch", "nodeippools.netloom.io/status"),
    ];
    for (verb, what) in needed {
        assert!(may(verb, what), "it may not {verb} {what}");
    }
    let account = "--as=system:serviceaccount:kube-system:netloom";
    let slice = ["auth", "can-i", "watch", "endpointslices.discovery.k8s.io/kubernetes", "--namespace=default", account];
    assert_eq!(String::from_utf8(plane.try_kubectl(&slice, "").unwrap().stdout).unwrap().trim(), "yes", "the API server's addresses");
    assert!(!may("list", "endpointslices.discovery.k8s.io"), "those of others");
    let refused = [
        ("get", "secrets"),
        ("list", "configmaps"),
        ("patch", "nodes"),
        ("update", "nodes"),
        ("update", "nodes/status"),
        ("create", "nodes"),
        ("delete", "nodes"),
        ("get", "nodes/proxy"),
        ("patch", "pods"),
        ("update", "pods"),
        ("update", "pods/status"),
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "pods/exec"),
        ("create", "pods/eviction"),
        ("patch", "network-attachment-definitions.k8s.cni.cncf.io"),
        ("delete", "network-attachment-definitions.k8s.cni.cncf.io"),
        ("patch", "resourceclaims.resource.k8s.io"),
        ("list", "ipamclaims.k8s.cni.cncf.io"),
        ("patch", "ipamclaims.k8s.cni.cncf.io"),
        ("delete", "events.events.k8s.io"),
        ("create", "serviceaccounts/token"),
        ("create", "nodeippools.netloom.io"),
        ("patch", "nodeippools.netloom.io"),
        ("get", "ipledgershards.netloom.io"),
        ("patch", "ippools.netloom.io"),
        ("*", "*"),
    ];
    for (verb, what) in refused {
        assert!(!may(verb, what), "it may {verb} {what}");
    }
}

/// A pod of a node, as the API server has it once it is scheduled.
fn pod(plane: &ControlPlane, namespace: &str, name: &str, node: &str, account: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"mine": "1"}, "labels": {"app": name}},
        "spec": {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]},
    });
    plane.apply(&pod.to_string()).unwrap();
}

/// Asks as whoever has the token of this kubeconfig.
fn patch(plane: &ControlPlane, config: &Path, pod: &str, change: &Value) -> Output {
    let change = change.to_string();
    let args = ["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", &change];
    plane.kubectl_command(&args).env("KUBECONFIG", config).output().unwrap()
}

#[test]
fn an_agent_changes_the_status_annotation_of_its_own_nodes_pods_only() {
    let plane = plane("own");
    for node in ["node-a", "node-b"] {
        plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}).to_string()).unwrap();
    }
    // kubectl reads before it patches; the agent does not.
    for args in [
        ["clusterrole", "reads", "--verb=get", "--resource=pods/status"],
        ["clusterrolebinding", "reads", "--clusterrole=reads", "--serviceaccount=kube-system:netloom"],
    ] {
        plane.kubectl(&[&["create"], &args[..]].concat(), "").unwrap();
    }
    pod(&plane, "kube-system", "netloom-a", "node-a", "netloom");
    pod(&plane, "default", "here", "node-a", "default");
    pod(&plane, "default", "there", "node-b", "default");
    let bound = ["create", "token", "netloom", "-n", "kube-system", "--bound-object-kind=Pod", "--bound-object-name=netloom-a"];
    let agent = plane.write_kubeconfig("agent", plane.kubectl(&bound, "").unwrap().trim()).unwrap();
    let unbound = plane.kubectl(&["create", "token", "netloom", "-n", "kube-system"], "").unwrap();
    let nobody = plane.write_kubeconfig("nobody", unbound.trim()).unwrap();
    let status = json!({"metadata": {"annotations": {STATUS: "[]"}}});

    // A policy holds a moment after it was made, as a role does.
    let by_policy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("netloom-own-node");
    let refused = seen_within(Duration::from_secs(120), || patch(&plane, &agent, "there", &status), by_policy).unwrap_or_else(|last| last);
    let refusal = |output: &Output, why: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("netloom-own-node") && said.contains(why), "{output:?}");
    };
    refusal(&refused, "its token is of node \"node-a\", the pod is of node \"node-b\"");

    let written = patch(&plane, &agent, "here", &status);
    assert!(written.status.success(), "{written:?}");
    let path = format!("jsonpath={{.metadata.annotations.{}}}", STATUS.replace('.', "\\."));
    assert_eq!(plane.kubectl(&["get", "pod", "here", "-o", &path], "").unwrap(), "[]");
    // Changed, and removed.
    for value in [json!("[1]"), Value::Null] {
        assert!(patch(&plane, &agent, "here", &json!({"metadata": {"annotations": {STATUS: value}}})).status.success());
    }

    refusal(&patch(&plane, &nobody, "here", &status), "its token is of node \"\"");
    let others = [
        (json!({"metadata": {"annotations": {"other": "1"}}}), "no annotation"),
        (json!({"metadata": {"annotations": {"mine": "2"}}}), "no annotation"),
        (json!({"metadata": {"annotations": {"mine": null, STATUS: "[]"}}}), "no annotation"),
        (json!({"metadata": {"labels": {"app": "another"}}}), "changes nothing"),
        (json!({"metadata": {"finalizers": ["example.org/stay"]}}), "changes nothing"),
        (json!({"status": {"phase": "Failed"}}), "changes nothing"),
        (json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}), "changes nothing"),
    ];
    for (change, why) in others {
        refusal(&patch(&plane, &agent, "here", &change), why);
    }
    // What the node was granted is the operator's; what it needs is the agent's of that node.
    for name in ["node-a", "node-b"] {
        let object =
            json!({"apiVersion": "netloom.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": name}, "spec": {"nodeUID": "u"}});
        plane.apply(&object.to_string()).unwrap();
    }
    let demand = json!({"status": {"demand": [{"pool": "p", "v4": 64}]}}).to_string();
    let asks = |config: &Path, name: &str| {
        let args = ["patch", "nodeippool", name, "--subresource=status", "--type=merge", "-p", &demand];
        plane.kubectl_command(&args).env("KUBECONFIG", config).output().unwrap()
    };
    assert!(asks(&agent, "node-a").status.success(), "{:?}", asks(&agent, "node-a"));
    refusal(&asks(&agent, "node-b"), "its token is of node \"node-a\", the object is \"node-b\"");
    refusal(&asks(&nobody, "node-a"), "its token is of node \"\"");
    // What it tells it tells as the agent of that node.
    let event = |name: &str, instance: &str| {
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "netloom.io/agent", "reportingInstance": instance,
            "action": "Attach", "reason": "Test", "type": "Normal", "note": "n",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "here"}})
        .to_string()
    };
    let told = |config: &Path, event: &str| {
        let file = plane.kubeconfig().with_file_name("event.json");
        std::fs::write(&file, event).unwrap();
        plane.kubectl_command(&["create", "-f", file.to_str().unwrap()]).env("KUBECONFIG", config).output().unwrap()
    };
    assert!(told(&agent, &event("own", "node-a")).status.success(), "{:?}", told(&agent, &event("own2", "node-a")));
    refusal(&told(&agent, &event("foreign", "node-b")), "in its own name only");
    refusal(&told(&nobody, &event("nobody", "node-a")), "in its own name only");
    // An account of the same name, wherever it was installed, is one of an agent.
    plane.kubectl(&["create", "serviceaccount", "netloom", "-n", "default"], "").unwrap();
    plane.kubectl(&["create", "clusterrolebinding", "elsewhere", "--clusterrole=netloom", "--serviceaccount=default:netloom"], "").unwrap();
    let unbound = plane.kubectl(&["create", "token", "netloom", "-n", "default"], "").unwrap();
    let elsewhere = plane.write_kubeconfig("elsewhere", unbound.trim()).unwrap();
    refusal(&told(&elsewhere, &event("elsewhere", "node-a")), "in its own name only");
    // Who is no agent is not concerned.
    let admin = plane.kubeconfig();
    assert!(patch(&plane, &admin, "there", &json!({"status": {"phase": "Failed"}})).status.success());
}

/// The capabilities of the agent's container.
fn capabilities() -> Vec<String> {
    let manifest = std::fs::read_to_string(deploy().join("agent.yaml")).unwrap();
    let (_, agent) = manifest.split_once("- name: agent\n").unwrap();
    let (_, list) = agent.split_once("              add:\n").unwrap();
    let names = list.lines().map_while(|line| line.trim().strip_prefix("- "));
    names.map(|name| name.split(' ').next().unwrap().to_lowercase()).collect()
}

/// A program in the host's namespaces with no capability but these, and no way to get more.
fn with(host: &Host, capabilities: &[String], vars: &[(&str, &str)], argv: &[&str], stdin: &Value) -> Output {
    let mut command = host.command("", "setpriv");
    let bound = capabilities.iter().fold("-all".to_owned(), |list, name| list + ",+" + name);
    command.args(["--no-new-privs", "--inh-caps=-all", "--bounding-set", &bound]).args(argv).envs(vars.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end without having read.
    drop(child.stdin.take().unwrap().write_all(stdin.to_string().as_bytes()));
    child.wait_with_output().unwrap()
}

#[test]
fn the_containers_capabilities_suffice_and_each_is_needed() {
    let host = Host::new();
    host.container("pod");
    let all = capabilities();
    assert!(all.len() >= 5, "{all:?}");
    let less = |name: &str| -> Vec<String> { all.iter().filter(|other| *other != name).cloned().collect() };
    let plugin = |capabilities: &[String], verb: &str, ifname: &str, config: &Value| {
        let program = plugin_dir().join(config["type"].as_str().unwrap());
        let vars = [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "pod"), ("CNI_NETNS", "/run/netns/pod"), ("CNI_IFNAME", ifname)];
        let vars = [&vars[..], &[("CNI_PATH", plugin_dir().to_str().unwrap())]].concat();
        with(&host, capabilities, &vars, &[program.to_str().unwrap()], config)
    };
    let bridge = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let macvlan = json!({"cniVersion": "1.0.0", "name": "mac", "type": "macvlan", "master": "br0"});
    for name in ["net_admin", "sys_admin"] {
        assert!(!plugin(&less(name), "ADD", "eth0", &bridge).status.success(), "{name} is not needed");
        // What it could not undo.
        assert!(plugin(&all, "DEL", "eth0", &bridge).status.success());
    }
    for (ifname, config) in [("eth0", &bridge), ("net1", &macvlan)] {
        let output = plugin(&all, "ADD", ifname, config);
        assert!(output.status.success(), "{output:?}");
    }
    let prev: Value = serde_json::from_slice(&plugin(&all, "ADD", "net2", &macvlan).stdout).unwrap();
    let tuning = json!({
        "cniVersion": "1.0.0", "name": "tuned", "type": "tuning", "mtu": 1400, "mac": "02:00:00:00:00:07",
        "sysctl": {"net.ipv4.conf.net2.arp_notify": "1"}, "prevResult": prev,
    });
    let output = plugin(&all, "ADD", "net2", &tuning);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(host.run("pod", &["cat", "/proc/sys/net/ipv4/conf/net2/arp_notify"]).trim(), "1");
    for (ifname, config) in [("net2", &tuning), ("net2", &macvlan), ("net1", &macvlan), ("eth0", &bridge)] {
        let output = plugin(&all, "DEL", ifname, config);
        assert!(output.status.success(), "{output:?}");
    }
    assert!(host.link("pod", "eth0").is_none() && host.link("pod", "net2").is_none());

    // How executables of other providers are run: in the mount namespace of a process of the host's.
    let outside = std::process::id().to_string();
    let enter = ["nsenter", "--target", &outside, "--mount", "true"];
    let output = with(&host, &all, &[], &enter, &Value::Null);
    assert!(output.status.success(), "{output:?}");
    for name in ["sys_admin", "sys_ptrace", "sys_chroot"] {
        assert!(!with(&host, &less(name), &[], &enter, &Value::Null).status.success(), "{name} is not needed");
    }
    // A file of another user that only he may read.
    host.write("/run/theirs", "x");
    host.sh("", "chmod 600 /run/theirs");
    host.sh("", "chown 7:7 /run/theirs");
    assert!(with(&host, &all, &[], &["cat", "/run/theirs"], &Value::Null).status.success());
    assert!(!with(&host, &less("dac_override"), &[], &["cat", "/run/theirs"], &Value::Null).status.success());
}
