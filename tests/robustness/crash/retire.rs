//! A DEL in two halves, either of which is killed at every point of its way, and what the next call makes of it.

use netloom_tests::Outcome;

use crate::crash::sandbox::{Deadly, PATIENCE, at_each_of};
use crate::{crash::points, promises};

impl Deadly {
    /// The points that a half comes by; the sandbox is gone before and after.
    fn points_of_half(&self, verb: &str) -> Vec<String> {
        self.must("add");
        if verb == "finish" {
            self.must("retire");
        }
        let output = self.command(verb, PATIENCE).env("NETLOOM_CRASH_TRACE", points::TRACE).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let traced = points::traced(&self.host);
        self.must("finish");
        self.clean(verb);
        traced
    }

    /// Another container comes into the namespace of one that is retired.
    fn another(&self) -> Outcome {
        self.command_for("c9", "add", PATIENCE).output().unwrap().into()
    }

    fn another_goes(&self) {
        let done = Outcome::from(self.command_for("c9", "del", PATIENCE).output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
    }
}

/// Of both halves, and of an ADD that has to finish somebody else first.
pub(crate) fn all_points() -> Vec<String> {
    let scene = Deadly::builtin();
    let mut traced = scene.points_of_half("retire");
    traced.extend(scene.points_of_half("finish"));
    scene.must("add");
    scene.must("retire");
    let output = scene.command_for("c9", "add", PATIENCE).env("NETLOOM_CRASH_TRACE", points::TRACE).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    traced.extend(points::traced(&scene.host));
    scene.another_goes();
    scene.clean("another");
    traced
}

#[test]
fn after_a_killed_retirement_another_one() {
    at_each_of(Deadly::builtin, Deadly::builtin().points_of_half("retire"), |scene, point| {
        let when = format!("the first half killed at {point}");
        scene.must("add");
        scene.dies("retire", point);
        promises::hold(&scene.host, &when);
        scene.must("retire");
        promises::hold(&scene.host, &format!("{when}, again"));
        scene.must("finish");
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

/// It may not have begun: then the container is attached, and nobody was told otherwise.
#[test]
fn after_a_killed_retirement_an_add() {
    at_each_of(Deadly::builtin, Deadly::builtin().points_of_half("retire"), |scene, point| {
        let when = format!("the first half killed at {point}, ADD");
        scene.must("add");
        scene.dies("retire", point);
        let add = scene.call("add", PATIENCE);
        promises::hold(&scene.host, &when);
        let may_not_have_begun = !["retire", "tombstone"].iter().any(|own| point.starts_with(own));
        assert!(add.code == 0 || (may_not_have_begun && add.stderr.contains("DEL it first")), "{when}: {add:?}");
        scene.must("del");
        scene.clean(&when);
    });
}

#[test]
fn after_a_killed_finish_another_one() {
    at_each_of(Deadly::builtin, Deadly::builtin().points_of_half("finish"), |scene, point| {
        let when = format!("the second half killed at {point}");
        scene.must("add");
        scene.must("retire");
        scene.dies("finish", point);
        promises::hold(&scene.host, &when);
        scene.must("finish");
        // Where the record was gone already, there is nothing to finish: DEL takes what is left, as always.
        scene.must("del");
        scene.clean(&when);
        scene.comes_and_goes(&when);
    });
}

#[test]
fn after_a_killed_finish_an_add_of_either_container() {
    at_each_of(Deadly::builtin, Deadly::builtin().points_of_half("finish"), |scene, point| {
        let when = format!("the second half killed at {point}, ADD");
        scene.must("add");
        scene.must("retire");
        scene.dies("finish", point);
        let another = scene.another();
        assert_eq!(another.code, 0, "{when} of another container: {another:?}");
        promises::hold(&scene.host, &when);
        scene.another_goes();
        scene.must("add");
        promises::hold(&scene.host, &when);
        scene.must("retire");
        scene.must("finish");
        scene.must("del");
        scene.clean(&when);
    });
}

/// An ADD of the same container that runs while the second half comes: neither undoes the other's work.
#[test]
fn a_finish_that_meets_an_add() {
    at_each_of(Deadly::builtin, Deadly::builtin().points_of_half("finish"), |scene, point| {
        let when = format!("the second half stopped at {point}, ADD");
        scene.must("add");
        scene.must("retire");
        let finish = scene.stopped("finish", point);
        let add = scene.command("add", PATIENCE).spawn().unwrap();
        let finish = scene.goes_on(finish);
        let add = Outcome::from(add.wait_with_output().unwrap());
        assert_eq!(add.code, 0, "{when}: {add:?}");
        assert!(finish.code == 0 || finish.stderr.contains("code 11"), "{when}: {finish:?}");
        promises::hold(&scene.host, &when);
        let record = std::fs::read_to_string(scene.host.path("/run/netloom/sandboxes/c1.json")).unwrap();
        assert_eq!(record.matches("\"result\":").count(), 2, "{when}: {record}");
        assert!(scene.host.sh("", "ip -n c1 link").contains("net1"), "{when}");
        scene.must("retire");
        scene.must("finish");
        scene.clean(&when);
    });
}
