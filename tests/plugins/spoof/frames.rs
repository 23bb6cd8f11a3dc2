//! What passes and what does not.

use netloom_tests::Host;
use serde_json::json;

use crate::spoof::Scene;

const FORGED: &str = "02:00:00:00:be:ef";

/// Sends one frame of a protocol nobody speaks, from a hardware address to another.
const SEND: &str = r#"
import socket, sys
mac = lambda text: bytes.fromhex(text.replace(":", ""))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
s.send(mac(sys.argv[2]) + mac(sys.argv[1]) + b"\x88\xb5" + b"x" * 46)
"#;

fn send(host: &Host, container: &str, from: &str, to: &str) {
    host.run(container, &["python3", "-c", SEND, from, to]);
}

/// Whether the bridge has learnt that a hardware address is behind a port.
fn knows(host: &Host, port: &str, mac: &str) -> bool {
    let entries = host.json("", "bridge -j fdb show br br0");
    entries.as_array().unwrap().iter().any(|e| e["ifname"] == port && e["mac"] == mac)
}

#[test]
fn a_forged_sender_is_dropped_and_counted_and_its_own_passes() {
    let scene = Scene::new();
    let (one, two) = (scene.attach("c1", json!({})), scene.attach("c2", json!({})));
    let (mac, own) = (one.mac().to_owned(), [two.address(true), two.address(false)]);
    let everybody = [own[0].as_str(), &own[1], "10.1.0.1", "fd00:1::1"];
    for address in everybody {
        assert!(scene.host.pings("c1", address), "{address}");
    }
    assert!(scene.host.tcp("c1", "c2", &own[0]) && scene.host.udp("c2", "c1", &one.address(false)));
    assert_eq!((scene.dropped(&one), scene.dropped(&two)), (0, 0));

    // Nothing passes, in either family, to another container or to the host.
    scene.host.sh("c1", &format!("ip link set eth0 address {FORGED}"));
    for address in everybody {
        let before = scene.dropped(&one);
        assert!(scene.host.silent("c1", address), "{address}");
        assert!(scene.dropped(&one) > before, "{address}");
    }
    assert!(!knows(&scene.host, one.port(), FORGED), "the bridge learns nothing from what is dropped");
    // Not even as the other container.
    scene.host.sh("c1", &format!("ip link set eth0 address {}", two.mac()));
    assert!(scene.host.silent("c1", "10.1.0.1"));
    assert_eq!(scene.dropped(&two), 0);
    assert!(scene.host.pings("c2", "10.1.0.1") && scene.host.pings("c2", "fd00:1::1"));

    scene.host.sh("c1", &format!("ip link set eth0 address {mac}"));
    for address in everybody {
        assert!(scene.host.pings("c1", address), "{address}");
    }
    [&one, &two].iter().for_each(|a| scene.detach(a));
    scene.expect_nothing();
}

/// One frame is one more in the counter. Those to the bridge's own group addresses no rule sees: it must not believe them.
#[test]
fn every_frame_counts_and_the_bridge_learns_from_none() {
    let scene = Scene::new();
    let one = scene.attach("c1", json!({}));
    for n in 1..4 {
        send(&scene.host, "c1", FORGED, "ff:ff:ff:ff:ff:ff");
        scene.host.until("one more", || scene.dropped(&one) == n);
    }
    let groups = ["01:80:c2:00:00:00", "01:80:c2:00:00:03", "01:80:c2:00:00:0e"];
    groups.iter().for_each(|group| send(&scene.host, "c1", FORGED, group));
    assert!(!knows(&scene.host, one.port(), FORGED));
    let dropped = scene.dropped(&one);
    send(&scene.host, "c1", one.mac(), "ff:ff:ff:ff:ff:ff");
    scene.host.until("its own is another matter", || knows(&scene.host, one.port(), one.mac()));
    assert_eq!(scene.dropped(&one), dropped);
    scene.host.sh("", "ip link set br0 type bridge no_linklocal_learn 0");
    let said = scene.cni("c1").check(&one.config, &one.result).message();
    assert!(said.contains("br0") && said.contains("no_linklocal_learn"), "{said}");
    send(&scene.host, "c1", FORGED, groups[2]);
    scene.host.until("such a frame does arrive", || knows(&scene.host, one.port(), FORGED));
    scene.detach(&one);
    // One that somebody else made.
    scene.host.sh("", "ip link del br0");
    scene.host.sh("", "ip link add br0 type bridge");
    let again = scene.attach("c1", json!({"mac": one.mac()}));
    groups.iter().for_each(|group| send(&scene.host, "c1", FORGED, group));
    assert!(!knows(&scene.host, again.port(), FORGED));
    scene.detach(&again);
}

/// Of two containers on one bridge one is guarded, and one interface of a container of two.
#[test]
fn only_who_is_guarded_is() {
    let scene = Scene::new();
    let (guarded, open) = (scene.attach("c1", json!({})), scene.attach("c2", json!({"macspoofchk": false})));
    let other = scene.cni("c1").at("c1", "net1");
    let config =
        crate::spoof::bridge(json!({"macspoofchk": false, "bridge": "br1", "name": "other", "isDefaultGateway": false, "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}}));
    let second = other.add(&config);
    scene.host.sh("c2", &format!("ip link set eth0 address {FORGED}"));
    scene.host.sh("c1", "ip link set net1 address 02:00:00:00:be:ee");
    assert!(scene.host.pings("c2", "10.1.0.1") && scene.host.pings("c1", "10.2.0.1") && scene.host.pings("c1", "10.1.0.1"));
    assert_eq!(scene.dropped(&guarded), 0);
    other.del(&config, &second);
    [&guarded, &open].iter().for_each(|a| scene.detach(a));
    assert_eq!((scene.set("macs"), scene.set("guarded")), (vec![], vec![]));
}

/// Whatever the container does while it is attached and detached: its end may be up before it has a guard, and after, and nothing
/// may pass then.
#[test]
fn a_container_that_sends_while_it_comes_and_goes() {
    let scene = Scene::new();
    let marker = "02:00:00:00:00:01";
    let mut monitor = scene.host.command("", "sh").args(["-c", "exec bridge monitor fdb >/run/learnt"]).spawn().unwrap();
    let learnt = || std::fs::read_to_string(scene.host.path("/run/learnt")).unwrap_or_default();
    scene.host.until("the monitor listens", || {
        for verb in ["add", "del"] {
            scene.host.run_ok("", &["bridge", "fdb", verb, marker, "dev", "br0", "self", "local"]);
        }
        learnt().contains(marker)
    });
    let forger = format!(
        "while :; do ip link set eth0 address {FORGED}; ip link set eth0 up; ip addr add 10.1.0.99/24 dev eth0; \
         ping -c1 -W1 -n 10.1.0.1; done >/dev/null 2>&1"
    );
    for _ in 0..5 {
        let mut child = scene.host.command("c1", "sh").args(["-c", &forger]).spawn().unwrap();
        // ADD may fail where what it has made is changed in the midst of it: what counts is what the bridge has heard.
        let config = crate::spoof::bridge(json!({}));
        scene.cni("c1").call("ADD", "bridge", config.to_string());
        scene.cni("c1").del(&config, &serde_json::Value::Null);
        let _ = (child.kill(), child.wait());
        scene.cni("c1").del(&config, &serde_json::Value::Null);
    }
    let _ = (monitor.kill(), monitor.wait());
    assert!(!learnt().contains(FORGED), "{}", learnt());
    std::fs::remove_file(scene.host.path("/run/learnt")).unwrap();
    scene.expect_nothing();
}
