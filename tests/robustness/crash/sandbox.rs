//! An ADD and a DEL of one sandbox that meet: either is stopped, or killed, at every point of its way, and the other one
//! comes. Whatever is told to whom, an address is never held twice, and what was to go goes.

use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};

use netloom_tests::{Outcome, SandboxScene};

use crate::{crash::points, promises};

/// What only a sandbox comes by.
const OWN: [&str; 9] = ["attach", "detach", "tombstone", "lost", "lock", "outcome", "retire", "finish", "teardown-outer"];

/// How many seconds a call has, on a machine that does much else; each but those that are stopped takes a part of one.
pub(crate) const PATIENCE: u32 = 120;

/// What the end of an ADD says of a DEL that it met.
const DELETED: &str = "was deleted while it was being attached";

/// A sandbox whose calls are killed and stopped.
pub(crate) struct Deadly(SandboxScene);

impl std::ops::Deref for Deadly {
    type Target = SandboxScene;

    fn deref(&self) -> &SandboxScene {
        &self.0
    }
}

// === impl Deadly ===

impl Deadly {
    pub(crate) fn new() -> Self {
        Deadly(SandboxScene::new())
    }

    /// One that can be retired.
    pub(crate) fn builtin() -> Self {
        Deadly(SandboxScene::builtin())
    }

    pub(crate) fn dies(&self, verb: &str, point: &str) {
        let outcome = Outcome::from(self.command(verb, PATIENCE).env("NETLOOM_CRASH_AT", point).output().unwrap());
        assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}, and ended: {outcome:?}");
    }

    /// A call that has come to a point and stands there.
    pub(crate) fn stopped(&self, verb: &str, point: &str) -> Child {
        let child = self.command(verb, PATIENCE).env("NETLOOM_CRASH_STOP", point).spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        // The state comes after the name, which is in parentheses.
        let state = || std::fs::read_to_string(&stat).ok().and_then(|s| s.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T')));
        netloom_tests::until(&format!("{verb} comes to {point}"), || state() == Some(true));
        child
    }

    /// Lets a call that stands go on to its end.
    pub(crate) fn goes_on(&self, child: Child) -> Outcome {
        self.host.sh("", &format!("kill -CONT {}", child.id()));
        child.wait_with_output().unwrap().into()
    }

    /// The points that a call comes by; the sandbox is as it was before.
    pub(crate) fn points(&self, verb: &str) -> Vec<String> {
        if verb == "del" {
            self.must("add");
        }
        let status = self.command(verb, PATIENCE).env("NETLOOM_CRASH_TRACE", points::TRACE).output().unwrap().status;
        assert!(status.success());
        let points = points::traced(&self.host);
        if verb == "add" {
            self.must("del");
        }
        points
    }

    /// The points of an ADD that finds what a killed DEL left, and of a DEL of a record that a power cut took.
    pub(crate) fn rarer_points(&self) -> Vec<String> {
        self.must("add");
        self.dies("del", "detach-collected");
        let mut points = self.points("add");
        self.lose("");
        self.command("del", PATIENCE).env("NETLOOM_CRASH_TRACE", points::TRACE).output().unwrap();
        points.extend(points::traced(&self.host));
        points
    }

    /// It can come and go.
    pub(crate) fn comes_and_goes(&self, when: &str) {
        self.must("add");
        promises::hold(&self.host, &format!("{when}, ADD"));
        self.must("del");
    }
}

/// Something at each of some points, on several machines at once.
fn at_each(points: Vec<String>, one: impl Fn(&Deadly, &str) + Sync) {
    at_each_of(Deadly::new, points, one);
}

pub(crate) fn at_each_of(scene: fn() -> Deadly, points: Vec<String>, one: impl Fn(&Deadly, &str) + Sync) {
    let (points, next, one) = (points::some(points, &OWN), AtomicUsize::new(0), &one);
    assert!(points.len() > 5, "{points:?}");
    std::thread::scope(|scope| {
        for _ in 0..crate::crash::MACHINES {
            scope.spawn(|| {
                let scene = scene();
                while let Some(point) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
                    one(&scene, point);
                }
                scene.clean("all of it");
            });
        }
    });
}

/// The one that finds it is an ADD, with no DEL between.
#[test]
fn after_a_killed_add_another_one() {
    at_each(Deadly::new().points("add"), |scene, point| {
        scene.dies("add", point);
        let when = format!("ADD killed at {point}");
        promises::hold(&scene.host, &when);
        // It was through, and may have been heard of.
        let record = std::fs::read_to_string(scene.host.path("/run/netloom/sandboxes/c1.json")).unwrap_or_default();
        let another = scene.call("add", PATIENCE);
        if record.matches("\"result\":").count() == 2 {
            assert!(another.stderr.contains("DEL it first"), "{when}: {another:?}");
        } else {
            assert_eq!(another.code, 0, "{when}: {another:?}");
        }
        scene.must("del");
        scene.clean(&when);
    });
}

#[test]
fn after_a_killed_del_an_add() {
    at_each(Deadly::new().points("del"), |scene, point| {
        scene.must("add");
        scene.dies("del", point);
        let when = format!("DEL killed at {point}");
        promises::hold(&scene.host, &when);
        // It had not begun; or it is as good as done.
        if scene.call("add", PATIENCE).code != 0 {
            assert!(!["detach", "tombstone"].iter().any(|own| point.starts_with(own)), "{when}: an ADD does not know");
            scene.must("del");
        }
        scene.must("del");
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

/// It clears what is left before it looks for the namespace, and leaves nothing half cleared.
#[test]
fn after_a_killed_del_an_add_that_is_refused() {
    let scene = Deadly::new();
    scene.must("add");
    scene.dies("del", "detach-collected");
    scene.host.sh("", "ip netns delete c1");
    let add = scene.call("add", PATIENCE);
    assert!(add.code == 1 && add.stderr.contains("code 8"), "{add:?}");
    scene.host.container("c1");
    scene.clean("an ADD that was refused");
}

/// Its runtime has given it up and sends a DEL, which has given up too when the ADD goes on.
#[test]
fn an_add_that_outlives_its_caller() {
    at_each(Deadly::new().points("add"), |scene, point| {
        let when = format!("ADD stopped at {point}, DEL");
        let add = scene.stopped("add", point);
        let del = scene.call("del", 0);
        let pid = add.id();
        let add = scene.goes_on(add);
        promises::hold(&scene.host, &when);
        match del.code {
            // The ADD had not begun, or was through; or the DEL has seen to it that it is.
            0 if add.code == 0 => scene.must("del"),
            0 => assert!(add.stderr.contains(DELETED), "{when}: {add:?}"),
            _ => {
                let told = format!("process {pid} (sandbox)");
                assert!(del.stderr.contains("code 11") && del.stderr.contains(&told) != (point == "attach-unlocked:1"), "{when}: {del:?}");
                assert!(add.code != 0 && add.stderr.contains(DELETED) && add.stderr.contains("code 11"), "{when}: {add:?}");
            }
        }
        // No DEL but the one that failed.
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

/// Neither the death of the DEL nor that of the ADD takes the tombstone away.
#[test]
fn a_del_that_is_killed_while_it_waits() {
    at_each(Deadly::new().points("add"), |scene, point| {
        let when = format!("ADD stopped at {point}, DEL killed");
        let add = scene.stopped("add", point);
        let del = Outcome::from(scene.command("del", PATIENCE).env("NETLOOM_CRASH_AT", "tombstone-there").output().unwrap());
        let add = scene.goes_on(add);
        match (del.code, add.code) {
            (-1, 0) => panic!("{when}: {add:?}"),
            (-1, _) => {}
            (_, 0) => scene.must("del"),
            _ => panic!("{when}: {del:?} {add:?}"),
        }
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

#[test]
fn an_add_that_is_killed_while_a_del_waits() {
    at_each(Deadly::new().points("add"), |scene, point| {
        let when = format!("ADD stopped at {point}, then killed");
        let mut add = scene.stopped("add", point);
        let del = scene.command("del", PATIENCE).spawn().unwrap();
        add.kill().unwrap();
        add.wait().unwrap();
        let del = Outcome::from(del.wait_with_output().unwrap());
        assert_eq!(del.code, 0, "{when}: {del:?}");
        promises::hold(&scene.host, &when);
        // Killed after the DEL had looked, it may have left its lock.
        scene.must("del");
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

#[test]
fn two_dels() {
    at_each(Deadly::new().points("del"), |scene, point| {
        let when = format!("DEL stopped at {point}, another DEL");
        scene.must("add");
        let first = scene.stopped("del", point);
        let second = scene.call("del", 0);
        assert!(second.code == 0 || second.stderr.contains("code 11"), "{when}: {second:?}");
        let first = scene.goes_on(first);
        assert_eq!(first.code, 0, "{when}: {first:?}");
        scene.must("del");
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

/// A plugin of somebody else hangs in the middle of the ADD; ADD sees that it is to go when the plugin has ended, and does
/// not begin with the next network.
#[test]
fn a_plugin_that_hangs() {
    let mut scene = Deadly::new();
    scene.host.sh("", "mv /run/net/1.conflist /run/net/3.conflist");
    scene.0.before = scene.host.traces();
    let last_given = || std::fs::read(scene.host.path("/var/lib/cni/networks/net/last_reserved_ip.0")).unwrap();
    for patience in [0, PATIENCE] {
        let given = last_given();
        scene.host.write("/run/slow", "");
        let add = scene.command("add", PATIENCE).spawn().unwrap();
        scene.host.until("the plugin waits", || scene.host.path("/run/waits").exists());
        let del = scene.command("del", patience).spawn().unwrap();
        let del = match patience {
            0 => {
                let del = Outcome::from(del.wait_with_output().unwrap());
                assert!(del.code == 1 && del.stderr.contains("code 11") && del.stderr.contains("sandbox c1"), "{del:?}");
                None
            }
            _ => {
                let tombstone = scene.host.path("/run/netloom/sandboxes/c1.del");
                scene.host.until("the tombstone is there", || tombstone.exists());
                Some(del)
            }
        };
        ["slow", "waits"].iter().for_each(|name| std::fs::remove_file(scene.host.path(format!("/run/{name}"))).unwrap());
        let add = Outcome::from(add.wait_with_output().unwrap());
        assert!(add.code == 1 && add.stderr.contains(DELETED), "{add:?}");
        assert!(del.is_none_or(|del| del.wait_with_output().unwrap().status.success()));
        assert_eq!(last_given(), given, "the bridge's turn came");
        scene.clean("a DEL during an ADD");
        scene.comes_and_goes("a DEL during an ADD");
    }
}
