//! The house: each crate stands on one floor and imports only from floors below it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::metadata::Graph;

/// A floor, and the packages that stand on it beside each other: none of them imports another one.
pub(crate) struct Floor {
    /// What it is for, in a few words.
    about: &'static str,
    packages: &'static [&'static str],
}

/// The house, the ground floor last. A new crate is entered here, or `cargo xtask floors` says so.
pub(crate) const HOUSE: &[Floor] = &[
    Floor {
        about: "what looks at the house from outside",
        packages: &["netloom-tests", "netloom-model", "netloom-benches", "netloom-floor", "xtask"],
    },
    Floor { about: "what is executed", packages: &["netloom", "netloom-cni"] },
    Floor {
        about: "a cluster's networking on one machine; a cluster that is verified",
        packages: &["netloom-lab", "netloom-connectivity"],
    },
    Floor {
        about: "the node's daemon; the cluster's controller; who asks, and what comes of it",
        packages: &["netloom-agent", "netloom-operator", "netloom-probe"],
    },
    Floor { about: "a pod's attachments; why packets do not arrive", packages: &["netloom-attach", "netloom-verify"] },
    Floor { about: "run one network; what is wrong with networks and pods", packages: &["netloom-chain", "netloom-validate"] },
    Floor { about: "one file per plugin", packages: &["netloom-plugins"] },
    Floor {
        about: "the plugin contract, addresses, firewall; the Kubernetes API, OpenStack; packets from node to node",
        packages: &[
            "netloom-plugin",
            "netloom-ipam",
            "netloom-dhcp",
            "netloom-rules",
            "netloom-fabric",
            "netloom-cluster",
            "netloom-objects",
            "netloom-neutron",
        ],
    },
    Floor {
        about: "what survives a crash; the system bus; Open vSwitch; which node has which addresses, which pod which ports; how packets get there",
        packages: &["netloom-journal", "netloom-dbus", "netloom-ovsdb", "netloom-ledger", "netloom-between", "netloom-binding"],
    },
    Floor {
        about: "the multi-network standard; the kernel; what a daemon says of itself; whom a client trusts; an OpenStack's settings and resources",
        packages: &["netloom-npwg", "netloom-linux", "netloom-daemon", "netloom-openstack", "netloom-trust"],
    },
    Floor {
        about: "the CNI specification and OpenStack's VIFs as types; the agent's messages; who holds which address of a pool; YAML",
        packages: &["netloom-cni-spec", "netloom-wire", "netloom-pool", "netloom-api", "netloom-osvif", "netloom-yaml"],
    },
    Floor { about: "JSON as Go reads it; a real Kubernetes on one machine, for tests", packages: &["netloom-json", "netloom-testbed"] },
];

/// What a runtime executes for every attachment: its start-up time is part of every pod's.
const EXECUTED: &str = "netloom-cni";

/// What may not be linked into it: each costs start-up time, or size, or belongs to a person's side of the house.
const HEAVY: &[&str] = &["clap", "comfy-table", "indicatif", "kube", "netloom-agent", "netloom-cluster", "regex", "serde-saphyr", "tokio"];

/// A rule of the house that is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A crate that nobody gave a floor.
    Homeless(String),
    /// A crate of the house that is not in the workspace.
    Missing(&'static str),
    /// A crate imports from its own floor or from one above.
    Upwards { importer: String, imported: String },
    /// What a runtime executes links something heavy: the way to it.
    Heavy(Vec<String>),
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Homeless(name) => write!(f, "{name} has no floor: give it one in HOUSE (xtask/src/floors.rs)"),
            Violation::Missing(name) => write!(f, "{name} is in HOUSE but not in the workspace: take it out (xtask/src/floors.rs)"),
            Violation::Upwards { importer, imported } => {
                write!(f, "{importer} imports {imported}, which does not stand below it: move what it needs to a floor below both")
            }
            Violation::Heavy(way) => write!(f, "{EXECUTED} must stay small, but links {}", way.join(" -> ")),
        }
    }
}

/// Everything in the workspace that does not keep the rules.
pub(crate) fn violations(graph: &Graph) -> Vec<Violation> {
    let heights = heights();
    let homeless = graph.members.iter().filter(|m| !heights.contains_key(m.as_str())).map(|m| Violation::Homeless(m.clone()));
    let missing = heights.keys().filter(|name| !graph.members.contains(**name)).map(|name| Violation::Missing(name));
    let upwards = graph.named.iter().flat_map(|(importer, named)| named.iter().map(move |imported| (importer, imported)));
    let upwards = upwards.filter(|(importer, imported)| {
        let (above, below) = (heights.get(importer.as_str()), heights.get(imported.as_str()));
        matches!((above, below), (Some(above), Some(below)) if below >= above)
    });
    let upwards = upwards.map(|(importer, imported)| Violation::Upwards { importer: importer.clone(), imported: imported.clone() });
    let ways = ways(graph, EXECUTED);
    let heavy = HEAVY.iter().filter_map(|name| Some(Violation::Heavy(way_to(&ways, name)?)));
    homeless.chain(missing).chain(upwards).chain(heavy).collect()
}

/// The good news about [`EXECUTED`], for a person.
pub(crate) fn small(graph: &Graph) -> String {
    format!("{EXECUTED} links {} packages, none of them {}", ways(graph, EXECUTED).len() - 1, HEAVY.join(", "))
}

/// How high each package stands; 0 is the lowest.
fn heights() -> BTreeMap<&'static str, usize> {
    HOUSE.iter().rev().enumerate().flat_map(|(height, floor)| floor.packages.iter().map(move |p| (*p, height))).collect()
}

/// Everything linked into a package, itself included, each with the package that brings it in (breadth first, so a way
/// is a shortest one).
fn ways<'a>(graph: &'a Graph, start: &'a str) -> BTreeMap<&'a str, Option<&'a str>> {
    let mut found = BTreeMap::from([(start, None)]);
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for dep in graph.linked.get(at).into_iter().flatten() {
            if !found.contains_key(dep.as_str()) {
                found.insert(dep, Some(at));
                next.push_back(dep);
            }
        }
    }
    found
}

fn way_to(ways: &BTreeMap<&str, Option<&str>>, name: &str) -> Option<Vec<String>> {
    let mut step = ways.get_key_value(name).map(|(name, _)| *name);
    let mut way = Vec::new();
    while let Some(at) = step {
        way.insert(0, at.to_owned());
        step = ways.get(at).copied().flatten();
    }
    (!way.is_empty()).then_some(way)
}

/// The house as a person draws it.
pub(crate) fn drawing() -> String {
    // Short, but for the executables: those are run under their full names.
    let short = |name: &'static str| if name == EXECUTED { name } else { name.trim_start_matches("netloom-") };
    let row = |floor: &Floor| (floor.packages.iter().map(|p| short(p)).collect::<Vec<_>>().join("   "), floor.about);
    let rows: Vec<(String, &str)> = HOUSE.iter().map(row).collect();
    let left = rows.iter().map(|(packages, _)| packages.len()).max().unwrap_or(0);
    let right = rows.iter().map(|(_, about)| about.len()).max().unwrap_or(0);
    let line = format!("  +-{:-<left$}-+-{:-<right$}-+\n", "", "");
    let body: String = rows.iter().map(|(packages, about)| format!("  | {packages:left$} | {about:right$} |\n{line}")).collect();
    line + &body
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn graph(named: &[(&str, &[&str])]) -> Graph {
        let members: BTreeSet<String> = heights().keys().map(|m| (*m).to_owned()).collect();
        let deps = |list: &[&str]| list.iter().map(|d| (*d).to_owned()).collect::<BTreeSet<String>>();
        let named: BTreeMap<String, BTreeSet<String>> = named.iter().map(|(m, d)| ((*m).to_owned(), deps(d))).collect();
        Graph { members, linked: named.clone(), named }
    }

    #[test]
    fn imports_from_below_are_fine() {
        assert_eq!(violations(&graph(&[("netloom-lab", &["netloom-attach", "netloom-json", "serde"])])), []);
    }

    #[test]
    fn an_import_from_above_or_beside_is_found() {
        let upwards = |importer: &str, imported: &str| Violation::Upwards { importer: importer.into(), imported: imported.into() };
        let found = violations(&graph(&[("netloom-json", &["netloom-cni-spec"]), ("netloom-rules", &["netloom-ipam", "netloom-linux"])]));
        assert_eq!(found, [upwards("netloom-json", "netloom-cni-spec"), upwards("netloom-rules", "netloom-ipam")]);
        assert!(found[0].to_string().contains("netloom-json imports netloom-cni-spec"));
    }

    #[test]
    fn a_crate_without_a_floor_and_a_floor_without_its_crate_are_found() {
        let mut graph = graph(&[]);
        graph.members.insert("netloom-new".into());
        graph.members.remove("netloom-lab");
        assert_eq!(violations(&graph), [Violation::Homeless("netloom-new".into()), Violation::Missing("netloom-lab")]);
    }

    #[test]
    fn something_heavy_is_found_behind_others() {
        let found = violations(&graph(&[
            ("netloom-cni", &["netloom-plugins"]),
            ("netloom-plugins", &["innocent"]),
            ("innocent", &["tokio"]),
            ("netloom", &["clap"]),
        ]));
        let way = ["netloom-cni", "netloom-plugins", "innocent", "tokio"].map(str::to_owned).to_vec();
        assert_eq!(found, [Violation::Heavy(way)]);
    }

    #[test]
    fn the_drawing_shows_every_crate_above_what_it_stands_on() {
        let drawing = drawing();
        let at = |name: &str| drawing.find(&format!("| {name} ")).unwrap();
        assert!(at("lab") < at("attach") && at("attach") < at("chain") && at("cni-spec") < at("json"), "{drawing}");
    }
}
