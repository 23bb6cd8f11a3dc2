//! What one of two lives has, or has otherwise.

use std::collections::BTreeMap;
use std::fmt;

use crate::configurations::case::Case;
use crate::configurations::scene::Life;

/// One difference: of an object as a whole, or of a field of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) plugin: &'static str,
    pub(crate) case: &'static str,
    pub(crate) step: &'static str,
    pub(crate) object: String,
    /// Empty for an object that only one of them has.
    pub(crate) field: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
}

/// What stands for something that is not there.
const NONE: &str = "none";

/// Every difference, in order.
pub(crate) fn differences(case: &Case, theirs: &Life, ours: &Life) -> Vec<Difference> {
    let mut found = Vec::new();
    let theirs_refused = theirs.refused.is_some();
    let one_refuses = theirs_refused != ours.refused.is_some();
    for step in steps(theirs, ours) {
        if one_refuses && step == "after ADD" {
            continue;
        }
        let of = |life: &'_ Life| life.steps.iter().find(|(s, _)| *s == step).map(|(_, o)| o.clone());
        let (Some(theirs), Some(ours)) = (of(theirs), of(ours)) else {
            // An ADD that only one refuses: that it does is told by its answer.
            continue;
        };
        // What a refused ADD leaves is a thing of its own.
        let there = if step == "after ADD" && theirs_refused { "left" } else { "there" };
        let mut tell = |object: &str, field: &str, theirs: &str, ours: &str| {
            found.push(Difference {
                plugin: case.plugin,
                case: case.name,
                step,
                object: object.to_owned(),
                field: field.to_owned(),
                theirs: theirs.to_owned(),
                ours: ours.to_owned(),
            });
        };
        for object in keys(&theirs, &ours) {
            match (theirs.get(object), ours.get(object)) {
                (Some(theirs), Some(ours)) => {
                    for field in keys(theirs, ours).into_iter().filter(|f| !one_refuses || step != "ADD" || *f == "exit" || *f == "code") {
                        let value = |of: &BTreeMap<String, String>| of.get(field).cloned().unwrap_or_else(|| NONE.to_owned());
                        if value(theirs) != value(ours) {
                            tell(object, field, &value(theirs), &value(ours));
                        }
                    }
                }
                // The settings of a link come and go with it.
                _ if object.contains(" settings ") => {}
                (Some(_), None) => tell(object, "", there, NONE),
                _ => tell(object, "", NONE, there),
            }
        }
    }
    found
}

fn steps(theirs: &Life, ours: &Life) -> Vec<&'static str> {
    let longer = if theirs.steps.len() >= ours.steps.len() { theirs } else { ours };
    longer.steps.iter().map(|(s, _)| *s).collect()
}

fn keys<'a, V>(a: &'a BTreeMap<String, V>, b: &'a BTreeMap<String, V>) -> Vec<&'a String> {
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    keys
}

// === impl Difference ===

impl Difference {
    /// Where it is and what it is, in one line: what explanations are matched with.
    pub(crate) fn at(&self) -> String {
        format!("{} | {} | {} | {} -> {}", self.step, self.object, self.field, self.theirs, self.ours)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.plugin, self.case, self.at())
    }
}

#[test]
fn a_field_and_an_object_are_told() {
    use serde_json::json;
    let life = |mtu: &str, more: bool| {
        let mut objects = BTreeMap::from([("host link br0".to_owned(), BTreeMap::from([("mtu".to_owned(), mtu.to_owned())]))]);
        if more {
            objects.insert("c1 link eth0".to_owned(), BTreeMap::new());
        }
        Life { steps: vec![("ADD", objects)], refused: None }
    };
    let case = crate::configurations::case::case("bridge", "x", json!({}));
    let told = |a: Life, b: Life| differences(&case, &a, &b).iter().map(Difference::at).collect::<Vec<_>>();
    assert!(told(life("1500", true), life("1500", true)).is_empty());
    assert_eq!(
        told(life("1500", true), life("1400", false)),
        ["ADD | c1 link eth0 |  | there -> none", "ADD | host link br0 | mtu | 1500 -> 1400"]
    );
}
