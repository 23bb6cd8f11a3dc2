//! Our plugins beside the reference plugins: delegates of each other, and a node that moves over and back.

use std::path::{Path, PathBuf};

use netloom_tests::{Host, peers_dir, plugin_dir};
use serde_json::{Value, json};

/// A directory on the machine with one plugin of ours or theirs under each name.
fn mixed(host: &Host, plugins: &[(&str, &Path)]) -> PathBuf {
    let dir = PathBuf::from("/run/plugins");
    host.run("", &["mkdir", "-p", "/run/plugins"]);
    for (name, from) in plugins {
        host.run("", &["ln", "-sfn", from.join(name).to_str().unwrap(), dir.join(name).to_str().unwrap()]);
    }
    dir
}

fn network(ipam: Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipam": ipam})
}

fn host_local() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]})
}

fn static_addresses() -> Value {
    json!({"type": "static", "addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}], "routes": [{"dst": "10.77.0.0/16"}]})
}

/// ADD, CHECK and DEL with a mix of plugins; the second time leaves what the first one left.
fn comes_and_goes(plugins: &[(&str, &Path)], config: &Value) {
    let host = Host::new();
    host.container("c1");
    let cni = host.cni(&mixed(&host, plugins)).at("c1", "eth0");
    let mut before = None;
    for round in 0..2 {
        let result = cni.add(config);
        let told: Vec<&str> = result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
        assert_eq!(host.addresses("c1", "eth0"), told);
        assert!(host.pings("c1", "10.1.0.1"), "round {round}");
        let checked = cni.check(config, &result);
        assert_eq!((checked.code, checked.stdout.as_str()), (0, ""), "{plugins:?}: {checked:?}");
        cni.del(config, &result);
        assert!(host.link("c1", "eth0").is_none());
        match &before {
            None => before = Some(host.traces()),
            Some(before) => host.expect_traces(before, &format!("{plugins:?}")),
        }
    }
}

#[test]
fn delegates_of_each_other() {
    let (ours, theirs) = (plugin_dir(), peers_dir());
    for ipam in [host_local(), static_addresses()] {
        let name = ipam["type"].as_str().unwrap().to_owned();
        let config = network(ipam);
        comes_and_goes(&[("bridge", ours), (&name, theirs)], &config);
        comes_and_goes(&[("bridge", theirs), (&name, ours)], &config);
    }
}

/// A failure of their IPAM plugin under our bridge is theirs, word for word, and is undone.
#[test]
fn a_delegates_failure_is_told_and_undone() {
    let host = Host::new();
    host.container("c1");
    host.container("c2");
    let cni = host.cni(&mixed(&host, &[("bridge", plugin_dir()), ("host-local", peers_dir())]));
    let config = network(json!({"type": "host-local", "subnet": "10.1.0.0/30"}));
    cni.clone().at("c1", "eth0").add(&config);
    let before = host.traces();
    let outcome = cni.at("c2", "eth0").call("ADD", "bridge", config.to_string());
    assert!(outcome.message().contains("no IP addresses available in range set: 10.1.0.1-10.1.0.2"), "{outcome:?}");
    host.expect_traces(&before, "a failed delegate");
}

/// Attached by one implementation, deleted by the other, with and without the result.
#[test]
fn a_node_moves_over_and_back() {
    for (from, to) in [(peers_dir(), plugin_dir()), (plugin_dir(), peers_dir())] {
        for told in [true, false] {
            let host = Host::new();
            host.container("c1");
            let config = network(host_local());
            let (old, new) = (host.cni(from).at("c1", "eth0"), host.cni(to).at("c1", "eth0"));
            let first = old.add(&config);
            old.del(&config, &first);
            let before = host.traces();
            let result = old.add(&config);
            if told {
                let checked = new.check(&config, &result);
                assert_eq!(checked.code, 0, "{from:?} to {to:?}: {checked:?}");
            }
            new.del(&config, if told { &result } else { &Value::Null });
            host.expect_traces(&before, &format!("{from:?} to {to:?}, result told: {told}"));
        }
    }
}

/// A node that moved over hands out no address that the other implementation gave.
#[test]
fn addresses_are_known_across_implementations() {
    let host = Host::new();
    let config = network(host_local());
    let mut given = Vec::new();
    for (i, dir) in [peers_dir(), plugin_dir(), peers_dir(), plugin_dir()].into_iter().enumerate() {
        let pod = format!("c{i}");
        host.container(&pod);
        let result = host.cni(dir).at(&pod, "eth0").add(&config);
        given.push(result["ips"][0]["address"].as_str().unwrap().to_owned());
    }
    assert_eq!(given, ["10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24", "10.1.0.5/24"]);
    assert!(host.pings("c0", "10.1.0.5"), "both are on one bridge");
}

/// `tuning` of one implementation after the `bridge` of the other, and restored by the third party's DEL.
#[test]
fn tuning_after_anybodys_bridge() {
    for (maker, tuner, undoer) in
        [(peers_dir(), plugin_dir(), plugin_dir()), (plugin_dir(), peers_dir(), plugin_dir()), (peers_dir(), plugin_dir(), peers_dir())]
    {
        let host = Host::new();
        host.container("c1");
        let made = host.cni(maker).at("c1", "eth0").add(&network(host_local()));
        let before = host.traces();
        let mut config =
            json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning", "mtu": 1400, "promisc": true, "mac": "02:00:00:00:00:77"});
        config["prevResult"] = made;
        let result = host.cni(tuner).at("c1", "eth0").add(&config);
        let link = host.link("c1", "eth0").unwrap();
        assert!(link.mtu() == 1400 && link.has("PROMISC") && link.mac() == "02:00:00:00:00:77", "{link:?}");
        assert_eq!(result["interfaces"][2]["mac"], "02:00:00:00:00:77");
        let tuning = host.cni(undoer).at("c1", "eth0");
        let checked = tuning.check(&config, &result);
        assert_eq!(checked.code, 0, "{checked:?}");
        tuning.del(&config, &result);
        host.run("", &["rm", "-rf", "/run/cni"]);
        host.expect_traces(&before, &format!("{maker:?} {tuner:?} {undoer:?}"));
    }
}
