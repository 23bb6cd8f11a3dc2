//! What holds at every moment, also between a crash and the next call.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netloom_tests::Host;
use serde_json::Value;

const LEASES: &str = "/var/lib/cni/networks";

/// No address is on two interfaces; each that is on one, or that the firewall knows, is held by a whole lease.
///
/// # Panics
/// If one of it is not so.
pub(crate) fn hold(host: &Host, when: &str) {
    let mut leases = BTreeMap::new();
    for network in host.list(LEASES) {
        for name in host.list(&format!("{LEASES}/{network}")) {
            let Ok(address) = name.parse::<IpAddr>() else { continue };
            let text = std::fs::read_to_string(host.path(format!("{LEASES}/{network}/{name}"))).unwrap();
            assert!(text.split_once("\r\n").is_some_and(|(id, ifname)| !id.is_empty() && !ifname.is_empty()), "{when}: {name}: {text:?}");
            leases.insert(address, text);
        }
    }
    let mut used = BTreeMap::new();
    for container in host.list("/run/netns") {
        for address in addresses(&host.json("", &format!("ip -n {container} -j address"))) {
            assert!(leases.contains_key(&address), "{when}: {container} has {address}, which nobody holds: {leases:?}");
            let other = used.insert(address, container.clone());
            assert!(other.is_none(), "{when}: {container} and {other:?} both have {address}");
        }
    }
    for address in elements(&host.sh("", "nft list ruleset")) {
        assert!(leases.contains_key(&address), "{when}: an element for {address}, which nobody holds: {leases:?}");
    }
}

/// Those that an allocator gave.
fn addresses(links: &Value) -> Vec<IpAddr> {
    let links = links.as_array().unwrap().iter().filter(|l| l["ifname"] != "lo");
    let infos = links.flat_map(|l| l["addr_info"].as_array().unwrap()).filter(|i| i["scope"] == "global");
    infos.map(|i| i["local"].as_str().unwrap().parse().unwrap()).collect()
}

/// The addresses of `ADDRESS comment "OWNER" : jump CHAIN`.
fn elements(ruleset: &str) -> Vec<IpAddr> {
    let words = ruleset.split([',', '{', '\n']).filter_map(|item| item.split_once(" comment "));
    words.filter_map(|(before, _)| before.trim().parse().ok()).collect()
}
