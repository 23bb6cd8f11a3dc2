//! The index beside a network's directory: what others do there is seen, however they do it.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use netloom_ipam::Store;

use crate::reference::{addresses, config, peer, run};
use crate::scratch::{Scratch, filler, ip, owner, sets};

const RANGES: &str = r#"[[{"subnet":"10.1.0.0/24"}]]"#;

/// 40 addresses are held, and there is an index of them.
fn indexed() -> Scratch {
    let scratch = Scratch::new();
    scratch.fill(39);
    scratch.store().allocate(&owner("a", "eth0"), &sets(RANGES), &[ip("10.1.0.2")]).unwrap();
    scratch.store().release(&owner("nobody", "eth0")).unwrap();
    assert!(fs::metadata(scratch.index()).unwrap().is_file());
    scratch
}

/// Before Linux 6.13 a ctime is no finer than this.
pub(crate) fn a_tick_later() {
    // Sleeps: the clock of files is to go on.
    std::thread::sleep(std::time::Duration::from_millis(11));
}

fn held(store: &Store, id: &str) -> Vec<String> {
    store.held(&owner(id, "eth0")).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn every_change_by_others_is_seen() {
    let elsewhere = Scratch::new();
    type Change<'a> = (&'a str, Box<dyn Fn(&std::path::Path) + 'a>, &'a [&'a str], &'a [&'a str]);
    let by_plugin = |command: &'static str, id: &'static str| {
        move |dir: &std::path::Path| {
            let done = run(&peer("host-local"), command, &owner(id, "eth0"), "", &config(dir.parent().unwrap(), RANGES, &[]));
            assert!(done.is_ok(), "{done:?}");
        }
    };
    let write = |name: &'static str, content: &'static str| move |dir: &std::path::Path| fs::write(dir.join(name), content).unwrap();
    let changes: Vec<Change<'_>> = vec![
        ("ADD of the reference plugin", Box::new(by_plugin("ADD", "b")), &["10.1.0.2"], &["10.1.0.3"]),
        ("DEL of the reference plugin", Box::new(by_plugin("DEL", "a")), &[], &[]),
        ("a file made", Box::new(write("10.1.0.7", "b\r\neth0")), &["10.1.0.2"], &["10.1.0.7"]),
        ("a second file of one owner", Box::new(write("10.1.0.7", "a\r\neth0")), &["10.1.0.2", "10.1.0.7"], &[]),
        ("an old file made", Box::new(write("10.1.0.7", "b")), &["10.1.0.2"], &["10.1.0.7"]),
        ("a file removed", Box::new(|dir| fs::remove_file(dir.join("10.1.0.2")).unwrap()), &[], &[]),
        ("a file renamed", Box::new(|dir| fs::rename(dir.join("10.1.0.2"), dir.join("10.1.0.9")).unwrap()), &["10.1.0.9"], &[]),
        (
            "a file replaced by rename",
            Box::new(|dir| {
                fs::write(elsewhere.0.join("new"), "b\r\neth0").unwrap();
                fs::rename(elsewhere.0.join("new"), dir.join("10.1.0.2")).unwrap();
            }),
            &[],
            &["10.1.0.2"],
        ),
        ("a file moved away", Box::new(|dir| fs::rename(dir.join("10.1.0.2"), elsewhere.0.join("gone")).unwrap()), &[], &[]),
        ("a hard link", Box::new(|dir| fs::hard_link(dir.join("10.1.0.2"), dir.join("10.1.0.9")).unwrap()), &["10.1.0.2", "10.1.0.9"], &[]),
        (
            "a symbolic link in place of a file",
            Box::new(|dir| {
                fs::remove_file(dir.join("10.1.0.2")).unwrap();
                symlink("/dev/zero", dir.join("10.1.0.2")).unwrap();
            }),
            &[],
            &[],
        ),
        (
            "a change whose traces are wiped with touch",
            Box::new(|dir| {
                a_tick_later();
                let before = fs::metadata(dir).unwrap().modified().unwrap();
                fs::write(dir.join("10.1.0.7"), "b\r\neth0").unwrap();
                File::open(dir).unwrap().set_times(FileTimes::new().set_modified(before)).unwrap();
                assert_eq!(fs::metadata(dir).unwrap().modified().unwrap(), before);
            }),
            &["10.1.0.2"],
            &["10.1.0.7"],
        ),
        (
            "the directory made anew",
            Box::new(|dir| {
                fs::remove_dir_all(dir).unwrap();
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("10.1.0.7"), "b\r\neth0").unwrap();
            }),
            &[],
            &["10.1.0.7"],
        ),
        (
            "the directory replaced by a copy with its times",
            Box::new(|dir| {
                let copy = dir.with_file_name("copy");
                assert!(Command::new("cp").arg("-a").args([dir, &copy]).status().unwrap().success());
                fs::remove_file(copy.join("10.1.0.2")).unwrap();
                assert!(Command::new("touch").arg("-r").args([dir, &copy]).status().unwrap().success());
                fs::remove_dir_all(dir).unwrap();
                fs::rename(copy, dir).unwrap();
            }),
            &[],
            &[],
        ),
    ];
    for (what, change, of_a, of_b) in changes {
        // Many times, for some of them fall into the same tick of the clock as our own change.
        for _ in 0..4 {
            let scratch = indexed();
            change(scratch.store().dir());
            let store = scratch.store();
            assert_eq!((held(&store, "a"), held(&store, "b")), (to_text(of_a), to_text(of_b)), "{what}");
            // Now by those that write the index.
            for (id, expected) in [("b", of_b), ("a", of_a)] {
                let freed = store.release(&owner(id, "eth0")).unwrap();
                assert_eq!(freed.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{what}");
            }
            scratch.agrees(&sets(RANGES), what);
        }
    }
}

fn to_text(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// Ours and the reference plugin's in turn and at once, each undoing what the other did.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn both_implementations_share_a_directory() {
    let (scratch, plugin, sets) = (indexed(), peer("host-local"), sets(RANGES));
    let theirs = |command: &str, id: &str| run(&plugin, command, &owner(id, "eth0"), "", &config(&scratch.0, RANGES, &[]));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || (0..25).for_each(|n| drop(theirs("ADD", &format!("go{worker}-{n}")).unwrap())));
        }
        for worker in 0..2 {
            let (scratch, sets) = (&scratch, &sets);
            scope.spawn(move || {
                for n in 0..300 {
                    let who = owner(&format!("rust{worker}-{}", n % 20), "eth0");
                    let given = scratch.store().allocate(&who, sets, &[]).unwrap();
                    assert_eq!(scratch.store().held(&who).unwrap(), [given[0].address.addr()]);
                    if n < 280 {
                        assert_eq!(scratch.store().release(&who).unwrap(), [given[0].address.addr()]);
                    }
                }
            });
        }
    });
    assert_eq!(scratch.store().all().unwrap().len(), 40 + 2 * 25 + 2 * 20);
    scratch.agrees(&sets, "after both");
    for n in 0..20 {
        theirs("DEL", &format!("rust0-{n}")).unwrap();
        assert_eq!(scratch.store().release(&owner(&format!("go1-{n}"), "eth0")).unwrap().len(), 1);
        assert_eq!(held(&scratch.store(), &format!("rust0-{n}")), [""; 0]);
        let next = scratch.store().allocate(&owner("x", "eth0"), &sets, &[]).unwrap()[0].address.addr();
        scratch.store().release(&owner("x", "eth0")).unwrap();
        let got = addresses(&theirs("ADD", "y").unwrap());
        let got = ip(got[0].0.split('/').next().unwrap());
        assert!(got > next || next == ip("10.1.0.254"), "{got} {next}");
        theirs("DEL", "y").unwrap();
    }
    scratch.agrees(&sets, "in turn");
}

#[test]
fn an_index_is_private_and_nobody_needs_it() {
    let scratch = indexed();
    assert_eq!(fs::metadata(scratch.index()).unwrap().mode() & 0o7777, 0o600);
    let beside: Vec<_> = fs::read_dir(scratch.store().dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(beside.len(), 40 + 2, "{beside:?}");

    // Where none can be written, all goes on: its name leads elsewhere, or is a directory's.
    let outside = scratch.0.join("outside");
    fs::write(&outside, "untouched").unwrap();
    fs::remove_file(scratch.index()).unwrap();
    symlink(&outside, scratch.index()).unwrap();
    scratch.agrees(&sets(RANGES), "a symbolic link");
    assert_eq!(fs::read(&outside).unwrap(), b"untouched");
    fs::remove_file(scratch.index()).unwrap();
    fs::create_dir(scratch.index()).unwrap();
    scratch.agrees(&sets(RANGES), "a directory");
    fs::remove_dir(scratch.index()).unwrap();

    // Few addresses have none, and one that is there already is used all the same.
    for n in 1..=39 {
        scratch.store().release(&filler(n).1).unwrap();
    }
    scratch.agrees(&sets(RANGES), "few");
    fs::remove_file(scratch.index()).unwrap();
    scratch.agrees(&sets(RANGES), "few, without");
    assert!(!scratch.index().exists());
}

/// Read-only and full: what is known stays usable, and nothing fails that did not fail without an index.
#[test]
#[ignore = "started by a_disk_that_fails in a mount namespace of its own"]
fn child() {
    let dir = std::env::var("NETLOOM_TEST_DIR").unwrap();
    let (store, sets) = (Store::open(dir.as_ref(), &"net".parse().unwrap()), sets(RANGES));
    let mount = |options: &str| assert!(Command::new("mount").args(["-o", options, &dir]).status().unwrap().success());
    for n in 0..40 {
        store.allocate(&owner(&format!("c{n}"), "eth0"), &sets, &[]).unwrap();
    }
    mount("remount,ro");
    assert_eq!(held(&store, "c7"), ["10.1.0.9"]);
    mount("remount,rw");
    // The last block of the disk: an address fits into it, an index does not.
    fs::remove_file(std::path::Path::new(&dir).join(".net.index")).unwrap();
    let fill = |name: &str| {
        let path = std::path::Path::new(&dir).join(name);
        let mut file = File::create(&path).unwrap();
        while std::io::Write::write_all(&mut file, &[7; 512]).is_ok() {}
    };
    fill("full");
    assert!(store.allocate(&owner("d", "eth0"), &sets, &[]).is_err());
    assert_eq!(held(&store, "c7"), ["10.1.0.9"]);
    assert_eq!(store.release(&owner("c7", "eth0")).unwrap(), [ip("10.1.0.9")]);
    let given = store.allocate(&owner("e", "eth0"), &sets, &[]).unwrap();
    assert_eq!(held(&store, "e"), [given[0].address.addr().to_string()]);
    fill("fuller");
    assert_eq!(store.release(&owner("c8", "eth0")).unwrap(), [ip("10.1.0.10")]);
    fs::remove_file(std::path::Path::new(&dir).join("full")).unwrap();
    store.allocate(&owner("f", "eth0"), &sets, &[]).unwrap();
    assert_eq!(held(&store, "c9"), ["10.1.0.11"]);
}

#[test]
fn a_disk_that_fails() {
    on_a_disk("tmpfs", "size=400k", "index::child");
}

/// On ramfs times are no finer than the clock's ticks, whatever the kernel: most of these changes fall into the same one
/// as ours before them.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn a_coarse_clock_hides_nothing() {
    on_a_disk("ramfs", "mode=755", "index::every_change_by_others_is_seen");
}

fn on_a_disk(kind: &str, options: &str, test: &str) {
    let scratch = Scratch::new();
    let script = r#"mount -t "$1" -o "$2" none "$TMPDIR" && exec "$0" --exact "$3" --include-ignored --nocapture"#;
    let done = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args([kind, options, test])
        .envs([("NETLOOM_TEST_DIR", &scratch.0), ("TMPDIR", &scratch.0)])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
}
