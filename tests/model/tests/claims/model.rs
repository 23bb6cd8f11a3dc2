//! Everything there is, what may happen to it, and what must be so.

use api::{GrantedIp, Hold, Returning, SharedIp};
use stateright::{Model, Property};

use crate::host::{Deed, Host};
use crate::known::Known;
use crate::operator::{NODES, PODS, View, Wrote, assigned, holds, last_epoch, step};

pub(crate) const ONE_HOLDER: &str = "two containers have it only where both pods migrate";
pub(crate) const ONE_SPEC: &str = "it is in two specs only where both pods migrate";
pub(crate) const LEDGER_HAS_ALL: &str = "the ledger has all that is handed out";
pub(crate) const SETTLES: &str = "it settles";

/// The pods on both nodes say that they migrate, and a third one, if there is one, does not.
const BOTH: [bool; 3] = [true, true, false];

/// What keeps the address from a second holder that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A write is refused if its object is not any more what was read.
    Version,
    /// A node's spec gets what was read in the ledger.
    LedgerFirst,
    /// It is another node's when the one that has it has returned it, and not when that one's pod is gone.
    Returned,
    /// What is returned is the life that the node has.
    EpochOfReturned,
    /// It is nobody's when it has left the spec of the node that returns it.
    OutOfSpec,
    /// Each life has an epoch of its own.
    NextLife,
    /// Two nodes have it only if the pods on both say so.
    Marks,
    /// A life is for pods that say so or for those that do not, and nodes keep to it.
    Kind,
    /// A node returns what is recalled when no container has it.
    FreezeIsOne,
    /// A node remembers which lives it has given back.
    ReturnedForEver,
    /// Who adds to a spec has read the ledger after the spec.
    LedgerReadLater,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) is: View,
    /// What the second operator has read; the first one has read everything.
    pub(crate) late: View,
    /// The objects have still the versions that it has read: the cell's, and the nodes'.
    pub(crate) newest: [bool; 3],
    /// Its watches stand still: of the ledger, of the nodes' objects, of pods; and so often each may.
    pub(crate) stands: [bool; 3],
    pub(crate) stalls: [u8; 3],
    /// Which pods say that they migrate.
    pub(crate) migrate: [bool; 3],
    pub(crate) hosts: [Host; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Stalls(usize),
    GoesOn(usize),
    /// One of an operator's next writes arrives; the late one's is `true`.
    Writes(bool, Wrote),
    PodComes(usize),
    PodGoes(usize),
    Add(usize),
    Del(usize),
    /// An agent takes in its object as it is, and stops what is recalled and nobody's.
    Follows(usize),
    Tells(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    pub(crate) stalls: [u8; 3],
    /// No life of the address beyond this one is looked at.
    pub(crate) epochs: u64,
    /// There is a third pod of the claim, which does not migrate while the other two do; else there are two.
    pub(crate) third: bool,
    pub(crate) settles: bool,
    pub(crate) without: &'static [Guard],
}

// === impl World ===

impl World {
    /// Watches that go on have delivered everything.
    fn delivered(mut self) -> Self {
        let [ledger, node_pools, pods] = self.stands;
        if !ledger {
            (self.late.cell, self.newest[0]) = (self.is.cell, true);
        }
        if !node_pools {
            (self.late.node_pools, self.newest[1], self.newest[2]) = (self.is.node_pools, true, true);
        }
        if !pods {
            self.late.pods = self.is.pods;
        }
        self
    }

    /// Whether a pod's container has it.
    fn has(&self, pod: usize) -> bool {
        self.hosts[PODS[pod]].has[slot(pod)]
    }

    fn holders(&self) -> Vec<usize> {
        (0..3).filter(|pod| self.has(*pod)).collect()
    }

    fn both_migrate(&self) -> bool {
        self.migrate[..2] == [true; 2]
    }

    fn ledger_has_all(&self) -> bool {
        let known = |n: usize, epoch: u64| holds(&self.is.cell).any(|hold| hold.node_uid == NODES[n] && hold.epoch == epoch);
        (0..2).all(|n| self.hosts[n].active().iter().all(|epoch| known(n, *epoch)))
    }

    /// Who waits gets it, but where there is another one's container or pod and one of the two does not migrate.
    fn is_at_rest(&self) -> bool {
        let there = |pod: usize| self.is.pods[pod] || self.has(pod);
        let both = |pod: usize, other: usize| self.migrate[pod] && self.migrate[other] && self.is.pods[other];
        let waits_for = |pod: usize| (0..3).any(|other| other != pod && there(other) && !both(pod, other));
        let served = (0..3).all(|pod| !self.is.pods[pod] || self.has(pod) || waits_for(pod));
        let somebody = self.is.pods == [false; 3] || !self.holders().is_empty();
        served && somebody && holds(&self.is.cell).all(|hold| !hold.returning)
    }
}

/// Which of its node's containers a pod's is.
fn slot(pod: usize) -> usize {
    usize::from(pod == 2)
}

// === impl Story ===

impl Story {
    fn lacks(&self, guard: Guard) -> bool {
        self.without.contains(&guard)
    }

    /// What an operator writes, in its order.
    fn writes(&self, view: View, migrate: [bool; 3]) -> Vec<Wrote> {
        let (mut seen, plain) = (view, || step(view, migrate));
        let is_cell = |write: &Wrote| matches!(write, Wrote::Cell(_));
        match self.without.first() {
            // What it means to write, it takes for written.
            Some(Guard::LedgerFirst) => {
                if let Some(Wrote::Cell(cell)) = plain().into_iter().find(is_cell) {
                    seen.cell = cell;
                }
                step(seen, migrate).into_iter().filter(|w| !is_cell(w)).chain(plain().into_iter().filter(is_cell)).collect()
            }
            Some(Guard::Returned) => {
                let gone = |hold: &&mut Hold| !(0..3).any(|pod| view.pods[pod] && NODES[PODS[pod]] == hold.node_uid);
                let mut cell = (*view.cell).clone();
                for hold in cell.ips.values_mut().flat_map(SharedIp::holds_mut).filter(gone) {
                    *hold = Hold { epoch: hold.epoch, ..Hold::default() };
                }
                seen.cell = Known::new(cell);
                step(seen, migrate)
            }
            Some(Guard::EpochOfReturned) => {
                for pool in seen.node_pools.iter_mut().filter(|pool| !pool.returning.is_empty()) {
                    let now = |ip: &GrantedIp| Returning { cidr: format!("{}/32", ip.ip), pool: ip.pool.clone(), epoch: ip.epoch };
                    pool.returning = Known::new(pool.ips.iter().map(now).collect());
                }
                step(seen, migrate)
            }
            Some(Guard::OutOfSpec) => {
                let lives: Vec<u64> = holds(&view.cell).filter(|hold| hold.returning).map(|hold| hold.epoch).collect();
                let left = |ips: &[GrantedIp]| ips.iter().filter(|ip| !lives.contains(&ip.epoch)).cloned().collect();
                seen.node_pools.iter_mut().for_each(|pool| pool.ips = Known::new(left(&pool.ips)));
                step(seen, migrate).into_iter().filter(is_cell).chain(plain().into_iter().filter(|w| !is_cell(w))).collect()
            }
            Some(Guard::NextLife) => {
                let last = last_epoch(&view.cell);
                let same = |write: Wrote| {
                    let Wrote::Cell(cell) = write else { return write };
                    let mut cell = (*cell).clone();
                    let new = cell.ips.values_mut().flat_map(SharedIp::holds_mut).filter(|hold| hold.epoch > last);
                    new.for_each(|hold| hold.epoch = last.max(1));
                    Wrote::Cell(Known::new(cell))
                };
                plain().into_iter().map(same).collect()
            }
            Some(Guard::Marks) => step(view, [true; 3]),
            _ => plain(),
        }
    }

    fn of_operator(&self, world: &World, late: bool, acts: &mut Vec<Act>) {
        let (view, newest) = if late { (world.late, world.newest) } else { (world.is, [true; 3]) };
        for write in self.writes(view, world.migrate) {
            let (at, adds) = match &write {
                Wrote::Cell(_) => (0, false),
                Wrote::Ips(n, ips) => (1 + n, ips.iter().any(|ip| !view.node_pools[*n].ips.contains(ip))),
            };
            let old_ledger = adds && !newest[0] && !self.lacks(Guard::LedgerReadLater);
            if (newest[at] || self.lacks(Guard::Version)) && !old_ledger {
                acts.push(Act::Writes(late, write));
            }
        }
    }

    fn does(&self, world: &mut World, act: Act) {
        match act {
            Act::Stalls(watch) => (world.stalls[watch], world.stands[watch]) = (world.stalls[watch] - 1, true),
            Act::GoesOn(watch) => world.stands[watch] = false,
            Act::Writes(_, Wrote::Cell(cell)) => (world.is.cell, world.newest[0]) = (cell, false),
            Act::Writes(_, Wrote::Ips(n, ips)) => (world.is.node_pools[n].ips, world.newest[1 + n]) = (ips, false),
            Act::PodComes(n) => world.is.pods[n] = true,
            Act::PodGoes(n) => world.is.pods[n] = false,
            Act::Add(pod) if self.lacks(Guard::Kind) => world.hosts[PODS[pod]].does(Deed::AddBlindly(slot(pod))),
            Act::Add(pod) => world.hosts[PODS[pod]].does(Deed::Add(slot(pod), world.migrate[pod])),
            Act::Del(pod) => world.hosts[PODS[pod]].does(Deed::Del(slot(pod))),
            Act::Follows(n) => {
                let (host, own) = (&mut world.hosts[n], world.is.node_pools[n]);
                host.does(if self.lacks(Guard::FreezeIsOne) { Deed::FollowBlindly(n, own) } else { Deed::Follow(n, own) });
                if self.lacks(Guard::ReturnedForEver) {
                    host.does(Deed::Forget);
                }
            }
            Act::Tells(n) => {
                let returning = world.hosts[n].returning(n, world.is.node_pools[n]);
                if returning != world.is.node_pools[n].returning {
                    (world.is.node_pools[n].returning, world.newest[1 + n]) = (returning, false);
                }
            }
        }
    }

    /// If all go on and nothing new happens.
    fn settles(&self, world: &World) -> bool {
        let mut world = World { stands: [false; 3], ..*world };
        for _ in 0..40 {
            let before = world;
            // One by one: what is read next is newer.
            if let Some(write) = self.writes(world.is, world.migrate).into_iter().next() {
                self.does(&mut world, Act::Writes(false, write));
            }
            for n in 0..2 {
                [Act::Follows(n), Act::Tells(n)].into_iter().for_each(|act| self.does(&mut world, act));
            }
            for pod in (0..3).filter(|pod| before.is.pods[*pod] && !before.has(*pod)) {
                self.does(&mut world, Act::Add(pod));
            }
            world = world.delivered();
            if world == before {
                return world.is_at_rest();
            }
        }
        false
    }
}

impl Model for Story {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let is = View { cell: Known::new(assigned()), node_pools: Default::default(), pods: [false; 3] };
        let world = |migrate: &[bool; 3]| World {
            late: is,
            is,
            newest: [true; 3],
            stands: [false; 3],
            stalls: self.stalls,
            migrate: *migrate,
            hosts: [Host::default(); 2],
        };
        let cases: &[[bool; 3]] = if self.third { &[BOTH] } else { &[[false; 3], [true, false, false], BOTH] };
        cases.iter().map(world).collect()
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        for watch in 0..3 {
            if world.stands[watch] {
                acts.push(Act::GoesOn(watch));
            } else if world.stalls[watch] > 0 {
                acts.push(Act::Stalls(watch));
            }
        }
        self.of_operator(world, false, acts);
        if world.late != world.is || world.newest != [true; 3] {
            self.of_operator(world, true, acts);
        }
        for pod in 0..if self.third { 3 } else { 2 } {
            let (there, has) = (world.is.pods[pod], world.has(pod));
            acts.push(if there { Act::PodGoes(pod) } else { Act::PodComes(pod) });
            if has {
                acts.push(Act::Del(pod));
            } else if there {
                acts.push(Act::Add(pod));
            }
        }
        (0..2).for_each(|n| acts.extend([Act::Follows(n), Act::Tells(n)]));
    }

    fn next_state(&self, last: &World, act: Act) -> Option<World> {
        let mut world = *last;
        self.does(&mut world, act);
        Some(world.delivered()).filter(|world| world != last)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(ONE_HOLDER, |_, world| {
                let holders = world.holders();
                holders.len() < 2 || holders.into_iter().all(|pod| world.migrate[pod])
            }),
            // Where operators know what stands in specs.
            Property::<Self>::always(ONE_SPEC, |story, world| {
                story.stalls[1] > 0 || world.both_migrate() || world.is.node_pools.iter().any(|pool| pool.ips.is_empty())
            }),
            Property::<Self>::always(LEDGER_HAS_ALL, |_, world| world.ledger_has_all()),
            Property::<Self>::always(SETTLES, |story, world| !story.settles || story.settles(world)),
            Property::<Self>::sometimes("two have it", |_, world| world.holders().len() == 2),
            Property::<Self>::sometimes("it has gone from node to node", |story, world| {
                let one = story.third || !world.both_migrate();
                world.has(0) && one && last_epoch(&world.is.cell) == story.epochs
            }),
            Property::<Self>::sometimes("the third one has it", |story, world| !story.third || world.has(2)),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        last_epoch(&world.is.cell) <= self.epochs
    }
}
