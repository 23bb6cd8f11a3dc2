//! Which hardware address was asked for, and by whom.

use cni::{CniArgs, CniError, Code, Config, Mac};
use serde::Deserialize;

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

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    mac: String,
    runtime_config: RuntimeKeys,
    args: ArgsKey,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RuntimeKeys {
    mac: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ArgsKey {
    cni: RuntimeKeys,
}

/// The first source in `order` that asks; each is named in the error if what it asks for cannot be had.
pub(crate) fn requested(config: &Config, args: &CniArgs, order: [Source; 4]) -> Result<Option<Mac>, CniError> {
    let keys: Keys = config.read()?;
    for source in order {
        let (place, text) = match source {
            Source::Runtime => ("runtimeConfig.mac", keys.runtime_config.mac.as_str()),
            Source::Args => ("args.cni.mac", keys.args.cni.mac.as_str()),
            Source::CniArgs => ("CNI_ARGS MAC", args.get("MAC").unwrap_or_default()),
            Source::Own => ("mac", keys.mac.as_str()),
        };
        if text.is_empty() {
            continue;
        }
        let code = if matches!(source, Source::CniArgs) { Code::INVALID_ENVIRONMENT } else { Code::INVALID_CONFIG };
        let bad = |why: String| CniError::new(code, format!("{place}: {why}"));
        let mac: Mac = text.parse().map_err(|e: cni::MacError| bad(e.to_string()))?;
        return match mac.is_unicast() && mac.as_bytes().len() == 6 {
            true => Ok(Some(mac)),
            false => Err(bad(format!("{mac} cannot be an interface's: it must be 6 bytes, not all zero, the first one even"))),
        };
    }
    Ok(None)
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
