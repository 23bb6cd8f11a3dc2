//! Echo requests to what answers, what is silent, and what nothing leads to.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::link::Change;
use linux::{AddrFlags, addr, echo, link};

use crate::space::{Space, done, pair};

#[test]
fn who_answers_is_told_from_who_is_silent() {
    let space = Space::new();
    space.run(|inside, netlink| {
        done(netlink, link::create(&pair(10, "a", "b")));
        for (index, net) in [(10, "10.7.0.1/24"), (10, "fd00:7::1/64"), (1, "127.0.0.1/8"), (1, "::1/128")] {
            done(netlink, link::set(index, &Change { up: Some(true), ..Change::default() }));
            // A real kernel has the loopback's own already.
            let _ = netlink.send_one(addr::add(
                index,
                net.parse().unwrap(),
                if net.contains(':') { AddrFlags::NODAD } else { AddrFlags::NONE },
            ));
        }
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        // The kernel has a queue for the routes to IPv6 addresses.
        let until = Instant::now() + Duration::from_secs(60);
        while echo(inside, &[ip("fd00:7::1")], Duration::from_secs(1)).unwrap().is_empty() {
            assert!(Instant::now() < until, "nobody answers at the own address");
        }
        let asked = [ip("10.7.0.1"), ip("10.7.0.9"), ip("192.0.2.1"), ip("fd00:7::1"), ip("fd00:7::9"), ip("127.0.0.5")];
        let answers = echo(inside, &asked, Duration::from_secs(3)).unwrap();
        let who: Vec<IpAddr> = answers.keys().copied().collect();
        assert_eq!(who, [ip("10.7.0.1"), ip("127.0.0.5"), ip("fd00:7::1")]);
        let many: Vec<IpAddr> = (1..=3000_u32).map(|n| IpAddr::from((0x7f00_0000 + n).to_be_bytes())).collect();
        assert_eq!(echo(inside, &many, Duration::from_secs(60)).unwrap().len(), 3000);
        assert!(echo(inside, &[], Duration::from_secs(60)).unwrap().is_empty());
    });
}
