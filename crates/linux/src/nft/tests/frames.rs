//! Tables of the bridge family, which see frames.

use super::*;

/// Sets of frames: names and hardware addresses as keys, and a counter in each element.
#[test]
fn a_table_for_frames_is_as_nft_would_have_made_it_and_counts() {
    const BRIDGE: &str = r#"table bridge netloom {
        set macs { type ifname . ether_addr; elements = { "veth1" . 02:00:00:00:00:01 comment "lab/pod-1/eth0" } }
        set guarded { type ifname; counter; elements = { "veth1" counter packets 0 bytes 0 comment "lab/pod-1/eth0" } }
        chain prerouting { type filter hook prerouting priority -300; policy accept;
            iifname . ether saddr @macs return
            iifname @guarded drop
            ether daddr and ff:ff:ff:ff:ff:f0 != 01:80:c2:00:00:00 accept
        }
    }"#;
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    theirs.nft(&[BRIDGE]);
    let (family, table) = (Family::Bridge, name("netloom"));
    let set = |set_name: &str, key: &[Field], counted| {
        let (table, key) = (table.clone(), key.to_vec());
        let set = Set { family, table, name: name(set_name), key, interval: false, maps_to: None, counted, size: None };
        Step::Set(Mode::Create, set)
    };
    let rule = |exprs| Step::Rule(Rule { family, table: table.clone(), chain: name("prerouting"), exprs });
    let port = b"veth1\0\0\0\0\0\0\0\0\0\0\0";
    let in_bridge = |set, key: &[u8]| SetElement { family, ..element(set, key, None, "lab/pod-1/eth0") };
    let added = [in_bridge("macs", &[port.as_slice(), &[2, 0, 0, 0, 0, 1, 0, 0]].concat()), in_bridge("guarded", port)];
    let (r, base) = (Reg::FIRST, Base { kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 });
    let by_name = Expr::Meta { key: Meta::IifName, into: r };
    let steps = [
        Step::Table(Mode::Create, Table { family, name: table.clone(), comment: None }),
        Step::Chain(Mode::Create, Chain { family, table: table.clone(), name: name("prerouting"), base: Some(base) }),
        set("macs", &[Field::IfName, Field::EtherAddr], false),
        set("guarded", &[Field::IfName], true),
        rule(vec![by_name.clone(), Expr::ether_saddr(Reg::word(4)), lookup("macs", false), Expr::Verdict(Verdict::Return)]),
        rule(vec![by_name, lookup("guarded", false), Expr::Verdict(Verdict::Drop)]),
        rule(vec![
            Expr::ether_daddr(r),
            Expr::Mask { reg: r, mask: vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xf0] },
            cmp(Cmp::NotEqual, &[1, 0x80, 0xc2, 0, 0, 0]),
            Expr::Verdict(Verdict::Accept),
        ]),
    ];
    ours.with(|s| {
        s.commit(&steps.into_iter().chain(added.iter().cloned().map(|e| Step::Element(Mode::Create, e))).collect()).unwrap();
        assert_eq!(s.find(&added), Ok(added.iter().map(|e| Some(e.element.clone())).collect()));
        assert_eq!(s.counts(family, "netloom", "macs"), Ok(vec![]), "none of them counts");
        assert_eq!(s.counts(family, "netloom", "guarded"), Ok(vec![(added[1].element.clone(), Count::default())]));
    });
    assert_eq!(ours.ruleset(), theirs.ruleset());
    assert_eq!(ours.nft(&["list", "ruleset"]), theirs.nft(&["list", "ruleset"]));
    let counted =
        r#"table bridge other { set guarded { type ifname; counter; elements = { "veth1" counter packets 7 bytes 4294967300 }; }; }"#;
    theirs.nft(&[counted]);
    let found = theirs.with(|s| s.counts(family, "other", "guarded")).unwrap();
    assert_eq!(found.first().map(|(_, count)| *count), Some(Count { packets: 7, bytes: 4_294_967_300 }));
    ours.with(|s| s.delete_missing_ok(&added).unwrap());
    assert!(!ours.ruleset().contains("veth1"));
}
