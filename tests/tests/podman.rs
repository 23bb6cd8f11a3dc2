//! podman as the runtime: real containers on a network that our plugins serve.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use netloom_tests::{Host, plugin_dir};
use serde_json::{Value, json};

/// A machine with podman; its containers, whose processes would outlive the test, go with it.
struct Machine {
    host: Host,
    cgroup: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(podman(&self.host, &["rm", "--all", "--force", "-t", "0"]));
        // A container's monitor outlives it by a moment.
        let end = Instant::now() + Duration::from_secs(30);
        while !self.cgroups_removed() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Machine {
    /// Removes the folders that podman made, as far as they are empty, in every hierarchy; whether all are gone.
    fn cgroups_removed(&self) -> bool {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let folders = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).map(|hierarchy| hierarchy.join(&self.cgroup));
        let removed = |folder: &PathBuf| {
            drop(std::fs::remove_dir(folder.join("conmon")));
            drop(std::fs::remove_dir(folder));
            !folder.exists()
        };
        folders.filter(|folder| !removed(folder)).count() == 0
    }
}

/// podman finds our plugins and one network there, and a root file system of busybox alone.
fn machine() -> Machine {
    let host = Host::new();
    for program in ["podman", "runc", "busybox"] {
        let found = host.try_run("", &["sh", "-c", &format!("command -v {program}")]).status.success();
        assert!(found, "{program} is missing: run `make setup` (apt-get install -y podman runc busybox-static)");
    }
    let settings = format!(
        "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [{:?}]\nnetwork_config_dir = \"/run/networks\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"none\"\n",
        plugin_dir().to_str().unwrap()
    );
    host.write("/run/containers.conf", &settings);
    let network = json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "capabilities": {"ips": true, "mac": true},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd00:8::/64"}]]}},
        {"type": "tuning", "mtu": 1400},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]});
    host.write("/run/networks/pods.conflist", &network.to_string());
    host.run("", &["sh", "-c", "mkdir -p /var/lib/rootfs/bin /var/lib/rootfs/etc && cp $(command -v busybox) /var/lib/rootfs/bin/"]);
    Machine { host, cgroup: format!("netloom-tests-{}", std::process::id()) }
}

/// podman with its own files on this machine alone.
fn podman(host: &Host, args: &[&str]) -> Output {
    let mut command = host.command("", "podman");
    command.env("CONTAINERS_CONF", "/run/containers.conf").env_remove("XDG_RUNTIME_DIR");
    command.args(["--root", "/var/lib/podman", "--runroot", "/run/podman", "--tmpdir", "/run/podman/tmp", "--storage-driver", "vfs"]);
    command.args(args).output().unwrap()
}

fn ok(host: &Host, args: &[&str]) -> String {
    let output = podman(host, args);
    assert!(output.status.success(), "podman {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn run(machine: &Machine, name: &str) {
    start(machine, name, &[], &["sleep", "600"]);
}

/// A container with more options, in which busybox does something.
fn start(machine: &Machine, name: &str, options: &[&str], what: &[&str]) {
    let parent = format!("/{}", machine.cgroup);
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"];
    let busybox = ["--rootfs", "/var/lib/rootfs", "/bin/busybox"];
    let args: Vec<&str> = ["run", "-d", "--network", "pods", "--cgroup-parent", &parent, "--name", name]
        .iter()
        .chain(&limits)
        .chain(options)
        .chain(&busybox)
        .chain(what)
        .copied()
        .collect();
    ok(&machine.host, &args);
}

/// Links, addresses, rules and leases; podman keeps books of its own.
fn network_traces(host: &Host) -> Vec<String> {
    let ours = |line: &String| !line.starts_with("disk: ") || line.contains("/var/lib/cni/") || line.contains("/run/cni/");
    host.traces().into_iter().filter(|(line, _)| ours(line)).map(|(line, n)| format!("{n} {line}")).collect()
}

#[test]
fn containers_come_and_go() {
    let machine = machine();
    let host = &machine.host;
    run(&machine, "first");
    ok(host, &["rm", "-f", "-t", "0", "first"]);
    let before = network_traces(host);

    run(&machine, "a");
    run(&machine, "b");
    let seen: Value = serde_json::from_str(&ok(host, &["inspect", "b"])).unwrap();
    let network = &seen[0]["NetworkSettings"]["Networks"]["pods"];
    let (v4, v6) = (network["IPAddress"].as_str().unwrap(), network["GlobalIPv6Address"].as_str().unwrap());
    assert!(v4.starts_with("10.8.0.") && v6.starts_with("fd00:8::"), "{network}");
    for address in [v4, v6, "10.8.0.1", "fd00:8::1"] {
        ok(host, &["exec", "a", "/bin/busybox", "ping", "-c1", "-W30", address]);
    }
    assert!(ok(host, &["exec", "a", "/bin/busybox", "ip", "link", "show", "eth0"]).contains("mtu 1400"));

    ok(host, &["rm", "-f", "-t", "0", "a", "b"]);
    host.until("podman's containers leave nothing", || network_traces(host) == before);
    assert!(host.list("/var/lib/cni/networks/pods").iter().all(|name| name == "lock" || name.starts_with("last_reserved_ip.")));
}

/// `-p`: from the host, at its address and at 127.0.0.1, from another container, and from the container itself.
#[test]
fn published_ports() {
    let machine = machine();
    let host = &machine.host;
    host.write("/var/lib/rootfs/word", "published");
    let ports = ["-p", "8080:80", "-p", "10.8.0.1:9090:80/tcp"];
    start(&machine, "server", &ports, &["httpd", "-f", "-p", "80", "-h", "/"]);
    run(&machine, "client");
    let ask = |busybox: &str, address: &str, port: &str| format!("printf 'GET /word HTTP/1.0\\r\\n\\r\\n' | {busybox} nc {address} {port}");
    let on_host = |address: &str, port: &str| {
        let said = host.try_run("", &["sh", "-c", &ask("busybox", address, port)]);
        String::from_utf8_lossy(&said.stdout).ends_with("published")
    };
    let within = |container: &str, address: &str, port: &str| {
        ok(host, &["exec", container, "/bin/busybox", "sh", "-c", &ask("/bin/busybox", address, port)]).ends_with("published")
    };
    host.until("httpd answers", || on_host("10.8.0.1", "8080"));
    for (address, port) in [("127.0.0.1", "8080"), ("10.8.0.1", "8080"), ("fd00:8::1", "8080"), ("10.8.0.1", "9090")] {
        assert!(on_host(address, port), "the host at {address} {port}");
        if address != "127.0.0.1" {
            assert!(within("client", address, port), "another container at {address} {port}");
            assert!(within("server", address, port), "itself at {address} {port}");
        }
    }
    ok(host, &["rm", "-f", "-t", "0", "server", "client"]);
    host.until("no port is published", || !host.sh("", "nft list table inet netloom").contains(" comment \"pods/"));
}
