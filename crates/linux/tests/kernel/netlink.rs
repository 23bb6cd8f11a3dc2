//! Batches, their failures, and dumps while everything changes.

use std::sync::atomic::{AtomicBool, Ordering};

use linux::link::Change;
use linux::{Batch, Errno, LinkSpec, Netlink, ReadError, Reply, addr, link};

use crate::space::{Space, bridge, done, found, name, pair, veth};

#[test]
fn after_a_failure_the_rest_still_runs() {
    let space = Space::new();
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&LinkSpec { index: Some(10), ..bridge("br0") }));
        batch.push(link::create(&bridge("br0")));
        batch.push(link::set(999, &Change { up: Some(true), ..Change::default() }).called("ip link set dev lost up"));
        batch.push(addr::add(10, "10.0.0.1/24".parse().unwrap(), linux::AddrFlags::NONE));
        let error = netlink.send(batch).unwrap_err();
        let failures: Vec<_> = error.failures().map(|f| (f.index, f.errno)).collect();
        assert_eq!(failures, [(1, Errno::EEXIST), (2, Errno::ENODEV)]);
        assert_eq!(error.to_string(), "ip link add br0 type bridge: EEXIST: File exists (and 1 more of 4 requests failed)");
        assert_eq!(error.failures().nth(1).unwrap().what, "ip link set dev lost up");
        assert_eq!(netlink.addresses(Some(10)).unwrap().len(), 1);
    });
}

#[test]
fn the_kernel_explains_itself() {
    let space = Space::new();
    space.run(|_, netlink| {
        done(netlink, link::create(&pair(10, "a", "b")));
        let error = netlink.send_one(link::set(10, &Change { mtu: Some(70_000), ..Change::default() })).unwrap_err();
        assert_eq!(error.to_string(), "ip link set dev if10 mtu 70000: EINVAL: Invalid argument: mtu greater than device maximum");
    });
}

#[test]
fn what_is_tolerated_is_told() {
    let space = Space::new();
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        for _ in 0..2 {
            batch.push(link::create(&LinkSpec { index: Some(10), ..bridge("br0") }).tolerate(Errno::EEXIST));
        }
        batch.push(link::get(&name("br0")));
        batch.push(link::get(&name("nothing")));
        let replies = netlink.send(batch).unwrap();
        assert_eq!(replies[..2], [Reply::Done, Reply::Tolerated(Errno::EEXIST)]);
        assert!(matches!(&replies[2], Reply::Link(link) if link.name == "br0"), "{replies:?}");
        assert_eq!(replies[3], Reply::Tolerated(Errno::ENODEV));
        assert_eq!(netlink.send(Batch::new()).unwrap(), []);
    });
}

/// More failures at once than a socket's buffer holds.
#[test]
fn a_thousand_failures_are_all_told() {
    let space = Space::new();
    space.run(|_, netlink| {
        let batch: Batch<'_> = (0..1000).map(|i| link::delete(1000 + i)).collect();
        let error = netlink.send(batch).unwrap_err();
        assert_eq!(error.failures().count(), 1000);
        assert!(error.failures().enumerate().all(|(i, f)| (f.index, f.errno) == (i, Errno::ENODEV)));
        let gone: Batch<'_> = (0..1000).map(|i| link::delete(1000 + i).tolerate(Errno::ENODEV)).collect();
        assert!(netlink.send(gone).unwrap().iter().all(|reply| *reply == Reply::Tolerated(Errno::ENODEV)));
        assert_eq!(found(netlink, "lo").index, 1);
    });
}

/// Links that are there all the time are in every dump, however many others come and go meanwhile.
#[test]
fn dumps_are_whole_while_links_come_and_go() {
    let space = Space::new();
    space.run(|_, netlink| {
        netlink.send((0..60).map(|i| link::create(&veth(&format!("s{i}"), &format!("t{i}")))).collect()).unwrap();
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            space.run(|_, netlink| {
                while !stop.load(Ordering::Relaxed) {
                    done(netlink, link::create(&LinkSpec { index: Some(500), ..bridge("br0") }));
                    done(netlink, link::delete(500));
                }
            });
        });
        space.run(|_, netlink| {
            for _ in 0..100 {
                match netlink.links() {
                    Ok(links) => assert_eq!(links.iter().filter(|l| l.kind.as_deref() == Some("veth")).count(), 120),
                    Err(e) => assert!(matches!(e, ReadError::Torn { .. }), "{e}"),
                }
            }
        });
        stop.store(true, Ordering::Relaxed);
        churn.join().unwrap();
    });
}

#[test]
fn a_socket_belongs_to_its_namespace_wherever_it_is_used() {
    let space = Space::new();
    let mut netlink = space.netns.enter(|inside| Netlink::open(inside).unwrap()).unwrap();
    done(&mut netlink, link::create(&bridge("nllx0")));
    assert!(space.has("nllx0"));
    assert!(!std::path::Path::new("/sys/class/net/nllx0").exists());
}
