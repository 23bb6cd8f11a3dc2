//! A runtime in one file: attaches a namespace to a network of a directory, prints the result, checks and detaches.
//!
//! ```text
//! ip netns add demo
//! cargo run -p netloom-chain --example attach -- /etc/cni/net.d mynet /run/netns/demo
//! ip netns delete demo
//! ```
//!
//! Plugins are found on `CNI_PATH`. To have plugins built in, hand them to [`Finder::new`] in place of the empty list.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cni::{CniArgs, CniError, Code};
use json::Object;
use netloom_chain::{Cache, Chain, Runtime, load};
use plugin::{Dirs, Finder, Host, Prefer};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, network, netns] = args.as_slice() else {
        eprintln!("usage: attach DIRECTORY NETWORK NETNS");
        return ExitCode::from(2);
    };
    match run(Path::new(dir), network, Path::new(netns)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e} (code {})", e.code);
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &Path, network: &str, netns: &Path) -> Result<(), CniError> {
    let list = load(dir, network)?;
    let path = std::env::split_paths(&std::env::var_os("CNI_PATH").unwrap_or_default()).collect();
    let finder = Finder::new(&[], path, Prefer::Path, std::env::vars_os().collect());
    let cache = std::env::temp_dir().join("netloom-example");
    let chain = Chain::new(finder, Some(Cache::new(&cache)));
    let runtime = Runtime {
        container: "example".parse()?,
        ifname: "eth0".parse()?,
        netns: Some(netns.to_owned()),
        args: CniArgs::default(),
        capability_args: Object::new(),
    };
    let mut host = Host::here(Dirs::default());
    let by = Instant::now() + Duration::from_secs(30);

    let result = chain.add(&list, &runtime, &mut host, by)?;
    println!("{}", result.print(list.version)?);
    if list.version.has_check() {
        chain.check(&list, &runtime, None, &mut host, by)?;
        println!("checked");
    }
    chain.del(&list, &runtime, &mut host, by)?;
    println!("detached");
    std::fs::remove_dir_all(&cache).map_err(|e| CniError::new(Code::IO, e.to_string()))
}
