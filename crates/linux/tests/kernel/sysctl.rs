//! Sysctls of the namespace that the thread is in.

use linux::{Errno, Family, Inside, Sysctl, link};

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

/// The message and the file say the same.
#[test]
fn whether_packets_are_forwarded_is_told_without_a_file() {
    Space::new().run(|inside, netlink| {
        let file = |key: &[&str]| Sysctl::new(key.iter().copied()).unwrap();
        for (family, sysctl, values) in [
            (Family::V4, file(&["net", "ipv4", "ip_forward"]), &[0, 1, 0][..]),
            (Family::V6, file(&["net", "ipv6", "conf", "all", "forwarding"]), &[0, 1, 2, 0]),
        ] {
            for value in values {
                sysctl.write(inside, &value.to_string()).unwrap();
                assert_eq!(netlink.forwarding(family), Ok(Some(*value)), "{sysctl}");
            }
        }
    });
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

#[test]
fn a_container_can_make_its_sysctls_writable() {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    const PATH: &str = "/proc/sys";
    const FILE: &str = "/proc/sys/net/ipv4/ip_default_ttl";
    let none: Option<&str> = None;
    // A thread with a mount namespace of its own, as a container has one.
    let container = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some(PATH), PATH, none, MsFlags::MS_BIND, none).unwrap();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(none, PATH, none, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags, none).unwrap();
        let value = std::fs::read_to_string(FILE).unwrap();
        assert_eq!(std::fs::write(FILE, &value).unwrap_err().raw_os_error(), Some(Errno::EROFS as i32));
        assert_eq!(linux::make_sysctls_writable(), Ok(true));
        std::fs::write(FILE, &value).unwrap();
        assert_eq!(linux::make_sysctls_writable(), Ok(false));
        let own = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let options = own.lines().rfind(|line| line.split(' ').nth(1) == Some(PATH)).unwrap().split(' ').nth(3).unwrap().to_owned();
        assert!(options.starts_with("rw,nosuid,nodev,noexec"), "{options}");
    });
    container.join().unwrap();
}
