//! What the kernel reports of changes.

use std::time::Duration;

use linux::link::{Change, Kind, Vxlan};
use linux::{AddrFlags, LinkSpec, Monitor, Notice, Object, Route, addr, fdb, link, neigh, route};

use crate::space::{Space, done, mac, name, pair};

/// All that was reported until now, a line for each.
fn reported(monitor: &mut Monitor) -> Vec<String> {
    let all = std::iter::from_fn(|| monitor.next(Some(Duration::ZERO)).unwrap());
    all.map(|notice| {
        let (sign, object) = match notice {
            Notice::Present(object) => ('+', object),
            Notice::Gone(object) => ('-', object),
            Notice::Lost => return "lost".to_owned(),
        };
        match object {
            Object::Link(link) => format!("{sign}link {}", link.name),
            Object::Address(address) => format!("{sign}address {}", address.net),
            Object::Route(route) => format!("{sign}route {} proto {}", route.dst, route.proto),
            Object::Neighbour(neighbour) => format!("{sign}neighbour {} {}", neighbour.address, neighbour.permanent),
            Object::Fdb(entry) => format!("{sign}fdb {} {:?}", entry.mac, entry.endpoint),
            other => format!("{sign}{other:?}"),
        }
    })
    .collect()
}

#[track_caller]
fn has(all: &[String], line: &str) {
    assert!(all.iter().any(|reported| reported == line), "{line}: not among {all:#?}");
}

#[test]
fn links_addresses_routes_neighbours_and_forwarding_entries_are_reported() {
    let space = Space::new();
    let mut monitor = space.netns.enter(|inside| Monitor::open(inside).unwrap()).unwrap();
    let vtep = mac("02:5e:00:00:00:01");
    let vxlan = Vxlan { vni: 1, port: 8472, local: Some([192, 0, 2, 1].into()), remote: None, link: None, learning: false };
    let net = "10.1.2.3/24".parse().unwrap();
    let dst = Route { oif: Some(10), proto: 110, ..Route::to("192.0.2.0/24".parse().unwrap()) };
    space.run(|_, netlink| {
        done(netlink, link::create(&LinkSpec { up: true, ..pair(10, "a", "b") }));
        done(netlink, addr::add(10, net, AddrFlags::NONE));
        done(netlink, route::add(&dst));
        done(netlink, neigh::replace(10, [10, 1, 2, 9].into(), &vtep));
        done(netlink, link::create(&LinkSpec { index: Some(20), ..LinkSpec::new(name("vx0"), Kind::Vxlan(vxlan)) }));
        done(netlink, fdb::replace(20, &vtep, [192, 0, 2, 2].into()));
    });
    let all = reported(&mut monitor);
    for line in ["+link a", "+link b", "+address 10.1.2.3/24", "+route 192.0.2.0/24 proto 110", "+neighbour 10.1.2.9 true", "+link vx0"] {
        has(&all, line);
    }
    has(&all, "+fdb 02:5e:00:00:00:01 Some(192.0.2.2)");
    // The kernel reports the pair once more when it has looked at its carrier, which it does by and by.
    while let Some(late) = monitor.next(Some(Duration::from_millis(1))).unwrap() {
        assert!(matches!(&late, Notice::Present(Object::Link(link)) if ["a", "b"].contains(&link.name.as_str())), "{late:?}");
    }
    space.run(|_, netlink| {
        done(netlink, fdb::delete(20, &vtep));
        done(netlink, neigh::delete(10, [10, 1, 2, 9].into()));
        // Of two routes of different programs, one.
        done(netlink, route::replace(&Route { priority: 7, proto: 3, ..dst.clone() }));
        done(netlink, route::delete_of_proto(&dst));
        done(netlink, addr::delete(10, net));
        done(netlink, link::set(20, &Change { mtu: Some(1400), ..Change::default() }));
        done(netlink, link::delete(20));
    });
    let all = reported(&mut monitor);
    for line in
        ["-fdb 02:5e:00:00:00:01 Some(192.0.2.2)", "-route 192.0.2.0/24 proto 110", "-address 10.1.2.3/24", "+link vx0", "-link vx0"]
    {
        has(&all, line);
    }
    assert!(all.iter().any(|line| line.starts_with("-neighbour 10.1.2.9")), "{all:#?}");
    assert!(!all.contains(&"-route 192.0.2.0/24 proto 3".to_owned()), "{all:#?}");
}

#[test]
fn more_than_the_socket_holds_is_reported_as_lost() {
    let space = Space::new();
    let mut monitor = space.netns.enter(|inside| Monitor::open(inside).unwrap()).unwrap();
    space.run(|_, netlink| {
        done(netlink, link::create(&LinkSpec { up: true, ..pair(10, "a", "b") }));
        for round in 0..4_u8 {
            let routes = (0..=u16::MAX / 4).map(|n| {
                let [high, low] = n.to_be_bytes();
                let dst = format!("10.{high}.{low}.0/24").parse().unwrap();
                route::replace(&Route { oif: Some(10), priority: u32::from(round) + 1, ..Route::to(dst) })
            });
            netlink.send(routes.collect()).unwrap();
        }
    });
    assert!(reported(&mut monitor).contains(&"lost".to_owned()));
    space.run(|_, netlink| done(netlink, link::delete(10)));
    has(&reported(&mut monitor), "-link a");
}
