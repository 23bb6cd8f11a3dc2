//! Masquerade at the cluster's edge: what is installed, what it does to packets, and that it and attachments' elements leave each
//! other alone.

use crate::{EGRESS, Egress, RangeChanges, change, egress_is_whole, keep, meanings, missing_of, of_container, restore, stale};

use super::*;

/// What the rules are, in the words of `nft`.
const RULES: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    set own4 { type ipv4_addr; flags interval; }
    set inside4 { type ipv4_addr; flags interval; }
    set own6 { type ipv6_addr; flags interval; }
    set inside6 { type ipv6_addr; flags interval; }
    chain egress {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr @own4 ip daddr != @inside4 ip daddr != 224.0.0.0/4 ip daddr != 169.254.0.0/16 ip daddr != 255.255.255.255 fib daddr type != local masquerade
        ip6 saddr @own6 ip6 daddr != @inside6 ip6 daddr != ff00::/8 ip6 daddr != fe80::/10 fib daddr type != local masquerade
    }
}"#;

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn egress(own: &[&str], inside: &[&str]) -> Egress {
    Egress { own: nets(own), inside: nets(inside) }
}

/// Some of a node of a cluster of both families.
fn sample() -> Egress {
    egress(&["10.244.3.0/24", "fd00:3::/64"], &["10.244.0.0/16", "fd00::/16", "192.0.2.11/32", "2001:db8::11/128"])
}

/// Set and range of each, in order.
fn texts(kept: &RangeChanges) -> (Vec<String>, Vec<String>) {
    let of = |ranges: &[linux::nft::SetRange]| ranges.iter().map(|r| format!("{} {}", r.set, r.range)).collect();
    (of(&kept.added), of(&kept.removed))
}

#[test]
fn it_is_installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    ours.nft(|s| {
        assert_eq!(egress_is_whole(s, &sample()), Ok(false));
        assert_eq!(keep(s, &Egress::default()), Ok(RangeChanges::default()));
        assert_eq!((egress_is_whole(s, &Egress::default()), s.has_table(Family::Inet, "netloom")), (Ok(true), Ok(false)));
        let kept = keep(s, &sample()).unwrap();
        assert!(kept.rules && kept.removed.is_empty() && kept.added.len() == 6, "{kept:?}");
        assert_eq!(egress_is_whole(s, &sample()), Ok(true));
    });
    theirs.nft_file(RULES);
    for (set, elements) in [
        ("own4", "10.244.3.0/24"),
        ("own6", "fd00:3::/64"),
        ("inside4", "10.244.0.0/16, 192.0.2.11"),
        ("inside6", "fd00::/16, 2001:db8::11"),
    ] {
        theirs.nft_file(&format!("add element inet netloom {set} {{ {elements} }}"));
    }
    assert_eq!(ours.ruleset(), theirs.ruleset());
    assert_eq!(ours.run("nft list ruleset"), theirs.run("nft list ruleset"));
    // What `nft` has made is known, too.
    theirs.nft(|s| assert_eq!(keep(s, &sample()), Ok(RangeChanges::default())));
}

#[test]
fn a_change_of_what_is_known_reads_nothing_unless_the_kernel_has_something_else() {
    let ns = Namespace::new();
    let with = |address: &str| {
        let mut changed = sample();
        changed.inside.extend(nets(&[address]));
        changed
    };
    let (first, second) = (with("192.0.2.20/32"), with("2001:db8::20/128"));
    ns.nft(|s| {
        let kept = change(s, &Egress::default().joined(), &sample().joined()).unwrap();
        assert!(kept.rules && kept.added.len() == 6, "what is not known is looked at: {kept:?}");
        assert_eq!(texts(&change(s, &sample().joined(), &first.joined()).unwrap()), (vec!["inside4 192.0.2.20".into()], vec![]));
        assert_eq!((egress_is_whole(s, &first), change(s, &first.joined(), &first.joined())), (Ok(true), Ok(RangeChanges::default())));
        // What this change does not meet is not seen.
        ns.nft_file("delete element inet netloom own4 { 10.244.3.0/24 }");
        assert_eq!(texts(&change(s, &first.joined(), &sample().joined()).unwrap()), (vec![], vec!["inside4 192.0.2.20".into()]));
        assert_eq!(egress_is_whole(s, &sample()), Ok(false));
        keep(s, &sample()).unwrap();
        // What it meets is: an element that is gone, one that is there already, a table that is gone.
        for spoil in ["flush set inet netloom inside4", "add element inet netloom inside6 { 2001:db8::20 }", "delete table inet netloom"] {
            keep(s, &first).unwrap();
            ns.nft_file(spoil);
            change(s, &first.joined(), &second.joined()).unwrap();
            assert_eq!(egress_is_whole(s, &second), Ok(true), "{spoil}");
        }
    });
}

#[test]
fn only_what_differs_is_written() {
    let ns = Namespace::new();
    ns.nft(|s| {
        keep(s, &sample()).unwrap();
        let before = ns.run("nft -a list ruleset");
        assert_eq!(keep(s, &sample()), Ok(RangeChanges::default()));
        // Neither order nor what others contain changes anything.
        let mut same = sample();
        same.inside.reverse();
        same.inside.extend(nets(&["10.244.7.0/24", "10.244.9.9/32"]));
        assert_eq!(keep(s, &same), Ok(RangeChanges::default()));
        assert_eq!(ns.run("nft -a list ruleset"), before);

        let mut changed = sample();
        changed.inside.extend(nets(&["192.0.2.10/32", "2001:db8::12/128"]));
        assert_eq!(egress_is_whole(s, &changed), Ok(false));
        let kept = keep(s, &changed).unwrap();
        let expected = (vec!["inside4 192.0.2.10-192.0.2.11".into(), "inside6 2001:db8::12".into()], vec!["inside4 192.0.2.11".into()]);
        assert_eq!((texts(&kept), kept.rules), (expected, false));
        changed.own = nets(&["10.244.4.0/24"]);
        let kept = keep(s, &changed).unwrap();
        let removed = vec!["own4 10.244.3.0-10.244.3.255".into(), "own6 fd00:3::-fd00:3::ffff:ffff:ffff:ffff".into()];
        assert_eq!(texts(&kept), (vec!["own4 10.244.4.0-10.244.4.255".into()], removed));

        // All addresses are inside: nothing is masqueraded.
        let everything = egress(&["10.244.3.0/24"], &["0.0.0.0/0", "::/0"]);
        keep(s, &everything).unwrap();
        assert_eq!((keep(s, &everything), egress_is_whole(s, &everything)), (Ok(RangeChanges::default()), Ok(true)));
        // The rules stay, as the table does.
        let kept = keep(s, &Egress::default()).unwrap();
        assert_eq!((kept.added.len(), kept.removed.len(), kept.rules), (0, 3, false));
        assert_eq!(egress_is_whole(s, &Egress::default()), Ok(true));
    });
    let empty = Namespace::new();
    empty.nft_file(RULES);
    assert_eq!(ns.run("nft list ruleset"), empty.run("nft list ruleset"));
}

#[test]
fn what_others_take_away_is_put_back() {
    let ns = Namespace::new();
    ns.nft_file("table inet other { chain c { type filter hook forward priority 0; ip saddr 10.244.3.0/24 counter accept; }; }");
    let others = ns.run("nft -a list table inet other");
    ns.nft(|s| {
        keep(s, &sample()).unwrap();
        let whole = ns.run("nft list table inet netloom");
        for (change, added, removed, rules) in [
            ("flush chain inet netloom egress", 0, 0, true),
            ("flush table inet netloom", 0, 0, true),
            ("flush set inet netloom inside4", 2, 0, false),
            ("delete element inet netloom own4 { 10.244.3.0/24 }", 1, 0, false),
            ("add element inet netloom inside4 { 10.9.0.5-10.9.0.9 }", 0, 1, false),
            ("add element inet netloom own6 { ffff::/16 }", 0, 1, false),
            ("delete chain inet netloom egress; delete set inet netloom own6", 1, 0, true),
            ("delete table inet netloom", 6, 0, true),
        ] {
            ns.nft_file(change);
            assert_eq!(egress_is_whole(s, &sample()), Ok(false), "{change}");
            let kept = keep(s, &sample()).unwrap();
            assert_eq!((kept.added.len(), kept.removed.len(), kept.rules), (added, removed, rules), "{change}: {kept:?}");
            assert_eq!(egress_is_whole(s, &sample()), Ok(true));
            assert_eq!(sorted(&ns.run("nft list table inet netloom")), sorted(&whole), "{change}");
        }
    });
    assert_eq!(ns.run("nft -a list table inet other"), others);
}

/// Sets that are made anew come last.
fn sorted(listed: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_unknown_table_is_left_alone() {
    let ns = Namespace::new();
    ns.run("nft add table inet netloom");
    let before = ns.ruleset();
    let error = ns.nft(|s| keep(s, &sample())).unwrap_err();
    assert_eq!(error, AddError::OtherLayout { family: Family::Inet, found: String::new() });
    assert_eq!(ns.nft(|s| keep(s, &Egress::default())), Ok(RangeChanges::default()));
    assert_eq!(ns.ruleset(), before);
}

#[test]
fn ranges_and_attachments_leave_each_other_alone() {
    let ns = Namespace::new();
    let (one, two) = (id("lab", "c1"), id("lab", "c2"));
    let added = elements(&one, &["10.1.0.5/24", "fd01::5/64"]);
    ns.nft(|s| {
        keep(s, &sample()).unwrap();
        assert!(!ns.run("nft list ruleset").contains("masquerade4"), "nothing of the other subjects");
        install_and_add(s, &added).unwrap();
        assert_eq!(keep(s, &sample()), Ok(RangeChanges::default()));

        // Nobody who looks for attachments' elements finds a range.
        assert_eq!((all(s, &EGRESS), owned_by(s, &EGRESS, &one)), (Ok(vec![]), Ok(vec![])));
        assert_eq!(stale(s, &EGRESS, &one.network, &[]), Ok(vec![]));
        assert_eq!(of_container(s, &one.container).unwrap().len(), added.len());
        assert_eq!(of_container(s, &two.container), Ok(vec![]));
        assert_eq!(meanings(s).unwrap().len(), added.len());
        assert_eq!(missing_of(s, &added), Ok(crate::Restored::default()));

        // GC and DEL of all that there is.
        let gone = stale(s, &MASQUERADE, &one.network, &[]).unwrap();
        assert_eq!(gone.len(), added.len());
        s.delete_missing_ok(&gone).unwrap();
        assert_eq!(egress_is_whole(s, &sample()), Ok(true));

        // Each puts back its own, and neither the other's.
        install_and_add(s, &added).unwrap();
        ns.run("nft delete table inet netloom");
        assert_eq!(restore(s, &added).unwrap().put_back.len(), added.len());
        assert_eq!(egress_is_whole(s, &sample()), Ok(false));
        assert_eq!(keep(s, &sample()).unwrap().added.len(), 6);
        check(s, &added).unwrap();
        ns.run("nft delete table inet netloom");
        keep(s, &sample()).unwrap();
        assert_eq!(missing_of(s, &added).unwrap().put_back.len(), added.len());
        install_and_add(s, &added).unwrap();
        check(s, &added).unwrap();

        // A flush that leaves elements and ranges: the rules over both come back with either.
        ns.run("nft flush table inet netloom");
        repair(s).unwrap();
        assert_eq!(egress_is_whole(s, &sample()), Ok(true));
        check(s, &added).unwrap();
        ns.run("nft flush table inet netloom");
        assert!(keep(s, &sample()).unwrap().rules);
        assert!(restore(s, &added).unwrap().rules);
        assert_eq!(egress_is_whole(s, &sample()), Ok(true));
        check(s, &added).unwrap();
    });
}

#[test]
fn many_at_once_install_one() {
    const MANY: u8 = 16;
    let (ns, one) = (Namespace::new(), Namespace::new());
    std::thread::scope(|scope| {
        for n in 0..MANY {
            let ns = &ns;
            scope.spawn(move || {
                ns.nft(|s| {
                    keep(s, &sample()).unwrap();
                    install_and_add(s, &elements(&id("lab", &format!("c{n}")), &[&format!("10.1.0.{n}/24")])).unwrap();
                });
            });
        }
    });
    ns.nft(|s| {
        assert_eq!(keep(s, &sample()), Ok(RangeChanges::default()));
        assert_eq!(all(s, &MASQUERADE).unwrap().len(), usize::from(MANY));
    });
    one.nft(|s| {
        keep(s, &sample()).unwrap();
        install_and_add(s, &elements(&id("lab", "c1"), &["10.1.0.1/24"])).unwrap();
    });
    assert_eq!(ns.ruleset().matches("\"rule\"").count(), one.ruleset().matches("\"rule\"").count());
}

/// Each node has a range that joins no other's, and so has its address.
#[test]
fn five_thousand_nodes() {
    const NODES: u32 = 5_000;
    let ns = Namespace::new();
    let of_node = |n: u32| {
        let range = std::net::Ipv4Addr::from_bits(0x0a40_0000 + n * 512);
        let address = std::net::Ipv4Addr::from_bits(0xac10_0001 + n * 2);
        let range6 = std::net::Ipv6Addr::from_bits((0xfd00_0010 << 96) + (u128::from(n * 2) << 64));
        nets(&[&format!("{range}/24"), &format!("{address}/32"), &format!("{range6}/64")])
    };
    let of_nodes = |nodes: std::ops::Range<u32>| -> Vec<IpNet> { nodes.flat_map(of_node).collect() };
    let mut cluster = Egress { own: of_node(7), inside: of_nodes(0..NODES) };
    ns.nft(|s| {
        let kept = keep(s, &cluster).unwrap();
        assert_eq!(kept.added.len(), NODES as usize * 3 + 3);
        assert_eq!((keep(s, &cluster), egress_is_whole(s, &cluster)), (Ok(RangeChanges::default()), Ok(true)));
        // A node comes, and one goes: three ranges each.
        cluster.inside.extend(of_node(NODES));
        let kept = keep(s, &cluster).unwrap();
        assert_eq!((kept.added.len(), kept.removed.len(), kept.rules), (3, 0, false));
        cluster.inside = of_nodes(1..NODES + 1);
        let kept = keep(s, &cluster).unwrap();
        assert_eq!((kept.added.len(), kept.removed.len(), kept.rules), (0, 3, false));
        assert_eq!(egress_is_whole(s, &cluster), Ok(true));
        // None of it joins the elements that DEL and GC read.
        assert_eq!(of_container(s, &id("lab", "c1").container), Ok(vec![]));
    });
    let listed = ns.run("nft list set inet netloom inside4");
    assert_eq!((listed.contains(" 10.64.0.0/24"), listed.contains(" 10.64.2.0/24"), listed.matches("/24").count()), (false, true, 5_000));
    // Ranges side by side are one.
    let joined = Egress {
        own: cluster.own,
        inside: (0..NODES).map(|n| IpNet::new(std::net::Ipv4Addr::from_bits(0x0a40_0000 + n * 256).into(), 24).unwrap()).collect(),
    };
    ns.nft(|s| {
        keep(s, &joined).unwrap();
        let there = s.ranges(Family::Inet, "netloom", "inside4").unwrap();
        assert!(there.len() < 20, "{there:?}");
        assert_eq!(there.iter().map(|r| r.to_string()).next().unwrap().split('-').next(), Some("10.64.0.0"));
    });
}

// --- packets ---

#[test]
fn pods_leave_the_cluster_with_the_nodes_address() {
    let wires = Wires::new();
    let plain = ["10.1.0.5", "10.1.0.5", "10.1.0.6", "fd01::5", "fd01::5", "fd01::6"];
    let kept = |own: &[&str], inside: &[&str]| {
        wires.router.nft(|s| keep(s, &egress(own, inside)).unwrap());
        wires.sources()
    };
    // The neighbour is another node's pod: it is inside, and not the node's own.
    let (own, inside) = (["10.1.0.4/31", "fd01::4/127"], ["10.1.0.0/24", "fd01::/64"]);
    assert_eq!(kept(&own, &inside), ["192.0.2.1", "10.1.0.5", "10.1.0.6", "2001:db8::1", "fd01::5", "fd01::6"]);
    // One family alone.
    assert_eq!(kept(&["10.1.0.0/24"], &inside), ["192.0.2.1", "10.1.0.5", "192.0.2.1", "fd01::5", "fd01::5", "fd01::6"]);
    assert_eq!(kept(&["fd01::/64"], &inside), ["10.1.0.5", "10.1.0.5", "10.1.0.6", "2001:db8::1", "fd01::5", "2001:db8::1"]);
    // A node's address, which sees whose packet it is: one alone, and all there are.
    let with = |more: [&'static str; 2]| [inside[0], inside[1], more[0], more[1]];
    assert_eq!(kept(&own, &with(["192.0.2.2/32", "2001:db8::2/128"])), plain);
    assert_eq!(kept(&own, &with(["192.0.2.3/32", "2001:db8::3/128"]))[0], "192.0.2.1");
    assert_eq!(kept(&own, &with(["0.0.0.0/0", "::/0"])), plain);
    assert_eq!(kept(&[], &inside), plain);
    // Flushed, and put back.
    kept(&own, &inside);
    wires.router.run("nft flush chain inet netloom egress");
    assert_eq!(wires.sources(), plain);
    assert_eq!(kept(&own, &inside)[0], "192.0.2.1");
}

/// The host's own addresses see a pod's, and so do those that no router passes on.
#[test]
fn what_stays_on_the_node_keeps_its_source() {
    let wires = Wires::new();
    let (router, outside) = (&wires.router, &wires.outside);
    on_the_link(&wires);
    router.run("ip link set lo up");
    outside.run("ip addr add 169.254.7.7/32 dev eth0");
    outside.run("ip -6 addr add fe80::7/64 dev eth0 nodad");
    router.run("ip route add 169.254.7.7/32 dev outside");
    // A pod's range, and addresses of it that the host has: its end of a bridge, say.
    let own = ["10.1.0.0/24", "fd01::/64", "198.51.100.9/32", "fd09::9/128"];
    router.run("ip addr add 10.1.0.1/32 dev pod");
    router.run("ip -6 addr add fd01::1/128 dev pod nodad");
    router.nft(|s| keep(s, &egress(&own, &["10.1.0.0/24", "fd01::/64"])).unwrap());

    for (source, to) in [("10.1.0.1", "192.0.2.1"), ("fd01::1", "2001:db8::1")] {
        assert_eq!(wires.source((router, source), (router, to)).to_string(), source);
    }
    assert_eq!(wires.source((&wires.pod, "10.1.0.5"), (outside, "169.254.7.7")).to_string(), "10.1.0.5");
    assert_eq!(wires.source((&wires.pod, "10.1.0.5"), (router, "192.0.2.1")).to_string(), "10.1.0.5");
    for (source, to) in [
        ("198.51.100.9", "224.0.0.251"),
        ("198.51.100.9", "169.254.7.7"),
        ("198.51.100.9", "255.255.255.255"),
        ("fd09::9", "ff02::fb"),
        ("fd09::9", "fe80::7"),
    ] {
        assert_eq!(source_on_the_link(&wires, source, to), source, "{to}");
    }
    // The same sources to a single receiver outside are rewritten.
    assert_eq!(wires.source((router, "198.51.100.9"), (outside, "192.0.2.2")).to_string(), "192.0.2.1");
    assert_eq!(wires.source((router, "fd09::9"), (outside, "2001:db8::2")).to_string(), "2001:db8::1");
}
