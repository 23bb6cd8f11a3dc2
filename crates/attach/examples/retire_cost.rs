//! Measures the two halves of a DEL against the whole: a pod with a bridge and three macvlans.
//!
//! ```text
//! cargo run --release -p netloom-attach --example retire_cost [ROUNDS]        as root; 40 rounds if not given
//! ```
//!
//! All of it is in namespaces and a directory of its own. `finish` is measured with the pods' namespaces still there, and as
//! it is when the runtime has deleted them after `retire`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use attach::{Attacher, Lost, Plan, Planned, PodView, Protection, Records, Retired, Sandbox, Source};
use chain::Chain;
use cni::{CniArgs, ContainerId, IfName, NetworkList};
use linux::link::{Change, Kind, Peer};
use linux::{LinkSpec, Netlink, Netns, link};
use netloom_attach as attach;
use plugin::{Dirs, Finder, Host, Prefer};

const PODS: usize = 16;

/// The namespaces and the directory of a measurement, gone with it.
struct NetnsIdentity {
    dir: PathBuf,
    pods: Vec<PathBuf>,
}

impl Drop for NetnsIdentity {
    fn drop(&mut self) {
        self.pods.iter().for_each(|path| drop(Netns::remove(path)));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(40), |n| n.parse()).context("ROUNDS is a number")?;
    let own = Netns::unnamed()?;
    own.enter(|inside| -> Result<()> {
        let mut netlink = Netlink::open(inside)?;
        let peer = Kind::Veth(Peer::new(IfName::parse("wire1")?));
        netlink.send_one(link::create(&LinkSpec { up: true, index: Some(50), ..LinkSpec::new(IfName::parse("wire0")?, peer) }))?;
        let wire1 = netlink.link("wire1")?.context("no wire1")?.index;
        netlink.send_one(link::set(wire1, &Change { up: Some(true), ..Change::default() }))?;
        for masquerade in [false, true] {
            measure(rounds, masquerade)?;
        }
        Ok(())
    })?
}

fn measure(rounds: usize, masquerade: bool) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("nlrc-{}", std::process::id()));
    let mut place = NetnsIdentity { dir: dir.clone(), pods: Vec::new() };
    for number in 0..PODS {
        let path = Path::new("/run/netns").join(format!("nlrc-{}-{number}", std::process::id()));
        Netns::create(&path)?;
        place.pods.push(path);
    }
    let attacher = Attacher::new(
        Chain::new(Finder::new(plugins::BUILTINS, Vec::new(), Prefer::Builtin, Vec::new()), None),
        Records::new(dir.join("sandboxes")),
    );
    let mut host = Host::here(Dirs::below(&dir));
    let plan = plan(masquerade)?;
    println!("bridge{} and three macvlans, median of {rounds} rounds, ms", if masquerade { " with ipMasq" } else { "" });
    for pods in [1, PODS] {
        let mut times = [const { Vec::<Duration>::new() }; 5];
        for _ in 0..rounds {
            round(&attacher, &mut host, &plan, place.pods.get(..pods).unwrap_or_default(), &mut times)?;
        }
        let [add, del, retire, finish, alone] = times.map(|mut t| {
            t.sort();
            t.get(t.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e3)
        });
        println!("{pods:>3} pods: add {add:.2} each, del {del:.2} each, retire {retire:.2} each");
        println!("          finish of all {finish:.2}, {alone:.2} after their namespaces");
    }
    Ok(())
}

fn round(attacher: &Attacher, host: &mut Host, plan: &Plan, pods: &[PathBuf], times: &mut [Vec<Duration>; 5]) -> Result<()> {
    let by = Instant::now() + Duration::from_secs(60);
    let ids = (0..pods.len()).map(|n| ContainerId::parse(&format!("pod{n}"))).collect::<Result<Vec<_>, _>>()?;
    let [adds, dels, retires, finishes, alone] = times;
    for (halves, runtime) in [(false, false), (true, false), (true, true)] {
        for (id, netns) in ids.iter().zip(pods) {
            let sandbox = Sandbox { id: id.clone(), netns: netns.clone(), opened: None, args: CniArgs::default(), pod: PodView::default() };
            let begin = Instant::now();
            attacher.add(&sandbox, plan, host, by)?;
            adds.push(begin.elapsed());
        }
        for id in &ids {
            let begin = Instant::now();
            if halves {
                ensure!(attacher.retire(id, Lost::EveryAddress, host, by)? == Retired::Later, "not retired");
                retires.push(begin.elapsed());
            } else {
                attacher.del(id, Lost::EveryAddress, host, by)?;
                dels.push(begin.elapsed());
            }
        }
        if halves {
            if runtime {
                pods.iter().try_for_each(|path| Netns::remove(path))?;
                std::thread::sleep(Duration::from_millis(60));
            }
            let begin = Instant::now();
            for (_, done) in attacher.finish(&ids, host, by) {
                done?;
            }
            if runtime { &mut *alone } else { &mut *finishes }.push(begin.elapsed());
            if runtime {
                pods.iter().try_for_each(|path| Netns::create(path).map(drop))?;
            }
        }
    }
    Ok(())
}

fn plan(masquerade: bool) -> Result<Plan> {
    let bridge = format!(
        r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":{masquerade},
            "ipam":{{"type":"host-local","subnet":"10.1.0.0/24"}}}}]}}"#
    );
    let macvlan = |n: usize| {
        format!(
            r#"{{"cniVersion":"0.3.1","name":"mac{n}","plugins":[{{"type":"macvlan","master":"wire0",
                "ipam":{{"type":"host-local","subnet":"10.2.{n}.0/24"}}}}]}}"#
        )
    };
    let mut plan = Plan::default();
    for (number, text) in [bridge, macvlan(1), macvlan(2), macvlan(3)].iter().enumerate() {
        let list = NetworkList::parse(text.as_bytes(), None)?;
        let ifname = IfName::parse(&if number == 0 { "eth0".to_owned() } else { format!("net{number}") })?;
        plan.attachments.push(Planned {
            source: Source::Default,
            list,
            ifname,
            capability_args: json::Object::new(),
            device: None,
            protection: Protection::Off,
            is_on_disk: false,
            lasting: Vec::new(),
        });
    }
    Ok(plan)
}
