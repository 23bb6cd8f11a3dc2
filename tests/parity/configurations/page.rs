//! `docs/internals/parity.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use netloom_tests::guest;

use crate::configurations::Compared;
use crate::configurations::case::Kernel;
use crate::configurations::difference::Difference;
use crate::configurations::explained::Explained;

/// One kernel's part of the page.
pub(crate) struct Page {
    kernel: Kernel,
    text: String,
}

// === impl Page ===

impl Page {
    pub(crate) fn of(kernel: Kernel, all: &[Compared], used: &BTreeMap<usize, Vec<&Difference>>) -> Self {
        let mut text = String::new();
        text += "\n| plugin | configurations | keys in them |\n|---|---|---|\n";
        let plugins: BTreeSet<&str> = all.iter().map(|c| c.case.plugin).collect();
        for plugin in &plugins {
            let count = all.iter().filter(|c| c.case.plugin == *plugin).count();
            text += &format!("| {plugin} | {count} | {} |\n", keys(plugin, all));
        }
        text += &format!("\n{} configurations. What differs, and why:\n", all.len());
        text += "\n| plugin | what | reference | here | why | seen at, the first time | in |\n|---|---|---|---|---|---|---|\n";
        for ((what, why), differences) in grouped(used) {
            let of: BTreeSet<&str> = differences.iter().map(|d| d.plugin).collect();
            let cases: BTreeSet<(&str, &str)> = differences.iter().map(|d| (d.plugin, d.case)).collect();
            let of: Vec<&str> = of.into_iter().collect();
            let first = differences[0];
            let (theirs, ours, what, why) = (code(&first.theirs), code(&first.ours), cell(what), cell(why));
            let at = [first.case, first.step, &first.object, &first.field].into_iter().filter(|t| !t.is_empty() && *t != "answer");
            let at = cell(&at.collect::<Vec<_>>().join(": "));
            text += &format!("| {} | {what} | {theirs} | {ours} | {why} | {at} | {} |\n", of.join(", "), cases.len());
        }
        text += "\nConfigurations that one of them refuses:\n\n| plugin | configuration | reference | here |\n|---|---|---|---|\n";
        for compared in all.iter().filter(|c| c.theirs.refused.is_some() || c.ours.refused.is_some()) {
            let said = |refused: &Option<String>| refused.as_deref().map_or_else(|| "accepts it".to_owned(), cell);
            let (theirs, ours) = (said(&compared.theirs.refused), said(&compared.ours.refused));
            text += &format!("| {} | {} | {theirs} | {ours} |\n", compared.case.plugin, compared.case.name);
        }
        Page { kernel, text }
    }

    /// Writes this part, or sees that the page has it.
    pub(crate) fn keep(&self, write: bool) {
        let (begin, end) = self.marks();
        if write && guest::in_guest() {
            // What is written in the guest is gone with it.
            return println!("{begin}{}{end}", self.text);
        }
        let page = std::fs::read_to_string(path()).unwrap();
        let found = part(&page, begin, end);
        if write {
            return put(&page, found, &self.text);
        }
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (old, new) = (lines(found), lines(&self.text));
        let changed: Vec<String> =
            old.difference(&new).map(|l| format!("- {l}")).chain(new.difference(&old).map(|l| format!("+ {l}"))).collect();
        assert!(
            found == self.text,
            "docs/internals/parity.md is not what was found: run with NETLOOM_PARITY=write\n{}",
            changed.join("\n")
        );
    }

    /// Writes the part that the guest has printed, if it has.
    pub(crate) fn take_over(output: &str) {
        let guests = Page { kernel: Kernel::Guest, text: String::new() };
        let (begin, end) = guests.marks();
        if output.contains(begin) {
            let page = std::fs::read_to_string(path()).unwrap();
            put(&page, part(&page, begin, end), part(output, begin, end));
        }
    }

    fn marks(&self) -> (&'static str, &'static str) {
        match self.kernel {
            Kernel::Here => ("<!-- found on any kernel -->", "<!-- end of what was found on any kernel -->"),
            Kernel::Guest => ("<!-- found in the guest -->", "<!-- end of what was found in the guest -->"),
        }
    }
}

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/parity.md"))
}

/// What stands between two marks.
fn part<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let rest = text.split_once(begin).expect("the marks of both parts are there").1;
    rest.split_once(end).expect("the marks of both parts are there").0
}

fn put(page: &str, old: &str, new: &str) {
    let at = old.as_ptr() as usize - page.as_ptr() as usize;
    std::fs::write(path(), format!("{}{new}{}", &page[..at], &page[at + old.len()..])).unwrap();
}

/// Explanations of the same words are told once, where the first of them stands.
fn grouped<'d>(used: &BTreeMap<usize, Vec<&'d Difference>>) -> Vec<((&'static str, &'static str), Vec<&'d Difference>)> {
    let explained = Explained::all();
    let mut groups: Vec<((&str, &str), Vec<&Difference>)> = Vec::new();
    for (number, differences) in used {
        let key = (explained[*number].what, explained[*number].why);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, group)) => group.extend(differences),
            None => groups.push((key, differences.clone())),
        }
    }
    groups
}

/// Keys that the reference does not have.
const HERE_ALONE: [&str; 3] = ["ipam.ipv6", "ipam.probe", "macFromIP"];

/// The keys of a plugin in its own configurations, in order of the alphabet; those that every plugin has are left out.
fn keys(plugin: &str, all: &[Compared]) -> String {
    let everybodys = ["cniVersion", "name", "type", "prevResult", "runtimeConfig", "args", "args.cni", "capabilities"];
    let of_ipam = ["host-local", "static", "dhcp"].contains(&plugin);
    let keys: BTreeSet<String> = all.iter().filter(|c| c.case.plugin == plugin).flat_map(|c| c.case.keys_of(plugin)).collect();
    let own = |key: &&String| !everybodys.contains(&key.as_str()) && (of_ipam || !key.starts_with("ipam.")) && !key.starts_with("sysctl.");
    keys.iter().filter(own).map(shown).collect::<Vec<_>>().join(" ")
}

fn shown(key: &String) -> String {
    format!("`{key}`{}", if HERE_ALONE.contains(&key.as_str()) { " (here alone)" } else { "" })
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}

fn code(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { format!("`{}`", text.replace('|', "\\|").replace('\n', " ")) }
}
