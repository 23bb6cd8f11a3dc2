//! A real firewalld, on a system bus of the machine's own.

use netloom_tests::Running;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use crate::firewall::scene::{OUTSIDE, Scene, firewall, network};

/// A machine with a bus, and firewalld on it: the wire is in the zone `dmz`, and what is in no zone is not forwarded there.
struct Firewalld {
    scene: Scene,
    firewalld: Option<Running>,
    _bus: Running,
}

impl Firewalld {
    fn new() -> Self {
        let scene = Scene::open();
        scene.host.write("/run/firewalld.conf", "DefaultZone=public\nFirewallBackend=nftables\nCleanupOnExit=yes\n");
        // firewalld keeps what it makes of its own files below /etc: a directory of this machine's own.
        let mut etc = scene.host.command("", "mount");
        assert!(etc.args(["-t", "tmpfs", "tests", "/etc/firewalld"]).status().unwrap().success());
        scene.host.run("", &["cp", "/run/firewalld.conf", "/etc/firewalld/firewalld.conf"]);
        let bus = Running::system_bus(&scene.host);
        let mut machine = Firewalld { scene, firewalld: None, _bus: bus };
        machine.start();
        machine
    }

    fn start(&mut self) {
        let mut firewalld = self.scene.host.command("", "firewalld");
        self.firewalld = Some(Running::start(firewalld.args(["--nofork", "--nopid"])));
        self.scene.host.until("firewalld runs", || self.cmd_ok(&["--state"]));
        self.cmd(&["--zone=dmz", "--add-interface=wire"]);
    }

    fn cmd_ok(&self, args: &[&str]) -> bool {
        let argv: Vec<&str> = ["firewall-cmd"].into_iter().chain(args.iter().copied()).collect();
        self.scene.host.run_ok("", &argv)
    }

    fn cmd(&self, args: &[&str]) -> String {
        let argv: Vec<&str> = ["firewall-cmd"].into_iter().chain(args.iter().copied()).collect();
        self.scene.host.run("", &argv)
    }

    fn sources(&self, zone: &str) -> Vec<String> {
        let zone = format!("--zone={zone}");
        let mut sources: Vec<String> = self.cmd(&[&zone, "--list-sources"]).split_whitespace().map(str::to_owned).collect();
        sources.sort();
        sources
    }
}

/// `DBUS_SYSTEM_BUS_ADDRESS` says where the bus is.
#[test]
fn a_bus_that_is_elsewhere() {
    let machine = Firewalld::new();
    let scene = &machine.scene;
    let bridge = network("br0");
    let result = scene.cni("c1").add(&bridge);
    let mut config = firewall("br0", &json!({"backend": "firewalld"}));
    config["prevResult"] = result.clone();
    let (usual, other) = ("/run/dbus/system_bus_socket", "/run/dbus/the=other");
    let call =
        |address: &str, verb: &str| scene.cni("c1").set("DBUS_SYSTEM_BUS_ADDRESS", address).call(verb, "firewall", config.to_string());
    let sources = || {
        scene.host.run("", &["mv", other, usual]);
        let sources = machine.sources("trusted").len();
        scene.host.run("", &["mv", usual, other]);
        sources
    };
    scene.host.run("", &["mv", usual, other]);
    let said = call("unix:path=/run/dbus/none", "ADD").message();
    assert!(said.contains("there is no system bus at /run/dbus/none"), "{said}");
    let said = call("tcp:host=127.0.0.1,port=1", "ADD").message();
    assert!(said.contains("only addresses with unix:path=SOCKET are supported"), "{said}");
    let address = "tcp:host=127.0.0.1,port=1;unix:guid=00,path=/run/dbus/the%3dother";
    call(address, "ADD").result();
    call(address, "CHECK").silent();
    assert_eq!(sources(), 2);
    call(address, "DEL").silent();
    assert_eq!(sources(), 0);
    scene.cni("c1").del(&bridge, &result);
}

#[test]
fn addresses_become_sources_of_a_zone() {
    let machine = Firewalld::new();
    let scene = &machine.scene;
    // Nothing asks for firewalld by name: it runs.
    let attached = scene.add("c1", &json!({}));
    let [v4, v6] = &attached.addresses;
    assert_eq!(machine.sources("trusted"), [format!("{v4}/32"), format!("{v6}/128")]);
    for address in OUTSIDE {
        assert!(scene.connects("c1", "outside", address));
    }
    scene.check(&attached).silent();
    // A DEL of another container that had these addresses before.
    scene.cni("c2").del(&attached.config, &attached.result);
    scene.check(&attached).silent();
    machine.cmd(&["--zone=trusted", &format!("--remove-source={v6}/128")]);
    let said = scene.check(&attached).message();
    assert!(said.contains(&format!("failed to find the address {v6}/128 in trusted zone")), "{said}");
    // A second ADD finds one of them set already.
    scene.call("c1", "ADD", &attached.config, &attached.result).result();
    scene.check(&attached).silent();
    scene.del(&attached);
    scene.del(&attached);
    assert!(machine.sources("trusted").is_empty());

    // Another zone, by hand; without the plugin nothing passes.
    let alone = scene.cni("c2").add(&crate::firewall::scene::network("br0"));
    assert!(scene.is_kept_from("c2", "outside", OUTSIDE[0]));
    scene.cni("c2").del(&crate::firewall::scene::network("br0"), &alone);
    let attached = scene.add("c1", &json!({"backend": "firewalld", "firewalldZone": "internal"}));
    assert_eq!(machine.sources("internal").len(), 2);
    scene.check(&attached).silent();
    // Told nothing: the notes know the zone.
    let bare = json!({"cniVersion": "1.0.0", "name": "net-br0", "type": "firewall"});
    scene.cni("c1").unset("CNI_NETNS").del(&bare, &Value::Null);
    assert!(machine.sources("internal").is_empty());
    let left = scene.host.sh("", "nft list table inet netloom");
    assert!(!left.contains("net-br0/c1"), "{left}");
    scene.del(&attached);
    assert!(scene.try_add("br0", "c1", &json!({"backend": "firewalld", "firewalldZone": "nowhere"})).0.message().contains("INVALID_ZONE"));
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_the_reference_plugin_made_goes() {
    let machine = Firewalld::new();
    let scene = &machine.scene;
    let (bridge, config) = (crate::firewall::scene::network("br0"), crate::firewall::scene::firewall("br0", &json!({})));
    let result = scene.cni("c1").add(&bridge);
    let mut given = config.clone();
    given["prevResult"] = result.clone();
    scene.host.cni(netloom_tests::peers_dir()).at("c1", "eth0").call("ADD", "firewall", given.to_string()).result();
    assert_eq!(machine.sources("trusted").len(), 2);
    scene.cni("c1").del(&config, &result);
    assert!(machine.sources("trusted").is_empty());
    scene.cni("c1").del(&bridge, &result);
}

#[test]
fn a_firewalld_that_ends() {
    let mut machine = Firewalld::new();
    let attached = machine.scene.add("c1", &json!({}));
    let status = json!({"cniVersion": "1.1.0", "name": "net-br0", "type": "firewall", "backend": "firewalld"});
    let asked = |machine: &Firewalld| machine.scene.cni("c1").call("STATUS", "firewall", status.to_string());
    asked(&machine).silent();
    // Sources that were told at run time are forgotten by a reload.
    machine.cmd(&["--reload"]);
    let said = machine.scene.check(&attached).message();
    assert!(said.contains("in trusted zone"), "{said}");
    drop(machine.firewalld.take());
    assert_eq!(asked(&machine).error()["code"], 50);
    assert!(machine.scene.check(&attached).message().contains("firewalld is not available"));
    // What it knew has ended with it.
    machine.scene.del(&attached);
    // Without it, nftables: also for who has no preference.
    let attached = machine.scene.add("c1", &json!({}));
    machine.scene.check(&attached).silent();
    machine.start();
    // When it starts it flushes iptables, our gate too.
    assert!(machine.scene.check(&attached).message().contains("NETLOOM-FORWARD"));
    machine.scene.del(&attached);
    assert!(machine.sources("trusted").is_empty());
}

/// Killed between one address and the next: what was told is noted before, and goes with the next DEL.
/// In its panic mode firewalld changes nothing: a source that it keeps is not forgotten.
#[test]
fn what_firewalld_does_not_give_back_is_asked_for_again() {
    let machine = Firewalld::new();
    let attached = machine.scene.add("c1", &json!({}));
    let mut given = attached.config.clone();
    given["prevResult"] = attached.result.clone();
    let del = || machine.scene.cni("c1").call("DEL", "firewall", given.to_string());
    machine.cmd(&["--panic-on"]);
    assert!(del().message().contains("PANIC_MODE"), "{}", del().message());
    machine.cmd(&["--panic-off"]);
    assert_eq!(machine.sources("trusted").len(), 2);
    del().silent();
    assert!(machine.sources("trusted").is_empty());
    machine.scene.del(&attached);
}

/// As the machine's bus does who is root in a user namespace only.
#[test]
fn a_bus_that_lets_nobody_in() {
    let scene = Scene::open();
    scene.host.write("/run/dbus/bus.conf", "");
    let bus = UnixListener::bind(scene.host.path("/run/dbus/system_bus_socket")).unwrap();
    std::thread::spawn(move || {
        for caller in bus.incoming() {
            let mut caller = caller.unwrap();
            let _ = (caller.read(&mut [0; 64]), caller.write_all(b"REJECTED EXTERNAL\r\n"));
        }
    });
    let attached = scene.add("c1", &json!({}));
    scene.check(&attached).silent();
    scene.del(&attached);
    let (outcome, attached) = scene.try_add("br0", "c1", &json!({"backend": "firewalld"}));
    assert_eq!(outcome.error()["code"], 50);
    assert!(outcome.message().contains("firewalld is not available: the system bus refused the connection"), "{}", outcome.message());
    scene.del(&attached);
}

#[test]
fn a_call_that_is_killed() {
    let machine = Firewalld::new();
    let scene = &machine.scene;
    let (bridge, config) = (crate::firewall::scene::network("br0"), crate::firewall::scene::firewall("br0", &json!({})));
    let dies = |verb: &str, at: &str, result: &Value| {
        let mut given = config.clone();
        given["prevResult"] = result.clone();
        let cni = scene.host.cni(netloom_tests::plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", at);
        assert_eq!(cni.call(verb, "firewall", given.to_string()).code, -1, "{verb} was to be killed at {at}");
    };
    let bare = json!({"cniVersion": "1.0.0", "name": "net-br0", "type": "firewall"});
    for at in ["firewall-added", "firewall-source-added:1", "firewall-source-added:2", "firewall-told"] {
        let result = scene.cni("c1").add(&bridge);
        dies("ADD", at, &result);
        scene.cni("c1").del(&bare, &Value::Null);
        assert!(machine.sources("trusted").is_empty(), "{at}");
        scene.cni("c1").del(&bridge, &result);
    }
    for at in ["teardown-begun", "firewall-source-removed:1", "firewall-source-removed:2"] {
        let attached = scene.add("c1", &json!({}));
        dies("DEL", at, &attached.result);
        scene.cni("c1").del(&bare, &Value::Null);
        assert!(machine.sources("trusted").is_empty(), "{at}");
        scene.del(&attached);
    }
    let left = scene.host.sh("", "nft list table inet netloom");
    assert!(!left.contains("net-br0/"), "{left}");
}
