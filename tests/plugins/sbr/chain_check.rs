//! CHECK of a whole chain, as `netloom cni check` does it: what one plugin made another one moves.

use netloom_tests::{Host, Outcome, netloom};
use serde_json::{Value, json};

const IPAM: &str = r#"{"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24"}]}"#;

/// A machine with a wire, an interface to lend, and this list.
fn host(plugins: &[Value]) -> Host {
    let host = Host::new();
    host.container("c1");
    for name in ["wire", "dev"] {
        host.sh("", &format!("ip link add {name}0 type veth peer name {name}1"));
        host.sh("", &format!("ip link set {name}1 up"));
    }
    host.sh("", "ip link set wire0 up");
    host.write("/etc/cni/net.d/1.conflist", &json!({"cniVersion": "1.1.0", "name": "list", "plugins": plugins}).to_string());
    host
}

/// `netloom cni VERB`, with the plugins that are built in.
fn cni(host: &Host, verb: &str) -> Outcome {
    host.try_run("", &["env", "CNI_PATH=/run/bin", netloom().to_str().unwrap(), "cni", verb, "list", "/run/netns/c1"]).into()
}

fn done(host: &Host, verb: &str) -> Outcome {
    let outcome = cni(host, verb);
    assert_eq!(outcome.code, 0, "{verb}: {outcome:?}");
    outcome
}

/// With a plugin's keys, and addresses of both families.
fn first(keys: Value) -> Value {
    let mut plugin = json!({"ipam": serde_json::from_str::<Value>(IPAM).unwrap()});
    plugin.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    plugin
}

fn tuning() -> Value {
    json!({"type": "tuning", "mtu": 1300, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})
}

/// A chain's life: CHECK finds nothing while nothing was changed, and says so after each change.
fn live(plugins: &[Value], changes: &[(&str, &str)]) {
    let host = host(plugins);
    done(&host, "add");
    done(&host, "del");
    let before = host.traces();
    for (change, says) in [("true", "")].iter().chain(changes) {
        done(&host, "add");
        done(&host, "check");
        host.run("c1", &["sh", "-ec", change]);
        let checked = cni(&host, "check");
        let (found, expected) = (checked.code != 0, !says.is_empty());
        assert!(found == expected && checked.stderr.contains(says), "{plugins:?}: {change}: {checked:?}");
        done(&host, "del");
        host.expect_traces(&before, &format!("{plugins:?}: {change}"));
    }
}

/// Its routes are in the tables of the addresses, and CHECK of both is content; not where nothing leads there.
#[test]
fn ptp_and_sbr() {
    let ptp = first(json!({"type": "ptp", "ipMasq": true}));
    let changes = [
        ("ip route del 10.9.0.1 table 100", "interface eth0 was changed: route to 10.9.0.1/32 is gone"),
        ("ip route del 10.9.0.0/24 table 100", "route to 10.9.0.0/24 is gone"),
        ("ip -6 route del fd00:9::1 table 101", "route to fd00:9::1/128 is gone"),
        ("ip -6 route flush table 101", "is gone"),
        ("ip rule del lookup 100", "route to 10.9.0.1/32 is gone"),
        ("ip -6 rule del lookup 101", "route to fd00:9::1/128 is gone"),
        // The last of a chain looks, too.
        ("ip route add default dev eth0", "its route to 0.0.0.0/0 is in the main table again"),
    ];
    live(&[ptp.clone(), json!({"type": "sbr"})], &changes);
    live(&[ptp.clone(), tuning(), json!({"type": "sbr", "addSourceHints": true})], &changes[..1]);
    live(&[ptp, json!({"type": "sbr", "table": 5001})], &[("ip route del 10.9.0.1", "route to 10.9.0.1/32 is gone")]);
}

/// Each address has a table with the same ways.
#[test]
fn ptp_with_two_addresses_and_sbr() {
    let address = |last: u8| json!({"address": format!("10.9.0.{last}/24"), "gateway": "10.9.0.1"});
    let ptp =
        first(json!({"type": "ptp", "ipam": {"type": "static", "addresses": [address(7), address(8)], "routes": [{"dst": "0.0.0.0/0"}]}}));
    let changes = [
        ("ip route del 10.9.0.1 table 100", "route to 10.9.0.1/32 is gone"),
        ("ip route del 10.9.0.0/24 table 101", "route to 10.9.0.0/24 is gone"),
    ];
    live(&[ptp, json!({"type": "sbr"})], &changes);
}

#[test]
fn what_makes_an_interface_and_sbr() {
    for keys in [
        json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true}),
        json!({"type": "macvlan", "master": "wire0"}),
        json!({"type": "tap"}),
        json!({"type": "host-device", "device": "dev0"}),
    ] {
        let changes = [
            ("ip route flush table 100", "interface eth0 was changed: route to "),
            ("ip -6 rule del lookup 101", "the rule \"from fd00:9::"),
            ("ip route add default dev eth0", "its route to 0.0.0.0/0 is in the main table again"),
        ];
        live(&[first(keys.clone()), json!({"type": "sbr"})], &changes);
        live(&[first(keys), tuning(), json!({"type": "sbr"})], &changes[..1]);
    }
}

/// A packet goes the way of its address, from a chain that CHECK is content with.
#[test]
fn packets_of_ptp_and_sbr() {
    let host = host(&[first(json!({"type": "ptp"})), json!({"type": "sbr"})]);
    let result = done(&host, "add").result();
    let ips: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
    for (address, gateway) in ips.iter().map(|ip| ip.split('/').next().unwrap()).zip(["10.9.0.1", "fd00:9::1"]) {
        assert!(host.run_ok("c1", &["ping", "-c1", "-w60", "-n", "-I", address, gateway]), "{gateway}");
        assert!(host.pings("", address), "{address}");
    }
    done(&host, "check");
    done(&host, "del");
}
