//! `dummy`: addresses without a wire.

use netloom_tests::at;
use serde_json::json;

use crate::kernel::links::{check_finds, config, dual, goes_every_way, wired};

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_dummy_holds_addresses() {
    let host = wired();
    let result = at(&host, "c1").add(&config("dummy", json!({"macFromIP": true, "ipam": dual()})));
    let link = host.link("c1", "eth0").unwrap();
    assert_eq!((&link.0["linkinfo"]["info_kind"], link.mac(), link.has("UP")), (&json!("dummy"), "0a:58:0a:05:00:0a", true));
    assert_eq!(host.addresses("c1", "eth0"), ["10.5.0.10/24", "fd00:5::10/64"]);
    host.sh("c1", "ip link set lo up");
    assert!(host.pings("c1", "10.5.0.10") && host.pings("c1", "fd00:5::10"));
    assert_eq!((&result["interfaces"][0]["mac"], &result["interfaces"][0]["mtu"]), (&json!("0a:58:0a:05:00:0a"), &json!(1500)));
    assert_eq!(host.sh("c1", "cat /proc/sys/net/ipv6/conf/eth0/accept_ra").trim(), "0");
    at(&host, "c2").add(&config("dummy", json!({"mac": "02:00:00:00:00:09", "ipam": dual()})));
    assert_eq!(host.link("c2", "eth0").unwrap().mac(), "02:00:00:00:00:09");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn a_dummy_goes_every_way_and_check_finds_changes() {
    let host = wired();
    let config = config("dummy", json!({"ipam": dual()}));
    goes_every_way(&host, &config);
    check_finds(&host, &config, &[("ip link set eth0 address 02:00:00:00:00:77", "its hardware address is 02:00:00:00:00:77")]);
    let status = host.cni(netloom_tests::plugin_dir()).call("STATUS", "dummy", config.to_string());
    assert_eq!(status.code, 0, "{status:?}");
}
