//! Neutron.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rabbit::Rabbit;
use super::{Keystone, request};
use crate::control::free_port;
use crate::sweep::Claim;
use crate::{Den, Process, Signal};

/// Until the server answers. It is 3 seconds on an idle machine, and more than 180 on one with twenty compilers.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long the server may take to end by itself.
const ENDING: Duration = Duration::from_secs(20);

/// A Neutron that nobody else uses. Its processes end, and its directory goes, when it is dropped; the processes end also when the test that
/// made it is killed.
#[derive(Debug)]
pub struct Neutron {
    // Dropped in this order: the process is a child of who made it.
    server: Option<Process>,
    bus: Option<Rabbit>,
    den: Den,
    port: u16,
    dir: PathBuf,
    _claim: Claim,
}

/// How one is configured.
#[derive(Debug)]
struct Configuration {
    /// `ml2_conf.ini`.
    ml2: String,
    /// `service_plugins`.
    plugins: &'static str,
    /// `pagination_max_limit`; -1: none.
    page: i32,
    /// Whether it has a message bus.
    has_bus: bool,
}

// === impl Configuration ===

impl Default for Configuration {
    /// Lists of a test have several pages.
    fn default() -> Self {
        Configuration { ml2: ML2.to_owned(), plugins: "trunk,qos", page: 5, has_bus: false }
    }
}

// === impl Neutron ===

impl Neutron {
    /// Starts one in `/run/netloom-testbed/NAME`, ready to be asked: with Keystone before it, which gets it into its catalogue, or without
    /// anybody who asks who one is.
    ///
    /// # Errors
    /// If this is not root's process, the packages are missing, or it does not start: with the end of its log.
    pub fn named(name: &str, keystone: Option<&Keystone>) -> Result<Self> {
        Neutron::made(name, keystone, &Configuration::default())
    }

    /// The same, with pages as long as who lists wants them.
    ///
    /// # Errors
    /// As [`Neutron::named`].
    pub fn with_long_pages(name: &str) -> Result<Self> {
        Neutron::made(name, None, &Configuration { page: -1, ..Configuration::default() })
    }

    /// The same as most clouds have it: a port gets its tags after it was made (without `tag_ports_during_bulk_creation`).
    ///
    /// # Errors
    /// As [`Neutron::named`].
    pub fn without_new_tags(name: &str) -> Result<Self> {
        let ml2 = ML2.replace(",tag_ports_during_bulk_creation", "");
        Neutron::made(name, None, &Configuration { ml2, ..Configuration::default() })
    }

    /// The same with routers.
    ///
    /// # Errors
    /// As [`Neutron::named`].
    pub fn with_routers(name: &str) -> Result<Self> {
        Neutron::made(name, None, &Configuration { plugins: "trunk,qos,router", ..Configuration::default() })
    }

    /// One with a message bus, whose ports are bound and wired by real agents ([`super::SwitchAgent`]) and nobody else.
    ///
    /// # Errors
    /// As [`Neutron::named`].
    pub fn with_agents(name: &str) -> Result<Self> {
        Neutron::made(name, None, &Configuration { ml2: ML2.replace("fakebind,", ""), has_bus: true, ..Configuration::default() })
    }

    /// `127.0.0.1:PORT`: where the bus is, if it has one.
    #[must_use]
    pub fn bus(&self) -> Option<String> {
        self.bus.as_ref().map(Rabbit::address)
    }

    fn made(name: &str, keystone: Option<&Keystone>, configuration: &Configuration) -> Result<Self> {
        if !Path::new("/usr/bin/neutron-server").exists() {
            bail!("neutron-server is missing: run scripts/setup.sh neutron");
        }
        let claim = Claim::new(name)?;
        let dir = claim.dir().join("neutron");
        for inside in ["state", "lock", "policy.d", "drivers/fakebind-0.1.dist-info"] {
            std::fs::create_dir_all(dir.join(inside)).with_context(|| format!("{}", dir.display()))?;
        }
        let bus = configuration.has_bus.then(|| Rabbit::start(claim.dir().join("rabbitmq"))).transpose()?;
        let mut neutron = Neutron { server: None, bus, den: Den::new(None, "")?, port: free_port(0)?, dir, _claim: claim };
        neutron.write_files(keystone, configuration)?;
        neutron.make_database()?;
        if let Some(keystone) = keystone {
            keystone.add_service("network", &neutron.url())?;
        }
        neutron.start()?;
        Ok(neutron)
    }

    /// Starts the server on the port that it had, and waits until it answers. Does nothing if it runs.
    ///
    /// # Errors
    /// If it does not answer within fifteen minutes: with the end of its log.
    pub fn start(&mut self) -> Result<()> {
        if self.server.as_mut().is_some_and(|server| server.alive().is_ok()) {
            return Ok(());
        }
        let mut command = self.program("/usr/bin/neutron-server");
        command.env("PYTHONPATH", self.dir.join("drivers")).arg("--log-file").arg(self.log());
        let mut server = Process::spawn(command, "neutron-server", &self.dir.join("output.log"))?;
        let (address, url) = (("127.0.0.1", self.port), self.url());
        let answers =
            || TcpStream::connect(address).is_ok() && request("GET", &url, None, &Value::Null).is_ok_and(|(status, _)| status == 200);
        let ready = server.until("it answers", PATIENCE, Duration::from_millis(100), answers);
        ready.with_context(|| self.end_of_log())?;
        self.server = Some(server);
        Ok(())
    }

    /// Ends the server, as an upgrade does. [`Neutron::start`] starts it again.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop(&mut self) -> Result<()> {
        match self.server.take() {
            Some(mut server) => server.stop(ENDING).map(drop),
            None => Ok(()),
        }
    }

    /// Freezes the server: connections are accepted by the kernel, and nobody answers. Its workers go on, which answer no request.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> Result<()> {
        self.server.as_ref().context("neutron-server does not run")?.signal(Signal::Stop)
    }

    /// Undoes [`Neutron::pause`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> Result<()> {
        self.server.as_ref().context("neutron-server does not run")?.signal(Signal::Continue)
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks it, as the administrator who needs no token: `POST`, `networks`, `{"network": {...}}`.
    ///
    /// # Errors
    /// If the status is none of success: with what it said.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = request(method, &format!("{}/v2.0/{path}", self.url()), None, body)?;
        if !(200..300).contains(&status) {
            let why = if status >= 500 { self.end_of_log() } else { String::new() };
            bail!("{method} {path}: {status} {answer} {why}");
        }
        Ok(answer)
    }

    /// What its database says, row by row, each value a text: the oracle beside the API. It may also change it, as an agent's report does.
    ///
    /// # Errors
    /// If SQLite refuses the statement.
    pub fn sql(&self, statement: &str) -> Result<Vec<Vec<String>>> {
        const SCRIPT: &str = "import json, sqlite3, sys\n\
            with sqlite3.connect(sys.argv[1], timeout=60) as db:\n\
            \x20   print(json.dumps([[str(value) for value in row] for row in db.execute(sys.argv[2])]))";
        let database = self.database().display().to_string();
        let printed = self.den.run(&["/usr/bin/python3", "-c", SCRIPT, &database, statement])?;
        serde_json::from_str(&printed).context("rows")
    }

    /// The end of the server's log.
    #[must_use]
    pub fn end_of_log(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("the end of {}:\n{}", self.log().display(), lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n"))
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn database(&self) -> PathBuf {
        self.dir.join("neutron.sqlite")
    }

    fn connection(&self) -> String {
        // A request that has waited 5 seconds for another one's transaction would be answered with 500.
        format!("sqlite:///{}?timeout=600", self.database().display())
    }

    /// A program of Neutron's with its files of configuration.
    fn program(&self, name: &str) -> std::process::Command {
        let mut command = self.den.command(name);
        for file in ["neutron.conf", "ml2_conf.ini"] {
            command.arg("--config-file").arg(self.dir.join(file));
        }
        command
    }

    fn make_database(&self) -> Result<()> {
        let script = self.dir.join("database.py").display().to_string();
        self.den.run(&["/usr/bin/python3", &script, &self.database().display().to_string()])?;
        super::let_read_while_written(&self.den, &self.database())?;
        let mut stamp = self.program("/usr/bin/neutron-db-manage");
        let output = stamp.args(["stamp", "heads"]).output().context("neutron-db-manage cannot be started")?;
        crate::den::printed("neutron-db-manage stamp heads", output).map(drop)
    }

    fn write_files(&self, keystone: Option<&Keystone>, configuration: &Configuration) -> Result<()> {
        let Configuration { ml2, plugins, page, .. } = configuration;
        let write = |name: &str, text: &str| std::fs::write(self.dir.join(name), text).with_context(|| format!("{name} cannot be written"));
        write("drivers/fakebind.py", include_str!("fakebind.py"))?;
        write("drivers/fakebind-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: fakebind\nVersion: 0.1\n")?;
        let points = "[neutron.ml2.mechanism_drivers]\nfakebind = fakebind:FakeBind\n";
        write("drivers/fakebind-0.1.dist-info/entry_points.txt", points)?;
        write("database.py", include_str!("database.py"))?;
        write("ml2_conf.ini", ml2)?;
        let (strategy, paste, middleware) = match keystone {
            None => ("noauth", "/usr/lib/python3/dist-packages/neutron/tests/etc/api-paste.ini", String::new()),
            Some(keystone) => ("keystone", "/usr/share/neutron-common/api-paste.ini", keystone.middleware()),
        };
        let (dir, port, connection) = (self.dir.display(), self.port, self.connection());
        // With an in-process bus all work is in one process. An agent counts as down after 75 s without a report; where there is none, never.
        let (bus, workers, down) = match &self.bus {
            None => ("fake:/".to_owned(), 0, 2_147_483),
            Some(bus) => (Rabbit::url(&bus.address()), 1, 75),
        };
        write(
            "neutron.conf",
            &format!(
                "[DEFAULT]\nbind_host = 127.0.0.1\nbind_port = {port}\nauth_strategy = {strategy}\napi_paste_config = {paste}\n\
             core_plugin = ml2\nservice_plugins = {plugins}\ntransport_url = {bus}\nstate_path = {dir}/state\n\
             pagination_max_limit = {page}\napi_workers = 0\nrpc_workers = {workers}\nrpc_state_report_workers = 0\nagent_down_time = {down}\n\
             notify_nova_on_port_status_changes = false\nnotify_nova_on_port_data_changes = false\n\
             [database]\nconnection = {connection}\n[oslo_concurrency]\nlock_path = {dir}/lock\n[oslo_policy]\npolicy_dirs = {dir}/policy.d\n\
             {QUOTAS}{middleware}",
            ),
        )
    }
}

/// No limits, unless a test sets one.
const QUOTAS: &str = "[quotas]\nquota_driver = neutron.db.quota.driver_nolock.DbQuotaNoLockDriver\ndefault_quota = -1\nquota_network = -1\n\
    quota_subnet = -1\nquota_port = -1\nquota_security_group = -1\nquota_security_group_rule = -1\n";

/// Without a driver that knows trunks, the trunk plugin refuses to start: hence Open vSwitch, which binds nothing without its agents.
const ML2: &str = "[ml2]\ntype_drivers = flat,vlan,vxlan,local\ntenant_network_types = vxlan\nmechanism_drivers = fakebind,openvswitch\n\
    extension_drivers = port_security,qos,tag_ports_during_bulk_creation\n[ml2_type_flat]\nflat_networks = *\n\
    [ml2_type_vlan]\nnetwork_vlan_ranges = physnet1:100:199\n[ml2_type_vxlan]\nvni_ranges = 1:1000\n";
