//! What is tried only where somebody asks for it: a pod's bandwidth limit; and a cloud's load balancer, which is not healthy at once.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use netloom_tests::netloom;
use serde_json::{Value, json};
use testbed::{BALANCED, Families, NETLOOM};

use super::{NAMESPACE, Verified, causes, text};
use crate::path::scene::{definition, until};

/// How a case came out.
fn state<'a>(verified: &'a Value, id: &str) -> &'a str {
    let case = verified["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}"));
    case["state"].as_str().unwrap()
}

#[test]
fn a_bandwidth_limit_holds_or_its_pod_is_named() {
    let mut verified = Verified::new("verify-bandwidth", Families::V4, "between: direct");
    let (unasked, code) = verified.run("not asked", &["--test", "^bandwidth-"]);
    assert_eq!((code, state(&unasked, "bandwidth-1")), (0, "skipped"), "{unasked:#}");
    let (whole, code) = verified.run("bandwidth", &["--bandwidth", "--test", "^bandwidth-"]);
    assert_eq!((code, state(&whole, "bandwidth-1"), state(&whole, "bandwidth-2")), (0, "passed", "passed"), "{whole:#}");
    verified.nothing_is_left();

    // Those of a network, on each of the two nodes.
    let bridge = json!({"type": "bridge", "bridge": "slow0", "ipam": {"type": "host-local", "subnet": "10.79.0.0/24"}});
    let limit =
        json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 16_000_000, "egressBurst": 800_000});
    let config = json!({"cniVersion": "1.1.0", "plugins": [bridge, limit]});
    verified.scene.apply(&definition("slow", &json!({}), Some(&config)));
    let (network, code) = verified.run("of a network", &["--bandwidth", "--network", "default/slow", "--test", "^bandwidth-"]);
    let probes = |id: &str| network["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap()["passed"].as_u64();
    assert_eq!((code, probes("bandwidth-1"), probes("bandwidth-2")), (0, Some(3), Some(3)), "{network:#}");
    verified.nothing_is_left();

    // Somebody takes the limits of pods away as soon as they are there: those of the kind token bucket filter.
    // Sleeps: the kernel tells `tc` of no limit that comes.
    let removes = "while [ ! -e /run/enough ]; do for link in $(tc qdisc show | awk '/ tbf /{print $5}'); do tc qdisc del dev $link root; done; sleep 0.2; done";
    let mut remover = verified.scene.cluster.node("node-1").unwrap().den().command("sh");
    let mut remover = remover.args(["-c", removes]).stderr(Stdio::null()).spawn().unwrap();
    let (broken, code) = verified.run("without a limit", &["--bandwidth", "--test", "^bandwidth-1"]);
    verified.scene.cluster.node("node-1").unwrap().run(&["touch", "/run/enough"]).unwrap();
    remover.wait().unwrap();
    assert_eq!((code, causes(&broken)), (3, vec![format!("BandwidthDiffers at pod/{NAMESPACE}/limited-1")]), "{broken:#}");
    verified.nothing_is_left();
}

/// A cloud's load balancer has its address before it leads anywhere: no case fails for that.
#[test]
fn a_load_balancer_is_waited_for_until_it_leads_somewhere() {
    let mut verified = Verified::new("verify-cloud", Families::V4, "between: direct");
    verified.scene.start_proxies("nftables");
    let range = BALANCED.split(',').next().unwrap();
    let by = verified.scene.cluster.node("node-1").unwrap().address().to_owned();
    verified.outside.den().ip(&format!("route del {range}")).unwrap();
    let mut command = verified.replaced("--load-balancer", "cloud");
    command.args(["--test", "^(49|5[1-4])$", "-o", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (sender, waits) = channel();
    let said = child.stderr.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            println!("{line}");
            if line.contains("waiting until the load balancer leads") {
                let _ = sender.send(());
            }
        }
    });
    // The cloud's controller gives each Service an address.
    let services = || verified.scene.kubectl(&["get", "services", "-n", NAMESPACE, "-o", "name", "--ignore-not-found"]);
    until("the Services are there", services, |all| all.lines().count() == 12);
    let all = services();
    for (number, service) in all.lines().enumerate() {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": format!("203.0.113.{}", number + 1)}]}}}).to_string();
        verified.scene.kubectl(&["patch", service, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", &status]);
    }
    waits.recv_timeout(std::time::Duration::from_secs(600)).unwrap_or_else(|_| panic!("it does not wait: {}", verified.scene.why()));
    // Its nodes are healthy now.
    verified.outside.den().ip(&format!("route add {range} via {by}")).unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let verification: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    assert_eq!(
        (child.wait().unwrap().code(), state(&verification, "51"), state(&verification, "54")),
        (Some(0), "passed", "passed"),
        "{verification:#}"
    );
    verified.nothing_is_left();
}

/// What `netloom verify perf --cluster` prints as data, its exit code, and all that it said.
fn measured(verified: &Verified, more: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    let mut command = Command::new(netloom());
    command.args(["verify", "perf", "--cluster", "--image", NETLOOM, "-o", "json", "--kubeconfig"]);
    let output = command.arg(verified.scene.cluster.control().kubeconfig()).args(more).stdin(Stdio::null()).output().unwrap();
    let rows = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (rows, output.status.code(), text(&output))
}

/// Each pair of pods of a cluster is measured, on each network; one that is broken is no reason to stop.
#[test]
fn the_speed_of_each_pair_is_measured() {
    let mut verified = Verified::new("verify-perf", Families::Dual, "between: vxlan");
    let ipam = json!({"type": "host-local", "subnet": "10.77.0.0/24"});
    let beside = json!({"cniVersion": "1.1.0", "type": "bridge", "bridge": "beside0", "ipam": ipam});
    verified.scene.apply(&definition("beside", &json!({}), Some(&beside)));
    let (rows, code, said) = measured(&verified, &["--attach", "default/beside"]);
    assert_eq!(code, Some(0), "{said}");
    let pod = |value: &Value| value.as_str().unwrap().trim_start_matches("pod/netloom-verify/").to_owned();
    let pairs = |network: &str| {
        let of_it = rows.iter().filter(|row| row["network"] == network);
        of_it.map(|row| (pod(&row["from"]), pod(&row["to"]), row["address"].as_str().unwrap().contains(':'))).collect::<Vec<_>>()
    };
    for is_ipv6 in [false, true] {
        for (from, to) in [("client-1", "server-1"), ("server-2", "client-2")] {
            let pair = (from.to_owned(), to.to_owned(), is_ipv6);
            assert!(pairs("netloom").contains(&pair), "{pair:?}: {said}");
        }
        // And from node to node, both ways.
        for way in [('1', '2'), ('2', '1')] {
            let crosses = |(from, to, family): &&(String, String, bool)| *family == is_ipv6 && from.ends_with(way.0) && to.ends_with(way.1);
            assert!(pairs("netloom").iter().any(|pair| crosses(&pair)), "{way:?}: {said}");
        }
    }
    assert!(pairs("default/beside").iter().any(|(from, ..)| from == "client-1"), "{said}");
    for row in &rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
        assert!(0.0 < number("p50") && number("p50") <= number("p90") && number("p90") <= number("p99"), "{row}");
        assert!(number("bitsPerSecond") > 1000.0 && row["lost"].as_u64().unwrap() < 500, "{row}");
    }
    verified.scene.said("measured");
    verified.nothing_is_left();

    let (rows, code, said) = measured(&verified, &["--network", "no-such"]);
    assert!(code == Some(1) && rows.is_empty() && said.contains("--attach"), "{said}");
    verified.nothing_is_left();

    verified.scene.cluster.node("node-1").unwrap().run(&["nft", super::DROPS]).unwrap();
    let (rows, code, said) = measured(&verified, &["--timeout", "1"]);
    assert!(code == Some(3) && said.contains("no answer in 1s; see why with netloom verify --cluster"), "{said}");
    let failed = |row: &Value| row["error"].is_string();
    assert!(rows.iter().any(failed) && rows.iter().any(|row| !failed(row)), "{said}");
    verified.scene.said("measured with a rule that drops");
    verified.nothing_is_left();
}
