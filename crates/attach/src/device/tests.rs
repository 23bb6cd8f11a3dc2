use super::*;

fn id<'a>(choice: &mut Choice<'a>, resource: Option<&'a str>, named: Option<&str>) -> Result<Option<String>, String> {
    choice.next(resource, named).map(|device| device.map(|d| d.id)).map_err(|e| e.to_string())
}

#[test]
fn s68_the_nth_attachment_of_a_resource_gets_the_nth_device() {
    let devices = Devices::new([("a/nic", "d1"), ("a/gpu", "d9"), ("a/nic", "d2"), ("a/nic", "d3")]);
    let mut choice = Choice::new(Some(&devices), [(Some("a/nic"), "d2")].into_iter());
    let mut next = |resource, named| id(&mut choice, resource, named);
    assert_eq!(next(Some("a/nic"), None), Ok(Some("d1".to_owned())));
    assert_eq!(next(None, None), Ok(None));
    assert_eq!(next(Some("a/nic"), Some("d2")), Ok(Some("d2".to_owned())));
    // The one that another selection names is not given away.
    assert_eq!(next(Some("a/nic"), None), Ok(Some("d3".to_owned())));
    let e = next(Some("a/nic"), None).unwrap_err();
    assert!(e.contains("resource a/nic: the pod has 3, but more attachments need one: request more"), "{e}");
    // Such a resource may be one that only counts.
    assert_eq!(next(Some("kubevirt.io/br1"), None), Ok(None));
}

/// A device's name is its device plugin's: another one's may call its own the same.
#[test]
fn s68_two_resources_may_call_their_devices_the_same() {
    let devices = Devices::new([("a/nic", "0"), ("a/gpu", "0"), ("a/gpu", "1")]);
    let mut choice = Choice::new(Some(&devices), [(Some("a/nic"), "0")].into_iter());
    assert_eq!(id(&mut choice, Some("a/gpu"), None), Ok(Some("0".to_owned())));
    assert_eq!(id(&mut choice, Some("a/nic"), Some("0")), Ok(Some("0".to_owned())));
    // Named without a resource, it may be either of them.
    let mut choice = Choice::new(Some(&devices), [(None, "0")].into_iter());
    assert_eq!(id(&mut choice, Some("a/gpu"), None), Ok(Some("1".to_owned())));
}

#[test]
fn s68_a_pod_names_no_device_that_it_does_not_hold() {
    let devices = Devices::new([("a/nic", "d1"), ("a/gpu", "d9")]);
    let mut choice = Choice::new(Some(&devices), [(None, "d9")].into_iter());
    for (resource, named) in [(Some("a/nic"), "d9"), (Some("a/nic"), "d2"), (Some("a/fpga"), "d1"), (None, "d2")] {
        let e = id(&mut choice, resource, Some(named)).unwrap_err();
        assert!(e.contains(&format!("{named:?}: the pod does not have this device of {}", resource.unwrap_or("any resource"))), "{e}");
    }
    assert_eq!(id(&mut choice, None, Some("d9")), Ok(Some("d9".to_owned())));
    // Where nobody knows what it holds.
    assert_eq!(id(&mut Choice::new(None, [(Some("a/nic"), "d2")].into_iter()), Some("a/nic"), Some("d2")), Ok(Some("d2".to_owned())));
    assert_eq!(id(&mut Choice::new(None, [].into_iter()), Some("a/nic"), None), Ok(None));
}

#[test]
fn s66_s67_the_directory_is_the_one_that_device_plugins_write_to() {
    let dirs = plugin::Dirs::default();
    let path = dirs.devices.join(npwg::device_plugin_file("intel.com/nic", "0000:18:02.5").unwrap());
    assert_eq!(path.to_str(), Some("/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-nic-0000:18:02.5-device.json"));
}
