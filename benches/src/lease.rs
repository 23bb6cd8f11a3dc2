//! What `dhcp` needs on a host: a server, and the daemon of the side that is measured.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;
use crate::network::BRIDGE;

/// Both end when this is dropped.
pub(crate) struct Leasing(Vec<Child>);

/// Where a side's daemon listens.
pub(crate) fn socket(data: &Path) -> String {
    data.with_extension("sock").display().to_string()
}

/// Whether there is a server to be asked.
pub(crate) fn has_server() -> bool {
    Command::new("dnsmasq").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// dnsmasq on the host's bridge, which does not ask whether an address is in use, and `DIR/dhcp daemon`.
pub(crate) fn start(host: &Namespace, plugins: &Path, data: &Path) -> Result<Leasing> {
    for line in
        [&["link", "add", BRIDGE, "type", "bridge"][..], &["addr", "add", "10.78.0.1/16", "dev", BRIDGE], &["link", "set", BRIDGE, "up"]]
    {
        host.ip(line)?;
    }
    // Beside its socket our daemon has a directory of leases.
    let leases = data.with_extension("dnsmasq");
    let socket = socket(data);
    let mut leasing = host.enter(|| {
        let mut server = Command::new("dnsmasq");
        server.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--no-ping", "--user=root", "--pid-file="]);
        server.args(["--dhcp-lease-max=10000", "--dhcp-range=10.78.0.10,10.78.255.250,255.255.0.0,1h"]);
        server.arg(format!("--interface={BRIDGE}")).arg(format!("--dhcp-leasefile={}", leases.display()));
        let mut daemon = Command::new(plugins.join("dhcp"));
        daemon.args(["daemon", "-socketpath", &socket]);
        let mut leasing = Leasing(Vec::new());
        for mut command in [server, daemon] {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            leasing.0.push(command.spawn().with_context(|| format!("{command:?}"))?);
        }
        Ok(leasing)
    })?;
    let end = Instant::now() + Duration::from_secs(20);
    while !(leases.exists() && Path::new(&socket).exists()) {
        let has_ended = leasing.0.iter_mut().any(|child| child.try_wait().is_ok_and(|ended| ended.is_some()));
        if has_ended || Instant::now() > end {
            bail!("no server or no daemon: start dnsmasq and {}/dhcp daemon by hand to see why", plugins.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(leasing)
}

impl Drop for Leasing {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
