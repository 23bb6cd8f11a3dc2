//! Who is served next: workers are shared between namespaces, and between ADDs and what gives something back.
//!
//! ```text
//!   a caller, heard out --enter--> a place ------------------------------drop--> the next one in line that may have it
//!                              `-> in line --next--> a place              ^
//!                                                      `--step_aside------+--- while it waits for an address, its place is somebody else's
//! ```
//!
//! There are as many places as workers. A namespace has half of them at the most, in all, and its ADDs one less, so that no DEL of its own
//! stands behind them. Within that it gets one more while more are free than its calls have (dynamic thresholds, as switches share a
//! buffer among ports): two namespaces have a third each, and some are left for who comes later. ADDs have three quarters of all at the
//! most, so that no DEL stands behind those of others either, nor the question for addresses of a plugin that an ADD waits for. Half of
//! what is left then is for ADDs of namespaces that have no call: where three namespaces have all that ADDs may have, the fourth one gets
//! a place at once.
//!
//! A place that becomes free goes to the namespace that has the fewest, and among these to the one that has the fewest calls beside the
//! places; among equals to the caller that came first. So a namespace that has nothing stands behind one call at the most of each other
//! one, however many callers those have in line. Who has many namespaces still has a place for each: the next one waits until one of
//! their calls ends or steps aside. A call that waits for something does the latter, and ends when its caller is gone; an external plugin
//! is ended with its call's time.
//!
//! What it waited for has come: it goes on, with a place where one is free for it, else without. An ADD that waits only for its status is
//! handed over to a task, and comes back no more.
//!
//! Each call that has stepped aside has a thread that waits, or a task with the answer. So at most [`ASIDE`] calls may step aside, and half as
//! many of one namespace: a further call keeps its place while it waits, and its namespace has one place less for others.
//!
//! `/healthz` asks for how long no call has begun or ended ([`Shares::stuck_for`]), never how old a caller in line is: a namespace can
//! have callers in line for as long as it likes, which is its own trouble, and a new agent would find the same callers again. That age is
//! shown in `netloom status`.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cni::CniArgs;
use linux::file::LockWait;
use linux::local;
use plugin::Exec;
use wire::Call;

use crate::agent::OnWait;
use crate::lock;
use crate::log::Line;
use crate::serve::Heard;

/// How many callers may be in line.
const LONGEST: usize = 768;
/// How many of one namespace: as many as a node has pods at the most, all at once.
const OF_ONE: usize = 512;

/// How often it is looked at the most who in line has gone, where nobody is refused for them.
const SWEEP: Duration = Duration::from_secs(1);

/// How many calls may have stepped aside at a time: more than a node usually has pods.
pub(crate) const ASIDE: usize = 192;

/// A caller that has said what it wants.
pub(crate) struct Caller {
    pub(crate) stream: UnixStream,
    pub(crate) call: Call,
    /// What it takes while it is here.
    pub(crate) heard: Heard,
}

/// The places, and who waits for one.
pub(crate) struct Shares {
    places: usize,
    state: Mutex<State>,
}

/// A place of a call. It is free when this is dropped.
pub(crate) struct CallSlot {
    of: Arc<Shares>,
    kind: Kind,
    is_aside: bool,
    /// Whether no thread has it any more.
    is_handed_over: bool,
    /// Who has called.
    caller: Option<Arc<dyn Exec>>,
}

/// A call that waits: others have its place from [`Aside::step`] until this is dropped, and longer where none is free for it then.
pub(crate) struct Aside<'a> {
    on_wait: Option<&'a OnWait>,
    is_aside: bool,
}

/// What became of a caller.
pub(crate) enum Entered {
    /// It is served now.
    Now(Caller, CallSlot),
    /// It is in line: [`Shares::next`] has it later.
    InLine,
    /// Too many are.
    Refused(Caller),
}

/// What calls are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    /// The pod's namespace; `None` for calls of the node itself: STATUS, GC, and questions for addresses.
    namespace: Option<String>,
    is_add: bool,
}

struct State {
    /// Without those that have stepped aside.
    served: HashMap<Kind, usize>,
    all: usize,
    adds: usize,
    /// Those that have stepped aside.
    aside: HashMap<Kind, usize>,
    /// How many of these no thread has.
    handed_over: usize,
    line: VecDeque<Queued>,
    /// When it was looked the last time who in line has gone.
    swept: Instant,
    /// When a place was given to a pod's call, or given back by one, the last time.
    pods_moved: Instant,
    /// The same of any call.
    moved: Instant,
}

/// A caller in line.
struct Queued {
    kind: Kind,
    caller: Caller,
    since: Instant,
}

thread_local! {
    /// The place of the call that this thread serves.
    static OWN: RefCell<Option<CallSlot>> = const { RefCell::new(None) };
}

// === impl Caller ===

impl Caller {
    /// Whether nobody waits for an answer any more.
    fn has_gone(&self) -> bool {
        local::hung_up(&self.stream).unwrap_or(true)
    }

    fn tell_left(&self) {
        let Call { verb, container_id, .. } = &self.call;
        let why = "it closed the connection while it was queued";
        Line::info("left").with("verb", verb).with("container", container_id).with("why", why).end();
    }
}

// === impl Kind ===

impl Kind {
    fn of(call: &Call) -> Self {
        let is_add = call.verb == "ADD";
        if plugins::of_pool_store(&call.program).is_some() || matches!(call.verb.as_str(), "STATUS" | "GC") {
            return Kind { namespace: None, is_add: false };
        }
        let args = CniArgs::parse(&call.args).ok();
        let namespace = args.as_ref().and_then(|args| args.get("K8S_POD_NAMESPACE")).unwrap_or_default();
        Kind { namespace: Some(namespace.to_owned()), is_add }
    }
}

// === impl Shares ===

impl Shares {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        let (served, aside, now) = (HashMap::new(), HashMap::new(), Instant::now());
        let state =
            State { served, all: 0, adds: 0, aside, handed_over: 0, line: VecDeque::new(), swept: now, pods_moved: now, moved: now };
        Arc::new(Shares { places, state: Mutex::new(state) })
    }

    /// Takes a place, or stands in line.
    pub(crate) fn enter(self: &Arc<Self>, caller: Caller) -> Entered {
        let kind = Kind::of(&caller.call);
        let mut state = lock(&self.state);
        if self.is_free_for(&state, &kind) {
            let place = self.take(&mut state, kind);
            return Entered::Now(caller, place);
        }
        if state.is_full_for(&kind) {
            // Who has gone keeps nobody out.
            state.sweep();
            if state.is_full_for(&kind) {
                return Entered::Refused(caller);
            }
        }
        state.line.push_back(Queued { kind, caller, since: Instant::now() });
        Entered::InLine
    }

    /// The one in line that is served next: of the namespace that has the fewest places. Who has gone away is passed over.
    pub(crate) fn next(self: &Arc<Self>) -> Option<(Caller, CallSlot)> {
        let mut state = lock(&self.state);
        if state.swept.elapsed() >= SWEEP {
            state.sweep();
        }
        loop {
            let at = self.pick(&state)?;
            let Queued { kind, caller, .. } = state.line.remove(at)?;
            if caller.has_gone() {
                caller.tell_left();
                continue;
            }
            let place = self.take(&mut state, kind);
            return Some((caller, place));
        }
    }

    /// Where in line the one is that is served next, if one may be.
    fn pick(&self, state: &State) -> Option<usize> {
        let mut seen = HashSet::new();
        // Of each kind only the first one counts.
        let first = state.line.iter().enumerate().filter(|(_, queued)| seen.insert(&queued.kind));
        let may = first.filter(|(_, queued)| self.is_free_for(state, &queued.kind));
        may.min_by_key(|(at, queued)| (state.held_by(&queued.kind), *at)).map(|(at, _)| at)
    }

    /// How many threads have a call that has lent its place.
    pub(crate) fn threads_aside(&self) -> usize {
        let state = lock(&self.state);
        state.all_aside() - state.handed_over
    }

    /// How many calls a task answers.
    pub(crate) fn handed_over(&self) -> usize {
        lock(&self.state).handed_over
    }

    /// How many are in line.
    pub(crate) fn in_line(&self) -> usize {
        let mut state = lock(&self.state);
        state.sweep();
        state.line.len()
    }

    /// For how long the first one in line has waited.
    pub(crate) fn longest_in_line(&self) -> Option<Duration> {
        let mut state = lock(&self.state);
        state.sweep();
        state.line.front().map(|queued| queued.since.elapsed())
    }

    /// For how long no call has begun or ended while others stand in line. How long these have stood there does not count by itself: its
    /// namespace's own calls may be what one waits for. Where pods' calls stand there, those of the node itself do not count either: a runtime
    /// that asks for STATUS gets its answers.
    pub(crate) fn stuck_for(&self) -> Option<Duration> {
        let mut state = lock(&self.state);
        state.sweep();
        let stuck = |queued: &Queued| {
            let moved = if queued.kind.namespace.is_some() { state.pods_moved } else { state.moved };
            moved.max(queued.since).elapsed()
        };
        state.line.iter().map(stuck).max()
    }

    fn is_free_for(&self, state: &State, kind: &Kind) -> bool {
        let free = self.places.saturating_sub(state.all);
        let may_add = !kind.is_add || state.adds < self.adds_of(state.held_by(kind) == (0, 0));
        free > 0 && may_add && (kind.namespace.is_none() || self.is_share(state, kind, free))
    }

    /// How many places ADDs may have; `newcomer`: where the next one is of a namespace that has no call.
    fn adds_of(&self, newcomer: bool) -> usize {
        let (quarter, eighth) = (self.places / 4, (self.places / 8).max(1));
        let kept = if newcomer { quarter.min(eighth) } else { quarter };
        (self.places - kept).max(1)
    }

    /// Whether a namespace may have one more.
    fn is_share(&self, state: &State, kind: &Kind, free: usize) -> bool {
        let held = |is_add| state.served.get(&Kind { is_add, ..kind.clone() }).copied().unwrap_or_default();
        let (adds, others) = (held(true), held(false));
        let half = self.places / 2;
        if kind.is_add {
            adds < half.saturating_sub(1).max(1) && adds + others < half.max(1) && free > adds + others
        } else {
            // Of two or three workers an ADD and a DEL are more than half.
            adds + others < half.max(2) && free > others
        }
    }

    fn take(self: &Arc<Self>, state: &mut State, kind: Kind) -> CallSlot {
        state.count(&kind, true);
        CallSlot { of: Arc::clone(self), kind, is_aside: false, is_handed_over: false, caller: None }
    }
}

// === impl State ===

impl State {
    fn count(&mut self, kind: &Kind, more: bool) {
        let by = if more { 1 } else { -1 };
        self.all = self.all.saturating_add_signed(by);
        if kind.is_add {
            self.adds = self.adds.saturating_add_signed(by);
        }
        let held = self.served.entry(kind.clone()).or_default();
        *held = held.saturating_add_signed(by);
        if *held == 0 {
            self.served.remove(kind);
        }
        self.moved = Instant::now();
        if kind.namespace.is_some() {
            self.pods_moved = self.moved;
        }
    }

    /// How many places a namespace has, and how many calls beside them. Calls of the node itself count for nobody.
    fn held_by(&self, kind: &Kind) -> (usize, usize) {
        if kind.namespace.is_none() {
            return (0, 0);
        }
        let of = |held: &HashMap<Kind, usize>| {
            let of_kind = |is_add| held.get(&Kind { is_add, ..kind.clone() }).copied().unwrap_or_default();
            of_kind(true) + of_kind(false)
        };
        (of(&self.served), of(&self.aside))
    }

    /// Whether no more may stand in line, of all or of a kind.
    fn is_full_for(&self, kind: &Kind) -> bool {
        self.line.len() >= LONGEST || self.line.iter().filter(|queued| queued.kind == *kind).count() >= OF_ONE
    }

    /// Those that have gone leave the line.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        self.line.retain(|queued| {
            let has_gone = queued.caller.has_gone();
            if has_gone {
                queued.caller.tell_left();
            }
            !has_gone
        });
    }

    fn count_aside(&mut self, kind: &Kind, more: bool) {
        let held = self.aside.entry(kind.clone()).or_default();
        *held = held.saturating_add_signed(if more { 1 } else { -1 });
        if *held == 0 {
            self.aside.remove(kind);
        }
    }

    fn all_aside(&self) -> usize {
        self.aside.values().sum()
    }

    fn may_step_aside(&self, kind: &Kind) -> bool {
        let of_namespace: usize = self.aside.iter().filter(|(own, _)| own.namespace == kind.namespace).map(|(_, held)| held).sum();
        self.all_aside() < ASIDE && of_namespace < ASIDE / 2
    }
}

// === impl CallSlot ===

impl CallSlot {
    /// Makes it that of the call which this thread serves, until `work` is done.
    pub(crate) fn during<T>(mut self, caller: Arc<dyn Exec>, work: impl FnOnce() -> T) -> (T, Option<CallSlot>) {
        /// Gives it back also where `work` panics.
        struct SlotInUse;
        impl Drop for SlotInUse {
            fn drop(&mut self) {
                drop(OWN.take());
            }
        }
        self.caller = Some(caller);
        OWN.set(Some(self));
        let _taken = SlotInUse;
        let done = work();
        (done, OWN.take())
    }

    /// Lends the place for good: no thread serves the call any more. Whether it may.
    pub(crate) fn hand_over(&mut self) -> bool {
        self.stand(true);
        if self.is_aside && !self.is_handed_over {
            lock(&self.of.state).handed_over += 1;
            self.is_handed_over = true;
        }
        self.is_aside
    }

    /// Lends its place, or takes one again. It goes on without one where its namespace has none to spare, so that calls which waited together
    /// are not served together at the cost of others.
    fn stand(&mut self, is_aside: bool) {
        let mut state = lock(&self.of.state);
        let may = if is_aside { state.may_step_aside(&self.kind) } else { self.of.is_free_for(&state, &self.kind) };
        if self.is_aside != is_aside && may {
            state.count(&self.kind, !is_aside);
            state.count_aside(&self.kind, is_aside);
            self.is_aside = is_aside;
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        let mut state = lock(&self.of.state);
        state.handed_over -= usize::from(self.is_handed_over);
        if self.is_aside {
            state.count_aside(&self.kind, false);
        } else {
            state.count(&self.kind, false);
        }
    }
}

// === impl Aside ===

impl<'a> Aside<'a> {
    /// Of a call that waits for nothing yet.
    pub(crate) fn new(on_wait: Option<&'a OnWait>) -> Self {
        Aside { on_wait, is_aside: false }
    }

    /// Lends the place, once.
    pub(crate) fn step(&mut self) {
        if !self.is_aside {
            self.is_aside = true;
            self.on_wait.into_iter().for_each(|on_wait| on_wait(true));
        }
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if self.is_aside {
            self.on_wait.into_iter().for_each(|on_wait| on_wait(false));
        }
    }
}

/// The call that this thread serves waits for others, and lends its place to them (`true`); or it goes on.
pub(crate) fn step_aside(is_aside: bool) {
    OWN.with_borrow_mut(|own| own.iter_mut().for_each(|place| place.stand(is_aside)));
}

/// Says every ten seconds which lock is waited for, and who has it. It is waited for no longer than whoever called waits.
pub(crate) fn goes_on(wait: &LockWait) -> bool {
    let seconds = wait.waited.as_secs();
    if seconds > 0 && seconds.is_multiple_of(10) {
        let holder = wait.holder().map_or("a process that cannot be seen from here".to_owned(), |holder| holder.to_string());
        Line::warn("waits").with("for", wait.path.display()).with("since", format!("{seconds} s")).with("holder", holder).end();
    }
    is_waited_for()
}

/// Whether somebody still waits for the call that this thread serves.
pub(crate) fn is_waited_for() -> bool {
    OWN.with_borrow(|own| own.as_ref().and_then(|place| place.caller.as_ref()).is_none_or(|caller| caller.is_waited_for()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(verb: &str, namespace: &str) -> (Caller, UnixStream) {
        let (stream, other) = UnixStream::pair().unwrap();
        let args = format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=p");
        let call = Call { verb: verb.to_owned(), args, ..Call::default() };
        (Caller { stream, call, heard: Heard::default() }, other)
    }

    /// As many as get a place at once, with their places.
    fn served(shares: &Arc<Shares>, verb: &str, namespace: &str, asks: usize) -> (Vec<CallSlot>, Vec<UnixStream>) {
        let (mut places, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..asks {
            let (caller, other) = caller(verb, namespace);
            streams.push(other);
            if let Entered::Now(_, place) = shares.enter(caller) {
                places.push(place);
            }
        }
        (places, streams)
    }

    #[test]
    fn half_for_one_namespace_and_something_for_each_that_comes_later() {
        let shares = Shares::new(16);
        let (worst, _worst) = served(&shares, "ADD", "worst", 40);
        let (second, _second) = served(&shares, "ADD", "second", 40);
        assert_eq!((worst.len(), second.len()), (7, 5));
        // Never behind ADDs, of their own namespace or of another; and of all calls together half.
        let (dels, _dels) = served(&shares, "DEL", "worst", 40);
        let (others, _others) = served(&shares, "DEL", "second", 40);
        assert_eq!((dels.len(), others.len()), (1, 2));
        let (node, _node) = served(&shares, "STATUS", "", 2);
        assert_eq!((node.len(), shares.in_line()), (1, 33 + 35 + 39 + 38 + 1));
        let most = |shares: &Shares| {
            let state = lock(&shares.state);
            let of = |namespace: &str| {
                let own = state.served.iter().filter(|(kind, _)| kind.namespace.as_deref() == Some(namespace));
                own.map(|(_, held)| *held).sum::<usize>()
            };
            of("worst").max(of("second"))
        };
        assert_eq!(most(&shares), 8);
        // Places that are given back go to who came first and may have one, until nobody is left.
        drop(node);
        drop(dels);
        drop(others);
        let mut all: VecDeque<CallSlot> = worst.into_iter().chain(second).collect();
        while let Some(place) = all.pop_front() {
            drop(place);
            all.extend(std::iter::from_fn(|| shares.next()).map(|(_, place)| place));
            assert!(most(&shares) <= 8, "{}", most(&shares));
        }
        assert_eq!(shares.in_line(), 0);
    }

    #[test]
    fn who_has_few_workers_serves_everybody_in_the_end() {
        for places in 1..=4 {
            let shares = Shares::new(places);
            let (mut others, mut done) = (Vec::new(), 0);
            let mut places = VecDeque::new();
            for n in 0..60 {
                let (caller, other) = caller(if n % 3 == 0 { "DEL" } else { "ADD" }, ["a", "b"][n % 2]);
                others.push(other);
                if let Entered::Now(_, place) = shares.enter(caller) {
                    places.push_back(place);
                }
            }
            while let Some(place) = places.pop_front() {
                drop(place);
                done += 1;
                places.extend(std::iter::from_fn(|| shares.next()).map(|(_, place)| place));
            }
            assert_eq!((done, shares.in_line()), (60, 0));
            assert!(lock(&shares.state).served.is_empty());
        }
    }

    #[test]
    fn who_waits_lends_its_place_and_who_has_gone_is_passed_over() {
        let shares = Shares::new(2);
        let (mut places, _streams) = served(&shares, "ADD", "a", 1);
        let (late, gone) = caller("ADD", "a");
        assert!(matches!(shares.enter(late), Entered::InLine));
        let (later, _waits) = caller("ADD", "a");
        assert!(matches!(shares.enter(later), Entered::InLine));
        drop(gone);
        assert!(shares.next().is_none());
        let (next, place) = places.remove(0).during(Arc::new(plugin::InHost), || {
            step_aside(true);
            assert_eq!(shares.threads_aside(), 1);
            let next = shares.next();
            step_aside(false);
            next
        });
        drop(place);
        assert!(next.is_some() && shares.threads_aside() == 0 && shares.in_line() == 0);
        drop(next);
        assert_eq!(lock(&shares.state).all, 0);
    }

    #[test]
    fn what_a_task_answers_keeps_neither_a_place_nor_a_thread_and_is_counted() {
        let shares = Shares::new(4);
        let mut all = Vec::new();
        for _ in 0..ASIDE / 2 {
            let (mut places, streams) = served(&shares, "ADD", "a", 1);
            assert!(places.iter_mut().all(CallSlot::hand_over));
            all.push((places, streams));
        }
        assert_eq!((all.len(), shares.threads_aside(), lock(&shares.state).all_aside()), (ASIDE / 2, 0, ASIDE / 2));
        let (mut places, _streams) = served(&shares, "ADD", "a", 2);
        assert_eq!(places.len(), 1, "a namespace of four places has one for its ADDs");
        assert!(!places.iter_mut().any(CallSlot::hand_over), "as many of a namespace are aside as may be");
        drop(places);
        drop(all);
        let state = lock(&shares.state);
        assert_eq!((state.all, state.all_aside(), state.handed_over), (0, 0, 0));
    }

    /// Each call that waits has a thread: pods of one namespace that wait for ever take neither all of these, nor the places of others.
    #[test]
    fn only_so_many_step_aside() {
        let shares = Shares::new(16);
        let mut all = Vec::new();
        let mut step_aside = |namespace: &str, calls: usize| {
            let before = shares.threads_aside();
            for _ in 0..calls {
                let (mut places, streams) = served(&shares, "ADD", namespace, 1);
                places.iter_mut().for_each(|place| place.stand(true));
                all.push((places, streams));
            }
            shares.threads_aside() - before
        };
        assert_eq!(step_aside("worst", 300), ASIDE / 2);
        // It holds no more places than others that do not wait.
        let (innocent, _streams) = served(&shares, "ADD", "innocent", 1);
        assert_eq!(innocent.len(), 1);
        drop(innocent);
        assert_eq!(step_aside("second", 300), ASIDE / 2);
        assert_eq!(step_aside("third", 1), 0);
        let (dels, _streams) = served(&shares, "DEL", "fourth", 1);
        assert_eq!(dels.len(), 1);
        drop((all, dels));
        let state = lock(&shares.state);
        assert!(state.aside.is_empty() && state.served.is_empty() && state.all == 0);
    }

    /// They get what they waited for at the same moment, and may be hostile in what comes next.
    #[test]
    fn calls_that_go_on_together_take_no_place_of_others() {
        let shares = Shares::new(16);
        let mut all = Vec::new();
        for _ in 0..60 {
            let (mut places, streams) = served(&shares, "ADD", "worst", 1);
            places.iter_mut().for_each(|place| place.stand(true));
            all.push((places, streams));
        }
        all.iter_mut().flat_map(|(places, _)| places).for_each(|place| place.stand(false));
        assert_eq!(lock(&shares.state).all, 7, "the share of one namespace");
        assert_eq!(shares.threads_aside(), 53);
        let (adds, _streams) = served(&shares, "ADD", "innocent", 1);
        let (dels, _others) = served(&shares, "DEL", "innocent", 1);
        assert_eq!((adds.len(), dels.len()), (1, 1));
        drop((all, adds, dels));
        let state = lock(&shares.state);
        assert!(state.aside.is_empty() && state.served.is_empty() && state.all == 0);
    }

    /// Each of so many namespaces has more calls than it may have places.
    fn backlog(shares: &Arc<Shares>, namespaces: usize) -> (Vec<CallSlot>, Vec<UnixStream>) {
        let (mut places, mut streams) = (Vec::new(), Vec::new());
        for n in 0..namespaces {
            let (more, others) = served(shares, "ADD", &format!("worst{n}"), 8);
            places.extend(more);
            streams.extend(others);
        }
        (places, streams)
    }

    fn is_of(caller: &Caller, namespace: &str) -> bool {
        caller.call.args.contains(&format!("K8S_POD_NAMESPACE={namespace};"))
    }

    #[test]
    fn another_namespace_is_served_at_once_beside_three_that_take_all_they_can() {
        let shares = Shares::new(16);
        let (places, _streams) = backlog(&shares, 3);
        assert_eq!(lock(&shares.state).adds, 13, "three quarters, and one for the third namespace");
        let (innocent, _other) = served(&shares, "ADD", "innocent", 2);
        assert_eq!(innocent.len(), 1, "at once, and no second one");
        let (dels, _others) = served(&shares, "DEL", "another", 1);
        let (node, _asks) = served(&shares, "STATUS", "", 1);
        assert_eq!((dels.len(), node.len()), (1, 1), "what gives something back finds a place");
        drop((places, innocent, dels, node));
        assert_eq!(lock(&shares.state).all, 0);
    }

    #[test]
    fn another_namespace_is_next_beside_six_that_take_all_they_can() {
        let shares = Shares::new(16);
        let (mut places, _streams) = backlog(&shares, 6);
        assert_eq!(lock(&shares.state).adds, 14, "what ADDs may have, also of newcomers");
        let (late, _other) = caller("ADD", "innocent");
        assert!(matches!(shares.enter(late), Entered::InLine));
        let (dels, _others) = served(&shares, "DEL", "another", 1);
        assert_eq!(dels.len(), 1);
        // Before all that came earlier, also of those that have no place: each of these gets its one after the other.
        let mut order = Vec::new();
        for _ in 0..4 {
            drop(places.remove(0));
            while let Some((caller, place)) = shares.next() {
                order.push(caller.call.args);
                places.push(place);
            }
        }
        let names: Vec<bool> = ["worst4", "worst5", "innocent"].iter().zip(&order).map(|(name, args)| args.contains(name)).collect();
        assert_eq!(names, [true; 3], "each one without a place, once, in the order in which they came: {order:?}");
    }

    /// Who has nothing beside the places comes before who has.
    #[test]
    fn among_namespaces_without_a_place_the_one_with_fewer_calls_aside_is_next() {
        let shares = Shares::new(4);
        let (mut aside, _streams) = served(&shares, "ADD", "waits", 1);
        aside.iter_mut().for_each(|place| place.stand(true));
        let held: Vec<_> = ["a", "b", "c"].map(|namespace| served(&shares, "ADD", namespace, 1)).into();
        let (first, _first) = caller("ADD", "waits");
        let (second, _second) = caller("ADD", "innocent");
        assert!(matches!(shares.enter(first), Entered::InLine) && matches!(shares.enter(second), Entered::InLine));
        drop(held);
        let (next, _place) = shares.next().unwrap();
        assert!(is_of(&next, "innocent"), "{}", next.call.args);
    }

    #[test]
    fn who_has_hung_up_keeps_nobody_out_of_line() {
        let shares = Shares::new(4);
        let (_held, _other) = served(&shares, "ADD", "a", 1);
        let mut streams = Vec::new();
        for _ in 0..OF_ONE {
            let (caller, other) = caller("ADD", "a");
            streams.push(other);
            assert!(matches!(shares.enter(caller), Entered::InLine));
        }
        let (late, _late) = caller("ADD", "a");
        assert!(matches!(shares.enter(late), Entered::Refused(_)));
        drop(streams);
        let (later, waits) = caller("ADD", "a");
        assert!(matches!(shares.enter(later), Entered::InLine));
        assert_eq!(shares.in_line(), 1);
        assert!(shares.longest_in_line().is_some() && shares.stuck_for().is_some());
        drop(waits);
        assert!(shares.longest_in_line().is_none() && shares.stuck_for().is_none(), "nobody waits");
    }

    /// Places are kept for a runtime's STATUS, which is answered whatever becomes of pods.
    #[test]
    fn a_status_does_not_hide_that_pods_calls_are_stuck() {
        let shares = Shares::new(4);
        let (_held, _others) = served(&shares, "ADD", "a", 3);
        let (waiting, _other) = caller("ADD", "a");
        assert!(matches!(shares.enter(waiting), Entered::InLine));
        let stuck = || shares.stuck_for().unwrap();
        while stuck() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let (status, _other) = caller("STATUS", "");
        let Entered::Now(_, place) = shares.enter(status) else { panic!("it has a place") };
        drop(place);
        assert!(stuck() >= Duration::from_millis(20));
    }

    #[test]
    fn a_line_has_an_end() {
        let shares = Shares::new(4);
        let mut streams = Vec::new();
        let mut refused = |namespace: &str, count: usize| {
            let asked = (0..count).map(|_| {
                let (caller, other) = caller("ADD", namespace);
                streams.push(other);
                shares.enter(caller)
            });
            asked.filter(|entered| matches!(entered, Entered::Refused(_))).count()
        };
        // What is entered gives its place back at once here.
        let held = served(&shares, "ADD", "a", 1);
        assert_eq!(held.0.len(), 1);
        assert_eq!(refused("a", OF_ONE + 5), 5);
        assert_eq!(refused("b", 1), 0);
        assert!(shares.stuck_for().is_some());
    }
}
