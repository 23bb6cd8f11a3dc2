//! Messages as `busctl` and dbus-daemon write them, and a real bus.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// What came for a `NameHasOwner` of a name that is owned: dbus-daemon 1.14.
const ANSWER: &[u8] = b"l\x02\x01\x01\x04\x00\x00\x00\x03\x00\x00\x00\x3d\x00\x00\x00\
\x06\x01s\x00\x04\x00\x00\x00:1.0\x00\x00\x00\x00\
\x05\x01u\x00\x02\x00\x00\x00\
\x08\x01g\x00\x01b\x00\x00\
\x07\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00\
\x01\x00\x00\x00";

#[test]
fn an_answer() {
    assert_eq!(message::rest(&ANSWER[..HEADER]), Some(ANSWER.len() - HEADER));
    assert_eq!(parse(ANSWER), Some(Message { reply_to: Some(2), error: None, body: vec![Reply::Boolean(true)] }));
}

#[test]
fn what_is_cut_is_no_message() {
    (0..ANSWER.len()).for_each(|length| assert_eq!(parse(&ANSWER[..length]), None, "{length}"));
    // Each byte as another one: read or refused, and never worse.
    for i in 0..ANSWER.len() {
        for value in [0, 1, 7, 0x7f, 0xff] {
            let mut bytes = ANSWER.to_vec();
            bytes[i] = value;
            let _ = (parse(&bytes), message::rest(&bytes));
        }
    }
}

#[test]
fn a_bus_that_accepts_nobody_is_not_waited_for() {
    let path = std::env::temp_dir().join(format!("netloom-dbus-full-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let second = Bus::connect(&path, 0, Instant::now() + Duration::from_millis(50)).map(drop);
    let _ = std::fs::remove_file(&path);
    assert_eq!(second, Err(BusError::Connection { method: "connect".to_owned(), kind: io::ErrorKind::TimedOut }));
}

#[test]
fn a_real_bus_answers() {
    let socket = std::env::temp_dir().join(format!("netloom-dbus-{}", std::process::id()));
    let address = format!("unix:path={}", socket.display());
    let config = socket.with_extension("conf");
    let rules = "<policy context='default'><allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/></policy>";
    std::fs::write(&config, format!("<busconfig><listen>{address}</listen>{rules}</busconfig>")).unwrap();
    let mut daemon = Command::new("dbus-daemon");
    daemon.arg(format!("--config-file={}", config.display())).args(["--nofork", "--print-address"]).stdout(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let asked = || {
        let mut bus = Bus::connect(&socket, uid, Instant::now() + Duration::from_secs(60))?;
        let owned = (bus.has_owner("org.freedesktop.DBus")?, bus.has_owner("org.example.Nobody")?);
        let nobody = Object { service: "org.example.Nobody", path: "/", interface: "org.example.I" };
        Ok::<_, BusError>((owned, bus.call(nobody, "do", &["a", "bc"]).unwrap_err(), bus.process_of("org.freedesktop.DBus")?))
    };
    let answers = asked();
    let stranger = Bus::connect(&socket, uid + 1, Instant::now() + Duration::from_secs(60)).map(drop);
    let late = Bus::connect(&socket, uid, Instant::now()).map(drop);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let _ = (std::fs::remove_file(&socket), std::fs::remove_file(&config));
    let (owned, error, process) = answers.unwrap();
    assert_eq!(owned, (true, false));
    assert!(
        matches!(&error, BusError::Service { name, .. } if name == "org.freedesktop.DBus.Error.ServiceUnknown" || name.ends_with("NameHasNoOwner")),
        "{error}"
    );
    assert_eq!(process, Some(daemon.id()));
    assert!(matches!(&stranger, Err(BusError::Refused { said }) if said.starts_with("REJECTED")), "{stranger:?}");
    assert!(matches!(late, Err(BusError::Connection { kind: io::ErrorKind::TimedOut, .. })));
    assert!(matches!(Bus::connect(&socket, uid, Instant::now()), Err(BusError::Connect { kind: io::ErrorKind::NotFound, .. })));
}
