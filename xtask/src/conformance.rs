//! `docs/internals/conformance.md`: each clause of the multi-network standard, how it is met, and the tests that are named after it.
//!
//! ```text
//!   CLAUSES + every test `fn sNN_...` below crates/ and tests/ --> the page; a clause without a test is an error
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// How a clause is met.
#[derive(Clone, Copy)]
enum Standing {
    /// As the standard has it.
    Met,
    /// Otherwise, for a reason.
    Deviates,
    /// It asks nothing of a program, or nothing of this one.
    Nothing,
}

use Standing::{Deviates, Met, Nothing};

/// Number, what it asks for in our words, how it is met, and what is to be said about it.
const CLAUSES: &[(u32, &str, Standing, &str)] = &[
    (1, "no change to the API, to Services or to the kubelet", Met, "Netloom writes one annotation of a pod, and Events"),
    (
        2,
        "the implementation is a CNI plugin",
        Met,
        "`netloom-cni` as `netloom`, `multus` or `multus-shim`: CNI 0.1.0 to 1.1.0 with all verbs, which the node's agent executes",
    ),
    (3, "an attachment has any number of addresses", Met, "or none"),
    (4, "rules for delegating plugins bind only those", Met, "Netloom is one; the runtime's own process executes other plugins"),
    (5, "the default network is not replaced (1.0 only)", Deviates, "a pod may choose another one, by Multus's annotation, as since 1.1"),
    (6, "names of the custom resource", Met, ""),
    (7, "`spec.config` is optional and holds a configuration or a list", Met, ""),
    (8, "no other use of `spec.config`", Met, "it is a CNI configuration and nothing else; no definition is ever written"),
    (9, "definitions have DNS-1123 labels as names", Met, ""),
    (10, "`spec.config`, else a list on disk, else a configuration on disk, else failure", Met, ""),
    (11, "a missing `name` is the definition's", Met, ""),
    (12, "the names need not be the same", Met, ""),
    (13, "the annotation is on the pod", Met, "the default network has an annotation of its own, as Multus has it"),
    (14, "both forms of the annotation", Met, ""),
    (15, "comma form", Met, "with `@interface`, as Multus has it"),
    (16, "JSON form", Met, ""),
    (
        17,
        "keys without a period belong to the standard",
        Deviates,
        "an unknown key fails the pod, with a suggestion; otherwise a misspelt `ips` would be ignored",
    ),
    (18, "`name`", Met, ""),
    (19, "`namespace`", Met, ""),
    (
        20,
        "`ips`, with the capability",
        Deviates,
        "without the capability, plugins find them in CNI_ARGS and args.cni, as with Multus, and an address that is not in the result fails the pod; with prefix lengths, as since 1.1, or without; an invalid value fails the pod, while the standard ignores the annotation; the same for all keys",
    ),
    (21, "`mac`, with the capability", Deviates, "without the capability, as `ips`; 20 bytes are accepted too, as in versions before 1.2"),
    (22, "`interface`, which must be free", Met, ""),
    (23, "`cni-args` over the definition's own `args`", Met, "since 1.1"),
    (
        24,
        "`portMappings`, with the capability; fails for a network that cannot be reached from the host",
        Met,
        "since 1.1; only the plugin knows whether the network can be reached from the host",
    ),
    (25, "`bandwidth`, with the capability", Met, "since 1.1; without a burst, the largest that every plugin accepts is sent"),
    (
        26,
        "`default-route` on one element; the others lose theirs",
        Deviates,
        "since 1.1; one element for IPv4 and another one for IPv6 are accepted, as with Multus; the default network's own annotation counts as one of the elements; each family separately, in the main table; the first one is preferred",
    ),
    (27, "`infiniband-guid`, with the capability", Met, "since 1.2"),
    (
        28,
        "`ipam-claim-reference`, not with `ips`",
        Met,
        "since 1.3; sent as `args.cni`, and as `runtimeConfig` to a plugin with the capability of that name; other plugins ignore it",
    ),
    (29, "for plugins of the first version, requests are sent as `args` and looked for in the result", Met, ""),
    (30, "the same definition twice is two attachments", Met, ""),
    (31, "one tuple for all operations; generated names are unique", Met, ""),
    (32, "the status is a list of maps", Met, ""),
    (
        33,
        "what is of use only inside the pod need not be in the status; the status may change later (1.3)",
        Met,
        "of the routes only the default ones are shown, by their gateways",
    ),
    (34, "the status comes from the first interface inside the pod", Met, ""),
    (35, "the default network has an entry with `default: true`", Met, ""),
    (36, "keys of the status without a period belong to the standard", Met, "`gateway` and `mtu` are Multus's, whose consumers read them"),
    (37, "`name`", Met, "`namespace/name`, as since 1.2, or the default network's own name"),
    (38, "`interface`", Met, ""),
    (39, "`ips` of the first interface", Deviates, "bare addresses, as every consumer expects; without interfaces all addresses are shown"),
    (40, "`mac` only with `interface`", Met, ""),
    (41, "`default` is always there", Met, ""),
    (42, "`dns`", Met, ""),
    (43, "`default-route`, where the attachment had the key", Met, "since 1.1; and `gateway` for the consumers of Multus"),
    (44, "`device-info`", Met, "since 1.2"),
    (45, "`infiniband-guid` in examples", Nothing, "no text requires it: the plugin's address of 20 bytes is in `mac`"),
    (46, "the default network first", Met, ""),
    (
        47,
        "no configuration for the runtime before the default network is ready",
        Met,
        "`install: ready`; STATUS fails with code 50 until then",
    ),
    (48, "recommended: a separate directory for the runtime", Met, "`cniConfigDir`, with `clusterNetwork` naming the usual one"),
    (49, "or block until the default network is ready", Met, "`install: early`: calls wait for `addWait`"),
    (50, "lists by the rules of CNI: name and version are put in", Met, ""),
    (51, "a failure fails the pod at once", Met, "and what was made is undone"),
    (52, "teardown tries everything and returns an error", Met, ""),
    (53, "attachments of one pod are not made in parallel", Met, ""),
    (
        54,
        "an administrator may restrict which definitions a pod selects",
        Met,
        "by `namespaceIsolation`, as Multus has it, and by a policy of the cluster's owner",
    ),
    (
        55,
        "`runtimeConfig` of the kubelet only for the default network",
        Met,
        "since 1.1; a selection's `runtimeConfig` is made from the selection alone",
    ),
    (56, "names of the resource IPAMClaim", Met, "since 1.3; `deploy/ipamclaims.yaml`"),
    (
        57,
        "no address is freed before its claim is deleted",
        Met,
        "since 1.3; by `pool` and `whereabouts` in a cluster with its operator, from pod to pod and from node to node; the claim's name reaches \
         other IPAM plugins with ADD and DEL, and their claims are left alone",
    ),
    (58, "a plugin learns the claim's name from `ipam-claim-reference`", Met, "since 1.3"),
    (59, "claims have owners and outlive pods", Met, "a pod's end leaves them alone; the StatefulSet owns those of its pods"),
    (60, "further fields of IPAMClaim", Met, "not in the standard, but in its Go types: `ipRequests`, `ownerPod`, conditions"),
    (
        61,
        "information on devices: type, version, and a map for the type",
        Met,
        "a type of a newer version is kept; invalid information is reported, and does not fail the attachment",
    ),
    (62, "`pci`", Met, ""),
    (63, "`vdpa`", Met, ""),
    (64, "`vhost-user`", Met, ""),
    (65, "`memif`", Met, "the Go library's `punt` is `inject-punt`"),
    (66, "the device plugin's file", Met, ""),
    (67, "a file for each attachment, deleted on DEL", Met, ""),
    (
        68,
        "find the device, copy its file, tell the plugins, publish what they say",
        Met,
        "from the kubelet's podresources socket, else its checkpoint, and from ResourceClaims; a lab has only the devices that a pod names",
    ),
];

/// The page, from the table and the tests of a tree.
pub(crate) fn page(root: &Path) -> anyhow::Result<String> {
    let mut tests: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for folder in ["crates", "tests"] {
        collect(&root.join(folder), root, &mut tests)?;
    }
    let untested = CLAUSES.iter().filter(|(n, ..)| !tests.contains_key(n));
    let untested: Vec<String> = untested.map(|(n, ..)| format!("S{n}")).collect();
    anyhow::ensure!(untested.is_empty(), "clauses that have no test named after them: {}", untested.join(", "));
    let mut page = "# Conformance to the multi-network standard\n\n\
        This page lists how Netloom meets each clause of the standard, where it deviates and why, and which tests show it.\n\n\
        ```sh\ncargo xtask test agent standard::     # the clauses that need an agent\ncargo xtask conformance               # write this page from the tests\n```\n\n\
        The standard is the \"Kubernetes Network Custom Resource Definition De-facto Standard\" of the Network Plumbing Working Group, versions 1.0\n\
        to 1.3, with its Device Information Specification 1.1.0 (S61 to S68). Each row has a clause in a few words, how it is met, and the\n\
        tests that are named after it.\n\n| clause | requires | Netloom | tests |\n|---|---|---|---|\n"
        .to_owned();
    for (number, text, standing, note) in CLAUSES {
        let standing = match standing {
            Met => "met",
            Deviates => "**deviates**",
            Nothing => "-",
        };
        let here = if note.is_empty() { standing.to_owned() } else { format!("{standing}: {note}") };
        let tests = tests.get(number).map(|t| t.join("<br>")).unwrap_or_default();
        page += &format!("| S{number} | {text} | {here} | {tests} |\n");
    }
    Ok(page)
}

/// Every test below a folder whose name begins with the clauses that it shows, as `s20_s21_...`.
fn collect(folder: &Path, root: &Path, tests: &mut BTreeMap<u32, Vec<String>>) -> anyhow::Result<()> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, root, tests)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            for name in tests_of(&text) {
                for clause in clauses(name) {
                    tests.entry(clause).or_default().push(format!("`{shown}` {name}"));
                }
            }
        }
    }
    Ok(())
}

/// The functions of a formatted source that are run as tests: with `#[test]` above them, and without `#[ignore]` unless that says which
/// other suite runs them.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut is_test, mut is_ignored, mut names) = (false, false, Vec::new());
    for line in text.lines().map(str::trim) {
        is_test |= line.starts_with("#[test]");
        is_ignored |= line.starts_with("#[ignore") && !line.contains("\"needs ");
        if is_test && !is_ignored {
            names.extend(line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()));
        }
        if line.ends_with(['{', '}', ';']) && !line.starts_with("//") {
            (is_test, is_ignored) = (false, false);
        }
    }
    names
}

/// The clauses at the beginning of a test's name; the number of a mended defect may stand before them.
fn clauses(name: &str) -> Vec<u32> {
    let number = |word: &str, letter: char| word.strip_prefix(letter).and_then(|rest| rest.parse::<u32>().ok());
    name.split('_').skip_while(|word| number(word, 'r').is_some()).map_while(|word| number(word, 's')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_clauses() {
        assert_eq!(clauses("s20_s21_capabilities"), [20, 21]);
        assert_eq!(clauses("r08_s52_a_failed_roll_back"), [52]);
        assert!(clauses("sets_are_read").is_empty() && clauses("s_1").is_empty());
    }

    #[test]
    fn only_what_is_run_as_a_test_counts() {
        let text = "#[test]\nfn s1_run() {\n}\n\nfn s2_called() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn s3_passed_over() {}\n\
            #[ignore]\n#[test]\nfn s4_too() {}\n#[test]\n/// why: a; b;\n#[should_panic(\n    expected = \"x\"\n)]\nfn s5_run() {}\n\
            // #[test]\nfn s6_commented() {}\n";
        assert_eq!(tests_of(text), ["s1_run", "s5_run"]);
    }

    #[test]
    fn every_clause_is_there_once() {
        let numbers: Vec<u32> = CLAUSES.iter().map(|(n, ..)| *n).collect();
        assert_eq!(numbers, (1..=68).collect::<Vec<_>>());
    }
}
