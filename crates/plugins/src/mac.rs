//! Which hardware address was asked for, and by whom.

use cni::{CniArgs, CniError, Code, Config, Mac};
use json::{Object, Value};

/// Who may ask for a hardware address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// `runtimeConfig.mac`, the capability
    Runtime,
    /// `args.cni.mac`, the convention before capabilities
    Args,
    /// `MAC=` in `CNI_ARGS`
    CniArgs,
    /// `mac` in the plugin's own configuration
    Own,
}

/// The order of every interface plugin.
pub(crate) const INTERFACE: [Source; 4] = [Source::Runtime, Source::Args, Source::CniArgs, Source::Own];

/// The first source in `order` that asks; each is named in the error if what it asks for cannot be had.
pub(crate) fn requested(config: &Config, args: &CniArgs, order: [Source; 4]) -> Result<Option<Mac>, CniError> {
    for source in order {
        let (place, text) = match source {
            Source::Runtime => ("runtimeConfig.mac", string(inside(config.raw(), &["runtimeConfig"])?)),
            Source::Args => ("args.cni.mac", string(inside(config.raw(), &["args", "cni"])?)),
            Source::CniArgs => ("CNI_ARGS MAC", Ok(args.get("MAC").filter(|s| !s.is_empty()).map(str::to_owned))),
            Source::Own => ("mac", string(config.raw().get("mac"))),
        };
        let code = if matches!(source, Source::CniArgs) { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
        let bad = |why: String| CniError::new(code, format!("{place}: {why}"));
        let Some(text) = text.map_err(bad)? else { continue };
        let mac: Mac = text.parse().map_err(|e: cni::MacError| bad(e.to_string()))?;
        return match mac.is_unicast() && mac.as_bytes().len() == 6 {
            true => Ok(Some(mac)),
            false => Err(bad(format!("{mac} cannot be an interface's: it must be 6 bytes, not all zero, the first one even"))),
        };
    }
    Ok(None)
}

/// `mac` in an object inside the configuration; what should be an object and is none is an error.
fn inside<'a>(config: &'a Object, path: &[&str]) -> Result<Option<&'a Value>, CniError> {
    let mut object = config;
    for (depth, key) in path.iter().enumerate() {
        object = match object.get(key) {
            None => return Ok(None),
            Some(Value::Object(inner)) => inner,
            Some(other) => {
                let place = path.get(..=depth).unwrap_or_default().join(".");
                return Err(CniError::invalid(&place, format!("expected an object, found {}", other.kind())));
            }
        };
    }
    Ok(object.get("mac"))
}

fn string(value: Option<&Value>) -> Result<Option<String>, String> {
    match value {
        None => Ok(None),
        Some(Value::String(s)) if s.is_empty() => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(other) => Err(format!("expected a string, found {}", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_that_asks_wins() {
        let config = |keys: &str| Config::parse(format!(r#"{{"name":"n","cniVersion":"1.0.0",{keys}}}"#).as_bytes()).unwrap().0;
        let all =
            config(r#""mac":"02:00:00:00:00:04","args":{"cni":{"mac":"02:00:00:00:00:02"}},"RuntimeConfig":{"mac":"02:00:00:00:00:01"}"#);
        let args = CniArgs::parse("MAC=02:00:00:00:00:03").unwrap();
        let got = |c: &Config, a: &CniArgs| requested(c, a, INTERFACE).unwrap().map(|m| m.to_string());
        assert_eq!(got(&all, &args).as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(got(&config(r#""mac":"02:00:00:00:00:04""#), &args).as_deref(), Some("02:00:00:00:00:03"));
        assert_eq!(got(&config(r#""mac":"""#), &CniArgs::default()), None);
        for bad in [r#""mac":"01:00:00:00:00:00""#, r#""mac":"00:00:00:00:00:00""#, r#""mac":"x""#, r#""mac":7"#] {
            let e = requested(&config(bad), &CniArgs::default(), INTERFACE).unwrap_err();
            assert!(e.msg.starts_with("mac: ") && e.code == Code::INVALID_CONFIG, "{e}");
        }
    }
}
