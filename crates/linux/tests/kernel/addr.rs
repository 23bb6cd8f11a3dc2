//! Addresses added, read, deleted.

use linux::link::Change;
use linux::{AddrFlags, Batch, Errno, Scope, addr, link};
use serde_json::json;

use crate::space::{Space, done, pair};

#[test]
fn addresses_of_both_families() {
    let space = Space::new();
    let nets = ["10.1.2.3/24", "10.1.3.1/31", "10.1.4.1/32", "2001:db8::3/64", "2001:db8:1::1/128"];
    let nets = nets.map(|net| net.parse().unwrap());
    space.run(|_, netlink| {
        let mut batch = Batch::new();
        batch.push(link::create(&pair(10, "a", "b")));
        for index in [10, 11, 1] {
            batch.push(link::set(index, &Change { up: Some(true), ..Change::default() }));
        }
        batch.extend(nets.map(|net| addr::add(10, net, AddrFlags::NODAD | AddrFlags::NOPREFIXROUTE)));
        netlink.send(batch).unwrap();

        let read = netlink.addresses(Some(10)).unwrap();
        let given: Vec<_> = read.iter().filter(|a| a.scope == Scope::Universe).map(|a| a.net).collect();
        assert_eq!(given.len(), nets.len());
        assert!(nets.iter().all(|net| given.contains(net)), "{given:?}");
        let wanted = AddrFlags::NOPREFIXROUTE | AddrFlags::PERMANENT;
        assert!(read.iter().filter(|a| a.scope == Scope::Universe).all(|a| a.flags.contains(wanted) && a.peer.is_none()));
        assert!(!read.iter().any(|a| a.scope == Scope::Universe && a.flags.contains(AddrFlags::TENTATIVE)));
        assert_eq!(read[0].label.as_deref(), Some("a"));
        assert!(read.iter().all(|a| a.index == 10));

        let all = netlink.addresses(None).unwrap();
        assert!(all.iter().any(|a| a.index == 1 && a.scope == Scope::Host));
        assert!(all.is_sorted_by_key(|a| a.net.addr().is_ipv6()));
        assert_eq!(netlink.addresses(Some(999)).unwrap(), []);

        assert_eq!(netlink.send_one(addr::add(10, nets[0], AddrFlags::NONE)).unwrap_err().errno(), Errno::EEXIST);
        done(netlink, addr::delete(10, nets[0]));
        done(netlink, addr::delete(10, nets[3]));
        assert_eq!(netlink.send_one(addr::delete(10, nets[0])).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    });
    let seen = space.ip("addr show dev a");
    let seen: Vec<_> = seen[0]["addr_info"].as_array().unwrap().iter().filter(|a| a["scope"] == "global").collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.iter().all(|a| a["noprefixroute"] == true));
}

#[test]
fn an_ipv4_network_has_its_broadcast_address() {
    let space = Space::new();
    space.run(|_, netlink| {
        done(netlink, link::create(&pair(10, "a", "b")));
        for net in ["10.1.2.3/24", "10.1.3.1/31"] {
            done(netlink, addr::add(10, net.parse().unwrap(), AddrFlags::NONE));
        }
        done(netlink, addr::add(1, "127.0.0.1/8".parse().unwrap(), AddrFlags::NONE));
    });
    let seen = space.ip("addr show dev a");
    let broadcast =
        |local: &str| seen[0]["addr_info"].as_array().unwrap().iter().find(|a| a["local"] == local).unwrap()["broadcast"].clone();
    assert_eq!((broadcast("10.1.2.3"), broadcast("10.1.3.1")), (json!("10.1.2.255"), json!(null)));
    assert_eq!(space.ip("addr show dev lo")[0]["addr_info"][0]["scope"], "host");
}

/// What says to whom an address belongs can change, and all else of it stays.
#[test]
fn an_address_gets_another_protocol() {
    let space = Space::new();
    space.run(|_, netlink| {
        done(netlink, link::create(&pair(10, "a", "b")));
        for net in ["10.1.2.3/24", "2001:db8::3/64"] {
            done(netlink, addr::add_of(addr::TRANSIENT, 10, net.parse().unwrap(), AddrFlags::NODAD));
        }
        let given = |netlink: &mut linux::Netlink| {
            let mut given = netlink.addresses(Some(10)).unwrap();
            given.retain(|one| one.scope == Scope::Universe);
            given
        };
        let before = given(netlink);
        assert!(before.len() == 2 && before.iter().all(|one| one.protocol == addr::TRANSIENT), "{before:?}");
        for one in &before {
            done(netlink, addr::mark(addr::GATEWAY, one.index, one.net, one.flags));
        }
        let mut after = given(netlink);
        assert!(after.iter().all(|one| one.protocol == addr::GATEWAY), "{after:?}");
        after.iter_mut().for_each(|one| one.protocol = addr::TRANSIENT);
        assert_eq!(after, before);
    });
}

#[test]
fn an_address_with_a_peer_is_told_apart() {
    let space = Space::new();
    space.ip_do("link add name a type veth peer name b");
    space.ip_do("addr add 10.0.0.1 peer 10.0.0.2/32 dev a");
    space.run(|_, netlink| {
        let read = netlink.addresses(None).unwrap();
        let own = read.iter().find(|a| a.peer.is_some()).unwrap();
        assert_eq!((own.net.to_string(), own.peer), ("10.0.0.1/32".into(), Some("10.0.0.2".parse().unwrap())));
    });
}
