//! What a caller could see differ from the reference plugins, each point with both beside each other.

use netloom_tests::{Cni, Host, netloom, peers_dir, plugin_dir};
use serde_json::{Value, json};

/// Who is called, for messages, and how.
fn both(host: &Host) -> [(&'static str, Cni<'_>); 2] {
    [("reference", peers_dir()), ("ours", plugin_dir())].map(|(who, dir)| (who, host.cni(dir).at("c1", "eth0")))
}

fn ipam(kind: &str, ipam: Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": ipam});
    config["ipam"]["type"] = json!(kind);
    config
}

/// Their documents call them with `/dev/null`.
#[test]
fn static_and_host_local_need_no_namespace() {
    let host = Host::new();
    host.container("c1");
    host.write("/run/file", "");
    let configs = [
        ipam("static", json!({"addresses": [{"address": "10.1.0.7/24"}]})),
        ipam("host-local", json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.7", "rangeEnd": "10.1.0.7"})),
    ];
    for netns in ["/dev/null", "/run/netns/gone", "/run/file", "/dev/null/what", "what"] {
        for config in &configs {
            for (who, cni) in both(&host) {
                let cni = cni.set("CNI_NETNS", netns);
                let result = cni.add(config);
                assert_eq!(result["ips"][0]["address"], "10.1.0.7/24", "{who} {netns}");
                cni.check(config, &result).silent();
                cni.del(config, &result);
            }
        }
    }
    // The host's own is still a mistake.
    for (who, cni) in both(&host) {
        let cni = cni.set("CNI_NETNS", "/proc/self/ns/net");
        assert_ne!(cni.call("ADD", "static", configs[0].to_string()).code, 0, "{who}");
    }
}

fn bridge(ipam: Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam})
}

/// Of both families, whoever says it: the kernel drops the host bits of IPv6 itself, and would refuse those of IPv4. The result has
/// what was written.
#[test]
fn a_route_with_host_bits_leads_to_its_network() {
    let routes = json!([{"dst": "3ffe:ffff:0:01ff::1/64"}, {"dst": "10.77.0.1/16", "gw": "10.1.0.9"}]);
    let addresses = json!([{"address": "10.1.0.7/24", "gateway": "10.1.0.1"}, {"address": "fd00:1::7/64", "gateway": "fd00:1::1"}]);
    let another = "#!/bin/sh\n[ $CNI_COMMAND != ADD ] || cat <<END\n{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.1.0.7/24\",\
        \"gateway\":\"10.1.0.1\"},{\"address\":\"fd00:1::7/64\",\"gateway\":\"fd00:1::1\"}],\
        \"routes\":[{\"dst\":\"3ffe:ffff:0:01ff::1/64\"},{\"dst\":\"10.77.0.1/16\",\"gw\":\"10.1.0.9\"}]}\nEND\n";
    let host = Host::new();
    host.container("c1");
    host.write("/run/bin/another", another);
    host.run("", &["chmod", "+x", "/run/bin/another"]);
    for (who, cni) in both(&host) {
        let config = ipam("static", json!({"addresses": addresses, "routes": routes}));
        assert_eq!(cni.add(&config)["routes"], json!([{"dst": "3ffe:ffff:0:1ff::1/64"}, routes[1]]), "{who}");
    }
    let cni = host.cni(plugin_dir()).at("c1", "eth0").set("CNI_PATH", "/run/bin");
    for ipam in [
        json!({"type": "static", "addresses": addresses, "routes": routes}),
        json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]], "routes": routes}),
        json!({"type": "another"}),
    ] {
        let config = bridge(ipam);
        let result = cni.add(&config);
        let told: Vec<&str> = result["routes"].as_array().unwrap().iter().map(|r| r["dst"].as_str().unwrap()).collect();
        assert_eq!(told, ["3ffe:ffff:0:1ff::1/64", "10.77.0.1/16"], "{}", config["ipam"]);
        assert!(host.sh("c1", "ip -4 route").contains("10.77.0.0/16 via 10.1.0.9 dev eth0"), "{}", config["ipam"]);
        assert!(host.sh("c1", "ip -6 route").contains("3ffe:ffff:0:1ff::/64 via fd00:1::1 dev eth0"), "{}", config["ipam"]);
        cni.check(&config, &result).silent();
        cni.del(&config, &result);
    }
}

/// Whatever the caller asks for beside it.
#[test]
fn static_and_host_local_without_ipam_are_refused() {
    let host = Host::new();
    for kind in ["static", "host-local"] {
        for keys in [
            json!({}),
            json!({"ipam": null}),
            json!({"args": {"cni": {"ips": ["10.1.0.7/24"]}}}),
            json!({"runtimeConfig": {"ips": ["10.1.0.7/24"], "ipRanges": [[{"subnet": "10.1.0.0/24"}]]}}),
        ] {
            let mut config = keys.clone();
            for (key, value) in [("cniVersion", "1.1.0"), ("name", "net"), ("type", kind)] {
                config[key] = json!(value);
            }
            for (who, cni) in both(&host) {
                let cni = cni.set("CNI_ARGS", "IgnoreUnknown=1;IP=10.1.0.8/24");
                let outcome = cni.call("ADD", kind, config.to_string());
                assert!(
                    outcome.code == 1 && outcome.stdout.contains("\"IPAM config missing 'ipam' key"),
                    "{who} {kind} {keys}: {outcome:?}"
                );
            }
        }
    }
}

/// `none` is what some callers write where there is nothing.
#[test]
fn malformed_arguments_fail_only_who_reads_them() {
    let host = Host::new();
    host.container("c1");
    let own = |kind: &str| ipam(kind, json!({"subnet": "10.1.0.0/24", "addresses": [{"address": "10.1.0.7/24"}]}));
    let network = bridge(own("host-local")["ipam"].clone());
    for (who, good) in both(&host) {
        let bad = good.clone().set("CNI_ARGS", "none");
        let is_ours = who == "ours";
        let add = |config: &Value| bad.call("ADD", config["type"].as_str().unwrap(), config.to_string());
        for kind in ["static", "host-local"] {
            let config = own(kind);
            let outcome = add(&config);
            assert!(outcome.code == 1 && outcome.stdout.contains("ARGS: invalid pair \\\"none\\\""), "{who} {kind}: {outcome:?}");
            let result = good.add(&config);
            // What ours asks in CHECK of host-local, it asks the files.
            assert_eq!(bad.check(&config, &result).code, i32::from(!is_ours || kind == "static"), "{who} {kind}");
            if is_ours {
                bad.del(&config, &result);
            }
            good.del(&config, &result);
        }
        assert_eq!(add(&network).code, 1, "{who}");
        good.del(&network, &Value::Null);
        let result = good.add(&network);
        for (kind, keys) in [
            ("loopback", json!({})),
            ("bandwidth", json!({"ingressRate": 8_000_000, "ingressBurst": 8_000_000})),
            ("firewall", json!({"backend": "iptables"})),
            ("sbr", json!({})),
            (
                "portmap",
                json!({"backend": "iptables", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}),
            ),
            ("tuning", json!({"mtu": 1400})),
        ] {
            let mut config = keys;
            for (key, value) in
                [("cniVersion", json!("1.0.0")), ("name", json!("net")), ("type", json!(kind)), ("prevResult", result.clone())]
            {
                config[key] = value;
            }
            let outcome = add(&config);
            assert_eq!(outcome.code, i32::from(kind == "tuning"), "{who} {kind}: {outcome:?}");
            if is_ours || kind != "tuning" {
                bad.del(&config, &result);
            }
        }
        if is_ours {
            bad.del(&network, &result);
        }
        good.del(&network, &result);
    }
}

/// A key with an empty list says that there is none; no key says nothing.
#[test]
fn empty_lists_of_dns_replace_those_of_ipam() {
    let host = Host::new();
    host.container("c1");
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.0.7/24", "gateway": "10.1.0.1"}],
        "dns": {"nameservers": ["10.1.0.1"], "search": ["a.example"]}});
    for kind in ["ptp", "bridge"] {
        for (dns, kept) in [
            (json!({}), true),
            (json!({"nameservers": null, "domain": ""}), true),
            (json!({"nameservers": []}), false),
            (json!({"nameservers": [], "search": [], "options": []}), false),
            (json!({"options": []}), false),
        ] {
            for (who, cni) in both(&host) {
                let config = json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "bridge": "br0", "dns": dns, "ipam": ipam});
                let result = cni.add(&config);
                let expected = if kept { ipam["dns"].clone() } else { Value::Null };
                assert_eq!(result["dns"], expected, "{who} {kind} {dns}");
                cni.del(&config, &result);
            }
        }
    }
}

fn tuning(keys: &str) -> String {
    let prev = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}]}"#;
    format!(r#"{{"cniVersion":"1.0.0","name":"net","type":"tuning","prevResult":{prev},{keys}}}"#)
}

/// A device that DPDK drives is no interface.
#[test]
fn sysctls_alone_need_no_interface() {
    let host = Host::new();
    host.container("c1");
    let config = tuning(r#""sysctl":{"net.core.somaxconn":"500"}"#);
    for (who, cni) in both(&host) {
        host.sh("c1", "sysctl -qw net.core.somaxconn=4096");
        cni.call("ADD", "tuning", &config).result();
        assert_eq!(host.sh("c1", "sysctl -n net.core.somaxconn").trim(), "500", "{who}");
        // Only ours has a CHECK and a DEL that do without, too.
        assert_eq!(cni.call("CHECK", "tuning", &config).code, i32::from(who != "ours"), "{who}");
        assert_eq!(cni.call("DEL", "tuning", &config).code, 0, "{who}");
        assert_eq!(cni.call("ADD", "tuning", tuning(r#""mtu":1400"#)).code, 1, "{who}");
    }
}

#[test]
fn one_sysctl_given_twice_is_refused() {
    let host = Host::new();
    host.container("c1");
    host.sh("c1", "ip link add eth0 type veth peer name other");
    let (dots, slashes) = ("net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/IFNAME/arp_filter");
    for (one, other) in [(dots, slashes), (slashes, dots), (dots, dots), (slashes, slashes)] {
        let config = tuning(&format!(r#""sysctl":{{"{one}":"1","{other}":"0"}}"#));
        for (who, cni) in both(&host) {
            let outcome = cni.call("ADD", "tuning", &config);
            let refused = outcome.code == 1 && outcome.stdout.contains("\"duplicated sysctl keys are not allowed");
            // The reference sees it where both are written alike.
            assert_eq!(refused, who == "ours" || one == other, "{who} {one} {other}: {outcome:?}");
            assert_eq!(cni.call("DEL", "tuning", &config).code, 0, "{who}");
        }
    }
}

/// A network that was renamed, or a caller that names another one, has the interface restored all the same.
#[test]
fn a_backup_made_under_another_networks_name_is_taken_back() {
    let host = Host::new();
    host.container("c1");
    host.sh("c1", "ip link add eth0 type veth peer name other");
    let config = tuning(r#""mtu":1400"#);
    for (who, cni) in both(&host) {
        cni.call("ADD", "tuning", config.replace(r#""net""#, r#""earlier""#)).result();
        assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1400, "{who}");
        assert_eq!(cni.call("DEL", "tuning", &config).code, 0, "{who}");
        assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1500, "{who}");
        assert_eq!(host.list("/run/cni/tuning"), Vec::<String>::new(), "{who}");
    }
}

/// What is wrong with the configuration is told before the namespace is looked for.
#[test]
fn dummy_asks_for_ipam_before_it_asks_for_the_namespace() {
    let host = Host::new();
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "dummy"});
    for (who, cni) in both(&host) {
        for verb in ["ADD", "CHECK"] {
            let outcome = cni.call(verb, "dummy", config.to_string());
            assert!(outcome.stdout.contains("\"dummy interface requires an IPAM configuration"), "{who} {verb}: {outcome:?}");
        }
    }
    host.write("/etc/cni/net.d/net.conf", &config.to_string());
    let mut command = host.command("", netloom());
    let output = command.args(["cni", "add", "net", "/run/netns/none"]).env_remove("CNI_PATH").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("dummy interface requires an IPAM configuration"), "{output:?}");
}

/// One that nobody has given an address takes that of a port.
#[test]
fn the_result_has_the_bridges_hardware_address_after_the_port_joined() {
    let host = Host::new();
    host.container("c1");
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0"});
    for (who, cni) in both(&host) {
        host.sh("", "ip link add br0 type bridge");
        host.sh("", "ip link set br0 up");
        let before = host.link("", "br0").unwrap().mac().to_owned();
        let result = cni.add(&config);
        let after = host.link("", "br0").unwrap().mac().to_owned();
        assert_ne!(before, after, "{who}: the kernel gives it the port's");
        assert_eq!(result["interfaces"][0]["mac"], json!(after), "{who}");
        cni.del(&config, &result);
        host.sh("", "ip link del br0");
    }
}

/// A plugin gets a list's own `runtimeConfig` unless the caller gives it some, and is heard on standard error.
#[test]
fn a_lists_own_runtime_config_and_what_a_plugin_says() {
    let host = Host::new();
    host.container("c1");
    let plugin = "#!/bin/sh\ncat >/run/given\necho \"$(basename $0) $CNI_COMMAND\" >&2\necho '{\"cniVersion\":\"1.0.0\"}'\n";
    for name in ["one", "two"] {
        host.write(&format!("/run/bin/{name}"), plugin);
        host.run("", &["chmod", "+x", &format!("/run/bin/{name}")]);
    }
    let own = json!({"bandwidth": {"ingressRate": 8}, "more": 1});
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "two"},
        {"type": "one", "capabilities": {"bandwidth": true, "mac": false}, "runtimeConfig": own}]});
    host.write("/etc/cni/net.d/net.conflist", &list.to_string());
    let cnitool = peers_dir().join("cnitool");
    for program in [vec![cnitool.to_str().unwrap()], vec![netloom().to_str().unwrap(), "cni"]] {
        for (given, expected) in [
            (json!({}), own.clone()),
            (json!({"mac": "02:00:00:00:00:01"}), own.clone()),
            (json!({"bandwidth": {"egressRate": 9}}), json!({"bandwidth": {"egressRate": 9}})),
        ] {
            for verb in ["add", "del"] {
                let mut command = host.command("", program[0]);
                command.args(&program[1..]).args([verb, "net", "/run/netns/c1"]);
                let output = command.env("CNI_PATH", "/run/bin").env("CAP_ARGS", given.to_string()).output().unwrap();
                assert!(output.status.success(), "{program:?} {verb}: {output:?}");
                let names = if verb == "add" { ["two ADD\n", "one ADD\n"] } else { ["one DEL\n", "two DEL\n"] };
                assert!(String::from_utf8_lossy(&output.stderr).ends_with(&names.concat()), "{program:?} {verb}: {output:?}");
                if verb == "add" {
                    let told: Value = serde_json::from_str(&std::fs::read_to_string(host.path("/run/given")).unwrap()).unwrap();
                    assert_eq!(told["runtimeConfig"], expected, "{program:?} {given}");
                }
            }
        }
    }
}
