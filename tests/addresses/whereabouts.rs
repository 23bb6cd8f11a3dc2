//! Configurations that were written for whereabouts, as a runtime calls their plugin: the addresses that whereabouts gives, and
//! none of the ways in which it loses or doubles them. Judged by results, by `ip` and by what answers a ping.

mod answers;
mod broken;
mod import;
mod life;
mod networks;

use netloom_tests::{Host, Outcome, at};
use serde_json::{Value, json};

/// A machine with two containers.
fn scene() -> Host {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|c| host.container(c));
    host
}

/// Addresses alone, for which nobody waits.
fn config(ipam: Value) -> Value {
    let mut ipam = ipam;
    ipam["type"] = json!("whereabouts");
    ipam["addWait"] = json!(0);
    json!({"cniVersion": "1.1.0", "name": "net", "type": "whereabouts", "ipam": ipam})
}

/// One range and no more.
fn range(range: &str) -> Value {
    config(json!({"range": range}))
}

/// A container is no more than its name here, and all have the namespace of `c1`: nothing is made in it.
fn call(host: &Host, verb: &str, container: &str, config: &Value) -> Outcome {
    at(host, "c1").set("CNI_CONTAINERID", container).call(verb, config["type"].as_str().unwrap(), config.to_string())
}

fn add(host: &Host, container: &str, config: &Value) -> Outcome {
    call(host, "ADD", container, config)
}

fn del(host: &Host, container: &str, config: &Value) {
    call(host, "DEL", container, config).silent();
}

/// The addresses of a result with their prefix lengths.
fn got(outcome: &Outcome) -> Vec<String> {
    outcome.result()["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}

/// What a container gets, by its name.
fn gets(host: &Host, container: &str, config: &Value) -> Vec<String> {
    got(&add(host, container, config))
}

/// What so many containers get of it, the first address of each, until one gets nothing.
fn all(host: &Host, config: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0.. {
        let outcome = add(host, &format!("probe{n}"), config);
        if outcome.code != 0 {
            assert_eq!(outcome.error()["code"], 11, "{outcome:?}");
            break;
        }
        all.push(got(&outcome).remove(0));
    }
    (0..all.len()).for_each(|n| del(host, &format!("probe{n}"), config));
    all
}
