//! Which link DEL deletes: its own, whatever the container has made of it, and nobody else's.

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

pub(crate) fn macvlan(name: &str) -> Value {
    json!({"cniVersion": "1.1.0", "name": name, "type": "macvlan", "master": "wire0",
        "ipam": {"type": "host-local", "subnet": "10.3.0.0/24"}})
}

/// A machine with a parent for macvlan.
pub(crate) fn with_parent() -> Host {
    let host = Host::new();
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    host.sh("", "ip link set wire1 up");
    host
}

fn leases(host: &Host, network: &str) -> Vec<String> {
    let all = host.list(&format!("/var/lib/cni/networks/{network}"));
    all.into_iter().filter(|f| f.starts_with("10.")).collect()
}

pub(crate) fn cni(host: &Host, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let mut command = host.command("", netloom());
    let out = command.arg("cni").args(args).env_remove("CNI_PATH").envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), said)
}

/// DEL knew a macvlan by the MAC of the result, which `tuning` had changed and restored, or the pod itself had changed:
/// the link stayed and its address was given away.
#[test]
fn del_finds_a_macvlan_whatever_its_address_is() {
    let host = with_parent();
    host.container("c1");
    let list = json!({"cniVersion": "1.0.0", "name": "m", "plugins": [macvlan("m"), {"type": "tuning", "mac": "02:00:00:00:00:77"}]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    assert_eq!(cni(&host, &["add", "m", "/run/netns/c1"], &[]).0, 0);
    assert_eq!(host.link("c1", "eth0").unwrap().mac(), "02:00:00:00:00:77");
    assert_eq!(cni(&host, &["del", "m", "/run/netns/c1"], &[]).0, 0);
    assert!(host.link("c1", "eth0").is_none() && leases(&host, "m").is_empty());
    // The same by the pod's own hand, and with another name.
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    let result = one.add(&macvlan("m"));
    host.sh("c1", "ip link set eth0 down");
    host.sh("c1", "ip link set eth0 address 02:00:00:00:00:78 name other0");
    one.del(&macvlan("m"), &result);
    assert!(host.link("c1", "other0").is_none() && leases(&host, "m").is_empty());
}

/// DEL looked for the container's end by its name: a pod that renamed it kept it, with an address that was given again.
#[test]
fn del_finds_a_renamed_interface() {
    let host = Host::new();
    host.container("c1");
    for (rename, moved) in [(true, false), (false, true)] {
        let one = host.cni(plugin_dir()).at("c1", "eth0");
        let result = one.add(&bridge(json!({})));
        if rename {
            host.sh("c1", "ip link set eth0 down");
            host.sh("c1", "ip link set eth0 name foo");
        }
        if moved {
            host.container("elsewhere");
            host.sh("c1", "ip link set eth0 netns /run/netns/elsewhere");
        }
        one.del(&bridge(json!({})), &result);
        assert_eq!(host.json("", "bridge -j link"), json!([]), "no port is left");
        assert!(leases(&host, "net").is_empty());
    }
}

/// DEL knew the container's end by the index of the other one, which is unique in the host's namespace only: a pair of the
/// container's own went, too, if its other end had that index elsewhere. So did the roll-back of an ADD.
#[test]
fn del_leaves_a_pair_of_the_containers_own() {
    let host = Host::new();
    host.container("c1");
    host.container("nest");
    let config = bridge(json!({}));
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    let index = |container: &str, name: &str| host.json(container, &format!("ip -j link show dev {name}"))[0]["ifindex"].as_u64().unwrap();
    let outer = || host.json("", "bridge -j link")[0]["ifindex"].as_u64().unwrap();
    for moved in [false, true] {
        let result = one.add(&config);
        // One whose other end has the index of our outer end, and, once ours is elsewhere, one that has the index of our
        // inner end, too.
        let inner = index("c1", "eth0");
        host.sh("nest", &format!("ip link add eth0 index {} type veth peer name inner0 netns c1", outer()));
        if moved {
            host.container("elsewhere");
            host.sh("c1", "ip link set eth0 netns /run/netns/elsewhere");
            host.sh("c1", &format!("ip link add theirs index {inner} type veth peer name theirs1"));
        }
        one.del(&config, &result);
        assert!(host.link("c1", "inner0").is_some() && host.link("nest", "eth0").is_some(), "moved: {moved}");
        assert!(host.link("c1", "eth0").is_none() && leases(&host, "net").is_empty(), "moved: {moved}");
        assert_eq!(host.json("", "bridge -j link"), json!([]), "moved: {moved}");
        assert_eq!(host.link("c1", "theirs").is_some(), moved);
        host.sh("nest", "ip link del eth0");
    }
    // The host numbers its links one after the other, so the next outer end's index is known.
    one.add(&config);
    let next = outer() + 1;
    one.del(&config, &Value::Null);
    host.sh("nest", &format!("ip link add eth0 index {next} type veth peer name inner0 netns c1"));
    host.write("/run/x/broken", "#!/bin/sh\n[ $CNI_COMMAND != ADD ] || bridge -j link >/run/x/ports\n[ $CNI_COMMAND = DEL ]\n");
    host.sh("", "chmod 755 /run/x/broken");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [config, {"type": "broken"}]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    assert_eq!(cni(&host, &["add", "net", "/run/netns/c1"], &[("CNI_PATH", "/run/x")]).0, 1);
    let ports: Value = serde_json::from_str(&std::fs::read_to_string(host.path("/run/x/ports")).unwrap()).unwrap();
    assert_eq!(ports[0]["ifindex"], next);
    assert!(host.link("c1", "inner0").is_some() && host.link("c1", "eth0").is_none());
    assert_eq!(host.json("", "bridge -j link"), json!([]));
}

/// The DEL that follows a refused ADD deleted the interface that was in the way.
#[test]
fn del_after_a_refused_add_deletes_nothing_of_others() {
    let host = with_parent();
    host.container("c1");
    // Of another program.
    host.sh("", "ip link add theirs type veth peer name eth0 netns c1");
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    for config in [bridge(json!({})), macvlan("m")] {
        let kind = config["type"].as_str().unwrap();
        assert!(one.call("ADD", kind, config.to_string()).message().contains("already exists"));
        one.del(&config, &Value::Null);
        assert!(host.link("c1", "eth0").is_some() && host.link("", "theirs").is_some(), "{kind}");
    }
    host.sh("", "ip link del theirs");
    // Of another network of ours.
    one.add(&macvlan("a"));
    assert!(one.call("ADD", "macvlan", macvlan("b").to_string()).message().contains("already exists"));
    one.del(&macvlan("b"), &Value::Null);
    assert!(host.link("c1", "eth0").is_some());
    one.del(&macvlan("a"), &Value::Null);
    assert!(host.link("c1", "eth0").is_none());
}

/// `%d` in a name is a pattern for the kernel: it made `net0`, which nobody deleted.
#[test]
fn a_percent_sign_in_a_name_is_refused() {
    let host = Host::new();
    host.container("c1");
    let before = host.traces();
    let one = host.cni(plugin_dir());
    for out in [
        one.clone().at("c1", "net%d").call("ADD", "bridge", bridge(json!({})).to_string()),
        one.at("c1", "eth0").call("ADD", "bridge", bridge(json!({"bridge": "br%d"})).to_string()),
    ] {
        assert!(out.message().contains("or %"), "{}", out.message());
    }
    host.expect_traces(&before, "names with a %");
}

/// CHECK looked for table 0, which is none: the kernel had taken the main one, and the route counted as gone.
#[test]
fn check_finds_a_route_of_table_0_in_the_main_table() {
    let host = Host::new();
    host.container("c1");
    let routes = json!({"type": "host-local", "subnet": "10.2.0.0/24", "routes": [{"dst": "10.9.0.0/16", "table": 0}]});
    let config = bridge(json!({"isGateway": true, "ipam": routes}));
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    let result = one.add(&config);
    assert_eq!(result["routes"][0]["dst"], "10.9.0.0/16");
    assert_eq!(one.check(&config, &result).code, 0);
    host.sh("c1", "ip route del 10.9.0.0/16");
    assert!(one.check(&config, &result).message().contains("route to 10.9.0.0/16 is gone"));
    one.del(&config, &result);
}
