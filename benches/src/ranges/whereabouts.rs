//! What one address costs whereabouts: ten requests, each after the answer of the one before. Its own requests, on objects of its own kinds.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cluster::plane::Plane;

const KINDS: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system";
/// How many addresses the range has in use: the object grows by each.
const IN_USE: usize = 100;

/// whereabouts' own kinds, as its installation defines them.
pub(crate) fn kinds() -> Vec<Value> {
    [("ippools", "ippool", "IPPool"), ("overlappingrangeipreservations", "overlappingrangeipreservation", "OverlappingRangeIPReservation")]
        .map(|(plural, singular, kind)| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.whereabouts.cni.cncf.io")},
                "spec": {
                    "group": "whereabouts.cni.cncf.io", "scope": "Namespaced",
                    "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
                },
            })
        })
        .to_vec()
}

/// How long the ten requests of one address take: the lease of its leader election (read, take, renew, give back), the range's object
/// (read, list of reservations, update by version) and the reservation (looked for, made, read).
pub(super) fn address(plane: &Plane, name: &str, number: usize) -> Result<Option<Duration>> {
    let pool = format!("{KINDS}/ippools");
    let reservations = format!("{KINDS}/overlappingrangeipreservations");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let allocations: serde_json::Map<String, Value> = (0..IN_USE)
        .map(|n| (n.to_string(), json!({"id": "0".repeat(64), "podref": format!("default/pod-{n}"), "ifname": "net1"})))
        .collect();
    let object = |version: Option<&str>| {
        let metadata = json!({"name": name, "namespace": "kube-system", "resourceVersion": version});
        json!({"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": metadata,
            "spec": {"range": "10.0.0.0/16", "allocations": allocations}})
    };
    let lease = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"holderIdentity": holder}})
    };
    let reservation = json!({"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": format!("10.0.0.{number}"), "namespace": "kube-system"}, "spec": {"podref": "default/pod", "ifname": "net1"}});
    // What is there before the first address.
    ask(plane, &[("POST", pool.clone(), object(None)), ("POST", leases.to_owned(), lease(""))])?;
    let (mut time, answers) = ask(
        plane,
        &[
            ("GET", format!("{leases}/{name}"), Value::Null),
            ("PATCH", format!("{leases}/{name}"), lease("me")),
            ("GET", format!("{pool}/{name}"), Value::Null),
            ("GET", reservations.clone(), Value::Null),
            ("GET", format!("{reservations}/10.0.0.{number}"), Value::Null),
        ],
    )?;
    let read: Value = answers.get(2).and_then(|text| serde_json::from_str(text).ok()).context("the range's object cannot be read")?;
    let version = read.pointer("/metadata/resourceVersion").and_then(Value::as_str).context("the range's object has no version")?;
    let (rest, _) = ask(
        plane,
        &[
            ("POST", reservations.clone(), reservation),
            ("PUT", format!("{pool}/{name}"), object(Some(version))),
            ("GET", format!("{pool}/{name}"), Value::Null),
            ("PATCH", format!("{leases}/{name}"), lease("me")),
            ("PATCH", format!("{leases}/{name}"), lease("")),
        ],
    )?;
    time += rest;
    Ok(Some(time))
}

/// Asks one after another over one connection, as the administrator: what the requests took in all, without curl's own start, and the
/// answers. One that finds nothing is an answer.
fn ask(plane: &Plane, requests: &[(&str, String, Value)]) -> Result<(Duration, Vec<String>)> {
    let mut command = Command::new("curl");
    for (n, (method, path, body)) in requests.iter().enumerate() {
        if n > 0 {
            command.arg("--next");
        }
        command.args(["-sS", "--max-time", "60", "-X", *method, "-w", "\n%{http_code} %{time_total}\n"]);
        command.arg("--cacert").arg(plane.ca()).args(["-H", &format!("Authorization: Bearer {}", plane.token())]);
        if !body.is_null() {
            let kind = if *method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            command.args(["-H", &format!("Content-Type: {kind}"), "--data-binary", &body.to_string()]);
        }
        command.arg(format!("{}{path}", plane.url()));
    }
    let output = command.output().context("run curl")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut time, mut answers, mut answer) = (Duration::ZERO, Vec::new(), String::new());
    for line in text.lines() {
        let told = line.split_once(' ').and_then(|(code, seconds)| Some((code.parse::<u16>().ok()?, seconds.parse::<f64>().ok()?)));
        match told {
            Some((code, seconds)) => {
                if !(200..300).contains(&code) && code != 404 {
                    bail!("request {} of an address was answered with {code}: {answer}", answers.len() + 1);
                }
                time += Duration::from_secs_f64(seconds);
                answers.push(std::mem::take(&mut answer));
            }
            None => answer.push_str(line),
        }
    }
    if answers.len() != requests.len() {
        bail!("{} of {} requests were answered: {}", answers.len(), requests.len(), String::from_utf8_lossy(&output.stderr));
    }
    Ok((time, answers))
}
