//! The agent where the disk of its state has no room any more.

use netloom_tests::Node;
use serde_json::json;

#[test]
fn a_full_disk_is_told_and_keeps_no_pod_from_going() {
    let node = Node::start("disk", "");
    let before = node.before();
    node.kill9();
    node.host.sh("", "mount -t tmpfs -o size=4m,mode=755 netloom-tests /var/lib/netloom");
    node.restart();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    // As much as there is, to the last page.
    node.host.try_run("", &["dd", "if=/dev/zero", "of=/var/lib/netloom/full", "bs=4k"]);
    node.until("the agent is not ready", || node.status()["ready"] == json!(false));
    let status = node.status();
    assert!(status["why"].as_str().unwrap().contains("ENOSPC"), "{status:#}");
    let late = node.pod("late", "mac1");
    let refused = late.add();
    assert!(refused.code != 0 && refused.message().contains("ENOSPC"), "{refused:?}");
    for pod in [&pod, &late] {
        pod.must("DEL");
    }
    node.host.sh("", "rm /var/lib/netloom/full");
    node.until("there is room again", || node.status()["ready"] == json!(true));
    late.must("ADD");
    late.must("DEL");
    drop((pod, late));
    // What the last DEL has left to be done is noted on the disk that goes.
    node.settled();
    node.kill9();
    node.host.sh("", "umount /var/lib/netloom");
    node.restart();
    node.expect(&before, "a full disk");
}
