//! A node: containerd and kubelet in namespaces of their own, with files of their own at their usual paths.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{Den, PAUSE, Process};

mod agent;
mod proxy;
mod reboot;

/// How long each program may take until it answers, and to end.
const PATIENCE: Duration = Duration::from_secs(180);

/// What makes the machine a node: everything that runtime, kubelet, plugins or an agent write to is the node's own.
///
/// The kernel's own settings that a kubelet changes, for the whole machine, are files of the node, and so is what tells one
/// boot from the next. `/sys` is mounted
/// anew to show the node's links, and `/` is shared within the node, so that containers see mounts that are made later.
const SETUP: &str = "mount -t tmpfs -o mode=755 node /run
mkdir -p /run/netns /run/lock /run/.node/etc /run/.node/opt /run/.node/cgroup /run/.node/sysctl
cp -a /etc/. /run/.node/etc
mount --bind /run/.node/etc /etc
rm -rf /etc/cni /etc/containerd /etc/kubernetes /etc/resolv.conf
mkdir -p /etc/cni/net.d /etc/kubernetes
echo >/etc/resolv.conf
for dir in /var/lib /var/log; do mount -t tmpfs -o mode=755 node $dir; done
mount --rbind /opt /run/.node/opt
mount -t tmpfs -o mode=755 node /opt
for old in /run/.node/opt/*; do
    [ -d $old ] && [ ${old##*/} != cni ] || continue
    mkdir /opt/${old##*/}
    mount --rbind $old /opt/${old##*/}
done
mkdir -p /opt/cni/bin
mount --rbind /sys/fs/cgroup /run/.node/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/.node/cgroup /sys/fs/cgroup
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    [ -e /proc/sys/$key ] || continue
    copy=/run/.node/sysctl/${key##*/}
    cat /proc/sys/$key >$copy
    mount --bind $copy /proc/sys/$key
done
cat /proc/sys/kernel/random/uuid >/run/.node/boot_id
mount --bind /run/.node/boot_id /proc/sys/kernel/random/boot_id
mount --make-rshared /";

/// A node. Its processes, pods, mounts and links end when it is dropped, or when the process that made it ends.
#[derive(Debug)]
pub struct Node {
    // Dropped in this order.
    proxy: Option<Process>,
    agent: Option<Process>,
    kubelet: Option<Process>,
    containerd: Option<Process>,
    den: Den,
    name: String,
    number: u8,
    addresses: Vec<String>,
    pods: Vec<String>,
    program: PathBuf,
    netloom: PathBuf,
    logs: PathBuf,
}

/// What a node is told about itself.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Its name, as the API knows it and as it calls itself.
    pub(crate) name: String,
    /// Which one it is, from 1.
    pub(crate) number: u8,
    /// Its addresses, one of each family.
    pub(crate) addresses: Vec<String>,
    /// Where its pods have their addresses, a range of each family.
    pub(crate) pods: Vec<String>,
    /// The control groups of its pods, below each hierarchy's root.
    pub(crate) cgroup: String,
    /// The executable that is all of Kubernetes.
    pub(crate) program: PathBuf,
    /// The executable `netloom`, which need not be there where no agent runs.
    pub(crate) netloom: PathBuf,
    /// Where its logs go.
    pub(crate) logs: PathBuf,
}

// === impl Node ===

impl Node {
    /// The namespaces, with nothing in them but the files that containerd and kubelet read; no network yet.
    pub(crate) fn new(wanted: Wanted) -> Result<Self> {
        let den = Den::new(Some(&wanted.name), SETUP)?;
        den.write("/etc/containerd/config.toml", containerd_config())?;
        den.write("/etc/kubernetes/kubelet.yaml", kubelet_config(&wanted.cgroup))?;
        let Wanted { name, number, addresses, pods, program, netloom, logs, .. } = wanted;
        Ok(Node { proxy: None, agent: None, kubelet: None, containerd: None, den, name, number, addresses, pods, program, netloom, logs })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its first address, where its kubelet listens.
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Its addresses, one of each family.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Where its pods have their addresses, as `10.244.1.0/24`: `spec.podCIDRs` of the node.
    pub fn pods(&self) -> &[String] {
        &self.pods
    }

    /// The executable `netloom` that its agent is.
    pub fn netloom_program(&self) -> &Path {
        &self.netloom
    }

    /// Its namespaces.
    pub fn den(&self) -> &Den {
        &self.den
    }

    /// The way from here to a path on the node.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.den.path(inside)
    }

    /// Writes a file on the node: everything below `/etc`, `/run`, `/var/lib`, `/var/log` and `/opt/cni` is its own.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, inside: &str, text: impl AsRef<[u8]>) -> Result<()> {
        self.den.write(inside, text)
    }

    /// A program to be run on the node, in its network, mount, process and host name's namespaces. It ends with the node.
    pub fn command(&self, program: &str) -> Command {
        self.den.command(program)
    }

    /// Runs a program on the node to its end, and returns what it prints.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        self.den.run(argv)
    }

    /// As [`Node::run`], whether it succeeds or not.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn try_run(&self, argv: &[&str]) -> Result<Output> {
        self.den.try_run(argv)
    }

    /// Starts a daemon on the node, an agent say; its output is in `NODE-NAME.log` beside the others' logs.
    ///
    /// # Errors
    /// If it cannot be started. Whether it stays is seen by [`Process::alive`].
    pub fn daemon(&self, name: &str, command: Command) -> Result<Process> {
        Process::spawn(command, name, &self.log(name))
    }

    /// What a daemon of the node has said: every one of the name.
    ///
    /// # Errors
    /// If none ran.
    pub fn said(&self, name: &str) -> Result<String> {
        let path = self.log(name);
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    }

    fn log(&self, program: &str) -> PathBuf {
        self.logs.join(format!("{}-{program}.log", self.name))
    }

    /// Starts containerd if it does not run, and waits until it serves a kubelet. It listens before that, and a kubelet that
    /// asks it meanwhile ends.
    ///
    /// # Errors
    /// If it does not within a minute, or ends: with the end of its log.
    pub fn start_containerd(&mut self) -> Result<()> {
        if self.containerd.as_mut().is_some_and(|process| process.alive().is_ok()) {
            return Ok(());
        }
        let mut process = self.daemon("containerd", self.command("containerd"))?;
        let socket = self.path("/run/containerd/containerd.sock");
        process.until("it serves CRI", PATIENCE, Duration::from_millis(20), || serves_cri(&socket))?;
        self.containerd = Some(process);
        Ok(())
    }

    /// Ends containerd with SIGTERM, if it runs; containers go on, as their shims do.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop_containerd(&mut self) -> Result<()> {
        self.containerd.take().map_or(Ok(()), |mut process| process.stop(PATIENCE).map(drop))
    }

    /// Ends containerd and starts it again.
    ///
    /// # Errors
    /// As [`Node::start_containerd`].
    pub fn restart_containerd(&mut self) -> Result<()> {
        self.stop_containerd()?;
        self.start_containerd()
    }

    /// Ends containerd with SIGKILL, if it runs.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill_containerd(&mut self) -> Result<()> {
        self.containerd.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Puts the images of an archive into containerd.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        let mut command = self.command("ctr");
        command.args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "native", "-"]);
        command.stdin(File::open(archive).with_context(|| format!("{} cannot be read", archive.display()))?);
        crate::den::printed("ctr images import", command.output().context("ctr cannot be started")?).map(drop)
    }

    /// Starts the kubelet if it does not run. When it is ready, its node object says so.
    ///
    /// # Errors
    /// If it cannot be started. Whether it stays is seen by [`Node::alive`].
    pub fn start_kubelet(&mut self) -> Result<()> {
        if self.kubelet.as_mut().is_some_and(|process| process.alive().is_ok()) {
            return Ok(());
        }
        let mut command = self.den.command(&self.program);
        command.args(["kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig"]);
        command.arg(format!("--hostname-override={}", self.name)).arg(format!("--node-ip={}", self.addresses.join(",")));
        self.kubelet = Some(self.daemon("kubelet", command)?);
        Ok(())
    }

    /// Ends the kubelet with SIGTERM, if it runs; containers go on.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn stop_kubelet(&mut self) -> Result<()> {
        self.kubelet.take().map_or(Ok(()), |mut process| process.stop(PATIENCE).map(drop))
    }

    /// Ends the kubelet and starts it again: [`crate::Cluster::known_pods`] tells when it knows its pods.
    ///
    /// # Errors
    /// As [`Node::start_kubelet`].
    pub fn restart_kubelet(&mut self) -> Result<()> {
        self.stop_kubelet()?;
        self.start_kubelet()
    }

    /// Ends the kubelet with SIGKILL, if it runs.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill_kubelet(&mut self) -> Result<()> {
        self.kubelet.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// That containerd, kubelet, agent and kube-proxy run, unless they were stopped.
    ///
    /// # Errors
    /// Which one has ended, how, and the end of its log.
    pub fn alive(&mut self) -> Result<()> {
        self.containerd.iter_mut().chain(&mut self.kubelet).chain(&mut self.agent).chain(&mut self.proxy).try_for_each(Process::alive)
    }

    /// The names of the pods' network namespaces on this node, below `/run/netns`.
    pub fn namespaces(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("/run/netns")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Whether the runtime behind a socket answers `Version`, the first question of a kubelet. An empty message is five zero bytes,
/// and a status of 0 comes after the answer (gRPC over HTTP/2).
fn serves_cri(socket: &Path) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--http2-prior-knowledge", "--max-time", "5", "--output", "/dev/null", "--dump-header", "-"]);
    curl.args(["--header", "content-type: application/grpc", "--header", "te: trailers", "--data-binary", "@-", "--unix-socket"]);
    curl.arg(socket).arg("http://localhost/runtime.v1.RuntimeService/Version").stdin(Stdio::piped()).stdout(Stdio::piped());
    let asked = curl.spawn().and_then(|mut child| {
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&[0; 5]))?;
        child.wait_with_output()
    });
    asked.is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).lines().any(|line| line.trim_end() == "grpc-status: 0"))
}

/// Every path is containerd's own default, but for what says otherwise.
fn containerd_config() -> String {
    format!(
        r#"version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing"]
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

/// In block style: a file that begins with `{` is taken for JSON of another kind.
fn kubelet_config(cgroup: &str) -> String {
    format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# Either version of control groups serves.
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
cgroupsPerQOS: false
enforceNodeAllocatable: []
podPidsLimit: -1
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
# As full as this machine's disk may be; and a containerd that is being restarted says that it has no disk at all.
evictionHard:
  memory.available: 0%
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
imageGCHighThresholdPercent: 100
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
rotateCertificates: false
resolvConf: /etc/resolv.conf
"#
    )
}
