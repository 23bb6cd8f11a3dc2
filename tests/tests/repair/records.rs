//! From the records of sandboxes.

use netloom_tests::{Host, Traces, at};
use serde_json::{Value, json};

use crate::scene::{OUTSIDE, list, machine, repaired, table, told};

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
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing: the 4 attachments"));
    let whole = table(&host);
    assert!(host.pings("c1", OUTSIDE));

    host.sh("", "nft flush ruleset");
    assert!(host.silent("c1", OUTSIDE), "outside has no way back to a pod's address");
    let missing = told(&host, &["--dry-run"], 3);
    assert_eq!(missing["missing"].as_array().unwrap().len(), 8, "{missing}");
    assert_eq!(host.sh("", "nft list ruleset"), "", "--dry-run changes nothing");
    let said = repaired(&host, &[], 0);
    assert!(said.lines().next().unwrap().ends_with("PUT BACK") && said.contains("masquerade 10.1.0."), "{said}");
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
