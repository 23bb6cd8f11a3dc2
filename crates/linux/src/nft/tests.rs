//! Against real `nft` and a real kernel: bytes as `nft` sends them, rulesets as `nft`
//! lists them.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use super::wire::{self, Writer};
use super::*;
use crate::netns::Inside;

mod frames;
mod modules;

const TABLE: &str = include_str!("fixtures/table.nft");
const ADD: &str = include_str!("fixtures/add.nft");
const RULE: &str = include_str!("fixtures/rule.nft");

/// A network namespace of the test's own, gone with it.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nlnf-{}-{n}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status().unwrap();
        assert!(made.success());
        Self(name)
    }

    fn with<T: Send>(&self, work: impl FnOnce(&mut Socket) -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).unwrap();
        let run = || {
            setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
            work(&mut Socket::open(&Inside::here()).unwrap())
        };
        std::thread::scope(|s| s.spawn(run).join()).unwrap_or_else(|e| std::panic::resume_unwind(e))
    }

    fn nft(&self, args: &[&str]) -> String {
        let output = Command::new("ip").args(["netns", "exec", &self.0, "nft"]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The ruleset as JSON, without what differs from run to run.
    fn ruleset(&self) -> String {
        let json = self.nft(&["-j", "list", "ruleset"]);
        let mut kept = String::new();
        let mut parts = json.split("\"handle\": ");
        kept.push_str(parts.next().unwrap());
        parts.for_each(|p| kept.push_str(p.trim_start_matches(|c: char| c.is_ascii_digit())));
        kept
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn name(text: &str) -> String {
    text.to_owned()
}

fn set(set_name: &str, key: &[Field], interval: bool) -> Step {
    let set = Set {
        family: Family::Inet,
        table: name("netloom"),
        name: name(set_name),
        key: key.to_vec(),
        interval,
        maps_to: None,
        counted: false,
        size: None,
    };
    Step::Set(Mode::Create, set)
}

fn rule(chain: &str, exprs: Vec<Expr>) -> Step {
    Step::Rule(Rule { family: Family::Inet, table: name("netloom"), chain: name(chain), exprs })
}

fn chain(chain: &str, base: Option<Base>) -> Step {
    let chain = Chain { family: Family::Inet, table: name("netloom"), name: name(chain), base };
    Step::Chain(Mode::Create, chain)
}

fn lookup(set: &str, negate: bool) -> Expr {
    Expr::Lookup { reg: Reg::FIRST, set: name(set), negate }
}

fn cmp(how: Cmp, value: &[u8]) -> Expr {
    Expr::Cmp { reg: Reg::FIRST, how, value: value.to_vec() }
}

/// What fixtures/table.nft says.
fn table() -> Transaction {
    let r = Reg::FIRST;
    let nfproto = Expr::Meta { key: Meta::Nfproto, into: r };
    let base = Base { kind: ChainType::Nat, hook: Hook::Postrouting, priority: Base::SRCNAT };
    let comment = Some(name("netloom rules, layout 1"));
    let table = Table { family: Family::Inet, name: name("netloom"), comment };
    Transaction::from_iter([
        Step::Table(Mode::Create, table),
        chain("postrouting", Some(base)),
        set("masquerade4", &[Field::Ipv4Addr], false),
        set("home4", &[Field::Ipv4Addr; 2], true),
        set("masquerade6", &[Field::Ipv6Addr], false),
        set("home6", &[Field::Ipv6Addr; 2], true),
        rule(
            "postrouting",
            vec![
                nfproto.clone(),
                cmp(Cmp::Equal, &[2]),
                Expr::ip_saddr(r),
                lookup("masquerade4", false),
                Expr::ip_daddr(r),
                Expr::Mask { reg: r, mask: vec![0xf0, 0, 0, 0] },
                cmp(Cmp::NotEqual, &[0xe0, 0, 0, 0]),
                Expr::ip_saddr(r),
                Expr::ip_daddr(Reg::word(1)),
                lookup("home4", true),
                Expr::Masquerade,
            ],
        ),
        rule(
            "postrouting",
            vec![
                nfproto,
                cmp(Cmp::Equal, &[10]),
                Expr::ip6_saddr(r),
                lookup("masquerade6", false),
                Expr::network(24, 1, r),
                cmp(Cmp::NotEqual, &[0xff]),
                Expr::ip6_saddr(r),
                Expr::ip6_daddr(Reg::word(4)),
                lookup("home6", true),
                Expr::Masquerade,
            ],
        ),
    ])
}

fn element(set: &str, key: &[u8], key_end: Option<&[u8]>, comment: &str) -> SetElement {
    SetElement {
        family: Family::Inet,
        table: name("netloom"),
        set: name(set),
        element: Element { key: key.to_vec(), key_end: key_end.map(<[u8]>::to_vec), data: None, comment: Some(name(comment)), note: None },
    }
}

/// What fixtures/add.nft says.
fn elements() -> Vec<SetElement> {
    let owner = "lab/pod-1/eth0";
    let v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let (from6, net6) = (v6("fd00::5"), v6("fd00::"));
    let end6 = v6("fd00::ffff:ffff:ffff:ffff");
    vec![
        element("masquerade4", &[10, 88, 0, 5], None, owner),
        element("home4", &[10, 88, 0, 5, 10, 88, 0, 0], Some(&[10, 88, 0, 5, 10, 88, 0, 255]), owner),
        element("masquerade6", &from6, None, owner),
        element("home6", &[from6, net6].concat(), Some(&[from6, end6].concat()), owner),
    ]
}

fn add_all(elements: &[SetElement]) -> Transaction {
    elements.iter().cloned().map(|e| Step::Element(Mode::Create, e)).collect()
}

/// What fixtures/rule.nft says.
fn regular() -> Transaction {
    let r = Reg::FIRST;
    Transaction::from_iter([
        chain("regular", None),
        rule(
            "regular",
            vec![
                Expr::Meta { key: Meta::Nfproto, into: r },
                cmp(Cmp::Equal, &[2]),
                Expr::ip_daddr(r),
                cmp(Cmp::Equal, &[10, 0, 0, 1]),
                Expr::Meta { key: Meta::L4proto, into: r },
                cmp(Cmp::Equal, &[6]),
                Expr::Counter,
                Expr::Verdict(Verdict::Return),
            ],
        ),
    ])
}

/// What fixtures/original.nft says.
fn original() -> Transaction {
    let r = Reg::FIRST;
    let of_family = |number| [Expr::Meta { key: Meta::Nfproto, into: r }, cmp(Cmp::Equal, &[number])];
    let look_up = |set| Expr::Lookup { reg: r, set: name(set), negate: false };
    let to = |key| Expr::Original { key, into: r };
    let of_udp = [Expr::Meta { key: Meta::L4proto, into: r }, cmp(Cmp::Equal, &[17])];
    let from4 = [Expr::ip_saddr(r), look_up("nodes4"), to(Original::Ipv4Daddr), look_up("nodes4")];
    let to_port = [to(Original::Port), look_up("vxlanports"), Expr::Verdict(Verdict::Return)];
    let from6 = [Expr::ip6_saddr(r), look_up("nodes6"), to(Original::Ipv6Daddr), look_up("nodes6")];
    let untracked = [
        Expr::Ct { key: Ct::State, into: r },
        Expr::Mask { reg: r, mask: Ct::UNTRACKED.to_ne_bytes().to_vec() },
        cmp(Cmp::NotEqual, &[0; 4]),
        Expr::Verdict(Verdict::Return),
    ];
    Transaction::from_iter([
        chain("regular", None),
        rule("regular", of_family(2).into_iter().chain(from4).chain(of_udp).chain(to_port).collect()),
        rule("regular", of_family(10).into_iter().chain(from6).chain(untracked).collect()),
    ])
}

/// What fixtures/reverse.nft says.
fn reverse() -> Transaction {
    let r = Reg::FIRST;
    let mut kind = b"bridge".to_vec();
    kind.resize(16, 0);
    let exprs = vec![
        Expr::Meta { key: Meta::IifKind, into: r },
        cmp(Cmp::Equal, &kind),
        Expr::ReversePath { into: r },
        cmp(Cmp::Equal, &[0; 4]),
        Expr::Verdict(Verdict::Drop),
    ];
    Transaction::from_iter([chain("regular", None), rule("regular", exprs)])
}

/// What fixtures/map.nft says.
fn map() -> Transaction {
    let r = Reg::FIRST;
    let outside = "outside-10.88.0.0/24";
    let base = Base { kind: ChainType::Nat, hook: Hook::Postrouting, priority: Base::SRCNAT };
    let nfproto = Expr::Meta { key: Meta::Nfproto, into: r };
    let map = Set {
        family: Family::Inet,
        table: name("netloom"),
        name: name("masquerade4"),
        key: vec![Field::Ipv4Addr],
        interval: false,
        maps_to: Some(MapTo::Verdict),
        counted: false,
        size: None,
    };
    let mut element = elements().swap_remove(0);
    element.element.data = Some(Data::Jump(name(outside)));
    let table = Table { family: Family::Inet, name: name("netloom"), comment: None };
    let from_outside = vec![
        nfproto.clone(),
        cmp(Cmp::Equal, &[2]),
        Expr::network(16, 3, r),
        cmp(Cmp::NotEqual, &[10, 88, 0]),
        Expr::ip_daddr(r),
        Expr::Mask { reg: r, mask: vec![0xf0, 0, 0, 0] },
        cmp(Cmp::NotEqual, &[0xe0, 0, 0, 0]),
        Expr::Masquerade,
    ];
    let by_source = vec![nfproto, cmp(Cmp::Equal, &[2]), Expr::ip_saddr(r), Expr::VerdictMap { reg: r, map: name("masquerade4") }];
    Transaction::from_iter([
        Step::Table(Mode::Create, table),
        chain(outside, None),
        chain("postrouting", Some(base)),
        Step::Set(Mode::Create, map),
        rule(outside, from_outside),
        rule("postrouting", by_source),
        Step::Element(Mode::Create, element),
    ])
}

fn range(set: &str, net: &str) -> SetRange {
    let range = net.parse::<ipnet::IpNet>().unwrap().into();
    SetRange { family: Family::Inet, table: name("netloom"), set: name(set), range }
}

/// What fixtures/ranges.nft says.
fn ranges() -> [SetRange; 3] {
    [range("inside4", "10.88.0.0/24"), range("own4", "255.255.255.0/24"), range("inside6", "fd00::/64")]
}

/// Its sets.
fn range_sets() -> Transaction {
    let table = Table { family: Family::Inet, name: name("netloom"), comment: None };
    Transaction::from_iter([
        Step::Table(Mode::Create, table),
        set("inside4", &[Field::Ipv4Addr], true),
        set("own4", &[Field::Ipv4Addr], true),
        set("inside6", &[Field::Ipv6Addr], true),
    ])
}

fn add_ranges(ranges: &[SetRange]) -> Transaction {
    ranges.iter().cloned().map(|r| Step::Range(Mode::Create, r)).collect()
}

fn delete_ranges(ranges: &[SetRange]) -> Transaction {
    ranges.iter().cloned().map(Step::DeleteRange).collect()
}

// --- the bytes of `nft` ---

/// A message as a tree, for comparison.
#[derive(Debug, PartialEq)]
enum Node {
    Leaf(u16, Vec<u8>),
    Nest(u16, Vec<Node>),
}

/// Reads attributes strictly, flags kept; panics on what is malformed.
fn nodes(mut rest: &[u8]) -> Vec<Node> {
    const NESTED: u16 = 0x8000;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let value = &rest[4..length];
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        all.push(if kind & NESTED != 0 { Node::Nest(kind & !NESTED, nodes(value)) } else { Node::Leaf(kind, value.to_vec()) });
    }
    all
}

/// Takes away the numbers that `nft` gives sets beside their names, which the kernel does
/// not need: in element lists and in lookups.
fn without_set_ids(kind: u16, all: &mut Vec<Node>) {
    const SET_ID: u16 = 4;
    let is_lookup = |n: &Node| *n == Node::Leaf(1, b"lookup\0".to_vec());
    let is_element = [12, 14].contains(&(kind & 0xff));
    if is_element {
        all.retain(|n| !matches!(n, Node::Leaf(SET_ID, _)));
    }
    if all.iter().any(is_lookup) {
        for node in all.iter_mut() {
            if let Node::Nest(2, data) = node {
                data.retain(|n| !matches!(n, Node::Leaf(SET_ID, _)));
            }
        }
    }
    for node in all {
        if let (Node::Nest(_, inner), false) = (node, is_element) {
            without_set_ids(kind, inner);
        }
    }
}

/// Messages without sequence numbers and without CREATE, EXCL and ACK, by which we ask for
/// more than `nft` does.
fn normal(bytes: &[u8]) -> Vec<(u16, u16, Vec<u8>, Vec<Node>)> {
    const OURS: u16 = 0x400 | 0x200 | 0x4;
    wire::frames(bytes)
        .map(|frame| {
            let mut all = nodes(frame.body());
            without_set_ids(frame.kind, &mut all);
            // A concatenation's userdata names its fields' types a second time.
            let concat = |n: &Node| matches!(n, Node::Nest(9, _));
            if frame.kind == wire::Kind::NewSet.number() && all.iter().any(concat) {
                all.retain(|n| !matches!(n, Node::Leaf(13, _)));
            }
            // And a map's tells of its data, which is no number.
            if frame.kind == wire::Kind::NewSet.number() && all.contains(&Node::Leaf(3, vec![0, 0, 0, 8])) {
                for node in &mut all {
                    if let Node::Leaf(13, userdata) = node {
                        userdata.truncate(6);
                    }
                }
            }
            (frame.kind, frame.flags & !OURS, frame.payload[..4].to_vec(), all)
        })
        .collect()
}

fn captured(fixture: &str) -> Vec<u8> {
    let digits: String = fixture.lines().filter(|l| !l.starts_with('#')).collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn encoded(transaction: &Transaction) -> Vec<u8> {
    let mut w = Writer::default();
    w.batch(wire::BATCH_BEGIN, 0);
    for (i, step) in (1..).zip(transaction.steps()) {
        step.write(&mut w, i, 0, set_number(transaction, i));
    }
    w.batch(wire::BATCH_END, 0);
    w.finish().unwrap()
}

/// Sets are numbered among themselves, as `nft` does.
fn set_number(transaction: &Transaction, upto: u32) -> u32 {
    let before = &transaction.steps()[..upto as usize];
    u32::try_from(before.iter().filter(|s| matches!(s, Step::Set(..))).count()).unwrap()
}

#[test]
fn bytes_are_those_of_nft() {
    let delete = elements().into_iter().map(Step::DeleteElement).collect();
    for (transaction, fixture) in [
        (table(), include_str!("fixtures/table.hex")),
        (add_all(&elements()), include_str!("fixtures/add.hex")),
        (delete, include_str!("fixtures/delete.hex")),
        (regular(), include_str!("fixtures/rule.hex")),
        (original(), include_str!("fixtures/original.hex")),
        (reverse(), include_str!("fixtures/reverse.hex")),
        (map(), include_str!("fixtures/map.hex")),
        (add_ranges(&ranges()), include_str!("fixtures/ranges.hex")),
        (delete_ranges(&ranges()), include_str!("fixtures/delete_ranges.hex")),
    ] {
        assert_eq!(normal(&encoded(&transaction)), normal(&captured(fixture)));
    }
}

// --- a real kernel ---

#[test]
fn nft_lists_what_nft_would_have_made() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    ours.with(|s| {
        s.commit(&table()).unwrap();
        s.commit(&add_all(&elements())).unwrap();
        s.commit(&regular()).unwrap();
    });
    let text = format!("{TABLE}\n{ADD}\n{RULE}");
    theirs.nft(&[&text]);
    assert_eq!(ours.ruleset(), theirs.ruleset());
    assert!(ours.ruleset().contains("lab/pod-1/eth0"));
    assert_eq!(ours.nft(&["list", "ruleset"]), theirs.nft(&["list", "ruleset"]));
}

#[test]
fn a_map_is_as_nft_would_have_made_it_and_reads_back() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    theirs.nft(&[include_str!("fixtures/map.nft")]);
    let element = match map().steps().last() {
        Some(Step::Element(_, element)) => element.clone(),
        other => panic!("{other:?}"),
    };
    ours.with(|s| {
        s.commit(&map()).unwrap();
        assert_eq!(s.find(std::slice::from_ref(&element)), Ok(vec![Some(element.element.clone())]));
        assert_eq!(s.elements(Family::Inet, "netloom", "masquerade4"), Ok(vec![element.element.clone()]));
    });
    assert_eq!(ours.ruleset(), theirs.ruleset());
    ours.with(|s| s.delete_missing_ok(std::slice::from_ref(&element)).unwrap());
    assert!(!ours.ruleset().contains("10.88.0.5"));
}

#[test]
fn what_nft_made_reads_back() {
    let ns = Namespace::new();
    ns.nft(&[&format!("{TABLE}\n{ADD}\nadd element inet netloom masquerade4 {{ 10.0.0.9 }}")]);
    ns.with(|s| {
        let comment = Some(name("netloom rules, layout 1"));
        assert_eq!(s.table(Family::Inet, "netloom"), Ok(Some(TableInfo { comment })));
        assert_eq!(s.has_table(Family::Inet, "netloo"), Ok(false));
        assert_eq!(s.count_rules(Family::Inet, "netloom", "postrouting"), Ok(2));
        assert_eq!(s.count_rules(Family::Inet, "netloom", "other"), Ok(0));
        assert_eq!(s.elements(Family::Inet, "netloom", "other"), Ok(vec![]));
        assert_eq!(s.elements(Family::Inet, "other", "home4"), Ok(vec![]));
        for wanted in elements() {
            let found = s.elements(Family::Inet, "netloom", &wanted.set).unwrap();
            assert!(found.contains(&wanted.element), "{found:?}");
        }
        let mut wanted = elements();
        wanted[1].element.key_end.as_mut().unwrap()[7] = 127;
        wanted.push(element("masquerade4", &[10, 0, 0, 9], None, "other"));
        wanted.push(element("masquerade4", &[10, 0, 0, 10], None, ""));
        wanted.push(element("nowhere", &[10, 0, 0, 10], None, ""));
        let found = s.find(&wanted).unwrap();
        let expected = [true, false, true, true, true, false, false];
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), expected);
        assert_eq!(found[4].as_ref().unwrap().comment, None);
        assert_eq!(found[0].as_ref(), Some(&wanted[0].element));
    });
}

#[test]
fn a_refusal_names_the_step_and_nothing_changes() {
    let ns = Namespace::new();
    ns.with(|s| {
        s.commit(&table()).unwrap();
        let mut all = elements();
        all.insert(1, element("home5", &[1], None, "x"));
        let error = s.commit(&add_all(&all)).unwrap_err();
        let [refusal] = error.refusals() else { panic!("{error:?}") };
        assert_eq!((refusal.step, refusal.errno), (1, Errno::ENOENT));
        assert_eq!(refusal.what, "create element inet netloom home5 01 x");
        assert!(error.is_missing() && !error.is_present());
        assert_eq!(s.elements(Family::Inet, "netloom", "masquerade4"), Ok(vec![]));

        let again = s.commit(&table()).unwrap_err();
        assert!(again.is_present(), "{again}");
        assert!(again.to_string().starts_with("nftables refused to create table inet netloom: EEXIST"));
        assert_eq!(s.count_rules(Family::Inet, "netloom", "postrouting"), Ok(2));

        s.commit(&add_all(&elements())).unwrap();
        let again = s.commit(&add_all(&elements())).unwrap_err();
        assert_eq!(again.refusals().len(), 4, "{again}");
        assert!(again.is_present() && !again.is_missing());

        let mut long = elements();
        long[2].element.comment = Some("x".repeat(COMMENT_MAX + 1));
        assert!(matches!(s.commit(&add_all(&long)), Err(TransactionError::TooLong { step: 2, .. })));
        s.commit(&Transaction::new()).unwrap();
        let whole = Step::DeleteTable { family: Family::Inet, name: name("netloom") };
        s.commit(&Transaction::from_iter([whole])).unwrap();
        assert_eq!(s.has_table(Family::Inet, "netloom"), Ok(false));
    });
}

#[test]
fn deletion_takes_what_is_there_and_ours() {
    let ns = Namespace::new();
    ns.with(|s| {
        s.delete_missing_ok(&elements()).unwrap();
        s.commit(&table()).unwrap();
        s.delete_missing_ok(&elements()).unwrap();

        let mut all = elements();
        s.commit(&add_all(&all[1..])).unwrap();
        let others = element("masquerade4", &[10, 88, 0, 6], None, "somebody else");
        s.commit(&add_all(std::slice::from_ref(&others))).unwrap();
        all.push(element("masquerade4", &[10, 88, 0, 6], None, "lab/pod-1/eth0"));
        all.push(element("nowhere", &[10, 88, 0, 6], None, "lab/pod-1/eth0"));
        s.delete_missing_ok(&all).unwrap();
        for set in ["home4", "masquerade6", "home6"] {
            assert_eq!(s.elements(Family::Inet, "netloom", set), Ok(vec![]));
        }
        let left = s.elements(Family::Inet, "netloom", "masquerade4");
        assert_eq!(left, Ok(vec![others.element.clone()]));

        let mut anybody = others;
        anybody.element.comment = None;
        s.delete_missing_ok(&[anybody]).unwrap();
        assert_eq!(s.elements(Family::Inet, "netloom", "masquerade4"), Ok(vec![]));
    });
}

#[test]
fn deletion_survives_deletion_by_others() {
    let ns = Namespace::new();
    let all: Vec<_> = (0..=255_u8).map(|n| element("masquerade4", &[10, 0, 0, n], None, "lab/pod-1/eth0")).collect();
    ns.with(|s| {
        s.commit(&table()).unwrap();
        s.commit(&add_all(&all)).unwrap();
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ns.with(|s| s.delete_missing_ok(&all).unwrap()));
        }
    });
    assert!(!ns.ruleset().contains("10.0.0."));
}

#[test]
fn ten_thousand_elements_in_one_transaction() {
    let ns = Namespace::new();
    let all: Vec<_> = (0..10_000_u32).map(|n| element("masquerade4", &(0x0a00_0000 + n).to_be_bytes(), None, "lab/pod/eth0")).collect();
    ns.with(|s| {
        s.commit(&table()).unwrap();
        s.commit(&add_all(&all)).unwrap();
        assert_eq!(s.elements(Family::Inet, "netloom", "masquerade4").unwrap().len(), all.len());
        // Every step refused: more answers than a default buffer takes.
        assert_eq!(s.commit(&add_all(&all)).unwrap_err().refusals().len(), all.len());
        s.delete_missing_ok(&all).unwrap();
        assert_eq!(s.elements(Family::Inet, "netloom", "masquerade4"), Ok(vec![]));
    });
}

#[test]
fn ranges_are_as_nft_would_have_made_them_and_read_back() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let sets = "table inet netloom {
      set inside4 { type ipv4_addr; flags interval; }
      set own4 { type ipv4_addr; flags interval; }
      set inside6 { type ipv6_addr; flags interval; }
    }";
    theirs.nft(&[sets]);
    theirs.nft(&[include_str!("fixtures/ranges.nft")]);
    let of = |s: &mut Socket, set: &str| -> Vec<Range> { s.ranges(Family::Inet, "netloom", set).unwrap() };
    for ns in [&ours, &theirs] {
        ns.with(|s| {
            if s.table(Family::Inet, "netloom").unwrap().is_none() {
                s.commit(&range_sets()).unwrap();
                s.commit(&add_ranges(&ranges())).unwrap();
            }
            for wanted in ranges() {
                assert_eq!(of(s, &wanted.set), [wanted.range]);
            }
            assert_eq!((of(s, "own6"), s.ranges(Family::Ip, "other", "own4")), (vec![], Ok(vec![])));
        });
    }
    assert_eq!(ours.ruleset(), theirs.ruleset());
    assert_eq!(ours.nft(&["list", "ruleset"]), theirs.nft(&["list", "ruleset"]));
    // Each can take away what the other has made.
    theirs.with(|s| s.commit(&delete_ranges(&ranges())).unwrap());
    ours.nft(&[&include_str!("fixtures/ranges.nft").replace("add element", "delete element")]);
    assert_eq!(ours.ruleset(), theirs.ruleset());
    assert!(!ours.ruleset().contains("elem"));
}

#[test]
fn ranges_change_in_one_transaction() {
    let ns = Namespace::new();
    let one = |net: &str| range("inside4", net);
    ns.with(|s| {
        let mut now = |steps: Vec<Step>| {
            let done = s.commit(&steps.into_iter().collect());
            (done, s.ranges(Family::Inet, "netloom", "inside4").unwrap().iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(now(range_sets().steps().to_vec()), (Ok(()), vec![]));
        let (done, found) =
            now(add_ranges(&[one("10.0.0.0/24"), one("10.0.1.0/24"), one("0.0.0.0/32"), one("255.255.255.255/32")]).steps().to_vec());
        assert_eq!(
            (done, found),
            (Ok(()), vec!["0.0.0.0".into(), "10.0.0.0-10.0.0.255".into(), "10.0.1.0-10.0.1.255".into(), "255.255.255.255".into()])
        );
        // A range that has the same first address, one that has the same last, and one in place of all.
        let change = |old: &[&str], new: &[&str]| -> Vec<Step> {
            let old = old.iter().map(|net| Step::DeleteRange(one(net)));
            old.chain(new.iter().map(|net| Step::Range(Mode::Create, one(net)))).collect()
        };
        let (done, found) = now(change(&["10.0.0.0/24", "10.0.1.0/24", "0.0.0.0/32"], &["10.0.0.0/23", "0.0.0.0/31"]));
        assert_eq!((done, found), (Ok(()), vec!["0.0.0.0-0.0.0.1".into(), "10.0.0.0-10.0.1.255".into(), "255.255.255.255".into()]));
        let (done, found) = now(change(&["10.0.0.0/23", "255.255.255.255/32"], &["10.0.1.0/24", "255.255.255.254/31"]));
        assert_eq!(
            (done, found),
            (Ok(()), vec!["0.0.0.0-0.0.0.1".into(), "10.0.1.0-10.0.1.255".into(), "255.255.255.254-255.255.255.255".into()])
        );
        let (done, found) = now(change(&["10.0.1.0/24", "255.255.255.254/31", "0.0.0.0/31"], &["0.0.0.0/0"]));
        assert_eq!((done, found), (Ok(()), vec!["0.0.0.0-255.255.255.255".into()]));
        let (done, found) = now(change(&["0.0.0.0/0"], &["10.0.0.0/24"]));
        assert_eq!((done, found), (Ok(()), vec!["10.0.0.0-10.0.0.255".into()]));
        // What is there, what overlaps, what is not there: refused, and nothing changes.
        for (old, new, missing) in [
            (&[][..], &["10.9.0.0/24", "10.0.0.0/24"][..], false),
            (&[], &["10.0.0.0/16"], false),
            (&[], &["10.0.0.128/25"], false),
            (&["10.0.1.0/24"], &["10.9.0.0/24"], true),
            (&["10.0.0.0/25"], &["10.9.0.0/24"], true),
        ] {
            let (done, found) = now(change(old, new));
            let error = done.unwrap_err();
            assert_eq!((error.is_missing(), error.is_present()), (missing, !missing), "{error}");
            assert_eq!(found, ["10.0.0.0-10.0.0.255"]);
        }
    });
    assert!(ns.nft(&["list", "ruleset"]).contains("elements = { 10.0.0.0/24 }"));
}

#[test]
fn connections_are_forgotten_by_port_and_by_who_answers() {
    use std::net::UdpSocket;

    let ns = Namespace::new();
    ns.nft(&["add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct state new accept"]);
    let up = Command::new("ip").args(["-n", &ns.0, "link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
    // What the kernel tells of connections, as `FAMILY DESTINATION PORT`.
    let tracked = || {
        let text = std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap();
        let line = |line: &str| {
            let value = |key: &str| line.split_whitespace().find_map(|w| w.strip_prefix(key)).unwrap().to_owned();
            format!("{} {}", value("dst="), value("dport="))
        };
        let mut lines: Vec<String> = text.lines().filter(|l| l.contains("udp")).map(line).collect();
        lines.sort();
        lines
    };
    let flows = |port, destination: Option<&str>, answered_by: Option<&str>| Flows {
        family: crate::Family::V4,
        protocol: 17,
        port,
        destination: destination.map(|a| a.parse().unwrap()),
        answered_by: answered_by.map(|a| a.parse().unwrap()),
    };
    let v6 = "0000:0000:0000:0000:0000:0000:0000:0001 53";
    ns.with(|s| {
        let send = || {
            let four = UdpSocket::bind("127.0.0.1:0").unwrap();
            for to in ["127.0.0.1:53", "127.0.0.2:53", "127.0.0.1:54"] {
                four.send_to(b"x", to).unwrap();
            }
            UdpSocket::bind("[::1]:0").unwrap().send_to(b"x", "[::1]:53").unwrap();
        };
        for each in [false, true] {
            let mut forget = |f: &Flows| if each { s.forget_each(f).unwrap() } else { s.forget(f).unwrap() };
            send();
            forget(&flows(53, None, Some("127.0.0.3")));
            assert_eq!(tracked(), [v6, "127.0.0.1 53", "127.0.0.1 54", "127.0.0.2 53"], "nobody answers from there");
            forget(&flows(53, Some("127.0.0.2"), Some("127.0.0.2")));
            assert_eq!(tracked(), [v6, "127.0.0.1 53", "127.0.0.1 54"]);
            forget(&flows(53, None, None));
            forget(&flows(53, None, None));
            assert_eq!(tracked(), [v6, "127.0.0.1 54"]);
            forget(&Flows { family: crate::Family::V6, ..flows(53, None, Some("::1")) });
            assert_eq!(tracked(), ["127.0.0.1 54"]);
            forget(&Flows { protocol: 6, ..flows(54, None, None) });
            assert_eq!(tracked(), ["127.0.0.1 54"], "of another protocol");
            forget(&flows(54, None, None));
        }
    });
}
