//! `netloom version`: what this program is, and what it can use of the kernel.

use std::process::ExitCode;

use linux::nft::Family;
use linux::{link, tc, tuntap};
use plugin::{Dirs, Host};
use serde::Serialize;

use crate::cli::VersionArgs;
use crate::output::{FAINT, GOOD, ODD, putln, structured};

/// Kinds of links, each with what needs it.
const LINKS: [(&str, &str); 9] = [
    ("veth", "bridge, ptp"),
    ("bridge", "bridge"),
    ("macvlan", "macvlan"),
    ("ipvlan", "ipvlan"),
    ("vlan", "vlan"),
    ("dummy", "dummy"),
    ("vrf", "vrf"),
    ("ifb", "bandwidth"),
    ("vxlan", "flannel"),
];

/// One thing that the kernel has or lacks.
#[derive(Serialize)]
struct Feature {
    name: &'static str,
    /// `None` where only root may ask.
    available: Option<bool>,
    /// The plugins that need it.
    #[serde(rename = "usedBy")]
    used_by: &'static str,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
    rust: &'static str,
    architecture: &'static str,
    kernel: String,
    features: Vec<Feature>,
}

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let version = version();
    match args.output {
        Some(format) => structured(&version, format)?,
        None => show(&version),
    }
    Ok(ExitCode::SUCCESS)
}

/// The same as JSON.
pub(crate) fn as_json() -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&version())
}

fn version() -> Version {
    Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("NETLOOM_COMMIT").unwrap_or("unknown"),
        rust: option_env!("NETLOOM_RUSTC").unwrap_or("unknown"),
        architecture: std::env::consts::ARCH,
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
        features: features(),
    }
}

/// Each question is answered without making anything; the kernel loads a module for it where it has one.
fn features() -> Vec<Feature> {
    let mut host = Host::here(Dirs::default());
    let mut features = Vec::new();
    for (name, used_by) in LINKS {
        let available = host.netlink().ok().and_then(|netlink| link::probe(netlink, name).ok());
        features.push(Feature { name, available, used_by });
    }
    let vlan_filtering = host.netlink().ok().and_then(|netlink| link::probe_vlan_filtering(netlink).ok());
    features.push(Feature { name: "bridge VLAN filtering", available: vlan_filtering, used_by: "bridge" });
    features.push(Feature { name: "tun", available: Some(tuntap::usable().is_ok()), used_by: "tap" });
    for name in ["tbf", "htb"] {
        let available = host.netlink().ok().and_then(|netlink| tc::has_kind(netlink, name).ok());
        features.push(Feature { name, available, used_by: "bandwidth" });
    }
    let nf_tables = host.nft().ok().and_then(|nft| nft.has_table(Family::Inet, "netloom").ok()).map(|_| true);
    features.push(Feature { name: "nf_tables", available: nf_tables, used_by: "bridge, ptp, portmap, firewall, tuning" });
    features
}

fn show(version: &Version) {
    let Version { version, commit, rust, architecture, kernel, features } = version;
    putln!("netloom {version}");
    for (key, value) in [("commit", *commit), ("rust", *rust), ("architecture", *architecture), ("kernel", kernel.as_str())] {
        putln!("  {key:<22}{value}");
    }
    for Feature { name, available, used_by } in features {
        let (style, word) = match available {
            Some(true) => (GOOD, "yes"),
            Some(false) => (ODD, "no"),
            None => (FAINT, "not checked"),
        };
        putln!("  {name:<22}{style}{word:<12}{style:#}{FAINT}{used_by}{FAINT:#}");
    }
    if features.iter().any(|feature| feature.available.is_none()) {
        putln!("only root can check every feature of the kernel");
    }
}
