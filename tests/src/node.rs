//! A node of a cluster without kubelet: an agent before a real API server, and pods whose runtime is the test.
//!
//! ```text
//!   Node: a Host -- up0 ---- up1 (both ends in the node: macvlans stand on up0)
//!     |-- agent             `netloom agent run`, its directories where they always are, which are the Host's own
//!     |-- 127.0.0.1:PORT    the API server, through an ApiProxy
//!     `-- pods              namespaces in /run/netns
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Api, ApiProxy, Host, Pod, Traces, guest, netloom, plugin_dir, seen_within};

/// How long an agent may take until it serves, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where its settings are, as the node sees it.
pub const SETTINGS: &str = "/run/agent.yaml";

/// The socket of calls.
pub const SOCKET: &str = "/run/netloom/agent.sock";

/// A node, and its agent where one runs.
pub struct Node {
    /// The machine.
    pub host: Host,
    /// The API server.
    pub api: Arc<Api>,
    /// The node's way to it.
    pub api_proxy: ApiProxy,
    /// What the API server calls it.
    pub name: String,
    /// The namespace of its pods: its name, with `-` for periods.
    pub namespace: String,
    /// The directory of executables.
    pub bin: PathBuf,
    program: PathBuf,
    env: Mutex<BTreeMap<String, String>>,
    agent: Mutex<Option<Agent>>,
    log: Arc<Mutex<String>>,
    sandboxes: AtomicU32,
}

/// A process of the agent. It is killed when it is dropped, and ends with the thread that started it: start it from the
/// test's own.
pub struct Agent {
    /// Its process ID.
    pub pid: u32,
    child: Child,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Node ===

impl Node {
    /// A node with a bridge as its pods' default network, before the shared API server. `extra` are more settings, in YAML.
    ///
    /// # Panics
    /// If it cannot be made, or the agent is not ready in time.
    pub fn start(name: &str, extra: &str) -> Node {
        let node = Node::new(&Api::shared(), name, extra);
        node.restart();
        node
    }

    /// The same before another API server; no agent runs yet.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(api: &Arc<Api>, name: &str, extra: &str) -> Node {
        let host = Host::new();
        for words in ["add up0 type veth peer name up1", "set up0 up", "set up1 up"] {
            host.sh("", &format!("ip link {words}"));
        }
        let netns = PathBuf::from(format!("/proc/{}/ns/net", host.pid()));
        let node = Node {
            api_proxy: ApiProxy::new(netns, api.address()),
            host,
            api: Arc::clone(api),
            name: name.to_owned(),
            namespace: name.replace('.', "-"),
            bin: plugin_dir().to_owned(),
            program: netloom().to_owned(),
            env: Mutex::default(),
            agent: Mutex::default(),
            log: Arc::default(),
            sandboxes: AtomicU32::new(0),
        };
        node.host.write("/run/kubeconfig", &api.kubeconfig("admin"));
        node.configure(name, extra);
        api.namespace(&node.namespace);
        for n in 1..=3 {
            let config = json!({"cniVersion": "1.0.0", "name": format!("mac{n}"), "type": "macvlan", "master": "up0",
                "ipam": {"type": "host-local", "subnet": format!("10.{n}.0.0/16")}});
            node.define(&format!("mac{n}"), &config.to_string());
        }
        node
    }

    /// Writes the agent's settings: its name for the node, and more of them in YAML.
    pub fn configure(&self, node_name: &str, extra: &str) {
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "br0", "isGateway": true,
            "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]});
        let bin = self.bin.display();
        let settings = format!(
            "nodeName: {node_name}\nkubeconfig: /run/kubeconfig\nbinDir: {bin}\ninstall: never\ndelegates:\n- {network}\n{extra}\n"
        );
        self.host.write(SETTINGS, &settings);
    }

    /// A variable of the next agent's environment; `""` takes it away.
    pub fn set(&self, variable: &str, value: &str) {
        match value {
            "" => drop(lock(&self.env).remove(variable)),
            value => drop(lock(&self.env).insert(variable.to_owned(), value.to_owned())),
        }
    }

    /// The command of an agent, as it stands in [`SETTINGS`].
    pub fn command(&self) -> Command {
        let mut command = self.host.command("", "setpriv");
        // So that none is left of a test that was killed.
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program).args(["agent", "run", "--config", SETTINGS]);
        command.envs(lock(&self.env).iter());
        command
    }

    /// Starts an agent, and does not wait until it serves. The one before it is killed if it still runs.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn launch(&self) {
        let mut agent = lock(&self.agent);
        drop(agent.take());
        let mut child = self.command().stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (stderr, log) = (child.stderr.take().unwrap(), Arc::clone(&self.log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let mut log = lock(&log);
                log.push_str(&String::from_utf8_lossy(&line));
                log.push('\n');
            }
        });
        // nsenter and setpriv become the program that they start.
        *agent = Some(Agent { pid: child.id(), child });
    }

    /// Starts an agent, and waits until it serves calls and knows what the API server knows.
    ///
    /// # Panics
    /// If it is not ready within two minutes.
    pub fn restart(&self) {
        self.launch();
        self.until("the agent is ready", || self.status()["ready"] == json!(true));
    }

    /// Starts an agent, and waits until it takes calls.
    ///
    /// # Panics
    /// If it does not within two minutes.
    pub fn serve(&self) {
        self.launch();
        let socket = self.host.path(SOCKET);
        // Who says nothing has asked nothing.
        self.until("the agent serves", || UnixStream::connect(&socket).is_ok());
    }

    /// Ends the agent with SIGKILL.
    pub fn kill9(&self) {
        drop(lock(&self.agent).take());
    }

    /// Sends the agent SIGTERM, and does not wait.
    ///
    /// # Panics
    /// If none runs.
    pub fn terminate(&self) {
        let pid = lock(&self.agent).as_ref().expect("an agent runs").pid;
        assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    }

    /// Waits until the agent has ended.
    ///
    /// # Panics
    /// If it does not within two minutes.
    pub fn ended(&self) {
        self.until("the agent ends", || !self.lives());
    }

    /// Whether the agent's process lives.
    pub fn lives(&self) -> bool {
        lock(&self.agent).as_mut().is_some_and(|agent| matches!(agent.child.try_wait(), Ok(None)))
    }

    /// The agent's process ID.
    ///
    /// # Panics
    /// If none runs.
    pub fn pid(&self) -> u32 {
        lock(&self.agent).as_ref().expect("an agent runs").pid
    }

    /// What every agent of this node has logged.
    pub fn log(&self) -> String {
        lock(&self.log).clone()
    }

    /// The most memory that the agent had at a time, in KiB (`VmHWM`).
    ///
    /// # Panics
    /// If none runs.
    pub fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How long the agent has computed since it began, to a hundredth of a second.
    ///
    /// # Panics
    /// If none runs.
    pub fn computed(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // Behind the name, which may have anything: utime and stime are the 14th and 15th field, in hundredths (USER_HZ).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        Duration::from_millis(fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
    }

    /// Looks whether an agent that has nothing to do rests.
    ///
    /// # Panics
    /// If it computes for a quarter of a second, three seconds in a row.
    pub fn rests(&self, when: &str) {
        let second = || {
            let (before, begun) = (self.computed(), Instant::now());
            // Sleeps: what it computes in a second is what is asked.
            std::thread::sleep(Duration::from_secs(1));
            (self.computed() - before, begun.elapsed())
        };
        let seconds: Vec<(Duration, Duration)> = (0..3).map(|_| second()).collect();
        let rests = seconds.iter().any(|(took, of)| *took < *of / 4);
        assert!(rests, "{when}: it computed (for, of) {seconds:?}; the agent's log ends:\n{}", self.tail());
    }

    /// What `netloom COMMAND... -o json` prints; null where nobody answers.
    pub fn told(&self, words: &[&str]) -> Value {
        let output = self.host.command("", &self.program).args(words).args(["-o", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// `netloom status`.
    pub fn status(&self) -> Value {
        self.told(&["status"])
    }

    /// A definition in the namespace of this node's pods.
    pub fn define(&self, name: &str, config: &str) {
        self.api.definition(&self.namespace, name, config);
    }

    /// A pod on this node that selects these networks: its object, and a first sandbox for it.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn pod(&self, name: &str, networks: &str) -> Pod<'_> {
        Pod::new(self, name, networks)
    }

    /// A pod on this node, whose object is this one but for its `spec`, and a first sandbox for it.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn pod_of(&self, object: Value) -> Pod<'_> {
        Pod::of(self, object)
    }

    /// The number of the next sandbox.
    pub(crate) fn next_sandbox(&self) -> u32 {
        self.sandboxes.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until something holds, for two minutes at most ([`guest::patience`]).
    ///
    /// # Panics
    /// If it does not: with the end of the agent's log.
    pub fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        let patience = guest::patience(PATIENCE);
        let seen = seen_within(patience, holds, |holds| *holds);
        assert!(seen.is_ok(), "not within {} s: {what}; the agent's log ends:\n{}", patience.as_secs(), self.tail());
    }

    /// The last lines of [`Node::log`].
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// What is there when a pod with every network has come and gone: what only the first one makes is no trace. So is what
    /// keeps a DEL for an agent.
    ///
    /// # Panics
    /// If that pod cannot come and go.
    pub fn before(&self) -> Traces {
        // The rules of definitions' links come with the first one.
        let pair =
            json!({"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.255.254.2/32", "gateway": "10.255.254.1"}]}});
        self.define("pair-of-all", &json!({"cniVersion": "1.0.0", "name": "pair-of-all", "plugins": [pair]}).to_string());
        let pod = self.pod("first-of-all", "mac1,mac2,mac3,pair-of-all");
        pod.must("ADD");
        self.kill9();
        pod.must("DEL");
        drop(pod);
        self.restart();
        self.settled();
        self.without_indexes();
        // The kernel takes a namespace apart in its own time, and with it the macvlans that were in it.
        self.until("no macvlan is left on up0", || self.host.link("", "up0").is_some_and(|link| link.0["promiscuity"] == 0));
        self.host.traces()
    }

    /// Waits until the agent has nothing more to do.
    ///
    /// # Panics
    /// If that takes more than two minutes.
    pub fn settled(&self) {
        let idle =
            |status: &Value| ["retired", "calls"].iter().all(|key| status[key] == json!(0)) && status["statusesWaiting"] == json!([]);
        let spooled = || self.host.list("/var/lib/netloom/spool").iter().any(|name| name.ends_with(".del"));
        // In this order: what was kept is carried out meanwhile, and then it is the agent's work.
        self.until("the agent is idle", || !spooled() && idle(&self.status()));
    }

    /// A short cut to a network's addresses comes with the sixteenth, stays, and can be lost at any time.
    fn without_indexes(&self) {
        self.host.run("", &["sh", "-c", "rm -f /var/lib/cni/networks/.*.index"]);
    }

    /// Nothing has come or gone since `before`.
    ///
    /// # Panics
    /// If it has.
    pub fn expect(&self, before: &Traces, after_what: &str) {
        self.settled();
        self.without_indexes();
        self.host.expect_traces_within(Duration::from_secs(60), before, after_what);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent of {}:\n{}", self.name, self.tail());
        }
        self.kill9();
        let gone = std::panic::AssertUnwindSafe(|| self.api.ask("DELETE", &format!("/api/v1/namespaces/{}", self.namespace), &Value::Null));
        drop(std::panic::catch_unwind(gone));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
