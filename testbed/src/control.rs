//! The control plane: etcd and the API server, and controller manager and scheduler where pods are to run.

mod store;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::den::printed;
use crate::sweep::Claim;
use crate::{Den, Process, Signal, peer};

/// How long each program may take until it answers. It is a second or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long each program may take to end by itself.
const ENDING: Duration = Duration::from_secs(10);

/// Where Services have their addresses, unless a cluster says otherwise.
pub(crate) const SERVICES: &str = "10.96.0.0/16";

/// A control plane that nobody else uses. Its processes end, and its directory goes, when it is dropped; the processes
/// end also when the test that made it is killed.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the processes are children of who made them.
    controllers: Vec<Process>,
    api: Option<Process>,
    etcd: Process,
    den: Den,
    ports: Ports,
    address: IpAddr,
    /// Where Services have their addresses.
    services: &'static str,
    program: PathBuf,
    dir: PathBuf,
    /// What the API server gets besides.
    more: Vec<String>,
    claim: Option<Claim>,
}

/// Who listens where.
#[derive(Debug, Clone, Copy)]
struct Ports {
    etcd: u16,
    peer: u16,
    api: u16,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// etcd and the API server on 127.0.0.1, on ports that are free, ready to be asked. The directory is made, and may
    /// not be there before.
    ///
    /// # Errors
    /// If this is not root's process, `make peers` was not run, or a program does not start: with the end of its log.
    pub fn start(dir: impl Into<PathBuf>) -> Result<Self> {
        let ports = Ports { etcd: free_port(0)?, peer: free_port(1)?, api: free_port(2)? };
        ControlPlane::on(Den::new(None, "")?, (Ipv4Addr::LOCALHOST.into(), SERVICES), ports, dir.into(), &[])
    }

    /// As [`ControlPlane::start`], in `/run/netloom-testbed/NAME`. What is left there by one whose process was killed is
    /// removed by the next that starts, whatever its name.
    ///
    /// # Errors
    /// As there, and if one of this name is up.
    pub fn named(name: &str) -> Result<Self> {
        let claim = Claim::new(name)?;
        let mut plane = ControlPlane::start(claim.dir().join("control"))?;
        plane.claim = Some(claim);
        Ok(plane)
    }

    /// As [`ControlPlane::start`], in a network namespace that has this address, with these ranges of Services; nodes by these names may sign
    /// in.
    pub(crate) fn inside(den: Den, place: (IpAddr, &'static str), dir: PathBuf, nodes: &[String]) -> Result<Self> {
        ControlPlane::on(den, place, Ports { etcd: 2379, peer: 2380, api: 6443 }, dir, nodes)
    }

    fn on(den: Den, (address, services): (IpAddr, &'static str), ports: Ports, dir: PathBuf, nodes: &[String]) -> Result<Self> {
        let program = peer()?;
        std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).context("the directory's mode")?;
        let dir = dir.canonicalize().context("the directory's full path")?;
        std::fs::write(dir.join("tokens"), tokens(nodes)).context("the file of tokens")?;
        let etcd = start_etcd(&den, &program, &dir, ports)?;
        let (controllers, more) = (Vec::new(), Vec::new());
        let mut plane = ControlPlane { controllers, api: None, etcd, den, ports, address, services, program, dir, more, claim: None };
        plane.write_kubeconfig("admin", "admin")?;
        for node in nodes {
            plane.write_kubeconfig(node, &node_token(node))?;
        }
        plane.start_api()?;
        plane.service_account("default")?;
        Ok(plane)
    }

    /// Adds the controller manager and the scheduler, without which a Deployment makes no pods and no pod finds a node.
    ///
    /// # Errors
    /// If one does not start.
    pub fn with_controllers(mut self) -> Result<Self> {
        for name in ["controller-manager", "scheduler"] {
            let config = self.kubeconfig().display().to_string();
            let mut args: Vec<String> =
                [name, "--leader-elect=false", "--bind-address=127.0.0.1", "--kubeconfig", &config].map(Into::into).into();
            // Behind 127.0.0.1 on the machine's own network stand other people's, too.
            args.push("--secure-port=0".to_owned());
            if name == "controller-manager" {
                let key = self.key().display().to_string();
                args.extend(["--service-account-private-key-file".to_owned(), key, "--allocate-node-cidrs=false".to_owned()]);
                args.push("--use-service-account-credentials=false".to_owned());
            }
            let process = Process::start(&self.den, name, &self.dir.join(format!("{name}.log")), &self.program, &args)?;
            self.controllers.push(process);
        }
        Ok(self)
    }

    /// Gives the API server more arguments, as `--max-requests-inflight=8`, from its next start on.
    pub fn configure_api(&mut self, more: &[&str]) {
        self.more.extend(more.iter().map(|&argument| argument.to_owned()));
    }

    /// Starts the API server, on the port that it had, and waits until it is ready. Does nothing if it runs.
    ///
    /// # Errors
    /// If it is not ready within three minutes: with the end of its log.
    pub fn start_api(&mut self) -> Result<()> {
        if self.api.as_mut().is_some_and(|api| api.alive().is_ok()) {
            return Ok(());
        }
        let args = self.api_arguments();
        let mut api = Process::start(&self.den, "apiserver", &self.dir.join("apiserver.log"), &self.program, &args)?;
        let address = SocketAddr::from((self.address, self.ports.api));
        // A connection costs nothing; kubectl is asked only when somebody is there.
        api.until("it listens", PATIENCE, Duration::from_millis(20), || self.listens(address))?;
        api.until("it is ready", PATIENCE, Duration::from_millis(50), || {
            self.kubectl_command(&["get", "--raw", "/readyz"]).output().is_ok_and(|o| o.status.success())
        })?;
        self.api = Some(api);
        Ok(())
    }

    /// Whether somebody listens there. In a network namespace of its own it is asked by a program that is in it.
    fn listens(&self, address: SocketAddr) -> bool {
        if address.ip().is_loopback() {
            return TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        }
        let wanted = format!("{address}");
        self.den.run(&["ss", "-Hltn"]).is_ok_and(|list| list.contains(&wanted))
    }

    fn api_arguments(&self) -> Vec<String> {
        let (dir, key) = (self.dir.display(), self.key().display().to_string());
        let args = [
            "apiserver".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            format!("--bind-address={}", self.address),
            format!("--advertise-address={}", self.address),
            format!("--secure-port={}", self.ports.api),
            format!("--cert-dir={dir}/certificates"),
            // The API server makes its own certificate and key; the key signs service accounts' tokens, too.
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-cluster-ip-range={}", self.services),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--token-auth-file={dir}/tokens"),
            // Or exec and logs look the node's name up.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--allow-privileged".to_owned(),
            // The endpoint of the Service `kubernetes` may not be 127.0.0.1.
            format!("--endpoint-reconciler-type={}", if self.address.is_loopback() { "none" } else { "lease" }),
        ];
        args.into_iter().chain(self.more.iter().cloned()).collect()
    }

    /// Stops the API server with SIGTERM; etcd and the controllers go on. [`ControlPlane::start_api`] starts it again.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop_api(&mut self) -> Result<()> {
        match self.api.take() {
            Some(mut api) => api.stop(ENDING).map(drop),
            None => Ok(()),
        }
    }

    /// Ends the API server with SIGKILL. [`ControlPlane::start_api`] starts it again.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill_api(&mut self) -> Result<()> {
        match self.api.take() {
            Some(mut api) => api.kill(),
            None => Ok(()),
        }
    }

    /// Freezes the API server: connections are accepted by the kernel, and nobody answers.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause_api(&self) -> Result<()> {
        self.api.as_ref().context("the API server does not run")?.signal(Signal::Stop)
    }

    /// Undoes [`ControlPlane::pause_api`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume_api(&self) -> Result<()> {
        self.api.as_ref().context("the API server does not run")?.signal(Signal::Continue)
    }

    /// That every program of it still runs, but for an API server that was stopped.
    ///
    /// # Errors
    /// Which one has ended, how, and the end of its log.
    pub fn alive(&mut self) -> Result<()> {
        self.etcd.alive()?;
        self.api.iter_mut().chain(&mut self.controllers).try_for_each(Process::alive)
    }

    /// `https://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.address, self.ports.api))
    }

    /// The administrator's bearer token, of the group `system:masters`.
    pub fn token(&self) -> &'static str {
        "admin"
    }

    /// A kubeconfig file with the administrator's token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of("admin")
    }

    pub(crate) fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }

    /// Writes a kubeconfig file for whoever has this token (`kubectl create token`, say), as `NAME.kubeconfig` in the
    /// control plane's directory, and returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": {"server": self.url(), "certificate-authority": self.ca()}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
        });
        let path = self.kubeconfig_of(name);
        std::fs::write(&path, format!("{config:#}")).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(path)
    }

    /// The file with the certificate of who signed the API server's.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("certificates/apiserver.crt")
    }

    fn key(&self) -> PathBuf {
        self.dir.join("certificates/apiserver.key")
    }

    /// Its directory: logs (`etcd.log`, `apiserver.log`, ...), kubeconfig files, certificates.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The namespaces that it runs in.
    pub fn den(&self) -> &Den {
        &self.den
    }

    /// Makes a namespace with a service account `default`, which nobody else makes without controllers.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn namespace(&self, name: &str) -> Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string())?;
        self.service_account(name)
    }

    fn service_account(&self, namespace: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
        self.apply(&account.to_string()).map(drop)
    }

    /// `kubectl apply -f -` of manifests, YAML or JSON; by the server, so that objects of any size pass.
    ///
    /// # Errors
    /// If the API server refuses one.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], manifests)
    }

    /// Applies the NetworkAttachmentDefinition's resource definition, and waits until the API server serves it.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn define_networks(&self) -> Result<()> {
        self.apply(include_str!("../../deploy/definition.yaml"))?;
        let name = "crd/network-attachment-definitions.k8s.cni.cncf.io";
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=120s", name], "")?;
        self.served("network-attachment-definitions.k8s.cni.cncf.io")
    }

    /// Waits until a resource is found and listed: the API server serves what a definition defines a moment after it has said so.
    ///
    /// # Errors
    /// If that takes more than three minutes: what is said instead.
    pub fn served(&self, resource: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.kubectl(&["get", resource], "") {
                Err(error) if Instant::now() > end => return Err(error),
                // Sleeps: between two looks.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Applies what an agent needs of the API server: its service account, what that may do, and the policy that keeps it
    /// to its node.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub fn allow_agents(&self) -> Result<()> {
        self.apply(include_str!("../../deploy/access.yaml")).map(drop)
    }

    /// A token of the agents' service account that says on which node it is used, as that of an agent's pod does.
    ///
    /// # Errors
    /// If [`ControlPlane::allow_agents`] was not called, or there is no such node.
    pub fn agent_token(&self, node: &str) -> Result<String> {
        let bound = ["--bound-object-kind=Node", "--bound-object-name", node, "--duration=720h"];
        let args = [&["create", "token", "netloom", "--namespace=kube-system"], &bound[..]].concat();
        self.kubectl(&args, "").map(|token| token.trim().to_owned())
    }

    /// Runs kubectl as the administrator, with `stdin`, and returns what it prints.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn kubectl(&self, args: &[&str], stdin: &str) -> Result<String> {
        printed(&format!("kubectl {}", args.join(" ")), self.try_kubectl(args, stdin)?)
    }

    /// As [`ControlPlane::kubectl`], whether it succeeds or not.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn try_kubectl(&self, args: &[&str], stdin: &str) -> Result<Output> {
        let mut command = self.kubectl_command(args);
        let mut child = command.stdin(Stdio::piped()).spawn().context("kubectl cannot be started")?;
        if let Some(mut pipe) = child.stdin.take() {
            // It may have failed without having read.
            drop(pipe.write_all(stdin.as_bytes()));
        }
        child.wait_with_output().context("kubectl cannot be waited for")
    }

    /// kubectl as the administrator; its standard output and error are pipes.
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").env("KUBECONFIG", self.kubeconfig()).args(args);
        // What it knows of the API is kept here, and not in the user's own directory.
        command.env("KUBECACHEDIR", self.dir.join("kubectl"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Nobody writes there any more when it is removed.
        let every = self.controllers.iter_mut().chain(&mut self.api).chain([&mut self.etcd]);
        every.for_each(|process| drop(process.kill()));
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

fn start_etcd(den: &Den, program: &Path, dir: &Path, ports: Ports) -> Result<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.peer));
    let args = [
        "etcd".to_owned(),
        format!("--data-dir={}", dir.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        // Hundreds of objects of the largest size, each several times.
        "--quota-backend-bytes=8589934592".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
    ];
    // The API server waits for it, so nobody has to here.
    Process::start(den, "etcd", &dir.join("etcd.log"), program, &args)
}

/// Who may sign in: `TOKEN,USER,UID,"GROUPS"`.
fn tokens(nodes: &[String]) -> String {
    let node = |name: &String| format!("{},system:node:{name},{name},\"system:nodes\"\n", node_token(name));
    let nodes: String = nodes.iter().map(node).collect();
    format!("admin,admin,admin,\"system:masters\"\n{nodes}")
}

/// A cluster of one's own on one machine has no secrets.
fn node_token(name: &str) -> String {
    format!("node-{name}")
}

/// A port of 127.0.0.1 that is free, and that the kernel gives to nobody as his own end of a connection: so it is still
/// free when the API server comes back a minute later. Every process of a test begins its search elsewhere.
pub(crate) fn free_port(nth: u32) -> Result<u16> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    let start = std::process::id().wrapping_mul(31).wrapping_add(asked.wrapping_mul(7)).wrapping_add(nth);
    for step in 0..1000_u32 {
        let port = u16::try_from(20_000 + start.wrapping_add(step) % 12_000).context("a port")?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of 127.0.0.1 between 20000 and 32000 is free")
}
