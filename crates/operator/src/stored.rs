//! Whether the API server keeps what is written: of a field that the definition of a kind does not know it keeps nothing, and says
//! nothing either. A definition that is older than this operator would make a root that does not gather.
//!
//! ```text
//!   before a shard is written  a shard with every field, as a dry run: nothing is written before its answer has all of them
//!   each answer                has what was written; otherwise the dry run again
//!   a node's spec              may lack what asks an agent whether it lives: it is not asked for a while, or it would be asked for ever
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::{Cell, CellState, Hold, Holder, IpLedgerShardSpec, NodeIpPoolSpec, Owner, SharedIp};
use cluster::Own;
use http::Method;
use kube::Client;
use ledger::Write;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::apply_write::{Outcome, make, send};
use crate::log::Line;

/// The name of the shard of the dry run.
const NAME: &str = "netloom-dry-run";
/// What to do about it.
const MEND: &str = "kubectl apply -f deploy/ippools.yaml, of this release";
/// What asks an agent whether it lives is written again after this time where it was not kept.
const AGAIN: Duration = Duration::from_secs(300);

/// What is known of it.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// All of it is kept.
    known: AtomicBool,
    /// It was said that it is not.
    said: AtomicBool,
    /// When a node's spec was found without `reclaimAfterSeconds`, which had been written there.
    grace_lost: Mutex<Option<Instant>>,
}

// === impl Stored ===

impl Stored {
    /// Whether anything may be written. The dry run is done once, and again after an answer that lacked something.
    pub(crate) async fn all(&self, client: &Client) -> bool {
        if self.known.load(Ordering::Relaxed) {
            return true;
        }
        let spec = json!(every_field());
        let object = json!({"apiVersion": Own::IpLedgerShard.api_version(), "kind": Own::IpLedgerShard.kind(), "metadata": {"name": NAME},
            "spec": spec});
        let request = make(Method::POST, format!("{}?dryRun=All", Own::IpLedgerShard.path()), "application/json", &object);
        let missing = match send(client, request).await {
            Outcome::Done(answer) => answer.and_then(|answer| lost(&spec, answer.data.get("spec").unwrap_or(&Value::Null), "spec")),
            // It may be refused for reasons of its own, an admission rule say: then the answers tell.
            Outcome::Conflict | Outcome::Refused(_) => None,
            Outcome::Failed(error) => {
                Line::warn("definitions").with("error", error).with("now", "nothing is written; retrying").end();
                return false;
            }
        };
        let Some(field) = missing else {
            self.known.store(true, Ordering::Relaxed);
            if self.said.swap(false, Ordering::Relaxed) {
                Line::info("definitions").with("kind", Own::IpLedgerShard.kind()).with("now", "every field is stored").end();
            }
            return true;
        };
        self.tell(&field);
        false
    }

    /// What came of a write. That of a shard counts as refused where the answer has not what was written.
    pub(crate) fn kept(&self, write: &Write, outcome: Outcome) -> Outcome {
        let Outcome::Done(Some(answer)) = &outcome else { return outcome };
        let answer = answer.data.get("spec").unwrap_or(&Value::Null);
        match write {
            Write::Shard { spec, .. } => match lost(&json!(spec), answer, "spec") {
                None => outcome,
                Some(field) => {
                    self.known.store(false, Ordering::Relaxed);
                    self.tell(&field);
                    Outcome::Refused(format!("the API server did not store {field}: {MEND}"))
                }
            },
            Write::NodePool { name, spec: NodeIpPoolSpec { reclaim_after_seconds: Some(seconds), .. }, .. } => {
                self.keep_grace(name, lost(&json!({"reclaimAfterSeconds": seconds}), answer, "spec"));
                outcome
            }
            _ => outcome,
        }
    }

    /// Whether agents whose Nodes are gone may be asked whether they live.
    pub(crate) fn keeps_grace(&self) -> bool {
        self.grace_lost.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|at| at.elapsed() >= AGAIN)
    }

    /// An agent was to be asked; which field of its node's spec was not kept.
    fn keep_grace(&self, node: &str, field: Option<String>) {
        let mut grace_lost = self.grace_lost.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(field) = field else {
            *grace_lost = None;
            return;
        };
        // Said once, however often it is tried again.
        if grace_lost.replace(Instant::now()).is_none() {
            let now = "agents whose Node is deleted cannot say that they live: their blocks are free after --grace, whatever runs there";
            let kind = Own::NodeIpPool.kind();
            Line::error("definitions").with("kind", kind).with("name", node).with("lost", field).with("mend", MEND).with("now", now).end();
        }
    }

    fn tell(&self, field: &str) {
        if !self.said.swap(true, Ordering::Relaxed) {
            let next = "nothing is written until it is";
            let kind = Own::IpLedgerShard.kind();
            Line::error("definitions").with("kind", kind).with("lost", field).with("mend", MEND).with("now", next).end();
        }
    }
}

/// The first field of what was written that is not in an answer as it was written. What is there besides is a default.
fn lost(written: &Value, answer: &Value, place: &str) -> Option<String> {
    match (written, answer) {
        (Value::Object(written), _) => {
            let within = |key: &String| answer.get(key).unwrap_or(&Value::Null);
            written.iter().find_map(|(key, value)| lost(value, within(key), &format!("{place}.{key}")))
        }
        _ => (written != answer).then(|| place.to_owned()),
    }
}

/// A shard that says everything that one can say.
fn every_field() -> IpLedgerShardSpec {
    let text = || "x".to_owned();
    let hold = Hold { epoch: 1, node: text(), node_uid: text(), returning: true, ending: true, seen_in: 0 };
    let attachment = Some(Holder { container_id: text(), ifname: text() });
    let owner = Owner { claim: text(), claim_uid: text(), migrates: true, pod: text(), cilium_node: text(), attachment };
    let ip = SharedIp { hold: Hold { seen_in: 1, ..hold.clone() }, second: Some(hold), pool: text(), owner };
    let ips = [("0".to_owned(), ip)].into();
    let cell = Cell { state: CellState::Shared, epoch: 1, node: text(), node_uid: text(), pool: text(), ips };
    IpLedgerShardSpec {
        network: text(),
        base: "10.0.0.0/20".to_owned(),
        cell_prefix: 26,
        first_epoch: 1,
        seen_in: 1,
        gathering: true,
        cells: [("0".to_owned(), cell)].into(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;

    use super::*;

    /// What an API server keeps of a value by a schema.
    fn pruned(value: &Value, schema: &Value) -> Value {
        let Value::Object(fields) = value else { return value.clone() };
        let of = |key: &String| schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        fields.iter().filter_map(|(key, value)| Some((key.clone(), pruned(value, of(key)?)))).collect()
    }

    fn schema_of(own: Own) -> Value {
        let kinds =
            include_str!("../../../deploy/ippools.yaml").split("\n---\n").map(|kind| serde_saphyr::from_str::<Value>(kind).unwrap());
        let kind = kinds.into_iter().find(|kind| kind["spec"]["names"]["plural"] == own.plural()).unwrap();
        kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    }

    fn schema() -> Value {
        schema_of(Own::IpLedgerShard)
    }

    fn answer(own: Own, spec: &Value) -> Outcome {
        let mut object = DynamicObject::new(NAME, &own.resource());
        object.data = json!({ "spec": spec });
        Outcome::Done(Some(Box::new(object)))
    }

    #[test]
    fn the_definition_of_this_release_keeps_every_field() {
        let written = json!(every_field());
        assert_eq!(lost(&written, &pruned(&written, &schema()), "spec"), None);
    }

    #[test]
    fn a_definition_that_is_older_is_found() {
        let written = json!(every_field());
        let in_ip = "/properties/cells/additionalProperties/properties/ips/additionalProperties/properties";
        for (place, field, told) in [
            ("/properties", "gathering", "spec.gathering"),
            (in_ip, "second", "spec.cells.0.ips.0.second.ending"),
            (&format!("{in_ip}/owner/properties"), "ciliumNode", "spec.cells.0.ips.0.owner.ciliumNode"),
        ] {
            let mut older = schema();
            older.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(field).unwrap();
            assert_eq!(lost(&written, &pruned(&written, &older), "spec").as_deref(), Some(told));
        }
    }

    #[test]
    fn a_write_whose_answer_lacks_something_is_refused() {
        let spec = IpLedgerShardSpec { gathering: true, ..every_field() };
        let answer = |spec: &IpLedgerShardSpec| answer(Own::IpLedgerShard, &json!(spec));
        let write = Write::Shard { name: NAME.into(), version: None, spec: spec.clone() };
        let stored = Stored { known: true.into(), ..Stored::default() };
        assert!(matches!(stored.kept(&write, answer(&spec)), Outcome::Done(_)) && stored.known.load(Ordering::Relaxed));
        let pruned = IpLedgerShardSpec { gathering: false, ..spec };
        let Outcome::Refused(why) = stored.kept(&write, answer(&pruned)) else { panic!("it was taken") };
        assert!(why.contains("spec.gathering") && !stored.known.load(Ordering::Relaxed), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_asks_an_agent_whether_it_lives_is_written_once_where_it_is_not_kept() {
        let spec = NodeIpPoolSpec { node_uid: "u".into(), reclaim_after_seconds: Some(900), ..NodeIpPoolSpec::default() };
        let written = json!(spec);
        assert_eq!(lost(&written, &pruned(&written, &schema_of(Own::NodeIpPool)), "spec"), None, "the definition of this release");
        let mut older = schema_of(Own::NodeIpPool);
        older["properties"].as_object_mut().unwrap().remove("reclaimAfterSeconds").unwrap();
        let stored = Stored::default();
        let write = Write::NodePool { name: "n".into(), version: Some("1".into()), spec };
        let kept = |answered: &Value| matches!(stored.kept(&write, answer(Own::NodeIpPool, answered)), Outcome::Done(Some(_)));
        assert!(kept(&written) && stored.keeps_grace());
        // What else there is in it was carried out.
        assert!(kept(&pruned(&written, &older)) && !stored.keeps_grace());
        tokio::time::advance(AGAIN).await;
        assert!(stored.keeps_grace() && kept(&pruned(&written, &older)) && !stored.keeps_grace());
        tokio::time::advance(AGAIN).await;
        assert!(kept(&written) && stored.keeps_grace());
    }
}
