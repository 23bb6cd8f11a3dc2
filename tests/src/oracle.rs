//! The leak oracle: what is there, as `ip`, `nft` and the directories say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Host, at, seen_within};

/// Everything that a plugin can leave behind on a [`Host`]: one line a thing, with how often it is there.
pub type Traces = BTreeMap<String, usize>;

/// What `ip` is asked for, all of a family by one process: in an emulated machine a process costs more than what it does.
const OF_IPV4: &str = "link\naddress\nroute show table all\nrule\n";
const OF_IPV6: &str = "address\nroute show table all\nrule\n";

/// Sysctls that differ from one reading to the next, and those of the kernel as a whole, which anybody may change.
const RESTLESS: [&str; 4] = ["stable_secret", "tcp_fastopen_key", "/route/", "_mem:"];

/// The sysctl that `ip` tells of each link: who reads the file while links are being made or removed turns in a circle in the kernel until that is done
/// (`addrconf_sysctl_addr_gen_mode` in net/ipv6/addrconf.c).
const ASKED_OF_LINKS: &str = "/addr_gen_mode:";

impl Host {
    /// What is there now, on the machine and in every container.
    pub fn traces(&self) -> Traces {
        let mut traces = Traces::new();
        files(&self.path("/"), Path::new("/run"), &mut traces);
        files(&self.path("/"), Path::new("/var/lib"), &mut traces);
        let containers = self.list("/run/netns");
        for container in std::iter::once("").chain(containers.iter().map(String::as_str)) {
            let place = if container.is_empty() { "host" } else { container };
            // What is no namespace is a file, and told as such.
            let Ok(lines) = self.try_within(container, namespace) else {
                assert!(place != "host", "the machine's own namespace is gone");
                continue;
            };
            for line in lines {
                *traces.entry(format!("{place}: {line}")).or_default() += 1;
            }
        }
        traces
    }

    /// Nothing has come or gone since `before`. The kernel takes a namespace apart in its own time, and a busy machine has
    /// little of it, and one queue for the namespaces of all tests: two minutes are given.
    ///
    /// # Panics
    /// If anything differs: the message lists it.
    pub fn expect_traces(&self, before: &Traces, after_what: &str) {
        self.expect_traces_within(Duration::from_secs(120), before, after_what);
    }

    /// As [`Host::expect_traces`], where somebody else may still be clearing up for so long.
    ///
    /// # Panics
    /// As there.
    pub fn expect_traces_within(&self, patience: Duration, before: &Traces, after_what: &str) {
        let left = seen_within(patience, || differences(before, &self.traces()), Vec::is_empty);
        left.unwrap_or_else(|differ| panic!("{after_what} left traces:\n{}", told(&differ)));
    }
}

/// What is there once an attachment of `c1` has come and gone: with the first one come a bridge, rules without elements, the
/// directories of leases.
pub fn attached_once(host: &Host, config: &Value) -> Traces {
    let result = at(host, "c1").add(config);
    at(host, "c1").del(config, &result);
    host.traces()
}

/// A machine with containers `c1` and `c2` on which one attachment has come and gone, and what is there since.
pub fn used(config: &Value) -> (Host, Traces) {
    let host = Host::new();
    ["c1", "c2"].iter().for_each(|c| host.container(c));
    let before = attached_once(&host, config);
    (host, before)
}

/// The differences that explain the others come first: each link brings a hundred sysctls.
fn told(differ: &[String]) -> String {
    let (sysctls, rest): (Vec<&str>, Vec<&str>) = differ.iter().map(String::as_str).partition(|l| l.contains("/proc/sys/"));
    let lines: Vec<&str> = rest.into_iter().chain(sysctls).collect();
    let more = lines.len().saturating_sub(30);
    format!("{}\n({more} more)", lines[..lines.len() - more].join("\n"))
}

/// What is only before (`-`) and only after (`+`).
pub fn differences(before: &Traces, after: &Traces) -> Vec<String> {
    let count = |traces: &Traces, line: &String| traces.get(line).copied().unwrap_or_default();
    let mut lines: Vec<&String> = before.keys().chain(after.keys()).collect();
    lines.sort();
    lines.dedup();
    let sign = |line: &&String| match count(after, line).cmp(&count(before, line)) {
        std::cmp::Ordering::Less => Some(format!("- {line}")),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(format!("+ {line}")),
    };
    lines.iter().filter_map(sign).collect()
}

/// Directories, files with their first bytes, and links, below `dir`. How far an allocator has come is no trace, nor is
/// what it knows of its own files.
fn files(root: &Path, dir: &Path, traces: &mut Traces) {
    let here = root.join(dir.strip_prefix("/").unwrap_or(dir));
    for entry in std::fs::read_dir(here).into_iter().flatten().flatten() {
        let path = dir.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let what = if kind.is_dir() {
            files(root, &path, traces);
            "directory".to_owned()
        } else if kind.is_file() && !name.starts_with("last_reserved_ip.") && !name.ends_with(".index") {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            format!("{} bytes {:?}", bytes.len(), String::from_utf8_lossy(&bytes).chars().take(200).collect::<String>())
        } else {
            "file".to_owned()
        };
        *traces.entry(format!("disk: {} {what}", path.display())).or_default() += 1;
    }
}

/// The lines of the namespace that this thread is in, and the processes that it starts.
fn namespace() -> Vec<String> {
    let mut lines = Vec::new();
    for (family, commands) in [("-4", OF_IPV4), ("-6", OF_IPV6)] {
        let said = printed("ip", &[family, "-json", "-details", "-batch", "-"], commands);
        let said: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
        let kinds: Vec<&str> = commands.lines().map(|l| l.split(' ').next().unwrap()).collect();
        assert_eq!(said.len(), kinds.len(), "ip {family}: a line each was asked for {kinds:?}: {said:?}");
        for (kind, line) in kinds.into_iter().zip(said) {
            let list: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {kind}: {line}"));
            lines.extend(list.as_array().unwrap().iter().flat_map(|item| objects(kind, item)));
        }
    }
    lines.extend(printed("nft", &["list", "ruleset"], "").lines().flat_map(rules));
    for tree in ["/proc/sys/net/ipv4", "/proc/sys/net/ipv6"] {
        sysctls(Path::new(tree), &mut lines);
    }
    lines
}

fn printed(program: &str, args: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{program}: {e}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A line for each that can be read. An interface, and its directory, may go meanwhile.
fn sysctls(dir: &Path, lines: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = format!("{}:", path.display());
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            sysctls(&path, lines);
        } else if !name.ends_with(ASKED_OF_LINKS) && !RESTLESS.iter().any(|r| name.contains(r)) {
            // The kernel tells a sysctl in one piece: one read, of thousands, is all it takes.
            let mut text = [0; 4096];
            let length = File::open(&path).and_then(|mut file| file.read(&mut text)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text[..length]);
            lines.extend(text.lines().filter(|l| !l.trim().is_empty()).map(|l| format!("{name}{}", l.trim())));
        }
    }
}

/// One line of `nft list ruleset`, and one for each element: their order has no meaning. What a rule has counted is no trace.
fn rules(line: &str) -> Vec<String> {
    if let Some((before, counted)) = line.split_once(" packets ") {
        // `counter packets 1 bytes 40 jump CHAIN`
        let after: Vec<&str> = counted.split(' ').skip(3).collect();
        return rules(&[&[before], after.as_slice()].concat().join(" "));
    }
    let line = line.trim().trim_start_matches("elements = {").trim_end_matches('}');
    line.split(", ").map(|l| l.trim().trim_end_matches(',')).filter(|l| !l.is_empty()).map(|l| format!("nft {l}")).collect()
}

/// What counts of one object that `ip -j` prints. What the kernel makes of a link-local address comes and goes with a
/// bridge's carrier.
fn objects(kind: &str, item: &Value) -> Vec<String> {
    let field = |key: &str| format!(" {key}={}", item[key]);
    let own = |text: &Value| text.as_str().is_some_and(|t| t.starts_with("fe80:") || t.starts_with("ff00:"));
    match kind {
        "link" => {
            let flags = item["flags"].as_array().unwrap().iter().filter(|f| ["UP", "PROMISC", "ALLMULTI"].iter().any(|k| f == k));
            let flags: Vec<String> = flags.map(Value::to_string).collect();
            let keys = [
                "ifname",
                "address",
                "mtu",
                "master",
                "link",
                "link_index",
                "txqlen",
                "group",
                "promiscuity",
                "ifalias",
                "inet6_addr_gen_mode",
            ];
            let fields: String = keys.iter().map(|k| field(k)).collect();
            vec![format!("link{fields} kind={} flags={flags:?}", item["linkinfo"]["info_kind"])]
        }
        "address" => {
            let infos = item["addr_info"].as_array().into_iter().flatten().filter(|i| !own(&i["local"]));
            infos.map(|i| format!("address {} {}/{} peer={}", item["ifname"], i["local"], i["prefixlen"], i["address"])).collect()
        }
        // It follows from an address, and appears some time after it.
        "route" if own(&item["dst"]) || (item["table"] == "local" && item["protocol"] == "kernel") => Vec::new(),
        _ => {
            let mut item = item.clone();
            item.as_object_mut().unwrap().retain(|k, _| k != "flags" && k != "pref");
            vec![format!("{kind} {item}")]
        }
    }
}
