//! `--pause-on-fail`: a case that fails is shown and explained, and nothing goes on until somebody presses Enter.

use netloom_tests::{Prompted, netloom};

use super::{Lab, node, pod};

#[test]
fn each_case_that_fails_waits_for_enter() {
    let lab = Lab::up(&[node("left"), node("right"), pod("a", "left"), pod("b", "right"), pod("b2", "right")].concat(), &[]);
    lab.run("node.left", "ip route del 10.244.1.0/24");
    let mut command = lab.host.command("", netloom());
    command.args(["verify", "--pause-on-fail", "--timeout", "1", "--test", "^(1|2|11)$"]).env_remove("CNI_PATH");
    let mut paused = Prompted::start(&mut command);
    // The first case passes, and nobody is asked.
    paused.waits("failed; press Enter to go on", 1);
    assert!(paused.said().contains("2 failed; press Enter"), "{}", paused.said());
    paused.enter();
    paused.waits("failed; press Enter to go on", 2);
    assert!(paused.said().contains("11 failed; press Enter"), "{}", paused.said());
    paused.enter();
    let said = paused.said();
    let (status, printed) = paused.end();
    assert_eq!(status.code(), Some(3), "{printed}{said}");
    assert!(printed.contains("passed   1 ") && printed.contains("failed   2 ") && printed.contains("failed   11 "), "{printed}");
    // Each is explained where it waits, and all at the end.
    assert!(printed.matches("no route leads to 10.244.1.").count() >= 3, "{printed}");
    lab.down();
}
