//! A namespace for a test, gone with it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use linux::{Inside, Link, LinkSpec, Netlink, Netns, Request, link};
use serde_json::Value;

/// A namespace that `ip -n` can name, removed when dropped.
pub(crate) struct Space {
    pub(crate) name: String,
    pub(crate) netns: Netns,
}

impl Space {
    pub(crate) fn new() -> Self {
        let path = unused();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Space { name, netns: Netns::create(&path).unwrap() }
    }

    /// Runs a test's work inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce(&Inside, &mut Netlink) -> T + Send) -> T {
        self.netns.enter(|inside| work(inside, &mut Netlink::open(inside).unwrap())).unwrap()
    }

    /// `ip -n NAME -d -j ARGS`.
    pub(crate) fn ip(&self, args: &str) -> Value {
        json("ip", &format!("-n {} -d -j {args}", self.name))
    }

    /// Its name to `ip` and `tc`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// `ip -n NAME ARGS`, which must succeed.
    pub(crate) fn ip_do(&self, args: &str) {
        output("ip", &format!("-n {} {args}", self.name));
    }

    /// A file as it is seen inside.
    pub(crate) fn cat(&self, path: &str) -> String {
        output("ip", &format!("netns exec {} cat {path}", self.name)).trim_end().to_owned()
    }

    /// Whether `ip` finds a link.
    pub(crate) fn has(&self, name: &str) -> bool {
        Command::new("ip").args(["-n", &self.name, "link", "show", "dev", name]).output().unwrap().status.success()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        Netns::remove(self.netns.path()).unwrap();
    }
}

/// A path below /run/netns that no other test has.
pub(crate) fn unused() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/run/netns/nllx-{}-{count}", std::process::id()))
}

pub(crate) fn json(program: &str, args: &str) -> Value {
    let text = output(program, args);
    serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text }).unwrap()
}

pub(crate) fn output(program: &str, args: &str) -> String {
    let output = Command::new(program).args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn name(name: &str) -> cni::IfName {
    cni::IfName::parse(name).unwrap()
}

pub(crate) fn mac(mac: &str) -> cni::Mac {
    mac.parse().unwrap()
}

pub(crate) fn veth<'fd>(first: &str, second: &str) -> LinkSpec<'fd> {
    LinkSpec::new(name(first), link::Kind::Veth(link::Peer::new(name(second))))
}

/// A pair whose ends have this index and the next.
pub(crate) fn pair<'fd>(index: u32, first: &str, second: &str) -> LinkSpec<'fd> {
    let peer = link::Peer { index: Some(index + 1), ..link::Peer::new(name(second)) };
    LinkSpec { index: Some(index), ..LinkSpec::new(name(first), link::Kind::Veth(peer)) }
}

pub(crate) fn bridge<'fd>(called: &str) -> LinkSpec<'fd> {
    LinkSpec::new(name(called), link::Kind::Bridge(link::Bridge::default()))
}

/// Sends one request that must succeed.
pub(crate) fn done(netlink: &mut Netlink, request: Request<'_>) {
    netlink.send_one(request).unwrap();
}

/// The link of that name.
pub(crate) fn found(netlink: &mut Netlink, name: &str) -> Link {
    netlink.link(name).unwrap().unwrap_or_else(|| panic!("no link {name}"))
}
