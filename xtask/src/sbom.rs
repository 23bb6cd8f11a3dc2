//! What is in a release, as CycloneDX 1.5: every crate that is linked into the executables, with its licence and what it is linked with.
//!
//! ```text
//!  cargo tree      who is linked into whom, with the features that each executable asks for  --+
//!  cargo metadata  licences, descriptions                                                    --+--> Bill --> JSON
//!  Cargo.lock      checksums                                                                 --+
//! ```
//!
//! The same bytes for the same sources: it has no serial number, and no time but the one that it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// What a release has.
const EXECUTABLES: [&str; 2] = ["netloom", "netloom-cni"];

/// Name and version, as in `serde@1.0.229`: how components are named here.
type Reference = String;

/// What is known of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    /// Of its package in the registry (SHA-256); what is of this workspace has none.
    checksum: Option<String>,
}

/// The document for one target, as text. `time` is a date as in RFC 3339.
pub(crate) fn document(root: &Path, target: &str, time: Option<&str>) -> Result<String> {
    let platform = ["--locked", "--format-version", "1", "--filter-platform", target];
    let metadata: Value = serde_json::from_str(&cargo("metadata", &platform)?).context("cargo metadata printed no JSON")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let crates = crates(&metadata, &checksums(&lock))?;
    let mut linked = BTreeMap::new();
    for executable in EXECUTABLES {
        let args = ["--locked", "--package", executable, "--edges", "normal,no-proc-macro", "--target", target];
        let args = [&args[..], &["--prefix", "depth", "--format", "{p}", "--charset", "ascii"]].concat();
        linked_by(&cargo("tree", &args)?, &mut linked)?;
    }
    let rustc = run(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version"))?;
    let toolchain = rustc.split_whitespace().nth(1).context("rustc --version tells no version")?;
    let bill = bill(&crates, &linked, toolchain, target, time)?;
    Ok(format!("{bill:#}\n"))
}

/// The cargo that runs us.
fn cargo(subcommand: &str, args: &[&str]) -> Result<String> {
    run(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).arg(subcommand).args(args))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}

/// The checksums in Cargo.lock, a line each below the name and the version.
fn checksums(lock: &str) -> BTreeMap<Reference, String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |key: &str| package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            found.insert(format!("{name}@{version}"), checksum.to_owned());
        }
    }
    found
}

/// From the format of version 1 (<https://doc.rust-lang.org/cargo/commands/cargo-metadata.html>).
fn crates(metadata: &Value, checksums: &BTreeMap<Reference, String>) -> Result<BTreeMap<Reference, Crate>> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata has no \"packages\"")?;
    let text = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = |package: &Value| {
        let name = text(package, "name").context("a package has no name")?;
        let version = text(package, "version").context("a package has no version")?;
        let reference = format!("{name}@{version}");
        let checksum = checksums.get(&reference).cloned();
        // Of a manifest's description one line counts.
        let description = text(package, "description").map(|d| d.split_whitespace().collect::<Vec<_>>().join(" "));
        // An older way to write `OR`.
        let license = text(package, "license").map(|l| l.split('/').map(str::trim).collect::<Vec<_>>().join(" OR "));
        Ok((reference, Crate { name, version, license, description, checksum }))
    };
    packages.iter().map(read).collect()
}

/// `cargo tree --prefix depth`: `0netloom v0.1.0 (/path)`, `1serde v1.0.0`, ... A crate's own dependencies stand below it the first time.
fn linked_by(tree: &str, linked: &mut BTreeMap<Reference, BTreeSet<Reference>>) -> Result<()> {
    let mut above: Vec<Reference> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (depth, package) = line.split_at(digits);
        let depth: usize = depth.parse().with_context(|| format!("cargo tree: no depth in {line:?}"))?;
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next().and_then(|v| v.strip_prefix('v'))) else {
            bail!("cargo tree: no name and version in {line:?}");
        };
        let reference = format!("{name}@{version}");
        above.truncate(depth);
        if let Some(importer) = above.last() {
            linked.entry(importer.clone()).or_default().insert(reference.clone());
        }
        linked.entry(reference.clone()).or_default();
        above.push(reference);
    }
    Ok(())
}

fn bill(
    crates: &BTreeMap<Reference, Crate>,
    linked: &BTreeMap<Reference, BTreeSet<Reference>>,
    toolchain: &str,
    target: &str,
    time: Option<&str>,
) -> Result<Value> {
    let of = |reference: &Reference| crates.get(reference).with_context(|| format!("cargo metadata does not know {reference}"));
    let executables: Vec<&Reference> =
        EXECUTABLES.iter().filter_map(|name| linked.keys().find(|r| r.split_once('@').is_some_and(|(n, _)| n == *name))).collect();
    let version = &of(executables.first().context("cargo tree has no executables")?)?.version;
    let release = format!("release@{version}");
    let standard = format!("std@{toolchain}");

    let mut components = vec![json!({
        "type": "library",
        "bom-ref": standard,
        "name": "std",
        "version": toolchain,
        "description": "Rust's standard library, with what its toolchain links along for this target: musl, LLVM's libunwind",
        "licenses": [{"expression": "(MIT OR Apache-2.0) AND MIT AND Apache-2.0 WITH LLVM-exception"}],
    })];
    let mut dependencies = vec![json!({"ref": release, "dependsOn": executables}), json!({"ref": standard, "dependsOn": []})];
    for (reference, below) in linked {
        let is_executable = executables.contains(&reference);
        components.push(component(reference, of(reference)?, is_executable));
        let mut below: BTreeSet<&Reference> = below.iter().collect();
        if is_executable {
            below.insert(&standard);
        }
        dependencies.push(json!({"ref": reference, "dependsOn": below}));
    }
    let mut about = json!({
        "component": {"type": "application", "bom-ref": release, "name": "netloom", "version": version,
            "licenses": [{"expression": "Apache-2.0"}]},
        "properties": [{"name": "netloom:target", "value": target}],
    });
    if let (Some(time), Some(about)) = (time, about.as_object_mut()) {
        about.insert("timestamp".into(), time.into());
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": about,
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(reference: &Reference, of: &Crate, is_executable: bool) -> Value {
    let mut component = json!({
        "type": if is_executable { "application" } else { "library" },
        "bom-ref": reference,
        "name": of.name,
        "version": of.version,
    });
    let Some(fields) = component.as_object_mut() else { return component };
    if let Some(license) = &of.license {
        fields.insert("licenses".into(), json!([{"expression": license}]));
    }
    if let Some(description) = &of.description {
        fields.insert("description".into(), json!(description));
    }
    // Only what a registry has is found under such a name.
    if let Some(checksum) = &of.checksum {
        fields.insert("purl".into(), json!(format!("pkg:cargo/{}@{}", of.name, of.version.replace('+', "%2B"))));
        fields.insert("hashes".into(), json!([{"alg": "SHA-256", "content": checksum}]));
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0netloom v0.1.0 (/src/bins/netloom)\n1a v1.0.0\n2b v2.0.0+x\n1c v3.0.0 (/src/c)\n2a v1.0.0 (*)\n";

    fn linked() -> BTreeMap<Reference, BTreeSet<Reference>> {
        let mut linked = BTreeMap::new();
        linked_by(TREE, &mut linked).unwrap();
        linked_by("0netloom-cni v0.1.0 (/src/bins/netloom-cni)\n1c v3.0.0 (/src/c)\n2a v1.0.0\n3b v2.0.0+x\n", &mut linked).unwrap();
        linked
    }

    #[test]
    fn a_tree_tells_who_is_linked_into_whom() {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        let linked = linked();
        assert_eq!(linked["netloom@0.1.0"], set(&["a@1.0.0", "c@3.0.0"]));
        assert_eq!(linked["netloom-cni@0.1.0"], set(&["c@3.0.0"]));
        assert_eq!(linked["c@3.0.0"], set(&["a@1.0.0"]));
        assert_eq!(linked["a@1.0.0"], set(&["b@2.0.0+x"]));
        assert_eq!(linked["b@2.0.0+x"], set(&[]));
        assert!(linked_by("netloom v0.1.0", &mut BTreeMap::new()).is_err());
    }

    #[test]
    fn a_crate_of_the_registry_has_its_checksum_and_a_name_there() {
        let lock = "version = 4\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0+x\"\nsource = \"registry\"\nchecksum = \"0123\"\n\n\
                    [[package]]\nname = \"c\"\nversion = \"3.0.0\"\ndependencies = [\n \"b\",\n]\n";
        let package = |name: &str, version: &str, license: &str| json!({"name": name, "version": version, "license": license});
        let metadata = json!({"packages": [
            package("netloom", "0.1.0", "Apache-2.0"), package("netloom-cni", "0.1.0", "Apache-2.0"), package("a", "1.0.0", "MIT"),
            package("b", "2.0.0+x", "MIT/Apache-2.0"), package("c", "3.0.0", "Apache-2.0"), package("unused", "1.0.0", "MIT"),
        ]});
        let crates = crates(&metadata, &checksums(lock)).unwrap();
        let bill = bill(&crates, &linked(), "1.95.0", "x86_64-unknown-linux-musl", Some("2026-01-01T00:00:00Z")).unwrap();
        let components = bill["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|c| c["name"] == name).unwrap();
        assert_eq!(named("b")["purl"], "pkg:cargo/b@2.0.0%2Bx");
        assert_eq!(named("b")["hashes"], json!([{"alg": "SHA-256", "content": "0123"}]));
        assert_eq!(named("b")["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(named("c").get("purl"), None);
        assert_eq!(named("netloom-cni")["type"], "application");
        assert!(components.iter().all(|c| c["name"] != "unused"));
        assert_eq!(bill["metadata"]["timestamp"], "2026-01-01T00:00:00Z");
        let linked_into_cni = bill["dependencies"].as_array().unwrap().iter().find(|d| d["ref"] == "netloom-cni@0.1.0").unwrap();
        assert_eq!(linked_into_cni["dependsOn"], json!(["c@3.0.0", "std@1.95.0"]));
    }
}
