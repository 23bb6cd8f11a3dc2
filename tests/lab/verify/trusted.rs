//! What others write does no harm: secrets stay out of an archive, no name gives a terminal orders, and a large node is observed in little memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use netloom_tests::{Host, netloom};
use serde_json::{Value, json};

use super::{Lab, node, pod};

/// What must not be in an archive.
const SECRET: &str = "hunter2";

/// The files of an archive, by another program: their names, and all that is in them.
fn unpacked(host: &Host, path: &str) -> (String, String) {
    let out = Command::new("tar").arg("-xzOvf").arg(host.path(path)).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (String::from_utf8_lossy(&out.stderr).into_owned(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Secrets are wherever somebody else can write: none of them is in the archive, and what is beside each of them is.
#[test]
fn a_secret_in_any_place_is_not_in_the_archive() {
    let host = Host::new();
    host.sh("", "mount -t tmpfs none /var/log");
    let pem = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----";
    let inner = json!({"type": "bridge", "token": SECRET, "beside-inner": 1}).to_string();
    host.write("/run/settings.yaml", "nodeName: worker # beside-settings\n# etcd password: hunter2\n");
    host.write("/etc/cni/net.d/10-x.conflist", &json!({"name": "beside-configuration", "psk": SECRET, "plugins": [inner]}).to_string());
    let record = json!({"config": json!({"deep": inner}).to_string(), "said": format!("cannot parse {inner}")});
    host.write("/var/lib/netloom/sandboxes/x.json", &record.to_string());
    let spooled = format!("{{\"beside-spool\": 1, \"conf\": {}, cut", json!(inner));
    host.write("/var/lib/netloom/spool/x", &spooled);
    let log = |text: &str| std::fs::write(host.path("/var/log/log"), text).unwrap();
    let logs = |folder: &str, text: &str| {
        std::fs::create_dir_all(host.path(format!("/var/log/pods/{folder}/agent"))).unwrap();
        std::fs::write(host.path(format!("/var/log/pods/{folder}/agent/0.log")), text).unwrap();
    };
    let said = format!("beside-log\nlevel=info conf={}\n{}\npassword: |\n  {SECRET}\nbeside-end", json!(inner), pem.replace('\n', "\\n"));
    logs("kube-system_netloom-x7k2p_0b1c", &said);
    logs("default_netloom-imitator_0b1c", "a stranger's log");
    logs("network_netloom-v4n8q_0b1c", "the log of an agent elsewhere");
    host.sh("", "nft add table inet others");
    host.sh("", "nft add chain inet others beside-chain");
    host.sh("", "nft add rule inet others beside-chain accept comment \"token=hunter2\"");
    log(&format!("beside-added\n{pem}\nsecret:\n- {SECRET}\n"));
    std::fs::write(host.path("/run/invalid"), [b"beside-invalid \xff\npassword: ", SECRET.as_bytes(), b" \xfe\n"].concat()).unwrap();
    std::fs::write(host.path("/run/binary"), [b"\0", SECRET.as_bytes()].concat()).unwrap();
    let lab = Lab { host, names: BTreeMap::new() };
    let sysdump = |more: &[&str]| lab.netloom(&[&["sysdump", "--config", "/run/settings.yaml"], more].concat());
    let added = ["--add", "/var/log/log", "--add", "/run/invalid", "--add", "/run/binary"];
    let (code, said) = sysdump(&[&["-o", "/run/node.tar.gz"], &added[..]].concat());
    assert!(code == 0 && said.contains("/run/binary: it is not text") | said.contains("added/run/binary: it is not text"), "{said}");
    let (names, all) = unpacked(&lab.host, "/run/node.tar.gz");
    assert!(!all.contains(SECRET), "{}", all.lines().filter(|line| line.contains(SECRET)).collect::<Vec<_>>().join("\n"));
    for beside in ["settings", "configuration", "inner", "spool", "log", "end", "chain", "added", "invalid"] {
        assert!(all.contains(&format!("beside-{beside}")), "beside-{beside} is missing: {names}");
    }
    assert!(!all.contains("stranger") && !names.contains("imitator"), "another pod's log is in it: {names}");
    assert!(!all.contains("agent elsewhere"), "{names}");
    // Agents may be in another namespace.
    let (code, said) = sysdump(&["-o", "/run/elsewhere.tar.gz", "--agents", "network"]);
    let (names, all) = unpacked(&lab.host, "/run/elsewhere.tar.gz");
    assert!(code == 0 && all.contains("the log of an agent elsewhere") && !names.contains("kube-system_"), "{said}: {names}");

    // A name that is mistyped is an error, before anything is written.
    let (code, said) = sysdump(&["-o", "/run/none.tar.gz", "--add", "/run/no-such"]);
    assert!(code == 1 && said.contains("/run/no-such") && !lab.host.path("/run/none.tar.gz").exists(), "{said}");
    let (code, said) = sysdump(&["-o", "/run/no-such/dump.tar.gz"]);
    assert!(code == 1 && said.contains("-o -"), "{said}");
}

/// In a container whose files cannot be written, it goes to standard output.
#[test]
fn an_archive_is_written_to_standard_output() {
    let host = Host::new();
    host.write("/run/settings.yaml", "nodeName: worker\n");
    let mut command = host.command("", netloom());
    command.args(["sysdump", "--config", "/run/settings.yaml", "-o", "-"]);
    let output = command.stdin(Stdio::null()).stdout(File::create(host.path("/run/piped")).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (names, all) = unpacked(&host, "/run/piped");
    assert!(names.contains("/snapshot.json") && all.contains("\"node/worker\""), "{names}");
}

/// A pod's root names its links as it likes; what the names say is printed, and not done.
#[test]
fn no_name_gives_orders_to_a_terminal() {
    let lab = Lab::up(&[node("left"), pod("a", "left"), pod("b", "left")].concat(), &["--between", "direct"]);
    let hostile = "e\u{1b}[2J\u{7}h";
    for argv in [&["ip", "link", "set", "eth0", "down"][..], &["ip", "link", "set", "eth0", "name", hostile]] {
        lab.host.run("nl.lab.pod.default.a", argv);
    }
    let out = lab.host.command("", netloom()).args(["--color", "always", "verify", "--timeout", "1"]).output().unwrap();
    let printed = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{printed}");
    assert!(printed.contains("e\\u001b[2J\\u0007h"), "it is shown: {printed:?}");
    assert!(printed.contains("\u{1b}[31m"), "our own colours are: {printed:?}");
    assert!(!printed.contains("\u{1b}[2J") && !printed.contains('\u{7}'), "{printed:?}");
    lab.down();
}

/// A node with more routes than there is room for: the beginning is observed, and what is left out is said.
#[test]
fn a_large_node_is_observed_in_little_memory() {
    let host = Host::new();
    host.write("/run/settings.yaml", "nodeName: worker\n");
    host.sh("", "ip link add br9 type bridge");
    host.sh("", "ip link set br9 up");
    let routes: String = (0..160_000).map(|n: u32| format!("route add 10.{}.{}.{}/32 dev br9\n", n >> 16, n >> 8 & 255, n & 255)).collect();
    host.write("/run/routes", &routes);
    host.sh("", "ip -batch /run/routes");
    let output = host.limited(64, netloom()).args(["agent", "observe", "--config", "/run/settings.yaml"]).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = &seen["namespaces"][0];
    let routes = own["routes"].as_array().unwrap().len();
    assert!((10_000..160_000).contains(&routes), "{routes} routes");
    let unread = own["unread"].as_array().unwrap();
    assert!(unread.iter().any(|why| why.as_str().unwrap().contains("are left out")), "{unread:?}");
}

/// An archive of somebody else's may say anything: a snapshot and a name without end are not held in memory to their end.
#[test]
fn an_archive_takes_little_memory() {
    let host = Host::new();
    let packed = |kind: u8, name: &str, length: usize| {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, "0000600");
        put(124, &format!("{length:011o}"));
        put(148, "        ");
        put(257, "ustar  ");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut gzip = Command::new("gzip").arg("-1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut to = gzip.stdin.take().unwrap();
        let writes = std::thread::spawn(move || {
            to.write_all(&header).unwrap();
            let block = [b'n'; 1 << 20];
            (0..length >> 20).for_each(|_| to.write_all(&block).unwrap());
        });
        let out = gzip.wait_with_output().unwrap();
        writes.join().unwrap();
        out.stdout
    };
    let refused = |archive: Vec<u8>, mib: u64, words: &str| {
        std::fs::write(host.path("/run/archive.tar.gz"), archive).unwrap();
        let output = host.limited(mib, netloom()).args(["verify", "--from", "/run/archive.tar.gz"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{}: {said}", output.status);
    };
    refused(packed(b'L', "././@LongLink", 200 << 20), 64, "netloom sysdump");
    // A snapshot is read to a limit, and what is longer is refused.
    refused(packed(b'0', "stem/snapshot.json", 513 << 20), 1200, "more than 512 MiB together");
}
