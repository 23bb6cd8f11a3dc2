//! Labs in which everything works: every case passes or says why it is skipped, in each format.

use std::collections::BTreeSet;
use std::path::Path;

use netloom_tests::netloom;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use serde_json::Value;

use super::{Lab, node, pod};

/// An example: `zones` has a router, and nodes of one family; a node of `two-nodes` has no address of IPv6, and its pods have.
fn example(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("examples").join(name);
    let files = std::fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .map(|path| std::fs::read_to_string(path).unwrap() + "\n---\n")
        .collect()
}

fn case<'a>(json: &'a Value, id: &str) -> &'a Value {
    json["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}"))
}

#[test]
fn every_case_passes_or_says_why_it_is_skipped() {
    let two = [node("left"), node("right"), pod("a", "left"), pod("b", "right"), pod("b2", "right")].concat();
    let (zones, unequal) = (example("zones"), example("two-nodes"));
    for (manifests, mode) in [(zones.as_str(), "auto"), (&two, "direct"), (&two, "vxlan"), (&unequal, "vxlan")] {
        let lab = Lab::up(manifests, &["--between", mode]);
        let before = lab.host.traces();
        let (code, json) = lab.verified(&[]);
        assert_eq!((code, &json["failed"]), (0, &Value::from(0)), "{mode}: {json:#}");
        assert_eq!(json["cases"].as_array().unwrap().len(), 66);
        for id in ["2", "7", "11", "model-1", "model-2", "model-3", "network-3", "network-4"] {
            assert_eq!(case(&json, id)["state"], "passed", "{mode} {id}");
        }
        for id in ["14", "35", "56"] {
            let why = case(&json, id)["skipped"][0]["why"].as_str().unwrap();
            assert!(why.contains("service proxy"), "{id}: {why}");
        }
        let internet = case(&json, "8")["state"].as_str().unwrap();
        assert_eq!(internet, if mode == "auto" { "passed" } else { "skipped" });
        lab.host.expect_traces(&before, "netloom verify");
        lab.down();
    }
}

#[test]
fn each_format_and_exit_code() {
    let lab = Lab::up(&[node("left"), node("right"), pod("a", "left"), pod("b", "right")].concat(), &[]);
    let (code, printed, _) = lab.verify(&["--test", "^(2|14)$"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("passed   2 ") && printed.contains("skipped  14 "), "{printed}");
    assert!(printed.contains("1 passed, 0 failed, 1 skipped: lab \"lab\", in "), "{printed}");
    lab.run("node.left", "ip route del 10.244.1.0/24");
    let (code, printed, _) = lab.verify(&["--test", "^2$", "--timeout", "1"]);
    assert_eq!(code, 3, "{printed}");
    for words in ["failed   2 ", "node/left no route to the destination NoRoute", "no route leads to 10.244.1.", "ip route show table all"]
    {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let (_, junit, _) = lab.verify(&["--test", "^2$", "--timeout", "1", "-o", "junit"]);
    assert!(junit.contains("tests=\"1\" failures=\"1\"") && junit.contains("<failure type=\"NoRoute\" message=\"node/left: "), "{junit}");
    let (_, html, _) = lab.verify(&["--test", "^2$", "--timeout", "1", "-o", "html"]);
    assert!(html.contains("<tr class=\"failed\"><td>failed<td>2<td>") && html.ends_with("</html>\n"), "{html}");
    let (code, _, said) = lab.verify(&["--test", "no such case"]);
    assert!(code == 1 && said.contains("netloom verify --list"), "{said}");
    let (code, _, said) = lab.verify(&["--test", "("]);
    assert!(code == 1 && said.contains("--test \"(\""), "{said}");
    for wrong in [["--concurrency", "0"], ["--timeout", "0"], ["-o", "xml"], ["--namespace", "n"]] {
        assert_eq!(lab.verify(&wrong).0, 2, "{wrong:?}");
    }
    let (code, printed, _) = lab.verify(&["--test", "^10$", "--concurrency", "1", "--timeout", "600"]);
    assert!(code == 0 && printed.contains("passed   10 "), "{printed}");
    let (code, listed, _) = lab.verify(&["--list"]);
    assert!(code == 0 && listed.lines().count() == 67, "{listed}");
    // What a family cannot have is listed with what is expected of it.
    let families = |id: &str| listed.lines().find(|line| line.starts_with(&format!("{id} "))).unwrap_or_else(|| panic!("{id}: {listed}"));
    assert!(families("9").ends_with("IPv4; IPv6 is skipped: the metadata service has the address 169.254.169.254 alone"), "{listed}");
    for (id, expected) in [("2", " both"), ("42", " both"), ("43", "no answer at [::1]"), ("44", "no answer at [::1]")] {
        assert!(families(id).ends_with(expected), "{listed}");
    }
    lab.down();
    let (code, _, said) = lab.verify(&[]);
    assert!(code == 1 && said.contains("there is no lab \"lab\""), "{said}");
}

/// Half of the lab that a kernel with its usual table of neighbours has room for. The whole one, with 200 pods, takes 1 to 2 s.
#[test]
fn every_pair_of_ten_nodes() {
    let nodes = (0..10).map(|n| format!("n{n}"));
    let pods = |name: &String| (0..10).map(|p| pod(&format!("{name}-{p}"), name)).collect::<String>();
    let manifests: String = nodes.clone().map(|name| node(&name)).chain(nodes.map(|name| pods(&name))).collect();
    let lab = Lab::up(&manifests, &["--between", "vxlan"]);
    let (code, json) = lab.verified(&[]);
    assert_eq!(code, 0, "{json:#}");
    // Both ways, over TCP and UDP, in both families; and twice, that each of ten pods asks one of nine other nodes.
    assert_eq!(case(&json, "2")["passed"], 10 * 9 * 2 * 2 * 2);
    // Each pod asks another one of its node.
    assert_eq!(case(&json, "1")["passed"], 100 * 2 * 2);
    println!("{} s", json["seconds"]);
    lab.down();
}

/// On a terminal, a line that is written again shows how many probes have come out; elsewhere, and in what is printed, there is no such line.
#[test]
fn progress_is_shown_on_a_terminal() {
    let lab = Lab::up(&[node("left"), node("right"), pod("a", "left"), pod("b", "right")].concat(), &[]);
    let verify = format!("{} verify --test ^2$", netloom().display());
    let on_a_terminal = |line: &str, term: &str| {
        let out = lab.host.command("", "script").args(["-qec", line, "/dev/null"]).env("TERM", term).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let shown = on_a_terminal(&verify, "xterm");
    assert!(shown.contains("\r\u{1b}[K") && shown.contains(" of 8 probes"), "{shown:?}");
    let (last, result) = (shown.rfind(" of 8 probes").unwrap(), shown.find("passed").unwrap());
    assert!(last < result && shown[last..result].contains("\r\u{1b}[K"), "the line is gone before the case is printed: {shown:?}");
    assert!(!on_a_terminal(&verify, "dumb").contains("\r\u{1b}"));
    assert!(!on_a_terminal(&format!("{verify} 2>/run/said"), "xterm").contains(" of 8 probes"));
    assert_eq!(lab.verify(&["--test", "^2$"]).2, "", "no line without a terminal");
    lab.down();
}

/// Ports that pods publish, and networks that keep their pods apart.
#[test]
fn published_ports_and_isolation() {
    let config = |name: &str, first: &str, others: &str| {
        format!(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec: {{config: \
            '{{\"cniVersion\":\"1.0.0\",\"plugins\":[{{\"type\":\"bridge\",{first}\"ipam\":{{\"type\":\"host-local\",\
            \"subnet\":\"10.9{}.0.0/24\"}}}}{others}]}}'}}\n---\n",
            name.len()
        )
    };
    let with = |name: &str, node: &str, ports: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{k8s.v1.cni.cncf.io/networks: 'apart, together, walled'}}}}\n\
            spec: {{nodeName: {node}, containers: [{{name: c, image: i, ports: [{ports}]}}]}}\n---\n"
        )
    };
    let manifests = [
        node("left"),
        node("right"),
        config("apart", "\"bridge\":\"apart0\",\"portIsolation\":true,", ""),
        config("together", "\"bridge\":\"together0\",", ""),
        config("walled", "\"bridge\":\"walled0\",", ",{\"type\":\"firewall\",\"ingressPolicy\":\"isolated\"}"),
        with(
            "a",
            "left",
            &["", ", protocol: UDP", ", protocol: SCTP"].map(|of| format!("{{containerPort: 80, hostPort: 8080{of}}}")).join(", "),
        ),
        with("a2", "left", ""),
        with("b", "right", ""),
    ]
    .concat();
    let lab = Lab::up(&manifests, &[]);
    let (code, json) = lab.verified(&[]);
    assert_eq!(code, 0, "{json:#}");
    for id in ["3", "4", "5", "12", "13", "network-1", "network-5"] {
        assert_eq!(case(&json, id)["state"], "passed", "{id}: {}", case(&json, id));
    }
    // A pair of pods on each of the networks apart and walled.
    assert_eq!(case(&json, "network-5")["passed"], 2, "{}", case(&json, "network-5"));
    // Over SCTP where the kernel has it; else each case says so.
    let sctp = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp);
    let protocols = if sctp.is_ok() { 3 } else { 2 };
    for id in ["3", "5", "13"] {
        let case = case(&json, id);
        // Of both families.
        assert_eq!(case["passed"], 2 * protocols, "{case:#}");
        let why = case["skipped"][0]["why"].as_str().unwrap_or_default();
        assert_eq!(why.contains("published ports over SCTP: this kernel has no such sockets"), sctp.is_err(), "{case:#}");
    }
    let (_, printed, _) = lab.verify(&["--test", "^5$"]);
    assert_eq!(printed.contains("; not tried: published ports over SCTP: "), sctp.is_err(), "{printed}");
    // Silence that has another cause is no isolation.
    let ports = lab.host.json("nl.lab.node.left", "ip -j link show master apart0");
    let port = ports[0]["ifname"].as_str().unwrap();
    lab.run("node.left", &format!("ip link set {port} down"));
    let (found, json) = lab.found("network-5");
    assert_eq!(
        found.iter().map(|(fault, at, _)| (fault.as_str(), at.as_str())).collect::<Vec<_>>(),
        [("LinkDown", &*format!("node/left {port}"))],
        "{json:#}"
    );
    lab.run("node.left", &format!("ip link set {port} up"));
    assert_eq!(lab.found("network-5").0, BTreeSet::new());
    // Somebody ends the isolation.
    for link in lab.host.json("nl.lab.node.left", "ip -j link show master apart0").as_array().unwrap() {
        lab.run("node.left", &format!("bridge link set dev {} isolated off", link["ifname"].as_str().unwrap()));
    }
    let (found, json) = lab.found("network-5");
    let names: Vec<&str> = found.iter().map(|(fault, ..)| fault.as_str()).collect();
    assert_eq!(names, ["NotIsolated"; 1], "{json:#}");
    lab.down();
}

/// Zones have links of their own: pods of a macvlan on `eth0` reach each other in their zone alone, and those on another card in all zones. Each
/// pair of nodes was expected to be on one link.
#[test]
fn a_macvlan_reaches_its_own_zone() {
    let node = |name: &str, zone: &str| {
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{topology.kubernetes.io/zone: {zone}}}}}\n---\n")
    };
    let network = |name: &str, master: &str| {
        format!(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec: {{config: \
            '{{\"cniVersion\":\"1.0.0\",\"type\":\"macvlan\",{master}\"capabilities\":{{\"ips\":true}},\"ipam\":{{\"type\":\"static\"}}}}'}}\n---\n"
        )
    };
    let networks = ["named", "unnamed", "card"];
    let pod = |name: &str, node: &str, last: u8| {
        let selection = |(of, number): (&&str, u8)| format!("{{\"name\": \"{of}\", \"ips\": [\"10.9{number}.0.{last}/24\"]}}");
        let selections: Vec<String> = networks.iter().zip(1..).map(selection).collect();
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{k8s.v1.cni.cncf.io/networks: '[{}]'}}}}\n\
            spec: {{nodeName: {node}, containers: [{{name: c, image: i}}]}}\n---\n",
            selections.join(", ")
        )
    };
    let manifests = [
        [node("a-1", "a"), node("a-2", "a"), node("b-1", "b")].concat(),
        [network("named", "\"master\":\"eth0\","), network("unnamed", ""), network("card", "\"master\":\"ens9\",")].concat(),
        [pod("one", "a-1", 1), pod("two", "a-2", 2), pod("three", "b-1", 3)].concat(),
    ]
    .concat();
    let lab = Lab::up(&manifests, &[]);
    let (code, json) = lab.verified(&["--test", "^network-"]);
    assert_eq!((code, &json["failed"]), (0, &Value::from(0)), "{json:#}");
    // Two nodes of zone a ask each other on each network, and b-1 and both of them on the card.
    assert_eq!(case(&json, "network-2")["passed"], 3 * 2 + 4, "{json:#}");
    lab.down();
}
