//! Links deleted.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linux::link::{Kind, Peer};
use linux::{Batch, Errno, LinkSpec, link};

use crate::space::{Space, bridge, done, name, pair, veth};

#[test]
fn sixteen_links_go_at_the_price_of_one() {
    let (host, pod) = (Space::new(), Space::new());
    let make = || {
        host.run(|_, netlink| {
            let batch = (0..16_u32).map(|i| {
                let peer = Peer { netns: Some(pod.netns.as_fd()), ..Peer::new(name(&format!("eth{i}"))) };
                link::create(&LinkSpec { index: Some(100 + i), ..LinkSpec::new(name(&format!("host{i}")), Kind::Veth(peer)) })
            });
            netlink.send(batch.collect()).unwrap();
        });
    };
    let indexes: Vec<u32> = (100..116).collect();
    let timed = |delete: &dyn Fn()| {
        make();
        let start = Instant::now();
        delete();
        start.elapsed()
    };
    let singly = || host.run(|_, netlink| netlink.send(indexes.iter().map(|i| link::delete(*i)).collect::<Batch<'_>>()).map(drop)).unwrap();
    let at_once = || host.run(|_, netlink| netlink.delete_together(&indexes)).unwrap();
    // The least of some, or of more: whatever else the machine does makes it longer.
    let (mut one_by_one, mut together) = (Duration::MAX, Duration::MAX);
    for round in 0..50 {
        if round >= 5 && together < one_by_one {
            break;
        }
        (one_by_one, together) = (one_by_one.min(timed(&singly)), together.min(timed(&at_once)));
    }
    for space in [&host, &pod] {
        assert_eq!(space.ip("link").as_array().unwrap().len(), 1, "only lo is left");
    }
    assert!(together < one_by_one, "{together:?} together, {one_by_one:?} one by one");
    println!("16 veths: {together:?} together, {one_by_one:?} one by one");
}

#[test]
fn what_is_gone_is_no_error() {
    let space = Space::new();
    space.run(|_, netlink| {
        netlink.delete_together(&[]).unwrap();
        netlink.delete_together(&[77]).unwrap();
        netlink.delete_together(&[77, 78, 79]).unwrap();
        done(netlink, link::create(&pair(10, "a", "b")));
        done(netlink, link::create(&LinkSpec { index: Some(20), ..bridge("br0") }));
        // Both ends, one of them twice, and one that is not there.
        netlink.delete_together(&[10, 11, 10, 78]).unwrap();
        assert_eq!(netlink.links().unwrap().len(), 2);
        netlink.delete_together(&[20]).unwrap();
        assert_eq!(netlink.links().unwrap().len(), 1);
    });
}

#[test]
fn what_cannot_go_does_not_keep_the_others() {
    let space = Space::new();
    space.run(|_, netlink| {
        done(netlink, link::create(&pair(10, "a", "b")));
        done(netlink, link::create(&pair(20, "c", "d")));
        let error = netlink.delete_together(&[10, 1, 20]).unwrap_err();
        assert_eq!((error.errno(), error.failures().count(), error.first().index), (Errno::EOPNOTSUPP, 1, 1));
        assert_eq!(error.first().what, "ip link del dev if1");
        let left = netlink.links().unwrap();
        assert_eq!((left.len(), left[0].group), (1, 0));
    });
}

#[test]
fn links_go_by_name_and_by_group_too() {
    let space = Space::new();
    space.run(|_, netlink| {
        for (first, second) in [("a", "b"), ("c", "d"), ("e", "f")] {
            done(netlink, link::create(&LinkSpec { group: Some(8), ..veth(first, second) }));
        }
        done(netlink, link::delete_by_name(&name("b")));
        assert_eq!(netlink.send_one(link::delete_by_name(&name("b"))).unwrap_err().errno(), Errno::ENODEV);
        done(netlink, link::delete_group(8));
        assert_eq!(netlink.send_one(link::delete_group(8)).unwrap_err().errno(), Errno::ENODEV);
        assert_eq!(netlink.send_one(link::delete_group(0)).unwrap_err().errno(), Errno::EPERM);
        assert_eq!(netlink.links().unwrap().len(), 1);
    });
}
