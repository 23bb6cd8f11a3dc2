//! Many processes at once, as when a node starts.

use std::collections::HashSet;

use netloom_tests::{Host, plugin_dir};
use serde_json::{Value, json};

const PODS: usize = 64;

fn network() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "many", "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]},
    })
}

/// Does something for each pod, each in a process of its own, all at once.
fn at_once<T: Send>(pods: &[String], one: impl Fn(usize, &str) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = pods.iter().enumerate().map(|(i, pod)| scope.spawn(move || one(i, pod))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// The bridge with its addresses, the switch for forwarding and the rules without elements are made with the first
/// attachment and stay: this is what is there when all others have gone.
#[test]
fn sixty_four_pods_come_and_go_together() {
    let host = Host::new();
    let pods: Vec<String> = (0..PODS).map(|i| format!("pod{i}")).collect();
    pods.iter().for_each(|pod| host.container(pod));
    let config = network();
    let cni = host.cni(plugin_dir());

    let results = at_once(&pods, |_, pod| cni.clone().at(pod, "eth0").add(&config));
    let addresses: HashSet<String> =
        results.iter().flat_map(|r| r["ips"].as_array().unwrap()).map(|ip| ip["address"].to_string()).collect();
    assert_eq!(addresses.len(), 2 * PODS, "each pod has an address of each family, and no other pod has it");
    let macs: HashSet<String> = results.iter().map(|r| r["interfaces"][2]["mac"].to_string()).collect();
    assert_eq!(macs.len(), PODS);
    assert_eq!(host.json("", "bridge -j link").as_array().unwrap().len(), PODS);
    let ruleset = host.sh("", "nft list ruleset");
    assert_eq!(ruleset.matches("comment \"many/pod").count(), 2 * PODS, "{ruleset}");
    // What the results say is what the kernel has, and packets pass.
    for (pod, result) in pods.iter().zip(&results) {
        let told: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
        assert_eq!(host.addresses(pod, "eth0"), told, "{pod}");
    }
    assert!(host.pings("pod0", "10.1.0.1") && host.pings("pod63", "fd00:1::1"));

    at_once(&pods, |i, pod| cni.clone().at(pod, "eth0").del(&config, &results[i]));
    let after = host.traces();
    assert_eq!(host.json("", "bridge -j link"), json!([]));
    assert!(!host.sh("", "nft list ruleset").contains("comment \"many/"));
    let left: Vec<String> = host.list("/var/lib/cni/networks/many").into_iter().filter(|f| !f.starts_with("last_reserved_ip.")).collect();
    assert_eq!(left, ["lock"]);
    // One more comes and goes: the network stands as the 64 left it, and so it is left again.
    let one = cni.at("pod0", "eth0");
    let result = one.add(&config);
    one.del(&config, &result);
    host.expect_traces(&after, "one pod more");
}
