use super::*;

fn read(text: &str) -> DeviceInfo {
    DeviceInfo::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A device of a type with these keys.
fn of(kind: &str, keys: &str) -> String {
    format!(r#"{{"type":"{kind}","version":"1.1.0","{kind}":{{{keys}}}}}"#)
}

/// Every row breaks the rule with the words beside it.
fn refuse_all(table: &[(String, &str)]) {
    for (text, words) in table {
        let e = DeviceInfo::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(e.starts_with("device information") && e.contains(words), "{text}\n  got      {e}\n  expected {words}");
    }
}

#[test]
fn s61_type_version_and_the_map_of_the_type() {
    let text = r#"{"version":"1.0.0","type":"pci","pci":{"pci-address":"0000:01:02.2"},"memif":7}"#;
    assert_eq!(read(text).kind(), "pci");
    refuse_all(&[
        ("{".to_owned(), "not valid JSON"),
        ("[]".to_owned(), "expected an object, found a list"),
        ("{}".to_owned(), "type: missing: expected \"pci\", \"vdpa\", \"vhost-user\" or \"memif\""),
        (
            r#"{"type":"gpu","version":"1.1.0"}"#.to_owned(),
            r#"type: expected "pci", "vdpa", "vhost-user" or "memif", found a string ("gpu")"#,
        ),
        (r#"{"type":"pci","pci":{"pci-address":"0000:01:02.2"}}"#.to_owned(), "version: missing"),
        (r#"{"type":"pci","version":"1.1","pci":{}}"#.to_owned(), r#"version: expected a version like "1.1.0", found a string ("1.1")"#),
        (r#"{"type":"pci","version":"+1.1.0","pci":{}}"#.to_owned(), "version: expected"),
        (r#"{"type":"pci","version":"1.1.0.0","pci":{}}"#.to_owned(), "version: expected"),
        (r#"{"type":"pci","version":"1.1.0"}"#.to_owned(), "pci: missing: expected what belongs to its type"),
        (r#"{"type":"pci","version":"1.1.0","pci":[]}"#.to_owned(), "pci: expected an object, found a list"),
        (" ".repeat(MAX_DEVICE_INFO + 1), "16385 bytes"),
        (format!(r#"{{"x":{}{}}}"#, "[".repeat(16), "]".repeat(16)), "17 levels"),
    ]);
}

#[test]
fn s61_a_type_of_a_newer_version_survives() {
    for version in ["1.1.1", "1.2.0", "2.0.0"] {
        let text = format!(r#"{{"type":"cxl","version":"{version}","cxl":{{"Port":[1,null]}}}}"#);
        let info = read(&text);
        assert_eq!((info.device(), info.kind()), (None, "cxl"));
        assert_eq!(json::compact(&info), text);
    }
}

#[test]
fn s62_pci() {
    let text = of(
        "pci",
        r#""pci-address":"0000:18:0a.2","vhost-net":"/dev/vhost-net","rdma-device":"mlx5_2","pf-pci-address":"10000:18:00.1","representor-device":"eth3","new":1"#,
    );
    let info = read(&text);
    assert_eq!(
        info.device(),
        Some(&Device::Pci(PciDevice {
            pci_address: "0000:18:0a.2".to_owned(),
            vhost_net: Some("/dev/vhost-net".to_owned()),
            rdma_device: Some("mlx5_2".to_owned()),
            pf_pci_address: Some("10000:18:00.1".to_owned()),
            representor_device: Some("eth3".to_owned()),
        }))
    );
    assert_eq!(json::compact(&info), text);
    refuse_all(&[
        (of("pci", ""), r#"pci.pci-address: missing: expected a PCI address like "0000:18:02.5""#),
        (of("pci", r#""pci-address":"eth0""#), r#"pci.pci-address: expected a PCI address like "0000:18:02.5", found a string ("eth0")"#),
        (of("pci", r#""pci-address":"18:02.5""#), "pci.pci-address: expected"),
        (of("pci", r#""pci-address":"0000.18:02:5""#), "pci.pci-address: expected"),
        (of("pci", r#""pci-address":"0000:18:02.g""#), "pci.pci-address: expected"),
        (of("pci", r#""pci-address":"0000:18:02.5","pf-pci-address":"x""#), "pci.pf-pci-address: expected"),
        (of("pci", r#""pci-address":"0000:18:02.5","rdma-device":7"#), "pci.rdma-device: expected a string, found a number (7)"),
    ]);
}

#[test]
fn s63_vdpa() {
    let text = of("vdpa", r#""parent-device":"vdpa3","driver":"vhost","path":"/dev/vhost-vdpa0","pci-address":"0000:02:01.6""#);
    let info = read(&text);
    assert!(matches!(info.device(), Some(Device::Vdpa(VdpaDevice { driver: VdpaDriver::Vhost, pci_address: Some(_), .. }))));
    assert_eq!(json::compact(&info), text);
    refuse_all(&[
        (of("vdpa", r#""driver":"vhost","path":"/x""#), "vdpa.parent-device: missing"),
        (of("vdpa", r#""parent-device":"a","path":"/x""#), r#"vdpa.driver: missing: expected "vhost" or "virtio""#),
        (of("vdpa", r#""parent-device":"a","driver":"uio","path":"/x""#), r#"vdpa.driver: expected "vhost" or "virtio""#),
        (of("vdpa", r#""parent-device":"a","driver":"virtio","path":"""#), "vdpa.path: missing: expected a path"),
    ]);
}

#[test]
fn s64_vhost_user() {
    for (mode, expected) in [("client", VhostUserMode::Client), ("server", VhostUserMode::Server)] {
        let info = read(&of("vhost-user", &format!(r#""mode":"{mode}","path":"/run/vhost.sock""#)));
        let device = VhostUserDevice { mode: expected, path: "/run/vhost.sock".to_owned() };
        assert_eq!(info.device(), Some(&Device::VhostUser(device)));
    }
    refuse_all(&[
        (of("vhost-user", r#""path":"/x""#), r#"vhost-user.mode: missing: expected "client" or "server""#),
        (of("vhost-user", r#""mode":"Client","path":"/x""#), r#"vhost-user.mode: expected "client" or "server""#),
        (of("vhost-user", r#""mode":"client""#), "vhost-user.path: missing"),
    ]);
}

#[test]
fn s65_memif_with_both_spellings_of_punt() {
    let modes =
        [("ethernet", MemifMode::Ethernet), ("ip", MemifMode::Ip), ("inject-punt", MemifMode::InjectPunt), ("punt", MemifMode::InjectPunt)];
    for (mode, expected) in modes {
        for (role, expected_role) in [("master", MemifRole::Master), ("slave", MemifRole::Slave)] {
            let text = of("memif", &format!(r#""role":"{role}","path":"/run/memif.sock","mode":"{mode}""#));
            let info = read(&text);
            let device = MemifDevice { role: expected_role, path: "/run/memif.sock".to_owned(), mode: expected };
            assert_eq!(info.device(), Some(&Device::Memif(device)));
            // The spelling stays its writer's.
            assert_eq!(json::compact(&info), text);
        }
    }
    refuse_all(&[
        (of("memif", r#""path":"/x","mode":"ip""#), "memif.role: missing"),
        (of("memif", r#""role":"master","mode":"ip""#), "memif.path: missing"),
        (of("memif", r#""role":"master","path":"/x","mode":"punt-inject""#), r#"memif.mode: expected "ethernet", "ip" or "inject-punt""#),
    ]);
}
