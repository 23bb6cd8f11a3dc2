//! One object of this node, followed: what it is now, and when it is another one.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use crate::cache::{Cache, Change, Listed};
use crate::watch::{Watch, Watched};
use crate::{ApiError, Cluster};

/// The object of a kind that has this node's name, followed until this is dropped.
pub struct OwnObject<T> {
    name: String,
    cache: Arc<Cache<Arc<T>>>,
    changes: Receiver<Change<Arc<T>>>,
    watch: AbortHandle,
}

// === impl OwnObject ===

impl<T: PartialEq + Send + Sync + 'static> OwnObject<T> {
    /// Follows it from now on. Must be called within a tokio runtime.
    pub(crate) fn follow<W: Watched<Stored = Arc<T>>>(cluster: &Cluster) -> Self {
        let name = cluster.node().to_owned();
        let cache = Arc::new(Cache::new());
        let changes = cache.subscribe();
        let fields = Some(format!("metadata.name={name}"));
        let watch = Watch::<W> { caller: cluster.inner.caller.clone(), cache: Arc::clone(&cache), selector: fields };
        OwnObject { name, cache, changes, watch: tokio::spawn(watch.run()).abort_handle() }
    }

    /// The object as it was seen last. `None`: there is none, or it was never seen.
    pub fn now(&self) -> Option<Arc<T>> {
        self.cache.get("", &self.name)
    }

    /// Whether that can be trusted.
    pub fn listed(&self) -> Listed {
        self.cache.listed()
    }

    /// Whether the cluster does not have this kind of object.
    pub fn is_unserved(&self) -> bool {
        let listed = self.listed();
        !listed.complete && listed.failing.is_some_and(|f| matches!(f.error, ApiError::NotServed { .. }))
    }

    /// Until it is otherwise than it was when this was asked last. May be dropped while it waits.
    pub async fn changed(&mut self) {
        match self.changes.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            // Nobody is left to tell.
            Err(RecvError::Closed) => std::future::pending().await,
        }
        while self.changes.try_recv().is_ok() {}
    }
}

impl<T> Drop for OwnObject<T> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
