//! Journals that are damaged, and what is made of them.

use std::path::PathBuf;

use serde_json::json;

use crate::ipam_command::{JOURNAL, Scene, text};

fn log(scene: &Scene) -> PathBuf {
    let name = scene.host.list(JOURNAL).into_iter().rfind(|n| n.ends_with(".log")).unwrap();
    scene.host.path(format!("{JOURNAL}/{name}"))
}

fn damage(scene: &Scene) -> Vec<u8> {
    let mut bytes = std::fs::read(log(scene)).unwrap();
    let used = bytes.iter().rposition(|b| *b != 0).unwrap();
    bytes[used / 2] ^= 0x10;
    std::fs::write(log(scene), &bytes).unwrap();
    bytes
}

const REBUILD: &[&str] = &["check", "--rebuild", "--yes"];

/// Whoever runs keeps what it has, and nobody else gets it, whether a cached result tells of it or only its namespace.
#[test]
fn made_anew_from_what_runs() {
    let scene = Scene::new();
    let (cached, bare, gone) = (scene.cached_add("cached"), scene.add("bare"), scene.cached_add("gone"));
    scene.host.sh("", "ip netns del gone");
    scene.host.until("the namespace is gone", || scene.told(&["check", "--apart", "0", "--older-than", "0"]).0 == 3);
    let damaged = damage(&scene);
    for command in ["status", "pools", "check"] {
        let output = scene.ipam(&[command]);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains("is damaged at byte"), "{output:?}");
        assert!(text(&output.stderr).contains("check --rebuild"), "{output:?}");
    }
    assert!(scene.call("ADD", "bare").message().contains("check --rebuild"));
    // Nobody can be asked, and nothing has changed.
    assert_eq!(scene.ipam(&["check", "--rebuild"]).status.code(), Some(1));
    assert_eq!(std::fs::read(log(&scene)).unwrap(), damaged);
    let output = scene.ipam(REBUILD);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("rebuilt the journal with 1 attachment, and 2 addresses of unknown attachments"), "{output:?}");
    let kept = scene.host.list(JOURNAL).into_iter().find(|n| n.starts_with("damaged-")).unwrap();
    assert!(text(&output.stdout).contains(&kept));
    assert_eq!(std::fs::read(scene.host.path(format!("{JOURNAL}/{kept}/0000000000000000.log"))).unwrap(), damaged);
    // All that is to be had is given out: none of it is anybody's.
    let mut taken = Vec::new();
    scene.host.container("more");
    for n in 0.. {
        let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "pool", "ipam": Scene::bridge()["ipam"]});
        let cni = scene.host.cni(netloom_tests::plugin_dir()).at("more", "eth0").set("CNI_CONTAINERID", &format!("more{n}"));
        let outcome = cni.call("ADD", "pool", config.to_string());
        if outcome.code != 0 {
            assert_eq!(outcome.error()["code"], 11, "{outcome:?}");
            break;
        }
        taken.extend(netloom_tests::ips(&outcome.result()));
    }
    // 126 addresses: two are held, and that of the container that is gone cools down.
    assert_eq!(taken.len(), 2 * 123);
    for address in cached.iter().chain(&bare).chain(&gone) {
        assert!(!taken.contains(address), "{address}");
    }
    // What is known is given back by its DEL; what nobody explains when no namespace has it any more.
    scene.cached_del("cached");
    assert_eq!(scene.told(&["trace", &cached[0]]).1[0]["state"], "cooling");
    scene.host.sh("", "ip netns del bare");
    let found = || scene.told(&["check", "--apart", "0", "--older-than", "0"]).1["findings"].to_string().contains("unexplained");
    scene.host.until("nobody has the unexplained address", found);
    assert!(scene.ipam(&["check", "--repair", "--yes", "--apart", "0", "--older-than", "0"]).status.success());
    assert_eq!(scene.told(&["trace", &bare[0]]).1[0]["state"], "cooling");
}

/// Killed at any step, the damage is told as before, and the next one makes it anew; or it is made anew.
#[test]
fn killed_and_repeated() {
    for (point, is_anew) in [("journal-anew-begun", false), ("journal-snapshot-written", false), ("journal-snapshot-named", true)] {
        let scene = Scene::new();
        let held = scene.cached_add("c1");
        let damaged = damage(&scene);
        let killed = scene.command(netloom_tests::netloom(), REBUILD).env("NETLOOM_CRASH_AT", point).output().unwrap();
        assert_eq!(killed.status.code(), None, "{point}: {killed:?}");
        assert!(is_anew || scene.call("ADD", "c1").message().contains("check --rebuild"), "{point}");
        let output = scene.ipam(REBUILD);
        assert!(output.status.success(), "{point}: {output:?}");
        assert_eq!(text(&output.stdout).contains("is not damaged"), is_anew, "{point}: {output:?}");
        assert_eq!(scene.told(&["trace", &held[0]]).1[0]["state"], "held", "{point}");
        assert!(scene.add("c2").iter().all(|address| !held.contains(address)), "{point}");
        let aside: Vec<String> = scene.host.list(JOURNAL).into_iter().filter(|name| name.starts_with("damaged-")).collect();
        let kept =
            |dir: &String| std::fs::read(scene.host.path(format!("{JOURNAL}/{dir}/0000000000000000.log"))).is_ok_and(|b| b == damaged);
        assert!(aside.iter().any(kept), "{point}: what was damaged is kept: {aside:?}");
        scene.cached_del("c1");
    }
}

/// What is in order is not made anew.
#[test]
fn a_journal_that_is_in_order() {
    let scene = Scene::new();
    scene.add("c1");
    let before = std::fs::read(log(&scene)).unwrap();
    let output = scene.ipam(REBUILD);
    assert!(output.status.success() && text(&output.stdout).contains("is not damaged: nothing to rebuild"), "{output:?}");
    assert_eq!(std::fs::read(log(&scene)).unwrap(), before);
}

/// To guess would be to give an address twice: what stands in the way is told, and the damage stays.
#[test]
fn not_on_missing_information() {
    let scene = Scene::new();
    scene.cached_add("c1");
    damage(&scene);
    let refused = |why: &str| {
        let output = scene.ipam(REBUILD);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains(why), "{output:?}");
        assert_ne!(scene.call("ADD", "c1").code, 0);
    };
    scene.host.write("/var/lib/netloom/sandboxes/other.json", "{");
    refused("not everything could be read");
    scene.host.sh("", "rm /var/lib/netloom/sandboxes/other.json");
    let pool = scene.host.path(format!("{}/lab.json", crate::ipam_command::POOLS));
    let whole = std::fs::read(&pool).unwrap();
    std::fs::write(&pool, "{").unwrap();
    refused("lab.json: EOF");
    std::fs::remove_file(&pool).unwrap();
    refused("/eth0 has addresses of pool \"lab\", which has no file here");
    std::fs::write(&pool, whole).unwrap();
    assert!(scene.ipam(REBUILD).status.success());
}

/// An agent that made the journal anew was killed: who has which address is known of some only.
#[test]
fn what_an_agent_has_not_made_anew() {
    let scene = Scene::new();
    let held = scene.cached_add("c1");
    scene.host.write(&format!("{JOURNAL}/recovering"), "");
    scene.host.container("c2");
    let message = scene.call("ADD", "c2").message();
    assert!(message.contains("start the agent again") && message.contains("check --rebuild"), "{message}");
    assert!(scene.ipam(REBUILD).status.success());
    assert!(!scene.host.list(JOURNAL).iter().any(|name| name == "recovering"));
    assert!(scene.add("c3").iter().all(|address| !held.contains(address)));
}

/// A pool that the journal had, and whose file is gone: whoever has an address of it, without a result that a runtime keeps, would lose it.
#[test]
fn not_without_a_pool_that_the_journal_had() {
    let scene = Scene::new();
    let held = scene.add("bare");
    scene.add("more");
    damage(&scene);
    let (file, away) = (
        scene.host.path(format!("{}/lab.json", crate::ipam_command::POOLS)),
        scene.host.path(format!("{}/away", crate::ipam_command::POOLS)),
    );
    std::fs::rename(&file, &away).unwrap();
    let output = scene.ipam(REBUILD);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("the journal had the pool \"lab\"") && text(&output.stderr).contains("restore the file"),
        "{output:?}"
    );
    assert_ne!(scene.call("ADD", "bare").code, 0, "the damage is told as before");
    std::fs::rename(&away, &file).unwrap();
    assert!(scene.ipam(REBUILD).status.success());
    assert!(scene.add("c2").iter().all(|address| !held.contains(address)));
    // Whoever knows that nothing has an address of it can say so.
    damage(&scene);
    std::fs::rename(&file, &away).unwrap();
    let output = scene.ipam(&[REBUILD, &["--without", "lab"]].concat());
    assert!(output.status.success(), "{output:?}");
}

/// Nothing can be read of it, and there is no pool: an empty one would know no better.
#[test]
fn not_where_nothing_is_known_at_all() {
    let scene = Scene::new();
    scene.add("bare");
    std::fs::remove_file(log(&scene)).unwrap();
    std::fs::rename(
        scene.host.path(format!("{}/lab.json", crate::ipam_command::POOLS)),
        scene.host.path(format!("{}/away", crate::ipam_command::POOLS)),
    )
    .unwrap();
    let output = scene.ipam(REBUILD);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("no pool is known"), "{output:?}");
}

/// A log that is cut, or gone, is damage: nobody gets an address that a container has.
#[test]
fn a_log_that_lost_its_end() {
    for size in [Some(0), Some(24), Some(683), None] {
        let scene = Scene::new();
        let held = scene.cached_add("c1");
        match size {
            Some(size) => std::fs::File::options().write(true).open(log(&scene)).unwrap().set_len(size).unwrap(),
            None => std::fs::remove_file(log(&scene)).unwrap(),
        }
        let output = scene.ipam(&["status"]);
        assert!(output.status.code() == Some(1) && text(&output.stderr).contains("its contents are lost"), "{size:?}: {output:?}");
        scene.host.container("c2");
        assert!(scene.call("ADD", "c2").message().contains("check --rebuild"), "{size:?}");
        let output = scene.ipam(REBUILD);
        assert!(output.status.success(), "{size:?}: {output:?}");
        assert!(netloom_tests::ips(&scene.call("ADD", "c2").result()).iter().all(|address| !held.contains(address)), "{size:?}");
        scene.cached_del("c1");
    }
}

/// What has left its pool stays with who has it, also when the pool gets it again.
#[test]
fn an_address_that_has_left_its_pool() {
    let scene = Scene::new();
    let held = scene.cached_add("c1");
    let whole = scene.dual();
    let mut less = whole.clone();
    less["ipv4"]["prefixLength"] = json!(24);
    less["ipv4"]["entries"] = json!([{"cidr": format!("{}.64/26", scene.net)}]);
    scene.grant(&less);
    scene.add("c2");
    damage(&scene);
    assert!(scene.ipam(REBUILD).status.success());
    scene.grant(&whole);
    scene.add("c3");
    assert_eq!(scene.told(&["trace", &held[0]]).1[0]["state"], "held");
    scene.cached_del("c1");
}
