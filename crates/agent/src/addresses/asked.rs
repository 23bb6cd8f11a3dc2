//! Calls of address plugins that run in processes of their own: this agent holds the store, so it carries them out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cni::{AttachmentId, CniArgs, CniError, Code, Config, Version};
use plugin::process::{self, Env};
use plugin::{Call, Conflict, Cx, Host, Plugin, Teardown};
use wire::Answer;

use crate::Agent;
use crate::log::Line;
use crate::verbs::first_done;

/// The time of a call that names none.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a call has led to.
struct Done {
    text: String,
    /// [`Answer::again`]
    again: bool,
    /// [`Answer::probe`]
    probe: bool,
}

impl Agent {
    /// Serves a call of an address plugin; `None`: it is no such call.
    pub(crate) fn addresses_for(&self, call: &wire::Call, host: &mut Host) -> Option<Answer> {
        let plugin = plugins::of_pool_store(&call.program)?;
        let begun = Instant::now();
        let mut version = Version::LATEST;
        let done = catch_unwind(AssertUnwindSafe(|| self.address_call(plugin, call, host, &mut version)));
        self.tell_conflicts();
        let done = done.unwrap_or_else(|_| {
            *host = Host::here(host.dirs.clone());
            Err(CniError::new(Code::INTERNAL, "this is a bug in the agent; please report it with the log"))
        });
        let line = if done.is_ok() { Line::info("addresses") } else { Line::warn("addresses") };
        let line = line.with("verb", &call.verb).with("plugin", &call.program).with("container", &call.container_id);
        line.with("error", done.as_ref().err().map(ToString::to_string).unwrap_or_default()).took("took", begun.elapsed()).end();
        Some(match done {
            Ok(Done { text, again, probe }) => Answer { exit: 0, stdout: text.into_bytes(), again, probe },
            Err(e) => Answer { exit: 1, stdout: e.print(version).into_bytes(), ..Answer::default() },
        })
    }

    fn address_call(&self, plugin: &dyn Plugin, call: &wire::Call, host: &mut Host, version: &mut Version) -> Result<Done, CniError> {
        let (config, prev) = Config::parse_named(Config::named(&call.config)?)?;
        *version = config.version;
        process::allowed(&call.verb, config.version)?;
        plugins::held_here(&call.program, &config, host)?;
        let time = if call.millis == 0 { PATIENCE } else { Duration::from_millis(call.millis).min(PATIENCE) };
        let dirs = host.dirs.clone();
        let (finder, mut teardown) = (self.finder_in_host(), Teardown::new());
        let mut x = Cx::new(host, &mut teardown, &finder, Instant::now() + time);
        let done = match call.verb.as_str() {
            "STATUS" => {
                let asked = self.possible_configs(&config)?.into_iter().map(|config| plugin.status(&config, &mut x));
                first_done(asked).map(|()| String::new())
            }
            "GC" => plugin.gc(&config, &AttachmentId::valid_of(config.raw(), &config.network)?, &mut x).map(|()| String::new()),
            verb => {
                let env = Env { container_id: call.container_id.clone(), ifname: call.ifname.clone(), ..Env::default() };
                let (id, args) = (env.attachment(&config.network)?, CniArgs::read(&call.args));
                let config = if verb == "DEL" { config } else { self.name_pool(config, &id, &args, &dirs, x.deadline)? };
                let of = Call { id: &id, netns: None, config: &config, args: &args, prev: prev.as_ref() };
                match verb {
                    "ADD" => plugin.add(&of, &mut x).and_then(|result| Ok(result.print(config.version)?)),
                    "CONFLICT" => {
                        let met = conflict(call)?;
                        plugin.conflict(&of, &met, &mut x).and_then(|result| Ok(result.print(config.version)?))
                    }
                    "CHECK" => plugin.check(&of, &mut x).map(|()| String::new()),
                    "DEL" => plugin.del(&of, &mut x).map(|()| String::new()),
                    other => Err(process::unknown_verb(other)),
                }
            }
        };
        // What an ADD has noted is for its failure, what a DEL and GC have is what they do.
        let commits = done.is_err() || matches!(call.verb.as_str(), "DEL" | "GC");
        let probe = x.probe;
        let again = call.verb == "ADD" && teardown.is_empty();
        let left = if commits { teardown.commit(host).err().unwrap_or_default() } else { Vec::new() };
        match CniError::first_of(done.as_ref().err().cloned().into_iter().chain(left)) {
            None => done.map(|text| Done { text, again, probe }),
            Some(e) => Err(e),
        }
    }
}

/// What somebody has met on the wire who has asked here for addresses.
fn conflict(call: &wire::Call) -> Result<Conflict, CniError> {
    let (address, by) = &call.conflict;
    let unread = || CniError::new(Code::INVALID_ENVIRONMENT, format!("{address:?} of {by:?} is not an address of a machine"));
    Ok(Conflict { address: address.parse().map_err(|_| unread())?, mac: by.parse().map_err(|_| unread())? })
}
