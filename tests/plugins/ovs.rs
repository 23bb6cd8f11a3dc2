//! `ovs`, key by key, with the real Open vSwitch.

use netloom_tests::{Host, Switch, at, ips};
use serde_json::{Value, json};

use crate::scene::{config, del_with_little_and_del_again};

/// A network on a bridge of the switch.
fn on(switch: &Switch<'_>, keys: Value) -> Value {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]});
    let mut config = config("ovs", json!({"bridge": "br0", "socket_file": switch.socket(), "ipam": ipam}));
    keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    config
}

fn machine() -> Host {
    let host = Host::new();
    ["c1", "c2", "c3"].iter().for_each(|container| host.container(container));
    host
}

#[test]
fn two_containers_reach_each_other() {
    let host = machine();
    let switch = Switch::with_bridges(&host, &["br0"]);
    let config = on(&switch, json!({"vlan": 100}));
    let results = ["c1", "c2"].map(|container| at(&host, container).add(&config));
    for to in ips(&results[1]) {
        assert!(host.pings("c1", &to), "{to}");
        assert!(host.tcp("c1", "c2", &to), "{to}");
    }
    assert_eq!(at(&host, "c1").check(&config, &results[0]).code, 0);
    assert_eq!(switch.ports("br0").len(), 2);
    for (container, result) in ["c1", "c2"].iter().zip(&results) {
        at(&host, container).del(&config, result);
    }
    assert_eq!(switch.ports("br0"), [""; 0]);
    let before = host.traces();
    del_with_little_and_del_again(&host, &before, &config);
    assert_eq!(switch.ports("br0"), [""; 0]);
}
