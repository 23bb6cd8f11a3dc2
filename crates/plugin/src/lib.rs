//! The contract that every CNI plugin meets, and what carries a plugin out.
//!
//! A plugin is five verbs over one call. The same implementation is reached as an executable of its own
//! ([`process::main`]), in-process from a chain, and as a delegate of another plugin ([`Finder`]):
//!
//! ```text
//!   environment + stdin --process--+
//!   chain of a network  ----------+--> Call --> Plugin::add --> AddResult, or CniError and the Teardown commits
//!   another plugin --Delegate-----+        \--> Plugin::del --> fills the Teardown, which commits once
//! ```
//!
//! What is wrong with a configuration is told without a call as well: [`Plugin::validate`] looks at a [`Draft`] with the functions that ADD
//! begins with.
//!
//! A plugin never reads the environment and never prints. What it makes it first writes into the [`Teardown`], so
//! that the roll-back of a failed ADD and DEL are the same code.

mod about;
mod call;
mod draft;
mod external;
mod finder;
mod gc;
mod host;
pub mod process;
mod restore;
mod teardown;
mod wait;

pub use about::{About, DNS, Key, Names, ROUTE};
pub use call::{Call, Conflict, Cx, Delegate, PlannedChange, Plugin, PluginMessage, ReviewChange};
pub use draft::{Draft, KnownLinks};
pub use external::{Bound, Environment, Exec, ExecError, Here, InHost, Output};
pub use finder::{Builtins, Finder, ITSELF, Prefer, ResolvedPlugin};
pub use gc::collect_beside;
pub use host::{Dirs, Host};
pub use restore::Restore;
pub use teardown::{Failure, LinkIdentity, LinkToDelete, Stage, Teardown};
pub use wait::LongWait;
