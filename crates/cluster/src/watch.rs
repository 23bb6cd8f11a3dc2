//! List, then watch: how a cache follows the API server, for as long as the process lives.
//!
//! ```text
//! list, page by page --> Cache::replace --> watch from the list's version --> Cache::apply, Cache::remove, in order
//!   ^                                         |            ^
//!   +---- 410: too old, or a lost version ----+            +-- stream ended, or failed: from the last version seen
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::cache::{Cache, Limit};
use crate::call::Caller;
use crate::list::Page;
use crate::{ApiError, RequestedObject};

/// For how long the server keeps a watch, in seconds.
const WATCH: u32 = 290;
/// A watch that is silent for longer than the server keeps it is dead.
const SILENT: Duration = Duration::from_secs(WATCH as u64 + 10);
/// Between two questions for a kind that the server need not have.
const SELDOM: Duration = Duration::from_secs(600);
/// The shortest and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// A kind of object that is watched: what is asked for, and what is kept of it.
pub(crate) trait Watched: Send + Sync + 'static {
    /// What is read of an object.
    type PartialObject: DeserializeOwned + Clone + Send + 'static;
    /// What is kept of it.
    type Stored: Clone + PartialEq + Send + Sync + 'static;

    /// API group and resource, as in a role's rule.
    const RESOURCE: (&'static str, &'static str);
    /// Path of the collection.
    const PATH: &'static str;
    /// The most objects in a page; 0 for all at once.
    const PAGE: u32;
    /// Whether a server may be without the kind for good: it is then asked seldom.
    const IS_OPTIONAL: bool = false;
    /// Whether objects are selected by their labels, and not by fields.
    const BY_LABELS: bool = false;

    fn version(seen: &Self::PartialObject) -> Option<&str>;
    /// Its `namespace/name`, and what is kept.
    fn keep(seen: Self::PartialObject) -> (Box<str>, Self::Stored);
}

/// What one watch needs.
pub(crate) struct Watch<W: Watched> {
    pub(crate) caller: Caller,
    pub(crate) cache: Arc<Cache<W::Stored>>,
    /// Which objects: a field selector, or one of labels ([`Watched::BY_LABELS`]).
    pub(crate) selector: Option<String>,
}

/// Objects of one kind, followed until the last clone of this is dropped. Each clone waits for changes by itself.
#[derive(Clone)]
pub(crate) struct Following<T> {
    pub(crate) cache: Arc<Cache<T>>,
    news: Receiver<()>,
    _task: Arc<Task>,
}

/// The task that follows. It ends when this is dropped.
struct Task(AbortHandle);

/// What is kept of a list so far.
struct Gathered<W: Watched> {
    cache: Arc<Cache<W::Stored>>,
    all: HashMap<Box<str>, W::Stored>,
    /// What that has of the cache's limit.
    taken: usize,
}

/// How long to wait after failures: a tenth of the time for which it has failed already, within [`PAUSES`], with jitter. So
/// a short outage is over within a second of its end, and a long one costs the server little.
#[derive(Default)]
struct Pause {
    since: Option<Instant>,
}

/// Why a watch is at its end.
enum End {
    /// The version is too old: list again.
    TooOld(ApiError),
    /// Go on from the last version.
    Failed(ApiError),
    /// Nothing is wrong; go on from the last version.
    Closed,
}

// === impl Pause ===

impl Pause {
    fn reset(&mut self) {
        self.since = None;
    }

    fn next(&mut self) -> Duration {
        let failed_for = self.since.get_or_insert_with(Instant::now).elapsed();
        let full = (failed_for / 10).clamp(PAUSES.0, PAUSES.1);
        // A new RandomState has a new key: that is all the randomness that jitter needs.
        let random = (RandomState::new().hash_one(0_u8) % 1024) as u32;
        full / 2 + (full / 2048) * random
    }
}

// === impl Gathered ===

impl<W: Watched> Gathered<W> {
    fn take(&mut self, seen: W::PartialObject) {
        let (key, kept) = W::keep(seen);
        let kept = self.cache.kept_of(&key, kept, &mut self.taken);
        self.all.insert(key, kept);
    }
}

// === impl Following ===

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Following<T> {
    /// Follows all objects of a kind on a task of its own. Must be called within a tokio runtime.
    pub(crate) fn all<W: Watched<Stored = T>>(caller: Caller) -> Self {
        Self::selected::<W>(caller, None, None)
    }

    /// The same of those that a selector selects ([`Watch::selector`]), which may have so much together.
    pub(crate) fn selected<W: Watched<Stored = T>>(caller: Caller, selector: Option<String>, limit: Option<Limit<T>>) -> Self {
        let cache = Arc::new(Cache::limited(limit));
        let news = cache.news();
        let watch = Watch::<W> { caller, cache: Arc::clone(&cache), selector };
        Following { cache, news, _task: Arc::new(Task(tokio::spawn(watch.run()).abort_handle())) }
    }

    /// Waits until something is otherwise than when this was asked last, or the first list is complete. Many changes at once are one. May be
    /// dropped while it waits.
    pub(crate) async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            // Nobody is left to tell.
            std::future::pending::<()>().await;
        }
    }
}

// === impl Watch ===

impl<W: Watched> Watch<W> {
    /// Follows the server until the task is dropped.
    pub(crate) async fn run(self) {
        let mut pause = Pause::default();
        loop {
            match self.list().await {
                Ok(version) => {
                    self.cache.works();
                    self.follow(version, &mut pause).await;
                }
                Err(e) => self.rest(e, &mut pause).await,
            }
        }
    }

    fn asked(&self, verb: &'static str) -> RequestedObject {
        let (group, resource) = W::RESOURCE;
        RequestedObject { verb, group, resource, of: self.selector.clone().unwrap_or_default().into() }
    }

    /// The selector of fields, and that of labels.
    fn selectors(&self) -> (Option<String>, Option<String>) {
        let selector = self.selector.clone();
        if W::BY_LABELS { (None, selector) } else { (selector, None) }
    }

    /// Gets the whole list; its version.
    async fn list(&self) -> Result<String, ApiError> {
        let asked = self.asked("list");
        let mut gathered = Gathered::<W> { cache: Arc::clone(&self.cache), all: HashMap::new(), taken: 0 };
        let (field_selector, label_selector) = self.selectors();
        let mut params = ListParams { field_selector, label_selector, ..ListParams::default() };
        params.limit = (W::PAGE > 0).then_some(W::PAGE);
        loop {
            let page = Page { state: gathered, take: Gathered::take };
            let (so_far, meta) = self.caller.read_list(&asked, Request::new(W::PATH).list(&params), page).await?;
            gathered = so_far;
            match meta.more.filter(|more| !more.is_empty()) {
                Some(more) => params.continue_token = Some(more),
                None if meta.resource_version.is_empty() => {
                    return Err(self.caller.unreadable(&asked, "no metadata.resourceVersion in the list".to_owned()));
                }
                None => {
                    self.cache.replace(gathered.all);
                    return Ok(meta.resource_version);
                }
            }
        }
    }

    /// Watches from `version` on, again and again, until a new list is needed.
    async fn follow(&self, mut version: String, pause: &mut Pause) {
        let asked = self.asked("watch");
        loop {
            let end = match self.open(&asked, &version).await {
                Ok(stream) => {
                    self.cache.works();
                    let opened = Instant::now();
                    let end = self.drain(&asked, stream, &mut version).await;
                    if opened.elapsed() > Duration::from_secs(1) {
                        pause.reset();
                    }
                    end
                }
                Err(e) if e.code() == Some(410) => End::TooOld(e),
                Err(e) => End::Failed(e),
            };
            match end {
                End::TooOld(e) => {
                    self.cache.fails(e);
                    return tokio::time::sleep(pause.next()).await;
                }
                End::Failed(e) => self.rest(e, pause).await,
                // A server that closes each watch at once is not asked in a loop without a pause.
                End::Closed if pause.since.is_some() => tokio::time::sleep(pause.next()).await,
                End::Closed => pause.since = Some(Instant::now()),
            }
        }
    }

    async fn open(
        &self,
        asked: &RequestedObject,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<W::PartialObject>, ApiError>> + Send + Unpin + use<W>, ApiError> {
        let (field_selector, label_selector) = self.selectors();
        let params = WatchParams { field_selector, label_selector, timeout: Some(WATCH), bookmarks: true, ..WatchParams::default() };
        self.caller.watch(asked, Request::new(W::PATH).watch(&params, version)).await
    }

    /// Takes events into the cache until the stream ends.
    async fn drain<S>(&self, asked: &RequestedObject, mut stream: S, version: &mut String) -> End
    where
        S: Stream<Item = Result<WatchEvent<W::PartialObject>, ApiError>> + Unpin,
    {
        loop {
            let Ok(event) = timeout(SILENT, stream.next()).await else { return End::Closed };
            match event {
                None => return End::Closed,
                Some(Err(e)) => return End::Failed(e),
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => {
                    return End::TooOld(self.caller.refused(asked, &status));
                }
                Some(Ok(WatchEvent::Error(status))) => return End::Failed(self.caller.refused(asked, &status)),
                Some(Ok(WatchEvent::Bookmark(mark))) => version.clone_from(&mark.metadata.resource_version),
                Some(Ok(WatchEvent::Added(seen) | WatchEvent::Modified(seen))) => {
                    note(version, W::version(&seen));
                    let (key, kept) = W::keep(seen);
                    self.cache.apply(key, kept);
                }
                Some(Ok(WatchEvent::Deleted(seen))) => {
                    note(version, W::version(&seen));
                    self.cache.remove(&W::keep(seen).0);
                }
            }
        }
    }

    /// Pauses after a failure. If the server is away, anybody's next answer ends the pause.
    async fn rest(&self, error: ApiError, pause: &mut Pause) {
        let away = matches!(error, ApiError::Unreachable { .. } | ApiError::TimedOut { .. });
        let seldom = W::IS_OPTIONAL && matches!(error, ApiError::NotServed { .. });
        self.cache.fails(error);
        if seldom {
            return tokio::time::sleep(SELDOM).await;
        }
        let all = pause.next();
        let first = all.min(PAUSES.0 / 2);
        tokio::time::sleep(first).await;
        let more = tokio::time::sleep(all - first);
        if away {
            tokio::select! { () = more => {}, () = self.caller.answered() => {} }
        } else {
            more.await;
        }
    }
}

fn note(version: &mut String, seen: Option<&str>) {
    if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
        seen.clone_into(version);
    }
}
