//! What is tried only where somebody asks for it: a pod's bandwidth limit; and a cloud's load balancer, which is not healthy at once.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use testbed::{BALANCED, Families};

use super::{NAMESPACE, Verified, causes};
use crate::path::scene::until;

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
