//! Networks of every size, to their last address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::cluster::{Machine, Operator, Way, agree, all_go, definition, pool, store};

/// Name, family, entry, size of blocks, whether the ends count, and all addresses that there are.
type Shape = (&'static str, &'static str, Value, u8, bool, &'static [&'static str]);

fn shapes() -> Vec<Shape> {
    vec![
        ("four30", "ipv4", json!({"cidr": "10.27.0.0/30"}), 30, false, &["10.27.0.1", "10.27.0.2"]),
        ("ends30", "ipv4", json!({"cidr": "10.27.0.0/30"}), 30, true, &["10.27.0.0", "10.27.0.1", "10.27.0.2", "10.27.0.3"]),
        ("four31", "ipv4", json!({"cidr": "10.27.1.2/31"}), 30, true, &["10.27.1.2", "10.27.1.3"]),
        ("four32", "ipv4", json!({"cidr": "10.27.2.7/32"}), 30, true, &["10.27.2.7"]),
        ("alone", "ipv4", json!({"ip": "10.27.3.255"}), 28, true, &["10.27.3.255"]),
        ("across", "ipv4", json!({"range": "10.27.4.6-10.27.4.9"}), 30, true, &["10.27.4.6", "10.27.4.7", "10.27.4.8", "10.27.4.9"]),
        ("six127", "ipv6", json!({"cidr": "fd00:27::/127"}), 124, true, &["fd00:27::", "fd00:27::1"]),
        ("six128", "ipv6", json!({"ip": "fd00:27::8000:0:0:0"}), 120, true, &["fd00:27::8000:0:0:0"]),
        (
            "top",
            "ipv6",
            json!({"range": "fd00:27:0:1:ffff:ffff:ffff:fffc-fd00:27:0:1:ffff:ffff:ffff:ffff"}),
            124,
            true,
            &[
                "fd00:27:0:1:ffff:ffff:ffff:fffc",
                "fd00:27:0:1:ffff:ffff:ffff:fffd",
                "fd00:27:0:1:ffff:ffff:ffff:fffe",
                "fd00:27:0:1:ffff:ffff:ffff:ffff",
            ],
        ),
    ]
}

/// As many pods as there are addresses get all of them, and no other. Some networks have the same addresses. Of those that are too large
/// to be used up a pod has one.
#[test]
fn every_address_of_every_size_once() {
    let store = store();
    let plain = json!({"cooldownSeconds": 0});
    let make = |name: &str, family: &str, entry: &Value, block: u8, ends: bool| {
        pool(
            &store,
            name,
            &json!({"network": name, family: {"entries": [entry], "blockPrefix": block}, "allowFirstIP": ends, "allowLastIP": ends,
            "scaling": {"preAllocate": 0}, "reuse": plain}),
        );
        definition(&store, name, name);
    };
    pool(&store, "a", &json!({"network": "pods", "ipv4": {"entries": [{"cidr": "10.28.0.0/28"}], "blockPrefix": 28}, "reuse": plain}));
    let shapes = shapes();
    shapes.iter().for_each(|(name, family, entry, block, ends, _)| make(name, family, entry, *block, *ends));
    make("huge56", "ipv6", &json!({"cidr": "fd00:28:0:ff00::/56"}), 120, false);
    make("huge80", "ipv6", &json!({"cidr": "fd00:28:0:1:ffff::/80"}), 112, false);
    let _operator = Operator::start(&Way::to(&store), "one");
    let machine = Machine::new(&store, "node.with.periods");
    for n in 0..4 {
        let own = shapes.iter().filter(|shape| shape.5.len() > n).map(|shape| shape.0);
        let networks: Vec<&str> = own.chain(["huge56", "huge80"]).collect();
        let pod = format!("p{n}");
        machine.schedule(&pod, &networks);
        machine.add(&pod, &networks).unwrap_or_else(|e| panic!("{pod}: {e:?}"));
    }
    agree(&store, &[&machine]);
    let live = machine.sightings();
    let of = |network: &str| live.iter().filter(|one| one.network == network).map(|one| one.address).collect::<Vec<IpAddr>>();
    for (name, .., all) in &shapes {
        let (got, all): (Vec<IpAddr>, BTreeSet<IpAddr>) = (of(name), all.iter().map(|ip| ip.parse().unwrap()).collect());
        assert_eq!((got.len(), got.iter().copied().collect::<BTreeSet<IpAddr>>()), (all.len(), all), "{name}");
    }
    for (name, first) in [("huge56", 0xfd00_0028_0000_ff00_u128), ("huge80", 0xfd00_0028_0000_0001_u128)] {
        let (host, mine) = if name == "huge56" { (72, first << 64) } else { (48, (first << 64) | (0xffff_u128 << 48)) };
        let got = of(name);
        assert_eq!(got.len(), 4);
        assert!(
            got.iter().all(|ip| matches!(ip, IpAddr::V6(ip) if u128::from(*ip) >> host == mine >> host && u128::from(*ip) != mine)),
            "{got:?}"
        );
    }
    all_go(&[&machine]);
}
