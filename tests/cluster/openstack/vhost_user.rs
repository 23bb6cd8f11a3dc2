//! `ovs-vhost-user` with the real Open vSwitch and its DPDK, on ordinary memory: ports, sockets and who opens them. What a virtual machine or a
//! DPDK application would send over a socket is left out.

use std::os::unix::net::{UnixListener, UnixStream};

use netloom_tests::{Host, Switch, at, plugin_dir, until, until_seen};
use serde_json::{Value, json};

const ID: &str = "0c1d2e3f-0000-4000-8000-00000000abcd";

fn config(mode: &str, dir: &str, keys: &Value) -> Value {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.2/24", "gateway": "10.7.0.1"}]});
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "ovs-vhost-user", "bridge": "br0", "mode": mode, "socketDir": dir,
        "mac": "02:00:00:00:00:07", "ipam": ipam});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

#[test]
fn ports_of_both_modes() {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    let switch = Switch::with_dpdk(&host, &["br0"]);
    host.sh("", "mkdir -p /run/vhost");
    let before = host.traces();

    // The container's program listens, before or after the ADD, and the switch connects.
    let server = config("server", "/run/vhost/c1", &json!({"vlan": 7, "mtu": 1400}));
    let added = at(&host, "c1").add(&server);
    let interface = &added["interfaces"][0];
    let path = interface["socketPath"].as_str().unwrap().to_owned();
    let name = path.strip_prefix("/run/vhost/c1/").unwrap().to_owned();
    assert!(name.len() == 14 && name.starts_with("vhu"), "{path}");
    assert_eq!(
        (&interface["name"], &interface["mac"], &interface["sandbox"]),
        (&json!("eth0"), &json!("02:00:00:00:00:07"), &json!("/run/netns/c1"))
    );
    assert_eq!((&added["ips"][0]["address"], &added["ips"][0]["interface"]), (&json!("10.7.0.2/24"), &json!(0)));
    assert!(host.link("c1", "eth0").is_none(), "there is no link");
    let row = switch.vsctl(&format!("--bare --columns=type,options,mtu_request,error list interface {name}"));
    let server_path = format!("vhost-server-path={path}");
    assert_eq!(row.lines().collect::<Vec<_>>(), ["dpdkvhostuserclient", server_path.as_str(), "1400", ""], "no error");
    assert_eq!(switch.vsctl(&format!("get port {name} tag external_ids:netloom-container")).trim(), "7\nc1");
    assert_eq!(at(&host, "c1").check(&server, &added).code, 0);
    let listener = UnixListener::bind(host.path(&path)).unwrap();
    listener.set_nonblocking(true).unwrap();
    until("ovs-vswitchd connects", || listener.accept().is_ok());

    // The switch listens: the directory is its own.
    let dir = switch.dir().display().to_string();
    let client = config("client", &dir, &json!({"iface_id": ID, "isolate": true}));
    let second = at(&host, "c2").add(&client);
    let path_of_second = format!("{dir}/vhu0c1d2e3f-00");
    assert_eq!(second["interfaces"][0]["socketPath"], json!(path_of_second));
    until("ovs-vswitchd listens", || UnixStream::connect(&path_of_second).is_ok());
    assert_eq!(switch.vsctl("get port vhu0c1d2e3f-00 tag").trim(), "4095");
    // One port is plugged once.
    let again = at(&host, "c1").call("ADD", "ovs-vhost-user", client.to_string());
    assert!(again.message().contains("has a port vhu0c1d2e3f-00 already, which c2 has"), "{again:?}");
    at(&host, "c1").del(&client, &Value::Null);
    assert_eq!(at(&host, "c2").check(&client, &second).code, 0);

    at(&host, "c2").del(&client, &second);
    until_seen("the switch's own socket goes with its port", || std::fs::exists(&path_of_second).unwrap(), |is_there| !is_there);
    // The other one belongs to who listens.
    at(&host, "c1").del(&server, &added);
    assert!(host.path(&path).exists());
    assert_eq!(switch.ports("br0"), [""; 0]);
    std::fs::remove_dir_all(host.path("/run/vhost/c1")).unwrap();
    host.expect_traces(&before, "ports of both modes");
}

/// Killed at each point of an ADD and of a DEL: the next DEL leaves nothing, and the next ADD works.
#[test]
fn killed_at_every_point() {
    let host = Host::new();
    host.container("c1");
    let switch = Switch::with_dpdk(&host, &["br0"]);
    host.sh("", "mkdir -p /run/vhost");
    let before = host.traces();
    let config = config("server", "/run/vhost", &json!({}));
    for (verb, point) in [
        ("ADD", "vhost-way-made"),
        ("ADD", "ovs-port-added"),
        ("ADD", "ovs-port-applied"),
        ("ADD", "vhost-port-made"),
        ("DEL", "ovs-ports-found"),
        ("DEL", "ovs-ports-gone"),
    ] {
        let mut whole = config.clone();
        if verb == "DEL" {
            whole["prevResult"] = at(&host, "c1").add(&config);
        }
        let died = at(&host, "c1").set("NETLOOM_CRASH_AT", &format!("{point}:1")).call(verb, "ovs-vhost-user", whole.to_string());
        assert_ne!(died.code, 0, "{verb} does not come by {point}: {died:?}");
        at(&host, "c1").del(&config, &Value::Null);
        assert_eq!(switch.ports("br0"), [""; 0], "{verb} killed at {point}");
        host.expect_traces(&before, &format!("{verb} killed at {point}"));
    }
    at(&host, "c1").add(&config);
}

/// GC takes a port whose container the runtime does not name any more.
#[test]
fn gc_of_a_port_without_a_link() {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    let switch = Switch::with_dpdk(&host, &["br0"]);
    let config = config("server", "/run/vhost", &json!({"ipam": null}));
    let kept = at(&host, "c1").add(&config)["interfaces"][0]["socketPath"].as_str().unwrap().replace("/run/vhost/", "");
    at(&host, "c2").add(&config);
    let mut valid = config.clone();
    valid["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let gc = host.cni(plugin_dir()).call("GC", "ovs-vhost-user", valid.to_string());
    assert_eq!(gc.code, 0, "{gc:?}");
    assert_eq!(switch.ports("br0"), [kept]);
}
