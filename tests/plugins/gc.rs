//! GC: what is valid stays as it is, what is not goes, and every failure is told; judged by the kernel and the files.

use netloom_tests::{Host, at, netloom, plugin_dir};
use serde_json::{Value, json};

fn config(kind: &str, keys: Value) -> Value {
    let mut config = keys;
    config["cniVersion"] = json!("1.1.0");
    config["name"] = json!("net");
    config["type"] = json!(kind);
    config
}

fn bridge() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.4.0.0/24"});
    config("bridge", json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": ipam}))
}

fn valid(config: &Value, key: &str, containers: &[&str]) -> Value {
    let mut config = config.clone();
    config[key] = containers.iter().map(|c| json!({"containerID": c, "ifname": "eth0"})).collect();
    config
}

/// GC that must succeed in silence.
fn collect(host: &Host, config: &Value) {
    let outcome = host.cni(plugin_dir()).call("GC", config["type"].as_str().unwrap(), config.to_string());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{outcome:?}");
}

fn leases(host: &Host) -> Vec<String> {
    host.list("/var/lib/cni/networks/net").into_iter().filter(|f| f.starts_with("10.")).collect()
}

/// A machine on which that network has been used.
fn used(config: &Value) -> Host {
    let host = Host::new();
    host.sh("", "ip link add wire0 type veth peer name wire1");
    host.sh("", "ip link set wire0 up");
    for container in ["first", "c1", "c2"] {
        host.container(container);
    }
    let result = at(&host, "first").add(config);
    at(&host, "first").del(config, &result);
    host
}

/// Its container lives on, and so its interface: an address that is given away would be there twice.
#[test]
fn a_bridges_stale_pair_goes_before_its_address() {
    let config = bridge();
    let mut other = config.clone();
    other["name"] = json!("other");
    other["bridge"] = json!("br1");
    other["ipam"]["subnet"] = json!("10.5.0.0/24");
    let host = used(&config);
    at(&host, "first").add(&other);
    let kept = at(&host, "c1").add(&config);
    let during = host.traces();
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        at(&host, "c2").add(&config);
        assert!(host.link("c2", "eth0").is_some());
        collect(&host, &valid(&config, key, &["c1"]));
        assert!(host.link("c2", "eth0").is_none());
        host.expect_traces(&during, "GC");
    }
    assert_eq!(at(&host, "c1").check(&config, &kept).code, 0);
    collect(&host, &valid(&config, "cni.dev/valid-attachments", &[]));
    assert!(host.link("c1", "eth0").is_none() && host.link("first", "eth0").is_some(), "another network's stays");
    assert_eq!(leases(&host), Vec::<String>::new());
}

#[test]
fn a_macvlans_address_goes_and_its_neighbour_stays() {
    let config = config("macvlan", json!({"master": "wire0", "ipam": {"type": "host-local", "subnet": "10.4.0.0/24"}}));
    let host = used(&config);
    let kept = at(&host, "c1").add(&config);
    at(&host, "c2").add(&config);
    assert_eq!(leases(&host).len(), 2);
    collect(&host, &valid(&config, "cni.dev/valid-attachments", &["c1"]));
    assert_eq!(leases(&host).len(), 1);
    assert_eq!(at(&host, "c1").check(&config, &kept).code, 0);
}

#[test]
fn tuning_forgets_what_a_lost_interface_was() {
    let network = bridge();
    let host = used(&network);
    let tuning = |name: &str, result: &Value| {
        let mut tuning = config("tuning", json!({"mtu": 1400, "prevResult": result}));
        tuning["name"] = json!(name);
        tuning
    };
    for container in ["c1", "c2", "first"] {
        let result = at(&host, container).add(&network);
        at(&host, container).add(&tuning(if container == "first" { "other" } else { "net" }, &result));
    }
    host.write("/run/cni/tuning/foreign_eth0.json", "{\"mtu\": 1500}");
    host.write("/run/cni/tuning/note.txt", "not ours");
    collect(&host, &valid(&config("tuning", json!({})), "cni.dev/valid-attachments", &["c1"]));
    assert_eq!(host.list("/run/cni/tuning"), ["c1_eth0.json", "first_eth0.json", "foreign_eth0.json", "note.txt"]);
    at(&host, "c1").del(&tuning("net", &json!({"cniVersion": "1.1.0"})), &Value::Null);
    assert_eq!(host.link("c1", "eth0").unwrap().0["mtu"], 1500, "what was valid can still be restored");
}

fn run(host: &Host, args: &[&str]) -> (i32, String) {
    let mut command = host.command("", netloom());
    let out = command.arg("cni").args(args).env("CNI_PATH", "/run/bin").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), said)
}

/// A machine with the network in a file, and three containers attached to it, the last by somebody without this cache.
fn attached() -> Host {
    let host = used(&bridge());
    host.write("/etc/cni/net.d/net.conf", &bridge().to_string());
    for container in ["c1", "c2"] {
        let (code, said) = run(&host, &["add", "net", &format!("/run/netns/{container}")]);
        assert_eq!(code, 0, "{said}");
    }
    at(&host, "first").add(&bridge());
    host
}

/// The tool's name for a container: from its namespace's path.
fn id_of(host: &Host, container: &str) -> String {
    let names = host.list("/var/lib/cni/results");
    let of = |name: &&String| std::fs::read_to_string(host.path("/var/lib/cni/results").join(name)).unwrap().contains(container);
    names.iter().find(of).unwrap().strip_prefix("net-").unwrap().strip_suffix("-eth0").unwrap().to_owned()
}

#[test]
fn the_tool_keeps_what_it_is_told() {
    for way in ["--keep", "a list", "an object", "a pipe"] {
        let host = attached();
        let id = id_of(&host, "/run/netns/c1");
        let list = json!([{"containerID": id, "ifname": "eth0"}, {"containerID": "first", "ifname": "eth0"}]);
        host.write("/run/list", &list.to_string());
        host.write("/run/object", &json!({"cni.dev/valid-attachments": list}).to_string());
        let keep = format!("{id}/eth0");
        let gc = match way {
            "--keep" => run(&host, &["gc", "net", "--keep", &keep, "--keep", "first/eth0"]),
            "a list" => run(&host, &["gc", "net", "--valid", "/run/list"]),
            "an object" => run(&host, &["gc", "net", "--valid", "/run/object"]),
            _ => {
                let line = format!("{} cni gc net --keep first/eth0 --valid - </run/list", netloom().display());
                let out = host.try_run("", &["sh", "-c", &line]);
                (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
            }
        };
        assert_eq!(gc, (0, String::new()), "{way}");
        let there = |container| host.link(container, "eth0").is_some();
        assert!(there("c1") && !there("c2") && there("first"), "{way}");
        assert_eq!((leases(&host).len(), host.list("/var/lib/cni/results").len()), (2, 1), "{way}");
        if way == "--keep" {
            // What is not named goes, whoever attached it.
            assert_eq!(run(&host, &["gc", "net", "--keep", &keep]), (0, String::new()));
            assert!(there("c1") && !there("first"));
            assert_eq!(run(&host, &["gc", "net", "--all"]), (0, String::new()));
            assert!(!there("c1"));
        }
    }
}

#[test]
fn the_tool_asks_what_is_valid() {
    let host = attached();
    host.write("/run/empty", "");
    host.write("/run/other", "{\"containers\": []}");
    host.write("/run/bad", "[{\"containerID\": \"ok\", \"ifname\": \"eth0\"}, {\"containerID\": \"c1\"}]");
    let before = host.traces();
    for (args, says) in [
        (&[][..], &["gc needs the attachments to keep", "--keep CONTAINER/IFNAME", "--valid FILE", "--all"][..]),
        (&["--keep", "c1"][..], &["--keep c1", "expected CONTAINER/IFNAME"][..]),
        (&["--keep", "../c1/eth0"][..], &["--keep ../c1/eth0", "containerID"][..]),
        (&["--valid", "/run/nowhere"][..], &["--valid /run/nowhere", "No such file"][..]),
        (&["--valid", "/run/empty"][..], &["--valid /run/empty", "empty"][..]),
        (&["--valid", "/run/other"][..], &["/run/other", "cni.dev/valid-attachments", "to be kept"][..]),
        (&["--valid", "/run/bad"][..], &["/run/bad[1]", "interface name is empty"][..]),
        (&["--all", "--keep", "c1/eth0"][..], &["--all", "cannot be used with"][..]),
    ] {
        let (code, said) = run(&host, &[&["gc", "net"], args].concat());
        assert!(code != 0, "{args:?}: {said}");
        says.iter().for_each(|part| assert!(said.contains(part), "{args:?}: {part:?} is not in\n{said}"));
    }
    host.expect_traces(&before, "a refused GC");
}

/// A DEL that fails, a file that cannot be read and a plugin that fails: each is told, and what can go goes.
#[test]
fn every_failure_is_told_and_the_rest_collected() {
    let host = attached();
    let mut list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge(), {"type": "stubborn"}]});
    list["plugins"][0].as_object_mut().unwrap().remove("name");
    host.write("/etc/cni/net.d/net.conflist", &list.to_string());
    let script = "#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in GC) echo '{\"code\":77,\"msg\":\"I do not collect\"}'; exit 1 ;; esac\n\
        case $CNI_NETNS in */c1) echo '{\"code\":78,\"msg\":\"I do not let go\"}'; exit 1 ;; esac\n";
    host.write("/run/bin/stubborn", script);
    host.run("", &["chmod", "+x", "/run/bin/stubborn"]);
    host.run("", &["mkdir", "/var/lib/cni/results/net-odd-eth0"]);
    let (code, said) = run(&host, &["gc", "net", "--keep", "nobody/eth0"]);
    assert_eq!(code, 1, "{said}");
    for part in ["net-odd-eth0", "I do not let go", "I do not collect", &format!("DEL of net/{}/eth0", id_of(&host, "/run/netns/c1"))] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(["c1", "c2", "first"].iter().all(|c| host.link(c, "eth0").is_none()));
    assert_eq!(leases(&host), Vec::<String>::new());
    assert_eq!(host.list("/var/lib/cni/results").len(), 2, "what failed can be tried again");
}
