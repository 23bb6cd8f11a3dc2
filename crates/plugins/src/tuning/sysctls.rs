//! The sysctls of `tuning`: below `net` only, and only what the node's owner allows.

use std::collections::HashMap;
use std::path::PathBuf;

use cni::{CniError, Code, Config};
use json::{Object, Value};
use linux::{Errno, Inside, Sysctl, SysctlError};
use regex_lite::Regex;

use crate::{internal, verify};

/// One regular expression a line; without the file everything below `net` is allowed.
const ALLOWLIST: &str = "/etc/cni/tuning/allowlist.conf";

/// One sysctl with its value.
#[derive(Debug)]
pub(super) struct Setting {
    /// With dots, and the interface's name in its place.
    key: String,
    /// As it was written, and the same with dots: what an allowlist may name. Lists in the field name `IFNAME`.
    written: [String; 2],
    sysctl: Sysctl,
    value: String,
}

/// From `sysctl` objects, of which the later ones win.
pub(super) fn read(objects: &[&Object], ifname: &str) -> Result<Vec<Setting>, CniError> {
    let mut settings: Vec<Setting> = Vec::new();
    let mut places: HashMap<PathBuf, usize> = HashMap::new();
    for object in objects {
        for (key, value) in object.iter() {
            let place = format!("sysctl[{key:?}]");
            let value = match value {
                Value::String(s) => s.clone(),
                Value::Number(n) => n.to_string(),
                other => return Err(CniError::invalid(&place, format!("expected a string, found {}", other.kind()))),
            };
            let parts = components(key, ifname);
            if parts.first().map(String::as_str) != Some("net") {
                return Err(CniError::worded(
                    format_args!("invalid net sysctl key: {key:?}"),
                    "only settings below net belong to the container and can be changed",
                )
                .at(place));
            }
            let sysctl = Sysctl::new(parts.iter().map(String::as_str)).map_err(|e| CniError::invalid(&place, e))?;
            let path = sysctl.path().to_owned();
            let written = [key.to_owned(), components(key, "IFNAME").join(".")];
            let setting = Setting { key: parts.join("."), written, sysctl, value };
            match places.get(&path).and_then(|at| settings.get_mut(*at)) {
                Some(earlier) => *earlier = setting,
                None => {
                    places.insert(path, settings.len());
                    settings.push(setting);
                }
            }
        }
    }
    Ok(settings)
}

/// Whether no sysctl is there twice: under one key of a configuration as it came, or under both in two forms. Of two values nobody
/// knows which one is meant, but where `args` have the very key of the configuration, which they replace.
///
/// # Errors
/// Code 7 naming the second one.
pub(super) fn once(config: &Config, ifname: &str) -> Result<(), CniError> {
    let raw = config.raw();
    let own = raw.objects("sysctl").flat_map(Object::iter);
    let asked = raw.objects("args").flat_map(|args| args.objects("cni")).flat_map(|cni| cni.objects("sysctl")).flat_map(Object::iter);
    let mut seen: HashMap<Vec<String>, (&str, bool)> = HashMap::new();
    for (key, is_asked) in own.map(|(key, _)| (key, false)).chain(asked.map(|(key, _)| (key, true))) {
        let earlier = seen.insert(components(key, ifname), (key, is_asked));
        if let Some((other, of_args)) = earlier
            && (other != key || of_args == is_asked)
        {
            let msg = format!("duplicated sysctl keys are not allowed: sysctl[{key:?}] and sysctl[{other:?}] are the same setting");
            return Err(CniError::new(Code::INVALID_CONFIG, msg).at(format!("sysctl[{key:?}]")));
        }
    }
    Ok(())
}

/// As sysctl(8) reads a key: the first separator is the separator, and where that is a dot, `/` stands for a dot
/// inside a name. `IFNAME` becomes the interface's name, whatever characters it has.
fn components(key: &str, ifname: &str) -> Vec<String> {
    let parts: Vec<String> = match key.find(['.', '/']).and_then(|at| key.get(at..=at)) {
        Some("/") => key.split('/').map(str::to_owned).collect(),
        _ => key.split('.').map(|part| part.replace('/', ".")).collect(),
    };
    parts.into_iter().map(|part| part.replacen("IFNAME", ifname, 1)).collect()
}

/// Whether the node's owner allows all of them.
pub(super) fn allowed(settings: &[Setting]) -> Result<(), CniError> {
    if settings.is_empty() {
        return Ok(());
    }
    let text = match std::fs::read_to_string(ALLOWLIST) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(CniError::new(Code::IO, format!("read {ALLOWLIST}: {e}"))),
    };
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let compile = |l: &str| Regex::new(l).map_err(|e| CniError::invalid(ALLOWLIST, format!("{l:?}: {e}")));
    let rules = lines.map(compile).collect::<Result<Vec<_>, _>>()?;
    let matches = |s: &Setting| rules.iter().any(|r| s.written.iter().chain([&s.key]).any(|name| r.is_match(name)));
    match settings.iter().find(|s| !matches(s)) {
        None => Ok(()),
        Some(refused) => {
            let allowed: Vec<&str> = rules.iter().map(Regex::as_str).collect();
            Err(CniError::worded(
                format_args!("Sysctl {} is not allowed. Only the following sysctls are allowed: [{}]", refused.key, allowed.join(" ")),
                format_args!("{ALLOWLIST} lists them"),
            ))
        }
    }
}

impl Setting {
    pub(super) fn write(&self, inside: &Inside) -> Result<(), CniError> {
        self.sysctl.write(inside, &self.value).map_err(|e| self.failed(&e))
    }

    /// With the key as it was configured, and what to look at.
    fn failed(&self, e: &SysctlError) -> CniError {
        let hint = match e.errno() {
            Errno::ENOENT => "; there is no such setting: check its spelling, that the interface exists and that its module is loaded",
            Errno::EINVAL => "; check the value",
            Errno::EROFS => "; /proc/sys is mounted read-only",
            _ => "",
        };
        let [written, _] = &self.written;
        internal(format!("sysctl[{written:?}]: {e}{hint}"))
    }

    pub(super) fn check(&self, inside: &Inside) -> Result<(), CniError> {
        let found = self.sysctl.read(inside).map_err(|e| self.failed(&e))?;
        // The kernel separates several numbers by tabs.
        let words = |s: &str| s.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match words(&found) == words(&self.value) {
            true => Ok(()),
            false => Err(verify::changed("", format!("sysctl {} is {found:?}, not {:?}", self.key, self.value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str, ifname: &str) -> Result<Vec<String>, CniError> {
        let value = json::parse(text.as_bytes()).unwrap();
        read(&[value.as_object().unwrap()], ifname).map(|s| s.into_iter().map(|s| format!("{}={}", s.key, s.value)).collect())
    }

    #[test]
    fn interface_names_may_have_dots() {
        assert_eq!(components("net.ipv4.conf.IFNAME.arp_filter", "eth0.100"), ["net", "ipv4", "conf", "eth0.100", "arp_filter"]);
        assert_eq!(components("net/ipv4/conf/eth0.1/x", "-"), ["net", "ipv4", "conf", "eth0.1", "x"]);
        assert_eq!(components("net.ipv4.conf.eth0/1.x", "-"), ["net", "ipv4", "conf", "eth0.1", "x"]);
    }

    #[test]
    fn only_net_and_never_a_way_out() {
        for bad in [
            r#"{"kernel.pid_max":"1"}"#,
            r#"{"net.../../kernel/pid_max":"1"}"#,
            r#"{"net/../kernel/x":"1"}"#,
            r#"{"net.a":[]}"#,
            r#"{"":"1"}"#,
        ] {
            assert!(keys(bad, "eth0").is_err(), "{bad}");
        }
        assert_eq!(keys(r#"{"net.core.somaxconn":"500"}"#, "eth0").unwrap(), ["net.core.somaxconn=500"]);
        let twice = |own: &str| {
            let text = format!(r#"{{"name":"n","cniVersion":"1.0.0","type":"tuning",{own}}}"#);
            once(&Config::parse(text.as_bytes()).unwrap().0, "eth0").map_err(|e| e.msg)
        };
        let (dots, slashes) = (r#""net.core.somaxconn":"1""#, r#""net/core/somaxconn":"2""#);
        for (one, other) in [(dots, slashes), (slashes, dots), (dots, dots), (slashes, slashes)] {
            for key in [format!(r#""sysctl":{{{one},{other}}}"#), format!(r#""args":{{"cni":{{"sysctl":{{{one},{other}}}}}}}"#)] {
                assert!(twice(&key).unwrap_err().starts_with("duplicated sysctl keys are not allowed: "), "{key}");
            }
            let mixed = twice(&format!(r#""sysctl":{{{one}}},"args":{{"cni":{{"sysctl":{{{other}}}}}}}"#));
            assert_eq!(mixed.is_ok(), one == other, "the very same key is replaced: {mixed:?}");
        }
        let named = twice(r#""sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.ipv4.conf.eth0.arp_filter":"2"}"#);
        assert!(named.unwrap_err().ends_with("are the same setting"));
    }
}
