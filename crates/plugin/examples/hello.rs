//! A CNI plugin in one file: it names the container's `lo` in its result, and says hello in `dns.domain`.
//!
//! ```text
//! cargo build -p netloom-plugin --example hello
//! echo '{"cniVersion":"1.0.0","name":"demo","type":"hello","greeting":"hello"}' |
//!     CNI_COMMAND=VERSION target/debug/examples/hello
//! ```
//!
//! Run by hand, without `CNI_COMMAND`, it tells its keys. Everything that a runtime may ask of an executable (VERSION,
//! missing variables, versions, the error object, exit codes) is in [`plugin::process::main`].

use std::process::ExitCode;

use cni::{AddResult, CniError, Code, Config, Dns, Interface, Version};
use netloom_plugin as plugin;
use plugin::{About, Call, Cx, Draft, Key, Plugin};

struct Hello;

static ABOUT: About = About {
    name: "hello",
    summary: "says hello in the result's DNS domain",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[Key::new("greeting", "string", "hello", "what to say")],
    needs_link: false,
};

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Keys {
    greeting: String,
}

impl Keys {
    fn read(config: &Config) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        match keys.greeting.contains(char::is_whitespace) {
            true => Err(CniError::invalid("greeting", "one word only")),
            false => Ok(keys),
        }
    }
}

impl Plugin for Hello {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Keys::read(draft.config).map(drop)
    }

    fn add(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let keys = Keys::read(call.config)?;
        let sandbox = call.netns()?.path().display().to_string();
        let mut result = call.prev.cloned().unwrap_or_default();
        result.interfaces.push(Interface { name: "lo".into(), sandbox, ..Interface::default() });
        result.dns = Dns { domain: if keys.greeting.is_empty() { "hello".into() } else { keys.greeting }, ..result.dns };
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        match call.prev()?.dns.domain.is_empty() {
            true => Err(CniError::new(Code::INTERNAL, "nobody says hello any more")),
            false => Ok(()),
        }
    }

    fn del(&self, _: &Call<'_>, _: &mut Cx<'_>) -> Result<(), CniError> {
        Ok(())
    }
}

fn main() -> ExitCode {
    plugin::process::main(&Hello, &[])
}
