//! How a device comes back: by DEL, by GC, and from where the kernel or somebody else has put it.

use netloom_tests::{at, peers_dir};
use serde_json::{Value, json};

use super::{device, machine, returned_by_the_kernel};
use crate::scene::config;

#[test]
fn del_with_little_and_del_again() {
    let (host, before) = machine();
    let config = device(json!({}));
    crate::scene::del_with_little_and_del_again(&host, &before, &config);
}

/// The namespace is gone, and the kernel gave the device back under the container's name.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn a_device_that_the_kernel_gave_back() {
    let (host, before) = machine();
    let config = device(json!({}));
    for (renamed, told) in [(false, true), (true, false)] {
        let result = at(&host, "c1").add(&config);
        returned_by_the_kernel(&host, "c1");
        if renamed {
            host.sh("", "ip link set eth0 name dev7");
        }
        let status = at(&host, "").call("STATUS", "host-device", config.to_string());
        assert_eq!(status.code, 0, "a container has it: {status:?}");
        let other = at(&host, "c2").call("ADD", "host-device", config.to_string());
        assert!(other.message().contains("has the alias dev0"), "{other:?}");
        at(&host, "c1").del(&config, if told { &result } else { &Value::Null });
        host.container("c1");
        host.expect_traces(&before, "DEL after the kernel gave it back");
    }
    // The same, of an ADD of the reference plugin: what the device was before nobody knows, but for its name.
    host.cni(peers_dir()).at("c1", "eth0").add(&config);
    returned_by_the_kernel(&host, "c1");
    at(&host, "c1").del(&config, &Value::Null);
    let link = host.link("", "dev0").unwrap();
    assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "{link:?}");
}

#[test]
fn gc_gives_back_what_nobody_has() {
    let (host, before) = machine();
    let config = device(json!({}));
    let gc = |valid: Value| {
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = valid;
        let done = at(&host, "").call("GC", "host-device", gc.to_string());
        assert_eq!(done.code, 0, "{done:?}");
    };
    // In a namespace that is still there; back on the host; and twice.
    for kernel in [false, true] {
        let result = at(&host, "c1").add(&config);
        let during = host.traces();
        gc(json!([{"containerID": "c1", "ifname": "eth0"}]));
        host.expect_traces(&during, "GC of a valid attachment");
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
        if kernel {
            returned_by_the_kernel(&host, "c1");
        }
        gc(json!([]));
        gc(json!([]));
        if kernel {
            host.container("c1");
        }
        host.expect_traces(&before, "GC");
    }
    // Another network's are not its business.
    let mut other = config.clone();
    other["name"] = json!("other");
    let result = at(&host, "c1").add(&other);
    gc(json!([]));
    assert!(host.link("c1", "eth0").is_some());
    at(&host, "c1").del(&other, &result);
}

/// Its file is gone, and the kernel gave the device back: GC of the network that names it finds it.
#[test]
fn gc_finds_what_no_file_tells_of() {
    let (host, _) = machine();
    let config = device(json!({}));
    at(&host, "c1").add(&config);
    returned_by_the_kernel(&host, "c1");
    host.run("", &["sh", "-c", "rm /run/netloom/borrowed/*"]);
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(at(&host, "").call("GC", "host-device", gc.to_string()).code, 0);
    let link = host.link("", "dev0").unwrap();
    assert!(link.0.get("ifalias").is_none() && link.0["group"] == "default", "{link:?}");
}

/// Somebody took the name: nothing is lost, and the next DEL succeeds.
#[test]
fn a_name_that_is_taken_when_it_comes_back() {
    let (host, before) = machine();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    host.sh("", "ip link add dev0 type veth peer name other");
    let during = host.traces();
    for _ in 0..2 {
        let mut told = config.clone();
        told["prevResult"] = result.clone();
        let del = at(&host, "c1").call("DEL", "host-device", told.to_string());
        assert!(del.message().contains("the host has another interface dev0 now"), "{del:?}");
        host.expect_traces(&during, "a DEL that failed");
    }
    assert!(host.pings("c1", "10.7.0.254"));
    host.sh("", "ip link del dev0");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "DEL when the name was free");
}

/// What one implementation lends the other one takes back.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn both_implementations_give_back_each_others() {
    let (host, before) = machine();
    let config = device(json!({}));
    let theirs = host.cni(peers_dir()).at("c1", "eth0");
    for told in [true, false] {
        let prev = |result: Value| if told { result } else { Value::Null };
        let result = at(&host, "c1").add(&config);
        theirs.del(&config, &prev(result));
        let link = host.link("", "dev0").unwrap();
        assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "as the reference plugin leaves it: {link:?}");
        // The next DEL, or GC, knows what it was before.
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&before, "our ADD, the reference plugin's DEL, ours");
        let result = theirs.add(&config);
        let checked = at(&host, "c1").check(&config, &result);
        assert_eq!(checked.code, 0, "{checked:?}");
        at(&host, "c1").del(&config, &prev(result));
        let link = host.link("", "dev0").unwrap();
        assert!(link.0.get("ifalias").is_none() && !link.has("UP"), "{link:?}");
        host.sh("", "ip link set dev0 alias my-uplink up");
        host.expect_traces(&before, "the reference plugin's ADD, our DEL");
    }
    // Ours, taken back by the other one, and lent again without a DEL of ours between.
    let result = at(&host, "c1").add(&config);
    theirs.del(&config, &result);
    host.sh("", "ip link set dev0 up");
    let result = at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &result);
    host.sh("", "ip link set dev0 group 77 alias my-uplink");
    host.expect_traces(&before, "lent again");
}

#[test]
fn flags_queue_and_master_come_back() {
    let (host, _) = machine();
    host.sh("", "ip link add br7 type bridge");
    host.sh("", "ip link set dev0 promisc on allmulticast on arp off multicast off master br7");
    let flags = || {
        let links = host.links_but_carriers("");
        links.as_array().unwrap().iter().find(|link| link["ifname"] == "dev0").unwrap()["flags"].clone()
    };
    let (before, had) = (host.traces(), flags());
    let config = config("host-device", json!({"device": "dev0"}));
    let result = at(&host, "c1").add(&config);
    host.sh("c1", "ip link set eth0 promisc off allmulticast off arp on multicast on txqueuelen 7");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "flags, queue and master");
    assert_eq!(flags(), had);
}

/// The namespace has lost its name, and a process lives on in it.
#[test]
fn a_namespace_that_a_process_holds() {
    let (host, before) = machine();
    let config = device(json!({}));
    for gc in [false, true] {
        let result = at(&host, "c1").add(&config);
        let mut process = host.within("c1", || std::process::Command::new("sleep").arg("60").spawn().unwrap());
        host.sh("", "ip netns del c1");
        if gc {
            let mut gc = config.clone();
            gc["cni.dev/valid-attachments"] = json!([]);
            assert_eq!(at(&host, "").call("GC", "host-device", gc.to_string()).code, 0);
        } else {
            at(&host, "c1").set("CNI_NETNS", "").del(&config, &result);
        }
        process.kill().unwrap();
        process.wait().unwrap();
        host.container("c1");
        host.expect_traces(&before, "a process in a namespace without a name");
    }
}

/// Hardware does not vanish: until it is seen, DEL fails, and what is known of it stays. There is none here: the file says so.
#[test]
fn fixture_of_hardware_that_is_nowhere() {
    let (host, before) = machine();
    let config = device(json!({}));
    let result = at(&host, "c1").add(&config);
    let file = "/run/netloom/borrowed/net@c1@eth0.json";
    let kept = std::fs::read_to_string(host.path(file)).unwrap();
    let mut loan: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(loan.as_object_mut().unwrap().remove("kind"), Some(json!("veth")));
    host.write(file, &loan.to_string());
    let during = host.traces();
    let del = at(&host, "c1").call("DEL", "host-device", config.to_string());
    assert!(del.error()["code"] == 11 && del.message().contains("neither in /run/netns/c1 nor on the host"), "{del:?}");
    host.expect_traces(&during, "a DEL that failed");
    // Pulled out of the machine: its bus has it no more.
    loan["onBus"] = json!("pci");
    loan["busDevice"] = json!("0000:ff:1f.7");
    host.write(file, &loan.to_string());
    at(&host, "c1").del(&config, &Value::Null);
    assert!(host.list("/run/netloom/borrowed").is_empty());
    // What is read is its own file alone, as it was written.
    host.write(file, &kept);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "DEL of what is there");
}

/// The reference plugin keeps a device's name in its alias, which the container can change: the device came back as whatever the container
/// had written, as the bridge of the default network, say, before that was made.
#[test]
fn an_alias_gives_a_device_no_name_of_others() {
    let (host, _) = machine();
    let by_mac = config("host-device", json!({"hwaddr": "02:00:00:00:00:07"}));
    host.sh("", "ip link add taken0 type veth peer name taken1");
    host.sh("", "ip link property add dev taken0 altname taken-alt");
    // What a container has lent, by a record, is away only.
    host.sh("", "ip link add away0 type veth peer name away1");
    let away = config("host-device", json!({"device": "away0"}));
    let lent = at(&host, "c2").add(&away);
    let lend = |alias: &str| {
        host.sh("", "ip link set dev0 netns c1");
        host.run("c1", &["sh", "-ec", &format!("ip link set dev0 down && ip link set dev0 name eth0 && ip link set eth0 alias '{alias}'")]);
    };
    for alias in ["cni0", "br-int", "docker0", "veth0123456789a", "taken0", "taken-alt", "away0", "no name", ".."] {
        lend(alias);
        let during = host.traces();
        at(&host, "c1").del(&by_mac, &Value::Null);
        // A link that the container could have made is left to it.
        host.expect_traces(&during, alias);
        host.sh("c1", &format!("ip link set eth0 netns {}", host.pid()));
        // The same after the kernel has given it back.
        at(&host, "c1").set("CNI_NETNS", "").del(&by_mac, &Value::Null);
        let link = host.link("", "eth0").unwrap_or_else(|| panic!("{alias}: it keeps the name that it has"));
        assert_eq!(link.mac(), "02:00:00:00:00:07", "{alias}");
        host.sh("", "ip link set eth0 name dev0");
    }
    // A name that it can have had.
    lend("enp3s0");
    at(&host, "c1").del(&by_mac, &Value::Null);
    assert_eq!(host.link("", "enp3s0").unwrap().mac(), "02:00:00:00:00:07");
    at(&host, "c2").del(&away, &lent);
}

/// A container gives the device that it has lent the names of others' links: the host's, another lent device's and those that programs make later.
#[test]
fn an_altname_of_the_containers_does_not_come_along() {
    let (host, before) = machine();
    host.sh("", "ip link add away0 type veth peer name away1");
    host.sh("", "ip link add taken0 type veth peer name taken1");
    let away = config("host-device", json!({"device": "away0"}));
    let lent = at(&host, "c2").add(&away);
    host.sh("", "ip link property add dev dev0 altname real0");
    host.sh("", "ip link property add dev dev0 altname real1");
    let names = |host: &netloom_tests::Host| host.link("", "dev0").unwrap().0["altnames"].clone();
    let config = device(json!({}));
    let theirs = ["away0", "kube-ipvs0", "flannel.1", "cni0", "dev0"];
    let give = |link: &str, names: &[&str]| {
        names.iter().for_each(|name| drop(host.sh("c1", &format!("ip link property add dev {link} altname {name}"))))
    };
    for returned in [false, true] {
        let result = at(&host, "c1").add(&config);
        host.sh("c1", "ip link property del dev eth0 altname real0");
        give("eth0", &theirs);
        if returned {
            returned_by_the_kernel(&host, "c1");
            host.container("c1");
        } else {
            give("eth0", &["taken0"]);
        }
        at(&host, "c1").del(&config, &result);
        assert_eq!(names(&host), json!(["real1", "real0"]), "by the kernel: {returned}");
        host.sh("", "ip link add kube-ipvs0 type veth peer name later");
        host.sh("", "ip link del kube-ipvs0");
    }
    at(&host, "c2").del(&away, &lent);
    assert!(host.link("", "away0").is_some());
    host.sh("", "ip link del away0");
    host.sh("", "ip link del taken0");
    for name in ["real0", "real1"] {
        host.sh("", &format!("ip link property del dev dev0 altname {name}"));
    }
    host.expect_traces(&before, "altnames");
}
