//! A real dockerd.

use std::path::PathBuf;

use netloom_tests::wired::{OUTSIDE, answer, attach, expect_others, list, machine, others, repaired, who};
use netloom_tests::{Host, Running};
use serde_json::json;

/// Where `make setup` has put it.
fn programs() -> PathBuf {
    let cache = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/netloom-docker");
    let dir = std::env::var_os("NETLOOM_DOCKER").map_or_else(cache, PathBuf::from);
    assert!(dir.join("dockerd").is_file(), "dockerd is not in {}: run `make setup`", dir.display());
    dir
}

fn dockerd(host: &Host) -> Running {
    let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap());
    let mut command = host.command("", "setpriv");
    command.args(["--pdeathsig", "KILL", "--", "dockerd", "--storage-driver", "vfs", "-H", "unix:///run/docker.sock"]);
    let running = Running::start(command.env("PATH", path));
    host.until("dockerd has its rules", || host.run_ok("", &["iptables", "-S", "DOCKER-ISOLATION-STAGE-2"]));
    let ping = ["curl", "-sf", "--unix-socket", "/run/docker.sock", "http://docker/_ping"];
    host.until("dockerd answers", || host.run_ok("", &ping));
    running
}

/// What dockerd starts ends with it; killed, it leaves its containerd, which ends here.
fn end(host: &Host, running: Running) {
    host.sh("", &format!("kill -TERM {}", running.id()));
    host.until("containerd ends", || {
        !host.path("/run/docker/containerd/containerd.pid").exists() || !host.path("/run/docker.pid").exists()
    });
    drop(running);
}

#[test]
fn beside_docker() {
    let host = machine(&["c1", "c2"]);
    let mut network = list("first", 1);
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "firewall"}));
    host.write("/run/nets/1.conflist", &network.to_string());
    answer(&host, "c1", 80);
    let docker = dockerd(&host);
    let theirs = others(&host);
    attach(&host, "add", "first", "c1", &[8080]);
    expect_others(&host, &theirs, "ADD");
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");
    // As where dockerd has turned forwarding on: it drops what it does not know.
    host.sh("", "iptables -P FORWARD DROP");
    assert!(host.pings("c1", OUTSIDE));
    host.sh("", "iptables -P FORWARD ACCEPT");

    // It writes its rules anew, before all others of the same chain.
    end(&host, docker);
    let docker = dockerd(&host);
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");

    // Somebody flushes it all: dockerd does not notice, and whoever mends ours changes nothing else.
    host.sh("", "nft flush ruleset");
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 2), "");
    repaired(&host, &[], 0);
    // The way through a filter that comes later stands in FORWARD, which was made for it: of theirs there is no rule.
    assert!(!others(&host).iter().any(|line| line.starts_with("{\"rule\"")), "{:#?}", others(&host));
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");
    end(&host, docker);
    let docker = dockerd(&host);
    // Its chains are new: the way through them is put back.
    repaired(&host, &[], 0);
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");
    let theirs = others(&host);
    attach(&host, "del", "first", "c1", &[8080]);
    expect_others(&host, &theirs, "DEL");
    end(&host, docker);
}
