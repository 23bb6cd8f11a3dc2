//! A namespace's path that is not one: refused with code 8 before anything is done, and never waited for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use netloom_tests::{Host, Outcome};
use serde_json::json;

use crate::hostile::{bridge, cni, command, outcome, used};

/// Everything of another kind that a path may lead to, on the machine.
fn paths(host: &Host) -> Vec<String> {
    for line in ["mkdir /run/dir", "mkfifo /run/fifo", "ln -s gone /run/dangling", "ln -s self /run/self", "ln -s fifo /run/piped"] {
        host.sh("", line);
    }
    host.write("/run/file", "");
    host.sh("", "ln -s /run/file /run/linked");
    drop(UnixListener::bind(host.path("/run/socket")).unwrap());
    let made = ["dir", "fifo", "dangling", "self", "piped", "file", "linked", "socket", "file/below", "two\nlines", "\u{1b}[2J"];
    let made = made.iter().map(|name| format!("/run/{name}"));
    let there = ["/proc/self/ns/mnt", "/proc/self/ns/net", "/proc/1/comm", "/dev/zero", "/dev/null", "/dev/tty", "/", "", "relative"];
    made.chain(there.iter().map(|path| (*path).to_owned())).chain([format!("/run/{}", "x".repeat(5000)), "/run/x".repeat(900)]).collect()
}

fn expect(done: &Outcome, path: &str, begun: Instant) {
    assert!(begun.elapsed() < Duration::from_secs(120), "{path:?}: {:?}", begun.elapsed());
    assert!(!done.stdout.contains('\u{1b}') && !done.stderr.contains('\u{1b}'), "{path:?}: {done:?}");
}

#[test]
fn what_is_no_namespace_is_refused() {
    let host = used();
    let paths = paths(&host);
    let before = host.traces();
    for path in paths.iter().filter(|path| !path.is_empty()) {
        for verb in ["ADD", "CHECK"] {
            let begun = Instant::now();
            let done = cni(&host).set("CNI_NETNS", path).call(verb, "bridge", bridge(json!({})).to_string());
            assert_eq!(done.error()["code"], 8, "{verb} {path:?}: {done:?}");
            expect(&done, path, begun);
        }
        // It frees what can be freed, or says what is wrong with the path.
        let begun = Instant::now();
        let done = cni(&host).set("CNI_NETNS", path).call("DEL", "bridge", bridge(json!({})).to_string());
        assert!(done.code == 0 || done.error()["code"] == 8, "DEL {path:?}: {done:?}");
        expect(&done, path, begun);
    }
    host.expect_traces(&before, "paths that are no namespace");
}

#[test]
fn what_is_no_namespace_is_refused_by_the_command() {
    let host = used();
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    let paths = paths(&host);
    let before = host.traces();
    for path in &paths {
        let begun = Instant::now();
        let done = outcome(command(&host, &["cni", "add", "net", path]));
        assert!([1, 2].contains(&done.code), "add {path:?}: {done:?}");
        expect(&done, path, begun);
        let begun = Instant::now();
        let done = outcome(command(&host, &["cni", "del", "net", path]));
        assert!(done.code == 0 || !done.stderr.is_empty(), "del {path:?}: {done:?}");
        expect(&done, path, begun);
    }
    host.expect_traces(&before, "paths that are no namespace");
}

/// A path need not be text.
#[test]
fn a_path_of_other_bytes_is_refused() {
    let host = used();
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    let before = host.traces();
    let path = OsStr::from_bytes(b"/run/netns/\xff\xfe");
    let mut add = command(&host, &["cni", "add", "net"]);
    let out = add.arg(path).stdin(Stdio::null()).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    host.expect_traces(&before, "a path that is no text");
}
