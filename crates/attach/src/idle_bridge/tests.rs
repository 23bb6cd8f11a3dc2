use std::path::PathBuf;

use chain::MadeBy;
use cni::{CniArgs, NetworkList};
use json::Object;
use linux::link;
use linux::{Inside, Netns};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use plugin::Dirs;

use super::*;
use crate::{PodView, ReportedDevice, State};

fn sh(text: &str) {
    let done = std::process::Command::new("sh").args(["-ec", text]).output().unwrap();
    assert!(done.status.success(), "{text}: {done:?}");
}

fn list(plugin: &str) -> NetworkList {
    NetworkList::parse(format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugin}]}}"#).as_bytes(), None).unwrap()
}

#[test]
fn links_that_plugins_make_or_stand_on() {
    for (plugin, links) in [
        (r#"{"type":"bridge","bridge":"x","isGateway":true}"#, vec!["x"]),
        (r#"{"type":"bridge","IsDefaultGateway":true}"#, vec!["cni0"]),
        (r#"{"type":"bridge","bridge":"x","vlan":5}"#, vec!["x"]),
        (r#"{"type":"bridge","Bridge":"x","vlan":5,"isGateway":true}"#, vec!["x", "x.5"]),
        (r#"{"type":"bridge","bridge":"x","bridge":"y"}"#, vec!["y"]),
        (r#"{"type":"bridge","bridge":"x","BRIDGE":"","isGateway":true,"vlan":7,"vlan":5}"#, vec!["cni0", "cni0.5"]),
        (r#"{"type":"bridge","bridge":"x","bridge":null,"isGateway":true,"ISGATEWAY":false,"vlan":5}"#, vec!["x"]),
        (r#"{"type":"bridge","bridge":"x","runtimeConfig":{"bridge":"y"}}"#, vec!["x"]),
        (r#"{"type":"host-device","device":"x","RuntimeConfig":{"deviceID":"y","device":"z"}}"#, vec!["y"]),
        (r#"{"type":"host-device","device":"x","hwaddr":"y","kernelpath":"z","pciBusID":"v","deviceID":"w"}"#, vec!["x"]),
        (r#"{"type":"host-device","device":"","hwaddr":"y","kernelpath":"z","runtimeConfig":{"deviceID":""}}"#, vec!["y"]),
        (r#"{"type":"sriov","deviceID":"x","pciBusID":"y"}"#, vec!["x"]),
        (r#"{"type":"ovs","bridge":"x","deviceID":"y","runtimeConfig":{"deviceID":"z"}}"#, vec!["x"]),
        (r#"{"type":"flannel","delegate":{"type":"bridge","type":"macvlan","bridge":"x","master":"m"}}"#, vec!["m"]),
        (r#"{"type":"theirs","master":"x","master":"y"}"#, vec!["x", "y"]),
        (r#"{"type":"flannel"}"#, vec!["cni0"]),
        (r#"{"type":"flannel","delegate":{"bridge":"y"}}"#, vec!["y"]),
        (r#"{"type":"flannel","delegate":{"bridge":"y"},"delegate":{"vlan":5}}"#, vec!["y", "y.5"]),
        (r#"{"type":"flannel","delegate":{"type":"bridge"}}"#, vec!["cni0"]),
        (r#"{"type":"flannel","delegate":{"type":"macvlan","bridge":"x","master":"m"}}"#, vec!["m"]),
        (r#"{"type":"macvlan","master":"x"}"#, vec!["x"]),
        (r#"{"type":"vlan","ma\u017fter":"x.5"}"#, vec!["x.5"]),
        (r#"{"type":"theirs","master":"x"}"#, vec!["x"]),
        // Free texts.
        (r#"{"type":"ipvlan","master":"x","linkInContainer":true}"#, vec![]),
        (r#"{"type":"ptp","bridge":"x","master":"x","ipam":{"type":"static","x":"x"}}"#, vec![]),
        (r#"{"type":"tuning","delegate":{"type":"bridge","bridge":"x"},"plugins":[{"type":"bridge","bridge":"x"}]}"#, vec![]),
    ] {
        assert_eq!(links_of(&list(plugin).plugins[0]), links, "{plugin}");
    }
}

/// A node: a namespace of the thread's own, and a directory of records.
struct Node {
    dir: PathBuf,
    records: Records,
    host: Host,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Node {
    /// What of the bridge `x` is left, and of its links into VLANs, with their addresses.
    fn left(&mut self, going: &str) -> Vec<String> {
        self.forget("x", going);
        self.there()
    }

    fn forget(&mut self, names: &str, going: &str) {
        let left = Left { names: names.split(' ').map(str::to_owned).collect(), sandboxes: [going.parse().unwrap()].into() };
        left.forget(&mut self.host, &self.records).unwrap();
    }

    /// What of it is left after the agent's own look.
    fn left_by_agent(&mut self) -> Vec<String> {
        let chain = chain::Chain::new(plugin::Finder::new(plugins::BUILTINS, Vec::new(), plugin::Prefer::Builtin, Vec::new()), None);
        Attacher::new(chain, self.records.clone()).forget_idle_bridges(&mut self.host).unwrap();
        self.there()
    }

    fn there(&mut self) -> Vec<String> {
        let netlink = self.host.netlink().unwrap();
        let (links, addresses) = (netlink.links().unwrap(), netlink.addresses(None).unwrap());
        let own = links.iter().filter(|link| link.name == "x" || link.name.starts_with("x."));
        let of = |link: &Link| {
            let nets = addresses.iter().filter(|a| a.index == link.index && !is_link_local(a)).map(|a| format!(" {}", a.net));
            format!("{}{}", link.name, nets.collect::<String>())
        };
        own.map(of).collect()
    }

    /// As the plugin does for a definition.
    fn give(&mut self, link: &str, net: &str) {
        self.give_of(addr::TRANSIENT, link, net);
    }

    fn give_of(&mut self, protocol: u8, link: &str, net: &str) {
        let netlink = self.host.netlink().unwrap();
        let index = netlink.link(link).unwrap().unwrap().index;
        netlink.send_one(addr::add_of(protocol, index, net.parse().unwrap(), linux::AddrFlags::NODAD)).unwrap();
    }

    fn record(&self, sandbox: &str, networks: &[(&str, &str)]) {
        let step = |(name, plugin): &(&str, &str)| Step {
            name: (*name).to_owned(),
            default: false,
            list: list(plugin),
            ifname: "eth0".parse().unwrap(),
            capability_args: Object::new(),
            default_route: None,
            device: ReportedDevice::Nothing,
            made_by: MadeBy::default(),
            took: None,
            state: State::Intended,
        };
        let netns = Netns::current().unwrap();
        let record = Record {
            sandbox: sandbox.parse().unwrap(),
            boot: linux::boot_id().unwrap(),
            netns: "/run/netns/x".into(),
            netns_id: netns.id(),
            netns_cookie: None,
            made_at: None,
            pod: PodView::default(),
            args: CniArgs::default(),
            steps: networks.iter().map(step).collect(),
        };
        self.records.write(&record).unwrap();
    }
}

fn on_a_node(name: &str, test: impl FnOnce(&mut Node) + Send) {
    let dir = std::env::temp_dir().join(format!("nlidle-{}-{name}", std::process::id()));
    let here = |_: &Inside| {
        let (records, host) = (Records::new(dir.join("records")), Host::here(Dirs::below(&dir)));
        test(&mut Node { dir: dir.clone(), records, host });
    };
    Netns::unnamed().unwrap().enter(here).unwrap();
}

/// What an administrator gave the bridge stays, and everything while there is a pod.
#[test]
fn addresses_go_with_the_last_pod() {
    on_a_node("addresses", |node| {
        sh("ip link add x type bridge; ip addr add 10.9.0.9/24 dev x; ip link add pod type veth peer name eth0; ip link set pod master x
            ip link add gw type veth peer name x.5; ip link set gw master x; ip tuntap add nic mode tap");
        for (link, net) in [("x", "10.9.0.1/24"), ("x", "10.9.1.1/24"), ("x", "fd00:9::1/64"), ("x.5", "10.9.5.1/24")] {
            node.give(link, net);
        }
        assert_eq!(node.left("p")[0], "x 10.9.0.9/24 10.9.1.1/24 10.9.0.1/24 fd00:9::1/64", "there is a pod");
        sh("ip link del pod");
        assert_eq!(node.left("p"), ["x 10.9.0.9/24", "x.5"]);
        node.forget("none", "p");
    });
}

/// The kernel takes with the first address of a subnet all others.
#[test]
fn an_address_stays_while_anothers_would_go_with_it() {
    on_a_node("subnet", |node| {
        sh("ip link add x type bridge");
        node.give("x", "10.9.0.1/24");
        node.give("x", "10.9.0.2/24");
        sh("ip addr add 10.9.0.9/24 dev x");
        assert_eq!(node.left("p"), ["x 10.9.0.1/24 10.9.0.9/24"]);
        sh("ip addr del 10.9.0.9/24 dev x; ip addr add 10.9.0.9/16 dev x");
        assert_eq!(node.left("p"), ["x 10.9.0.9/16"], "the kernel compares the lengths too");
        node.give("x", "10.9.0.1/24");
        node.give("x", "10.9.0.2/24");
        sh("ip addr del 10.9.0.9/16 dev x");
        assert_eq!(node.left("p"), ["x"]);
    });
}

/// A DEL that meets an ADD, or a record that it cannot read, leaves the addresses to the agent, on whatever bridge they are.
#[test]
fn addresses_that_a_del_has_left_are_the_agents() {
    on_a_node("left", |node| {
        sh("ip link add x type bridge; ip link add gw type veth peer name x.5; ip link set gw master x");
        node.give("x.5", "10.9.5.1/24");
        node.give_of(addr::GATEWAY, "x", "10.9.0.1/24");
        let all = ["x 10.9.0.1/24", "x.5 10.9.5.1/24"];
        let lock = NetnsLock::shared(node.host.inside(), std::time::Instant::now()).unwrap();
        assert_eq!(node.left("p"), all, "an ADD looks for a bridge");
        drop(lock);
        std::fs::create_dir_all(node.dir.join("records")).unwrap();
        std::fs::write(node.dir.join("records/torn.json"), "{").unwrap();
        assert_eq!((node.left("p"), node.left_by_agent()), (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec()));
        std::fs::remove_file(node.dir.join("records/torn.json")).unwrap();
        assert_eq!(node.left_by_agent(), ["x 10.9.0.1/24", "x.5"], "that of a network that pods have without asking stays");
    });
}

/// One that nobody marked is another's, whoever else is there no more.
#[test]
fn a_bridge_that_was_made_for_a_definition_goes_with_the_last_pod() {
    on_a_node("bridge", |node| {
        let marked = format!("ip link add x up group {TRANSIENT} type bridge");
        sh(&marked);
        node.give("x", "10.9.0.1/24");
        sh("ip link add pod type veth peer name eth0; ip link set pod master x");
        assert_eq!(node.left("p"), ["x 10.9.0.1/24"], "there is a pod");
        sh("ip link del pod");
        assert_eq!(node.left("p"), [""; 0]);
        // What is another's keeps it.
        for (what, made, removed) in [
            ("an address", "ip addr add 192.0.2.1/24 dev x", "ip addr del 192.0.2.1/24 dev x"),
            (
                "a port",
                "ip link add w0 type veth peer name w1; ip link add link w0 name port type macvlan; ip link set port master x",
                "ip link del w0",
            ),
            ("an alias", "ip link set x alias mine", "ip link set x alias ''"),
            ("a macvlan", "ip link add link x name mv type macvlan mode bridge", "ip link del mv"),
        ] {
            sh(&marked);
            sh(made);
            assert_eq!(node.left("p").len(), 1, "{what}");
            sh(removed);
            assert_eq!(node.left("p"), [""; 0], "{what}");
        }
        sh("ip link add x up type bridge");
        assert_eq!(node.left("p"), ["x"], "nobody marked it");
    });
}

/// Pods' macvlans are in namespaces of their own: the kernel shows that somebody listens, and a record who.
#[test]
fn a_bridge_on_which_a_macvlan_of_a_pod_stands_stays() {
    on_a_node("macvlan", |node| {
        sh(&format!("ip link add x up group {TRANSIENT} type bridge"));
        node.give("x", "10.9.0.1/24");
        let pod = Netns::unnamed().unwrap();
        let netlink = node.host.netlink().unwrap();
        let parent = netlink.link("x").unwrap().unwrap().index;
        let macvlan = link::Macvlan { mode: linux::MacvlanMode::Bridge, bc_queue_len: None };
        let kind = link::Kind::Macvlan { parent, macvlan };
        let spec = linux::LinkSpec { netns: Some(std::os::fd::AsFd::as_fd(&pod)), ..linux::LinkSpec::new("eth0".parse().unwrap(), kind) };
        netlink.send_one(link::create(&spec)).unwrap();
        node.record("other", &[("a/b", r#"{"type":"macvlan","master":"x"}"#)]);
        assert_eq!(node.left("p"), ["x 10.9.0.1/24"], "its record names it");
        node.records.remove(&"other".parse().unwrap()).unwrap();
        let up = |inside: &Inside| {
            let mut netlink = Netlink::open(inside).unwrap();
            let index = netlink.link("eth0").unwrap().unwrap().index;
            netlink.send_one(link::set(index, &link::Change { up: Some(true), ..link::Change::default() })).unwrap();
        };
        pod.enter(up).unwrap();
        assert_eq!(node.left("p"), ["x 10.9.0.1/24"], "it listens");
        drop(pod);
        let mut tries = 0;
        while !node.left("p").is_empty() {
            tries += 1;
            assert!(tries < 10_000, "the namespace is gone, and with it the macvlan");
            // Sleeps: this crate has no `until`, and the kernel takes a namespace down when it comes to it.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
}

#[test]
fn what_records_say_of_a_bridge() {
    on_a_node("records", |node| {
        let marked = format!("ip link add x up group {TRANSIENT} type bridge");
        sh(&marked);
        let on_x = r#"{"type":"bridge","bridge":"x"}"#;
        node.record("other", &[("a/b", on_x)]);
        assert_eq!(node.left("p"), ["x"], "another pod is on its way");
        node.records.write_tombstone(&"other".parse().unwrap());
        assert_eq!(node.left("p"), [""; 0], "it goes as well");
        sh(&marked);
        node.record("p", &[("a/b", on_x)]);
        assert_eq!(node.left("p"), [""; 0], "its own");
        sh(&marked);
        node.record("p", &[("lab", on_x), ("a/b", on_x)]);
        assert_eq!(node.left("p"), ["x"], "of a network that it has without asking");
        node.records.remove(&"p".parse().unwrap()).unwrap();
        std::fs::write(node.dir.join("records/torn.json"), "{").unwrap();
        assert_eq!(node.left("p"), ["x"], "who knows what it says");
        std::fs::remove_file(node.dir.join("records/torn.json")).unwrap();
        // An ADD is between its look and its port; what is left is the agent's.
        let lock = NetnsLock::shared(node.host.inside(), std::time::Instant::now()).unwrap();
        assert_eq!(node.left("p"), ["x"]);
        drop(lock);
        assert_eq!(node.left_by_agent(), [""; 0]);
    });
}

/// On a bridge that is another's, the host's link into a VLAN is the definition's.
#[test]
fn a_link_into_a_vlan_goes_alone() {
    on_a_node("vlan", |node| {
        sh(&format!(
            "ip link add x up type bridge; ip addr add 192.0.2.1/24 dev x
             ip link add gw type veth peer name x.5; ip link set gw master x; ip link set x.5 group {TRANSIENT}; ip link set gw up"
        ));
        node.give("x.5", "10.9.5.1/24");
        node.record("other", &[("a/b", r#"{"type":"bridge","bridge":"x","vlan":5,"isGateway":true}"#)]);
        assert_eq!(node.left("p"), ["x 192.0.2.1/24", "x.5 10.9.5.1/24"]);
        node.records.remove(&"other".parse().unwrap()).unwrap();
        assert_eq!(node.left("p"), ["x 192.0.2.1/24"]);
    });
}

/// A pod kept the node's bridges by writing their names anywhere in its networks, and need not have anything there.
#[test]
fn a_free_text_keeps_no_bridge() {
    on_a_node("text", |node| {
        for text in [
            r#"{"type":"tuning","sysctl":{"net.core.x":"x"},"bridge":"x","master":"x","delegate":{"type":"bridge","bridge":"x"}}"#,
            r#"{"type":"bridge","bridge":"y","note":"x","ipam":{"type":"static","master":"x","bridge":["x",{"bridge":"x"}]}}"#,
            r#"{"type":"macvlan","master":"x","linkInContainer":true}"#,
        ] {
            sh(&format!("ip link add x up group {TRANSIENT} type bridge"));
            node.record("other", &[("a/b", text)]);
            assert_eq!(node.left("p"), [""; 0], "{text}");
        }
        // By another name it is the bridge.
        sh(&format!("ip link add x up group {TRANSIENT} type bridge; ip link property add dev x altname another-name-of-it"));
        node.record("other", &[("a/b", r#"{"type":"macvlan","master":"another-name-of-it"}"#)]);
        assert_eq!(node.left("p"), ["x"]);
        node.record("other", &[("a/b", r#"{"type":"bridge","bridge":"another-name"}"#)]);
        node.forget("another-name-of-it", "p");
        assert_eq!(node.there(), [""; 0]);
    });
}

/// How many records were opened since it was asked last.
fn opened(inotify: &Inotify) -> usize {
    let mut count = 0;
    loop {
        match inotify.read_events() {
            Ok(events) => {
                count += events.iter().filter(|e| e.name.as_ref().is_some_and(|name| name.as_encoded_bytes().ends_with(b".json"))).count()
            }
            Err(nix::errno::Errno::EAGAIN) => return count,
            Err(e) => panic!("{e}"),
        }
    }
}

/// All records were read twice for each bridge, once of that while every ADD of the node waited.
#[test]
fn records_are_read_once_and_not_while_others_wait() {
    const PODS: usize = 4000;
    on_a_node("many", |node| {
        let (on_x, elsewhere) = (r#"{"type":"bridge","bridge":"x"}"#, r#"{"type":"bridge","bridge":"elsewhere"}"#);
        (0..PODS).for_each(|pod| node.record(&format!("pod{pod}"), &[("a/b", elsewhere)]));
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        inotify.add_watch(&node.dir.join("records"), AddWatchFlags::IN_OPEN).unwrap();
        let marked = format!(
            "for n in x y z; do ip link add $n up group {TRANSIENT} type bridge; done
            ip link add gw type veth peer name y.5; ip link set gw master y; ip link set y.5 group {TRANSIENT}"
        );
        sh(&marked);
        node.forget("x y z", "p");
        assert_eq!(opened(&inotify), PODS, "each once, for all of the bridges");
        assert_eq!(node.host.netlink().unwrap().links().unwrap().iter().filter(|link| link.name != "lo").count(), 0);
        // With the lock, those that are new or changed.
        sh(&marked);
        let links = node.host.netlink().unwrap().links().unwrap();
        let links: Vec<&Link> = links.iter().filter(|link| link.name == "x").collect();
        let nobody = BTreeSet::new();
        let mut used = Used { records: &node.records, going: &nobody, links, read: HashMap::new() };
        assert!(used.look().unwrap());
        assert_eq!((opened(&inotify), used.has(used.links[0].index)), (PODS, false));
        node.record("new", &[("a/b", elsewhere)]);
        node.record("pod7", &[("a/b", on_x)]);
        node.records.remove(&"pod8".parse().unwrap()).unwrap();
        opened(&inotify);
        assert!(used.look().unwrap());
        assert_eq!((opened(&inotify), used.has(used.links[0].index)), (2, true));
        node.records.write_tombstone(&"pod7".parse().unwrap());
        assert!(used.look().unwrap());
        assert_eq!((opened(&inotify), used.has(used.links[0].index)), (0, false));
    });
}
