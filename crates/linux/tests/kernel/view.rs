//! What is kept by reports is what would be read.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linux::{Netlink, Snapshot, View};

use crate::space::{Space, output};

/// Steps of a history, each a line of `ip`; `%` is the namespace, `@` one beside. Most can fail, as what they are about may not be there.
const STEPS: &[&str] = &[
    "link add va type veth peer name vb",
    "link add vb type veth peer name vc",
    "link add va type veth peer name eth0 netns @",
    "link add br type bridge",
    "link add br up type bridge",
    "link add vm link va type macvlan mode bridge",
    "link add vm link br type macvlan mode passthru",
    "link add vx type vxlan id 7 dstport 4790 nolearning",
    "link add vx type vxlan id 7 dstport 4790 dev va",
    "tuntap add tap mode tap",
    "link del va",
    "link del vb",
    "link del br",
    "link del vm",
    "link del vx",
    "link del tap",
    "link set va up",
    "link set vb up",
    "link set br up",
    "link set vm up",
    "link set vx up",
    "link set tap up",
    "link set va down",
    "link set vb down",
    "link set br down",
    "link set vx down",
    "link set tap down",
    "link set va master br",
    "link set vb master br",
    "link set tap master br",
    "link set va nomaster",
    "link set vb nomaster",
    "link set vb netns @",
    "link set vm netns @",
    "-n @ link set vb netns %",
    "-n @ link del vb",
    "-n @ link del eth0",
    "link set va name vc",
    "link set vc name va",
    "link property add dev va altname other",
    "link property del dev va altname other",
    "link set va mtu 1400",
    "link set va mtu 1500",
    "link set br address 02:00:00:00:00:07",
    "link set va group 7",
    "link set va group 0",
    "link set va alias words",
    "link set br type bridge vlan_filtering 1",
    "addr add 10.1.0.1/24 dev va",
    "addr add 10.1.0.2/24 dev va",
    "addr add 10.1.0.2/25 dev va",
    "addr add 10.1.0.1/24 dev br",
    "addr add 10.1.0.1 peer 10.9.0.1 dev tap",
    "addr change 10.1.0.1/24 dev va proto 110",
    "addr add fd01::1/64 dev va",
    "addr add fd01::2/64 dev va nodad",
    "addr add fd01::1/64 dev br",
    "addr del 10.1.0.1/24 dev va",
    "addr del 10.1.0.2/24 dev va",
    "addr del 10.1.0.2/25 dev va",
    "addr del 10.1.0.1/24 dev br",
    "addr del fd01::1/64 dev va",
    "addr flush dev va",
    "addr flush dev br",
    "route add 10.2.0.0/16 dev va",
    "route add 10.2.0.0/16 dev va metric 7",
    "route append 10.2.0.0/16 dev br",
    "route prepend 10.2.0.0/16 dev tap",
    "route replace 10.2.0.0/16 dev br",
    "route change 10.2.0.0/16 dev va mtu 1300",
    "route add 10.2.0.0/16 tos 8 dev va",
    "route del 10.2.0.0/16",
    "route add 10.3.0.0/16 via 10.1.0.9 src 10.1.0.2",
    "route add 10.3.0.0/16 dev va src 10.1.0.2 table 77",
    "route add 10.4.0.0/16 nexthop dev va nexthop dev br",
    "route del 10.4.0.0/16",
    "route add blackhole 10.5.0.0/16",
    "route del 10.5.0.0/16",
    "route add default via 10.1.0.9",
    "route add default dev tap metric 9",
    "route del default",
    "route flush table 77",
    "-6 route add fd02::/64 dev va",
    "-6 route append fd02::/64 via fd01::9 dev va",
    "-6 route append fd02::/64 via fd01::8 dev va",
    "-6 route add fd02::/64 dev br metric 9",
    "-6 route replace fd02::/64 dev br",
    "-6 route del fd02::/64 via fd01::9 dev va",
    "-6 route del fd02::/64",
    "-6 route add default via fd01::9 dev va",
    "-6 route del default",
    "nexthop add id 1 dev va",
    "nexthop add id 1 via 10.1.0.9 dev va",
    "nexthop replace id 1 dev br",
    "nexthop add id 2 dev tap",
    "nexthop add id 3 group 1/2",
    "route add 10.6.0.0/16 nhid 1",
    "route add 10.7.0.0/16 nhid 3",
    "-6 route add fd06::/64 nhid 1",
    "nexthop del id 1",
    "nexthop del id 2",
    "nexthop flush",
    "rule add from 10.1.0.0/16 table 77",
    "rule del from 10.1.0.0/16 table 77",
];

/// The same numbers in every run (Numerical Recipes' generator).
struct Chance(u64);

impl Chance {
    fn step(&mut self) -> &'static str {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        STEPS[usize::try_from(self.0 >> 33).unwrap() % STEPS.len()]
    }
}

fn ip(space: &Space, beside: &Space, step: &str) {
    let mut args = vec![];
    let step = step.replace('@', beside.name()).replace('%', space.name());
    if !step.starts_with("-n ") {
        args.extend(["-n", space.name()]);
    }
    args.extend(step.split_whitespace());
    let _ = Command::new("ip").args(args).output().unwrap();
}

/// Without what the kernel does not report: of links that are down (`netdev_state_change` in net/core/dev.c), and of other namespaces.
fn as_reported(mut seen: Snapshot) -> Snapshot {
    for link in Arc::make_mut(&mut seen.links) {
        link.link_netnsid = link.link_netnsid.map(|_| 0);
        if !link.flags.up() {
            (link.group, link.alias, link.bridge) = (0, None, None);
            link.altnames.clear();
        }
    }
    seen
}

/// The view shows what is there: at once, but for what the kernel does by and by.
#[track_caller]
fn is_true(view: &mut View, netlink: &mut Netlink, told: &str) {
    let mut look = || (as_reported(view.look().unwrap()), as_reported(Snapshot::read(netlink).unwrap()));
    let (mut seen, mut there) = look();
    for _ in 0..1000 {
        if seen == there {
            return;
        }
        // Sleeps: the kernel does some things by and by, and reports them then.
        std::thread::sleep(Duration::from_millis(1));
        (seen, there) = look();
    }
    assert_eq!(seen.links, there.links, "{told}");
    assert_eq!(seen.addresses, there.addresses, "{told}");
    assert_eq!(seen.routes, there.routes, "{told}");
}

#[test]
fn after_every_step_of_a_history_it_is_what_is_there() {
    let (space, beside) = (Space::new(), Space::new());
    // An address that the kernel gives a link is reported once it has asked around for a second, and counts from then on.
    output("ip", &format!("netns exec {} sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0", space.name()));
    ip(&space, &beside, "link set lo up");
    let [mut often, mut seldom, mut kept] = space.netns.enter(|inside| [(); 3].map(|()| View::open(inside).unwrap())).unwrap();
    let mut chance = Chance(0x6e65_746c);
    let mut last = Vec::new();
    for number in 0..1500 {
        if number == 750 {
            // From now on the kernel tells of a route with a numbered next hop the number alone.
            output("ip", &format!("netns exec {} sysctl -qw net.ipv4.nexthop_compat_mode=0", space.name()));
        }
        let step = chance.step();
        ip(&space, &beside, step);
        last.push(step);
        let told = || format!("step {number}, after {:#?}", last.iter().rev().take(12).collect::<Vec<_>>());
        space.run(|_, netlink| {
            is_true(&mut often, netlink, &told());
            kept.keep_up();
            if number % 9 == 0 {
                is_true(&mut seldom, netlink, &told());
                is_true(&mut kept, netlink, &told());
            }
        });
    }
}

/// IPv4 routes go without a report where their link goes down, while it is looked at again and again.
#[test]
fn what_goes_silently_while_it_is_looked_at_is_gone() {
    let (space, beside) = (Space::new(), Space::new());
    // No report for IPv6 tells of what goes.
    output("ip", &format!("netns exec {} sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1", space.name()));
    for step in ["link add va type veth peer name vb", "link set vb up", "addr add 10.1.0.1/24 dev vb"] {
        ip(&space, &beside, step);
    }
    let mut view = space.netns.enter(|inside| View::open(inside).unwrap()).unwrap();
    for round in 0..20 {
        batch(&space, (0..2000).map(|n| format!("route add 10.2.{}.{} dev va src 10.1.0.1", n / 250, n % 250)), "link set va up");
        assert!(view.look().unwrap().routes.len() > 2000, "{round}");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ip(&space, &beside, if round % 2 == 0 { "link set va down" } else { "addr del 10.1.0.1/24 dev vb" });
                ended.store(true, Ordering::Release);
            });
            while !ended.load(Ordering::Acquire) {
                view.look().unwrap();
            }
        });
        space.run(|_, netlink| is_true(&mut view, netlink, &format!("round {round}")));
        for step in ["link set va down", "addr add 10.1.0.1/24 dev vb"] {
            ip(&space, &beside, step);
        }
    }
}

/// Runs one line of `ip`, and then these by one process.
fn batch(space: &Space, lines: impl Iterator<Item = String>, first: &str) {
    let file = std::env::temp_dir().join(format!("{}-batch", space.name()));
    std::fs::write(&file, std::iter::once(first.to_owned()).chain(lines).fold(String::new(), |all, line| all + &line + "\n")).unwrap();
    space.ip_do(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file).unwrap();
}

/// After more reports than there is room for, everything is read again.
#[test]
fn what_was_lost_is_read_again() {
    let (space, beside) = (Space::new(), Space::new());
    ip(&space, &beside, "link add va type bridge");
    let mut view = space.netns.enter(|inside| View::open(inside).unwrap()).unwrap();
    view.look().unwrap();
    batch(&space, (0..6000).map(|n| format!("link set va mtu {}", 1400 + n % 2)), "link add last type bridge");
    space.run(|_, netlink| is_true(&mut view, netlink, "after 6000 reports"));
    assert!(view.look().unwrap().links.iter().any(|link| link.name == "last"));
}
