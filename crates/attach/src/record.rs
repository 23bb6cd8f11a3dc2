//! The record of a sandbox: what was intended, before the kernel is touched, and what came of it.
//!
//! ```text
//!   {"schema":1,"sandbox":...,"steps":[{"list":...}, ...]}     what is intended; also what came of steps that were made when it was written
//!   {"steps":[{"result":...}, ...]}                            what came of each step, added at the end of an ADD
//! ```
//!
//! One file per sandbox. Intent alone suffices to undo; it is kept until every step of DEL has succeeded. It is not
//! synced to disk: what a power cut takes from the file it has taken from the kernel too, and the boot ID tells. A second line without its
//! end is that of an ADD that was killed before it could answer, and says nothing.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chain::MadeBy;
use cni::{AddResult, AttachmentId, CniArgs, CniError, ContainerId, IfName, NetworkList, Version};
use json::{Object, Value};
use linux::{BootId, NetnsId};

use crate::{PodView, RecordError, ReportedDevice};

/// The form of the file. A newer one is refused by name, never guessed at. The first line says it for all of them: a line of a new kind needs
/// a new number there, as what is behind the second line is not read.
pub(crate) const SCHEMA: u64 = 1;

/// What a record may have, in bytes: no more is written than is read again. The networks of a pod need at most half a
/// MiB of it, its annotations as much; the rest is for the results of external plugins.
pub(crate) const MAX_FILE: usize = 256 << 20;

/// One sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its container ID.
    pub sandbox: ContainerId,
    /// The kernel's boot that it was made in.
    pub boot: BootId,
    /// The path of its namespace.
    pub netns: PathBuf,
    /// Which namespace that was.
    pub netns_id: NetnsId,
    /// Its cookie: the number in `netns_id` is given to the next namespace, soon after this one is gone. `None` if the
    /// kernel, or the version that wrote the record, has none.
    pub netns_cookie: Option<u64>,
    /// When its ADD began, in seconds since 1970 by the node's clock; `None` if an older version wrote the record.
    pub made_at: Option<u64>,
    /// The pod.
    pub pod: PodView,
    /// `CNI_ARGS` of its attachments.
    pub args: CniArgs,
    /// Its attachments, in the order of ADD.
    pub steps: Vec<Step>,
}

/// One attachment of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The definition (`ns/name`), or the default network's name.
    pub name: String,
    /// Whether it is the default network.
    pub default: bool,
    /// The network as it was when it was attached.
    pub list: NetworkList,
    /// The interface inside the pod.
    pub ifname: IfName,
    /// `runtimeConfig`
    pub capability_args: Object,
    /// The gateways of the selection's `default-route` (S26), if it has the key.
    pub default_route: Option<Vec<IpAddr>>,
    /// What is known of its device.
    pub device: ReportedDevice,
    /// Who makes it; empty if an older version wrote the record.
    pub made_by: MadeBy,
    /// How far it came.
    pub state: State,
    /// How long its chain took, in whole microseconds; `None` before it was made, or if an older version wrote the record.
    pub took: Option<Duration>,
}

/// How far an attachment came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It was to be made; perhaps it was, in part.
    Intended,
    /// It was made.
    Added(AddResult),
}

// === impl Record ===

impl Record {
    /// Whether every step was made: only then can an ADD have succeeded.
    pub fn is_made(&self) -> bool {
        self.steps.iter().all(|step| step.result().is_some())
    }

    /// The sandbox's namespace, if it is still there: after a reboot, or when its path was used again, it is not.
    ///
    /// # Errors
    /// If the kernel cannot be asked: then nothing is known.
    pub fn namespace(&self) -> Result<Option<PathBuf>, CniError> {
        crate::execute::same_netns(self)
    }

    pub(crate) fn to_json(&self) -> Object {
        let mut o = Object::new();
        o.set("schema", SCHEMA);
        o.set("sandbox", self.sandbox.as_str());
        o.set("boot", self.boot.to_string());
        o.set("netns", self.netns.to_string_lossy().into_owned());
        o.set("netnsId", self.netns_id.to_string());
        if let Some(cookie) = self.netns_cookie {
            o.set("netnsCookie", cookie);
        }
        if let Some(seconds) = self.made_at {
            o.set("madeAt", seconds);
        }
        o.set("namespace", self.pod.namespace.as_str());
        o.set("pod", self.pod.name.as_str());
        for (key, value) in [("uid", &self.pod.uid), ("networks", &self.pod.networks), ("defaultNetwork", &self.pod.default_network)] {
            if let Some(value) = value {
                o.set(key, value.as_str());
            }
        }
        o.set("args", self.args.to_string());
        o.set("steps", self.steps.iter().map(Step::to_json).collect::<Vec<_>>());
        o
    }

    pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, RecordError> {
        let torn = |reason: String| RecordError::Torn { path: path.to_owned(), reason };
        let object = |bytes: &[u8]| match json::parse_at_most(bytes, MAX_FILE) {
            Ok(Value::Object(o)) => Ok(o),
            Ok(_) => Err(torn("it is not an object".to_owned())),
            Err(e) => Err(torn(format!("{e} (a record is one line, and one more for its results)"))),
        };
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let o = object(lines.next().unwrap_or_default())?;
        let schema = match o.get("schema") {
            Some(Value::Number(n)) => n.as_u64().unwrap_or(0),
            _ => 0,
        };
        if schema > SCHEMA {
            return Err(RecordError::Newer { path: path.to_owned(), found: schema });
        }
        let mut record = Record::from_json(&o).map_err(torn)?;
        if let Some(outcome) = lines.next().filter(|line| line.ends_with(b"\n")) {
            record.read_outcome(&object(outcome)?).map_err(torn)?;
        }
        Ok(record)
    }

    /// The line that says what came of each step.
    pub(crate) fn outcome(&self) -> String {
        let step = |step: &Step| {
            let mut o = Object::new();
            step.write_outcome(&mut o);
            o
        };
        let mut o = Object::new();
        o.set("steps", self.steps.iter().map(step).collect::<Vec<_>>());
        json::compact(&o)
    }

    fn read_outcome(&mut self, o: &Object) -> Result<(), String> {
        let outcomes = o.get("steps").and_then(Value::as_array).filter(|outcomes| outcomes.len() == self.steps.len());
        let outcomes = outcomes.ok_or("the second line: steps: not one for each step of the first")?;
        self.steps.iter_mut().zip(outcomes).try_for_each(|(step, outcome)| step.read_outcome(object_of_step(outcome)?))
    }

    fn from_json(o: &Object) -> Result<Self, String> {
        let steps = o.get("steps").and_then(Value::as_array).ok_or("steps: missing")?;
        let optional = |key: &str| o.str(key).map(str::to_owned);
        Ok(Record {
            sandbox: ContainerId::parse(text(o, "sandbox")?).map_err(|e| e.to_string())?,
            boot: text(o, "boot")?.parse().map_err(|e: linux::boot::BootIdError| format!("boot: {e}"))?,
            netns: text(o, "netns")?.into(),
            netns_id: text(o, "netnsId")?.parse().map_err(|e: linux::NetnsIdError| format!("netnsId: {e}"))?,
            netns_cookie: number(o, "netnsCookie"),
            made_at: number(o, "madeAt"),
            pod: PodView {
                namespace: text(o, "namespace")?.to_owned(),
                name: text(o, "pod")?.to_owned(),
                uid: optional("uid"),
                networks: optional("networks"),
                default_network: optional("defaultNetwork"),
                // Its attachments know their claims.
                sticky: false,
                migrates: false,
            },
            args: CniArgs::parse(o.str("args").unwrap_or_default()).map_err(|e| e.to_string())?,
            steps: steps.iter().map(Step::from_json).collect::<Result<_, _>>()?,
        })
    }
}

// === impl Step ===

impl Step {
    /// The result, if it was made.
    pub fn result(&self) -> Option<&AddResult> {
        match &self.state {
            State::Added(result) => Some(result),
            State::Intended => None,
        }
    }

    /// Whether the pod, or its author, chose the network. No other network's name has a slash.
    pub fn is_chosen(&self) -> bool {
        self.name.contains('/')
    }

    pub(crate) fn id(&self, sandbox: &ContainerId) -> AttachmentId {
        AttachmentId { network: self.list.name.clone(), container: sandbox.clone(), ifname: self.ifname.clone() }
    }

    fn to_json(&self) -> Object {
        let mut o = Object::new();
        o.set("name", self.name.as_str());
        o.set("default", self.default);
        o.set("ifname", self.ifname.as_str());
        o.set("list", text_of(&self.list.source));
        o.set("runtimeConfig", self.capability_args.clone());
        if let Some(gateways) = &self.default_route {
            o.set("defaultRoute", gateways.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        o.set(MadeBy::KEY, self.made_by.to_object());
        self.write_outcome(&mut o);
        o
    }

    /// What is known when the step is made.
    fn write_outcome(&self, o: &mut Object) {
        self.device.write(o);
        if let State::Added(result) = &self.state {
            // The newest version can express every result.
            o.set("result", result.to_value(Version::LATEST).unwrap_or_default());
        }
        if let Some(took) = self.took {
            o.set("tookMicros", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    fn read_outcome(&mut self, o: &Object) -> Result<(), String> {
        self.device = ReportedDevice::read(o)?;
        self.state = match o.get("result") {
            None => State::Intended,
            Some(result) => State::Added(AddResult::read(result, Version::LATEST).map_err(|e| e.to_string())?.0),
        };
        self.took = number(o, "tookMicros").map(Duration::from_micros);
        Ok(())
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        let o = object_of_step(value)?;
        let mut step = Step {
            name: text(o, "name")?.to_owned(),
            default: o.get("default").and_then(Value::as_bool).unwrap_or(false),
            list: NetworkList::parse(text(o, "list")?.as_bytes(), None).map_err(|e| e.to_string())?,
            ifname: IfName::parse(text(o, "ifname")?).map_err(|e| e.to_string())?,
            capability_args: o.object("runtimeConfig").cloned().unwrap_or_default(),
            default_route: o.get("defaultRoute").map(addresses).transpose()?,
            device: ReportedDevice::Nothing,
            made_by: MadeBy::read(o),
            state: State::Intended,
            took: None,
        };
        step.read_outcome(o)?;
        Ok(step)
    }
}

/// Bytes that are JSON, of which a configuration is nothing else.
fn text_of(source: &[u8]) -> String {
    std::str::from_utf8(source).map_or_else(|_| String::from_utf8_lossy(source).into_owned(), str::to_owned)
}

fn object_of_step(value: &Value) -> Result<&Object, String> {
    value.as_object().ok_or_else(|| "steps: an element is not an object".to_owned())
}

fn addresses(value: &Value) -> Result<Vec<IpAddr>, String> {
    let texts = value.as_array().ok_or("defaultRoute: no list")?;
    texts.iter().map(|t| t.as_str().and_then(|t| t.parse().ok()).ok_or_else(|| "defaultRoute: no address".to_owned())).collect()
}

fn number(o: &Object, key: &str) -> Option<u64> {
    match o.get(key) {
        Some(Value::Number(n)) => n.as_u64(),
        _ => None,
    }
}

fn text<'a>(o: &'a Object, key: &str) -> Result<&'a str, String> {
    o.str(key).ok_or_else(|| format!("{key}: missing"))
}
