//! Namespaces made, entered, removed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::link::{self, Bridge, Kind};
use linux::{EnterError, Errno, Inside, LinkSpec, Netlink, Netns, NetnsError};

use crate::space::{Space, output, unused};

#[test]
fn a_thread_knows_where_it_is() {
    let [one, other] = [(); 2].map(|()| Netns::unnamed().unwrap());
    let nowhere = || assert_eq!([&one, &other].map(|netns| netns.is_here()), [Ok(false), Ok(false)]);
    nowhere();
    for _ in 0..2 {
        one.enter(|_| {
            assert_eq!([&one, &other].map(|netns| netns.is_here()), [Ok(true), Ok(false)]);
            other.enter(|_| assert_eq!([&one, &other].map(|netns| netns.is_here()), [Ok(false), Ok(true)])).unwrap();
            assert_eq!([&one, &other].map(|netns| netns.is_here()), [Ok(true), Ok(false)]);
            std::thread::scope(|scope| scope.spawn(|| assert_eq!(one.is_here(), Ok(true))).join()).unwrap();
        })
        .unwrap();
        nowhere();
        let panicked = other.enter(|_| panic!("{}", other.is_here().unwrap()));
        assert!(matches!(panicked, Err(EnterError::Panicked { message, .. }) if message == "true"));
        nowhere();
    }
}

#[test]
fn made_as_ip_makes_them_and_removed_twice() {
    let path = unused();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let made = Netns::create(&path).unwrap();
    assert_eq!(made.path(), path);
    assert!(output("ip", "netns list").lines().any(|line| line.split(' ').next() == Some(&name)));
    let status = fs::metadata(&path).unwrap();
    assert_eq!((made.id().dev, made.id().ino), (status.dev(), status.ino()));
    assert_ne!(made.id(), Inside::here().id().unwrap());
    assert_eq!(output("ip", &format!("-n {name} -br link")).split_whitespace().take(2).collect::<Vec<_>>(), ["lo", "DOWN"]);

    assert_eq!(Netns::create(&path).unwrap_err(), NetnsError::Exists { path: path.clone() });
    assert_eq!(Netns::open(&path).unwrap().unwrap().id(), made.id());
    Netns::remove(&path).unwrap();
    assert!(!path.exists());
    Netns::remove(&path).unwrap();
    assert!(Netns::open(&path).unwrap().is_none());
    // What is held open lives on.
    assert_eq!(made.enter(|inside| inside.id().unwrap()).unwrap(), made.id());
}

/// It goes with what holds it, and its number goes to another one; the cookie does not.
#[test]
fn one_without_a_name_is_empty_and_never_the_same() {
    let cookie = |netns: &Netns| netns.cookie().unwrap().unwrap();
    let mut seen = std::collections::HashSet::from([cookie(&Netns::current().unwrap())]);
    for _ in 0..20 {
        let netns = Netns::unnamed().unwrap();
        assert_eq!(netns.enter(|inside| inside.id().unwrap()).unwrap(), netns.id());
        assert_ne!(netns.id(), Inside::here().id().unwrap());
        assert_eq!(netns.enter(|inside| linux::Netlink::open(inside).unwrap().links().unwrap().len()).unwrap(), 1);
        assert_eq!(cookie(&netns), cookie(&netns));
        assert!(seen.insert(cookie(&netns)));
    }
}

/// The way back is looked for once; it leads to where the thread was each time, from whatever depth.
#[test]
fn a_thread_comes_back_to_where_it_was() {
    let (one, other) = (Netns::unnamed().unwrap(), Netns::unnamed().unwrap());
    let home = Inside::here().id().unwrap();
    for _ in 0..2 {
        let in_one = |inside: &Inside| {
            for _ in 0..2 {
                assert_eq!(other.enter(|inside| inside.id().unwrap()).unwrap(), other.id());
                assert_eq!(inside.id().unwrap(), one.id());
            }
        };
        one.enter(in_one).unwrap();
        assert_eq!(Inside::here().id().unwrap(), home);
        assert_eq!(other.enter(|inside| inside.id().unwrap()).unwrap(), other.id());
        assert_eq!(Inside::here().id().unwrap(), home);
    }
    // Also behind a panic, and for a thread that has begun elsewhere.
    assert!(one.enter(|_| panic!("nothing comes of it")).is_err());
    assert_eq!(Inside::here().id().unwrap(), home);
    let there = || {
        assert_eq!(other.enter(|inside| inside.id().unwrap()).unwrap(), other.id());
        Inside::here().id().unwrap()
    };
    let begun_in_one = |_: &Inside| std::thread::scope(|scope| scope.spawn(there).join().unwrap());
    assert_eq!(one.enter(begun_in_one).unwrap(), one.id());
}

/// How many sockets for routing there are in a namespace, but for the kernel's own.
fn route_sockets(netns: &Netns) -> usize {
    let text = netns.enter(|_| fs::read_to_string("/proc/thread-self/net/netlink").unwrap()).unwrap();
    let is_one = |line: &&str| matches!(line.split_whitespace().skip(1).take(2).collect::<Vec<_>>()[..], ["0", port] if port != "0");
    text.lines().filter(is_one).count()
}

#[test]
fn one_routing_socket_for_many_calls() {
    let (one, other) = (Netns::unnamed().unwrap(), Netns::unnamed().unwrap());
    let make = |netlink: &mut Netlink, name: &str| {
        netlink.send_one(link::create(&LinkSpec::new(name.parse().unwrap(), Kind::Bridge(Bridge::default())))).map(drop).unwrap();
    };
    let here = |inside: &Inside, netlink: &mut Netlink| {
        make(netlink, "nllx0");
        inside.id().unwrap()
    };
    assert_eq!(one.enter_with(here).unwrap(), one.id());
    assert_eq!(other.enter_with(here).unwrap(), other.id());
    // From outside, and from another namespace, where another socket is at work.
    one.route(|netlink| make(netlink, "nllx1")).unwrap();
    let nested = |_: &Inside, netlink: &mut Netlink| {
        make(netlink, "nllx2");
        make(netlink, "nllx3");
        one.route(|netlink| netlink.links().unwrap().len()).unwrap()
    };
    assert_eq!(other.enter_with(nested).unwrap(), 3);
    assert_eq!(other.route(|netlink| netlink.links().unwrap().len()).unwrap(), 4);
    assert_eq!((route_sockets(&one), route_sockets(&other)), (1, 1));
    // The cookie is the same, whoever is asked.
    assert_eq!(one.cookie().unwrap(), one.enter(|inside| inside.netns().unwrap().cookie().unwrap()).unwrap());
    // Who asks while it is in use gets another one, and nobody waits.
    let inner = one.route(|_| one.route(|netlink| netlink.link("nllx1").unwrap().map(|link| link.name)).unwrap()).unwrap();
    assert_eq!((inner.as_deref(), route_sockets(&one)), (Some("nllx1"), 1));
}

#[test]
fn both_tools_remove_what_the_other_made() {
    let path = unused();
    let name = path.file_name().unwrap().to_str().unwrap();
    output("ip", &format!("netns add {name}"));
    Netns::remove(&path).unwrap();
    drop(Netns::create(&path).unwrap());
    output("ip", &format!("netns del {name}"));
    assert!(!path.exists());
}

#[test]
fn what_a_crash_leaves_is_taken_over_or_removed() {
    let path = unused();
    for _ in 0..2 {
        // A file without its mount, as after a kill between the two steps of either create or remove.
        drop(Netns::create(&path).unwrap());
        output("umount", &format!("-l {}", path.display()));
        assert!(path.exists());
        Netns::remove(&path).unwrap();
        assert!(!path.exists());
    }
    drop(Netns::create(&path).unwrap());
    output("umount", &format!("-l {}", path.display()));
    drop(Netns::create(&path).unwrap());
    // One mounted over the other.
    output("mount", &format!("--bind {0} {0}", path.display()));
    Netns::remove(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let space = Space::new();
                    assert_eq!(space.ip("link").as_array().unwrap().len(), 1);
                }
            });
        }
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/run/netns")).count() <= 1, "{mounts}");
}

#[test]
fn what_is_no_namespace_is_told_apart() {
    for path in ["/etc/passwd", "/etc", "/dev/null", "/proc/self/ns/mnt", "/proc/self/status"] {
        let expected = NetnsError::NotANamespace { path: path.into() };
        assert_eq!(Netns::open(Path::new(path)).unwrap_err(), expected, "{path}");
        assert_eq!(Netns::remove(Path::new(path)).unwrap_err(), expected, "{path}");
        assert!(Path::new(path).exists());
    }
    for path in ["/no/such/thing", "/run/netns/nllx-none", "/proc/2147483647/ns/net"] {
        assert!(Netns::open(Path::new(path)).unwrap().is_none(), "{path}");
    }
    // A FIFO would keep who opens it waiting; a symbolic link is followed for reading, and never deleted.
    let fifo = unused();
    output("mkfifo", fifo.to_str().unwrap());
    assert_eq!(Netns::open(&fifo).unwrap_err(), NetnsError::NotANamespace { path: fifo.clone() });
    fs::remove_file(&fifo).unwrap();
    let space = Space::new();
    let link = unused();
    std::os::unix::fs::symlink(space.netns.path(), &link).unwrap();
    assert_eq!(Netns::open(&link).unwrap().unwrap().id(), space.netns.id());
    assert_eq!(Netns::remove(&link).unwrap_err(), NetnsError::NotANamespace { path: link.clone() });
    fs::remove_file(&link).unwrap();
    assert!(Netns::open(space.netns.path()).unwrap().is_some());
    // An empty file that is nobody's namespace.
    let empty = unused();
    fs::write(&empty, "").unwrap();
    assert_eq!(Netns::remove(&empty).unwrap_err(), NetnsError::NotANamespace { path: empty.clone() });
    fs::remove_file(&empty).unwrap();
}

#[test]
fn a_folder_that_is_missing_is_made_and_shared() {
    let folder = unused().with_file_name(format!("../nllx-folder-{}", std::process::id()));
    let path = folder.join("deeper").join("one");
    let made = Netns::create(&path).unwrap();
    let mount = fs::canonicalize(path.parent().unwrap()).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == mount.to_str()).unwrap();
    assert!(line.contains(" shared:"), "{line}");
    drop(made);
    Netns::remove(&path).unwrap();
    output("umount", mount.to_str().unwrap());
    fs::remove_dir_all(fs::canonicalize(&folder).unwrap()).unwrap();
    assert!(matches!(Netns::create(Path::new("x")), Err(NetnsError::Failed { errno: Errno::EINVAL, .. })));
    assert!(matches!(Netns::create(Path::new("/proc/nllx/x")), Err(NetnsError::Failed { errno: Errno::ENOENT, .. })));
}

#[test]
fn a_panic_inside_is_an_error_and_leaves_us_where_we_were() {
    let space = Space::new();
    let before = Inside::here().id().unwrap();
    let result = space.netns.enter(|_| {
        if before.ino != 0 {
            panic!("lost {}", 7)
        }
    });
    let expected = EnterError::Panicked { path: space.netns.path().into(), message: "lost 7".into() };
    assert_eq!(result.unwrap_err(), expected);
    assert_eq!(Inside::here().id().unwrap(), before);
    // A thread started inside is inside; the token tells where it is.
    let (token, thread) = space
        .netns
        .enter(|inside| {
            let thread = std::thread::spawn(|| Netns::current().unwrap().id());
            (inside.netns().unwrap().id(), thread.join().unwrap())
        })
        .unwrap();
    assert_eq!((token, thread), (space.netns.id(), space.netns.id()));
    assert_eq!(Inside::here().netns().unwrap().id(), before);
}

/// Two holders of one descriptor, and one that came by another path.
#[test]
fn a_namespace_is_locked_by_one_at_a_time() {
    let space = Space::new();
    let soon = || Instant::now() + Duration::from_millis(20);
    let late = || Instant::now() + Duration::from_secs(60);
    let lock = space.netns.lock(late()).unwrap();
    let error = space.netns.lock(soon()).unwrap_err();
    assert!(error.to_string().contains(&format!("{} is locked by", space.netns.path().display())), "{error}");
    let elsewhere = space.run(|inside, _| inside.netns()).unwrap();
    assert_eq!(elsewhere.id(), space.netns.id());
    assert!(elsewhere.lock(soon()).is_err());
    drop(lock);
    drop(elsewhere.lock(late()).unwrap());
    drop(space.netns.lock(late()).unwrap());
}
