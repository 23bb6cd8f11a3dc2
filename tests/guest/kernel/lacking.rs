//! A kernel that lacks a module, which STATUS says before an ADD fails. Run before all others, and alone: what is loaded is the
//! whole machine's.

use std::process::Command;

use netloom_tests::{Host, plugin_dir};
use serde_json::json;

/// Where the kernel is told by whom it has a module loaded.
const LOADER: &str = "/proc/sys/kernel/modprobe";

/// What host ports need besides nf_tables, and where it is missed first.
const MODULES: [(&str, &str); 5] = [
    ("nft_fib_inet", "add rule inet netloom hostports-in"),
    ("nft_masq", "add rule inet netloom hairpin-everything"),
    ("nft_nat", "add rule inet netloom hostports"),
    ("nft_ct", "add rule inet netloom hostports-back"),
    ("nft_chain_nat", "add chain inet netloom hostports-in"),
];

/// Nobody loads a module until this is dropped.
struct NoLoader(String);

impl NoLoader {
    fn new() -> Self {
        let loader = std::fs::read_to_string(LOADER).unwrap();
        std::fs::write(LOADER, "/bin/false").unwrap();
        NoLoader(loader)
    }
}

impl Drop for NoLoader {
    fn drop(&mut self) {
        drop(std::fs::write(LOADER, &self.0));
    }
}

fn busybox(args: &[&str]) -> bool {
    Command::new("busybox").args(args).output().unwrap().status.success()
}

/// All of [`MODULES`] but one.
fn load_without(missing: &str) {
    for (module, _) in MODULES {
        // It may not be loaded.
        busybox(&["rmmod", module]);
    }
    for (module, _) in MODULES.into_iter().filter(|(module, _)| *module != missing) {
        assert!(busybox(&["modprobe", module]), "modprobe {module}");
    }
    let loaded = std::fs::read_to_string("/proc/modules").unwrap();
    assert!(!loaded.lines().any(|line| line.split(' ').next() == Some(missing)), "{missing} is loaded");
}

#[test]
#[ignore = "needs a kernel with modules: run in the guest"]
fn host_ports_without_a_module() {
    let host = Host::new();
    let ports = json!([{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]);
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "runtimeConfig": {"portMappings": ports}});
    let status = || host.cni(plugin_dir()).call("STATUS", "portmap", config.to_string());
    // With it comes nf_tables.
    assert_eq!(host.sh("", "nft list ruleset"), "");
    for (missing, at) in MODULES {
        load_without(missing);
        let without = NoLoader::new();
        let said = status();
        assert!(said.error()["code"] == 50 && said.message().contains(&format!("{at}: ENOENT")), "without {missing}: {said:?}");
        drop(without);
    }
    assert_eq!((status().code, host.sh("", "nft list ruleset")), (0, String::new()));
}
