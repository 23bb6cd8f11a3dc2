//! `netloom ipam trace ADDRESS`: who has it, and who had it.

use std::net::IpAddr;
use std::process::ExitCode;

use anstyle::Style;
use ipam::Tenure;
use pool::{Block, Family, Key, Moment, Run, Spec, State, Unavailable};
use serde::Serialize;

use super::host::{Host, Origin};
use super::{NOT_WELL, words};
use crate::cli::{IpamTraceArgs, Store};
use crate::output::{FAINT, GOOD, ODD, TITLE, put, structured};
use crate::page::{Hang, Look, Page};

/// How wide its words are in front, here and where a cluster's nodes are asked.
pub(super) const KEYS: usize = 9;
/// How far in they stand.
pub(super) const IN: Hang = Hang { first: "  ", rest: "  " };

/// An address in one pool.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TracedAddress {
    address: IpAddr,
    pool: String,
    network: String,
    block: Option<String>,
    state: &'static str,
    what: String,
    /// The latest last.
    history: Vec<View>,
}

/// That an attachment had it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ifname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attached_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip)]
    ended: bool,
    #[serde(skip)]
    told: String,
}

pub(super) fn run(of: &Store, args: &IpamTraceArgs) -> anyhow::Result<ExitCode> {
    let host = Host::look(of)?;
    let address = args.address.to_canonical();
    let found = find(&host, address);
    let code = tell(args, &found, render)?;
    host.complain();
    Ok(code)
}

/// Prints what was found of an address; the exit code says whether it was something.
pub(super) fn tell<T: Serialize>(args: &IpamTraceArgs, found: &[T], render: fn(IpAddr, &[T]) -> String) -> anyhow::Result<ExitCode> {
    match args.output {
        Some(format) => structured(&found, format)?,
        None => put!("{}", render(args.address.to_canonical(), found)),
    }
    Ok(if found.is_empty() { ExitCode::from(NOT_WELL) } else { ExitCode::SUCCESS })
}

/// In each pool that has it, or had it.
fn find(host: &Host, address: IpAddr) -> Vec<TracedAddress> {
    let tenures = host.seen.tenures(address);
    let mut found: Vec<TracedAddress> = Vec::new();
    for pool in host.seen.allocator.every_pool() {
        let Some(spec) = host.spec(pool) else { continue };
        let block = host.seen.allocator.blocks(pool, Family::of(address)).find(|(block, _)| block.run.contains(address));
        let of_pool: Vec<&Tenure> = tenures.iter().filter(|t| t.pool == pool).collect();
        if block.is_none() && of_pool.is_empty() {
            continue;
        }
        let (state, what) = state(host, spec, address, block);
        found.push(TracedAddress {
            address,
            pool: pool.to_owned(),
            network: spec.network.clone(),
            block: block.map(|(block, _)| format!("{} (epoch {})", block.run, block.epoch)),
            state,
            what,
            history: of_pool.into_iter().map(|tenure| view(tenure, &host.seen.now)).collect(),
        });
    }
    found
}

/// That its block is not the pool's any more, or it alone is not.
fn left(spec: &Spec, address: IpAddr, block: Option<State>) -> &'static str {
    match block {
        None | Some(State::Withdrawn) => "; its block is withdrawn from the pool: it is kept while it is in use, and not assigned again",
        Some(State::Active) if spec.allowed(Run::single(address)).is_empty() => {
            "; it is not in the pool any more: it is kept while it is in use, and not assigned again"
        }
        Some(State::Active | State::Frozen) => "",
    }
}

/// The pool of which an attachment holds an address.
fn pool_of<'h>(host: &'h Host, key: &Key, address: IpAddr) -> Option<&'h str> {
    let leased = host.seen.allocator.lease(key)?.addresses.iter().find(|leased| leased.address == address)?;
    Some(&leased.pool)
}

/// What it is now: a word for programs, and what people read.
fn state(host: &Host, spec: &Spec, address: IpAddr, block: Option<(&Block, State)>) -> (&'static str, String) {
    let kept_for = block.and_then(|(block, _)| block.claim.as_deref());
    let block = block.map(|(_, state)| state);
    let run = Run::single(address);
    let taken = host.seen.allocator.taken(&spec.network, address);
    let frees_in = taken.and_then(|t| t.frees_in(spec.reuse.cooldown, &host.seen.now));
    match (taken.filter(|_| frees_in != Some(0)), block) {
        (Some(Unavailable::Held(key)), _) if pool_of(host, key, address).is_some_and(|pool| pool != spec.name) => {
            let pool = pool_of(host, key, address).unwrap_or_default();
            let pod = host.seen.allocator.lease(key).and_then(|lease| lease.pod.as_ref());
            let pod = pod.map(|pod| format!("pod {pod}, ")).unwrap_or_default();
            ("held", format!("held as an address of pool {pool}, by {pod}{} of container {}", key.ifname, short(&key.container)))
        }
        (Some(Unavailable::Held(_)), _) => match host.seen.heard(&spec.network, address) {
            None => ("held", format!("held{}", left(spec, address, block))),
            Some(heard) => {
                let ago = words::age(heard.at().elapsed(&host.seen.now));
                ("held", format!("held, but another machine uses it as well, {}, seen {ago} ago", heard.by))
            }
        },
        (Some(Unavailable::Cooling { .. }), _) => ("cooling", format!("cooling down, free in {}", words::age(frees_in.unwrap_or(0)))),
        (Some(Unavailable::Quarantined { by, .. }), _) => {
            ("quarantined", format!("in use by another machine, {by}; checked again in {}", words::age(frees_in.unwrap_or(0))))
        }
        (None, None) => ("none", "not in this pool any more".to_owned()),
        (None, Some(State::Frozen)) => ("frozen", "its block is being released".to_owned()),
        (None, Some(State::Withdrawn)) => ("withdrawn", "not in this pool any more".to_owned()),
        (None, Some(State::Active)) if spec.terms(Family::of(address)).gateway == Some(address) => ("gateway", "the gateway".to_owned()),
        (None, Some(State::Active)) if spec.allowed(run).is_empty() => ("excluded", "excluded".to_owned()),
        (None, Some(State::Active)) if kept_for.is_some() => {
            ("kept", format!("kept for {}", ipam::owner_in_words(kept_for.unwrap_or_default())))
        }
        (None, Some(State::Active)) if spec.usable(run).is_empty() => ("reserved", "reserved for claims".to_owned()),
        (None, Some(State::Active)) if matches!(host.origin(&spec.name), Origin::Gone(_)) => {
            ("gone", "not assigned: its pool is gone".to_owned())
        }
        (None, Some(State::Active)) => ("free", "free".to_owned()),
    }
}

fn view(tenure: &Tenure, now: &Moment) -> View {
    let who = match (&tenure.pod, &tenure.key) {
        (Some(pod), Some(key)) => format!("pod {pod}, {} of container {}", key.ifname, short(&key.container)),
        (Some(pod), None) => format!("pod {pod}"),
        (None, Some(key)) => format!("{} of container {}", key.ifname, short(&key.container)),
        (None, None) => "an attachment that is not in the journal any more".to_owned(),
    };
    let network = tenure.key.as_ref().map(|key| format!(" ({})", key.network)).unwrap_or_default();
    let when = match (&tenure.since, &tenure.until) {
        (Some(since), None) => format!("since {}", at(since, now)),
        (None, None) => "since before the journal begins".to_owned(),
        (Some(since), Some(until)) => format!("from {} until {}", at(since, now), at(until, now)),
        (None, Some(until)) => format!("until {}", at(until, now)),
    };
    let clock = |at: &Option<Moment>| at.as_ref().and_then(|at| words::clock(at, now));
    View {
        pod: tenure.pod.as_ref().map(ToString::to_string),
        container: tenure.key.as_ref().map(|k| k.container.clone()),
        ifname: tenure.key.as_ref().map(|k| k.ifname.clone()),
        attached_to: tenure.key.as_ref().map(|k| k.network.clone()),
        since: clock(&tenure.since),
        until: clock(&tenure.until),
        ended: tenure.until.is_some(),
        told: format!("{who}{network}, {when}"),
    }
}

/// `5m 3s ago (2026-11-22T06:11:00Z)`
fn at(at: &Moment, now: &Moment) -> String {
    match words::clock(at, now) {
        Some(_) if at.millis == 0 => "the machine's last start".to_owned(),
        Some(clock) => format!("{clock} ({} ago)", words::age(now.millis.saturating_sub(at.millis))),
        None => "before the machine's last start".to_owned(),
    }
}

fn short(container: &str) -> String {
    crate::agent_command::pods::short(container)
}

/// A page whose title is the address, and what is said of it where nothing was found.
pub(super) fn page<T>(address: IpAddr, found: &[T], nothing: &str) -> Page {
    let mut page = Page::new(Look::here());
    page.line(Hang::default(), &[(TITLE, &address.to_string())]);
    if found.is_empty() {
        page.line(IN, &[(Style::new(), nothing)]);
    }
    page
}

/// `storage of network n`; a network that has its pool's name is not named.
pub(super) fn of_network(pool: &str, network: &str) -> String {
    if network == pool { pool.to_owned() } else { format!("{pool} of network {network}") }
}

fn render(address: IpAddr, found: &[TracedAddress]) -> String {
    let mut page = page(address, found, "is in no pool of this host, and the journal has no record of it");
    for (i, one) in found.iter().enumerate() {
        if i > 0 {
            page.gap();
        }
        let block = one.block.as_ref().map(|block| format!(", block {block}")).unwrap_or_default();
        page.pair(IN, "pool", KEYS, Style::new(), &format!("{}{block}", of_network(&one.pool, &one.network)));
        let style = match one.state {
            "free" => GOOD,
            "held" | "kept" => TITLE,
            "cooling" | "quarantined" => ODD,
            _ => FAINT,
        };
        page.pair(IN, "is", KEYS, style, &one.what);
        let mut before = "before";
        for tenure in one.history.iter().rev() {
            // Who holds it as another pool's address is none of this one's past.
            let holds = one.state == "held" && !tenure.ended;
            let key = if holds { "by" } else { std::mem::take(&mut before) };
            page.pair(IN, key, KEYS, if holds { Style::new() } else { FAINT }, &tenure.told);
        }
    }
    page.into_text()
}
