//! `netloom-cni` as `netloom`, `multus` and `multus-shim`, before an agent of the test's own: what the agent is told, what
//! the runtime gets, and what becomes of a call when the agent is slow, silly or not there.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netloom_tests::{Cni, Host, plugin_dir};
use serde_json::{Value, json};
use wire::{Answer, Call, Ran, Run, ToAgent, ToShim};

const SOCKET: &str = "/run/netloom/agent.sock";
const SPOOL: &str = "/var/lib/netloom/spool";

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "cluster", "type": "netloom", "agentWait": "200ms"})
}

/// A machine with a container `c1`.
fn machine() -> Host {
    let host = Host::new();
    host.container("c1");
    host
}

fn pod<'h>(host: &'h Host, dir: &Path) -> Cni<'h> {
    host.cni(dir).at("c1", "eth0").set("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web")
}

/// An agent that takes so many calls, one after the other, and ends then; its socket stays, as that of one that was killed.
fn agent<F>(host: &Host, calls: usize, answer: F) -> JoinHandle<Vec<Call>>
where
    F: Fn(&mut UnixStream, &Call) + Send + 'static,
{
    let socket = host.path(SOCKET);
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        for _ in 0..calls {
            let (mut stream, _) = listener.accept().unwrap();
            match wire::receive(&mut stream).unwrap() {
                Some(ToAgent::Call(call)) => {
                    answer(&mut stream, &call);
                    seen.push(call);
                }
                other => panic!("{other:?}"),
            }
        }
        seen
    })
}

fn say(stream: &mut UnixStream, exit: u8, stdout: impl AsRef<[u8]>) {
    wire::send(stream, &ToShim::Answer(Answer { exit, stdout: stdout.as_ref().to_vec(), ..Answer::default() })).unwrap();
}

fn run(stream: &mut UnixStream, run: Run) -> Ran {
    wire::send(stream, &ToShim::Run(run)).unwrap();
    match wire::receive(stream).unwrap() {
        Some(ToAgent::Ran(ran)) => ran,
        other => panic!("{other:?}"),
    }
}

/// The files of the DELs that wait.
fn kept(host: &Host) -> Vec<String> {
    host.list(SPOOL).into_iter().filter(|name| name.ends_with(".del")).collect()
}

#[test]
fn a_call_passes_through_under_every_name() {
    let host = machine();
    host.run("", &[plugin_dir().join("netloom-cni").to_str().unwrap(), "install", "/run/bin", "--multus"]);
    // Byte for byte, white space and all; also what is no JSON.
    const RESULT: &str = "{ \"cniVersion\":\"1.1.0\",\r\n\"x\":\"\u{1}<ä>\"}\n\n";
    const ERROR: &str = "{\"code\":137,\"msg\":\"no\",\"details\":\"more\"}";
    let agent = agent(&host, 6, |stream, call| match call.verb.as_str() {
        "ADD" => say(stream, 0, RESULT),
        _ => say(stream, 3, ERROR),
    });
    for program in ["netloom", "multus", "multus-shim"] {
        let mut config = config();
        // What Multus's configurations have; under its names it is the agent's business.
        if program != "netloom" {
            config["delegates"] = json!([{"cniVersion": "1.1.0", "name": "b", "type": "bridge"}]);
        }
        let added = pod(&host, Path::new("/run/bin")).call("ADD", program, config.to_string());
        assert_eq!((added.code, added.stdout.as_str(), added.stderr.as_str()), (0, RESULT, ""), "{program}");
        let deleted = pod(&host, Path::new("/run/bin")).set("CNI_NETNS_OVERRIDE", "true").call("DEL", program, config.to_string());
        assert_eq!((deleted.code, deleted.stdout.as_str()), (3, ERROR), "{program}");
    }
    let calls = agent.join().unwrap();
    let programs: Vec<(&str, &str, bool)> = calls.iter().map(|c| (c.program.as_str(), c.verb.as_str(), c.netns_override)).collect();
    let both = |program| [(program, "ADD", false), (program, "DEL", true)];
    assert_eq!(programs, [both("netloom"), both("multus"), both("multus-shim")].concat());
    let first = &calls[0];
    assert_eq!((first.protocol, first.container_id.as_str(), first.ifname.as_str()), (1, "c1", "eth0"));
    assert_eq!((first.netns.as_str(), first.args.as_str()), ("/run/netns/c1", "IgnoreUnknown=1;K8S_POD_NAME=web"));
    assert_eq!((first.path.as_str(), first.config.as_slice()), ("/run/bin", config().to_string().as_bytes()));
    assert_eq!(kept(&host), [""; 0]);
}

/// VERSION needs no agent, and Multus's names are there only if they are asked for.
#[test]
fn version_is_answered_alone() {
    let host = machine();
    host.run("", &[plugin_dir().join("netloom-cni").to_str().unwrap(), "install", "/run/bin"]);
    assert!(!host.list("/run/bin").contains(&"multus".to_owned()));
    host.run("", &[plugin_dir().join("netloom-cni").to_str().unwrap(), "install", "--multus", "/run/bin"]);
    for program in ["netloom", "multus", "multus-shim"] {
        let versions = host.cni(Path::new("/run/bin")).call("VERSION", program, "").result();
        assert!(versions["supportedVersions"].as_array().unwrap().contains(&json!("1.1.0")), "{program}");
    }
}

/// An `ovs` of another program has ports of its own: it stays, unless it is said otherwise.
#[test]
fn another_programs_ovs_is_replaced_only_by_force() {
    let host = machine();
    host.write("/run/bin/ovs", "#!/bin/sh\necho theirs\n");
    host.write("/run/bin/bridge", "#!/bin/sh\necho theirs\n");
    let program = plugin_dir().join("netloom-cni");
    let link = |name: &str| std::fs::read_link(host.path(format!("/run/bin/{name}"))).ok();
    let own = Some(PathBuf::from("netloom-cni"));
    let said = host.run("", &[program.to_str().unwrap(), "install", "/run/bin"]);
    assert!(said.contains("left /run/bin/ovs as it is, which is another program's: --force replaces it"), "{said}");
    assert_eq!((link("ovs"), link("bridge"), link("ovs-hybrid")), (None, own.clone(), own.clone()));
    let said = host.run("", &[program.to_str().unwrap(), "install", "--force", "/run/bin"]);
    assert!(!said.contains("left"), "{said}");
    assert_eq!(link("ovs"), own);
    let said = host.run("", &[program.to_str().unwrap(), "install", "/run/bin"]);
    assert!(!said.contains("left"), "its own is replaced: {said}");
}

#[test]
fn an_external_plugin_is_run_by_the_waiting_process() {
    let host = machine();
    let plugin = "#!/bin/sh\necho \"$CNI_COMMAND $CNI_IFNAME $CNI_ARGS $CNI_CONTAINERID $HOME_OF\"; cat; printf '\\377' >&2; exit 5\n";
    host.write("/run/bin/theirs", plugin);
    host.write("/run/bin/slow", "#!/bin/sh\necho so far >&2\nexec sleep 60\n");
    host.run("", &["chmod", "+x", "/run/bin/theirs", "/run/bin/slow"]);
    let agent = agent(&host, 1, |stream, _| {
        let env = vec![("CNI_COMMAND".into(), "DEL".into()), ("CNI_IFNAME".into(), "net1".into())];
        let theirs = |path: &str, millis| Run { path: PathBuf::from(path), env: env.clone(), stdin: b"{\"\xfe\"}".to_vec(), millis };
        let done = run(stream, theirs("/run/bin/theirs", 60_000));
        let Ran::Done { success: false, ended, stdout, stderr } = done else { panic!("{done:?}") };
        // Its own environment, but nothing of its own call.
        assert_eq!((ended.as_str(), stderr.as_slice()), ("exit status: 5", b"\xff".as_slice()));
        assert_eq!(String::from_utf8_lossy(&stdout), "DEL net1   here\n{\"\u{fffd}\"}");
        let refused = |run: Run, stream: &mut UnixStream| match self::run(stream, run) {
            Ran::Failed { try_again, reason } => (try_again, reason),
            other => panic!("{other:?}"),
        };
        let (again, reason) = refused(theirs("/run/bin/slow", 4000), stream);
        assert!(again && reason.contains("timed out") && reason.contains("so far"), "{reason}");
        let (again, reason) = refused(theirs("/run/bin/none", 60_000), stream);
        assert!(!again && reason.contains("/run/bin/none: no such file"), "{reason}");
        let (again, reason) = refused(theirs("bin/theirs", 60_000), stream);
        assert!(!again && reason.contains("not an absolute path"), "{reason}");
        say(stream, 0, "{}");
    });
    let added = pod(&host, plugin_dir()).set("HOME_OF", "here").call("ADD", "netloom", config().to_string());
    agent.join().unwrap();
    assert_eq!((added.code, added.stdout.as_str()), (0, "{}"));
}

/// What every plugin refuses is refused before an agent is asked: there is none here.
#[test]
fn what_a_plugin_refuses_is_refused_with_the_same_words() {
    let host = machine();
    let text = config().to_string();
    let config = |key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        config.to_string()
    };
    let good = || pod(&host, plugin_dir());
    for (cni, verb, config, code) in [
        (good().unset("CNI_IFNAME"), "ADD", text.clone(), 4),
        (good().set("CNI_IFNAME", "a/b"), "DEL", text.clone(), 4),
        (good().unset("CNI_CONTAINERID").unset("CNI_PATH"), "ADD", text.clone(), 4),
        (good().set("CNI_ARGS", "nonsense"), "ADD", text.clone(), 4),
        (good().set("CNI_NETNS", "/run/netns/none"), "ADD", text.clone(), 8),
        (good(), "EAT", text.clone(), 4),
        (good(), "ADD", "{".to_owned(), 6),
        (good(), "ADD", config("name", json!("")), 7),
        (good(), "ADD", config("cniVersion", json!("9.0.0")), 1),
        (good(), "GC", config("cniVersion", json!("1.0.0")), 1),
    ] {
        let answers = ["netloom", "bridge"].map(|program| cni.call(verb, program, &config));
        let [ours, bridge] = answers.map(|answer| answer.error());
        assert_eq!(ours["code"], code, "{verb} {config}: {ours}");
        assert_eq!(ours["msg"], bridge["msg"], "{verb} {config}");
    }
    for (key, value) in [("agent", json!("x.sock")), ("socketDir", json!(7)), ("agentWait", json!("soon"))] {
        let refused = good().call("ADD", "netloom", config(key, value));
        assert!(refused.error()["code"] == 7 && refused.message().starts_with(key), "{refused:?}");
    }
}

#[test]
fn without_an_agent_the_call_fails_and_says_what_to_look_at() {
    let host = machine();
    for verb in ["ADD", "CHECK", "STATUS", "GC"] {
        let start = Instant::now();
        let failed = pod(&host, plugin_dir()).call(verb, "netloom", config().to_string());
        let took = start.elapsed();
        // STATUS has a code for it.
        assert_eq!(failed.error()["code"], if verb == "STATUS" { 50 } else { 11 }, "{verb}");
        assert!((200..120_000).contains(&took.as_millis()), "{verb}: {took:?}");
        for words in [SOCKET, "no such socket", "waited ", "kubectl -n kube-system get pods -l app=netloom -o wide", "systemctl status"] {
            assert!(failed.message().contains(words), "{verb}: {failed:?} lacks {words:?}");
        }
    }
    // The socket of an agent that was killed.
    agent(&host, 0, |_, _| {}).join().unwrap();
    let failed = pod(&host, plugin_dir()).call("ADD", "netloom", config().to_string());
    assert!(failed.error()["code"] == 11 && failed.message().contains("nothing listens on it"), "{failed:?}");
}

/// Whoever asks for STATUS has a limit of his own, of a few seconds, and asks again: he is answered at once, however long an
/// ADD would wait.
#[test]
fn status_without_an_agent_is_answered_soon() {
    let host = machine();
    let mut patient = config();
    patient["agentWait"] = json!(600);
    let status = || {
        let start = Instant::now();
        let failed = host.cni(plugin_dir()).call("STATUS", "netloom", patient.to_string());
        assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
        assert!(failed.error()["code"] == 50 && failed.message().contains("kubectl"), "{failed:?}");
    };
    status();
    // The socket of one that was killed, and one that dies in the middle.
    agent(&host, 0, |_, _| {}).join().unwrap();
    status();
    let dying = agent(&host, 1, |_, _| {});
    status();
    dying.join().unwrap();
}

/// Whether a call that waits for an agent came to it because the kernel reported the socket: the last thing that it read before it
/// connected is an event, and not the end of the pause between two attempts.
fn is_woken(dead: bool) -> bool {
    let host = machine();
    if dead {
        agent(&host, 0, |_, _| {}).join().unwrap();
    }
    let mut patient = config();
    patient["agentWait"] = json!(120);
    let mut waiting = pod(&host, plugin_dir()).start("ADD", "netloom", patient.to_string());
    let watches = || {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", waiting.id())).into_iter().flatten().flatten();
        entries.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|file| file == Path::new("anon_inode:inotify"))
    };
    host.until("it watches for the socket", watches);
    let trace = host.path("/run/trace");
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-y", "-e", "trace=read,connect", "-o"]).arg(&trace).args(["-p", &waiting.id().to_string()]);
    let mut strace = strace.stdin(Stdio::null()).spawn().unwrap();
    let traced = |text: String| text.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
    host.until("it is traced", || std::fs::read_to_string(format!("/proc/{}/status", waiting.id())).is_ok_and(traced));
    agent(&host, 1, |stream, _| say(stream, 0, "{}")).join().unwrap();
    assert!(waiting.wait().unwrap().success());
    strace.wait().unwrap();
    let calls = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = calls.lines().collect();
    let connected = lines.iter().position(|line| line.starts_with("connect(") && line.ends_with(" = 0"));
    let connected = connected.unwrap_or_else(|| panic!("it has connected: {calls}"));
    // `read(5<anon_inode:inotify>, "...", 4096) = 32`, or `= -1 EAGAIN (...)`
    lines[..connected].iter().rev().find(|line| line.contains("inotify")).is_some_and(|line| !line.contains("= -1 "))
}

/// Both for an agent that has never been there and for one that takes a dead one's place. (One of some, as the pause may be over in the
/// moment in which the agent appears; without a report that would be so each time.)
#[test]
fn a_call_waits_until_the_agent_appears() {
    for dead in [false, true] {
        assert!((0..9).any(|_| is_woken(dead)), "dead: {dead}: it has only ever looked by itself");
    }
}

#[test]
fn an_agent_that_dies_in_the_middle_fails_the_call_and_keeps_the_del() {
    let host = machine();
    let agent = agent(&host, 3, |stream, call| match call.verb.as_str() {
        // In the middle of a message.
        "ADD" => stream.write_all(&[0, 0, 1, 0, b'{']).unwrap(),
        _ => drop(run(stream, Run { path: "/bin/true".into(), millis: 5000, ..Run::default() })),
    });
    let failed = pod(&host, plugin_dir()).call("ADD", "netloom", config().to_string());
    assert!(failed.error()["code"] == 11 && failed.message().contains("stopped in the middle") && failed.message().contains("kubectl"));
    let failed = pod(&host, plugin_dir()).call("CHECK", "netloom", config().to_string());
    assert!(failed.error()["code"] == 11 && failed.message().contains("stopped in the middle"), "{failed:?}");
    let deleted = pod(&host, plugin_dir()).call("DEL", "netloom", config().to_string());
    assert_eq!((deleted.code, deleted.stdout.as_str()), (0, ""), "{deleted:?}");
    assert_eq!(agent.join().unwrap().len(), 3);
    assert_eq!(kept(&host), ["c1@eth0.del"]);
}

#[test]
fn a_del_without_an_agent_is_kept_and_succeeds() {
    let host = machine();
    let start = Instant::now();
    let mut patient = config();
    patient["agentWait"] = json!(600);
    patient["x"] = json!("first");
    let del = |config: &Value| {
        let deleted = pod(&host, plugin_dir()).unset("CNI_NETNS").call("DEL", "netloom", config.to_string());
        assert_eq!((deleted.code, deleted.stdout.as_str(), deleted.stderr.as_str()), (0, "", ""));
    };
    del(&patient);
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    del(&config());
    assert_eq!(kept(&host), ["c1@eth0.del"]);
    assert_eq!(host.run("", &["stat", "-c", "%a %U", SPOOL, &format!("{SPOOL}/c1@eth0.del")]), "700 root\n600 root\n");
    let text = std::fs::read_to_string(host.path(SPOOL).join("c1@eth0.del")).unwrap();
    let (_, call) = text.split_once('\n').unwrap();
    let call: Call = wire::parse(call.as_bytes()).unwrap();
    assert_eq!((call.verb.as_str(), call.container_id.as_str(), call.config), ("DEL", "c1", config().to_string().into_bytes()));
    // Back again: a DEL that it answers is not kept any longer, if it succeeds.
    let agent = agent(&host, 1, |stream, _| say(stream, 0, ""));
    del(&config());
    agent.join().unwrap();
}

/// Where the agent looks that has another directory of state.
#[test]
fn a_del_is_kept_where_the_configuration_says() {
    let host = machine();
    let mut config = config();
    config["spool"] = json!("/var/lib/other/spool");
    host.run("", &["mkdir", "-p", "/var/lib/other"]);
    pod(&host, plugin_dir()).del(&config, &Value::Null);
    assert!(host.list("/var/lib/other/spool").contains(&"c1@eth0.del".to_owned()));
    assert_eq!(kept(&host), [""; 0]);
    config["spool"] = json!("other/spool");
    let refused = pod(&host, plugin_dir()).call("DEL", "netloom", config.to_string());
    assert!(refused.error()["code"] == 7 && refused.message().contains("spool"), "{refused:?}");
}

/// The runtime is told that the DEL has failed, and comes again.
#[test]
fn a_del_that_cannot_be_kept_fails() {
    let host = machine();
    host.run("", &["mkdir", "-p", "/var/lib/netloom"]);
    host.run("", &["mount", "-t", "tmpfs", "-o", "ro", "full", "/var/lib/netloom"]);
    let failed = pod(&host, plugin_dir()).call("DEL", "netloom", config().to_string());
    assert!(failed.error()["code"] == 5 && (failed.message().contains("EROFS") || failed.message().contains("Read-only")), "{failed:?}");
    assert!(failed.message().contains("/var/lib/netloom/spool") && failed.message().contains("kubectl"), "{failed:?}");
    host.run("", &["mount", "-o", "remount,rw,nr_inodes=2", "/var/lib/netloom"]);
    let failed = pod(&host, plugin_dir()).call("DEL", "netloom", config().to_string());
    assert_eq!(failed.error()["code"], 5, "{failed:?}");
    assert_eq!(kept(&host), [""; 0]);
    host.run("", &["mount", "-o", "remount,nr_inodes=100", "/var/lib/netloom"]);
    pod(&host, plugin_dir()).del(&config(), &Value::Null);
    assert_eq!(kept(&host), ["c1@eth0.del"]);
}

/// Killed at any step a DEL has left nothing, or a whole file; the runtime's next one puts the same there.
#[test]
fn a_del_that_is_killed_while_it_is_kept_leaves_all_or_nothing() {
    let host = machine();
    for (point, left) in [("file-created", 0), ("file-written", 0), ("file-replaced", 1), ("del-kept", 1)] {
        let killed = pod(&host, plugin_dir()).set("NETLOOM_CRASH_AT", point).call("DEL", "netloom", config().to_string());
        assert_eq!(killed.code, -1, "{point}: {killed:?}");
        let files = kept(&host);
        assert_eq!(files.len(), left, "{point}");
        for file in files {
            let text = std::fs::read_to_string(host.path(SPOOL).join(file)).unwrap();
            assert!(wire::parse::<Call>(text.split_once('\n').unwrap().1.as_bytes()).is_ok());
        }
        pod(&host, plugin_dir()).del(&config(), &Value::Null);
        assert_eq!(kept(&host).len(), 1, "{point}");
        host.run("", &["rm", "-r", SPOOL]);
    }
}

/// An agent that has come while a DEL was being kept gets it, and it is not kept any longer.
#[test]
fn a_kept_del_reaches_an_agent_that_has_just_come() {
    let host = machine();
    let dir = plugin_dir();
    let mut child = pod(&host, dir).set("NETLOOM_CRASH_STOP", "del-kept").start("DEL", "netloom", config().to_string());
    let stat = format!("/proc/{}/stat", child.id());
    // The state comes after the name, which is in parentheses.
    let state = || std::fs::read_to_string(&stat).ok().and_then(|s| s.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
    host.until("it has kept the DEL, and stands there", || state() == Some('T'));
    assert_eq!(kept(&host).len(), 1);
    let agent = agent(&host, 1, |stream, _| say(stream, 0, ""));
    host.run("", &["kill", "-CONT", &child.id().to_string()]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(agent.join().unwrap()[0].verb, "DEL");
    assert_eq!(kept(&host), [""; 0]);
}

#[test]
fn garbage_from_the_socket_is_an_error_and_nothing_is_kept() {
    let host = machine();
    let garbage: [&[u8]; 6] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x03{\"\xff",
        b"\x00\x00\x00\x0c{\"answer\":1}",
        b"\x00\x00\x00\x0b{\"call\":{} }",
    ];
    for bytes in garbage {
        for verb in ["ADD", "DEL"] {
            let agent = agent(&host, 1, move |stream, _| stream.write_all(bytes).unwrap());
            let failed = pod(&host, plugin_dir()).call(verb, "netloom", config().to_string());
            assert!(failed.error()["code"] == 11 && failed.message().contains("cannot parse"), "{bytes:?}: {failed:?}");
            agent.join().unwrap();
        }
    }
    assert_eq!(kept(&host), [""; 0]);
}

#[test]
fn a_peer_that_is_not_root_is_asked_nothing() {
    let host = machine();
    host.run("", &["mkdir", "-m", "777", "/run/open"]);
    let script = "import socket,os,sys\ns=socket.socket(socket.AF_UNIX); os.setuid(65534); s.bind('/run/open/agent.sock'); s.listen()\n\
        print('up', flush=True); c,_=s.accept(); print(len(c.recv(10)), flush=True)";
    let mut stranger = host.command("", "python3");
    let mut stranger = stranger.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut up = [0; 3];
    stranger.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let mut config = config();
    config["socketDir"] = json!("/run/open");
    let failed = pod(&host, plugin_dir()).call("ADD", "netloom", config.to_string());
    assert!(failed.error()["code"] == 5 && failed.message().contains("user 65534 listens on it, not root"), "{failed:?}");
    let mut said = String::new();
    stranger.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    stranger.wait().unwrap();
    assert_eq!(said, "0\n");
}

/// Up to a megabyte towards the agent, which hears many callers; what is more is told before it is sent.
#[test]
fn large_messages_pass_both_ways() {
    let host = machine();
    let large = "ä\u{1}".repeat(64 << 10);
    let answer = format!("{{\"x\":\"{}\"}}", "y".repeat(12 << 20));
    let given = answer.clone();
    let mut config = config();
    config["much"] = json!(large);
    let text = config.to_string();
    let (expected, expected_again) = (text.clone(), text.clone());
    for (name, prints) in [
        ("loud", "head -c 60000 /dev/zero; head -c 60000 /dev/urandom >&2"),
        ("louder", "head -c 1000000 /dev/zero"),
        ("loudest", "head -c 9000000 /dev/zero"),
    ] {
        host.write(&format!("/run/bin/{name}"), &format!("#!/bin/sh\n{prints}\n"));
        host.run("", &["chmod", "+x", &format!("/run/bin/{name}")]);
    }
    let agent = agent(&host, 1, move |stream, call| {
        assert!(call.config == expected.as_bytes());
        let loud = |path: &str| Run { path: path.into(), millis: 120_000, ..Run::default() };
        match run(stream, loud("/run/bin/loud")) {
            Ran::Done { success: true, stdout, stderr, .. } => assert_eq!((stdout.len(), stderr.len()), (60_000, 60_000)),
            other => panic!("{other:?}"),
        }
        for (path, why) in [("/run/bin/louder", "what the plugin printed: a message of"), ("/run/bin/loudest", "printed more than")] {
            match run(stream, loud(path)) {
                Ran::Failed { try_again: false, reason } => assert!(reason.contains(why), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        say(stream, 0, &given);
    });
    let added = pod(&host, plugin_dir()).set("PATH", "/usr/bin:/bin").call("ADD", "netloom", text);
    assert!(added.code == 0 && added.stdout == answer, "{:?}", added.stdout.get(..200));
    agent.join().unwrap();
    let refused = pod(&host, plugin_dir()).call("ADD", "netloom", vec![b' '; (16 << 20) + 1]);
    assert_eq!(refused.error()["code"], 6);
    let mut config: Value = serde_json::from_str(&expected_again).unwrap();
    config["more"] = json!("x".repeat(1 << 20));
    let _listens = UnixListener::bind(host.path("/run/netloom/large.sock")).unwrap();
    config["agent"] = json!("/run/netloom/large.sock");
    let refused = pod(&host, plugin_dir()).call("ADD", "netloom", config.to_string());
    assert!(refused.error()["code"] == 7 && refused.message().contains("larger than the maximum of 1048576"), "{refused:?}");
}

/// It is there and takes its time: that is no reason to give up, however short the wait for one that is not there.
#[test]
fn a_slow_agent_is_waited_for() {
    let host = machine();
    let agent = agent(&host, 2, |stream, _| {
        // Sleeps: an agent that is slow.
        std::thread::sleep(Duration::from_millis(1500));
        say(stream, 0, "{}");
    });
    for verb in ["ADD", "DEL"] {
        let answered = pod(&host, plugin_dir()).call(verb, "netloom", config().to_string());
        assert_eq!((answered.code, answered.stdout.as_str()), (0, "{}"), "{verb}");
    }
    assert_eq!((agent.join().unwrap().len(), kept(&host)), (2, Vec::new()));
}
