//! Network cards that programs drive, as far as that can be shown without one. With cards and drivers: tests/guest/kernel/cards.rs.

use netloom_tests::{Host, at, plugin_dir};
use serde_json::{Value, json};

use crate::scene::config;

/// A machine whose `/sys` has a card `0000:03:00.0`, whose interface is `dev0`, a function of it, `0000:03:00.1`, a card with a driver for programs,
/// `0000:03:00.2`, and a disk, `0000:03:00.3`.
fn machine() -> Host {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|container| host.container(container));
    host.sh("", "ip link add dev0 type veth peer name far0");
    let index = host.link("", "dev0").unwrap().0["ifindex"].to_string();
    let mac = host.link("", "dev0").unwrap().mac().to_owned();
    host.sh("", "mount -t tmpfs fixture /sys/bus");
    let script = format!(
        "cd /sys/bus/pci/devices && for n in 0 1 2 3; do mkdir -p 0000:03:00.$n; echo 0x020000 >0000:03:00.$n/class; \
         echo '(null)' >0000:03:00.$n/driver_override; done && echo 0x010802 >0000:03:00.3/class && \
         ln -s ../../drivers/igb 0000:03:00.0/driver && ln -s ../../drivers/vfio-pci 0000:03:00.1/driver && \
         ln -s ../../drivers/vfio-pci 0000:03:00.2/driver && \
         ln -s ../0000:03:00.0 0000:03:00.1/physfn && ln -s ../0000:03:00.1 0000:03:00.0/virtfn0 && \
         mkdir -p 0000:03:00.0/net/dev0 && echo {index} >0000:03:00.0/net/dev0/ifindex && echo {mac} >0000:03:00.0/net/dev0/address"
    );
    host.sh("", "mkdir -p /sys/bus/pci/devices /sys/bus/pci/drivers/igb /sys/bus/pci/drivers/vfio-pci");
    host.run("", &["sh", "-c", &script]);
    host
}

fn of_program(id: &str) -> Value {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.8.0.2/24"}]});
    config("dpdk-device", json!({"pciBusID": id, "pciDir": "/run/pci", "ipam": ipam}))
}

/// A card with a driver for programs keeps it. It has one container at a time, which finds its address in a file.
#[test]
fn fixture_of_sysfs_files_a_card_that_a_program_drives() {
    let host = machine();
    let config = of_program("0000:03:00.2");
    let result = at(&host, "c1").add(&config);
    at(&host, "c1").del(&config, &result);
    let before = host.traces();
    let result = at(&host, "c1").add(&config);
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "sandbox": "/run/netns/c1", "pciID": "0000:03:00.2"}]));
    let file = host.path("/run/pci/c1-eth0");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "0000:03:00.2");
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    let other = at(&host, "c2").call("ADD", "dpdk-device", config.to_string());
    assert!(other.message().contains("PCI device 0000:03:00.2 is that of container c1 (network net)"), "{other:?}");
    std::fs::write(&file, "0000:03:00.0").unwrap();
    let check = at(&host, "c1").check(&config, &result);
    assert!(check.message().contains("/run/pci/c1-eth0 does not have its PCI address 0000:03:00.2"), "{check:?}");
    at(&host, "c1").del(&config, &result);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "DEL");
    // GC knows it by its record, and a DEL after a kill.
    at(&host, "c1").add(&config);
    let mut all = config.clone();
    all["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert_eq!((at(&host, "c1").call("GC", "dpdk-device", all.to_string()).code, file.exists()), (0, true), "it is valid");
    all["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(at(&host, "c1").call("GC", "dpdk-device", all.to_string()).code, 0);
    host.expect_traces(&before, "GC");
    for point in ["card-noted", "dpdk-bound", "dpdk-told"] {
        let dying = host.cni(plugin_dir()).at("c1", "eth0").set("NETLOOM_CRASH_AT", &format!("{point}:1"));
        let outcome = dying.call("ADD", "dpdk-device", config.to_string());
        assert_eq!(outcome.code, -1, "ADD was to be killed at {point}: {outcome:?}");
        at(&host, "c1").del(&config, &Value::Null);
        host.expect_traces(&before, point);
    }
}

#[test]
fn fixture_of_sysfs_files_what_is_no_card_for_a_program() {
    let host = machine();
    host.sh("", "ip addr add 10.1.1.1/24 dev dev0");
    let before = host.traces();
    let refused = |kind: &str, id: &str, says: &str| {
        let config = config(kind, json!({"pciBusID": id}));
        let outcome = at(&host, "c1").call("ADD", kind, config.to_string());
        assert!(outcome.message().contains(says), "{kind} {id}: {outcome:?}");
    };
    refused("dpdk-device", "0000:03:00.3", "0000:03:00.3 is not a network card");
    refused("dpdk-device", "0000:03:00.0", "dev0 is used by the host: it has the address 10.1.1.1/24");
    let rebound = config("dpdk-device", json!({"pciBusID": "0000:03:00.2", "driver": "uio_pci_generic"}));
    let outcome = at(&host, "c1").call("ADD", "dpdk-device", rebound.to_string());
    assert!(outcome.message().contains("0000:03:00.2 has the driver vfio-pci, which a program may use"), "{outcome:?}");
    refused("sriov-vf", "0000:03:00.2", "0000:03:00.2 is no virtual function of a card");
    refused("sriov-vf", "0000:03:00.1", "dev0 does not tell of its virtual function 0, 0000:03:00.1: its driver has no settings");
    host.expect_traces(&before, "refused devices");
}
