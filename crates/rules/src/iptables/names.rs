//! Names in matches of iptables that it looks up somewhere else: in the node's files, or at the servers of `nsswitch.conf`.
//!
//! ```text
//!   -m owner --uid-owner alice     getpwnam      --dport http     getservbyname      -p ospf     getprotobyname
//!   -m bpf --object-pinned /x      open          --realm cosmos   /etc/iproute2/rt_realms
//! ```
//!
//! All programs of the node that change rules wait meanwhile. Numbers need no look-up. Addresses are a matter of their own: no
//! configuration may name a machine.

/// What a match names outside of the firewall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A user, a group, a port, a protocol: its number says the same.
    Name {
        /// As it is written.
        option: String,
        /// The name, with what else is in the value.
        value: String,
    },
    /// A file, from the root.
    Path(String),
}

/// What an option's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Of numbers, and what stands between them.
    Numbers,
    /// The same, or one of [`PROTOCOLS`].
    Protocol,
    /// A file's path.
    Path,
    /// A control group's path, from the root of their hierarchy.
    Group,
    /// An address, which is looked at elsewhere.
    Address,
    /// Any text.
    Text,
}

/// Options of iptables itself. They go by their whole name, whatever match has longer ones that begin so.
const OF_ALL: &[(&str, Value)] = &[
    ("source", Value::Address),
    ("src", Value::Address),
    ("destination", Value::Address),
    ("dst", Value::Address),
    ("protocol", Value::Protocol),
    ("proto", Value::Protocol),
];

/// Options of matches (iptables-extensions(8)).
const OF_MATCHES: &[(&str, Value)] = &[
    // `tcp`, `udp`, `udplite`, `dccp`, `sctp`.
    ("source-port", Value::Numbers),
    ("sport", Value::Numbers),
    ("destination-port", Value::Numbers),
    ("dport", Value::Numbers),
    // `multiport`.
    ("source-ports", Value::Numbers),
    ("sports", Value::Numbers),
    ("destination-ports", Value::Numbers),
    ("dports", Value::Numbers),
    ("ports", Value::Numbers),
    // `conntrack`.
    ("ctproto", Value::Protocol),
    ("ctorigsrcport", Value::Numbers),
    ("ctorigdstport", Value::Numbers),
    ("ctreplsrcport", Value::Numbers),
    ("ctrepldstport", Value::Numbers),
    // `ipvs`, `policy`.
    ("vproto", Value::Protocol),
    ("vport", Value::Numbers),
    ("proto", Value::Protocol),
    // `owner`.
    ("uid-owner", Value::Numbers),
    ("gid-owner", Value::Numbers),
    // `realm`, `devgroup`, `connlabel`: names of files below `/etc`.
    ("realm", Value::Numbers),
    ("src-group", Value::Numbers),
    ("dst-group", Value::Numbers),
    ("label", Value::Numbers),
    // `bpf`, `cgroup`.
    ("object-pinned", Value::Path),
    ("path", Value::Group),
    // `comment`, `string`.
    ("comment", Value::Text),
    ("string", Value::Text),
    ("hex-string", Value::Text),
];

/// Protocols of which iptables knows the number by itself (`xtables_chain_protos`).
const PROTOCOLS: &[&str] = &["all", "tcp", "udp", "udplite", "sctp", "dccp", "icmp", "icmpv6", "ipv6-icmp", "esp", "ah", "mh", "ipv6-mh"];

/// Where control groups are seen as directories.
const GROUPS: &str = "/sys/fs/cgroup";

/// What matches of iptables name outside of the firewall. Words that are none of iptables name nothing.
#[must_use]
pub fn names_outside(words: &[&str]) -> Vec<Outside> {
    let next = words.iter().skip(1).copied().chain([""]);
    words.iter().zip(next).flat_map(|(word, next)| of_option(word, next)).collect()
}

/// What one option names, whose value is in the same word or the next one.
fn of_option(word: &str, next: &str) -> Vec<Outside> {
    let (option, value, values) = match word.strip_prefix("--") {
        Some(long) => {
            let (name, value) = long.split_once('=').unwrap_or((long, next));
            (word.len() - long.len() + name.len(), value, values_of(name))
        }
        None => match word.strip_prefix("-p") {
            Some("") => (word.len(), next, vec![Value::Protocol]),
            Some(value) => (2, value, vec![Value::Protocol]),
            None => return Vec::new(),
        },
    };
    let option = word.get(..option).unwrap_or(word);
    values.into_iter().filter_map(|kind| kind.outside(option, value)).collect()
}

/// What the values of an option may be, whose name may be cut short (`getopt_long`): of each that it could be.
fn values_of(name: &str) -> Vec<Value> {
    if let Some((_, value)) = OF_ALL.iter().find(|(own, _)| *own == name) {
        return vec![*value];
    }
    let mut values: Vec<Value> =
        OF_ALL.iter().chain(OF_MATCHES).filter(|(own, _)| own.starts_with(name)).map(|(_, value)| *value).collect();
    values.dedup();
    // An option that nobody has thought of here.
    if values.is_empty() { vec![Value::Path] } else { values }
}

// === impl Value ===

impl Value {
    /// What a value names outside.
    fn outside(self, option: &str, value: &str) -> Option<Outside> {
        let name = || Outside::Name { option: option.to_owned(), value: value.to_owned() };
        match self {
            Value::Numbers => (!is_of_numbers(value)).then(name),
            Value::Protocol => (!is_of_numbers(value) && !PROTOCOLS.iter().any(|own| own.eq_ignore_ascii_case(value))).then(name),
            Value::Path => value.starts_with('/').then(|| Outside::Path(value.to_owned())),
            Value::Group => (!value.is_empty()).then(|| Outside::Path(format!("{GROUPS}/{}", value.trim_start_matches('/')))),
            Value::Address | Value::Text => None,
        }
    }
}

/// Whether a value is of numbers alone: one, a list, a range, one with a mask, an address. Some are written with `0x`.
fn is_of_numbers(value: &str) -> bool {
    let is_number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()),
        None => text.chars().all(|c| c.is_ascii_digit()),
    };
    value.split([',', ':', '-', '/', '.']).all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(line: &str) -> Vec<String> {
        let told = |one| match one {
            Outside::Name { option, value } => format!("{option} {value}"),
            Outside::Path(path) => path,
        };
        names_outside(&line.split(' ').collect::<Vec<_>>()).into_iter().map(told).collect()
    }

    #[test]
    fn numbers_and_what_iptables_knows_by_itself_are_looked_up_nowhere() {
        for line in [
            "-s 192.0.2.0/24 ! -d 10/8",
            "--src=192.0.2.1 --dst 192.0.2.2 --sour 192.0.2.0/24",
            "-p tcp --dport 80 ! --sport 1024:",
            "-pUDP --dport=0x50",
            "-p 0x59",
            "--proto ipv6-icmp --icmpv6-type echo-request",
            "-m multiport --dports 80,443,8000:8080",
            "-m owner --uid-owner 0-1000 --gid-owner 100 --socket-exists",
            "-m conntrack --ctstate NEW --ctproto 6 --ctorigdstport 80",
            "-m comment --comment /etc/passwd",
            "-m string --algo bm --string /index.html --to 100",
            "-m realm --realm 0x10/0xff -m devgroup --src-group 0x4",
            "-m addrtype --src-type LOCAL -m mac --mac-source 02:00:00:00:00:01 -m time --timestart 08:00",
            "ip saddr 192.0.2.1",
        ] {
            assert_eq!(outside(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn what_is_looked_up_is_found_however_it_is_written() {
        for (line, names) in [
            ("-m owner --uid-owner alice", "--uid-owner alice"),
            ("-m owner --uid-o=alice", "--uid-o alice"),
            ("! --gid-owner wheel", "--gid-owner wheel"),
            ("-p ospf", "-p ospf"),
            ("-pospf", "-p ospf"),
            ("--protoc ospf", "--protoc ospf"),
            ("-p tcp --dport http", "--dport http"),
            ("--destination-port 1:http", "--destination-port 1:http"),
            ("-m multiport --dp 22,ssh", "--dp 22,ssh"),
            ("-m conntrack --ctproto ospf", "--ctproto ospf"),
            ("-m policy --pol ipsec --proto ah4", "--proto ah4"),
            ("-m realm --realm cosmos", "--realm cosmos"),
            ("-m bpf --object-pinned /sys/fs/bpf/x", "/sys/fs/bpf/x"),
            ("-m bpf --obj=/sys/fs/bpf/x", "/sys/fs/bpf/x"),
            ("-m cgroup --path user.slice/x", "/sys/fs/cgroup/user.slice/x"),
            ("-m another --file /etc/shadow", "/etc/shadow"),
        ] {
            assert_eq!(outside(line), [names], "{line}");
        }
    }
}
