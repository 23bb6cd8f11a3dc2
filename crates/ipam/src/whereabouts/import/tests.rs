//! What becomes of each address that whereabouts has noted.

use super::*;
use crate::range_pools;

fn inventory() -> Inventory {
    let config = |keys: &str| format!(r#"{{"ipam": {{"type": "whereabouts", {keys}}}}}"#);
    let configs = [
        ("d/plain", config(r#""range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/64"}]"#)),
        ("d/red", config(r#""range": "10.0.0.0/24", "network_name": "red""#)),
        ("d/low", config(r#""range": "10.0.0.0/24", "range_end": "10.0.0.99""#)),
        ("d/sliced", config(r#""range": "10.8.0.0/16", "node_slice_size": "/24""#)),
    ];
    let status = |definition: &str, ifname: &str, addresses: &[&str]| PodAttachment {
        definition: definition.to_owned(),
        ifname: ifname.to_owned(),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    };
    let pod = |attachments| LivingPod { node: "n1".to_owned(), over: false, attachments };
    Inventory {
        pools: Vec::new(),
        reservations: Vec::new(),
        pods: BTreeMap::from([
            ("d/both".to_owned(), pod(Some(vec![status("d/plain", "net1", &["10.0.0.5", "fd00::8000:0:0:7"])]))),
            ("d/low".to_owned(), pod(Some(vec![status("d/low", "net1", &["10.0.0.6"]), status("d/red", "net2", &["10.0.0.6"])]))),
            ("d/starting".to_owned(), pod(None)),
            ("d/lost".to_owned(), LivingPod { node: "n9".to_owned(), ..LivingPod::default() }),
        ]),
        nodes: BTreeMap::from([("n1".to_owned(), "u1".to_owned())]),
        meant: range_pools(configs.iter().map(|(name, config)| (*name, config.as_str()))),
    }
}

fn theirs(name: &str, range: &str, allocations: &[(&str, &str, &str)]) -> TheirPool {
    let one = |(offset, podref, ifname): &(&str, &str, &str)| {
        let allocation = TheirAllocation { id: format!("id-{podref}"), podref: (*podref).to_owned(), ifname: (*ifname).to_owned() };
        ((*offset).to_owned(), allocation)
    };
    TheirPool { name: name.to_owned(), range: range.to_owned(), allocations: allocations.iter().map(one).collect() }
}

/// Kept, stale and unclear ones, each in a line.
fn planned(pools: Vec<TheirPool>) -> [Vec<String>; 3] {
    shown(&plan_import(&Inventory { pools, ..inventory() }))
}

fn shown(plan: &ImportPlan) -> [Vec<String>; 3] {
    let kept = |k: &Reservation| {
        let holder = k.owner.attachment.clone().unwrap();
        format!("{} {} {} {} {} {}", k.address, k.pool, k.owner.pod, holder.ifname, k.node, if k.confirmed { "sure" } else { "" })
    };
    let left = |l: &Left| format!("{} {} {}", l.address, l.pod, l.why);
    [plan.kept.iter().map(kept).collect(), plan.stale.iter().map(left).collect(), plan.unclear.iter().map(left).collect()]
}

#[test]
fn what_stays_and_what_does_not() {
    let [kept, stale, unclear] = planned(vec![
        theirs(
            "10.0.0.0-24",
            "10.0.0.0/24",
            &[("5", "d/both", "net1"), ("6", "d/low", "net1"), ("7", "d/gone", "net1"), ("8", "d/starting", "net1")],
        ),
        // An offset that has a sign for whereabouts.
        theirs("fd00---64", "fd00::/64", &[("9223372036854775815", "d/both", "net1"), ("3", "d/both", "net1")]),
        theirs("red-10.0.0.0-24", "10.0.0.0/24", &[("6", "d/low", "")]),
        theirs("n1-10.8.3.0-24", "10.8.3.0/24", &[("4", "d/starting", "net2"), ("5", "d/lost", "net1")]),
        theirs(
            "odd",
            "10.9.0.0/24",
            &[("4", "d/starting", "net3"), ("999", "d/starting", "net4"), ("-1", "d/starting", "net5"), ("-2", "d/gone", "")],
        ),
    ]);
    let name = |of: &str| inventory().meant.pools.iter().find(|(_, d)| d.definitions.iter().any(|d| d == of)).unwrap().0.clone();
    assert_eq!(
        kept,
        [
            "10.0.0.5 whereabouts-10.0.0.0-24 d/both net1 n1 sure".to_owned(),
            "10.0.0.8 whereabouts-10.0.0.0-24 d/starting net1 n1 ".to_owned(),
            format!("10.0.0.6 {} d/low net1 n1 sure", name("d/low")),
            format!("10.8.3.4 {} d/starting net2 n1 ", name("d/sliced")),
            "fd00::8000:0:0:7 whereabouts-fd00--0-64 d/both net1 n1 sure".to_owned(),
            format!("10.0.0.6 {} d/low net2 n1 sure", name("d/red")),
        ]
    );
    assert_eq!(
        stale,
        [
            "10.0.0.7 d/gone its pod is gone",
            "fd00::3 d/both its pod is alive, and has another address on that interface",
            "10.9.0.0/24 + -2 d/gone its pod is gone",
        ]
    );
    assert_eq!(unclear.len(), 4, "{unclear:?}");
    assert!(unclear.iter().any(|u| u.starts_with("10.8.3.5 d/lost its pod's node does not exist")), "{unclear:?}");
}

/// What whereabouts answered and did not keep.
#[test]
fn what_only_the_pod_says() {
    let [kept, ..] = planned(vec![theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", "d/both", "net1")])]);
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert!(kept.iter().any(|k| k == "fd00::8000:0:0:7 whereabouts-fd00--0-64 d/both net1 n1 sure"), "{kept:?}");
}

/// A pod that has ended keeps its status for as long as its object is there; somebody else may have its address by now.
#[test]
fn who_has_ended_has_nothing() {
    let mut all = inventory();
    let ended = LivingPod { over: true, ..all.pods["d/both"].clone() };
    all.pods.insert("d/again".to_owned(), all.pods["d/both"].clone());
    all.pods.insert("d/both".to_owned(), ended);
    all.pools = vec![theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", "d/both", "net1"), ("9", "d/both", "net1")])];
    let plan = plan_import(&all);
    let of_it: Vec<&str> = plan.kept.iter().filter(|k| k.address.to_string() == "10.0.0.5").map(|k| k.owner.pod.as_str()).collect();
    assert_eq!(of_it, ["d/again"]);
    assert!(plan.kept.iter().all(|kept| kept.owner.pod != "d/both") && plan.unclear.is_empty(), "{plan:?}");
    let stale: Vec<(&str, &str)> = plan.stale.iter().map(|left| (left.address.as_str(), left.why.as_str())).collect();
    assert_eq!(stale, [("10.0.0.5", "its pod has ended"), ("10.0.0.9", "its pod has ended")]);
}

#[test]
fn of_two_who_have_one_address_the_status_says_who() {
    let twice = |first: &str, second: &str| {
        vec![
            theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", first, "net1")]),
            theirs("n1-10.0.0.0-25", "10.0.0.0/25", &[("5", second, "net7")]),
        ]
    };
    for pools in [twice("d/both", "d/starting"), twice("d/starting", "d/both")] {
        let [kept, _, unclear] = planned(pools);
        let of_it: Vec<&String> = kept.iter().filter(|k| k.starts_with("10.0.0.5 ")).collect();
        assert!(of_it.len() == 1 && of_it[0].contains("d/both"), "{kept:?}");
        assert_eq!(unclear, ["10.0.0.5 d/starting pod d/both has it as well"]);
    }
}

fn reserved(name: &str, podref: &str, ifname: &str) -> TheirReservation {
    let text = str::to_owned;
    TheirReservation { name: text(name), podref: text(podref), ifname: text(ifname), containerid: String::new() }
}

#[test]
fn what_is_reserved_and_in_no_pool() {
    let mut all = inventory();
    all.pools = vec![theirs("10.0.0.0-24", "10.0.0.0/24", &[("5", "d/both", "net1"), ("20", "d/starting", "net1")])];
    all.reservations = vec![
        // As it should be.
        reserved("10.0.0.5", "d/both", "net1"),
        // Its pool was overwritten by somebody else.
        reserved("10.0.0.9", "d/starting", "net1"),
        reserved("red-10.0.0.10", "d/starting", "net2"),
        reserved("fd00--a", "d/starting", "net1"),
        reserved("fd00--8000-0-0-7", "d/both", "net1"),
        // Its pod has another one there.
        reserved("10.0.0.11", "d/both", "net1"),
        // Leftovers.
        reserved("10.0.0.5", "d/gone", "net1"),
        reserved("no-address", "d/gone", ""),
        // For a pod and for another one.
        reserved("10.0.0.20", "d/low", "net9"),
        // Of nobody's range; of no address at all.
        reserved("blue-10.0.0.12", "d/starting", "net3"),
        reserved("no-address", "d/starting", "net4"),
    ];
    let plan = plan_import(&all);
    let by_reservation: Vec<String> =
        plan.kept.iter().filter(|k| k.by == NotedBy::Reservation).map(|k| format!("{} {} {}", k.address, k.network, k.owner.pod)).collect();
    assert_eq!(
        by_reservation,
        [
            "10.0.0.9 whereabouts d/starting",
            "fd00::a whereabouts d/starting",
            "fd00::8000:0:0:7 whereabouts d/both",
            "10.0.0.10 whereabouts.red d/starting",
        ]
    );
    assert!(plan.kept.iter().all(|kept| kept.confirmed == (kept.owner.pod == "d/both" || kept.by == NotedBy::Pod)), "{plan:?}");
    let [_, stale, unclear] = shown(&plan);
    assert_eq!(
        stale,
        [
            "10.0.0.11 d/both its pod is alive, and has another address on that interface",
            "10.0.0.5 d/gone its pod is gone",
            "no-address d/gone its pod is gone",
        ]
    );
    assert_eq!(
        unclear,
        [
            "10.0.0.12 d/starting no definition has a range with it: restore the definition that it was assigned for",
            "no-address d/starting the reservation's name does not contain an address",
            "10.0.0.20 d/low pod d/starting has it as well",
        ]
    );
    assert_eq!(plan.unclear[0].pool, "reservation blue-10.0.0.12");
}

/// `fd-fd00--5` is an address as well.
#[test]
fn a_name_that_can_be_read_in_two_ways() {
    let config = r#"{"ipam": {"type": "whereabouts", "range": "fd00::/64", "network_name": "fd"}}"#;
    let mut all = Inventory { meant: range_pools([("d/fd", config)]), ..inventory() };
    all.reservations = vec![reserved("fd-fd00--5", "d/starting", "net1"), reserved("fd-fd00--1-0", "d/starting", "net2")];
    let plan = plan_import(&all);
    let kept: Vec<String> = plan.kept.iter().map(|kept| format!("{} {}", kept.address, kept.network)).collect();
    assert_eq!(kept, ["fd00::5 whereabouts.fd", "fd00::1:0 whereabouts.fd"], "{plan:?}");
}
