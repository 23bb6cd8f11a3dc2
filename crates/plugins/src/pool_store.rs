//! The store of pools, as a plugin finds it: open in this process for its life, or opened for one call.
//!
//! ```text
//!   agent         hold(store) ----> At::open, At::reserve      all calls of the process have it, and wait in line in it
//!   netloom-cni   At::reserve ----> opened, closed again        others have it meanwhile; short: watches, opens it anew
//!                   in part         what there is of one attachment; all of it where that does not do
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::pool::{Allocator, Ask, Family, Granted, Lease, Origin, Pod};
use cni::{AttachmentId, CniArgs, CniError, Code, Config, NetworkName};
use ipam::{PoolError, PoolStore, PoolStoreError};
use linux::file::TURN;
use linux::{Watch, WatchError};
use plugin::{Call, Conflict, Cx, Delegate, LongWait, Stage};

use crate::pool_agent::ForAgent;

/// How long an ADD waits in line where its configuration does not say.
pub(crate) const ADD_WAIT: Duration = Duration::from_secs(20);
/// The pairs of `CNI_ARGS` that plugins know which give addresses of pools.
pub(crate) const KNOWN_ARGS: &[&str] = &["IP", "MAC", "GATEWAY", "K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID"];
/// Before the end of the caller's patience: for the words that say what was waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// While somebody else has the store, it is looked so often whether that is an agent.
const SLICE: Duration = Duration::from_secs(1);
/// Between two looks where the kernel gives no watch.
const BLIND: Duration = Duration::from_millis(500);

/// The stores that are open in this process, by their directories as [`real`] has them.
static OPEN: Mutex<Option<HashMap<PathBuf, OpenStores>>> = Mutex::new(None);
/// Told when one of them has been opened, or could not be.
static OPENED: Condvar = Condvar::new();

#[derive(Default)]
struct OpenStores {
    store: Weak<PoolStore>,
    /// Open as long as the process lives: nobody else waits for it.
    lasting: bool,
    /// A thread opens it just now, and may wait for another process meanwhile.
    opening: bool,
}

/// A call needs all of a store. Set: there was no telling in short what is in it, and there should be.
#[derive(Clone, Copy)]
struct Whole {
    anew: bool,
}

/// What a thread opens; however that ends, others may try it next.
struct Opening<'d>(&'d Path);

/// Where a store is, and until when it is waited for.
pub(crate) struct StoreHandle {
    dir: PathBuf,
    deadline: Instant,
}

/// Every plugin of this process that has its addresses in this store's directory uses this store from now on, while it lives.
pub fn hold(store: &Arc<PoolStore>) {
    let known = OpenStores { store: Arc::downgrade(store), lasting: true, opening: false };
    open_stores().get_or_insert_default().insert(real(store.dir()), known);
}

/// Whether this process holds the store of this directory for its life.
pub(crate) fn is_held(dir: &Path) -> bool {
    // Most processes hold none, and then it does not matter where that is.
    if open_stores().is_none() {
        return false;
    }
    let dir = real(dir);
    open_stores().as_ref().and_then(|open| open.get(&dir)).is_some_and(OpenStores::is_held)
}

/// The directories of all stores that this process holds for its life.
pub(crate) fn held() -> Vec<PathBuf> {
    let held = |(dir, known): (&PathBuf, &OpenStores)| known.is_held().then(|| dir.clone());
    open_stores().as_ref().map(|open| open.iter().filter_map(held).collect()).unwrap_or_default()
}

/// A directory by the only name that it has, however it is spelt: symbolic links and `..` are followed. What is not there yet
/// is taken as it will be made.
fn real(dir: &Path) -> PathBuf {
    let there = dir.ancestors().find_map(|ancestor| Some((ancestor.canonicalize().ok()?, dir.strip_prefix(ancestor).ok()?)));
    let Some((mut path, rest)) = there else { return dir.to_owned() };
    for part in rest.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

fn open_stores() -> MutexGuard<'static, Option<HashMap<PathBuf, OpenStores>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl OpenStores ===

impl OpenStores {
    fn is_held(&self) -> bool {
        self.lasting && self.store.strong_count() > 0
    }
}

// === impl Opening ===

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(known) = open_stores().as_mut().and_then(|open| open.get_mut(self.0)) {
            known.opening = false;
        }
        OPENED.notify_all();
    }
}

// === impl StoreHandle ===

impl StoreHandle {
    pub(crate) fn of(data_dir: &str, cx: &Cx<'_>) -> Self {
        StoreHandle { dir: real(&cx.host.dirs.configured(data_dir, &cx.host.dirs.journal)), deadline: cx.deadline }
    }

    /// A pool that has no file may be one that the store has of a cluster, if there is a store.
    pub(crate) fn expect<T>(&self, read: Result<T, PoolError>) -> Result<Result<T, PoolError>, CniError> {
        match read {
            Err(missing) if self.is_nowhere() => Err(missing.into()),
            read => Ok(read),
        }
    }

    fn is_nowhere(&self) -> bool {
        matches!(self.dir.try_exists(), Ok(false))
    }

    /// The store. A process opens it once, however many attachments it makes at a time, and closes it when the last of them
    /// has what it asked for: other processes wait for it.
    pub(crate) fn open(&self) -> Result<Arc<PoolStore>, CniError> {
        self.open_or_find(Whole { anew: false }).map(|(store, _)| store)
    }

    /// Waits for other processes that have it.
    fn patiently<T>(&self, open: impl Fn(Instant) -> Result<T, PoolStoreError>) -> Result<T, CniError> {
        loop {
            match open(self.deadline.min(Instant::now() + SLICE)) {
                Err(e) if e.is_locked() && Instant::now() < self.deadline => {
                    // It is not going to give it back.
                    if ForAgent::is_there(&self.dir) {
                        return Err(CniError::new(
                            Code::TRY_AGAIN_LATER,
                            format!("the agent has just started to manage the addresses of pools: {e}"),
                        ));
                    }
                }
                opened => return Ok(opened?),
            }
        }
    }

    /// What was lost is not made anew yet: an address that looks free may be somebody's.
    fn is_known(&self) -> Result<(), CniError> {
        let mark = self.dir.join(ipam::RECOVERING);
        if matches!(mark.try_exists(), Ok(false)) {
            return Ok(());
        }
        let msg = "the journal of addresses was lost, and its rebuild by the agent has not finished: start the agent again, or, on a \
            host without one, run `netloom ipam check --rebuild`";
        Err(CniError { details: mark.display().to_string(), ..CniError::new(Code::TRY_AGAIN_LATER, msg) })
    }

    /// What a call about one attachment gets of what there is of that in the store: it costs the same whatever else is in use.
    fn in_part<T>(&self, id: &AttachmentId, call: impl FnOnce(&PoolStore) -> Result<T, CniError>) -> Result<Result<T, Whole>, CniError> {
        // Who has all of it does not read it again.
        let is_open = |known: &OpenStores| known.opening || known.store.strong_count() > 0;
        if open_stores().as_ref().and_then(|open| open.get(&self.dir)).is_some_and(is_open) {
            return Ok(Err(Whole { anew: false }));
        }
        Ok(match self.patiently(|until| PoolStore::open_part(&self.dir, until, &key(id)))? {
            None => Err(Whole { anew: true }),
            // Why not is told by who knows all of it.
            Some(part) => call(&part).map_err(|_| Whole { anew: false }),
        })
    }

    /// What `look` finds out about an attachment.
    pub(crate) fn look<T>(&self, id: &AttachmentId, look: impl Fn(&PoolStore) -> Result<T, CniError>) -> Result<T, CniError> {
        match self.in_part(id, &look)? {
            Ok(seen) => Ok(seen),
            Err(whole) => look(&self.open_or_find(whole)?.0),
        }
    }

    /// What a cluster has granted is granted to the place where the store was written: from a copy of it nothing is given out before an
    /// agent has found out that the other one is gone.
    fn is_here(&self, store: &PoolStore, asked: &Ask) -> Result<(), CniError> {
        let granted = |want: &::pool::Want| store.look(|all| all.origin(&want.pool).is_some_and(|origin| origin == Origin::Cluster));
        if !asked.wants.iter().any(granted) {
            return Ok(());
        }
        match ipam::StoreLocation::of(&self.dir).and_then(|here| here.is_another(&self.dir)) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let msg = "the journal of the cluster's pools was copied from another place, which may be in use: start this node's agent";
                Err(CniError { details: self.dir.display().to_string(), ..CniError::new(Code::TRY_AGAIN_LATER, msg) })
            }
            Err(e) => Err(CniError::new(Code::IO, e)),
        }
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The store, and whether it is this process's for its life.
    fn open_or_find(&self, Whole { anew }: Whole) -> Result<(Arc<PoolStore>, bool), CniError> {
        let mut open = open_stores();
        loop {
            let known = open.get_or_insert_default().entry(self.dir.clone()).or_default();
            if let Some(store) = known.store.upgrade() {
                return Ok((store, known.lasting));
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if !known.opening || left.is_zero() {
                known.opening = true;
                break;
            }
            open = OPENED.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        // Another process may have it for long: whoever is about another directory does not wait for that.
        drop(open);
        let opening = Opening(&self.dir);
        let store = Arc::new(self.patiently(|until| PoolStore::open_for_call(&self.dir, until, anew))?);
        let known = OpenStores { store: Arc::downgrade(&store), lasting: false, opening: false };
        open_stores().get_or_insert_default().insert(self.dir.clone(), known);
        drop(opening);
        Ok((store, false))
    }

    /// Grants what `ask` says when it is shown the store; where addresses are short, waits for them so long at the most. The
    /// pool's file is looked at again when it changes, so `ask` may be asked several times. `of`: the call's, which may end meanwhile.
    pub(crate) fn reserve<T>(
        &self,
        id: &AttachmentId,
        wait: Duration,
        file: &Path,
        of: &dyn Delegate,
        ask: impl Fn(&PoolStore) -> Result<(Ask, T), CniError>,
    ) -> Result<(Granted, T), CniError> {
        let begun = Instant::now();
        let until = self.deadline.checked_sub(LAST_WORDS).map_or(begun, |last| last.min(begun + wait));
        if !is_held(&self.dir) {
            self.is_known()?;
        }
        let part = self.in_part(id, |store| {
            let (asked, also) = ask(store)?;
            Ok((store.take_by(&asked, begun)?, also))
        });
        let whole = match part? {
            Ok(done) => return Ok(done),
            Err(whole) => whole,
        };
        let waiting = LongWait::new(of);
        loop {
            let (store, lasting) = self.open_or_find(whole)?;
            let seen = store.version();
            let (asked, also) = match ask(&store) {
                // It may come from the cluster yet.
                Err(e) if e.code == Code::TRY_AGAIN_LATER && store.expects() && Instant::now() < until => {
                    if !store.wait_past(seen, until) {
                        return Err(PoolStoreError::Abandoned.into());
                    }
                    continue;
                }
                // Where nothing is given out at all that is why.
                asked => asked.map_err(|e| said(store.closed().map_or(e, |why| PoolStoreError::Closed { why }.into()), begun))?,
            };
            if !lasting {
                self.is_here(&store, &asked)?;
            }
            let refused = match store.take_by(&asked, if lasting { until } else { begun }) {
                Ok(granted) => return Ok((granted, also)),
                Err(refused) => refused,
            };
            let soon = store.frees_in(&asked, &refused).map(|time| Instant::now() + time);
            let in_vain = store.in_vain(&asked, &refused, until);
            if lasting || Instant::now() >= until || !refused.may_pass() || in_vain.is_some() {
                return Err(said(in_vain.unwrap_or(refused).into(), begun));
            }
            // Watched before it is closed: what is given back from here on is told.
            let mut watch = Watch::on(&[self.dir.join(ipam::FREED), file.to_owned()]);
            drop(store);
            if !await_change(&mut watch, soon.map_or(until, |soon| soon.min(until)), &waiting) {
                return Err(PoolStoreError::Abandoned.into());
            }
        }
    }
}

/// Waits until something has changed or may have. `false`: nobody waits for the call any more.
fn await_change(watch: &mut Result<Watch, WatchError>, until: Instant, waiting: &LongWait<'_>) -> bool {
    while waiting.goes_on() {
        let left = until.saturating_duration_since(Instant::now());
        match watch.as_mut().map(|watch| watch.wait(Some(left.min(TURN)))) {
            Ok(Ok(changed)) if changed.is_empty() && left > TURN => {}
            Ok(Ok(_)) => return true,
            Ok(Err(_)) | Err(_) => {
                std::thread::sleep(left.min(BLIND));
                return true;
            }
        }
    }
    false
}

fn said(e: CniError, begun: Instant) -> CniError {
    let waited = begun.elapsed().as_secs();
    if waited == 0 { e } else { CniError { msg: format!("{} (waited {waited} s)", e.msg), ..e } }
}

/// A pool may be the cluster's, and is not here, or not yet; and why that may be so.
pub(crate) fn not_here(store: &PoolStore, pool: &str, why: impl Display) -> CniError {
    let held = |all: &Allocator| Family::ALL.into_iter().map(|family| all.usage(pool, family).held).sum::<u64>();
    let held = store.look(|all| if all.origin(pool) == Some(Origin::File) { held(all) } else { 0 });
    let why = match held {
        0 => why.to_string(),
        _ => format!(
            "attachments still have {held} addresses of this node's own pool of that name: the cluster's pool replaces it once the last \
                one is detached (docs/use/pools.md)"
        ),
    };
    CniError::new(Code::TRY_AGAIN_LATER, format!("pool {pool:?} is not granted to this node (yet): {why}"))
}

/// What an ADD was granted, which gives it back if it fails: not what the attachment had before, which may be alive.
pub(crate) fn granted(granted: Granted, at: StoreHandle, id: &AttachmentId, cx: &mut Cx<'_>) -> Lease {
    if let Granted::New(lease) = &granted {
        give_back(at, id, Some(lease.generation), cx);
    }
    granted.lease()
}

/// Another machine has an address that an attachment was granted: it has none of its addresses any more, and nobody gets that one.
pub(crate) fn met(at: &StoreHandle, id: &AttachmentId, conflict: &Conflict) -> Result<(), CniError> {
    let store = at.open()?;
    Ok(store.conflict(&key(id), conflict.address, &conflict.mac.to_string())?)
}

/// What is opened then is not kept from others until then.
pub(crate) fn give_back(at: StoreHandle, id: &AttachmentId, generation: Option<u64>, cx: &mut Cx<'_>) {
    let id = id.clone();
    cx.teardown.at(Stage::Leases, format!("free the addresses of {id}"), move |_| release(&at, &id, generation));
}

/// Gives back what an attachment holds.
pub(crate) fn release(at: &StoreHandle, id: &AttachmentId, generation: Option<u64>) -> Result<(), CniError> {
    // Where nobody was ever given anything, nothing is made.
    if at.is_nowhere() {
        return Ok(());
    }
    let release = |store: &PoolStore, lasting: bool| -> Result<bool, CniError> {
        let released = store.release(&key(id), generation)?.is_some();
        if released && !lasting {
            store.tell_others();
        }
        Ok(released)
    };
    let part = at.in_part(id, |store| match release(store, false)? {
        // It has no lease: whether something is kept for it a part does not tell.
        false if generation.is_none() => Err(CniError::new(Code::INTERNAL, "no lease")),
        _ => Ok(()),
    });
    let Err(whole) = part? else { return Ok(()) };
    let (store, lasting) = at.open_or_find(whole)?;
    release(&store, lasting)?;
    if generation.is_none() {
        // A DEL, and its links are gone: what another address manager had given it has no lease, and goes back at once.
        store.return_kept(&key(id))?;
    }
    Ok(())
}

/// The same for all attachments of a network but these.
pub(crate) fn give_back_others(at: StoreHandle, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) {
    let (network, valid) = (config.network.clone(), valid.to_vec());
    cx.teardown.at(Stage::Leases, format!("free addresses of {network}"), move |_| release_others(&at, &network, &valid));
}

/// Gives back what all attachments of a network hold but these.
pub(crate) fn release_others(at: &StoreHandle, network: &NetworkName, valid: &[AttachmentId]) -> Result<(), CniError> {
    if at.is_nowhere() {
        return Ok(());
    }
    let (store, lasting) = at.open_or_find(Whole { anew: false })?;
    let released = store.release_others(network.as_str(), &valid.iter().map(key).collect::<HashSet<_>>());
    if !lasting {
        store.tell_others();
    }
    Ok(released?)
}

/// An attachment as a store of pools knows it.
pub fn key(id: &AttachmentId) -> ::pool::Key {
    let (network, container, ifname) = (id.network.to_string(), id.container.to_string(), id.ifname.to_string());
    ::pool::Key { network, container, ifname }
}

pub(crate) fn pod(args: &CniArgs) -> Option<Pod> {
    let of = |name: &str| args.get(name).unwrap_or_default().to_owned();
    let pod = Pod { namespace: of("K8S_POD_NAMESPACE"), name: of("K8S_POD_NAME"), uid: of("K8S_POD_UID") };
    (!pod.name.is_empty()).then_some(pod)
}

/// The IPAMClaim whose addresses are meant, `namespace/name`: one of the pod's namespace (S28). A host that has a pool of its own
/// knows no claims, and goes on without.
pub(crate) fn claim(call: &Call<'_>) -> Option<String> {
    let args = call.config.raw().objects("args").rev().flat_map(|args| args.objects("cni").rev());
    let (cni, name) =
        args.into_iter().find_map(|cni| Some((cni, cni.str("ipam-claim-reference")?))).filter(|(_, name)| !name.is_empty())?;
    let claim = format!("{}/{name}", call.args.get("K8S_POD_NAMESPACE").unwrap_or_default());
    // What is another node's at the same time is for pods that say that they migrate.
    let migrates = cni.get("netloom.io/migration").and_then(json::Value::as_bool) == Some(true);
    Some(if migrates { ::pool::migrating(&claim) } else { claim })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_name() {
        let dir = std::env::temp_dir().join(format!("nl-real-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
        let dir = dir.canonicalize().unwrap();
        for (spelt, is) in [("a/b", "a/b"), ("a/../a/b/", "a/b"), ("link/b", "a/b"), ("link/c/../b", "a/b"), ("link/c/d", "a/c/d")] {
            assert_eq!(real(&dir.join(spelt)), dir.join(is), "{spelt}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
