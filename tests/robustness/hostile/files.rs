//! Links, pipes and other files where state is kept: nothing is followed to somebody else's file, and nothing is waited for.

use std::time::{Duration, Instant};

use netloom_tests::{Host, Outcome};
use serde_json::{Value, json};

use crate::hostile::{bridge, cni, command, outcome, used};

const VICTIM: &str = "/run/victim/secret";
const TEXT: &str = "root:x:0:0\n";
const LEASES: &str = "/var/lib/cni/networks/net";
const RESULT: &str = "/var/lib/cni/results/net-cnitool-";

/// What can stand where a file of ours is expected.
const PLANTED: [&str; 5] = ["a link", "a link to nothing", "a link to itself", "a pipe", "a directory"];

/// Puts it there, in the place of what is there.
fn plant(host: &Host, what: &str, path: &str) {
    host.run("", &["rm", "-rf", path]);
    let (dir, name) = path.rsplit_once('/').unwrap();
    host.run("", &["mkdir", "-p", dir]);
    match what {
        "a link" => host.run("", &["ln", "-s", VICTIM, path]),
        "a link to nothing" => host.run("", &["ln", "-s", "/run/victim/new", path]),
        "a link to itself" => host.run("", &["ln", "-s", name, path]),
        "a pipe" => host.run("", &["mkfifo", path]),
        "a directory" => host.run("", &["mkdir", path]),
        other => panic!("{other}"),
    };
}

fn guard(host: &Host) {
    host.write(VICTIM, TEXT);
    host.sh("", "chmod 640 /run/victim/secret");
}

/// Nobody touched what the links lead to.
fn expect_untouched(host: &Host, when: &str) {
    assert_eq!(host.list("/run/victim"), ["secret"], "{when}");
    assert_eq!(std::fs::read_to_string(host.path(VICTIM)).unwrap(), TEXT, "{when}");
    assert_eq!(host.run("", &["stat", "-c", "%a", VICTIM]).trim(), "640", "{when}");
}

/// An outcome within a time in which nothing can have been waited for.
fn timed(when: &str, call: impl FnOnce() -> Outcome) -> Outcome {
    let begun = Instant::now();
    let done = call();
    assert!(begun.elapsed() < Duration::from_secs(120), "{when}: {:?}", begun.elapsed());
    assert!((0..=3).contains(&done.code), "{when}: {done:?}");
    done
}

#[test]
fn what_stands_among_the_leases_is_not_followed() {
    let host = used();
    guard(&host);
    let config = bridge(json!({})).to_string();
    let index = "/var/lib/cni/networks/.net.index";
    let inside = ["lock", "last_reserved_ip.0", ".reserving", "10.1.0.5"].map(|name| format!("{LEASES}/{name}"));
    for what in PLANTED {
        for path in inside.iter().map(String::as_str).chain([index, LEASES]) {
            let when = format!("{what} at {path}");
            plant(&host, what, path);
            let add = timed(&when, || cni(&host).call("ADD", "bridge", &config));
            expect_untouched(&host, &when);
            if add.code != 0 {
                let error = add.error();
                assert!(error["code"] == 5 && add.message().contains(path), "{when}: {error}");
                assert!(host.link("c1", "eth0").is_none() && host.json("", "bridge -j link") == json!([]), "{when}");
            }
            // An address that somebody else's file stands for is not handed out.
            assert!(path != inside[3] || add.code != 0 || add.result()["ips"][0]["address"] != "10.1.0.5/24", "{when}");
            timed(&when, || cni(&host).call("CHECK", "bridge", json!({"cniVersion": "1.0.0"}).to_string()));
            timed(&when, || cni(&host).call("DEL", "bridge", &config));
            timed(&when, || cni(&host).call("GC", "host-local", gc(&config)));
            expect_untouched(&host, &when);
            host.run("", &["rm", "-rf", path]);
            let again = timed(&when, || cni(&host).call("DEL", "bridge", &config));
            assert!(again.code == 0 && leases(&host).is_empty(), "{when}: {again:?} {:?}", leases(&host));
        }
    }
}

fn gc(config: &str) -> String {
    let mut config: Value = serde_json::from_str(config).unwrap();
    config["cniVersion"] = json!("1.1.0");
    config["cni.dev/valid-attachments"] = json!([]);
    config.to_string()
}

fn leases(host: &Host) -> Vec<String> {
    host.list(LEASES).into_iter().filter(|name| name.starts_with("10.")).collect()
}

/// Operators move state to another disk: a linked directory that is theirs to choose works as ever.
#[test]
fn a_linked_directory_of_the_operators_is_used() {
    for linked in ["/var/lib/cni", "/var/lib/cni/networks", "/var/lib/cni/results"] {
        let host = used();
        host.sh("", "mkdir /var/lib/disk");
        host.run("", &["mv", linked, "/var/lib/disk/here"]);
        host.run("", &["ln", "-s", "/var/lib/disk/here", linked]);
        host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
        let before = host.traces();
        for verb in ["add", "check", "del"] {
            let done = outcome(command(&host, &["cni", verb, "net", "/run/netns/c1"]));
            assert_eq!(done.code, 0, "{linked} {verb}: {done:?}");
        }
        host.expect_traces(&before, linked);
    }
}

/// The file of a result is replaced, not followed, and what cannot be one is not read.
#[test]
fn what_stands_among_the_results_is_not_followed() {
    let host = used();
    guard(&host);
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    let call = |verb: &str| {
        let what = if verb == "gc" { "--all" } else { "/run/netns/c1" };
        outcome(command(&host, &["cni", verb, "net", what]))
    };
    assert_eq!(call("add").code, 0);
    let name = host.list("/var/lib/cni/results").remove(0);
    assert_eq!(call("del").code, 0);
    let path = format!("/var/lib/cni/results/{name}");
    assert!(path.starts_with(RESULT), "{path}");
    let beside = format!("/var/lib/cni/results/.{name}.tmp");
    for what in PLANTED {
        for path in [&path, &beside] {
            let when = format!("{what} at {path}");
            plant(&host, what, path);
            let add = timed(&when, || call("add"));
            assert!(add.code == 0 || add.message().contains("result cache: "), "{when}: {add:?}");
            assert!(add.code == 0 || host.link("c1", "eth0").is_none(), "{when}");
            expect_untouched(&host, &when);
            for verb in ["check", "del", "gc"] {
                timed(&when, || call(verb));
                expect_untouched(&host, &when);
            }
            host.run("", &["rm", "-rf", path]);
            let del = call("del");
            assert!(del.code == 0 && leases(&host).is_empty() && host.link("c1", "eth0").is_none(), "{when}: {del:?}");
        }
    }
}

#[test]
fn what_stands_among_the_backups_is_not_followed() {
    let host = used();
    guard(&host);
    host.sh("c1", "ip link add eth0 type veth peer name peer0");
    let prev = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1"}]});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "tuning", "mtu": 1400, "prevResult": prev}).to_string();
    for what in PLANTED {
        for path in ["/run/cni/tuning/c1_eth0.json", "/run/cni/tuning/.c1_eth0.json.tmp"] {
            let when = format!("{what} at {path}");
            plant(&host, what, path);
            timed(&when, || cni(&host).call("ADD", "tuning", &config));
            expect_untouched(&host, &when);
            timed(&when, || cni(&host).call("DEL", "tuning", &config));
            expect_untouched(&host, &when);
            host.run("", &["rm", "-rf", path]);
            host.sh("c1", "ip link set eth0 mtu 1500");
        }
    }
}

/// A configuration directory is the operator's and may be made of links, as a mounted ConfigMap is; a pipe in it is no file.
#[test]
fn what_stands_among_the_configurations_is_read_or_passed_over() {
    let host = used();
    host.sh("", "mkfifo /etc/cni/net.d/0.conflist");
    host.sh("", "ln -s /dev/zero /etc/cni/net.d/1.conf");
    host.sh("", "mkdir /etc/cni/net.d/..data");
    host.write("/etc/cni/net.d/..data/net", &bridge(json!({})).to_string());
    host.sh("", "ln -s ..data/net /etc/cni/net.d/2.conf");
    for verb in ["add", "del"] {
        let done = timed(verb, || outcome(command(&host, &["cni", verb, "net", "/run/netns/c1"])));
        assert_eq!(done.code, 0, "{done:?}");
    }
    let done = timed("another", || outcome(command(&host, &["cni", "add", "another", "/run/netns/c1"])));
    assert!(done.message().contains("0.conflist") && done.message().contains("1.conf"), "{done:?}");
}

#[test]
fn what_stands_where_a_lab_is_kept_is_not_followed() {
    let host = Host::new();
    guard(&host);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    host.write("/run/x/pod.yaml", pod);
    let lab = |args: &[&str]| outcome(command(&host, &[&["lab"], args].concat()));
    for what in PLANTED {
        for path in
            ["/run/netloom/lab/lab", "/run/netloom/lab/lab.lock", "/run/netloom/lab/lab/lab.json", "/run/netloom/lab/lab/namespaces"]
        {
            let when = format!("{what} at {path}");
            plant(&host, what, path);
            let up = timed(&when, || lab(&["up", "/run/x"]));
            expect_untouched(&host, &when);
            assert!(up.code == 0 || up.stderr.contains("/run/netloom/lab"), "{when}: {up:?}");
            for args in [&["list"][..], &["status"], &["graph"], &["down"]] {
                timed(&when, || lab(args));
            }
            expect_untouched(&host, &when);
            host.run("", &["rm", "-rf", path]);
            timed(&when, || lab(&["down", "--force"]));
            host.run("", &["rm", "-rf", "/run/netloom"]);
            assert!(host.list("/run/netns").is_empty(), "{when}: {:?}", host.list("/run/netns"));
        }
    }
}

/// What is there of a running lab is replaced by somebody: it goes as far as it can be known.
#[test]
fn what_takes_the_place_of_a_labs_files_is_not_followed() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    let node = "/run/netloom/lab/lab/nodes/node-1";
    for what in ["a link", "a pipe"] {
        for path in ["lab.json", "namespaces", "sandboxes", "networks"] {
            let host = Host::new();
            guard(&host);
            host.write("/run/x/pod.yaml", pod);
            let lab = |args: &[&str]| outcome(command(&host, &[&["lab"], args].concat()));
            let up = lab(&["up", "/run/x"]);
            assert_eq!(up.code, 0, "{up:?}");
            let path =
                if path.ends_with('s') && path != "namespaces" { format!("{node}/{path}") } else { format!("/run/netloom/lab/lab/{path}") };
            let when = format!("{what} at {path}");
            plant(&host, what, &path);
            for args in [&["status"][..], &["graph"], &["down"], &["down", "--force"]] {
                timed(&when, || lab(args));
                expect_untouched(&host, &when);
            }
            assert!(host.list("/run/netns").is_empty(), "{when}: {:?}", host.list("/run/netns"));
        }
    }
}
