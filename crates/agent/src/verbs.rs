//! CHECK, STATUS and GC, of every attachment of a pod.

use attach::{Lost, Record, RecordError};
use cni::{AttachmentId, CniError, Code, ContainerId};
use plugin::Host;

use crate::Agent;
use crate::call::{Request, Sandbox};
use crate::log::Line;

impl Agent {
    /// Whether everything that the sandbox has is still as it was made.
    pub(crate) fn check(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<(), CniError> {
        let record = self.records.read(&sandbox.container)?;
        let unknown = || CniError::new(Code::UNKNOWN_CONTAINER, format!("container {} is not attached by this agent", sandbox.container));
        let record = record.ok_or_else(unknown)?;
        let bad = self.attacher(request).check(&record, host, request.by).err().unwrap_or_default();
        CniError::first_of(bad.into_iter().map(CniError::from)).map_or(Ok(()), Err)
    }

    /// Whether an ADD could be served now: the default network is there and says so itself, records can be written, and the
    /// agent knows what the API server knows.
    pub(crate) fn status(&self, request: &Request, host: &mut Host) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        self.records.are_writable().map_err(|e| unavailable(e.into()))?;
        let default = self.default_network_now(&request.settings, request.by).map_err(unavailable)?;
        if let Some(why) = self.cluster.synced().missing() {
            return Err(CniError::new(Code::NOT_AVAILABLE, why));
        }
        let chain = self.chain_of(request);
        let asked = self.possible_pools(&default.list).into_iter().map(|list| chain.status(&list, host, request.by));
        first_done(asked).map_err(|e| e.within(&default.list.name))
    }

    /// Whatever the runtime does not name goes: sandboxes by their records, then what the plugins of every network that we
    /// know hold besides.
    pub(crate) fn gc(&self, request: &Request, valid: &[AttachmentId], host: &mut Host) -> Result<(), CniError> {
        let mut errors: Vec<CniError> = Vec::new();
        let mut lists = vec![self.default_network_now(&request.settings, request.by)?.list];
        let (mut kept, mut gone): (Vec<Record>, Vec<ContainerId>) = (Vec::new(), Vec::new());
        let attacher = self.attacher(request);
        // A plugin's own collection would free the address of a link that is retired, and still there.
        attacher.finish(&self.records.retired()?, host, request.by);
        for sandbox in self.records.sandboxes()? {
            let is_valid = valid.iter().any(|v| v.container == sandbox);
            match self.records.read(&sandbox) {
                Ok(Some(record)) => {
                    lists.extend(record.steps.iter().map(|step| step.list.clone()));
                    if is_valid { kept.push(record) } else { gone.push(sandbox) }
                }
                Ok(None) if is_valid => {}
                Err(e) if is_valid && !matches!(e, RecordError::Lost { .. }) => errors.push(e.into()),
                _ => gone.push(sandbox),
            }
        }
        for sandbox in gone {
            errors.extend(attacher.del(&sandbox, Lost::EveryAddress, host, request.by).err().map(|e| CniError::from(e).within(&sandbox)));
            self.retired.forget(&sandbox);
        }
        // What belongs to a record that cannot be read must stay: then no plugin is asked to free what is nobody's. Nor is one
        // where the runtime names containers that another program attached: what they have on which networks only that knows.
        let stranger = valid.iter().find(|v| kept.iter().all(|record| record.sandbox != v.container));
        if let Some(stranger) = stranger {
            let why = "another program attached it: no plugin is asked to free what is nobody's until the runtime has deleted it";
            Line::info("gc").with("container", &stranger.container).with("what", why).end();
        }
        if errors.is_empty() && stranger.is_none() {
            let kept: Vec<AttachmentId> = kept.iter().flat_map(attachments).collect();
            let chain = self.chain_of(request);
            lists.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
            lists.dedup_by(|a, b| a.name == b.name);
            for list in lists {
                let own: Vec<AttachmentId> = kept.iter().filter(|id| id.network == list.name).cloned().collect();
                errors.extend(chain.gc(&list, Some(&own), host, request.by).err().map(|e| e.within(&list.name)));
            }
        }
        CniError::first_of(errors).map_or(Ok(()), Err)
    }
}

/// The first of several that succeeds; else the first one's error.
pub(crate) fn first_done(mut of: impl Iterator<Item = Result<(), CniError>>) -> Result<(), CniError> {
    match of.next() {
        Some(Err(e)) if of.all(|one| one.is_err()) => Err(e),
        _ => Ok(()),
    }
}

fn attachments(record: &Record) -> impl Iterator<Item = AttachmentId> + '_ {
    let id = |step: &attach::Step| AttachmentId {
        network: step.list.name.clone(),
        container: record.sandbox.clone(),
        ifname: step.ifname.clone(),
    };
    record.steps.iter().map(id)
}
