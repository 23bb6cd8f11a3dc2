//! Links of every kind, made and read.

use linux::link::{Bridge, Kind, Macvlan, Peer};
use linux::{Batch, Errno, IpvlanMode, Link, LinkSpec, MacvlanMode, Netlink, Reply, Request, link};
use serde_json::json;
use std::os::fd::AsFd;

use crate::space::{Space, bridge, done, found, mac, name, pair, veth};

#[test]
fn a_veth_pair_is_born_complete_in_two_namespaces() {
    let (host, pod) = (Space::new(), Space::new());
    host.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&LinkSpec { index: Some(50), up: true, ..bridge("br0") }));
        batch.push(link::create(&LinkSpec {
            index: Some(70),
            master: Some(50),
            mtu: Some(1400),
            mac: Some(mac("02:00:00:00:00:01")),
            group: Some(9),
            txqlen: Some(500),
            queues: Some(3),
            up: true,
            ..LinkSpec::new(
                name("host0"),
                Kind::Veth(Peer {
                    index: Some(80),
                    mtu: Some(1300),
                    mac: Some(mac("02:00:00:00:00:02")),
                    group: Some(0x7fff_ffff),
                    queues: Some(1),
                    netns: Some(pod.netns.as_fd()),
                    ..Peer::new(name("eth0"))
                }),
            )
        }));
        assert_eq!(netlink.send(batch).unwrap(), [Reply::Done, Reply::Done]);

        let read = found(netlink, "host0");
        assert_eq!((read.index, read.mtu, read.master, read.group, read.txqlen), (70, 1400, Some(50), 9, 500));
        assert_eq!((read.mac, read.kind.as_deref(), read.parent), (Some(mac("02:00:00:00:00:01")), Some("veth"), Some(80)));
        assert!(read.flags.up() && !read.flags.lower_up() && read.link_netnsid.is_some() && read.port.is_some());
        // The kernel looks a moment later why it is down; an older one (6.1) also, whether it is.
        assert!(!matches!(read.operstate, link::OperState::Up | link::OperState::Dormant), "{:?}", read.operstate);
        assert_eq!(netlink.link_by_index(70).unwrap().unwrap().name, "host0");
    });
    let outer = &host.ip("link show dev host0")[0];
    assert_eq!(
        (&outer["ifindex"], &outer["mtu"], &outer["master"], &outer["group"], &outer["txqlen"], &outer["address"]),
        (&json!(70), &json!(1400), &json!("br0"), &json!("9"), &json!(500), &json!("02:00:00:00:00:01"))
    );
    assert_eq!(outer["linkinfo"]["info_kind"], "veth");
    let queues = |link: &serde_json::Value| (link["num_tx_queues"].as_u64(), link["num_rx_queues"].as_u64());
    assert_eq!(queues(outer), (Some(3), Some(3)));
    let inner = &pod.ip("link show dev eth0")[0];
    assert_eq!(queues(inner), (Some(1), Some(1)));
    assert_eq!(
        (&inner["ifindex"], &inner["mtu"], &inner["group"], &inner["address"], &inner["operstate"]),
        (&json!(80), &json!(1300), &json!("2147483647"), &json!("02:00:00:00:00:02"), &json!("DOWN"))
    );
}

#[test]
fn a_bridge_is_made_with_its_properties() {
    let space = Space::new();
    space.run(|_, netlink| {
        let kind = Kind::Bridge(Bridge { stp: Some(true), ..Bridge::default() });
        done(netlink, link::create(&LinkSpec { up: true, ..LinkSpec::new(name("br.1"), kind) }));
        let read = found(netlink, "br.1");
        assert!(read.is("bridge"));
        assert_eq!(read.bridge.unwrap().stp, Some(true));
        assert_eq!((read.macvlan, read.port), (None, None));
        assert_eq!(read.bridge.unwrap().no_linklocal_learn, Some(false));
        for on in [true, false, true] {
            done(netlink, link::set_bridge(read.index, &Bridge { no_linklocal_learn: Some(on), ..Bridge::default() }));
            let read = found(netlink, "br.1").bridge.unwrap();
            assert_eq!((read.no_linklocal_learn, read.stp), (Some(on), Some(true)));
        }
        assert_eq!(read.bridge.unwrap().netfilter, Some(false));
        done(netlink, link::set_bridge(read.index, &Bridge { netfilter: Some(true), ..Bridge::default() }));
        assert_eq!(found(netlink, "br.1").bridge.unwrap().netfilter, Some(true));
    });
    let seen = &space.ip("link show dev br.1")[0];
    let data = &seen["linkinfo"]["info_data"];
    assert_eq!(
        (&data["no_linklocal_learn"], &data["nf_call_iptables"], &data["nf_call_ip6tables"]),
        (&json!(1), &json!(1), &json!(1)),
        "{seen}"
    );
    assert_eq!((&seen["linkinfo"]["info_kind"], &seen["linkinfo"]["info_data"]["stp_state"]), (&json!("bridge"), &json!(1)));
    assert!(seen["flags"].as_array().unwrap().contains(&json!("UP")), "{seen}");
}

/// The machine's kernel may lack it: then `ip` does not tell it either.
#[test]
fn vlan_filtering_is_read_where_the_kernel_has_it() {
    let space = Space::new();
    let read = space.run(|_, netlink| {
        let kind = Kind::Bridge(Bridge { vlan_filtering: Some(true), vlan_default_pvid: Some(7), ..Bridge::default() });
        netlink.send_one(link::create(&LinkSpec::new(name("br0"), kind))).ok().map(|_| found(netlink, "br0").bridge.unwrap())
    });
    match read {
        Some(read) => {
            let seen = &space.ip("link show dev br0")[0]["linkinfo"]["info_data"];
            assert_eq!(read.vlan_filtering.map(u64::from), seen["vlan_filtering"].as_u64());
            assert_eq!(read.vlan_default_pvid.map(u64::from), seen["vlan_default_pvid"].as_u64());
        }
        None => assert!(!space.has("br0")),
    }
}

#[test]
fn macvlans_of_every_mode_are_born_in_the_pod() {
    for (mode, number) in [(MacvlanMode::Bridge, 81), (MacvlanMode::Private, 82), (MacvlanMode::Vepa, 83), (MacvlanMode::Passthru, 84)] {
        let (host, pod) = (Space::new(), Space::new());
        let bc_queue_len = (mode == MacvlanMode::Bridge).then_some(500);
        host.run(|_, netlink| {
            done(netlink, link::create(&LinkSpec { up: true, ..pair(60, "parent", "other") }));
            let kind = Kind::Macvlan { parent: 60, macvlan: Macvlan { mode, bc_queue_len } };
            let spec = LinkSpec { index: Some(number), netns: Some(pod.netns.as_fd()), ..LinkSpec::new(name("net1"), kind) };
            let request = link::create(&spec);
            assert_eq!(request.what(), format!("ip link add net1 type macvlan link if60 mode {mode}"));
            done(netlink, request);
        });
        let seen = &pod.ip("link show dev net1")[0];
        assert_eq!((&seen["ifindex"], &seen["linkinfo"]["info_data"]["mode"]), (&json!(number), &json!(mode.to_string())));
        assert_eq!(seen["linkinfo"]["info_data"]["bcqueuelen"], bc_queue_len.unwrap_or(1000));
        let read = pod.run(|_, netlink| (netlink.macvlan(number).unwrap().unwrap(), found(netlink, "net1")));
        assert_eq!((read.0.mode, read.0.bc_queue_len), (mode, Some(bc_queue_len.unwrap_or(1000))));
        assert_eq!((read.1.parent, read.1.link_netnsid.is_some()), (Some(60), true));
    }
}

/// What it answers is what `ip link add` does, and nothing is made. A kernel may lack vlan, ipvlan, dummy and VRF.
#[test]
fn a_kind_is_asked_for_without_a_link_of_it() {
    let space = Space::new();
    let before = space.ip("link show");
    for (kind, add) in [
        ("veth", "name a0 type veth peer name b0"),
        ("bridge", "name a0 type bridge"),
        ("macvlan", "link parent name a0 type macvlan"),
        ("vlan", "link parent name a0 type vlan id 5"),
        ("ipvlan", "link parent name a0 type ipvlan"),
        ("dummy", "name a0 type dummy"),
        ("vrf", "name a0 type vrf table 5"),
        ("no-such-kind", "name a0 type no-such-kind"),
    ] {
        let known = space.run(|_, netlink| link::probe(netlink, kind).unwrap());
        assert_eq!(space.ip("link show"), before, "{kind}");
        let other = Space::new();
        other.ip_do("link add parent type veth peer name peer");
        let made = std::process::Command::new("ip").args(["-n", &other.name, "link", "add"]).args(add.split(' ')).output().unwrap();
        assert_eq!(known, made.status.success(), "{kind}: {}", String::from_utf8_lossy(&made.stderr));
    }
    for known in ["veth", "bridge", "macvlan"] {
        assert!(space.run(|_, netlink| link::probe(netlink, known).unwrap()), "{known}");
    }
    assert!(!space.run(|_, netlink| link::probe(netlink, "no-such-kind").unwrap()));
}

/// Where the kernel has them; where it lacks one, that is what the error says.
#[test]
fn vlan_ipvlan_dummy_and_vrf_are_read_as_they_were_made() {
    let (host, pod) = (Space::new(), Space::new());
    host.run(|_, netlink| done(netlink, link::create(&LinkSpec { up: true, ..pair(60, "parent", "other") })));
    let mode = IpvlanMode::L3s;
    for (kind, words, key, value) in [
        (Kind::Vlan { parent: 60, id: 4094 }, "vlan link if60 id 4094", "id", json!(4094)),
        (Kind::Ipvlan { parent: 60, mode }, "ipvlan link if60 mode l3s", "mode", json!("l3s")),
        (Kind::Dummy, "dummy", "", json!(null)),
        (Kind::Vrf { table: 1001 }, "vrf table 1001", "table", json!(1001)),
    ] {
        let called = kind.name();
        let spec = LinkSpec { index: Some(70), group: Some(7), netns: Some(pod.netns.as_fd()), ..LinkSpec::new(name("net1"), kind) };
        let request = link::create(&spec);
        assert_eq!(request.what(), format!("ip link add net1 type {words}"));
        let there = host.run(|_, netlink| match link::probe(netlink, called).unwrap() {
            true => netlink.send_one(request).map(|_| true).unwrap(),
            false => netlink.send_one(request).map(|_| true).unwrap_or_else(|e| e.errno() != Errno::EOPNOTSUPP),
        });
        if !there {
            continue;
        }
        let seen = &pod.ip("link show dev net1")[0];
        assert_eq!((&seen["ifindex"], &seen["group"], &seen["linkinfo"]["info_kind"]), (&json!(70), &json!("7"), &json!(called)));
        assert_eq!(seen["linkinfo"]["info_data"][key], value, "{seen}");
        let read = pod.run(|_, netlink| found(netlink, "net1"));
        let expected = match called {
            "vlan" => (Some(4094), None, None),
            "ipvlan" => (None, Some(mode), None),
            "vrf" => (None, None, Some(1001)),
            _ => (None, None, None),
        };
        assert_eq!((read.vlan, read.ipvlan, read.vrf_table), expected);
        assert_eq!(read.parent, ["vlan", "ipvlan"].contains(&called).then_some(60));
        pod.run(|_, netlink| done(netlink, link::delete(70)));
    }
}

/// What the kernel sends back of a link that it has made; a kernel before 6.2 sends nothing, and is asked.
fn told(netlink: &mut Netlink, request: Request<'_>, name: &str) -> Link {
    match netlink.send_one(request.echo()).unwrap() {
        Reply::Link(made) => *made,
        other => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let older = release.starts_with("5.") || release.starts_with("6.0.") || release.starts_with("6.1.");
            assert!(older && other == Reply::Done, "Linux {release}: {other:?}");
            found(netlink, name)
        }
    }
}

#[test]
fn the_kernel_chooses_and_tells() {
    let space = Space::new();
    space.run(|_, netlink| {
        let made = told(netlink, link::create(&bridge("br0")), "br0");
        assert_eq!((made.name.as_str(), made.index), ("br0", found(netlink, "br0").index));
    });
}

#[test]
fn the_other_end_is_told_as_a_pair_is_made() {
    for inner in [41, 40] {
        let (host, pod) = (Space::new(), Space::new());
        host.run(|_, netlink| {
            let peer = Peer { index: Some(inner), netns: Some(pod.netns.as_fd()), ..Peer::new(name("eth0")) };
            let spec = LinkSpec { index: Some(40), up: true, ..LinkSpec::new(name("host0"), Kind::Veth(peer)) };
            let made = told(netlink, link::create(&spec), "host0");
            assert_eq!((made.other_end(), found(netlink, "host0").other_end()), (inner, inner));
        });
        assert_eq!(pod.run(|_, netlink| found(netlink, "eth0")).other_end(), 40);
    }
}

#[test]
fn what_is_not_there_is_none() {
    let space = Space::new();
    space.run(|_, netlink| {
        for absent in ["nothing", "", "a_name_longer_than_any", "a\0b", "a/b", ".", "\u{fc}"] {
            assert_eq!(netlink.link(absent).unwrap(), None, "{absent:?}");
        }
        for absent in [0, 999, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            assert!(netlink.link_by_index(absent).is_ok_and(|l| l.is_none()), "{absent}");
        }
        assert_eq!(netlink.macvlan(1).unwrap(), None);
        assert_eq!(netlink.port_flags(1).unwrap(), None);
        assert_eq!(netlink.send_one(link::get(&name("nothing"))).unwrap(), Reply::Tolerated(Errno::ENODEV));
        let lo = found(netlink, "lo");
        assert_eq!((lo.index, lo.kind, lo.flags.loopback(), lo.flags.up()), (1, None, true, false));
    });
}

/// More than one datagram, with names and an alias that are no UTF-8.
#[test]
fn all_links_are_read_whatever_they_are_called() {
    let space = Space::new();
    space.run(|_, netlink| {
        let batch = (0..100).map(|i| link::create(&veth(&format!("a{i}"), &format!("b{i}")))).collect();
        netlink.send(batch).unwrap();
    });
    for arg in [&b"a7"[..], b"b9"] {
        use std::os::unix::ffi::OsStrExt;
        let odd = std::ffi::OsStr::from_bytes(b"x\xff\xfe");
        let run = |args: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new("ip").args(["-n", &space.name, "link", "set", "dev"]).args(args).status();
            assert!(status.unwrap().success());
        };
        run(&[std::ffi::OsStr::from_bytes(arg), "alias".as_ref(), odd]);
        if arg == b"a7" {
            run(&["a7".as_ref(), "name".as_ref(), odd]);
        }
    }
    space.run(|_, netlink| {
        let links = netlink.links().unwrap();
        assert_eq!(links.len(), 201);
        assert!(links.is_sorted_by_key(|link| link.index));
        assert_eq!(links.iter().filter(|l| l.alias.as_deref() == Some("x\u{fffd}\u{fffd}")).count(), 2);
        assert_eq!(links.iter().filter(|l| l.name == "x\u{fffd}\u{fffd}").count(), 1);
    });
}
