//! Networks of every size, and what pods must have of them: to their last address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::addresses::Sighting;

/// So many pods use up each network that is small.
pub const PODS: usize = 4;

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

/// The pools by name, each of a network of its name. Some have the same addresses.
pub fn pools() -> Vec<(&'static str, Value)> {
    let of = |name: &str, family: &str, entry: &Value, block: u8, ends: bool| {
        json!({"network": name, family: {"entries": [entry], "blockPrefix": block}, "allowFirstIP": ends, "allowLastIP": ends,
            "scaling": {"preAllocate": 0}, "reuse": {"cooldownSeconds": 0}})
    };
    let small = shapes().into_iter().map(|(name, family, entry, block, ends, _)| (name, of(name, family, &entry, block, ends)));
    let huge56 = of("huge56", "ipv6", &json!({"cidr": "fd00:28:0:ff00::/56"}), 120, false);
    let huge80 = of("huge80", "ipv6", &json!({"cidr": "fd00:28:0:1:ffff::/80"}), 112, false);
    small.chain([("huge56", huge56), ("huge80", huge80)]).collect()
}

/// What the pod of a number selects: networks that have an address for it. Of those that are too large to be used up each has one.
pub fn networks(pod: usize) -> Vec<&'static str> {
    let own = shapes().into_iter().filter(|shape| shape.5.len() > pod).map(|shape| shape.0);
    own.chain(["huge56", "huge80"]).collect()
}

/// All pods have all addresses, and no other.
///
/// # Panics
/// If it is not so.
pub fn complete(live: &[Sighting]) {
    let of = |network: &str| live.iter().filter(|one| one.network == network).map(|one| one.address).collect::<Vec<IpAddr>>();
    for (name, .., all) in shapes() {
        let (got, all): (Vec<IpAddr>, BTreeSet<IpAddr>) = (of(name), all.iter().map(|ip| ip.parse().unwrap()).collect());
        assert_eq!((got.len(), got.iter().copied().collect::<BTreeSet<IpAddr>>()), (all.len(), all), "{name}");
    }
    for (name, first) in [("huge56", 0xfd00_0028_0000_ff00_u128), ("huge80", 0xfd00_0028_0000_0001_u128)] {
        let (host, mine) = if name == "huge56" { (72, first << 64) } else { (48, (first << 64) | (0xffff_u128 << 48)) };
        let got = of(name);
        assert_eq!(got.len(), PODS, "{name}");
        assert!(
            got.iter().all(|ip| matches!(ip, IpAddr::V6(ip) if u128::from(*ip) >> host == mine >> host && u128::from(*ip) != mine)),
            "{got:?}"
        );
    }
}
