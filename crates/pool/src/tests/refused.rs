//! Who is refused has changed nothing: all is as it was, for everybody and whatever is asked for next.

use proptest::prelude::*;

use super::*;

/// What is done.
#[derive(Debug, Clone)]
enum Step {
    Reserve { who: u32, pod: u8, wants: Vec<(usize, Option<u128>)> },
    Release { who: u32 },
    Pass { millis: u64 },
    Order { pool: usize, order: u8 },
    Quarantine { half: usize, address: u128 },
}

/// Pools, families and their addresses; those of `a` and `b` are partly the same.
const HALVES: [(&str, &str); 4] = [("a", "10.0.0.0-10.0.0.6"), ("b", "10.0.0.4-10.0.0.9"), ("a", "fd00::-fd00::2"), ("c", "fd00::/126")];

fn step() -> impl Strategy<Value = Step> {
    let wants = proptest::collection::vec((0..HALVES.len(), proptest::option::weighted(0.3, 0..7_u128)), 1..4);
    prop_oneof![
        8 => (0..12_u32, 0..4_u8, wants).prop_map(|(who, pod, wants)| Step::Reserve { who, pod, wants }),
        5 => (0..12_u32).prop_map(|who| Step::Release { who }),
        3 => (0..20_u64).prop_map(|millis| Step::Pass { millis }),
        1 => (0..3_usize, 0..3_u8).prop_map(|(pool, order)| Step::Order { pool, order }),
        1 => (0..HALVES.len(), 0..7_u128).prop_map(|(half, address)| Step::Quarantine { half, address }),
    ]
}

fn spec(pool: &str, order: Order) -> Spec {
    let mut spec = Spec::new(pool, "lab");
    (spec.reuse.cooldown, spec.reuse.order) = (if pool == "b" { 12 } else { 30 }, order);
    spec
}

fn address(half: usize, n: u128) -> IpAddr {
    let run = run(HALVES[half].1);
    run.family().address(run.numbers().0 + n % run.count())
}

fn want(half: usize, address: Option<IpAddr>) -> Want {
    Want { pool: HALVES[half].0.to_owned(), family: run(HALVES[half].1).family(), address }
}

/// All that there is, and who gets what from here on, of each pool alone and whoever asks.
fn shown(all: &Allocator, now: &Moment) -> (Vec<Event>, Vec<Vec<IpAddr>>) {
    let order = |half: usize| {
        let mut all = all.clone();
        let next = |n| all.reserve(&ask(n, &[want(half, None)]), now).ok().map(|granted| granted.lease().addresses[0].address);
        (1000..).map_while(next).collect()
    };
    (all.events(), (0..HALVES.len()).map(order).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn who_is_refused_has_changed_nothing(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut all, mut now) = (Allocator::new(7), at(0));
        ["a", "b", "c"].iter().for_each(|pool| all.apply(&Event::Pool(spec(pool, Order::Fifo))));
        HALVES.iter().for_each(|(pool, text)| all.apply(&Event::Block(block(pool, text, 1), State::Active)));
        for step in steps {
            match step {
                Step::Reserve { who, pod, ref wants } => {
                    let named = Pod { namespace: "ns".to_owned(), name: format!("web-{pod}"), uid: String::new() };
                    let wants: Vec<Want> = wants.iter().map(|(half, n)| want(*half, n.map(|n| address(*half, n)))).collect();
                    let ask = Ask { pod: (pod > 0).then_some(named), ..ask(who, &wants) };
                    // Of two pools that have an address one may free it for the other: what time has changed is known before.
                    for _ in 0..2 {
                        all.settle(&now);
                    }
                    let before = all.clone();
                    if all.reserve(&ask, &now).is_err() {
                        prop_assert_eq!(shown(&all, &now), shown(&before, &now), "{:?} was refused", ask);
                    }
                }
                Step::Release { who } => drop(all.release(&key(who), None, &now)),
                Step::Pass { millis } => now.millis += millis,
                Step::Order { pool, order } => {
                    let order = [Order::Fifo, Order::Lowest, Order::Random][usize::from(order)];
                    all.apply(&Event::Pool(spec(["a", "b", "c"][pool], order)));
                }
                Step::Quarantine { half, address: n } => {
                    let taken = Unavailable::Quarantined { since: now, millis: 15, by: "x".to_owned() };
                    all.apply(&Event::Quarantined { pool: HALVES[half].0.to_owned(), address: address(half, n), taken });
                }
            }
        }
    }
}

/// The successor of a pod that waits for another family lets nobody have what the pod had.
#[test]
fn what_rests_goes_on_resting() {
    // Of a host's own pool it would wait for nothing.
    let of_cluster = |s: &mut Spec| (s.reuse.cooldown, s.origin) = (30, Origin::Cluster);
    let mut all = with(of_cluster, &["10.0.0.0/31"]);
    let web = |n, wants: &[Want]| {
        let pod = Some(Pod { namespace: "ns".to_owned(), name: "web-0".to_owned(), uid: String::new() });
        Ask { pod, ..ask(n, wants) }
    };
    let own = super::want(Family::V4, Some("10.0.0.0"));
    assert!(all.reserve(&web(1, std::slice::from_ref(&own)), &at(0)).is_ok());
    all.release(&key(1), None, &at(10)).unwrap();
    assert_eq!(one(&mut all, 2, 10), "10.0.0.1");
    let both = web(3, &[own, super::want(Family::V6, None)]);
    assert!(matches!(all.reserve(&both, &at(11)), Err(Refused::Short { family: Family::V6, .. })));
    assert_eq!(all.usage("a", Family::V4).cooling, 1);
    assert!(get(&mut all, &any4(4), 39).is_err());
    all.apply(&Event::Block(block("a", "fd00::/127", 1), State::Active));
    assert_eq!(get(&mut all, &both, 39).unwrap(), ["10.0.0.0", "fd00::"]);
}
