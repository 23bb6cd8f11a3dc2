//! What the command line says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Printed for `--help` and after a mistake.
pub(crate) const HELP: &str = "\
Our speed, the reference plugins' (v1.9.1) and the kernel's floor, as ratios. Needs root.

Usage: netloom-benches [cluster | neighbours | nodes | ovs | paths | plugins | pool | ranges] [OPTION...]
  plugins             each plugin by itself, against the reference plugin of its name, and nothing else
  cluster             a node's agent with a real API server, against the reference for one network (--rounds 200, --crowds 6)
  neighbours          an innocent pod's ADD beside a hostile namespace, attack by attack (--rounds 200)
  nodes               a node's agent in a cluster of 100 and of 5,000 Nodes: start, changes, requests (--rounds 20)
  ovs                 a port of Open vSwitch, by us, by ovs-vsctl and by Kuryr's code (--rounds 200)
  paths               packets between pods of two nodes, against a path made by hand and flannel's (--rounds 200)
  pool                addresses that are on the disk before anybody hears of them, and nothing else (--rounds 20)
  ranges              addresses of a whereabouts range on ten nodes, with a real API server (--rounds 5)
  --rounds N          how often each side runs each verb (1000)
  --crowds N          how often many call at once (10)
  --turnover N        of cluster: how many pods come and go, 16 at once, before the last look at the agent's memory (5000)
  --plugin-rounds N   how often each plugin is run by itself (200)
  --plugin NAME       this plugin only, of those; or masquerade, or ports (one host port against 10,000)
  --json FILE         write the figures there too
  --netloom FILE      the agent's executable, for cluster (dist/netloom: `make` builds it)
  --netloom-cni FILE  our executable, static, as released (dist/netloom-cni: `make` builds it)
  --floor FILE        the program that does the same by bare netlink (dist/floor: `make bench` builds it)
  --traced FILE       our executable, with crash points (dist/netloom-cni-traced: `make bench` builds it)
  --before DIR        netloom and netloom-cni as released before, for cluster: compare with them, not with the reference
  --peers DIR         the reference plugins ($NETLOOM_PEERS or ~/.cache/netloom-peers: `make peers` builds them)
  --data-dir DIR      below which both keep their address files (/var/tmp)
";

/// The checked command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether a cluster is measured.
    pub(crate) cluster: bool,
    /// Whether an innocent pod beside a hostile namespace is measured.
    pub(crate) neighbours: bool,
    /// Whether an agent among many nodes is measured.
    pub(crate) nodes: bool,
    /// Whether a port of Open vSwitch is measured, and nothing else.
    pub(crate) ovs: bool,
    /// Whether packets between two nodes are measured, and nothing else.
    pub(crate) paths: bool,
    /// Whether each plugin is measured by itself, and nothing else.
    pub(crate) plugins: bool,
    /// Whether durable addresses are measured, and nothing else.
    pub(crate) pool: bool,
    /// Whether a cluster's ranges are measured, and nothing else.
    pub(crate) ranges: bool,
    pub(crate) plugin_rounds: usize,
    /// Of the plugins this one only.
    pub(crate) plugin: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) crowds: usize,
    /// How many pods come and go before the last look at an agent's memory.
    pub(crate) turnover: usize,
    pub(crate) json: Option<PathBuf>,
    pub(crate) netloom: PathBuf,
    pub(crate) netloom_cni: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) traced: PathBuf,
    /// Where the executables of before are, which a cluster is compared with.
    pub(crate) before: Option<PathBuf>,
    pub(crate) peers: PathBuf,
    /// Where Kuryr's libraries are.
    pub(crate) kuryr: PathBuf,
    pub(crate) data_dir: PathBuf,
}

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

// === impl Options ===

impl Options {
    /// Nothing if help is asked for.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>> {
        let cached = |variable: &str, dir: &str| {
            let set = std::env::var_os(variable).map(PathBuf::from);
            set.or_else(|| Some(std::env::home_dir()?.join(".cache").join(dir))).unwrap_or_default()
        };
        let (peers, kuryr) = (cached("NETLOOM_PEERS", "netloom-peers"), cached("NETLOOM_KURYR", "netloom-kuryr"));
        let mut args = args.into_iter().peekable();
        let cluster = args.next_if(|first| first == "cluster").is_some();
        let neighbours = args.next_if(|first| first == "neighbours").is_some();
        let nodes = args.next_if(|first| first == "nodes").is_some();
        let ovs = args.next_if(|first| first == "ovs").is_some();
        let paths = args.next_if(|first| first == "paths").is_some();
        let plugins = args.next_if(|first| first == "plugins").is_some();
        let pool = args.next_if(|first| first == "pool").is_some();
        let ranges = args.next_if(|first| first == "ranges").is_some();
        let rounds = match () {
            () if cluster || neighbours || ovs || paths => 200,
            () if pool || nodes => 20,
            () if ranges => 5,
            () => 1000,
        };
        let mut options = Options {
            cluster,
            neighbours,
            nodes,
            ovs,
            paths,
            plugins,
            pool,
            ranges,
            plugin_rounds: 200,
            plugin: None,
            rounds,
            crowds: if cluster { 6 } else { 10 },
            turnover: 5000,
            json: None,
            netloom: "dist/netloom".into(),
            netloom_cni: "dist/netloom-cni".into(),
            floor: "dist/floor".into(),
            traced: "dist/netloom-cni-traced".into(),
            before: None,
            peers,
            kuryr,
            data_dir: "/var/tmp".into(),
        };
        while let Some(name) = args.next() {
            if matches!(name.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            let mut value = || args.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--rounds" => options.rounds = number(&name, &value()?)?,
                "--crowds" => options.crowds = number(&name, &value()?)?,
                "--turnover" => options.turnover = number(&name, &value()?)?,
                "--plugin-rounds" => options.plugin_rounds = number(&name, &value()?)?,
                "--plugin" => options.plugin = Some(value()?),
                "--json" => options.json = Some(value()?.into()),
                "--netloom" => options.netloom = value()?.into(),
                "--netloom-cni" => options.netloom_cni = value()?.into(),
                "--floor" => options.floor = value()?.into(),
                "--traced" => options.traced = value()?.into(),
                "--before" => options.before = Some(value()?.into()),
                "--peers" => options.peers = value()?.into(),
                "--data-dir" => options.data_dir = value()?.into(),
                _ => bail!("there is no option {name}"),
            }
        }
        Ok(Some(options))
    }

    /// Whether this is measured, of what is neither a verb nor a plugin by itself: not in the guest, where only what needs it is.
    pub(crate) fn wants(&self, name: &str) -> bool {
        match &self.plugin {
            Some(plugin) => plugin == name,
            None => !in_guest(),
        }
    }
}

/// Whether this runs in the guest.
pub(crate) fn in_guest() -> bool {
    std::env::var_os("NETLOOM_IN_GUEST").is_some()
}

fn number(name: &str, value: &str) -> Result<usize> {
    value.parse().ok().filter(|n| *n > 0).with_context(|| format!("{name} needs a number above 0"))
}

// === impl Scratch ===

impl Scratch {
    pub(crate) fn make(below: &Path, name: &str) -> Result<Self> {
        let path = below.join(format!("nlb-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("bench: remove {}: {e}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Option<Options>> {
        Options::parse(args.iter().map(|a| (*a).to_owned()))
    }

    #[test]
    fn options_have_defaults_and_are_read() {
        assert_eq!(parse(&[]).unwrap().unwrap().rounds, 1000);
        let options = parse(&["--rounds", "7", "--json", "/x.json", "--data-dir", "/d"]).unwrap().unwrap();
        assert_eq!((options.rounds, options.json, options.data_dir), (7, Some("/x.json".into()), "/d".into()));
        assert_eq!(parse(&["--rounds", "7", "-h"]).unwrap(), None);
        let options = parse(&["cluster", "--crowds", "2"]).unwrap().unwrap();
        assert_eq!((options.cluster, options.rounds, options.crowds), (true, 200, 2));
        let options = parse(&["plugins", "--plugin-rounds", "9"]).unwrap().unwrap();
        assert_eq!((options.plugins, options.plugin_rounds), (true, 9));
        let options = parse(&["pool", "--rounds", "3"]).unwrap().unwrap();
        assert_eq!((options.pool, options.plugins, options.rounds), (true, false, 3));
    }

    #[test]
    fn mistakes_name_the_option() {
        for (args, message) in [
            (&["--rounds"][..], "--rounds needs a value"),
            (&["--rounds", "0"], "--rounds needs a number"),
            (&["--fast"], "no option --fast"),
        ] {
            let error = parse(args).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
