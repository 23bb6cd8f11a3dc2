//! Two operators whose views may be old, two hosts and one that comes in the place of the first, and an API server of which
//! each object has a version.

use ledger::Gone;
use stateright::{Model, Property};

use crate::host::{Deed, PODS, Store};
use crate::operator::{Known, Seen, View, Wrote, step};
use crate::words::{A, A_ANEW, B, Blocks, CellState, NodePool, Root};
use crate::world::{Host, World, last_bytes};

/// O1, by what the hosts' pods have.
pub(crate) const ONE_HOLDER: &str = "no address is two hosts'";
/// What a host hands out is its own in the ledger, in that life.
pub(crate) const LEDGER_HAS_ALL: &str = "the ledger has all that is handed out";
pub(crate) const FROZEN_IS_IDLE: &str = "what is frozen is nobody's";
/// Who waits gets what is free, and what was returned becomes free, if all go on.
const SETTLES: &str = "it settles";
pub(crate) const ONE_SPEC: &str = "no block is in two specs";

/// What may happen, how often, and what nobody does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    /// So many cells the pool has, at most [`CELLS`].
    pub(crate) cells: u8,
    /// So often each of the second operator's watches may stand still and go on later: of the ledger, of the nodes' objects, of
    /// the nodes.
    pub(crate) stalls: [u8; 3],
    /// No life of a cell beyond this one is looked at.
    pub(crate) epochs: u8,
    /// So often a host is made anew and forgets everything.
    pub(crate) lost_stores: u8,
    /// The Node `a` may be deleted, and another one made, on another machine, while the first one's agent goes on.
    pub(crate) replaced: bool,
    /// The other Node `a` is the same machine: its pods live, and its agent has its store.
    pub(crate) same_machine: bool,
    /// Somebody may delete the ledger.
    pub(crate) lost_ledger: bool,
    /// And with it its root, and the objects of all nodes.
    pub(crate) lost_specs: bool,
    /// Each state is let settle, too.
    pub(crate) settles: bool,
    /// Guards that are missing.
    pub(crate) without: &'static [Guard],
}

/// What keeps an address from two holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A write is refused if its object is not any more what was read.
    Version,
    /// A node's spec gets what was read in the ledger, not what is meant to be written there.
    LedgerFirst,
    /// The look at who has an address of a block, and its freezing, are one.
    FreezeIsOne,
    /// A block is told of when its freezing is on the disk.
    FrozenOnDisk,
    /// What is returned is the life that the node has.
    EpochOfReturned,
    /// A node remembers which lives it has given back.
    ReturnedForEver,
    /// A cell is free when it has left the node's spec.
    OutOfSpec,
    /// A node of the same name and another UID is another one: to the operator.
    NodeUid,
    /// The same to an agent.
    OwnUid,
    /// What a deleted node had is free when nothing of it can run any more, or its agent has nothing in use: the time of grace.
    Grace,
    /// An agent whose own Node is gone assigns nothing.
    ClosedWithoutNode,
    /// Who was not asked whether it lives has not been silent.
    AskedFirst,
    /// A shard is made when the nodes' specs were read after it was found missing.
    AllRead,
    /// An agent tells nothing before it has read its object: what it says of returned blocks replaces what it said before.
    ReadsFirst,
    /// Who adds a block to a spec has read the ledger after the spec: or what has left it might come again.
    LedgerReadLater,
    /// An agent tells what its pods have of blocks that its object does not name.
    ToldWhatItHolds,
    /// What a node had is free when the agent of one of its name has told what it holds.
    AgentTellsFirst,
    /// Nothing is granted of a ledger that was lost until every node has reported what it has.
    EveryoneTells,
    /// What nodes hold, and nothing else knows, is entered in the ledger.
    HeldIsEntered,
    /// What a node has told to return is frozen for one that has lost its store, too.
    ReturningIsFrozen,
}

/// Something that happens. Numbers are those of operators, hosts, cells and attachments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A watch of the second operator delivers nothing from now on.
    Stalls(usize),
    /// It delivers all that there is.
    GoesOn(usize),
    /// One of an operator's next writes arrives; whether it hears of it makes no difference. The late one's is `true`.
    Writes(bool, Wrote),
    Add(usize, u8),
    GivesUp(usize, u8),
    Del(usize, u8),
    Looks(usize, u8),
    Freezes(usize, u8),
    IsOnDisk(usize),
    Follows(usize),
    TellsStatus(usize),
    Crashes(usize),
    LosesStore(usize),
    NodeDeleted,
    NodeMadeAnew,
    MachineEnds,
    GraceOver,
    LedgerDeleted,
}

/// Whether blocks would come into a node's spec that it has not.
fn adds(view: &View, name: u8, blocks: Blocks) -> bool {
    let before = view.node_pools[usize::from(name)].is.unwrap_or_default().blocks;
    blocks.each().any(|(cell, epoch)| !before.has(cell, epoch))
}

// === impl Story ===

impl Story {
    pub(crate) fn lacks(&self, guard: Guard) -> bool {
        self.without.contains(&guard)
    }

    /// What an operator writes, in its order.
    pub(crate) fn writes(&self, view: &View, known: Known) -> Vec<Wrote> {
        let mut seen = *view;
        match self.without.first() {
            // What it means to write, it takes for written.
            Some(Guard::LedgerFirst) => {
                if let Some(shard) = step(view, known).iter().find_map(|w| if let Wrote::Shard(shard) = w { Some(*shard) } else { None }) {
                    seen.shard.is = Some(shard);
                }
                let specs = step(&seen, known).into_iter().filter(|w| !matches!(w, Wrote::Shard(_)));
                return specs.chain(step(view, known).into_iter().filter(|w| matches!(w, Wrote::Shard(_)))).collect();
            }
            Some(Guard::EpochOfReturned) => {
                for pool in seen.node_pools.iter_mut().filter_map(|seen| seen.is.as_mut()) {
                    let cells: Vec<u8> = pool.returning.each().map(|(cell, _)| cell).collect();
                    pool.returning = pool.blocks.each().filter(|(cell, _)| cells.contains(cell)).collect();
                }
            }
            Some(Guard::OutOfSpec) => {
                let cells = seen.shard.is.map(|shard| shard.cells).unwrap_or_default();
                let returning = |(number, epoch): &(u8, u8)| {
                    cells[usize::from(*number)].state == CellState::Returning && cells[usize::from(*number)].epoch == *epoch
                };
                for pool in seen.node_pools.iter_mut().filter_map(|seen| seen.is.as_mut()) {
                    pool.blocks = pool.blocks.each().filter(|block| !returning(block)).collect();
                }
                let shard = step(&seen, known).into_iter().filter(|w| matches!(w, Wrote::Shard(_)));
                return shard.chain(step(view, known).into_iter().filter(|w| !matches!(w, Wrote::Shard(_)))).collect();
            }
            Some(Guard::AgentTellsFirst) => {
                seen.node_pools.iter_mut().filter_map(|seen| seen.is.as_mut()).for_each(|pool| pool.told = true)
            }
            Some(Guard::EveryoneTells) => seen.node_pools.iter_mut().filter_map(|seen| seen.is.as_mut()).for_each(|pool| pool.told = true),
            Some(Guard::HeldIsEntered) => {
                seen.node_pools.iter_mut().filter_map(|seen| seen.is.as_mut()).for_each(|pool| pool.holding = Blocks::default())
            }
            Some(Guard::NodeUid) if seen.nodes[0] == A_ANEW => {
                for cell in seen.shard.is.iter_mut().flat_map(|shard| &mut shard.cells).filter(|cell| cell.uid == A) {
                    cell.uid = A_ANEW;
                }
            }
            _ => {}
        }
        step(&seen, known)
    }
}

impl Story {
    /// If all go on, nothing new happens, and the second operator is up to date: does everybody who waits get what there is, and
    /// does what was returned become free?
    fn settles(&self, world: &World) -> bool {
        let mut world = World { stands: [false; 3], ..*world }.delivered();
        for _ in 0..40 {
            let before = world;
            for write in self.writes(&world.all(), world.known()) {
                // One by one: what is read next is newer.
                if let Some(write) = self.writes(&world.all(), world.known()).into_iter().find(|now| *now == write) {
                    self.does(&mut world, Act::Writes(false, write));
                    world = world.delivered();
                }
            }
            for number in (0..world.hosts.len()).filter(|number| before.hosts[*number].uid > 0) {
                self.does(&mut world, Act::IsOnDisk(number));
                self.does(&mut world, Act::Follows(number));
                let waiting = if world.hosts[number].closed { 0 } else { before.hosts[number].waiting };
                for pod in (0..PODS).filter(|pod| waiting & 1 << pod != 0) {
                    self.does(&mut world, Act::Add(number, pod));
                }
                if world.hosts[number].has_read {
                    self.does(&mut world, Act::TellsStatus(number));
                }
            }
            if world == before {
                return self.is_at_rest(&world);
            }
        }
        false
    }

    fn is_at_rest(&self, world: &World) -> bool {
        // Without a ledger everything is free.
        let shard = world.shard.unwrap_or_default();
        let cells = || shard.cells.iter().take(usize::from(self.cells));
        let waits = world.hosts.iter().any(|host| host.waiting > 0 && world.own(host, self).is_some_and(|own| !own.orphan));
        let free = cells().any(|cell| cell.state == CellState::Free);
        !(waits && free) && cells().all(|cell| cell.state != CellState::Returning)
    }

    fn of_operators(&self, world: &World, acts: &mut Vec<Act>) {
        for (watch, stands) in world.stands.iter().enumerate() {
            if *stands {
                acts.push(Act::GoesOn(watch));
            } else if world.stalls[watch] > 0 {
                acts.push(Act::Stalls(watch));
            }
        }
        let all = world.all();
        self.of_operator(world, &all, false, acts);
        if world.late != all {
            self.of_operator(world, &world.late, true, acts);
        }
    }

    fn of_operator(&self, world: &World, view: &View, late: bool, acts: &mut Vec<Act>) {
        // Who makes a shard has read all specs after it was found missing.
        let all_read = view.node_pools.iter().all(|seen| seen.newest) || self.lacks(Guard::AllRead);
        if view.shard.is.is_none() && world.first_epoch > 0 && !all_read {
            return;
        }
        for write in self.writes(view, world.known()) {
            // And the root besides: both may be lost.
            let early = match write {
                Wrote::Shard(_) => view.shard.is.is_none() && !view.root.newest,
                Wrote::Root(_) => !all_read,
                _ => false,
            };
            if early {
                continue;
            }
            let newest = match write {
                Wrote::Shard(_) => view.shard.newest,
                Wrote::Root(_) => view.root.newest,
                Wrote::Spec(name, ..) | Wrote::NoSpec(name) => view.node_pools[usize::from(name)].newest,
            };
            let reads_later = |name: u8| view.shard.newest || world.ledger_later[usize::from(name)];
            let old_ledger = matches!(write, Wrote::Spec(name, _, blocks, _) if adds(view, name, blocks) && !reads_later(name));
            if old_ledger && !self.lacks(Guard::LedgerReadLater) {
                continue;
            }
            if newest || self.lacks(Guard::Version) {
                acts.push(Act::Writes(late, write));
            }
        }
    }

    fn of_host(&self, world: &World, number: usize, acts: &mut Vec<Act>) {
        let host = &world.hosts[number];
        if host.uid == 0 {
            return;
        }
        for pod in 0..PODS {
            let waits = host.waiting & 1 << pod != 0;
            match host.pods[usize::from(pod)] {
                Some(_) => acts.push(Act::Del(number, pod)),
                None if !host.closed || self.lacks(Guard::ClosedWithoutNode) => acts.push(Act::Add(number, pod)),
                None => {}
            }
            if waits {
                acts.push(Act::GivesUp(number, pod));
            }
        }
        for (cell, _) in host.memory.facts().active.each() {
            let two_steps = self.lacks(Guard::FreezeIsOne);
            let idle = !host.pods.iter().flatten().any(|address| last_bytes(cell).contains(address));
            if two_steps && idle && host.looked & 1 << cell == 0 {
                acts.push(Act::Looks(number, cell));
            }
            if if two_steps { host.looked & 1 << cell != 0 } else { idle } {
                acts.push(Act::Freezes(number, cell));
            }
        }
        if host.memory != host.disk {
            acts.push(Act::IsOnDisk(number));
        }
        if host.memory != host.disk {
            acts.push(Act::Crashes(number));
        }
        if world.lost_stores > 0 {
            acts.push(Act::LosesStore(number));
        }
        if world.own(host, self).is_some() {
            acts.push(Act::Follows(number));
            let durable = host.memory == host.disk || self.lacks(Guard::FrozenOnDisk);
            if durable && (host.has_read || self.lacks(Guard::ReadsFirst)) {
                acts.push(Act::TellsStatus(number));
            }
        }
    }

    fn of_others(&self, world: &World, acts: &mut Vec<Act>) {
        if self.replaced {
            match world.nodes[0] {
                A => acts.push(Act::NodeDeleted),
                0 => acts.push(Act::NodeMadeAnew),
                _ => {}
            }
            if world.nodes[0] != A && world.hosts[0].uid == A {
                acts.push(Act::MachineEnds);
            }
            let is_asked = self.lacks(Guard::AskedFirst) || world.node_pools[0].is_none_or(|own| own.uid != A || own.orphan);
            let is_silent = world.hosts[0].uid != A || (world.hosts[0].lets_go() && is_asked);
            if world.gone == Some(Gone::Confirmed) && (is_silent || self.lacks(Guard::Grace)) {
                acts.push(Act::GraceOver);
            }
        }
        if self.lost_ledger && world.first_epoch == 0 && world.shard.is_some() {
            acts.push(Act::LedgerDeleted);
        }
    }

    fn host_does(&self, world: &mut World, act: Act) {
        match act {
            Act::Add(number, pod) => {
                let host = &mut world.hosts[number];
                host.does(Deed::Add(pod), true);
                host.pods[usize::from(pod)] = host.memory.facts().held[usize::from(pod)];
                let waits = u8::from(host.pods[usize::from(pod)].is_none()) << pod;
                host.waiting = host.waiting & !(1 << pod) | waits;
            }
            Act::GivesUp(number, pod) => world.hosts[number].waiting &= !(1 << pod),
            Act::Del(number, pod) => {
                world.hosts[number].does(Deed::Del(pod), true);
                world.hosts[number].pods[usize::from(pod)] = None;
            }
            Act::Looks(number, cell) => world.hosts[number].looked |= 1 << cell,
            Act::Freezes(number, cell) => {
                let blindly = self.lacks(Guard::FreezeIsOne);
                world.hosts[number].looked &= !(1 << cell);
                world.hosts[number]
                    .does(if blindly { Deed::FreezeBlindly(cell) } else { Deed::Freeze(cell) }, !self.lacks(Guard::FrozenOnDisk));
            }
            Act::IsOnDisk(number) => world.hosts[number].disk = world.hosts[number].memory,
            Act::Crashes(number) => {
                let host = &mut world.hosts[number];
                (host.memory, host.waiting, host.looked) = (host.disk, 0, 0);
            }
            Act::LosesStore(number) => {
                world.lost_stores -= 1;
                world.hosts[number] = Host::of(world.hosts[number].uid);
            }
            Act::Follows(number) => {
                let Some(mut own) = world.own(&world.hosts[number], self) else { return };
                let host = &mut world.hosts[number];
                if self.lacks(Guard::ReturningIsFrozen) {
                    own.returning = Blocks::default();
                }
                (host.has_read, host.closed) = (true, own.orphan);
                if host.closed && !self.lacks(Guard::ClosedWithoutNode) {
                    host.waiting = 0;
                }
                (host.memory, _) = host.memory.after(Deed::Follow(own));
                if self.lacks(Guard::ReturnedForEver) {
                    (host.memory, _) = host.memory.after(Deed::Forget);
                }
                host.disk = host.memory;
            }
            Act::TellsStatus(number) => {
                let host = world.hosts[number];
                let Some(own) = world.own(&host, self) else { return };
                // What it has forgotten already, it gives back again.
                let (_, refused) = host.memory.after(Deed::Follow(own));
                let returning = host.memory.facts().frozen.each().chain(refused.each()).collect();
                // What its pods have.
                let had = if self.lacks(Guard::ToldWhatItHolds) { Store::empty() } else { host.memory };
                let holding = had.facts().kept.each().filter(|(cell, epoch)| !own.blocks.has(*cell, *epoch)).collect();
                let told = NodePool { returning, holding, demand: had.demand(host.waiting), told: true, ..own };
                if told != own {
                    world.set_node_pool(host.name(), Some(told));
                }
            }
            _ => {}
        }
    }

    fn operator_does(&self, world: &mut World, act: Act) {
        match act {
            Act::Stalls(watch) => {
                world.stalls[watch] -= 1;
                world.stands[watch] = true;
            }
            Act::GoesOn(watch) => world.stands[watch] = false,
            Act::Writes(_, Wrote::Shard(shard)) => world.set_shard(Some(shard)),
            Act::Writes(_, Wrote::Root(root)) => world.set_root(root),
            Act::Writes(_, Wrote::Spec(name, uid, blocks, orphan)) => {
                let name = usize::from(name);
                let before = world.node_pools[name].filter(|before| before.uid == uid).unwrap_or_default();
                // It is silent from then on, at the earliest.
                if orphan != before.orphan && !self.lacks(Guard::AskedFirst) && world.gone == Some(Gone::GraceOver) {
                    world.gone = Some(Gone::Confirmed);
                }
                world.set_node_pool(name, Some(NodePool { uid, blocks, orphan, ..before }));
            }
            Act::Writes(_, Wrote::NoSpec(name)) => world.set_node_pool(usize::from(name), None),
            _ => {}
        }
    }

    pub(crate) fn does(&self, world: &mut World, act: Act) {
        match act {
            Act::Stalls(_) | Act::GoesOn(_) | Act::Writes(..) => self.operator_does(world, act),
            Act::NodeDeleted => (world.nodes[0], world.gone) = (0, Some(Gone::Confirmed)),
            Act::NodeMadeAnew if self.same_machine => {
                world.nodes[0] = A_ANEW;
                (world.hosts[0].uid, world.hosts[0].has_read) = (A_ANEW, false);
            }
            Act::NodeMadeAnew => (world.nodes[0], world.hosts[2]) = (A_ANEW, Host::of(A_ANEW)),
            Act::MachineEnds => world.hosts[0] = Host::of(0),
            // Who asks whether a Node is gone learns which one there is.
            Act::GraceOver => (world.gone, world.late.nodes[0]) = (Some(Gone::GraceOver), world.nodes[0]),
            Act::LedgerDeleted => {
                // Epochs of what is made later begin above all that there were.
                world.first_epoch = self.epochs;
                world.set_shard(None);
                if self.lost_specs {
                    world.set_root(Root::Missing);
                    for name in 0..world.node_pools.len() {
                        world.set_node_pool(name, None);
                    }
                    // An agent tells of an object what it has done with it.
                    world.hosts.iter_mut().for_each(|host| host.has_read = false);
                }
            }
            _ => self.host_does(world, act),
        }
    }
}

// === impl Model ===

impl Model for Story {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let (shard, root) = (Seen { is: None, newest: true }, Seen { is: Root::Open, newest: true });
        let nothing = View { shard, root, node_pools: [Seen { is: None, newest: true }; 2], nodes: [A, B] };
        vec![World {
            nodes: [A, B],
            shard: None,
            root: Root::Open,
            node_pools: [None; 2],
            late: nothing,
            ledger_later: [true; 2],
            stands: [false; 3],
            stalls: self.stalls,
            hosts: [Host::of(A), Host::of(B), Host::of(0)],
            gone: None,
            first_epoch: 0,
            lost_stores: self.lost_stores,
            cells: self.cells,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        self.of_operators(world, acts);
        (0..world.hosts.len()).for_each(|number| self.of_host(world, number, acts));
        self.of_others(world, acts);
    }

    fn next_state(&self, last: &World, act: Act) -> Option<World> {
        let mut world = *last;
        self.does(&mut world, act);
        Some(world.delivered()).filter(|world| world != last)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONE_HOLDER, |_, world| world.one_holder()),
            Property::<Self>::always(LEDGER_HAS_ALL, |story, world| world.ledger_has_all(story)),
            Property::<Self>::always(FROZEN_IS_IDLE, |_, world| world.frozen_is_idle()),
            Property::<Self>::always(ONE_SPEC, |story, world| story.stalls != [0; 3] || world.one_spec()),
            Property::<Self>::always(SETTLES, |story, world| !story.settles || story.settles(world)),
            Property::<Self>::sometimes("what was returned is granted again", |_, world| world.is_granted_again()),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        let most = if world.first_epoch > 0 { self.epochs + 1 } else { self.epochs };
        world.shard.is_none_or(|shard| shard.cells.iter().all(|cell| cell.epoch <= most))
    }
}
