//! Routes added, read, deleted.

use std::net::IpAddr;

use ipnet::IpNet;
use linux::link::Change;
use linux::{AddrFlags, Batch, Errno, Family, Hop, LinkSpec, Netlink, Route, RouteFilter, RouteKind, Scope, addr, link, route};
use serde_json::json;

use crate::space::{Space, done, output, pair};

fn net(net: &str) -> IpNet {
    net.parse().unwrap()
}

fn ip(ip: &str) -> Option<IpAddr> {
    Some(ip.parse().unwrap())
}

/// Two pairs, all up, index 10 with 10.1.2.3/24 and 2001:db8::3/64, 20 with 10.2.0.1/24.
fn prepared() -> Space {
    let space = Space::new();
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&LinkSpec { up: true, ..pair(10, "a", "b") }));
        batch.push(link::create(&LinkSpec { up: true, ..pair(20, "c", "d") }));
        for index in [11, 21] {
            batch.push(link::set(index, &Change { up: Some(true), ..Change::default() }));
        }
        batch.push(addr::add(10, net("10.1.2.3/24"), AddrFlags::NONE));
        batch.push(addr::add(20, net("10.2.0.1/24"), AddrFlags::NONE));
        batch.push(addr::add(10, net("2001:db8::3/64"), AddrFlags::NODAD));
        netlink.send(batch).unwrap();
    });
    space
}

fn one(netlink: &mut Netlink, dst: &str, filter: RouteFilter) -> Route {
    let routes: Vec<_> = netlink.routes(filter).unwrap().into_iter().filter(|r| r.dst == net(dst)).collect();
    assert_eq!(routes.len(), 1, "{routes:?}");
    routes.into_iter().next().unwrap()
}

#[test]
fn a_route_is_read_as_it_was_written() {
    let space = prepared();
    let route = Route {
        gateway: ip("10.1.2.9"),
        oif: Some(10),
        priority: 7,
        table: 1000,
        src: ip("10.1.2.3"),
        mtu: Some(1400),
        advmss: Some(1360),
        scope: Some(Scope::Universe),
        ..Route::to(net("192.0.2.0/24"))
    };
    let seen = "route show table 1000 192.0.2.0/24";
    space.run(|_, netlink| {
        done(netlink, route::add(&route));
        let filter = RouteFilter { table: Some(1000), ..RouteFilter::default() };
        assert_eq!(netlink.routes(filter).unwrap(), std::slice::from_ref(&route));
        let error = netlink.send_one(route::add(&route)).unwrap_err();
        assert_eq!(error.to_string(), "ip route add 192.0.2.0/24 via 10.1.2.9 dev if10 metric 7 table 1000: EEXIST: File exists");
    });
    let told = &space.ip(seen)[0];
    assert_eq!(
        (&told["gateway"], &told["dev"], &told["metric"], &told["prefsrc"]),
        (&json!("10.1.2.9"), &json!("a"), &json!(7), &json!("10.1.2.3"))
    );
    assert_eq!((&told["metrics"][0]["mtu"], &told["metrics"][0]["advmss"]), (&json!(1400), &json!(1360)));
    space.run(|_, netlink| {
        done(netlink, route::delete(&Route { table: 1000, ..Route::to(net("192.0.2.0/24")) }));
        assert_eq!(netlink.send_one(route::delete(&route)).unwrap_err().errno(), Errno::ESRCH);
        let gone = RouteFilter { table: Some(4321), ..RouteFilter::default() };
        assert_eq!(netlink.routes(gone).unwrap(), []);
        assert_eq!(netlink.routes(RouteFilter { oif: Some(999), ..RouteFilter::default() }).unwrap(), []);
    });
}

#[test]
fn routes_without_a_gateway_on_the_link_and_by_the_other_family() {
    let space = prepared();
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(route::add(&Route { oif: Some(10), ..Route::to(net("192.0.3.0/24")) }));
        batch.push(route::add(&Route { gateway: ip("10.9.9.9"), oif: Some(10), onlink: true, ..Route::to(net("192.0.4.0/24")) }));
        batch.push(route::add(&Route { gateway: ip("fe80::1"), oif: Some(10), ..Route::to(net("192.0.5.0/24")) }));
        batch.push(route::add(&Route { kind: RouteKind::Blackhole, ..Route::to(net("192.0.6.0/24")) }));
        batch.push(route::add(&Route { oif: Some(10), ..Route::to(net("2001:db8:9::/64")) }));
        netlink.send(batch).unwrap();
        let all = RouteFilter { table: Some(route::MAIN), ..RouteFilter::default() };
        assert_eq!(one(netlink, "192.0.3.0/24", all).scope, Some(Scope::Link));
        assert!(one(netlink, "192.0.4.0/24", all).onlink);
        assert_eq!(one(netlink, "192.0.5.0/24", all).gateway, ip("fe80::1"));
        assert_eq!(one(netlink, "192.0.6.0/24", all).kind, RouteKind::Blackhole);
        assert_eq!(one(netlink, "2001:db8:9::/64", all).priority, 1024);
        let refused = netlink.send_one(route::add(&Route { gateway: ip("10.9.9.9"), oif: Some(10), ..Route::to(net("192.0.7.0/24")) }));
        let refused = refused.unwrap_err();
        assert_eq!((refused.errno(), refused.first().text.as_deref()), (Errno::ENETUNREACH, Some("Nexthop has invalid gateway")));
    });
    let told = space.ip("route show");
    let told = |dst: &str| told.as_array().unwrap().iter().find(|r| r["dst"] == dst).unwrap().clone();
    assert_eq!(told("192.0.3.0/24")["scope"], "link");
    assert_eq!(told("192.0.4.0/24")["flags"], json!(["onlink"]));
    assert_eq!(told("192.0.5.0/24")["via"]["host"], "fe80::1");
    assert_eq!(told("192.0.6.0/24")["type"], "blackhole");
}

#[test]
fn several_hops_are_one_route() {
    let space = prepared();
    let hop = |gateway: &str, oif, weight| Hop { gateway: ip(gateway), oif, weight, onlink: false };
    let v6 = Route { hops: vec![hop("2001:db8::8", 10, 2), hop("2001:db8::9", 10, 1)], ..Route::to(net("2001:db8:5::/64")) };
    let v4 = Route { hops: vec![hop("10.1.2.8", 10, 3), hop("10.2.0.9", 20, 1)], ..Route::to(net("192.0.2.0/24")) };
    space.run(|_, netlink| {
        done(netlink, route::add(&v6));
        done(netlink, route::add(&v4));
        let all = RouteFilter::default();
        for (route, dst) in [(&v4, "192.0.2.0/24"), (&v6, "2001:db8:5::/64")] {
            let read = one(netlink, dst, all);
            assert_eq!((&read.hops, read.gateway, read.oif), (&route.hops, None, None));
            assert_eq!(read.ways().count(), 2);
        }
        assert_eq!(one(netlink, "192.0.2.0/24", RouteFilter { oif: Some(20), ..all }).hops.len(), 2);
    });
    // A second IPv6 route by another gateway joins the first: the kernel tells them as one.
    space.ip_do("-6 route add 2001:db8:6::/64 via 2001:db8::8 dev a");
    space.ip_do("-6 route append 2001:db8:6::/64 via 2001:db8::9 dev a");
    space.run(|_, netlink| {
        let read = one(netlink, "2001:db8:6::/64", RouteFilter { family: Some(Family::V6), ..RouteFilter::default() });
        assert_eq!(read.ways().collect::<Vec<_>>(), [(ip("2001:db8::8"), Some(10)), (ip("2001:db8::9"), Some(10))]);
    });
}

#[test]
fn the_default_route_with_the_lowest_metric() {
    let space = prepared();
    space.run(|_, netlink| {
        assert_eq!(netlink.default_route_link(Family::V4).unwrap(), None);
        assert_eq!(netlink.route_to("192.0.2.1".parse().unwrap()).unwrap(), None);
        let default =
            |gateway, oif, priority| Route { gateway: ip(gateway), oif: Some(oif), priority, ..Route::to(Family::V4.everything()) };
        done(netlink, route::add(&default("10.1.2.9", 10, 200)));
        done(netlink, route::add(&default("10.2.0.9", 20, 100)));
        done(netlink, route::add(&Route { table: 77, ..default("10.1.2.8", 10, 1) }));
        assert_eq!(netlink.default_route_link(Family::V4).unwrap(), Some(20));
        assert_eq!(netlink.default_route_link(Family::V6).unwrap(), None);
        let way = netlink.route_to("192.0.2.1".parse().unwrap()).unwrap().unwrap();
        assert_eq!((way.oif, way.gateway, way.src), (Some(20), ip("10.2.0.9"), ip("10.2.0.1")));
        assert_eq!(netlink.route_to("2001:db8::9".parse().unwrap()).unwrap().unwrap().oif, Some(10));
        assert_eq!(netlink.route_to("2001:db9::9".parse().unwrap()).unwrap(), None);
        done(netlink, route::add(&Route { kind: RouteKind::Unreachable, ..Route::to(net("192.0.9.0/24")) }));
        assert_eq!(netlink.route_to("192.0.9.1".parse().unwrap()).unwrap(), None);
    });
}

/// Where the kernel tells only the number of a route's next hops, the ways are those of that object.
#[test]
fn next_hops_that_are_named_by_number() {
    let space = prepared();
    for line in [
        "nexthop add id 1 via 10.1.2.8 dev a",
        "nexthop add id 2 via 10.9.9.9 dev c onlink",
        "nexthop add id 3 group 1/2,2",
        "nexthop add id 4 via 2001:db8::8 dev a",
        "route add 192.0.2.0/24 nhid 1",
        "route add 192.0.3.0/24 nhid 3",
        "-6 route add 2001:db8:5::/64 nhid 4",
    ] {
        space.ip_do(line);
    }
    let all = RouteFilter::default();
    let read = |netlink: &mut Netlink| ["192.0.2.0/24", "192.0.3.0/24", "2001:db8:5::/64"].map(|dst| one(netlink, dst, all));
    let told = space.run(|_, netlink| read(netlink));
    output("ip", &format!("netns exec {} sysctl -qw net.ipv4.nexthop_compat_mode=0", space.name()));
    space.run(|_, netlink| {
        let seen = read(netlink);
        let ways = |route: &Route| (route.hops.clone(), route.gateway, route.oif, route.nexthop);
        assert_eq!(seen.each_ref().map(ways), told.each_ref().map(ways), "as the kernel tells them otherwise");
        let [single, group, v6] = seen;
        assert_eq!((single.gateway, single.oif), (ip("10.1.2.8"), Some(10)));
        let hop = |gateway: &str, oif, weight, onlink| Hop { gateway: ip(gateway), oif, weight, onlink };
        assert_eq!(group.hops, [hop("10.1.2.8", 10, 1, false), hop("10.9.9.9", 20, 2, true)]);
        assert_eq!((v6.gateway, v6.oif), (ip("2001:db8::8"), Some(10)));
        let mut over = |oif| netlink.routes(RouteFilter { oif: Some(oif), table: Some(route::MAIN), ..all }).unwrap();
        assert!(over(20).iter().any(|route| route.dst == net("192.0.3.0/24")));
        assert!(over(20).iter().all(|route| route.dst != net("192.0.2.0/24")));
    });
}
