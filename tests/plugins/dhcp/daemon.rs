//! The daemon itself: absent, asked by strangers, started twice, started by systemd.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use netloom_tests::{ips, netloom, plugin_dir};
use serde_json::{Value, json};

use crate::dhcp::server::{World, bridge};

#[test]
fn without_a_daemon() {
    let mut world = World::empty();
    let config = bridge(json!({}));
    world.host.container("c1");
    let before = world.host.traces();
    let failed = world.cni("c1").call("ADD", "bridge", config.to_string());
    assert_eq!(failed.error()["code"], 11, "{failed:?}");
    assert!(failed.message().contains("error dialing DHCP daemon") && failed.message().contains("netloom dhcp"), "{failed:?}");
    let status = world.cni("c1").call("STATUS", "bridge", config.to_string());
    assert_eq!(status.error()["code"], 50, "{status:?}");
    world.cni("c1").del(&config, &Value::Null);
    world.host.expect_traces(&before, "calls without a daemon");

    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
    world.start();
    assert_eq!(world.cni("c1").call("STATUS", "bridge", config.to_string()).code, 0);
    let result = world.cni("c1").add(&config);
    world.host.container("c2");
    let other = world.cni("c2").add(&config);
    world.terminate();
    // The lease is released all the same.
    world.cni("c1").del(&config, &result);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {}", ips(&result)[0]), 1);
    let checked = world.cni("c2").check(&config, &other);
    assert_eq!(checked.error()["code"], 11, "nobody renews it: {checked:?}");
    gc(&world, &config, &[]);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {}", ips(&other)[0]), 1);
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"]);
}

fn gc(world: &World, config: &Value, valid: &[&str]) {
    let mut config = config.clone();
    config["cni.dev/valid-attachments"] = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
    let done = world.cni("c1").call("GC", "bridge", config.to_string());
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn gc_releases_what_is_gone() {
    let world = World::new();
    let config = bridge(json!({}));
    let [one, two] = ["c1", "c2"].map(|c| ips(&world.attach(c))[0].clone());
    world.host.container("c3");
    let mut other = config.clone();
    other["name"] = json!("other");
    let third = ips(&world.cni("c3").add(&other))[0].clone();
    gc(&world, &config, &["c1"]);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {two}"), 1);
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock", "net@c1@eth0", "other@c3@eth0"], "{one} {third}");
}

#[test]
fn strangers() {
    let world = World::new();
    let before = world.used();
    let socket = world.host.path("/run/cni/dhcp.sock");
    let junk: [&[u8]; 5] = [b"", b"\0", b"\xff\xff\xff\xffxxxx", b"\0\0\0\x02{}", b"CONNECT /_goRPC_ HTTP/1.0\n\n"];
    for bytes in junk {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(bytes).unwrap();
    }
    world.until_told("dhcp", "not Netloom's plugin", 1);
    // One that says nothing holds up nobody.
    let silent = UnixStream::connect(&socket).unwrap();
    let result = world.attach("c1");
    drop(silent);
    let shown = world.host.run("", &["stat", "-c", "%a %U", "/run/cni", "/run/cni/dhcp.sock", "/run/cni/dhcp.leases/net@c1@eth0"]);
    assert_eq!(shown, "700 root\n600 root\n600 root\n");
    // Were the file's mode another: it is the peer who is asked.
    world.host.run("", &["chmod", "777", "/run/cni", "/run/cni/dhcp.sock"]);
    let call = format!("CNI_COMMAND=STATUS CNI_PATH=/ {}", plugin_dir().join("dhcp").display());
    let asked = format!("echo '{}' | setpriv --reuid 65534 --clear-groups env {call}", bridge(json!({})));
    assert!(!world.host.run_ok("", &["sh", "-c", &asked]));
    world.until_told("dhcp", "only root may call", 1);
    world.host.run("", &["chmod", "700", "/run/cni"]);
    world.host.run("", &["chmod", "600", "/run/cni/dhcp.sock"]);
    // Too much on standard input.
    let huge = vec![b' '; 17 << 20];
    assert_eq!(world.cni("c1").call("ADD", "dhcp", huge).error()["code"], 6);
    world.cni("c1").del(&bridge(json!({})), &result);
    world.host.run("", &["ip", "netns", "del", "c1"]);
    world.expect(&before, "strangers");
}

#[test]
fn started_in_other_ways() {
    let mut world = World::new();
    // A second one leaves the first one's leases alone. It waits for its turn, so it is given none.
    let mut second = world.host.command("", plugin_dir().join("dhcp"));
    let mut second = second.args(["daemon", "-socketpath", "/run/cni/dhcp.sock"]).stderr(Stdio::null()).spawn().unwrap();
    let result = world.attach("c1");
    assert!(second.try_wait().unwrap().is_none());
    second.kill().unwrap();
    second.wait().unwrap();
    world.terminate();
    for args in ["-nonsense", "-timeout=x"] {
        let refused = world.host.command("", plugin_dir().join("dhcp")).args(["daemon", args]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{args}");
    }
    // As `netloom dhcp`, with one dash or two, and a pidfile.
    let mut command = world.host.command("", netloom());
    command.args(["dhcp", "-pidfile", "/run/dhcp.pid", "--socketpath=/run/cni/dhcp.sock"]);
    world.spawn("netloom-dhcp", command);
    world.until_told("netloom-dhcp", "with 1 lease", 1);
    world.host.until("it listens", || world.host.path("/run/cni/dhcp.sock").exists());
    let pid = world.host.run("", &["cat", "/run/dhcp.pid"]);
    assert_eq!(world.cni("c1").check(&bridge(json!({})), &result).code, 0);
    world.host.run("", &["kill", &pid]);
    world.host.until("it takes its files along", || !world.host.path("/run/dhcp.pid").exists());
    assert!(!world.host.path("/run/cni/dhcp.sock").exists());
}

/// A socket that another one has opened, as systemd does.
#[test]
fn activated_by_its_socket() {
    crate::dhcp::server::needs("systemd-socket-activate", "systemd");
    let mut world = World::empty();
    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
    let mut command = world.host.command("", "systemd-socket-activate");
    command.args(["-l", "/run/cni/dhcp.sock"]).arg(plugin_dir().join("dhcp")).arg("daemon");
    world.spawn("activated", command);
    world.host.until("the socket is there", || world.host.path("/run/cni/dhcp.sock").exists());
    let result = world.attach("c1");
    assert!(ips(&result)[0].starts_with("10.9.0."));
    world.stop("activated");
    assert!(world.host.path("/run/cni/dhcp.sock").exists(), "it is systemd's to remove");
}

/// A daemon in a container of its own, whose `/run` is not the host's: that is below `/srv`.
#[test]
fn behind_a_prefix() {
    let mut world = World::empty();
    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
    world.host.container("c1");
    world.host.sh("", "mkdir -p /run/cni");
    let daemon = plugin_dir().join("dhcp");
    let own = "mount -t tmpfs tmpfs /srv && mkdir /srv/run && mount --rbind /run /srv/run && mount -t tmpfs tmpfs /run";
    let mut command = world.host.command("", "unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{own} && exec {} daemon -hostprefix /srv", daemon.display()));
    world.spawn("contained", command);
    world.host.until("the daemon listens", || world.host.path("/run/cni/dhcp.sock").exists());
    let before = world.host.traces();
    let config = bridge(json!({}));
    let result = world.cni("c1").add(&config);
    let lease = world.host.run("", &["cat", "/run/cni/dhcp.leases/net@c1@eth0"]);
    assert!(lease.contains(r#""netns":"/run/netns/c1""#), "a path of the host's: {lease}");
    assert_eq!(world.cni("c1").check(&config, &result).code, 0);
    // Without the daemon the plugin finds namespace and lease by that path.
    world.stop("contained");
    world.cni("c1").del(&config, &result);
    world.until_told("server", &format!("DHCPRELEASE(eth0) {}", ips(&result)[0]), 1);
    world.expect(&before, "a daemon behind a prefix");
}
