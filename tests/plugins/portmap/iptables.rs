//! What is said in the words of iptables: the rules of the reference plugin, and what packets make of them, with both kinds of
//! iptables.

use std::path::Path;
use std::time::{Duration, Instant};

use netloom_tests::{Running, peers_dir, plugin_dir};
use serde_json::{Value, json};

use crate::portmap::scene::{Attached, GATEWAY4, GATEWAY6, HOST4, HOST6, OUTSIDE4, OUTSIDE6, Scene, portmap, tcp, udp};

/// A kind of iptables, and a directory with its programs under the names that are looked for.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    path: &'static str,
}

const NEWER: Kind = Kind { name: "nft", path: "/run/iptables-nft" };
const OLDER: Kind = Kind { name: "legacy", path: "/run/iptables-legacy" };

fn iptables() -> Value {
    json!({"backend": "iptables"})
}

struct Words {
    scene: Scene,
    kind: Kind,
    /// The rules that are there when nobody publishes anything.
    before: String,
}

// === impl Words ===

impl Words {
    fn new(kind: Kind) -> Self {
        let mut scene = Scene::new();
        let Kind { name, path } = kind;
        scene.host.run("", &["mkdir", "-p", path]);
        for family in ["iptables", "ip6tables"] {
            scene.host.sh("", &format!("ln -s /usr/sbin/{family}-{name} {path}/{family}"));
            for what in ["save", "restore"] {
                scene.host.sh("", &format!("ln -s /usr/sbin/{family}-{name}-{what} {path}/{family}-{what}"));
            }
        }
        scene.path = Some(format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"));
        scene.del(&scene.add_with("c1", &json!([tcp(1, 1)]), &iptables()));
        scene.before = scene.host.traces();
        let mut words = Words { scene, kind, before: String::new() };
        words.before = words.rules();
        assert!(!words.before.contains("CNI-DN-"), "{}", words.before);
        words
    }

    /// Both families' rules of the table, without what counts.
    fn rules(&self) -> String {
        let save = |family: &str| self.scene.host.sh("", &format!("{}/{family}-save -t nat", self.kind.path));
        let text = save("iptables") + &save("ip6tables");
        text.lines().filter(|l| l.starts_with("-A") || l.starts_with(":CNI")).map(|l| l.to_owned() + "\n").collect()
    }

    fn expect_nothing(&self) {
        assert_eq!(self.rules(), self.before);
        self.scene.expect_nothing();
    }

    /// A call of another implementation, or of ours.
    fn of(&self, dir: &Path, attached: &Attached, verb: &str) -> netloom_tests::Outcome {
        let mut config = attached.config.clone();
        config["prevResult"] = attached.result.clone();
        let cni = self.scene.host.cni(dir).at(&attached.container, "eth0").set("PATH", self.scene.path.as_deref().unwrap());
        cni.call(verb, "portmap", config.to_string())
    }
}

fn both_kinds(test: fn(Kind)) {
    std::thread::scope(|scope| [NEWER, OLDER].map(|kind| scope.spawn(move || test(kind))).map(|t| t.join().unwrap()));
}

#[test]
fn published_in_the_words_of_iptables() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let attached = scene.add_with("c1", &json!([tcp(8080, 80), udp(8080, 80)]), &iptables());
        scene.answer("c1", 80);
        let expected = [
            ("outside", HOST4, OUTSIDE4),
            ("outside", HOST6, OUTSIDE6),
            ("", HOST4, HOST4),
            ("", HOST6, HOST6),
            ("", "127.0.0.1", GATEWAY4),
            ("c1", HOST4, GATEWAY4),
            ("c1", HOST6, GATEWAY6),
        ];
        for (from, at, seen) in expected {
            assert_eq!(scene.tcp(from, at, 8080), format!("c1 {seen}"), "{}: TCP from {from:?} to {at}", kind.name);
            assert_eq!(scene.udp(from, at, 8080), format!("c1 {seen}"), "{}: UDP from {from:?} to {at}", kind.name);
        }
        assert!(!scene.host.sh("", "nft list table inet netloom").contains("c1"));
        scene.check(&attached).silent();
        scene.del(&attached);
        assert!(!scene.reaches("outside", HOST4, 8080), "after DEL");
        scene.del(&attached);
        words.expect_nothing();
    });
}

/// The older kind has one lock for all tables of a machine.
#[test]
fn whoever_has_the_lock_of_all_tables_is_waited_for() {
    let words = Words::new(OLDER);
    let scene = &words.scene;
    let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &iptables());
    // Sleeps: longer than a turn of the program's own waiting, which is what is tried.
    let other = Running::start(scene.host.command("", "flock").args(["/run/xtables.lock", "sleep", "2.5"]));
    scene.host.until("the lock is taken", || !scene.host.run_ok("", &["flock", "--nonblock", "/run/xtables.lock", "true"]));
    let begun = Instant::now();
    scene.del(&attached);
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(other);
    words.expect_nothing();
}

/// Conditions, a bit, and another program's chain choose iptables by themselves.
#[test]
fn what_only_iptables_can_say() {
    both_kinds(|kind| {
        let mut words = Words::new(kind);
        let conditions = json!({"conditionsV4": ["!", "-s", OUTSIDE4], "conditionsV6": ["-s", OUTSIDE6]});
        let attached = words.scene.add_with("c1", &json!([tcp(8080, 80)]), &conditions);
        let scene = &words.scene;
        scene.answer("c1", 80);
        assert!(!scene.reaches("outside", HOST4, 8080));
        assert_eq!(scene.tcp("elsewhere", HOST4, 8080), "c1 198.51.100.2");
        assert_eq!(scene.tcp("outside", HOST6, 8080), format!("c1 {OUTSIDE6}"));
        assert!(!scene.reaches("elsewhere", HOST6, 8080));
        // They are this attachment's alone.
        let other = scene.add_with("c2", &json!([tcp(9090, 80)]), &json!({"conditionsV4": ["-d", HOST4]}));
        scene.answer("c2", 80);
        assert_eq!(scene.tcp("outside", HOST4, 9090), format!("c2 {OUTSIDE4}"));
        assert!(!scene.reaches("outside", GATEWAY4, 9090));
        [&attached, &other].iter().for_each(|a| scene.check(a).silent());
        [&attached, &other].iter().for_each(|a| scene.del(a));
        words.expect_nothing();

        let marked = words.scene.add_with("c1", &json!([tcp(8080, 80)]), &json!({"markMasqBit": 5}));
        assert_eq!(words.scene.tcp("c1", HOST4, 8080), format!("c1 {GATEWAY4}"));
        assert!(words.rules().contains("--set-xmark 0x20/0x20"), "{}", words.rules());
        let beside = words.scene.add_with("c2", &json!([tcp(9090, 80)]), &iptables());
        words.scene.check(&marked).silent();
        words.scene.del(&marked);
        words.scene.check(&beside).silent();
        words.scene.del(&beside);
        // Whatever has such a mark was masqueraded for ever after.
        assert_eq!(words.rules(), words.before, "{}", kind.name);
        assert!(!words.before.contains("MASQUERADE"), "{}", words.before);

        // Kubernetes' own chain would mark and masquerade.
        for family in ["iptables", "ip6tables"] {
            for line in [
                "-N KUBE-MARK-MASQ",
                "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
                "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE",
            ] {
                words.scene.host.sh("", &format!("{}/{family} -t nat {line}", kind.path));
            }
        }
        words.before = words.rules();
        words.scene.before = words.scene.host.traces();
        let external = words.scene.add_with("c1", &json!([tcp(8080, 80)]), &json!({"externalSetMarkChain": "KUBE-MARK-MASQ"}));
        assert_eq!(words.scene.tcp("c1", HOST4, 8080), format!("c1 {GATEWAY4}"));
        assert!(words.rules().contains("-j KUBE-MARK-MASQ"));
        words.scene.check(&external).silent();
        words.scene.del(&external);
        words.expect_nothing();
    });
}

/// Rules of iptables are asked ahead of elements: whoever came later with them took a port from who had it.
#[test]
fn a_port_that_another_has_in_either_way() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let at_one = json!({"hostPort": 8080, "containerPort": 81, "protocol": "tcp", "hostIP": HOST4});
        let (nftables, conditional) = (json!({}), json!({"conditionsV4": ["-s", OUTSIDE4]}));
        let (by_elements, by_rules) = ("host port 8080/tcp", "used by attachment published/c1");
        let mut cases = vec![
            (tcp(8080, 80), &nftables, tcp(8080, 81), iptables(), by_elements),
            (tcp(8080, 80), &nftables, at_one.clone(), iptables(), by_elements),
            (at_one.clone(), &nftables, tcp(8080, 80), iptables(), by_elements),
            (tcp(8080, 80), &nftables, tcp(8080, 81), conditional, by_elements),
        ];
        let chosen = iptables();
        cases.push((at_one.clone(), &chosen, tcp(8080, 80), iptables(), by_rules));
        cases.push((tcp(8080, 80), &chosen, at_one, iptables(), by_rules));
        // Elsewhere a program would be run for each attachment.
        if kind.name == NEWER.name {
            cases.push((tcp(8080, 80), &chosen, tcp(8080, 81), json!({}), by_rules));
        }
        for (has, its_keys, asks, keys, says) in cases {
            let first = scene.add_with("c1", &json!([has]), its_keys);
            let (rules, table) = (words.rules(), scene.host.sh("", "nft list table inet netloom"));
            let (outcome, second) = scene.try_add("c2", &json!([tcp(9090, 90), asks]), &keys);
            assert_eq!(outcome.error()["code"], 11, "{has} {its_keys}, {asks} {keys}: {outcome:?}");
            assert!(outcome.message().contains(says) && outcome.message().contains("published/c1"), "{outcome:?}");
            assert_eq!(
                (words.rules(), scene.host.sh("", "nft list table inet netloom")),
                (rules, table),
                "{has} {its_keys}, {asks} {keys}"
            );
            scene.check(&first).silent();
            [&second, &first].iter().for_each(|a| scene.del(a));
        }
        // One container's own, and ports at different addresses.
        let elsewhere = json!({"hostPort": 8080, "containerPort": 81, "protocol": "tcp", "hostIP": GATEWAY4});
        let at_one = json!({"hostPort": 8080, "containerPort": 81, "protocol": "tcp", "hostIP": HOST4});
        let first = scene.add_with("c1", &json!([at_one, tcp(8081, 80)]), &iptables());
        let second = scene.add_with("c2", &json!([elsewhere]), &iptables());
        let mut other = portmap(&json!([tcp(8081, 80)]), &json!({}));
        other["name"] = json!("other");
        other["prevResult"] = first.result.clone();
        scene.cni("c1").add(&other);
        scene.cni("c1").del(&other, &first.result);
        [&first, &second].iter().for_each(|a| scene.check(a).silent());
        scene.del(&first);
        // It has no port of IPv6, and needs nothing of what went with the other's.
        scene.check(&second).silent();
        scene.del(&second);
        words.expect_nothing();
    });
}

fn many(kind: Kind) -> Value {
    if kind.name == OLDER.name {
        // Of two ports of one protocol the reference plugin makes the first one's rules alone: `ip6tables-legacy -C` (1.8.9) finds
        // any port's where it is asked for another's.
        return json!([tcp(7000, 80), udp(7001, 80)]);
    }
    let ports = (0..20).map(|n| tcp(7000 + n, 80)).chain([udp(7000, 80)]);
    let more = [
        json!({"hostPort": 7100, "containerPort": 81, "protocol": "tcp", "hostIP": HOST4}),
        json!({"hostPort": 7101, "containerPort": 81, "protocol": "tcp", "hostIP": HOST6}),
        json!({"hostPort": 7102, "containerPort": 81, "protocol": "tcp", "hostIP": "0.0.0.0"}),
    ];
    ports.chain(more).collect()
}

/// The reference plugin makes the same rules of it, finds ours in order, and takes them away; and we its.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn the_reference_plugins_rules_are_ours() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let keys = [
            json!({"backend": "iptables"}),
            json!({"backend": "iptables", "snat": false}),
            json!({"backend": "iptables", "masqAll": true, "conditionsV4": ["-d", "192.0.2.0/24", "!", "-i", "lo"], "conditionsV6": ["-d", HOST6]}),
        ];
        for keys in keys {
            let attached = words.scene.add_with("c1", &many(kind), &keys);
            let ours = words.rules();
            assert_ne!(ours, words.before);
            for verb in ["CHECK", "DEL"] {
                words.of(peers_dir(), &attached, verb).silent();
            }
            // It leaves what marks and masquerades.
            let is_shared = |line: &&str| line.contains("CNI-HOSTPORT-SETMARK") || line.contains("CNI-HOSTPORT-MASQ");
            let left: String = words.rules().lines().filter(|line| !is_shared(line)).map(|line| line.to_owned() + "\n").collect();
            assert_eq!(left, words.before, "the reference's DEL");
            assert_eq!(words.of(peers_dir(), &attached, "ADD").code, 0);
            assert_eq!(words.rules(), ours, "{keys}");
            for verb in ["CHECK", "DEL"] {
                words.of(plugin_dir(), &attached, verb).silent();
            }
            assert_eq!(words.rules(), words.before, "our DEL");
            words.scene.del(&attached);
        }
        words.expect_nothing();
    });
}

/// A cluster that changes from the reference plugin to ours: without a `backend` its rules are those of iptables.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_the_reference_made_without_saying_so_goes() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let (outcome, attached) = words.scene.try_add("c1", &json!([]), &json!({}));
        assert_eq!(outcome.code, 0);
        let config = portmap(&json!([tcp(8080, 80), udp(8081, 80)]), &json!({}));
        let attached = Attached { config, ..attached };
        assert_eq!(words.of(peers_dir(), &attached, "ADD").code, 0);
        assert!(words.rules().contains("CNI-DN-"));
        words.of(plugin_dir(), &attached, "DEL").silent();
        assert_eq!(words.rules(), words.before);
        words.scene.del(&attached);
        words.expect_nothing();
    });
}

/// The same of its rules by nftables, of which those of other containers stay.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_the_reference_made_by_nftables_goes() {
    let words = Words::new(NEWER);
    let nftables = json!({"backend": "nftables"});
    let attach = |container| {
        let (_, attached) = words.scene.try_add(container, &json!([]), &nftables);
        let attached = Attached { config: portmap(&json!([tcp(8080, 80), udp(8081, 80)]), &nftables), ..attached };
        assert_eq!(words.of(peers_dir(), &attached, "ADD").code, 0);
        attached
    };
    let rules = || ["ip", "ip6"].map(|family| words.scene.host.sh("", &format!("nft list table {family} cni_hostport"))).concat();
    let kept = attach("c2");
    let before = rules();
    let gone = attach("c1");
    assert!(rules().contains("comment \"c1\""), "{}", rules());
    words.of(plugin_dir(), &gone, "DEL").silent();
    assert_eq!(rules(), before);
    words.of(plugin_dir(), &gone, "DEL").silent();
    words.of(peers_dir(), &kept, "CHECK").silent();
    [&gone, &kept].iter().for_each(|a| words.scene.del(a));
    assert!(!rules().contains("comment \"c2\""), "{}", rules());
}

#[test]
fn whatever_del_is_told() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let bare = portmap(&Value::Null, &iptables());
        let other = scene.add_with("c2", &json!([tcp(9090, 80)]), &iptables());
        let with_other = words.rules();
        let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &iptables());
        let dels: [&dyn Fn(); 3] =
            [&|| scene.cni("c1").del(&bare, &attached.result), &|| scene.cni("c1").del(&attached.config, &Value::Null), &|| {
                scene.cni("c1").unset("CNI_NETNS").del(&bare, &Value::Null)
            }];
        for del in dels {
            let mut again = attached.config.clone();
            again["prevResult"] = attached.result.clone();
            scene.cni("c1").add(&again);
            scene.cni("c1").add(&again);
            scene.check(&attached).silent();
            del();
            assert_eq!(words.rules(), with_other);
            del();
        }
        scene.check(&other).silent();
        [&attached, &other].iter().for_each(|a| scene.del(a));
        words.expect_nothing();
    });
}

#[test]
fn gc_knows_chains_by_their_comments() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let kept = scene.add_with("c2", &json!([tcp(9090, 80)]), &iptables());
        let with_kept = words.rules();
        let gone = scene.add_with("c1", &json!([tcp(8080, 80)]), &iptables());
        let mut config = portmap(&json!([]), &iptables());
        config["cni.dev/valid-attachments"] = json!([]);
        config["name"] = json!("other");
        scene.cni("c1").call("GC", "portmap", config.to_string()).silent();
        scene.check(&gone).silent();
        config["name"] = json!("published");
        config["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
        scene.cni("c1").call("GC", "portmap", config.to_string()).silent();
        assert_eq!(words.rules(), with_kept);
        scene.check(&kept).silent();
        [&gone, &kept].iter().for_each(|a| scene.del(a));
        words.expect_nothing();
    });
}

#[test]
fn check_and_add_mend_what_others_changed() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &iptables());
        let whole = words.rules();
        let chain = whole.lines().find_map(|l| l.strip_prefix(":")?.split(' ').next().filter(|c| c.starts_with("CNI-DN-"))).unwrap();
        let changes = [
            ("iptables", "-F CNI-HOSTPORT-DNAT".to_owned(), "chain CNI-HOSTPORT-DNAT in table nat of iptables has 0 rules"),
            ("ip6tables", "-D OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT".to_owned(), "`-A OUTPUT -m addrtype"),
            ("iptables", "-F CNI-HOSTPORT-MASQ".to_owned(), "`-A CNI-HOSTPORT-MASQ -m mark"),
            ("ip6tables", format!("-D {chain} 1"), "in table nat of ip6tables has 1 rules for this container"),
            ("iptables", format!("-I {chain} -p tcp --dport 8080 -j RETURN"), "has 4 rules for this container"),
        ];
        let mut again = attached.config.clone();
        again["prevResult"] = attached.result.clone();
        for (family, change, found) in changes {
            scene.host.sh("", &format!("{}/{family} -t nat {change}", kind.path));
            let said = scene.check(&attached).message();
            assert!(said.contains(found), "{change}: {said}");
            scene.cni("c1").add(&again);
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&words.rules()), sorted(&whole), "{change}");
            scene.check(&attached).silent();
        }
        scene.del(&attached);
        assert!(!words.rules().contains("CNI-DN-"));
    });
}

#[test]
fn what_iptables_refuses_is_undone_and_named() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let cases = [
            // IPv4 was changed by then.
            (json!({"conditionsV6": ["--frobnicate"]}), 7, "unknown option \"--frobnicate\""),
            (json!({"conditionsV4": ["--frobnicate"]}), 7, "unknown option \"--frobnicate\""),
            (json!({"conditionsV4": ["-s", "192.0.2.9\n-A OUTPUT -j ACCEPT"]}), 7, "is not an address or a network of IPv4"),
            (json!({"conditionsV4": ["-m", "comment", "--comment", "x\n-A OUTPUT -j ACCEPT"]}), 7, "must not have control characters"),
            (json!({"externalSetMarkChain": "NOT-THERE"}), 7, "NOT-THERE"),
            // The program would run what it is told to, end as if all were done, or pass the rule over.
            (json!({"conditionsV4": ["--modprobe=/bin/true", "-m", "time"]}), 7, "\"--modprobe=/bin/true\" is not an iptables match"),
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--mo", "/bin/true"]}), 7, "\"--mo\" is not an iptables match"),
            (json!({"conditionsV4": ["--h"]}), 7, "\"--h\" is not an iptables match"),
            (json!({"conditionsV4": ["-m", "tcp", "--m=/bin/true"]}), 7, "\"--m=/bin/true\" is not an iptables match"),
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--j", "ACCEPT"]}), 7, "\"--j\" is not an iptables match"),
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--g=FORWARD"]}), 7, "\"--g=FORWARD\" is not an iptables match"),
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--t", "filter"]}), 7, "\"--t\" is not an iptables match"),
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--"]}), 7, "\"--\" is not an iptables match"),
            (json!({"conditionsV4": ["-fM/bin/true"]}), 7, "\"-fM/bin/true\" is not an iptables match"),
            // Without the match of that name before it, this is the program's own.
            (json!({"conditionsV4": ["-s", OUTSIDE4, "--pol", "ACCEPT"]}), 7, "\"--pol\" is not an iptables match"),
            (json!({"conditionsV4": ["--pol", "none", "-m", "policy"]}), 7, "\"--pol\" is not an iptables match"),
            (json!({"conditionsV4": ["-m", "policy", "--poli", "none"]}), 7, "\"--poli\" is not an iptables match"),
            (json!({"conditionsV4": ["-h"]}), 7, "conditionsV4: \"-h\" is not an iptables match"),
            (json!({"conditionsV6": ["-4"]}), 7, "conditionsV6: \"-4\" is not an iptables match"),
            (json!({"conditionsV6": ["-m", "tcp", "--version"]}), 7, "\"--version\" is not an iptables match"),
            // It would wait for the name's servers, with the lock that every program of the node needs for its own rules.
            (json!({"conditionsV6": ["-d", "nowhere.invalid"]}), 7, "conditionsV6: \"nowhere.invalid\" of \"-d\" is not an address"),
            (json!({"conditionsV4": ["-snowhere.invalid"]}), 7, "\"nowhere.invalid\" of \"-snowhere.invalid\" is not an address"),
            (json!({"conditionsV4": ["-s", "192.0.2.9,nowhere.invalid"]}), 7, "\"192.0.2.9,nowhere.invalid\" of \"-s\""),
            (json!({"conditionsV4": ["!", "--sou", "nowhere.invalid"]}), 7, "of \"--sou\" is not an address or a network of IPv4"),
            (json!({"conditionsV4": ["--dst=nowhere.invalid/24"]}), 7, "\"nowhere.invalid/24\" of \"--dst=nowhere.invalid/24\""),
            (json!({"conditionsV4": ["-m", "conntrack", "--ctorigsrc", "nowhere.invalid"]}), 7, "of \"--ctorigsrc\" is not an address"),
            (json!({"conditionsV4": ["-s"]}), 7, "\"\" of \"-s\" is not an address"),
            (json!({"conditionsV4": ["-s", "fd00::1"]}), 7, "\"fd00::1\" of \"-s\" is not an address or a network of IPv4"),
            (json!({"conditionsV4": ["-s", "10.300/8"]}), 7, "\"10.300/8\" of \"-s\" is not an address or a network of IPv4"),
            (json!({"conditionsV4": ["-s", "10."]}), 7, "\"10.\" of \"-s\" is not an address or a network of IPv4"),
            (json!({"conditionsV4": ["-s", "010/8"]}), 7, "\"010/8\" of \"-s\" is not an address or a network of IPv4"),
            // They hold, or nothing is published.
            (json!({"backend": "iptables", "conditionsV4": ["", "-s", OUTSIDE4]}), 7, "iptables"),
            (json!({"backend": "iptables", "conditionsV4": ["", "ip saddr 192.0.2.9"]}), 7, "nftables-specific options [conditionsV4]"),
        ];
        for (keys, code, text) in cases {
            let (outcome, attached) = words.scene.try_add("c1", &json!([tcp(8080, 80)]), &keys);
            assert!(outcome.message().contains(text), "{keys}: {outcome:?}");
            assert_eq!(outcome.error()["code"], code, "{keys}: {outcome:?}");
            assert_eq!(words.rules(), words.before, "{keys}");
            words.scene.del(&attached);
        }
        words.expect_nothing();
    });
}

/// A network without its last zeroes was taken for the name of a machine, as which iptables does not take it.
#[test]
fn networks_whose_last_numbers_are_missing() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &json!({"conditionsV4": ["!", "-s", "10/8", "-d", "192/8"]}));
        scene.answer("c1", 80);
        assert_eq!(scene.tcp("outside", HOST4, 8080), format!("c1 {OUTSIDE4}"));
        scene.check(&attached).silent();
        let rules = words.rules();
        assert!(rules.contains("! -s 10.0.0.0/8 -d 192.0.0.0/8 "), "{rules}");
        scene.del(&attached);
        words.expect_nothing();
    });
}

/// A condition of several addresses is several rules for iptables, and may have a comment of its own.
#[test]
fn conditions_that_become_several_rules() {
    both_kinds(|kind| {
        let words = Words::new(kind);
        let scene = &words.scene;
        let both = format!("{OUTSIDE4},198.51.100.2");
        let comment = "dnat name: \"another\" id: \"c1\"";
        let keys = json!({"conditionsV4": ["--source", both, "-m", "comment", "--comment", comment], "conditionsV6": ["-s", "fd00::/8"]});
        let attached = scene.add_with("c1", &json!([tcp(8080, 80)]), &keys);
        scene.answer("c1", 80);
        assert_eq!(scene.tcp("outside", HOST4, 8080), format!("c1 {OUTSIDE4}"));
        assert_eq!(scene.tcp("elsewhere", HOST4, 8080), "c1 198.51.100.2");
        assert!(!scene.reaches("", HOST4, 8080));
        scene.check(&attached).silent();
        let gc = |network: &str| {
            let config = json!({"cniVersion": "1.1.0", "name": network, "type": "portmap", "cni.dev/valid-attachments": []});
            scene.host.cni(plugin_dir()).set("PATH", scene.path.as_deref().unwrap()).call("GC", "portmap", config.to_string()).silent();
        };
        gc("another");
        scene.check(&attached).silent();
        gc("published");
        assert_eq!(words.rules(), words.before, "{}: what GC leaves", kind.name);
        scene.del(&attached);
        words.expect_nothing();
    });
}
