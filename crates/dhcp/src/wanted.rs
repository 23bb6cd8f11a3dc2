//! What a configuration wants of a DHCP server: read, and checked before anything is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{CniArgs, CniError, Config};
use dhcproto::v4::OptionCode;
use json::{Object, Value};
use serde::Deserialize;

use crate::v4::option;

/// Where the daemon listens unless it, and the configuration, are told otherwise.
pub const SOCKET: &str = "/run/cni/dhcp.sock";

/// Who waits longer for an answer on the link does not mean it, in milliseconds.
const LONGEST_PROBE: u64 = 10_000;

/// The keys below `ipam`, as they came.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    daemon_socket_path: String,
    provide: Vec<Provide>,
    request: Vec<Request>,
    priority: u32,
    ipv6: Value,
    probe: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Provide {
    option: Value,
    value: String,
    from_arg: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Request {
    skip_default: bool,
    option: Value,
}

/// Which addresses an attachment gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
    Both,
}

/// A checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub(crate) families: Families,
    /// The metric of the routes.
    pub(crate) priority: Option<u32>,
    /// How long an offered address is asked for on the link, where the configuration says it; zero: not at all.
    pub(crate) probe: Option<Duration>,
    /// Options that the client says, of DHCPv4.
    pub(crate) provide: Vec<(OptionCode, Vec<u8>)>,
    /// Options that the client asks for, of DHCPv4.
    pub(crate) request: Vec<OptionCode>,
    /// What it was read from.
    ipam: Object,
    args: CniArgs,
}

/// Where the daemon of a configuration listens.
///
/// # Errors
/// Code 7 for a path that is not absolute.
pub fn socket(config: &Config) -> Result<PathBuf, CniError> {
    let keys: Keys = keys(&ipam(config))?;
    match keys.daemon_socket_path.as_str() {
        "" => Ok(SOCKET.into()),
        path if Path::new(path).is_absolute() => Ok(path.into()),
        path => Err(CniError::invalid("ipam.daemonSocketPath", format!("{path:?} is not an absolute path"))),
    }
}

/// Whether a server may know another client by this option of `provide`, by name or number: who says another's gets that one's lease.
pub fn is_identity(option: &Value) -> bool {
    code(option, "").is_ok_and(|code| option::IDENTITIES.contains(&code))
}

fn keys(ipam: &Object) -> Result<Keys, CniError> {
    json::read_object(ipam).map_err(|e| e.under_key("ipam").into())
}

/// The object `ipam`, or an empty one.
fn ipam(config: &Config) -> Object {
    config.raw().object("ipam").cloned().unwrap_or_default()
}

// === impl Wanted ===

impl Wanted {
    /// Reads `ipam`, and what of `CNI_ARGS` it names.
    ///
    /// # Errors
    /// Code 7 naming the key.
    pub fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        Self::of(ipam(config), args)
    }

    /// The same from what an earlier one was read from.
    pub(crate) fn of(ipam: Object, args: &CniArgs) -> Result<Self, CniError> {
        let keys = keys(&ipam)?;
        let families = match &keys.ipv6 {
            Value::Null | Value::Bool(false) => Families::V4,
            Value::Bool(true) => Families::Both,
            Value::String(only) if only == "only" => Families::V6,
            other => {
                return Err(CniError::invalid("ipam.ipv6", format!("expected true, false or \"only\", found {}", json::compact(other))));
            }
        };
        if keys.probe.is_some_and(|millis| millis > LONGEST_PROBE) {
            return Err(CniError::invalid("ipam.probe", format!("at most {LONGEST_PROBE} milliseconds")));
        }
        let probe = keys.probe.map(Duration::from_millis);
        let mut used = CniArgs::default();
        let provide = provided(&keys.provide, args, &mut used)?;
        let request = requested(&keys.request)?;
        let priority = (keys.priority != 0).then_some(keys.priority);
        Ok(Wanted { families, priority, probe, provide, request, ipam, args: used })
    }

    /// What [`Wanted::of`] reads it from.
    pub(crate) fn source(&self) -> (&Object, &CniArgs) {
        (&self.ipam, &self.args)
    }

    /// Whether an address of IPv4 is wanted.
    pub(crate) fn v4(&self) -> bool {
        self.families != Families::V6
    }

    /// Whether an address of IPv6 is wanted.
    pub(crate) fn v6(&self) -> bool {
        self.families != Families::V4
    }
}

fn provided(list: &[Provide], args: &CniArgs, used: &mut CniArgs) -> Result<Vec<(OptionCode, Vec<u8>)>, CniError> {
    let mut options: Vec<(OptionCode, Vec<u8>)> = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let place = format!("ipam.provide[{i}]");
        let code = code(&item.option, &place)?;
        if option::OWN.contains(&code) {
            let why = format!("option {} is set by the client itself; request options with ipam.request", u8::from(code));
            return Err(CniError::invalid(&format!("{place}.option"), why));
        }
        // What the caller says goes over what the configuration says.
        let arg = (!item.from_arg.is_empty()).then(|| args.get(&item.from_arg)).flatten();
        if let Some(value) = arg {
            used.push(&item.from_arg, value);
        }
        for value in [Some(item.value.as_str()).filter(|v| !v.is_empty()), arg].into_iter().flatten() {
            if value.len() > 255 {
                return Err(CniError::invalid(
                    &place,
                    format!("value too long for option {}: {} bytes, at most 255", u8::from(code), value.len()),
                ));
            }
            options.retain(|(c, _)| *c != code);
            options.push((code, value.as_bytes().to_vec()));
        }
    }
    Ok(options)
}

fn requested(list: &[Request]) -> Result<Vec<OptionCode>, CniError> {
    let defaults = if list.iter().any(|r| r.skip_default) { &[][..] } else { option::REQUESTED };
    let mut codes = defaults.to_vec();
    for (i, item) in list.iter().enumerate() {
        // An element may say `skipDefault` only.
        if matches!(&item.option, Value::Null) || item.option.as_str() == Some("") {
            continue;
        }
        let code = code(&item.option, &format!("ipam.request[{i}]"))?;
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    Ok(codes)
}

fn code(value: &Value, place: &str) -> Result<OptionCode, CniError> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => json::compact(other),
    };
    option::parse(&text).ok_or_else(|| {
        let names: Vec<&str> = option::NAMES.iter().map(|(name, _)| *name).collect();
        let why = format!("Can not parse option {text:?}: expected a number up to 254, or one of {}", names.join(", "));
        CniError::invalid(&format!("{place}.option"), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ipam: &str, args: &str) -> Result<Wanted, CniError> {
        let text = format!(r#"{{"name":"n","cniVersion":"1.1.0","type":"x","ipam":{ipam}}}"#);
        let (config, _) = Config::parse(text.as_bytes()).unwrap();
        Wanted::read(&config, &CniArgs::parse(args).unwrap())
    }

    #[test]
    fn keys() {
        let wanted = read(
            r#"{"type":"dhcp","priority":7,"ipv6":true,"provide":[{"option":"12","value":"a"},{"option":"host-name","fromArg":"NAME"}],
            "request":[{"skipDefault":true},{"option":"121"},{"option":"routers"}]}"#,
            "NAME=pod;OTHER=1",
        )
        .unwrap();
        assert_eq!(wanted.provide, [(OptionCode::Hostname, b"pod".to_vec())]);
        assert_eq!(wanted.request, [OptionCode::ClasslessStaticRoute, OptionCode::Router]);
        assert_eq!((wanted.families, wanted.priority), (Families::Both, Some(7)));
        let (ipam, args) = wanted.source();
        assert_eq!(args.to_string(), "NAME=pod", "others are nobody's business");
        assert_eq!(Wanted::of(ipam.clone(), args).unwrap(), wanted);
        assert_eq!(read("{}", "").unwrap().request, option::REQUESTED);
    }

    #[test]
    fn options_by_which_a_server_knows_a_client() {
        let is_identity = |text: &str| is_identity(&json::parse(text.as_bytes()).unwrap());
        for identity in [r#""61""#, r#""061""#, "61", r#""dhcp-client-identifier""#, r#""97""#, r#""82""#, r#""118""#] {
            assert!(is_identity(identity), "{identity}");
        }
        for other in [r#""12""#, r#""host-name""#, r#""60""#, r#""fqdn""#, "77", r#""nonsense""#, "null"] {
            assert!(!is_identity(other), "{other}");
        }
    }

    #[test]
    fn refusals_name_the_key() {
        for (ipam, named) in [
            (r#"{"provide":[{"option":"nonsense","value":"x"}]}"#, "ipam.provide[0].option"),
            (r#"{"provide":[{"option":"53","value":"x"}]}"#, "ipam.provide[0].option"),
            (r#"{"request":[{"option":"256"}]}"#, "ipam.request[0].option"),
            (r#"{"ipv6":"yes"}"#, "ipam.ipv6"),
            (r#"{"probe":99999}"#, "ipam.probe"),
            (r#"{"priority":-1}"#, "ipam.priority"),
        ] {
            let e = read(ipam, "").unwrap_err();
            assert!(e.msg.contains(named), "{e}");
        }
        let long = format!(r#"{{"provide":[{{"option":"12","value":"{}"}}]}}"#, "x".repeat(256));
        assert!(read(&long, "").unwrap_err().msg.contains("too long"));
    }
}
