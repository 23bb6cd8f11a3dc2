//! Disks that are full or read-only, reboots, namespaces that are somebody else's by now, records that cannot be read: in the
//! end a DEL succeeds, or says what to do, and nothing is left and no address held twice.

mod disk;

use std::os::unix::fs::MetadataExt;

use crate::promises;
use netloom_tests::{Host, Outcome, SandboxScene, netloom};

const RECORD: &str = "/run/netloom/sandboxes/c1.json";
const LEASES: &str = "/var/lib/cni/networks/net";

fn read(host: &Host, path: &str) -> String {
    std::fs::read_to_string(host.path(path)).unwrap()
}

fn leases(host: &Host) -> Vec<String> {
    host.list(LEASES).into_iter().filter(|name| name.starts_with("10.")).collect()
}

/// The machine was started again, as far as a process can tell.
fn reboot(host: &Host) {
    host.write("/run/boot_id", "01234567-89ab-4cde-8f01-23456789abcd\n");
    host.sh("", "mount --bind /run/boot_id /proc/sys/kernel/random/boot_id");
}

fn end_of_reboot(host: &Host) {
    host.sh("", "umount /proc/sys/kernel/random/boot_id");
    std::fs::remove_file(host.path("/run/boot_id")).unwrap();
}

/// A namespace of another container has the path, with interfaces of the same names, and the number, unless another test
/// is always quicker.
fn another_takes_the_place(host: &Host) {
    let number = || std::fs::metadata(host.path("/run/netns/c1")).unwrap().ino();
    let before = number();
    for _ in 0..50 {
        host.sh("", "ip netns delete c1");
        host.container("c1");
        if number() == before {
            break;
        }
    }
    host.sh("c1", "ip link add eth0 mtu 1312 type veth peer name net1");
}

#[test]
fn a_namespace_that_is_gone() {
    let scene = SandboxScene::new();
    scene.must("add");
    scene.host.sh("", "ip netns delete c1");
    scene.must("del");
    scene.must("del");
    assert_eq!((leases(&scene.host), scene.host.list("/run/netloom/sandboxes")), (vec![], vec![]));
    scene.host.container("c1");
    scene.clean("DEL without a namespace");
}

/// The kernel gives the number of a deleted namespace to the next one: path and number are the same, the namespace is not.
#[test]
fn a_path_that_is_somebody_elses() {
    for rebooted in [false, true] {
        let scene = SandboxScene::new();
        let tuned = read(&scene.host, "/run/net/1.conflist").replace("}]}", "},{\"type\":\"tuning\",\"mtu\":1400}]}");
        scene.host.write("/run/net/1.conflist", &tuned);
        scene.must("add");
        assert_eq!(scene.host.link("c1", "eth0").unwrap().mtu(), 1400);
        another_takes_the_place(&scene.host);
        if rebooted {
            reboot(&scene.host);
        }
        let theirs = scene.host.links_but_carriers("c1");
        scene.must("del");
        assert_eq!(scene.host.links_but_carriers("c1"), theirs, "rebooted: {rebooted}");
        assert_eq!((leases(&scene.host), scene.host.list("/run/netloom/sandboxes")), (vec![], vec![]));
        if rebooted {
            end_of_reboot(&scene.host);
        }
    }
}

/// Also where nobody removed the namespace: whatever it was before the machine was started, it is another one.
#[test]
fn after_a_reboot_the_next_add_is_told_and_a_del_clears() {
    let scene = SandboxScene::new();
    scene.must("add");
    reboot(&scene.host);
    let again = scene.call("add", 20);
    assert!(again.code == 1 && again.stderr.contains("attached already; DEL it first"), "{again:?}");
    scene.must("del");
    end_of_reboot(&scene.host);
    scene.clean("DEL after a reboot");
}

#[test]
fn two_dels_at_once() {
    let scene = SandboxScene::new();
    for _ in 0..10 {
        scene.must("add");
        let dels: Vec<_> = (0..3).map(|_| scene.command("del", 20).spawn().unwrap()).collect();
        for del in dels {
            let del = Outcome::from(del.wait_with_output().unwrap());
            assert_eq!(del.code, 0, "{del:?}");
        }
        promises::hold(&scene.host, "three DELs");
    }
    scene.clean("three DELs at once");
}

/// A DEL of what nobody knows makes nothing on the disk.
#[test]
fn a_del_of_nothing() {
    let scene = SandboxScene::new();
    scene.host.sh("", "rm -r /run/netloom");
    scene.must("del");
    assert!(!scene.host.path("/run/netloom").exists());
}

/// Half a record, or one of a version to come: nothing is guessed and nothing lost; put back, it is as good as ever.
#[test]
fn a_record_that_cannot_be_read() {
    let scene = SandboxScene::new();
    scene.must("add");
    let whole = read(&scene.host, RECORD);
    let attached = scene.host.traces();
    for (bad, next) in [
        (&whole[..whole.find('\n').unwrap() / 2], "delete the pod"),
        ("", "delete the pod"),
        (&whole.replace("\"schema\":1", "\"schema\":2"), "has schema 2, but this version supports only 1: use the version that wrote it"),
    ] {
        scene.host.write(RECORD, bad);
        for verb in ["del", "del", "add"] {
            let outcome = scene.call(verb, 20);
            assert!(outcome.code == 1 && outcome.stderr.contains(RECORD) && outcome.stderr.contains(next), "{verb}: {outcome:?}");
        }
        assert_eq!(read(&scene.host, RECORD), bad);
        promises::hold(&scene.host, next);
    }
    scene.host.write(RECORD, &whole);
    std::fs::remove_file(scene.host.path("/run/netloom/sandboxes/c1.del")).unwrap();
    scene.host.expect_traces(&attached, "DELs that could not");
    scene.must("del");
    scene.clean("DEL of a record that was put back");
}

/// What it described went with the kernel, the address is on the disk.
#[test]
fn a_record_that_a_power_cut_took() {
    let scene = SandboxScene::new();
    scene.host.write(&format!("{LEASES}/10.1.0.201"), "other\r\neth0");
    for left in ["", "\0\0\0\0", "{\"schema\":1,\"sandbox\":\"c1\",\"bo"] {
        scene.lose(left);
        let add = scene.call("add", 20);
        assert!(
            add.code == 1 && add.stderr.contains("lost in a power failure before this boot: DEL frees the sandbox's addresses"),
            "{add:?}"
        );
        scene.must("del");
        assert_eq!(leases(&scene.host), ["10.1.0.201"], "{left:?}");
    }
    std::fs::remove_file(scene.host.path(format!("{LEASES}/10.1.0.201"))).unwrap();
    scene.clean("DEL of a lost record");
    scene.must("add");
    scene.must("del");
    scene.clean("ADD and DEL after it");
}

/// `down` names the file; `--force` gets through, and all of the lab goes.
#[test]
fn a_lab_with_a_record_that_cannot_be_read() {
    let host = Host::new();
    let before = host.traces();
    host.write("/run/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n");
    let lab = |args: &[&str]| Outcome::from(host.command("", netloom()).arg("lab").args(args).output().unwrap());
    assert_eq!(lab(&["up", "/run/pod.yaml"]).code, 0);
    let dir = "/run/netloom/lab/lab/nodes/node-1/sandboxes";
    let record = host.list(dir).into_iter().find(|f| f.ends_with(".json")).unwrap();
    host.write(&format!("{dir}/{record}"), "{");
    let down = lab(&["down"]);
    assert!(down.code == 1 && down.stderr.contains(&record) && down.stderr.contains("--force"), "{down:?}");
    let down = lab(&["down", "--force"]);
    assert!(down.code == 0 && (down.stdout + &down.stderr).contains(&record));
    std::fs::remove_file(host.path("/run/pod.yaml")).unwrap();
    host.expect_traces(&before, "lab down --force");
}
