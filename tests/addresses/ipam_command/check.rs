//! What the journal says, and what runs.

use serde_json::{Value, json};

use crate::ipam_command::{JOURNAL, Scene, text};

fn kinds(told: &Value) -> Vec<&str> {
    told["findings"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect()
}

/// Looks, of which the second comes at once.
fn check(scene: &Scene, args: &[&str]) -> (i32, Value) {
    scene.told(&[&["check", "--apart", "0", "--older-than", "0"], args].concat())
}

#[test]
fn all_is_well() {
    let scene = Scene::new();
    scene.add("c1");
    scene.cached_add("c2");
    let output = scene.ipam(&["check", "--older-than", "0"]);
    assert!(output.status.success() && text(&output.stdout).starts_with("no problems found: 2 attachments with addresses"), "{output:?}");
    let (code, told) = check(&scene, &[]);
    assert_eq!((code, &told["leases"], &told["findings"], &told["unseen"]), (0, &json!(2), &json!([]), &json!([])));
}

/// Containers that have gone without a DEL: what they had is found, told, and given back when it is asked for.
#[test]
fn attachments_that_are_gone() {
    let scene = Scene::new();
    scene.add("stays");
    let (bare, cached) = (scene.add("bare"), scene.cached_add("cached"));
    ["bare", "cached"].iter().for_each(|c| drop(scene.host.sh("", &format!("ip netns del {c}"))));
    scene.host.until("the namespaces are gone", || check(&scene, &[]).1["findings"].as_array().unwrap().len() == 2);
    let (code, told) = check(&scene, &[]);
    assert_eq!((code, kinds(&told)), (3, vec!["gone", "gone"]));
    assert_eq!(told["findings"][0]["addresses"], json!(bare));
    assert_eq!((&told["findings"][0]["pod"], &told["findings"][0]["attachment"]), (&json!("shop/web-bare"), &json!("net/bare/eth0")));
    assert_eq!((&told["findings"][1]["addresses"], &told["findings"][1]["what"]), (&json!(cached), &json!("its namespace is gone")));
    // What was given a moment ago may be on its way.
    assert_eq!(scene.told(&["check"]).0, 0);
    // Nobody can be asked.
    let output = scene.ipam(&["check", "--repair", "--apart", "0", "--older-than", "0"]);
    assert!(
        output.status.code() == Some(1)
            && text(&output.stderr).contains(
                "Confirm with --yes, because standard input is not a \
        terminal"
            ),
        "{output:?}"
    );
    assert_eq!(scene.told(&["status"]).1[0]["held"], 3);
    let output = scene.ipam(&["check", "--repair", "--yes", "--apart", "0", "--older-than", "0"]);
    assert!(output.status.success() && text(&output.stdout).contains("freed 4 addresses"), "{output:?}");
    let (_, status) = scene.told(&["status"]);
    assert_eq!((&status[0]["held"], &status[0]["cooling"], &status[1]["held"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(check(&scene, &[]).0, 0);
}

/// Somebody has set an address by hand that the pool may give to others, has one that was given to another, or kept one.
#[test]
fn addresses_that_nobody_was_given() {
    let scene = Scene::new();
    let given = scene.add("c1");
    scene.host.container("thief");
    let set = |address: &str, verb: &str| drop(scene.host.sh("thief", &format!("ip addr {verb} {address} dev lo")));
    let free = format!("{}.77", scene.net);
    for (address, kind) in [(&free, "unknown"), (&given[0], "twice"), (&given[1], "twice")] {
        set(address, "add");
        let (code, told) = check(&scene, &[]);
        assert_eq!((code, kinds(&told), &told["findings"][0]["addresses"]), (3, vec![kind], &json!([address])), "{told}");
        let places = told["findings"][0]["places"].as_array().unwrap();
        assert_eq!(places.len(), if kind == "twice" { 2 } else { 1 }, "{told}");
        set(address, "del");
    }
    // What is never handed out may be anybody's, as the bridge has the gateway.
    set(&format!("{}.200", scene.net), "add");
    assert_eq!(check(&scene, &[]).0, 0);
    // Nothing of it is mended here: whose it is nobody knows.
    set(&free, "add");
    let output = scene.ipam(&["check", "--repair", "--yes", "--apart", "0"]);
    assert!(output.status.code() == Some(3) && text(&output.stdout).starts_with("unknown   "), "{output:?}");
}

/// A pool has become smaller under who has an address: that is told, and is as it should be.
#[test]
fn addresses_that_have_left_their_pool() {
    let scene = Scene::new();
    let given = scene.add("c1");
    let mut spec = scene.dual();
    spec["ipv4"] = json!({"entries": [{"cidr": "198.18.77.0/24"}]});
    scene.grant(&spec);
    let (code, told) = check(&scene, &[]);
    assert_eq!((code, kinds(&told), &told["findings"][0]["addresses"]), (0, vec!["outside"], &json!([given[0]])), "{told}");
    // It is still its holder's alone.
    scene.host.container("thief");
    scene.host.sh("thief", &format!("ip addr add {} dev lo", given[0]));
    let (code, told) = check(&scene, &[]);
    assert_eq!((code, kinds(&told)), (3, vec!["twice", "outside"]), "{told}");
    let twice = &told["findings"][0];
    assert_eq!((&twice["addresses"], &twice["pods"]), (&json!([given[0]]), &json!(["shop/web-c1"])), "{told}");
}

/// Two networks may have the same addresses, and each gives its own.
#[test]
fn the_same_address_in_two_networks() {
    let scene = Scene::new();
    let given = scene.add("c1");
    let pool = json!({"kind": "IPPool", "spec": {"ipv4": {"entries": [{"ip": given[0]}]}}});
    scene.host.write(&format!("{}/other.json", crate::ipam_command::POOLS), &pool.to_string());
    scene.host.container("c2");
    let config = json!({"cniVersion": "1.1.0", "name": "othernet", "type": "macvlan", "master": "br0",
        "ipam": {"type": "pool", "pool": "other", "pools": crate::ipam_command::POOLS}});
    let other = scene.host.cni(netloom_tests::plugin_dir()).at("c2", "eth0").call("ADD", "macvlan", config.to_string());
    assert_eq!(netloom_tests::ips(&other.result()), given[..1]);
    assert_eq!(check(&scene, &[]).0, 0);
    assert_eq!(scene.told(&["trace", &given[0]]).1.as_array().unwrap().len(), 2);
}

/// A record that cannot be read may tell of anything: nothing is given back.
#[test]
fn nothing_is_given_back_on_missing_information() {
    let scene = Scene::new();
    scene.add("c1");
    scene.host.sh("", "ip netns del c1");
    scene.host.write("/var/lib/netloom/sandboxes/other.json", "{");
    scene.host.until("the namespace is gone", || kinds(&check(&scene, &[]).1) == ["gone"]);
    let output = scene.ipam(&["check", "--repair", "--yes", "--apart", "0", "--older-than", "0"]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("nothing was freed"), "{output:?}");
    assert_eq!(scene.told(&["status"]).1[0]["held"], 1);
    assert!(!scene.host.list(JOURNAL).is_empty());
}

/// A directory that was named and is not there: nothing can be told of it.
#[test]
fn a_directory_that_does_not_exist() {
    let scene = Scene::new();
    for args in [vec!["check"], vec!["trace", "10.0.0.1"], vec!["status"], vec!["pools"], vec!["check", "--rebuild", "--yes"]] {
        let mut command = scene.host.command("", netloom_tests::netloom());
        let output = command.args(["ipam", "--dir", "/nonexistent"]).args(&args).output().unwrap();
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains("/nonexistent does not exist"), "{args:?}: {output:?}");
    }
    // That no ADD has made the usual one yet is no error.
    let output = scene.ipam(&["check", "--apart", "0"]);
    assert!(output.status.success(), "{output:?}");
}
