//! What a plugin says of itself: VERSION, help and documentation are made from it.

use cni::Version;

/// A plugin's description, one constant per plugin.
#[derive(Debug)]
pub struct About {
    /// The name that a configuration's `type` (or `ipam.type`) gives.
    pub name: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
    /// The versions of the specification that it supports.
    pub versions: &'static [Version],
    /// The `runtimeConfig` that it understands.
    pub capabilities: &'static [&'static str],
    /// The configuration keys that it reads.
    pub keys: &'static [Key],
    /// For an IPAM plugin: whether it can say addresses only when the interface is there, as DHCP can. Others are asked
    /// before anything is made, so that what they refuse leaves no trace.
    pub needs_link: bool,
}

/// One configuration key.
#[derive(Debug)]
pub struct Key {
    /// Its name, with a path where it is nested: `ipam.subnet`.
    pub name: &'static str,
    /// What kind of value: `bool`, `bytes`, `string`, ...
    pub kind: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
    /// What of the host its value names.
    pub names: Names,
    /// The keys of its objects: of the one that it has, or of those in its lists. Empty where it has none, or any.
    pub members: &'static [&'static str],
}

/// The keys of a route in `ipam.routes`.
pub const ROUTE: &[&str] = &["dst", "gw", "mtu", "advmss", "priority", "table", "scope"];

/// The keys of `dns`, of a configuration and of `ipam`.
pub const DNS: &[&str] = &["nameservers", "domain", "search", "options"];

/// What of the host a key's value names. A definition, whose author need not be trusted, names no path, chain or mark but those said
/// here, unless the cluster's owner allows more (`docs/operate/policy.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// None of these.
    Nothing,
    /// A chain of the host's firewall, or a mark by which its rules know packets: the default.
    Firewall,
    /// A file, a directory or a socket: the default, or one of these.
    Path {
        /// What is allowed besides the default, from the root.
        usual: &'static [&'static str],
    },
    /// A directory in which files are written, of each network its own: the default, or one below it.
    Directory,
    /// Options that a client says to a DHCP server, some of which tell who it is.
    Options,
    /// Matches of iptables, word for word, which may name users, ports and files of the host.
    Matches,
}

// === impl About ===

impl About {
    /// Whether it gives addresses to another plugin, which names it in `ipam.type`.
    pub fn gives_addresses(&self) -> bool {
        self.keys.iter().any(|key| key.name.starts_with("ipam."))
    }

    /// Whether it looks into the container. Who gives addresses without an interface knows the container by its name alone.
    pub fn needs_netns(&self) -> bool {
        self.needs_link || !self.gives_addresses()
    }
}

// === impl Key ===

impl Key {
    /// A key in one line of a table.
    pub const fn new(name: &'static str, kind: &'static str, default: &'static str, summary: &'static str) -> Self {
        Key { name, kind, default, summary, names: Names::Nothing, members: &[] }
    }

    /// The same key, of whose objects these are all keys.
    pub const fn of(self, members: &'static [&'static str]) -> Self {
        Key { members, ..self }
    }

    /// A key that names a chain of the host's firewall, or a mark of packets.
    pub const fn firewall(name: &'static str, kind: &'static str, default: &'static str, summary: &'static str) -> Self {
        Key { name, kind, default, summary, names: Names::Firewall, members: &[] }
    }

    /// A key that names a file, a directory or a socket; `usual` are paths that definitions may name besides the default.
    pub const fn path(name: &'static str, default: &'static str, usual: &'static [&'static str], summary: &'static str) -> Self {
        Key { name, kind: "path", default, summary, names: Names::Path { usual }, members: &[] }
    }

    /// A key that names a directory in which files are written; definitions may name those below the default too.
    pub const fn directory(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Key { name, kind: "path", default, summary, names: Names::Directory, members: &[] }
    }

    /// A key that has matches of iptables.
    pub const fn matches(name: &'static str, summary: &'static str) -> Self {
        Key { name, kind: "list", default: "none", summary, names: Names::Matches, members: &[] }
    }

    /// A key that has options of DHCP.
    pub const fn options(name: &'static str, summary: &'static str) -> Self {
        Key { name, kind: "list", default: "none", summary, names: Names::Options, members: &[] }
    }

    /// Whether a definition may name this path, chain or mark without anybody's leave: nothing, the default, a usual one, and of
    /// directories what is below the default. Only the text is looked at.
    pub fn is_usual(&self, path: &str) -> bool {
        match self.names {
            // There may be a chain of that name.
            _ if path == "none" => matches!(self.names, Names::Nothing | Names::Matches | Names::Options),
            _ if path.is_empty() || path == self.default => true,
            // Of words of iptables, and of options, each is looked at by itself.
            Names::Nothing | Names::Matches | Names::Options => true,
            Names::Firewall => false,
            Names::Path { usual } => usual.contains(&path),
            Names::Directory => {
                let is_plain = |part: &str| !matches!(part, "" | "." | "..");
                let below = path.strip_prefix(self.default).and_then(|rest| rest.strip_prefix('/'));
                below.is_some_and(|below| below.trim_end_matches('/').split('/').all(is_plain))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_are_the_default_what_is_named_and_what_is_below_a_directory() {
        let file = Key::path("f", "/run/f.env", &["/etc/f.env"], "");
        for (path, usual) in [("", true), ("/run/f.env", true), ("/etc/f.env", true), ("/run/f.env/x", false), ("run/f.env", false)] {
            assert_eq!(file.is_usual(path), usual, "{path}");
        }
        let (bit, chain) = (Key::firewall("b", "int", "13", ""), Key::firewall("c", "string", "none", ""));
        for (key, value, usual) in [(&bit, "13", true), (&bit, "", true), (&bit, "5", false), (&chain, "", true), (&chain, "none", false)] {
            assert_eq!(key.is_usual(value), usual, "{} {value}", key.name);
        }
        let directory = Key::directory("d", "/var/lib/d", "");
        for path in ["", "/var/lib/d", "/var/lib/d/a", "/var/lib/d/a/b/", "/var/lib/d/..a"] {
            assert!(directory.is_usual(path), "{path}");
        }
        for path in
            ["/var/lib", "/var/lib/dd", "/var/lib/d/../e", "/var/lib/d/a/../../e", "/var/lib/d//a", "/var/lib/d/./a", "var/lib/d", "/"]
        {
            assert!(!directory.is_usual(path), "{path}");
        }
    }
}
