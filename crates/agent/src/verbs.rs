//! CHECK and STATUS, of every attachment of a pod.

use cni::{CniError, Code};
use plugin::Host;

use crate::Agent;
use crate::call::{Request, Sandbox};

impl Agent {
    /// Whether everything that the sandbox has is still as it was made.
    pub(crate) fn check(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<(), CniError> {
        let record = self.records.read(&sandbox.container)?;
        let Some(record) = record else {
            let unknown =
                || CniError::new(Code::UNKNOWN_CONTAINER, format!("container {} is not attached by this agent", sandbox.container));
            return self.check_of_kuryr(request, sandbox, host)?.then_some(()).ok_or_else(unknown);
        };
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
}

/// The first of several that succeeds; else the first one's error.
pub(crate) fn first_done(mut of: impl Iterator<Item = Result<(), CniError>>) -> Result<(), CniError> {
    match of.next() {
        Some(Err(e)) if of.all(|one| one.is_err()) => Err(e),
        _ => Ok(()),
    }
}
