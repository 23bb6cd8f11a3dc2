//! The daemon's socket: who listens there, who calls, and what the plugin does where nobody answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use netloom_tests::{netloom, plugin_dir};
use serde_json::{Value, json};

use crate::dhcp::server::{World, bridge};

/// A second daemon that was ended while it waited took socket and pidfile of the first along.
#[test]
fn a_second_daemon_that_is_ended() {
    let mut world = World::empty();
    world.flags(&["-pidfile=/run/dhcp.pid"]);
    world.serve("server", &["--dhcp-range=10.9.0.10,10.9.0.200,255.255.255.0,1h"]);
    world.start();
    let first = world.host.run("", &["cat", "/run/dhcp.pid"]);
    let mut second = world.host.command("", plugin_dir().join("dhcp"));
    second.args(["daemon", "-pidfile=/run/dhcp.pid"]);
    world.spawn("second", second);
    world.until_told("second", "another daemon manages the leases beside /run/cni/dhcp.sock", 1);
    world.terminate_spawned("second");
    assert_eq!(world.host.run("", &["cat", "/run/dhcp.pid"]), first);
    world.attach("c1");
    // It is found under its name.
    assert!(world.host.run("", &["ss", "-Hlx"]).contains("/run/cni/dhcp.sock "));
    // One that has its socket is not taken along either.
    world.host.sh("", "rm /run/cni/dhcp.sock");
    world.host.write("/run/cni/dhcp.sock", "another one's");
    assert_eq!(world.terminate(), Some(0));
    assert!(world.host.path("/run/cni/dhcp.sock").exists() && !world.host.path("/run/dhcp.pid").exists());
}

/// The reference plugin's daemon waits for a line of HTTP, and was waited for: 15 s for each call.
#[test]
fn what_listens_is_another_ones() {
    let world = World::empty();
    world.host.container("c1");
    world.host.sh("", "mkdir -p /run/cni /run/other");
    let listener = UnixListener::bind(world.host.path("/run/cni/dhcp.sock")).unwrap();
    // As Go's net/http has it: nothing before a whole line, then 400, as it is no request.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let _ = BufReader::new(&stream).read_until(b'\n', &mut Vec::new());
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request");
        }
    });
    let config = bridge(json!({}));
    // What it says is recognized: it is not waited for more of it, for 15 s.
    let in_time = |begun: Instant| assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
    for (verb, code) in [("ADD", 11), ("CHECK", 11), ("STATUS", 50)] {
        let begun = Instant::now();
        let mut config = world.only("net");
        config["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.3/24"}]});
        let failed = world.cni("c1").call(verb, "dhcp", config.to_string());
        assert_eq!(failed.error()["code"], code, "{verb}: {failed:?}");
        assert!(failed.message().contains("not Netloom's DHCP daemon") && failed.message().contains("reference plugin"), "{failed:?}");
        in_time(begun);
    }
    let begun = Instant::now();
    world.cni("c1").del(&config, &Value::Null);
    in_time(begun);
    let other = bridge(json!({"daemonSocketPath": "/run/other/d.sock"}));
    let failed = world.cni("c1").call("STATUS", "bridge", other.to_string());
    assert!(failed.message().contains("start it (netloom dhcp -socketpath /run/other/d.sock)"), "{failed:?}");
}

/// What listened and said nothing was waited for, 15 s for each call.
#[test]
fn what_listens_says_nothing() {
    let world = World::empty();
    world.host.container("c1");
    let before = world.host.traces();
    world.host.sh("", "mkdir -p /run/cni");
    let listener = UnixListener::bind(world.host.path("/run/cni/dhcp.sock")).unwrap();
    let (waited, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let waited = waited.clone();
            std::thread::spawn(move || {
                let begun = Instant::now();
                // Until who called gives up.
                let _ = stream.unwrap().read_to_end(&mut Vec::new());
                waited.send(begun.elapsed()).unwrap();
            });
        }
    });
    for (verb, code) in [("ADD", 11), ("STATUS", 50)] {
        let failed = world.cni("c1").call(verb, "dhcp", world.only("net").to_string());
        assert_eq!(failed.error()["code"], code, "{verb}: {failed:?}");
        assert!(failed.message().contains("not Netloom's DHCP daemon: it says nothing"), "{failed:?}");
    }
    world.cni("c1").del(&bridge(json!({})), &Value::Null);
    let two = [(); 2].map(|()| waits.recv_timeout(Duration::from_secs(60)).expect("ADD and STATUS have called"));
    let waits: Vec<Duration> = two.into_iter().chain(waits.try_iter()).collect();
    assert!(waits.iter().all(|wait| *wait < Duration::from_secs(15)), "{waits:?}");
    world.host.sh("", "rm /run/cni/dhcp.sock");
    world.host.sh("", "rmdir /run/cni");
    world.host.expect_traces(&before, "calls to what says nothing");
}

/// An executable was killed before it could say that no server answers.
#[test]
fn an_executable_knows_how_long_it_has() {
    let mut world = World::empty();
    world.start();
    world.host.container("c1");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [bridge(json!({}))]});
    world.host.sh("", "mkdir -p /run/nets");
    world.host.write("/run/nets/net.conflist", &list.to_string());
    let mut command = world.host.command("", netloom());
    command.env("CNI_PATH", plugin_dir());
    command.args(["cni", "add", "--timeout", "10", "--conf-dir", "/run/nets", "--cache-dir", "/run/cache", "net", "/run/netns/c1"]);
    let mut told = Vec::new();
    // What is left of its time after the last question may be too short on a machine that stands still for as long.
    let says_so = (0..5).any(|_| {
        let failed = command.output().unwrap();
        told.push(format!("{}{}", String::from_utf8_lossy(&failed.stdout), String::from_utf8_lossy(&failed.stderr)));
        told.last().is_some_and(|told| told.contains("no DHCP server answered") && !told.contains("was killed"))
    });
    assert!(says_so, "{told:#?}");
    assert!(world.host.link("c1", "eth0").is_none());
}

/// The lock of the leases was looked for beside the socket as it was named, and a daemon that was reached by another name refused.
#[test]
fn a_daemon_behind_another_path() {
    let mut world = World::empty();
    world.flags(&["-resendtimeout=4s"]);
    world.start();
    world.host.container("c1");
    world.host.sh("", "mkdir -p /run/other");
    world.host.sh("", "ln -s /run/cni/dhcp.sock /run/other/dhcp.sock");
    let config = bridge(json!({"daemonSocketPath": "/run/other/dhcp.sock"}));
    let failed = world.cni("c1").call("ADD", "bridge", config.to_string());
    assert!(failed.message().contains("no more tries"), "{failed:?}");
}

/// Who came when there were no descriptors left was told of anything, with any code.
#[test]
fn more_callers_than_there_are_descriptors_for() {
    let mut world = World::empty();
    world.host.sh("", "mkdir -p /run/cni");
    let mut daemon = world.host.command("", "prlimit");
    daemon.arg("--nofile=40:168").arg(plugin_dir().join("dhcp")).arg("daemon");
    world.spawn("dhcp", daemon);
    world.host.until("the daemon listens", || world.host.path("/run/cni/dhcp.sock").exists());
    let names: Vec<String> = (0..6).map(|n| format!("c{n}")).collect();
    names.iter().for_each(|name| world.station_at(name, None));
    let config = world.only("net").to_string();
    // One after the other: a connection counts until the daemon has seen its end.
    let start = |(n, name): (usize, &String)| {
        let call = world.cni(name).start("ADD", "dhcp", &config);
        world.until_told("dhcp", "acquiring lease", n + 1);
        call
    };
    let mut waiting: Vec<_> = names[..5].iter().enumerate().map(start).collect();
    let refused = world.cni("c5").call("ADD", "dhcp", &config);
    waiting.iter_mut().for_each(|call| call.kill().unwrap());
    assert_eq!(refused.error()["code"], 11, "{refused:?}");
    assert!(refused.message().contains("its maximum of 5 callers") && refused.message().contains("LimitNOFILE"), "{refused:?}");
    waiting.iter_mut().for_each(|call| assert!(!call.wait().unwrap().success()));
    // There is room again.
    world.host.until("the callers are gone", || world.told("dhcp", "the caller is gone") == 5);
    assert_eq!(world.cni("c5").call("DEL", "dhcp", &config).code, 0);
}

#[test]
fn asked_what_there_is() {
    let world = World::empty();
    let run = |program: &std::path::Path, args: &[&str]| {
        let done = world.host.command("", program).args(args).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr))
    };
    let (code, told) = run(&plugin_dir().join("dhcp"), &["daemon", "-h"]);
    assert!(code == Some(0) && told.contains("-resendtimeout time"), "{told}");
    assert!(run(&plugin_dir().join("dhcp"), &["--help"]).1.contains("dhcp daemon"));
    let (code, told) = run(netloom(), &["dhcp", "daemon", "-timeout", "never"]);
    assert!(code == Some(2) && told.contains("expected a duration"), "{told}");
}
