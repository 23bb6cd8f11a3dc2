//! How a cluster uses the OpenStack under it: plain types, no I/O.
//!
//! ```text
//!   kuryr.conf (oslo.config) --.
//!                              +--> Given: options, each with its place --> Settings, and Notes on what has no effect here
//!   our own file (YAML) -------'                                              |
//!   clouds.yaml, secure.yaml ---------------------------------------------> Cloud: who we are, and where Keystone is
//!
//!   Neutron's JSON <--> resource: Network, Subnet, Port, Trunk, and what is asked for
//! ```
//!
//! Both files of settings have the same options: `[neutron_defaults] pod_subnet` is `neutronDefaults: {podSubnet: ...}`. One table,
//! [`OPTIONS`], says what each of them is.

mod auth;
mod cloud;
mod clouds_yaml;
mod given;
mod ini;
mod options;
pub mod resource;
mod settings;

pub use auth::{Auth, AuthError, Domain, Project, Scope, User};
pub use cloud::{Cloud, Interface, Tls};
pub use clouds_yaml::{CloudsError, clouds};
pub use given::{GivenError, Note, NoteKind, WrittenOptions};
pub use ini::{IniError, IniProblem};
pub use options::{ConfOption, Effect, OPTIONS, Shape};
pub use settings::{NamespaceSubnets, Nested, Pool, PoolDriver, Settings, SettingsProblem, VifDriver};
