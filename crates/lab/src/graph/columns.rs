//! How the columns of a drawing are shared out among names, networks, addresses and links.

use crate::topology::Interface;

use super::layout::{Breaking, NodePlan};
use super::scene::{Scene, line_label, link_lines};
use super::signs::Signs;
use super::text::{clean, columns};

/// From a node's frame to what is in it: the frame itself and a space.
pub(super) const PAD: usize = 2;
/// Longest name of a link that a kernel takes (`IFNAMSIZ` less its final zero).
const LINK_NAME: usize = 15;

/// Widest that a name of a network or a pod makes its column: what is longer is shortened.
const NAME_CAP: usize = 40;
/// Columns that a failure's reason wants.
const REASON: usize = 44;

/// Widths, in columns; the SVG counts in the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// Names of interfaces.
    pub(super) name: usize,
    /// Names of networks.
    pub(super) network: usize,
    /// Addresses of interfaces.
    pub(super) address: usize,
    /// Names of host-side veths on the lines; 0 where there is no room for them.
    pub(super) label: usize,
    /// Text in a link's box.
    pub(super) link: usize,
    /// A node's box.
    pub(super) node: usize,
    /// All with the wires.
    pub(super) total: usize,
    /// How text is broken into rows.
    pub(super) breaking: Breaking,
    title: usize,
    tracks: usize,
    wires: usize,
}

// === impl Columns ===

impl Columns {
    /// The best division that fits: with names on the lines; without; with a row for each address; with names
    /// shortened. `None` if even that is too wide.
    pub(super) fn fit(scene: &Scene, width: usize, signs: &Signs) -> Option<Self> {
        let natural = Columns::natural(scene, signs);
        let rows = Columns {
            label: 0,
            address: widest(scene, |one| one.addresses.iter().map(|address| address.to_string().len()).max().unwrap_or(0)),
            breaking: Breaking { address_rows: true, ..natural.breaking },
            ..natural
        };
        let candidates = [natural, Columns { label: 0, ..natural }, rows, rows.shrunk(width)];
        candidates.into_iter().map(Columns::summed).find(|columns| columns.total <= width)
    }

    /// What everything would take if there were room for it.
    pub(super) fn natural(scene: &Scene, signs: &Signs) -> Self {
        let size = |text: &str| columns(&clean(text, signs.unicode));
        let breaking = Breaking { address_rows: false, reason: REASON, ellipsis: signs.ellipsis, unicode: signs.unicode };
        let pods = || scene.nodes().iter().flat_map(|node| &node.pods);
        let failed = if pods().any(|pod| pod.failure().is_some()) { REASON } else { 0 };
        let title = pods().map(|pod| size(&pod.title()) + pod.failure().map_or(0, |_| 9)).max().unwrap_or(0);
        let links = || scene.nodes().iter().flat_map(|node| &node.links);
        let lines = links().flat_map(link_lines).map(|line| size(&line)).max().unwrap_or(0);
        let names = links().map(|link| size(&link.name).min(LINK_NAME) + 2).max().unwrap_or(0);
        let plans = scene.nodes().iter().map(|node| NodePlan::new(node, &breaking).columns);
        Columns {
            name: widest(scene, |one| size(&one.name)).min(LINK_NAME),
            network: widest(scene, |one| size(&one.network)).min(NAME_CAP),
            address: widest(scene, |one| {
                one.addresses.iter().map(|address| address.to_string().len() + 2).sum::<usize>().saturating_sub(2)
            }),
            label: widest(scene, |one| size(line_label(one))).min(LINK_NAME),
            link: lines.max(names).min(NAME_CAP),
            node: 0,
            total: 0,
            breaking,
            title: (title + 2).min(NAME_CAP).max(failed),
            tracks: plans.max().unwrap_or(0),
            wires: scene.wires().iter().filter(|wire| !wire.connects.is_empty()).count(),
        }
        .summed()
    }

    /// Names and addresses cut to what `width` leaves, each down to where it still says something.
    fn shrunk(self, width: usize) -> Self {
        let mut cut = Columns { title: self.title.min(self.row()), ..self };
        let over = |cut: &Columns| cut.summed().total.saturating_sub(width);
        cut.network = less(cut.network, over(&cut), 10);
        cut.title = cut.title.min(cut.row());
        cut.address = less(cut.address, over(&cut), 18);
        cut.title = cut.title.min(cut.row());
        cut.link = less(cut.link, over(&cut), 12);
        cut.name = less(cut.name, over(&cut), 6);
        cut.title = cut.title.min(cut.row());
        cut.address = less(cut.address, over(&cut), 12);
        cut.title = cut.title.min(cut.row());
        cut
    }

    fn summed(mut self) -> Self {
        self.breaking.reason = self.inner();
        let lines = self.stub() + (2 * self.tracks).max(1) + 2;
        let links = if self.link == 0 { 0 } else { lines + self.link + 4 };
        self.node = 2 * PAD + self.pod() + links;
        self.total = self.node + if self.wires == 0 { 0 } else { 2 + 2 * self.wires };
        self
    }

    /// Columns of an interface's row.
    fn row(&self) -> usize {
        2 + self.name + 2 + self.network + 2 + self.address
    }

    /// Text in a pod's box.
    pub(super) fn inner(&self) -> usize {
        self.row().max(self.title)
    }

    /// A pod's box.
    pub(super) fn pod(&self) -> usize {
        self.inner() + 4
    }

    /// From a pod's box to the first track.
    pub(super) fn stub(&self) -> usize {
        if self.label == 0 { 1 } else { self.label + 4 }
    }

    /// Where links begin: they stand at the right side of the node.
    pub(super) fn link_x(&self) -> usize {
        self.node.saturating_sub(PAD + self.link + 4)
    }

    /// Column of the track with this number.
    pub(super) fn track_x(&self, column: usize) -> usize {
        PAD + self.pod() + self.stub() + 2 * column
    }

    /// Column of the wire with this number.
    pub(super) fn wire_x(&self, number: usize) -> usize {
        self.node + 2 + 2 * number
    }

    /// An interface's addresses, by rows.
    pub(super) fn address_lines(&self, interface: &Interface) -> Vec<String> {
        let texts: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
        match self.breaking.address_rows {
            true => texts,
            false => vec![texts.join("  ")],
        }
    }
}

fn less(width: usize, by: usize, least: usize) -> usize {
    width.saturating_sub(by).max(least.min(width))
}

fn widest(scene: &Scene, size: impl Fn(&Interface) -> usize) -> usize {
    let interfaces = scene.nodes().iter().flat_map(|node| &node.pods).flat_map(|pod| &pod.interfaces);
    interfaces.map(size).max().unwrap_or(0)
}
