//! Queueing disciplines, classes and filters made, read, deleted.

use linux::link::{self, Kind};
use linux::tc::{self, Bucket, Filter, Root, SeenRoot, Side, Target, Tbf};
use linux::{Errno, LinkSpec};
use serde_json::json;

use crate::space::{self, Space, done, output};

fn ifb(name: &str, index: u32) -> LinkSpec<'static> {
    LinkSpec { index: Some(index), ..LinkSpec::new(name.parse().unwrap(), Kind::Ifb) }
}

#[test]
fn a_bucket_is_told_as_it_was_made() {
    let space = Space::new();
    // One of the most bytes, and one that is faster than 32 bits tell.
    let buckets = [(125_000, 12_500), (125_000, u32::MAX), (12_500_000_000, 4_000_000)].map(|(rate, burst)| Bucket { rate, burst });
    space.run(|_, netlink| {
        done(netlink, link::create(&ifb("i0", 50)));
        assert_eq!(netlink.root_qdisc(50).unwrap(), None);
        for bucket in buckets {
            done(netlink, tc::add_root(50, &Root::Tbf(Tbf { bucket, limit: 70_000 })));
            let error = netlink.send_one(tc::add_root(50, &Root::Htb { default: 1 })).unwrap_err();
            assert_eq!(error.errno(), Errno::EEXIST);
            let seen = netlink.root_qdisc(50).unwrap().unwrap();
            assert_eq!((seen.kind.as_str(), seen.link, seen.handle), ("tbf", 50, tc::ROOT));
            let Some(SeenRoot::Tbf { bucket: found, limit: 70_000 }) = seen.root else { panic!("{seen:?}") };
            assert!(bucket.is(found), "{bucket:?} {found:?}");
            assert!(!Bucket { burst: bucket.burst / 2, ..bucket }.is(found) && !Bucket { rate: bucket.rate + 1, ..bucket }.is(found));
            done(netlink, tc::delete_root(50));
        }
        assert_eq!(netlink.send_one(tc::delete_root(50)).unwrap_err().errno(), Errno::EINVAL, "what is there is the kernel's own");
        assert_eq!(netlink.root_qdisc(51).unwrap(), None, "there is no such link");
    });
}

#[test]
fn classes_and_filters_are_told_as_they_were_made() {
    let space = Space::new();
    let bucket = Bucket { rate: 1_000_000, burst: 100_000 };
    let named = ["10.2.0.0/16", "fd00:5:e000::/35", "0.0.0.0/0"].map(|net| net.parse().unwrap());
    let mut wanted = vec![
        Filter::network(1, named[0], Side::Source, Target::Class(tc::ROOT)),
        Filter::network(1, named[2], Side::Destination, Target::Class(tc::ROOT | 1)),
        Filter::network(2, named[1], Side::Destination, Target::Class(tc::ROOT | 1)),
    ];
    space.run(|_, netlink| {
        done(netlink, link::create(&ifb("i0", 50)));
        done(netlink, link::create(&ifb("i1", 51)));
        done(netlink, tc::add_root(50, &Root::Htb { default: 1 }));
        done(netlink, tc::add_class(50, 1, bucket, 1514));
        done(netlink, tc::add_fifo(50, 1, 125_000));
        for filter in &wanted {
            done(netlink, tc::add_filter(50, tc::ROOT, filter));
        }
        let root = netlink.root_qdisc(50).unwrap().unwrap();
        assert_eq!((root.kind.as_str(), root.root), ("htb", Some(SeenRoot::Htb { default: 1 })));
        let classes = netlink.classes(50).unwrap();
        assert_eq!(classes.iter().map(|c| c.handle).collect::<Vec<_>>(), [tc::ROOT | 1]);
        assert!(bucket.is(classes[0].bucket), "{classes:?}");
        assert_eq!(netlink.filters(50, tc::ROOT).unwrap(), wanted);
        assert_eq!(netlink.ingress_qdisc(50).unwrap(), None);
        assert_eq!(netlink.filters(50, tc::INGRESS).unwrap(), []);
        done(netlink, tc::add_ingress(50));
        wanted = vec![
            Filter::network(1, named[0], Side::Destination, Target::Pass),
            Filter::network(2, named[1], Side::Source, Target::Redirect(51)),
            Filter::all(3, Target::Redirect(51)),
        ];
        for filter in &wanted {
            done(netlink, tc::add_filter(50, tc::INGRESS, filter));
        }
        assert_eq!(netlink.ingress_qdisc(50).unwrap().map(|q| q.kind), Some("ingress".to_owned()));
        assert_eq!(netlink.filters(50, tc::INGRESS).unwrap(), wanted);
        // What leads to a link that is gone leads nowhere.
        done(netlink, link::delete(51));
        assert_eq!(netlink.filters(50, tc::INGRESS).unwrap()[2].target, Target::Redirect(0));
        done(netlink, tc::delete_ingress(50));
        assert_eq!(netlink.ingress_qdisc(50).unwrap(), None);
    });
    // Classes it does not print as JSON.
    let class = output("tc", &format!("-n {} class show dev i0", space.name()));
    assert!(class.contains("class htb 1:1 root") && class.contains("rate 8Mbit ceil 8Mbit burst 100000b cburst 100000b"), "{class}");
    let qdiscs = space::json("tc", &format!("-n {} -j qdisc show dev i0", space.name()));
    assert_eq!((&qdiscs[1]["kind"], &qdiscs[1]["options"]["limit"]), (&json!("bfifo"), &json!(125_000)), "{qdiscs}");
}

/// Asked without a trace.
#[test]
fn what_the_kernel_has() {
    let space = Space::new();
    space.run(|_, netlink| {
        for (kind, there) in [("tbf", true), ("htb", true), ("nosuch", false)] {
            assert_eq!(tc::has_kind(netlink, kind), Ok(there), "{kind}");
        }
        for (action, there) in [("mirred", true), ("nosuch", false)] {
            assert_eq!(tc::has_action(netlink, action), Ok(there), "{action}");
        }
        assert_eq!(netlink.root_qdisc(link::LOOPBACK).unwrap(), None);
    });
}
