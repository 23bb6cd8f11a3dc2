//! What the API server has, in few bytes: states are compared and kept by the million.

use std::fmt;

/// So many cells the pool has, of two addresses each.
pub(crate) const CELLS: u8 = 2;
/// The nodes' names.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];
/// The UIDs of nodes: `a`'s, `b`'s, and that of another `a`, made after the first one was deleted.
pub(crate) const A: u8 = 1;
pub(crate) const B: u8 = 2;
pub(crate) const A_ANEW: u8 = 3;

const EPOCHS: u8 = 6;

/// Some blocks, each in one of its lives.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Blocks(u32);

/// A cell of the ledger.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) state: CellState,
    pub(crate) epoch: u8,
    pub(crate) uid: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CellState {
    #[default]
    Free,
    Granted,
    Returning,
}

/// The ledger's only shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shard {
    pub(crate) first_epoch: u8,
    pub(crate) cells: [Cell; CELLS as usize],
}

/// The object that says how large the ledger's cells are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Root {
    #[default]
    Open,
    Missing,
    /// It was made anew: nothing is granted.
    Gathering,
}

/// A node's NodeIPPool.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodePool {
    /// `spec.nodeUID`
    pub(crate) uid: u8,
    /// `spec.blocks`
    pub(crate) blocks: Blocks,
    /// `spec.reclaimAfterSeconds`: its Node is gone, and its agent is to assign nothing.
    pub(crate) orphan: bool,
    /// `status.returning`
    pub(crate) returning: Blocks,
    /// `status.holding`
    pub(crate) holding: Blocks,
    /// `status.demand`, in blocks.
    pub(crate) demand: u8,
    /// `status.agent` names one.
    pub(crate) told: bool,
}

// === impl Blocks ===

impl Blocks {
    fn bit(cell: u8, epoch: u8) -> u32 {
        assert!(cell < CELLS && (1..=EPOCHS).contains(&epoch), "cell {cell}, epoch {epoch}");
        1 << (cell * EPOCHS + epoch - 1)
    }

    pub(crate) fn put(&mut self, cell: u8, epoch: u8) {
        self.0 |= Blocks::bit(cell, epoch);
    }

    pub(crate) fn has(self, cell: u8, epoch: u8) -> bool {
        epoch > 0 && self.0 & Blocks::bit(cell, epoch) != 0
    }

    /// Each as its cell and its epoch.
    pub(crate) fn each(self) -> impl Iterator<Item = (u8, u8)> {
        let all = (0..CELLS).flat_map(|cell| (1..=EPOCHS).map(move |epoch| (cell, epoch)));
        all.filter(move |(cell, epoch)| self.has(*cell, *epoch))
    }
}

impl FromIterator<(u8, u8)> for Blocks {
    fn from_iter<I: IntoIterator<Item = (u8, u8)>>(of: I) -> Self {
        let mut blocks = Blocks::default();
        of.into_iter().for_each(|(cell, epoch)| blocks.put(cell, epoch));
        blocks
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        let mut between = "";
        for (cell, epoch) in self.each() {
            write!(f, "{between}{cell} in life {epoch}")?;
            between = ", ";
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}/uid {}", self.state, self.epoch, self.uid)
    }
}

impl fmt::Debug for NodePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodePool { uid, blocks, orphan, returning, holding, demand, told } = self;
        write!(f, "uid {uid} has {blocks:?}, orphan: {orphan}; ")?;
        write!(f, "needs {demand}, returns {returning:?}, holds {holding:?}, told: {told}")
    }
}
