//! A chain of executables, each a script that notes how it was called: order, what it was given, what follows a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cni::{AttachmentId, CniArgs, CniError, Code, NetworkList};
use linux::Netns;
use netloom_chain::{Cache, Chain, Runtime};
use plugin::{Dirs, Finder, Host, Prefer};

/// A directory of plugins, a cache and a namespace of the test's own.
struct World {
    dir: PathBuf,
    netns: PathBuf,
}

/// Notes verb and name, then does what the test wants of it.
const NOTE: &str = "#!/bin/sh\nconfig=$(cat)\ndir=$(dirname \"$0\")\necho \"$CNI_COMMAND $(basename \"$0\")\" >>\"$dir/calls\"\n\
    echo \"$config\" >\"$dir/$(basename \"$0\").$CNI_COMMAND\"\n";
const RESULT: &str = "[ \"$CNI_COMMAND\" != ADD ] || echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.0.0.NUMBER/24\"}]}'\n";

impl World {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("nlch-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).unwrap();
        let netns = Path::new("/run/netns").join(&name);
        Netns::create(&netns).unwrap();
        World { dir, netns }
    }

    fn plugin(&self, name: &str, rest: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.dir.join(name);
        std::fs::write(&path, format!("{NOTE}{rest}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn chain(&self) -> Chain {
        let env = std::env::vars_os().collect();
        Chain::new(Finder::new(&[], vec![self.dir.clone()], Prefer::Path, env), Some(Cache::new(&self.dir.join("cache"))))
    }

    fn runtime(&self, capability_args: &str) -> Runtime {
        Runtime {
            container: "pod".parse().unwrap(),
            ifname: "eth0".parse().unwrap(),
            netns: Some(self.netns.clone()),
            args: CniArgs::parse("K8S_POD_NAME=web;IgnoreUnknown=1").unwrap(),
            capability_args: json::parse(capability_args.as_bytes()).unwrap().as_object().unwrap().clone(),
        }
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.join("calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.dir.join("calls"));
        text.lines().map(str::to_owned).collect()
    }

    /// What a plugin was given on its standard input.
    fn given(&self, plugin: &str, verb: &str) -> json::Object {
        let bytes = std::fs::read(self.dir.join(format!("{plugin}.{verb}"))).unwrap();
        json::parse(&bytes).unwrap().as_object().unwrap().clone()
    }

    fn add(&self, list: &NetworkList) -> Result<cni::AddResult, CniError> {
        Ok(self.chain().add(list, &self.runtime("{}"), &mut Host::here(Dirs::default()), soon())?)
    }

    fn del(&self, list: &NetworkList) -> Result<(), CniError> {
        self.chain().del(list, &self.runtime("{}"), &mut Host::here(Dirs::default()), soon())
    }

    fn cached(&self) -> usize {
        std::fs::read_dir(self.dir.join("cache/results")).map_or(0, Iterator::count)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = Netns::remove(&self.netns);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn list(plugins: &str) -> NetworkList {
    NetworkList::parse(format!(r#"{{"cniVersion":"1.1.0","name":"net","plugins":[{plugins}]}}"#).as_bytes(), None).unwrap()
}

fn id() -> AttachmentId {
    AttachmentId { network: "net".parse().unwrap(), container: "pod".parse().unwrap(), ifname: "eth0".parse().unwrap() }
}

#[test]
fn s50_results_go_down_the_chain_and_back_up_on_del() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    world.plugin("two", &RESULT.replace("NUMBER", "2"));
    let list = list(r#"{"type":"one","capabilities":{"mac":true},"x":{"Y":null}},{"type":"two"}"#);
    let runtime = world.runtime(r#"{"mac":"02:00:00:00:00:01","ips":["10.0.0.1"]}"#);
    let chain = world.chain();
    let result = chain.add(&list, &runtime, &mut Host::here(Dirs::default()), soon()).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.0.0.2/24", "the last plugin's result is the network's");
    assert_eq!(world.calls(), ["ADD one", "ADD two"]);
    // Each gets its own keys, what its capabilities ask for, and the result before it.
    let one = world.given("one", "ADD");
    assert_eq!((one.str("name"), one.str("cniVersion")), (Some("net"), Some("1.1.0")), "the list's name and version are put in");
    assert_eq!(json::compact(one.get("runtimeConfig").unwrap()), r#"{"mac":"02:00:00:00:00:01"}"#);
    assert!(one.get("prevResult").is_none() && one.get("capabilities").is_none());
    assert_eq!(json::compact(one.get("x").unwrap()), r#"{"Y":null}"#);
    let two = world.given("two", "ADD");
    assert!(two.get("runtimeConfig").is_none());
    assert!(json::compact(two.get("prevResult").unwrap()).contains("10.0.0.1/24"));
    // CHECK and DEL get the result of the whole chain, from the cache.
    chain.check(&list, &runtime, None, &mut Host::here(Dirs::default()), soon()).unwrap();
    assert_eq!(world.calls(), ["CHECK one", "CHECK two"]);
    chain.del(&list, &runtime, &mut Host::here(Dirs::default()), soon()).unwrap();
    assert_eq!(world.calls(), ["DEL two", "DEL one"]);
    assert!(json::compact(world.given("one", "DEL").get("prevResult").unwrap()).contains("10.0.0.2/24"));
    assert_eq!(world.cached(), 0);
}

#[test]
fn a_failure_deletes_in_reverse_what_ran_and_what_was_not_reached() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    world.plugin("bad", "[ $CNI_COMMAND != ADD ] || { echo '{\"code\":107,\"msg\":\"no\",\"details\":\"more\"}'; exit 1; }");
    world.plugin("three", "");
    let e = world.add(&list(r#"{"type":"one"},{"type":"bad"},{"type":"three"}"#)).unwrap_err();
    assert_eq!((e.code, e.msg.as_str(), e.details.as_str()), (Code(107), "plugin type=\"bad\" failed (add): no", "more"));
    assert_eq!(world.calls(), ["ADD one", "ADD bad", "DEL three", "DEL bad", "DEL one"]);
    assert_eq!(world.cached(), 0);
}

#[test]
fn what_could_not_be_undone_is_told() {
    let world = World::new();
    world.plugin("bad", "echo broken >&2; exit 3");
    let e = world.add(&list(r#"{"type":"bad"}"#)).unwrap_err();
    assert!(e.msg.contains("exit status: 3") && e.msg.contains("\"broken\" on its standard error"), "{e}");
    assert!(e.details.contains("could not be undone: plugin type=\"bad\" failed (delete)"), "{e}");
}

/// It has made nothing.
#[test]
fn a_plugin_of_other_versions_needs_no_undo() {
    let world = World::new();
    world.plugin("old", "echo '{\"code\":1,\"msg\":\"incompatible CNI versions\"}'; exit 1");
    let e = world.add(&list(r#"{"type":"old"}"#)).unwrap_err();
    assert_eq!((e.code, e.details.as_str()), (Code(1), ""), "{e}");
}

#[test]
fn nothing_runs_if_a_plugin_is_missing() {
    let world = World::new();
    world.plugin("one", "");
    let list = list(r#"{"type":"one"},{"type":"missing"}"#);
    let e = world.add(&list).unwrap_err();
    assert!(e.code == Code::INVALID_CONFIG && e.msg.contains("failed to find plugin \"missing\" in path ["), "{e}");
    assert_eq!(world.calls(), Vec::<String>::new());
    // On DEL the others are not held up by it.
    assert!(world.del(&list).is_err());
    assert_eq!(world.calls(), ["DEL one"]);
}

#[test]
fn s52_a_failed_del_keeps_the_result_and_tries_every_plugin() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let until_mended = "[ $CNI_COMMAND != DEL ] || [ -e \"$dir/mended\" ] || exit 1\n";
    world.plugin("two", &(until_mended.to_owned() + &RESULT.replace("NUMBER", "2")));
    let list = list(r#"{"type":"one"},{"type":"two"}"#);
    world.add(&list).unwrap();
    world.calls();
    assert!(world.del(&list).is_err());
    assert_eq!((world.calls(), world.cached()), (vec!["DEL two".to_owned(), "DEL one".to_owned()], 1));
    std::fs::write(world.dir.join("mended"), "").unwrap();
    world.del(&list).unwrap();
    assert_eq!(world.cached(), 0);
    // Repeatable, also when there is nothing left of it.
    world.del(&list).unwrap();
}

#[test]
fn a_plugin_that_never_ends_is_ended() {
    let world = World::new();
    world.plugin("slow", "[ $CNI_COMMAND != ADD ] || sleep 60");
    let list = list(r#"{"type":"slow"}"#);
    let add = |patience| {
        let start = Instant::now();
        let by = start + Duration::from_secs(patience);
        let e = CniError::from(world.chain().add(&list, &world.runtime("{}"), &mut Host::here(Dirs::default()), by).unwrap_err());
        assert!(e.code == Code::TRY_AGAIN_LATER && e.msg.contains("timed out and was killed"), "{e}");
        assert!(start.elapsed() < Duration::from_secs(50));
        world.calls()
    };
    // On a machine that does much else a shell may need longer to say that it was called.
    let calls = [4, 15].into_iter().map(add).find(|calls| calls.iter().any(|call| call == "ADD slow"));
    assert_eq!(calls.unwrap_or_default(), ["ADD slow", "DEL slow"], "its roll-back has time of its own");
}

#[test]
fn an_executable_that_is_being_written_is_tried_again() {
    let world = World::new();
    world.plugin("script", "");
    // A script is never busy, an executable is.
    std::fs::copy("/bin/true", world.dir.join("busy")).unwrap();
    let open = std::fs::File::options().append(true).open(world.dir.join("busy")).unwrap();
    let writer = std::thread::spawn(move || {
        // Sleeps: the executable is busy for so long.
        std::thread::sleep(Duration::from_millis(150));
        drop(open);
    });
    let e = world.add(&list(r#"{"type":"busy"}"#)).unwrap_err();
    writer.join().unwrap();
    assert!(e.msg.contains("empty: expected a JSON object"), "it ran, and printed nothing: {e}");
}

#[test]
fn gc_deletes_what_is_cached_and_not_valid() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let list = list(r#"{"type":"one"}"#);
    world.add(&list).unwrap();
    let gc = |valid: &[AttachmentId]| world.chain().gc(&list, Some(valid), &mut Host::here(Dirs::default()), soon());
    world.calls();
    gc(&[id()]).unwrap();
    assert_eq!((world.calls(), world.cached()), (vec!["GC one".to_owned()], 1));
    let told = json::compact(world.given("one", "GC").get("cni.dev/valid-attachments").unwrap());
    assert_eq!(told, r#"[{"containerID":"pod","ifname":"eth0"}]"#);
    gc(&[]).unwrap();
    assert_eq!((world.calls(), world.cached()), (vec!["DEL one".to_owned(), "GC one".to_owned()], 0));
}

#[test]
fn a_broken_cache_holds_up_no_del() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let list = list(r#"{"type":"one"}"#);
    for broken in ["", "{", "{\"kind\":\"other\"}", r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.7/24"}]}"#] {
        world.add(&list).unwrap();
        std::fs::write(Cache::new(&world.dir.join("cache")).path(&id()), broken).unwrap();
        world.del(&list).unwrap();
        assert_eq!(world.cached(), 0, "{broken}");
        // The bare result of older libraries is still a result.
        let prev = world.given("one", "DEL").get("prevResult").map(json::compact);
        assert_eq!(prev.is_some_and(|p| p.contains("10.0.0.7")), broken.contains("10.0.0.7"), "{broken}");
    }
}

#[test]
fn the_cache_has_the_reference_librarys_format() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let list = list(r#"{"type":"one"}"#);
    let chain = world.chain();
    chain.add(&list, &world.runtime(r#"{"mac":"02:00:00:00:00:01"}"#), &mut Host::here(Dirs::default()), soon()).unwrap();
    let text = std::fs::read_to_string(world.dir.join("cache/results/net-pod-eth0")).unwrap();
    for part in [
        r#"{"kind":"cniCacheV1","containerId":"pod","config":""#,
        r#""ifName":"eth0","networkName":"net","netns":"#,
        r#""cniArgs":[["K8S_POD_NAME","web"],["IgnoreUnknown","1"]],"capabilityArgs":{"mac":"02:00:00:00:00:01"},"result":{"cniVersion":"1.1.0","#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_example_attaches_and_detaches() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    std::fs::create_dir(world.dir.join("net.d")).unwrap();
    std::fs::write(world.dir.join("net.d/1.conf"), r#"{"cniVersion":"1.0.0","name":"net","type":"one"}"#).unwrap();
    // Cargo builds examples before it runs tests; it has no variable for where.
    let target: PathBuf = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().into();
    let mut command = std::process::Command::new(target.join("examples/attach"));
    command.arg(world.dir.join("net.d")).arg("net").arg(&world.netns).env("CNI_PATH", &world.dir).env("TMPDIR", &world.dir);
    let out = command.output().unwrap();
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && shown.contains("10.0.0.1/24") && shown.ends_with("checked\ndetached\n"), "{out:?}");
    assert_eq!(world.calls(), ["ADD one", "CHECK one", "DEL one"]);
}

/// Names may have a `-` in them: `a-b` with `c` and `a` with `b-c` share a file, and one's DEL was given the other's result.
#[test]
fn a_result_belongs_to_one_attachment() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let named = |name: &str| {
        let text = format!(r#"{{"cniVersion":"1.1.0","name":"{name}","plugins":[{{"type":"one"}}]}}"#);
        NetworkList::parse(text.as_bytes(), None).unwrap()
    };
    let runtime = |container: &str| Runtime { container: container.parse().unwrap(), ..world.runtime("{}") };
    let chain = world.chain();
    let mut host = Host::here(Dirs::default());
    chain.add(&named("prod-web"), &runtime("1"), &mut host, soon()).unwrap();
    let e = chain.add(&named("prod"), &runtime("web-1"), &mut host, soon()).unwrap_err();
    assert!(e.error.msg.contains("has the cached result of another attachment"), "{e}");
    chain.del(&named("prod"), &runtime("web-1"), &mut host, soon()).unwrap();
    assert_eq!(world.cached(), 1, "the other's result stays");
    assert!(world.given("one", "DEL").get("prevResult").is_none());
}

/// The roll-back of a second ADD undid the first.
#[test]
fn a_second_add_changes_nothing() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let list = list(r#"{"type":"one"}"#);
    world.add(&list).unwrap();
    world.calls();
    let e = world.add(&list).unwrap_err();
    assert!(e.code == Code::INVALID_ENVIRONMENT && e.msg.contains("attached to network net already: DEL it first"), "{e}");
    assert_eq!((world.calls(), world.cached()), (vec![], 1));
}

/// One plugin that is missing kept GC from every other, and hid what had failed before.
#[test]
fn gc_goes_on_past_a_plugin_that_is_missing() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    world.plugin("bad", "[ $CNI_COMMAND != GC ] || { echo '{\"code\":123,\"msg\":\"no\"}'; exit 1; }");
    let list = list(r#"{"type":"bad"},{"type":"missing"},{"type":"one"}"#);
    let e = world.chain().gc(&list, Some(&[]), &mut Host::here(Dirs::default()), soon()).unwrap_err();
    assert_eq!(world.calls(), ["GC bad", "GC one"]);
    let said = e.to_string();
    assert!(said.contains("failed to find plugin \"missing\"") && said.contains("GC of bad: no"), "{said}");
}

/// Every `CNI_*` variable was kept from external plugins, also those that are no part of the call.
#[test]
fn variables_that_are_no_part_of_the_call_are_passed_on() {
    let world = World::new();
    world.plugin("one", &("echo \"$CNI_NETNS_OVERRIDE $CNI_ARGS\" >\"$dir/saw\"\n".to_owned() + &RESULT.replace("NUMBER", "1")));
    let env = vec![
        ("CNI_NETNS_OVERRIDE".into(), "1".into()),
        ("CNI_ARGS".into(), "stale=1".into()),
        ("PATH".into(), std::env::var_os("PATH").unwrap()),
    ];
    let chain = Chain::new(Finder::new(&[], vec![world.dir.clone()], Prefer::Path, env), None);
    chain.add(&list(r#"{"type":"one"}"#), &world.runtime("{}"), &mut Host::here(Dirs::default()), soon()).unwrap();
    assert_eq!(std::fs::read_to_string(world.dir.join("saw")).unwrap(), "1 K8S_POD_NAME=web;IgnoreUnknown=1\n");
}

/// What VERSION may answer: the verb is younger than the specification, and so is the list.
#[test]
fn every_answer_to_version() {
    let world = World::new();
    for (answer, expected) in [
        (r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.1.0"]}"#, Ok(vec!["0.4.0", "1.1.0"])),
        (r#"{"CNIVersion":"9.0.0","supportedversions":["9.0.0"],"x":1}"#, Ok(vec!["9.0.0"])),
        (r#"{"cniVersion":"0.2.0"}"#, Ok(vec!["0.1.0", "0.2.0"])),
        (r#"{"cniVersion":"0.3.0"}"#, Err("the answer has no \"supportedVersions\"")),
        (r#"{"supportedVersions":["1.0.0"]}"#, Err("the answer has no \"cniVersion\"")),
        (r#"{"cniVersion":"1.0.0","supportedVersions":"1.0.0"}"#, Err("supportedVersions: expected a list")),
        ("", Err("empty")),
        (r#"{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}' && false || exit 1 #"#, Ok(vec!["0.1.0"])),
        (r#"{"code":4,"msg":"I do not know"}' && false || exit 1 #"#, Err("I do not know")),
    ] {
        world.plugin("old", &format!("printf %s '{answer}'\n"));
        let said = world.chain().versions(&list(r#"{"type":"old"}"#), soon());
        match expected {
            Ok(versions) => assert_eq!(said, Ok(vec![("old".to_owned(), versions.into_iter().map(str::to_owned).collect())]), "{answer}"),
            Err(part) => assert!(said.as_ref().unwrap_err().to_string().contains(part), "{answer}: {said:?}"),
        }
        assert_eq!(world.given("old", "VERSION").str("cniVersion"), Some("1.1.0"));
    }
}

/// What a list does not want succeeds, and no plugin hears of it.
#[test]
fn a_list_may_want_no_check_and_no_collection() {
    let world = World::new();
    world.plugin("one", &RESULT.replace("NUMBER", "1"));
    let flagged = |flag: &str| {
        let text = format!(r#"{{"cniVersion":"1.1.0","name":"net",{flag},"plugins":[{{"type":"one"}}]}}"#);
        NetworkList::parse(text.as_bytes(), None).unwrap()
    };
    world.add(&flagged(r#""x":1"#)).unwrap();
    world.calls();
    let chain = world.chain();
    let verbs = |list: &NetworkList| {
        let host = &mut Host::here(Dirs::default());
        chain.check(list, &world.runtime("{}"), None, host, soon()).unwrap();
        chain.gc(list, Some(&[id()]), host, soon()).unwrap();
        world.calls()
    };
    assert_eq!(verbs(&flagged(r#""disableCheck":false,"disableGC":"FALSE""#)), ["CHECK one", "GC one"]);
    assert_eq!(verbs(&flagged(r#""disableCheck":true"#)), ["GC one"]);
    assert_eq!(verbs(&flagged(r#""disableGC":"True""#)), ["CHECK one"]);
    chain.gc(&flagged(r#""disableGC":true"#), None, &mut Host::here(Dirs::default()), soon()).unwrap();
    assert_eq!((world.calls(), world.cached()), (vec![], 1), "not even what is cached");
}
