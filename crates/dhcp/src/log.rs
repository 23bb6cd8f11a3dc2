//! What the daemon tells, a line each on standard error: a service manager adds the time.

use std::fmt::Display;

use cni::AttachmentId;

/// Tells what happened to a lease.
pub(crate) fn lease(id: &AttachmentId, what: impl Display) {
    // In the order of the client's identifier, as it stands in a server's log.
    eprintln!("{}/{}/{}: {what}", id.container, id.network, id.ifname);
}

/// Tells what is no lease's business.
pub(crate) fn daemon(what: impl Display) {
    eprintln!("dhcp: {what}");
}
