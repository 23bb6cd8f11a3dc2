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
//! most, so that no DEL stands behind those of others either, nor the question for addresses of a plugin that an ADD waits for.
//!
//! What it waited for has come: it goes on, with a place where one is free for it, else without.
//!
//! Each call that has stepped aside has a thread that waits. So only so many may, and half as many of one namespace: one more keeps its
//! place while it waits, and its namespace has one less for others.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
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
    line: VecDeque<(Kind, Caller)>,
    /// When a place was given or given back the last time.
    moved: Instant,
}

thread_local! {
    /// The place of the call that this thread serves.
    static OWN: RefCell<Option<CallSlot>> = const { RefCell::new(None) };
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
        let state = State { served: HashMap::new(), all: 0, adds: 0, aside: HashMap::new(), line: VecDeque::new(), moved: Instant::now() };
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
        let of_its_kind = state.line.iter().filter(|(other, _)| *other == kind).count();
        if state.line.len() >= LONGEST || of_its_kind >= OF_ONE {
            return Entered::Refused(caller);
        }
        state.line.push_back((kind, caller));
        Entered::InLine
    }

    /// The first one in line that may be served now. Who has gone away is passed over.
    pub(crate) fn next(self: &Arc<Self>) -> Option<(Caller, CallSlot)> {
        let mut state = lock(&self.state);
        loop {
            let at = state.line.iter().position(|(kind, _)| self.is_free_for(&state, kind))?;
            let (kind, caller) = state.line.remove(at)?;
            if local::hung_up(&caller.stream).unwrap_or(true) {
                let Call { verb, container_id, .. } = &caller.call;
                Line::info("left")
                    .with("verb", verb)
                    .with("container", container_id)
                    .with("why", "it closed the connection while it was queued")
                    .end();
                continue;
            }
            let place = self.take(&mut state, kind);
            return Some((caller, place));
        }
    }

    /// How many calls have lent their place.
    pub(crate) fn aside(&self) -> usize {
        lock(&self.state).all_aside()
    }

    /// How many are in line.
    pub(crate) fn in_line(&self) -> usize {
        lock(&self.state).line.len()
    }

    /// For how long no call has begun or ended while others stand in line.
    pub(crate) fn stuck_for(&self) -> Option<Duration> {
        let state = lock(&self.state);
        if state.line.is_empty() { None } else { Some(state.moved.elapsed()) }
    }

    fn is_free_for(&self, state: &State, kind: &Kind) -> bool {
        let free = self.places.saturating_sub(state.all);
        let adds = (self.places - self.places / 4).max(1);
        free > 0 && !(kind.is_add && state.adds >= adds) && (kind.namespace.is_none() || self.is_share(state, kind, free))
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
        CallSlot { of: Arc::clone(self), kind, is_aside: false, caller: None }
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
    pub(crate) fn during<T>(mut self, caller: Arc<dyn Exec>, work: impl FnOnce() -> T) -> T {
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
        work()
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
        let next = places.remove(0).during(Arc::new(plugin::InHost), || {
            step_aside(true);
            assert_eq!(shares.aside(), 1);
            let next = shares.next();
            step_aside(false);
            next
        });
        assert!(next.is_some() && shares.aside() == 0 && shares.in_line() == 0);
        drop(next);
        assert_eq!(lock(&shares.state).all, 0);
    }

    /// Each call that waits has a thread: pods of one namespace that wait for ever take neither all of these, nor the places of others.
    #[test]
    fn only_so_many_step_aside() {
        let shares = Shares::new(16);
        let mut all = Vec::new();
        let mut step_aside = |namespace: &str, calls: usize| {
            let before = shares.aside();
            for _ in 0..calls {
                let (mut places, streams) = served(&shares, "ADD", namespace, 1);
                places.iter_mut().for_each(|place| place.stand(true));
                all.push((places, streams));
            }
            shares.aside() - before
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
        assert_eq!(shares.aside(), 53);
        let (adds, _streams) = served(&shares, "ADD", "innocent", 1);
        let (dels, _others) = served(&shares, "DEL", "innocent", 1);
        assert_eq!((adds.len(), dels.len()), (1, 1));
        drop((all, adds, dels));
        let state = lock(&shares.state);
        assert!(state.aside.is_empty() && state.served.is_empty() && state.all == 0);
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
