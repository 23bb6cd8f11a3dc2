//! `netloom lab`, as a person runs it.

mod mishaps;
mod switch;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use netloom_tests::{Host, Running, netloom};
use serde_json::{Value, json};

/// `netloom lab ARGS` on a machine of the test's own.
struct Lab {
    host: Host,
}

impl Lab {
    fn new() -> Self {
        Lab { host: Host::new() }
    }

    fn run_with(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = self.host.command("", netloom());
        command.arg("lab").args(args).env_remove("CNI_PATH").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended by now.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What it printed; it must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let out = self.run_with(args, "");
        assert!(out.status.success(), "{args:?}: {}\n{}{}", out.status, text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    /// What it said as an error, and its exit code.
    fn fails(&self, args: &[&str], stdin: &str) -> (i32, String) {
        let out = self.run_with(args, stdin);
        assert!(!out.status.success(), "{args:?} succeeded:\n{}", text(&out.stdout));
        (out.status.code().unwrap(), text(&out.stderr))
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("examples").display().to_string()
}

fn pod(name: &str, networks: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    k8s.v1.cni.cncf.io/networks: '{networks}'\n---\n")
}

fn definition(name: &str, config: &str) -> String {
    format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: {name}\nspec:\n  config: '{config}'\n---\n"
    )
}

/// The interface, address and MAC that a pod has on a network, by its status.
fn entry<'a>(status: &'a Value, network: &str) -> &'a Value {
    status.as_array().unwrap().iter().find(|n| n["name"] == network).unwrap_or_else(|| panic!("no {network} in {status}"))
}

#[test]
fn s30_s35_s37_s41_the_examples_come_up_answer_and_leave_nothing() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let shown = lab.ok(&["up", &examples()]);
    assert!(shown.contains("lab \"lab\" is up: 5 pods on 1 node"), "{shown}");
    // Four kinds of definitions, both forms of the annotation, one network twice.
    let db = lab.json(&["status", "db", "-o", "json"]);
    let fast = entry(&db, "default/fast");
    assert_eq!((fast["interface"].as_str(), fast["mac"].as_str()), (Some("repl0"), Some("02:00:00:60:00:50")));
    assert_eq!(fast["ips"], serde_json::json!(["10.60.0.50"]));
    assert_eq!((entry(&db, "netloom")["default"].as_bool(), fast["default"].as_bool()), (Some(true), Some(false)));
    let cache = lab.json(&["status", "default/cache", "-o", "json"]);
    let storages: Vec<&Value> = cache.as_array().unwrap().iter().filter(|n| n["name"] == "default/storage").collect();
    assert_eq!(storages.iter().map(|n| n["interface"].as_str().unwrap()).collect::<Vec<_>>(), ["net1", "net2"]);
    for status in [&db, &cache] {
        let defaults: Vec<&Value> = status.as_array().unwrap().iter().filter(|n| n["default"] != false).map(|n| &n["name"]).collect();
        assert_eq!(defaults, ["netloom"]);
    }
    // Packets over every network.
    for (from, to, network) in [
        ("web", "gateway", "netloom"),
        ("web", "db", "default/storage"),
        ("cache", "web", "default/storage"),
        ("web", "db", "default/fast"),
        ("sensor", "gateway", "default/patch"),
        ("sensor", "gateway", "default/plant"),
    ] {
        let status = lab.json(&["status", to, "-o", "json"]);
        for address in entry(&status, network)["ips"].as_array().unwrap() {
            lab.ok(&["exec", from, "--", "ping", "-n", "-c1", "-w60", address.as_str().unwrap()]);
        }
    }
    assert!(lab.ok(&["exec", "db", "--", "ip", "link", "show", "repl0"]).contains("mtu 1400"));
    assert!(lab.ok(&["down"]).contains("5 pods detached"));
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn s3_an_attachment_may_have_no_address() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let layer_2 = definition("wire", r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"wire0"}"#);
    let out = lab.run_with(&["up", "-"], &(layer_2 + &pod("a", "wire")));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let status = lab.json(&["status", "a", "-o", "json"]);
    let wire = entry(&status, "default/wire");
    assert_eq!((wire["interface"].as_str(), wire.get("ips"), wire["mac"].is_string()), (Some("net1"), None, true));
    assert_eq!(lab.host.link("nl.lab.pod.default.a", "net1").map(|link| link.has("UP")), Some(true));
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn nodes_are_joined_by_their_wires() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.ok(&["up", "--name", "two", &format!("{}/two-nodes", examples())]);
    let server = lab.json(&["status", "--name", "two", "server", "-o", "json"]);
    for network in ["netloom", "infra/backbone"] {
        for address in entry(&server, network)["ips"].as_array().unwrap() {
            lab.ok(&["exec", "--name", "two", "client", "--", "ping", "-n", "-c1", "-w60", address.as_str().unwrap()]);
        }
    }
    assert!(lab.ok(&["exec", "--name", "two", "node/left", "--", "ip", "addr", "show", "eth0"]).contains("172.30.0.10/16"));
    lab.ok(&["down", "--name", "two"]);
    lab.host.expect_traces(&before, "lab down");
}

/// `netloom lab up FILES --watch`, which is killed with the test.
struct Watching {
    process: Running,
    /// Where both its streams go.
    printed: std::path::PathBuf,
}

impl Watching {
    /// Starts it, and waits until its lab is up.
    fn start(lab: &Lab, files: &str) -> Self {
        let printed = lab.host.path("/run/printed");
        let (out, err) = (std::fs::File::create(&printed).unwrap(), std::fs::File::options().append(true).open(&printed).unwrap());
        let mut command = lab.host.command("", netloom());
        command.args(["lab", "up", files, "--watch"]).env_remove("CNI_PATH");
        let watching = Watching { process: Running::with_output(&mut command, out, err), printed };
        let is_up = || std::fs::read_to_string(&watching.printed).unwrap().contains("the agents keep the network");
        lab.host.until("the lab is up", is_up);
        watching
    }
}

/// A Node of a zone, with these ranges for its pods.
fn zoned(name: &str, zone: &str, ranges: &[&str]) -> String {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    let metadata = json!({"name": name, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"podCIDRs": ranges}}).to_string() + "\n---\n"
}

fn pod_on(node: &str, name: &str) -> String {
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string() + "\n---\n"
}

#[test]
fn pods_of_all_nodes_reach_each_other_by_the_network_that_agents_provide() {
    let lab = Lab::new();
    let before = lab.host.traces();
    for (mode, device) in [("direct", "dev eth0"), ("vxlan", "dev nl4-")] {
        lab.ok(&["up", "--between", mode, &format!("{}/two-nodes", examples())]);
        let routes = lab.ok(&["exec", "node/left", "--", "ip", "route", "show", "10.244.1.0/24"]);
        assert!(routes.contains(device), "{mode}: {routes}");
        lab.ok(&["exec", "client", "--", "ping", "-n", "-c1", "-w60", "10.244.1.2"]);
        let tunnels =
            lab.json(&["graph", "-o", "json"])["wires"].as_array().unwrap().iter().filter(|wire| wire["kind"] == "tunnel").count();
        assert_eq!(tunnels, usize::from(mode == "vxlan"), "{mode}");
        // What leaves the cluster's ranges has the node's address, and what stays has the pod's.
        let rules = lab.ok(&["exec", "node/left", "--", "nft", "list", "table", "inet", "netloom"]);
        assert!(rules.contains("masquerade") && rules.contains("10.244.1.0/24"), "{rules}");
        lab.ok(&["down"]);
    }
    // What the kernel cannot do is refused before anything is built. The guest has it: tests/guest/kernel/wireguard.
    let has_wireguard = lab.host.try_run("", &["ip", "link", "add", "probe", "type", "wireguard"]).status.success();
    lab.host.try_run("", &["ip", "link", "del", "probe"]);
    for mode in ["wireguard", "auto-wireguard"].into_iter().filter(|_| !has_wireguard) {
        let (_, stderr) = lab.fails(&["up", "--between", mode, &format!("{}/two-nodes", examples())], "");
        assert!(
            stderr.contains("this kernel has no WireGuard: load its module with `modprobe wireguard`, or choose another mode"),
            "{stderr}"
        );
        assert!(!lab.host.sh("", "ip netns list").contains("nl."), "nothing is built");
    }
    let (code, stderr) = lab.fails(&["up", "--between", "vxlan", "--default-network", "none", &examples()], "");
    assert!(code == 2 && stderr.contains("--default-network"), "{stderr}");
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn a_host_port_is_published_on_the_pods_node() {
    let lab = Lab::new();
    let ports = json!([{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}, {"containerPort": 81}]);
    let spec = json!({"nodeName": "one", "containers": [{"name": "c", "image": "i", "ports": ports}]});
    let web = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}).to_string() + "\n---\n";
    let manifests = zoned("one", "", &[]) + &zoned("two", "", &[]) + &web + &pod_on("two", "other");
    let out = lab.run_with(&["up", "-"], &manifests);
    assert!(out.status.success(), "{}", text(&out.stderr));
    lab.host.answer_at("nl.lab.pod.default.web", "web", "::", 80);
    for node in ["172.30.0.1", "fd00:172:30::1"] {
        let said = lab.host.told_over_udp("nl.lab.pod.default.other", node, 8080);
        assert!(said.starts_with("web "), "{node}: {said}");
    }
    lab.ok(&["down"]);
}

#[test]
fn zones_have_links_of_their_own_and_a_router_that_knows_no_pods() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let six = "fd00:6::/64";
    let manifests = [
        zoned("a-1", "a", &[]),
        zoned("a-2", "a", &[]),
        zoned("b-1", "b", &[]),
        zoned("b-2", "b", &[six]),
        pod_on("a-1", "web"),
        pod_on("a-2", "near"),
        pod_on("b-1", "far"),
        pod_on("b-2", "six"),
    ]
    .concat();
    let out = lab.run_with(&["up", "-"], &manifests);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    // Direct in the zone, by a tunnel to the other one, over IPv6 to the node that has nothing else.
    for (range, device) in [("10.244.1.0/24", "dev eth0"), ("10.244.2.0/24", "dev nl4-"), (six, "dev nl6-")] {
        let family = if range.contains(':') { "-6" } else { "-4" };
        let route = lab.ok(&["exec", "node/a-1", "--", "ip", family, "route", "show", range]);
        assert!(route.contains(device), "{range}: {route}");
    }
    let ips = |pod: &str| lab.json(&["status", pod, "-o", "json"])[0]["ips"].as_array().unwrap().clone();
    assert_eq!((ips("six"), ips("far").len()), (vec![json!("fd00:6::2")], 2), "a node of one family gives its pods that one alone");
    for address in ["near", "far", "six"].into_iter().flat_map(ips) {
        lab.ok(&["exec", "web", "--", "ping", "-n", "-c1", "-w60", address.as_str().unwrap()]);
    }
    let drawn = lab.ok(&["graph"]);
    assert!(["wire eth0 a", "wire eth0 b", "tunnel vxlan 4096", "(router)"].iter().all(|word| drawn.contains(word)), "{drawn}");
    lab.ok(&["down"]);
    // Without tunnels the zones are apart, which is said.
    let out = lab.run_with(&["up", "--between", "direct", "-"], &manifests);
    let stderr = text(&out.stderr);
    assert!(out.status.success() && stderr.contains("of node b-1 is in no subnet of node a-1") && stderr.contains("use auto"), "{stderr}");
    lab.ok(&["exec", "web", "--", "ping", "-n", "-c1", "-w60", "10.244.1.2"]);
    lab.fails(&["exec", "web", "--", "ping", "-n", "-c1", "-W1", "10.244.2.2"], "");
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn a_watched_lab_repairs_its_network_and_grows_with_its_files() {
    let lab = Lab::new();
    let before = lab.host.traces();
    // Whole files come, as an editor's do.
    let save = |file: &str, text: &str| {
        lab.host.write("/run/new", text);
        lab.host.sh("", &format!("mv /run/new /run/lab/{file}"));
    };
    lab.host.write("/run/lab/first.yaml", &[zoned("one", "", &[]), pod_on("one", "a")].concat());
    let mut watching = Watching::start(&lab, "/run/lab");
    let printed = watching.printed.clone();
    let says = |what: &str| std::fs::read_to_string(&printed).unwrap().contains(what);
    // A node joins, with a pod on a network that needs a wire of its own, and one more on the node that was there.
    let of_wire = r#"{"cniVersion":"1.0.0","type":"macvlan","capabilities":{"ips":true},"master":"ens9","ipam":{"type":"static"}}"#;
    let wired = |name: &str, node: &str, ip: &str| {
        let selected = json!([{"name": "wire", "ips": [ip]}]).to_string();
        pod(name, &selected).replace("---\n", &format!("spec: {{ nodeName: {node}, containers: [{{ name: c, image: i }}] }}\n---\n"))
    };
    // The pods come before what they select.
    save("second.yaml", &[zoned("two", "", &[]), wired("b", "two", "10.9.0.2/24"), wired("c", "one", "10.9.0.3/24")].concat());
    lab.host.until("the new pods lack their network", || says("has grown: 1 node, 2 pods"));
    assert!(says("cannot find a network-attachment-definition"));
    save("third.yaml", &definition("wire", of_wire));
    // Its exit code says that a pod is not ready yet.
    let shown = || serde_json::from_slice::<Value>(&lab.run_with(&["status", "-o", "json"], "").stdout).unwrap_or_default();
    let pods = || shown().as_array().map_or(0, |all| all.iter().filter(|pod| pod["state"] == "Ready").count());
    lab.host.until("the new pods are ready", || pods() == 3);
    for (from, to) in [("a", "10.244.1.2"), ("b", "10.244.0.2"), ("c", "10.9.0.2")] {
        lab.ok(&["exec", from, "--", "ping", "-n", "-c1", "-w60", to]);
    }
    // What somebody takes away comes back.
    let route = || lab.ok(&["exec", "node/one", "--", "ip", "route", "show", "10.244.1.0/24"]);
    lab.ok(&["exec", "node/one", "--", "ip", "route", "del", "10.244.1.0/24"]);
    lab.host.until("the route is back", || route().contains("172.30.0.2"));
    // A node gets another range, and a pod of it.
    save("first.yaml", &[zoned("one", "", &["10.77.0.0/24"]), pod_on("one", "a"), pod_on("one", "e")].concat());
    let other = || lab.ok(&["exec", "node/two", "--", "ip", "route", "show", "10.77.0.0/24"]);
    lab.host.until("the other node has a route to it", || other().contains("172.30.0.1"));
    lab.host.until("the pod of the new range is ready", || pods() == 4);
    assert_eq!(lab.json(&["status", "e", "-o", "json"])[0]["ips"], json!(["10.77.0.2"]));
    // Rules that somebody flushes come back.
    let rules = || lab.ok(&["exec", "node/one", "--", "nft", "list", "ruleset"]);
    lab.ok(&["exec", "node/one", "--", "nft", "flush", "ruleset"]);
    lab.host.until("the node masquerades again", || rules().contains("masquerade"));
    // What cannot be, changes nothing, and the lab grows on.
    for (text, why) in [
        ("kind: Pod".to_owned(), "error: "),
        (zoned("three", "c", &[]), "a zone cannot be added"),
        (zoned("two", "", &["10.77.0.0/25"]), "10.77.0.0/25"),
    ] {
        save("fourth.yaml", &text);
        lab.host.until("it says why", || says(why));
        assert_eq!((pods(), shown().as_array().unwrap().len()), (4, 4), "{why}");
    }
    save("fourth.yaml", &pod_on("two", "d"));
    lab.host.until("a later pod is ready", || pods() == 5);
    assert!(lab.ok(&["down"]).contains("5 pods detached"));
    assert!(watching.process.ends_well() && says("the lab is taken down"), "{}", std::fs::read_to_string(&printed).unwrap());
    lab.host.sh("", "rm -r /run/lab /run/printed");
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn a_growth_that_fails_leaves_the_lab_as_it_was() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.host.write("/run/first.yaml", &[zoned("one", "", &[]), pod_on("one", "a")].concat());
    let mut watching = Watching::start(&lab, "/run/first.yaml");
    let printed = watching.printed.clone();
    let says = |what: &str| std::fs::read_to_string(&printed).unwrap().contains(what);
    // Somebody else has a name that the growth needs.
    lab.host.sh("", "ip netns add nl.lab.node.two");
    let all = [zoned("one", "", &[]), zoned("two", "", &[]), pod_on("one", "a"), pod_on("one", "b"), pod_on("two", "c")].concat();
    lab.host.write("/run/first.yaml", &all);
    lab.host.until("it says why", || says("nl.lab.node.two"));
    assert_eq!(lab.json(&["status", "-o", "json"]).as_array().unwrap().len(), 1);
    lab.host.sh("", "ip netns delete nl.lab.node.two");
    lab.host.write("/run/first.yaml", &(all + "---\n"));
    lab.host.until("the lab has grown", || says("has grown: 1 node, 2 pods"));
    lab.ok(&["exec", "c", "--", "ping", "-n", "-c1", "-w60", "10.244.0.3"]);
    assert!(lab.ok(&["down"]).contains("3 pods detached"));
    assert!(watching.process.ends_well());
    lab.host.sh("", "rm /run/first.yaml /run/printed");
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn zones_that_no_router_can_join_are_refused() {
    let lab = Lab::new();
    let node = |name: &str, zone: &str, address: &str| {
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        let metadata = json!({"name": name, "labels": {"topology.kubernetes.io/zone": zone}});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}}).to_string() + "\n---\n"
    };
    let (code, stderr) = lab.fails(&["up", "-"], &(node("one", "a", "10.9.0.1") + &node("two", "b", "10.9.0.2")));
    assert!(code == 1 && ["\"a\"", "\"b\"", "10.9.0.0/16"].iter().all(|word| stderr.contains(word)), "{stderr}");
    // Two subnets of one zone are joined as two zones are.
    let split = [node("one", "", "192.0.2.1"), node("two", "", "198.51.100.1"), pod_on("one", "a"), pod_on("two", "b")].concat();
    let out = lab.run_with(&["up", "-"], &split);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    lab.ok(&["exec", "a", "--", "ping", "-n", "-c1", "-w60", "10.244.1.2"]);
    lab.ok(&["down"]);
    let many: String = (0..16).map(|n| zoned(&format!("n{n}"), &format!("z{n}"), &[])).collect();
    let (code, stderr) = lab.fails(&["up", "-"], &(node("a", "a", "172.30.0.9") + &node("router", "b", "172.29.255.254")));
    assert!(code == 1 && stderr.contains("172.29.255.254") && stderr.contains("the router"), "{stderr}");
    let (code, stderr) = lab.fails(&["up", "-"], &many);
    assert!(code == 1 && stderr.contains("16 zones") && stderr.contains("at most 15"), "{stderr}");
}

#[test]
fn several_labs_are_up_at_once_and_share_nothing() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let dir = examples();
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let (lab, dir) = (&lab, &dir);
            scope.spawn(move || lab.ok(&["up", "--name", name, dir]));
        }
    });
    let listed = lab.json(&["list", "-o", "json"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "three", "two"]);
    // The same addresses in each: they are different networks.
    for name in names {
        assert_eq!(lab.json(&["status", "--name", name, "web", "-o", "json"])[0]["ips"][0], "10.244.0.2");
    }
    lab.ok(&["down", "--all"]);
    assert!(lab.ok(&["list"]).contains("no lab is up"));
    lab.host.expect_traces(&before, "lab down --all");
}

#[test]
fn s51_a_pod_that_fails_is_told_and_the_others_stay_up() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let small = r#"{"cniVersion":"1.0.0","type":"bridge","bridge":"s0","ipam":{"type":"host-local","subnet":"10.9.0.0/30"}}"#;
    let manifests = [
        definition("small", small),
        pod("first", "small"),
        pod("second", "small"),
        pod("lost", "nowhere"),
        pod("wish", r#"[{"name":"small","ips":["10.9.0.2"]}]"#),
        pod("plain", ""),
    ];
    let out = lab.run_with(&["up", "--keep-going", "-"], &manifests.concat());
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(stdout.contains("lab \"lab\": 3 of 5 pods failed"), "{stdout}");
    assert!(stderr.contains("default/second: error adding container to network \"default/small\": plugin type=\"bridge\" failed (add): no IP addresses available"), "{stderr}");
    assert!(stderr.contains("cannot find a network-attachment-definition (nowhere) in namespace (default)"), "{stderr}");
    assert!(stderr.contains("standard input:27:35: error: "), "the manifest's place is told: {stderr}");
    assert!(
        stderr.contains("default/wish: error adding container to network \"default/small\": plugin type=\"bridge\" failed (add): requested address 10.9.0.2 is taken"),
        "{stderr}"
    );
    for (name, failed) in [("first", false), ("second", true), ("plain", false)] {
        let out = lab.run_with(&["status", name], "");
        assert_eq!(out.status.code(), Some(if failed { 3 } else { 0 }), "{name}: {}", text(&out.stdout));
    }
    // What failed has nothing but its loopback; the default network of the first half was undone.
    let links = lab.ok(&["exec", "second", "--", "ip", "-o", "link"]);
    assert_eq!(links.lines().count(), 1, "{links}");
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

/// An API server takes any text as an annotation or a configuration: such a pod fails for itself.
#[test]
fn a_bad_annotation_or_configuration_holds_up_no_other_pod() {
    let lab = Lab::new();
    let manifests = [
        definition("future", r#"{"cniVersion":"9.0.0","type":"bridge"}"#),
        pod("good", ""),
        pod("misspelt", r#"[{"name":"future","gatway":["10.0.0.1"]}]"#),
        pod("new", "future"),
    ];
    // Unless somebody says so, nothing is built of them.
    let (code, refused) = lab.fails(&["up", "-"], &manifests.concat());
    assert!(code == 1 && refused.contains("2 errors in the manifests: nothing was built"), "{refused}");
    assert!(lab.host.list("/run/netns").is_empty(), "nothing was built");
    let out = lab.run_with(&["up", "--keep-going", "-"], &manifests.concat());
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{stderr}");
    for part in ["standard input:20:53: error: ", "default/misspelt: ", "gatway: unknown key", "default/new: ", "\"9.0.0\""] {
        assert!(stderr.contains(part), "{part} is not in\n{stderr}");
    }
    lab.ok(&["status", "good"]);
    lab.ok(&["down"]);
}

#[test]
fn an_interrupted_up_says_what_to_do() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let manifests: String = (0..400).map(|i| pod(&format!("p{i}"), "")).collect();
    lab.host.write("/run/many.yaml", &manifests);
    let mut command = lab.host.command("", netloom());
    let child = command.args(["lab", "up", "/run/many.yaml"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    lab.host.until("some pods are attached", || lab.host.list("/run/netns").len() > 20);
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted after ") && stderr.contains(" of 400 pods; `netloom lab down --name lab`"), "{stderr}");
    lab.ok(&["down"]);
    std::fs::remove_file(lab.host.path("/run/many.yaml")).unwrap();
    lab.host.expect_traces(&before, "an interrupted lab up, and down");
}

#[test]
fn a_full_disk_is_told() {
    let lab = Lab::new();
    assert!(lab.run_with(&["up", "-"], &pod("a", "")).status.success());
    for args in [&["status"][..], &["graph"][..], &["list"][..], &["status", "a", "-o", "yaml"][..]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let out = lab
            .host
            .command("", netloom())
            .arg("lab")
            .args(args)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(text(&out.stderr).contains("write to standard output: No space left on device"), "{}", text(&out.stderr));
    }
    assert_eq!(lab.run_with(&["exec", "a", "sh", "-c", "exit 5"], "").status.code(), Some(5), "without -- too");
    lab.ok(&["down"]);
}

#[test]
fn a_dry_run_says_everything_and_does_nothing() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let shown = lab.ok(&["up", "--dry-run", &examples()]);
    for part in ["repl0", "bridge+host-local, tuning", "patch-cable", r#"{"ips":["10.60.0.50/24"],"mac":"02:00:00:60:00:50"}"#] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let plan = lab.json(&["up", "--dry-run", "-o", "json", &examples()]);
    assert_eq!(plan[2]["attachments"][2]["interface"], "net2");
    lab.host.expect_traces(&before, "lab up --dry-run");
}

#[test]
fn the_default_network_can_be_another_or_none() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let own = r#"{"cniVersion":"1.0.0","name":"corp","type":"bridge","bridge":"corp0","isDefaultGateway":true,
        "ipam":{"type":"host-local","subnet":"10.3.0.0/24"}}"#;
    lab.host.write("/run/corp.conf", own);
    let manifests = pod("a", "");
    let out = lab.run_with(&["up", "--default-network", "/run/corp.conf", "-"], &manifests);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let status = lab.json(&["status", "a", "-o", "json"]);
    assert_eq!((status[0]["name"].as_str(), status[0]["gateway"][0].as_str()), (Some("corp"), Some("10.3.0.1")));
    lab.ok(&["down"]);
    let out = lab.run_with(&["up", "--default-network", "none", "-"], &manifests);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(lab.json(&["status", "a", "-o", "json"]), serde_json::json!([]));
    lab.ok(&["down"]);
    std::fs::remove_file(lab.host.path("/run/corp.conf")).unwrap();
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn mistakes_are_named_with_their_place_and_the_next_step() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let good = pod("a", "");
    let cases: &[(&[&str], &str, i32, &[&str])] = &[
        (&["up", "-"], "kind: Pod\nmetadata: {name: Bad_Name}\napiVersion: v1\n", 1, &["document 1, line 2", "metadata.name"]),
        (&["up", "/nowhere.yaml"], "", 1, &["/nowhere.yaml"]),
        (&["up", "--name", "No Lab", "-"], &good, 1, &["lab name", "lower-case"]),
        (&["up", "--default-network", "/nowhere.conf", "-"], &good, 1, &["--default-network", "/nowhere.conf"]),
        (&["up"], "", 2, &["<FILE>"]),
        (&["status"], "", 1, &["there is no lab \"lab\": none is up; start one with `netloom lab up FILES`"]),
        (&["down"], "", 1, &["there is no lab \"lab\""]),
        (&["exec", "a", "--", "true"], "", 1, &["there is no lab \"lab\""]),
        (&["graph", "--format", "gif"], "", 2, &["svg", "mermaid", "dot"]),
    ];
    for (args, stdin, code, parts) in cases {
        let (got, stderr) = lab.fails(args, stdin);
        assert_eq!(got, *code, "{args:?}\n{stderr}");
        parts.iter().for_each(|part| assert!(stderr.contains(part), "{args:?}: {part:?} is not in\n{stderr}"));
    }
    lab.host.expect_traces(&before, "commands that failed");
}

#[test]
fn mistakes_in_a_lab_that_is_up() {
    let lab = Lab::new();
    let before = lab.host.traces();
    let two = format!("{}{}", pod("a", ""), pod("a", "").replace("name: a", "name: a\n  namespace: other"));
    assert!(lab.run_with(&["up", "-"], &two).status.success());
    for (args, part) in [
        (&["up", "-"][..], "lab \"lab\" is up already"),
        (&["status", "b"][..], "has no pod b; it has other/a, default/a"),
        (&["status", "a"][..], "several namespaces: name one of default/a, other/a"),
        (&["exec", "node/x", "--", "true"][..], "has no node x; it has node-1"),
    ] {
        let (code, stderr) = lab.fails(args, &two);
        assert!(code == 1 && stderr.contains(part), "{args:?}: {part:?} is not in\n{stderr}");
    }
    assert_eq!(lab.run_with(&["exec", "other/a", "--", "sh", "-c", "exit 7"], "").status.code(), Some(7));
    let (code, stderr) = lab.fails(&["exec", "other/a", "--", "no-such-program"], "");
    assert!(code == 127 && stderr.contains("run no-such-program: ENOENT"), "{stderr}");
    lab.ok(&["down"]);
    lab.host.expect_traces(&before, "lab down");
}

#[test]
fn status_finds_what_has_changed() {
    let lab = Lab::new();
    assert!(lab.run_with(&["up", "-"], &pod("a", "")).status.success());
    lab.ok(&["exec", "a", "--", "ip", "addr", "del", "10.244.0.2/24", "dev", "eth0"]);
    let out = lab.run_with(&["status", "a"], "");
    let shown = text(&out.stdout);
    assert_eq!(out.status.code(), Some(3), "{shown}");
    assert!(shown.contains("Changed") && shown.contains("it has lost address 10.244.0.2/24"), "{shown}");
    lab.ok(&["down"]);
}

#[test]
fn down_tells_who_is_still_in_there() {
    let lab = Lab::new();
    assert!(lab.run_with(&["up", "-"], &pod("a", "")).status.success());
    let before = lab.host.traces();
    let mut sleeper = lab.host.command("", netloom()).args(["lab", "exec", "a", "--", "sleep", "300"]).spawn().unwrap();
    let sleeps = || std::fs::read_to_string(format!("/proc/{}/comm", sleeper.id())).is_ok_and(|c| c.trim() == "sleep");
    lab.host.until("the program runs in the pod", sleeps);
    let (code, stderr) = lab.fails(&["down"], "");
    assert!(code == 1 && stderr.contains(&format!("process {} (sleep)", sleeper.id())), "{stderr}");
    lab.host.expect_traces(&before, "a lab down that was refused");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    lab.ok(&["down"]);
}

#[test]
fn a_lab_is_drawn_in_every_format() {
    let lab = Lab::new();
    lab.ok(&["up", &examples()]);
    for (format, start, parts) in [
        ("terminal", "lab  1 node", ["╭─ node-1", "default/storage", "wire eth0"]),
        ("svg", "<svg", ["</svg>", "10.244.0.1", "storage"]),
        ("mermaid", "flowchart", ["subgraph", "storage", "eth0"]),
        ("dot", "", ["graph", "cluster", "storage"]),
        ("json", "{", ["\"wires\"", "\"attached_to\"", "\"macvlan\""]),
    ] {
        let drawn = lab.ok(&["graph", "--format", format]);
        assert!(drawn.trim_start().starts_with(start), "{format}:\n{drawn}");
        parts.iter().for_each(|part| assert!(drawn.contains(part), "{format}: {part} is not in\n{drawn}"));
        assert!(!drawn.contains('\u{1b}'), "{format}: plain when piped");
    }
    lab.ok(&["down"]);
}

/// A pair without a bridge: the node's own end is what the pod reaches, in every format.
#[test]
fn a_pair_that_is_no_port_is_drawn_with_its_end_on_the_node() {
    let lab = Lab::new();
    let p2p = definition("p2p", r#"{"cniVersion":"1.0.0","type":"ptp","ipam":{"type":"host-local","subnet":"10.77.0.0/24"}}"#);
    let out = lab.run_with(&["up", "-"], &(p2p + &pod("a", "p2p")));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let drawn = lab.json(&["graph", "--format", "json"]);
    let node = &drawn["nodes"][0];
    let net1 = node["pods"][0]["interfaces"].as_array().unwrap().iter().find(|i| i["name"] == "net1").unwrap().clone();
    let end = net1["attached_to"].as_str().unwrap();
    let link = node["links"].as_array().unwrap().iter().find(|l| l["name"] == end).unwrap_or_else(|| panic!("no {end}: {drawn}"));
    assert_eq!((&link["kind"], &link["addresses"][0]), (&serde_json::json!("veth"), &serde_json::json!("10.77.0.1/32")));
    for format in ["terminal", "svg", "mermaid", "dot"] {
        assert!(lab.ok(&["graph", "--format", format]).contains("10.77.0.1/32"), "{format}");
    }
    lab.ok(&["down"]);
}

#[test]
fn everything_goes_even_when_a_namespace_is_gone_already() {
    let lab = Lab::new();
    let before = lab.host.traces();
    lab.ok(&["up", &examples()]);
    lab.host.run("", &["ip", "netns", "delete", "nl.lab.pod.default.web"]);
    lab.host.run("", &["ip", "netns", "delete", "nl.lab.node.node-1"]);
    lab.ok(&["down", "--force"]);
    lab.host.expect_traces(&before, "lab down --force");
}

#[test]
fn man_pages_are_generated() {
    let host = Host::new();
    host.run("", &[netloom().to_str().unwrap(), "man", "/run/man"]);
    let pages = host.list("/run/man");
    for page in ["netloom.1", "netloom-lab-up.1", "netloom-cni-add.1"] {
        assert!(pages.iter().any(|p| p == page), "{page} is not in {pages:?}");
    }
}

/// A script asks the program itself, as a shell does on TAB: commands, flags, and the names that there are.
#[test]
fn completion_offers_commands_labs_pods_and_networks() {
    let lab = Lab::new();
    let offered = |words: &[&str]| -> Vec<String> {
        let mut command = lab.host.command("", netloom());
        command.env("NETLOOM_COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        let out = command.args(["--", "netloom"]).args(words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
    };
    let has = |words: &[&str], wanted: &[&str]| {
        let offered = offered(words);
        assert!(wanted.iter().all(|w| offered.iter().any(|o| o == w)), "{words:?}: {offered:?} lacks one of {wanted:?}");
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.host.run("", &[netloom().to_str().unwrap(), "completion", shell]);
        assert!(script.contains("NETLOOM_COMPLETE"), "{shell}: {script}");
    }
    has(&["lab", "u"], &["up"]);
    has(&["lab", "up", "--dry"], &["--dry-run"]);
    has(&["plugins", "port"], &["portmap"]);
    lab.ok(&["up", "--name", "two", &examples()]);
    has(&["lab", "down", "--name", ""], &["two"]);
    has(&["lab", "exec", ""], &["web", "db"]);
    lab.ok(&["down", "--name", "two"]);
    lab.host.write("/etc/cni/net.d/10-a.conflist", r#"{"cniVersion":"1.0.0","name":"mynet","plugins":[{"type":"loopback"}]}"#);
    has(&["cni", "add", ""], &["mynet"]);
}

/// Until the next release `-n` names a lab, as it did; then it is the namespace, as in every other command.
#[test]
fn the_short_flag_for_a_labs_name_warns() {
    let lab = Lab::new();
    let run = |args: &[&str]| {
        let out = lab.host.command("", netloom()).args(args).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, said) = run(&["lab", "up", "-n", "two", &examples()]);
    assert!(
        code == Some(0) && said.contains("warning: -n is deprecated for a lab, and will be removed in the next release: use --name two"),
        "{said}"
    );
    assert_eq!(run(&["lab", "down", "--name", "two"]), (Some(0), String::new()));
    assert_eq!(run(&["lab", "down", "--name", "two", "-n", "two"]).0, Some(2));
}

#[test]
fn version_says_what_the_kernel_has() {
    let host = Host::new();
    let version: Value = serde_json::from_str(&host.run("", &[netloom().to_str().unwrap(), "version", "-o", "json"])).unwrap();
    assert!(host.run("", &[netloom().to_str().unwrap(), "--version"]).contains(version["version"].as_str().unwrap()));
    assert_eq!(version["kernel"].as_str().unwrap(), std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    let features = version["features"].as_array().unwrap();
    for name in ["veth", "bridge", "nf_tables"] {
        let feature = features.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("no {name}: {features:?}"));
        assert_eq!(feature["available"], true, "{feature}");
    }
    assert!(host.run("", &[netloom().to_str().unwrap(), "version"]).contains("\n  nf_tables             yes"));
}

/// A roll-back that failed was forgotten: the record went, nobody called DEL again, and what the plugin kept stayed.
#[test]
fn s52_a_failed_roll_back_is_tried_again() {
    let host = Host::new();
    let plugin = |name: &str, line: &str| {
        host.write(&format!("/run/x/bin/{name}"), &format!("#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND {name} >>/run/x/calls\n{line}\n"));
        host.sh("", &format!("chmod 755 /run/x/bin/{name}"));
    };
    plugin("fine", r#"[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'"#);
    plugin("broken", r#"[ $CNI_COMMAND = DEL -a -e /run/x/mended ] || exit 1"#);
    let definition = |name: &str| {
        format!(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec: {{config: '{}'}}\n---\n",
            json!({"cniVersion": "1.0.0", "type": name})
        )
    };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {k8s.v1.cni.cncf.io/networks: 'fine,broken'}}\n";
    host.write("/run/x/all.yaml", &format!("{}{}{pod}", definition("fine"), definition("broken")));
    let lab = |args: &[&str]| {
        let out = host.command("", netloom()).arg("lab").args(args).env_remove("CNI_PATH").output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let calls = || std::fs::read_to_string(host.path("/run/x/calls")).unwrap().split('\n').map(str::to_owned).collect::<Vec<_>>();
    let (code, said) = lab(&["up", "/run/x"]);
    assert!(code == 3 && said.contains("could not be undone"), "{said}");
    assert!(lab(&["down"]).0 == 1, "it still cannot be undone");
    host.write("/run/x/mended", "");
    assert_eq!(lab(&["down"]), (0, String::new()));
    assert!(calls().iter().filter(|c| *c == "DEL broken").count() >= 4, "{:?}", calls());
}

/// A definition's `dataDir` was taken as it is: a lab wrote all over the machine, and left it there.
#[test]
fn a_lab_writes_only_below_its_own_directories() {
    let host = Host::new();
    let config = json!({"cniVersion": "1.0.0", "name": "data", "plugins": [
        {"type": "bridge", "bridge": "b0", "ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "dataDir": "/var/lib/mine/../data"}},
        {"type": "tuning", "mtu": 1400, "dataDir": "/var/lib/tuned"}]});
    let text = format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: data}}\nspec: {{config: '{config}'}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{k8s.v1.cni.cncf.io/networks: data}}}}\n"
    );
    host.write("/run/all.yaml", &text);
    let before = host.traces();
    let lab = |args: &[&str]| host.command("", netloom()).arg("lab").args(args).output().unwrap().status.code();
    assert_eq!(lab(&["up", "/run/all.yaml"]), Some(0));
    assert_eq!(host.list("/var/lib"), Vec::<String>::new());
    assert_eq!(lab(&["down"]), Some(0));
    host.expect_traces(&before, "a lab with a dataDir");
}
