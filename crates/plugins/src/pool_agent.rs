//! Addresses of a store that the agent holds: whoever runs beside it asks the agent.
//!
//! ```text
//!   <journal>/agent  names the agent's socket; it may be gone, and then nobody holds the store
//!   netloom-cni as pool, or as bridge with "ipam": {"type": "pool"} --wire::Call--> agent: the same plugin, in its process
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::{AddResult, AttachmentId, CniError, Code, Config};
use linux::file::{self, Links};
use linux::local;
use plugin::{About, Call, Conflict, Cx, Draft, Host, Plugin, Stage};
use wire::{Answer, ToAgent, ToShim};

use crate::pool_store::{StoreHandle, held, is_held, release, release_others};
use crate::{pool, whereabouts};

/// How long an agent may leave a connection lying there.
const ACCEPT: Duration = Duration::from_secs(60);
/// For its own last words.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// More than a path has.
const MAX_PATH: usize = 4096;

/// A plugin that has its addresses in a store of pools, which another process may hold.
pub(crate) struct Shared<P>(pub(crate) P);

/// A call for the agent.
pub(crate) struct ForAgent {
    socket: PathBuf,
    program: &'static str,
    by: Instant,
    /// The store, if there is no agent after all.
    at: StoreHandle,
}

impl<P: Plugin> Plugin for Shared<P> {
    fn about(&self) -> &'static About {
        self.0.about()
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        self.0.validate(draft)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Some((agent, stream)) = self.agent(call.config, cx).and_then(|agent| Some((agent.connect()?, agent))).map(|(s, a)| (a, s))
        else {
            return self.0.add(call, cx);
        };
        let config = call.config.print(call.prev)?;
        // Where no answer comes nobody knows whether the attachment had its addresses before: then they are DEL's, or GC's.
        let Answer { stdout: printed, again, probe, .. } = agent.ask(stream, "ADD", Some(call), None, config)?;
        cx.probe = probe;
        if !again {
            self.note_del(call, cx)?;
        }
        Ok(AddResult::parse(&printed, call.config.version).map_err(CniError::from)?.0)
    }

    fn conflict(&self, call: &Call<'_>, conflict: &Conflict, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let Some((agent, stream)) = self.agent(call.config, cx).and_then(|agent| agent.connect().map(|stream| (agent, stream))) else {
            return self.0.conflict(call, conflict, cx);
        };
        let printed = agent.ask(stream, "CONFLICT", Some(call), Some(conflict), call.config.print(call.prev)?)?.stdout;
        self.note_del(call, cx)?;
        Ok(AddResult::parse(&printed, call.config.version).map_err(CniError::from)?.0)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.agent(call.config, cx).and_then(|agent| agent.connect().map(|stream| (agent, stream))) {
            Some((agent, stream)) => agent.ask(stream, "CHECK", Some(call), None, call.config.print(call.prev)?).map(drop),
            None => self.0.check(call, cx),
        }
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        if self.agent(call.config, cx).is_some() { self.note_del(call, cx) } else { self.0.del(call, cx) }
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        match self.agent(config, cx).and_then(|agent| agent.connect().map(|stream| (agent, stream))) {
            Some((agent, stream)) => agent.ask(stream, "STATUS", None, None, config.print(None)?).map(drop),
            None => self.0.status(config, cx),
        }
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let Some(agent) = self.agent(config, cx) else { return self.0.gc(config, valid, cx) };
        let (printed, network, valid) = (config.with_valid(valid).print(None)?, config.network.clone(), valid.to_vec());
        cx.teardown.at(Stage::Leases, format!("free addresses of {network}"), move |_| match agent.connect() {
            Some(stream) => agent.ask(stream, "GC", None, None, printed).map(drop),
            None => release_others(&agent.at, &network, &valid),
        });
        Ok(())
    }
}

impl<P: Plugin> Shared<P> {
    /// The agent that may hold the store of a call.
    fn agent(&self, config: &Config, cx: &Cx<'_>) -> Option<ForAgent> {
        let at = StoreHandle::of(data_dir(self.about().name, config), cx);
        if is_held(at.dir()) {
            return None;
        }
        let socket = socket(at.dir())?;
        // Who is asked there is this process, which has other stores: it must not wait for itself.
        if held().iter().any(|dir| self::socket(dir).as_ref() == Some(&socket)) {
            return None;
        }
        Some(ForAgent { socket, program: self.about().name, by: cx.deadline, at })
    }

    fn note_del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let Some(agent) = self.agent(call.config, cx) else { return self.0.del(call, cx) };
        let (config, id, args) = (call.config.clone(), call.id.clone(), call.args.clone());
        cx.teardown.at(Stage::Leases, format!("free the addresses of {id}"), move |_| match agent.connect() {
            Some(stream) => {
                let call = Call { id: &id, netns: None, config: &config, args: &args, prev: None };
                agent.ask(stream, "DEL", Some(&call), None, config.print(None)?).map(drop)
            }
            None => release(&agent.at, &id, None),
        });
        Ok(())
    }
}

/// The directory that a configuration names; empty where it names none.
fn data_dir<'c>(program: &str, config: &'c Config) -> &'c str {
    let named = || config.raw().objects("ipam").rev().find_map(|ipam| ipam.str("dataDir"));
    if program == pool::NAME { named().unwrap_or_default() } else { "" }
}

/// The plugin of this name that has its addresses in a store of pools, as the process runs it that holds the store.
#[must_use]
pub fn of_pool_store(program: &str) -> Option<&'static dyn Plugin> {
    let all: [&'static dyn Plugin; 2] = [&pool::Pool, &whereabouts::Whereabouts];
    all.into_iter().find(|plugin| plugin.about().name == program)
}

/// Refuses a call whose store this process does not hold: nobody else is asked in its stead.
///
/// # Errors
/// It names the directory.
pub fn held_here(program: &str, config: &Config, host: &Host) -> Result<(), CniError> {
    let dir = host.dirs.configured(data_dir(program, config), &host.dirs.journal);
    if is_held(&dir) {
        return Ok(());
    }
    let (dir, file) = (dir.display(), ipam::AGENT);
    let next = format!("remove {dir}/{file} if it exists, and the agent is not asked any more");
    Err(CniError::new(Code::INVALID_CONFIG, format!("this agent does not manage the addresses in {dir}: {next}")))
}

/// Where the agent is to be asked that holds a store, or did.
fn socket(dir: &Path) -> Option<PathBuf> {
    let socket = file::read(&dir.join(ipam::AGENT), MAX_PATH, Links::Refused).ok()?;
    Some(OsString::from_vec(socket).into())
}

/// Whether an agent holds the addresses in this directory, or did.
pub(crate) fn agent_was_there(dir: &Path) -> bool {
    socket(dir).is_some()
}

// === impl ForAgent ===

impl ForAgent {
    /// Whether an agent answers that holds a store, or did.
    pub(crate) fn is_there(dir: &Path) -> bool {
        socket(dir).is_some_and(|socket| local::connect(&socket, ACCEPT).is_ok())
    }

    /// `None`: there is none; the lock of the store is free, or will be.
    fn connect(&self) -> Option<UnixStream> {
        let stream = local::connect(&self.socket, ACCEPT).ok()?;
        local::peer(&stream).is_ok_and(|peer| peer.uid == 0).then_some(stream)
    }

    /// What the agent prints for a call.
    fn ask(
        &self,
        mut stream: UnixStream,
        verb: &str,
        call: Option<&Call<'_>>,
        conflict: Option<&Conflict>,
        config: String,
    ) -> Result<Answer, CniError> {
        let left = self.by.saturating_duration_since(Instant::now()).max(LAST_WORDS);
        let asked = wire::Call {
            protocol: wire::PROTOCOL,
            program: self.program.to_owned(),
            verb: verb.to_owned(),
            container_id: call.map(|c| c.id.container.to_string()).unwrap_or_default(),
            ifname: call.map(|c| c.id.ifname.to_string()).unwrap_or_default(),
            args: call.map(|c| c.args.to_string()).unwrap_or_default(),
            config: config.into_bytes(),
            millis: u64::try_from((left - LAST_WORDS / 2).as_millis()).unwrap_or(u64::MAX),
            conflict: conflict.map(|met| (met.address.to_string(), met.mac.to_string())).unwrap_or_default(),
            ..wire::Call::default()
        };
        let lost = |why: String| {
            let msg =
                format!("the agent manages the addresses of pools, but did not answer: {why}; its socket is {}", self.socket.display());
            CniError::new(Code::TRY_AGAIN_LATER, msg)
        };
        stream.set_read_timeout(Some(left)).map_err(|e| lost(e.to_string()))?;
        wire::send(&mut stream, &ToAgent::Call(asked)).map_err(|e| lost(e.to_string()))?;
        match wire::receive(&mut stream) {
            Ok(Some(ToShim::Answer(answer @ Answer { exit: 0, .. }))) => Ok(answer),
            Ok(Some(ToShim::Answer(Answer { stdout, .. }))) => {
                Err(CniError::parse(&stdout).unwrap_or_else(|| lost("its answer cannot be parsed".to_owned())))
            }
            Ok(Some(ToShim::Run(_))) => Err(lost("it asked for a plugin to be executed".to_owned())),
            Ok(None) => Err(lost("it closed the connection".to_owned())),
            Err(e) => Err(lost(e.to_string())),
        }
    }
}
