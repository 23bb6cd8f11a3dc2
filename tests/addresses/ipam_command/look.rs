//! What is told of pools that are used: while nobody, somebody or everybody hands out addresses.

use std::sync::atomic::{AtomicBool, Ordering};

use netloom_tests::{netloom, plugin_dir};
use serde_json::json;

use crate::ipam_command::{JOURNAL, POOLS, Scene, text};

#[test]
fn nothing_at_all_is_no_failure() {
    let scene = Scene::new();
    std::fs::remove_file(scene.host.path(format!("{POOLS}/lab.json"))).unwrap();
    for command in ["status", "pools"] {
        let output = scene.ipam(&[command]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&output.stdout), format!("this host has no pool: there is no pool file in {POOLS}, and no journal in {JOURNAL}\n"));
        assert_eq!(scene.told(&[command]), (0, json!([])));
    }
    assert!(scene.host.list(JOURNAL).is_empty(), "who looks makes nothing");
}

#[test]
fn figures_are_what_was_given() {
    let scene = Scene::new();
    // Nobody was given anything yet, and all is told: /24 without its edge, its gateway and its upper half.
    let line = |family: &str, capacity: &str, held: u64, cooling: u64, free: &str| {
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n < 1 << 53).map_or_else(|| json!(text), |n| json!(n));
        json!({"pool": "lab", "family": family, "origin": "file", "capacity": number(capacity), "held": held, "cooling": cooling,
            "outside": 0, "quarantined": 0, "free": number(free), "reserved": 0, "frozen": 0})
    };
    let all = (1_u128 << 64) - 3;
    assert_eq!(
        scene.told(&["status"]),
        (0, json!([line("IPv4", "126", 0, 0, "126"), line("IPv6", &all.to_string(), 0, 0, &all.to_string())]))
    );
    ["c1", "c2", "c3"].iter().for_each(|c| drop(scene.add(c)));
    scene.del("c2");
    let told = json!([line("IPv4", "126", 2, 1, "123"), line("IPv6", &all.to_string(), 2, 1, &(all - 3).to_string())]);
    assert_eq!(scene.told(&["status", "lab"]), (0, told));
    let output = scene.ipam(&["status"]);
    let lines: Vec<Vec<String>> = text(&output.stdout).lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect();
    assert_eq!(lines[0], ["POOL", "FAMILY", "CAPACITY", "HELD", "COOLING", "FREE", "USED"]);
    assert_eq!(lines[1][..7], ["lab", "IPv4", "126", "2", "1", "123", "2%"].map(str::to_owned));
    assert_eq!(lines[2][..6], ["IPv6", "~2^64", "2", "1", "~2^64", "<1%"].map(str::to_owned));
    // Fewer addresses than are held: one of them has left, nothing is free, and that is worth a look.
    let mut spec = scene.dual();
    spec["ipv4"] = json!({"entries": [{"ip": format!("{}.2", scene.net)}]});
    scene.grant(&spec);
    let (code, told) = scene.told(&["status"]);
    let figures = ["capacity", "held", "outside", "free"].map(|key| told[0][key].as_u64().unwrap());
    assert_eq!((code, figures), (3, [1, 1, 1, 0]), "{told}");
    let unknown = scene.ipam(&["status", "other"]);
    assert_eq!(
        (unknown.status.code(), text(&unknown.stderr)),
        (Some(1), "error: there is no pool \"other\" on this host; it has lab\n".to_owned())
    );
}

#[test]
fn what_a_pool_is() {
    let scene = Scene::new();
    scene.add("c1");
    let (code, pools) = scene.told(&["pools"]);
    let Scene { net, net6, .. } = &scene;
    assert_eq!((code, &pools[0]["file"], &pools[0]["cooldownSeconds"]), (0, &json!(format!("{POOLS}/lab.json")), &json!(3000)));
    let exclude: Vec<&str> = pools[0]["exclude"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(exclude[..3], [format!("{net}.128/25"), format!("{net}.0"), format!("{net}.255")]);
    assert_eq!(pools[0]["families"][0]["blocks"], json!([{"addresses": format!("{net}.0/24"), "epoch": 1, "state": "active"}]));
    assert_eq!((&pools[0]["families"][1]["gateway"], &pools[0]["families"][1]["prefixLength"]), (&json!(format!("{net6}:1")), &json!(64)));
    // Its file is gone: it is told all the same, as who has an address keeps it.
    std::fs::remove_file(scene.host.path(format!("{POOLS}/lab.json"))).unwrap();
    let (code, pools) = scene.told(&["pools"]);
    assert_eq!((code, &pools[0]["origin"]), (0, &json!("gone")));
    // A file that is wrong is told beside the others.
    scene.grant(&scene.dual());
    scene.host.write(&format!("{POOLS}/bad.json"), "{");
    let output = scene.ipam(&["pools"]);
    assert!(output.status.code() == Some(3) && text(&output.stdout).starts_with("lab\n"), "{output:?}");
    assert!(text(&output.stderr).starts_with(&format!("error: {POOLS}/bad.json: EOF")), "{output:?}");
    for command in ["map", "status"] {
        let output = scene.ipam(&[command, "bad"]);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains("bad.json: EOF"), "{output:?}");
    }
}

#[test]
fn who_has_an_address_and_who_had_it() {
    let scene = Scene::new();
    let first = scene.add("c1");
    for address in &first {
        let (code, told) = scene.told(&["trace", address]);
        let history = &told[0]["history"];
        assert_eq!((code, &told[0]["state"], history.as_array().unwrap().len()), (0, &json!("held"), 1), "{told}");
        assert_eq!(
            (&history[0]["pod"], &history[0]["container"], &history[0]["ifname"]),
            (&json!("shop/web-c1"), &json!("c1"), &json!("eth0"))
        );
        assert!(history[0]["since"].as_str().unwrap().ends_with('Z') && history[0].get("until").is_none(), "{told}");
    }
    scene.del("c1");
    let (_, told) = scene.told(&["trace", &first[0]]);
    assert_eq!((&told[0]["state"], &told[0]["history"][0]["pod"]), (&json!("cooling"), &json!("shop/web-c1")));
    assert!(told[0]["history"][0]["until"].is_string(), "{told}");
    // The pod comes back and asks for what it had.
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "pool", "ipam": Scene::bridge()["ipam"],
        "args": {"cni": {"ips": [&first[0]]}}});
    let again = scene.host.cni(netloom_tests::plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", "second");
    again.set("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-c1").call("ADD", "pool", config.to_string()).result();
    let output = text(&scene.ipam(&["trace", &first[0]]).stdout);
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    assert!(
        lines[2].starts_with("is         held") && lines[3].contains("by         pod shop/web-c1, eth0 of container second (net), since 2"),
        "{output}"
    );
    assert!(lines[4].contains("before     pod shop/web-c1, eth0 of container c1 (net), from 2") && lines.len() == 5, "{output}");
    for (address, state) in
        [(format!("{}.1", scene.net), "gateway"), (format!("{}.200", scene.net), "excluded"), (format!("{}.99", scene.net), "free")]
    {
        let (code, told) = scene.told(&["trace", &address]);
        assert_eq!((code, &told[0]["state"]), (0, &json!(state)));
    }
    assert_eq!(scene.told(&["trace", "192.0.2.1"]), (3, json!([])));
    assert_eq!(scene.ipam(&["trace", "nonsense"]).status.code(), Some(2));
}

/// A pool that moves takes nothing of what it was into its figures: who has that keeps it.
#[test]
fn a_pool_that_has_moved() {
    let scene = Scene::new();
    let held = ["c1", "c2", "c3"].map(|c| scene.add(c).remove(0));
    let mut spec = scene.dual();
    spec["ipv4"] = json!({"entries": [{"range": "198.18.7.130-198.18.7.135"}]});
    spec["exclude"] = json!([]);
    scene.grant(&spec);
    let (code, told) = scene.told(&["status"]);
    let figures = ["capacity", "held", "outside", "free"].map(|key| told[0][key].as_u64().unwrap());
    assert_eq!((code, figures), (0, [6, 0, 3, 6]), "{told}");
    let output = text(&scene.ipam(&["status"]).stdout);
    let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["POOL", "FAMILY", "CAPACITY", "HELD", "COOLING", "FREE", "OUTSIDE", "USED"]);
    assert_eq!(lines[1][..8], ["lab", "IPv4", "6", "0", "0", "6", "3", "0%"]);
    assert!(!lines[1][8].contains(['█', '#']), "{output}");
    let map = text(&scene.ipam(&["map", "lab"]).stdout);
    assert!(map.contains("IPv4: 0 held, 0 cooling down, 6 free of 6; 3 more held outside the pool\n"), "{map}");
    let all = text(&scene.ipam(&["status", "--all-addresses"]).stdout);
    assert!(
        all.starts_with("IPAM:   IPv4: 0/6 allocated (+3 outside), ") && all.contains(&format!("  {} (shop/web-c1)\n", held[0])),
        "{all}"
    );
    let (code, told) = scene.told(&["status", "--all-addresses"]);
    let v4 = json!({"family": "IPv4", "allocated": 0, "total": 6, "outside": 3});
    assert_eq!((code, &told[0]["families"][0]), (0, &v4), "{told}");
    assert_eq!(told[0]["addresses"][0], json!({"address": held[0], "owner": "shop/web-c1"}), "{told}");
    let trace = text(&scene.ipam(&["trace", &held[0]]).stdout);
    assert!(trace.contains("is         held; its block is withdrawn from the pool"), "{trace}");
}

/// Two pools of a network have an address, and one of them gave it.
#[test]
fn an_address_of_two_pools() {
    let scene = Scene::new();
    let mut other = json!({"kind": "IPPool", "spec": scene.dual()});
    other["spec"]["network"] = json!("lab");
    scene.host.write(&format!("{POOLS}/also.json"), &other.to_string());
    let held = scene.add("c1").remove(0);
    let output = text(&scene.ipam(&["trace", &held]).stdout);
    assert!(output.contains("held as an address of pool lab, by pod shop/web-c1, eth0 of container c1"), "{output}");
    assert!(output.matches("by         pod shop/web-c1").count() == 1, "{output}");
}

/// A range of a configuration, on a host without a cluster.
#[test]
fn a_range_of_whereabouts() {
    let scene = Scene::new();
    std::fs::remove_file(scene.host.path(format!("{POOLS}/lab.json"))).unwrap();
    let ipam = json!({"type": "whereabouts", "range": format!("{}.0/30", scene.net), "addWait": 0});
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "whereabouts", "ipam": ipam});
    scene.host.container("c1");
    let add = |c: &str| {
        let cni = scene.host.cni(plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", c);
        netloom_tests::ips(&cni.call("ADD", "whereabouts", config.to_string()).result()).remove(0)
    };
    let held = add("one");
    assert_eq!(scene.ipam(&["status"]).status.code(), Some(0));
    add("two");
    let (code, told) = scene.told(&["status"]);
    assert_eq!((code, &told[0]["origin"], &told[0]["free"]), (3, &json!("configuration"), &json!(0)), "{told}");
    let pools = text(&scene.ipam(&["pools"]).stdout);
    assert!(pools.contains("the configurations of networks, a range of whereabouts") && !pools.contains("gone"), "{pools}");
    let cni = scene.host.cni(plugin_dir()).at("c1", "eth0").set("CNI_CONTAINERID", "one");
    cni.call("DEL", "whereabouts", config.to_string()).silent();
    assert_eq!(scene.told(&["trace", &held]).1[0]["state"], json!("free"));
}

/// What is said once is enough.
#[test]
fn a_journal_that_cannot_be_read() {
    let scene = Scene::new();
    scene.host.write(JOURNAL, "no directory");
    let output = text(&scene.ipam(&["status"]).stderr);
    assert!(output.starts_with("error: ") && output.matches("Not a directory").count() == 1, "{output}");
}

/// Without any cluster, it says what is missing.
#[test]
fn no_cluster_at_all() {
    let scene = Scene::new();
    for args in [["nodes"].as_slice(), &["status", "--cluster"], &["import", "whereabouts"]] {
        let mut command = scene.command(netloom(), args);
        command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").env("HOME", "/run");
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("set --kubeconfig or $KUBECONFIG; there is no ~/.kube/config"),
            "{output:?}"
        );
    }
}

/// The machine was started anew: nobody holds anything, and who held it is told.
#[test]
fn after_a_restart_of_the_machine() {
    let scene = Scene::new();
    let address = scene.add("c1").remove(0);
    scene.host.write("/run/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
    scene.host.sh("", "mount --bind /run/boot_id /proc/sys/kernel/random/boot_id");
    let (_, status) = scene.told(&["status"]);
    assert_eq!((&status[0]["held"], &status[0]["cooling"]), (&json!(0), &json!(1)));
    let (_, told) = scene.told(&["trace", &address]);
    assert_eq!((&told[0]["state"], told[0]["history"][0].get("since")), (&json!("cooling"), None), "{told}");
    let output = text(&scene.ipam(&["trace", &address]).stdout);
    assert!(output.contains("from before the machine's last start until the machine's last start"), "{output}");
}

/// Whoever hands out addresses does not wait for who looks, whose figures are those of a moment in which they were so.
#[test]
fn while_others_hand_out_addresses() {
    let scene = Scene::new();
    let mut spec = scene.dual();
    spec["reuse"] = json!({"cooldownSeconds": 0});
    scene.grant(&spec);
    ["a", "b"].iter().for_each(|c| scene.host.container(c));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for container in ["a", "b"] {
            let (scene, stop) = (&scene, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    scene.call("ADD", container).result();
                    scene.del(container);
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..20 {
                let (code, told) = scene.told(&["status"]);
                let held = told[0]["held"].as_u64().unwrap();
                assert!(code == 0 && held <= 2 && told[0]["held"] == told[1]["held"], "{told}");
                assert_eq!(told[0]["free"], json!(126 - held));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    assert_eq!(scene.told(&["status"]).1[0]["held"], 0);
}

/// Somebody has the journal for as long as they like: who looks does not ask them.
#[test]
fn a_journal_that_somebody_has() {
    let scene = Scene::new();
    scene.add("c1");
    let lock = std::fs::File::open(scene.host.path(format!("{JOURNAL}/lock"))).unwrap();
    lock.lock().unwrap();
    assert_eq!(scene.told(&["status"]).1[0]["held"], 1);
    assert_eq!(scene.told(&["check"]).0, 0);
    drop(lock);
}

/// As many signs as there are addresses, in lines that a terminal shows whole, and the same as a picture.
#[test]
fn a_pool_is_drawn() {
    let scene = Scene::new();
    let held: Vec<String> = ["c1", "c2", "c3"].iter().flat_map(|c| scene.add(c)).collect();
    scene.del("c2");
    let output = scene.ipam(&["map", "lab"]);
    let drawn = text(&output.stdout);
    // Legend and title apart: two of each family are held, one cools down, one is the gateway; of IPv4 half of all, and an edge of each
    // family, are never handed out.
    let signs: String = drawn.lines().filter(|l| l.starts_with("  10.") || l.starts_with("  fd00:")).collect();
    let count = |sign: char| signs.matches(sign).count();
    assert!(output.status.success() && drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
    assert_eq!((count('█'), count('▒'), count('g'), count('×')), (4, 2, 2, 130), "{drawn}");
    assert!(
        drawn.contains("more addresses that were never used") && drawn.ends_with("█ held  ▒ cooling down  · free  g gateway  × excluded\n"),
        "{drawn}"
    );
    let plain = text(
        &scene
            .host
            .command("", netloom())
            .args(["ipam", "--dir", JOURNAL, "--pools", POOLS, "map", "lab"])
            .env("LC_ALL", "C")
            .output()
            .unwrap()
            .stdout,
    );
    assert!(plain.is_ascii() && plain.matches('#').count() == 5, "{plain}");
    let svg = text(&scene.ipam(&["map", "lab", "--svg", "-"]).stdout);
    assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n") && svg.contains("<title id=\"title\">Pool lab</title>"), "{svg}");
    for address in [&held[0], &held[1], &held[4], &held[5]] {
        assert!(svg.contains(&format!("<title>{address}: pod shop/web-c")), "{address}");
    }
    assert!(svg.contains(&format!("<title>{}: pod shop/web-c2 has just released it</title>", held[2])));
    assert_eq!(svg.matches("<rect class=\"held\"").count(), 4 + 1, "and one in the legend");
    scene.host.sh("", "mkdir -p /var/lib/out");
    assert!(scene.ipam(&["map", "lab", "--svg", "/var/lib/out/lab.svg"]).status.success());
    assert_eq!(std::fs::read_to_string(scene.host.path("/var/lib/out/lab.svg")).unwrap(), svg);
    assert_eq!(scene.ipam(&["map", "other"]).status.code(), Some(1));
}

/// Help names the commands, and says when which exit code is returned.
#[test]
fn the_commands_are_documented() {
    let run = |args: &[&str]| text(&std::process::Command::new(netloom()).args(args).output().unwrap().stdout);
    let help = run(&["ipam", "--help"]);
    for command in ["status", "pools", "trace", "check", "map", "nodes"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
        assert!(run(&["ipam", command, "--help"]).contains("Exit status:\n  0  "), "{command}");
    }
}
