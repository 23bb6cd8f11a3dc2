//! `pool`, as a runtime calls it: who gets which address, who loses it, and what becomes of both when something breaks.
//! Judged by results, by `ip`, by what answers a ping, and by a pool that has no address too many.

mod broken;
mod conflict;
mod crash;
mod crowd;
mod life;
mod refusals;
mod waiting;

use netloom_tests::{Cni, Host, Outcome, at, plugin_dir};
use serde_json::{Value, json};

/// Where the tests have their pools: `/etc` is the machine's own.
const POOLS: &str = "/var/lib/pools";
/// Where the journal is.
const JOURNAL: &str = "/var/lib/netloom/ipam";

/// A machine with two containers and the pool `lab`.
fn scene(spec: &Value) -> Host {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|c| host.container(c));
    grant(&host, spec);
    host
}

/// The pool `lab` is so from now on: written beside its place and renamed, as who administers a machine does it.
fn grant(host: &Host, spec: &Value) {
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "lab"}, "spec": spec});
    host.write(&format!("{POOLS}/new"), &pool.to_string());
    std::fs::rename(host.path(format!("{POOLS}/new")), host.path(format!("{POOLS}/lab.json"))).unwrap();
}

/// Both families, a gateway each, and no waiting.
fn dual() -> Value {
    json!({"ipv4": {"entries": [{"cidr": "10.9.0.0/24"}], "gateway": "10.9.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:9::/64"}], "gateway": "fd00:9::1"}, "reuse": {"cooldownSeconds": 0}})
}

/// These addresses of IPv4, and no waiting.
fn range(range: &str) -> Value {
    json!({"ipv4": {"entries": [{"range": range}]}, "reuse": {"cooldownSeconds": 0}})
}

/// Addresses alone.
fn alone() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "pool", "ipam": ipam()})
}

fn ipam() -> Value {
    json!({"type": "pool", "pool": "lab", "pools": POOLS, "addWait": 0})
}

/// A bridge whose containers have addresses of the pool.
fn bridge() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam()})
}

/// A container is no more than its name here, and all have the namespace of `c1`: `pool` makes nothing in it.
fn add(host: &Host, container: &str) -> Outcome {
    call(host, "ADD", container, &alone())
}

fn del(host: &Host, container: &str) {
    call(host, "DEL", container, &alone()).silent();
}

fn call(host: &Host, verb: &str, container: &str, config: &Value) -> Outcome {
    at(host, "c1").set("CNI_CONTAINERID", container).call(verb, config["type"].as_str().unwrap(), config.to_string())
}

fn plugins(host: &Host) -> Cni<'_> {
    host.cni(plugin_dir())
}

/// The addresses of a result with their prefix lengths.
fn got(outcome: &Outcome) -> Vec<String> {
    let result = outcome.result();
    result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}

/// Gives out what there is until nothing is left, and takes it back: all addresses that nobody has.
fn all_free(host: &Host) -> Vec<String> {
    let mut free = Vec::new();
    for n in 0.. {
        let outcome = add(host, &format!("probe{n}"));
        if outcome.code != 0 {
            assert_eq!(outcome.error()["code"], 11, "{outcome:?}");
            break;
        }
        free.extend(got(&outcome));
    }
    (0..free.len()).for_each(|n| del(host, &format!("probe{n}")));
    free.sort();
    free
}

/// `GC` of the network, with these containers' `eth0` valid.
fn collect(host: &Host, valid: &[&str]) -> Outcome {
    let mut config = alone();
    config["cni.dev/valid-attachments"] = valid.iter().map(|c| json!({"containerID": c, "ifname": "eth0"})).collect();
    plugins(host).call("GC", "pool", config.to_string())
}

/// Does something so many times, each in a process of its own, all at once.
fn at_once<T: Send>(count: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}
