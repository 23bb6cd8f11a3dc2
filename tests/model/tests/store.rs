//! Threads of one agent at its store: ADD, DEL and freezing, a disk that fails, a process that is killed at any step. The steps are
//! those of `netloom_ipam::PoolStore`; who has which address is decided by `pool::Allocator` itself.
//!
//! ```text
//!   ADD     reserve in memory, append | the disk has it | answer
//!   DEL     append | the disk has it | free in memory, answer
//!   freeze  freeze in memory, append | the disk has it | tell the cluster
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use netloom_model::explore;
use pool::{Allocator, Ask, Block, Event, Family, Granted, Key, Moment, Run, Spec, State, Want};
use stateright::{HasDiscoveries, Model, Property};

const PODS: usize = 2;
/// A block has one address: who has it has all of it.
const ADDRESS: &str = "10.0.0.1";

#[derive(Clone, Copy, Debug)]
struct Threads {
    crashes: u8,
    failures: u8,
    adds: u8,
    without: Option<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// The look at who has an address, and the freezing, are one step.
    OneLock,
    /// An ADD answers when its lease is on the disk.
    LeaseOnDisk,
    /// A DEL frees when the disk knows that it has.
    ReleaseOnDisk,
    /// The cluster is told of a frozen block when it is on the disk.
    FreezeOnDisk,
    /// A lease that could not be written is taken back.
    Undo,
}

/// Where a record is that a thread has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ticket {
    InMemory,
    Flying,
    Written,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pod {
    No,
    /// Its ADD waits for the disk, with the lease of this generation.
    Adding(Ticket, u64),
    /// Its ADD has answered: it has the address.
    Has,
    /// Its DEL waits for the disk.
    Deleting(Ticket, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Freezing {
    No,
    /// It saw that nobody has anything.
    Looked,
    Waits(Ticket),
    /// The cluster knows: it may grant the block to another node.
    Told,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Agent {
    /// What the allocator knows, as events.
    memory: Vec<Vec<u8>>,
    disk: Vec<Vec<u8>>,
    /// On their way to the disk, in order.
    flying: Vec<Vec<u8>>,
    appended: Vec<Vec<u8>>,
    pods: [Pod; PODS],
    freezing: Freezing,
    crashes: u8,
    failures: u8,
    adds: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Add(usize),
    Added(usize),
    Del(usize),
    Deleted(usize),
    Look,
    Freeze,
    Frozen,
    FlushBegins,
    FlushEnds,
    FlushFails,
    /// So many of the records on their way are on the disk; the next one is torn.
    Crash(usize),
}

fn run() -> Run {
    Run::single(ADDRESS.parse().unwrap())
}

fn key(pod: usize) -> Key {
    Key { network: "n".into(), container: format!("c{pod}"), ifname: "net1".into() }
}

fn restore(events: &[Vec<u8>]) -> Allocator {
    let mut allocator = Allocator::new(0);
    events.iter().for_each(|event| allocator.apply(&Event::decode(event).unwrap()));
    allocator
}

// === impl Agent ===

impl Agent {
    fn keep(&mut self, allocator: &Allocator) {
        self.memory = allocator.events().iter().map(Event::encode).collect();
    }

    fn tickets(&mut self, of: Ticket, to: Ticket) {
        for pod in &mut self.pods {
            if let Pod::Adding(ticket, _) | Pod::Deleting(ticket, _) = pod
                && *ticket == of
            {
                *ticket = to;
            }
        }
        if self.freezing == Freezing::Waits(of) {
            self.freezing = Freezing::Waits(to);
        }
    }

    fn has(&self, pod: usize) -> bool {
        // Until its DEL has answered.
        matches!(self.pods[pod], Pod::Has | Pod::Deleting(..))
    }

    /// A pod's address is its own on the disk, or will not be answered for.
    fn would_be_found_again(&self) -> bool {
        let found = restore(&self.disk);
        (0..PODS).filter(|pod| self.pods[*pod] == Pod::Has).all(|pod| found.lease(&key(pod)).is_some())
    }
}

// === impl Threads ===

impl Threads {
    fn lacks(&self, guard: Guard) -> bool {
        self.without == Some(guard)
    }

    fn pod_acts(&self, agent: &Agent, pod: usize, acts: &mut Vec<Act>) {
        let sure = |ticket: Ticket| matches!(ticket, Ticket::Written | Ticket::Lost);
        match agent.pods[pod] {
            Pod::No if agent.adds > 0 => acts.push(Act::Add(pod)),
            Pod::Adding(ticket, _) if sure(ticket) || self.lacks(Guard::LeaseOnDisk) => acts.push(Act::Added(pod)),
            Pod::Has => acts.push(Act::Del(pod)),
            Pod::Deleting(ticket, _) if sure(ticket) => acts.push(Act::Deleted(pod)),
            _ => {}
        }
    }

    fn add(&self, agent: &mut Agent, pod: usize) {
        let mut allocator = restore(&agent.memory);
        let wants = vec![Want { pool: "p".into(), family: Family::V4, address: None }];
        agent.adds -= 1;
        let lease = match allocator.reserve(&Ask { key: key(pod), pod: None, claim: None, wants }, &Moment::default()) {
            Ok(Granted::New(lease)) => lease,
            // It is said to be on the disk.
            Ok(Granted::Again(_)) => return agent.pods[pod] = Pod::Has,
            Err(_) => return,
        };
        agent.keep(&allocator);
        agent.pods[pod] = Pod::Adding(Ticket::InMemory, lease.generation);
        agent.appended.push(Event::Leased(lease).encode());
    }

    fn added(&self, agent: &mut Agent, pod: usize) {
        let Pod::Adding(ticket, generation) = agent.pods[pod] else { return };
        agent.pods[pod] = Pod::Has;
        if ticket == Ticket::Lost {
            agent.pods[pod] = Pod::No;
            let mut allocator = restore(&agent.memory);
            if !self.lacks(Guard::Undo) {
                allocator.undo(&key(pod), generation);
            }
            agent.keep(&allocator);
        }
    }

    fn del(&self, agent: &mut Agent, pod: usize) {
        let mut allocator = restore(&agent.memory);
        let Some(generation) = allocator.lease(&key(pod)).map(|lease| lease.generation) else { return };
        let event = Event::Released { key: key(pod), generation, at: Moment::default() };
        agent.appended.push(event.encode());
        agent.pods[pod] = Pod::Deleting(Ticket::InMemory, generation);
        if self.lacks(Guard::ReleaseOnDisk) {
            allocator.apply(&event);
            agent.keep(&allocator);
        }
    }

    fn deleted(&self, agent: &mut Agent, pod: usize) {
        let Pod::Deleting(ticket, generation) = agent.pods[pod] else { return };
        agent.pods[pod] = if ticket == Ticket::Lost { Pod::Has } else { Pod::No };
        if ticket == Ticket::Written {
            let mut allocator = restore(&agent.memory);
            allocator.apply(&Event::Released { key: key(pod), generation, at: Moment::default() });
            agent.keep(&allocator);
        }
    }

    fn freeze(&self, agent: &mut Agent) {
        let mut allocator = restore(&agent.memory);
        if self.lacks(Guard::OneLock) {
            allocator.apply(&Event::Frozen { pool: "p".into(), run: run(), epoch: 1 });
        } else if allocator.freeze("p", run(), &Moment::default()).is_err() {
            return;
        }
        agent.keep(&allocator);
        agent.appended.push(Event::Frozen { pool: "p".into(), run: run(), epoch: 1 }.encode());
        agent.freezing = Freezing::Waits(Ticket::InMemory);
    }

    fn crash(agent: &mut Agent, whole: usize) {
        let flying = std::mem::take(&mut agent.flying);
        agent.disk.extend(flying.into_iter().take(whole));
        agent.appended.clear();
        agent.memory = restore(&agent.disk).events().iter().map(Event::encode).collect();
        if agent.freezing != Freezing::Told {
            agent.freezing = Freezing::No;
        }
        for pod in 0..PODS {
            // Who has not heard an answer calls DEL until it succeeds.
            let held = restore(&agent.memory).lease(&key(pod)).is_some();
            agent.pods[pod] = match agent.pods[pod] {
                Pod::Has => Pod::Has,
                Pod::Adding(..) | Pod::Deleting(..) if held => Pod::Has,
                _ => Pod::No,
            };
        }
        agent.crashes -= 1;
    }
}

impl Model for Threads {
    type State = Agent;
    type Action = Act;

    fn init_states(&self) -> Vec<Agent> {
        let block = Block { pool: "p".into(), run: run(), epoch: 1, claim: None };
        let disk = vec![Event::Pool(Spec::new("p", "n")).encode(), Event::Block(block, State::Active).encode()];
        let memory = restore(&disk).events().iter().map(Event::encode).collect();
        let Threads { crashes, failures, adds, .. } = *self;
        let (flying, appended) = (Vec::new(), Vec::new());
        vec![Agent { memory, disk, flying, appended, pods: [Pod::No; PODS], freezing: Freezing::No, crashes, failures, adds }]
    }

    fn actions(&self, agent: &Agent, acts: &mut Vec<Act>) {
        (0..PODS).for_each(|pod| self.pod_acts(agent, pod, acts));
        let idle = restore(&agent.memory).leases().next().is_none();
        match agent.freezing {
            Freezing::No if self.lacks(Guard::OneLock) && idle => acts.push(Act::Look),
            Freezing::No if !self.lacks(Guard::OneLock) => acts.push(Act::Freeze),
            Freezing::Looked => acts.push(Act::Freeze),
            Freezing::Waits(ticket) if ticket == Ticket::Written || self.lacks(Guard::FreezeOnDisk) => acts.push(Act::Frozen),
            // It is tried again.
            Freezing::Waits(Ticket::Lost) => acts.push(Act::Freeze),
            _ => {}
        }
        if !agent.appended.is_empty() && agent.flying.is_empty() {
            acts.push(Act::FlushBegins);
        }
        if !agent.flying.is_empty() {
            acts.push(Act::FlushEnds);
            if agent.failures > 0 {
                acts.push(Act::FlushFails);
            }
        }
        if agent.crashes > 0 {
            acts.extend((0..=agent.flying.len()).map(Act::Crash));
        }
    }

    fn next_state(&self, last: &Agent, act: Act) -> Option<Agent> {
        let mut agent = last.clone();
        match act {
            Act::Add(pod) => self.add(&mut agent, pod),
            Act::Added(pod) => self.added(&mut agent, pod),
            Act::Del(pod) => self.del(&mut agent, pod),
            Act::Deleted(pod) => self.deleted(&mut agent, pod),
            Act::Look => agent.freezing = Freezing::Looked,
            Act::Freeze => self.freeze(&mut agent),
            Act::Frozen => agent.freezing = Freezing::Told,
            Act::FlushBegins => {
                agent.flying = std::mem::take(&mut agent.appended);
                agent.tickets(Ticket::InMemory, Ticket::Flying);
            }
            Act::FlushEnds => {
                let flying = std::mem::take(&mut agent.flying);
                agent.disk.extend(flying);
                agent.tickets(Ticket::Flying, Ticket::Written);
            }
            Act::FlushFails => {
                agent.failures -= 1;
                agent.flying.clear();
                agent.tickets(Ticket::Flying, Ticket::Lost);
            }
            Act::Crash(whole) => Threads::crash(&mut agent, whole),
        }
        Some(agent).filter(|agent| agent != last)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("two pods have not one address", |_, agent| !(agent.has(0) && agent.has(1))),
            Property::<Self>::always("who has an address is on the disk", |_, agent| agent.would_be_found_again()),
            Property::<Self>::always("a block that the cluster was told of is nobody's", |_, agent| {
                agent.freezing != Freezing::Told || !(agent.has(0) || agent.has(1))
            }),
            Property::<Self>::sometimes("it was told", |_, agent| agent.freezing == Freezing::Told),
            Property::<Self>::sometimes("the second one has it", |_, agent| agent.has(1)),
        ]
    }
}

const PLAIN: Threads = Threads { crashes: 2, failures: 1, adds: 4, without: None };

#[test]
fn add_del_and_freeze_at_once() {
    assert_eq!(explore(PLAIN, HasDiscoveries::AnyFailures), Vec::<String>::new());
}

#[test]
fn each_guard_is_needed() {
    for guard in [Guard::OneLock, Guard::LeaseOnDisk, Guard::ReleaseOnDisk, Guard::FreezeOnDisk, Guard::Undo] {
        let ways = explore(Threads { without: Some(guard), ..PLAIN }, HasDiscoveries::AnyFailures);
        println!("  {ways:?}");
        assert!(!ways.is_empty(), "{guard:?}");
    }
}
