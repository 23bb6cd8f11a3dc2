//! What the documents quote is what the program prints.

use std::path::Path;
use std::process::Command;

use netloom_tests::{Host, netloom, plugin_dir};
use serde_json::{Value, json};

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name)).unwrap()
}

fn printed(args: &[&str]) -> String {
    let out = Command::new(netloom()).args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn plugins() -> Vec<Value> {
    serde_json::from_str::<Value>(&printed(&["plugins", "-o", "json"])).unwrap().as_array().unwrap().clone()
}

/// The examples in a language.
fn blocks<'p>(page: &'p str, language: &str) -> impl Iterator<Item = &'p str> {
    page.split(&format!("```{language}\n")).skip(1).filter_map(|rest| rest.split("```").next()).collect::<Vec<_>>().into_iter()
}

/// The first example of a plugin's page, a configuration or a list.
fn example(plugin: &str) -> Value {
    let page = document(&format!("docs/use/plugins/{plugin}.md"));
    let block = blocks(&page, "json").next().unwrap_or_else(|| panic!("{plugin}: no example"));
    serde_json::from_str(block).unwrap_or_else(|e| panic!("{plugin}: {e}"))
}

#[test]
fn every_plugin_has_a_page_with_its_keys() {
    for plugin in plugins() {
        let name = plugin["name"].as_str().unwrap();
        let page = document(&format!("docs/use/plugins/{name}.md"));
        for key in plugin["keys"].as_array().unwrap() {
            let [key, kind, default, summary] =
                ["name", "kind", "default", "summary"].map(|f| key[f].as_str().unwrap().replace('|', "\\|"));
            let row = format!("| `{key}` | {kind} | {default} | {summary} |");
            assert!(page.contains(&row), "docs/use/plugins/{name}.md lacks this row, run `cargo xtask plugins`:\n{row}");
        }
    }
}

/// The configurations of the examples have no keys but those of the tables: a plugin passes over what it does not know.
#[test]
fn every_example_of_a_plugin_has_keys_that_are_known() {
    let plugins = plugins();
    let keys_of = |name: &Value| -> Vec<&str> {
        let plugin = plugins.iter().find(|p| p["name"] == *name).unwrap_or_else(|| panic!("no plugin {name}"));
        plugin["keys"].as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap()).collect()
    };
    let check = |page: &str, config: &Value, prefix: &str| {
        let known = keys_of(&config["type"]);
        for key in config.as_object().unwrap().keys().filter(|k| !["cniVersion", "name", "type", "capabilities"].contains(&k.as_str())) {
            assert!(known.contains(&format!("{prefix}{key}").as_str()), "docs/use/plugins/{page}.md: {} knows no {key}", config["type"]);
        }
    };
    for plugin in &plugins {
        let name = plugin["name"].as_str().unwrap();
        let example = example(name);
        let configs = example["plugins"].as_array().cloned().unwrap_or_else(|| vec![example.clone()]);
        let types = configs.iter().flat_map(|c| [&c["type"], &c["ipam"]["type"]]);
        assert!(types.into_iter().any(|t| t == name), "docs/use/plugins/{name}.md: the example does not use {name}");
        for config in &configs {
            check(name, config, "");
            if config["ipam"]["type"].is_string() {
                check(name, &config["ipam"], "ipam.");
            }
        }
    }
}

/// What a lab on this machine cannot have: kernel modules that it may lack, and programs or devices of a host.
const NOT_HERE: [&str; 8] = ["dhcp", "dummy", "flannel", "ipvlan", "ovs-hybrid", "ovs-vhost-user", "vlan", "vrf"];

/// What no lab can have, so that it says so: a device of a real node.
const IN_NO_LAB: [&str; 3] = ["host-device", "sriov-vf", "dpdk-device"];

/// Builds a lab of manifests, sees that its pods are ready, and takes it down. With `dry_run` it is only planned.
fn attaches(host: &Host, page: &str, manifests: &str, dry_run: bool) {
    host.write("/etc/cni/example.yaml", manifests);
    let lab = |args: &[&str]| {
        let out = host.command("", netloom()).arg("lab").args(args).env_remove("CNI_PATH").output().unwrap();
        let said = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(out.status.success(), "{page}: {args:?}: {said}");
    };
    if dry_run {
        return lab(&["up", "/etc/cni/example.yaml", "--dry-run"]);
    }
    lab(&["up", "/etc/cni/example.yaml"]);
    lab(&["status"]);
    lab(&["down"]);
}

/// A definition with this configuration, a pod that selects it, and what else is there.
fn selected(name: &str, config: &Value, pool: Option<Value>) -> String {
    let mut items = vec![
        json!({ "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": { "name": name },
            "spec": { "config": config.to_string() } }),
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": { "k8s.v1.cni.cncf.io/networks": name } } }),
    ];
    items.extend(pool);
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

/// Each example attaches a pod. Those that need more than a lab are planned.
#[test]
fn every_example_of_a_plugin_attaches_a_pod() {
    let host = Host::new();
    for plugin in plugins() {
        let name = plugin["name"].as_str().unwrap();
        let pool = json!({ "apiVersion": "netloom.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "lab" },
            "spec": { "ipv4": { "entries": [{ "cidr": "10.87.0.0/24" }], "gateway": "10.87.0.1" } } });
        let manifests = selected(name, &example(name), (name == "pool").then_some(pool));
        if IN_NO_LAB.contains(&name) {
            host.write("/etc/cni/example.yaml", &manifests);
            assert!(host.command("", netloom()).args(["validate", "/etc/cni/example.yaml"]).status().unwrap().success(), "{name}");
            continue;
        }
        attaches(&host, &format!("docs/use/plugins/{name}.md"), &manifests, NOT_HERE.contains(&name));
    }
}

#[test]
fn the_first_examples_of_networks_and_pools_attach_a_pod() {
    let host = Host::new();
    let networks = document("docs/use/networks.md");
    attaches(&host, "docs/use/networks.md", blocks(&networks, "yaml").next().unwrap(), false);
    let pools = document("docs/use/pools.md");
    let mut json = blocks(&pools, "json").map(|block| serde_json::from_str::<Value>(block).unwrap());
    let (pool, network) = (json.next(), json.next().unwrap());
    attaches(&host, "docs/use/pools.md", &selected("storage", &network, pool), false);
}

/// All pages below docs/, and those beside it.
fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(str::to_owned).to_vec();
    for folder in ["docs", "docs/use", "docs/use/plugins", "docs/operate", "docs/internals"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().file_name());
        pages.extend(files.map(|name| format!("{folder}/{}", name.to_string_lossy())).filter(|p| p.ends_with(".md")));
    }
    pages
}

/// The command lines of `netloom` in examples, up to a pipe, a redirection, a remark, or what follows `--`.
fn command_lines(page: &str) -> Vec<Vec<String>> {
    let lines = ["console", "sh"].into_iter().flat_map(|language| blocks(page, language)).flat_map(str::lines);
    let words = |line: &'_ str| line.trim_start_matches(['#', '$', ' ']).trim_start_matches("sudo ").trim_start_matches("./dist/").len();
    let commands = lines.map(|line| &line[line.len() - words(line)..]).filter_map(|line| line.strip_prefix("netloom "));
    let ends = |word: &String| !["|", ">", "#", "--", "<<", "&&"].contains(&word.as_str());
    commands.map(|line| words_of(line).into_iter().take_while(ends).collect()).collect()
}

/// The words of a line, as a shell has them: what stands in quotes is one.
fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            _ => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// An argument that is unknown is an error also where help is asked for.
#[test]
fn every_command_line_in_the_documents_is_understood() {
    let mut seen = 0;
    for page in pages() {
        for args in command_lines(&document(&page)) {
            let out = Command::new(netloom()).args(&args).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{page}: `netloom {}` is not understood: {said}", args.join(" "));
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} command lines were found");
}

#[test]
fn what_install_makes_is_what_the_readme_counts() {
    let dir = std::fs::read_dir(plugin_dir()).unwrap().map(|e| e.unwrap());
    let links = dir.filter(|e| e.file_type().unwrap().is_symlink()).count();
    let plugins: Value = serde_json::from_str(&printed(&["plugins", "-o", "json"])).unwrap();
    let words = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen \
        nineteen twenty twenty-one twenty-two twenty-three twenty-four twenty-five twenty-six twenty-seven twenty-eight";
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
    for page in pages() {
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
    let page = document("docs/internals/ipam-failures.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|l| l.starts_with("| ")).skip(1).map(|l| l.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.iter().map(|row| row[1].to_owned()).collect::<Vec<_>>(), (1..=27).map(|n| n.to_string()).collect::<Vec<_>>());
    rows.iter().for_each(|row| tests_are_there(row[4], row[1]));
}

/// Each test of a cell, as "`FILE` NAME<br>`FILE` NAME", is there.
fn tests_are_there(cell: &str, of: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for test in cell.split("<br>") {
        let (path, name) = test.strip_prefix('`').and_then(|t| t.split_once("` ")).unwrap_or_else(|| panic!("{of}: {test:?}"));
        let source = std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(source.contains(&format!("fn {name}(")), "{of}: {path} has no test {name}");
    }
}

#[test]
fn what_the_kubelet_did_has_its_tests() {
    let page = document("docs/operate/kubelet.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| tests |"));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split(" | ").collect()).filter(|row: &Vec<&str>| row.len() == 3).collect();
    assert!(rows.len() > 50, "{}", rows.len());
    for row in rows {
        let cell = row[2].trim_end_matches(" |");
        if cell != "-" {
            tests_are_there(cell, row[0]);
        }
    }
}
