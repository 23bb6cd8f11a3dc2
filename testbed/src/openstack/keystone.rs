//! Keystone.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::request;
use crate::control::free_port;
use crate::sweep::Claim;
use crate::{Den, Process};

/// Until the server answers.
const PATIENCE: Duration = Duration::from_secs(180);
/// The administrator's password.
const PASSWORD: &str = "secret";
/// The one region.
const REGION: &str = "RegionOne";

/// A Keystone that nobody else uses, with a user `admin` of a project `admin` in the domain `Default`. It ends as [`super::Neutron`] does.
#[derive(Debug)]
pub struct Keystone {
    // Dropped in this order: the process is a child of who made it.
    server: Option<Process>,
    den: Den,
    port: u16,
    dir: PathBuf,
    _claim: Claim,
}

// === impl Keystone ===

impl Keystone {
    /// Starts one in `/run/netloom-testbed/NAME` whose tokens end after so many seconds.
    ///
    /// # Errors
    /// If this is not root's process, the packages are missing, or it does not start.
    pub fn named(name: &str, expiration: u32) -> Result<Self> {
        if !Path::new("/usr/bin/keystone-wsgi-public").exists() {
            bail!("keystone-wsgi-public is missing: run scripts/setup.sh neutron");
        }
        let claim = Claim::new(name)?;
        let dir = claim.dir().join("keystone");
        for inside in ["fernet", "credential"] {
            std::fs::create_dir_all(dir.join(inside)).with_context(|| format!("{}", dir.display()))?;
        }
        let mut keystone = Keystone { server: None, den: Den::new(None, "")?, port: free_port(0)?, dir, _claim: claim };
        keystone.prepare(expiration)?;
        keystone.start()?;
        Ok(keystone)
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The password of `admin`.
    #[must_use]
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Asks it as `admin`, with a token of this moment: `POST`, `/users/ID/application_credentials`, ...
    ///
    /// # Errors
    /// If the status is none of success: with what it said.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let token = self.token()?;
        let (status, answer) = request(method, &format!("{}/v3/{path}", self.url()), Some(&token), body)?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status} {answer}");
        }
        Ok(answer)
    }

    /// The ID of the user `admin`, and of its project.
    ///
    /// # Errors
    /// If Keystone does not say it.
    pub fn ids(&self) -> Result<(String, String)> {
        let id = |answer: &Value, place: &str| answer.pointer(place).and_then(Value::as_str).map(str::to_owned).context("no ID");
        let users = self.ask("GET", "users?name=admin", &Value::Null)?;
        let projects = self.ask("GET", "projects?name=admin", &Value::Null)?;
        Ok((id(&users, "/users/0/id")?, id(&projects, "/projects/0/id")?))
    }

    /// Puts a service into the catalogue, with one endpoint for each interface.
    pub(super) fn add_service(&self, kind: &str, url: &str) -> Result<()> {
        let service = self.ask("POST", "services", &json!({"service": {"type": kind, "name": kind}}))?;
        for interface in ["public", "internal"] {
            let endpoint = json!({"service_id": service.pointer("/service/id"), "interface": interface, "region_id": REGION, "url": url});
            self.ask("POST", "endpoints", &json!({ "endpoint": endpoint }))?;
        }
        Ok(())
    }

    /// What a service behind this Keystone has in its configuration. It asks about each token anew, so that one that has ended is no good.
    pub(super) fn middleware(&self) -> String {
        let url = self.url();
        format!(
            "[keystone_authtoken]\nwww_authenticate_uri = {url}\nauth_url = {url}\nauth_type = password\nusername = admin\npassword = {PASSWORD}\n\
             project_name = admin\nuser_domain_name = Default\nproject_domain_name = Default\nregion_name = {REGION}\ntoken_cache_time = 0\n\
             service_token_roles_required = true\n"
        )
    }

    fn prepare(&self, expiration: u32) -> Result<()> {
        let dir = self.dir.display();
        let conf = format!(
            "[database]\nconnection = sqlite:///{dir}/keystone.sqlite?timeout=600\n[fernet_tokens]\nkey_repository = {dir}/fernet\n\
             [credential]\nkey_repository = {dir}/credential\n[token]\nexpiration = {expiration}\nallow_expired_window = 0\n"
        );
        std::fs::write(self.dir.join("keystone.conf"), conf).context("keystone.conf cannot be written")?;
        let owner = ["--keystone-user", "root", "--keystone-group", "root"];
        self.manage("db_sync", &[])?;
        super::let_read_while_written(&self.den, &self.dir.join("keystone.sqlite"))?;
        self.manage("fernet_setup", &owner)?;
        self.manage("credential_setup", &owner)?;
        let url = format!("{}/v3", self.url());
        // Services ask at the internal one.
        let urls = ["--bootstrap-public-url", &url, "--bootstrap-internal-url", &url];
        self.manage("bootstrap", &[&["--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION][..], &urls].concat())
    }

    fn manage(&self, verb: &str, args: &[&str]) -> Result<()> {
        let mut command = self.den.command("/usr/bin/keystone-manage");
        command.arg("--config-file").arg(self.dir.join("keystone.conf")).arg(verb).args(args);
        let output = command.output().context("keystone-manage cannot be started")?;
        crate::den::printed(&format!("keystone-manage {verb}"), output).map(drop)
    }

    fn start(&mut self) -> Result<()> {
        let mut command = self.den.command("/usr/bin/keystone-wsgi-public");
        command.env("OS_KEYSTONE_CONFIG_DIR", &self.dir).args(["--host", "127.0.0.1", "--port", &self.port.to_string(), "--"]);
        command.arg("--config-file").arg(self.dir.join("keystone.conf"));
        let mut server = Process::spawn(command, "keystone-wsgi-public", &self.dir.join("output.log"))?;
        let (address, url) = (("127.0.0.1", self.port), format!("{}/v3", self.url()));
        let answers =
            || TcpStream::connect(address).is_ok() && request("GET", &url, None, &Value::Null).is_ok_and(|(status, _)| status == 200);
        server.until("it answers", PATIENCE, Duration::from_millis(100), answers)?;
        self.server = Some(server);
        Ok(())
    }

    /// A token of `admin` for its project.
    ///
    /// # Errors
    /// If Keystone gives none.
    pub fn token(&self) -> Result<String> {
        // The token is in a header: curl prints it.
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {"name": "admin", "domain": domain, "password": PASSWORD}}},
            "scope": {"project": {"name": "admin", "domain": domain}},
        }});
        let url = format!("{}/v3/auth/tokens", self.url());
        let args =
            ["-sS", "--noproxy", "*", "-D", "-", "-o", "/dev/null", "-H", "Content-Type: application/json", "-d", &body.to_string(), &url];
        let printed = self.den.run(&["curl"].into_iter().chain(args).collect::<Vec<_>>())?;
        let header = |line: &str| {
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("x-subject-token")).map(|(_, v)| v.trim().to_owned())
        };
        printed.lines().find_map(header).with_context(|| format!("no token: {printed}"))
    }
}
