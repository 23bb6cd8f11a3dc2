//! One attachment after the other, and what follows a failure (S29, S51 to S53).

use crate::world::{RESULT, World, id};

/// Says when a call begins and ends, which takes a while.
const SLOW: &str = "echo \"begin $CNI_COMMAND $CNI_IFNAME\" >>\"$dir/calls\"\nsleep 0.05\necho end >>\"$dir/calls\"\n";

fn calls(world: &World) -> Vec<String> {
    let calls = world.noted("calls");
    std::fs::remove_file(world.dir.join("calls")).unwrap();
    calls.lines().map(str::to_owned).collect()
}

#[test]
fn s53_one_attachment_is_made_after_the_other() {
    let world = World::new(&format!("{SLOW}{RESULT}"));
    world.add(&world.plan("socket,socket,socket", &[])).unwrap();
    assert_eq!(calls(&world), ["begin ADD net1", "end", "begin ADD net2", "end", "begin ADD net3", "end"]);
    world.del().unwrap();
    assert_eq!(calls(&world), ["begin DEL net3", "end", "begin DEL net2", "end", "begin DEL net1", "end"]);
}

#[test]
fn s51_what_comes_after_a_failure_is_not_attempted() {
    let world = World::new(&format!("{SLOW}[ $CNI_IFNAME.$CNI_COMMAND != net2.ADD ] || exit 1\n{RESULT}"));
    let e = world.add(&world.plan("socket,plain,socket", &[])).unwrap_err();
    assert_eq!((e.network.as_str(), e.left.len()), ("a/plain", 0));
    let begun: Vec<String> = calls(&world).into_iter().filter(|line| line != "end").collect();
    assert_eq!(begun, ["begin ADD net1", "begin ADD net2", "begin DEL net2", "begin DEL net1"]);
    assert_eq!(world.attacher().records().read(&id()), Ok(None));
}

#[test]
fn s52_one_failure_holds_up_no_other_attachment_and_is_told() {
    let world = World::new(&format!("{SLOW}[ $CNI_IFNAME.$CNI_COMMAND != net2.DEL -o -e \"$dir/mended\" ] || exit 1\n{RESULT}"));
    world.add(&world.plan("socket,plain,socket", &[])).unwrap();
    calls(&world);
    let e = world.del().unwrap_err();
    assert!(e.contains("failed (delete)"), "{e}");
    let begun: Vec<String> = calls(&world).into_iter().filter(|line| line != "end").collect();
    assert_eq!(begun, ["begin DEL net3", "begin DEL net2", "begin DEL net1"]);
    // It is repeated until it succeeds, from the record.
    assert!(world.attacher().records().read(&id()).unwrap().is_some());
    std::fs::write(world.dir.join("mended"), "").unwrap();
    world.del().unwrap();
    assert_eq!(world.attacher().records().read(&id()), Ok(None));
}

#[test]
fn s20_s21_s29_an_attachment_whose_plugins_ignored_a_request_is_undone() {
    let interface =
        r#""interfaces":[{"name":"net1","sandbox":"x","mac":"02:00:00:00:00:05"}],"ips":[{"interface":0,"address":"10.0.0.5/24"}]"#;
    let world = World::new(&format!("{SLOW}[ $CNI_COMMAND != ADD ] || echo '{{\"cniVersion\":\"1.0.0\",{interface}}}'\n"));
    for (asked, ignored) in [
        (r#""ips":["10.0.0.5/24"],"mac":"02:00:00:00:00:05""#, None),
        (r#""ips":["10.0.0.6"]"#, Some("ips: 10.0.0.6 was requested, but the network's plugins report 10.0.0.5")),
        (r#""mac":"02:00:00:00:00:06""#, Some("mac: 02:00:00:00:00:06 was requested")),
    ] {
        let added = world.add(&world.plan(&format!(r#"[{{"name":"asked",{asked}}}]"#), &[]));
        let Some(words) = ignored else {
            added.unwrap();
            world.del().unwrap();
            calls(&world);
            continue;
        };
        let e = added.unwrap_err().to_string();
        assert!(e.contains(words) && e.contains("they ignored the request"), "{e}");
        assert_eq!(calls(&world), ["begin ADD net1", "end", "begin DEL net1", "end"]);
        assert_eq!(world.attacher().records().read(&id()), Ok(None));
    }
}
