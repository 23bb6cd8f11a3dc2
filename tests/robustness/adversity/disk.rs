//! No room, no inodes, no writing: at every step of an ADD, and under a DEL.
//!
//! ```text
//!   a file system of a few pages and inodes is mounted where state is kept, and filled until N of one kind are free
//!   ADD: it fails and leaves nothing, or succeeds          N = 0, 1, ... until it succeeds
//!   what is left is filled; DEL succeeds
//! ```

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use netloom_tests::{Host, Outcome, SandboxScene, netloom, plugin_dir};
use serde_json::json;

use crate::promises;

/// So many of either has an empty disk.
const PAGES: usize = 48;
const INODES: usize = 64;
const PAGE: usize = 4096;

/// A small file system of its own, and what fills it.
struct Disk<'h> {
    host: &'h Host,
    dir: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Scarce {
    Pages,
    Inodes,
}

// === impl Disk ===

impl<'h> Disk<'h> {
    /// What is in the directory goes on the disk.
    fn mounted(host: &'h Host, dir: &'static str) -> Self {
        host.sh("", &format!("mkdir -p /run/aside {dir}"));
        host.run("", &["sh", "-c", &format!("cp -a {dir}/. /run/aside")]);
        host.sh("", &format!("mount -t tmpfs -o mode=755,size={},nr_inodes={INODES} netloom-tests {dir}", PAGES * PAGE));
        host.run("", &["sh", "-c", &format!("cp -a /run/aside/. {dir} && rm -r /run/aside")]);
        Disk { host, dir }
    }

    fn ballast(&self, name: &str) -> PathBuf {
        self.host.path(self.dir).join(name)
    }

    /// Leaves so many pages, or inodes.
    fn fill(&self, scarce: Scarce, free: usize) {
        match scarce {
            Scarce::Pages => {
                let mut file = File::create(self.ballast("pages")).unwrap();
                let mut written = 0;
                while file.write_all(&[1; PAGE]).is_ok() {
                    written += PAGE;
                }
                file.set_len((written - free * PAGE) as u64).unwrap();
            }
            Scarce::Inodes => {
                let count = (0..).take_while(|n| File::create(self.ballast(&format!("inode{n}"))).is_ok()).count();
                (count - free..count).for_each(|n| fs::remove_file(self.ballast(&format!("inode{n}"))).unwrap());
            }
        }
    }

    /// Nothing is left of either.
    fn fill_up(&self) {
        let name = |n| self.ballast(&format!("rest{n}"));
        if let Ok(mut file) = File::create(name(0)) {
            while file.write_all(&[1; PAGE]).is_ok() {}
        }
        let _ = (1..).take_while(|n| File::create(name(*n)).is_ok()).count();
    }

    /// Takes the ballast away.
    fn empty(&self) {
        let entries = fs::read_dir(self.host.path(self.dir)).unwrap().map(|e| e.unwrap());
        let ballast = entries.filter(|e| ["pages", "inode", "rest"].iter().any(|b| e.file_name().to_string_lossy().starts_with(b)));
        ballast.for_each(|e| fs::remove_file(e.path()).unwrap());
    }

    fn remount(&self, how: &str) {
        self.host.sh("", &format!("mount -o remount,{how} {}", self.dir));
    }
}

/// For every amount of room that is not enough for an ADD, and the first two that are.
fn with_little_room(disk: &Disk<'_>, add: impl Fn() -> Outcome, del: impl Fn() -> Outcome) {
    for scarce in [Scarce::Pages, Scarce::Inodes] {
        let (mut free, mut enough) = (0, 0);
        while enough < 2 {
            let when = format!("{free} {scarce:?} free on {}", disk.dir);
            let before = disk.host.traces();
            disk.fill(scarce, free);
            let added = add();
            let told = format!("{}{}", added.stdout, added.stderr);
            assert!(added.code == 0 || ["ENOSPC", "No space left"].iter().any(|why| told.contains(why)), "{when}: {added:?}");
            promises::hold(disk.host, &when);
            disk.fill_up();
            for _ in 0..2 {
                let deleted = del();
                assert_eq!(deleted.code, 0, "{when}, DEL on a full disk: {deleted:?}");
            }
            disk.empty();
            disk.host.expect_traces(&before, &when);
            enough += usize::from(added.code == 0);
            free += 1;
            assert!(free < 40, "{when}: {added:?}");
        }
    }
}

#[test]
fn a_full_disk_under_a_plugin() {
    let host = Host::new();
    host.container("c1");
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}});
    let cni = host.cni(plugin_dir()).at("c1", "eth0");
    let result = cni.add(&config);
    cni.del(&config, &result);
    let call = |verb: &str| cni.call(verb, "bridge", config.to_string());
    with_little_room(&Disk::mounted(&host, "/var/lib/cni"), || call("ADD"), || call("DEL"));
}

#[test]
fn full_disks_under_a_sandbox() {
    let one = |dir| {
        let scene = SandboxScene::new();
        with_little_room(&Disk::mounted(&scene.host, dir), || scene.call("add", 20), || scene.call("del", 20));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| one("/run/netloom"));
        one("/var/lib/cni");
    });
}

/// ADD does nothing where not all could be done. DEL detaches all the same where only records cannot be forgotten; where addresses cannot be
/// freed it is refused, and goes on when the disk is written again.
#[test]
fn a_read_only_disk() {
    for dir in ["/run/netloom", "/var/lib/cni"] {
        let scene = SandboxScene::new();
        let disk = Disk::mounted(&scene.host, dir);
        disk.remount("ro");
        let refused = scene.call("add", 20);
        assert!(refused.code == 1 && refused.stderr.contains(dir), "{refused:?}");
        scene.must("del");
        scene.clean("ADD on a read-only disk");
        disk.remount("rw");
        scene.must("add");
        disk.remount("ro");
        for _ in 0..2 {
            let done = scene.call("del", 20);
            if dir == "/run/netloom" {
                assert_eq!(done.code, 0, "{done:?}");
            } else {
                assert!(done.code == 1 && done.stderr.contains(dir) && done.stderr.contains("ead-only"), "{done:?}");
            }
            promises::hold(&scene.host, "DEL on a read-only disk");
        }
        disk.remount("rw");
        scene.must("del");
        scene.clean("DEL after a read-only disk");
    }
}

/// `up` fails, or some of its pods do; `down` gets through whatever there is.
#[test]
fn a_full_disk_under_a_lab() {
    std::thread::scope(|scope| {
        scope.spawn(|| lab_with_little_room(Scarce::Pages));
        lab_with_little_room(Scarce::Inodes);
    });
}

fn lab_with_little_room(scarce: Scarce) {
    let host = Host::new();
    host.write("/run/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n");
    let disk = Disk::mounted(&host, "/run/netloom");
    let before = host.traces();
    let lab = |args: &[&str]| Outcome::from(host.command("", netloom()).arg("lab").args(args).output().unwrap());
    for free in 0.. {
        let when = format!("{free} {scarce:?} free");
        disk.fill(scarce, free);
        let up = lab(&["up", "/run/pod.yaml"]);
        disk.fill_up();
        let down = lab(&["down"]);
        assert!(down.code == 0 || (up.code == 1 && down.stderr.contains("there is no lab")), "{when}: {up:?} {down:?}");
        disk.empty();
        host.expect_traces(&before, &when);
        if up.code == 0 {
            break;
        }
        assert!(free < 60, "{when}: {up:?}");
    }
}
