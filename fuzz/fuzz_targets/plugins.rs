//! Plugins' own keys: the first byte says which plugin, the rest is its configuration, as STATUS reads it. And the files that they keep.
#![no_main]

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use cni::Config;
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;
use plugin::{Cx, Dirs, Finder, Host, Prefer, Teardown};

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dirs = Dirs::below(scratch.get_or_init(|| Scratch::new("plugins")).path());
    let Some((which, rest)) = bytes.split_first() else { return };
    plugins::fuzz::file(rest);
    let plugin = plugins::BUILTINS[usize::from(*which) % plugins::BUILTINS.len()];
    let Ok(network) = Config::named(rest) else { return };
    let Ok((config, _)) = Config::parse_named(network) else { return };
    let (mut host, mut teardown) = (Host::here(dirs), Teardown::new());
    let finder = Finder::new(plugins::BUILTINS, Vec::new(), Prefer::Builtin, Vec::new());
    let mut x = Cx::new(&mut host, &mut teardown, &finder, Instant::now() + Duration::from_millis(100));
    let told = plugin.status(&config, &mut x);
    assert!(teardown.is_empty(), "{told:?}: STATUS makes nothing");
}));
