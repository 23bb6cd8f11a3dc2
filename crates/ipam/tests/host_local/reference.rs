//! The same calls through the reference `host-local` and through ours: the same addresses, the same files byte for
//! byte, also when both take turns on one directory.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netloom_ipam::{Owner, RangeSet};

use crate::scratch::{Lcg, Scratch, ip, owner, sets, tree};

/// The addresses and gateways of an ADD; nothing for a DEL; `Err` with the message if it was refused.
type Outcome = Result<Vec<(String, String)>, String>;

#[derive(Debug, Clone)]
enum Step {
    Add(&'static str, &'static str, Vec<&'static str>),
    Del(&'static str, &'static str),
}
use Step::{Add, Del};

/// The reference plugin.
pub(crate) fn peer(name: &str) -> PathBuf {
    let dir = std::env::var_os("NETLOOM_PEERS").map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cache/netloom-peers")));
    let path = dir.unwrap().join(name);
    assert!(path.is_file(), "{} is missing: `make peers` builds the reference plugins (NETLOOM_PEERS says where they are)", path.display());
    path
}

/// The configuration that the reference plugin reads.
pub(crate) fn config(dir: &Path, ranges: &str, requested: &[&str]) -> String {
    let ranges: serde_json::Value = serde_json::from_str(ranges).unwrap();
    serde_json::json!({
        "cniVersion": "1.0.0", "name": "net", "ipam": {"type": "host-local", "dataDir": dir, "ranges": ranges},
        "runtimeConfig": {"ips": requested},
    })
    .to_string()
}

pub(crate) fn run(plugin: &Path, command: &str, who: &Owner, args: &str, config: &str) -> Result<serde_json::Value, String> {
    let mut child = Command::new(plugin)
        .env_clear()
        .envs([("CNI_COMMAND", command), ("CNI_NETNS", "/x"), ("CNI_PATH", "/x"), ("CNI_ARGS", args)])
        .envs([("CNI_CONTAINERID", who.id.as_str()), ("CNI_IFNAME", who.ifname.as_str())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if output.status.success() { Ok(printed) } else { Err(printed["msg"].as_str().unwrap_or_default().to_owned()) }
}

pub(crate) fn addresses(result: &serde_json::Value) -> Vec<(String, String)> {
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    let ips = result["ips"].as_array().cloned().unwrap_or_default();
    ips.iter().map(|ip| (text(&ip["address"]), text(&ip["gateway"]))).collect()
}

fn theirs(plugin: &Path, dir: &Path, ranges: &str, step: &Step) -> Outcome {
    match step {
        Add(id, ifname, requested) => run(plugin, "ADD", &owner(id, ifname), "", &config(dir, ranges, requested)).map(|r| addresses(&r)),
        Del(id, ifname) => run(plugin, "DEL", &owner(id, ifname), "", &config(dir, ranges, &[])).map(|_| Vec::new()),
    }
}

fn ours(scratch: &Scratch, sets: &[RangeSet], step: &Step) -> Outcome {
    match step {
        Add(id, ifname, requested) => {
            let requested: Vec<_> = requested.iter().map(|r| ip(r)).collect();
            let got = scratch.store().allocate(&owner(id, ifname), sets, &requested).map_err(|e| e.to_string())?;
            Ok(got.iter().map(|a| (a.address.to_string(), a.gateway.unwrap().to_string())).collect())
        }
        Del(id, ifname) => scratch.store().release(&owner(id, ifname)).map(|_| Vec::new()).map_err(|e| e.to_string()),
    }
}

/// Runs the steps through the reference plugin, through ours, and through both in turns.
fn compare(name: &str, ranges: &str, seed: &[(&str, &str)], steps: &[Step]) {
    compare_with(0, name, ranges, seed, steps);
    compare_with(30, name, ranges, seed, steps);
}

/// As above, among so many addresses that are in nobody's way.
fn compare_with(fillers: u32, name: &str, ranges: &str, seed: &[(&str, &str)], steps: &[Step]) {
    let plugin = peer("host-local");
    let (reference, own, mixed) = (Scratch::new(), Scratch::new(), Scratch::new());
    for scratch in [&reference, &own, &mixed] {
        let dir = scratch.0.join("net");
        scratch.fill(fillers);
        seed.iter().for_each(|(file, content)| fs::write(dir.join(file), content).unwrap());
    }
    let sets = sets(ranges);
    for (i, step) in steps.iter().enumerate() {
        let at = format!("{name}, step {i}: {step:?}");
        let expected = theirs(&plugin, &reference.0, ranges, step);
        let got = ours(&own, &sets, step);
        let turn = if i % 2 == 0 { ours(&mixed, &sets, step) } else { theirs(&plugin, &mixed.0, ranges, step) };
        for got in [got, turn] {
            match (&expected, &got) {
                (Ok(a), Ok(b)) => assert_eq!(a, b, "{at}"),
                (Err(_), Err(_)) => {}
                _ => panic!("{at}: reference {expected:?}, ours {got:?}"),
            }
        }
        let net = |scratch: &Scratch| tree(&scratch.0.join("net"));
        assert_eq!(net(&reference), net(&own), "{at}");
        assert_eq!(net(&reference), net(&mixed), "{at}");
    }
    let beside = |scratch: &Scratch| tree(&scratch.0).into_keys().filter(|name| !name.starts_with("net")).collect::<Vec<_>>();
    let index = if fillers == 0 { vec![] } else { vec![".net.index"] };
    assert_eq!((beside(&reference), beside(&own)), (vec![], index.iter().map(ToString::to_string).collect()), "{name}");
}

fn add(id: &'static str) -> Step {
    Add(id, "eth0", vec![])
}

fn want(id: &'static str, requested: &[&'static str]) -> Step {
    Add(id, "eth0", requested.to_vec())
}

fn del(id: &'static str) -> Step {
    Del(id, "eth0")
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn round_robin_exhaustion_and_wrap_around() {
    let fill = [add("a"), add("b"), add("c"), add("d"), add("e"), add("f"), add("g")];
    let steps = [&fill[..], &[del("c"), del("c"), add("g"), del("a"), del("e"), add("h"), add("i"), add("j"), del("x")]].concat();
    compare("v4", r#"[[{"subnet":"10.1.0.0/29"}]]"#, &[], &steps);
    compare("v6", r#"[[{"subnet":"fd00:1::/125"}]]"#, &[], &steps);
    let one = [add("a"), add("b"), del("a"), add("b"), del("b"), add("a")];
    compare("one", r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangeEnd":"10.1.0.9"}]]"#, &[], &one);
    compare("none", r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"}]]"#, &[], &one);
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn ranges_and_sets() {
    let steps = [add("a"), add("b"), del("a"), add("c"), del("b"), add("d"), add("e"), del("c"), add("a"), add("f"), del("d"), del("e")];
    compare("dual stack", r#"[[{"subnet":"10.1.0.0/28"}],[{"subnet":"fd00::/64"}]]"#, &[], &steps);
    let two = r#"[[{"subnet":"10.1.0.0/30"},{"subnet":"10.2.0.0/29","gateway":"10.2.0.3"},{"subnet":"10.3.0.0/24","rangeStart":"10.3.0.250","rangeEnd":"10.3.0.255"}]]"#;
    compare("ranges of a set", two, &[], &steps);
    let three = r#"[[{"subnet":"10.1.0.0/24","rangeEnd":"10.1.0.20","gateway":"10.1.0.254"}],[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.30","gateway":"10.1.0.254"}],[{"subnet":"fd00::/120","rangeStart":"fd00::fe","gateway":"fe80::1"},{"subnet":"fd01::/112"}]]"#;
    compare("sets of one subnet", three, &[], &steps);
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn v6_is_named_alike() {
    let steps = [add("a"), add("b"), add("c"), add("d"), del("b"), want("e", &["2001:db8:0:1:0:0:0:fff0"]), add("f")];
    for start in ["2001:db8::", "2001:db8:0:1::fff0", "1:0:0:2:0:0:0:3", "1:0:0:0:2:0:0:3", "1:2:3:4:5:6:0:8", "::1:2:3", "64:ff9b::a00:1"]
    {
        let ranges = format!(r#"[[{{"subnet":"::/1","rangeStart":"{start}"}}]]"#);
        compare(start, &ranges, &[], &steps);
    }
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn requested_addresses() {
    let v4 = r#"[[{"subnet":"10.1.0.0/28"}]]"#;
    let steps = [
        want("a", &["10.1.0.9"]),
        add("b"),
        want("c", &["10.1.0.9"]),
        want("c", &["10.1.0.1"]),
        want("c", &["10.1.0.3", "10.1.0.3"]),
        want("d", &["10.1.0.14"]),
        add("e"),
        want("a", &["10.1.0.9"]),
        del("a"),
        want("f", &["10.1.0.9"]),
    ];
    compare("v4", v4, &[], &steps);
    let both = r#"[[{"subnet":"10.1.0.0/28"}],[{"subnet":"fd00::/64"}]]"#;
    let steps = [want("a", &["10.1.0.9", "fd00::9"]), want("b", &["fd00::7"]), add("c"), want("d", &["fd00:0::b", "10.1.0.11"]), del("a")];
    compare("dual stack", both, &[], &steps);
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn owners() {
    let other = |id| Add(id, "net1", vec![]);
    let steps = [add("a"), add("a"), other("a"), Del("a", "net1"), other("a"), del("a"), del("a"), add("a"), Del("a", "net2")];
    compare("owners", r#"[[{"subnet":"10.1.0.0/28"}]]"#, &[], &steps);
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn what_was_there_before() {
    let seed = [
        ("10.1.0.2", "old"),
        ("10.1.0.3", "old"),
        ("10.1.0.4", "padded\r\neth0\n"),
        ("10.1.0.5", ""),
        ("10.1.0.6", "\0\0\0"),
        ("192.0.2.1", "elsewhere\r\neth0"),
        ("10.1.0.7.bak", "somebody"),
        ("last_reserved_ip.0", "10.1.0.12"),
    ];
    let steps = [
        add("a"),
        add("old"),
        add("padded"),
        add("elsewhere"),
        want("b", &["10.1.0.5"]),
        del("padded"),
        Del("old", "whatever"),
        del("elsewhere"),
        add("old"),
        del("old"),
        add("c"),
        add("d"),
    ];
    compare("seeded", r#"[[{"subnet":"10.1.0.0/28"}]]"#, &seed, &steps);
    for last in ["", "nonsense", "10.9.0.1", "10.1.0.1", "10.1.0.14", "10.1.0.15", "fd00::1"] {
        compare(last, r#"[[{"subnet":"10.1.0.0/28"}]]"#, &[("last_reserved_ip.0", last)], &[add("a"), add("b"), del("a"), add("c")]);
    }
}

#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn hundreds_of_random_calls() {
    const IDS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    const WANTED: [&str; 4] = ["10.1.0.3", "10.1.0.6", "10.2.0.5", "10.1.0.1"];
    let mut random = Lcg(7);
    let mut steps = vec![add("a")];
    for _ in 0..150 {
        let id = IDS[random.below(9) as usize];
        steps.push(match random.below(8) {
            0..4 => add(id),
            4 => want(id, &[WANTED[random.below(4) as usize]]),
            _ => del(id),
        });
    }
    compare("random", r#"[[{"subnet":"10.1.0.0/29"},{"subnet":"10.2.0.0/29","rangeStart":"10.2.0.4"}]]"#, &[], &steps);
}

/// A refusal leaves `last_reserved_ip` alone here, where the reference plugin moves it on; and takes back only what this
/// call took, where the reference plugin frees all that the owner holds.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn a_refusal_of_the_second_set_leaves_no_trace() {
    let ranges = r#"[[{"subnet":"10.1.0.0/28"}],[{"subnet":"fd00::/126","rangeStart":"fd00::2","rangeEnd":"fd00::2"}]]"#;
    let scratch = Scratch::new();
    let sets = sets(ranges);
    ours(&scratch, &sets, &add("a")).unwrap();
    let before = tree(&scratch.0);
    let message = ours(&scratch, &sets, &add("b")).unwrap_err();
    assert!(message.contains("no IP addresses available in range set: fd00::2-fd00::2 (set 1 of network"), "{message}");
    for refused in [want("a", &["10.1.0.7"]), want("c", &["10.2.0.1"]), want("c", &["fd00::1"]), want("c", &["10.1.0.5", "10.1.0.6"])] {
        assert!(ours(&scratch, &sets, &refused).is_err(), "{refused:?}");
        let other = Scratch::new();
        theirs(&peer("host-local"), &other.0, ranges, &add("a")).unwrap();
        assert!(theirs(&peer("host-local"), &other.0, ranges, &refused).is_err(), "{refused:?}");
    }
    assert_eq!(tree(&scratch.0), before);
}

#[test]
fn the_gateway_of_no_range_is_handed_out() {
    let sets = sets(
        r#"[[{"subnet":"10.1.0.0/24","rangeEnd":"10.1.0.4","gateway":"10.1.0.200"}],[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.200"}]]"#,
    );
    let scratch = Scratch::new();
    let got = ours(&scratch, &sets, &add("a")).unwrap();
    assert_eq!(got[0], ("10.1.0.2/24".into(), "10.1.0.200".into()));
    assert_eq!(got[1], ("10.1.0.201/24".into(), "10.1.0.1".into()));
    assert!(ours(&scratch, &sets, &want("b", &["10.1.0.1"])).unwrap_err().contains("is subnet's gateway"));
}

/// `static` decides the same addresses from the same sources.
#[test]
#[ignore = "needs the reference plugins: cargo xtask test parity"]
fn static_addresses_are_those_of_the_reference_plugin() {
    use netloom_ipam::{RawAddress, StaticSources, static_addresses};
    let plugin = peer("static");
    let configured = r#"[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}]"#;
    for (addresses_json, args, args_ips, runtime_ips) in [
        (configured, "", r"[]", r"[]"),
        ("[]", "", "[]", "[]"),
        (configured, "IP=10.2.0.5/24, fd02::5/64;GATEWAY=10.2.0.1,10.1.0.9", "[]", "[]"),
        (configured, "GATEWAY=10.1.0.9", "[]", "[]"),
        (configured, "IP=10.2.0.5/24;GATEWAY=10.2.0.1", r#"["10.3.0.5/24"]"#, "[]"),
        (configured, "", r#"["10.3.0.5/24"]"#, r#"["10.4.0.5/24","fd04::5/64"]"#),
        (r#"[{"address":"nonsense"}]"#, "", "[]", r#"["10.4.0.5/24"]"#),
        (r#"[{"address":"10.1.0.5"}]"#, "", "[]", "[]"),
        (r#"[{"address":"010.1.0.5/24"}]"#, "", "[]", "[]"),
        (configured, "IP=10.2.0.5", "[]", r#"["10.4.0.5/24"]"#),
        (configured, "GATEWAY=x", "[]", "[]"),
        (configured, "", r#"["10.3.0.5"]"#, "[]"),
    ] {
        let config = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","ipam":{{"type":"static","addresses":{addresses_json}}},"args":{{"cni":{{"ips":{args_ips}}}}},"runtimeConfig":{{"ips":{runtime_ips}}}}}"#
        );
        let theirs = run(&plugin, "ADD", &owner("a", "eth0"), args, &config).map(|r| addresses(&r));
        let raw: Vec<RawAddress> = serde_json::from_str(addresses_json).unwrap();
        let list = |json: &str| serde_json::from_str::<Vec<String>>(json).unwrap();
        let (args_ips, runtime_ips, args) = (list(args_ips), list(runtime_ips), cni::CniArgs::parse(args).unwrap());
        let got = static_addresses(StaticSources { addresses: &raw, args: &args, args_ips: &args_ips, runtime_ips: &runtime_ips });
        match (theirs, got) {
            (Ok(theirs), Ok(got)) => {
                let got: Vec<(String, String)> =
                    got.iter().map(|a| (a.address.to_string(), a.gateway.map(|g| g.to_string()).unwrap_or_default())).collect();
                assert_eq!(theirs, got, "{config}");
            }
            (Err(_), Err(_)) => {}
            (theirs, got) => panic!("{config}: reference {theirs:?}, ours {got:?}"),
        }
    }
}
