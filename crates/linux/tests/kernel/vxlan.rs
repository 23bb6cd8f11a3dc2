//! A vxlan, who is behind it, and by which endpoint; who is behind which port of a bridge.

use std::net::IpAddr;
use std::process::Command;

use linux::link::{Kind, Vxlan};
use linux::{Batch, Errno, Family, LinkSpec, Netlink, fdb, link, neigh};
use serde_json::json;

use crate::space::{Space, done, found, mac, name};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn plain(port: u16, local: &str) -> Vxlan {
    Vxlan { vni: 4096, port, local: Some(ip(local)), remote: None, link: None, learning: false }
}

/// A vxlan with index 10, up.
fn make(netlink: &mut Netlink, vxlan: Vxlan) {
    done(netlink, link::create(&LinkSpec { index: Some(10), up: true, ..LinkSpec::new(name("vx0"), Kind::Vxlan(vxlan)) }));
}

#[test]
fn a_vxlan_is_read_as_it_was_made_and_changed() {
    for (local, other, remote) in [("192.0.2.1", "192.0.2.2", "192.0.2.3"), ("2001:db8::1", "2001:db8::2", "2001:db8::3")] {
        let space = Space::new();
        let vxlan = plain(4789, local);
        space.run(|_, netlink| {
            make(netlink, vxlan);
            assert_eq!(found(netlink, "vx0").vxlan, Some(vxlan));
            let twin = netlink.send_one(link::create(&LinkSpec::new(name("vx1"), Kind::Vxlan(vxlan)))).unwrap_err();
            assert_eq!(twin.errno(), Errno::EEXIST);
        });
        let shown = space.ip("link show dev vx0");
        let data = &shown[0]["linkinfo"]["info_data"];
        assert_eq!((&data["id"], &data["port"], &data["learning"]), (&json!(4096), &json!(4789), &json!(false)));
        // Whatever another program has made of it, it is made plain again.
        space.ip_do(&format!("link set vx0 type vxlan remote {remote} learning"));
        space.run(|_, netlink| {
            let changed = Vxlan { remote: Some(ip(remote)), learning: true, ..vxlan };
            assert_eq!(found(netlink, "vx0").vxlan, Some(changed));
            let moved = plain(4789, other);
            done(netlink, link::set_vxlan(10, &moved));
            assert_eq!(found(netlink, "vx0").vxlan, Some(moved));
        });
    }
}

/// Why a vxlan that another program has bound to a link has to be made again.
#[test]
fn a_vxlan_is_bound_to_a_link_and_never_freed_from_it() {
    let space = Space::new();
    let vxlan = plain(8472, "192.0.2.1");
    space.run(|_, netlink| make(netlink, vxlan));
    for bridge in ["br0", "br1"] {
        space.ip_do(&format!("link add {bridge} type bridge"));
        space.run(|_, netlink| {
            let bound = Vxlan { link: Some(found(netlink, bridge).index), ..vxlan };
            done(netlink, link::set_vxlan(10, &bound));
            assert_eq!(found(netlink, "vx0").vxlan, Some(bound));
            done(netlink, link::set_vxlan(10, &vxlan));
            assert_eq!(found(netlink, "vx0").vxlan, Some(bound));
        });
    }
}

#[test]
fn forwarding_entries_are_written_read_and_removed() {
    let space = Space::new();
    let (one, two) = (mac("02:5e:00:00:00:01"), mac("02:5e:00:00:00:02"));
    space.run(|_, netlink| {
        make(netlink, plain(8472, "192.0.2.1"));
        let mut batch = Batch::new();
        batch.push(fdb::replace(10, &one, ip("192.0.2.11")));
        batch.push(fdb::replace(10, &two, ip("192.0.2.12")));
        batch.push(fdb::replace(10, &one, ip("192.0.2.13")));
        netlink.send(batch).unwrap();
        let mut entries = netlink.fdb(10).unwrap();
        entries.sort_by_key(|entry| entry.mac.clone());
        let read: Vec<_> = entries.iter().map(|entry| (entry.index, &entry.mac, entry.endpoint, entry.plain)).collect();
        assert_eq!(read, [(10, &one, Some(ip("192.0.2.13")), true), (10, &two, Some(ip("192.0.2.12")), true)]);
        done(netlink, fdb::delete(10, &two));
        assert_eq!(netlink.send_one(fdb::delete(10, &two)).unwrap_err().errno(), Errno::ENOENT);
        assert_eq!(netlink.fdb(99).unwrap(), []);
        assert!(netlink.send_one(fdb::replace(10, &two, ip("2001:db8::1"))).is_err(), "an endpoint of the other family");
    });
    let shown = crate::space::json("bridge", &format!("-n {} -j fdb show dev vx0", space.name()));
    assert_eq!(shown, json!([{"mac": "02:5e:00:00:00:01", "dst": "192.0.2.13", "flags": ["self"], "state": "permanent"}]));
    // What is not as we would write it is read as such, and goes with all of its endpoints.
    for line in ["02:5e:00:00:00:03 dst 192.0.2.14 port 99 self permanent", "02:5e:00:00:00:04 dst 192.0.2.14 self dynamic"] {
        let (mac, rest) = line.split_once(' ').unwrap();
        crate::space::output("bridge", &format!("-n {} fdb add {mac} dev vx0 {rest}", space.name()));
    }
    for endpoint in ["192.0.2.15", "192.0.2.16"] {
        let line = format!("-n {} fdb append 00:00:00:00:00:00 dev vx0 dst {endpoint} self permanent", space.name());
        crate::space::output("bridge", &line);
    }
    space.run(|_, netlink| {
        let odd: Vec<_> = netlink.fdb(10).unwrap().into_iter().filter(|entry| entry.mac != one).collect();
        assert_eq!(odd.iter().filter(|entry| entry.plain).count(), 2, "{odd:?}");
        let macs: std::collections::BTreeSet<_> = odd.into_iter().map(|entry| entry.mac).collect();
        assert_eq!(macs.len(), 3);
        netlink.send(macs.iter().map(|mac| fdb::delete(10, mac)).collect()).unwrap();
        assert_eq!(netlink.fdb(10).unwrap().len(), 1);
    });
}

#[test]
fn neighbours_are_written_read_and_removed() {
    let space = Space::new();
    let (one, two) = (mac("02:5e:00:00:00:01"), mac("02:5e:00:00:00:02"));
    space.run(|_, netlink| {
        make(netlink, plain(8472, "192.0.2.1"));
        for address in ["10.1.2.0", "fd00:1:2::"].map(ip) {
            done(netlink, neigh::replace(10, address, &one));
            done(netlink, neigh::replace(10, address, &two));
        }
        let mut read: Vec<_> = netlink.neighbours(10).unwrap().into_iter().filter(|neighbour| neighbour.permanent).collect();
        read.sort_by_key(|neighbour| neighbour.address);
        let read: Vec<_> = read.iter().map(|neighbour| (neighbour.index, neighbour.address, neighbour.mac.as_ref())).collect();
        assert_eq!(read, [(10, ip("10.1.2.0"), Some(&two)), (10, ip("fd00:1:2::"), Some(&two))]);
        done(netlink, neigh::delete(10, ip("10.1.2.0")));
        assert_eq!(netlink.send_one(neigh::delete(10, ip("10.1.2.0"))).unwrap_err().errno(), Errno::ENOENT);
        assert_eq!(netlink.neighbours(99).unwrap(), []);
        for family in [Family::V4, Family::V6] {
            let table = netlink.neighbour_table(family).unwrap().unwrap();
            assert!(table.entries <= table.most && table.most > 0, "{table:?}");
        }
    });
}

/// Entries of a vxlan that is a port are its own.
#[test]
fn who_is_behind_a_bridges_ports() {
    let space = Space::new();
    space.ip_do("link add br0 index 20 type bridge");
    space.ip_do("link add br1 index 21 type bridge");
    space.ip_do("link add port0 index 30 master br0 type veth peer name end0");
    space.ip_do("link add port1 index 31 master br1 type veth peer name end1");
    space.run(|_, netlink| make(netlink, plain(4789, "192.0.2.1")));
    space.ip_do("link set vx0 master br0");
    for line in
        ["02:00:00:00:00:07 dev port0 master static", "02:00:00:00:00:08 dev port1 master", "02:00:00:00:00:09 dev vx0 dst 192.0.2.9"]
    {
        let bridge = || Command::new("bridge").args(["fdb", "add"]).args(line.split(' ')).status().unwrap();
        assert!(space.run(|_, _| bridge()).success(), "{line}");
    }
    let behind = |netlink: &mut Netlink, address: &str| -> Vec<u32> {
        let stations = netlink.stations(20).unwrap();
        let mut ports: Vec<u32> = stations.iter().filter(|(own, _)| *own == mac(address)).map(|(_, port)| *port).collect();
        ports.dedup();
        ports
    };
    space.run(|_, netlink| {
        assert_eq!(behind(netlink, "02:00:00:00:00:07"), [30]);
        assert_eq!(behind(netlink, "02:00:00:00:00:08"), [0; 0], "of another bridge");
        assert_eq!(behind(netlink, "02:00:00:00:00:09"), [0; 0], "of the vxlan");
        assert_eq!(netlink.stations(99).unwrap(), []);
    });
}
