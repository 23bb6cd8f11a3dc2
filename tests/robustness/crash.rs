//! Processes that are killed between any two steps, and what the next call makes of what they left.
//!
//! ```text
//!   a call is traced: every point that it comes by, each time            NETLOOM_CRASH_TRACE
//!   for each of them: the call again, killed there                       NETLOOM_CRASH_AT=NAME:N
//!     the promises hold; another container comes and has addresses of its own; the first one's DEL succeeds;
//!     it comes again, both go, and the machine is as it was before
//! ```

mod idle;
mod lab;
mod network;
mod points;

mod random;
mod retire;
mod sandbox;
mod switched;

use std::collections::BTreeSet;

use crate::promises;
use lab::LabScene;
use netloom_tests::{Traces, differences};
use network::{Runtime, Scene};
use random::Chance;
use sandbox::Deadly;
use serde_json::{Value, json};

fn bridge() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true,
        "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]}})
}

fn ptp() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipMasq": true, "strictReversePath": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00:3::/64"}]]}})
}

fn tap() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "tap", "owner": 1000, "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.6.0.0/24"}})
}

fn host_device() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "wire1",
        "ipam": {"type": "host-local", "subnet": "10.4.0.0/24"}})
}

fn macvlan() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "wire0",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}})
}

/// Addresses alone, of which so many are held that there is an index of them.
fn crowded() -> Scene {
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "host-local",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/24"}], [{"subnet": "fd00:4::/64"}]]}});
    let scene = Scene::cold(Runtime::Itself, &config);
    (2..40).for_each(|n| scene.host.write(&format!("/var/lib/cni/networks/net/10.4.0.{n}"), &format!("other{n}\r\neth0")));
    scene.warmed()
}

/// A bridge with what flanneld says.
fn flannel() -> Scene {
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "flannel", "delegate": {"bridge": "br0", "isDefaultGateway": true}});
    let scene = Scene::cold(Runtime::Itself, &config);
    let env = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.0.1/24\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=false\n";
    scene.host.write("/run/flannel/subnet.env", env);
    scene.warmed()
}

/// Those of flannel's own steps: the bridge's have tests of their own.
fn of_flannel((scene, points): Deaths) -> Deaths {
    let own = |point: &String| ["flannel-", "file-"].iter().any(|own| point.starts_with(own));
    (scene, points.into_iter().filter(own).collect())
}

/// An interface, settings of it, and a plugin of somebody else.
fn list(last: &str) -> Value {
    let tuning = json!({"type": "tuning", "mtu": 1400, "promisc": true, "txQLen": 77, "sysctl": {"net.core.somaxconn": "500"}});
    let mut first = macvlan();
    first.as_object_mut().unwrap().remove("cniVersion");
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [first, {"type": "loopback"}, tuning, {"type": "sbr"}, {"type": last}]})
}

/// A bridge, and ports of the host that lead to its containers.
fn ports(backend: &str) -> Value {
    let mut first = bridge();
    first.as_object_mut().unwrap().remove("cniVersion");
    let last = json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}});
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [first, last]})
}

/// Those of portmap's own steps, and of its part of a teardown: the bridge's have tests of their own.
fn of_ports((scene, points): Deaths) -> Deaths {
    let own =
        |point: &String| ["portmap-", "teardown-begun", "teardown-elements", "teardown-step"].iter().any(|own| point.starts_with(own));
    (scene, points.into_iter().filter(own).collect())
}

/// A bridge whose containers pass the host's filter, by one backend or another.
fn walled(keys: &Value) -> Value {
    let mut first = bridge();
    first.as_object_mut().unwrap().remove("cniVersion");
    let mut last = json!({"type": "firewall"});
    keys.as_object().unwrap().iter().for_each(|(key, value)| last[key] = value.clone());
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [first, last]})
}

/// Those of firewall's own steps, and of its part of a teardown: the bridge's have tests of their own.
fn of_walls((scene, points): Deaths) -> Deaths {
    let own =
        |point: &String| ["firewall-", "teardown-begun", "teardown-elements", "teardown-step"].iter().any(|own| point.starts_with(own));
    (scene, points.into_iter().filter(own).collect())
}

/// A container that may send with one hardware address, which is changed by the chain.
fn guarded() -> Value {
    let mut first = bridge();
    first.as_object_mut().unwrap().remove("cniVersion");
    first["macspoofchk"] = json!(true);
    first["strictSource"] = json!(true);
    let last = json!({"type": "tuning", "mac": "02:00:00:00:00:77"});
    json!({"cniVersion": "1.1.0", "name": "net", "plugins": [first, last]})
}

/// Those of the guard's own steps: the bridge's have tests of their own.
fn of_guard((scene, points): Deaths) -> Deaths {
    let own = |point: &String| ["guard", "unguarded", "sources-", "strict-"].iter().any(|own| point.starts_with(own));
    (scene, points.into_iter().filter(own).collect())
}

/// A bridge, and limits of what passes it.
fn limited(last: &str) -> Value {
    let limits = json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000,
        "egressBurst": 800_000, "unshapedSubnets": ["10.9.0.0/16"]});
    let mut first = bridge();
    first.as_object_mut().unwrap().remove("cniVersion");
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [first, limits, {"type": last}]})
}

/// Those of `bandwidth`'s own steps: the bridge's, and the tool's, have tests of their own.
fn of_limits((scene, points): Deaths) -> Deaths {
    let at = |name: &str| points.iter().position(|p| *p == format!("{name}:1"));
    let own = match (at("bandwidth-planned"), at("bandwidth-limited")) {
        (Some(first), Some(last)) => points[first..=last].to_vec(),
        _ => points.into_iter().filter(|p| p.starts_with("teardown-")).collect(),
    };
    assert!(!own.is_empty());
    (scene, own)
}

/// A machine, and every point at which a call on it is to be killed.
type Deaths = (Scene, Vec<String>);

fn add_of(scene: Scene) -> Deaths {
    let points = scene.trace("ADD");
    scene.must("DEL", "c1");
    (scene, points)
}

/// Where the bridge, the rules and the directories are made with the first ADD.
fn first_add() -> Deaths {
    let scene = Scene::cold(Runtime::Itself, &bridge());
    let points = scene.trace("ADD");
    scene.must("DEL", "c1");
    let at = |name: &str| points.iter().position(|p| *p == format!("{name}:1")).unwrap();
    let (made, rules) = (at("bridge-pair-made"), at("unmasqueraded"));
    let points = points[..made].iter().chain(&points[rules..]).cloned().collect();
    (scene, points)
}

fn del_of(scene: Scene) -> Deaths {
    scene.must("ADD", "c1");
    let points = scene.trace("DEL");
    (scene, points)
}

fn gc_of(scene: Scene) -> Deaths {
    scene.must("ADD", "c1");
    scene.must("ADD", "c2");
    let left = scene.gone("c1");
    let points = scene.trace("GC");
    drop(left);
    scene.host.container("c1");
    scene.must("DEL", "c1");
    scene.must("DEL", "c2");
    (scene, points)
}

/// An ADD that fails at its end, from where it is undone.
fn undo_of(scene: Scene, begin: &str) -> Deaths {
    let scene = scene.warmed();
    let points = scene.trace("ADD");
    let begin = points.iter().position(|p| *p == format!("{begin}:1")).unwrap();
    (scene, points[begin..].to_vec())
}

fn failing_plugin() -> Deaths {
    undo_of(Scene::cold(Runtime::Tool, &list("broken")), "exec-unstarted")
}

/// Somebody else's table has the name of ours: the last step of ADD fails.
fn failing_rules() -> Deaths {
    let scene = Scene::cold(Runtime::Itself, &bridge());
    scene.host.run("", &["nft", "add table inet netloom { comment \"theirs\" ; }"]);
    undo_of(scene, "undo-begun")
}

fn killed_adds((scene, points): Deaths) {
    for point in &points {
        let when = format!("ADD killed at {point}");
        scene.dies("ADD", point);
        promises::hold(&scene.host, &when);
        scene.must("ADD", "c2");
        promises::hold(&scene.host, &format!("{when}, another ADD"));
        scene.must("DEL", "c1");
        scene.must("CHECK", "c2");
        scene.must("ADD", "c1");
        scene.must("CHECK", "c1");
        promises::hold(&scene.host, &format!("{when}, DEL, ADD"));
        scene.must("DEL", "c1");
        scene.must("DEL", "c2");
        scene.host.expect_traces(&scene.before, &when);
    }
}

fn killed_dels((scene, points): Deaths) {
    for point in &points {
        let when = format!("DEL killed at {point}");
        scene.must("ADD", "c1");
        scene.dies("DEL", point);
        promises::hold(&scene.host, &when);
        scene.must("ADD", "c2");
        promises::hold(&scene.host, &format!("{when}, another ADD"));
        scene.must("DEL", "c1");
        scene.must("CHECK", "c2");
        scene.must("DEL", "c2");
        scene.host.expect_traces(&scene.before, &when);
    }
}

fn killed_undos((scene, points): Deaths) {
    for point in &points {
        let when = format!("failing ADD killed at {point}");
        scene.dies("ADD", point);
        promises::hold(&scene.host, &when);
        scene.must("DEL", "c1");
        scene.host.expect_traces(&scene.before, &when);
    }
}

#[test]
fn add_of_a_bridge() {
    killed_adds(add_of(Scene::warm(Runtime::Itself, &bridge())));
}

#[test]
fn del_of_a_bridge() {
    killed_dels(del_of(Scene::warm(Runtime::Itself, &bridge())));
}

#[test]
fn add_of_a_ptp() {
    killed_adds(add_of(Scene::warm(Runtime::Itself, &ptp())));
}

#[test]
fn del_of_a_ptp() {
    killed_dels(del_of(Scene::warm(Runtime::Itself, &ptp())));
}

#[test]
fn add_of_a_tap() {
    killed_adds(add_of(Scene::warm(Runtime::Itself, &tap())));
}

#[test]
fn del_of_a_tap() {
    killed_dels(del_of(Scene::warm(Runtime::Itself, &tap())));
}

/// The kernel gave the device back when the namespace ended: it is on the host, under the container's name.
fn stray_device() -> Deaths {
    let scene = Scene::warm(Runtime::Itself, &host_device());
    stray(&scene);
    let points = scene.trace("DEL");
    scene.must("DEL", "c1");
    (scene, points)
}

fn stray(scene: &Scene) {
    scene.must("ADD", "c1");
    scene.host.sh("c1", &format!("ip link set eth0 netns {}", scene.host.pid()));
}

#[test]
fn a_device_that_came_back_by_itself() {
    let (scene, points) = stray_device();
    for point in &points {
        let when = format!("DEL killed at {point}");
        stray(&scene);
        scene.dies("DEL", point);
        scene.must("DEL", "c1");
        scene.host.expect_traces(&scene.before, &when);
    }
}

/// A device is somewhere between the host and the container: the next DEL gives it back as it was.
#[test]
fn a_device_between_host_and_container() {
    for verb in ["ADD", "DEL"] {
        let scene = Scene::warm(Runtime::Itself, &host_device());
        let before_verb = || {
            if verb == "DEL" {
                scene.must("ADD", "c1")
            }
        };
        before_verb();
        let points = scene.trace(verb);
        scene.must("DEL", "c1");
        for point in &points {
            let when = format!("{verb} killed at {point}");
            before_verb();
            scene.dies(verb, point);
            promises::hold(&scene.host, &when);
            scene.must("DEL", "c1");
            scene.host.expect_traces(&scene.before, &when);
            scene.must("ADD", "c1");
            scene.must("CHECK", "c1");
            scene.must("DEL", "c1");
            scene.host.expect_traces(&scene.before, &when);
        }
    }
}

#[test]
fn add_of_a_list() {
    killed_adds(add_of(Scene::warm(Runtime::Tool, &list("noter"))));
}

#[test]
fn del_of_a_list() {
    killed_dels(del_of(Scene::warm(Runtime::Tool, &list("noter"))));
}

#[test]
fn addresses_with_an_index() {
    killed_adds(add_of(crowded()));
    killed_dels(del_of(crowded()));
}

#[test]
fn what_flannel_delegates() {
    killed_adds(of_flannel(add_of(flannel())));
    killed_dels(of_flannel(del_of(flannel())));
}

#[test]
fn ports_of_the_host() {
    let scene = || Scene::warm(Runtime::Tool, &ports("nftables"));
    killed_adds(of_ports(add_of(scene())));
    killed_dels(of_ports(del_of(scene())));
}

#[test]
fn ports_of_the_host_by_iptables() {
    let scene = || Scene::warm(Runtime::Tool, &ports("iptables"));
    killed_adds(of_ports(add_of(scene())));
    killed_dels(of_ports(del_of(scene())));
}

#[test]
fn the_hosts_filter() {
    for keys in [json!({"ingressPolicy": "isolated"}), json!({"backend": "iptables"})] {
        let scene = || Scene::warm(Runtime::Tool, &walled(&keys));
        killed_adds(of_walls(add_of(scene())));
        killed_dels(of_walls(del_of(scene())));
    }
}

#[test]
fn a_guard_against_forged_hardware_addresses() {
    let scene = || Scene::warm(Runtime::Tool, &guarded());
    killed_adds(of_guard(add_of(scene())));
    killed_dels(of_guard(del_of(scene())));
}

#[test]
fn limits() {
    let warm = || Scene::warm(Runtime::Tool, &limited("noter"));
    killed_adds(of_limits(add_of(warm())));
    killed_dels(of_limits(del_of(warm())));
    killed_undos(of_limits(undo_of(Scene::cold(Runtime::Tool, &limited("broken")), "exec-unstarted")));
}

#[test]
fn an_add_that_fails() {
    killed_undos(failing_plugin());
    killed_undos(failing_rules());
}

/// What the first ADD began and did not finish is finished by the next one: in the end nothing tells the difference.
#[test]
fn the_first_add_on_a_machine() {
    let (reference, points) = first_add();
    let expected = without_chance(reference.host.traces());
    for point in &points {
        let when = format!("first ADD killed at {point}");
        let scene = Scene::cold(Runtime::Itself, &bridge());
        scene.dies("ADD", point);
        promises::hold(&scene.host, &when);
        scene.must("DEL", "c1");
        scene.must("ADD", "c1");
        let mac = scene.host.link("", "br0").unwrap().mac().to_owned();
        scene.must("DEL", "c1");
        assert_eq!(scene.host.link("", "br0").unwrap().mac(), mac, "{when}: the bridge's address changes with its ports");
        scene.host.until(&when, || {
            let differ = differences(&expected, &without_chance(scene.host.traces()));
            differ.iter().for_each(|line| eprintln!("{line}"));
            differ.is_empty()
        });
    }
}

/// Hardware addresses are chosen by chance, on each machine others.
fn without_chance(traces: Traces) -> Traces {
    let plain = |line: String| match line.split_once(" address=") {
        Some((before, rest)) if line.starts_with("host: link") => format!("{before} {}", rest.split_once(' ').unwrap().1),
        _ => line,
    };
    traces.into_iter().map(|(line, times)| (plain(line), times)).collect()
}

#[test]
fn gc_of_a_bridge() {
    let (scene, points) = gc_of(Scene::warm(Runtime::Itself, &bridge()));
    for point in &points {
        let when = format!("GC killed at {point}");
        scene.must("ADD", "c1");
        scene.must("ADD", "c2");
        let left = scene.gone("c1");
        scene.dies("GC", point);
        promises::hold(&scene.host, &when);
        scene.must("GC", "c1");
        drop(left);
        scene.must("CHECK", "c2");
        scene.must("DEL", "c2");
        scene.host.container("c1");
        scene.host.expect_traces(&scene.before, &when);
        // The runtime's own books.
        scene.must("DEL", "c1");
    }
}

#[test]
fn gc_of_a_list() {
    let (scene, points) = gc_of(Scene::warm(Runtime::Tool, &list("noter")));
    for point in &points {
        let when = format!("GC killed at {point}");
        scene.must("ADD", "c1");
        scene.must("ADD", "c2");
        scene.dies("GC", point);
        promises::hold(&scene.host, &when);
        scene.must("GC", "c1");
        scene.host.expect_traces(&scene.before, &when);
    }
}

/// A lab is mostly waited for, while the kernel takes links and namespaces apart: several machines at once.
const MACHINES: usize = 4;

fn on_many_machines(points: &[String], one: impl Fn(&LabScene, &str) + Sync) {
    let one = &one;
    std::thread::scope(|scope| {
        for first in 0..MACHINES {
            scope.spawn(move || {
                let scene = LabScene::new();
                points.iter().skip(first).step_by(MACHINES).for_each(|point| one(&scene, point));
            });
        }
    });
}

#[test]
fn a_network_at_random_moments() {
    let kills = points::soak().max(150);
    random::network(&Scene::warm(Runtime::Itself, &bridge()), &mut Chance::new(), kills);
}

#[test]
fn a_lab_at_random_moments() {
    let (kills, mut chance) = ((points::soak() / 10).max(12) / MACHINES, Chance::new());
    std::thread::scope(|scope| {
        for _ in 0..MACHINES {
            let mut chance = chance.split();
            scope.spawn(move || random::lab(&LabScene::new(), &mut chance, kills));
        }
    });
}

#[test]
fn a_sandbox_at_random_moments() {
    let (rounds, mut chance) = (points::soak().max(60) / MACHINES, Chance::new());
    std::thread::scope(|scope| {
        for _ in 0..MACHINES {
            let mut chance = chance.split();
            scope.spawn(move || random::sandbox(&Deadly::new(), &mut chance, rounds));
        }
    });
}

#[test]
fn up_of_a_lab() {
    let points = points::some(LabScene::new().trace("up"), &lab::OWN);
    on_many_machines(&points, |scene, point| {
        // Only the first lab of a machine makes this.
        let scene = if point.starts_with("netns-folder-") { &LabScene::new() } else { scene };
        scene.dies("up", point);
        scene.recover(&format!("up killed at {point}"));
    });
}

#[test]
fn down_of_a_lab() {
    let points = points::some(LabScene::new().trace("down"), &lab::OWN);
    on_many_machines(&points, |scene, point| {
        scene.up();
        scene.mend();
        scene.dies("down", point);
        scene.recover(&format!("down killed at {point}"));
    });
}

#[test]
fn every_point_is_reached() {
    let labs = ["up", "down"].map(|verb| LabScene::new().trace(verb));
    let sandboxes = [Deadly::new().rarer_points(), retire::all_points()].concat();
    let bridge = || Scene::warm(Runtime::Itself, &bridge());
    let list = || Scene::warm(Runtime::Tool, &list("noter"));
    let device = || Scene::warm(Runtime::Itself, &host_device());
    let (switched, _switch) = switched::scene();
    let (switched, ports_added) = add_of(switched);
    let (switched, ports_removed) = del_of(switched);
    let lists = [
        add_of(bridge()),
        first_add(),
        del_of(bridge()),
        gc_of(bridge()),
        add_of(list()),
        del_of(list()),
        gc_of(list()),
        add_of(crowded()),
        del_of(crowded()),
        add_of(Scene::warm(Runtime::Itself, &ptp())),
        del_of(Scene::warm(Runtime::Itself, &ptp())),
        add_of(device()),
        del_of(device()),
        stray_device(),
        add_of(Scene::warm(Runtime::Itself, &tap())),
        (switched, [ports_added, ports_removed].concat()),
        add_of(flannel()),
        add_of(Scene::warm(Runtime::Tool, &ports("nftables"))),
        add_of(Scene::warm(Runtime::Tool, &ports("iptables"))),
        del_of(Scene::warm(Runtime::Tool, &ports("iptables"))),
        add_of(Scene::warm(Runtime::Tool, &guarded())),
        del_of(Scene::warm(Runtime::Tool, &guarded())),
        add_of(Scene::warm(Runtime::Tool, &walled(&json!({"ingressPolicy": "isolated"})))),
        del_of(Scene::warm(Runtime::Tool, &walled(&json!({"ingressPolicy": "isolated"})))),
        del_of(Scene::warm(Runtime::Tool, &walled(&json!({"backend": "iptables"})))),
        add_of(Scene::warm(Runtime::Tool, &walled(&json!({"backend": "iptables"})))),
        add_of(Scene::warm(Runtime::Tool, &limited("noter"))),
        failing_plugin(),
        failing_rules(),
    ];
    let reached: BTreeSet<&str> =
        lists.iter().map(|(_, points)| points).chain(&labs).flatten().chain(&sandboxes).map(|p| p.rsplit_once(':').unwrap().0).collect();
    let all = points::all();
    // Those of the agent and what is around it: tests/agent/process/points.rs comes by each, tests/agent/install.rs by an
    // installation's, tests/plugins/dhcp/crash.rs by those of the DHCP daemon.
    // Those that need a kernel with modules: tests/guest/kernel/. Those that need firewalld: tests/plugins/firewall/firewalld.rs.
    let elsewhere = [
        &points::OF_THE_AGENT[..],
        &points::IN_THE_GUEST,
        &points::WITH_FIREWALLD,
        &points::WITH_DPDK,
        &points::OF_REPAIR,
        &points::OF_POOLS,
        &points::OF_THE_OPERATOR,
    ]
    .concat();
    let elsewhere = |name: &str| elsewhere.iter().any(|own| name.starts_with(own));
    let missed: Vec<&String> = all.iter().filter(|name| !reached.contains(name.as_str()) && !elsewhere(name)).collect();
    assert!(missed.is_empty(), "no test comes by {missed:?}");
    assert!(all.len() > 41);
}
