use super::*;

use std::path::{Path, PathBuf};

use chain::MadeBy;
use cni::{CniArgs, Version};
use json::Object;
use plugins::BUILTINS;

use crate::{PodView, ReportedDevice, State};

fn routed(pod: &str, address: &str, run: &str) -> RoutedPod {
    let run = AddressRun::of(run.parse().unwrap());
    RoutedPod { pod: pod.to_owned(), definition: "a/n".to_owned(), address: address.parse().unwrap(), gateway: None, run, bridge: None }
}

fn pods(all: &[Arc<[RoutedPod]>]) -> Vec<String> {
    all.iter().flat_map(|pods| pods.iter()).map(|one| format!("{} {}", one.pod, one.run)).collect()
}

#[test]
fn who_claims_first_is_seen_by_who_comes_later() {
    let dir = std::env::temp_dir().join(format!("netloom-claims-{}", std::process::id()));
    let records = Records::new(dir);
    let all = RoutedPods::default();
    let look = |before| pods(&all.look(&records, &[], before).unwrap());
    let (net1, net2) = ("net1".parse::<IfName>().unwrap(), "net2".parse::<IfName>().unwrap());
    let (mut first, mut second) = (all.claim(), all.claim());
    let one = first.hold(&net1, vec![routed("a/one", "10.1.0.5", "10.1.0.0/24")]);
    let two = second.hold(&net1, vec![routed("a/two", "10.1.0.5", "10.1.0.5/32")]);
    assert_eq!((look(one), look(two)), (vec![], vec!["a/one 10.1.0.0/24".to_owned()]));
    assert_eq!(look(u64::MAX).len(), 2, "who claims nothing sees both");
    // The same again, after a plugin behind the first one: it came no later for that.
    assert_eq!(first.hold(&net1, vec![routed("a/one", "10.1.0.5", "10.1.0.0/24")]), one);
    let other = first.hold(&net2, vec![routed("a/one", "10.2.0.5", "10.2.0.5/32")]);
    assert_eq!((look(two).len(), look(other).len()), (1, 2));
    // Another result of the same network takes the place of the first, and comes later.
    let changed = first.hold(&net1, vec![routed("a/one", "10.3.0.5", "10.3.0.5/32")]);
    assert!(changed > other && look(two).is_empty());
    drop(first);
    assert_eq!(look(u64::MAX), ["a/two 10.1.0.5"]);
    drop(second);
    assert_eq!(look(u64::MAX), [""; 0]);
}

#[test]
fn a_namespace_has_no_more_than_one_large_network() {
    let claim = |all: Vec<RoutedPod>| pods(&bounded(vec![all.into()]));
    let of = |namespace: &str, number: u8| {
        let (pod, address) = (format!("{namespace}/{number}"), format!("10.{number}.0.5"));
        routed(&pod, &address, &format!("10.{number}.0.0/16"))
    };
    assert_eq!(
        claim(vec![of("a", 1), of("a", 1), of("b", 2)]),
        ["a/1 10.1.0.0/16"; 2].into_iter().chain(["b/2 10.2.0.0/16"]).collect::<Vec<_>>()
    );
    let small = |pod: &str| routed(pod, "10.9.0.5", "10.9.0.0/30");
    assert_eq!(claim(vec![of("a", 1), small("a/s"), of("b", 2)]), ["a/1 10.1.0.5", "a/s 10.9.0.5", "b/2 10.2.0.0/16"]);
    let v6 = |pod: &str, net: &str| routed(pod, "fd00::5", net);
    assert_eq!(claim(vec![of("a", 1), v6("a/6", "fd00::/48")]), ["a/1 10.1.0.0/16", "a/6 fd00::/48"]);
    assert_eq!(claim(vec![of("a", 1), v6("a/6", "fd00::/48"), v6("a/7", "fd01::/64")])[1..], ["a/6 fd00::5", "a/7 fd00::5"]);
}

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pod with an address of a pair, whose ADD is still at work.
fn record(sandbox: &str, address: &str) -> Record {
    let result = format!(r#"{{"cniVersion":"1.1.0","interfaces":[{{"name":"net1"}}],"ips":[{{"address":"{address}/24","interface":0}}]}}"#);
    let step = Step {
        name: "a/pair".to_owned(),
        default: false,
        list: NetworkList::parse(br#"{"cniVersion":"1.0.0","name":"pair","plugins":[{"type":"ptp"}]}"#, None).unwrap(),
        ifname: "net1".parse().unwrap(),
        capability_args: Object::default(),
        default_route: None,
        device: ReportedDevice::Nothing,
        made_by: MadeBy::default(),
        took: None,
        state: State::Added(AddResult::parse(result.as_bytes(), Version::LATEST).unwrap().0),
    };
    Record {
        sandbox: sandbox.parse().unwrap(),
        boot: linux::boot_id().unwrap(),
        netns: "/run/netns/x".into(),
        netns_id: linux::Netns::current().unwrap().id(),
        netns_cookie: None,
        made_at: None,
        pod: PodView { namespace: "a".into(), name: sandbox.into(), ..PodView::default() },
        args: CniArgs::parse("K8S_POD_NAME=b").unwrap(),
        steps: vec![step],
    }
}

/// Whatever becomes of the files, in this process or another, a look finds what somebody finds who reads all of them.
#[test]
fn a_look_finds_what_all_records_say() {
    let dir = Dir(std::env::temp_dir().join(format!("nllx-routed-{}", std::process::id())));
    let records = Records::new(dir.0.join("sandboxes"));
    let all = RoutedPods::default();
    let look = |all: &RoutedPods| {
        let mut found = pods(&all.look(&records, BUILTINS, u64::MAX).unwrap());
        found.sort();
        found
    };
    let same = |expected: &[&str]| {
        assert_eq!(look(&all), expected);
        assert_eq!(look(&RoutedPods::default()), expected);
    };
    // The directory is made with its first record.
    same(&[]);
    let (one, two) = (record("one", "10.1.0.5"), record("two", "10.1.0.6"));
    let intended = Record { steps: vec![Step { state: State::Intended, ..one.steps[0].clone() }], ..one.clone() };
    records.write(&intended).unwrap();
    same(&[]);
    records.write_outcome(&one).unwrap();
    same(&["a/one 10.1.0.5"]);
    records.write(&two).unwrap();
    same(&["a/one 10.1.0.5", "a/two 10.1.0.6"]);
    // Another record takes the place of the first one.
    records.write(&record("two", "10.1.0.7")).unwrap();
    same(&["a/one 10.1.0.5", "a/two 10.1.0.7"]);
    records.write_tombstone(&one.sandbox);
    same(&["a/two 10.1.0.7"]);
    records.take_tombstone(&one.sandbox).unwrap();
    same(&["a/one 10.1.0.5", "a/two 10.1.0.7"]);
    records.remove(&two.sandbox).unwrap();
    same(&["a/one 10.1.0.5"]);
    std::fs::write(records.dir().join("one.json"), "no record").unwrap();
    same(&[]);
    let aside: &Path = &dir.0.join("aside");
    std::fs::rename(records.dir(), aside).unwrap();
    same(&[]);
    records.write(&one).unwrap();
    same(&["a/one 10.1.0.5"]);
    std::fs::remove_dir_all(records.dir()).unwrap();
    std::fs::rename(aside, records.dir()).unwrap();
    records.write(&two).unwrap();
    same(&["a/two 10.1.0.6"]);
    // More than the kernel keeps of what has happened.
    for _ in 0..20_000 {
        records.write_tombstone(&two.sandbox);
        std::fs::remove_file(records.dir().join("two.del")).unwrap();
    }
    records.remove(&two.sandbox).unwrap();
    same(&[]);
}
