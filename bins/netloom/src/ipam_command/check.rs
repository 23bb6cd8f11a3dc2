//! `netloom ipam check`: what the journal says, against what runs on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use pool::{Family, Key, Run, State, Unavailable};
use serde::Serialize;

use super::evidence::Evidence;
use super::host::Host;
use super::{NOT_WELL, rebuild, repair, words};
use crate::cli::{IpamCheckArgs, Store};
use crate::output::{BAD, FAINT, ODD, counted, put, putln, structured};
use crate::page::{Hang, Look, Page};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    /// `network/container/interface`
    #[serde(skip_serializing_if = "Option::is_none")]
    attachment: Option<String>,
    /// The namespaces that have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
    /// The pods to which it was assigned, by journal, records and cached results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods: Vec<String>,
    what: String,
    /// What of it can be given back.
    #[serde(skip)]
    pub(super) lease: Option<(Key, u64)>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// An attachment holds an address, and is gone.
    Gone,
    /// More namespaces have an address than networks have it to give.
    Twice,
    /// A namespace has an address that nobody was given.
    Unknown,
    /// An attachment holds an address that is no pool's any more: it keeps it until its DEL.
    Outside,
}

/// Everything that was found.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    leases: usize,
    namespaces: usize,
    findings: &'a [Finding],
    unseen: &'a [String],
}

pub(super) fn run(of: &Store, args: &IpamCheckArgs) -> anyhow::Result<ExitCode> {
    if args.rebuild {
        return rebuild::run(of, args);
    }
    let (host, evidence, mut found) = look(of, args)?;
    if !found.is_empty() {
        std::thread::sleep(Duration::from_secs(args.apart));
        let (_, _, again) = look(of, args)?;
        found.retain(|finding| again.contains(finding));
    }
    let report = Report {
        leases: host.seen.allocator.leases().count(),
        namespaces: evidence.places.len(),
        findings: &found,
        unseen: &evidence.unseen,
    };
    match args.output {
        Some(format) => structured(&report, format)?,
        None => print(&report, args.repair),
    }
    host.complain();
    if args.repair {
        repair::give_back(of, args, &mut found, &evidence)?;
    }
    let well = found.iter().all(|finding| finding.kind == Kind::Outside) && evidence.unseen.is_empty() && host.wrong.is_empty();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

/// One look. First at the journal's side: an address that is given after it may be in a namespace, and is found in the second
/// look's journal.
fn look(of: &Store, args: &IpamCheckArgs) -> anyhow::Result<(Host, Evidence, Vec<Finding>)> {
    let host = Host::look(of)?;
    let evidence = Evidence::gather(args)?;
    let mut found = gone(&host, &evidence, args.older_than);
    found.extend(strange(&host, &evidence));
    found.extend(outside(&host));
    Ok((host, evidence, found))
}

/// Leases of attachments that nothing tells of, and of which no namespace has an address.
fn gone(host: &Host, evidence: &Evidence, older_than: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    // What the node has itself is no attachment's.
    for lease in host.seen.allocator.leases().filter(|lease| !ipam::cilium::is_own(&lease.key)) {
        let age = lease.since.elapsed(&host.seen.now);
        let addresses: Vec<IpAddr> = lease.addresses.iter().map(|leased| leased.address).collect();
        let somewhere = addresses.iter().any(|address| !evidence.places_of(*address).is_empty());
        let Some(why) = evidence.has(&lease.key).filter(|_| !somewhere && age >= older_than.saturating_mul(1000)) else { continue };
        found.push(Finding {
            kind: Kind::Gone,
            pool: lease.addresses.first().map(|leased| leased.pool.clone()).unwrap_or_default(),
            addresses,
            pod: lease.pod.as_ref().map(ToString::to_string),
            attachment: Some(lease.key.to_string()),
            places: Vec::new(),
            pods: Vec::new(),
            what: why.to_owned(),
            lease: Some((lease.key.clone(), lease.generation)),
        });
    }
    found.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    found
}

/// Addresses of pools that namespaces have, and should not.
fn strange(host: &Host, evidence: &Evidence) -> Vec<Finding> {
    // What pools give, and who has it: in each network once.
    let mut pools: Vec<(&str, Vec<Run>)> = Vec::new();
    for name in host.seen.allocator.pools() {
        let Some(spec) = host.spec(name) else { continue };
        let blocks = Family::ALL.into_iter().flat_map(|family| host.seen.allocator.blocks(name, family));
        let active = blocks.filter(|(_, state)| *state == State::Active);
        pools.push((name, active.flat_map(|(block, _)| spec.allowed(block.run)).collect()));
    }
    let mut there: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for place in &evidence.places {
        for address in &place.addresses {
            there.entry(*address).or_default().insert(&place.name);
        }
    }
    // An address that has left its pool is still its holder's, and nobody else's.
    let mut kept: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for leased in host.seen.allocator.leases().flat_map(|lease| &lease.addresses) {
        kept.entry(leased.address).or_default().insert(&leased.pool);
    }
    let mut found = Vec::new();
    for (address, places) in there {
        let own = pools.iter().filter(|(_, runs)| runs.iter().any(|run| run.contains(address))).map(|(name, _)| *name);
        let of: Vec<&str> = own.chain(kept.get(&address).into_iter().flatten().copied()).collect();
        let Some(pool) = of.first() else { continue };
        let networks: BTreeSet<&str> = of.iter().filter_map(|name| host.spec(name)).map(|spec| spec.network.as_str()).collect();
        let taken: Vec<&Unavailable> = networks.iter().filter_map(|network| host.seen.allocator.taken(network, address)).collect();
        let holders = taken.iter().filter(|taken| matches!(taken, Unavailable::Held(_))).count();
        if places.len() <= holders {
            continue;
        }
        let (kind, what) = match taken.iter().find(|taken| matches!(taken, Unavailable::Cooling { .. })) {
            _ if holders > 0 => (Kind::Twice, "more namespaces have it than attachments it was assigned to".to_owned()),
            Some(taken) => (Kind::Unknown, format!("{taken}, but a namespace still has it")),
            None => (Kind::Unknown, "a namespace has it, but it is not assigned".to_owned()),
        };
        let places = places.into_iter().map(str::to_owned).collect();
        let (pool, pods) = ((*pool).to_owned(), pods_of(host, evidence, address));
        found.push(Finding { kind, addresses: vec![address], pool, pod: None, attachment: None, places, pods, what, lease: None });
    }
    found
}

/// The pods to which the journal, a record or a cached result assigns an address.
fn pods_of(host: &Host, evidence: &Evidence, address: IpAddr) -> Vec<String> {
    let leases = host.seen.allocator.leases().filter(|lease| lease.addresses.iter().any(|leased| leased.address == address));
    let attachments = evidence.attachments.values().filter(|one| one.addresses.contains(&address));
    let pods = leases.filter_map(|lease| lease.pod.as_ref()).chain(attachments.filter_map(|one| one.pod.as_ref()));
    pods.map(ToString::to_string).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Addresses whose block has left the pool.
fn outside(host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    for lease in host.seen.allocator.leases() {
        let lost = lease.addresses.iter().filter(|leased| {
            let mut blocks = host.seen.allocator.blocks(&leased.pool, Family::of(leased.address));
            !blocks.any(|(block, state)| state == State::Active && block.run.contains(leased.address))
        });
        found.extend(lost.map(|leased| Finding {
            kind: Kind::Outside,
            addresses: vec![leased.address],
            pool: leased.pool.clone(),
            pod: lease.pod.as_ref().map(ToString::to_string),
            attachment: Some(lease.key.to_string()),
            places: Vec::new(),
            pods: Vec::new(),
            what: "it is not in its pool any more; its attachment keeps it".to_owned(),
            lease: None,
        }));
    }
    found.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    found
}

/// `repairs`: what is gone is given back in a moment.
fn print(report: &Report<'_>, repairs: bool) {
    let mut page = Page::new(Look::here());
    for finding in report.findings {
        let addresses: Vec<String> = finding.addresses.iter().map(ToString::to_string).collect();
        let style = match finding.kind {
            Kind::Twice | Kind::Unknown => BAD,
            Kind::Gone => ODD,
            Kind::Outside => FAINT,
        };
        let who = match (&finding.pod, &finding.attachment) {
            (Some(pod), Some(attachment)) => format!(" of pod {pod} ({attachment})"),
            (None, Some(attachment)) => format!(" of {attachment}"),
            _ => String::new(),
        };
        let places = if finding.places.is_empty() { String::new() } else { format!(": {}", finding.places.join(", ")) };
        let pods = match finding.pods.as_slice() {
            [] => String::new(),
            [pod] => format!("; pod {pod}"),
            pods => format!("; pods {}", pods.join(", ")),
        };
        let text = format!("{} of pool {}{who}: {}{places}{pods}", addresses.join(", "), finding.pool, finding.what);
        page.pair(Hang::default(), finding.kind.word(), words::KINDS, style, &text);
    }
    for unseen in report.unseen {
        page.pair(Hang::default(), "not seen", words::KINDS, ODD, unseen);
    }
    put!("{}", page.into_text());
    if report.findings.is_empty() && report.unseen.is_empty() {
        putln!(
            "no problems found: {} with addresses, {} checked",
            counted(report.leases, "attachment"),
            counted(report.namespaces, "namespace")
        );
    } else if !repairs && report.findings.iter().any(|finding| finding.kind == Kind::Gone) {
        putln!("{FAINT}free leaked addresses with `netloom ipam check --repair`{FAINT:#}");
    }
}

// === impl Kind ===

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Gone => "gone",
            Kind::Twice => "twice",
            Kind::Unknown => "unknown",
            Kind::Outside => "outside",
        }
    }
}
