//! The places where a process can be killed, and the times that a call comes by them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use netloom_tests::Host;

/// The points that only an agent comes by, its installation, what keeps a DEL for it, what plugs ports of
/// Neutron (tests/agent/openstack/crash.rs) and takes down what kuryr-cni has plugged (kuryr_cni.rs there), or the DHCP daemon and its
/// callers.
pub(crate) const OF_THE_AGENT: [&str; 9] =
    ["agent-", "install-", "uninstall-", "del-kept", "dhcp-", "idle-bridge-", "add-unplugging", "hybrid-", "kuryr-"];

/// The points that only a kernel with modules lets a plugin come by: tests/guest/kernel/ does, in the guest.
pub(crate) const IN_THE_GUEST: [&str; 5] = ["bridge-vlan-", "vrf-", "card-", "sriov-", "dpdk-"];

/// The points that a plugin comes by where firewalld runs.
pub(crate) const WITH_FIREWALLD: [&str; 1] = ["firewall-source-"];

/// The points that a plugin comes by where Open vSwitch has DPDK: tests/cluster/openstack/vhost_user.rs kills it there.
pub(crate) const WITH_DPDK: [&str; 1] = ["vhost-"];

/// The points that only `netloom repair` comes by: tests/agent/repair/records.rs kills it there.
pub(crate) const OF_REPAIR: [&str; 1] = ["restore-"];

/// The points of pools and their journal: tests/addresses/pool/crash.rs comes by each, tests/addresses/pool/conflict.rs by those of conflicts, tests/addresses/whereabouts/broken.rs by its own,
/// tests/cluster/granted/killed.rs by those of an agent, tests/addresses/ipam_command/rebuild.rs by that of a journal that is made anew.
pub(crate) const OF_POOLS: [&str; 3] = ["journal-", "pool-", "whereabouts-"];

/// The points of the operator: tests/cluster/operator.rs comes by those of pools and claims, tests/agent/process/cilium.rs by that of CiliumNodes.
pub(crate) const OF_THE_OPERATOR: [&str; 1] = ["operator-"];

/// Every point's name, as it stands in the sources; each stands there once.
pub(crate) fn all() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    ["crates", "bins"].iter().for_each(|dir| collect(&Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(dir), &mut names));
    names
}

fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    for path in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.split("crash_point!(\"").skip(1).filter_map(|rest| rest.split_once("\")")).map(|(name, _)| name);
            found.for_each(|name| assert!(names.insert(name.to_owned()), "there are two crash points {name:?}"));
        }
    }
}

/// Where a process that is traced writes, on its machine.
pub(crate) const TRACE: &str = "/run/trace";

/// What the call that was just traced came by, in order, as `NAME:N`: the N-th time.
pub(crate) fn traced(host: &Host) -> Vec<String> {
    let text = std::fs::read_to_string(host.path(TRACE)).unwrap();
    std::fs::remove_file(host.path(TRACE)).unwrap();
    let mut times = HashMap::<&str, usize>::new();
    let mut number = |name| {
        let time = times.entry(name).or_default();
        *time += 1;
        format!("{name}:{time}")
    };
    text.lines().filter_map(|line| line.split(' ').next()).map(&mut number).collect()
}

/// For a call that comes by so many that all would take minutes: the first two times and the last of its own points, and
/// every sixth of the others. All of them where `NETLOOM_SOAK` asks for it.
pub(crate) fn some(points: Vec<String>, own: &[&str]) -> Vec<String> {
    if soak() > 0 {
        return points;
    }
    let name = |point: &str| point.rsplit_once(':').unwrap().0.to_owned();
    let mut last = HashMap::new();
    points.iter().for_each(|point| drop(last.insert(name(point), point.clone())));
    let is_own = |point: &str| own.iter().any(|prefix| point.starts_with(prefix));
    let chosen = |(at, point): &(usize, String)| match is_own(point) {
        true => point.ends_with(":1") || point.ends_with(":2") || last[&name(point)] == *point,
        false => at % 6 == 0,
    };
    points.into_iter().enumerate().filter(chosen).map(|(_, point)| point).collect()
}

/// How many kills at random moments `NETLOOM_SOAK` asks for; 0 without it.
pub(crate) fn soak() -> usize {
    std::env::var("NETLOOM_SOAK").ok().map_or(0, |n| n.parse().expect("NETLOOM_SOAK is a number of kills"))
}
