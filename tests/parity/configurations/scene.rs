//! One configuration's life on one machine.

use std::collections::BTreeMap;
use std::path::Path;

use netloom_tests::{Cni, Host, Outcome};
use serde_json::{Value, json};

use crate::configurations::case::Case;
use crate::configurations::labels::Labels;
use crate::configurations::running;
use crate::configurations::state::{self, Objects};

/// What was seen, by step.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// In the order of the steps.
    pub(crate) steps: Vec<(&'static str, Objects)>,
    /// Exit and error code and the message of a refused ADD.
    pub(crate) refused: Option<String>,
}

/// Goes through it with the plugins of a directory.
pub(crate) fn live(case: &Case, plugins: &Path) -> Life {
    let host = Host::new();
    host.container("c1");
    host.sh("c1", "ip link set lo up");
    run(&host, &case.prepare);
    let running = case.daemon.map(|socket| running::start(&host, plugins, socket));
    let mut cni = host.cni(plugins).at("c1", case.ifname);
    if !case.args.is_empty() {
        cni = cni.set("CNI_ARGS", case.args);
    }
    if case.serves {
        running::serve(&host);
    }
    let before = state::link_names(&host);
    let mut life = Life::default();
    if case.first {
        life.steps.push(("VERSION", answer(&cni.call("VERSION", case.plugin, "{}"), &Labels::default())));
    }
    life.steps.push(("STATUS", answer(&cni.call("STATUS", case.plugin, case.config().to_string()), &Labels::default())));
    let (added, prev) = add(case, &cni);
    let after = state::raw(&host);
    let labels = Labels::of(case, &before, &after);
    life.refused = (added.code != 0).then(|| without_names(&labels.text(&told(&added))));
    life.steps.push(("ADD", answer(&added, &labels)));
    life.steps.push(("after ADD", state::objects(&labels.apply(&after))));
    if life.refused.is_none() {
        life.steps.push(("probe", probes(case, &host)));
        run(&host, &case.spoil.iter().map(|line| labels.undo(line)).collect::<Vec<_>>());
        life.steps.push(("CHECK", answer(&each(case, &cni, "CHECK", &prev), &labels)));
    }
    run(&host, &case.before_del.iter().map(|line| labels.undo(line)).collect::<Vec<_>>());
    let (cni, prev) = if case.blind_del { (cni.set("CNI_NETNS", ""), Value::Null) } else { (cni, prev) };
    life.steps.push(("DEL", answer(&each(case, &cni, "DEL", &prev), &labels)));
    if running.is_some() {
        running::released(&host);
    }
    host.until("links are gone", || settled(&host));
    life.steps.push(("after DEL", state::objects(&labels.apply(&state::raw(&host)))));
    life.steps.push(("DEL again", answer(&each(case, &cni, "DEL", &prev), &labels)));
    life
}

/// The peer of a deleted link goes with it, but is seen for a moment.
fn settled(host: &Host) -> bool {
    let first = state::link_names(host);
    // Sleeps: between two looks.
    std::thread::sleep(std::time::Duration::from_millis(30));
    first == state::link_names(host)
}

/// ADD of the whole chain, as far as it goes: the last answer, and the last result.
fn add(case: &Case, cni: &Cni<'_>) -> (Outcome, Value) {
    let mut prev = Value::Null;
    let mut last = None;
    for config in &case.chain {
        let outcome = cni.call("ADD", config["type"].as_str().unwrap(), with_prev(config, &prev).to_string());
        let failed = outcome.code != 0;
        if !failed {
            prev = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
        }
        last = Some(outcome);
        if failed {
            break;
        }
    }
    (last.expect("a case has a plugin"), prev)
}

/// CHECK in order, or DEL in reverse; the first failure, else the last answer.
fn each(case: &Case, cni: &Cni<'_>, verb: &str, prev: &Value) -> Outcome {
    let call = |config: &Value| cni.call(verb, config["type"].as_str().unwrap(), with_prev(config, prev).to_string());
    let outcomes: Vec<Outcome> =
        if verb == "DEL" { case.chain.iter().rev().map(call).collect() } else { case.chain.iter().map(call).collect() };
    outcomes.iter().find(|o| o.code != 0).or(outcomes.last()).cloned().expect("a case has a plugin")
}

fn with_prev(config: &Value, prev: &Value) -> Value {
    let mut config = config.clone();
    if !prev.is_null() && config.get("prevResult").is_none() {
        config["prevResult"] = prev.clone();
    }
    config
}

/// Lines on the machine, or in the container those that begin with `c1:`; what follows each other in one place is one script.
fn run<L: AsRef<str>>(host: &Host, lines: &[L]) {
    let placed: Vec<(&str, &str)> =
        lines.iter().map(|line| line.as_ref().strip_prefix("c1:").map_or(("", line.as_ref()), |line| ("c1", line))).collect();
    for script in placed.chunk_by(|a, b| a.0 == b.0) {
        let lines: String = script.iter().map(|(_, line)| format!("{line}\n")).collect();
        host.run(script[0].0, &["sh", "-ec", &lines]);
    }
}

fn probes(case: &Case, host: &Host) -> Objects {
    let mut objects = Objects::new();
    for line in &case.probes {
        let (place, command) = line.strip_prefix("c1:").map_or(("", *line), |line| ("c1", line));
        let answer = if host.run_ok(place, &["sh", "-c", command]) { "yes" } else { "no" };
        objects.insert((*line).to_owned(), BTreeMap::from([(String::new(), answer.to_owned())]));
    }
    objects
}

/// A refusal in one line.
fn told(outcome: &Outcome) -> String {
    let error: Value = serde_json::from_str(&outcome.stdout).unwrap_or(Value::Null);
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let details = if text("details").is_empty() { String::new() } else { format!("; {}", text("details")) };
    match error["code"].as_u64() {
        Some(code) => format!("code {code}: {}{details}", text("msg")),
        None => format!("exit {}, no error object", outcome.code),
    }
}

/// Without the random part of a link's name that never came to be.
fn without_names(text: &str) -> String {
    let mut parts = text.split("veth");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits == 8 { format!("{text}veth...{}", &part[digits..]) } else { format!("{text}veth{part}") }
    })
}

/// What a plugin answered: its exit code, and its JSON field by field; of an error the code alone.
fn answer(outcome: &Outcome, labels: &Labels) -> Objects {
    let mut objects = Objects::new();
    let mut answered = BTreeMap::from([("exit".to_owned(), outcome.code.to_string())]);
    let text = labels.text(&outcome.stdout);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if outcome.code != 0 => drop(answered.insert("code".to_owned(), value["code"].to_string())),
        Ok(value) => state::flatten("", &value, &mut answered),
        Err(_) if text.is_empty() => {}
        Err(_) => drop(answered.insert("output".to_owned(), json!(text).to_string())),
    }
    objects.insert("answer".to_owned(), answered);
    objects
}
