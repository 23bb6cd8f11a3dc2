use super::*;
use crate::Admission;
use cni::{Code, NetworkList};
use proptest::prelude::*;

fn policy(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(&json::parse(text.as_bytes()).unwrap(), "policy")
}

fn list(plugins: &str) -> NetworkList {
    NetworkList::parse(format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#).as_bytes(), None).unwrap()
}

/// What is refused of a definition `a/n` to a pod of namespace `a`.
fn refused(allow: &str, plugins: &str) -> Vec<String> {
    let policy = policy(&format!(r#"[{{"name":"r","allow":{allow}}}]"#)).unwrap();
    let definition = DefinitionRef::new("a", "n").unwrap();
    let list = list(plugins);
    let case = Case {
        pod_namespace: "a",
        definition: &definition,
        is_selected: true,
        uses: &Uses::of(&list, plugins::BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    policy.check(&case).err().into_iter().flatten().map(|e| e.to_string()).collect()
}

#[test]
fn s54_a_refusal_names_the_rule_the_definition_what_it_asked_for_and_what_is_allowed() {
    let got = refused(r#"{"plugins":["bridge","host-local"]}"#, r#"{"type":"macvlan","ipam":{"type":"dhcp"}}"#);
    let says = |kind: &str, place: &str| {
        format!(r#"policy rule "r": definition a/n uses the plugin "{kind}" (plugins[0]{place}.type); allowed: bridge, host-local"#)
    };
    assert_eq!(got, [says("macvlan", ""), says("dhcp", ".ipam")]);
    let error = CniError::from(Forbidden::ByRule { rule: "r".into(), what: "x".into(), allowed: "nothing".into(), is_opaque: false });
    assert_eq!((error.code, error.msg.as_str()), (Code::INVALID_CONFIG, r#"policy rule "r": x; allowed: nothing"#));
}

#[test]
fn devices_of_every_known_plugin_are_found() {
    for (plugins, found) in [
        (r#"{"type":"macvlan","master":"eth0"}"#, "eth0"),
        (r#"{"type":"ipvlan"}"#, "<interface of the default route>"),
        (r#"{"type":"vlan","MASTER":"eth0"}"#, "eth0"),
        (r#"{"type":"bridge"}"#, "cni0"),
        (r#"{"type":"bridge","bridge":"br0"}"#, "br0"),
        (r#"{"type":"host-device","kernelpath":"/sys/devices/x"}"#, "/sys/devices/x"),
        (r#"{"type":"host-device","hwaddr":"02:00:00:00:00:01"}"#, "02:00:00:00:00:01"),
        (r#"{"type":"host-device","pciBusID":"0000:18:02.5"}"#, "0000:18:02.5"),
        (r#"{"type":"sriov-vf","pciBusID":"0000:18:02.5"}"#, "0000:18:02.5"),
        (r#"{"type":"dpdk-device","hwaddr":"02:00:00:00:00:01"}"#, "02:00:00:00:00:01"),
        (r#"{"type":"tuning"},{"type":"vlan","master":"eth0","linkInContainer":false}"#, "eth0"),
        // A plugin that hides its link in the container from us, and not from itself.
        (r#"{"type":"vlan","master":"eth0","linkInContainer":true,"linkincontainer":false}"#, "eth0"),
        // Another spelling that Go takes for the key, and equal keys, of which the reader takes one.
        (r#"{"type":"macvlan","master":"ok","maſter":"eth0"}"#, "eth0"),
        (r#"{"type":"macvlan","master":"eth0","master":"ok"}"#, "eth0"),
        (r#"{"type":"macvlan","master":"ok","master":""}"#, "<interface of the default route>"),
        // What a plugin delegates to.
        (r#"{"type":"flannel","delegate":{"type":"macvlan","master":"ok"},"delegate":{"master":"eth0"}}"#, "eth0"),
        (r#"{"type":"flannel","delegate":{"bridge":"br7"}}"#, "br7"),
        (r#"{"type":"flannel"}"#, "cni0"),
        (r#"{"type":"flannel","delegate":{"type":"host-device","runtimeConfig":{"deviceID":"0000:01:00.0"}}}"#, "0000:01:00.0"),
    ] {
        let got = refused(r#"{"devices":["ok"]}"#, plugins);
        assert!(got.len() == 1 && got[0].contains(&format!("the host device {found:?}")), "{plugins}: {got:?}");
        assert_eq!(refused(r#"{"devices":["*"]}"#, plugins), [""; 0], "{plugins}");
    }
    for fine in [
        r#"{"type":"macvlan","master":"ok"},{"type":"tuning","mac":"02:00:00:00:00:01"},{"type":"sbr"}"#,
        r#"{"type":"macvlan","master":"eth0","linkInContainer":true}"#,
        r#"{"type":"ptp","ipam":{"type":"host-local"}}"#,
    ] {
        assert_eq!(refused(r#"{"devices":["ok"]}"#, fine), [""; 0], "{fine}");
    }
}

#[test]
fn sysctls_are_found_in_every_place_and_spelling() {
    let allow = r#"{"sysctls":["net.ipv4.conf.IFNAME.*"]}"#;
    let tuning = |key: &str| format!(r#"{{"type":"tuning","sysctl":{{"{key}":"1"}}}}"#);
    assert_eq!(refused(allow, &tuning("net.ipv4.conf.IFNAME.arp_filter")), [""; 0]);
    assert_eq!(refused(allow, &tuning("net/ipv4/conf/IFNAME/arp_filter")), [""; 0]);
    for key in ["net.core.somaxconn", "net/core/somaxconn", "net.ipv4.conf.IFNAME.../../core/somaxconn", "net/ipv4/conf/IFNAME/../x"] {
        assert_eq!(refused(allow, &tuning(key)).len(), 1, "{key}");
    }
    let by_args = r#"{"type":"tuning","args":{"cni":{"sysctl":{"net.core.somaxconn":"1"}}}}"#;
    let got = refused(allow, by_args);
    assert!(got[0].contains(r#"the sysctl "net.core.somaxconn" (plugins[0].args.cni.sysctl)"#), "{got:?}");
    // Only tuning reads it.
    assert_eq!(refused(allow, r#"{"type":"ptp","sysctl":{"net.core.somaxconn":"1"}}"#), [""; 0]);
}

#[test]
fn a_plugin_that_nobody_knows_must_be_listed_by_its_very_name() {
    let plugins = r#"{"type":"theirs","ipam":{"type":"host-local"}}"#;
    for allow in [r#"{"devices":["*"]}"#, r#"{"sysctls":[]}"#, r#"{"plugins":["*"],"devices":["eth1"]}"#] {
        let got = refused(allow, plugins);
        assert!(got.len() == 1 && got[0].contains("list it by name"), "{allow}: {got:?}");
    }
    assert_eq!(refused(r#"{"plugins":["theirs","host-local"],"devices":["eth1"]}"#, plugins), [""; 0]);
    assert_eq!(refused(r#"{"plugins":["*"]}"#, plugins), [""; 0]);
}

#[test]
fn every_rule_that_concerns_both_namespaces_must_allow_it() {
    let rules = r#"[
        {"name":"all","allow":{"plugins":["bridge","macvlan"]}},
        {"name":"teams","podNamespaces":["team-*"],"allow":{"plugins":["bridge"],"namespaces":["$pod","shared"]}},
        {"name":"shared","definitionNamespaces":["shared"],"allow":{"plugins":["macvlan"]}}]"#;
    let policy = policy(rules).unwrap();
    let check = |pod_namespace: &str, definition: &str, kind: &str, is_selected: bool| -> Vec<String> {
        let definition = DefinitionRef::parse(definition, "none").unwrap();
        let list = list(&format!(r#"{{"type":"{kind}"}}"#));
        let case = Case {
            pod_namespace,
            definition: &definition,
            is_selected,
            uses: &Uses::of(&list, plugins::BUILTINS),
            device: None,
            granted: None,
            is_on_disk: false,
        };
        policy
            .check(&case)
            .err()
            .into_iter()
            .flatten()
            .map(|e| match e {
                Forbidden::ByRule { rule, .. } => rule,
                other => other.to_string(),
            })
            .collect()
    };
    assert_eq!(check("a", "a/n", "macvlan", true), [""; 0]);
    assert_eq!(check("a", "a/n", "dummy", true), ["all"]);
    assert_eq!(check("team-1", "team-1/n", "bridge", true), [""; 0]);
    assert_eq!(check("team-1", "team-1/n", "macvlan", true), ["teams"]);
    assert_eq!(check("team-1", "team-2/n", "bridge", true), ["teams"]);
    assert_eq!(check("team-1", "team-2/n", "bridge", false), [""; 0]);
    assert_eq!(check("team-1", "shared/n", "bridge", true), ["shared"]);
    assert_eq!(check("a", "shared/n", "dummy", true), ["all", "shared"]);
}

#[test]
fn a_rule_that_could_be_misread_is_refused() {
    for (rules, says) in [
        ("{}", "policy: expected a list of rules, found an object"),
        (r#"[7]"#, "policy[0]: expected an object, found a number"),
        (r#"[{"allow":{"plugins":[]}}]"#, r#"policy[0]: missing "name""#),
        (r#"[{"name":"r"}]"#, r#"policy[0]: missing "allow""#),
        (r#"[{"name":"r","allow":{}}]"#, r#"policy[0]: missing "allow""#),
        (r#"[{"name":"r","allow":{"plugin":["x"]}}]"#, r#"policy[0].allow: unknown key "plugin": did you mean "plugins"?"#),
        (r#"[{"name":"r","Allow":{"plugins":["x"]}}]"#, r#"unknown key "Allow": did you mean "allow"?"#),
        (r#"[{"name":"r","podNamespace":["x"],"allow":{"plugins":[]}}]"#, r#"did you mean "podNamespaces"?"#),
        (r#"[{"name":"r","podNamespaces":[],"allow":{"plugins":[]}}]"#, "policy[0].podNamespaces: the list of namespaces is empty"),
        (r#"[{"name":"r","allow":{"plugins":null}}]"#, "policy[0].allow.plugins: expected a list of strings, found null"),
        (r#"[{"name":"r","allow":{"plugins":["a",7]}}]"#, "policy[0].allow.plugins[1]: expected a non-empty string"),
        (r#"[{"name":"r","name":"s","allow":{"plugins":[]}}]"#, r#"policy[0]: "name" is given twice"#),
        (r#"[{"name":"r","allow":{"plugins":[]}},{"name":"r","allow":{"plugins":[]}}]"#, "policy[1]: another rule has the name"),
    ] {
        let got = policy(rules).unwrap_err().to_string();
        assert!(got.contains(says), "{rules}: {got}");
    }
}

/// A definition with a type at every level, two at each, took twice the time for each level.
#[test]
fn deep_and_wide_definitions_are_read_in_short_time() {
    let nested = (0..100).fold(String::from("{}"), |inner, _| format!(r#"{{"type":"bridge","type":"macvlan","delegate":{inner}}}"#));
    assert_eq!(refused(r#"{"plugins":["x"]}"#, &nested).len(), Policy::MAX_FORBIDDEN);
    let wide = format!(r#"{{"type":"x","delegate":{{{}"type":"y"}}}}"#, r#""type":"bridge","bridge":"b","#.repeat(4000));
    assert_eq!(refused(r#"{"devices":["b"],"plugins":["x","y","bridge"]}"#, &wide), [""; 0]);
}

/// Each level had a copy of all that is below it: 115 times 60,000 values, 220 MB.
#[test]
fn what_is_below_a_level_is_not_copied() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let nested = (0..115).fold(format!("[{}0]", "0,".repeat(59_999)), |inner, _| format!(r#"{{"ipam":{inner}}}"#));
    let before = peak();
    assert_eq!(refused(r#"{"plugins":["bridge"]}"#, &format!(r#"{{"type":"bridge","ipam":{nested}}}"#)), [""; 0]);
    assert!(peak() - before < 64 << 10, "{} KiB", peak() - before);
}

/// The example of the manual.
#[test]
fn the_manuals_example_is_a_policy() {
    let text = include_str!("../../../../docs/operate/policy.md");
    let example = text.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = json::parse(example.as_bytes()).unwrap();
    let policy = Policy::parse(file.as_object().unwrap().get("policy").unwrap(), "policy").unwrap();
    let names: Vec<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["known-plugins", "teams"]);
    for word in RULE_WORDS {
        assert!(text.contains(&format!("`{word}`")), "{word}");
    }
}

const RULE_WORDS: &[&str] =
    &["name", "podNamespaces", "definitionNamespaces", "plugins", "devices", "sysctls", "namespaces", "paths", "$pod", "policy"];

fn kind() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["bridge", "macvlan", "flannel", "host-local", "theirs", "tuning"]).prop_map(str::to_owned)
}

fn plugin() -> impl Strategy<Value = String> {
    let spelling = || prop::sample::select(vec!["type", "TYPE", "Type"]);
    let under = prop::sample::select(vec!["ipam", "delegate", "delegates", "IPAM", "plugins"]);
    let leaf = (kind(), spelling()).prop_map(|(kind, key)| format!(r#"{{"{key}":"{kind}"}}"#));
    leaf.prop_recursive(4, 16, 3, move |inner| {
        (kind(), spelling(), under.clone(), prop::collection::vec(inner, 1..3), any::<bool>()).prop_map(
            |(kind, key, under, inner, as_list)| {
                let nested = match as_list {
                    true => format!(r#""{under}":[{}]"#, inner.join(",")),
                    false => inner.iter().map(|one| format!(r#""{under}":{one}"#)).collect::<Vec<_>>().join(","),
                };
                format!(r#"{{"{key}":"{kind}",{nested}}}"#)
            },
        )
    })
}

proptest! {
    #[test]
    fn no_type_that_is_not_listed_gets_through(plugins in prop::collection::vec(plugin(), 1..4), allowed in prop::collection::vec(kind(), 0..5)) {
        let text = plugins.join(",");
        let quoted: Vec<String> = allowed.iter().map(|kind| format!("{kind:?}")).collect();
        let refused = refused(&format!(r#"{{"plugins":[{}]}}"#, quoted.join(",")), &text);
        let everything = ["bridge", "macvlan", "flannel", "host-local", "theirs", "tuning"];
        let bad = everything.iter().filter(|kind| text.contains(&format!("{kind:?}")) && !allowed.iter().any(|a| a == *kind));
        for kind in bad {
            prop_assert!(!refused.is_empty(), "{kind} in {text} with {allowed:?}");
        }
    }
}

fn without_a_rule(plugins: &str) -> Vec<String> {
    let (definition, list) = (DefinitionRef::new("a", "n").unwrap(), list(plugins));
    let case = Case {
        pod_namespace: "b",
        definition: &definition,
        is_selected: true,
        uses: &Uses::of(&list, plugins::BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    assert_eq!(Policy::OPEN.check(&Case { is_on_disk: true, ..case }), Ok(()), "a file on the node names what it likes: {plugins}");
    Policy::OPEN.check(&case).err().into_iter().flatten().map(|e| e.to_string()).collect()
}

/// A static pod of a definition's author stood in the kubelet's directory: flannel keeps what it delegates where `dataDir` says.
#[test]
fn a_definition_names_no_path_of_the_host_and_never_this_program() {
    let got = without_a_rule(r#"{"type":"flannel","dataDir":"/etc/kubernetes/manifests","delegate":{}}"#);
    let rule = r#"{"name":"paths","definitionNamespaces":["a"],"allow":{"paths":["/etc/kubernetes/manifests"]}}"#;
    let says = r#"definition a/n names the host's path "/etc/kubernetes/manifests" (plugins[0].dataDir): only files on the node may"#;
    assert!(got.len() == 1 && got[0].starts_with(says) && got[0].ends_with(rule), "{got:?}");
    assert_eq!(policy(&format!("[{rule}]")).unwrap().rules.len(), 1, "what it says is a rule");
    for refused in [
        r#"{"type":"netloom","cniDir":"/run/x","delegates":[{"type":"bridge"}]}"#,
        r#"{"type":"multus"}"#,
        r#"{"type":"bridge"},{"type":"multus-shim"}"#,
        r#"{"type":"meta","delegates":[{"type":"netloom-cni"}]}"#,
        r#"{"type":"bridge","ipam":{"type":"netloom"}}"#,
        r#"{"type":"bridge","TYPE":"netloom"}"#,
        r#"{"type":"tuning","DATADIR":"/etc"}"#,
        r#"{"type":"tuning","dataDir":"/run/cni/tuning","dataDir":"/etc"}"#,
        r#"{"type":"tuning","dataDir":7}"#,
        r#"{"type":"flannel","subnetFile":"/etc/shadow"}"#,
        r#"{"type":"flannel","delegate":{"type":"tuning","dataDir":"/run/cni/tuning/../../etc"}}"#,
        r#"{"type":"bridge","ipam":{"type":"host-local","dataDir":"/var/lib"}}"#,
        r#"{"type":"bridge","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks/others"}}"#,
        r#"{"type":"flannel","ipam":{"dataDir":"/var/lib/cni/networks/others"}}"#,
        r#"{"type":"bridge","ipam":{"type":"host-local","resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"host-local","ipam":{"resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"flannel","ipam":{"resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"flannel","ipam":{"type":"","dataDir":"/etc"}}"#,
        r#"{"type":"flannel","ipam":{"type":"dhcp","type":null,"resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"flannel","ipam":{"Type":"dhcp","resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"flannel","ipam":{"type":"dhcp"},"IPAM":{"type":7,"resolvConf":"/proc/kmsg"}}"#,
        r#"{"type":"meta","delegates":[{"type":"flannel","ipam":{"resolvConf":"/proc/kmsg"}}]}"#,
        r#"{"type":"bridge","ipam":{"type":"pool","pools":"/etc"}}"#,
        r#"{"type":"bridge","ipam":{"type":"pool","dataDir":"/var/lib/netloom"}}"#,
        r#"{"type":"bridge","ipam":{"type":"dhcp","daemonSocketPath":"/run/mine.sock"}}"#,
        r#"{"type":"bridge","ipam":{"type":"whereabouts","configuration_path":"/etc/shadow"}}"#,
        r#"{"type":"theirs","dataDir":"/etc"}"#,
    ] {
        assert!(!without_a_rule(refused).is_empty(), "{refused}");
    }
    for fine in [
        r#"{"type":"flannel"},{"type":"tuning","dataDir":"/run/cni/tuning"}"#,
        r#"{"type":"flannel","ipam":{"type":"pool","dataDir":"/var/lib/netloom/ipam"}}"#,
        r#"{"type":"flannel","ipam":{"dataDir":"/var/lib/cni/networks"}}"#,
        r#"{"type":"bridge","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks","resolvConf":"/etc/resolv.conf"}}"#,
        r#"{"type":"flannel","dataDir":"/var/lib/cni/flannel/mine"},{"type":"tuning","dataDir":"/run/cni/tuning/mine"}"#,
        r#"{"type":"bridge","ipam":{"type":"whereabouts","log_file":"/tmp/x","kubernetes":{"kubeconfig":"/etc/cni/x"}}}"#,
        r#"{"type":"host-device","kernelpath":"/sys/devices/x"},{"type":"theirs","dataDir":"etc"}"#,
        r#"{"type":"bridge","dataDir":"/etc"}"#,
    ] {
        assert_eq!(without_a_rule(fine), [""; 0], "{fine}");
    }
}

/// A directory of that name among another network's leases stopped all its ADDs.
#[test]
fn no_network_is_called_as_a_file_of_leases() {
    let refused = |name: &str, ipam: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"bridge","ipam":{ipam}}}"#);
        let (definition, list) = (DefinitionRef::new("a", "n").unwrap(), NetworkList::parse(text.as_bytes(), None).unwrap());
        let uses = Uses::of(&list, plugins::BUILTINS);
        let (pod_namespace, definition, uses) = ("a", &definition, &uses);
        let case = Case { pod_namespace, definition, is_selected: true, uses, device: None, granted: None, is_on_disk: false };
        assert_eq!(Policy::OPEN.check(&Case { is_on_disk: true, ..case }), Ok(()));
        Policy::OPEN.check(&case).err().into_iter().flatten().map(|e| e.to_string()).collect::<Vec<_>>()
    };
    for name in ["lock", "last_reserved_ip.0", "10.60.0.2"] {
        let got = refused(name, r#"{"type":"host-local"}"#);
        let says = format!(r#"definition a/n names the host's path "/var/lib/cni/networks/{name}" (name): only files on the node"#);
        assert!(got.len() == 1 && got[0].starts_with(&says), "{got:?}");
        assert_eq!(refused(name, r#"{"type":"pool"}"#), [""; 0], "{name}");
    }
    for name in ["locks", "last_reserved_ip", "10.60.0", "team"] {
        assert_eq!(refused(name, r#"{"type":"host-local"}"#), [""; 0], "{name}");
    }
}

/// iptables opens it as root.
#[test]
fn a_path_in_a_match_of_iptables_needs_a_rule() {
    let bpf = r#"{"type":"portmap","conditionsV4":["-m","bpf","--object-pinned","/sys/fs/bpf/theirs"]}"#;
    let got = without_a_rule(bpf);
    let rule = r#"{"name":"paths","definitionNamespaces":["a"],"allow":{"paths":["/sys/fs/bpf/theirs"]}}"#;
    assert!(got.len() == 1 && got[0].contains("(plugins[0].conditionsV4)") && got[0].contains(rule), "{got:?}");
    let group = r#"{"type":"theirs","delegates":[{"type":"portmap","conditionsV6":["-m","cgroup","--path","a.slice"]}]}"#;
    assert!(without_a_rule(group).iter().any(|what| what.contains(r#""/sys/fs/cgroup/a.slice" (plugins[0].delegates[0].conditionsV6)"#)));
}

/// It runs on the host as root, with whatever keys it has.
#[test]
fn a_path_of_a_plugin_that_is_not_built_in_needs_a_rule() {
    let named = |plugins: &str| -> Vec<String> {
        let uses = Uses::of(&list(plugins), plugins::BUILTINS);
        uses.paths.iter().map(ToString::to_string).collect()
    };
    for (plugins, path) in [
        (r#"{"type":"aws-cni","pluginLogFile":"/etc/profile.d/x.sh"}"#, r#""/etc/profile.d/x.sh" (plugins[0].pluginLogFile)"#),
        (r#"{"type":"bridge","ipam":{"type":"theirs","log":{"to":["a","/x"]}}}"#, r#""/x" (plugins[0].ipam.log.to[1])"#),
        (r#"{"type":"sriov","logFile":"../../etc/x"}"#, r#""../../etc/x" (plugins[0].logFile)"#),
        (r#"{"type":"ovs","socket_file":"unix:///run/x.sock"}"#, r#""/run/x.sock" (plugins[0].socket_file)"#),
        (r#"{"type":"theirs","runtimeConfig":{"at":"FILE:///etc/x"}}"#, r#""/etc/x" (plugins[0].runtimeConfig.at)"#),
        (r#"{"type":"theirs","args":["--log=/etc/x"]}"#, r#""/etc/x" (plugins[0].args[0])"#),
        (r#"{"type":"theirs","files":{"/etc/x":1}}"#, r#""/etc/x" (plugins[0].files./etc/x)"#),
        (r#"{"type":"theirs","delegate":"/etc/x"}"#, r#""/etc/x" (plugins[0].delegate)"#),
        // Each of the two gets what is written for the other.
        (r#"{"type":"macvlan","log_file_path":"/etc/x","ipam":{"type":"calico-ipam"}}"#, r#""/etc/x" (plugins[0].log_file_path)"#),
        (r#"{"type":"sriov","ipam":{"type":"whereabouts","log_file":"/etc/x"}}"#, r#""/etc/x" (plugins[0].ipam.log_file)"#),
        // Not the first word, and behind any of them.
        (r#"{"type":"theirs","mount":"ro:bind:/etc/x"}"#, r#""/etc/x" (plugins[0].mount)"#),
        (r#"{"type":"theirs","run":"tool --log /etc/x --level=9"}"#, r#""/etc/x" (plugins[0].run)"#),
        (r#"{"type":"theirs","to":"a,b@/etc/x=1"}"#, r#""/etc/x" (plugins[0].to)"#),
        (r#"{"type":"theirs","to":"at:../etc/x"}"#, r#""../etc/x" (plugins[0].to)"#),
        (r#"{"type":"theirs","net":"fd01::/64,/etc/x"}"#, r#""/etc/x" (plugins[0].net)"#),
    ] {
        assert_eq!(named(plugins), [path], "{plugins}");
    }
    for fine in [
        r#"{"type":"ovn","net":"10.1.0.0/16/24","six":"fd01::/48/64","definition":"a/n","at":"tcp:1.2.3.4","to":"https://[fd00::1]:80/x"}"#,
        r#"{"type":"ovn","both":"10.1.0.0/16,fd01::/64","all":"::/0","by":"HTTPS://a@b:1/x?y=/z,/w"}"#,
        r#"{"type":"ovn","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks"}}"#,
        r#"{"type":"kube-ovn","server_socket":"/run/openvswitch/kube-ovn-daemon.sock","provider":"a.n.ovn"}"#,
        r#"{"type":"sriov","ipam":{"type":"whereabouts","log_file":"/tmp/whereabouts.log","kubernetes":{"kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}}}"#,
        r#"{"type":"bridge","ipam":{"type":"whereabouts","log_file":"/etc/x"}}"#,
    ] {
        assert_eq!(named(fine), [""; 0], "{fine}");
    }
}

/// The program whereabouts writes its log to the file that `log_file` names. The built-in plugin of that name writes none.
#[test]
fn each_text_may_be_a_path_where_executables_come_first() {
    let admission = Admission { executables_first: true, ..Admission::default() };
    let paths = |plugin: &str| -> Vec<String> {
        admission.uses(&list(plugin), plugins::BUILTINS).paths.iter().map(|one| format!("{} {}", one.what, one.place)).collect()
    };
    let log = r#"{"type":"bridge","ipam":{"type":"whereabouts","log_file":"/etc/x"}}"#;
    assert_eq!(paths(log), ["/etc/x plugins[0].ipam.log_file"]);
    assert!(Uses::of(&list(log), plugins::BUILTINS).paths.is_empty());
    // Once, also where the built-in plugin's key is a path.
    assert_eq!(paths(r#"{"type":"bridge","ipam":{"type":"host-local","dataDir":"/run/x"}}"#).len(), 1);
    let usual = r#"{"type":"bridge","ipam":{"type":"whereabouts","log_file":"/tmp/whereabouts.log"}}"#;
    assert_eq!(paths(usual), [""; 0]);
}

/// A rule for the first would have allowed the second.
#[test]
fn every_path_of_a_text_is_found() {
    let uses = Uses::of(&list(r#"{"type":"theirs","mount":"/srv/x:/etc/y","more":"a=/srv/x b=/etc/z"}"#), plugins::BUILTINS);
    let found: Vec<&str> = uses.paths.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(found, ["/srv/x", "/etc/z", "/srv/x:/etc/y", "/etc/y"]);
}

/// Calico wrote its log over its own kubeconfig.
#[test]
fn a_usual_path_is_usual_under_its_own_keys_alone() {
    let found = |plugin: &str| Uses::of(&list(plugin), plugins::BUILTINS).paths.len();
    let (config, log, socket) = ("/etc/cni/net.d/calico-kubeconfig", "/var/log/calico/cni/cni.log", "/run/openvswitch/db.sock");
    for (key, path, is_usual) in [
        ("kubeconfig", config, true),
        ("KubeConfig", config, true),
        ("log_file_path", config, false),
        ("socket", config, false),
        ("x", config, false),
        ("log_file_path", log, true),
        ("log-file", log, true),
        ("logFile", log, true),
        ("log_file", log, true),
        ("kubeconfig", log, false),
        ("server_socket", socket, true),
        ("log_file", socket, false),
    ] {
        let nested = format!(r#"{{"type":"calico","kubernetes":{{"{key}":"{path}"}},"log_level":"debug"}}"#);
        let plain = format!(r#"{{"type":"calico","{key}":"{path}"}}"#);
        assert_eq!((found(&plain), found(&nested)), (usize::from(!is_usual), usize::from(!is_usual)), "{key}: {path}");
    }
}

/// The whole place of each value of a list below a long key was 230 MB.
#[test]
fn a_long_key_is_kept_once() {
    let key = "k".repeat(120 << 10);
    let paths = vec![r#""/x""#; 1900].join(",");
    let uses = Uses::of(&list(&format!(r#"{{"type":"theirs","{key}":[{paths}],"/{key}":[{paths}]}}"#)), plugins::BUILTINS);
    assert_eq!(uses.paths.len(), 2 * 1900 + 1);
    assert!(uses.paths.iter().all(|one| one.place.len() <= Use::MAX_PLACE), "{}", uses.paths[0].place.len());
    let bytes: usize = uses.paths.iter().map(|one| one.what.len() + one.place.len()).sum();
    assert!(bytes < 1 << 20, "{bytes}");
    let long = Use { what: key.clone(), place: key }.to_string();
    assert_eq!(long.len(), 80 + 2 + Use::MAX_PLACE + 3, "{long}");
}

#[test]
fn a_rule_allows_paths_and_what_is_below_them_once_links_are_followed() {
    let dir = std::env::temp_dir().join(format!("netloom-policy-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("ours")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join("ours/out")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", dir.join("ours/dangling")).unwrap();
    let allow = format!(r#"{{"paths":["{}/ours"]}}"#, dir.display());
    let tuning = |path: &str| format!(r#"{{"type":"tuning","dataDir":"{}/{path}"}}"#, dir.display());
    for fine in ["ours", "ours/", "ours/a/b"] {
        assert_eq!(refused(&allow, &tuning(fine)), [""; 0], "{fine}");
    }
    for path in ["", "our", "ourselves", "ours/../x", "ours/out", "ours/out/x", "ours/dangling", "ours/dangling/x"] {
        let got = refused(&allow, &tuning(path));
        assert!(got.len() == 1 && got[0].starts_with("policy rule \"r\": definition a/n names the host's path"), "{path}: {got:?}");
    }
    // It is a path alone that it is about.
    assert_eq!(refused(&allow, r#"{"type":"macvlan","master":"eth0"}"#), [""; 0]);
    std::fs::remove_dir_all(dir).unwrap();
    for bad in ["srv", "/srv/*", "/srv/../etc", ""] {
        assert!(policy(&format!(r#"[{{"name":"r","allow":{{"paths":["{bad}"]}}}}]"#)).is_err(), "{bad}");
    }
}

/// Whoever adds a key says whether it is a path, or a chain or a mark of the firewall: one that looks like one, and is not said to be
/// one, is found here.
#[test]
fn every_key_of_every_plugin_says_what_of_the_host_it_names() {
    let looks = |key: &plugin::Key| {
        let name = key.name.to_ascii_lowercase();
        key.kind == "path"
            || key.default.starts_with('/')
            || ["path", "dir", "file", "socket", "conf"].iter().any(|word| name.ends_with(word))
    };
    let of_firewall = |key: &plugin::Key| ["chain", "mark"].iter().any(|word| key.name.to_ascii_lowercase().contains(word));
    // The device of the kernel's tree, which `devices` is about.
    let device = |key: &plugin::Key| key.name == "kernelpath";
    let (mut paths, mut firewall) = (Vec::new(), Vec::new());
    for about in plugins::BUILTINS.iter().map(|plugin| plugin.about()) {
        for key in about.keys.iter().filter(|key| !device(key)) {
            let is_path = matches!(key.names, plugin::Names::Path { .. } | plugin::Names::Directory);
            assert_eq!(looks(key), is_path, "{}: {}", about.name, key.name);
            assert_eq!(of_firewall(key), key.names == plugin::Names::Firewall, "{}: {}", about.name, key.name);
            if key.names == plugin::Names::Firewall {
                firewall.push(format!("{} {}", about.name, key.name));
                let object = |value: &str| format!(r#"{{"type":"{}","{}":{value}}}"#, about.name, key.name.to_ascii_uppercase());
                let nested = |value: &str| format!(r#"{{"type":"theirs","delegates":[{}]}}"#, object(value));
                for plugins in [object(r#""FORWARD""#), object("5"), nested(r#""none""#)] {
                    let got = taken(&plugins);
                    assert!(got.len() == 1 && got[0].contains(&format!(".{}) in the node's firewall", key.name)), "{plugins}: {got:?}");
                }
                let default = if key.kind == "int" { key.default.to_owned() } else { format!("{:?}", key.default.replace("none", "")) };
                assert_eq!(taken(&object(&default)), [""; 0], "{default}");
            }
            if is_path {
                paths.push(format!("{} {}", about.name, key.name));
                // And it is looked at, wherever the plugin may stand.
                let (object, own) = match key.name.strip_prefix("ipam.") {
                    Some(name) => (format!(r#"{{"type":"bridge","ipam":{{"type":"{}","{name}":"/etc/x"}}}}"#, about.name), name),
                    None => (format!(r#"{{"type":"{}","{}":"/etc/x"}}"#, about.name, key.name), key.name),
                };
                assert!(without_a_rule(&object)[0].contains(&format!(".{own})")), "{object}");
                // Flannel names the plugins that it delegates to where the configuration does not.
                if about.name == "host-local" {
                    let object = format!(r#"{{"type":"flannel","ipam":{{"{own}":"/etc/x"}}}}"#);
                    assert!(without_a_rule(&object)[0].contains(&format!(".ipam.{own})")), "{object}");
                }
            }
        }
    }
    paths.sort();
    assert_eq!(
        paths,
        [
            "dhcp ipam.daemonSocketPath",
            "dpdk-device pciDir",
            "flannel dataDir",
            "flannel subnetFile",
            "host-local ipam.dataDir",
            "host-local ipam.resolvConf",
            "ovs socket_file",
            "ovs-hybrid socket_file",
            "ovs-vhost-user socketDir",
            "ovs-vhost-user socket_file",
            "pool ipam.dataDir",
            "pool ipam.pools",
            "tuning dataDir",
            "whereabouts ipam.configuration_path",
        ]
    );
    firewall.sort();
    assert_eq!(firewall, ["firewall iptablesAdminChainName", "portmap externalSetMarkChain", "portmap markMasqBit"]);
}

/// A node with the uplink `eth0`, Services of 10.96.0.0/12, and the default network `cbr0` on `cni0`, from the definition `infra/cbr0`.
#[derive(Debug)]
pub(crate) struct Node;

impl NodeOwn for Node {
    fn moved(&self, _: &str) -> Option<String> {
        None
    }

    fn no_parent(&self, device: &str) -> Option<String> {
        (device == "cali1").then(|| "cali1, which leads to a pod".to_owned())
    }

    fn uplink(&self, device: &str) -> Option<String> {
        ["eth0", "02:00:00:00:00:01", "0000:00:03.0"].contains(&device).then(|| "eth0, the node's uplink".to_owned())
    }

    fn default_route(&self) -> Option<String> {
        Some("eth0, the node's uplink".to_owned())
    }

    fn default_bridge(&self, bridge: &str) -> Option<String> {
        ["cni0", "podnet"].contains(&bridge).then(|| "cni0, the bridge of the node's default network".to_owned())
    }

    fn leases(&self, dir: &Path) -> Option<String> {
        dir.starts_with("/var/lib/cni/networks/cbr0").then(|| "those of the default network".to_owned())
    }

    fn is_default_network(&self, definition: &DefinitionRef) -> bool {
        definition.to_string() == "infra/cbr0"
    }

    fn lasts(&self, link: &str) -> bool {
        link == "cni0"
    }

    fn reserved(&self, link: &str) -> Option<String> {
        (link == "flannel.1").then(|| "which flannel makes".to_owned())
    }

    fn has(&self, _: std::net::IpAddr) -> bool {
        false
    }

    fn leads_to_pod(&self, _: std::net::IpAddr) -> bool {
        false
    }

    fn of_pod(&self, _: std::net::IpAddr) -> Option<String> {
        None
    }

    fn guards(&self, _: &str) -> Vec<&'static str> {
        Vec::new()
    }

    fn address(&self, address: std::net::IpAddr) -> Option<String> {
        let own = address.to_string() == "192.0.2.10";
        own.then(|| "which is the node's own".to_owned()).or_else(|| self.of_cluster(address))
    }

    fn of_cluster(&self, address: std::net::IpAddr) -> Option<String> {
        address.to_string().starts_with("10.96.").then(|| "which is of Services".to_owned())
    }

    /// Tests of `routed.rs` are there.
    fn traffic(&self, _: AddressRun, _: Option<&str>, _: Option<&AddressSource>) -> Option<String> {
        None
    }

    fn default_network(&self, _: AddressRun, _: Option<&AddressSource>) -> Option<String> {
        None
    }

    fn received(&self, _: std::net::IpAddr, _: &crate::Parent, _: Option<&AddressSource>) -> Option<String> {
        None
    }

    /// `eth0` and `eth1` have it.
    fn mac(&self, mac: &cni::Mac, taken: &[&str]) -> Option<String> {
        (mac.to_string() == "02:00:00:00:00:01" && !taken.contains(&"eth1")).then(|| "which eth0 of the node has".to_owned())
    }

    /// At 192.0.2.7 nobody listens.
    fn port(&self, port: u16, protocol: npwg::Protocol, ip: Option<std::net::IpAddr>) -> Option<String> {
        let is_free = ip.is_some_and(|ip| ip.to_string() == "192.0.2.7");
        (port == 22 && protocol == npwg::Protocol::Tcp && !is_free).then(|| "the port of SSH".to_owned())
    }

    fn tunnel(&self, port: u16, protocol: npwg::Protocol) -> Option<&'static str> {
        (port == 4789 && protocol == npwg::Protocol::Udp).then_some("the port of a tunnel")
    }
}

fn taken(plugins: &str) -> Vec<String> {
    taken_by("a/n", &list(plugins), None)
}

/// What a network takes that a pod selects by a definition, with the device that the pod names.
fn taken_by(definition: &str, list: &NetworkList, device: Option<&str>) -> Vec<String> {
    let definition = DefinitionRef::parse(definition, "none").unwrap();
    let case = Case {
        pod_namespace: "a",
        definition: &definition,
        is_selected: true,
        uses: &Uses::of(list, plugins::BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    let on_disk = Case { is_on_disk: true, ..case };
    assert_eq!(Policy::OPEN.taken(&on_disk, &Node), [], "what stands on the node's disk is its owner's");
    Policy::OPEN.taken(&Case { device, ..case }, &Node).into_iter().map(|e| e.to_string()).collect()
}

#[test]
fn what_is_the_nodes_own_is_found_in_every_spelling() {
    for (plugins, says) in [
        (r#"{"type":"bridge","mac":"02:00:00:00:00:01"}"#, "names the hardware address \"02:00:00:00:00:01\" (plugins[0].mac), which eth0"),
        (r#"{"type":"tuning","args":{"cni":{"Mac":"02:00:00:00:00:01"}}}"#, "(plugins[0].args.cni.Mac), which eth0"),
        (r#"{"type":"macvlan","runtimeConfig":{"mac":"0200.0000.0001"}}"#, "which eth0 of the node has"),
        (
            r#"{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.proxy_arp":"1"}}"#,
            "sets the sysctl \"net.ipv4.conf.eth0.proxy_arp\" (plugins[0].sysctl), by which the pod would answer for other addresses",
        ),
        (r#"{"type":"tuning","sysctl":{"net/ipv6/conf/all/proxy_ndp":"1"}}"#, "net.ipv6.conf.all.proxy_ndp"),
        // An interface on a bridge of others answers there for whatever the pod has another way to.
        (
            r#"{"type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.proxy_arp":"1"}}"#,
            "(plugins[0].sysctl), by which the pod would answer for other addresses than its own",
        ),
        // An interface may be called `proxy_arp`.
        (r#"{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.IFNAME":"1"}}"#, "net.ipv4.conf.eth0.IFNAME"),
        // A pod may call its interfaces `conf` and `proxy_arp`.
        (r#"{"type":"tuning","sysctl":{"net.ipv4.conf.conf.IFNAME":"1"}}"#, "set it for IFNAME"),
        (r#"{"type":"tuning","sysctl":{"net/ipv4/conf/x.conf/IFNAME":"1"}}"#, "set it for IFNAME"),
        (r#"{"type":"tuning","sysctl":{"net.ipv6.conf.neigh.IFNAME":"1"}}"#, "set it for IFNAME"),
        (r#"{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.proxy_IFNAME":"1"}}"#, "set it for IFNAME"),
        (r#"{"type":"host-device","device":"eth0"}"#, "takes eth0, the node's uplink, away from the node (plugins[0].device)"),
        (r#"{"type":"dpdk-device","hwaddr":"02:00:00:00:00:01"}"#, "takes eth0"),
        (r#"{"type":"sriov-vf","pciBusID":"0000:00:03.0"}"#, "takes eth0"),
        (r#"{"type":"host-device","HWAddr":"02:00:00:00:00:01"}"#, "takes eth0"),
        (r#"{"type":"host-device","runtimeConfig":{"deviceID":"0000:00:03.0"}}"#, "takes eth0"),
        (r#"{"type":"macvlan","mode":"passthru"}"#, "takes eth0"),
        (r#"{"type":"macvlan","master":"eth0","Mode":"passthru"}"#, "takes eth0"),
        (r#"{"type":"vlan","master":"eth0"}"#, "takes eth0"),
        (r#"{"type":"vlan","master":"eth0","vlanId":5,"VlanID":0}"#, "takes eth0"),
        (r#"{"type":"bridge","forceAddress":true}"#, "replaces the address of cni0, the bridge of the node's default network"),
        (r#"{"type":"bridge","bridge":"br1","bridge":"cni0","FORCEADDRESS":true,"forceAddress":false}"#, "replaces the address of cni0"),
        (r#"{"type":"flannel","delegate":{"forceAddress":true}}"#, "replaces the address of cni0"),
        (
            r#"{"type":"bridge","isGateway":true,"ipam":{"type":"host-local","subnet":"10.200.0.0/24"}}"#,
            "gives cni0, the bridge of the node",
        ),
        (
            r#"{"type":"bridge","bridge":"podnet","IsDefaultGateway":true}"#,
            "gives cni0, the bridge of the node's default network, a gateway's",
        ),
        (r#"{"type":"flannel","ipam":{"type":"static"}}"#, "(plugins[0].delegate.bridge, isGateway)"),
        (r#"{"type":"flannel","ipam":{"type":"static"},"delegate":{"ISGATEWAY":false}}"#, "(plugins[0].delegate.bridge, isGateway)"),
        (
            r#"{"type":"macvlan","master":"cni0","mode":"passthru"}"#,
            "takes cni0, the bridge of the node's default network, away from the node",
        ),
        (r#"{"type":"sriov","deviceID":"0000:00:03.0"}"#, "takes eth0"),
        (r#"{"type":"macvlan","master":"cali1"}"#, "puts its pods' interfaces on cali1, which leads to a pod (plugins[0].master)"),
        (r#"{"type":"ipvlan","Master":"cali1","mode":"l3"}"#, "puts its pods' interfaces on cali1"),
        (r#"{"type":"vlan","master":"cali1","vlanId":5}"#, "puts its pods' interfaces on cali1"),
        (r#"{"type":"bridge","mtu":1279}"#, "changes the MTU of cni0, the bridge of the node's default network (plugins[0].bridge, mtu)"),
        (r#"{"type":"ovs","bridge":"eth0","mtu":1279}"#, "changes the MTU of eth0, the node's uplink (plugins[0].bridge, mtu)"),
        (r#"{"type":"ovs","bridge":"br1","deviceID":"0000:00:03.0"}"#, "takes eth0"),
        (r#"{"type":"ovs","bridge":"br-int","IFACE_ID":"d1e4"}"#, r#"plugs the port "d1e4" (plugins[0].IFACE_ID)"#),
        (r#"{"type":"ovs-hybrid","bridge":"br-int","iface_id":"d1e4"}"#, r#"plugs the port "d1e4" (plugins[0].iface_id)"#),
        (r#"{"type":"ovs-vhost-user","bridge":"br-int","iface_id":"d1e4"}"#, r#"plugs the port "d1e4" (plugins[0].iface_id)"#),
        (r#"{"type":"bridge","bridge":"podnet","PromiscMode":true}"#, "changes the promiscuous mode of cni0"),
        (r#"{"type":"bridge","bridge":"eth0","macspoofchk":true}"#, "changes the learning of addresses of eth0, the node's uplink"),
        (
            r#"{"type":"bridge"},{"type":"firewall","IngressPolicy":"same-bridge"}"#,
            "changes who may send by way of cni0, the bridge of the node's default network (plugins[0].bridge, ingressPolicy)",
        ),
        (r#"{"type":"bridge","bridge":"eth0"},{"type":"firewall","ingressPolicy":"isolated"}"#, "changes who may send by way of eth0"),
        (
            r#"{"type":"flannel","delegate":{"isGateway":false}},{"type":"firewall","ingressPolicy":"same-bridge"}"#,
            "changes who may send by way",
        ),
        (r#"{"type":"bridge","bridge":"eth0","forceAddress":true}"#, "replaces the address of eth0, the node's uplink"),
        (r#"{"type":"bridge","bridge":"eth0","isDefaultGateway":true}"#, "gives eth0, the node's uplink, a gateway's address"),
        (r#"{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"10.96.0.1/32"}]}}"#, r#""10.96.0.1/32""#),
        (r#"{"type":"ptp","ipam":{"type":"x","addresses":[{"ADDRESS":"192.0.2.10/24"}]}}"#, "which is the node's own"),
        (r#"{"type":"ptp","args":{"cni":{"ips":["10.96.0.2/24"]}}}"#, "(plugins[0].args.cni.ips), which is of Services"),
        (r#"{"type":"ptp","runtimeConfig":{"ips":["10.96.0.2"]}}"#, "plugins[0].runtimeConfig.ips"),
        (r#"{"type":"bridge","bridge":"b","ipam":{"ranges":[[{"gateway":"10.96.0.3"}]]}}"#, r#"names the gateway "10.96.0.3""#),
        (
            r#"{"type":"bridge","bridge":"b","ipam":{"addresses":[{"address":"10.112.0.5/11","gateway":"::ffff:10.96.0.1"}]}}"#,
            r#"names the gateway "::ffff:10.96.0.1" (plugins[0].ipam.addresses[0].gateway)"#,
        ),
        (r#"{"type":"macvlan","ipam":{"addresses":[{"address":"::ffff:10.96.0.9/128"}]}}"#, "names the address"),
        (r#"{"type":"macvlan","ipam":{"range":"10.1.0.0/24","gateway":"10.096.0.1"}}"#, r#"names the gateway "10.096.0.1""#),
        (
            r#"{"type":"flannel","delegate":{"bridge":"b","runtimeConfig":{"ipRanges":[[{"gateway":"10.96.0.3"}]]}}}"#,
            "(plugins[0].delegate.runtimeConfig.ipRanges[0][0].gateway)",
        ),
        (r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":22,"protocol":"TCP"}]}}"#, r#""22/tcp""#),
        (r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostport":1,"hostPort":22}]}}"#, r#""22/tcp""#),
        (r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":22,"hostIP":"192.0.2.9"}]}}"#, r#""22/tcp""#),
        (r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":22,"hostIP":"192.0.2.7","HostIP":""}]}}"#, r#""22/tcp""#),
        (
            r#"{"type":"portmap","conditionsV4":["-m","owner","--uid-owner","root"]}"#,
            r#"has the condition "--uid-owner root" (plugins[0].conditionsV4), whose value iptables would look up while other programs wait for it: remove it"#,
        ),
        (r#"{"type":"portmap","ConditionsV6":["-p","ospf"]}"#, r#"the condition "-p ospf" (plugins[0].ConditionsV6)"#),
        (
            r#"{"type":"portmap","conditionsV4":["--dport=http"],"conditionsv4":[]}"#,
            r#"the condition "--dport http" (plugins[0].conditionsV4)"#,
        ),
        (
            r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":443,"hostIP":"10.96.0.1"}]}}"#,
            r#"publishes ports at "10.96.0.1" (plugins[0].runtimeConfig.portMappings.hostIP), which is of Services"#,
        ),
        (
            r#"{"type":"portmap","conditionsV4":["-m","recent","--name","ssh","--rcheck"]}"#,
            r#"has the condition "-m recent" (plugins[0].conditionsV4), which may count, remember or change something for the whole node"#,
        ),
        (r#"{"type":"portmap","ConditionsV6":["-mhashlimit","--hashlimit-name","x"]}"#, r#"the condition "-m hashlimit""#),
        (r#"{"type":"portmap","conditionsV4":["--match=physdev","--physdev-is-bridged"]}"#, r#"the condition "-m physdev""#),
        (
            r#"{"type":"macvlan","ipam":{"type":"dhcp","provide":[{"option":"12","value":"a"},{"Option":"061","value":"theirs"}]}}"#,
            r#"sends the DHCP option "061" (plugins[0].ipam.provide), by which a server knows a machine: remove it"#,
        ),
        (
            r#"{"type":"meta","delegates":[{"type":"bridge","bridge":"b","ipam":{"type":"dhcp","provide":[{"option":"dhcp-client-identifier","fromArg":"X"}]}}]}"#,
            r#"the DHCP option "dhcp-client-identifier" (plugins[0].delegates[0].ipam.provide)"#,
        ),
        (
            r#"{"type":"bridge","bridge":"flannel.1"}"#,
            r#"makes the link "flannel.1" (plugins[0].bridge), which flannel makes: choose another name"#,
        ),
        (r#"{"type":"bridge","bridge":"flannel","isGateway":true,"vlan":1}"#, r#"makes the link "flannel.1""#),
        (
            r#"{"type":"bridge","bridge":"b"},{"type":"firewall","firewalldzone":"drop"}"#,
            r#"adds its pods to the node's firewalld zone "drop" (plugins[1].firewalldzone)"#,
        ),
    ] {
        let got = taken(plugins);
        assert!(got.len() == 1 && got[0].contains(says), "{plugins}: {got:?}");
        let rule = r#"allow it with a rule of the agent's "policy": {"name":"own","definitionNamespaces":["a"],"protect":"off"}"#;
        assert!(got[0].ends_with(rule), "{got:?}");
    }
    for plugins in [
        r#"{"type":"macvlan","master":"eth0"}"#,
        r#"{"type":"ipvlan"}"#,
        r#"{"type":"macvlan","master":"cali1","linkInContainer":true}"#,
        r#"{"type":"vlan","master":"eth0","vlanId":5}"#,
        r#"{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}"#,
        r#"{"type":"bridge","bridge":"br1","isGateway":true,"ipam":{"type":"host-local","subnet":"10.1.0.0/24","gateway":"192.0.2.10"}}"#,
        r#"{"type":"flannel","delegate":{"isGateway":false}}"#,
        r#"{"type":"bridge","bridge":"eth0"}"#,
        // The link in a VLAN is made for a gateway alone.
        r#"{"type":"bridge","bridge":"flannel","vlan":1}"#,
        r#"{"type":"bridge","bridge":"flannel","isGateway":true,"vlan":2}"#,
        r#"{"type":"macvlan","ipam":{"type":"dhcp","provide":[{"option":"host-name","fromArg":"K8S_POD_NAME"},{"option":"60","value":"a"}]}}"#,
        r#"{"type":"portmap","conditionsV4":["-m","limit","--limit","5/sec","-m","conntrack","--ctstate","NEW"]}"#,
        r#"{"type":"bridge","bridge":"br1","forceAddress":true,"promiscMode":true,"macspoofchk":true,"mtu":1400}"#,
        r#"{"type":"bridge","mtu":0,"promiscMode":false,"macspoofchk":null}"#,
        r#"{"type":"bridge"},{"type":"firewall","ingressPolicy":"open"}"#,
        r#"{"type":"bridge","bridge":"br1"},{"type":"firewall","ingressPolicy":"same-bridge"}"#,
        r#"{"type":"host-device","device":"eth1"}"#,
        r#"{"type":"host-device","device":"eth1"},{"type":"tuning","mac":"02:00:00:00:00:01"}"#,
        r#"{"type":"macvlan","master":"eth0","mode":"passthru","linkInContainer":true}"#,
        r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":22,"protocol":"udp"}]}}"#,
        r#"{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":22,"hostIP":"192.0.2.7"}]}}"#,
        r#"{"type":"portmap","conditionsV4":["-s","10/8","-p","tcp","--dport","80"],"conditionsV6":["ip6","saddr","fd00::/8"]}"#,
        r#"{"type":"bridge","bridge":"b"},{"type":"firewall","firewalldZone":"trusted"}"#,
    ] {
        assert_eq!(taken(plugins), Vec::<String>::new(), "{plugins}");
    }
}

/// What the owner's network says is the owner's choice, and what a pod adds to it is the pod's.
#[test]
fn what_a_pod_adds_to_a_network_of_the_owner_is_its_own_choice() {
    let trusting = policy(r#"[{"name":"r","definitionNamespaces":["a"],"protect":"off"}]"#).unwrap();
    let taken = |policy: &Policy, definition: &str, is_on_disk, own: &str, cni_args: &str| {
        let mut list = list(&format!(r#"{{"type":"bridge"}},{{"type":"tuning"{own}}}"#));
        let selections = npwg::parse(&format!(r#"[{{"name":"n","cni-args":{cni_args}}}]"#), "a").unwrap();
        list.set_in_plugins("args", |own| selections[0].args(own.and_then(json::Value::as_object)).map(json::Value::Object));
        let (definition, uses) = (DefinitionRef::parse(definition, "none").unwrap(), Uses::of(&list, plugins::BUILTINS));
        let case =
            Case { pod_namespace: "a", definition: &definition, is_selected: true, uses: &uses, device: None, granted: None, is_on_disk };
        let taken = policy.taken_by_selection(&case, &selections[0], &Node);
        taken.into_iter().map(|e| e.to_string()).collect::<Vec<_>>()
    };
    for (cni_args, says) in [
        (r#"{"mac":"02:00:00:00:00:01"}"#, r#"names the hardware address "02:00:00:00:00:01" (plugins[1].args.cni.mac)"#),
        (r#"{"ips":["10.96.0.1/24"]}"#, r#"names the address "10.96.0.1/24" (plugins[1].args.cni.ips)"#),
        (
            r#"{"sysctl":{"net.ipv4.conf.all.proxy_arp":"1"}}"#,
            r#"sets the sysctl "net.ipv4.conf.all.proxy_arp" (plugins[1].args.cni.sysctl)"#,
        ),
    ] {
        for (policy, definition, is_on_disk) in
            [(&Policy::OPEN, "a/n", true), (&Policy::OPEN, "infra/cbr0", false), (&trusting, "a/n", false)]
        {
            let got = taken(policy, definition, is_on_disk, "", cni_args);
            let says = format!("with the pod's cni-args, definition {definition} {says}");
            let rule = r#"{"name":"own","podNamespaces":["a"],"protect":"off"}"#;
            assert!(got.iter().any(|what| what.starts_with(&says) && what.ends_with(rule)), "{cni_args}: {got:?}");
        }
        // Of a definition of others it is found with the rest.
        assert_eq!(taken(&Policy::OPEN, "a/n", false, "", cni_args), [""; 0]);
        // The owner's own, beside what the pod adds.
        let own = format!(r#","args":{{"cni":{cni_args}}}"#);
        assert_eq!(taken(&Policy::OPEN, "a/n", true, &own, r#"{"other":1}"#), [""; 0]);
    }
}

/// A network of the node's disk with a plugin of others, which reads its log file from `cni-args`: a pod chose the file.
#[test]
fn paths_that_a_pod_adds_to_any_network_are_its_own_choice() {
    let told = |rules: &str, is_on_disk, plugins: &str, cni_args: &str, device: Option<&str>| {
        let policy = policy(rules).unwrap();
        let mut list = list(plugins);
        let selections = npwg::parse(&format!(r#"[{{"name":"n","cni-args":{cni_args}}}]"#), "a").unwrap();
        list.set_in_plugins("args", |own| selections[0].args(own.and_then(json::Value::as_object)).map(json::Value::Object));
        let definition = DefinitionRef::new("infra", "n").unwrap();
        let mut uses = Uses::of(&list, plugins::BUILTINS);
        uses.ask(&selections[0], device, plugins::BUILTINS);
        let uses = &uses;
        let case = Case { pod_namespace: "a", definition: &definition, is_selected: true, uses, device, granted: None, is_on_disk };
        policy.check(&case).err().into_iter().flatten().map(|e| e.to_string()).collect::<Vec<_>>()
    };
    let (theirs, log) = (r#"{"type":"theirs","log":"/var/log/theirs"}"#, r#"{"log":{"file":"/etc/cron.d/x"}}"#);
    let says = r#"the pod's selection names the host's path "/etc/cron.d/x" (cni-args.log.file): only files on the node may name it"#;
    let rule = r#"{"name":"paths","podNamespaces":["a"],"allow":{"paths":["/etc/cron.d/x"]}}"#;
    let got = told("[]", true, theirs, log, None);
    assert!(got.len() == 1 && got[0].starts_with(says) && got[0].ends_with(rule), "{got:?}");
    assert_eq!(told(&format!("[{rule}]"), true, theirs, log, None), [""; 0]);
    assert_eq!(told(r#"[{"name":"r","allow":{"paths":["/etc/cron.d"]}}]"#, true, theirs, log, None), [""; 0]);
    let got = told(r#"[{"name":"r","allow":{"paths":["/srv"]}}]"#, true, theirs, log, None);
    assert!(got.len() == 1 && got[0].starts_with(r#"policy rule "r": the pod's selection names the host's path"#), "{got:?}");
    // Whoever trusts those who write a namespace's definitions does not trust those who select them.
    let of_definitions = r#"[{"name":"r","definitionNamespaces":["infra"],"allow":{"paths":["/etc","/var/log"]}}]"#;
    for is_on_disk in [true, false] {
        let got = told(of_definitions, is_on_disk, theirs, log, None);
        assert!(got.len() == 1 && got[0].starts_with(says), "{is_on_disk}: {got:?}");
    }
    // A definition's plugins have it in their configuration: it is told once.
    let got = told("[]", false, r#"{"type":"theirs"}"#, log, None);
    assert!(got.len() == 1 && got[0].contains("(plugins[0].args.cni.log.file)"), "{got:?}");
    // A key can be a path, too, and a device that nobody has looked up.
    for (cni_args, place) in [(r#"{"/etc/x":1}"#, "cni-args./etc/x"), (r#"{"a":[{"b":["unix:///run/x"]}]}"#, "cni-args.a[0].b[0]")] {
        let got = told("[]", true, theirs, cni_args, None);
        assert!(got.len() == 1 && got[0].contains(&format!("({place})")), "{got:?}");
    }
    for is_on_disk in [true, false] {
        let got = told("[]", is_on_disk, r#"{"type":"theirs"}"#, "{}", Some("../../../etc"));
        assert!(got.len() == 1 && got[0].contains("(deviceID)"), "{got:?}");
        assert_eq!(told("[]", is_on_disk, r#"{"type":"theirs"}"#, r#"{"speed":"10/full"}"#, Some("0000:01:00.1")), [""; 0]);
    }
    // What is built in reads no path there.
    assert_eq!(told("[]", true, r#"{"type":"bridge","ipam":{"type":"host-local"}}"#, log, None), [""; 0]);
    assert_eq!(told("[]", true, r#"{"type":"bridge","ipam":{"type":"theirs"}}"#, log, None).len(), 1);
}

/// A pod that asks for the hardware address of the device that it gets was refused it as another's.
#[test]
fn a_device_keeps_its_hardware_address() {
    let definition = DefinitionRef::new("a", "n").unwrap();
    let refused = |plugins: &str, device, granted| {
        let list = list(plugins);
        let case = Case {
            pod_namespace: "a",
            definition: &definition,
            is_selected: true,
            uses: &Uses::of(&list, plugins::BUILTINS),
            device,
            granted,
            is_on_disk: false,
        };
        let selections = npwg::parse(r#"[{"name":"n","mac":"02:00:00:00:00:01"}]"#, "a").unwrap();
        Policy::OPEN.taken(&case, &Node).len() + Policy::OPEN.taken_by_selection(&case, &selections[0], &Node).len()
    };
    let with = r#"{"type":"host-device"},{"type":"tuning","mac":"02:00:00:00:00:01"}"#;
    assert_eq!([refused(with, None, Some("eth1")), refused(with, Some("eth1"), None), refused(with, None, None)], [0, 0, 2]);
    let named = r#"{"type":"host-device","device":"eth1"},{"type":"tuning","mac":"02:00:00:00:00:01"}"#;
    assert_eq!(refused(named, None, None), 0);
    // What no plugin takes stays the node's.
    assert_eq!(refused(r#"{"type":"macvlan","master":"eth1","mac":"02:00:00:00:00:01"}"#, None, Some("eth1")), 2);
}

/// A virtual function that a virtual machine uses has no interface by which that could be seen.
#[test]
fn cards_of_programs_are_the_kubelets_to_give() {
    let definition = DefinitionRef::parse("a/n", "none").unwrap();
    let is_refused = |plugins: &str, device, granted| {
        let uses = Uses::of(&list(plugins), plugins::BUILTINS);
        let is_on_disk = false;
        let case = Case { pod_namespace: "a", definition: &definition, is_selected: true, uses: &uses, device, granted, is_on_disk };
        let told: Vec<String> = Policy::OPEN.taken(&case, &Node).into_iter().map(|e| e.to_string()).collect();
        assert!(told.iter().all(|told| told.contains("(plugins[0].type), which another program may drive")), "{told:?}");
        !told.is_empty()
    };
    let named = r#"{"type":"sriov-vf","pciBusID":"0000:18:02.5"}"#;
    for granted in [None, Some("0000:18:02.6")] {
        assert!(is_refused(named, None, granted), "{granted:?}");
        assert!(is_refused(r#"{"type":"sriov-vf"}"#, Some("0000:18:02.5"), granted), "{granted:?}");
    }
    assert!(is_refused(r#"{"type":"dpdk-device","hwaddr":"02:00:00:00:00:09"}"#, None, None));
    for own in [named, r#"{"type":"sriov-vf"}"#, r#"{"type":"dpdk-device"}"#] {
        assert!(!is_refused(own, None, Some("0000:18:02.5")), "{own}");
    }
    assert!(!is_refused(r#"{"type":"host-device","pciBusID":"0000:18:02.5"}"#, None, None), "it changes nothing of such a device");
}

/// Whoever adds a key to `bridge` says whether it changes the bridge itself, which others are at.
#[test]
fn every_key_of_bridge_says_whether_it_changes_the_bridge() {
    let about = plugins::BUILTINS.iter().map(|plugin| plugin.about()).find(|about| about.name == "bridge").unwrap();
    let of_pair =
        ["bridge", "ipMasq", "ipMasqBackend", "queues", "hairpinMode", "portIsolation", "vlan", "vlanTrunk", "preserveDefaultVlan"];
    let of_container = ["enabledad", "disableContainerInterface", "mac", "macFromIP", "strictSource", "ipam"];
    for key in about.keys {
        let value = match key.kind {
            "bool" => "true",
            "bytes" | "number" => "1300",
            _ => r#""cni0""#,
        };
        let got = taken(&format!(r#"{{"type":"bridge","{}":{value}}}"#, key.name));
        assert_eq!(got.is_empty(), of_pair.contains(&key.name) || of_container.contains(&key.name), "{}: {got:?}", key.name);
    }
}

/// A network of the node's configuration is its owner's; what device goes into it, the pod's annotation said.
#[test]
fn a_device_that_the_pod_names_is_its_own_choice() {
    let (definition, list) = (DefinitionRef::new("a", "n").unwrap(), list(r#"{"type":"host-device"}"#));
    let refused = |device, is_on_disk| {
        let case = Case {
            pod_namespace: "a",
            definition: &definition,
            is_selected: true,
            uses: &Uses::of(&list, plugins::BUILTINS),
            device,
            granted: None,
            is_on_disk,
        };
        Policy::OPEN.taken(&case, &Node).len()
    };
    assert_eq!((refused(Some("0000:00:03.0"), true), refused(Some("0000:00:03.0"), false)), (1, 1));
    assert_eq!((refused(Some("0000:00:04.0"), true), refused(None, true)), (0, 0));
    let got = taken_by("infra/cbr0", &list, Some("0000:00:03.0"));
    assert!(got.len() == 1 && got[0].contains("takes eth0, the node's uplink, away from the node (deviceID)"), "{got:?}");
}

/// Whoever keeps addresses where the default network does can have all of them, or keep one from ever being free.
#[test]
fn the_default_networks_leases_are_its_own() {
    let named = |name: &str, plugins: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{plugins}]}}"#);
        NetworkList::parse(text.as_bytes(), None).unwrap()
    };
    let at = |dir: &str| format!(r#"{{"type":"ptp","ipam":{{"type":"host-local","dataDir":"{dir}"}}}}"#);
    let host_local = r#"{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}"#;
    for (name, plugins, place) in [
        ("cbr0", host_local, "plugins[0].ipam"),
        ("cbr0", &at(""), "plugins[0].ipam"),
        ("cbr0", &at("/var/lib/cni/networks/"), "plugins[0].ipam.dataDir"),
        ("cbr0", r#"{"type":"flannel","delegate":{"type":"ptp"}}"#, "plugins[0].ipam"),
        ("cbr0", r#"{"type":"ptp","ipam":{"type":"host-local","DataDir":"/x","dataDir":""}}"#, "plugins[0].ipam"),
        ("10.1.0.9", &at("/var/lib/cni/networks/cbr0"), "plugins[0].ipam.dataDir"),
        ("n", &at("/var/lib/cni/networks/cbr0/x"), "plugins[0].ipam.dataDir"),
    ] {
        let got = taken_by("a/n", &named(name, plugins), None);
        let says = format!(
            "({place}), like those of the default network; choose another \"name\" or \"dataDir\": the node's own \
            resources"
        );
        assert!(got.len() == 1 && got[0].contains(&says), "{name} {plugins}: {got:?}");
        assert_eq!(taken_by("infra/cbr0", &named(name, plugins), None), [""; 0], "the default network's own definition");
    }
    for (name, plugins) in [
        ("n", host_local),
        ("cbr0", r#"{"type":"ptp","ipam":{"type":"pool"}}"#),
        ("cbr0", r#"{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.1.0.0/24"}}"#),
        ("cbr0", r#"{"type":"macvlan"}"#),
        ("cbr0", &at("/var/lib/cni/networks/teams")),
        ("n", &at("/var/lib/cni/networks/cbr01")),
    ] {
        assert_eq!(taken_by("a/n", &named(name, plugins), None), [""; 0], "{name} {plugins}");
    }
    let default = lease_dirs(&named("cbr0", r#"{"type":"flannel"},{"type":"portmap"}"#), plugins::BUILTINS);
    assert_eq!(default, [PathBuf::from("/var/lib/cni/networks/cbr0")]);
}

#[test]
fn pods_are_exempt_by_a_rule_that_names_their_namespace() {
    let parsed = policy(
        r#"[{"name":"vms","podNamespaces":["vm-*"],"protect":"off"},
            {"name":"trusted","definitionNamespaces":["infra"],"protect":"off"}]"#,
    );
    let policy = parsed.unwrap();
    assert_eq!(["vm-1", "shop"].map(|namespace| policy.protection_of_pods(namespace)), [Protection::Off, Protection::On]);
}

#[test]
fn the_strictest_rule_says_what_is_protected() {
    let protection = |rules: &str| {
        let (policy, definition) = (policy(rules).unwrap(), DefinitionRef::new("a", "n").unwrap());
        let list = list(r#"{"type":"ptp"}"#);
        let case = Case {
            pod_namespace: "a",
            definition: &definition,
            is_selected: true,
            uses: &Uses::of(&list, plugins::BUILTINS),
            device: None,
            granted: None,
            is_on_disk: false,
        };
        policy.protection(&case)
    };
    assert_eq!(protection("[]"), Protection::On);
    let off = r#"{"name":"1","definitionNamespaces":["a"],"protect":"off"}"#;
    assert_eq!(protection(&format!("[{off}]")), Protection::Off);
    assert_eq!(protection(&format!(r#"[{off},{{"name":"2","protect":"warn"}}]"#)), Protection::Warn);
    assert_eq!(protection(&format!(r#"[{off},{{"name":"2","podNamespaces":["b"],"protect":"on"}}]"#)), Protection::Off);
    // As YAML reads the bare words.
    assert_eq!(protection(r#"[{"name":"1","protect":false}]"#), Protection::Off);
    assert_eq!(
        policy(r#"[{"name":"1","protect":"of"}]"#).unwrap_err().to_string(),
        r#"policy[0].protect: "of" is not one of off, warn, on"#
    );
    assert!(policy(r#"[{"name":"1","protect":1}]"#).is_err() && policy(r#"[{"name":"1"}]"#).is_err());
}
