//! `netloom-testbed up|proxy|down|status|exec`: a cluster for a person.
//!
//! A cluster ends with the process that made it, so `up` starts this program again, as `serve`, which stays; what that one
//! says is passed on until the cluster is ready. `proxy` asks that one for kube-proxy in another mode. `down` kills it, and removes what the
//! kernel does not.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netloom_testbed::{Cluster, DefaultNetwork, Families, Options, PLACE, owner, peer, sweep};

const USAGE: &str = "A real Kubernetes on this machine: nodes are namespaces.

usage: netloom-testbed up      [--name NAME] [--nodes N] [--proxy MODE] [--between WAY] [--families FAMILIES] [--cni PATH]
       netloom-testbed proxy   [--name NAME] --proxy MODE
       netloom-testbed status  [--name NAME]
       netloom-testbed exec    [--name NAME] NODE COMMAND [ARGUMENT...]
       netloom-testbed down    [--name NAME]

  --name      which cluster (play)
  --nodes     how many nodes (2)
  --proxy     the mode of kube-proxy: nftables, iptables (nftables)
  --between   how packets get from node to node: direct, vxlan (direct)
  --families  the addresses of nodes, pods and Services: ipv4, ipv6, dual (ipv4)
  --cni       the executable netloom-cni (beside this one); netloom is beside it

proxy replaces kube-proxy on every node. exec finds netloom by its name.
";

/// The last line of `serve`.
const READY: &str = "ready";

/// The socket in a cluster's directory at which `serve` takes the mode that kube-proxy is to have.
const PROXY_SOCKET: &str = "proxy.sock";

/// How long a killed cluster may take to vanish.
const ENDING: Duration = Duration::from_secs(30);

/// The ways from node to node that `--between` names, and the agents' settings for them.
const WAYS: [(&str, &str); 2] = [("direct", "between: direct"), ("vxlan", "between: vxlan")];

/// What `--families` names.
const FAMILIES: [(&str, Families); 3] = [("ipv4", Families::V4), ("ipv6", Families::V6), ("dual", Families::Dual)];

/// What was asked for.
struct Asked {
    verb: String,
    name: String,
    nodes: u8,
    proxy: String,
    between: (&'static str, &'static str),
    families: (&'static str, Families),
    cni: Option<PathBuf>,
    rest: Vec<String>,
}

fn main() -> ExitCode {
    let done = asked(std::env::args().skip(1)).and_then(|asked| match asked.verb.as_str() {
        "up" => up(&asked),
        "serve" => serve(&asked),
        "proxy" => proxy(&asked),
        "down" => down(&asked.name),
        "status" => status(&asked.name),
        "exec" => exec(&asked),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("there is no {other:?}\n{USAGE}"),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("netloom-testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn asked(mut args: impl Iterator<Item = String>) -> Result<Asked> {
    let verb = args.next().unwrap_or_else(|| "help".to_owned());
    let mut asked = Asked {
        verb,
        name: "play".to_owned(),
        nodes: 2,
        proxy: "nftables".to_owned(),
        between: WAYS[0],
        families: FAMILIES[0],
        cni: None,
        rest: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--name" => asked.name = value()?,
            "--nodes" => asked.nodes = value()?.parse().context("--nodes is a number up to 100")?,
            "--proxy" => asked.proxy = value()?,
            "--between" => asked.between = one_of(&WAYS, &arg, &value()?)?,
            "--families" => asked.families = one_of(&FAMILIES, &arg, &value()?)?,
            "--cni" => asked.cni = Some(value()?.into()),
            _ if asked.verb == "exec" => {
                asked.rest.push(arg);
                // The rest is the command's own.
                asked.rest.extend(args.by_ref());
            }
            _ => bail!("what is {arg:?}?\n{USAGE}"),
        }
    }
    Ok(asked)
}

/// The row of a table that an option names.
fn one_of<T: Copy>(rows: &[(&'static str, T)], option: &str, value: &str) -> Result<(&'static str, T)> {
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    let row = rows.iter().find(|(name, _)| *name == value);
    row.copied().with_context(|| format!("{option} {value:?} is unknown: name one of {}", names.join(", ")))
}

fn up(asked: &Asked) -> Result<()> {
    if owner(&asked.name).is_some() {
        println!("The cluster {} is up.\n", asked.name);
        return what_to_type(&asked.name);
    }
    let begin = Instant::now();
    let own = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(own);
    command.args(["serve", "--name", &asked.name, "--nodes", &asked.nodes.to_string(), "--proxy", &asked.proxy]);
    command.args(["--between", asked.between.0, "--families", asked.families.0]);
    if let Some(cni) = &asked.cni {
        let full = cni.canonicalize().with_context(|| format!("{} is missing", cni.display()))?;
        command.arg("--cni").arg(full);
    }
    // In a process group of its own: an interrupt from the keyboard is for this process, and ends that one by its pipe.
    // It keeps nothing of this one's: who reads what this one says would wait for ever.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).current_dir("/");
    let mut serving = command.spawn().context("this program cannot be started")?;
    let lines = serving.stdout.take().map(BufReader::new).context("its output")?.lines();
    for line in lines {
        match line.context("its output")?.as_str() {
            READY => {
                println!("{:5.1} s  ready\n", begin.elapsed().as_secs_f64());
                return what_to_type(&asked.name);
            }
            line => println!("{:5.1} s  {line}", begin.elapsed().as_secs_f64()),
        }
    }
    let ended = serving.wait_with_output().context("this program cannot be waited for")?;
    bail!("the cluster {} is not up:\n{}", asked.name, String::from_utf8_lossy(&ended.stderr).trim_end())
}

fn serve(asked: &Asked) -> Result<()> {
    let beside = || std::env::current_exe().map(|own| own.with_file_name("netloom-cni"));
    let cni = asked.cni.clone().map_or_else(beside, Ok).context("the path of this program")?;
    if !cni.is_file() {
        bail!("{} is missing: run `cargo build -p netloom-cni -p netloom`, or name it with --cni", cni.display());
    }
    let netloom = cni.with_file_name("netloom");
    let network = DefaultNetwork::Provided(asked.between.1);
    let mut cluster = Options::new(&asked.name, &cni).nodes(asked.nodes).network(network).families(asked.families.1).say(say).up()?;
    say(&format!("kube-proxy ({}), and what is outside: internet, metadata service, a client", asked.proxy));
    cluster.start_proxies(&asked.proxy)?;
    cluster.import_netloom()?;
    let mut outside = cluster.outside()?;
    outside.serve(&netloom, cluster.dir())?;
    let words = [vec![netloom.display().to_string()], cluster.verification(&outside, &netloom)].concat();
    let words: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    std::fs::write(cluster.dir().join("verify"), format!("exec {} \"$@\"\n", words.join(" "))).context("the command that verifies")?;
    std::fs::write(cluster.dir().join("pods.yaml"), include_str!("sample.yaml")).context("the sample")?;
    let asks = UnixListener::bind(cluster.dir().join(PROXY_SOCKET)).context("the socket for other modes of kube-proxy")?;
    say(READY);
    for asking in asks.incoming().flatten() {
        // Whoever asks may be gone: the next one is answered.
        let _ = replace_proxies(&mut cluster, asking);
    }
    bail!("the socket for other modes of kube-proxy is closed")
}

/// Reads a mode, and starts kube-proxy in it. Answers with what went wrong: with nothing if nothing did.
fn replace_proxies(cluster: &mut Cluster, mut asking: UnixStream) -> std::io::Result<()> {
    let mut mode = String::new();
    BufReader::new(&asking).read_line(&mut mode)?;
    match cluster.start_proxies(mode.trim()) {
        Ok(()) => Ok(()),
        Err(error) => write!(asking, "{error:#}"),
    }
}

fn proxy(asked: &Asked) -> Result<()> {
    let (name, mode) = (&asked.name, &asked.proxy);
    owner(name).with_context(|| format!("the cluster {name} is not up: `make cluster`"))?;
    let mut socket = UnixStream::connect(Path::new(PLACE).join(name).join(PROXY_SOCKET))
        .with_context(|| format!("the process that holds the cluster {name} cannot be asked"))?;
    let mut wrong = String::new();
    writeln!(socket, "{mode}").and_then(|()| socket.read_to_string(&mut wrong)).context("what the cluster answers")?;
    if !wrong.is_empty() {
        bail!("kube-proxy does not run in mode {mode} on every node of the cluster {name}: {wrong}");
    }
    println!("kube-proxy of the cluster {name} runs in mode {mode}.");
    Ok(())
}

/// Nobody listens any more: who asked for the cluster does not want it.
fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}

fn what_to_type(name: &str) -> Result<()> {
    let (dir, kubernetes) = (Path::new(PLACE).join(name), peer()?);
    let (dir, kubernetes) = (dir.display(), kubernetes.display());
    let own = std::env::current_exe().context("the path of this program")?;
    let own = own.display();
    let root = if std::env::var_os("SUDO_USER").is_some() { "    sudo -sE                       # the cluster is root's\n" } else { "" };
    let text = format!(
        "Type:
{root}    export KUBECONFIG={dir}/control/admin.kubeconfig
    alias kubectl='{kubernetes} kubectl'
    kubectl get nodes -o wide
    kubectl apply -f {dir}/pods.yaml
    kubectl get pods -o wide --watch
    alias verify='sh {dir}/verify'
    verify                          # every case of the matrix: netloom verify --cluster, with a host outside
    verify --test 'nodePort'        # some of them
    kubectl exec deploy/hello -- ip address
    kubectl get pods -o yaml | grep -A30 k8s.v1.cni.cncf.io/network-status
    alias on='{own} exec --name {name}'
    on node-1 netloom status
    on node-1 netloom pods
    on node-1 netloom explain $(kubectl get pods -o name --field-selector spec.nodeName=node-1 | head -1 | cut -d/ -f2)
    on node-2                      # a shell; it has /etc/cni/net.d, /etc/netloom and /opt/cni/bin of its own

Logs are in {dir}, the images are {} and {}.
`{own} down --name {name}` (`make cluster-down`) takes everything away.",
        netloom_testbed::BUSYBOX,
        netloom_testbed::NETLOOM
    );
    writeln!(std::io::stdout(), "{text}").context("what to type cannot be told")
}

fn down(name: &str) -> Result<()> {
    let Some(pid) = owner(name) else {
        let what = if sweep().iter().any(|swept| swept == name) { "was not up any more; what it had left is gone" } else { "is not up" };
        println!("The cluster {name} {what}.");
        return Ok(());
    };
    // It is nobody else: the process began when the cluster's directory says it did.
    let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status().context("kill (procps) cannot be started")?;
    if !status.success() {
        bail!("process {pid}, which holds the cluster {name}, cannot be killed: {status}");
    }
    let end = Instant::now() + ENDING;
    while owner(name).is_some() && Instant::now() < end {
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(10));
    }
    sweep();
    if Path::new(PLACE).join(name).exists() {
        bail!("the cluster {name} does not end: process {pid}, and what is in {PLACE}/{name}");
    }
    println!("The cluster {name} is gone.");
    Ok(())
}

fn status(name: &str) -> Result<()> {
    let pid = owner(name).with_context(|| format!("the cluster {name} is not up: `make cluster`"))?;
    println!("The cluster {name} is up, held by process {pid}; logs are in {PLACE}/{name}.\n");
    let config = Path::new(PLACE).join(name).join("control/admin.kubeconfig");
    let mut command = Command::new(peer()?);
    command.args(["kubectl", "get", "nodes,pods", "--all-namespaces", "-o", "wide"]).env("KUBECONFIG", config);
    if !command.status().context("kubectl cannot be started")?.success() {
        bail!("the API server of the cluster {name} does not answer: {PLACE}/{name}/control/apiserver.log");
    }
    Ok(())
}

fn exec(asked: &Asked) -> Result<()> {
    let (node, command) = asked.rest.split_first().with_context(|| format!("which node?\n{USAGE}"))?;
    owner(&asked.name).with_context(|| format!("the cluster {} is not up: `make cluster`", asked.name))?;
    let file = Path::new(PLACE).join(&asked.name).join(format!("{node}.pid"));
    let pid = std::fs::read_to_string(&file).with_context(|| format!("the cluster {} has no node {node:?}", asked.name))?;
    let shell = ["sh".to_owned()];
    let command = if command.is_empty() { &shell } else { command };
    let own = std::env::current_exe().context("the path of this program")?;
    let path = [own.parent().unwrap_or(Path::new("/")).as_os_str(), ":".as_ref(), &std::env::var_os("PATH").unwrap_or_default()];
    let path: std::ffi::OsString = path.into_iter().collect();
    let error =
        Command::new("nsenter").env("PATH", path).args(["-t", pid.trim(), "--mount", "--pid", "--net", "--uts", "--"]).args(command).exec();
    Err(error).context("nsenter (util-linux) cannot be started")
}
