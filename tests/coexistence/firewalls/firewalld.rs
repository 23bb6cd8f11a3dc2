//! A real firewalld that reloads, on a system bus of the machine's own.

use netloom_tests::wired::{OUTSIDE, answer, attach, list, machine, repaired, table, who};
use netloom_tests::{Host, Running};
use serde_json::json;

fn firewalld(host: &Host) -> [Running; 2] {
    host.write("/run/firewalld.conf", "DefaultZone=public\nFirewallBackend=nftables\nCleanupOnExit=yes\n");
    // What it makes of its own files is a directory of this machine's own.
    host.run("", &["sh", "-c", "cp /run/firewalld.conf /run/kept.conf"]);
    let mut etc = host.command("", "mount");
    assert!(etc.args(["-t", "tmpfs", "tests", "/etc/firewalld"]).status().unwrap().success());
    host.run("", &["cp", "/run/kept.conf", "/etc/firewalld/firewalld.conf"]);
    let bus = Running::system_bus(host);
    let mut firewalld = host.command("", "firewalld");
    let firewalld = Running::start(firewalld.args(["--nofork", "--nopid"]));
    host.until("firewalld runs", || host.run_ok("", &["firewall-cmd", "--state"]));
    [firewalld, bus]
}

#[test]
fn a_reload_of_firewalld() {
    let host = machine(&["c1"]);
    let mut network = list("first", 1);
    network["plugins"].as_array_mut().unwrap().push(json!({"type": "firewall"}));
    host.write("/run/nets/1.conflist", &network.to_string());
    answer(&host, "c1", 80);
    let _programs = firewalld(&host);
    attach(&host, "add", "first", "c1", &[8080]);
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");
    let sources = || host.run("", &["firewall-cmd", "--zone=trusted", "--list-sources"]).split_whitespace().count();
    assert_eq!(sources(), 2);
    let ours = || table(&host).into_iter().filter(|line| line.contains("first/")).collect::<Vec<_>>();
    let whole = ours();

    host.run("", &["firewall-cmd", "--reload"]);
    assert_eq!(ours(), whole, "it flushes its own table alone");
    assert_eq!(sources(), 0, "what it was told at run time it forgets");
    let said = repaired(&host, &[], 0);
    assert!(said.contains("sources of firewalld's zone trusted"), "{said}");
    assert_eq!(sources(), 2);
    assert_eq!(who(&host, "outside", "192.0.2.1:8080", 30), "c1");
    assert!(host.pings("c1", OUTSIDE));
    assert!(repaired(&host, &[], 0).starts_with("nothing is missing"));
    attach(&host, "del", "first", "c1", &[8080]);
    assert_eq!((sources(), ours().len()), (0, 0));
}
