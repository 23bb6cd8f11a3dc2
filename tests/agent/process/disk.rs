//! The agent where the disk of its state has no room any more, or takes nothing any more.

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

#[test]
fn a_read_only_disk_is_told_and_keeps_no_pod_from_going() {
    let node = Node::start("readonly", "");
    let before = node.before();
    node.kill9();
    node.host.sh("", "mount -t tmpfs -o size=16m,mode=755 netloom-tests /var/lib/netloom");
    node.restart();
    let pod = node.pod("web", "mac1");
    pod.must("ADD");
    // A disk on which a file is open for writing turns read-only by an error alone; what is mounted over it does when it is told to.
    node.host.sh("", "mount --bind /var/lib/netloom /var/lib/netloom");
    node.host.sh("", "mount -o remount,bind,ro /var/lib/netloom");
    let status = node.status();
    assert_eq!(status["ready"], json!(false), "{status:#}");
    assert!(status["why"].as_str().unwrap().contains("EROFS"), "{status:#}");
    let late = node.pod("late", "mac1");
    let refused = late.add();
    assert!(refused.code != 0 && refused.message().contains("Read-only file system"), "{refused:?}");
    for pod in [&pod, &late] {
        pod.must("DEL");
    }
    node.host.sh("", "umount /var/lib/netloom");
    node.until("it takes something again", || node.status()["ready"] == json!(true));
    late.must("ADD");
    late.must("DEL");
    drop((pod, late));
    // What it has to do yet is on the disk that goes.
    node.settled();
    node.kill9();
    node.host.sh("", "umount /var/lib/netloom");
    node.restart();
    node.expect(&before, "a read-only disk");
}
