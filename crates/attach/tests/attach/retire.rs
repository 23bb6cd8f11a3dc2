//! DEL in two halves, over a real bridge and real macvlans, judged by `ip` and by the files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chain::Chain;
use cni::{CniArgs, Code, ContainerId, NetworkList};
use linux::Netns;
use netloom_attach::{AddError, Attacher, Lost, Plan, Planned, PodView, Protection, Record, Records, Retired, Sandbox, Source};
use plugin::{Dirs, Finder, Host, Prefer};
use serde_json::Value;

/// The names of a machine's pods, in whose namespaces they are attached.
const PODS: [&str; 3] = ["a", "b", "c"];

/// A machine of a test's own: the thread is in its namespace, and one `Host` serves all calls, as in a daemon.
struct Machine {
    dir: PathBuf,
    attacher: Attacher,
    host: Host,
    plan: Plan,
}

fn ip(args: &str) -> Value {
    let output = Command::new("ip").args(["-j", "-d"]).args(args.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

fn elements() -> usize {
    let output = Command::new("nft").args(["list", "table", "inet", "netloom"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().matches(" comment \"").count()
}

fn id(name: &str) -> ContainerId {
    name.parse().unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Runs a test on a machine with a wire.
fn on_a_machine(mode: &str, test: impl FnOnce(&mut Machine) + Send) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("nlrt-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&dir).unwrap();
    let own = Netns::unnamed().unwrap();
    let done = own.enter(|_| {
        for words in ["add wire0 type veth peer name wire1", "set wire0 up", "set wire1 up"] {
            ip(&format!("link {words}"));
        }
        let finder = Finder::new(plugins::BUILTINS, vec![dir.clone()], Prefer::Builtin, std::env::vars_os().collect());
        let attacher = Attacher::new(Chain::new(finder, None), Records::new(dir.join("sandboxes")));
        let mut machine = Machine { attacher, host: Host::here(Dirs::below(&dir)), plan: plan(mode), dir };
        PODS.iter().for_each(|pod| drop(Netns::create(&machine.netns(pod)).unwrap()));
        test(&mut machine);
    });
    done.unwrap();
}

fn plan(mode: &str) -> Plan {
    let bridge = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,
        "ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}]}"#;
    let macvlan = format!(
        r#"{{"cniVersion":"0.3.1","name":"mac","plugins":[{{"type":"macvlan","master":"wire0","mode":"{mode}",
            "ipam":{{"type":"host-local","subnet":"10.2.0.0/24"}}}}]}}"#
    );
    let planned = |text: &str, ifname: &str| Planned {
        source: Source::Default,
        list: NetworkList::parse(text.as_bytes(), None).unwrap(),
        ifname: ifname.parse().unwrap(),
        capability_args: json::Object::new(),
        device: None,
        protection: Protection::Off,
        is_on_disk: false,
        lasting: Vec::new(),
    };
    Plan { attachments: vec![planned(bridge, "eth0"), planned(&macvlan, "net1")], ..Plan::default() }
}

// === impl Machine ===

impl Machine {
    fn netns(&self, pod: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("{}-{pod}", self.dir.file_name().unwrap().to_str().unwrap()))
    }

    fn add(&mut self, name: &str, pod: &str) -> Result<Record, AddError> {
        let sandbox = Sandbox { id: id(name), netns: self.netns(pod), opened: None, args: CniArgs::default(), pod: PodView::default() };
        self.attacher.add(&sandbox, &self.plan, &mut self.host, soon())
    }

    fn retire(&mut self, name: &str) -> Retired {
        self.attacher.retire(&id(name), Lost::EveryAddress, &mut self.host, soon()).unwrap()
    }

    fn finish(&mut self, names: &[&str]) -> Vec<Result<(), String>> {
        let ids: Vec<ContainerId> = names.iter().map(|name| id(name)).collect();
        let done = self.attacher.finish(&ids, &mut self.host, soon());
        assert!(done.iter().map(|(id, _)| id).eq(&ids));
        done.into_iter().map(|(_, done)| done.map_err(|e| e.to_string())).collect()
    }

    /// `ip link` of one in a pod's namespace.
    fn inside(&self, pod: &str, link: &str) -> Option<Value> {
        let name = self.netns(pod).file_name().unwrap().to_str().unwrap().to_owned();
        let links = ip(&format!("-n {name} address show"));
        links.as_array().unwrap().iter().find(|l| l["ifname"] == link).cloned()
    }

    /// The host's ends that are there.
    fn outer_ends(&self) -> Vec<Value> {
        let links = ip("link show type veth");
        let ends = links.as_array().into_iter().flatten().filter(|l| l["ifname"].as_str().is_some_and(|name| name.len() == 15));
        ends.cloned().collect()
    }

    /// The addresses that are held.
    fn leases(&self) -> Vec<String> {
        let files = |network| std::fs::read_dir(self.dir.join("networks").join(network)).into_iter().flatten();
        let names = ["net", "mac"].into_iter().flat_map(files).map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("10.")).collect();
        names.sort();
        names
    }

    fn assert_clean(&self) {
        assert_eq!((self.leases(), self.outer_ends().len(), elements()), (Vec::new(), 0, 0));
        let files = std::fs::read_dir(self.dir.join("sandboxes")).unwrap();
        assert_eq!(files.map(|e| e.unwrap().path()).collect::<Vec<_>>(), Vec::<PathBuf>::new());
        assert_eq!(self.attacher.records().retired(), Ok(Vec::new()));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        PODS.iter().for_each(|pod| drop(Netns::remove(&self.netns(pod))));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_retired_pod_carries_nothing_and_holds_its_addresses_until_it_is_finished() {
    on_a_machine("bridge", |machine| {
        let record = machine.add("one", "a").unwrap();
        assert!(record.made_at.is_some() && record.steps.iter().all(|step| step.took.is_some_and(|took| !took.is_zero())));
        let ping = |wait: &str| Command::new("ping").args(["-c1", wait, "-q", "10.1.0.2"]).output().unwrap().status.success();
        assert!(ping("-w60"));
        assert_eq!(machine.outer_ends()[0]["master"], "br0");

        assert_eq!(machine.retire("one"), Retired::Later);
        assert!(!ping("-W1"));
        let outer = &machine.outer_ends()[0];
        assert!(outer["master"].is_null() && outer["operstate"] == "DOWN", "{outer}");
        assert_eq!(machine.inside("a", "net1").unwrap()["linkinfo"]["info_data"]["mode"], "source");
        assert_eq!((machine.leases(), elements()), (vec!["10.1.0.2".to_owned(), "10.2.0.2".to_owned()], 0));
        assert_eq!(machine.attacher.records().retired(), Ok(vec![id("one")]));
        let Machine { attacher, host, .. } = machine;
        let told = attacher.check(&record, host, soon()).unwrap_err();
        assert!(told[0].error.code == Code::UNKNOWN_CONTAINER && told[0].to_string().contains("was deleted"), "{told:?}");
        // A runtime repeats its DEL.
        assert_eq!(machine.retire("one"), Retired::Later);

        assert_eq!(machine.finish(&["one"]), [Ok(())]);
        assert_eq!((machine.inside("a", "eth0"), machine.inside("a", "net1")), (None, None));
        machine.assert_clean();
        assert_eq!(machine.finish(&["one", "never"]), [Ok(()), Ok(())]);
        assert_eq!(machine.retire("one"), Retired::Gone);
    });
}

/// Before the kernel gets to setting it down, a macvlan gets nothing of what its parent gets.
#[test]
fn a_retired_macvlan_hears_nothing() {
    on_a_machine("bridge", |machine| {
        machine.add("one", "a").unwrap();
        machine.add("two", "b").unwrap();
        let b = machine.netns("b");
        let ping = |wait: &str| {
            let output =
                Command::new("nsenter").arg(format!("--net={}", b.display())).args(["ping", "-c1", wait, "-q", "10.2.0.2"]).output();
            output.unwrap().status.success()
        };
        assert!(ping("-w60"));
        machine.retire("one");
        assert!(!ping("-W1"));
        assert_eq!(machine.finish(&["one"]), [Ok(())]);
        machine.retire("two");
        assert_eq!(machine.finish(&["two"]), [Ok(())]);
        machine.assert_clean();
    });
}

/// What is in mode passthru keeps that mode, and to set it down costs what it costs to delete it: it goes at once.
#[test]
fn a_macvlan_in_mode_passthru_goes_at_once() {
    on_a_machine("passthru", |machine| {
        machine.add("one", "a").unwrap();
        assert_eq!(machine.retire("one"), Retired::Later);
        assert!(machine.inside("a", "net1").is_none());
        // Its address is free when the rest has gone as well.
        assert_eq!(machine.leases().len(), 2);
        assert_eq!(machine.finish(&["one"]), [Ok(())]);
        machine.assert_clean();
    });
}

/// What a runtime does after DEL. The pod of which the namespace is still there goes with the others.
#[test]
fn many_are_finished_at_once_whether_their_namespaces_are_there_or_not() {
    on_a_machine("bridge", |machine| {
        // One socket for all of it: nothing stale is left in it.
        for round in 0..5 {
            for pod in PODS {
                machine.add(pod, pod).unwrap();
                assert_eq!(machine.retire(pod), Retired::Later);
            }
            assert_eq!(machine.leases().len(), 6, "round {round}");
            Netns::remove(&machine.netns("b")).unwrap();
            assert_eq!(machine.finish(&PODS), [Ok(()), Ok(()), Ok(())]);
            machine.assert_clean();
            Netns::create(&machine.netns("b")).unwrap();
        }
    });
}

#[test]
fn one_that_cannot_be_finished_holds_up_no_other() {
    on_a_machine("bridge", |machine| {
        for pod in PODS {
            machine.add(pod, pod).unwrap();
            machine.retire(pod);
        }
        let record = machine.dir.join("sandboxes/b.json");
        let text = std::fs::read(&record).unwrap();
        std::fs::write(&record, "{").unwrap();
        let lock = machine.attacher.records().lock(&id("c"), soon()).unwrap();
        let done = machine.finish(&PODS);
        assert!(done[0].is_ok() && done[1].as_ref().unwrap_err().contains("cannot parse"), "{done:?}");
        assert!(done[2].as_ref().unwrap_err().contains("is being changed by"), "{done:?}");
        assert_eq!(machine.leases().len(), 4);
        drop(lock);
        std::fs::write(&record, text).unwrap();
        assert_eq!(machine.finish(&PODS), [Ok(()), Ok(()), Ok(())]);
        machine.assert_clean();
    });
}

/// A link that is still there keeps its own address held, and nobody else's.
#[test]
fn an_address_whose_lease_cannot_be_freed_keeps_its_record() {
    on_a_machine("bridge", |machine| {
        for pod in PODS {
            machine.add(pod, pod).unwrap();
            machine.retire(pod);
        }
        // A directory in place of the lease's file cannot be removed as one.
        let lease = machine.dir.join("networks/net/10.1.0.3");
        let owner = std::fs::read(&lease).unwrap();
        let aside = machine.dir.join("aside");
        let networks = machine.dir.join("networks/net");
        std::fs::rename(&networks, &aside).unwrap();
        std::fs::write(&networks, "").unwrap();
        let done = machine.finish(&["b"]);
        assert!(done[0].is_err(), "{done:?}");
        assert!(machine.attacher.records().is_retired(&id("b")));
        std::fs::remove_file(&networks).unwrap();
        std::fs::rename(&aside, &networks).unwrap();
        assert_eq!(std::fs::read(&lease).unwrap(), owner);
        assert_eq!(machine.finish(&PODS), [Ok(()), Ok(()), Ok(())]);
        machine.assert_clean();
    });
}

#[test]
fn the_same_container_comes_again_before_it_is_finished() {
    on_a_machine("bridge", |machine| {
        machine.add("one", "a").unwrap();
        machine.retire("one");
        machine.add("one", "a").unwrap();
        assert!(!machine.attacher.records().is_retired(&id("one")));
        // The second half of the earlier life comes late, and leaves it alone.
        assert_eq!(machine.finish(&["one"]), [Ok(())]);
        assert_eq!(machine.leases().len(), 2);
        assert_eq!(machine.inside("a", "net1").unwrap()["linkinfo"]["info_data"]["mode"], "bridge");
        assert_eq!(machine.retire("one"), Retired::Later);
        assert_eq!(machine.finish(&["one"]), [Ok(())]);
        machine.assert_clean();
    });
}

/// Also where the process that retired it is gone, and nobody remembers what is in that namespace.
#[test]
fn another_container_comes_into_a_namespace_with_what_is_retired() {
    on_a_machine("bridge", |machine| {
        for remembered in [true, false] {
            machine.add("elsewhere", "b").unwrap();
            machine.retire("elsewhere");
            machine.add("one", "a").unwrap();
            let old = machine.inside("a", "eth0").unwrap();
            machine.retire("one");
            if !remembered {
                let finder = Finder::new(plugins::BUILTINS, Vec::new(), Prefer::Builtin, Vec::new());
                machine.attacher = Attacher::new(Chain::new(finder, None), Records::new(machine.dir.join("sandboxes")));
            }
            machine.add("two", "a").unwrap();
            let new = machine.inside("a", "eth0").unwrap();
            assert!(
                new["ifindex"] != old["ifindex"]
                    && new["addr_info"].as_array().unwrap().iter().filter(|a| a["family"] == "inet").count() == 1
            );
            assert_eq!(machine.attacher.records().retired(), Ok(vec![id("elsewhere")]));
            assert_eq!(machine.retire("two"), Retired::Later);
            assert_eq!(machine.finish(&["two", "elsewhere"]), [Ok(()), Ok(())]);
            machine.assert_clean();
        }
    });
}

/// Nobody can tell an external plugin's links.
#[test]
fn with_an_external_plugin_all_is_done_at_once() {
    on_a_machine("bridge", |machine| {
        use std::os::unix::fs::PermissionsExt;
        let plugin = machine.dir.join("theirs");
        let script = "#!/bin/sh\n[ $CNI_COMMAND != DEL ] || : >\"$(dirname \"$0\")/deleted\"\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\"}'\n";
        std::fs::write(&plugin, script).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        let list = NetworkList::parse(br#"{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"theirs"}]}"#, None).unwrap();
        let source = Source::Default;
        let (ifname, capability_args) = ("net2".parse().unwrap(), json::Object::new());
        machine.plan.attachments.push(Planned {
            source,
            list,
            ifname,
            capability_args,
            device: None,
            protection: Protection::Off,
            is_on_disk: false,
            lasting: Vec::new(),
        });
        machine.add("one", "a").unwrap();
        assert_eq!(machine.retire("one"), Retired::Gone);
        assert!(machine.dir.join("deleted").exists());
        machine.assert_clean();
    });
}
