//! One call of a plugin.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, Mac, PluginType};
use linux::{Link, Netns};

use crate::{About, Draft, Host, Restore, Teardown};

/// What ADD, CHECK and DEL are about.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The attachment.
    pub id: &'a AttachmentId,
    /// The container's namespace; `None` on a DEL whose namespace is gone or was not told.
    pub netns: Option<&'a Arc<Netns>>,
    /// The plugin's configuration.
    pub config: &'a Config,
    /// `CNI_ARGS`.
    pub args: &'a CniArgs,
    /// The result of the plugins before this one (ADD), or of the whole chain's ADD (CHECK, DEL).
    pub prev: Option<&'a AddResult>,
}

/// What a plugin works with.
pub struct Cx<'a> {
    /// The host's side of the kernel.
    pub host: &'a mut Host,
    /// What is to go: on ADD if it fails, on DEL in any case.
    pub teardown: &'a mut Teardown,
    /// How to reach another plugin, an IPAM plugin above all.
    pub delegate: &'a dyn Delegate,
    /// When the caller's patience ends.
    pub deadline: Instant,
    /// Set by an IPAM plugin in its ADD: who puts its addresses on an interface asks the network first whether another machine
    /// has them, and says so ([`Delegate::conflict`]).
    pub probe: bool,
    /// Who looks at what is about to be done, before it is ([`Cx::review`]).
    pub review: Option<&'a mut ReviewChange<'a>>,
}

/// What a plugin is about to do, as it turns out during an ADD: its configuration alone does not tell.
#[derive(Debug, Clone, Copy)]
pub enum PlannedChange<'a> {
    /// The container, and the host for it, get what a result has.
    Result(&'a AddResult),
    /// The container gets a hardware address that is made of another address of its.
    Mac(&'a Mac),
    /// An interface of the container stands on this link of the host.
    Parent(&'a Link),
    /// The container alone has this link of the host.
    Moved(&'a Link),
    /// This bridge of the host gets a smaller MTU.
    Mtu(&'a Link, u32),
}

/// Looks at what a plugin is about to do; its error ends the ADD.
pub type ReviewChange<'a> = dyn FnMut(PlannedChange<'_>, &mut Host) -> Result<(), CniError> + 'a;

/// Another machine has an address that an IPAM plugin has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Who has answered for it.
    pub mac: Mac,
}

/// A CNI plugin (SPEC 3 to 5).
pub trait Plugin: Sync {
    /// What it says of itself.
    fn about(&self) -> &'static About;

    /// Whether ADD would take this configuration, as far as that can be told without a container, a file or a kernel. ADD begins with the
    /// same functions, so that the two cannot differ.
    ///
    /// # Errors
    /// The error of ADD, with the key that it is about.
    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError>;

    /// What can be known to be wrong before the container is looked at: ADD and CHECK with it are refused before its namespace is
    /// opened.
    ///
    /// # Errors
    /// Code 7.
    fn refuse(&self, config: &Config) -> Result<(), CniError> {
        let _ = config;
        Ok(())
    }

    /// Attaches. Everything is noted in `x.teardown` before it is made.
    ///
    /// # Errors
    /// The CNI error that the runtime gets; the caller then commits the teardown.
    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError>;

    /// Of an IPAM plugin: another machine has an address that its ADD has given to this attachment. Nobody gets it for a while, and
    /// the attachment others instead; what gives them back is noted in `x.teardown`.
    ///
    /// # Errors
    /// Code 11 where there is no other one.
    fn conflict(&self, _: &Call<'_>, conflict: &Conflict, _: &mut Cx<'_>) -> Result<AddResult, CniError> {
        Err(conflict.of_a_plugin(self.about().name))
    }

    /// Whether the attachment is still as `call.prev` says.
    ///
    /// # Errors
    /// What has changed.
    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError>;

    /// Notes in `x.teardown` what is to go, and changes nothing itself. Repeatable; what is gone already is no error.
    ///
    /// # Errors
    /// What could not even be looked up.
    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError>;

    /// Whether ADD could be served now.
    ///
    /// # Errors
    /// Code 50 or 51 with the reason.
    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let _ = (config, cx);
        Ok(())
    }

    /// Notes in `x.teardown` what belongs to attachments of this network that are not in `valid`.
    ///
    /// # Errors
    /// What could not be looked up.
    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let _ = (config, valid, cx);
        Ok(())
    }

    /// Notes what the attachment has of the firewall by its configuration and result, as ADD makes it and CHECK looks for it, and
    /// changes nothing itself: to be put back where somebody has flushed it.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn restore(&self, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let _ = (call, cx, into);
        Ok(())
    }
}

impl std::fmt::Debug for dyn Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.about().name)
    }
}

/// What is said in a call that goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginMessage<'a> {
    /// What an executable wrote to its standard error.
    Stderr(&'a [u8]),
    /// What a built-in plugin finds odd.
    Warning(&'a str),
}

/// How a plugin calls another by its type (SPEC 4, "Plugin Delegation"), built in or external.
pub trait Delegate {
    /// Tells whoever hears a call that goes well.
    fn tell(&self, said: PluginMessage<'_>);
    /// The call begins to wait for somebody else (`true`), or goes on ([`crate::LongWait`]).
    fn waits(&self, begins: bool);
    /// Whether somebody still waits for what comes of the call.
    fn is_waited_for(&self) -> bool;
    /// Whether that IPAM plugin is there, and can be asked only once the interface is (an external one may need it).
    ///
    /// # Errors
    /// If there is no such plugin.
    fn needs_link(&self, kind: &PluginType) -> Result<bool, CniError>;
    /// ADD; what undoes it is noted in `x.teardown`.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn add(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError>;
    /// Another machine has an address of that ADD: what the attachment gets instead ([`Plugin::conflict`]).
    ///
    /// # Errors
    /// The other plugin's own error; code 11 of an external one, which is not asked.
    fn conflict(&self, kind: &PluginType, call: &Call<'_>, conflict: &Conflict, cx: &mut Cx<'_>) -> Result<AddResult, CniError>;
    /// CHECK.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn check(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError>;
    /// DEL, noted in `x.teardown`.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn del(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError>;
    /// STATUS.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn status(&self, kind: &PluginType, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError>;
    /// GC, noted in `x.teardown`.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn gc(&self, kind: &PluginType, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError>;
    /// What the other plugin has of the firewall, noted in `into`. Of an external plugin that is not known: nothing.
    ///
    /// # Errors
    /// The other plugin's own error.
    fn restore(&self, kind: &PluginType, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError>;
}

// === impl Cx ===

impl<'a> Cx<'a> {
    /// For one call.
    pub fn new(host: &'a mut Host, teardown: &'a mut Teardown, delegate: &'a dyn Delegate, deadline: Instant) -> Self {
        Cx { host, teardown, delegate, deadline, probe: false, review: None }
    }

    /// Whether a plugin may do something, asked before it does: give the host addresses or routes, of which a bridge's address would stay
    /// when the ADD is undone, as other pods may need it by then; or use a link, of which the name alone was known when the ADD began.
    ///
    /// # Errors
    /// That of who looks at it; none where nobody does.
    pub fn review(&mut self, foreseen: PlannedChange<'_>) -> Result<(), CniError> {
        self.review.as_mut().map_or(Ok(()), |look| look(foreseen, self.host))
    }
}

// === impl Conflict ===

impl Conflict {
    /// Why an ADD fails whose IPAM plugin has no other address.
    pub(crate) fn of_a_plugin(&self, plugin: &str) -> CniError {
        let Conflict { address, mac } = self;
        let msg = format!("{address} is used by another machine, {mac}, and {plugin} assigns no other address instead");
        CniError::new(Code::TRY_AGAIN_LATER, msg)
    }
}

// === impl Call ===

impl<'a> Call<'a> {
    /// The container's namespace.
    ///
    /// # Errors
    /// Code 8 if it was not told or does not exist.
    pub fn netns(&self) -> Result<&Arc<Netns>, CniError> {
        self.netns.ok_or_else(|| CniError::new(Code::INVALID_NETNS, "CNI_NETNS: the container's network namespace does not exist"))
    }

    /// The previous result, which CHECK and every chained plugin need.
    ///
    /// # Errors
    /// Code 7.
    pub fn prev(&self) -> Result<&AddResult, CniError> {
        self.prev.ok_or_else(without_prev)
    }

    /// The result of the plugins before this one, `name`, which is never the first one of a chain.
    ///
    /// # Errors
    /// Code 7, which begins with `text`, the reference plugin's own message.
    pub fn chained(&self, name: &str, text: &str) -> Result<&'a AddResult, CniError> {
        self.prev.ok_or_else(|| alone(name, text))
    }
}

/// Why a call fails that needs the result of an ADD.
pub(crate) fn without_prev() -> CniError {
    let msg = "Required prevResult missing: this call needs the result of the ADD before it";
    CniError::new(Code::INVALID_CONFIG, msg).at("type")
}

/// Why a plugin that changes what others made cannot be the first one.
pub(crate) fn alone(name: &str, text: &str) -> CniError {
    CniError::worded(text, format_args!("prevResult is missing; put {name} behind a plugin that makes an interface")).at("type")
}
