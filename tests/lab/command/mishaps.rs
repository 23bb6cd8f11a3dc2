//! Labs that somebody else got in the way of: namespaces taken, state torn, commands killed in between.

use serde_json::Value;

use super::{Lab, definition, entry, examples, pod, text};

const STATE: &str = "/run/netloom/lab";

impl Lab {
    /// Brings a lab up from manifests; its exit code is checked.
    fn up(&self, args: &[&str], manifests: &[String], code: i32) -> (String, String) {
        let args: Vec<&str> = ["up"].iter().chain(args).chain(&["-"]).copied().collect();
        let out = self.run_with(&args, &manifests.concat());
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(code), "{args:?}\n{stdout}{stderr}");
        (stdout, stderr)
    }

    fn netns(&self) -> Vec<String> {
        self.host.list("/run/netns")
    }

    fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.host.path(path)).unwrap()
    }

    /// The state of one pod, and why.
    fn health(&self, pod: &str) -> (String, String) {
        let all = text(&self.run_with(&["status", "-o", "json"], "").stdout);
        let all: Value = serde_json::from_str(&all).unwrap_or_else(|e| panic!("{e}: {all}"));
        let of = all.as_array().unwrap().iter().find(|p| p["name"] == pod).unwrap_or_else(|| panic!("no {pod} in {all}")).clone();
        (of["state"].as_str().unwrap().to_owned(), of["reasons"][0].as_str().unwrap_or_default().to_owned())
    }
}

fn macvlan(master: &str) -> String {
    format!(
        r#"{{"cniVersion":"1.0.0","type":"macvlan","master":"{master}","ipam":{{"type":"static","addresses":[{{"address":"10.8.0.2/24"}}]}}}}"#
    )
}

fn bridge(name: &str) -> String {
    format!(r#"{{"cniVersion":"1.0.0","type":"bridge","bridge":"{name}","ipam":{{"type":"host-local","subnet":"10.9.0.0/24"}}}}"#)
}

fn nodes(names: &[&str]) -> String {
    names.iter().map(|n| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {n}}}\n---\n")).collect()
}

/// `up` failed on "file exists", and its roll-back deleted what existed.
#[test]
fn what_somebody_else_made_is_refused_and_stays() {
    for taken in ["nl.zz.wires", "nl.zz.node.node-1", "nl.zz.pod.default.a"] {
        let lab = Lab::new();
        lab.host.container(taken);
        let before = lab.host.traces();
        let (_, stderr) = lab.up(&["--name", "zz"], &[pod("a", "")], 1);
        assert!(stderr.contains(taken) && stderr.contains("ip netns delete") && stderr.contains("--name"), "{stderr}");
        assert_eq!(lab.netns(), [taken]);
        lab.host.expect_traces(&before, "lab up that was refused");
    }
}

#[test]
fn the_same_lab_kept_elsewhere_is_not_touched() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&[], &[pod("a", "")], 0);
    let there = lab.netns();
    lab.host.sh("", "mv /run/netloom /run/elsewhere");
    let (_, stderr) = lab.up(&[], &[pod("a", "")], 1);
    assert!(stderr.contains("nl.lab.pod.default.a"), "{stderr}");
    assert_eq!(lab.netns(), there);
    lab.host.sh("", "mv /run/elsewhere /run/netloom");
    assert_eq!(lab.health("a").0, "Ready");
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

/// The kernel gives the number of a deleted namespace to the next one, so the number alone tells nothing.
#[test]
fn a_namespace_that_took_the_place_of_ours_stays() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&[], &[pod("a", ""), pod("b", "")], 0);
    for name in ["nl.lab.pod.default.a", "nl.lab.node.node-1"] {
        lab.host.run("", &["ip", "netns", "delete", name]);
        lab.host.container(name);
    }
    let out = lab.run_with(&["down"], "");
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("nl.lab.pod.default.a does not belong to the lab"), "{said}");
    assert_eq!(lab.netns(), ["nl.lab.node.node-1", "nl.lab.pod.default.a"]);
    for name in lab.netns() {
        lab.host.run("", &["ip", "netns", "delete", &name]);
    }
    lab.host.expect_traces(&before, "lab down");
}

/// Killed after a namespace was made and before that was written down.
#[test]
fn a_namespace_of_a_killed_up_goes_too() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&[], &[pod("a", ""), pod("b", "")], 0);
    let journal = format!("{STATE}/lab/namespaces");
    let cut: Vec<String> =
        lab.file(&journal).lines().filter(|l| !l.starts_with("made nl.lab.pod.default.b ")).map(|l| format!("{l}\n")).collect();
    assert!(cut.iter().any(|l| l.contains("nl.lab.pod.default.b")), "what is begun is written down: {cut:?}");
    lab.host.write(&journal, &cut.concat());
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down after a kill");
}

/// What was never begun is nobody's business of this lab.
#[test]
fn a_killed_up_owns_only_what_it_began() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&[], &[pod("a", ""), pod("b", "")], 0);
    let journal = format!("{STATE}/lab/namespaces");
    let cut: Vec<String> = lab.file(&journal).lines().filter(|l| !l.contains("default.b")).map(|l| format!("{l}\n")).collect();
    lab.host.write(&journal, &cut.concat());
    lab.ok(&["down"]);
    assert_eq!(lab.netns(), ["nl.lab.pod.default.b"]);
    lab.host.sh("", "ip netns delete nl.lab.pod.default.b");
    lab.host.expect_traces(&before, "lab down");
}

/// Nothing was given back then; what a plugin keeps outside the lab was held for ever.
#[test]
fn pods_are_detached_when_their_node_is_gone() {
    let lab = Lab::new();
    let noter = "#!/bin/sh\necho $CNI_COMMAND >>/run/calls\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\"}'\n";
    lab.host.write("/run/bin/noter", noter);
    std::fs::set_permissions(lab.host.path("/run/bin/noter"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let noted = definition("noted", r#"{"cniVersion":"1.0.0","type":"noter"}"#);
    lab.up(&["--cni-path", "/run/bin"], &[nodes(&["one", "two"]), noted, pod("a", "noted"), pod("b", "noted")], 0);
    for node in ["one", "two"] {
        lab.host.sh("", &format!("ip netns delete nl.lab.node.{node}"));
    }
    assert!(lab.ok(&["down"]).contains("2 pods detached"));
    assert_eq!(lab.file("/run/calls"), "ADD\nADD\nCHECK\nCHECK\nDEL\nDEL\n");
    assert_eq!((lab.netns(), lab.host.list("/run/netloom")), (vec![], vec![]));
}

/// One definition brought the whole lab down.
#[test]
fn a_parent_that_cannot_be_fails_its_own_pods_only() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let manifests = [
        nodes(&["one", "two"]),
        definition("all", &macvlan("all")),
        definition("port", &macvlan("port4")),
        definition("wire", &macvlan("w1")),
        definition("percent", &macvlan("eth%d")),
        pod("bad", "all"),
        pod("odd", "port"),
        pod("wired", "wire"),
        pod("percent", "percent"),
        pod("good", ""),
        pod("fine", ""),
    ];
    let (stdout, stderr) = lab.up(&["--keep-going"], &manifests, 3);
    assert!(stdout.contains("2 of 6 pods failed"), "{stdout}{stderr}");
    assert!(stderr.contains("default/bad: ") && stderr.contains("\"all\""), "{stderr}");
    assert!(stderr.contains("default/percent: "), "{stderr}");
    // The parent that the nodes reach each other by is not harmed.
    for name in ["good", "odd", "wired"] {
        assert_eq!(lab.health(name).0, "Ready", "{name}");
    }
    let address = lab.json(&["status", "good", "-o", "json"]);
    lab.ok(&["exec", "fine", "--", "ping", "-n", "-c1", "-w60", entry(&address, "netloom")["ips"][0].as_str().unwrap()]);
    let drawn = lab.ok(&["graph", "--format", "json"]);
    assert!(drawn.contains("\"port4\"") && !drawn.contains("\"all\""), "{drawn}");
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

/// A bridge of the parent's name took the parent's wire away.
#[test]
fn a_bridge_is_not_the_parent() {
    for names in [&["one"][..], &["one", "two"]] {
        let lab = Lab::new();
        let before = lab.host.traces();
        let manifests = [nodes(names), definition("mine", &bridge("eth0")), pod("bad", "mine"), pod("a", ""), pod("b", "")];
        let (_, stderr) = lab.up(&["--dry-run"], &manifests, 3);
        assert!(stderr.contains("default/bad: ") && stderr.contains("\"eth0\""), "{stderr}");
        let (_, stderr) = lab.up(&["--keep-going"], &manifests, 3);
        assert!(stderr.contains("default/bad: ") && stderr.contains("choose another bridge name"), "{stderr}");
        assert_eq!((lab.health("a").0, lab.health("b").0), ("Ready".to_owned(), "Ready".to_owned()));
        assert!(lab.ok(&["exec", "node/one", "--", "ip", "-d", "link", "show", "eth0"]).contains("veth"));
        lab.ok(&["down"]);
        lab.host.expect_traces(&before, "lab down");
    }
}

/// A bridge that has its plugin's name for want of one is known as a parent of another network too.
#[test]
fn a_bridge_without_a_name_can_be_a_parent() {
    let lab = Lab::new();
    let plain = r#"{"cniVersion":"1.0.0","type":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}"#;
    lab.up(&[], &[definition("plain", plain), definition("upon", &macvlan("cni0")), pod("a", "plain"), pod("b", "upon")], 0);
    lab.ok(&["down"]);
}

#[test]
fn an_up_that_fails_early_leaves_no_lock() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&["--name", "other"], &[pod("a", "")], 0);
    let held = lab.host.list(STATE);
    let (_, stderr) = lab.up(&[], &[pod(&"a".repeat(250), "")], 1);
    assert!(stderr.contains("255 bytes"), "{stderr}");
    lab.host.container("nl.lab.wires");
    lab.up(&[], &[pod("a", "")], 1);
    lab.fails(&["down"], "");
    assert_eq!(lab.host.list(STATE), held);
    lab.host.sh("", "ip netns delete nl.lab.wires");
    lab.ok(&["down", "--name", "other"]);
    lab.host.expect_traces(&before, "labs that were refused");
}

#[test]
fn a_torn_description_stops_no_other_lab() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&["--name", "torn"], &[pod("a", "")], 0);
    lab.up(&["--name", "whole"], &[pod("a", "")], 0);
    lab.host.container("nl.torn.mine");
    let path = format!("{STATE}/torn/lab.json");
    lab.host.write(&path, &lab.file(&path)[..40]);
    let listed = lab.ok(&["list"]);
    let of = |name: &str| listed.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{listed}")).to_owned();
    assert!(of("torn").contains("Broken") && of("whole").contains("Up"), "{listed}");
    for args in [
        &["status", "--name", "torn"][..],
        &["exec", "--name", "torn", "a", "--", "true"],
        &["down", "--name", "torn"],
        &["up", "--name", "torn", "-"],
    ] {
        let (_, stderr) = lab.fails(args, &pod("a", ""));
        assert!(stderr.contains(&path) && stderr.contains("netloom lab down --force --name torn"), "{args:?}: {stderr}");
    }
    let (_, stderr) = lab.fails(&["down", "--all"], "");
    assert!(stderr.contains("--force --name torn"), "{stderr}");
    assert_eq!(lab.netns(), ["nl.torn.mine", "nl.torn.node.node-1", "nl.torn.pod.default.a", "nl.torn.wires"], "the other one is down");
    lab.ok(&["down", "--all", "--force"]);
    assert_eq!(lab.netns(), ["nl.torn.mine"], "it has what it made, not what has such a name");
    lab.host.sh("", "ip netns delete nl.torn.mine");
    lab.host.expect_traces(&before, "lab down --all --force");
}

#[test]
fn without_any_description_the_names_tell() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&["--name", "torn"], &[pod("a", "")], 0);
    lab.up(&["-n", "torn-2"], &[pod("a", "")], 0);
    lab.host.write(&format!("{STATE}/torn/lab.json"), "");
    std::fs::remove_file(lab.host.path(format!("{STATE}/torn/namespaces"))).unwrap();
    lab.ok(&["down", "--name", "torn", "--force"]);
    assert!(lab.netns().iter().all(|n| n.starts_with("nl.torn-2.")), "{:?}", lab.netns());
    lab.ok(&["down", "-n", "torn-2"]);
    lab.host.expect_traces(&before, "lab down --force");
}

#[test]
fn when_all_fail_none_is_said_to_be_up() {
    let lab = Lab::new();
    let (stdout, _) = lab.up(&["--keep-going"], &[pod("a", "nowhere")], 3);
    assert!(stdout.contains("lab \"lab\": 1 of 1 pod failed") && !stdout.contains("others"), "{stdout}");
    lab.ok(&["down"]);
    let (stdout, _) = lab.up(&["--keep-going"], &[pod("a", "nowhere"), pod("b", "")], 3);
    assert!(stdout.contains("1 of 2 pods failed; the other one is up"), "{stdout}");
    lab.ok(&["down"]);
}

#[test]
fn a_kubernetes_namespace_may_be_called_node() {
    let lab = Lab::new();
    let of = |name: &str| pod(name, "").replace("metadata:\n", "metadata:\n  namespace: node\n");
    lab.up(&[], &[of("a"), of("node-1")], 0);
    assert!(lab.ok(&["exec", "node/a", "--", "ip", "-o", "addr"]).contains("10.244.0.2"));
    let (_, stderr) = lab.fails(&["exec", "node/node-1", "--", "true"], "");
    assert!(stderr.contains("ip netns exec nl.lab.node.node-1") && stderr.contains("nl.lab.pod.node.node-1"), "{stderr}");
    let (_, stderr) = lab.fails(&["exec", "node/x", "--", "true"], "");
    assert!(stderr.contains("no node x") && stderr.contains("node-1"), "{stderr}");
    lab.ok(&["down"]);
}

#[test]
fn a_dry_run_plans_for_a_lab_that_is_up() {
    let lab = Lab::new();
    lab.ok(&["up", &examples()]);
    assert!(lab.ok(&["up", "--dry-run", &examples()]).contains("patch-cable"));
    lab.ok(&["down"]);
}

#[test]
fn after_half_a_down_the_status_says_so() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.up(&[], &[pod("a", ""), pod("b", "")], 0);
    let dir = format!("{STATE}/lab/nodes/node-1/sandboxes");
    let name = lab.host.list(&dir).into_iter().find(|f| f.starts_with("b-")).unwrap();
    let whole = lab.file(&format!("{dir}/{name}"));
    lab.host.write(&format!("{dir}/{name}"), &whole[..50]);
    let (_, stderr) = lab.fails(&["down"], "");
    assert!(stderr.contains("cannot parse the record"), "{stderr}");
    let (state, why) = lab.health("a");
    assert!(state == "Failed" && why.contains("run `netloom lab down") && !why.contains("never attached"), "{state}: {why}");
    assert!(lab.ok(&["list"]).contains("GoingDown"));
    lab.host.write(&format!("{dir}/{name}"), &whole);
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn plugins_that_are_missing_have_one_advice() {
    let lab = Lab::new();
    let missing = |name| definition(name, &format!(r#"{{"cniVersion":"1.0.0","type":"no{name}"}}"#));
    lab.up(&["--keep-going"], &[missing("one"), missing("two"), pod("a", "one,two")], 3);
    let (state, why) = lab.health("a");
    assert!(state == "Failed" && why.contains("\"noone\"") && why.contains("\"notwo\""), "{state}: {why}");
    assert_eq!(why.matches("lists the built-in plugins").count(), 1, "{why}");
    lab.ok(&["down"]);
}
