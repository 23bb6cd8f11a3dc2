//! Plans for an interface with index 7, beside one with index 3.

use linux::{Hop, Scope};

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn over(index: u32, dst: &str, gateway: Option<&str>) -> Route {
    Route { oif: Some(index), gateway: gateway.and_then(ip), scope: Some(Scope::Link), ..Route::to(net(dst)) }
}

fn source(address: &str, gateway: Option<&str>) -> Source {
    Source { address: net(address), gateway: gateway.and_then(ip) }
}

/// A pod with a default route over interface 3.
fn found() -> ParsedPlan {
    let connected = Route { src: ip("10.2.0.7"), ..over(7, "10.2.0.0/24", None) };
    let routes = vec![
        over(3, "0.0.0.0/0", Some("10.1.0.1")),
        over(3, "10.1.0.0/24", None),
        over(7, "10.99.0.0/16", Some("10.2.0.9")),
        connected,
        over(7, "fd00:2::/64", None),
        over(7, "fe80::/64", None),
    ];
    ParsedPlan { index: 7, networks: Vec::new(), vrfs: vec![103], rules: vec![Rule::to_table(Family::V4, route::MAIN)], routes }
}

fn shown(routes: &[Route]) -> Vec<String> {
    let one = |r: &Route| {
        let via = r.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        let src = r.src.map(|s| format!(" src {s}")).unwrap_or_default();
        format!("{}{via}{src} table {}", r.dst, r.table)
    };
    routes.iter().map(one).collect()
}

#[test]
fn routes_move_to_the_table_of_their_address() {
    let sources = [source("10.2.0.7/24", Some("10.2.0.1")), source("fd00:2::7/64", Some("fd00:2::1"))];
    let plan = make(&found(), &sources, &Wanted::default()).unwrap();
    let expected = [
        "10.2.0.0/24 src 10.2.0.7 table 100",
        "10.99.0.0/16 via 10.2.0.9 table 100",
        "0.0.0.0/0 via 10.2.0.1 table 100",
        "fd00:2::/64 table 101",
        "fe80::/64 table 101",
        "::/0 via fd00:2::1 table 101",
    ];
    assert_eq!(shown(&plan.routes), expected);
    assert_eq!(plan.rules, [Rule::from_address(ip("10.2.0.7").unwrap(), 100), Rule::from_address(ip("fd00:2::7").unwrap(), 101)]);
    let moved = ["10.2.0.0/24 src 10.2.0.7 table 254", "fd00:2::/64 table 254", "10.99.0.0/16 via 10.2.0.9 table 254"];
    assert_eq!((shown(&plan.moved), plan.left), (moved.map(str::to_owned).to_vec(), vec![]));
}

#[test]
fn a_table_that_anything_names_is_taken() {
    let mut found = found();
    found.rules.push(Rule { priority: 5, ..Rule::to_table(Family::V6, 100) });
    found.routes.push(Route { table: 102, ..over(3, "192.0.2.0/24", None) });
    let sources = [source("10.2.0.7/24", None), source("10.2.0.8/24", None)];
    let tables = make(&found, &sources, &Wanted::default()).unwrap().rules.iter().map(|r| r.table).collect::<Vec<_>>();
    assert_eq!(tables, [101, 104]);
}

#[test]
fn of_a_route_over_two_interfaces_one_way_moves() {
    let hop = |gateway, oif| Hop { gateway: ip(gateway), oif, weight: 1, onlink: false };
    let default = Route { hops: vec![hop("10.1.0.1", 3), hop("10.2.0.1", 7)], ..Route::to(net("0.0.0.0/0")) };
    let found = ParsedPlan { routes: vec![default.clone()], ..found() };
    let plan = make(&found, &[source("10.2.0.7/24", None)], &Wanted::default()).unwrap();
    assert_eq!(shown(&plan.routes), ["0.0.0.0/0 via 10.2.0.1 table 100"]);
    assert_eq!((plan.moved, shown(&plan.left)), (vec![default], vec!["0.0.0.0/0 via 10.1.0.1 table 254".to_owned()]));
}

/// A gateway outside the network of every address, as with a /32.
#[test]
fn no_route_is_lost() {
    let routes = vec![over(7, "169.254.1.1/32", None), over(7, "0.0.0.0/0", Some("169.254.1.1"))];
    let plan = make(&ParsedPlan { routes, ..found() }, &[source("10.2.0.7/32", None)], &Wanted::default()).unwrap();
    assert_eq!(shown(&plan.routes), ["169.254.1.1/32 table 100", "0.0.0.0/0 via 169.254.1.1 table 100"]);
}

#[test]
fn configured_gateways_and_hints() {
    let wanted = Wanted { gateways: vec![ip("10.2.0.77").unwrap()], source_hints: true, ..Wanted::default() };
    let mut found = found();
    found.routes.push(over(7, "0.0.0.0/0", Some("10.2.0.1")));
    let plan = make(&found, &[source("10.2.0.7/24", Some("10.2.0.1"))], &wanted).unwrap();
    let expected = [
        "10.2.0.0/24 src 10.2.0.7 table 100",
        "10.99.0.0/16 via 10.2.0.9 src 10.2.0.7 table 100",
        "0.0.0.0/0 via 10.2.0.77 src 10.2.0.7 table 100",
    ];
    assert_eq!(shown(&plan.routes), expected);
}

#[test]
fn with_a_table_there_are_rules_alone() {
    let wanted = Wanted { table: Some(5001), ..Wanted::default() };
    let sources = [source("10.2.0.7/24", Some("10.2.0.1"))];
    let plan = make(&found(), &sources, &wanted).unwrap();
    assert_eq!(plan, Plan { rules: vec![Rule::from_address(ip("10.2.0.7").unwrap(), 5001)], ..Plan::default() });
    let again = ParsedPlan { rules: plan.rules, ..found() };
    assert_eq!(make(&again, &sources, &wanted).unwrap(), Plan::default());
}

#[test]
fn the_rules_of_others_are_let_alone() {
    let addresses = [ip("10.2.0.7").unwrap()];
    let rule = |table| Rule::from_address(addresses[0], table);
    assert!(is_ours(&rule(100), &addresses, None) && is_ours(&rule(7), &addresses, Some(7)));
    assert!(!is_ours(&rule(254), &addresses, None) && !is_ours(&rule(99), &addresses, None) && !is_ours(&rule(100), &addresses, Some(7)));
    assert!(!is_ours(&Rule { iif: Some("x".into()), ..rule(100) }, &addresses, None) && !is_ours(&rule(100), &[], None));
}
