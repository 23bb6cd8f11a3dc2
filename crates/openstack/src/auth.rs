//! Who we are to Keystone.

use secrecy::SecretString;

/// How Keystone is told who we are.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Auth {
    /// Nobody asks: a Neutron with `auth_strategy = noauth`.
    None,
    /// A user and a password.
    Password {
        /// Who.
        user: User,
        /// The password.
        password: SecretString,
        /// For what.
        scope: Scope,
    },
    /// An application credential, which has its project in it.
    ApplicationCredential {
        /// The user who made it, where it is named by its name; none where `id` is its ID.
        user: Option<User>,
        /// Its ID, or its name.
        id: String,
        /// Its secret.
        secret: SecretString,
    },
    /// A token that somebody else got. It ends, and nobody renews it.
    Token {
        /// The token.
        token: SecretString,
        /// For what.
        scope: Scope,
    },
}

/// A domain of Keystone's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// By its ID.
    Id(String),
    /// By its name.
    Name(String),
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By ID.
    Id(String),
    /// By name, in a domain.
    Name(String, Domain),
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Project {
    /// By ID.
    Id(String),
    /// By name, in a domain.
    Name(String, Domain),
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// What the user's default is.
    Unscoped,
    /// A project's resources.
    Project(Project),
    /// A domain's.
    Domain(Domain),
    /// All of them.
    System,
}

/// What of the credentials is missing or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// Another way to say who one is.
    #[error("auth_type {0} is not supported: use password, v3applicationcredential, token or none")]
    Type(String),
    /// An option is missing.
    #[error("{missing} is missing: auth_type {auth_type} needs it")]
    Missing {
        /// What.
        missing: &'static str,
        /// For what.
        auth_type: &'static str,
    },
    /// An interface of the catalogue that does not exist.
    #[error("the interface {0:?} does not exist: use public, internal or admin")]
    Interface(String),
}

/// The options of an authentication plugin, by the names that keystoneauth gives them.
pub(crate) trait Options {
    /// The value of one; none where it is empty.
    fn get(&self, name: &str) -> Option<String>;
}

// === impl Auth ===

impl Auth {
    /// What the options say.
    pub(crate) fn of(options: &impl Options) -> Result<Self, AuthError> {
        let given = options.get("auth_type");
        let has = |name: &str| options.get(name).is_some();
        // What is given says what is meant.
        let guessed = if has("application_credential_secret") {
            "v3applicationcredential"
        } else if has("token") && !has("password") {
            "token"
        } else {
            "password"
        };
        match given.as_deref().unwrap_or(guessed) {
            "none" | "noauth" => Ok(Auth::None),
            "password" | "v3password" => password(options),
            "v3applicationcredential" => application_credential(options),
            "token" | "v3token" => {
                let token = required(options, "token", "token")?.into();
                Ok(Auth::Token { token, scope: scope(options, "token")? })
            }
            other => Err(AuthError::Type(other.to_owned())),
        }
    }
}

fn password(options: &impl Options) -> Result<Auth, AuthError> {
    const TYPE: &str = "password";
    let user = match options.get("user_id") {
        Some(id) => User::Id(id),
        None => User::Name(required(options, "username", TYPE)?, user_domain(options, TYPE)?),
    };
    let password = required(options, "password", TYPE)?.into();
    Ok(Auth::Password { user, password, scope: scope(options, TYPE)? })
}

fn application_credential(options: &impl Options) -> Result<Auth, AuthError> {
    const TYPE: &str = "v3applicationcredential";
    let secret = required(options, "application_credential_secret", TYPE)?.into();
    if let Some(id) = options.get("application_credential_id") {
        return Ok(Auth::ApplicationCredential { user: None, id, secret });
    }
    let missing = AuthError::Missing { missing: "application_credential_id", auth_type: TYPE };
    let name = options.get("application_credential_name").ok_or(missing)?;
    let user = match options.get("user_id") {
        Some(id) => User::Id(id),
        None => User::Name(required(options, "username", TYPE)?, user_domain(options, TYPE)?),
    };
    Ok(Auth::ApplicationCredential { user: Some(user), id: name, secret })
}

fn scope(options: &impl Options, auth_type: &'static str) -> Result<Scope, AuthError> {
    if let Some(id) = options.get("project_id") {
        return Ok(Scope::Project(Project::Id(id)));
    }
    if let Some(name) = options.get("project_name") {
        let missing = AuthError::Missing { missing: "project_domain_name", auth_type };
        let domain = domain(options, "project_domain").ok_or(missing)?;
        return Ok(Scope::Project(Project::Name(name, domain)));
    }
    if options.get("system_scope").is_some() {
        return Ok(Scope::System);
    }
    let id = options.get("domain_id").map(Domain::Id);
    Ok(id.or_else(|| options.get("domain_name").map(Domain::Name)).map_or(Scope::Unscoped, Scope::Domain))
}

fn user_domain(options: &impl Options, auth_type: &'static str) -> Result<Domain, AuthError> {
    domain(options, "user_domain").ok_or(AuthError::Missing { missing: "user_domain_name", auth_type })
}

/// `PREFIX_id` or `PREFIX_name`, else the default of both users and projects.
fn domain(options: &impl Options, prefix: &str) -> Option<Domain> {
    let by = |prefix: &str| {
        let id = options.get(&format!("{prefix}_id")).map(Domain::Id);
        id.or_else(|| options.get(&format!("{prefix}_name")).map(Domain::Name))
    };
    by(prefix).or_else(|| by("default_domain"))
}

fn required(options: &impl Options, name: &'static str, auth_type: &'static str) -> Result<String, AuthError> {
    options.get(name).ok_or(AuthError::Missing { missing: name, auth_type })
}
