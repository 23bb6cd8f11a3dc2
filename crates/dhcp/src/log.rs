//! What the daemon tells, a line each on standard error: a service manager adds the time.

use std::fmt::Display;
use std::io::Write as _;

use cni::AttachmentId;

/// Tells what happened to a lease.
pub(crate) fn lease(id: &AttachmentId, what: impl Display) {
    // In the order of the client's identifier, as it stands in a server's log.
    line(&format!("{}/{}/{}: {what}\n", id.container, id.network, id.ifname));
}

/// Tells what is no lease's business.
pub(crate) fn daemon(what: impl Display) {
    line(&format!("dhcp: {what}\n"));
}

/// In one piece: standard error is not buffered, and an ADD waits for each of them.
fn line(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
