//! Rows: at which height each pod, interface and link of a node stands. Terminal and SVG draw the same plan.
//!
//! ```text
//! row 0   ╭─ web ───────────╮       ┌─ lab0 ────────┐    a pod: title, interfaces, bottom
//! row 1   │ eth0  lab       ├──╮ ╭──┤ bridge        │    a link: title, exit, addresses, bottom
//! row 2   │ net1  storage   ├─╮╰─╯  │ 10.244.0.1/24 │    between them: tracks
//! ```

use std::collections::HashMap;

use crate::topology::{Link, Node, Pod};

use super::place::{WantedRows, stack};
use super::scene::link_lines;
use super::text;
use super::tracks::{Join, Track, arrange};

/// From this many pods on, pods of a node share their frames, which saves a row each.
const CROWD: usize = 16;
/// Above this many rows a node is taller than a screen: links stand at their first interface.
const TALL: usize = 60;
/// A track that goes further down than this below its link is named at its lower end, too.
const LONG: usize = 40;
/// Most rows that a failure's reason takes.
const REASON_ROWS: usize = 6;

/// How the text of a node is broken into rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Breaking {
    /// Whether every address has a row of its own.
    pub(super) address_rows: bool,
    /// Columns for a failure's reason.
    pub(super) reason: usize,
    /// What stands for text left out.
    pub(super) ellipsis: char,
    /// Whether text other than ASCII may stand.
    pub(super) unicode: bool,
}

/// Where everything in one node stands.
#[derive(Debug)]
pub(super) struct NodePlan {
    /// Rows in all.
    pub(super) rows: usize,
    /// In the order of the node's pods.
    pub(super) pods: Vec<PodPlan>,
    /// In the order of the node's links.
    pub(super) links: Vec<LinkPlan>,
    /// The lines between them, one for each link that an interface reaches.
    pub(super) tracks: Vec<Track>,
    /// How many tracks stand side by side.
    pub(super) columns: usize,
}

/// Rows of a pod.
#[derive(Debug)]
pub(super) struct PodPlan {
    /// Row of the title, which is the frame's upper side.
    pub(super) top: usize,
    /// Row of the frame's lower side; the next pod's title if they share it.
    pub(super) bottom: usize,
    /// Row of each interface.
    pub(super) interfaces: Vec<usize>,
    /// Why it failed, by rows, and the first of them.
    pub(super) reason: (usize, Vec<String>),
}

/// Rows of a link.
#[derive(Debug)]
pub(super) struct LinkPlan {
    /// Row of the title.
    pub(super) top: usize,
    /// Rows of the frame.
    pub(super) rows: usize,
    /// Row at which its track, and its wire, arrive.
    pub(super) exit: usize,
}

// === impl NodePlan ===

impl NodePlan {
    pub(super) fn new(node: &Node, breaking: &Breaking) -> Self {
        let pods = stack_pods(&node.pods, breaking);
        let height = pods.last().map_or(0, |pod| pod.bottom + 1);
        let joins = joins(node, &pods);
        let links = place_links(&node.links, &joins, height);
        let bottom = links.iter().map(|link| link.top + link.rows).max().unwrap_or(0);
        let rows = height.max(bottom).max(1);
        let tracks = joins.into_iter().zip(&links).enumerate().filter(|(_, (joins, _))| !joins.is_empty());
        let tracks = tracks.map(|(number, (joins, link))| Track::new(number, joins, link.exit)).collect();
        let mut plan = NodePlan { rows, pods, links, tracks, columns: 0 };
        plan.lay_tracks();
        plan
    }

    /// Orders the tracks, and lets long ones run on below the pods to where their names stand.
    fn lay_tracks(&mut self) {
        for track in self.tracks.iter_mut().filter(|track| track.to > track.exit + LONG) {
            (track.to, track.tail) = (self.rows, true);
        }
        self.columns = arrange(&mut self.tracks);
        let mut tails: Vec<&mut Track> = self.tracks.iter_mut().filter(|track| track.tail).collect();
        // The rightmost ends first, so that no name stands in another track's way.
        tails.sort_by_key(|track| std::cmp::Reverse(track.column));
        for track in tails {
            track.to = self.rows;
            self.rows += 1;
        }
    }
}

fn stack_pods(pods: &[Pod], breaking: &Breaking) -> Vec<PodPlan> {
    let shared = pods.len() >= CROWD;
    let mut top = 0;
    let mut plans = Vec::with_capacity(pods.len());
    for pod in pods {
        let mut row = top + 1;
        let mut interfaces = Vec::with_capacity(pod.interfaces.len());
        for interface in &pod.interfaces {
            interfaces.push(row);
            row += if breaking.address_rows { interface.addresses.len().max(1) } else { 1 };
        }
        let reason = pod.failure().map(|reason| text::clean(reason, breaking.unicode)).unwrap_or_default();
        let reason = (row, text::wrap(&reason, breaking.reason, REASON_ROWS, breaking.ellipsis));
        row += reason.1.len();
        let bottom = row.max(top + 2);
        plans.push(PodPlan { top, bottom, interfaces, reason });
        top = if shared { bottom } else { bottom + 1 };
    }
    plans
}

/// For each link of a node the interfaces that reach it.
fn joins(node: &Node, pods: &[PodPlan]) -> Vec<Vec<Join>> {
    let mut index = HashMap::new();
    for (number, link) in node.links.iter().enumerate() {
        index.entry(link.name.as_str()).or_insert(number);
    }
    let mut joins = vec![Vec::new(); node.links.len()];
    for (number, (pod, plan)) in node.pods.iter().zip(pods).enumerate() {
        for (position, (interface, row)) in pod.interfaces.iter().zip(&plan.interfaces).enumerate() {
            let link = interface.attached_to.as_deref().and_then(|name| index.get(name));
            if let Some(list) = link.and_then(|link| joins.get_mut(*link)) {
                list.push(Join { row: *row, pod: number, interface: position });
            }
        }
    }
    joins
}

/// Puts links beside what reaches them. No link's exit is the row of an interface that goes elsewhere: the two lines
/// would run into each other.
fn place_links(links: &[Link], joins: &[Vec<Join>], height: usize) -> Vec<LinkPlan> {
    let mean = |joins: &[Join]| joins.iter().map(|join| join.row as f64).sum::<f64>() / joins.len() as f64;
    let centre = |joins: &[Join]| match joins.first() {
        None => f64::MAX,
        Some(first) if height > TALL => first.row as f64,
        Some(_) => mean(joins),
    };
    let mut order: Vec<(usize, &Link, &[Join])> = links.iter().zip(joins).enumerate().map(|(n, (link, list))| (n, link, &**list)).collect();
    order.sort_by(|a, b| centre(a.2).total_cmp(&centre(b.2)));
    let rows = |link: &Link| link_lines(link).len() + 2;
    // The exit is the row below the title; a link that nothing reaches stands below the others.
    let wish = |joins: &[Join]| if joins.is_empty() { 0.0 } else { centre(joins) - 1.0 };
    let wishes: Vec<WantedRows> = order.iter().map(|(_, link, joins)| WantedRows { wish: wish(joins), size: rows(link) }).collect();
    let mut owner = HashMap::new();
    for (number, list) in joins.iter().enumerate() {
        owner.extend(list.iter().map(|join| (join.row, number)));
    }
    let mut free = 0;
    let mut plans: Vec<(usize, LinkPlan)> = Vec::with_capacity(links.len());
    for ((number, link, list), best) in order.iter().zip(stack(&wishes)) {
        let mut top = best.max(free);
        while !list.is_empty() && owner.get(&(top + 1)).is_some_and(|owner| owner != number) {
            top += 1;
        }
        free = top + rows(link);
        plans.push((*number, LinkPlan { top, rows: rows(link), exit: top + 1 }));
    }
    plans.sort_by_key(|(number, _)| *number);
    plans.into_iter().map(|(_, plan)| plan).collect()
}
