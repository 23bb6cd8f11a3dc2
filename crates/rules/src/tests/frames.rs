//! Spoof guards: what is installed, and that it goes together with what is in the other table. What frames do is tested from
//! outside.

use cni::Mac;

use crate::{GUARDS, Meaning, all, check, guarded, install_and_add, lacks_bridge_family, meanings, owned_by, repair, spoof_guard};

use super::*;

fn of(container: &str, port: &str, mac: &str) -> Vec<SetElement> {
    spoof_guard(&id("lab", container), &IfName::parse(port).unwrap(), &mac.parse::<Mac>().unwrap())
}

#[test]
fn guards_are_installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let guard = of("c1", "veth1", "02:00:00:00:00:01");
    ours.nft(|s| {
        install_and_add(s, &guard).unwrap();
        install_and_add(s, &guard).unwrap();
        check(s, &guard).unwrap();
    });
    theirs.nft_file(super::source::GUARDS_TABLE);
    let comment = "comment \"lab/c1/eth0\"";
    theirs.nft_file(&format!("add element bridge netloom macs {{ \"veth1\" . 02:00:00:00:00:01 {comment} }}"));
    theirs.nft_file(&format!("add element bridge netloom guarded {{ \"veth1\" {comment} }}"));
    let [ours_listed, theirs_listed] = [&ours, &theirs].map(|ns| ns.run("nft list ruleset"));
    assert_eq!(super::source::without_words(&ours_listed), super::source::without_words(&theirs_listed));
    assert!(!ours.run("nft list ruleset").contains("table inet"), "nothing of the other subjects");
}

#[test]
fn one_transaction_fills_two_tables() {
    let ns = Namespace::new();
    let both = |container: &str, n: u8| {
        let mut added = elements(&id("lab", container), &[&format!("10.1.0.{n}/24")]);
        added.extend(of(container, &format!("veth{n}"), "02:00:00:00:00:01"));
        added
    };
    // Neither table, one of them, both.
    ns.nft(|s| {
        install_and_add(s, &both("c1", 1)).unwrap();
        check(s, &both("c1", 1)).unwrap();
        ns.run("nft delete table bridge netloom");
        install_and_add(s, &both("c2", 2)).unwrap();
        ns.run("nft delete table inet netloom");
        install_and_add(s, &both("c3", 3)).unwrap();
        check(s, &both("c3", 3)).unwrap();
        check(s, &of("c2", "veth2", "02:00:00:00:00:01")).unwrap();
        assert_eq!(owned_by(s, &GUARDS, &id("lab", "c3")).unwrap().len(), 2);
        assert_eq!(owned_by(s, &MASQUERADE, &id("lab", "c3")).unwrap().len(), 1);
    });
    let many = 16;
    std::thread::scope(|scope| {
        for n in 10..10 + many {
            let (ns, both) = (&ns, &both);
            scope.spawn(move || ns.nft(|s| install_and_add(s, &both(&format!("c{n}"), n)).unwrap()));
        }
    });
    assert_eq!(ns.nft(|s| all(s, &GUARDS)).unwrap().len(), usize::from(many) * 2 + 4);
}

#[test]
fn what_others_break_of_a_guard_is_named_and_mended() {
    let ns = Namespace::new();
    let (guard, other) = (of("c1", "veth1", "02:00:00:00:00:01"), of("c2", "veth2", "02:00:00:00:00:02"));
    ns.nft(|s| {
        assert_eq!(meanings(s), Ok(vec![]));
        install_and_add(s, &guard).unwrap();
        for (change, found) in [
            ("delete element bridge netloom guarded { \"veth1\" }", "the firewall entry for the spoof guard of veth1 is missing"),
            ("flush set bridge netloom macs", "the spoof guard of veth1 . 02:00:00:00:00:01 is missing"),
            ("flush chain bridge netloom prerouting", "chain bridge netloom prerouting has 0 rules"),
            ("delete table bridge netloom", "the firewall entry for the spoof guard of"),
        ] {
            ns.nft_file(change);
            let said = check(s, &guard).unwrap_err().to_string();
            assert!(said.contains(found), "{change}: {said}");
            install_and_add(s, &guard).unwrap();
            check(s, &guard).unwrap();
        }
        ns.run("nft flush chain bridge netloom prerouting");
        repair(s).unwrap();
        check(s, &guard).unwrap();
        install_and_add(s, &other).unwrap();
        // A port whose address was taken from it, and one that is not guarded any more.
        ns.nft_file("delete element bridge netloom macs { \"veth1\" . 02:00:00:00:00:01 }");
        ns.nft_file("delete element bridge netloom guarded { \"veth2\" }");
        let told = meanings(s).unwrap();
        assert!(matches!(&told[..], [(_, Meaning::SpoofGuard { port, mac: None, .. })] if port == "veth1"), "{told:?}");
        assert_eq!(s.find(&[guarded(&id("lab", "c1"), &IfName::parse("veth1").unwrap())]).unwrap().iter().flatten().count(), 1);
    });
}

/// Whether there are such rules already or not, the question leaves nothing.
#[test]
fn the_kernel_is_asked_for_the_family_and_nothing_is_left() {
    let ns = Namespace::new();
    ns.nft(|s| {
        assert_eq!(lacks_bridge_family(s), Ok(None));
        assert!(!ns.ruleset().contains("\"table\""));
        install_and_add(s, &of("c1", "veth1", "02:00:00:00:00:01")).unwrap();
        let before = ns.ruleset();
        assert_eq!(lacks_bridge_family(s), Ok(None));
        assert_eq!(ns.ruleset(), before);
    });
}
