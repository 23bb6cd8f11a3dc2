//! `ipMasq` of the reference plugins: who changes to ours need not drain the node.

use netloom_tests::{Host, peers_dir, plugin_dir};
use serde_json::{Value, json};

use crate::scene::config;

/// A directory with the programs of this kind of iptables under the names that are looked for.
fn programs(host: &Host, kind: &str) -> String {
    let dir = format!("/run/iptables-{kind}");
    host.sh("", &format!("mkdir -p {dir}"));
    for family in ["iptables", "ip6tables"] {
        host.sh("", &format!("ln -s /usr/sbin/{family}-{kind} {dir}/{family}"));
        for what in ["save", "restore"] {
            host.sh("", &format!("ln -s /usr/sbin/{family}-{kind}-{what} {dir}/{family}-{what}"));
        }
    }
    dir
}

/// How many rules and chains tell of a container.
fn rules(host: &Host, dir: &str, container: &str) -> usize {
    let save = |family: &str| host.sh("", &format!("{dir}/{family}-save -t nat"));
    let native = host.sh("", "nft list tables").contains("cni_plugins_masquerade");
    let native = if native { host.sh("", "nft list table inet cni_plugins_masquerade") } else { String::new() };
    let all = save("iptables") + &save("ip6tables") + &native;
    let named = ["id: \"C\"", "id: \\\"C\\\"", "id: C\""].map(|name| name.replace('C', container));
    all.lines().filter(|line| named.iter().any(|name| line.contains(name))).count()
}

fn chains(host: &Host, dir: &str) -> usize {
    let save = |family: &str| host.sh("", &format!("{dir}/{family}-save -t nat"));
    (save("iptables") + &save("ip6tables")).lines().filter(|line| line.starts_with(":CNI-")).count()
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_the_reference_plugins_made_goes() {
    for (kind, backend, plugin) in [("nft", "iptables", "bridge"), ("legacy", "iptables", "ptp"), ("nft", "nftables", "ptp")] {
        let host = Host::new();
        ["c1", "c2"].iter().for_each(|c| host.container(c));
        let dir = programs(&host, kind);
        let path = format!("{dir}:/usr/sbin:/usr/bin:/sbin:/bin");
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]});
        let config = config(plugin, json!({"ipMasq": true, "ipMasqBackend": backend, "isGateway": true, "ipam": ipam}));
        let theirs = |container: &str| host.cni(peers_dir()).at(container, "eth0").set("PATH", &path).add(&config);
        let results = ["c1", "c2"].map(theirs);
        let found = |container: &str| rules(&host, &dir, container);
        assert!(found("c1") >= 2 && found("c1") == found("c2"), "{kind} {backend}: {} {}", found("c1"), found("c2"));
        let ours = |container: &str, prev: &Value| host.cni(plugin_dir()).at(container, "eth0").set("PATH", &path).del(&config, prev);
        let second = found("c2");
        ours("c1", &results[0]);
        assert_eq!((found("c1"), found("c2")), (0, second), "{kind} {backend}");
        // Nobody tells what ADD said.
        ours("c2", &Value::Null);
        ours("c2", &Value::Null);
        assert_eq!((found("c2"), chains(&host, &dir)), (0, 0), "{kind} {backend}");
    }
}
