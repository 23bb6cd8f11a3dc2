//! From the result caches of runtimes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netloom_tests::{Host, netloom, peers_dir, plugin_dir};
use serde_json::json;

use netloom_tests::wired::{HOST, OUTSIDE, list, machine, repair, repaired, table, told};

const NETS: &str = "/run/nets";

/// The reference library's runtime, or ours under its name, with the plugins of a directory.
fn cnitool(host: &Host, program: &str, verb: &str, network: &str, container: &str, port: u16) {
    let ports = json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": port, "containerPort": 80, "protocol": "udp"}]});
    let mut command = host.command("", program);
    if program.ends_with("netloom") {
        command.arg("cni");
    }
    command.args([verb, network, &format!("/run/netns/{container}")]);
    command.env("NETCONFPATH", NETS).env("CNI_PATH", plugin_dir()).env("CAP_ARGS", ports.to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{verb} {container}: {}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}

fn reference() -> String {
    peers_dir().join("cnitool").to_str().unwrap().to_owned()
}

/// Whether somebody answers `outside` at this port of the machine.
fn is_published(host: &Host, container: &str, port: u16) -> bool {
    let server = host.within(container, || TcpListener::bind("[::]:80").unwrap());
    let to = SocketAddr::new(HOST.parse().unwrap(), port);
    let connected = host.within("outside", || TcpStream::connect_timeout(&to, Duration::from_secs(60)).is_ok());
    drop(server);
    connected
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn host_ports_of_a_runtime_with_a_cache_come_back() {
    let host = machine(&["c1", "c2", "c3"]);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    cnitool(&host, &reference(), "add", "first", "c1", 8080);
    cnitool(&host, netloom().to_str().unwrap(), "add", "first", "c2", 9090);
    // Its container went without a DEL, as after a crash of its runtime.
    cnitool(&host, &reference(), "add", "first", "c3", 7070);
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing for the 3 known attachments"));
    host.sh("", "ip netns delete c3");
    host.sh("", "nft flush ruleset");
    assert!(!is_published(&host, "c1", 8080));

    // Somebody else has one of the places by now, and somebody has one that no record tells of.
    for line in ["add table inet other", "add chain inet other mine", "add rule inet other mine counter"] {
        host.sh("", &format!("nft {line}"));
    }
    let theirs = host.sh("", "nft list table inet other");
    let missing = told(&host, &[], 0);
    assert_eq!(missing["missing"].as_array().unwrap().len(), 2 * (2 + 2 + 2 + 2), "two ports, two rewrites, two addresses: {missing}");
    for (container, port) in [("c1", 8080), ("c2", 9090)] {
        assert!(is_published(&host, container, port), "{container}");
        assert!(host.pings(container, OUTSIDE));
    }
    assert!(!table(&host).iter().any(|line| line.contains("7070")), "a container that is gone gets nothing");
    assert_eq!(host.sh("", "nft list table inet other"), theirs);
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing"));
    cnitool(&host, &reference(), "del", "first", "c1", 8080);
    cnitool(&host, netloom().to_str().unwrap(), "del", "first", "c2", 9090);
    cnitool(&host, &reference(), "del", "first", "c3", 7070);
    expect_no_elements(&host);
}

/// Results as the reference library before 1.3 keeps them, which is podman 4's: they do not tell the namespace. And a copy of one.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn results_of_an_older_library_and_copies() {
    let host = machine(&["c1"]);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    cnitool(&host, &reference(), "add", "first", "c1", 8080);
    let file = format!("/var/lib/cni/results/{}", host.list("/var/lib/cni/results")[0]);
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(host.path(&file)).unwrap()).unwrap();
    kept.as_object_mut().unwrap().remove("netns");
    host.write(&file, &kept.to_string());
    let whole = table(&host);
    kept["containerId"] = json!("gone");
    host.write(&format!("{file}~"), &kept.to_string());
    host.sh("", "nft flush ruleset");
    assert!(repaired(&host, &[], 0).contains("tcp/8080"));
    assert_eq!(table(&host), whole);
    assert!(repaired(&host, &["--dry-run"], 0).starts_with("nothing is missing for the 1 known attachment"));
    cnitool(&host, &reference(), "del", "first", "c1", 8080);
    expect_no_elements(&host);
}

/// Another's element is never replaced, and one of nobody who is known is told.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_others_have_is_left() {
    let host = machine(&["c1", "c2"]);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    cnitool(&host, &reference(), "add", "first", "c1", 8080);
    host.sh("", "nft flush ruleset");
    cnitool(&host, &reference(), "add", "first", "c2", 8080);
    host.run("", &["nft", "add element inet netloom masquerade4 { 10.1.9.9 comment \"first/nobody/eth0\" : jump outside-10.1.0.0/16 }"]);
    let before = table(&host);
    let found = told(&host, &["--dry-run"], 3);
    assert_eq!((found["taken"].as_array().unwrap().len(), found["unknown"].as_array().unwrap().len()), (4, 1), "{found}");
    let said = repaired(&host, &[], 0);
    assert!(said.contains("another attachment uses it") && said.contains("it has no record or cached result"), "{said}");
    let after = table(&host);
    assert!(before.iter().all(|line| after.contains(line)), "{before:#?} {after:#?}");
    // A DEL meets an element that is another's, and one that somebody added by hand at its own place.
    let v4 = after.iter().find(|l| l.contains("cnitool-") && l.contains("jump outside-10.1")).unwrap();
    let address = v4.split(' ').next().unwrap().to_owned();
    for word in ["delete", "add"] {
        let data = if word == "add" { " comment \"by hand\" : jump outside-10.1.0.0/16" } else { "" };
        host.run("", &["nft", &format!("{word} element inet netloom masquerade4 {{ {address}{data} }}")]);
    }
    for container in ["c1", "c2"] {
        cnitool(&host, &reference(), "del", "first", container, 8080);
    }
    let left: Vec<String> = table(&host).into_iter().filter(|line| line.contains("comment \"") && !line.starts_with("comment")).collect();
    assert_eq!(left.len(), 2, "what is not ours stays: {left:?}");
}

/// Plugins of somebody else stand on the path, and the reference library does not keep who made an attachment: that it was skipped is
/// told, and counted.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn an_attachment_of_which_nothing_tells_who_made_it_is_skipped() {
    let host = machine(&["c1"]);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    cnitool(&host, &reference(), "add", "first", "c1", 8080);
    host.sh("", "nft flush ruleset");
    let dir = peers_dir().to_str().unwrap();
    for words in [&["--plugin-dir", dir][..], &["--plugin-dir", dir, "--dry-run"]] {
        let said = repaired(&host, words, 3);
        assert!(said.starts_with("nothing is missing for 0 of 1 known attachment\n"), "{said}");
        assert!(said.contains(&format!("may have been made by {dir}/bridge and {dir}/portmap")), "{said}");
        assert!(
            said.ends_with(
                "skipped 1 of 1 attachment: set --plugin-dir to the directory where their runtime finds \
            plugins\n"
            ),
            "{said}"
        );
    }
    // Where no plugin is found at all, nothing is known either.
    let said = repaired(&host, &["--plugin-dir", "/nowhere"], 3);
    let makers = "may have been made by a program bridge, which was not found and a program portmap, which was not found";
    assert!(said.contains(makers), "{said}");
    assert_eq!(host.sh("", "nft list ruleset"), "");
    let skipped = told(&host, &["--plugin-dir", dir], 3)["skipped"].clone();
    assert_eq!((skipped[0]["network"].as_str(), skipped[0]["programs"][1].as_str()), (Some("first"), Some(&*format!("{dir}/portmap"))));
    assert_eq!(host.sh("", "nft list ruleset"), "");
    assert!(told(&host, &[], 0)["missing"].as_array().unwrap().len() > 1);
}

/// Our results tell who made an attachment: which plugins are found now does not matter.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_made_an_attachment_is_known_by_its_result() {
    let host = machine(&["c1", "c2"]);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    let program = netloom().to_str().unwrap();
    cnitool(&host, program, "add", "first", "c1", 8080);
    host.sh("", "nft flush ruleset");
    let found_now = ["--plugin-dir", peers_dir().to_str().unwrap()];
    assert!(repaired(&host, &found_now, 0).contains("tcp/8080"));
    assert!(repaired(&host, &found_now, 0).starts_with("nothing is missing for the 1 known attachment"));
    cnitool(&host, program, "del", "first", "c1", 8080);
    // What the reference plugins have made is theirs, also where ours are found.
    let mut command = host.command("", program);
    command.args(["cni", "add", "first", "/run/netns/c2"]).env("NETCONFPATH", NETS).env("CNI_PATH", peers_dir());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let before = table(&host);
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing for the 1 known attachment"));
    assert_eq!(table(&host), before);
}

/// ADD and DEL go on while the ruleset is flushed and put back: nothing is left, nothing fails.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn adds_and_dels_meanwhile() {
    const ROUNDS: usize = 6;
    let containers: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = containers.iter().map(String::as_str).collect();
    let host = machine(&names);
    host.write(&format!("{NETS}/1.conflist"), &list("first", 1).to_string());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disturber = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                host.sh("", "nft flush ruleset");
                let output = repair(&host, &[]);
                assert!(output.status.success(), "{output:?}");
            }
        });
        let each = |(n, container): (usize, &String)| {
            let (host, container) = (&host, container.clone());
            let port = 8000 + u16::try_from(n).unwrap();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    cnitool(host, &reference(), "add", "first", &container, port);
                    // Sleeps: an attachment is there for a while.
                    std::thread::sleep(Duration::from_millis(300));
                    cnitool(host, &reference(), "del", "first", &container, port);
                }
            })
        };
        let churn: Vec<_> = containers.iter().enumerate().map(each).collect();
        churn.into_iter().for_each(|thread| thread.join().unwrap());
        ended.store(true, Ordering::Relaxed);
        disturber.join().unwrap();
    });
    expect_no_elements(&host);
}

fn expect_no_elements(host: &Host) {
    let left: Vec<String> = table(host).into_iter().filter(|line| line.contains("eth0\"")).collect();
    assert!(left.is_empty(), "{left:?}");
}
