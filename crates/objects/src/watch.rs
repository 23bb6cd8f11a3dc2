//! Watches: what a request asks for, and the stream of lines that answers it.
//!
//! ```text
//!   initial objects, or changes since a revision -+
//!   queue, which Table fills under the lock ------+-> one JSON line each, until the queue or the time ends
//!   bookmark timer: what is queued, then the revision
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Shared,
    call::Call,
    kind::Kind,
    read::typed,
    refusal::Refusal,
    selector::Selector,
    state::State,
    table::{Event, Watcher},
};

// As many events as the API server lets a watcher be behind.
const QUEUE: usize = 1024;

/// A watch that has begun.
pub(crate) struct Watch {
    kind: Arc<Kind>,
    partial: bool,
    pending: VecDeque<Line>,
    queue: mpsc::Receiver<Event>,
    ends: Option<Instant>,
    bookmarks: Option<(Duration, Instant)>,
    shared: Weak<Shared>,
}

enum Line {
    Event(Event),
    Bookmark { revision: u64, initial: bool },
    Error(Refusal),
}

/// Begins a watch, under the store's lock, so that nothing is missed between what is there and what comes.
pub(crate) fn begin(state: &mut State, kind: &Arc<Kind>, call: &Call, shared: &Arc<Shared>) -> Result<Watch, Refusal> {
    let selector = Selector::parse(kind, call.parameter("labelSelector"), call.parameter("fieldSelector"))?;
    let selector = selector.named(&call.place.name);
    let asked = call.parameter("resourceVersion");
    let initial = call.flag("sendInitialEvents");
    check_options(call, initial)?;
    let number: u64 = match asked {
        "" => 0,
        asked => asked.parse().map_err(|_| {
            let why = format!("strconv.ParseUint: parsing {asked:?}: invalid syntax");
            Refusal::unexpected(format!("resourceVersion: Invalid value: {asked:?}: {why}"))
        })?,
    };
    let (sender, queue) = mpsc::channel(QUEUE);
    let watcher = Watcher { namespace: call.place.namespace.clone(), selector, queue: sender };
    let mut pending = VecDeque::new();
    let revision = state.revision;
    let table = state.table_mut(kind)?;
    let mut ended = false;
    if number == 0 || initial {
        let here = table.objects.iter().filter(|(key, _)| watcher.namespace.is_empty() || key.0 == watcher.namespace);
        let held = here.filter(|(_, object)| watcher.selector.holds(object));
        pending.extend(held.map(|(_, object)| Line::Event(Event { what: "ADDED", object: Arc::clone(object) })));
        if initial && call.flag("allowWatchBookmarks") {
            pending.push_back(Line::Bookmark { revision, initial: true });
        }
    } else {
        match table.since(number) {
            Ok(changes) => pending.extend(changes.filter_map(|change| watcher.sees(change)).map(Line::Event)),
            Err(oldest) => {
                pending.push_back(Line::Error(Refusal::expired(format!("too old resource version: {number} ({oldest})"))));
                ended = true;
            }
        }
    }
    if !ended {
        table.watch(watcher);
    }
    let now = Instant::now();
    let seconds: Option<u64> = call.parameter("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
    let bookmarks = call.flag("allowWatchBookmarks").then_some((state.bookmarks, now + state.bookmarks));
    Ok(Watch {
        kind: Arc::clone(kind),
        partial: call.partial,
        pending,
        queue,
        ends: seconds.map(|seconds| now + Duration::from_secs(seconds)),
        bookmarks,
        shared: Arc::downgrade(shared),
    })
}

fn check_options(call: &Call, initial: bool) -> Result<(), Refusal> {
    let matched = call.parameter("resourceVersionMatch");
    let why = match (initial, matched) {
        (true, matched) if matched != "NotOlderThan" => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        (false, matched) if !matched.is_empty() && call.parameter("sendInitialEvents").is_empty() => {
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        }
        _ => return Ok(()),
    };
    Err(Refusal::invalid_options("ListOptions", "resourceVersionMatch", "FieldValueForbidden", &format!("Forbidden: {why}")))
}

// === impl Watch ===

impl Watch {
    /// The lines of the answer.
    pub(crate) fn lines(self) -> impl Stream<Item = Bytes> {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((watch.written(line), watch))
        })
    }

    async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            let ends = self.ends;
            let bookmark = self.bookmarks.map(|(_, at)| at);
            tokio::select! {
                biased;
                event = self.queue.recv() => return event.map(Line::Event),
                () = until(ends) => return None,
                () = until(bookmark) => self.add_bookmark()?,
            }
        }
    }

    // Under the lock everything up to the revision is in the queue: it goes first.
    fn add_bookmark(&mut self) -> Option<()> {
        let shared = self.shared.upgrade()?;
        let state = shared.state();
        while let Ok(event) = self.queue.try_recv() {
            self.pending.push_back(Line::Event(event));
        }
        self.pending.push_back(Line::Bookmark { revision: state.revision, initial: false });
        if let Some((every, at)) = &mut self.bookmarks {
            *at = Instant::now() + *every;
        }
        Some(())
    }

    fn written(&self, line: Line) -> Bytes {
        let (what, object) = match line {
            Line::Event(event) => (event.what, typed(&self.kind, &event.object, self.partial)),
            Line::Error(refusal) => ("ERROR", refusal.status()),
            Line::Bookmark { revision, initial } => {
                let mut metadata = json!({"resourceVersion": revision.to_string()});
                if let Some(metadata) = metadata.as_object_mut().filter(|_| initial) {
                    metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
                }
                let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
                ("BOOKMARK", object)
            }
        };
        let mut line = serde_json::to_vec(&json!({"type": what, "object": object})).unwrap_or_default();
        line.push(b'\n');
        Bytes::from(line)
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
