//! `netloom repair`: what attachments have of the firewall, put back.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use attach::{Attacher, Records, Restored};
use chain::{Cache, CachedOutcome, Chain, PutBack, Restoring, Skipped};
use cni::CniError;
use json::{Object, Value};
use linux::nft::SetElement;
use plugin::{Dirs, Finder, Host, Prefer};
use plugins::BUILTINS;
use rules::{Meaning, OwnerKey, guarded_mac, guarded_port, is_ordinary, meanings, strict_address, strict_port};

use crate::agent_command;
use crate::cli::RepairArgs;
use crate::output::{BAD, ODD, Rows, counted, putln, structured};
use crate::rules_command::{Pods, holder, object, of_owner, words};

/// The agent's records.
const AGENT: &str = "/var/lib/netloom/sandboxes";
/// Those of `netloom-cni` as the plugin `netloom`: a directory for each network.
const PLUGIN: &str = "/var/lib/cni/netloom";
/// Where runtimes find plugins: Kubernetes' place first, then podman's.
const PLUGIN_DIRS: [&str; 5] = ["/opt/cni/bin", "/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni"];

/// What was found, of all records and caches.
#[derive(Default)]
struct RepairWork {
    attachments: Vec<PutBack>,
    rules: bool,
    /// Whose attachments are known.
    owners: HashSet<OwnerKey>,
    failed: Vec<String>,
    /// Elements of nobody who is known.
    strange: Vec<(OwnerKey, Meaning)>,
    /// What was not wholly looked at: nobody kept who made it.
    skipped: Vec<Skipped>,
}

/// Puts back, or looks.
pub(crate) fn run(args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let mode = if args.dry_run { Restoring::Look } else { Restoring::PutBack };
    let mut host = Host::here(Dirs::default());
    let path = plugin_dirs(args);
    let chain = || Chain::new(Finder::new(BUILTINS, path.clone(), Prefer::Runtime, std::env::vars_os().collect()), None);
    let mut found = RepairWork::default();
    for dir in record_dirs(&args.records)? {
        let attacher = Attacher::new(chain(), Records::new(dir));
        found.of_records(&attacher, mode, &mut host, Duration::from_secs(args.timeout))?;
    }
    for dir in &args.cache_dir {
        let by = Instant::now() + Duration::from_secs(args.timeout);
        found.of_cache(chain().restore_cached(&Cache::new(dir), mode, &mut host, by));
    }
    let there = meanings(host.nft()?).context("read Netloom's firewall entries, which only root may")?;
    found.strange = there.into_iter().filter(|(owner, _)| !found.owners.contains(owner)).collect();
    let pods = agent_command::pods::names(&args.asked.socket);
    match args.output {
        Some(format) => structured(&found.to_value(&pods), format)?,
        None => found.print(&pods, args.dry_run),
    }
    let is_missing = found.rules || !found.attachments.is_empty();
    Ok(match (found.failures().next().is_none(), args.dry_run && is_missing || !found.skipped.is_empty()) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(3),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn plugin_dirs(args: &RepairArgs) -> Vec<PathBuf> {
    match std::env::var_os("CNI_PATH") {
        _ if !args.plugin_dir.is_empty() => args.plugin_dir.clone(),
        Some(path) if !path.is_empty() => std::env::split_paths(&path).collect(),
        _ => PLUGIN_DIRS.map(PathBuf::from).to_vec(),
    }
}

/// The directories of sandboxes' records: those that are asked for, or all that this host has.
pub(crate) fn record_dirs(asked: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let networks = match std::fs::read_dir(PLUGIN) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e).with_context(|| format!("list {PLUGIN}")),
        Ok(entries) => entries.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>().with_context(|| format!("list {PLUGIN}"))?,
    };
    let mut dirs: Vec<PathBuf> = networks.into_iter().filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs.insert(0, Path::new(AGENT).to_owned());
    Ok(dirs)
}

// === impl RepairWork ===

impl RepairWork {
    /// Those that are being changed come last, one by one.
    fn of_records(&mut self, attacher: &Attacher, mode: Restoring, host: &mut Host, patience: Duration) -> anyhow::Result<()> {
        let mut restored = attacher.restore(None, mode, host, Instant::now())?;
        let busy = std::mem::take(&mut restored.busy);
        if !busy.is_empty() {
            restored.join(attacher.restore(Some(&busy), mode, host, Instant::now() + patience)?);
        }
        let Restored { attachments, rules, unread, busy, owners, skipped } = restored;
        self.skipped.extend(skipped);
        self.attachments.extend(attachments.into_iter().map(|(_, one)| one));
        self.rules |= rules;
        self.owners.extend(owners);
        self.failed.extend(unread.into_iter().map(|(sandbox, e)| format!("sandbox {sandbox}: {e}")));
        let waited = patience.as_secs();
        self.failed.extend(busy.into_iter().map(|sandbox| {
            format!("sandbox {sandbox} is still being attached or detached after {waited} s: run this command again later")
        }));
        Ok(())
    }

    fn of_cache(&mut self, outcome: CachedOutcome) {
        let CachedOutcome { attachments, rules, owners, errors, skipped } = outcome;
        self.skipped.extend(skipped);
        self.attachments.extend(attachments);
        self.rules |= rules;
        self.owners.extend(owners.iter().map(OwnerKey::of));
        self.failed.extend(errors.iter().map(CniError::to_string));
    }

    fn print(&self, pods: &Pods, dry_run: bool) {
        let (done, verb) = if dry_run { ("MISSING", "are missing") } else { ("RESTORED", "were restored") };
        let mut rows = Rows::new(&["ATTACHMENT", "NETWORK", done]);
        let mut left = Rows::new(&["ATTACHMENT", "NETWORK", "NOT CHANGED"]);
        let (mut any, mut any_left) = (false, false);
        for one in &self.attachments {
            let owner = OwnerKey::of(&one.id);
            let [network, _, ifname] = owner.parts();
            let name = format!("{} {ifname}", holder(&owner, pods));
            for what in one.elements.iter().map(text).chain(one.rules.iter().cloned()) {
                any = true;
                rows.push(vec![name.clone(), network.to_owned(), what]);
            }
            for what in &one.taken {
                any_left = true;
                left.push(vec![name.clone(), network.to_owned(), format!("{}: another attachment uses it", text(what))]);
            }
        }
        for (owner, meaning) in &self.strange {
            any_left = true;
            let [network, _, ifname] = owner.parts();
            let what = format!("{}: it has no record or cached result (remove it with `netloom cni gc`)", words(meaning));
            left.push(vec![format!("{} {ifname}", holder(owner, pods)), network.to_owned(), what]);
        }
        if any {
            rows.print(|_| anstyle::Style::new());
        }
        if self.rules {
            putln!("the base rules of Netloom's firewall table {verb}");
        }
        if any_left {
            left.print(|_| ODD);
        }
        let (all, skipped) = (self.owners.len(), self.skipped.len());
        if !any && !any_left && !self.rules && self.failures().next().is_none() {
            match skipped {
                0 => putln!("nothing is missing for the {}", counted(all, "known attachment")),
                _ => putln!("nothing is missing for {} of {}", all.saturating_sub(skipped), counted(all, "known attachment")),
            }
        }
        if skipped > 0 {
            let mut rows = Rows::new(&["ATTACHMENT", "NETWORK", "SKIPPED"]);
            for Skipped { id, programs } in &self.skipped {
                let owner = OwnerKey::of(id);
                let [network, _, ifname] = owner.parts();
                let what = format!("may have been made by {}", programs.iter().map(|path| maker(path)).collect::<Vec<_>>().join(" and "));
                rows.push(vec![format!("{} {ifname}", holder(&owner, pods)), network.to_owned(), what]);
            }
            rows.print(|_| ODD);
            putln!(
                "skipped {skipped} of {}: set --plugin-dir to the directory where their runtime finds plugins",
                counted(all, "attachment")
            );
        }
        for failure in self.failures() {
            crate::output::eputln!("{BAD}error:{BAD:#} {failure}");
        }
    }

    /// Everything that failed, as a line each.
    fn failures(&self) -> impl Iterator<Item = String> {
        let of_attachments = self.attachments.iter().flat_map(|one| one.errors.iter().map(|e| format!("{}: {e}", one.id)));
        self.failed.iter().cloned().chain(of_attachments)
    }

    fn to_value(&self, pods: &Pods) -> Value {
        let named = |one: &PutBack, element: &SetElement| {
            let owner = OwnerKey::of(&one.id);
            Meaning::of(element).map_or_else(|| unsaid(&owner, element, pods), |meaning| object(&owner, &meaning, pods))
        };
        let all = |of: fn(&PutBack) -> &Vec<SetElement>| -> Vec<Value> {
            self.attachments.iter().flat_map(|one| of(one).iter().map(|e| named(one, e)).collect::<Vec<_>>()).collect()
        };
        let rules = self.attachments.iter().flat_map(|one| {
            one.rules.iter().map(|what| {
                let mut o = of_owner(&OwnerKey::of(&one.id), pods);
                o.set("what", what.as_str());
                Value::Object(o)
            })
        });
        let mut o = Object::new();
        o.set("missing", all(|one| &one.elements));
        o.set("rules", rules.collect::<Vec<_>>());
        o.set("sharedRules", self.rules);
        o.set("taken", all(|one| &one.taken));
        o.set("unknown", self.strange.iter().map(|(owner, meaning)| object(owner, meaning, pods)).collect::<Vec<_>>());
        let skipped = self.skipped.iter().map(|one| {
            let mut o = of_owner(&OwnerKey::of(&one.id), pods);
            o.set("programs", one.programs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
            Value::Object(o)
        });
        o.set("skipped", skipped.collect::<Vec<_>>());
        o.set("errors", self.failures().collect::<Vec<_>>());
        Value::Object(o)
    }
}

/// One of several that say something together.
fn unsaid(owner: &OwnerKey, element: &SetElement, pods: &Pods) -> Value {
    let mut o = of_owner(owner, pods);
    o.set("kind", "element");
    o.set("element", element.to_string());
    Value::Object(o)
}

fn maker(program: &Path) -> String {
    let name = program.display();
    if program.is_absolute() { name.to_string() } else { format!("a program {name}, which was not found") }
}

fn text(element: &SetElement) -> String {
    match (Meaning::of(element), guarded_port(element), guarded_mac(element)) {
        (Some(meaning), _, _) => words(&meaning),
        (None, Some(port), Some(mac)) => format!("spoofing   {port} sends from {mac}"),
        (None, Some(port), None) => format!("spoofing   {port} sends from any hardware address"),
        (None, None, _) => match (strict_port(element), strict_address(element)) {
            (Some(port), Some(address)) => format!("source     {port} sends from {address}"),
            (Some(port), None) => format!("source     {port} sends from any IP address"),
            (None, _) if is_ordinary(element) => "guard      its packets with its own addresses pass at once".to_owned(),
            (None, _) => element.to_string(),
        },
    }
}
