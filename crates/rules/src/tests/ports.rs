//! Host ports: what is installed, who keeps what, and what many do at once. What packets do is tested from outside.

use crate::{
    AddError, CheckError, Conditions, HOST_PORTS, HostPort, Protocol, Rewrite, all, check, host_ports, host_ports_if, install_and_add,
    owned_by, repair, sources,
};

use super::*;

/// What host ports need, in the words of `nft`.
const PORTS: &str = r#"table inet netloom {
    map hostports4 { type inet_proto . inet_service : ipv4_addr . inet_service; }
    map hostports4_at { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
    map hostports6 { type inet_proto . inet_service : ipv6_addr . inet_service; }
    map hostports6_at { type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service; }
    map snat4 { type ipv4_addr : verdict; }
    map snat6 { type ipv6_addr : verdict; }
    chain hostports {
        dnat ip to ip daddr . meta l4proto . th dport map @hostports4_at
        meta nfproto ipv4 dnat ip to meta l4proto . th dport map @hostports4
        dnat ip6 to ip6 daddr . meta l4proto . th dport map @hostports6_at
        meta nfproto ipv6 dnat ip6 to meta l4proto . th dport map @hostports6
    }
    chain hostports-in {
        type nat hook prerouting priority dstnat + 10; policy accept;
        ip daddr 127.0.0.0/8 return
        fib daddr type local jump hostports
    }
    chain hostports-out {
        type nat hook output priority -90; policy accept;
        ip6 daddr ::1 return
        fib daddr type local jump hostports
    }
    chain hostports-back {
        type nat hook postrouting priority srcnat; policy accept;
        ct status dnat ip daddr vmap @snat4
        ct status dnat ip6 daddr vmap @snat6
    }
    chain loopback {
        type filter hook input priority filter; policy accept;
        iif != lo ip daddr 127.0.0.0/8 ct state ! established,related ct status ! dnat drop
    }
}"#;

/// What those with conditions need besides.
const CONDITIONAL: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    map hostports4_if { type inet_proto . inet_service : verdict; }
    map hostports6_if { type inet_proto . inet_service : verdict; }
    map hostports4_then { type inet_proto . inet_service : ipv4_addr . inet_service; }
    map hostports6_then { type inet_proto . inet_service : ipv6_addr . inet_service; }
    chain conditions {
        meta nfproto ipv4 meta l4proto . th dport vmap @hostports4_if
        meta nfproto ipv6 meta l4proto . th dport vmap @hostports6_if
    }
    chain conditions-in {
        type nat hook prerouting priority dstnat + 9; policy accept;
        ip daddr 127.0.0.0/8 return
        fib daddr type local jump conditions
    }
    chain conditions-out {
        type nat hook output priority -91; policy accept;
        ip6 daddr ::1 return
        fib daddr type local jump conditions
    }
    chain when-ip/and/saddr-not-192.0.2.0/24/and/daddr-is-192.168.7.1/32/and/iifname-not-eth0 {
        meta nfproto ipv4 ip saddr != 192.0.2.0/24 ip daddr 192.168.7.1 iifname != "eth0" dnat ip to meta l4proto . th dport map @hostports4_then
    }
    chain when-ip6/and/saddr-is-fd00--/9 {
        meta nfproto ipv6 ip6 saddr fd00::/9 dnat ip6 to meta l4proto . th dport map @hostports6_then
    }
}"#;

#[test]
fn conditions_are_installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let owner = id("lab", "c1");
    let (tcp, udp) = (port(Protocol::Tcp, None, 8080, "10.88.0.5:80"), port(Protocol::Udp, None, 8080, "[fd00::5]:80"));
    let v4 = Conditions::read(linux::Family::V4, &["ip saddr != 192.0.2.0/24 ip daddr 192.168.7.1", "iifname", "!=", "eth0"]).unwrap();
    let v6 = Conditions::read(linux::Family::V6, &["ip6", "saddr", "==", "fd00::1/9"]).unwrap();
    let mut added = host_ports_if(&owner, &[tcp, udp], &v4);
    added.extend(host_ports_if(&owner, &[tcp, udp, port(Protocol::Tcp, Some("fd00::9"), 1, "[fd00::5]:1")], &v6));
    assert_eq!(added.len(), 4);
    assert_eq!(added.iter().filter_map(HostPort::of).collect::<Vec<_>>(), [tcp, udp]);
    ours.nft(|s| {
        install_and_add(s, &added).unwrap();
        install_and_add(s, &added).unwrap();
        check(s, &added).unwrap();
        // Other conditions, and no other container.
        let other = host_ports_if(&id("lab", "c2"), &[port(Protocol::Tcp, None, 8080, "10.88.0.6:80")], &v4);
        assert!(matches!(install_and_add(s, &other), Err(AddError::Held { .. })));
    });
    theirs.nft_file(CONDITIONAL);
    theirs.nft_file(
        "add element inet netloom hostports4_if { tcp . 8080 comment \"lab/c1/eth0\" : jump when-ip/and/saddr-not-192.0.2.0/24/and/daddr-is-192.168.7.1/32/and/iifname-not-eth0 }
         add element inet netloom hostports4_then { tcp . 8080 comment \"lab/c1/eth0\" : 10.88.0.5 . 80 }
         add element inet netloom hostports6_if { udp . 8080 comment \"lab/c1/eth0\" : jump when-ip6/and/saddr-is-fd00--/9 }
         add element inet netloom hostports6_then { udp . 8080 comment \"lab/c1/eth0\" : fd00::5 . 80 }",
    );
    assert_eq!(ours.ruleset(), theirs.ruleset());
    // Rules that are flushed are put back by what the elements say.
    let whole = ours.ruleset();
    for chain in ["conditions", "when-ip6/and/saddr-is-fd00--/9"] {
        ours.run(&format!("nft flush chain inet netloom {chain}"));
        ours.nft(|s| {
            assert!(matches!(check(s, &added), Err(CheckError::Rules { .. })));
            repair(s).unwrap();
            check(s, &added).unwrap();
        });
    }
    assert_eq!(ours.ruleset(), whole);
}

fn port(protocol: Protocol, at: Option<&str>, port: u16, to: &str) -> HostPort {
    HostPort { protocol, at: at.map(|a| a.parse().unwrap()), port, to: to.parse().unwrap() }
}

#[test]
fn host_ports_are_installed_as_nft_would() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    let owner = id("lab", "c1");
    let ports = [
        port(Protocol::Tcp, None, 8080, "10.88.0.5:80"),
        port(Protocol::Udp, Some("192.0.2.1"), 53, "10.88.0.5:5353"),
        port(Protocol::Sctp, None, 65535, "[fd00::5]:1"),
        port(Protocol::Tcp, Some("2001:db8::1"), 443, "[fd00::5]:8443"),
        // Of two families: none.
        port(Protocol::Tcp, Some("2001:db8::1"), 443, "10.88.0.5:80"),
    ];
    let mut added = host_ports(&owner, &ports);
    assert_eq!(added.len(), 4);
    assert_eq!(added.iter().filter_map(HostPort::of).collect::<Vec<_>>(), ports[..4]);
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    added.push(sources(&owner, net("10.88.0.5/24"), Rewrite::Hairpin));
    added.push(sources(&owner, net("10.99.7.7/32"), Rewrite::Hairpin));
    added.push(sources(&owner, net("10.99.200.5/18"), Rewrite::Hairpin));
    added.push(sources(&owner, net("10.0.0.1/0"), Rewrite::Hairpin));
    added.push(sources(&owner, net("fd00::5/64"), Rewrite::Hairpin));
    added.push(sources(&owner, net("fd00::6/64"), Rewrite::Everything));
    assert_eq!(HostPort::of(&added[4]), None);
    ours.nft(|s| {
        install_and_add(s, &added).unwrap();
        install_and_add(s, &added).unwrap();
        check(s, &added).unwrap();
    });
    theirs.nft_file("table inet netloom { comment \"netloom, layout 1\"; }");
    theirs.nft_file(PORTS);
    theirs.nft_file(
        "table inet netloom {
        chain hairpin-10.88.0.0/24 { ip saddr 10.88.0.0/24 masquerade; ip saddr 127.0.0.0/8 masquerade; }
        chain hairpin-10.99.192.0/18 { ip saddr 10.99.192.0/18 masquerade; ip saddr 127.0.0.0/8 masquerade; }
        chain hairpin-10.99.7.7/32 { ip saddr 10.99.7.7 masquerade; ip saddr 127.0.0.0/8 masquerade; }
        chain hairpin-everything { masquerade; }
        chain hairpin-fd00--/64 { ip6 saddr fd00::/64 masquerade; }
    }",
    );
    let c = "comment \"lab/c1/eth0\"";
    theirs.nft_file(&format!(
        "add element inet netloom hostports4 {{ tcp . 8080 {c} : 10.88.0.5 . 80 }}
        add element inet netloom hostports4_at {{ 192.0.2.1 . udp . 53 {c} : 10.88.0.5 . 5353 }}
        add element inet netloom hostports6 {{ sctp . 65535 {c} : fd00::5 . 1 }}
        add element inet netloom hostports6_at {{ 2001:db8::1 . tcp . 443 {c} : fd00::5 . 8443 }}
        add element inet netloom snat4 {{ 10.88.0.5 {c} : jump hairpin-10.88.0.0/24 }}
        add element inet netloom snat4 {{ 10.99.7.7 {c} : jump hairpin-10.99.7.7/32 }}
        add element inet netloom snat4 {{ 10.99.200.5 {c} : jump hairpin-10.99.192.0/18 }}
        add element inet netloom snat4 {{ 10.0.0.1 {c} : jump hairpin-everything }}
        add element inet netloom snat6 {{ fd00::5 {c} : jump hairpin-fd00--/64 }}
        add element inet netloom snat6 {{ fd00::6 {c} : jump hairpin-everything }}"
    ));
    let sorted = |ns: &Namespace| {
        let text = ns.run("nft list ruleset");
        let mut lines: Vec<String> = text.lines().map(|l| l.trim().trim_end_matches(',').to_owned()).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ours), sorted(&theirs));
}

#[test]
fn a_host_port_stays_its_owners() {
    let ns = Namespace::new();
    let (one, two) = (id("lab", "c1"), id("lab", "c2"));
    let ports = |owner, to| host_ports(owner, &[port(Protocol::Tcp, None, 8080, to), port(Protocol::Udp, Some("192.0.2.1"), 53, to)]);
    let (ones, twos) = (ports(&one, "10.1.0.1:80"), ports(&two, "10.1.0.2:80"));
    ns.nft(|s| {
        install_and_add(s, &ones).unwrap();
        let refused = install_and_add(s, &twos).unwrap_err();
        let expected = AddError::Held { what: "host port 8080/tcp".into(), owner: "lab/c1/eth0".into() };
        assert_eq!(refused, expected);
        assert!(
            install_and_add(s, &twos[1..])
                .unwrap_err()
                .to_string()
                .starts_with("host port 53/udp of 192.0.2.1 is used by attachment lab/c1/eth0")
        );
        check(s, &ones).unwrap();
        assert_eq!(owned_by(s, &HOST_PORTS, &two), Ok(vec![]));
        // Its own, with another address.
        let moved = ports(&one, "10.1.0.9:80");
        install_and_add(s, &moved).unwrap();
        let wrong = check(s, &ones).unwrap_err().to_string();
        assert!(wrong.starts_with("the firewall entry for host port 8080/tcp leads to 10.1.0.9 . 80, not to 10.1.0.1 . 80"), "{wrong}");
        // Who has the address now knows that the one before is gone.
        let heir = ports(&two, "10.1.0.9:81");
        install_and_add(s, &heir).unwrap();
        check(s, &heir).unwrap();
        assert_eq!(owned_by(s, &HOST_PORTS, &one), Ok(vec![]));
        s.delete_missing_ok(&heir).unwrap();
        assert_eq!(all(s, &HOST_PORTS), Ok(vec![]));
    });
}

#[test]
fn subjects_come_one_by_one_and_are_mended_one_by_one() {
    let ns = Namespace::new();
    let owner = id("lab", "c1");
    let masqueraded = elements(&owner, &["10.1.0.1/24"]);
    let ports = host_ports(&owner, &[port(Protocol::Tcp, None, 8080, "10.1.0.1:80")]);
    ns.nft(|s| {
        install_and_add(s, &masqueraded).unwrap();
        assert!(!ns.ruleset().contains("hostports"));
        install_and_add(s, &ports).unwrap();
        check(s, &ports).unwrap();
        for chain in ["hostports", "hostports-in", "hostports-out", "hostports-back", "loopback"] {
            ns.run(&format!("nft flush chain inet netloom {chain}"));
            assert_eq!(check(s, &ports), Err(CheckError::Rules { family: Family::Inet, chain: chain.into(), found: 0 }));
            assert_eq!(check(s, &masqueraded), Ok(()));
            install_and_add(s, &ports).unwrap();
            assert_eq!(check(s, &ports), Ok(()));
        }
        ns.run("nft flush chain inet netloom hostports-in");
        ns.run("nft flush chain inet netloom postrouting");
        repair(s).unwrap();
        assert_eq!((check(s, &ports), check(s, &masqueraded)), (Ok(()), Ok(())));
        let listed = ns.ruleset();
        repair(s).unwrap();
        assert_eq!(ns.ruleset(), listed);
    });
}

/// All of them on a machine without rules, for ports of their own and for one port: that has one owner in the end, and the others
/// know it.
#[test]
fn many_at_once() {
    const MANY: u16 = 24;
    let ns = Namespace::new();
    let add = |owner: u16, port_number: u16| {
        let owner = id("lab", &format!("c{owner}"));
        let mut wanted = host_ports(&owner, &[port(Protocol::Tcp, None, port_number, &format!("10.1.0.{}:80", owner_number(&owner)))]);
        wanted.push(sources(&owner, format!("10.1.0.{}/24", owner_number(&owner)).parse().unwrap(), Rewrite::Hairpin));
        ns.nft(|s| install_and_add(s, &wanted))
    };
    let add = &add;
    let outcomes = |port_of: fn(u16) -> u16| -> Vec<_> {
        std::thread::scope(|scope| {
            let started: Vec<_> = (1..=MANY).map(|n| scope.spawn(move || add(n, port_of(n)))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    assert_eq!(outcomes(|n| 8000 + n), vec![Ok(()); usize::from(MANY)]);
    assert_eq!(ns.ruleset().matches("\"rule\"").count(), 4 + 2 + 2 + 2 + 1 + 2);
    assert_eq!(ns.nft(|s| all(s, &HOST_PORTS)).unwrap().len(), usize::from(MANY) * 2);

    let contested = outcomes(|_| 9000);
    let owner = ns.nft(|s| all(s, &HOST_PORTS)).unwrap();
    let owner = owner.iter().find(|(_, e)| HostPort::of(e).is_some_and(|p| p.port == 9000)).unwrap().0.to_string();
    assert_eq!(contested.iter().filter(|o| o.is_ok()).count(), 1, "{contested:?}");
    let held = Err(AddError::Held { what: "host port 9000/tcp".into(), owner });
    assert_eq!(contested.iter().filter(|o| **o == held).count(), usize::from(MANY) - 1, "{contested:?}");
}

fn owner_number(owner: &AttachmentId) -> &str {
    owner.container.as_str().trim_start_matches('c')
}
