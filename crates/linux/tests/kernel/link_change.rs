//! Links changed.

use std::os::fd::AsFd;

use linux::link::{AddrGenMode, Change, Ipv4Conf, Kind, Macvlan, MacvlanMode};
use linux::{Batch, Errno, LinkSpec, PortFlags, Sysctl, link};
use serde_json::json;

use crate::space::{Space, bridge, done, found, mac, name, pair};

#[test]
fn everything_that_can_be_set_is_set() {
    let space = Space::new();
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&LinkSpec { index: Some(9), ..bridge("br0") }));
        batch.push(link::create(&pair(10, "a", "b")));
        batch.push(link::set(
            10,
            &Change {
                up: Some(true),
                mtu: Some(1280),
                mac: Some(mac("02:00:00:00:00:0a")),
                name: Some(name("renamed")),
                master: Some(9),
                group: Some(5),
                promisc: Some(true),
                allmulti: Some(true),
                multicast: Some(false),
                arp: Some(false),
                txqlen: Some(77),
                alias: Some("hello \"there\"".into()),
                ..Change::default()
            },
        ));
        netlink.send(batch).unwrap();
        let read = found(netlink, "renamed");
        assert_eq!((read.mtu, read.master, read.group, read.txqlen), (1280, Some(9), 5, 77));
        assert_eq!((read.mac, read.alias.as_deref()), (Some(mac("02:00:00:00:00:0a")), Some("hello \"there\"")));
        let flags = read.flags;
        assert!(flags.up() && flags.promisc() && flags.allmulti() && flags.noarp() && !flags.multicast());
    });
    let seen = &space.ip("link show dev renamed")[0];
    assert_eq!((&seen["mtu"], &seen["master"], &seen["txqlen"], &seen["group"]), (&json!(1280), &json!("br0"), &json!(77), &json!("5")));
    assert_eq!((&seen["ifalias"], &seen["address"]), (&json!("hello \"there\""), &json!("02:00:00:00:00:0a")));
    let flags: Vec<_> = seen["flags"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(["UP", "PROMISC", "ALLMULTI", "NOARP"].iter().all(|f| flags.contains(f)) && !flags.contains(&"MULTICAST"), "{flags:?}");

    space.run(|_, netlink| {
        let back = Change { up: Some(false), master: Some(0), promisc: Some(false), alias: Some(String::new()), ..Change::default() };
        done(netlink, link::set(10, &back));
        let read = found(netlink, "renamed");
        assert_eq!((read.master, read.alias, read.mtu), (None, None, 1280));
        assert!(!read.flags.up() && !read.flags.promisc() && read.flags.allmulti());
    });
}

#[test]
fn a_macvlan_changes_its_mode_unless_it_is_passthru() {
    for (mode, expected) in [(MacvlanMode::Bridge, Ok("source")), (MacvlanMode::Passthru, Err(Errno::EINVAL))] {
        let space = Space::new();
        space.run(|_, netlink| {
            done(netlink, link::create(&LinkSpec { up: true, ..pair(10, "a", "b") }));
            let kind = Kind::Macvlan { parent: 10, macvlan: Macvlan { mode, bc_queue_len: Some(500) } };
            done(netlink, link::create(&LinkSpec { index: Some(20), ..LinkSpec::new(name("mv0"), kind) }));
            let changed = netlink.send_one(link::set_macvlan_mode(20, MacvlanMode::Source)).map_err(|e| e.errno());
            assert_eq!(changed.err(), expected.err());
        });
        let seen = &space.ip("link show dev mv0")[0]["linkinfo"]["info_data"];
        assert_eq!((&seen["mode"], &seen["bcqueuelen"]), (&json!(expected.unwrap_or("passthru")), &json!(500)));
    }
}

#[test]
fn ipv4_and_ipv6_settings_come_without_a_file() {
    let space = Space::new();
    space.run(|_, netlink| {
        done(netlink, link::create(&pair(10, "a.1", "b")));
        let change = Change {
            ipv4_conf: vec![(Ipv4Conf::ArpNotify, 1), (Ipv4Conf::ArpIgnore, 2), (Ipv4Conf::RpFilter, 0)],
            addr_gen_mode: Some(AddrGenMode::None),
            up: Some(true),
            ..Change::default()
        };
        done(netlink, link::set(10, &change));
        done(netlink, link::set(11, &Change { up: Some(true), ..Change::default() }));
    });
    for (setting, value) in [("ipv4/conf/a.1/arp_notify", "1"), ("ipv4/conf/a.1/arp_ignore", "2"), ("ipv6/conf/a.1/addr_gen_mode", "1")] {
        assert_eq!(space.cat(&format!("/proc/sys/net/{setting}")), value, "{setting}");
    }
    assert_eq!(space.ip("-6 addr show dev a.1"), json!([]));
    assert_eq!(space.ip("-6 addr show dev b")[0]["addr_info"][0]["scope"], "link");
    space.run(|_, netlink| {
        let off = Change { ipv4_conf: vec![(Ipv4Conf::ArpNotify, 0)], ..Change::default() };
        done(netlink, link::set(10, &off));
    });
    assert_eq!(space.cat("/proc/sys/net/ipv4/conf/a.1/arp_notify"), "0");
}

/// Their numbers are the kernel's: each is changed by its file and must be told by netlink, and only that one.
#[test]
fn ipv6_settings_are_told_with_the_link() {
    use link::Ipv6Conf::{AcceptDad, AcceptRa, DisableIpv6, EnhancedDad, KeepAddrOnDown, NdiscNotify};
    const ALL: [link::Ipv6Conf; 6] = [AcceptRa, DisableIpv6, AcceptDad, NdiscNotify, KeepAddrOnDown, EnhancedDad];
    let space = Space::new();
    space.run(|inside, netlink| {
        done(netlink, link::create(&pair(10, "a.1", "b")));
        for changed in ALL {
            let mut values = || ALL.map(|setting| found(netlink, "a.1").ipv6(setting).unwrap());
            let before = values();
            let to = if before[ALL.iter().position(|s| *s == changed).unwrap()] == 0 { 1 } else { 0 };
            Sysctl::new(["net", "ipv6", "conf", "a.1", changed.name()]).unwrap().write(inside, &to.to_string()).unwrap();
            let differing: Vec<_> = ALL.iter().zip(before.iter().zip(values())).filter(|(_, (b, a))| *b != a).collect();
            assert!(
                matches!(differing.as_slice(), [(setting, (_, now))] if **setting == changed && *now == to),
                "{changed:?}: {differing:?}"
            );
        }
    });
}

#[test]
fn a_link_moves_with_a_new_name_and_index() {
    let (from, to) = (Space::new(), Space::new());
    from.run(|_, netlink| {
        done(netlink, link::create(&LinkSpec { group: Some(6), ..pair(10, "a", "b") }));
        let change = Change { netns: Some(to.netns.as_fd()), name: Some(name("eth0")), new_index: Some(44), ..Change::default() };
        done(netlink, link::set(10, &change));
    });
    assert!(!from.has("a") && from.has("b"));
    let seen = &to.ip("link show dev eth0")[0];
    assert_eq!((&seen["ifindex"], &seen["group"]), (&json!(44), &json!("6")));
}

#[test]
fn a_ports_flags_are_set_and_read() {
    let space = Space::new();
    let flags = PortFlags {
        hairpin: Some(true),
        isolated: Some(true),
        learning: Some(false),
        mcast_flood: Some(false),
        bpdu_guard: Some(true),
        ..PortFlags::default()
    };
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&LinkSpec { index: Some(9), ..bridge("br0") }));
        batch.push(link::create(&LinkSpec { master: Some(9), ..pair(10, "a", "b") }));
        batch.push(link::set_port(10, &flags));
        netlink.send(batch).unwrap();
        let (yes, no) = (Some(true), Some(false));
        let expected = PortFlags { locked: no, flood: yes, bcast_flood: yes, root_block: no, ..flags };
        assert_eq!(netlink.port_flags(10).unwrap(), Some(expected));
        let refused = netlink.send_one(link::set_port(11, &flags)).unwrap_err();
        assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
        assert!(refused.first().what.starts_with("bridge link set dev if11 hairpin on"), "{refused}");
    });
    let seen = crate::space::json("bridge", &format!("-n {} -d -j link show dev a", space.name));
    let flag = |name: &str| seen[0][name].as_bool();
    assert_eq!((flag("hairpin"), flag("isolated"), flag("learning")), (Some(true), Some(true), Some(false)));
    assert_eq!((flag("mcast_flood"), flag("guard"), flag("flood")), (Some(false), Some(true), Some(true)));
}
