//! `netloom cni` as a person calls it: namespaces, paths and what it executes.

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

fn bridge(keys: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "host-local", "subnet": "10.2.0.0/24"}});
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config
}

fn leases(host: &Host, network: &str) -> Vec<String> {
    let all = host.list(&format!("/var/lib/cni/networks/{network}"));
    all.into_iter().filter(|f| f.starts_with("10.")).collect()
}

fn cni(host: &Host, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let mut command = host.command("", netloom());
    let out = command.arg("cni").args(args).env_remove("CNI_PATH").envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap(), said)
}

/// `netloom cni gc` told the plugins that nothing is valid, and so freed what other runtimes hold.
#[test]
fn gc_leaves_what_other_runtimes_hold() {
    let host = Host::new();
    host.container("c1");
    let config = bridge(json!({"ipMasq": true, "isGateway": true}));
    host.write("/etc/cni/net.d/1.conf", &config.to_string());
    host.cni(plugin_dir()).at("c1", "eth0").add(&config);
    let (code, said) = cni(&host, &["gc", "net", "--all"], &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(leases(&host, "net"), ["10.2.0.2"]);
    assert!(host.sh("", "nft list ruleset").contains("net/c1/eth0"));
}

/// An empty `CNI_PATH` was a search in the directory where one happened to be, then on `PATH`.
#[test]
fn nothing_is_executed_from_the_current_directory() {
    let host = Host::new();
    host.container("c1");
    host.write("/run/here/sneaky", "#!/bin/sh\ntouch /run/ran\n");
    host.sh("", "chmod 755 /run/here/sneaky");
    host.write("/etc/cni/net.d/1.conf", &json!({"cniVersion": "1.0.0", "name": "n", "type": "sneaky"}).to_string());
    let program = netloom().display().to_string();
    for path in ["", ":", "/nowhere:"] {
        let line = format!("cd /run/here && CNI_PATH={path} {program} cni add n /run/netns/c1");
        assert!(!host.try_run("", &["sh", "-c", &line]).status.success());
    }
    assert!(!host.path("/run/ran").exists());
    // A relative directory that is named is meant.
    host.try_run("", &["sh", "-c", &format!("cd /run && CNI_PATH=here {program} cni add n /run/netns/c1")]);
    assert!(host.path("/run/ran").exists());
}

/// `netloom cni add NET /proc/self/ns/net` attached the host to itself.
#[test]
fn the_hosts_own_namespace_is_refused() {
    let host = Host::new();
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    let (code, said) = cni(&host, &["add", "net", "/proc/self/ns/net"], &[]);
    assert!(code == 1 && said.contains("\"code\": 8") && said.contains("the host's own network namespace"), "{said}");
    assert!(host.link("", "eth0").is_none());
}

/// The container's ID was made from the path as it was written: `del` did not find what `add` had made.
#[test]
fn del_finds_a_namespace_by_another_spelling_of_its_path() {
    let host = Host::new();
    host.container("c1");
    host.write("/etc/cni/net.d/1.conf", &bridge(json!({})).to_string());
    assert_eq!(cni(&host, &["add", "net", "/run/../run/./netns/c1"], &[]).0, 0);
    assert_eq!(cni(&host, &["del", "net", "/run/netns/c1"], &[]).0, 0);
    assert!(host.link("c1", "eth0").is_none() && leases(&host, "net").is_empty());
}

/// VERSION waited for the end of standard input, which it does not need.
#[test]
fn version_reads_no_standard_input() {
    let host = Host::new();
    let bridge = plugin_dir().join("bridge").display().to_string();
    let start = std::time::Instant::now();
    let out = host.run("", &["sh", "-c", &format!("mkfifo /run/pipe; exec 3<>/run/pipe; CNI_COMMAND=VERSION timeout 60 {bridge} <&3")]);
    assert!(out.contains("supportedVersions") && start.elapsed().as_secs() < 50);
}
