use super::*;

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
