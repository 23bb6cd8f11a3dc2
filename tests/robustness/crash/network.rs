//! One network on one machine, called as a runtime calls it, by processes that can be killed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use netloom_tests::{Host, Outcome, Traces, netloom, plugin_dir};
use serde_json::{Value, json};

use crate::crash::points;

/// What becomes of a call.
#[derive(Clone, Copy)]
pub(crate) enum Fate<'a> {
    /// It comes to its end.
    Lives,
    /// It is killed at `NAME:N`.
    Dies(&'a str),
    /// It comes to its end, and every point that it comes by is noted.
    Traced,
}

/// Who runs the plugins.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Runtime {
    /// The test, each as an executable.
    Itself,
    /// `netloom cni`, with a network configuration list and a cache.
    Tool,
}

/// A network with containers `c1` and `c2`, of which the first is the one that a crash happens to.
pub(crate) struct Scene {
    pub(crate) host: Host,
    /// What was there when both containers had come and gone once.
    pub(crate) before: Traces,
    runtime: Runtime,
    config: Value,
    /// Of each container that may be attached; `None` where nobody heard of a result.
    results: RefCell<BTreeMap<String, Option<Value>>>,
}

// === impl Scene ===

impl Scene {
    /// A machine on which nothing has ever been attached.
    pub(crate) fn cold(runtime: Runtime, config: &Value) -> Self {
        let host = Host::new();
        host.sh("", "ip link add wire0 type veth peer name wire1");
        host.sh("", "ip link set wire0 up");
        host.sh("", "ip link set wire1 up");
        // Hands on the result that it is given, which comes last.
        host.write("/run/bin/noter", "#!/bin/sh\nsed -n 's/.*\"prevResult\"://; s/}$//; p' | { [ $CNI_COMMAND != ADD ] || cat; }\n");
        host.write("/run/bin/broken", "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ]\n");
        host.sh("", "chmod 755 /run/bin/noter /run/bin/broken");
        host.write("/etc/cni/net.d/1.conflist", &config.to_string());
        host.container("c1");
        host.container("c2");
        Scene { host, before: Traces::new(), runtime, config: config.clone(), results: RefCell::default() }
    }

    /// A machine on which both containers were attached, and detached, before.
    pub(crate) fn warm(runtime: Runtime, config: &Value) -> Self {
        Scene::cold(runtime, config).warmed()
    }

    /// Lets both containers come, or fail to, and go.
    pub(crate) fn warmed(mut self) -> Self {
        for verb in ["ADD", "DEL"] {
            ["c1", "c2"].iter().for_each(|container| drop(self.call(verb, container, Fate::Lives)));
        }
        self.before = self.host.traces();
        self
    }

    /// A container's namespace has no name any more, and the runtime does not know. A process is left in it: without one the
    /// kernel would take its links at a moment of its own, before or after whoever collects them.
    pub(crate) fn gone(&self, container: &str) -> Left {
        let mut left = self.host.command(container, "sh");
        let mut left = left.args(["-c", "echo in; exec sleep 600"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = [0; 3];
        left.stdout.take().unwrap().read_exact(&mut told).unwrap();
        self.host.sh("", &format!("ip netns delete {container}"));
        Left(left)
    }

    /// A call that is to succeed.
    pub(crate) fn must(&self, verb: &str, container: &str) {
        let outcome = self.call(verb, container, Fate::Lives);
        assert_eq!(outcome.code, 0, "{verb} {container}: {outcome:?}");
    }

    /// A call that is killed at a point.
    pub(crate) fn dies(&self, verb: &str, point: &str) {
        let outcome = self.call(verb, "c1", Fate::Dies(point));
        assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}, and ended: {outcome:?}");
    }

    /// Every point that a call comes by, whether it succeeds or not.
    pub(crate) fn trace(&self, verb: &str) -> Vec<String> {
        self.call(verb, "c1", Fate::Traced);
        points::traced(&self.host)
    }

    /// Whether there may be something of a container: its ADD was called, and no DEL has succeeded since.
    pub(crate) fn is_attached(&self, container: &str) -> bool {
        self.results.borrow().contains_key(container)
    }

    /// ADD, DEL, CHECK, or a GC that finds `c2` valid and nothing else.
    pub(crate) fn call(&self, verb: &str, container: &str, fate: Fate<'_>) -> Outcome {
        let (mut command, stdin) = self.prepare(verb, container);
        command.envs(fate.variable()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that is killed early does not read it.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let outcome = Outcome::from(child.wait_with_output().unwrap());
        match (verb, outcome.code) {
            ("ADD", 0) => self.keep(container, serde_json::from_str(&outcome.stdout).ok()),
            ("DEL", 0) => drop(self.results.borrow_mut().remove(container)),
            _ => {}
        }
        outcome
    }

    /// A call, and what it is to read. From an ADD on the runtime has to reckon with the container.
    pub(crate) fn prepare(&self, verb: &str, container: &str) -> (Command, String) {
        if verb == "ADD" {
            self.keep(container, None);
        }
        match self.runtime {
            Runtime::Itself => self.plugin(verb, container),
            Runtime::Tool => (self.tool(verb, container), String::new()),
        }
    }

    fn keep(&self, container: &str, result: Option<Value>) {
        self.results.borrow_mut().insert(container.to_owned(), result);
    }

    fn plugin(&self, verb: &str, container: &str) -> (Command, String) {
        let mut config = self.config.clone();
        match self.results.borrow().get(container) {
            Some(Some(result)) if verb == "DEL" || verb == "CHECK" => config["prevResult"] = result.clone(),
            _ => {}
        }
        if verb == "GC" {
            config["cni.dev/valid-attachments"] = json!([{"containerID": "c2", "ifname": "eth0"}]);
        }
        let plugins = plugin_dir();
        let mut command = self.host.command("", plugins.join(config["type"].as_str().unwrap()));
        command.env("CNI_COMMAND", verb).env("CNI_PATH", plugins).env("CNI_IFNAME", "eth0");
        command.env("CNI_CONTAINERID", container).env("CNI_NETNS", format!("/run/netns/{container}"));
        (command, config.to_string())
    }

    fn tool(&self, verb: &str, container: &str) -> Command {
        let mut command = self.host.command("", netloom());
        command.args(["cni", &verb.to_lowercase(), self.config["name"].as_str().unwrap()]).env("CNI_PATH", "/run/bin");
        // For a plugin that publishes ports: no two containers can have the same.
        let port = if container == "c1" { 8080 } else { 9090 };
        let ports = ["tcp", "udp"].map(|protocol| json!({"hostPort": port, "containerPort": 80, "protocol": protocol}));
        command.env("CAP_ARGS", json!({"portMappings": ports}).to_string());
        match verb {
            "GC" => command.arg("--all"),
            _ => command.arg(format!("/run/netns/{container}")),
        };
        command
    }
}

// === impl Fate ===

impl Fate<'_> {
    /// What tells the process.
    pub(crate) fn variable(&self) -> Option<(&str, &str)> {
        match self {
            Fate::Lives => None,
            Fate::Dies(point) => Some(("NETLOOM_CRASH_AT", point)),
            Fate::Traced => Some(("NETLOOM_CRASH_TRACE", points::TRACE)),
        }
    }
}

/// A process that is left in a namespace; ended when dropped.
pub(crate) struct Left(Child);

impl Drop for Left {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}
