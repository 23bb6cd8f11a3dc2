//! `netloom ipam pools`: what each pool is.

use std::process::ExitCode;

use anstyle::Style;
use pool::{Block, Family, Order, Run, Spec, State, Terms};
use serde::Serialize;

use super::NOT_WELL;
use super::host::{Host, Origin};
use crate::cli::{IpamPoolsArgs, Store};
use crate::output::{FAINT, ODD, TITLE, put, putln, structured};
use crate::page::{Hang, Look, Page};

/// The longest key, in columns.
const KEYS: usize = 11;
/// More runs than these are counted, not listed.
const LISTED: usize = 16;
/// What is within a pool.
const IN: Hang = Hang { first: "  ", rest: "  " };

/// A pool as data.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    pool: &'a str,
    network: &'a str,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    cooldown_seconds: u64,
    order: &'static str,
    exclude: Vec<String>,
    reserved: Vec<String>,
    families: Vec<FamilyView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyView {
    family: String,
    prefix_length: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<String>,
    blocks: Vec<BlockView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockView {
    addresses: String,
    epoch: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
}

pub(super) fn run(of: &Store, args: &IpamPoolsArgs) -> anyhow::Result<ExitCode> {
    let host = Host::look(of)?;
    let names = host.names(args.pool.as_deref())?;
    let pools: Vec<(&String, &Spec)> = names.iter().filter_map(|name| Some((name, host.spec(name)?))).collect();
    match args.output {
        Some(format) => structured(&pools.iter().map(|(name, spec)| view(&host, name, spec)).collect::<Vec<_>>(), format)?,
        None if pools.is_empty() && host.wrong.is_empty() => putln!("{}", Host::none(of)),
        None => {
            let mut page = Page::new(Look::here());
            for (i, (name, spec)) in pools.iter().enumerate() {
                if i > 0 {
                    page.gap();
                }
                describe(&mut page, &host, name, spec);
            }
            put!("{}", page.into_text());
        }
    }
    host.complain();
    Ok(if host.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn describe(page: &mut Page, host: &Host, name: &str, spec: &Spec) {
    let (style, origin) = match host.origin(name) {
        Origin::File(path) => (Style::new(), path.display().to_string()),
        Origin::Configuration => (Style::new(), "the configurations of networks, a range of whereabouts".to_owned()),
        Origin::Cluster => (Style::new(), "the cluster".to_owned()),
        Origin::Gone(of) => {
            let whose = if of == ::pool::Origin::File {
                "its file was removed"
            } else {
                "the cluster, which does not assign it to this \
                node any more"
            };
            (ODD, format!("{whose}: no address is assigned any more; attachments keep theirs"))
        }
    };
    page.line(Hang::default(), &[(TITLE, name)]);
    let mut pair = |key: &str, style: Style, value: &str| page.pair(IN, key, KEYS, style, value);
    pair("from", style, &origin);
    if spec.network != name {
        pair("network", Style::new(), &spec.network);
    }
    pair("order", Style::new(), &format!("{}, {} after an address was released", order(spec), seconds(spec.reuse.cooldown)));
    if !spec.exclude.is_empty() {
        pair("excluded", Style::new(), &list(&spec.exclude));
    }
    if !spec.reserved.is_empty() {
        pair("reserved", Style::new(), &list(&spec.reserved));
    }
    for family in host.families(name) {
        let Terms { prefix, gateway } = spec.terms(family);
        let gateway = gateway.map_or_else(|| "no gateway".to_owned(), |g| format!("gateway {g}"));
        page.pair(IN, &family.to_string(), KEYS, Style::new(), &format!("prefix length {}, {gateway}", prefix_of(*prefix, family)));
        let blocks: Vec<(&Block, State)> = host.seen.allocator.blocks(name, family).collect();
        for (i, (block, state)) in blocks.iter().enumerate() {
            let claim = block.claim.as_ref().map(|c| format!(", only for {c}")).unwrap_or_default();
            let text = format!("{} (epoch {}){}{claim}", block.run, block.epoch, suffix(*state));
            let style = if *state == State::Active { Style::new() } else { FAINT };
            page.pair(IN, if i == 0 { "  blocks" } else { "" }, KEYS, style, &text);
        }
    }
}

fn view<'a>(host: &Host, name: &'a str, spec: &'a Spec) -> View<'a> {
    let texts = |runs: &[Run]| runs.iter().map(Run::to_string).collect();
    let origin = host.origin(name);
    let block = |(block, state): (&Block, State)| BlockView {
        addresses: block.run.to_string(),
        epoch: block.epoch,
        state: word(state),
        claim: block.claim.clone(),
    };
    let family = |family: Family| FamilyView {
        family: family.to_string(),
        prefix_length: prefix_of(spec.terms(family).prefix, family),
        gateway: spec.terms(family).gateway.map(|g| g.to_string()),
        blocks: host.seen.allocator.blocks(name, family).map(block).collect(),
    };
    View {
        pool: name,
        network: &spec.network,
        origin: origin.word(),
        file: if let Origin::File(path) = &origin { Some(path.display().to_string()) } else { None },
        cooldown_seconds: spec.reuse.cooldown / 1000,
        order: order(spec),
        exclude: texts(&spec.exclude),
        reserved: texts(&spec.reserved),
        families: host.families(name).into_iter().map(family).collect(),
    }
}

fn prefix_of(prefix: u8, family: Family) -> u8 {
    if prefix == 0 { family.bits() } else { prefix }
}

fn order(spec: &Spec) -> &'static str {
    match spec.reuse.order {
        Order::Fifo => "fifo",
        Order::Lowest => "lowest",
        Order::Random => "random",
    }
}

fn seconds(millis: u64) -> String {
    if millis == 0 { "at once".to_owned() } else { format!("{} s", millis.div_ceil(1000)) }
}

/// What becomes of a block, for programs.
pub(super) fn word(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Frozen => "frozen",
        State::Withdrawn => "withdrawn",
    }
}

fn suffix(state: State) -> &'static str {
    match state {
        State::Active => "",
        State::Frozen => ": frozen, being released",
        State::Withdrawn => ": withdrawn; attachments keep their addresses",
    }
}

fn list(runs: &[Run]) -> String {
    let named: Vec<String> = runs.iter().take(LISTED).map(Run::to_string).collect();
    let more = runs.len().saturating_sub(LISTED);
    if more > 0 { format!("{}, and {more} more", named.join(", ")) } else { named.join(", ") }
}
