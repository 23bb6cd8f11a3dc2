//! podman as the runtime: real containers on a network that our plugins serve.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use netloom_tests::{Host, Switch, Traces, differences, plugin_dir, seen_within};
use serde_json::{Value, json};

/// The machine's addresses on the wire to `outside`, and those of `outside`.
const HOST4: &str = "192.0.2.1";
const HOST6: &str = "2001:db8::1";
const OUTSIDE4: &str = "192.0.2.2";
const OUTSIDE6: &str = "2001:db8::2";

/// How long an answer is waited for that shall not come: one that comes later is missed, and nothing else.
const IMPATIENCE: Duration = Duration::from_millis(700);

/// What Debian's podman brings along for who configures nothing.
const PODMANS_OWN: &str = "/etc/cni/net.d/87-podman-bridge.conflist";

/// A machine with podman; its containers, whose processes would outlive the test, go with it.
struct Machine {
    host: Host,
    cgroup: String,
    /// The network that containers join.
    network: &'static str,
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(podman(&self.host, &["rm", "--all", "--force", "-t", "0"]));
        // A container's monitor outlives it by a moment.
        let _ = seen_within(Duration::from_secs(30), || self.cgroups_removed(), |removed| *removed);
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
    let network = json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "pods0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
            "capabilities": {"ips": true, "mac": true},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}], [{"subnet": "fd00:8::/64"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "firewall"},
        {"type": "tuning", "mtu": 1400},
    ]});
    machine_with("pods", &network.to_string())
}

fn machine_with(name: &'static str, network: &str) -> Machine {
    let host = Host::new();
    for program in ["podman", "runc", "busybox"] {
        let found = host.try_run("", &["sh", "-c", &format!("command -v {program}")]).status.success();
        assert!(found, "{program} is missing: run `make setup` (apt-get install -y podman runc busybox-static)");
    }
    let settings = format!(
        "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [{:?}]\nnetwork_config_dir = \"/run/networks\"\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"none\"\n",
        plugin_dir()
    );
    host.write("/run/containers.conf", &settings);
    host.write(&format!("/run/networks/{name}.conflist"), network);
    host.run("", &["sh", "-c", "mkdir -p /var/lib/rootfs/bin /var/lib/rootfs/etc && cp $(command -v busybox) /var/lib/rootfs/bin/"]);
    host.wire("outside", "wire", [HOST4, HOST6], [OUTSIDE4, OUTSIDE6]);
    Machine { host, cgroup: format!("netloom-tests-{}-{name}", std::process::id()), network: name }
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
    let args: Vec<&str> = ["run", "-d", "--network", machine.network, "--cgroup-parent", &parent, "--name", name]
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
fn network_traces(host: &Host) -> Traces {
    let kept = |line: &String| line.contains("/var/lib/cni/") || line.contains("/run/cni/");
    let ours = |line: &String| !line.starts_with("disk: ") || kept(line);
    host.traces().into_iter().filter(|(line, _)| ours(line)).collect()
}

/// What runs beside a container may outlive it by a moment.
fn expect_network_traces(host: &Host, before: &Traces) {
    let left = seen_within(Duration::from_secs(120), || differences(before, &network_traces(host)), Vec::is_empty);
    left.unwrap_or_else(|differ| panic!("podman's containers left traces:\n{}", differ.join("\n")));
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
    expect_network_traces(host, &before);
    assert!(host.list("/var/lib/cni/networks/pods").iter().all(|name| name == "lock" || name.starts_with("last_reserved_ip.")));
}

/// Containers on a bridge of Open vSwitch, each in a VLAN.
#[test]
fn containers_on_open_vswitch() {
    let switched = |name: &str, vlan: u16| {
        let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24", "dataDir": "/run/addresses"});
        let plugin = json!({"type": "ovs", "bridge": "br1", "vlan": vlan, "capabilities": {"mac": true}, "ipam": ipam});
        json!({"cniVersion": "0.4.0", "name": name, "plugins": [plugin, {"type": "bandwidth"}]}).to_string()
    };
    let mut machine = machine_with("tenant", &switched("tenant", 100));
    machine.host.write("/run/networks/other.conflist", &switched("other", 200));
    let switch = Switch::start(&machine.host, &["br1"]);
    run(&machine, "first");
    ok(&machine.host, &["rm", "-f", "-t", "0", "first"]);
    let before = network_traces(&machine.host);

    run(&machine, "a");
    start(&machine, "b", &["--mac-address", "02:00:00:00:08:08"], &["sleep", "600"]);
    let seen: Value = serde_json::from_str(&ok(&machine.host, &["inspect", "b"])).unwrap();
    let network = &seen[0]["NetworkSettings"]["Networks"]["tenant"];
    assert_eq!(network["MacAddress"], "02:00:00:00:08:08");
    let address = network["IPAddress"].as_str().unwrap().to_owned();
    ok(&machine.host, &["exec", "a", "/bin/busybox", "ping", "-c1", "-W30", &address]);
    assert_eq!(switch.ports("br1").len(), 2);
    // Its own address file is another network's, so it may have the address of the first one: in another VLAN nobody notices.
    machine.network = "other";
    run(&machine, "c");
    let unreached = podman(&machine.host, &["exec", "c", "/bin/busybox", "ping", "-c2", "-W1", &address]);
    assert!(!unreached.status.success());
    let all = switch.vsctl("--bare --columns=tag list port");
    assert_eq!(all.split_whitespace().filter(|tag| *tag == "100").count(), 2, "{all}");
    assert!(all.split_whitespace().any(|tag| tag == "200"), "{all}");

    ok(&machine.host, &["rm", "-f", "-t", "0", "a", "b", "c"]);
    assert_eq!(switch.ports("br1"), [""; 0]);
    machine.host.sh("", "rm -rf /run/addresses/other");
    expect_network_traces(&machine.host, &before);
}

/// Addresses of a pool in a file; those of a container that is gone rest.
#[test]
fn addresses_of_a_pool() {
    let network = json!({"cniVersion": "0.4.0", "name": "pooled", "plugins": [
        {"type": "bridge", "bridge": "pooled0", "isDefaultGateway": true, "capabilities": {"ips": true},
            "ipam": {"type": "pool", "pool": "woven", "pools": "/var/lib/pools"}}]});
    let machine = machine_with("pooled", &network.to_string());
    let host = &machine.host;
    let spec = json!({"ipv4": {"entries": [{"cidr": "10.8.0.0/24"}], "gateway": "10.8.0.1"},
        "ipv6": {"entries": [{"cidr": "fd00:8::/64"}], "gateway": "fd00:8::1"}});
    let pool = json!({"apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "woven"}, "spec": spec});
    host.write("/var/lib/pools/woven.json", &pool.to_string());
    let address = |name: &str| {
        let seen: Value = serde_json::from_str(&ok(host, &["inspect", name])).unwrap();
        seen[0]["NetworkSettings"]["Networks"]["pooled"]["IPAddress"].as_str().unwrap().to_owned()
    };
    run(&machine, "a");
    assert_eq!(address("a"), "10.8.0.2");
    ok(host, &["rm", "-f", "-t", "0", "a"]);
    run(&machine, "b");
    start(&machine, "c", &["--ip", "10.8.0.77"], &["sleep", "600"]);
    assert_eq!([address("b"), address("c")], ["10.8.0.3", "10.8.0.77"]);
    for other in ["10.8.0.1", "fd00:8::1", "10.8.0.77"] {
        ok(host, &["exec", "b", "/bin/busybox", "ping", "-c1", "-W30", other]);
    }
    ok(host, &["rm", "-f", "-t", "0", "b", "c"]);
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

/// The name of a container's namespace.
fn namespace(host: &Host, container: &str) -> String {
    let path = ok(host, &["inspect", "--format", "{{.NetworkSettings.SandboxKey}}", container]);
    path.rsplit('/').next().unwrap().to_owned()
}

/// Over TCP and UDP: who answers at these places, and as whom he sees who asks.
fn expect_answers(host: &Host, port: u16, expected: &[(&str, &str, &str)]) {
    for (from, at, seen) in expected {
        assert_eq!(host.told_over_tcp(from, at, port), format!("server {seen}"), "TCP from {from:?} to {at} {port}");
        assert_eq!(host.told_over_udp(from, at, port), format!("server {seen}"), "UDP from {from:?} to {at} {port}");
    }
}

/// Ports of all addresses and of one, TCP and UDP, in both families: from outside, from the host, from another container and
/// from the container itself. Who comes from outside is seen as who he is.
#[test]
fn published_ports_from_everywhere() {
    let machine = machine();
    let host = &machine.host;
    let both = |port: &str| [format!("{port}/tcp"), format!("{port}/udp")];
    let ports: Vec<String> = [both("8080:80"), both("192.0.2.1:9090:80"), both("[2001:db8::1]:9091:80")].concat();
    let options: Vec<&str> = ports.iter().flat_map(|port| ["-p", port]).collect();
    start(&machine, "server", &options, &["sleep", "600"]);
    run(&machine, "client");
    let [server, client] = ["server", "client"].map(|name| namespace(host, name));
    host.answer_at(&server, "server", "::", 80);
    expect_answers(
        host,
        8080,
        &[
            ("outside", HOST4, OUTSIDE4),
            ("outside", HOST6, OUTSIDE6),
            ("outside", "10.8.0.1", OUTSIDE4),
            ("", HOST4, HOST4),
            ("", HOST6, HOST6),
            ("", "127.0.0.1", "10.8.0.1"),
            (&client, HOST4, "10.8.0.1"),
            (&client, HOST6, "fd00:8::1"),
            (&server, HOST4, "10.8.0.1"),
            (&server, HOST6, "fd00:8::1"),
        ],
    );
    expect_answers(host, 9090, &[("outside", HOST4, OUTSIDE4), (&client, HOST4, "10.8.0.1"), (&server, HOST4, "10.8.0.1")]);
    expect_answers(host, 9091, &[("outside", HOST6, OUTSIDE6), (&client, HOST6, "fd00:8::1"), (&server, HOST6, "fd00:8::1")]);
    for (at, port) in [(HOST6, 9090), ("10.8.0.1", 9090), (HOST4, 9091), ("fd00:8::1", 9091)] {
        assert!(host.ask_tcp("outside", at, port, IMPATIENCE).is_err(), "{port} is published at one address, and answers at {at}");
    }
    ok(host, &["rm", "-f", "-t", "0", "server", "client"]);
    host.until("no port is published", || !host.sh("", "nft list table inet netloom").contains(" comment \"pods/"));
    assert!(host.ask_tcp("outside", HOST4, 8080, IMPATIENCE).is_err(), "it answers after its end");
}

/// The network that podman has where nobody configured one, as Debian ships it.
#[test]
fn podmans_own_network_as_it_is() {
    let network = std::fs::read_to_string(PODMANS_OWN).unwrap_or_else(|e| panic!("{PODMANS_OWN}: {e}: it comes with Debian's podman"));
    let machine = machine_with("podman", &network);
    let host = &machine.host;
    start(&machine, "first", &["-p", "1:1"], &["sleep", "600"]);
    ok(host, &["rm", "-f", "-t", "0", "first"]);
    let before = network_traces(host);
    start(&machine, "server", &["-p", "8080:80/tcp", "-p", "8080:80/udp"], &["sleep", "600"]);
    run(&machine, "client");
    let [server, client] = ["server", "client"].map(|name| namespace(host, name));
    host.answer_at(&server, "server", "0.0.0.0", 80);
    let gateway = "10.88.0.1";
    expect_answers(
        host,
        8080,
        &[
            ("outside", HOST4, OUTSIDE4),
            ("", HOST4, HOST4),
            ("", "127.0.0.1", gateway),
            (&client, HOST4, gateway),
            (&server, HOST4, gateway),
        ],
    );
    // Out of the container, with the host's address.
    host.answer_at("outside", "server", "0.0.0.0", 7);
    expect_answers(host, 7, &[(&client, OUTSIDE4, HOST4)]);
    ok(host, &["rm", "-f", "-t", "0", "server", "client"]);
    expect_network_traces(host, &before);
}

/// What `podman network create` writes.
#[test]
fn a_network_that_podman_makes() {
    let mut machine = machine();
    machine.network = "made";
    let host = &machine.host;
    ok(host, &["network", "create", "--ipv6", "--subnet", "10.9.0.0/24", "--subnet", "fd00:9::/64", "made"]);
    start(&machine, "server", &["-p", "8080:80/tcp", "-p", "8080:80/udp"], &["sleep", "600"]);
    run(&machine, "client");
    let [server, client] = ["server", "client"].map(|name| namespace(host, name));
    host.answer_at(&server, "server", "::", 80);
    expect_answers(
        host,
        8080,
        &[
            ("outside", HOST4, OUTSIDE4),
            ("outside", HOST6, OUTSIDE6),
            ("", "127.0.0.1", "10.9.0.1"),
            (&client, HOST4, "10.9.0.1"),
            (&server, HOST6, "fd00:9::1"),
        ],
    );
    ok(host, &["rm", "-f", "-t", "0", "server", "client"]);
    host.until("no element is left", || !host.sh("", "nft list table inet netloom").contains(" comment \"made/"));
    ok(host, &["network", "rm", "made"]);
}
