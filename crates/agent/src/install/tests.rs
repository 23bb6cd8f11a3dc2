use super::*;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use cni::Code;

/// A node's directories, which go with the test.
struct Node(PathBuf);

impl Node {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("netloom-install-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for dir in ["net.d", "bin", "run"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let node = Node(root);
        node.source("netloom-cni 0.1.0");
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// What is to be installed: it says this.
    fn source(&self, says: &str) {
        let path = self.at("source");
        fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn places(&self) -> Places {
        Places {
            config_dir: self.at("net.d"),
            dedicated: false,
            bin_dir: self.at("bin"),
            socket: self.at("run/agent.sock"),
            records: self.at("records"),
            version: None,
            ready_file: None,
            agent_wait: None,
            spool: None,
        }
    }

    fn options(&self) -> Options {
        Options {
            source: self.at("source"),
            plugins: false,
            multus: false,
            force: false,
            configuration: true,
            early: false,
            timeout: Duration::ZERO,
        }
    }

    fn default_network(&self) {
        fs::write(self.at("net.d/10-bridge.conflist"), text()).unwrap();
    }

    fn install(&self, options: &Options) -> Result<Report, InstallError> {
        let look = || chain::from_file(&self.at("net.d/10-bridge.conflist"), None).map_err(CniError::from);
        let awaited = Awaited { look: &look, watched: vec![self.at("net.d")] };
        install_into(&self.places(), options, &awaited, &mut |_| {})
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.at(dir)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text() -> &'static str {
    r#"{"cniVersion": "0.4.0", "name": "net", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}},
        {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", "capabilities": {"bandwidth": true, "x": false}}]}"#
}

fn list() -> NetworkList {
    NetworkList::parse(text().as_bytes(), None).unwrap()
}

fn not_there() -> CniError {
    CniError::new(Code::TRY_AGAIN_LATER, "it is not there")
}

#[test]
fn the_runtime_reads_one_plugin_with_what_the_default_network_takes() {
    let node = Node::new("entry");
    let mut places = Places { socket: wire::SOCKET.into(), ..node.places() };
    let text = json::compact(&runtime_config(&places, Some(&list())));
    let expected = r#"{"cniVersion":"1.0.0","cniVersions":["0.3.1","0.4.0","1.0.0","1.1.0"],"name":"netloom","#.to_owned()
        + r#""plugins":[{"type":"netloom","capabilities":{"bandwidth":true,"portMappings":true}}]}"#;
    assert_eq!(text, expected);
    // The one that this makes is one that we can read, and an older runtime takes the older version.
    assert_eq!(NetworkList::parse(text.as_bytes(), None).unwrap().version, Version::LATEST);
    places.version = Some(Version::V0_4_0);
    places.socket = "/run/elsewhere/agent.sock".into();
    let text = json::compact(&runtime_config(&places, None));
    assert!(text.starts_with(r#"{"cniVersion":"0.4.0","cniVersions":["0.3.1","0.4.0"],"#), "{text}");
    assert!(text.contains(r#""agent":"/run/elsewhere/agent.sock""#) && text.contains(r#""dns":true"#), "{text}");
    // What netloom-cni would not do by itself.
    let settings = crate::Settings::parse(b"stateDir: /var/lib/other\nagentWait: 1.5s\n").unwrap();
    let text = json::compact(&runtime_config(&Places::from(&settings), Some(&list())));
    assert!(text.contains(r#""agentWait":"1500ms","spool":"/var/lib/other/spool"}"#), "{text}");
    let text = json::compact(&runtime_config(&Places::from(&crate::Settings::parse(b"").unwrap()), Some(&list())));
    assert_eq!(text, expected);
}

#[test]
fn s47_s48_nothing_is_written_before_the_default_network_is_ready() {
    let node = Node::new("ready");
    let mut keeper = Keeper::new(Places { ready_file: Some(node.at("ready")), ..node.places() }, false);
    assert!(matches!(keeper.look(|| Err(not_there())).unwrap(), keeper::Looked::Waits(_)));
    // There, but its provider does not say so yet.
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Waits(why) if why.contains("readinessindicatorfile")));
    assert!(node.names("net.d").is_empty());
    fs::write(node.at("ready"), "").unwrap();
    assert_eq!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { changed: true, but: None });
    assert_eq!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { changed: false, but: None });
    assert_eq!(node.names("net.d"), [FILE]);
    assert_eq!(fs::metadata(node.at("net.d").join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn s49_early_it_is_written_at_once_and_follows_the_default_network() {
    let node = Node::new("early");
    let mut keeper = Keeper::new(node.places(), true);
    assert!(matches!(keeper.look(|| Err(not_there())).unwrap(), keeper::Looked::Stands { changed: true, but: Some(_) }));
    assert_eq!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { changed: true, but: None });
    assert!(!fs::read_to_string(node.places().entry()).unwrap().contains("dns"));
}

#[test]
fn a_default_network_that_goes_keeps_what_is_written() {
    let node = Node::new("goes");
    let mut keeper = Keeper::new(node.places(), false);
    keeper.look(|| Ok(list())).unwrap();
    let before = fs::read_to_string(node.places().entry()).unwrap();
    assert!(matches!(keeper.look(|| Err(not_there())).unwrap(), keeper::Looked::Stands { changed: false, but: Some(_) }));
    // An agent that has just started does not know better.
    let mut next = Keeper::new(node.places(), true);
    assert!(matches!(next.look(|| Err(not_there())).unwrap(), keeper::Looked::Stands { changed: false, but: Some(_) }));
    assert_eq!(fs::read_to_string(node.places().entry()).unwrap(), before);
    // Somebody has removed it, or emptied it: it comes back.
    fs::write(node.places().entry(), "").unwrap();
    assert!(matches!(keeper.look(|| Err(not_there())).unwrap(), keeper::Looked::Stands { changed: true, .. }));
    assert_eq!(fs::read_to_string(node.places().entry()).unwrap(), before);
}

#[test]
fn s48_a_dedicated_directory_is_made_and_another_one_is_waited_for() {
    let node = Node::new("dedicated");
    let places = Places { config_dir: node.at("etc/runtime.d"), ..node.places() };
    let mut keeper = Keeper::new(places.clone(), true);
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Waits(why) if why.ends_with("runtime.d does not exist yet")));
    let mut keeper = Keeper::new(Places { dedicated: true, ..places }, false);
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { changed: true, .. }));
    assert_eq!(node.names("etc/runtime.d"), [FILE]);
}

#[test]
fn install_waits_for_the_default_network_and_says_what_for() {
    let node = Node::new("wait");
    let late = Options { timeout: Duration::from_secs(60), ..node.options() };
    let (say, said) = std::sync::mpsc::channel();
    let report = std::thread::scope(|scope| {
        let node = &node;
        scope.spawn(move || {
            said.recv().expect("it says what it waits for");
            node.default_network();
        });
        let look = || chain::from_file(&node.at("net.d/10-bridge.conflist"), None).map_err(CniError::from);
        let awaited = Awaited { look: &look, watched: vec![node.at("net.d")] };
        install_into(&node.places(), &late, &awaited, &mut |_| say.send(()).unwrap_or_default()).unwrap()
    });
    assert!(report.steps.contains(&Step::Put(node.places().entry())), "{report:?}");
    fs::remove_file(node.at("net.d/10-bridge.conflist")).unwrap();
    fs::remove_file(node.places().entry()).unwrap();
    let error = node.install(&node.options()).unwrap_err();
    assert!(matches!(error, InstallError::NotReady { .. }) && error.to_string().contains("10-bridge.conflist"), "{error}");
}

#[test]
fn an_install_of_the_programs_alone_lets_the_agent_write_again() {
    let node = Node::new("again");
    node.default_network();
    uninstall_from(&node.places(), false, &mut Vec::new).unwrap();
    let mut keeper = Keeper::new(node.places(), false);
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Waits(_)));
    node.install(&Options { configuration: false, ..node.options() }).unwrap();
    assert_eq!(node.names("net.d"), ["10-bridge.conflist"]);
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { changed: true, .. }));
}

#[test]
fn a_second_install_changes_nothing() {
    let node = Node::new("twice");
    node.default_network();
    let first = node.install(&node.options()).unwrap();
    assert!(first.steps.iter().all(|step| matches!(step, Step::Put(_))), "{first:?}");
    let second = node.install(&node.options()).unwrap();
    assert!(second.steps.iter().all(|step| matches!(step, Step::Unchanged(_))), "{second:?}");
    assert_eq!(node.names("bin"), ["netloom", "netloom-cni"]);
}

#[test]
fn a_program_that_is_being_executed_is_replaced() {
    let node = Node::new("busy");
    node.default_network();
    let sleep = fs::canonicalize("/bin/sleep").unwrap();
    fs::copy(sleep, node.at("bin/netloom-cni")).unwrap();
    // A process that another test is starting has the copy open for writing until it executes.
    let mut running = loop {
        match Command::new(node.at("bin/netloom-cni")).arg("600").spawn() {
            // Sleeps: nobody tells that a process has executed what it had open.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::sleep(Duration::from_millis(5)),
            started => break started.unwrap(),
        }
    };
    let busy = fs::File::options().write(true).open(node.at("bin/netloom-cni")).unwrap_err();
    node.install(&node.options()).unwrap();
    assert_eq!(busy.kind(), std::io::ErrorKind::ExecutableFileBusy);
    assert!(running.try_wait().unwrap().is_none(), "who ran the old one goes on");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read(node.at("bin/netloom")).unwrap(), fs::read(node.at("source")).unwrap());
}

#[test]
fn what_does_not_run_replaces_nothing() {
    let node = Node::new("broken");
    node.default_network();
    node.install(&node.options()).unwrap();
    let before = fs::read(node.at("bin/netloom-cni")).unwrap();
    for (what, said) in
        [("\u{7f}ELF, but half of it", "Exec format error"), ("#!/bin/sh\nexit 3\n", "exit status: 3"), ("#!/no/loader\n", "its loader")]
    {
        fs::write(node.at("source"), what).unwrap();
        let error = node.install(&node.options()).unwrap_err();
        assert!(matches!(error, InstallError::DoesNotRun { .. }) && error.to_string().contains(said), "{error}");
        assert_eq!(fs::read(node.at("bin/netloom-cni")).unwrap(), before);
        assert_eq!(node.names("bin"), ["netloom", "netloom-cni"]);
    }
}

#[test]
fn a_foreign_program_is_replaced_only_by_force() {
    let node = Node::new("foreign");
    node.default_network();
    fs::write(node.at("bin/bridge"), "reference").unwrap();
    symlink("/somewhere/multus", node.at("bin/multus")).unwrap();
    let all = Options { plugins: true, multus: true, ..node.options() };
    let report = node.install(&all).unwrap();
    let kept: Vec<_> = report.steps.iter().filter(|step| matches!(step, Step::Kept { .. })).collect();
    assert_eq!(kept.len(), 2, "{report:?}");
    assert_eq!(fs::read_to_string(node.at("bin/bridge")).unwrap(), "reference");
    assert_eq!(fs::read_link(node.at("bin/multus-shim")).unwrap(), Path::new(PROGRAM));
    node.install(&Options { force: true, ..all }).unwrap();
    assert_eq!(fs::read_link(node.at("bin/bridge")).unwrap(), Path::new(PROGRAM));
    // Our own name is needed: nothing is done without it.
    let node = Node::new("foreign-own");
    fs::write(node.at("bin/netloom"), "somebody's").unwrap();
    assert_eq!(node.install(&node.options()).unwrap_err(), InstallError::Foreign { path: node.at("bin/netloom") });
    assert_eq!(node.names("bin"), ["netloom"]);
}

#[test]
fn a_configuration_that_names_multus_finds_us_under_that_name() {
    let node = Node::new("multus");
    node.default_network();
    let theirs = r#"{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim","logLevel":"verbose"}"#;
    fs::write(node.at("net.d/00-multus.conf"), theirs).unwrap();
    let report = node.install(&node.options()).unwrap();
    assert_eq!(node.names("bin"), ["multus-shim", "netloom", "netloom-cni"]);
    assert!(report.steps.iter().any(|step| matches!(step, Step::Note(text) if text.contains("00-multus.conf sorts before"))), "{report:?}");
    assert_eq!(fs::read_to_string(node.at("net.d/00-multus.conf")).unwrap(), theirs);
}

#[test]
fn what_a_killed_install_left_goes_with_the_next() {
    let node = Node::new("half");
    node.default_network();
    fs::write(node.at("bin/.netloom-cni.netloom-new"), "ha").unwrap();
    symlink(PROGRAM, node.at("bin/.multus.netloom-new")).unwrap();
    fs::write(node.at("net.d/.00-netloom.conflist.tmp"), "{").unwrap();
    node.install(&node.options()).unwrap();
    assert_eq!(node.names("bin"), ["netloom", "netloom-cni"]);
    assert_eq!(node.names("net.d"), [FILE, "10-bridge.conflist"]);
}

#[test]
fn uninstall_leaves_what_other_configurations_name() {
    let node = Node::new("uninstall");
    node.default_network();
    node.install(&Options { plugins: true, multus: true, ..node.options() }).unwrap();
    fs::write(node.at("bin/cilium-cni"), "another").unwrap();
    let report = uninstall_from(&node.places(), false, &mut Vec::new).unwrap();
    // 10-bridge.conflist goes on: bridge, host-local and portmap are ours here, and so is bandwidth, if there is one.
    let left = node.names("bin");
    assert!(
        left.contains(&"bridge".to_owned()) && left.contains(&"host-local".to_owned()) && left.contains(&PROGRAM.to_owned()),
        "{left:?}"
    );
    assert!(
        !left.contains(&"netloom".to_owned()) && !left.contains(&"multus".to_owned()) && !left.contains(&"macvlan".to_owned()),
        "{left:?}"
    );
    assert!(left.contains(&"cilium-cni".to_owned()));
    assert_eq!(node.names("net.d"), ["10-bridge.conflist"]);
    assert!(report.steps.iter().any(|step| matches!(step, Step::Note(text) if text.contains("10-bridge.conflist"))), "{report:?}");
    // An agent that still runs does not put it back; an install does.
    let mut keeper = Keeper::new(node.places(), true);
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Waits(_)));
    node.install(&node.options()).unwrap();
    assert!(matches!(keeper.look(|| Ok(list())).unwrap(), keeper::Looked::Stands { .. }));
}

#[test]
fn uninstall_keeps_the_executable_while_pods_are_attached() {
    let node = Node::new("attached");
    node.default_network();
    node.install(&node.options()).unwrap();
    fs::create_dir_all(node.at("records")).unwrap();
    fs::write(node.at("records/abc.json"), "{").unwrap();
    let report = uninstall_from(&node.places(), false, &mut Vec::new).unwrap();
    assert_eq!(node.names("bin"), ["netloom", "netloom-cni"]);
    assert_eq!(node.names("net.d"), ["10-bridge.conflist"]);
    assert!(report.steps.iter().any(|step| matches!(step, Step::Kept { why, .. } if why.contains("sandbox abc"))), "{report:?}");
    uninstall_from(&node.places(), true, &mut Vec::new).unwrap();
    // A second time it says what is true then, with force and without.
    let said = |force| format!("{:?}", uninstall_from(&node.places(), force, &mut Vec::new).unwrap().steps);
    let forced = said(true);
    assert!(forced.contains("nothing of Netloom is left") && !forced.contains("it has attached no pod"), "{forced}");
    let unforced = said(false);
    assert!(unforced.contains("does not exist") && !unforced.contains("Kept"), "{unforced}");
    assert!(node.names("bin").is_empty());
    // And once more, with nothing there.
    fs::remove_file(node.at("records/abc.json")).unwrap();
    let report = uninstall_from(&node.places(), false, &mut Vec::new).unwrap();
    assert!(report.steps.iter().all(|step| !matches!(step, Step::Removed(_))), "{report:?}");
    let said = report.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(said.contains("00-netloom.conflist does not exist") && said.contains("nothing of Netloom is left in"), "{said}");
}

/// The agent's file in the manifest, as it is, and with every key that stands there as a comment.
#[test]
fn the_settings_that_are_deployed_can_be_read() {
    let manifest = include_str!("../../../../deploy/agent.yaml");
    let (_, rest) = manifest.split_once("  agent.yaml: |\n").unwrap();
    let text: String =
        rest.lines().take_while(|line| line.is_empty() || line.starts_with("    ")).map(|line| format!("{}\n", line.trim())).collect();
    let settings = crate::Settings::parse(text.as_bytes()).unwrap();
    assert_eq!(settings.health_address, Some("127.0.0.1:9180".parse().unwrap()));
    let every: String =
        text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n").collect();
    let keys = every.lines().filter(|line| !line.starts_with('#') && line.contains(": ")).count();
    assert!(keys >= 18, "{every}");
    let settings = crate::Settings::parse(every.as_bytes()).unwrap();
    assert_eq!(settings.warnings, Vec::<String>::new());
    assert!(settings.admission.isolation.is_some() && settings.every_pod.len() == 1, "{settings:?}");
    // The examples name what holds anyway, but for these: so they can be uncommented one by one.
    let plain = crate::Settings::parse(b"").unwrap();
    assert_eq!((settings.add_wait, settings.status_wait, settings.install), (plain.add_wait, plain.status_wait, plain.install));
    assert_eq!((&settings.bin_dir, &settings.conf_dir, &settings.cni_config_dir), (&plain.bin_dir, &plain.conf_dir, &plain.cni_config_dir));
}

#[test]
fn where_things_are_put_follows_from_the_settings() {
    let places = |text: &str| Places::from(&crate::Settings::parse(text.as_bytes()).unwrap());
    let plain = places("");
    assert_eq!(plain.entry(), Path::new("/etc/cni/net.d/00-netloom.conflist"));
    assert!(!plain.dedicated && plain.version.is_none() && plain.socket == Path::new(wire::SOCKET), "{plain:?}");
    let own = places("cniConfigDir: /etc/cni/runtime.d\nclusterNetwork: /etc/cni/net.d/10-a.conflist\ncniVersion: 0.4.0\n");
    assert!(own.dedicated && own.version == Some(Version::V0_4_0), "{own:?}");
    assert!(!places("clusterNetwork: /etc/cni/net.d/10-a.conflist\n").dedicated);
}
