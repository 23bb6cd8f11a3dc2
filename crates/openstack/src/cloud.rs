//! An OpenStack: where its Keystone is, who we are to it, and which of its Neutrons is ours.

use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Options;
use crate::{Auth, AuthError, WrittenOptions};

/// An OpenStack as a client needs to know it.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// Keystone's address; empty where nobody asks who we are.
    pub auth_url: String,
    /// Who we are.
    pub auth: Auth,
    /// The region of the catalogue; without one its first.
    pub region: Option<String>,
    /// Which of the catalogue's endpoints are used, the best first.
    pub interfaces: Vec<Interface>,
    /// Neutron's address, where it is not that of the catalogue.
    pub endpoint: Option<String>,
    /// Whom we trust.
    pub tls: Tls,
    /// How long one request may take.
    pub timeout: Option<Duration>,
}

/// From where an endpoint can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// From everywhere.
    Public,
    /// From inside of the cloud.
    Internal,
    /// By administrators.
    Admin,
}

/// Whom we trust, and what we show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The file of certificate authorities; without one, the machine's.
    pub ca: Option<PathBuf>,
    /// The files of our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is good enough.
    pub insecure: bool,
}

/// The section `[neutron]`.
struct Section<'a>(&'a WrittenOptions);

// === impl Cloud ===

impl Cloud {
    /// What the section `[neutron]` says.
    pub(crate) fn of_settings(given: &WrittenOptions) -> Result<Self, AuthError> {
        let section = Section(given);
        let interfaces = match given.list("neutron", "valid_interfaces") {
            none if none.is_empty() => section.get("endpoint_type").into_iter().collect(),
            some => some,
        };
        let seconds = given.number("neutron", "timeout");
        Cloud::new(&section, &interfaces, tls(&section, given.flag("neutron", "insecure").unwrap_or_default()), seconds)
    }

    pub(crate) fn new(options: &impl Options, interfaces: &[String], tls: Tls, seconds: Option<u64>) -> Result<Self, AuthError> {
        let auth = Auth::of(options)?;
        let endpoint = options.get("endpoint_override");
        let missing = |missing, auth_type| AuthError::Missing { missing, auth_type };
        let auth_url = match &auth {
            Auth::None if endpoint.is_none() => return Err(missing("endpoint_override", "none")),
            Auth::None => String::new(),
            Auth::Password { .. } => options.get("auth_url").ok_or(missing("auth_url", "password"))?,
            Auth::Token { .. } => options.get("auth_url").ok_or(missing("auth_url", "token"))?,
            Auth::ApplicationCredential { .. } => options.get("auth_url").ok_or(missing("auth_url", "v3applicationcredential"))?,
        };
        let interfaces = match interfaces {
            [] => vec![Interface::Public],
            some => some.iter().map(|name| Interface::parse(name)).collect::<Result<_, _>>()?,
        };
        let timeout = seconds.filter(|&seconds| seconds > 0).map(Duration::from_secs);
        Ok(Cloud { auth_url, auth, region: options.get("region_name"), interfaces, endpoint, tls, timeout })
    }
}

fn tls(options: &impl Options, insecure: bool) -> Tls {
    let file = |name: &str| options.get(name).map(PathBuf::from);
    // A certificate may have its key in the same file.
    let identity = file("certfile").map(|cert| (cert.clone(), file("keyfile").unwrap_or(cert)));
    Tls { ca: file("cafile"), identity, insecure }
}

// === impl Interface ===

impl Interface {
    /// Its name in the catalogue.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Interface::Public => "public",
            Interface::Internal => "internal",
            Interface::Admin => "admin",
        }
    }

    /// `public`, or `publicURL` as older files have it.
    fn parse(name: &str) -> Result<Self, AuthError> {
        match name.strip_suffix("URL").unwrap_or(name) {
            "public" => Ok(Interface::Public),
            "internal" => Ok(Interface::Internal),
            "admin" => Ok(Interface::Admin),
            _ => Err(AuthError::Interface(name.to_owned())),
        }
    }
}

// === impl Section ===

impl Options for Section<'_> {
    fn get(&self, name: &str) -> Option<String> {
        self.0.text("neutron", name).map(str::to_owned)
    }
}
