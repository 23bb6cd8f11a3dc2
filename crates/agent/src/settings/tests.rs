use super::*;
use crate::provided::{PodPorts, Source};
use attach::InvalidAnnotation;

fn parse(text: &str) -> Settings {
    Settings::parse(text.as_bytes()).unwrap()
}

fn refused(text: &str) -> String {
    Settings::parse(text.as_bytes()).unwrap_err().to_string()
}

fn call(settings: &Settings, text: &str) -> Result<Settings, String> {
    settings.with_call(json::parse(text.as_bytes()).unwrap().as_object().unwrap()).map_err(|e| e.to_string())
}

fn inline(source: &NetworkSource) -> &str {
    match source {
        NetworkSource::Inline(list) => list.name.as_str(),
        other => panic!("{other:?}"),
    }
}

/// The file that Multus 4's daemon is deployed with, and what its other manifests set.
const DAEMON: &str = r#"{
    "chrootDir": "/hostroot",
    "cniVersion": "0.3.1",
    "logLevel": "verbose",
    "logToStderr": true,
    "cniConfigDir": "/host/etc/cni/net.d",
    "multusAutoconfigDir": "/host/etc/cni/net.d",
    "multusConfigFile": "auto",
    "multusMasterCNI": "10-calico.conflist",
    "namespaceIsolation": true,
    "globalNamespaces": "default, openshift-multus,kube-system",
    "readinessindicatorfile": "/host/run/multus/cni/net.d/10-ovn-kubernetes.conf",
    "perNodeCertificate": {"enabled": true, "bootstrapKubeconfig": "/var/lib/kubelet/kubeconfig", "certDir": "/etc/cni/multus/certs"},
    "daemonSocketDir": "/run/multus/socket",
    "socketDir": "/host/run/multus/socket",
    "auxiliaryCNIChainName": ""
}"#;

/// What Multus's thin plugin is configured by, from the runtime's directory.
const THIN: &str = r#"{
    "cniVersion": "0.3.1",
    "name": "multus-cni-network",
    "type": "multus",
    "capabilities": {"portMappings": true},
    "logFile": "/var/log/multus.log",
    "logLevel": "debug",
    "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
    "confDir": "/etc/cni/multus/net.d",
    "binDir": "/opt/cni/other",
    "clusterNetwork": "/etc/cni/net.d/10-flannel.conflist",
    "defaultNetworks": ["sidecar", "/etc/cni/extra.d"],
    "systemNamespaces": ["kube-system", "admin"],
    "multusNamespace": "networks",
    "namespaceIsolation": true,
    "retryDeleteOnError": true
}"#;

#[test]
fn nothing_given_is_multus_defaults() {
    for empty in ["", "{}", "# nothing yet\n", "---\n"] {
        let settings = parse(empty);
        assert_eq!(settings.default_network, NetworkSource::Directory { path: "/etc/cni/net.d".into(), file: None }, "{empty:?}");
        assert_eq!(
            (settings.conf_dir.as_path(), settings.bin_dir.as_path()),
            (Path::new("/etc/cni/multus/net.d"), Path::new("/opt/cni/bin"))
        );
        assert_eq!(settings.admission, Admission { system_namespaces: vec!["kube-system".into()], ..Admission::default() });
        assert_eq!(
            (settings.multus_namespace.as_str(), settings.teardown, settings.prefer),
            ("kube-system", Teardown::Deferred, Prefer::Builtin)
        );
        assert_eq!(settings.socket().as_path(), Path::new(wire::SOCKET));
        assert_eq!(settings.admin_socket().as_path(), Path::new(wire::ADMIN_SOCKET));
        assert!(settings.warnings.is_empty());
    }
}

#[test]
fn multus_daemons_file_is_read_and_what_does_nothing_is_told() {
    let settings = parse(DAEMON);
    let file = Some("10-calico.conflist".to_owned());
    // Where there is no /host, as here and in the agent's container.
    assert_eq!(settings.default_network, NetworkSource::Directory { path: "/etc/cni/net.d".into(), file });
    assert_eq!(settings.default_network.to_string(), "/etc/cni/net.d/10-calico.conflist");
    assert_eq!(settings.cni_config_dir, Path::new("/etc/cni/net.d"));
    let global = settings.admission.isolation.as_ref().map(|i| i.global_namespaces.clone());
    assert_eq!(global.unwrap(), ["default", "openshift-multus", "kube-system"]);
    assert_eq!(settings.readiness_file.as_deref(), Some(Path::new("/run/multus/cni/net.d/10-ovn-kubernetes.conf")));
    assert_eq!((settings.log_level, settings.cni_version), (Level::Info, Version::V0_3_1));
    assert_eq!(settings.socket().as_path(), Path::new("/run/multus/socket/agent.sock"));
    let told: Vec<&str> = settings.warnings.iter().filter_map(|w| w.split_whitespace().next()).collect();
    assert_eq!(told, ["chrootDir", "logToStderr", "multusConfigFile", "perNodeCertificate"]);
    assert!(settings.warnings[3].contains("has no effect: the agent uses its service account's token"));
}

#[test]
fn a_path_below_host_is_the_hosts_own() {
    let of = |text: &str| parse(&format!("clusterNetwork: {text}")).default_network;
    assert_eq!(of("/host/etc/cni/net.d/10-a.conflist"), NetworkSource::File("/etc/cni/net.d/10-a.conflist".into()));
    assert_eq!(of("/host/etc/cni/net.d").to_string(), "the first file of /etc/cni/net.d");
    // Another name, and the directory itself.
    for path in ["/hostroot/net.d", "/host"] {
        assert_eq!(of(path), NetworkSource::Directory { path: path.into(), file: None });
    }
}

#[test]
fn what_the_runtime_gives_with_a_call_is_read_as_multus_reads_it() {
    let settings = call(&parse(""), THIN).unwrap();
    assert_eq!(settings.default_network, NetworkSource::File("/etc/cni/net.d/10-flannel.conflist".into()));
    let extra = NetworkSource::Directory { path: "/etc/cni/extra.d".into(), file: None };
    assert_eq!(settings.every_pod, [NetworkSource::Named("sidecar".into()), extra]);
    assert_eq!((settings.bin_dir.as_path(), settings.multus_namespace.as_str()), (Path::new("/opt/cni/other"), "networks"));
    assert_eq!(settings.admission.system_namespaces, ["kube-system", "admin"]);
    assert_eq!(settings.admission.isolation.clone().unwrap().global_namespaces, ["default"]);
    assert_eq!(settings.kubeconfig, None);
    let told: Vec<&str> = settings.warnings.iter().filter_map(|w| w.split_whitespace().next()).collect();
    assert_eq!(told, ["logFile", "logLevel", "kubeconfig", "retryDeleteOnError"]);
}

#[test]
fn the_agents_own_file_goes_over_a_call() {
    let own = parse("clusterNetwork: mine\nbinDir: /own/bin\nnamespaceIsolation: false\nstatusWait: 5s\n");
    let settings = call(&own, THIN).unwrap();
    assert_eq!(settings.default_network, NetworkSource::Named("mine".into()));
    assert_eq!((settings.bin_dir.as_path(), settings.admission.isolation.is_none()), (Path::new("/own/bin"), true));
    assert_eq!((settings.multus_namespace.as_str(), settings.status_wait), ("networks", Duration::from_secs(5)));
    // A call's clusterNetwork does not come in the way of the file's delegates, whichever would win in one file.
    let own = parse(r#"{"delegates":[{"name":"first","type":"bridge"},{"name":"second","type":"macvlan"}]}"#);
    let settings = call(&own, r#"{"type":"multus","clusterNetwork":"/etc/cni/net.d/10-x.conf","bindir":"/b"}"#).unwrap();
    assert_eq!((inline(&settings.default_network), inline(&settings.every_pod[0])), ("first", "second"));
    assert_eq!(settings.bin_dir.as_path(), Path::new("/b"));
    // A directory to look in, as Multus's daemon has it, is less than what the runtime's configuration names.
    assert_eq!(call(&parse(DAEMON), THIN).unwrap().default_network, NetworkSource::File("/etc/cni/net.d/10-flannel.conflist".into()));
    // What was set by other means than the file stays.
    let own = Settings { node_name: "n1".into(), socket_dir: "/s".into(), ..own };
    let settings = call(&own, r#"{"type":"multus","binDir":"/b"}"#).unwrap();
    assert_eq!((settings.node_name.as_str(), settings.socket_dir.as_path()), ("n1", Path::new("/s")));
}

#[test]
fn a_call_without_settings_changes_nothing() {
    let own = parse(DAEMON);
    let plain = r#"{"cniVersion":"1.0.0","name":"netloom","type":"netloom","capabilities":{"mac":true},"runtimeConfig":{"mac":"x"},
        "prevResult":null,"cni.dev/valid-attachments":[],"agent":"/run/netloom/agent.sock"}"#;
    assert_eq!(call(&own, plain).unwrap(), Settings { warnings: Vec::new(), ..own.clone() });
    let told = call(&own, r#"{"type":"multus","policy":[],"clusterNetwrk":"x"}"#).unwrap().warnings;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("policy of the runtime's configuration has no effect: set it in the agent's configuration"));
    assert!(told[1].starts_with("clusterNetwrk of the runtime's configuration is unknown"));
    assert_eq!(call(&own, r#"{"confDir":7}"#).unwrap_err(), "confDir: expected a string, found 7");
}

#[test]
fn networks_are_names_files_directories_or_stand_there_themselves() {
    let default = |text: &str| parse(&format!("defaultNetwork: {text}")).default_network;
    assert_eq!(default("tenant"), NetworkSource::Named("tenant".into()));
    assert_eq!(default("/etc/a.conf"), NetworkSource::File("/etc/a.conf".into()));
    assert_eq!(default("/etc/cni/a.d").to_string(), "the first file of /etc/cni/a.d");
    assert_eq!(inline(&default("{name: own, plugins: [{type: bridge}]}")), "own");
    let delegates = r#"{"delegates":[{"name":"a","type":"x"},{"name":"b","type":"x"}],"defaultNetworks":["c"]}"#;
    let settings = parse(delegates);
    assert_eq!((inline(&settings.default_network), settings.every_pod.len()), ("a", 2));
    // With clusterNetwork, delegates are not read; an empty one is none.
    let both = |cluster: &str| parse(&format!(r#"{{"clusterNetwork":"{cluster}",{}"#, &delegates[1..]));
    assert_eq!((both("x").default_network, both("x").every_pod.len()), (NetworkSource::Named("x".into()), 1));
    assert_eq!(inline(&both("").default_network), "a");
    assert_eq!(parse("auxiliaryCNIChainName: found").auxiliary_chain.as_deref(), Some("found"));
    let aux = parse("clusterNetwork: /etc/cni/net.d/10-a.conflist\nauxiliaryCNIChainName: vendor-cni-chain\n").auxiliary_chain;
    assert_eq!(aux.as_deref(), Some("vendor-cni-chain"));
}

#[test]
fn what_is_wrong_is_named_with_what_is_right() {
    for (text, says) in [
        ("clusterNetwrk: x", r#"unknown key "clusterNetwrk": did you mean "clusterNetwork"?"#),
        ("polcy: []", r#"did you mean "policy"?"#),
        ("somethingElse: 1", r#"unknown key "somethingElse"; docs/operate/settings.md"#),
        ("policy: {}", "policy: expected a list of rules, found an object"),
        ("policy: [{name: r, allow: {plugin: [x]}}]", r#"policy[0].allow: unknown key "plugin": did you mean "plugins"?"#),
        ("ipam: cluster-pool", r#"ipam: expected pool or crd, found "cluster-pool""#),
        ("ipamPrefixIPv4: 33", "ipamPrefixIPv4: expected a number from 1 to 32, found 33"),
        ("ipamBridge: a/b", "ipamBridge: expected none, or the name of a bridge"),
        ("teardown: later", r#"teardown: expected deferred or wait, found "later""#),
        ("install: 7", "install: expected a string, found 7"),
        ("statusWait: soon", r#"statusWait: expected a duration such as 500ms, 2s or 5m, at most a day, found "soon""#),
        ("statusWait: -1s", "statusWait: expected a duration"),
        ("addWait: 1e300", "addWait: expected a duration"),
        ("workers: 0", "workers: expected a number from 1 to 1024, found 0"),
        ("confDir: relative", r#"confDir: expected an absolute path, found "relative""#),
        ("healthAddress: localhost", "healthAddress: expected an address with a port"),
        ("cniVersion: 9", "cniVersion: expected a string, found 9"),
        ("cniVersion: 9.9.9", "cniVersion: expected a CNI version"),
        ("namespaceIsolation: 'yes'", r#"namespaceIsolation: expected true or false, found "yes""#),
        ("systemNamespaces: kube-system", "systemNamespaces: expected a list of strings"),
        ("clusterNetwork: a/b", r#"clusterNetwork: expected a name, an absolute path, or a network's configuration, found "a/b""#),
        ("defaultNetworks: [7]", "defaultNetworks[0]: expected a name"),
        ("delegates: [{name: a}]", "delegates[0]: "),
        ("delegates: [x]", "delegates[0]: expected a network's configuration"),
        ("clusterNetwork: a\ndefaultNetwork: b", "clusterNetwork and defaultNetwork contradict each other"),
        ("clusterNetwork: a\nauxiliaryCNIChainName: c", "auxiliary chain used but ClusterNetwork must be a path"),
        ("clusterNetwork: /a.conf\nauxiliaryCNIChainName: ../c", "auxiliaryCNIChainName: expected the name of a directory"),
        ("multusMasterCNI: ../../x", "multusMasterCNI: expected the name of a file"),
        ("[1]", "neither JSON nor YAML with keys at its outermost level: found a list"),
        ("{\"a\": ", "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
    ] {
        let got = refused(text);
        assert!(got.contains(says), "{text}: {got}");
    }
}

#[test]
fn a_file_is_read_and_named_in_its_error() {
    let path = std::env::temp_dir().join(format!("netloom-settings-{}.yaml", std::process::id()));
    std::fs::write(&path, "invalidAnnotation: ignore\nstatusIPs: cidr\nnodeName: worker-1\n").unwrap();
    let settings = Settings::read(&path).unwrap();
    assert_eq!((settings.node_name.as_str(), settings.status_ips), ("worker-1", StatusIps::Cidr));
    assert_eq!(settings.admission.invalid_annotation, InvalidAnnotation::Ignore);
    std::fs::write(&path, "x: 1").unwrap();
    assert!(Settings::read(&path).unwrap_err().to_string().starts_with(&format!("{}: unknown key", path.display())));
    std::fs::remove_file(&path).unwrap();
    assert!(Settings::read(&path).unwrap_err().to_string().contains(path.to_str().unwrap()));
}

/// A value of every key, other than its default.
const SAMPLES: &[(&str, &str)] = &[
    ("clusterNetwork", "/etc/x.conf"),
    ("defaultNetwork", "x"),
    ("provide", "netloom"),
    ("between", "vxlan"),
    ("vxlanVNI", "7"),
    ("vxlanPort", "8472"),
    ("wireguardPort", "51900"),
    ("wireguardOverlap", "5m"),
    ("clusterCIDRs", "[10.244.0.0/16]"),
    ("nonMasqueradeCIDRs", "[10.0.0.0/8]"),
    ("strictSource", "false"),
    ("hairpinMode", "none"),
    ("defaultNetworks", "[x]"),
    ("delegates", "[{name: x, type: bridge}]"),
    ("multusAutoconfigDir", "/x"),
    ("multusMasterCNI", "x.conf"),
    ("confDir", "/x"),
    ("binDir", "/x"),
    ("readinessindicatorfile", "/x"),
    ("namespaceIsolation", "true"),
    ("systemNamespaces", "[x]"),
    ("multusNamespace", "x"),
    ("policy", "[{name: r, allow: {plugins: []}}]"),
    ("serviceCIDRs", "[10.96.0.0/12]"),
    ("invalidAnnotation", "ignore"),
    ("statusIPs", "cidr"),
    ("events", "warnings"),
    ("statusWait", "500ms"),
    ("addWait", "1m"),
    ("agentWait", "1m"),
    ("ipam", "crd"),
    ("ciliumNodeUpdateRate", "1s"),
    ("ipamPrefixIPv4", "24"),
    ("ipamPrefixIPv6", "64"),
    ("ipamBridge", "none"),
    ("ipamHealth", "disabled"),
    ("openstackVIFs", "kuryrports"),
    ("openstackDefault", "port"),
    ("openstackWait", "20s"),
    ("openstackActive", "later"),
    ("openstackBridges", "[br-int, br-trunk]"),
    ("openstackLink", "ens3"),
    ("openstackMTU", "1400"),
    ("openstackSocket", "/x"),
    ("openstackVhostDir", "/x"),
    ("openstackResources", "{physnet1: intel.com/nic}"),
    ("openstackDrivers", "{intel.com/nic: vfio-pci}"),
    ("openstackDPDKDriver", "vfio-pci"),
    ("openstackPCIDir", "/x"),
    ("openstackVLAN", "none"),
    ("teardown", "wait"),
    ("prefer", "path"),
    ("reconcileEvery", "7"),
    ("workers", "7"),
    ("install", "early"),
    ("cniConfigDir", "/x"),
    ("cniVersion", "0.4.0"),
    ("kubeconfig", "/x"),
    ("nodeName", "x"),
    ("healthAddress", "'[::1]:9180'"),
    ("logLevel", "debug"),
    ("logFormat", "json"),
    ("socketDir", "/x"),
    ("daemonSocketDir", "/x"),
    ("stateDir", "/x"),
    ("pluginStateDir", "/x"),
];

fn sample(name: &str) -> &'static str {
    SAMPLES.iter().find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no sample of {name}")).1
}

#[test]
fn the_network_that_the_agent_provides() {
    let of_pools = parse("provide: netloom\nipam: pool\n");
    assert_eq!((of_pools.provide.unwrap().source, of_pools.ipam), (Source::Pools, Ipam::Pool));
    let settings = parse("provide: netloom\n");
    assert_eq!(settings.provide.as_ref().unwrap().source, Source::PodCidrs);
    let provide = settings.provide.unwrap();
    assert_eq!((settings.default_network, provide.mode.to_string()), (NetworkSource::Provided, "auto".to_owned()));
    assert!(provide.ports == PodPorts::default() && provide.non_masquerade.is_none());
    for (text, says) in [
        ("provide: calico", "provide: expected netloom"),
        ("provide: netloom\nclusterNetwork: x", "provide and clusterNetwork contradict each other"),
        ("provide: netloom\nmultusMasterCNI: x.conf", "provide and multusMasterCNI contradict each other"),
        ("provide: netloom\nbetween: ipip", "between: expected auto or auto-wireguard or direct or vxlan or wireguard"),
        ("provide: netloom\nwireguardPort: 65535", "wireguardPort: expected a number from 1 to 65534"),
        ("wireguardOverlap: 5m", "wireguardOverlap has no effect without provide: netloom"),
        ("provide: netloom\nvxlanPort: 65536", "vxlanPort: expected a number from 1 to 65535"),
        ("provide: netloom\nvxlanVNI: 16777216", "vxlanVNI: expected a number from 1 to 16777215"),
        ("provide: netloom\nipam: cluster", "ipam: expected podCIDR or pool"),
        ("provide: netloom\nipam: crd", "ipam: expected podCIDR or pool"),
        ("provide: netloom\nstrictSource: 1", "strictSource: expected true or false"),
        ("provide: netloom\nhairpinMode: promiscuous-bridge", "hairpinMode: expected hairpin-veth or none"),
        ("between: direct", "between has no effect without provide: netloom: add that, or remove between"),
        ("ipam: podCIDR", "ipam: expected pool or crd"),
    ] {
        let got = refused(text);
        assert!(got.contains(says), "{text}: {got}");
    }
    let of_call = call(&parse("provide: netloom"), r#"{"clusterNetwork": "other"}"#).unwrap();
    assert_eq!(of_call.default_network, NetworkSource::Provided, "a call names no other one");
}

#[test]
fn every_key_of_the_table_is_read() {
    let plain = parse("");
    for key in KEYS {
        let (beside, value) = match key.name {
            "globalNamespaces" => ("namespaceIsolation: true\n", "a, b"),
            "between" | "vxlanVNI" | "vxlanPort" | "wireguardPort" | "wireguardOverlap" | "clusterCIDRs" | "nonMasqueradeCIDRs"
            | "strictSource" | "hairpinMode" => ("provide: netloom\n", sample(key.name)),
            "auxiliaryCNIChainName" => ("clusterNetwork: /etc/x.conf\n", "x"),
            name if name.starts_with("openstack") && name != "openstackVIFs" => ("openstackVIFs: kuryrports\n", sample(name)),
            name => ("", sample(name)),
        };
        let without = Settings { own: Arc::default(), ..parse(beside) };
        let with = Settings { own: Arc::default(), ..parse(&format!("{beside}{}: {value}\n", key.name)) };
        assert_ne!(with, without, "{} is not read", key.name);
        if beside.is_empty() && key.origin == Origin::Call {
            let given = json::compact(&*parse(&format!("{}: {value}", key.name)).own);
            assert_ne!(call(&plain, &given).unwrap(), plain, "{} of a call is not read", key.name);
        }
    }
    assert!(REPLACED.iter().all(|(name, _)| !KEYS.iter().any(|key| key.name.eq_ignore_ascii_case(name))));
}

#[test]
fn the_manual_has_the_table_and_its_example_is_right() {
    let text = include_str!("../../../../docs/operate/settings.md");
    assert!(text.contains(&table()), "docs/operate/settings.md must contain:\n{}", table());
    let example = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = parse(example);
    assert_eq!((settings.admission.policy.rules.len(), settings.warnings.len()), (1, 0));
}
