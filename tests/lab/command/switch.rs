//! Networks of Open vSwitch: each node of a lab has a switch of its own.

use serde_json::{Value, json};

use netloom_tests::{Running, netloom};

use super::{Lab, Watching, definition, examples, pod, text, zoned};

/// The processes of the lab's switches, by what they write down themselves.
fn daemons(lab: &Lab) -> Vec<u32> {
    let pids = lab.host.run("", &["sh", "-c", "cat /run/netloom/lab/*/switches/*/*.pid 2>/dev/null || true"]);
    pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// A lab whose switches end with the test, also where that fails.
struct Switched(Lab);

impl std::ops::Deref for Switched {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.0
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        for pid in daemons(self) {
            drop(self.host.try_run("", &["kill", "-KILL", &pid.to_string()]));
        }
    }
}

fn is_there(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn on(node: &str, name: &str, ip: &str) -> String {
    let selected = json!([{"name": "switched", "ips": [ip]}]).to_string();
    pod(name, &selected).replace("---\n", &format!("spec: {{ nodeName: {node}, containers: [{{ name: c, image: i }}] }}\n---\n"))
}

const SWITCHED: &str =
    r#"{"cniVersion":"1.0.0","type":"ovs","bridge":"br1","vlan":7,"capabilities":{"ips":true},"ipam":{"type":"static"}}"#;

#[test]
fn vlans_of_a_switch_reach_over_nodes_and_are_apart() {
    let lab = Switched(Lab::new());
    let before = lab.host.traces();
    let shown = lab.ok(&["up", &format!("{}/openvswitch", examples())]);
    assert!(shown.contains("4 pods on 2 nodes"), "{shown}");
    let daemons = daemons(&lab);
    assert_eq!(daemons.len(), 4);
    // Who started them held signals back.
    for pid in &daemons {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim().to_owned();
        assert_eq!(u64::from_str_radix(&blocked, 16).unwrap() & (1 << 14), 0, "SIGTERM is blocked");
    }
    for to in ["10.76.0.2", "fd76::2"] {
        lab.ok(&["exec", "red-a", "--", "ping", "-n", "-c1", "-w60", to]);
    }
    // The same subnet in another VLAN, with an address in it that answers there.
    assert!(!lab.run_with(&["exec", "red-a", "--", "ping", "-n", "-c2", "-i0.2", "-w2", "10.76.0.3"], "").status.success());
    // A segment larger than a packet, whose checksum nobody has computed.
    let bytes = "import socket as s; l = s.create_server(('10.76.0.2', 7000)); print('listens', flush=True); c = l.accept()[0]
n = 0
while d := c.recv(65536): n += len(d)
print(n, flush=True)";
    let send = "import socket as s; c = s.create_connection(('10.76.0.2', 7000), 60); c.sendall(b'x' * 3000000)";
    let mut command = lab.host.command("", netloom());
    command.args(["lab", "exec", "red-b", "--", "python3", "-c", bytes]);
    let received = lab.host.path("/run/received");
    let printed = std::fs::File::create(&received).unwrap();
    let receiver = Running::with_output(&mut command, printed.try_clone().unwrap(), printed);
    let says = |what: &str| std::fs::read_to_string(&received).unwrap().contains(what);
    lab.host.until("it listens", || says("listens"));
    lab.ok(&["exec", "red-a", "--", "python3", "-c", send]);
    lab.host.until("all has arrived", || says("3000000"));
    drop(receiver);
    // The drawing has the bridge, its pods and its uplink.
    let graph = lab.json(&["graph", "-o", "json"]);
    let left = graph["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "left").unwrap();
    let link = |name: &str| left["links"].as_array().unwrap().iter().find(|link| link["name"] == name).cloned().unwrap();
    assert_eq!((link("br1")["kind"].as_str(), link("ovs-up1")["attached_to"].as_str()), (Some("bridge"), Some("br1")));
    let interfaces = left["pods"].as_array().unwrap().iter().flat_map(|pod| pod["interfaces"].as_array().unwrap());
    let attached: Vec<&Value> =
        interfaces.filter(|interface| interface["name"] == "net1").map(|interface| &interface["attached_to"]).collect();
    assert_eq!(attached, ["br1", "br1"]);
    assert!(lab.ok(&["down"]).contains("nothing left"));
    assert!(!daemons.iter().any(|pid| is_there(*pid)), "{daemons:?}");
    lab.host.sh("", "rm /run/received");
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn a_lab_that_grows_gets_switches_and_one_that_was_killed_leaves_none() {
    let lab = Switched(Lab::new());
    let before = lab.host.traces();
    lab.host.write("/run/lab/nodes.yaml", &[zoned("one", "", &[]), zoned("two", "", &[])].concat());
    let watching = Watching::start(&lab, "/run/lab");
    let printed = watching.printed.clone();
    assert!(daemons(&lab).is_empty());
    let pods = [on("one", "a", "10.9.0.1/24"), on("two", "b", "10.9.0.2/24")].concat();
    lab.host.write("/run/new", &(definition("switched", SWITCHED) + &pods));
    lab.host.sh("", "mv /run/new /run/lab/pods.yaml");
    let said = || std::fs::read_to_string(&printed).unwrap();
    lab.host.until("the pods are there", || said().contains("2 pods"));
    lab.ok(&["exec", "a", "--", "ping", "-n", "-c1", "-w60", "10.9.0.2"]);
    let first = daemons(&lab);
    // A second bridge on the same switches, and a node that comes later.
    let other = SWITCHED.replace("br1", "br2");
    let more = [zoned("three", "", &[]), on("three", "c", "10.9.0.3/24"), definition("other", &other), pod("d", "other")].concat();
    lab.host.write("/run/new", &more);
    lab.host.sh("", "mv /run/new /run/lab/more.yaml");
    lab.host.until("they are there", || said().contains("1 node, 2 pods"));
    lab.ok(&["exec", "a", "--", "ping", "-n", "-c1", "-w60", "10.9.0.3"]);
    let all = daemons(&lab);
    assert!(all.len() == 6 && first.iter().all(|pid| all.contains(pid)), "{first:?} {all:?}");
    // It is killed.
    drop(watching);
    lab.ok(&["down"]);
    assert!(!all.iter().any(|pid| is_there(*pid)), "{all:?}");
    lab.host.sh("", "rm -r /run/lab /run/printed");
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn a_lab_whose_switch_has_died_says_so_and_is_taken_down() {
    let lab = Switched(Lab::new());
    let before = lab.host.traces();
    let manifests = [zoned("one", "", &[]), definition("switched", SWITCHED), on("one", "a", "10.9.0.1/24")].concat();
    let out = lab.run_with(&["up", "-"], &manifests);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(lab.ok(&["status"]).contains("Ready"));
    for pid in daemons(&lab) {
        lab.host.sh("", &format!("kill -KILL {pid}"));
    }
    lab.host.until("they are gone", || !daemons(&lab).into_iter().any(is_there));
    let status = lab.run_with(&["status", "a"], "");
    assert!(text(&status.stdout).contains("ovs-vswitchd of node one does not run"), "{status:?}");
    let graph = lab.json(&["graph", "-o", "json"]);
    let bridge = graph["nodes"][0]["links"].as_array().unwrap().iter().find(|link| link["name"] == "br1").cloned();
    assert!(bridge.is_none_or(|bridge| bridge["up"] == false), "{graph}");
    assert!(lab.ok(&["down"]).contains("nothing left"));
    lab.host.expect_traces(&before, "lab down");
}

/// Names that no bridge of a node can have, before anything is built.
#[test]
fn names_that_nodes_need_are_refused() {
    let lab = Lab::new();
    for (name, says) in [
        ("--", "cannot have a bridge of Open vSwitch of this name"),
        ("lo", "cannot have a bridge of Open vSwitch of this name"),
        ("netloom0", "cannot have a bridge of Open vSwitch of this name"),
        ("ovs-up1", "cannot have a bridge of Open vSwitch of this name"),
        ("eth0", "the node's own interface"),
    ] {
        let manifests = definition("switched", &SWITCHED.replace("br1", name)) + &on("one", "a", "10.9.0.1/24");
        let (_, said) = lab.fails(&["up", "-", "--dry-run"], &manifests);
        let shown = text(&lab.run_with(&["up", "-", "--dry-run"], &manifests).stdout) + &said;
        assert!(shown.contains(says), "{name}: {shown}");
    }
    let of_uplink = r#"{"cniVersion":"1.0.0","type":"macvlan","master":"ovs-up1","capabilities":{"ips":true},"ipam":{"type":"static"}}"#;
    let out = lab.run_with(&["up", "-", "--dry-run"], &(definition("switched", of_uplink) + &on("one", "a", "10.9.0.1/24")));
    assert!((text(&out.stdout) + &text(&out.stderr)).contains("for the uplink of a bridge"), "{out:?}");
}

/// A growth that fails takes away what it has made, and the next one succeeds.
#[test]
fn a_growth_that_fails_leaves_no_bridge_and_no_wire() {
    let lab = Switched(Lab::new());
    let before = lab.host.traces();
    lab.host.write("/run/lab/nodes.yaml", &zoned("one", "", &[]));
    let watching = Watching::start(&lab, "/run/lab");
    let printed = watching.printed.clone();
    let said = || std::fs::read_to_string(&printed).unwrap();
    let save = |text: &str| {
        lab.host.write("/run/new", text);
        lab.host.sh("", "mv /run/new /run/lab/more.yaml");
    };
    // Open vSwitch cannot make its directory.
    lab.host.write("/run/netloom/lab/lab/switches", "no directory");
    let network = definition("switched", SWITCHED);
    save(&[network.clone(), on("one", "a", "10.9.0.1/24")].concat());
    lab.host.until("it fails", || said().contains("start Open vSwitch on node one"));
    lab.host.sh("", "rm /run/netloom/lab/lab/switches");
    let wires = || lab.ok(&["exec", "node/one", "--", "ip", "-br", "link"]);
    lab.host.until("its uplink is gone", || !wires().contains("ovs-up1"));
    save(&[network, zoned("two", "", &[]), on("one", "a", "10.9.0.1/24"), on("two", "b", "10.9.0.2/24")].concat());
    lab.host.until("the pods are there", || said().contains("1 node, 2 pods"));
    lab.ok(&["exec", "a", "--", "ping", "-n", "-c1", "-w60", "10.9.0.2"]);
    drop(watching);
    lab.ok(&["down"]);
    lab.host.sh("", "rm -r /run/lab /run/printed");
    lab.host.expect_traces(&before, "lab down");
}
