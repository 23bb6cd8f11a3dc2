//! Sysctls of the namespace that the thread is in.

use linux::{Errno, Inside, Sysctl, link};

use crate::space::{Space, done, veth};

/// Threads in different namespaces, and threads that stayed, do not see each other's settings.
#[test]
fn every_thread_has_its_own_namespaces() {
    let here = || Sysctl::new(["net", "ipv4", "ip_default_ttl"]).unwrap().read(&Inside::here()).unwrap();
    let before = here();
    std::thread::scope(|scope| {
        for i in 0..8 {
            scope.spawn(move || {
                let space = Space::new();
                space.run(|inside, netlink| {
                    done(netlink, link::create(&veth("eth0.7", "b")));
                    for round in 0..50 {
                        let ttl = (10 + i * 20 + round % 7).to_string();
                        let sysctl = Sysctl::new(["net", "ipv4", "ip_default_ttl"]).unwrap();
                        sysctl.write(inside, &ttl).unwrap();
                        std::thread::yield_now();
                        assert_eq!(sysctl.read(inside).unwrap(), ttl);
                        let dad = Sysctl::new(["net", "ipv6", "conf", "eth0.7", "accept_dad"]).unwrap();
                        let value = (round % 3).to_string();
                        dad.write(inside, &value).unwrap();
                        assert_eq!(dad.read(inside).unwrap(), value);
                        assert!(dad.exists(inside));
                    }
                });
                assert_eq!(space.cat("/proc/sys/net/ipv4/ip_default_ttl"), (10 + i * 20).to_string());
            });
        }
        for _ in 0..50 {
            assert_eq!(here(), before);
            std::thread::yield_now();
        }
    });
    assert_eq!(here(), before);
}

#[test]
fn what_the_kernel_refuses_is_told() {
    let space = Space::new();
    space.run(|inside, _| {
        let sysctl = Sysctl::new(["net", "ipv4", "ip_default_ttl"]).unwrap();
        let error = sysctl.write(inside, "many").unwrap_err();
        assert_eq!(
            (error.errno(), error.to_string().as_str()),
            (Errno::EINVAL, "cannot write \"many\" to /proc/sys/net/ipv4/ip_default_ttl: EINVAL: Invalid argument")
        );
        assert!(!Sysctl::new(["net", "ipv4", "conf", "none", "arp_notify"]).unwrap().exists(inside));
    });
}
