//! A device on its way (S68): from what the node says to the plugins, and back into the status.

use netloom_attach::{Record, ReportedDevice, State, network_status};
use npwg::StatusIps;

use crate::world::{RESULT, World, id};

const PCI: &str = r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","New":[null]}}"#;
const VHOST: &str = r#"{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/run/v.sock"}}"#;

/// What the status tells of each attachment's device.
fn device_infos(record: &Record) -> Vec<Option<String>> {
    network_status(record, StatusIps::Bare).iter().map(|entry| entry.device_info.as_ref().map(json::compact)).collect()
}

const HELD: &[(&str, &str)] = &[("example.com/nic", "0000:18:02.5"), ("example.com/nic", "0000:18:02.6")];

#[test]
fn s44_s66_s67_s68_what_the_device_plugin_says_reaches_the_plugins_and_the_status() {
    let world = World::new(RESULT);
    let path = world.device_plugin_says(PCI);
    std::fs::write(path.with_file_name("example.com-nic-0000:18:02.6-device.json"), VHOST).unwrap();
    let record = world.add(&world.plan("nic,plain,socket", HELD)).unwrap();
    assert_eq!(world.files(), ["pod@net1-device.json", "pod@net2-device.json"]);
    assert_eq!(world.noted("net1.ADD.found"), PCI);
    let [first, second, third] = ["net1.ADD", "net2.ADD", "net3.ADD"].map(|name| world.given(name));
    let file = world.dir.join("devices/cni/pod@net1-device.json").display().to_string();
    assert_eq!(
        json::compact(first.get("runtimeConfig").unwrap()),
        format!(r#"{{"deviceID":"0000:18:02.5","CNIDeviceInfoFile":"{file}"}}"#)
    );
    assert_eq!((first.str("deviceID"), first.str("pciBusID")), (Some("0000:18:02.5"), Some("0000:18:02.5")));
    // A plugin without the capabilities, and a network without a device.
    assert_eq!((second.str("deviceID"), second.get("runtimeConfig")), (Some("0000:18:02.6"), None));
    assert_eq!((third.str("deviceID"), third.get("pciBusID")), (Some("the definition's"), None));
    // Told even where no plugin asks for it.
    assert_eq!(device_infos(&record), [Some(PCI.to_owned()), Some(VHOST.to_owned()), None]);
    assert_eq!(world.attacher().records().read(&id()), Ok(Some(record)));
    world.del().unwrap();
    // It was there until the plugin's own DEL had run, and is not any more.
    assert_eq!(world.noted("net1.DEL.found"), PCI);
    assert!(world.files().is_empty());
}

#[test]
fn s68_a_plugin_writes_what_no_device_plugin_said() {
    let world = World::new(&format!("[ $CNI_COMMAND != ADD ] || echo '{VHOST}' >\"$file\"\n{RESULT}"));
    let record = world.add(&world.plan("socket,socket", &[])).unwrap();
    assert_eq!(world.files(), ["pod@net1-device.json", "pod@net2-device.json"]);
    assert_eq!(device_infos(&record), [Some(VHOST.to_owned()), Some(VHOST.to_owned())]);
    world.del().unwrap();
    assert!(world.files().is_empty());
}

/// The pod has the network that it asked for: it stays, and the record says why its device is not described.
#[test]
fn s68_unusable_information_is_told_and_fails_nobody() {
    let plugins_own = "[ $CNI_COMMAND != ADD ] || echo '{\"type\":\"pci\"}' >\"$file\"\n";
    for (script, says, words) in [
        ("", "{", "device.json: device information: not valid JSON"),
        ("", &*"x".repeat(17 << 10), "it has more than 16384 bytes"),
        (plugins_own, PCI, "pod@net1-device.json: device information: version: missing"),
    ] {
        let world = World::new(&format!("{script}{RESULT}"));
        world.device_plugin_says(says);
        let record = world.add(&world.plan("nic", HELD)).unwrap();
        assert!(matches!(&record.steps[0].device, ReportedDevice::Unusable(why) if why.contains(words)), "{:?}", record.steps[0].device);
        assert_eq!(device_infos(&record), [None]);
        world.del().unwrap();
        assert!(world.files().is_empty());
    }
}

/// What another plugin links to there was not written by a device plugin.
#[test]
fn a_link_is_not_followed_out_of_the_directory() {
    let world = World::new(RESULT);
    let path = world.device_plugin_says("");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(world.dir.join("secret"), PCI).unwrap();
    std::os::unix::fs::symlink(world.dir.join("secret"), &path).unwrap();
    let record = world.add(&world.plan("nic", HELD)).unwrap();
    assert!(matches!(&record.steps[0].device, ReportedDevice::Unusable(why) if why.contains("ELOOP")), "{:?}", record.steps[0].device);
    world.del().unwrap();
}

#[test]
fn s67_the_file_goes_with_the_attachment_however_that_ends() {
    // The second ADD fails.
    let world = World::new(&format!("[ $CNI_IFNAME.$CNI_COMMAND != net2.ADD ] || exit 1\n{RESULT}"));
    world.device_plugin_says(PCI);
    let e = world.add(&world.plan("nic,socket", HELD)).unwrap_err();
    assert_eq!((e.network.as_str(), e.left.len()), ("a/socket", 0));
    assert_eq!((world.files(), world.attacher().records().read(&id())), (vec![], Ok(None)));
    // The only one fails: nothing was made before it.
    let world = World::new(&format!("[ $CNI_COMMAND != ADD ] || exit 1\n{RESULT}"));
    world.device_plugin_says(PCI);
    assert!(world.add(&world.plan("nic", HELD)).is_err());
    assert!(world.files().is_empty());
    // A DEL that fails keeps it for the next one; what belongs to the other attachment goes.
    let world = World::new(&format!("[ $CNI_IFNAME.$CNI_COMMAND != net1.DEL -o -e \"$dir/mended\" ] || exit 1\n{RESULT}"));
    world.device_plugin_says(PCI);
    world.add(&world.plan("nic,nic", HELD)).unwrap();
    std::fs::write(world.dir.join("devices/cni/pod@net2-device.json"), VHOST).unwrap();
    assert!(world.del().is_err());
    assert_eq!(world.files(), ["pod@net1-device.json"]);
    std::fs::write(world.dir.join("mended"), "").unwrap();
    world.del().unwrap();
    assert!(world.files().is_empty());
}

/// The process was killed on the way: the intent is all that there is of it, and the rest of a file that was being written.
#[test]
fn s67_the_intent_suffices_to_find_the_file() {
    let world = World::new(RESULT);
    let mut record = world.add(&world.plan("nic", HELD)).unwrap();
    world.del().unwrap();
    record.steps[0].state = State::Intended;
    record.steps[0].device = ReportedDevice::Nothing;
    world.attacher().records().write(&record).unwrap();
    for name in ["pod@net1-device.json", ".pod@net1-device.json.tmp", "other@net1-device.json"] {
        std::fs::write(world.dir.join("devices/cni").join(name), PCI).unwrap();
    }
    world.del().unwrap();
    assert_eq!(world.files(), ["other@net1-device.json"]);
}

/// An attachment of the same name that nobody detached left a file: it says nothing of this one.
#[test]
fn what_an_earlier_attachment_left_is_not_told() {
    let world = World::new(RESULT);
    std::fs::create_dir_all(world.dir.join("devices/cni")).unwrap();
    std::fs::write(world.dir.join("devices/cni/pod@net1-device.json"), VHOST).unwrap();
    let record = world.add(&world.plan("nic", HELD)).unwrap();
    assert_eq!((device_infos(&record), world.files()), (vec![None], vec![]));
    assert!(!world.dir.join("net1.ADD.found").exists());
    world.del().unwrap();
}

#[test]
fn s28_a_claim_is_carried_and_nobody_must_know_it() {
    let world = World::new(RESULT);
    let plan = world.plan(r#"[{"name":"socket","ipam-claim-reference":"vm.net.eth1"}]"#, &[]);
    world.add(&plan).unwrap();
    let args = world.given("net1.ADD").object("args").and_then(|a| a.object("cni")).map(json::compact);
    assert_eq!(args.as_deref(), Some(r#"{"ipam-claim-reference":"vm.net.eth1"}"#));
    world.del().unwrap();
    let args = world.given("net1.DEL").object("args").and_then(|a| a.object("cni")).map(json::compact);
    assert_eq!(args.as_deref(), Some(r#"{"ipam-claim-reference":"vm.net.eth1"}"#), "who frees its addresses knows it too");
}
