//! What `cargo metadata` says, as far as it is asked here: who is in the workspace, and who depends on whom.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Packages by name. A name stands for all its versions: a rule about a package is about each of them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The packages of this workspace.
    pub(crate) members: BTreeSet<String>,
    /// What a member's manifest names, for the library, for tests or for building. Members alone.
    pub(crate) named: BTreeMap<String, BTreeSet<String>>,
    /// What is linked into a package: dependencies as resolved, without those of tests and of building.
    pub(crate) linked: BTreeMap<String, BTreeSet<String>>,
}

/// Asks the cargo that runs us.
pub(crate) fn load() -> Result<Graph> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(["metadata", "--format-version", "1"]).output().context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    read(&serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?)
}

/// From the format of version 1 (<https://doc.rust-lang.org/cargo/commands/cargo-metadata.html>).
fn read(metadata: &Value) -> Result<Graph> {
    let members: BTreeSet<&str> = list(metadata, "workspace_members")?.iter().filter_map(Value::as_str).collect();
    let mut graph = Graph::default();
    let mut names = BTreeMap::new();
    for package in list(metadata, "packages")? {
        let (id, name) = (text(package, "id")?, text(package, "name")?);
        names.insert(id, name);
        if members.contains(id) {
            graph.members.insert(name.to_owned());
            let named = list(package, "dependencies")?.iter().map(|d| Ok(text(d, "name")?.to_owned())).collect::<Result<_>>()?;
            graph.named.insert(name.to_owned(), named);
        }
    }
    let resolve = metadata.get("resolve").context("cargo metadata has no \"resolve\"")?;
    for node in list(resolve, "nodes")? {
        let name = names.get(text(node, "id")?).context("a node of \"resolve\" is no package")?;
        let linked: &mut BTreeSet<String> = graph.linked.entry((*name).to_owned()).or_default();
        for dep in list(node, "deps")? {
            // A kind of null is an ordinary dependency; "dev" and "build" are the others.
            if list(dep, "dep_kinds")?.iter().any(|k| k.get("kind").is_some_and(Value::is_null)) {
                linked.insert((*names.get(text(dep, "pkg")?).context("a dependency is no package")?).to_owned());
            }
        }
    }
    Ok(graph)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value.get(key).and_then(Value::as_array).with_context(|| format!("cargo metadata has no list {key:?}"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("cargo metadata has no text {key:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_dependencies_are_named_but_not_linked() {
        let metadata = serde_json::json!({
            "workspace_members": ["path+a"],
            "packages": [
                {"id": "path+a", "name": "a", "dependencies": [{"name": "b"}, {"name": "c"}]},
                {"id": "registry+b", "name": "b", "dependencies": []},
                {"id": "registry+c", "name": "c", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "path+a", "deps": [
                    {"pkg": "registry+b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "registry+c", "dep_kinds": [{"kind": "dev"}]},
                ]},
                {"id": "registry+b", "deps": []},
                {"id": "registry+c", "deps": []},
            ]},
        });
        let graph = read(&metadata).unwrap();
        assert_eq!(graph.members, BTreeSet::from(["a".to_owned()]));
        assert_eq!(graph.named["a"], BTreeSet::from(["b".to_owned(), "c".to_owned()]));
        assert_eq!(graph.linked["a"], BTreeSet::from(["b".to_owned()]));
    }
}
