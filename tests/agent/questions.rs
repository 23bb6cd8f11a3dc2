//! `netloom status`, `pods` and `explain`, asked of an agent that the test plays.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;

use netloom_tests::netloom;
use serde_json::Value;
use wire::{AdminReply, Ask};

/// A directory that goes with the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("netloom-ask-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Answers so many questions, and tells at its end which ones they were.
fn agent(socket: &Path, questions: usize, answer: impl Fn(&Ask) -> AdminReply + Send + 'static) -> JoinHandle<Vec<Ask>> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let one = |mut stream: UnixStream| {
            let ask: Ask = wire::receive(&mut stream).unwrap().expect("a question");
            wire::send(&mut stream, &answer(&ask)).unwrap();
            ask
        };
        (0..questions).map(|_| one(listener.accept().unwrap().0)).collect()
    })
}

fn told(json: &str) -> AdminReply {
    AdminReply::Value(json::parse(json.as_bytes()).unwrap())
}

fn run(socket: &Path, args: &[&str]) -> Output {
    Command::new(netloom()).args(args).env("NETLOOM_ADMIN_SOCKET", socket).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it against an agent that answers one question so.
fn asked(name: &str, answer: &'static str, args: &[&str]) -> (Output, Ask) {
    let dir = Dir::new(name);
    let agent = agent(&dir.socket(), 1, move |_| told(answer));
    let out = run(&dir.socket(), args);
    (out, agent.join().unwrap().remove(0))
}

const READY: &str = r#"{"node": "worker-1", "ready": true, "sandboxes": 12, "zebra": {"b": 1, "a": [null, "x"]}}"#;

#[test]
fn the_exit_code_says_whether_the_agent_is_ready() {
    let (out, ask) = asked("ready", READY, &["status"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!((ask.what.as_str(), ask.args.is_empty()), ("status", true));
    let lines = text(&out.stdout);
    assert!(
        lines.starts_with("node             worker-1\nstate            READY\nAPI server       -\n"),
        "no colours for a program:\n{lines}"
    );
    let (out, _) = asked("unready", r#"{"node": "worker-1", "ready": false, "why": "no default network"}"#, &["status"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stdout).contains("state            NOT READY: no default network\n"), "{}", text(&out.stdout));
    let (out, _) = asked("silent", "{}", &["status", "-o", "json"]);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(3), "{}\n"), "who does not say so is not ready");
}

#[test]
fn structured_output_is_what_the_agent_said() {
    let (out, _) = asked("json", READY, &["status", "-o", "json"]);
    let (got, sent): (Value, Value) = (serde_json::from_slice(&out.stdout).unwrap(), serde_json::from_str(READY).unwrap());
    assert_eq!(got, sent, "keys that this version does not know, too");
    let (out, _) = asked("yaml", READY, &["status", "-o", "yaml"]);
    assert!(text(&out.stdout).contains("node: worker-1\nready: true\nsandboxes: 12\nzebra:\n"), "{}", text(&out.stdout));
    let (out, _) = asked("coloured", READY, &["status", "--color", "always"]);
    assert!(text(&out.stdout).contains("\u{1b}[32mREADY\u{1b}[0m"), "{:?}", text(&out.stdout));
}

const PODS: &str = r#"[{"namespace": "shop", "name": "db", "state": "Failed", "reasons": ["no address is left in 10.1.0.0/30"], "networks": []},
    {"namespace": "default", "name": "web", "state": "Attached", "networks": [{"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.5"]}]}]"#;

#[test]
fn pods_of_all_namespaces_or_of_one() {
    let (out, ask) = asked("pods", PODS, &["pods"]);
    let table = "\
POD          STATE     NETWORK  INTERFACE  ADDRESSES
default/web  Attached  cbr0     eth0       10.244.0.5
shop/db      Failed    -        -          -
  no address is left in 10.1.0.0/30
";
    assert_eq!((text(&out.stdout).as_str(), out.status.code(), ask.what.as_str()), (table, Some(3), "pods"));
    let (out, _) = asked("one-namespace", PODS, &["pods", "-n", "default", "-o", "json"]);
    let pods: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((pods.as_array().unwrap().len(), &pods[0]["name"], out.status.code()), (1, &Value::from("web"), Some(0)));
    let (out, _) = asked("no-pods", PODS, &["pods", "-n", "none"]);
    assert_eq!(text(&out.stdout), "no pod of namespace none is attached on this node\n");
    let (out, _) = asked("empty", "[]", &["pods"]);
    assert_eq!((text(&out.stdout).as_str(), out.status.code()), ("no pod is attached on this node\n", Some(0)));
}

#[test]
fn explain_asks_for_one_pod() {
    let answer = r#"{"namespace": "shop", "name": "db", "phase": "Pending", "networks": "a,b/c", "sandboxes": [],
        "lastCall": {"verb": "ADD", "tookMicros": 1500, "code": 7, "error": "it is wrong"}}"#;
    let (out, ask) = asked("explain", answer, &["explain", "shop/db"]);
    assert_eq!((ask.what.as_str(), ask.args.str("namespace"), ask.args.str("name")), ("explain", Some("shop"), Some("db")));
    let story = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    for part in
        ["shop/db: Failed (ADD at -)\n", "asked for        1  a\n", "2  b/c\n", "ADD failed after 1.5 ms", "message          it is wrong\n"]
    {
        assert!(story.contains(part), "{part:?} is not in\n{story}");
    }
}

#[test]
fn a_pod_of_another_namespace_is_proposed() {
    let dir = Dir::new("elsewhere");
    let agent = agent(&dir.socket(), 2, |ask| match ask.what.as_str() {
        "explain" => AdminReply::Refused("no pod default/db on node worker-1".to_owned()),
        _ => told(PODS),
    });
    let out = run(&dir.socket(), &["explain", "db"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stderr), "error: no pod default/db on node worker-1; did you mean shop/db?\n");
    assert_eq!(agent.join().unwrap()[0].args.str("namespace"), Some("default"));
}

#[test]
fn who_cannot_be_asked_is_told_with_the_next_step() {
    let dir = Dir::new("nobody");
    let error = |out: Output| {
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(1), ""));
        text(&out.stderr)
    };
    let missing = error(run(&dir.socket(), &["status"]));
    assert!(missing.starts_with(&format!("error: no agent runs on this node: {} does not exist\n", dir.socket().display())), "{missing}");
    assert!(missing.contains("kubectl -n kube-system get pods -l app=netloom"), "{missing}");
    drop(UnixListener::bind(dir.socket()).unwrap());
    let stale = error(run(&dir.socket(), &["pods"]));
    assert!(stale.contains("no agent runs on this node any more") && stale.contains("kubectl"), "{stale}");
    // What the command line says goes over the environment.
    let other = dir.0.join("other.sock");
    let flag = error(run(&dir.socket(), &["explain", "x", "--socket", other.to_str().unwrap()]));
    assert!(flag.contains("other.sock does not exist"), "{flag}");
}

/// Runs `netloom status` against a peer that reads the question and then says these bytes.
fn against(name: &str, bytes: &[u8]) -> String {
    let bytes = bytes.to_vec();
    let dir = Dir::new(name);
    let listener = UnixListener::bind(dir.socket()).unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        wire::receive::<Ask>(&mut stream).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let out = run(&dir.socket(), &["status"]);
    peer.join().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(1), ""));
    text(&out.stderr)
}

#[test]
fn an_answer_that_is_none_is_no_answer() {
    let closed = against("closed", b"");
    assert!(closed.contains("closed the connection without an answer"), "{closed}");
    let cut = against("cut", b"\0\0\0\x20{");
    assert!(cut.contains("stopped before it answered"), "{cut}");
    let garbage = against("garbage", b"\0\0\0\x03abc");
    assert!(garbage.contains("cannot parse") && garbage.contains(env!("CARGO_PKG_VERSION")), "{garbage}");
    let huge = against("huge", b"\xff\xff\xff\xff");
    assert!(huge.contains("cannot parse") && huge.contains("larger than"), "{huge}");
    let framed = |json: &str| [&u32::try_from(json.len()).unwrap().to_be_bytes()[..], json.as_bytes()].concat();
    let list = against("list", &framed(r#"{"told":{"value":[1,2]}}"#));
    assert!(list.contains("not an object"), "{list}");
    let hostile = against("hostile", &framed(r#"{"refused":{"reason":"a\u001b[2Jbcd"}}"#));
    assert!(hostile.contains("a\\u{1b}[2Jbcd") && !hostile.contains('\u{1b}'), "{hostile:?}");
}

#[test]
fn the_agent_is_not_started_with_settings_that_are_wrong() {
    let dir = Dir::new("settings");
    let file = dir.0.join("agent.yaml");
    std::fs::write(&file, "clusterNetwrk: cbr0\n").unwrap();
    let out = run(&dir.socket(), &["agent", "--config", file.to_str().unwrap(), "--node", "n"]);
    assert_eq!(out.status.code(), Some(1));
    let error = text(&out.stderr);
    assert!(error.contains("clusterNetwrk") && error.contains("clusterNetwork"), "{error}");
    let out = run(&dir.socket(), &["agent", "run", "--config", "/nonexistent/agent.yaml"]);
    assert!(text(&out.stderr).contains("/nonexistent/agent.yaml"), "{}", text(&out.stderr));
}
