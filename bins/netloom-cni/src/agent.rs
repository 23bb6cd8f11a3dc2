//! `netloom`, `multus` and `multus-shim`: the call goes to the agent, and its answer to the runtime.
//!
//! ```text
//!   runtime --env, stdin--> checks as every plugin --Call--> agent
//!                external plugin <--here, on the host-- Run     |
//!                             its output --------------> Ran    |
//!   runtime <--stdout, exit code------------------- Answer <----+
//! ```
//!
//! `netloom` is alone where its configuration names its networks (`delegates`) and no agent, as in module `pod`. A DEL that
//! no agent answers is kept for it, and has succeeded.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cni::{AttachmentId, CniArgs, CniError, Code, Config, ConfigError, Version};
use json::Object;
use plugin::process::{self, Env};
use plugin::{Bound, Exec};
use plugins::BUILTINS;
use wire::{Answer, Call, Ran, Run, ToAgent, ToShim, WireError};

use crate::pod::{self, Pod};
use crate::reach::{AgentEndpoint, Unreached};

/// Multus's names.
pub(crate) const MULTUS: [&str; 2] = ["multus", "multus-shim"];

/// The names under which this is run.
pub(crate) const PROGRAMS: [&str; 3] = [pod::ABOUT.name, MULTUS[0], MULTUS[1]];

/// How long an agent may work on a call, from one of its messages to the next. It limits itself to less.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a DEL waits for an agent that is not there: as long as one takes to be replaced by the next.
const DEL_WAIT: Duration = Duration::from_millis(300);

/// How long STATUS waits for an agent that is not there. Whoever asks for it asks again in a moment, and has a limit of his
/// own: what he needs is an answer.
const STATUS_WAIT: Duration = Duration::from_secs(1);

/// An attempt to have a call answered has failed.
enum Failed {
    Unreached(Unreached),
    /// It was there, and is gone without an answer.
    Died(String),
    /// It is there, but nothing can come of it.
    Bad(CniError),
}

/// The whole of the executable under one of these names; returns the exit code.
pub(crate) fn main(program: &str) -> u8 {
    let env = Env::of_this_process();
    let mut stdout = process::stdout();
    // Nothing that an agent is needed for.
    if matches!(env.command.as_str(), "" | "VERSION") {
        return process::main_beside(&Pod::here(), BUILTINS, None);
    }
    let bytes = match process::input(&mut std::io::stdin()) {
        Ok(bytes) => bytes,
        Err(e) => return process::answer(&mut stdout, e.print(Version::LATEST), 1),
    };
    let named = Config::named(&bytes);
    if program == pod::ABOUT.name && alone(&env, &named) {
        return process::run_named(&Pod::here(), BUILTINS, &env, named, &mut stdout);
    }
    let mut version = Version::LATEST;
    match call(program, &env, (named, bytes), &mut version) {
        Ok(answer) => process::answer(&mut stdout, answer.stdout, answer.exit),
        Err(e) => process::answer(&mut stdout, e.print(version), 1),
    }
}

/// Whether the configuration names its own networks and no agent, or did when the sandbox was attached. What is not to be
/// read is refused on either way, with the same words.
fn alone(env: &Env, named: &Result<Object, ConfigError>) -> bool {
    let Ok(raw) = named else { return false };
    if raw.get("agent").is_some() {
        return false;
    }
    let is_ours = |config: &Config| env.attachment(&config.network).is_ok_and(|id| Pod::has(&id.container, config));
    raw.get("delegates").is_some()
        || matches!(env.command.as_str(), "DEL" | "CHECK") && Config::from_object(raw.clone()).is_ok_and(|config| is_ours(&config))
}

/// `named` is the configuration as far as it was read, and what it was read from.
fn call(
    program: &str,
    env: &Env,
    (named, bytes): (Result<Object, ConfigError>, Vec<u8>),
    version: &mut Version,
) -> Result<Answer, CniError> {
    let (config, _) = process::checked(&Pod::here(), env, named, version)?;
    let id = match env.command.as_str() {
        "STATUS" | "GC" => None,
        _ => Some(attachment(env, &config)?),
    };
    let way = AgentEndpoint::read(config.raw())?;
    let path = env.path.to_str().ok_or_else(|| CniError::new(Code::INVALID_ENVIRONMENT, "CNI_PATH is not valid UTF-8"))?;
    let call = Call {
        protocol: wire::PROTOCOL,
        program: program.to_owned(),
        verb: env.command.clone(),
        container_id: env.container_id.clone(),
        netns: env.netns.clone(),
        ifname: env.ifname.clone(),
        args: env.args.clone(),
        path: path.to_owned(),
        netns_override: env.netns_override,
        config: bytes,
        ..Call::default()
    };
    match id {
        Some(id) if env.command == "DEL" => del(&way, &id, call),
        _ if env.command == "STATUS" => attempt(&way, way.wait.min(STATUS_WAIT), call).map_err(|failed| failed.told_status(&way)),
        _ => attempt(&way, way.wait, call).map_err(|failed| failed.told(&way)),
    }
}

/// Everything that a plugin checks of ADD, CHECK and DEL.
fn attachment(env: &Env, config: &Config) -> Result<AttachmentId, CniError> {
    let id = env.attachment(&config.network)?;
    if env.command != "DEL" {
        CniArgs::parse(&env.args)?;
    }
    env.open_netns(true)?;
    Ok(id)
}

/// A DEL that no agent answers is kept, and the runtime does not come again.
fn del(way: &AgentEndpoint, id: &AttachmentId, call: Call) -> Result<Answer, CniError> {
    let failed = match attempt(way, way.wait.min(DEL_WAIT), call.clone()) {
        Ok(answer) => return Ok(answer),
        Err(failed) if failed.is_absence() => failed,
        Err(failed) => return Err(failed.told(way)),
    };
    let spool = &way.spool;
    if let Err(e) = spool.keep(&id.container, &id.ifname, &call) {
        let hint = failed.told(way);
        return Err(
            CniError::new(Code::IO, format!("there is no agent, and the DEL cannot be stored for it: {e}")).with_details(hint.to_string())
        );
    }
    linux::crash_point!("del-kept");
    // An agent that has come meanwhile may have looked for kept calls before this one was there.
    match attempt(way, Duration::ZERO, call) {
        Err(_) => Ok(Answer::default()),
        Ok(answer) => {
            if answer.exit == 0
                && let Ok(Some(kept)) = spool.find(&id.container, &id.ifname)
            {
                // If it stays, it is carried out once more, which changes nothing.
                let _ = spool.done(&kept);
            }
            Ok(answer)
        }
    }
}

/// Reaches the agent, and has the call answered.
fn attempt(way: &AgentEndpoint, wait: Duration, call: Call) -> Result<Answer, Failed> {
    let mut stream = way.reach(wait).map_err(Failed::Unreached)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| Failed::Died(e.to_string()))?;
    let sent = match wire::send_at_most(&mut stream, &ToAgent::Call(call), wire::MAX_CALL) {
        Err(e @ WireError::TooLarge { .. }) => return Err(Failed::Bad(CniError::new(Code::INVALID_CONFIG, format!("the call: {e}")))),
        sent => sent,
    };
    loop {
        match (wire::receive(&mut stream), &sent) {
            (Ok(Some(ToShim::Answer(answer))), _) => return Ok(answer),
            // It may have refused the call before it had all of it; else there is nothing to be answered.
            (_, Err(e)) => return Err(failed(e)),
            (Ok(Some(ToShim::Run(run))), _) => tell(&mut stream, execute(run))?,
            (Ok(None), _) => return Err(Failed::Died("it closed the connection".to_owned())),
            (Err(e), _) => return Err(failed(&e)),
        }
    }
}

fn tell(stream: &mut UnixStream, ran: Ran) -> Result<(), Failed> {
    match wire::send_at_most(stream, &ToAgent::Ran(ran), wire::MAX_CALL) {
        Err(e @ WireError::TooLarge { .. }) => {
            let reason = format!("what the plugin printed: {e}");
            wire::send(stream, &ToAgent::Ran(Ran::Failed { try_again: false, reason })).map_err(|e| failed(&e))
        }
        sent => sent.map_err(|e| failed(&e)),
    }
}

fn failed(e: &WireError) -> Failed {
    use std::io::ErrorKind;
    match e {
        WireError::Connection { kind: ErrorKind::WouldBlock | ErrorKind::TimedOut, .. } => {
            let msg = format!("the agent did not answer within {} s", PATIENCE.as_secs());
            Failed::Bad(CniError::new(Code::TRY_AGAIN_LATER, msg))
        }
        WireError::Connection { .. } | WireError::Cut { .. } => Failed::Died(e.to_string()),
        _ => Failed::Bad(CniError::new(Code::TRY_AGAIN_LATER, format!("cannot parse the agent's answer: {e}"))),
    }
}

/// An external plugin, run here: the host's files are seen from here, and no limit of the agent's holds.
fn execute(run: Run) -> Ran {
    if !run.path.is_absolute() {
        return Ran::Failed { try_again: false, reason: format!("cannot run {}: not an absolute path", run.path.display()) };
    }
    // The variables of our own call are not the plugin's; that the namespaces may be one is.
    let inherited = |name: &OsString| !name.as_encoded_bytes().starts_with(b"CNI_") || name == "CNI_NETNS_OVERRIDE";
    let given = |name: &OsString| run.env.iter().any(|(given, _)| given == name);
    let own = std::env::vars_os().filter(|(name, _)| inherited(name) && !given(name));
    let env = own.chain(run.env.iter().cloned()).collect();
    // A day: who waits longer for a plugin does not mean it.
    let time = Duration::from_millis(run.millis.min(86_400_000));
    match Bound.exec(&run.path, &env, &run.stdin, Instant::now() + time) {
        Ok(out) => Ran::Done { success: out.success, ended: out.ended, stdout: out.stdout, stderr: out.stderr },
        Err(e) => Ran::Failed { try_again: e.may_pass(), reason: e.to_string() },
    }
}

// === impl Failed ===

impl Failed {
    /// Whether there is no agent that could carry a DEL out.
    fn is_absence(&self) -> bool {
        match self {
            Failed::Unreached(unreached) => unreached.is_absence(),
            Failed::Died(_) => true,
            Failed::Bad(_) => false,
        }
    }

    /// What the runtime gets: what to look at stands in the details.
    fn told(self, way: &AgentEndpoint) -> CniError {
        let e = match self {
            Failed::Unreached(unreached) => CniError::new(unreached.code(), unreached.to_string()),
            Failed::Died(why) => CniError::new(Code::TRY_AGAIN_LATER, format!("the agent stopped in the middle of the call: {why}")),
            Failed::Bad(e) => e,
        };
        e.with_details(way.hint())
    }

    /// As [`Failed::told`]; without an agent no ADD could be served, which STATUS has a code for.
    fn told_status(self, way: &AgentEndpoint) -> CniError {
        let absent = self.is_absence();
        let e = self.told(way);
        if absent { CniError { code: Code::NOT_AVAILABLE, ..e } } else { e }
    }
}
