//! What attachments have of the firewall, put back where somebody has flushed it.
//!
//! ```text
//!   list + result --Chain::collect_restore--> Restore --put_back, of many attachments at once--> PutBack
//! ```

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, NetworkList};
use linux::nft::SetElement;
use plugin::{Call, Cx, Host, ResolvedPlugin, Restore, Teardown};
use rules::Restored;

use crate::made_by::Maker;
use crate::run::{Step, failed};
use crate::{Cache, Cached, Chain, MadeBy, Runtime};

/// An attachment, and what it has of the firewall.
#[derive(Debug)]
pub struct Firewall {
    /// The attachment.
    pub id: AttachmentId,
    /// What its plugins have noted.
    pub restore: Restore,
    /// What could not be told.
    pub errors: Vec<CniError>,
    /// Programs that may have made something of it, or not, as nobody kept who did: they are where plugins are looked for, under
    /// the names of built-in ones that would have something to put back. A name alone: no program of it is there.
    pub unsure: Vec<PathBuf>,
}

/// An attachment that was not wholly looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The attachment.
    pub id: AttachmentId,
    /// Who may have made it: see [`Firewall::unsure`].
    pub programs: Vec<PathBuf>,
}

/// What came of one attachment.
#[derive(Debug, Clone, PartialEq)]
pub struct PutBack {
    /// The attachment.
    pub id: AttachmentId,
    /// The elements that were missing, and are there again.
    pub elements: Vec<SetElement>,
    /// Those that are missing still, as another attachment's are at their place.
    pub taken: Vec<SetElement>,
    /// The rules that are no elements and were missing, and are there again.
    pub rules: Vec<String>,
    /// What could not be put back.
    pub errors: Vec<CniError>,
}

/// What came of many.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Each attachment, in the order in which they were given.
    pub attachments: Vec<PutBack>,
    /// Whether rules over elements that were in place were missing.
    pub rules: bool,
}

/// What came of a result cache.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CachedOutcome {
    /// The attachments of which something was missing.
    pub attachments: Vec<PutBack>,
    /// Whether rules over elements that were in place were missing.
    pub rules: bool,
    /// Every attachment of the cache.
    pub owners: Vec<AttachmentId>,
    /// What could not be read, or taken away again.
    pub errors: Vec<CniError>,
    /// Those that were not wholly looked at.
    pub skipped: Vec<Skipped>,
}

/// Whether something is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restoring {
    /// What is missing is put back.
    PutBack,
    /// What is missing of elements is told, and nothing is changed.
    Look,
}

// === impl PutBack ===

impl PutBack {
    /// Whether nothing was missing.
    pub fn is_nothing(&self) -> bool {
        self.elements.is_empty() && self.taken.is_empty() && self.rules.is_empty() && self.errors.is_empty()
    }
}

// === impl Firewall ===

impl Firewall {
    /// The attachment, if it was not wholly looked at.
    pub fn skipped(&self) -> Option<Skipped> {
        (!self.unsure.is_empty()).then(|| Skipped { id: self.id.clone(), programs: self.unsure.clone() })
    }
}

// === impl Chain ===

impl Chain {
    /// What an attachment with this result has of the firewall: of its built-in plugins, that is. One that is not there, or is
    /// external, is no error: what it has made is not ours. Which those are `made_by` tells, and else what is found now.
    pub fn collect_restore(
        &self,
        list: &NetworkList,
        runtime: &Runtime,
        result: &AddResult,
        made_by: &MadeBy,
        host: &mut Host,
        by: Instant,
    ) -> Firewall {
        let mut firewall = Firewall { id: runtime.id(list), restore: Restore::default(), errors: Vec::new(), unsure: Vec::new() };
        let netns = runtime.netns_if_there().ok().flatten();
        for plugin in &list.plugins {
            let Some(builtin) = self.finder.builtin(&plugin.kind) else { continue };
            let unsure = match (made_by.of(&plugin.kind), self.finder.find(&plugin.kind)) {
                (Some(Maker::Builtin), _) => None,
                (None, Ok(ResolvedPlugin::Builtin(_))) => self.finder.is_missing(&plugin.kind).then(|| PathBuf::from(plugin.kind.as_str())),
                (None, Ok(ResolvedPlugin::External(path))) => Some(path),
                (Some(Maker::Program(_)), _) | (None, Err(_)) => continue,
            };
            let Ok(config) = list.derive(plugin, &runtime.capability_args) else { continue };
            let step = Step { found: ResolvedPlugin::Builtin(builtin), config };
            let call = Call { id: &firewall.id, netns: netns.as_ref(), config: &step.config, args: &runtime.args, prev: Some(result) };
            let mut teardown = Teardown::new();
            let mut x = Cx::new(host, &mut teardown, &self.finder, by);
            if let Some(path) = unsure {
                let mut would_have = Restore::default();
                if builtin.restore(&call, &mut x, &mut would_have).is_err() || !would_have.is_empty() {
                    firewall.unsure.push(path);
                }
            } else if let Err(e) = builtin.restore(&call, &mut x, &mut firewall.restore) {
                firewall.errors.push(failed(&step, "restore", e));
            }
        }
        firewall
    }
}

impl Chain {
    /// Puts back what is missing of the firewall for every attachment of a result cache whose container lives. Its owner is a
    /// runtime with locks of its own, so that a DEL may meet this: who has no result any more a moment later loses what was put
    /// back, and so does one who has another.
    pub fn restore_cached(&self, cache: &Cache, mode: Restoring, host: &mut Host, by: Instant) -> CachedOutcome {
        let (cached, errors) = cache.of_this_boot();
        let mut outcome = CachedOutcome { errors: errors.into_iter().map(CniError::from).collect(), ..CachedOutcome::default() };
        outcome.owners = cached.iter().map(|one| one.id.clone()).collect();
        let mut all = Vec::with_capacity(cached.len());
        for one in cached {
            match self.of_cached(one, host, by) {
                Ok(Some(one)) => {
                    outcome.skipped.extend(one.skipped());
                    all.push(one);
                }
                Ok(None) => {}
                Err(e) => outcome.errors.push(e),
            }
        }
        // Programs are run for rules, so that much time may have passed for the last.
        let lives = |id: &AttachmentId| !matches!(cache.read(id), Ok(None));
        let Outcome { attachments, rules } = put_back(all, mode, lives, host);
        linux::crash_point!("restore-cached");
        outcome.rules = rules;
        outcome.attachments = attachments.into_iter().filter(|one| !one.is_nothing()).collect();
        if mode == Restoring::PutBack && outcome.attachments.iter().any(|one| !one.elements.is_empty()) {
            outcome.errors.extend(self.look_again(cache, &mut outcome.attachments, host, by).err());
        }
        outcome
    }

    /// `None` if it has nothing, or its container is gone.
    fn of_cached(&self, cached: Cached, host: &mut Host, by: Instant) -> Result<Option<Firewall>, CniError> {
        let Ok(list) = NetworkList::parse(&cached.config, None) else { return Ok(None) };
        let Some(result) = cached.result.clone() else { return Ok(None) };
        let made_by = cached.made_by.clone();
        let mut runtime = Runtime::of(cached);
        // The reference library writes the path only since 1.3: podman 4 and containerd 1 have older ones.
        runtime.netns = runtime.netns.or_else(|| sandbox(&result, runtime.ifname.as_str()));
        Ok(runtime.netns_if_there()?.map(|_| self.collect_restore(&list, &runtime, &result, &made_by, host, by)))
    }

    /// Twice: a DEL that took elements away just before they were put back removes its result a moment later, and an ADD of the
    /// same container has its own soon after that. Of whom nothing is known for sure nothing is taken.
    fn look_again(&self, cache: &Cache, done: &mut Vec<PutBack>, host: &mut Host, by: Instant) -> Result<(), CniError> {
        let mut suspects: HashSet<SetElement> = set(done.iter().flat_map(|one| one.elements.clone()).collect());
        for _ in 0..LOOKS {
            std::thread::sleep(SETTLE);
            let mut wanted = HashSet::new();
            for one in done.iter() {
                let cached = cache.read(&one.id).map_err(CniError::from);
                match cached.and_then(|cached| cached.map_or(Ok(None), |cached| self.of_cached(cached, host, by))) {
                    Ok(None) => {}
                    Ok(Some(now)) if now.errors.is_empty() => wanted.extend(now.restore.wanted().iter().cloned()),
                    Ok(Some(_)) | Err(_) => wanted.extend(one.elements.iter().cloned()),
                }
            }
            suspects.retain(|e| !wanted.contains(e));
            if suspects.is_empty() {
                return Ok(());
            }
        }
        for one in done.iter_mut() {
            one.elements.retain(|e| !suspects.contains(e));
        }
        done.retain(|one| !one.is_nothing());
        let gone: Vec<SetElement> = suspects.into_iter().collect();
        host.nft()?.delete_missing_ok(&gone).map_err(|e| CniError::new(Code::INTERNAL, e.to_string()))
    }
}

/// The namespace of the container, by the result.
fn sandbox(result: &AddResult, ifname: &str) -> Option<PathBuf> {
    let own = result.interfaces.iter().find(|interface| interface.name == ifname && !interface.sandbox.is_empty());
    own.map(|interface| interface.sandbox.clone().into())
}

/// How often is looked again, and what passes before each.
const LOOKS: usize = 2;
const SETTLE: Duration = Duration::from_secs(1);

/// How long all that fails may take together, of what programs outside are asked for: they may hang, and sandboxes are locked.
const PATIENCE: Duration = Duration::from_secs(20);

/// Puts back what is missing, of many attachments at once. One whose elements the kernel refuses holds up no other. Rules that are
/// no elements are put back only for who `lives` just before.
pub fn put_back(attachments: Vec<Firewall>, mode: Restoring, lives: impl Fn(&AttachmentId) -> bool, host: &mut Host) -> Outcome {
    let wanted: Vec<SetElement> = attachments.iter().flat_map(|one| one.restore.wanted()).cloned().collect();
    let together = elements(&wanted, mode, host);
    linux::crash_point!("restore-elements");
    let mut outcome = Outcome { rules: together.as_ref().is_ok_and(|done| done.rules), ..Outcome::default() };
    let together = together.ok().map(|done| (set(done.put_back), set(done.taken)));
    let mut patience = PATIENCE;
    for Firewall { id, restore, mut errors, .. } in attachments {
        let of = |all: &HashSet<SetElement>| restore.wanted().iter().filter(|e| all.contains(*e)).cloned().collect();
        let (put, taken) = match &together {
            Some((put, taken)) => (of(put), of(taken)),
            None => match elements(restore.wanted(), mode, host) {
                Ok(done) => {
                    outcome.rules |= done.rules;
                    (done.put_back, done.taken)
                }
                Err(e) => {
                    errors.push(e);
                    Default::default()
                }
            },
        };
        let mut rules = Vec::new();
        if mode == Restoring::PutBack && lives(&id) {
            let (more, failed) = restore.finish(&put, host, &mut patience);
            rules = more;
            errors.extend(failed);
            linux::crash_point!("restore-finished");
        }
        outcome.attachments.push(PutBack { id, elements: put, taken, rules, errors });
    }
    outcome
}

fn set(elements: Vec<SetElement>) -> HashSet<SetElement> {
    elements.into_iter().collect()
}

fn elements(wanted: &[SetElement], mode: Restoring, host: &mut Host) -> Result<Restored, CniError> {
    if wanted.is_empty() {
        return Ok(Restored::default());
    }
    let internal = |e: String| CniError::new(Code::INTERNAL, e);
    let nft = host.nft()?;
    match mode {
        Restoring::PutBack => rules::restore(nft, wanted).map_err(|e| internal(e.to_string())),
        Restoring::Look => rules::missing_of(nft, wanted).map_err(|e| internal(e.to_string())),
    }
}
