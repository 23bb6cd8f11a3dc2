//! What DHCPv4 and DHCPv6 have in common: a grant that is extended, and asked for again when it is over.

use std::net::IpAddr;
use std::time::Duration;

use cni::AddResult;
use json::Object;
use linux::Inside;

use crate::link::Link;
use crate::times::Times;
use crate::trouble::Trouble;
use crate::wanted::Wanted;

/// Who asks, where, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) inside: &'a Inside,
    pub(crate) link: &'a Link,
    pub(crate) wanted: &'a Wanted,
    /// The client's identifier, of the family.
    pub(crate) client_id: &'a [u8],
    /// Servers are to answer to all.
    pub(crate) broadcast: bool,
    /// How long one message waits for its answer.
    pub(crate) wait: Duration,
    /// Somebody waits for the outcome.
    pub(crate) hurried: bool,
    /// Whether nobody waits any more.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

/// What a server granted.
pub(crate) trait Grant: Clone + Sized {
    /// The identifier that a client says.
    fn client_id(id: &cni::AttachmentId) -> Vec<u8>;
    /// The address.
    fn address(&self) -> IpAddr;
    /// When it is to be renewed.
    fn times(&self) -> Times;
    /// Adds address, routes and name servers to a result.
    fn add_to(&self, result: &mut AddResult, wanted: &Wanted) -> Result<(), Trouble>;
    /// Asks for more time: the server that granted it, or all.
    fn extend(&self, ask: Ask<'_>, all: bool) -> Result<Self, Trouble>;
    /// Asks for the same address, or another one, after it has ended; `first` is the first attempt.
    fn again(&self, ask: Ask<'_>, first: bool) -> Result<Self, Trouble>;
    /// Gives it back.
    fn release(&self, ask: Ask<'_>) -> Result<(), Trouble>;
    /// As it is kept.
    fn to_object(&self) -> Object;
    /// From what was kept.
    fn from_object(o: &Object) -> Option<Self>;
}
