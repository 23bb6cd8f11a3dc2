//! Rules one by one, and the whole against a model that only counts.

mod model;
mod refused;
mod short;

use std::net::IpAddr;

use crate::*;

fn run(text: &str) -> Run {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(millis: u64) -> Moment {
    Moment { boot: [1; 16], millis }
}

fn block(pool: &str, text: &str, epoch: u64) -> Block {
    Block { pool: pool.to_owned(), run: run(text), epoch, claim: None }
}

fn key(n: u32) -> Key {
    Key { network: "lab".to_owned(), container: format!("c{n}"), ifname: "eth0".to_owned() }
}

/// Pool `a` of network `lab` with these blocks.
fn with(spec: impl FnOnce(&mut Spec), blocks: &[&str]) -> Allocator {
    let mut all = Allocator::new(1);
    let mut pool = Spec::new("a", "lab");
    spec(&mut pool);
    all.apply(&Event::Pool(pool));
    blocks.iter().for_each(|text| all.apply(&Event::Block(block("a", text, 1), State::Active)));
    all
}

fn want(family: Family, address: Option<&str>) -> Want {
    Want { pool: "a".to_owned(), family, address: address.map(ip) }
}

fn ask(n: u32, wants: &[Want]) -> Ask {
    Ask { key: key(n), pod: None, claim: None, wants: wants.to_vec() }
}

fn any4(n: u32) -> Ask {
    ask(n, &[want(Family::V4, None)])
}

/// The addresses that are granted, or why none are.
fn get(all: &mut Allocator, ask: &Ask, now: u64) -> Result<Vec<String>, String> {
    match all.reserve(ask, &at(now)) {
        Ok(Granted::New(lease) | Granted::Again(lease)) => Ok(lease.addresses.iter().map(|l| l.address.to_string()).collect()),
        Err(refused) => Err(refused.to_string()),
    }
}

fn one(all: &mut Allocator, n: u32, now: u64) -> String {
    get(all, &any4(n), now).unwrap().remove(0)
}

#[test]
fn runs_are_written_as_they_are_read() {
    for text in ["10.0.0.0/24", "10.0.0.10-10.0.0.99", "192.0.2.7", "0.0.0.0/0", "::/0", "fd00::/64", "fd00::5-fd00::9", "2001:db8::1"] {
        assert_eq!(run(text).to_string(), text);
    }
    assert_eq!(run("10.0.0.4-10.0.0.7").to_string(), "10.0.0.4/30");
    assert_eq!(run("::ffff:10.0.0.1").to_string(), "10.0.0.1");
    assert_eq!((run("fd00::/56").count(), run("::/0").count()), (1 << 72, u128::MAX));
    let refused = |text: &str| text.parse::<Run>().unwrap_err().to_string();
    assert_eq!(refused("10.0.0.1/24"), "10.0.0.1/24 has host bits set: the network is 10.0.0.0");
    assert_eq!(refused("10.0.0.0/33"), "\"33\" is not a prefix length between 0 and 32");
    assert_eq!(refused("10.0.0.9-10.0.0.1"), "10.0.0.9-10.0.0.1 ends before it begins");
    assert_eq!(refused("10.0.0.9-fd00::1"), "10.0.0.9-fd00::1 begins in one address family and ends in the other");
    assert!(refused("10.0.0").starts_with("\"10.0.0\" is not an IP address"));
    assert!(refused("10.0.0.0/+8").starts_with("\"+8\" is not a prefix length"));
}

#[test]
fn runs_without_others() {
    let without = |a: &str, b: &str| run(a).without(&run(b)).iter().map(Run::to_string).collect::<Vec<_>>();
    assert_eq!(without("10.0.0.0/29", "10.0.0.2/31"), ["10.0.0.0/31", "10.0.0.4/30"]);
    assert_eq!(without("10.0.0.0/29", "10.0.0.0/24"), [""; 0]);
    assert_eq!(without("10.0.0.0/29", "fd00::/64"), ["10.0.0.0/29"]);
    assert_eq!(without("0.0.0.0/0", "0.0.0.0/0"), [""; 0]);
    assert_eq!(without("::/0", "::/1"), ["8000::/1"]);
    assert_eq!(without("255.255.255.252/30", "255.255.255.255"), ["255.255.255.252-255.255.255.254"]);
}

#[test]
fn the_edges_of_a_network() {
    let edges = |text: &str, first, last| edges(&run(text), first, last).iter().map(Run::to_string).collect::<Vec<_>>();
    assert_eq!(edges("10.0.0.0/30", false, false), ["10.0.0.0", "10.0.0.3"]);
    assert_eq!(edges("fd00::/64", false, true), ["fd00::"]);
    for narrow in ["10.0.0.0/31", "10.0.0.1", "fd00::/127", "10.0.0.1-10.0.0.5"] {
        assert_eq!(edges(narrow, false, false), [""; 0], "{narrow}");
    }
}

#[test]
fn in_order_then_again_when_cool() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/30"]);
    assert_eq!([0, 1, 2].map(|n| one(&mut all, n, 0)), ["10.0.0.0", "10.0.0.1", "10.0.0.2"]);
    assert_eq!(one(&mut all, 1, 0), "10.0.0.1", "who asks again gets the same");
    all.release(&key(1), None, &at(100)).unwrap();
    all.release(&key(0), None, &at(101)).unwrap();
    assert_eq!(one(&mut all, 3, 102), "10.0.0.3", "what nobody had comes first");
    let short = get(&mut all, &any4(4), 129).unwrap_err();
    let why = "pool \"a\" has no free IPv4 address on this node: 2 held, 2 cooling down; the next one is free in 1 s; free those";
    assert!(short.starts_with(why), "{short}");
    assert_eq!(one(&mut all, 4, 130), "10.0.0.1", "the first that was given back");
    assert!(get(&mut all, &any4(5), 130).is_err());
    assert_eq!(one(&mut all, 5, 131), "10.0.0.0");
}

/// An address rests in the pool that had it: where two have it, nobody knows for how long.
#[test]
fn what_rests_for_longer() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/32"]);
    let mut beside = Spec::new("b", "lab");
    beside.reuse.cooldown = 5;
    let certain = ask(1, &[want(Family::V4, Some("10.0.0.0"))]);
    let rests = |all: &Allocator, now: u64, millis: u64| all.rests_past(&certain, millis, &at(now)).map(|refused| refused.to_string());
    assert_eq!(rests(&all, 0, 0), None);
    one(&mut all, 0, 0);
    assert_eq!(rests(&all, 0, 0), None, "who has it may give it back");
    all.release(&key(0), None, &at(100)).unwrap();
    assert_eq!(rests(&all, 100, 30), None);
    assert_eq!(rests(&all, 100, 29).unwrap(), "10.0.0.0 is not free: it has just been released; free in 1 s");
    assert_eq!(rests(&all, 110, 20), None);
    all.apply(&Event::Pool(beside));
    assert_eq!(rests(&all, 100, 29), None);
    assert!(rests(&all, 100, 4).is_some());
}

#[test]
fn another_boot_waits_from_its_start() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/32"]);
    one(&mut all, 0, 0);
    all.release(&key(0), None, &at(1_000_000)).unwrap();
    let now = |millis| Moment { boot: [2; 16], millis };
    assert!(all.reserve(&any4(1), &now(29)).is_err());
    assert!(all.reserve(&any4(1), &now(30)).is_ok());
}

#[test]
fn the_lowest_or_any() {
    let mut all = with(|s| s.reuse.order = Order::Lowest, &["10.0.0.0/29"]);
    (0..4).for_each(|n| assert_eq!(one(&mut all, n, 0), format!("10.0.0.{n}")));
    [2, 0].iter().for_each(|n| drop(all.release(&key(*n), None, &at(1)).unwrap()));
    assert_eq!([4, 5, 6].map(|n| one(&mut all, n, 2)), ["10.0.0.0", "10.0.0.2", "10.0.0.4"]);

    let mut all = with(|s| s.reuse.order = Order::Random, &["10.0.0.0/26", "10.0.1.0/26"]);
    let mut got: Vec<String> = (0..128).map(|n| one(&mut all, n, 0)).collect();
    assert!(!got.is_sorted());
    assert!(get(&mut all, &any4(128), 0).is_err());
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 128);
}

#[test]
fn what_is_foreseen_is_needed_once_and_until_it_is_there() {
    let mut all = with(|spec| spec.scaling.pre_allocate = 0, &["10.0.0.0/31"]);
    let want = |all: &Allocator| (all.usage("a", Family::V4).waiting, all.usage("a", Family::V4).is_short(), all.want("a", Family::V4, 2));
    let coming = || vec![("a".to_owned(), Family::V4)];
    (0..3).for_each(|n| all.reserve_hint(key(n), coming()));
    assert_eq!(want(&all), (3, true, 4));
    // Who has come and waits counts once, who has got it as any that holds one.
    all.wait(&any4(2));
    assert_eq!(want(&all), (3, true, 4));
    one(&mut all, 0, 0);
    assert_eq!(want(&all), (2, true, 4));
    // Two that will not come.
    all.stop_waiting(&key(2));
    assert!((0..3).all(|n| all.unforesee(&key(n))) && !all.unforesee(&key(0)));
    assert_eq!(want(&all), (0, false, 2));
    all.reserve_hint(key(1), coming());
    assert_eq!(want(&all), (1, false, 2), "there is one for it");
}

#[test]
fn both_families_or_none() {
    let both = |n| ask(n, &[want(Family::V4, None), want(Family::V6, None)]);
    let mut all = with(|_| (), &["10.0.0.0/31", "fd00::/128"]);
    assert_eq!(get(&mut all, &both(0), 0).unwrap(), ["10.0.0.0", "fd00::"]);
    assert!(get(&mut all, &both(1), 0).unwrap_err().contains("no free IPv6 address on this node: 1 held, 0 cooling down"));
    assert_eq!(one(&mut all, 2, 0), "10.0.0.1", "nothing of the refused one is held");
    all.wait(&both(1));
    assert_eq!([Family::V4, Family::V6].map(|f| all.usage("a", f).waiting), [1, 1]);
    all.stop_waiting(&key(1));
    assert_eq!(all.usage("a", Family::V4).waiting, 0);
}

#[test]
fn what_is_asked_for_by_name() {
    let spec = |s: &mut Spec| {
        s.exclude = vec![run("10.0.0.0/29")];
        s.reserved = vec![run("10.0.0.8/29")];
        s.v4.gateway = Some(ip("10.0.0.254"));
        s.reuse.cooldown = 30;
    };
    let mut all = with(spec, &["10.0.0.0/24"]);
    let by_name = |n, address| ask(n, &[want(Family::V4, Some(address))]);
    let mut refused = |ask: Ask| get(&mut all, &ask, 0).unwrap_err();
    assert_eq!(refused(by_name(0, "10.0.0.1")), "10.0.0.1 is excluded from pool \"a\", or is its gateway");
    assert_eq!(refused(by_name(0, "10.0.0.254")), "10.0.0.254 is excluded from pool \"a\", or is its gateway");
    assert_eq!(refused(by_name(0, "10.0.0.9")), "10.0.0.9 is reserved for claims in pool \"a\"");
    assert_eq!(refused(by_name(0, "10.0.1.1")), "10.0.1.1 is in no block of pool \"a\" that this node has");
    let twice = [want(Family::V4, Some("10.0.0.77")), want(Family::V4, Some("10.0.0.77"))];
    assert_eq!(refused(ask(0, &twice)), "10.0.0.77 is requested twice");
    assert_eq!(refused(ask(0, &[Want { pool: "b".to_owned(), ..want(Family::V4, None) }])), "there is no pool \"b\" on this node");

    assert_eq!(one(&mut all, 1, 0), "10.0.0.16");
    assert_eq!(get(&mut all, &by_name(2, "10.0.0.17"), 0).unwrap(), ["10.0.0.17"]);
    assert_eq!(one(&mut all, 3, 0), "10.0.0.18", "the one that is held is left out");
    assert_eq!(get(&mut all, &by_name(4, "10.0.0.17"), 0).unwrap_err(), "10.0.0.17 is not free: attachment lab/c2/eth0 has it");
    let other = get(&mut all, &by_name(1, "10.0.0.99"), 0).unwrap_err();
    assert_eq!(other, "attachment lab/c1/eth0 has other addresses than it requests: 10.0.0.16 of pool \"a\"; detach it first");
    let claim = Ask { claim: Some("ns/web-0".to_owned()), ..by_name(5, "10.0.0.9") };
    assert_eq!(get(&mut all, &claim, 0).unwrap(), ["10.0.0.9"]);
}

#[test]
fn a_pod_of_the_same_name_need_not_wait_for_its_address() {
    let mut all = with(|s| s.reuse.cooldown = 30_000, &["10.0.0.0/24"]);
    let pod = |name: &str| Some(Pod { namespace: "default".to_owned(), name: name.to_owned(), uid: String::new() });
    let by_name = |n, name| Ask { pod: pod(name), ..ask(n, &[want(Family::V4, Some("10.0.0.5"))]) };
    get(&mut all, &by_name(0, "web-0"), 0).unwrap();
    all.release(&key(0), None, &at(0)).unwrap();
    let wait = "10.0.0.5 is not free: pod default/web-0 has just released it; free in 29 s";
    assert_eq!(get(&mut all, &by_name(1, "web-1"), 1_500).unwrap_err(), wait);
    assert_eq!(get(&mut all, &by_name(2, "web-0"), 1_500).unwrap(), ["10.0.0.5"]);
}

#[test]
fn it_tells_in_how_many_blocks_attachments_have_something() {
    let mut all = with(|s| s.reuse.cooldown = 30_000, &["10.0.0.0/31", "10.0.0.2/31", "10.0.0.4/31"]);
    all.apply(&Event::Block(Block { claim: Some("ns/web-0".to_owned()), ..block("a", "10.0.1.5", 3) }, State::Active));
    assert_eq!(all.blocks_held("a", Family::V4), 0);
    (0..3).for_each(|n| drop(one(&mut all, n, 0)));
    get(&mut all, &Ask { claim: Some("ns/web-0".to_owned()), ..any4(3) }, 0).unwrap();
    assert_eq!((all.blocks_held("a", Family::V4), all.blocks_held("a", Family::V6), all.blocks_held("b", Family::V4)), (2, 0, 0));
    // One of two of a block; then the other one, and both cool down.
    all.release(&key(0), None, &at(0)).unwrap();
    assert_eq!(all.blocks_held("a", Family::V4), 2);
    all.release(&key(1), None, &at(0)).unwrap();
    assert_eq!(all.blocks_held("a", Family::V4), 1);
}

/// Another node has it at the same time: whichever pod of the claim is there first, one that does not migrate does not get it.
#[test]
fn a_claims_address_is_for_pods_that_migrate_or_for_those_that_do_not() {
    let migrating = crate::migrating("ns/vm");
    for (owner, other) in [(migrating.as_str(), "ns/vm"), ("ns/vm", migrating.as_str())] {
        let mut all = with(|_| {}, &["10.0.0.8/29"]);
        let own = Block { claim: Some(owner.to_owned()), ..block("a", "10.0.1.5", 3) };
        all.apply(&Event::Block(own, State::Active));
        let by = |n, claim: &str| Ask { claim: Some(claim.to_owned()), ..any4(n) };
        let refused = get(&mut all, &by(0, other), 0).unwrap_err();
        assert!(refused.starts_with("claim ns/vm has no IPv4 address of pool \"a\""), "{refused}");
        let asked = Ask { claim: Some(other.to_owned()), ..ask(1, &[want(Family::V4, Some("10.0.1.5"))]) };
        assert_eq!(
            get(&mut all, &asked, 0).unwrap_err(),
            format!("10.0.1.5 belongs to {}{owner}", if owner == "ns/vm" { "claim " } else { "" })
        );
        assert_eq!(get(&mut all, &by(2, owner), 0).unwrap(), ["10.0.1.5"]);
    }
}

#[test]
fn a_claims_own_addresses_are_for_nobody_else() {
    let mut all = with(|s| s.reuse.cooldown = 30_000, &["10.0.0.0/31"]);
    let own = Block { claim: Some("ns/web-0".to_owned()), ..block("a", "10.0.1.5", 3) };
    all.apply(&Event::Block(own, State::Active));
    let claimed = |n| Ask { claim: Some("ns/web-0".to_owned()), ..any4(n) };
    assert_eq!(get(&mut all, &ask(0, &[want(Family::V4, Some("10.0.1.5"))]), 0).unwrap_err(), "10.0.1.5 belongs to claim ns/web-0");
    assert_eq!(get(&mut all, &claimed(1), 0).unwrap(), ["10.0.1.5"]);
    assert_eq!([one(&mut all, 2, 0), one(&mut all, 3, 0)], ["10.0.0.0", "10.0.0.1"]);
    assert!(get(&mut all, &any4(4), 0).is_err());
    assert!(get(&mut all, &claimed(5), 0).unwrap_err().starts_with("10.0.1.5 is not free: attachment lab/c1/eth0 has it"));
    // Neither the one that it has nor the one that it waits for needs a block of this node.
    all.wait(&claimed(5));
    assert_eq!((all.want("a", Family::V4, 2), all.usage("a", Family::V4).held), (2, 3));
    // The next one of the claim need not wait, and it can be given back at once.
    all.release(&key(1), None, &at(1)).unwrap();
    assert_eq!(get(&mut all, &claimed(6), 1).unwrap(), ["10.0.1.5"]);
    all.release(&key(6), None, &at(2)).unwrap();
    assert!(all.freeze("a", run("10.0.1.5"), &at(2)).is_ok());
    assert!(get(&mut all, &claimed(7), 2).unwrap_err().starts_with("claim ns/web-0 has no IPv4 address of pool \"a\" on this node"));
    all.apply(&Event::BlockGone { pool: "a".to_owned(), run: run("10.0.1.5"), epoch: 3 });
    let again = Block { claim: Some("ns/web-0".to_owned()), ..block("a", "10.0.1.5", 4) };
    all.apply(&Event::Block(again, State::Active));
    assert_eq!(get(&mut all, &claimed(7), 2).unwrap(), ["10.0.1.5"]);
}

#[test]
fn a_pods_own_address_is_its_own_but_not_while_it_is_held() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/24"]);
    let named = |name: &str| Pod { namespace: "ns".to_owned(), name: name.to_owned(), uid: String::new() };
    let own = Block { claim: Some(named("db").pin()), ..block("a", "10.0.1.5", 3) };
    all.apply(&Event::Block(own, State::Active));
    let of = |n, name| Ask { pod: Some(named(name)), ..any4(n) };
    assert_eq!(get(&mut all, &of(0, "web"), 0).unwrap(), ["10.0.0.0"]);
    let by_name = Ask { pod: Some(named("web")), ..ask(1, &[want(Family::V4, Some("10.0.1.5"))]) };
    assert_eq!(get(&mut all, &by_name, 0).unwrap_err(), "10.0.1.5 belongs to pod ns/db");
    assert_eq!(get(&mut all, &of(2, "db"), 0).unwrap(), ["10.0.1.5"]);
    let taken = get(&mut all, &of(3, "db"), 0).unwrap_err();
    assert!(taken.starts_with("10.0.1.5 is not free: attachment lab/c2/eth0 has it"), "no other one instead: {taken}");
    all.release(&key(2), None, &at(1)).unwrap();
    assert_eq!(get(&mut all, &of(3, "db"), 2).unwrap(), ["10.0.1.5"], "it was its own");
    let claim = Ask { claim: Some("ns/db".to_owned()), ..any4(4) };
    let refused = get(&mut all, &claim, 2).unwrap_err();
    assert!(refused.starts_with("claim ns/db has no IPv4 address"), "a claim is another thing than a pod of its name: {refused}");
}

#[test]
fn a_late_del_frees_nothing_of_a_later_add() {
    let mut all = with(|_| (), &["10.0.0.0/24"]);
    let Ok(Granted::New(first)) = all.reserve(&any4(0), &at(0)) else { panic!() };
    all.release(&key(0), Some(first.generation), &at(1)).unwrap();
    let Ok(Granted::New(second)) = all.reserve(&any4(0), &at(2)) else { panic!() };
    assert_eq!(all.release(&key(0), Some(first.generation), &at(3)), None);
    all.undo(&key(0), first.generation);
    // In a journal as well.
    all.apply(&Event::Released { key: key(0), generation: first.generation, at: at(3) });
    assert_eq!(all.lease(&key(0)), Some(&second));
    assert_eq!(all.release(&key(1), None, &at(3)), None, "who holds nothing has nothing to give back");
}

#[test]
fn what_nobody_has_seen_need_not_cool() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/32"]);
    let Ok(Granted::New(lease)) = all.reserve(&any4(0), &at(0)) else { panic!() };
    all.undo(&key(0), lease.generation);
    assert_eq!(all.usage("a", Family::V4).held, 0);
    assert_eq!(one(&mut all, 1, 0), "10.0.0.0");
    // What rested before goes on.
    let pod = Some(Pod { namespace: "ns".to_owned(), name: "p".to_owned(), uid: String::new() });
    all.release(&key(1), None, &at(10)).unwrap();
    assert_eq!(get(&mut all, &Ask { pod: pod.clone(), ..any4(2) }, 40).unwrap(), ["10.0.0.0"]);
    all.release(&key(2), None, &at(50)).unwrap();
    let certain = Ask { pod, ..ask(3, &[want(Family::V4, Some("10.0.0.0"))]) };
    let Ok(Granted::New(lease)) = all.reserve(&certain, &at(51)) else { panic!() };
    all.undo(&key(3), lease.generation);
    assert!(get(&mut all, &any4(4), 79).is_err());
    assert_eq!(one(&mut all, 4, 80), "10.0.0.0");
}

#[test]
fn a_block_that_is_given_back() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/30", "10.0.0.4/30"]);
    assert_eq!(one(&mut all, 0, 0), "10.0.0.0");
    let (used, free) = (run("10.0.0.0/30"), run("10.0.0.4/30"));
    assert_eq!(all.freeze("a", used, &at(0)).unwrap_err().to_string(), "10.0.0.0 is in use: attachment lab/c0/eth0 has it");
    all.release(&key(0), None, &at(0)).unwrap();
    assert_eq!(all.freeze("a", used, &at(29)).unwrap_err().to_string(), "10.0.0.0 is in use: it has just been released");
    all.freeze("a", used, &at(30)).unwrap();
    assert_eq!(one(&mut all, 1, 31), "10.0.0.4", "nothing of a frozen block is handed out");
    let asked = get(&mut all, &ask(2, &[want(Family::V4, Some("10.0.0.1"))]), 31).unwrap_err();
    assert_eq!(asked, "10.0.0.1 is in no block of pool \"a\" that this node has");
    // Whoever grants cannot wake it, nor take it back in between, and not with the same epoch when it is gone.
    all.apply(&Event::Withdrawn { pool: "a".to_owned(), run: used, epoch: 1 });
    all.apply(&Event::Block(block("a", "10.0.0.0/30", 1), State::Active));
    assert_eq!(all.blocks("a", Family::V4).map(|(_, state)| state).collect::<Vec<_>>(), [State::Frozen, State::Active]);
    all.apply(&Event::BlockGone { pool: "a".to_owned(), run: used, epoch: 1 });
    let again = all.admit(&block("a", "10.0.0.0/30", 1)).unwrap_err().to_string();
    assert_eq!(again, "block 10.0.0.0/30 was returned in epoch 1, and can come back only with a later one");
    assert_eq!(all.admit(&block("a", "10.0.0.0/30", 2)), Ok(()));
    assert_eq!(
        all.admit(&block("a", "10.0.0.4/31", 2)).unwrap_err().to_string(),
        "block 10.0.0.4/31 has addresses of block 10.0.0.4/30 of pool \"a\""
    );
    assert!(all.freeze("a", free, &at(31)).is_err());
    assert!(all.freeze("a", run("10.0.0.4/31"), &at(31)).is_err());
}

#[test]
fn a_block_nobody_uses_is_opened_last() {
    let mut all = with(|_| (), &["10.0.0.0/30", "10.0.0.4/30"]);
    (0..4).for_each(|n| assert_eq!(one(&mut all, n, 0), format!("10.0.0.{n}")));
    all.release(&key(2), None, &at(1)).unwrap();
    assert_eq!(one(&mut all, 5, 2), "10.0.0.2");
    assert_eq!(one(&mut all, 6, 2), "10.0.0.4");
}

#[test]
fn what_leaves_a_pool_stays_with_its_pod() {
    let mut all = with(|_| (), &["10.0.0.0/30", "fd00::/126"]);
    assert_eq!(one(&mut all, 0, 0), "10.0.0.0");
    all.apply(&Event::Withdrawn { pool: "a".to_owned(), run: run("10.0.0.0/30"), epoch: 1 });
    assert!(get(&mut all, &any4(1), 0).is_err());
    assert_eq!(all.lease(&key(0)).unwrap().addresses[0].address, ip("10.0.0.0"));
    all.apply(&Event::PoolGone { pool: "a".to_owned() });
    assert_eq!(get(&mut all, &any4(1), 0).unwrap_err(), "there is no pool \"a\" on this node");
    all.release(&key(0), None, &at(1)).unwrap();
    assert_eq!(all.leases().count(), 0);
}

#[test]
fn pools_of_one_network_never_hand_out_the_same() {
    let mut all = with(|s| s.origin = Origin::Cluster, &["10.0.0.0/30"]);
    for (pool, network, origin) in [("b", "lab", Origin::Cluster), ("d", "lab", Origin::File), ("c", "other", Origin::Cluster)] {
        all.apply(&Event::Pool(Spec { origin, ..Spec::new(pool, network) }));
        all.apply(&Event::Block(block(pool, "10.0.0.0/30", 1), State::Active));
    }
    assert_eq!(["b", "d"].map(|pool| all.blocks(pool, Family::V4).count()), [0, 0], "they overlap");
    assert_eq!(one(&mut all, 0, 0), "10.0.0.0");
    let of = |pool: &str, n| ask(n, &[Want { pool: pool.to_owned(), ..want(Family::V4, None) }]);
    assert_eq!(get(&mut all, &of("c", 1), 0).unwrap(), ["10.0.0.0"], "another network has it as well");
}

#[test]
fn a_quarantined_address_is_left_alone_for_a_while() {
    let mut all = with(|_| (), &["10.0.0.0/31"]);
    let taken = Unavailable::Quarantined { since: at(0), millis: 100, by: "02:00:00:00:00:01".to_owned() };
    let event = Event::Quarantined { pool: "a".to_owned(), address: ip("10.0.0.0"), taken };
    all.apply(&event);
    assert_eq!(one(&mut all, 0, 0), "10.0.0.1");
    assert!(get(&mut all, &any4(1), 99).is_err());
    assert_eq!(all.usage("a", Family::V4).quarantined, 1);
    assert_eq!(one(&mut all, 1, 100), "10.0.0.0");
}

#[test]
fn a_pool_that_is_asked_for_on_the_wire_is_so_after_a_restart() {
    for probe in [false, true] {
        let event = Event::Pool(Spec { probe, ..Spec::new("a", "lab") });
        assert_eq!(Event::decode(&event.encode()), Ok(event));
    }
}

#[test]
fn large_blocks_cost_what_is_used() {
    let mut all = with(|s| s.exclude = vec![run("fd00::/65")], &["fd00::/64"]);
    let any6 = |n| ask(n, &[want(Family::V6, None)]);
    assert_eq!(get(&mut all, &any6(0), 0).unwrap(), ["fd00::8000:0:0:0"]);
    assert_eq!(get(&mut all, &ask(1, &[want(Family::V6, Some("fd00::ffff:ffff:ffff:ffff"))]), 0).unwrap(), ["fd00::ffff:ffff:ffff:ffff"]);
    // Of 2^63 addresses that nobody had, those that somebody had are not remembered for ever.
    for n in 0..20_000 {
        get(&mut all, &any6(7), n).unwrap();
        all.release(&key(7), None, &at(n)).unwrap();
    }
    assert!(all.all_taken("lab").count() < 10_000);
}

#[test]
fn the_last_addresses_of_all() {
    let mut all = with(|_| (), &["255.255.255.254/31", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"]);
    assert_eq!([0, 1].map(|n| one(&mut all, n, 0)), ["255.255.255.254", "255.255.255.255"]);
    assert!(get(&mut all, &any4(2), 0).is_err());
    let any6 = |n| ask(n, &[want(Family::V6, None)]);
    assert_eq!(get(&mut all, &any6(3), 0).unwrap(), ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"]);
    assert_eq!(get(&mut all, &any6(4), 0).unwrap(), ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
    assert!(get(&mut all, &any6(5), 0).is_err());
}

#[test]
fn terms_that_change() {
    let mut all = with(|_| (), &["10.0.0.0/29"]);
    (0..3).for_each(|n| drop(one(&mut all, n, 0)));
    let spec = |exclude: &[&str]| Event::Pool(Spec { exclude: exclude.iter().map(|e| run(e)).collect(), ..Spec::new("a", "lab") });
    all.apply(&spec(&["10.0.0.0/30"]));
    assert_eq!(one(&mut all, 3, 0), "10.0.0.4");
    all.release(&key(0), None, &at(0)).unwrap();
    all.apply(&spec(&[]));
    let mut rest: Vec<String> = (4..9).map(|n| one(&mut all, n, 1)).collect();
    rest.sort();
    assert_eq!(rest, ["10.0.0.0", "10.0.0.3", "10.0.0.5", "10.0.0.6", "10.0.0.7"]);
    assert!(get(&mut all, &any4(9), 1).is_err());
}

#[test]
fn of_two_who_were_granted_the_same_the_later_one_has_it() {
    let mut all = with(|_| (), &["10.0.0.0/30"]);
    let lease = |n, generation| {
        let addresses = vec![Leased { pool: "a".to_owned(), address: ip("10.0.0.0"), epoch: 1 }];
        Event::Leased(Lease { key: key(n), generation, pod: None, claim: None, since: at(0), addresses })
    };
    [lease(0, 1), lease(1, 2)].iter().for_each(|event| all.apply(event));
    assert_eq!((all.lease(&key(0)), all.usage("a", Family::V4).held), (None, 1));
    assert_eq!(all.release(&key(0), None, &at(1)), None);
    assert_eq!(all.taken("lab", ip("10.0.0.0")), Some(&Unavailable::Held(key(1))));
}

/// Two pools over the same addresses: none is given twice, and what one gives back the other one finds.
#[test]
fn pools_that_have_the_same_addresses() {
    for order in [Order::Fifo, Order::Lowest, Order::Random] {
        let mut all = with(|s| s.reuse.order = order, &["10.0.0.0/30"]);
        let mut spec = Spec::new("b", "lab");
        spec.reuse = Reuse { cooldown: 50, order };
        all.apply(&Event::Pool(spec));
        all.apply(&Event::Block(block("b", "10.0.0.0/29", 1), State::Active));
        let of = |pool: &str, address: Option<&str>| Want { pool: pool.to_owned(), ..want(Family::V4, address) };
        let mut got: Vec<String> = (0..4).flat_map(|n| get(&mut all, &ask(n, &[of("b", None)]), 0).unwrap()).collect();
        got.extend((4..8).filter_map(|n| get(&mut all, &ask(n, &[of("a", None)]), 0).ok()).flatten());
        got.extend((8..16).filter_map(|n| get(&mut all, &ask(n, &[of("b", None)]), 0).ok()).flatten());
        let given: std::collections::BTreeSet<&String> = got.iter().collect();
        assert_eq!((got.len(), given.len()), (8, 8), "{order:?}: {got:?}");
        // What was of the one rests as long as that one says, and is the other one's then.
        let holder = all.leases().find(|l| l.addresses[0].address == ip("10.0.0.2")).unwrap().key.clone();
        let was = all.lease(&holder).unwrap().addresses[0].pool.clone();
        all.release(&holder, None, &at(100)).unwrap();
        let other = if was == "a" { "b" } else { "a" };
        let asks = [ask(20, &[of(other, None)]), ask(20, &[of(other, Some("10.0.0.2"))])];
        if was == "b" {
            assert!(asks.iter().all(|ask| get(&mut all, ask, 149).is_err()), "{order:?}");
        }
        for (ask, late) in asks.iter().zip([150, 250]) {
            assert_eq!(get(&mut all, ask, late).unwrap(), ["10.0.0.2"], "{order:?}");
            all.release(&key(20), None, &at(late)).unwrap();
        }
    }
}

/// What one pool has in its line is another one's now: the rest of the line is free all the same.
#[test]
fn a_line_whose_first_one_is_taken_elsewhere() {
    let mut all = with(|_| (), &["10.0.0.0/30"]);
    all.apply(&Event::Pool(Spec::new("b", "lab")));
    all.apply(&Event::Block(block("b", "10.0.0.0/29", 1), State::Active));
    let of = |pool: &str, n, address| ask(n, &[Want { pool: pool.to_owned(), ..want(Family::V4, address) }]);
    (0..4).for_each(|n| drop(one(&mut all, n, 0)));
    (0..4).for_each(|n| drop(all.release(&key(n), None, &at(0)).unwrap()));
    let first = all.events();
    let mut again = Allocator::new(1);
    first.iter().for_each(|event| again.apply(event));
    for mut all in [all, again] {
        let got: std::collections::BTreeSet<_> = (4..12).flat_map(|n| get(&mut all, &of("b", n, None), 1).unwrap()).collect();
        assert_eq!(got.len(), 8);
    }
}

/// What rests of one pool is its pod's again by another one: what rests behind it is free in its time all the same.
#[test]
fn what_rests_behind_one_that_is_taken_elsewhere() {
    let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/31"]);
    all.apply(&Event::Pool(Spec::new("b", "lab")));
    all.apply(&Event::Block(block("b", "10.0.0.0/29", 1), State::Active));
    let pod = Some(Pod { namespace: "ns".to_owned(), name: "p".to_owned(), uid: String::new() });
    let of_pod = |n, pool: &str, address| {
        let wants = [Want { pool: pool.to_owned(), ..want(Family::V4, address) }];
        Ask { pod: pod.clone(), ..ask(n, &wants) }
    };
    assert_eq!(get(&mut all, &of_pod(0, "a", None), 0).unwrap(), ["10.0.0.0"]);
    assert_eq!(one(&mut all, 1, 0), "10.0.0.1");
    (0..2).for_each(|n| drop(all.release(&key(n), None, &at(0)).unwrap()));
    assert_eq!(get(&mut all, &of_pod(2, "b", Some("10.0.0.0")), 1).unwrap(), ["10.0.0.0"]);
    assert_eq!(one(&mut all, 3, 30), "10.0.0.1");
    assert!(get(&mut all, &any4(4), 30).is_err(), "it is held, of whichever pool");
}

/// An address rests in one pool's line, whichever other one has it too.
#[test]
fn what_rests_behind_one_that_rests_elsewhere() {
    for taken in ["in quarantine", "held again"] {
        let mut all = with(|s| s.reuse.cooldown = 30, &["10.0.0.0/31"]);
        let mut beside = Spec::new("b", "lab");
        beside.reuse.cooldown = 30;
        all.apply(&Event::Pool(beside));
        all.apply(&Event::Block(block("b", "10.0.0.0/29", 1), State::Active));
        let pod = Some(Pod { namespace: "ns".to_owned(), name: "p".to_owned(), uid: String::new() });
        assert_eq!(get(&mut all, &Ask { pod: pod.clone(), ..any4(0) }, 0).unwrap(), ["10.0.0.0"]);
        assert_eq!(one(&mut all, 1, 0), "10.0.0.1");
        (0..2).for_each(|n| drop(all.release(&key(n), None, &at(0)).unwrap()));
        if taken == "in quarantine" {
            let taken = Unavailable::Quarantined { since: at(1), millis: 3_600_000, by: "x".to_owned() };
            all.apply(&Event::Quarantined { pool: "b".to_owned(), address: ip("10.0.0.0"), taken });
        } else {
            let again = Want { pool: "b".to_owned(), ..want(Family::V4, Some("10.0.0.0")) };
            assert_eq!(get(&mut all, &Ask { pod, ..ask(2, &[again]) }, 1).unwrap(), ["10.0.0.0"]);
            all.release(&key(2), None, &at(20)).unwrap();
        }
        assert_eq!(all.settle(&at(20)), Some(10), "{taken}");
        assert_eq!(one(&mut all, 3, 30), "10.0.0.1", "{taken}");
        assert_eq!(all.usage("a", Family::V4).cooling, 0, "{taken}");
    }
}

#[test]
fn how_much_a_node_wants() {
    let scaling = Scaling { pre_allocate: 8, ..Scaling::default() };
    assert_eq!([0, 56, 57, 120].map(|busy| scaling.want(busy, 64)), [64, 64, 128, 128]);
    assert_eq!(Scaling { min_allocate: 100, ..scaling }.want(0, 64), 128);
    assert_eq!(Scaling { max_allocate: 64, ..scaling }.want(500, 64), 64);
    assert_eq!(Scaling::default().want(0, 64), 0);
    assert_eq!(scaling.want(u64::MAX, 1), u64::MAX);
}

#[test]
fn what_nobody_can_get_of_a_block_is_asked_for_elsewhere() {
    let mut all = Allocator::new(1);
    let mut spec = Spec::new("p", "n");
    spec.scaling.pre_allocate = 8;
    spec.exclude = vec!["10.0.0.1-10.0.0.63".parse().unwrap()];
    all.apply(&Event::Pool(spec));
    let block = |text: &str| Event::Block(Block { pool: "p".into(), run: text.parse().unwrap(), epoch: 1, claim: None }, State::Active);
    assert_eq!(all.want("p", Family::V4, 64), 64);
    all.apply(&block("10.0.0.0/26"));
    assert_eq!((all.usage("p", Family::V4).unusable, all.want("p", Family::V4, 64)), (63, 128));
    all.apply(&block("10.0.0.64/26"));
    assert_eq!((all.want("p", Family::V4, 64), all.need("p", Family::V4, 64)), (128, 0));
}

/// A block with addresses that nobody can get goes back as every other one does.
#[test]
fn who_needs_nothing_needs_no_block_for_what_nobody_can_get() {
    let mut all = with(|spec| (spec.scaling.pre_allocate, spec.exclude) = (0, vec![run("10.0.0.0/30")]), &["10.0.0.0/28"]);
    assert_eq!((all.usage("a", Family::V4).unusable, all.want("a", Family::V4, 16)), (4, 0));
    one(&mut all, 1, 0);
    assert_eq!((all.want("a", Family::V4, 16), all.need("a", Family::V4, 16)), (16, 16));
}
