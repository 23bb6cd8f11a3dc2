//! Chains of networks and conditions that nobody has any more.

use super::*;
use crate::{Conditions, HostPort, Protocol, forget_idle_chains, host_ports_if};

/// An address of the container with this number, in a network of its own.
fn of(n: u8) -> Vec<SetElement> {
    masquerade(&id("lab", &format!("c{n}")), &[format!("10.{n}.0.5/24").parse().unwrap()])
}

#[test]
fn what_no_element_leads_to_goes_and_the_rest_stays() {
    let ns = Namespace::new();
    let conditions = Conditions::read(linux::Family::V4, &["ip saddr 192.0.2.0/24"]).unwrap();
    let port = HostPort { protocol: Protocol::Tcp, port: 8080, to: "10.1.0.5:80".parse().unwrap(), at: None };
    let ports = host_ports_if(&id("lab", "c1"), &[port], &conditions);
    ns.nft(|s| {
        assert_eq!(forget_idle_chains(s, 0).unwrap(), 0, "there is no table");
        for n in 0..20 {
            install_and_add(s, &of(n)).unwrap();
        }
        install_and_add(s, &ports).unwrap();
        assert_eq!(forget_idle_chains(s, 0).unwrap(), 0, "each has an element");
        for n in 1..20 {
            s.delete_missing_ok(&of(n)).unwrap();
        }
        s.delete_missing_ok(&ports).unwrap();
        assert_eq!(forget_idle_chains(s, 19).unwrap(), 0, "19 networks and one condition are few");
        assert_eq!(forget_idle_chains(s, 0).unwrap(), 20);
    });
    let left = ns.run("nft list ruleset");
    assert!(left.contains("outside-10.0.0.0/24") && !left.contains("outside-10.1.0.0/24") && !left.contains("when-"), "{left}");
    assert!(left.contains("chain conditions {"), "what is there whatever elements there are stays: {left}");
    ns.nft(|s| {
        check(s, &of(0)).unwrap();
        install_and_add(s, &of(1)).unwrap();
        check(s, &of(1)).unwrap();
    });
}

/// Of an address that comes while its network's chain goes, one sees the other.
#[test]
fn an_address_that_comes_meanwhile_has_its_chain() {
    const EACH: u32 = 60;
    let ns = Namespace::new();
    come_and_go(&ns, 3, EACH, of, |s| forget_idle_chains(s, 0).map(drop));
    let left = ns.run("nft list ruleset");
    assert!(left.contains("postrouting") && !left.contains("outside-"), "{left}");
}
