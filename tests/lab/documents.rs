//! What the documents quote is what the program prints.

use std::path::Path;
use std::process::Command;

use netloom_tests::{netloom, plugin_dir};
use serde_json::Value;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name)).unwrap()
}

fn printed(args: &[&str]) -> String {
    let out = Command::new(netloom()).args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn every_plugin_is_described_as_it_describes_itself() {
    let page = document("docs/use/plugins.md");
    let plugins: Value = serde_json::from_str(&printed(&["plugins", "-o", "json"])).unwrap();
    for plugin in plugins.as_array().unwrap() {
        let name = plugin["name"].as_str().unwrap();
        let text = printed(&["plugins", name]);
        for line in text.lines().filter(|l| !l.is_empty()) {
            assert!(page.contains(line), "docs/use/plugins.md lacks this line of `netloom plugins {name}`:\n{line}");
        }
    }
}

#[test]
fn what_install_makes_is_what_the_readme_counts() {
    let dir = std::fs::read_dir(plugin_dir()).unwrap().map(|e| e.unwrap());
    let links = dir.filter(|e| e.file_type().unwrap().is_symlink()).count();
    let plugins: Value = serde_json::from_str(&printed(&["plugins", "-o", "json"])).unwrap();
    let words = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen \
        nineteen twenty twenty-one twenty-two twenty-three twenty-four";
    let word = |number: usize| words.split_whitespace().nth(number).unwrap();
    let said =
        format!("one executable and {} links into the directory: the {} plugins", word(links), word(plugins.as_array().unwrap().len()));
    assert!(document("README.md").contains(&said), "README.md does not say: {said}");
}

#[test]
fn every_lab_command_is_described() {
    let page = document("docs/use/lab.md");
    let help = printed(&["lab", "--help"]);
    let commands = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1).take_while(|l| !l.is_empty());
    for command in commands.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help") {
        assert!(page.contains(&format!("netloom lab {command}")), "docs/use/lab.md does not tell of `netloom lab {command}`");
    }
}

#[test]
fn every_ipam_command_is_described() {
    let page = document("docs/operate/ipam-command.md");
    let help = printed(&["ipam", "-h"]);
    let commands = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1).take_while(|l| !l.is_empty());
    let named = commands.filter(|l| l.starts_with("  ") && !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    for command in named.filter(|c| *c != "help") {
        assert!(
            page.contains(&format!("netloom ipam {command}")),
            "docs/operate/ipam-command.md does not tell of `netloom ipam {command}`"
        );
    }
}

#[test]
fn every_command_and_option_of_the_agent_is_described() {
    let page = document("docs/operate/agent.md");
    let listed = |help: &str, heading: &str| -> Vec<String> {
        let lines = help.lines().skip_while(|l| !l.starts_with(heading)).skip(1).take_while(|l| !l.is_empty());
        lines.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").map(str::to_owned).collect()
    };
    for command in listed(&printed(&["agent", "-h"]), "Commands:") {
        assert!(page.contains(&format!("netloom agent {command}")), "docs/operate/agent.md does not tell of `netloom agent {command}`");
        for option in listed(&printed(&["agent", &command, "-h"]), "Options:").iter().filter(|o| o.starts_with("--") && *o != "--color") {
            assert!(page.contains(option.as_str()), "docs/operate/agent.md does not tell of `netloom agent {command} {option}`");
        }
    }
    for command in ["status", "pods", "explain"] {
        for option in listed(&printed(&[command, "-h"]), "Options:").iter().filter(|o| o.starts_with('-') && *o != "--color") {
            let option = option.trim_end_matches(',');
            let known = ["-h", "-V"].contains(&option) || page.contains(&format!("`{option} "));
            assert!(known, "docs/operate/agent.md does not tell of `netloom {command} {option}`");
        }
    }
}

#[test]
fn every_file_that_the_documents_link_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages =
        vec!["README.md".into(), "ARCHITECTURE.md".into(), "CONTRIBUTING.md".into(), "SECURITY.md".into(), "CHANGELOG.md".into()];
    for folder in ["docs", "docs/use", "docs/use/plugins", "docs/operate", "docs/internals"] {
        let files = std::fs::read_dir(root.join(folder)).into_iter().flatten().map(|e| e.unwrap().file_name());
        pages.extend(files.map(|name| format!("{folder}/{}", name.to_string_lossy())).filter(|p| p.ends_with(".md")));
    }
    for page in pages {
        let text = document(&page);
        for target in
            text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|t| !t.contains("://") && !t.starts_with('#'))
        {
            let file = root.join(&page).with_file_name(target.split('#').next().unwrap());
            assert!(file.exists(), "{page} links to {target}, which is not there");
        }
    }
}

#[test]
fn every_failure_of_addresses_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = document("docs/internals/ipam-failures.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|l| l.starts_with("| ")).skip(1).map(|l| l.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.iter().map(|row| row[1].to_owned()).collect::<Vec<_>>(), (1..=27).map(|n| n.to_string()).collect::<Vec<_>>());
    for row in &rows {
        for test in row[4].split("<br>") {
            let (path, name) = test.strip_prefix('`').and_then(|t| t.split_once("` ")).unwrap_or_else(|| panic!("{}: {test:?}", row[1]));
            let source = std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(source.contains(&format!("fn {name}(")), "docs/internals/ipam-failures.md: {path} has no test {name}");
        }
    }
}
