//! Names in matches of iptables that it looks up somewhere else: in the node's files, or at the servers of `nsswitch.conf`; and matches that
//! count, remember or change something for the whole node.
//!
//! ```text
//!   -m owner --uid-owner alice     getpwnam      --dport http     getservbyname      -p ospf     getprotobyname
//!   -m bpf --object-pinned /x      open          --realm cosmos   /etc/iproute2/rt_realms
//!   -m recent --name x             /proc/net/xt_recent/x, of whichever rule that names it
//! ```
//!
//! All programs of the node that change rules wait meanwhile. Numbers need no look-up where iptables reads them as such: within their range,
//! and without a zero in front; what it cannot read as a number it takes for a name. Users and groups are looked up in any case, and so are
//! the headers of IPv6. Addresses are a matter of their own: no configuration may name a machine.

/// What a match names outside of the firewall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A user, a group, a port, a protocol.
    Name {
        /// As it is written.
        option: String,
        /// The name, with what else is in the value.
        value: String,
        /// Whether its number is looked up nowhere.
        has_number: bool,
    },
    /// A file, from the root.
    Path(String),
    /// A match that is not known to keep what it keeps with its own rule alone: `-m recent`.
    Match(String),
}

/// What an option's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// Of numbers, and what stands between them.
    Numbers,
    /// A port, or a range of them of which either end may be missing.
    Port,
    /// Ports and ranges of them, with both ends.
    Ports,
    /// The number of a protocol, or one of [`PROTOCOLS`].
    Protocol,
    /// The same, in capital letters, too.
    AnyCaseProtocol,
    /// What is looked up whatever it is.
    LookedUp,
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
    ("protocol", Value::AnyCaseProtocol),
    // `policy` has one of this name as well.
    ("proto", Value::Protocol),
];

/// Options of matches (iptables-extensions(8)).
const OF_MATCHES: &[(&str, Value)] = &[
    // `tcp`, `udp`, `dccp`, `sctp`.
    ("source-port", Value::Port),
    ("sport", Value::Port),
    ("destination-port", Value::Port),
    ("dport", Value::Port),
    // `multiport`.
    ("source-ports", Value::Ports),
    ("sports", Value::Ports),
    ("destination-ports", Value::Ports),
    ("dports", Value::Ports),
    ("ports", Value::Ports),
    // `conntrack`.
    ("ctproto", Value::Protocol),
    ("ctorigsrc", Value::Address),
    ("ctorigdst", Value::Address),
    ("ctreplsrc", Value::Address),
    ("ctrepldst", Value::Address),
    ("ctorigsrcport", Value::Port),
    ("ctorigdstport", Value::Port),
    ("ctreplsrcport", Value::Port),
    ("ctrepldstport", Value::Port),
    // `ipvs`.
    ("vproto", Value::Protocol),
    ("vport", Value::Port),
    ("vportctl", Value::Port),
    // `owner`, `ipv6header`: `getpwnam`, `getgrnam` and `getprotobyname` come before the number.
    ("uid-owner", Value::LookedUp),
    ("gid-owner", Value::LookedUp),
    ("header", Value::LookedUp),
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
const PROTOCOLS: &[&str] = &["all", "tcp", "udp", "udplite", "sctp", "icmp", "icmpv6", "ipv6-icmp", "esp", "ah", "mh", "ipv6-mh"];

/// The match whose options for lists of ports go by the names of those for one, cut short.
const MULTIPORT: &str = "multiport";

/// Matches that keep nothing but what is of their own rule, or of the packet's own connection (iptables-extensions(8)). Others have lists,
/// counters and sets by name, which any rule of the node may change that names them (`recent`, `hashlimit`, `nfacct`, `set`, `rateest`), or a
/// table that grows with what passes (`connlimit`), or switch something on for all: `connbytes` accounting, `physdev` the filter of every
/// bridge by the rules for IP (it loads `br_netfilter`, net/netfilter/xt_physdev.c).
const OF_THEIR_RULE: &[&str] = &[
    "addrtype",
    "ah",
    "bpf",
    "cgroup",
    "cluster",
    "comment",
    "connlabel",
    "connmark",
    "conntrack",
    "cpu",
    "dccp",
    "devgroup",
    "dscp",
    "dst",
    "ecn",
    "esp",
    "eui64",
    "frag",
    "hbh",
    "helper",
    "hl",
    "icmp",
    "icmp6",
    "icmpv6",
    "ipcomp",
    "iprange",
    "ipv6header",
    "ipvs",
    "length",
    "limit",
    "mac",
    "mark",
    "mh",
    "multiport",
    "owner",
    "pkttype",
    "policy",
    "realm",
    "rpfilter",
    "rt",
    "sctp",
    "socket",
    "srh",
    "state",
    "statistic",
    "string",
    "tcp",
    "tcpmss",
    "time",
    "tos",
    "ttl",
    "u32",
    "udp",
    "udplite",
];

/// Where control groups are seen as directories.
const GROUPS: &str = "/sys/fs/cgroup";

/// What matches of iptables name outside of the firewall. Words that are none of iptables name nothing.
#[must_use]
pub fn names_outside(words: &[&str]) -> Vec<Outside> {
    let has_lists = words.iter().any(|word| word.ends_with(MULTIPORT));
    let next = words.iter().skip(1).copied().chain([""]);
    let of_words = |(word, next): (&&str, &str)| match match_of(word, next) {
        Some(name) => (!OF_THEIR_RULE.contains(&name)).then(|| Outside::Match(format!("-m {name}"))).into_iter().collect(),
        None => of_option(word, next, has_lists),
    };
    words.iter().zip(next).flat_map(|(word, next)| of_words((word, next))).collect()
}

/// The match that an option loads: `-m`, or `--match`, which may be cut short to two letters (`getopt_long`).
fn match_of<'w>(word: &'w str, next: &'w str) -> Option<&'w str> {
    match word.strip_prefix("--") {
        Some(long) => {
            let (name, value) = long.split_once('=').unwrap_or((long, next));
            ("match".starts_with(name) && name.len() > 1).then_some(value)
        }
        None => match word.strip_prefix("-m")? {
            "" => Some(next),
            name => Some(name),
        },
    }
}

/// What one option names, whose value is in the same word or the next one. `has_lists`: [`MULTIPORT`] is among the words.
fn of_option(word: &str, next: &str, has_lists: bool) -> Vec<Outside> {
    let (option, value, values) = match word.strip_prefix("--") {
        Some(long) => {
            let (name, value) = long.split_once('=').unwrap_or((long, next));
            (word.len() - long.len() + name.len(), value, values_of(name, has_lists))
        }
        None => match word.strip_prefix("-p") {
            Some("") => (word.len(), next, vec![Value::AnyCaseProtocol]),
            Some(value) => (2, value, vec![Value::AnyCaseProtocol]),
            None => return Vec::new(),
        },
    };
    let option = word.get(..option).unwrap_or(word);
    let mut outside: Vec<Outside> = values.into_iter().filter_map(|kind| kind.outside(option, value)).collect();
    outside.dedup();
    outside
}

/// What the values of an option may be, whose name may be cut short (`getopt_long`): of each that it could be. What could be one of iptables
/// itself is that one, or none.
fn values_of(name: &str, has_lists: bool) -> Vec<Value> {
    let whole = OF_ALL.iter().chain(OF_MATCHES).find(|(own, _)| *own == name).map(|(_, value)| *value);
    if let Some(value) = whole.filter(|value| *value != Value::Port || !has_lists) {
        return vec![value];
    }
    let begin = |options: &[(&str, Value)]| -> Vec<Value> {
        options.iter().filter(|(own, _)| own.starts_with(name)).map(|(_, value)| *value).collect()
    };
    let mut values = begin(OF_ALL);
    if values.is_empty() {
        values = begin(OF_MATCHES);
    }
    values.sort_unstable();
    values.dedup();
    // An option that nobody has thought of here.
    if values.is_empty() { vec![Value::Path] } else { values }
}

// === impl Value ===

impl Value {
    /// What a value names outside.
    fn outside(self, option: &str, value: &str) -> Option<Outside> {
        let name = |has_number| Outside::Name { option: option.to_owned(), value: value.to_owned(), has_number };
        let is_protocol = |text: &str| is_number(text, u8::MAX.into()) || PROTOCOLS.contains(&text);
        match self {
            Value::Numbers => (!is_of_numbers(value)).then(|| name(true)),
            Value::Port => (!is_range(value, |end| end.is_empty() || is_port(end))).then(|| name(true)),
            Value::Ports => (!value.split(',').all(|part| is_range(part, is_port))).then(|| name(true)),
            Value::Protocol => (!is_protocol(value)).then(|| name(true)),
            Value::AnyCaseProtocol => (!is_protocol(&value.to_ascii_lowercase())).then(|| name(true)),
            Value::LookedUp => Some(name(false)),
            Value::Path => value.starts_with('/').then(|| Outside::Path(value.to_owned())),
            Value::Group => (!value.is_empty()).then(|| Outside::Path(format!("{GROUPS}/{}", value.trim_start_matches('/')))),
            Value::Address | Value::Text => None,
        }
    }
}

/// Whether a value is one of these, or two with a colon between them.
fn is_range(value: &str, is_end: impl Fn(&str) -> bool) -> bool {
    match value.split_once(':') {
        Some((first, last)) => is_end(first) && is_end(last),
        None => !value.is_empty() && is_end(value),
    }
}

fn is_port(text: &str) -> bool {
    is_number(text, u16::MAX.into())
}

/// Whether iptables reads a text as a number of at most this (`xtables_strtoui`). One with a zero in front would be octal.
fn is_number(text: &str, most: u32) -> bool {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    let is_plain = digits.chars().all(|c| c.is_ascii_hexdigit()) && (radix == 16 || digits == "0" || !digits.starts_with('0'));
    is_plain && u32::from_str_radix(digits, radix).is_ok_and(|number| number <= most)
}

/// Whether a value is of numbers alone: one, a list, a range, one with a mask. Some are written with `0x`.
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
            Outside::Name { option, value, .. } => format!("{option} {value}"),
            Outside::Path(path) => path,
            Outside::Match(name) => name,
        };
        names_outside(&line.split(' ').collect::<Vec<_>>()).into_iter().map(told).collect()
    }

    #[test]
    fn numbers_and_what_iptables_knows_by_itself_are_looked_up_nowhere() {
        for line in [
            "-s 192.0.2.0/24 ! -d 10/8",
            "--src=192.0.2.1 --dst 192.0.2.2 --sour 192.0.2.0/24",
            "-p tcp --dport 80 ! --sport 1024:",
            "-pUDP --dport=0x50 --sport :0",
            "-p 0x59 -p 255 -p 0 --protocol ESP --proto all",
            "--proto ipv6-icmp --icmpv6-type echo-request",
            "-m multiport --dports 80,443,8000:8080",
            "-m multiport --ports 0,65535 --sports=1:0xffff --dport 80 --sp 80:90",
            "-m owner --socket-exists",
            "-m conntrack --ctstate NEW --ctproto 6 --ctorigdstport 80 --ctreplsrcport 80:",
            "-m conntrack --ctorigsrc fd00::1 --ctorigdst fd00::/8 --ctreplsrc=fd00::2 --ctrepldst 192.0.2.1 --ctproto udp",
            "-m policy --dir in --pol ipsec --proto esp --reqid 1 --tunnel-src fd00::1",
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
            // Looked up as names before they are read as numbers.
            ("-m owner --uid-owner 0", "--uid-owner 0"),
            ("-m owner --gid-owner 0-1000", "--gid-owner 0-1000"),
            ("-m ipv6header --header 44 --soft", "--header 44"),
            ("-m ipv6header --head=esp", "--head esp"),
            // Not in the table of iptables, or not in small letters where it does not make them small.
            ("-p dccp", "-p dccp"),
            ("-m conntrack --ctproto TCP", "--ctproto TCP"),
            ("-m ipvs --vproto UDP", "--vproto UDP"),
            ("-m policy --pol ipsec --proto ESP", "--proto ESP"),
            // No numbers to iptables.
            ("-p 256", "-p 256"),
            ("-p 0x100", "-p 0x100"),
            ("-p 06", "-p 06"),
            ("-p 6-17", "-p 6-17"),
            ("-m conntrack --ctproto 256", "--ctproto 256"),
            ("-p tcp --dport 65536", "--dport 65536"),
            ("-p tcp --dport 080", "--dport 080"),
            ("-p tcp --dport 0x", "--dport 0x"),
            ("-p tcp --dport 80,443", "--dport 80,443"),
            ("-p tcp --dport 80-90", "--dport 80-90"),
            ("-p tcp --dport 80:90:100", "--dport 80:90:100"),
            ("-p tcp --dport=", "--dport "),
            ("-m multiport --dports 80,,443", "--dports 80,,443"),
            ("-m multiport --dports 80,", "--dports 80,"),
            ("-m multiport --dports 1024:", "--dports 1024:"),
            ("-mmultiport --dport 1024:", "--dport 1024:"),
            ("-m multiport --ports 1:2,70000", "--ports 1:2,70000"),
            ("-m conntrack --ctorigsrcport http", "--ctorigsrcport http"),
            ("-p ospf", "-p ospf"),
            ("-pospf", "-p ospf"),
            ("--protoc ospf", "--protoc ospf"),
            ("--pro TCP", "--pro TCP"),
            ("-m multiport --dport 80,443", "--dport 80,443"),
            ("-p tcp --dport http", "--dport http"),
            ("--destination-port 1:http", "--destination-port 1:http"),
            ("-m multiport --dp 22,ssh", "--dp 22,ssh"),
            ("-m conntrack --ctproto ospf", "--ctproto ospf"),
            ("-m policy --pol ipsec --proto ah4", "--proto ah4"),
            ("-m realm --realm cosmos", "--realm cosmos"),
            ("-m bpf --object-pinned /sys/fs/bpf/x", "/sys/fs/bpf/x"),
            ("-m bpf --obj=/sys/fs/bpf/x", "/sys/fs/bpf/x"),
            ("-m cgroup --path user.slice/x", "/sys/fs/cgroup/user.slice/x"),
            ("--file /etc/shadow", "/etc/shadow"),
            // What is kept for the whole node.
            ("-m recent --name ssh --rcheck --seconds 60", "-m recent"),
            ("-mhashlimit --hashlimit-name x --hashlimit-upto 5/sec", "-m hashlimit"),
            ("--match connlimit --connlimit-above 10", "-m connlimit"),
            ("-p tcp --match=quota --quota 1000", "-m quota"),
            // It loads a module that changes every bridge of the node.
            ("-m physdev --physdev-is-bridged", "-m physdev"),
            ("--mat nfacct --nfacct-name x", "-m nfacct"),
            ("--ma=set --match-set KUBE-CLUSTER-IP dst", "-m set"),
            ("! -m condition --condition x", "-m condition"),
            ("-m", "-m "),
        ] {
            assert_eq!(outside(line), [names], "{line}");
        }
    }
}
