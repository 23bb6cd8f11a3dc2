//! `strictSource` of `bridge`: a container sends with its own IP addresses, or not at all. Judged by packets and by `nft`; every kind of
//! frame is tried in crate `rules`.

use netloom_tests::{Host, at, attached_once, ips};
use serde_json::{Value, json};

fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// How many packets of a container were dropped, by `nft`; `None` if its sources are not checked.
fn dropped(host: &Host, container: &str) -> Option<u64> {
    let listed = host.json("", "nft -j list set bridge netloom strict");
    let set = listed["nftables"].as_array().unwrap().iter().find_map(|o| o.get("set")).unwrap().clone();
    let owner = format!("net/{container}/eth0");
    let found = set["elem"].as_array()?.iter().find(|e| e["elem"]["comment"] == owner.as_str())?;
    found["elem"]["counter"]["packets"].as_u64()
}

#[test]
fn a_forged_source_is_dropped_and_counted_and_its_own_pass() {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|c| host.container(c));
    let strict = bridge(json!({"strictSource": true}));
    let before = attached_once(&host, &strict);
    let [one, two] = ["c1", "c2"].map(|container| (container, at(&host, container).add(&strict)));
    for address in ["10.1.0.1", "fd00:1::1"].map(str::to_owned).into_iter().chain(ips(&two.1)) {
        assert!(host.pings("c1", &address), "{address}");
    }
    assert_eq!((dropped(&host, "c1"), dropped(&host, "c2")), (Some(0), Some(0)));
    for (own, forged, to) in [("10.1.0.9/24", "10.1.0.9", "10.1.0.1"), ("fd00:1::9/64", "fd00:1::9", "fd00:1::1")] {
        host.sh("c1", &format!("ip addr add {own} dev eth0 nodad"));
        assert!(!host.run_ok("c1", &["ping", "-c1", "-W1", "-I", forged, to]), "{forged}");
        host.sh("c1", &format!("ip addr del {own} dev eth0"));
    }
    assert!(dropped(&host, "c1").is_some_and(|packets| packets >= 2), "{:?}", dropped(&host, "c1"));
    assert!(host.pings("c1", "10.1.0.1"));
    for (container, result) in [&one, &two] {
        assert_eq!(at(&host, container).check(&strict, result).code, 0, "{container}");
    }

    // Somebody takes an element away: CHECK says so. DEL removes what is there, also where the configuration has the key no longer.
    host.run("", &["nft", "flush set bridge netloom sources4"]);
    assert_ne!(at(&host, "c1").check(&strict, &one.1).code, 0);
    at(&host, "c1").del(&bridge(json!({})), &one.1);
    at(&host, "c2").del(&strict, &two.1);
    assert_eq!((dropped(&host, "c1"), dropped(&host, "c2")), (None, None));
    host.expect_traces(&before, "all have gone");
}

/// What the sets of ordinary packets have, by `nft`: the hardware and the IP address of each element.
fn ordinary(host: &Host) -> Vec<(String, String)> {
    let of_set = |name: &str| {
        let listed = host.json("", &format!("nft -j list set bridge netloom {name}"));
        let set = listed["nftables"].as_array().unwrap().iter().find_map(|o| o.get("set")).unwrap().clone();
        let elements = set["elem"].as_array().cloned().unwrap_or_default();
        let field = |e: &Value, at: usize| e["elem"]["val"]["concat"][at].as_str().unwrap().to_owned();
        elements.iter().map(|e| (field(e, 1), field(e, 2))).collect::<Vec<_>>()
    };
    ["ordinary4", "ordinary6"].iter().flat_map(|name| of_set(name)).collect()
}

/// With both guards, what a container sends with its own addresses passes by one look-up. That decides about time alone: nothing is refused
/// where the element is missing, and nothing else passes where it is there.
#[test]
fn ordinary_packets_have_an_element_for_each_address_where_both_guards_stand() {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|c| host.container(c));
    let both = bridge(json!({"strictSource": true, "macspoofchk": true}));
    let before = attached_once(&host, &both);
    let [one, two] = ["c1", "c2"].map(|container| (container, at(&host, container).add(&both)));
    let expected: Vec<(String, String)> = [&one, &two]
        .iter()
        .flat_map(|(_, result)| ips(result).into_iter().map(|ip| (result["interfaces"][2]["mac"].as_str().unwrap().to_owned(), ip)))
        .collect();
    let sorted = |mut all: Vec<(String, String)>| {
        all.sort();
        all
    };
    assert_eq!(sorted(ordinary(&host)), sorted(expected));
    let speaks = || ["10.1.0.1", "fd00:1::1"].iter().all(|address| host.pings("c1", address));
    assert!(speaks());
    host.run("", &["nft", "flush set bridge netloom ordinary4; flush set bridge netloom ordinary6"]);
    assert!(speaks());
    assert_eq!(at(&host, "c1").check(&both, &one.1).code, 0, "it is no mistake where one is missing");
    at(&host, "c1").del(&both, &one.1);
    at(&host, "c2").del(&both, &two.1);
    assert!(ordinary(&host).is_empty());
    host.expect_traces(&before, "all have gone");
}
