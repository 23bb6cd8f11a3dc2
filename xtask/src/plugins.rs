//! The tables of docs/use/plugins/NAME.md: what each plugin says of itself, as `netloom plugins` prints it.
//!
//! ```text
//!   netloom plugins -o json --> keys, capabilities, versions --> between two marks of a page
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What the table stands between.
const BEGIN: &str = "<!-- keys: written by `cargo xtask plugins` -->\n";
const END: &str = "<!-- end of keys -->";

/// A page, as it is and as it should be.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) found: String,
    pub(crate) wanted: String,
}

/// A page for each plugin.
///
/// # Errors
/// `netloom` cannot be built or run; a page is missing or lacks its marks.
pub(crate) fn pages(root: &Path) -> Result<Vec<Page>> {
    plugins(root)?.iter().map(|plugin| page(root.join(format!("docs/use/plugins/{}.md", text(plugin, "name"))), &keys(plugin))).collect()
}

fn plugins(root: &Path) -> Result<Vec<Value>> {
    let netloom = crate::testing::program(root, "netloom")?;
    let output = Command::new(&netloom).args(["plugins", "-o", "json"]).output().with_context(|| netloom.display().to_string())?;
    ensure!(output.status.success(), "`netloom plugins -o json` failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("`netloom plugins -o json` printed no list")
}

fn page(path: PathBuf, table: &str) -> Result<Page> {
    let found = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let parts = found.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.with_context(|| format!("{} lacks the line {:?} or {END:?}", path.display(), BEGIN.trim()))?;
    let wanted = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    Ok(Page { path, found, wanted })
}

fn keys(plugin: &Value) -> String {
    let mut table = String::new();
    let keys = items(plugin, "keys");
    if keys.is_empty() {
        table += "No keys.\n";
    } else {
        table += "| key | value | default | what it does |\n|---|---|---|---|\n";
    }
    for key in keys {
        let [name, kind, default, summary] = ["name", "kind", "default", "summary"].map(|field| cell(text(key, field)));
        table += &format!("| `{name}` | {kind} | {default} | {summary} |\n");
    }
    let words = |field| items(plugin, field).iter().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect::<Vec<_>>();
    let capabilities = words("capabilities");
    if !capabilities.is_empty() {
        table += &format!("\nCapabilities: {}.\n", capabilities.join(", "));
    }
    let versions = words("versions");
    if let [first, .., last] = versions.as_slice() {
        table += &format!("\nVersions of the CNI specification: {first} to {last}.\n");
    }
    table
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(object: &'v Value, field: &str) -> &'v [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
