//! Services: kube-proxy's rules lead a packet to one of several endpoints, or not.

use linux::nft::{ListedBase, ListedChain, ListedData, ListedElement, ListedHeader, ListedRule, ListedSet, ListedTable, ListedVerdict, Op};

use super::scene::{Mode, ip, link, network, of, put, route};
use super::{A, A2, B, BOTH, REPLY, REQUEST, broken, check};
use crate::snapshot::Snapshot;
use crate::{CASES, Check, Expected, ExpectedSource, Fault, Observation, explain};

/// The Service's address in the cluster; its port is that of the probes.
const SERVICE: &str = "10.96.0.5";

/// Pod `a` asks the Service, by which each of these may answer.
fn to_service(case: &str, answerers: &[&str], at: &str) -> Check {
    let case = CASES.iter().find(|known| known.id == case).unwrap();
    let answerers = answerers.iter().map(|place| place.parse().unwrap()).collect();
    Check { case, answerers, expected: Expected::Answer(ExpectedSource::Anyhow), ..check(B, at) }
}

fn based(name: &str, kind: &str, hook: u32, priority: i32, ops: Vec<Op>) -> ListedChain {
    let base = Some(ListedBase { kind: kind.to_owned(), hook, priority, ..ListedBase::default() });
    ListedChain { name: name.to_owned(), base, rules: vec![rule(hook.into(), ops)] }
}

fn rule(handle: u64, ops: Vec<Op>) -> ListedRule {
    ListedRule { handle, ops, ..ListedRule::default() }
}

/// Rules as kube-proxy's mode nftables has them: a map leads address, protocol and port to a Service, chance to an endpoint.
fn proxy(endpoints: &[&str]) -> ListedTable {
    let key = |at: &str| [octets(at), vec![6, 0, 0, 0], crate::PORT.to_be_bytes().to_vec(), vec![0, 0]].concat();
    let goto = |chain: &str| Some(ListedData::Verdict(ListedVerdict::Goto(chain.to_owned())));
    let element = |key: Vec<u8>, data| ListedElement { key, data, ..ListedElement::default() };
    let services = ListedSet {
        name: "service-ips".to_owned(),
        key_len: 12,
        elements: vec![element(key(SERVICE), goto("service")), element(key("172.30.0.2"), goto("service"))],
        ..ListedSet::default()
    };
    let by_chance =
        |(number, _): (usize, &&str)| element(u32::try_from(number).unwrap().to_ne_bytes().to_vec(), goto(&format!("endpoint-{number}")));
    let chances = ListedSet {
        name: "__map0".to_owned(),
        key_len: 4,
        elements: endpoints.iter().enumerate().map(by_chance).collect(),
        ..ListedSet::default()
    };
    let lookup = |set: &str| Op::Lookup { at: 0, set: set.to_owned(), negated: false, into: None };
    let to_services = vec![
        Op::Payload { header: ListedHeader::Network, offset: 16, len: 4, into: 0 },
        Op::Meta { key: 16, into: 4 },
        Op::Payload { header: ListedHeader::Transport, offset: 2, len: 2, into: 8 },
        lookup("service-ips"),
    ];
    let modulus = u32::try_from(endpoints.len()).unwrap();
    let service = ListedChain {
        name: "service".to_owned(),
        base: None,
        rules: vec![rule(20, vec![Op::Choice { into: 0, modulus, offset: 0 }, lookup("__map0")])],
    };
    let endpoint = |(number, at): (usize, &&str)| {
        let ops = vec![Op::Load { into: 0, value: octets(at) }, Op::Dnat { address: Some(0), port: None }];
        ListedChain { name: format!("endpoint-{number}"), base: None, rules: vec![rule(30, ops)] }
    };
    let mut chains =
        vec![based("nat-prerouting", "nat", 0, -100, to_services.clone()), based("nat-output", "nat", 3, -100, to_services), service];
    chains.extend(endpoints.iter().enumerate().map(endpoint));
    ListedTable { family: "ip".to_owned(), name: "kube-proxy".to_owned(), chains, sets: vec![services, chances] }
}

fn octets(at: &str) -> Vec<u8> {
    at.split('.').map(|octet| octet.parse().unwrap()).collect()
}

/// Both nodes serve the Service.
fn served(endpoints: &'static [&'static str]) -> impl Fn(&mut Snapshot) {
    move |s| ["node/a", "node/b"].into_iter().for_each(|node| of(s, node).tables.push(proxy(endpoints)))
}

/// Of two endpoints both are followed: the one that is broken is named, and how the packet got there.
#[test]
fn each_endpoint_is_followed() {
    let to_two = to_service("17", &[A2, B], SERVICE);
    let both = served(&["10.244.0.3", "10.244.1.2"]);
    let to_b = to_service("21", &[B], SERVICE);
    broken(BOTH, &to_b, served(&["10.244.1.2"]), Fault::Unexplained, A, REQUEST);
    for pod in [A2, B] {
        let breaks = |s: &mut Snapshot| {
            both(s);
            // The answer of a pod on the same node must pass the node, not its bridge alone.
            put(s, A2, "10.244.0.0/24", route("10.244.0.0/24", Some("10.244.0.1"), 2));
            link(s, pod, 2).addresses[0].usable = false;
        };
        broken(BOTH, &to_two, breaks, Fault::AddressUnusable, &format!("{pod} eth0"), REQUEST);
        let mut snapshot = network(Mode::Direct);
        breaks(&mut snapshot);
        let evidence = explain(&snapshot, &to_two, &Observation::Silent).evidence;
        assert!(evidence.contains(&format!("node/a leads packets for {SERVICE} port {} to {pod}", crate::PORT)), "{evidence}");
    }
}

/// The answer's way is followed from the endpoint, and what the node has rewritten is taken back there.
#[test]
fn the_answer_is_followed_from_the_endpoint() {
    let without = |s: &mut Snapshot| {
        served(&["10.244.1.2"])(s);
        of(s, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
    };
    broken(BOTH, &to_service("21", &[B], SERVICE), without, Fault::NoRoute, "node/b", REPLY);
    // Two pods of one bridge: the answer goes from port to port, and the node does not see it.
    let beside = to_service("19", &[A2], SERVICE);
    broken(BOTH, &beside, served(&["10.244.0.3"]), Fault::ReplyPastTranslation, "node/a", REPLY);
    let filtered = |s: &mut Snapshot| {
        served(&["10.244.0.3"])(s);
        link(s, "node/a", 3).filters_ipv4 = true;
    };
    broken(BOTH, &beside, filtered, Fault::Unexplained, A, REQUEST);
}

#[test]
fn a_node_that_does_not_serve_is_named() {
    let to_b = to_service("21", &[B], SERVICE);
    broken(BOTH, &to_b, |_| {}, Fault::ServiceUnserved, "node/a", REQUEST);
    broken(BOTH, &to_b, |s| of(s, "node/b").tables.push(proxy(&["10.244.1.2"])), Fault::ServiceUnserved, "node/a", REQUEST);
    // kube-proxy has rules, but not for this Service.
    let cut = |s: &mut Snapshot| {
        served(&["10.244.1.2"])(s);
        of(s, "node/a").tables[0].sets[0].elements.clear();
    };
    broken(BOTH, &to_b, cut, Fault::ServiceUnserved, "node/a", REQUEST);
    // At a node's port, the node that has the address must serve it, and the one on the way must not.
    let at_b = to_service("29", &[B], "172.30.0.2");
    let only = |node: &'static str| move |s: &mut Snapshot| of(s, node).tables.push(proxy(&["10.244.1.2"]));
    broken(BOTH, &at_b, only("node/b"), Fault::Unexplained, A, REQUEST);
    broken(BOTH, &at_b, |_| {}, Fault::ServiceUnserved, "node/b", REQUEST);
}

#[test]
fn rules_that_are_older_than_the_endpoints() {
    let to_b = to_service("21", &[B], SERVICE);
    broken(BOTH, &to_b, served(&["10.244.1.2", "10.244.1.77"]), Fault::EndpointStale, "node/a", REQUEST);
    broken(BOTH, &to_b, served(&["10.244.0.3"]), Fault::EndpointStale, "node/a", REQUEST);
}

/// A Service without endpoints is refused by kube-proxy, which is no firewall.
#[test]
fn what_kube_proxy_refuses() {
    let to_b = to_service("21", &[B], SERVICE);
    let refusing = |s: &mut Snapshot| {
        let mut table = proxy(&["10.244.1.2"]);
        table.sets[0].elements.clear();
        table.chains.push(based("filter-forward", "filter", 2, -110, vec![Op::Reject]));
        of(s, "node/a").tables.push(table);
        of(s, "node/a").routes.push(route("0.0.0.0/0", Some("172.30.0.2"), 2));
    };
    broken(BOTH, &to_b, refusing, Fault::ServiceRefused, "node/a netloom0", REQUEST);
    let mut snapshot = network(Mode::Direct);
    refusing(&mut snapshot);
    assert_eq!(explain(&snapshot, &to_b, &Observation::Refused).fault, Fault::ServiceRefused);
}

/// What an agent would have restored is missing because the agent is.
#[test]
fn an_agent_that_is_gone_is_the_reason() {
    let gone = |agent| {
        move |s: &mut Snapshot| {
            of(s, "node/b").agent = Some(agent);
            of(s, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
        }
    };
    broken(BOTH, &super::to_b(), gone(false), Fault::AgentGone, "node/b", REPLY);
    broken(BOTH, &super::to_b(), gone(true), Fault::NoRoute, "node/b", REPLY);
    // What others have done is theirs.
    let dropped = |s: &mut Snapshot| {
        of(s, "node/a").agent = Some(false);
        of(s, "node/a").tables.push(super::dropping("inet", 2));
    };
    broken(BOTH, &super::to_b(), dropped, Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
}

/// What a rule of chance may drop is a way that packets take.
#[test]
fn a_rule_that_drops_by_chance_drops() {
    let by_chance = |s: &mut Snapshot| {
        let mut table = super::dropping("inet", 2);
        let compare = Op::Compare { at: 32, how: 0, value: vec![1, 0, 0, 0] };
        table.chains[0].rules[0].ops.splice(0..0, [Op::Choice { into: 32, modulus: 2, offset: 0 }, compare]);
        of(s, "node/a").tables.push(table);
    };
    // The last choice is the first to be taken in another way: that of the reply.
    broken(&[Mode::Direct], &super::to_b(), by_chance, Fault::ForeignRuleDrops, "node/a eth0", REPLY);
}

/// A target that is not understood makes what is behind it unsure, and is what is left where nothing else is wrong.
#[test]
fn a_target_that_is_not_understood() {
    let with = |s: &mut Snapshot| {
        let mut table = super::dropping("inet", 2);
        table.chains[0].rules[0].ops = vec![Op::Other("target TPROXY".to_owned())];
        of(s, "node/a").tables.push(table);
    };
    broken(BOTH, &super::to_b(), with, Fault::ForeignRuleDrops, "node/a netloom0", REQUEST);
    let and_more = |s: &mut Snapshot| {
        with(s);
        of(s, "node/b").routes.retain(|route| route.to.to_string() != "10.244.0.0/24");
    };
    broken(BOTH, &super::to_b(), and_more, Fault::NoRoute, "node/b", REPLY);
}

/// Of two rules that may drop the packet, the one is named that counts while the probe is repeated.
#[test]
fn what_counts_is_suspected_first() {
    let unsure = |name: &str, packets: u64| {
        let mut table = super::dropping("inet", 2);
        table.name = name.to_owned();
        let rule = &mut table.chains[0].rules[0];
        rule.packets = Some(packets);
        rule.ops.insert(0, Op::Other("match quota".to_owned()));
        table
    };
    let look = |first: u64, second: u64| {
        let mut snapshot = network(Mode::Direct);
        of(&mut snapshot, "node/a").tables.extend([unsure("first", first), unsure("second", second)]);
        snapshot
    };
    let evidence = |snapshot: &Snapshot| explain(snapshot, &super::to_b(), &Observation::Silent).evidence;
    assert!(evidence(&look(3, 5)).contains("table inet first"));
    let later = look(3, 7).counted_since(&look(3, 5));
    assert!(
        evidence(&later).contains("table inet second (7 packets counted, 2 of them while the probe was repeated)"),
        "{}",
        evidence(&later)
    );
}

/// A load balancer that is not observed may lead to any node: each must serve.
#[test]
fn a_load_balancer_leads_to_any_node() {
    let balanced = |s: &mut Snapshot| {
        served(&["10.244.1.2"])(s);
        for node in ["node/a", "node/b"] {
            let table = of(s, node).tables.last_mut().unwrap();
            table.sets[0].elements[0].key.splice(0..4, [203, 0, 113, 5]);
            // The client knows nodes alone.
            let mut masquerade = super::masquerading();
            masquerade.name = "kube-masquerade".to_owned();
            of(s, node).tables.push(masquerade);
            link(s, node, 2).other = None;
            link(s, node, 2).kind = String::new();
        }
        s.namespaces.retain(|namespace| namespace.place.to_string() != "underlay");
        let address = ip("172.30.0.200");
        let place = "outside/public".parse().unwrap();
        let client = crate::Outside { role: crate::case::Need::PublicClient, place, addresses: vec![address], seen_as: Vec::new() };
        s.site = Some(crate::Site { outside: vec![client], ..crate::Site::default() });
        for node in ["node/a", "node/b"] {
            of(s, node).routes.push(route("0.0.0.0/0", Some("172.30.255.254"), 2));
        }
    };
    let mut to_b = to_service("52", &[B], "203.0.113.5");
    to_b.from = "outside/public".parse().unwrap();
    broken(&[Mode::Direct], &to_b, balanced, Fault::Unexplained, "outside/public", REQUEST);
    for node in ["node/a", "node/b"] {
        let unserved = |s: &mut Snapshot| {
            balanced(s);
            of(s, node).tables.retain(|table| table.name != "kube-proxy");
        };
        broken(&[Mode::Direct], &to_b, unserved, Fault::ServiceUnserved, node, REQUEST);
    }
    // With policy Local it leads to nodes with a backend alone.
    let mut local = to_service("51", &[B], "203.0.113.5");
    local.from = "outside/public".parse().unwrap();
    let without_a = |s: &mut Snapshot| {
        balanced(s);
        of(s, "node/a").tables.retain(|table| table.name != "kube-proxy");
    };
    broken(&[Mode::Direct], &local, without_a, Fault::Unexplained, "outside/public", REQUEST);
}
