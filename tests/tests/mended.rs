//! Defects that were mended: a test for each, with its cause.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

fn macvlan(name: &str) -> Value {
    json!({"cniVersion": "1.1.0", "name": name, "type": "macvlan", "master": "wire0",
        "ipam": {"type": "host-local", "subnet": "10.3.0.0/24"}})
}

/// A machine with a parent for macvlan.
fn with_parent() -> Host {
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

fn cni(host: &Host, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let mut command = host.command("", netloom());
    let out = command.arg("cni").args(args).env_remove("CNI_PATH").envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), said)
}

/// `netloom cni gc` told the plugins that nothing is valid, and so freed what other runtimes hold.
#[test]
fn r01_gc_of_the_tool_leaves_other_runtimes_alone() {
    let host = Host::new();
    host.container("c1");
    let config = bridge(json!({"ipMasq": true, "isGateway": true}));
    host.write("/etc/cni/net.d/1.conf", &config.to_string());
    host.cni(plugin_dir()).at("c1", "eth0").add(&config);
    let (code, said) = cni(&host, &["gc", "net", "--all"], &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(leases(&host, "net"), ["10.2.0.2"]);
    assert!(host.sh("", "nft list ruleset").contains("net/c1/eth0"));
}

/// DEL knew a macvlan by the MAC of the result, which `tuning` had changed and restored, or the pod itself had changed:
/// the link stayed and its address was given away.
#[test]
fn r02_a_macvlan_goes_whatever_its_address_is() {
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
fn r03_a_renamed_interface_goes() {
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
fn r53_a_pair_of_the_containers_own_stays() {
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
fn r06_del_after_a_refused_add_deletes_nothing_of_others() {
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
fn r07_a_name_is_no_pattern() {
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

/// `tuning` could not restore an MTU that the parent no longer allows, and so no DEL ever succeeded. Two `tuning` in one
/// chain kept only what the second one found.
#[test]
fn r10_what_cannot_be_restored_holds_up_no_del() {
    let host = with_parent();
    host.container("c1");
    let tuning = |keys: Value| {
        let mut config = json!({"type": "tuning"});
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        config
    };
    let list = json!({"cniVersion": "1.0.0", "name": "m", "plugins": [macvlan("m"), tuning(json!({"mtu": 1300}))]});
    host.write("/etc/cni/net.d/1.conflist", &list.to_string());
    assert_eq!(cni(&host, &["add", "m", "/run/netns/c1"], &[]).0, 0);
    host.sh("", "ip link set wire0 mtu 1400");
    let (code, said) = cni(&host, &["del", "m", "/run/netns/c1"], &[]);
    assert_eq!(code, 0, "{said}");
    assert!(host.link("c1", "eth0").is_none() && host.list("/run/cni/tuning").is_empty());
    // What was there first is what comes back.
    host.sh("c1", "ip link add eth0 mtu 1500 type veth peer name peer0");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1"}]});
    let config = |keys: Value| {
        let mut config = tuning(keys);
        config
            .as_object_mut()
            .unwrap()
            .extend(json!({"cniVersion": "1.0.0", "name": "t", "prevResult": prev}).as_object().unwrap().clone());
        config
    };
    let one = host.cni(plugin_dir()).at("c1", "eth0");
    one.add(&config(json!({"mtu": 1300})));
    one.add(&config(json!({"mtu": 1200, "txQLen": 77})));
    one.del(&config(json!({})), &prev);
    assert_eq!(host.link("c1", "eth0").unwrap().mtu(), 1500);
}

/// An empty `CNI_PATH` was a search in the directory where one happened to be, then on `PATH`.
#[test]
fn r11_nothing_is_run_from_where_one_happens_to_be() {
    let host = Host::new();
    host.container("c1");
    host.write("/run/here/sneaky", "#!/bin/sh\ntouch /run/ran\n");
    host.sh("", "chmod 755 /run/here/sneaky");
    host.write("/etc/cni/net.d/1.conf", &json!({"cniVersion": "1.0.0", "name": "n", "type": "sneaky"}).to_string());
    let program = netloom().display().to_string();
    for path in ["", ":", "/nowhere:"] {
        let line = format!("cd /run/here && CNI_PATH={path} {program} cni add n /run/netns/c1");
        assert!(!host.try_run("", &["sh", "-c", &line]).status.success());
    }
    assert!(!host.path("/run/ran").exists());
    // A relative directory that is named is meant.
    host.try_run("", &["sh", "-c", &format!("cd /run && CNI_PATH=here {program} cni add n /run/netns/c1")]);
    assert!(host.path("/run/ran").exists());
}

/// `netloom cni add NET /proc/self/ns/net` attached the host to itself.
#[test]
fn r15_the_host_is_no_container() {
    let host = Host::new();
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    let (code, said) = cni(&host, &["add", "net", "/proc/self/ns/net"], &[]);
    assert!(code == 1 && said.contains("\"code\": 8") && said.contains("the host's own network namespace"), "{said}");
    assert!(host.link("", "eth0").is_none());
}

/// VERSION waited for the end of standard input, which it does not need.
#[test]
fn r19_version_reads_nothing() {
    let host = Host::new();
    let bridge = plugin_dir().join("bridge").display().to_string();
    let start = std::time::Instant::now();
    let out = host.run("", &["sh", "-c", &format!("mkfifo /run/pipe; exec 3<>/run/pipe; CNI_COMMAND=VERSION timeout 60 {bridge} <&3")]);
    assert!(out.contains("supportedVersions") && start.elapsed().as_secs() < 50);
}

/// The container's ID was made from the path as it was written: `del` did not find what `add` had made.
#[test]
fn r21_a_path_is_what_it_means() {
    let host = Host::new();
    host.container("c1");
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    assert_eq!(cni(&host, &["add", "net", "/run/../run/./netns/c1"], &[]).0, 0);
    assert_eq!(cni(&host, &["del", "net", "/run/netns/c1"], &[]).0, 0);
    assert!(host.link("c1", "eth0").is_none() && leases(&host, "net").is_empty());
}

/// A roll-back that failed was forgotten: the record went, nobody called DEL again, and what the plugin kept stayed.
#[test]
fn r08_s52_a_failed_roll_back_is_tried_again() {
    let host = Host::new();
    let plugin = |name: &str, line: &str| {
        host.write(&format!("/run/x/bin/{name}"), &format!("#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND {name} >>/run/x/calls\n{line}\n"));
        host.sh("", &format!("chmod 755 /run/x/bin/{name}"));
    };
    plugin("fine", r#"[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'"#);
    plugin("broken", r#"[ $CNI_COMMAND = DEL -a -e /run/x/mended ] || exit 1"#);
    let definition = |name: &str| {
        format!(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: {name}}}\nspec: {{config: '{}'}}\n---\n",
            json!({"cniVersion": "1.0.0", "type": name})
        )
    };
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {k8s.v1.cni.cncf.io/networks: 'fine,broken'}}\n";
    host.write("/run/x/all.yaml", &format!("{}{}{pod}", definition("fine"), definition("broken")));
    let lab = |args: &[&str]| {
        let out = host.command("", netloom()).arg("lab").args(args).env_remove("CNI_PATH").output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let calls = || std::fs::read_to_string(host.path("/run/x/calls")).unwrap().split('\n').map(str::to_owned).collect::<Vec<_>>();
    let (code, said) = lab(&["up", "/run/x"]);
    assert!(code == 3 && said.contains("could not be undone"), "{said}");
    assert!(lab(&["down"]).0 == 1, "it still cannot be undone");
    host.write("/run/x/mended", "");
    assert_eq!(lab(&["down"]), (0, String::new()));
    assert!(calls().iter().filter(|c| *c == "DEL broken").count() >= 4, "{:?}", calls());
}

/// A definition's `dataDir` was taken as it is: a lab wrote all over the machine, and left it there.
#[test]
fn r12_a_lab_keeps_to_its_own_directories() {
    let host = Host::new();
    let config = json!({"cniVersion": "1.0.0", "name": "data", "plugins": [
        {"type": "bridge", "bridge": "b0", "ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "dataDir": "/var/lib/mine/../data"}},
        {"type": "tuning", "mtu": 1400, "dataDir": "/var/lib/tuned"}]});
    let text = format!(
        "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {{name: data}}\nspec: {{config: '{config}'}}\n---\n\
        apiVersion: v1\nkind: Pod\nmetadata: {{name: a, annotations: {{k8s.v1.cni.cncf.io/networks: data}}}}\n"
    );
    host.write("/run/all.yaml", &text);
    let before = host.traces();
    let lab = |args: &[&str]| host.command("", netloom()).arg("lab").args(args).output().unwrap().status.code();
    assert_eq!(lab(&["up", "/run/all.yaml"]), Some(0));
    assert_eq!(host.list("/var/lib"), Vec::<String>::new());
    assert_eq!(lab(&["down"]), Some(0));
    host.expect_traces(&before, "a lab with a dataDir");
}

/// CHECK looked for table 0, which is none: the kernel had taken the main one, and the route counted as gone.
#[test]
fn r54_a_route_of_table_0_is_in_the_main_one() {
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
