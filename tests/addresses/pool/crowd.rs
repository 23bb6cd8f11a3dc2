//! Many processes at once, on one journal, and a pool that changes under them.

use std::collections::BTreeSet;

use netloom_tests::{Host, Outcome};
use serde_json::json;

use crate::pool::{add, all_free, alone, at_once, call, collect, del, dual, got, grant, range, scene};

const PODS: usize = 64;

fn add_all(host: &Host) -> Vec<Outcome> {
    at_once(PODS, |n| add(host, &format!("pod{n}")))
}

#[test]
fn sixty_four_processes_and_no_address_twice() {
    let host = scene(&dual());
    let addresses: Vec<String> = add_all(&host).iter().flat_map(got).collect();
    assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 2 * PODS, "{addresses:?}");
    at_once(PODS, |n| del(&host, &format!("pod{n}")));
    let again: BTreeSet<String> = add_all(&host).iter().flat_map(got).collect();
    assert_eq!(again.len(), 2 * PODS);
}

/// More come than there are addresses, half of them go while others come, and the rest is collected: none is lost.
#[test]
fn a_pool_that_is_too_small() {
    let host = scene(&range("10.9.0.1-10.9.0.40"));
    let outcomes = add_all(&host);
    let given: Vec<String> = outcomes.iter().filter(|o| o.code == 0).flat_map(got).collect();
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 40, "{given:?}");
    outcomes.iter().filter(|o| o.code != 0).for_each(|o| assert_eq!(o.error()["code"], 11, "{o:?}"));
    at_once(PODS, |n| match n % 2 {
        0 => del(&host, &format!("pod{n}")),
        _ => drop(add(&host, &format!("more{n}"))),
    });
    collect(&host, &[]).silent();
    assert_eq!(all_free(&host).len(), 40);
}

#[test]
fn a_pool_changes_under_them() {
    let host = scene(&range("10.9.0.1-10.9.0.64"));
    let specs = ["10.9.0.1-10.9.0.64", "10.9.0.1-10.9.0.100", "10.9.0.33-10.9.0.200"];
    let given = at_once(PODS, |n| {
        if n % 8 == 0 {
            // Each of those that change it renames a file of its own.
            let pool = json!({"kind": "IPPool", "spec": range(specs[n / 8 % 3])});
            host.write(&format!("/var/lib/pools/new{n}"), &pool.to_string());
            std::fs::rename(host.path(format!("/var/lib/pools/new{n}")), host.path("/var/lib/pools/lab.json")).unwrap();
        }
        got(&add(&host, &format!("pod{n}"))).remove(0)
    });
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), PODS, "{given:?}");
    // One address is left to the pool: who has another one keeps it.
    grant(&host, &range("10.9.0.250-10.9.0.250"));
    assert_eq!(all_free(&host), ["10.9.0.250/32"]);
    for (n, address) in given.iter().enumerate() {
        let mut config = alone();
        config["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": address}]});
        call(&host, "CHECK", &format!("pod{n}"), &config).silent();
    }
    // What is held is not handed out when it comes back, and what was excluded while it was held is not when it is given back.
    let mut spec = range("10.9.0.1-10.9.0.200");
    spec["exclude"] = json!([given[0].trim_end_matches("/32")]);
    grant(&host, &spec);
    let free = all_free(&host);
    assert!(free.len() == 200 - PODS && !given.iter().any(|g| free.contains(g)), "{}: {free:?}", free.len());
    del(&host, "pod0");
    del(&host, "pod1");
    let free = all_free(&host);
    assert!(!free.contains(&given[0]) && free.contains(&given[1]), "{free:?}");
}
