//! `macFromIP`: a hardware address made of the IPv4 address.

use netloom_tests::{at, attached_once};
use serde_json::{Value, json};

use crate::scene::{config, wired};

fn asks(kind: &str, keys: Value) -> Value {
    let mut config = config(kind, json!({"master": "wire0", "bridge": "br0", "macFromIP": true}));
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

#[test]
fn it_is_made_of_the_first_ipv4_address() {
    for kind in ["bridge", "macvlan"] {
        let host = wired();
        let ranges =
            json!([[{"subnet": "fd00:5::/64", "rangeStart": "fd00:5::10"}], [{"subnet": "10.5.0.0/24", "rangeStart": "10.5.0.200"}]]);
        let config = asks(kind, json!({"ipam": {"type": "host-local", "ranges": ranges}}));
        let before = attached_once(&host, &config);
        let result = at(&host, "c2").add(&config);
        let address =
            result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).find(|a| a.starts_with("10.")).unwrap();
        let last: u8 = address.trim_start_matches("10.5.0.").trim_end_matches("/24").parse().unwrap();
        let mac = format!("0a:58:0a:05:00:{last:02x}");
        assert_eq!(host.link("c2", "eth0").unwrap().mac(), mac, "{kind}: {result}");
        assert!(result["interfaces"].as_array().unwrap().iter().any(|i| i["mac"] == *mac && i["name"] == "eth0"), "{result}");
        assert_eq!(at(&host, "c2").check(&config, &result).code, 0);
        if kind == "macvlan" {
            assert!(host.pings("c2", "10.5.0.1") && host.pings("c2", "fd00:5::1"));
        }
        at(&host, "c2").del(&config, &result);
        host.expect_traces(&before, kind);
        let explicit = asks(kind, json!({"mac": "02:00:00:00:00:09", "ipam": {"type": "host-local", "ranges": ranges}}));
        at(&host, "c2").add(&explicit);
        assert_eq!(host.link("c2", "eth0").unwrap().mac(), "02:00:00:00:00:09", "{kind}");
    }
}

#[test]
fn without_an_ipv4_address_it_is_refused_and_nothing_stays() {
    for kind in ["bridge", "macvlan"] {
        let host = wired();
        let v6 = json!({"type": "host-local", "subnet": "fd00:5::/64"});
        let without = config(kind, json!({"master": "wire0", "bridge": "br0", "ipam": v6}));
        let before = attached_once(&host, &without);
        for (config, says) in [
            (asks(kind, json!({"ipam": v6})), "the IPAM plugin returned none"),
            (
                asks(kind, json!({})),
                "set \
            \"ipam\"",
            ),
        ] {
            let add = at(&host, "c2").call("ADD", kind, config.to_string());
            assert!(add.error()["code"] == 7 && add.message().contains(says) && add.message().contains("macFromIP"), "{add:?}");
            assert!(host.link("c2", "eth0").is_none());
            host.expect_traces(&before, "a refused ADD");
        }
    }
}
