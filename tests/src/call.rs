//! A plugin called as a runtime calls it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::{Host, plugin_dir};

/// A call being put together: the plugins of one directory, and the variables.
#[derive(Clone)]
pub struct Cni<'h> {
    host: &'h Host,
    dir: PathBuf,
    vars: BTreeMap<String, String>,
    memory: Option<u64>,
}

/// What a plugin answered.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Our plugins, called for a container's `eth0`.
pub fn at<'h>(host: &'h Host, container: &str) -> Cni<'h> {
    host.cni(plugin_dir()).at(container, "eth0")
}

/// The addresses of a result without their prefix lengths.
pub fn ips(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

// === impl Cni ===

impl<'h> Cni<'h> {
    pub(crate) fn new(host: &'h Host, dir: &Path) -> Self {
        let cni = Cni { host, dir: dir.to_owned(), vars: BTreeMap::new(), memory: None };
        cni.set("CNI_PATH", dir.to_str().unwrap()).set("PATH", &std::env::var("PATH").unwrap_or_default())
    }

    /// A container's ID and namespace, which have the same name here, and its interface.
    #[must_use]
    pub fn at(self, container: &str, ifname: &str) -> Self {
        self.set("CNI_CONTAINERID", container).set("CNI_NETNS", &format!("/run/netns/{container}")).set("CNI_IFNAME", ifname)
    }

    /// A variable.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Without a variable.
    #[must_use]
    pub fn unset(mut self, name: &str) -> Self {
        self.vars.remove(name);
        self
    }

    /// With at most so many MiB of memory, for each process of the call: see [`Host::limited`].
    #[must_use]
    pub fn limited(self, mib: u64) -> Self {
        Cni { memory: Some(mib), ..self }
    }

    /// Starts a plugin with a verb, and a configuration on its standard input; nobody reads what it prints.
    pub fn start(&self, verb: &str, plugin: &str, config: impl AsRef<[u8]>) -> Child {
        let mut command = self.host.command("", self.dir.join(plugin));
        command.env_clear().envs(&self.vars).env("CNI_COMMAND", verb);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(config.as_ref()).unwrap();
        child
    }

    /// Runs a plugin with a verb, and a configuration on its standard input.
    pub fn call(&self, verb: &str, plugin: &str, config: impl AsRef<[u8]>) -> Outcome {
        let (program, config) = (self.dir.join(plugin), config.as_ref());
        match self.memory {
            Some(mib) => self.answer(self.host.limited(mib, &program), verb, config),
            None => self.host.inside("", || self.answer(Command::new(&program), verb, config)),
        }
    }

    fn answer(&self, mut command: Command, verb: &str, config: &[u8]) -> Outcome {
        command.env_clear().envs(&self.vars).env("CNI_COMMAND", verb);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A plugin need not read it all before it answers.
        std::thread::scope(|scope| {
            scope.spawn(move || drop(stdin.write_all(config)));
            child.wait_with_output().unwrap().into()
        })
    }

    /// ADD with a configuration, which must succeed: the result.
    pub fn add(&self, config: &Value) -> Value {
        self.call("ADD", kind(config), config.to_string()).result()
    }

    /// DEL with a configuration and the result of its ADD (`Value::Null`: without), which must succeed in silence.
    pub fn del(&self, config: &Value, prev: &Value) {
        let outcome = self.call("DEL", kind(config), with_prev(config, prev).to_string());
        assert!(outcome.code == 0 && outcome.stdout.is_empty(), "DEL: {outcome:?}");
    }

    /// CHECK with a configuration and the result of its ADD.
    pub fn check(&self, config: &Value, prev: &Value) -> Outcome {
        self.call("CHECK", kind(config), with_prev(config, prev).to_string())
    }
}

fn kind(config: &Value) -> &str {
    config["type"].as_str().expect("the configuration has a type")
}

fn with_prev(config: &Value, prev: &Value) -> Value {
    let mut config = config.clone();
    if !prev.is_null() {
        config["prevResult"] = prev.clone();
    }
    config
}

// === impl Outcome ===

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Outcome {
    /// The JSON of a success.
    ///
    /// # Panics
    /// If it failed.
    pub fn result(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// A success that says nothing, as those of CHECK, STATUS and GC.
    ///
    /// # Panics
    /// If it failed, or printed something.
    pub fn silent(&self) {
        assert!(self.code == 0 && self.stdout.is_empty(), "{self:?}");
    }

    /// The error object of a failure: what the specification wants of it is checked.
    ///
    /// # Panics
    /// If it succeeded, or its answer is no error object.
    pub fn error(&self) -> Value {
        assert_eq!(self.code, 1, "expected a failure: {self:?}");
        let error: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        assert!(error["code"].is_u64() && error["msg"].is_string() && error["cniVersion"].is_string(), "{self:?}");
        error
    }

    /// Message and details of a failure in one text.
    ///
    /// # Panics
    /// As [`Outcome::error`].
    pub fn message(&self) -> String {
        let error = self.error();
        format!("{} {}", error["msg"].as_str().unwrap_or_default(), error["details"].as_str().unwrap_or_default())
    }
}
