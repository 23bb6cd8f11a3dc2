//! The daemon, or the plugin, is killed between two steps: the next one goes on, and nothing is left.

use std::os::unix::net::UnixStream;
use std::process::Stdio;

use netloom_tests::{differences, ips, plugin_dir};
use serde_json::{Value, json};

use crate::dhcp::server::{World, bridge};

/// Where the daemon comes by in an ADD.
const IN_ADD: [&str; 5] = ["dhcp-granted", "file-created", "file-written", "file-replaced", "dhcp-kept"];
/// In a DEL of what an ADD has made.
const IN_DEL: [&str; 3] = ["dhcp-released", "file-unremoved", "file-removed"];

impl World {
    /// Starts the daemon, which is killed when it comes by a point.
    fn start_to_die(&mut self, point: &str) {
        self.host.run("", &["rm", "-f", "/run/cni/dhcp.sock"]);
        let mut command = self.host.command("", plugin_dir().join("dhcp"));
        command.arg("daemon").env("NETLOOM_CRASH_AT", point).stdout(Stdio::null());
        self.spawn("dying", command);
        self.host.until("the daemon listens", || UnixStream::connect(self.host.path("/run/cni/dhcp.sock")).is_ok());
    }

    /// The daemon has died where it was to die, and another one runs.
    fn dead_and_followed(&mut self, point: &str) {
        self.host
            .until(&format!("{point}: the daemon has died"), || self.host.run("", &["ss", "-Hlx"]).matches("/run/cni/dhcp").count() == 0);
        self.stop("dying");
        self.host.run("", &["rm", "-f", "/run/cni/dhcp.sock"]);
        self.start();
    }
}

#[test]
fn killed_between_two_steps() {
    let mut world = World::new();
    world.terminate();
    world.host.container("c1");
    world.start();
    let config = bridge(json!({}));
    let first = world.cni("c1").add(&config);
    world.cni("c1").del(&config, &first);
    let before = world.host.traces();
    world.terminate();
    for point in IN_ADD {
        world.start_to_die(point);
        let failed = world.cni("c1").call("ADD", "bridge", config.to_string());
        assert_eq!(failed.error()["code"], 11, "{point}: {failed:?}");
        assert!(world.host.link("c1", "eth0").is_none(), "{point}: a failed ADD leaves nothing");
        world.dead_and_followed(point);
        // The runtime asks for its DEL, and tries again.
        world.cni("c1").del(&config, &Value::Null);
        assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"], "{point}");
        let result = world.cni("c1").add(&config);
        world.terminate();
        world.cni("c1").del(&config, &result);
        assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"], "{point}");
    }
    for point in IN_DEL {
        world.start_to_die(point);
        let result = world.cni("c1").add(&config);
        let address = &ips(&result)[0];
        // Without the daemon the plugin does it.
        world.cni("c1").del(&config, &result);
        world.until_told("server", &format!("DHCPRELEASE(eth0) {address}"), 1);
        world.dead_and_followed(point);
        assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock"], "{point}");
        world.terminate();
    }
    world.start();
    world.host.until("nothing is left", || {
        let left = differences(&before, &world.host.traces());
        // What the server notes of a lease is its own.
        left.iter().all(|line| line.contains("server.leases"))
    });
}

/// The plugin dies with its lease in hand: its runtime's DEL releases it.
#[test]
fn the_plugin_is_killed() {
    let world = World::new();
    let before = world.used();
    world.host.container("c1");
    let config = bridge(json!({}));
    let cni = world.host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", "dhcp-added");
    let died = cni.call("ADD", "bridge", config.to_string());
    assert_eq!((died.code, died.stdout.as_str()), (-1, ""), "{died:?}");
    assert_eq!(world.host.list("/run/cni/dhcp.leases"), [".lock", "net@c1@eth0"]);
    world.cni("c1").del(&config, &Value::Null);
    world.until_told("dhcp", "c1/net/eth0: released", 1);
    world.host.run("", &["ip", "netns", "del", "c1"]);
    world.expect(&before, "a plugin that was killed");
}

/// Between the old address and the new one.
#[test]
fn killed_when_a_lease_has_ended() {
    let mut world = World::empty();
    let pool = "10.9.0.10 - 10.9.0.50";
    world.kea("server", pool, [2, 4, 6]);
    world.start_to_die("dhcp-stripped");
    let result = world.attach("c1");
    world.stop("server");
    let gone = || world.host.run("", &["ss", "-Hlx"]).matches("/run/cni/dhcp").count() == 0;
    netloom_tests::until("the lease has expired", gone);
    assert_eq!(world.host.addresses("c1", "eth0"), Vec::<String>::new());
    world.kea("server", pool, [20, 40, 60]);
    world.dead_and_followed("dhcp-stripped");
    world.until_told("dhcp", "lease acquired again", 1);
    assert_eq!(world.host.addresses("c1", "eth0"), [format!("{}/24", ips(&result)[0])]);
}
