//! Who we are, as a kubeconfig's user says it: a token, a password, a client certificate, or a program that knows.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::json;

/// A program is asked again this long before what it has told expires.
const AHEAD: Duration = Duration::from_secs(60);

/// Who we are.
#[derive(Default)]
pub(super) struct Credentials {
    /// What each request says.
    pub(super) authorization: Authorization,
    /// The client's key and certificates as PEM.
    pub(super) identity: Option<Vec<u8>>,
    /// From when on they are to be read again before the next request.
    pub(super) until: Option<SystemTime>,
}

/// The header of that name.
#[derive(Default)]
pub(super) enum Authorization {
    /// Nothing: a certificate, or nobody.
    #[default]
    None,
    /// Always the same.
    Value(HeaderValue),
    /// What stands in this file at the time.
    File(String),
}

/// What a program answers that knows who we are.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Time>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The credentials of a kubeconfig's user. May run a program, and wait for it.
///
/// # Errors
/// Why there are none.
pub(super) fn credentials(user: &AuthInfo) -> Result<Credentials, String> {
    let identity = identity(user)?;
    let authorization = if let Some(provider) = &user.auth_provider {
        // Clients of Kubernetes know no others since 1.26.
        match provider.config.get("id-token").filter(|_| ["oidc", "gcp"].contains(&provider.name.as_str())) {
            Some(token) => Authorization::Value(bearer(token)?),
            None => return Err(format!("auth-provider {}: not supported: use exec, as clients of Kubernetes do", provider.name)),
        }
    } else if let (Some(name), Some(password)) = (&user.username, &user.password) {
        Authorization::Value(secret(&format!("Basic {}", STANDARD.encode(format!("{name}:{}", password.expose_secret()))))?)
    } else if let Some(token) = &user.token {
        Authorization::Value(bearer(token.expose_secret())?)
    } else if let Some(file) = &user.token_file {
        Authorization::File(file.clone())
    } else if let Some(exec) = &user.exec {
        return told(exec, identity);
    } else {
        Authorization::None
    };
    Ok(Credentials { authorization, identity, until: None })
}

/// A token as the header has it.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {}", token.trim()))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::try_from(text).map_err(|_| "a token or a password has characters that are not allowed in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The client's key and certificates.
fn identity(user: &AuthInfo) -> Result<Option<Vec<u8>>, String> {
    let key = pem("client key", user.client_key_data.as_ref().map(ExposeSecret::expose_secret), user.client_key.as_deref())?;
    let certificate = pem("client certificate", user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    match (key, certificate) {
        (None, None) => Ok(None),
        (Some(key), Some(certificate)) => Ok(Some([key, certificate].join(&b'\n'))),
        (None, Some(_)) => Err("there is a client certificate, but no client-key".to_owned()),
        (Some(_), None) => Err("there is a client key, but no client-certificate".to_owned()),
    }
}

fn pem(what: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data).map(Some).map_err(|e| format!("{what}: not base64: {e}")),
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|e| format!("{what} {file}: {e}")),
        (None, None) => Ok(None),
    }
}

/// What the program tells, as <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>
/// has it.
fn told(exec: &ExecConfig, identity: Option<Vec<u8>>) -> Result<Credentials, String> {
    let name = exec.command.as_deref().ok_or("exec has no command")?;
    let answer = run(exec, name)?;
    let answer = std::str::from_utf8(&answer).ok().and_then(|text| yaml::json(text).ok());
    let answer = answer.and_then(|value| json::read::<ExecCredential>(&value).ok());
    let status = answer.and_then(|answer| answer.status).ok_or_else(|| format!("{name} did not print an ExecCredential with a status"))?;
    let expires = status.expiration_timestamp.map(|Time(at)| SystemTime::from(at));
    let identity = match (status.client_key_data, status.client_certificate_data) {
        (Some(key), Some(certificate)) => Some(format!("{key}\n{certificate}\n").into_bytes()),
        _ => identity,
    };
    let authorization = status.token.as_deref().map(bearer).transpose()?.map_or(Authorization::None, Authorization::Value);
    Ok(Credentials { authorization, identity, until: expires.map(|at| at.checked_sub(AHEAD).unwrap_or(at)) })
}

fn run(exec: &ExecConfig, name: &str) -> Result<Vec<u8>, String> {
    let interactive = exec.interactive_mode != Some(ExecInteractiveMode::Never) && std::io::stdin().is_terminal();
    let mut spec = json!({ "interactive": interactive });
    if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        spec = json!({ "interactive": interactive, "cluster": cluster });
    }
    let asked = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|one| Some((one.get("name")?, one.get("value")?)));
    let mut command = Command::new(Path::new(name));
    linux::local::lower_limit_of(&mut command);
    let output = command
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", asked.to_string())
        .stdin(if interactive { Stdio::inherit() } else { Stdio::null() })
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| match &exec.install_hint {
            Some(hint) if e.kind() == std::io::ErrorKind::NotFound => format!("{name}: {e}: {hint}"),
            _ => format!("{name}: {e}"),
        })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{name} failed ({})", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> AuthInfo {
        json::read(&yaml::json(text).unwrap()).unwrap()
    }

    fn header(text: &str) -> String {
        match credentials(&user(text)).unwrap().authorization {
            Authorization::Value(value) => value.to_str().unwrap().to_owned(),
            Authorization::File(file) => format!("the file {file}"),
            Authorization::None => String::new(),
        }
    }

    fn refused(text: &str) -> String {
        credentials(&user(text)).err().unwrap()
    }

    #[test]
    fn each_kind_of_credentials_has_its_header() {
        assert_eq!(header("{}"), "");
        assert_eq!(header("{token: abc, tokenFile: /t}"), "Bearer abc");
        assert_eq!(header("{tokenFile: /t}"), "the file /t");
        assert_eq!(header("{username: u, password: p, token: abc}"), "Basic dTpw");
        assert_eq!(header("{auth-provider: {name: oidc, config: {id-token: xyz}}}"), "Bearer xyz");
        assert_eq!(refused("{auth-provider: {name: azure}}"), "auth-provider azure: not supported: use exec, as clients of Kubernetes do");
        assert!(refused("{token: \"a\\nb\"}").contains("not allowed in a header"));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let identity = credentials(&user("{client-certificate-data: Yw==, client-key-data: aw==}")).unwrap().identity;
        assert_eq!(identity.as_deref(), Some(&b"k\nc"[..]));
        assert!(refused("{client-certificate-data: Yw==}").contains("no client-key"));
        assert!(refused("{client-key-data: aw==}").contains("no client-certificate"));
        assert!(refused("{client-key: /nowhere/key}").starts_with("client key /nowhere/key: No such file"));
        assert!(refused("{client-certificate-data: '?'}").starts_with("client certificate: not base64"));
    }

    #[test]
    fn a_program_tells_a_token_or_a_certificate_and_until_when() {
        let exec = |script: &str| {
            format!(
                "exec: {{apiVersion: v1, command: sh, env: [{{name: WHO, value: me}}], interactiveMode: Never, args: [-c, {script:?}]}}"
            )
        };
        assert_eq!(header(&exec("echo '{\"status\": {\"token\": \"'$WHO'\"}}'")), "Bearer me");
        assert_eq!(header(&exec("printf 'status:\\n  token: yaml\\n'")), "Bearer yaml");
        let asked = "case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*) echo '{\"status\": {\"token\": \"asked\"}}';; esac";
        assert_eq!(header(&exec(asked)), "Bearer asked");
        let told = "echo '{\"status\": {\"clientKeyData\": \"k\", \"clientCertificateData\": \"c\", \"expirationTimestamp\": \"1970-01-01T00:02:00Z\"}}'";
        let told = credentials(&user(&exec(told))).unwrap();
        assert_eq!(told.identity.as_deref(), Some(&b"k\nc\n"[..]));
        assert_eq!(told.until, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)));
        assert!(refused(&exec("echo s3cret")).ends_with("did not print an ExecCredential with a status"));
        assert_eq!(refused(&exec("exit 3")), "sh failed (exit status: 3)");
        let hint = "exec: {command: /nowhere/helper, installHint: install it}";
        assert!(refused(hint).ends_with("install it") && refused(hint).contains("/nowhere/helper"));
    }
}
