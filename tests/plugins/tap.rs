//! `tap`: an interface that a program sends and receives for.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use netloom_tests::{Host, at, ips, peers_dir, plugin_dir, used};
use serde_json::{Value, json};

use crate::scene::config;

fn tap(keys: Value) -> Value {
    let mut config = config(
        "tap",
        json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.6.0.0/24"}], [{"subnet": "fd00:6::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}),
    );
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

/// A program that opens the tap and answers every ICMP echo request in it; `flags` are those of `TUNSETIFF`.
const ANSWERS: &str = r#"
open(my $t, "+<", "/dev/net/tun") or die "open: $!";
ioctl($t, 0x400454ca, my $r = pack("Z16 s x22", "eth0", FLAGS)) or die "TUNSETIFF: $!";
$| = 1; print "open\n";
while (sysread($t, my $f, 2000)) {
    next unless substr($f, 12, 2) eq "\x08\x00" && substr($f, 23, 1) eq "\x01" && substr($f, 34, 1) eq "\x08";
    substr($f, 0, 12) = substr($f, 6, 6) . substr($f, 0, 6);
    substr($f, 26, 8) = substr($f, 30, 4) . substr($f, 26, 4);
    my $sum = unpack("n", substr($f, 36, 2)) + 0x800;
    substr($f, 34, 4) = "\0\0" . pack("n", ($sum & 0xffff) + ($sum >> 16));
    syswrite($t, $f);
}"#;

const TAP_NO_PI: &str = "0x1002";
const MULTI_QUEUE: &str = "0x1102";

/// The program, run with these words before it; `None` if it may not open the tap.
fn program(host: &Host, before: &[&str], flags: &str) -> Option<Child> {
    let words = [before, &["perl", "-e"]].concat();
    let mut command = host.command("c1", words[0]);
    let mut child =
        command.args(&words[1..]).arg(ANSWERS.replace("FLAGS", flags)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line == "open\n" {
        return Some(child);
    }
    child.wait().unwrap();
    None
}

fn end(mut program: Child) {
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn a_program_answers_through_it() {
    let config = tap(json!({"mtu": 1400, "mac": "02:00:00:00:00:04", "runtimeConfig": {"mac": "02:00:00:00:00:06"}}));
    let (host, before) = used(&config);
    let result = at(&host, "c1").add(&config);
    let link = host.link("c1", "eth0").unwrap();
    assert_eq!((link.mac(), link.mtu(), link.has("UP")), ("02:00:00:00:00:06", 1400, true));
    assert_eq!((&link.0["linkinfo"]["info_kind"], &link.0["linkinfo"]["info_data"]["type"]), (&json!("tun"), &json!("tap")));
    assert_eq!(result["interfaces"], json!([{"name": "eth0", "mac": "02:00:00:00:00:06", "mtu": 1400, "sandbox": "/run/netns/c1"}]));
    assert_eq!(host.addresses("c1", "eth0"), ips(&result).iter().zip(["/24", "/64"]).map(|(ip, n)| format!("{ip}{n}")).collect::<Vec<_>>());
    let answers = program(&host, &["env"], TAP_NO_PI).expect("root opens it");
    host.sh("c1", "ip neigh add 10.6.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent");
    assert!(host.pings("c1", "10.6.0.9"));
    host.sh("c1", "ip neigh add 10.6.0.1 lladdr 02:00:00:00:00:09 dev eth0 nud permanent");
    assert!(host.pings("c1", "192.0.2.1"), "by the default route");
    let checked = at(&host, "c1").check(&config, &result);
    assert_eq!(checked.code, 0, "{checked:?}");
    end(answers);
    let checked = at(&host, "c1").check(&config, &result);
    assert_eq!(checked.code, 0, "without its program: {checked:?}");
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a tap");
}

#[test]
fn owner_group_and_queues_decide_who_opens_it() {
    let (host, before) = used(&tap(json!({})));
    // As udev makes it: everybody may open it, and the kernel asks who may have which tap.
    host.sh("", "mount -t tmpfs none /dev/net");
    host.sh("", "mknod -m 666 /dev/net/tun c 10 200");
    let user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];
    let other = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"];
    let member = ["setpriv", "--reuid", "1001", "--regid", "1001", "--groups", "2000"];
    for (keys, flags, may) in [
        (json!({"owner": 1000}), TAP_NO_PI, [true, false, false]),
        (json!({"group": 2000}), TAP_NO_PI, [false, false, true]),
        (json!({"owner": 0, "group": 0}), TAP_NO_PI, [false, false, false]),
        (json!({"owner": 1000, "multiQueue": true}), MULTI_QUEUE, [true, false, false]),
        (json!({"owner": 1000, "multiQueue": true}), TAP_NO_PI, [false, false, false]),
    ] {
        let config = tap(keys.clone());
        let result = at(&host, "c1").add(&config);
        for (who, may) in [&user[..], &other, &member].iter().zip(may) {
            let opened = program(&host, who, flags);
            assert_eq!(opened.is_some(), may, "{keys} {who:?}");
            opened.into_iter().for_each(end);
        }
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, &keys.to_string());
    }
}

#[test]
fn a_port_of_a_bridge_in_the_container() {
    let config = config("tap", json!({"bridge": "br0"}));
    let (host, _) = used(&tap(json!({})));
    let before = host.traces();
    let refused = at(&host, "c1").call("ADD", "tap", config.to_string());
    assert!(refused.message().contains("failed to get bridge br0"), "{refused:?}");
    host.expect_traces(&before, "no bridge");
    host.sh("c1", "ip link add br0 type bridge");
    host.sh("c1", "ip link set br0 address 02:00:00:00:00:0b up");
    let before = host.traces();
    let result = at(&host, "c1").add(&config);
    let link = host.link("c1", "eth0").unwrap();
    assert_eq!((&link.0["master"], link.has("UP")), (&json!("br0"), true));
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    host.sh("c1", "ip link set eth0 nomaster");
    assert!(at(&host, "c1").check(&config, &result).message().contains("it is not a port of br0"));
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "a port");
}

#[test]
fn hardware_addresses_are_as_asked_for() {
    let (host, before) = used(&tap(json!({})));
    // Owner and group: the way on which the reference plugin forgets the address.
    for (keys, args, mac) in [
        (json!({"mac": "02:00:00:00:00:01", "owner": 0, "group": 0}), "", "02:00:00:00:00:01"),
        (json!({"mac": "02:00:00:00:00:01", "args": {"cni": {}}}), "MAC=02:00:00:00:00:02", "02:00:00:00:00:02"),
        (json!({"runtimeConfig": {"mac": "02:00:00:00:00:03"}}), "MAC=02:00:00:00:00:02", "02:00:00:00:00:03"),
    ] {
        let config = tap(keys);
        let cni = at(&host, "c1").set("CNI_ARGS", args);
        let result = cni.add(&config);
        assert_eq!(host.link("c1", "eth0").unwrap().mac(), mac);
        assert_eq!(result["interfaces"][0]["mac"], mac);
        cni.del(&config, &result);
        host.expect_traces(&before, mac);
    }
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn del_with_little_and_both_implementations() {
    let config = tap(json!({}));
    let (host, before) = used(&config);
    let theirs = host.cni(peers_dir()).at("c1", "eth0");
    for told in [true, false] {
        let prev = |result: &Value| if told { result.clone() } else { Value::Null };
        let result = at(&host, "c1").add(&config);
        host.sh("c1", "ip link set eth0 name other");
        at(&host, "c1").del(&config, &prev(&result));
        at(&host, "c1").del(&config, &prev(&result));
        host.expect_traces(&before, "DEL of one that was renamed, twice");
        let result = at(&host, "c1").add(&config);
        theirs.del(&config, &prev(&result));
        host.expect_traces(&before, "our ADD, the reference plugin's DEL");
        let result = at(&host, "c1").add(&config);
        host.sh("", "ip netns del c1");
        at(&host, "c1").del(&config, &prev(&result));
        host.container("c1");
        host.expect_traces(&before, "DEL after the namespace went");
    }
    let result = theirs.add(&config);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "the reference plugin's ADD, our DEL");
    // Somebody else's tap of that name stays.
    host.sh("c1", "ip tuntap add mode tap name eth0");
    let theirs = host.traces();
    let refused = at(&host, "c1").call("ADD", "tap", config.to_string());
    assert!(refused.message().contains("interface name eth0 already exists in the container"), "{refused:?}");
    at(&host, "c1").del(&config, &Value::Null);
    host.expect_traces(&theirs, "a tap that is somebody else's");
}

#[test]
fn check_and_refusals() {
    let config = tap(json!({"mtu": 1400}));
    let (host, before) = used(&config);
    for (change, says) in [
        ("ip link set eth0 mtu 1300", "MTU is 1300, not 1400"),
        ("ip link set eth0 address 02:00:00:00:00:01", "hardware address"),
        ("ip link set eth0 down", "is down"),
        ("ip -4 addr flush dev eth0", "lost address 10.6.0."),
        ("ip link del eth0", "gone from the container"),
    ] {
        let result = at(&host, "c1").add(&config);
        assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
        host.sh("c1", change);
        let message = at(&host, "c1").check(&config, &result).message();
        assert!(message.contains(says), "{change}: {message}");
        at(&host, "c1").del(&config, &result);
        host.expect_traces(&before, change);
    }
    // Another tap in its place, as it were: the configuration says something else.
    let config = tap(json!({"owner": 7, "group": 8, "multiQueue": true}));
    let result = at(&host, "c1").add(&config);
    assert_eq!(at(&host, "c1").check(&config, &result).code, 0);
    for (keys, says) in [
        (json!({"owner": 9, "group": 8, "multiQueue": true}), "its owner is 7, not 9"),
        (json!({"owner": 7, "group": 9, "multiQueue": true}), "its group is 8, not 9"),
        (json!({"owner": 7, "group": 8}), "it has several queues"),
    ] {
        let outcome = at(&host, "c1").check(&tap(keys), &result);
        assert!(outcome.message().contains(says), "{outcome:?}");
    }
    at(&host, "c1").del(&config, &result);
    host.expect_traces(&before, "users");
    for (keys, says) in [
        (json!({"mtu": 70000}), "mtu"),
        (json!({"owner": -1}), "owner: -1 is not a valid user ID: expected 0 to 4294967294"),
        (json!({"group": 4294967295_u32}), "group: 4294967295 is not a valid group ID"),
        (json!({"owner": "root"}), "owner: expected the number of a user (see `id -u`), found "),
        (json!({"bridge": "a/b"}), "bridge"),
        (json!({"mac": "x"}), "mac"),
        // This kernel has no SELinux.
        (json!({"selinuxContext": "system_u:system_r:container_t:s0"}), "check that SELinux is enabled"),
    ] {
        let refused = at(&host, "c1").call("ADD", "tap", tap(keys.clone()).to_string());
        assert!(refused.message().contains(says), "{keys}: {refused:?}");
        let status = host.cni(plugin_dir()).call("STATUS", "tap", tap(keys.clone()).to_string());
        assert!(status.message().contains(says), "{keys}: {status:?}");
        host.expect_traces(&before, says);
    }
}

#[test]
fn status_says_when_there_is_no_device() {
    let host = Host::new();
    let status = || host.cni(plugin_dir()).call("STATUS", "tap", tap(json!({})).to_string());
    assert_eq!(status().code, 0);
    host.sh("", "mount -t tmpfs none /dev/net");
    let missing = status();
    assert!(missing.error()["code"] == 50 && missing.message().contains("modprobe tun"), "{missing:?}");
}
