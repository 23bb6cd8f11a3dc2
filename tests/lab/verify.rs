//! `netloom verify` on labs: whole ones, and ones that were broken.

mod bandwidth;
mod faults;
mod paused;
mod recorded;
mod trusted;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use netloom_tests::{Host, netloom};
use serde_json::Value;

/// A lab on a machine of the test's own.
struct Lab {
    host: Host,
    /// Words that stand for names which a lab gives: `{b}`, the host's end of pod b's pair; `{mac-b}`; `{tunnel}`.
    names: BTreeMap<String, String>,
}

/// Where a failure was found: fault, place and device, direction.
type Found = (String, String, String);

impl Lab {
    /// Brings a lab up from manifests.
    fn up(manifests: &str, more: &[&str]) -> Self {
        let host = Host::new();
        host.write("/run/lab.yaml", manifests);
        let lab = Lab { host, names: BTreeMap::new() };
        let mut command = lab.host.command("", netloom());
        command.args(["lab", "up", "/run/lab.yaml"]).args(more).env_remove("CNI_PATH");
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        lab
    }

    /// `netloom verify ARGS`: exit code, what it printed, what it said.
    fn verify(&self, args: &[&str]) -> (i32, String, String) {
        let out = self.host.command("", netloom()).arg("verify").args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
    }

    /// The same as data.
    fn verified(&self, args: &[&str]) -> (i32, Value) {
        let (code, printed, said) = self.verify(&[args, &["-o", "json"]].concat());
        (code, serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{args:?}: {e}: {printed}{said}")))
    }

    /// What failed in the cases that match.
    fn found(&self, test: &str) -> (BTreeSet<Found>, Value) {
        let (_, json) = self.verified(&["--test", test, "--timeout", "2"]);
        let failures = json["cases"].as_array().unwrap().iter().flat_map(|case| case["failures"].as_array().cloned().unwrap_or_default());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |failure: Value| {
            let at = format!("{} {}", text(&failure["place"]), text(&failure["device"]));
            (text(&failure["fault"]), at.trim().to_owned(), text(&failure["direction"]))
        };
        (failures.map(one).collect(), json)
    }

    /// Runs a line in a namespace of the lab, `pod.default.a` say, with the names put in.
    fn run(&self, place: &str, line: &str) {
        self.host.sh(&format!("nl.lab.{place}"), &self.named(line));
    }

    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (word, name)| text.replace(word, name))
    }

    fn down(&self) {
        let out = self.host.command("", netloom()).args(["lab", "down"]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

fn node(name: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n")
}

fn pod(name: &str, node: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{nodeName: {node}, containers: [{{name: c, image: i}}]}}\n---\n")
}
