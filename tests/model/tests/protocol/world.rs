//! Everything there is, at one moment; and what must be so in each.

use std::fmt;

use ledger::Gone;

use crate::host::{Deed, PODS, Store};
use crate::model::{Guard, Story};
use crate::operator::{Known, Seen, View, run_of};
use crate::words::{A, A_ANEW, B, CELLS, Cell, CellState, NodePool, Root, Shard};

/// Everything there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) nodes: [u8; 2],
    pub(crate) shard: Option<Shard>,
    pub(crate) root: Root,
    pub(crate) node_pools: [Option<NodePool>; 2],
    /// What the second operator has read; the first one has read everything.
    pub(crate) late: View,
    /// The second operator has read the ledger after a node's spec had become what it is.
    pub(crate) ledger_later: [bool; 2],
    /// Its watches stand still: of the ledger, of the nodes' objects, of the nodes.
    pub(crate) stands: [bool; 3],
    pub(crate) stalls: [u8; 3],
    pub(crate) hosts: [Host; 3],
    pub(crate) gone: Option<Gone>,
    pub(crate) first_epoch: u8,
    pub(crate) lost_stores: u8,
    pub(crate) cells: u8,
}

/// A machine, and what runs on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// The UID of its Node; 0: it is not there.
    pub(crate) uid: u8,
    /// What its agent has in memory.
    pub(crate) memory: Store,
    /// What it finds when it starts again.
    pub(crate) disk: Store,
    /// Its agent has read its object since it knows nothing.
    pub(crate) has_read: bool,
    /// Its agent has read that its Node is gone, and assigns nothing.
    pub(crate) closed: bool,
    /// Attachments that wait for an address, by their bits.
    pub(crate) waiting: u8,
    /// The address that each attachment has, whatever its agent knows: the last byte.
    pub(crate) pods: [Option<u8>; PODS as usize],
    /// Blocks of which the agent believes that nobody has anything, where it looks first and freezes later.
    pub(crate) looked: u8,
}

// === impl Host ===

impl Host {
    pub(crate) fn of(uid: u8) -> Self {
        let store = Store::empty();
        Host { uid, memory: store, disk: store, has_read: false, closed: false, waiting: 0, pods: [None; PODS as usize], looked: 0 }
    }

    /// Whether its agent has nothing to say while its Node is gone: no pod has anything here, and none gets anything.
    pub(crate) fn lets_go(&self) -> bool {
        self.closed && self.pods.iter().all(Option::is_none)
    }

    /// The place of its Node's name.
    pub(crate) fn name(&self) -> usize {
        usize::from(self.uid == B)
    }

    /// Keeps what a deed makes of the store: on the disk, with all before it, if it is waited for.
    pub(crate) fn does(&mut self, deed: Deed, waited: bool) {
        (self.memory, _) = self.memory.after(deed);
        if waited {
            self.disk = self.memory;
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { uid, memory, disk, waiting, pods, .. } = self;
        write!(f, "uid {uid}: {memory:?}, waiting {waiting:b}, pods {pods:?}")?;
        if memory == disk { Ok(()) } else { write!(f, "; on disk: {disk:?}") }
    }
}

// === impl World ===

impl World {
    pub(crate) fn known(&self) -> Known {
        Known { gone: self.gone, first_epoch: self.first_epoch, cells: self.cells }
    }

    pub(crate) fn set_shard(&mut self, shard: Option<Shard>) {
        self.shard = shard;
        self.late.shard.newest = false;
    }

    pub(crate) fn set_root(&mut self, root: Root) {
        self.root = root;
        self.late.root.newest = false;
    }

    pub(crate) fn set_node_pool(&mut self, name: usize, to: Option<NodePool>) {
        let spec = |pool: Option<NodePool>| pool.map(|pool| (pool.uid, pool.blocks, pool.orphan));
        self.ledger_later[name] &= spec(to) == spec(self.node_pools[name]);
        self.node_pools[name] = to;
        self.late.node_pools[name].newest = false;
    }

    /// What an operator has read that has read everything.
    pub(crate) fn all(&self) -> View {
        let node_pools = self.node_pools.map(|is| Seen { is, newest: true });
        let (shard, root) = (Seen { is: self.shard, newest: true }, Seen { is: self.root, newest: true });
        View { shard, root, node_pools, nodes: self.nodes }
    }

    /// Watches that go on have delivered everything.
    pub(crate) fn delivered(mut self) -> Self {
        let all = self.all();
        let [shard, node_pools, nodes] = self.stands;
        self.ledger_later = self.ledger_later.map(|later| later || !shard);
        self.late = View {
            shard: if shard { self.late.shard } else { all.shard },
            root: if shard { self.late.root } else { all.root },
            node_pools: if node_pools { self.late.node_pools } else { all.node_pools },
            nodes: if nodes { self.late.nodes } else { all.nodes },
        };
        self
    }

    /// What a host finds as its own object.
    pub(crate) fn own(&self, host: &Host, story: &Story) -> Option<NodePool> {
        let own = |it: &NodePool| it.uid == host.uid || story.lacks(Guard::OwnUid);
        self.node_pools[host.name()].filter(own)
    }

    // --- what must be ---

    pub(crate) fn one_holder(&self) -> bool {
        let held = |host: usize| self.hosts[host].pods.iter().flatten();
        let twice = |a: usize, b: usize| held(a).any(|address| held(b).any(|other| other == address));
        !twice(0, 1) && !twice(0, 2) && !twice(1, 2)
    }

    /// What a host may hand out is its own in the ledger, in that life. A machine whose Node was made anew goes on with what the one
    /// before had, until it reads what it has now. One that is closed hands out nothing.
    pub(crate) fn ledger_has_all(&self, story: &Story) -> bool {
        let cell = |number: u8| self.shard.map_or_else(Cell::default, |shard| shard.cells[usize::from(number)]);
        let is = |number: u8, epoch: u8, uid: u8| cell(number) == Cell { state: CellState::Granted, epoch, uid };
        let before = |uid: u8| story.same_machine && uid == A_ANEW;
        let known = |uid: u8| move |(number, epoch): (u8, u8)| is(number, epoch, uid) || (before(uid) && is(number, epoch, A));
        // Until everybody has told, a ledger that was lost does not know it all.
        self.shard.is_none()
            || self.root != Root::Open
            || self
                .hosts
                .iter()
                .filter(|host| host.uid > 0 && !host.closed)
                .all(|host| host.memory.facts().active.each().all(known(host.uid)))
    }

    /// No attachment has an address of a block that its agent has stopped.
    pub(crate) fn frozen_is_idle(&self) -> bool {
        self.hosts.iter().all(|host| {
            let frozen = host.memory.facts().frozen;
            let inside = |address: &u8| frozen.each().any(|(cell, _)| last_bytes(cell).contains(address));
            !host.pods.iter().flatten().any(inside)
        })
    }

    /// No block is in the specs of two nodes, where operators know what stands in them.
    pub(crate) fn one_spec(&self) -> bool {
        let [a, b] = self.node_pools.map(|pool| pool.unwrap_or_default().blocks);
        !a.each().any(|(cell, _)| b.each().any(|(other, _)| other == cell))
    }

    /// A cell was returned, and somebody else has an address of it.
    pub(crate) fn is_granted_again(&self) -> bool {
        let Some(shard) = self.shard else { return false };
        (0..CELLS).zip(shard.cells).any(|(number, cell)| {
            let holder = self.hosts.iter().find(|host| host.uid == cell.uid);
            let holds = |host: &Host| host.pods.iter().flatten().any(|address| last_bytes(number).contains(address));
            cell.epoch > 1 && cell.state == CellState::Granted && holder.is_some_and(holds)
        })
    }
}

pub(crate) fn last_bytes(cell: u8) -> std::ops::RangeInclusive<u8> {
    let (first, last) = run_of(cell).numbers();
    first.to_le_bytes()[0]..=last.to_le_bytes()[0]
}
