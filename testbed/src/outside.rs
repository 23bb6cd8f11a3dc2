//! What is outside of a cluster: a host that answers, a metadata service, a client, and the load balancer's addresses, which lead to a node.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Cluster, Den, NETLOOM, Process};

/// The ranges of the load balancer's addresses: documentation's (RFC 5737), and a part of what nobody routes.
pub const BALANCED: &str = "203.0.113.0/26,fd00:203:0:113::/122";
/// The address of the metadata service, as in most clouds.
pub const METADATA: &str = "169.254.169.254";

/// A host on the nodes' network that is no node. It goes when it is dropped.
///
/// ```text
///   outside --- eth0 198.18.N.200 --- br0 --- node-1, node-2 ...
///     lo 169.254.169.254                      route to the load balancer's addresses: by node-1
/// ```
#[derive(Debug)]
pub struct Outside {
    // Dropped in this order.
    daemons: Vec<Process>,
    den: Den,
    addresses: Vec<String>,
}

impl Cluster {
    /// Makes the host outside.
    ///
    /// # Errors
    /// If a link, an address or a route cannot be made.
    pub fn outside(&self) -> Result<Outside> {
        let den = Den::new(Some("outside"), "")?;
        let fabric = self.control().den();
        den.ip(&format!("link add eth0 type veth peer name outside netns {}", fabric.pid()))?;
        fabric.ip("link set outside master br0 up")?;
        let first = self.nodes().first().context("a cluster without nodes has no outside")?;
        let mut addresses = Vec::new();
        for address in first.addresses() {
            let (net, _) = address.rsplit_once(['.', ':']).context("a node's address")?;
            let (own, rest) =
                if address.contains(':') { (format!("{net}:c8"), "/64 dev eth0 nodad") } else { (format!("{net}.200"), "/24 dev eth0") };
            den.ip(&format!("address add {own}{rest}"))?;
            addresses.push(own);
        }
        den.ip("link set eth0 up")?;
        for (address, own) in first.addresses().iter().zip(&addresses) {
            let is_ipv6 = address.contains(':');
            for range in BALANCED.split(',').filter(|range| range.contains(':') == is_ipv6) {
                den.ip(&format!("route add {range} via {address}"))?;
            }
            if !is_ipv6 {
                den.ip(&format!("address add {METADATA}/32 dev lo"))?;
                for node in self.nodes() {
                    node.den().ip(&format!("route replace {METADATA}/32 via {own}"))?;
                    // Link-local addresses see a pod's own one: what has them knows the pods, as a cloud's network does.
                    for pods in node.pods().iter().filter(|pods| !pods.contains(':')) {
                        den.ip(&format!("route add {pods} via {}", node.address()))?;
                    }
                }
            }
        }
        Ok(Outside { daemons: Vec::new(), den, addresses })
    }

    /// The arguments with which `netloom` tries every case of the matrix here, with `outside` as everything that is outside. The nodes have the
    /// image [`NETLOOM`] ([`Cluster::import_netloom`]).
    pub fn verification(&self, outside: &Outside, netloom: &Path) -> Vec<String> {
        let (program, dir, pid) = (netloom.display(), self.dir().display(), outside.den.pid());
        let kubeconfig = self.control().kubeconfig().display().to_string();
        let has = |is_ipv6: bool| outside.addresses.iter().any(|address| address.contains(':') == is_ipv6);
        let balanced: Vec<&str> = BALANCED.split(',').filter(|range| has(range.contains(':'))).collect();
        let mut args: Vec<String> = ["verify", "--cluster", "--image", NETLOOM, "--kubeconfig", &kubeconfig].map(str::to_owned).to_vec();
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        for address in &outside.addresses {
            option("--internet", address.clone());
        }
        if has(false) {
            option("--metadata", METADATA.to_owned());
        }
        option("--load-balancer", balanced.join(","));
        option("--public", format!("nsenter --net=/proc/{pid}/ns/net -- {program}"));
        option("--node-command", format!("nsenter -t $(cat {dir}/{{node}}.pid) --mount --pid --net --uts -- {program}"));
        args
    }
}

// === impl Outside ===

impl Outside {
    /// Its addresses, one of each family.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Its namespaces.
    pub fn den(&self) -> &Den {
        &self.den
    }

    /// Starts what it answers with: as the internet, and over IPv4 as the metadata service. `logs` is where their logs go.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn serve(&mut self, netloom: &Path, logs: &Path) -> Result<()> {
        let mut answers = self.den.command(netloom);
        answers.args(["probe", "serve", "--name", "outside/internet"]);
        self.start("internet", &logs.join("internet.log"), answers)?;
        if self.addresses.iter().all(|address| address.contains(':')) {
            return Ok(());
        }
        let mut metadata = self.den.command("busybox");
        metadata.args(["httpd", "-f", "-p", &format!("{METADATA}:80"), "-h", "/usr/share"]);
        self.start("metadata", &logs.join("metadata.log"), metadata)
    }

    /// Starts a daemon on it, which ends with it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, name: &str, log: &Path, command: Command) -> Result<()> {
        self.daemons.push(Process::spawn(command, name, log)?);
        Ok(())
    }
}
