//! Two agents that call themselves by one node's name: two hosts, or a host's directory that was copied. One of them serves.
//!
//! ```text
//!   starts, and the object names no agent, or one of this machine          serves at once: the one before it is gone
//!   starts otherwise, or with a journal that was copied                    puts its own name there, and waits for an objection
//!   serves, and finds another name there                                   puts its own back: that is the objection
//!   finds another name there while it waits, or again and again            stops
//! ```
//!
//! One of this machine is gone for certain: the journal was locked by it, and is by this one. After another start the machine has to say
//! itself that it is the same, by its firmware: of two with one disk image each takes itself for the other one, started anew.

use std::time::{Duration, Instant};

use api::AgentIdentity;

/// For so long a new one waits for an objection. A living agent follows its object, and needs no second.
const OBJECTION: Duration = Duration::from_secs(10);
/// Who has objected so often in this time stops as well: there are two that think that they were first.
const OBJECTIONS: (u32, Duration) = (3, Duration::from_secs(60));

/// What an agent may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConflictDecision {
    /// Take what is granted.
    Serve,
    /// Put its name there, and use nothing of what is granted for so long.
    Wait(Duration),
    /// Give out nothing: this is the other one.
    Stop(AgentIdentity),
}

/// Whether this agent is the one of its node.
#[derive(Debug)]
pub(super) struct Contest {
    own: AgentIdentity,
    /// Its journal is another one's, copied: who has that may live.
    copied: bool,
    /// The machine's number is none of its disk's.
    certain: bool,
    state: State,
    objections: u32,
    first: Instant,
    /// Against which instance: one that begins again and again is another one each time, and has served nobody.
    rival: String,
    /// Whose name was there last.
    seen: AgentIdentity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    New,
    /// Its name is to be there, since then it has been.
    Waiting(Option<Instant>),
    Serving,
    Stopped(AgentIdentity),
}

// === impl Contest ===

impl Contest {
    pub(super) fn new(own: AgentIdentity, copied: bool, certain: bool, now: Instant) -> Self {
        Contest { own, copied, certain, state: State::New, objections: 0, first: now, rival: String::new(), seen: AgentIdentity::default() }
    }

    /// What to do, as the object names this agent.
    pub(super) fn look(&mut self, there: &AgentIdentity, now: Instant) -> ConflictDecision {
        let is_own = there.instance == self.own.instance;
        let is_new = *there != std::mem::replace(&mut self.seen, there.clone());
        match &self.state {
            State::Stopped(other) => return ConflictDecision::Stop(other.clone()),
            State::New if is_own || self.succeeds(there) => self.state = State::Serving,
            State::New => self.state = State::Waiting(None),
            State::Waiting(since) => match (since, is_own) {
                (None, true) => self.state = State::Waiting(Some(now)),
                (Some(since), true) if now.duration_since(*since) >= OBJECTION => self.state = State::Serving,
                (Some(_), true) | (None, false) => {}
                (Some(_), false) => self.state = State::Stopped(there.clone()),
            },
            State::Serving if is_own || !is_new || self.succeeds(there) => {}
            State::Serving => {
                if self.rival != there.instance || now.duration_since(self.first) > OBJECTIONS.1 {
                    (self.objections, self.first, self.rival) = (0, now, there.instance.clone());
                }
                self.objections += 1;
                if self.objections >= OBJECTIONS.0 {
                    self.state = State::Stopped(there.clone());
                }
            }
        }
        match &self.state {
            State::Serving => ConflictDecision::Serve,
            State::Stopped(other) => ConflictDecision::Stop(other.clone()),
            State::Waiting(Some(since)) => ConflictDecision::Wait((*since + OBJECTION).saturating_duration_since(now)),
            State::New | State::Waiting(None) => ConflictDecision::Wait(OBJECTION),
        }
    }

    /// For as long as the process lives.
    pub(super) fn has_stopped(&self) -> bool {
        matches!(self.state, State::Stopped(_))
    }

    /// Its name was put there. The objection may be there before anybody has seen it.
    pub(super) fn wrote(&mut self, now: Instant) {
        if self.state == State::Waiting(None) {
            self.state = State::Waiting(Some(now));
        }
    }

    /// Whether the agent of that name is gone for certain: what it had locked, this one has locked.
    fn succeeds(&self, there: &AgentIdentity) -> bool {
        let same_machine = there.machine_id == self.own.machine_id;
        let same_store = self.certain && !there.machine_id.is_empty() && there.store_id == self.own.store_id;
        let same_start = same_machine && (there.boot_id == self.own.boot_id || same_store);
        let fresh = self.state == State::New && !self.copied;
        (there.instance.is_empty() && !self.copied) || (fresh && same_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(store: &str, boot: &str, instance: &str) -> AgentIdentity {
        AgentIdentity { store_id: store.to_owned(), machine_id: "m".to_owned(), boot_id: boot.to_owned(), instance: instance.to_owned() }
    }

    fn contest(own: &AgentIdentity, now: Instant) -> Contest {
        Contest::new(own.clone(), false, false, now)
    }

    #[test]
    fn who_follows_on_serves_at_once() {
        let now = Instant::now();
        for before in [AgentIdentity::default(), agent("s0", "b", "i0"), agent("s", "b", "i0"), agent("s", "b", "i")] {
            assert_eq!(contest(&agent("s", "b", "i"), now).look(&before, now), ConflictDecision::Serve, "{before:?}");
        }
    }

    #[test]
    fn who_may_be_one_of_two_waits() {
        let (now, own) = (Instant::now(), agent("s", "b", "i"));
        let started_anew = agent("s", "b0", "i0");
        let other_machine = AgentIdentity { machine_id: "m0".to_owned(), ..agent("s", "b", "i0") };
        for before in [&started_anew, &other_machine] {
            assert_eq!(contest(&own, now).look(before, now), ConflictDecision::Wait(OBJECTION), "{before:?}");
        }
        for before in [AgentIdentity::default(), agent("s", "b", "i0")] {
            assert_eq!(
                Contest::new(own.clone(), true, true, now).look(&before, now),
                ConflictDecision::Wait(OBJECTION),
                "with a copy: {before:?}"
            );
        }
    }

    #[test]
    fn a_machine_that_says_so_itself_has_started_anew() {
        let (now, own) = (Instant::now(), agent("s", "b", "i"));
        let look = |before: &AgentIdentity| Contest::new(own.clone(), false, true, now).look(before, now);
        assert_eq!(look(&agent("s", "b0", "i0")), ConflictDecision::Serve);
        assert_eq!(look(&agent("s0", "b0", "i0")), ConflictDecision::Wait(OBJECTION), "another journal");
        let other = AgentIdentity { machine_id: "m0".to_owned(), ..agent("s", "b0", "i0") };
        assert_eq!(look(&other), ConflictDecision::Wait(OBJECTION), "another machine");
    }

    #[test]
    fn the_one_that_was_there_goes_on() {
        let now = Instant::now();
        // Two machines of one disk image, journal and all.
        let (old, new) = (agent("s", "b1", "i1"), agent("s", "b2", "i2"));
        let (mut first, mut second) = (contest(&old, now), contest(&new, now));
        assert_eq!(first.look(&old, now), ConflictDecision::Serve);
        assert_eq!(second.look(&old, now), ConflictDecision::Wait(OBJECTION));
        // It has put its name there, the first one objects.
        assert_eq!(second.look(&new, now), ConflictDecision::Wait(OBJECTION));
        assert_eq!(first.look(&new, now), ConflictDecision::Serve);
        assert_eq!(second.look(&old, now), ConflictDecision::Stop(old.clone()));
        assert_eq!(second.look(&new, now), ConflictDecision::Stop(old));
        assert_eq!(first.look(&new, now), ConflictDecision::Serve);
    }

    #[test]
    fn whoever_begins_again_and_again_does_not_stop_the_one_that_was_there() {
        let now = Instant::now();
        let own = agent("s1", "b1", "i1");
        let mut contest = contest(&own, now);
        assert_eq!(contest.look(&own, now), ConflictDecision::Serve);
        for life in 0..9 {
            let other = agent("s2", "b2", &format!("life{life}"));
            assert_eq!([&other, &own].map(|there| contest.look(there, now)), [ConflictDecision::Serve, ConflictDecision::Serve], "{life}");
        }
    }

    #[test]
    fn an_objection_counts_that_is_there_before_the_own_name_was_seen() {
        let now = Instant::now();
        let (old, new) = (agent("s1", "b1", "i1"), agent("s2", "b2", "i2"));
        let mut contest = contest(&new, now);
        assert_eq!(contest.look(&old, now), ConflictDecision::Wait(OBJECTION));
        assert_eq!(contest.look(&old, now), ConflictDecision::Wait(OBJECTION), "nothing was written yet");
        contest.wrote(now);
        assert_eq!(contest.look(&old, now), ConflictDecision::Stop(old));
    }

    #[test]
    fn without_an_objection_the_new_one_serves() {
        let now = Instant::now();
        let (old, new) = (agent("s1", "b1", "i1"), agent("s2", "b2", "i2"));
        let mut contest = contest(&new, now);
        assert_eq!(contest.look(&old, now), ConflictDecision::Wait(OBJECTION));
        assert_eq!(contest.look(&old, now + OBJECTION), ConflictDecision::Wait(OBJECTION), "its name is not there yet");
        assert_eq!(contest.look(&new, now), ConflictDecision::Wait(OBJECTION));
        assert_eq!(contest.look(&new, now + OBJECTION), ConflictDecision::Serve);
    }

    #[test]
    fn two_that_both_serve_stop() {
        let now = Instant::now();
        let (own, other) = (agent("s1", "b1", "i1"), agent("s2", "b2", "i2"));
        let mut contest = contest(&own, now);
        assert_eq!(contest.look(&own, now), ConflictDecision::Serve);
        let mut turns = || [&other, &other, &own].map(|there| contest.look(there, now))[0].clone();
        assert_eq!([turns(), turns(), turns()], [ConflictDecision::Serve, ConflictDecision::Serve, ConflictDecision::Stop(other.clone())]);
    }
}
