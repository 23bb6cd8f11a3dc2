//! Texts as ovsdb-server writes them, and a real ovsdb-server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::frames::FrameError;

/// What came for a transaction that reads a bridge, and a change of a table that is followed: ovsdb-server 3.1.
const TEXTS: [&str; 2] = [
    r#"{"id":1,"error":null,"result":[{"rows":[{"_uuid":["uuid","4f1b2b2a-8c4e-4c3c-9f0a-0d7a5f1f6a11"],"name":"br\"}{0","external_ids":["map",[["owner","netloom"]]],"trunks":["set",[42,1000]],"tag":["set",[]],"vlan_mode":["set",[]]}]}]}"#,
    r#"{"id":null,"method":"update","params":["Open_vSwitch",{"Open_vSwitch":{"0a6b3c7e-7d3f-4b7e-8f55-0f1b0b8a3d21":{"old":{"cur_cfg":1},"new":{"cur_cfg":2}}}}]}"#,
];

#[test]
fn texts_end_where_their_object_ends() {
    let stream = format!(" {}\n{}", TEXTS[0], TEXTS[1]);
    for size in 1..stream.len() {
        let (mut frames, mut texts) = (Frames::new(), Vec::new());
        for chunk in stream.as_bytes().chunks(size) {
            frames.push(chunk);
            while let Some(text) = frames.next_text().unwrap() {
                texts.push(String::from_utf8(text).unwrap().trim().to_owned());
            }
        }
        assert_eq!(texts, TEXTS, "in pieces of {size}");
    }
    for bad in ["[]", "\"{}\"", "1", "}"] {
        let mut frames = Frames::new();
        frames.push(bad.as_bytes());
        assert_eq!(frames.next_text(), Err(FrameError), "{bad}");
        // Whatever comes behind it was read as a text, with what had come before as its beginning.
        frames.push(TEXTS[1].as_bytes());
        assert_eq!(frames.next_text(), Err(FrameError), "{bad}, and a whole text");
    }
    let mut frames = Frames::new();
    frames.push(b"{\"x\":\"");
    (0..16).for_each(|_| frames.push(&vec![b'x'; 1 << 20]));
    assert_eq!(frames.next_text(), Err(FrameError));
}

#[test]
fn messages_and_rows() {
    let Ok(Some(Message::Answer { id: 1, result: Ok(result) })) = Message::parse(TEXTS[0].as_bytes()) else { panic!("no answer") };
    let row = Outcome::parse(&result.as_array().unwrap()[0]).unwrap().rows.remove(0);
    assert_eq!(row.text("name"), Some("br\"}{0"));
    assert_eq!(row.under("external_ids", "owner"), Some("netloom"));
    assert_eq!(row.integers("trunks").collect::<Vec<_>>(), [42, 1000]);
    assert_eq!((row.integers("tag").next(), row.text("vlan_mode")), (None, None));
    assert_eq!(Row::parse(&row.print()).as_ref(), Some(&row));
    assert!(matches!(Message::parse(TEXTS[1].as_bytes()), Ok(Some(Message::Notification { method, .. })) if method == "update"));
    for none in [r#"{}"#, r#"{"id":-1,"result":[]}"#, r#"{"id":"echo","result":[]}"#, r#"{"method":"update","params":{}}"#] {
        assert_eq!(Message::parse(none.as_bytes()), Ok(None), "{none}");
    }
    for bad in [r#"{"a":["uuid","x"]}"#, r#"{"a":["map",[["x"]]]}"#, r#"{"a":{}}"#, r#"{"a":null}"#] {
        assert_eq!(Row::parse(&json::parse(bad.as_bytes()).unwrap()), None, "{bad}");
    }
}

/// Each byte as another one: refused, or read as it is printed, and never worse.
#[test]
fn what_is_changed_on_the_way() {
    for text in TEXTS {
        for at in 0..text.len() {
            for byte in [b'"', b'[', b']', b'{', b'}', b'\\', b'0', b'-', 0xff] {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at] = byte;
                let Ok(Some(Message::Answer { result: Ok(result), .. })) = Message::parse(&bytes) else { continue };
                for outcome in result.as_array().into_iter().flatten().filter_map(Outcome::parse) {
                    outcome.rows.iter().for_each(|row| assert_eq!(Row::parse(&row.print()).as_ref(), Some(row)));
                }
            }
        }
    }
}

/// A database of Open vSwitch without ovs-vswitchd; its process and files go with it.
struct Database {
    dir: PathBuf,
    server: Child,
}

impl Database {
    fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("netloom-ovsdb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = |name: &str| dir.join(name).display().to_string();
        let made = Command::new("ovsdb-tool").args(["create", &file("db"), "/usr/share/openvswitch/vswitch.ovsschema"]).status();
        assert!(made.unwrap().success());
        let mut server = Command::new("ovsdb-server");
        server.arg(file("db")).arg(format!("--remote=punix:{}", file("sock"))).arg("--remote=db:Open_vSwitch,Open_vSwitch,manager_options");
        let server = server.arg(format!("--unixctl={}", file("ctl"))).stderr(Stdio::null()).spawn().unwrap();
        let database = Database { dir, server };
        until(|| database.socket().exists());
        database.vsctl("init");
        database
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    fn vsctl(&self, words: &str) -> String {
        let database = format!("--db=unix:{}", self.socket().display());
        let output = Command::new("ovs-vsctl").args(["--no-wait", &database]).args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn switch(&self) -> Switch {
        Switch::connect(&self.socket(), soon()).unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = (self.server.kill(), self.server.wait(), std::fs::remove_dir_all(&self.dir));
    }
}

fn until(holds: impl Fn() -> bool) {
    let end = soon();
    while !holds() {
        assert!(Instant::now() < end);
        // Sleeps: between two looks at what another process makes.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn ports_come_and_go() {
    let database = Database::start("ports");
    database.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev -- add-br br1");
    let mut switch = database.switch();
    assert_eq!(switch.bridge("br9"), Ok(None));
    assert_eq!(["br0", "br1"].map(|name| switch.bridge(name).unwrap().unwrap().is_userspace), [true, false]);
    let ids = [("owner", "netloom"), ("of", "a \"quoted\" name")];
    for vlans in [Vlans::All, Vlans::Access(100), Vlans::Trunk([7, 8].into()), Vlans::Dead] {
        let port = NewPort {
            name: "p1",
            vlans: Some(&vlans),
            ofport_request: Some(7),
            port_ids: &ids,
            interface_ids: &[("a", "b")],
            ..NewPort::default()
        };
        let before = switch.generation().unwrap();
        assert_eq!(switch.add_port("br9", &port), Ok(None));
        assert_eq!(switch.port("p1"), Ok(None), "what no bridge names is not there");
        assert!(switch.add_port("br0", &port).unwrap() > Some(before));
        let twice = switch.add_port("br0", &port);
        assert!(matches!(&twice, Err(OvsdbError::Refused { error, .. }) if error.contains("constraint violation")), "{twice:?}");
        let made = switch.port("p1").unwrap().unwrap();
        assert_eq!((made.vlans.as_ref(), made.id("of")), (Some(&vlans), Some("a \"quoted\" name")));
        assert_eq!(switch.bridge_of(&made).unwrap().as_deref(), Some("br0"));
        assert_eq!(database.vsctl("get interface p1 ofport_request external_ids"), "7\n{a=b}\n");
        assert_eq!(switch.interface("p1"), Ok(Some(Interface { ofport: None, error: None, iface_id: None })));
        assert_eq!(switch.ports_with(&ids[..1]).unwrap().len(), 1);
        assert_eq!(switch.ports_with(&[("owner", "others")]), Ok(Vec::new()));
        let ports = switch.ports_with(&ids).unwrap();
        switch.remove_ports(&ports).unwrap();
        switch.remove_ports(&ports).unwrap();
        assert_eq!((switch.port("p1"), database.vsctl("list-ports br0")), (Ok(None), String::new()));
    }
}

/// A port that carries nothing is one, until somebody gives it a VLAN: that wakes who waits for it.
#[test]
fn a_dead_port_comes_alive() {
    let database = Database::start("dead");
    database.vsctl("add-br br0");
    let mut switch = database.switch();
    let ids = [("iface-id", "d1e40f3e")];
    for name in ["p1", "p2"] {
        let port = NewPort { name, vlans: Some(&Vlans::Dead), interface_ids: &ids, ..NewPort::default() };
        switch.add_port("br0", &port).unwrap();
    }
    assert_eq!(database.vsctl("get port p1 tag trunks vlan_mode"), "4095\n[4095]\ntrunk\n");
    let names =
        |switch: &mut Switch| switch.ports_of("d1e40f3e").unwrap().into_iter().map(|port| (port.name, port.vlans)).collect::<Vec<_>>();
    let mut all = names(&mut switch);
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(all, [("p1".to_owned(), Some(Vlans::Dead)), ("p2".to_owned(), Some(Vlans::Dead))]);
    assert_eq!(switch.ports_of("other"), Ok(Vec::new()));
    let mine = ["p1".to_owned()].into();
    switch.port_changed(&mine, soon()).unwrap();
    let end = soon();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            switch.port_changed(&mine, end).unwrap();
            switch.port("p1").unwrap().unwrap().vlans
        });
        database.vsctl("set port p2 tag=3 -- clear port p2 vlan_mode trunks");
        // As Neutron's agent does.
        database.vsctl("set port p1 tag=7 -- clear port p1 vlan_mode -- clear port p1 trunks");
        assert_eq!(waits.join().unwrap(), Some(Vlans::Access(7)));
    });
    assert!(Instant::now() < end);
    switch.port_changed(&mine, Instant::now()).unwrap();
}

/// Others may have counted on by the time that somebody looks.
#[test]
fn a_later_configuration_is_as_good() {
    let database = Database::start("later");
    database.vsctl("set open_vswitch . next_cfg=5 cur_cfg=3");
    let mut switch = database.switch();
    let wanted = switch.generation().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| switch.applied(wanted));
        database.vsctl("set open_vswitch . cur_cfg=4");
        database.vsctl("set open_vswitch . cur_cfg=9");
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    // One connection follows the table once.
    assert_eq!(switch.applied(wanted), Ok(()));
    database.vsctl("set open_vswitch . next_cfg=9");
    let wanted = switch.generation().unwrap();
    assert_eq!(switch.applied(wanted), Ok(()));
    let mut late = Switch::connect(&database.socket(), Instant::now() + Duration::from_millis(200)).unwrap();
    database.vsctl("set open_vswitch . next_cfg=10");
    let wanted = late.generation().unwrap();
    let said = late.applied(wanted).unwrap_err();
    assert_eq!(said, OvsdbError::NotApplied { socket: database.socket(), current: 9, wanted: 10 });
}

/// The server closes a connection that leaves two of its probes without an answer.
#[test]
fn probes_are_answered() {
    let database = Database::start("probes");
    let probing = database.dir.join("probing");
    database.vsctl(&format!("set-manager punix:{} -- set manager . inactivity_probe=1000", probing.display()));
    until(|| probing.exists());
    database.vsctl("set open_vswitch . next_cfg=5 cur_cfg=3");
    let mut switch = Switch::connect(&probing, Instant::now() + Duration::from_secs(4)).unwrap();
    let wanted = switch.generation().unwrap();
    assert!(matches!(switch.applied(wanted), Err(OvsdbError::NotApplied { .. })));
}

#[test]
fn who_does_not_answer_is_not_waited_for() {
    let dir = std::env::temp_dir();
    let path = dir.join(format!("netloom-ovsdb-silent-{}", std::process::id()));
    let nobody = Switch::connect(&path, soon()).map(drop).unwrap_err();
    assert!(nobody.is_unreachable() && nobody.to_string().contains("check that ovsdb-server runs"), "{nobody}");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let silent = Switch::connect(&path, Instant::now() + Duration::from_millis(50)).unwrap().bridge("br0");
    let _ = std::fs::remove_file(&path);
    let expected = OvsdbError::Connection { socket: path.clone(), method: "transact", kind: std::io::ErrorKind::TimedOut };
    assert_eq!(silent, Err(expected));
    assert!(Path::new(DEFAULT_SOCKET).is_absolute());
}
