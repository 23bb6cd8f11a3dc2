//! From the records of sandboxes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netloom_tests::{Host, Traces, at, netloom, plugin_dir};
use serde_json::{Value, json};

use netloom_tests::wired::{OUTSIDE, list, machine, repair, repaired, table, told};

/// A pod of two networks that masquerade.
fn config() -> Value {
    json!({"cniVersion": "1.0.0", "name": "pods", "type": "netloom", "delegates": [list("first", 1), list("second", 2)]})
}

fn used(containers: &[&str]) -> (Host, Traces) {
    let host = machine(containers);
    let result = at(&host, containers[0]).add(&config());
    at(&host, containers[0]).del(&config(), &result);
    let before = host.traces();
    (host, before)
}

#[test]
fn masquerade_is_put_back_after_a_flush() {
    let (host, before) = used(&["c1", "c2"]);
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&config()));
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing for the 4 known attachments"));
    let whole = table(&host);
    assert!(host.pings("c1", OUTSIDE));

    host.sh("", "nft flush ruleset");
    assert!(host.silent("c1", OUTSIDE), "outside has no way back to a pod's address");
    let missing = told(&host, &["--dry-run"], 3);
    assert_eq!(missing["missing"].as_array().unwrap().len(), 8, "{missing}");
    assert_eq!(host.sh("", "nft list ruleset"), "", "--dry-run changes nothing");
    let said = repaired(&host, &[], 0);
    assert!(said.lines().next().unwrap().ends_with("RESTORED") && said.contains("masquerade 10.1.0."), "{said}");
    assert_eq!(table(&host), whole);
    for container in ["c1", "c2"] {
        assert!(host.pings(container, OUTSIDE));
        assert!(host.pings(container, "2001:db8::2"));
    }
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing"), "once is enough");
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, container).check(&config(), result).silent();
        at(&host, container).del(&config(), result);
    }
    host.expect_traces(&before, "DEL of both");
}

/// Records have locks: whoever is attached or detached meanwhile has in the end what it should have.
#[test]
fn adds_and_dels_meanwhile() {
    const ROUNDS: usize = 6;
    let names = ["c1", "c2", "c3", "c4"];
    let (host, before) = used(&names);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturber = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                host.sh("", "nft flush ruleset");
                let output = repair(&host, &[]);
                assert!(output.status.success(), "{output:?}");
            }
        });
        let churn = names.map(|container| {
            let host = &host;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let result = at(host, container).add(&config());
                    // Sleeps: an attachment is there for a while.
                    std::thread::sleep(Duration::from_millis(100));
                    at(host, container).del(&config(), &result);
                }
            })
        });
        churn.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, Ordering::Relaxed);
        disturber.join().unwrap();
    });
    let left: Vec<String> = table(&host).into_iter().filter(|line| line.contains("eth0\"") || line.contains("net1\"")).collect();
    assert!(left.is_empty(), "{left:?}");
    // The rules themselves are there again with the next one.
    let result = at(&host, "c1").add(&config());
    at(&host, "c1").del(&config(), &result);
    host.expect_traces(&before, "DEL of all");
}

/// Killed at any point, a repair is repeated, and then all is as it was.
#[test]
fn killed_and_repeated() {
    let mut config = config();
    config["delegates"][0]["plugins"][1]["backend"] = json!("iptables");
    let published = |c: &str| {
        let mut config = config.clone();
        let port = if c == "c1" { 8080 } else { 9090 };
        config["runtimeConfig"] = json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "udp"}]});
        config
    };
    let host = machine(&["c1", "c2"]);
    let first = at(&host, "c1").add(&published("c1"));
    at(&host, "c1").del(&published("c1"), &first);
    let before = host.traces();
    let results = ["c1", "c2"].map(|c| at(&host, c).add(&published(c)));
    let whole = table(&host);
    let own = ["restore-locked", "restore-chunk", "restore-elements", "restore-portmap-words", "restore-finished", "restore-cached"];
    for point in own.into_iter().chain(["nft-unsent", "nft-sent"]) {
        host.sh("", "nft flush ruleset");
        let mut command = host.command("", netloom());
        command.args(["repair", "--socket", "/nowhere"]).env("CNI_PATH", plugin_dir()).env("NETLOOM_CRASH_AT", point);
        let killed = command.output().unwrap();
        assert_eq!(killed.status.code(), None, "{point}: {killed:?}");
        repaired(&host, &[], 0);
        assert_eq!(table(&host), whole, "{point}");
    }
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, container).del(&published(container), result);
    }
    host.expect_traces(&before, "DEL of both");
}

/// Rules and chains that somebody takes away while the elements stay.
#[test]
fn rules_alone_are_put_back() {
    let (host, before) = used(&["c1"]);
    let result = at(&host, "c1").add(&config());
    let whole = table(&host);
    for chain in ["postrouting", "outside-10.1.0.0/16"] {
        host.run("", &["nft", &format!("flush chain inet netloom {chain}")]);
        assert!(told(&host, &["--dry-run"], 3)["sharedRules"] == json!(true), "{chain}");
        let said = repaired(&host, &[], 0);
        assert!(said.contains("the base rules of Netloom's firewall table"), "{said}");
        assert_eq!(table(&host), whole, "{chain}");
        assert!(host.pings("c1", OUTSIDE));
    }
    at(&host, "c1").del(&config(), &result);
    host.expect_traces(&before, "DEL");
}
