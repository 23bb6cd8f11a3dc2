//! From Multus to Netloom and back, three times, while pods and their host ports go on.
//!
//! ```text
//!   Multus (the reference plugins, its files)   m0 ... m19 ------------------------------.-------------------> m20 ...
//!   Netloom (the agent)                              comes | ten of them anew, as n0 ... | goes: uninstall
//! ```
//!
//! Multus itself cannot be had as a module. What it does is done here with the reference plugins: results and delegates in its files,
//! each DEL from them, and from the pod's annotation where there are none. All the while somebody looks on: no port leads to two
//! addresses, and no address is in two namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use netloom_tests::wired::{who, wire};
use netloom_tests::{Api, Host, Node, Outcome, Pod, SETTINGS, netloom, peers_dir};
use nix::sys::socket::{Shutdown, shutdown};
use serde_json::{Value, json};

const PODS: u16 = 20;
const ROUNDS: u16 = 3;
const CACHE: &str = "/var/lib/cni/multus";
/// The runtime's configuration, and ours beside it.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const OF_MULTUS: &str = "/etc/cni/net.d/00-multus.conf";

/// A pod that lives: who has attached it, and the port of the host that leads to it.
struct Living<'n> {
    pod: Pod<'n>,
    port: u16,
    by_multus: bool,
    _server: Answers,
}

/// Tells its pod's name to whoever connects to port 80, until it is dropped: a socket that stays keeps its namespace.
struct Answers {
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Answers {
    fn new(node: &Node, sandbox: &str) -> Self {
        let listener = node.host.within(sandbox, || TcpListener::bind(("::", 80)).unwrap());
        let (server, name) = (listener.try_clone().unwrap(), sandbox.to_owned());
        let work = move || {
            while let Ok((mut connection, _)) = server.accept() {
                drop(connection.write_all(name.as_bytes()));
            }
        };
        Answers { listener, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        // Whoever waits for the next connection is told that there is none.
        shutdown(self.listener.as_raw_fd(), Shutdown::Both).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn base64(text: &str) -> String {
    let mut child = std::process::Command::new("base64").arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// The default network, and the one that the pods select.
fn networks() -> [(&'static str, Value); 2] {
    let default = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]});
    let second = json!({"cniVersion": "1.0.0", "name": "second", "plugins": [
        {"type": "macvlan", "master": "up0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}}]});
    [("eth0", default), ("net1", second)]
}

fn ports(port: u16) -> Value {
    json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}])
}

// === what Multus does ===

/// One plugin of a network, with what the runtime has for it.
fn reference(pod: &Attached<'_>, verb: &str, plugin: &Value, list: &Value, prev: &Value) -> Outcome {
    let Attached { node, pod, ifname, port } = pod;
    let mut config = plugin.clone();
    config["cniVersion"] = list["cniVersion"].clone();
    config["name"] = list["name"].clone();
    if plugin["capabilities"]["portMappings"] == true {
        config["runtimeConfig"] = json!({"portMappings": ports(*port)});
    }
    if !prev.is_null() {
        config["prevResult"] = prev.clone();
    }
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}", pod.namespace, pod.name, pod.uid);
    let cni = node.host.cni(peers_dir()).at(&pod.sandbox(), ifname).set("CNI_ARGS", &args);
    cni.call(verb, plugin["type"].as_str().unwrap(), config.to_string())
}

/// An interface of a pod.
struct Attached<'a> {
    node: &'a Node,
    pod: &'a Pod<'a>,
    ifname: &'static str,
    port: u16,
}

fn multus_add(node: &Node, pod: &Pod<'_>, port: u16) {
    let sandbox = pod.sandbox();
    let mut delegates = Vec::new();
    for (ifname, list) in networks() {
        let mut result = Value::Null;
        for plugin in list["plugins"].as_array().unwrap() {
            result = reference(&Attached { node, pod, ifname, port }, "ADD", plugin, &list, &result).result();
        }
        let name = list["name"].as_str().unwrap();
        let args =
            json!([["IgnoreUnknown", "true"], ["K8S_POD_NAMESPACE", pod.namespace], ["K8S_POD_NAME", pod.name], ["K8S_POD_UID", pod.uid]]);
        let capabilities = if ifname == "eth0" { json!({"portMappings": ports(port)}) } else { json!({}) };
        let cached = json!({"kind": "cniCacheV1", "containerId": sandbox, "config": base64(&list.to_string()), "ifName": ifname, "networkName": name,
            "netns": format!("/run/netns/{sandbox}"), "cniArgs": args, "capabilityArgs": capabilities, "result": result});
        node.host.write(&format!("{CACHE}/results/{name}-{sandbox}-{ifname}"), &cached.to_string());
        delegates.push(json!({"ConfList": list, "Name": name, "Bytes": base64(&list.to_string()), "ConfListPlugin": true}));
    }
    node.host.write(&format!("{CACHE}/{sandbox}"), &Value::from(delegates).to_string());
}

/// From its files, or from what the pod selects where it has none.
fn multus_del(node: &Node, pod: &Pod<'_>, port: u16) {
    let sandbox = pod.sandbox();
    for (ifname, list) in networks().into_iter().rev() {
        let path = node.host.path(format!("{CACHE}/results/{}-{sandbox}-{ifname}", list["name"].as_str().unwrap()));
        let cached: Value = std::fs::read_to_string(&path).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        for plugin in list["plugins"].as_array().unwrap().iter().rev() {
            reference(&Attached { node, pod, ifname, port }, "DEL", plugin, &list, &cached["result"]).silent();
        }
        drop(std::fs::remove_file(path));
    }
    drop(std::fs::remove_file(node.host.path(format!("{CACHE}/{sandbox}"))));
}

// === the node ===

/// Whether each port leads to the pod whose it is and to no other, and no address is anybody's twice.
fn each_has_its_own(node: &Node, living: &[Living<'_>], when: &str) {
    let mut held = BTreeMap::new();
    for one in living {
        let sandbox = one.pod.sandbox();
        assert_eq!(who(&node.host, "outside", &format!("192.0.2.1:{}", one.port), 30), sandbox, "{when}: port {}", one.port);
        for address in one.pod.addresses().as_array().unwrap() {
            let before = held.insert(address[1].to_string(), sandbox.clone());
            assert_eq!(before, None, "{when}: {address} of {sandbox}");
        }
    }
    for (network, prefix) in [("pods", "10.244.0."), ("second", "10.9.0.")] {
        let leases = node.host.list(&format!("/var/lib/cni/networks/{network}"));
        let leases = leases.iter().filter(|name| name.starts_with(prefix)).count();
        assert_eq!(leases, living.len(), "{when}: addresses of {network}");
    }
}

/// The addresses to which the rules lead each port.
fn owners(host: &Host) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let rules = host.sh("", "nft list ruleset").replace(", ", "\n") + &host.sh("", "iptables-save -t nat");
    for line in rules.lines() {
        let words = || line.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| !word.is_empty());
        let ports = words().filter_map(|word| word.parse().ok()).filter(|port| (8000..8000 + PODS).contains(port));
        for port in ports {
            let addresses = words().filter_map(|word| word.parse::<Ipv4Addr>().ok()).filter(|ip| ip.octets().starts_with(&[10, 244, 0]));
            let addresses = addresses.filter(|ip| ip.octets()[3] != 0);
            found.entry(format!("port {port}")).or_default().extend(addresses.map(|ip| ip.to_string()));
        }
    }
    found
}

/// What belongs to two: a port to addresses, or an address that can be used to namespaces.
fn belongings_of_two(host: &Host) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = owners(host);
    for netns in host.list("/run/netns").iter().filter(|name| *name != "outside") {
        // It may go meanwhile.
        let Ok(links) = host.try_within(netns, || nix::ifaddrs::getifaddrs().unwrap().collect::<Vec<_>>()) else { continue };
        let up = links.iter().filter(|link| link.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP));
        for ip in up.filter_map(|link| Some(link.address?.as_sockaddr_in()?.ip())).filter(|ip| ip.octets()[0] == 10) {
            found.entry(ip.to_string()).or_default().insert(netns.clone());
        }
    }
    found.retain(|_, whose| whose.len() > 1);
    found
}

/// Looks on until it is told to stop; what belonged to two. What is read in several steps counts only if it is so again, twice.
fn look_on(host: &Host, stop: &AtomicBool) -> (usize, Vec<String>) {
    let (mut looks, mut found) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        looks += 1;
        let mut two = belongings_of_two(host);
        for _ in 0..2 {
            if !two.is_empty() {
                let again = belongings_of_two(host);
                two.retain(|what, whose| again.get(what) == Some(whose));
            }
        }
        found.extend(two.into_iter().map(|(what, whose)| format!("{what} belongs to {whose:?}")));
    }
    (looks, found)
}

/// Tells [`look_on`] to stop, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn nobody_has(node: &Node, port: u16, when: &str) {
    node.until(&format!("{when}: nobody has port {port}"), || !owners(&node.host).contains_key(&format!("port {port}")));
}

fn attach<'n>(node: &'n Node, name: &str, port: u16, by_multus: bool) -> Living<'n> {
    let pod = node.pod(name, "second");
    if by_multus {
        multus_add(node, &pod, port);
    } else {
        let keys = json!({"capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": ports(port)}});
        let added = pod.call_with("ADD", &keys);
        assert_eq!(added.code, 0, "{name}: {added:?}\n{}", node.tail());
    }
    let server = Answers::new(node, &pod.sandbox());
    Living { pod, port, by_multus, _server: server }
}

/// The runtime deletes a pod by whichever it is configured with, then its namespace.
fn delete(node: &Node, living: Living<'_>, by_multus: bool, when: &str) {
    let Living { pod, port, _server: server, .. } = living;
    // Its processes have ended by then.
    drop(server);
    if by_multus {
        multus_del(node, &pod, port);
    } else {
        pod.must("DEL");
    }
    pod.remove_namespace();
    nobody_has(node, port, when);
    let path = pod.path();
    drop(pod);
    drop(node.api.ask("DELETE", &format!("{path}?gracePeriodSeconds=0"), &Value::Null));
}

fn uninstall(node: &Node) -> String {
    // Not from the directory of plugins that all tests share.
    let settings = std::fs::read_to_string(node.host.path(SETTINGS)).unwrap();
    let own: Vec<&str> = settings.lines().map(|line| if line.starts_with("binDir:") { "binDir: /run/own" } else { line }).collect();
    node.host.write("/run/uninstall.yaml", &own.join("\n"));
    let said = node.host.run("", &[netloom().to_str().unwrap(), "agent", "--config", "/run/uninstall.yaml", "uninstall"]);
    ["/run/netloom/uninstalled", "/run/uninstall.yaml"].iter().for_each(|file| std::fs::remove_file(node.host.path(file)).unwrap());
    said
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn from_multus_and_back_three_times() {
    let node = Node::new(&Api::shared(), "changing-over", "");
    wire(&node.host);
    let [(_, default), (_, second)] = networks();
    node.define("second", &second.to_string());
    let bin: &Path = &node.bin;
    let settings = format!(
        "nodeName: {}\nkubeconfig: /run/kubeconfig\nbinDir: {}\nreconcileEvery: 1h\ndelegates:\n- {default}\n",
        node.name,
        bin.display()
    );
    node.host.write(SETTINGS, &settings);
    node.restart();
    // Chains and bridges that stay, of both.
    for by_multus in [true, false] {
        delete(&node, attach(&node, &format!("first-{by_multus}"), 8000, by_multus), by_multus, "before");
    }
    node.settled();
    let before = node.before();
    node.kill9();

    let stop = AtomicBool::new(false);
    let (looks, two) = std::thread::scope(|scope| {
        let onlooker = scope.spawn(|| look_on(&node.host, &stop));
        let until = Stop(&stop);
        there_and_back(&node);
        drop(until);
        onlooker.join().unwrap()
    });
    assert!(looks > usize::from(PODS * ROUNDS) && two.is_empty(), "{looks} looks: {two:#?}");
    node.restart();
    node.expect(&before, "three times there and back");
}

fn there_and_back(node: &Node) {
    node.host.write(OF_MULTUS, r#"{"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim"}"#);
    let configurations = || node.host.list(CONFIGURATIONS);
    let mut living: Vec<Living<'_>> = (0..PODS).map(|n| attach(node, &format!("m{n}"), 8000 + n, true)).collect();
    for round in 0..ROUNDS {
        let when = |what: &str| format!("round {round}, {what}");
        each_has_its_own(node, &living, &when("by Multus"));
        node.restart();
        each_has_its_own(node, &living, &when("Netloom has come"));
        // Both are there until somebody takes Multus's away, of which the log tells.
        node.until("both configurations", || configurations() == ["00-multus.conf", "00-netloom.conflist"]);
        node.until("the log says which one the runtime uses", || node.log().contains("00-multus.conf sorts before 00-netloom.conflist"));
        std::fs::remove_file(node.host.path(OF_MULTUS)).unwrap();
        // Half of them anew, under Netloom: DEL of what Multus has attached comes to us.
        for n in 0..PODS / 2 {
            let at = living.iter().position(|one| one.by_multus).unwrap();
            let old = living.remove(at);
            let port = old.port;
            delete(node, old, false, &when("a pod of Multus deleted by Netloom"));
            living.push(attach(node, &format!("n{round}-{n}"), port, false));
        }
        assert_eq!(living.iter().filter(|one| one.by_multus).count(), usize::from(PODS / 2));
        each_has_its_own(node, &living, &when("half of them by Netloom"));

        // Back: the runtime has Multus's configuration, and the agent is still there; then it is not.
        node.host.write(OF_MULTUS, r#"{"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim"}"#);
        for n in 0..PODS / 2 {
            if n == PODS / 4 {
                node.kill9();
            }
            let at = living.iter().position(|one| !one.by_multus).unwrap();
            let old = living.remove(at);
            let port = old.port;
            if n < PODS / 4 {
                delete(node, old, true, &when("a pod of Netloom deleted by Multus"));
            } else {
                // Nobody is there to see it go: `uninstall` does.
                let Living { pod, _server: server, .. } = old;
                drop(server);
                multus_del(node, &pod, port);
                pod.remove_namespace();
                uninstall(node);
                nobody_has(node, port, &when("uninstalled"));
            }
            living.push(attach(node, &format!("b{round}-{n}"), port, true));
        }
        let said = uninstall(node);
        assert!(said.contains("it has attached no pod"), "{said}");
        assert_eq!((node.host.list("/var/lib/netloom/sandboxes"), configurations()), (vec![], vec!["00-multus.conf".to_owned()]));
    }
    each_has_its_own(node, &living, "back with Multus");
    living.into_iter().for_each(|one| delete(node, one, true, "the end"));
    std::fs::remove_file(node.host.path(OF_MULTUS)).unwrap();
}
