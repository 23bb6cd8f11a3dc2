//! `netloom`: all networks of a pod in one call, from a configuration that names them.
//!
//! ```text
//!   delegates: [default network, network, ...] --> plan --> Attacher: record, then chain after chain --> the first one's result
//! ```
//!
//! What was made is in the sandbox's record, from which DEL works alone, whatever the configuration says by then.

use std::path::{Path, PathBuf};
use std::time::Instant;

use attach::{Attacher, Plan, PodView, Records, Sandbox};
use chain::Chain;
use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, NetworkList, Version};
use json::{Object, Value};
use plugin::{About, Builtins, Call, Cx, Finder, Host, Key, Plugin, Prefer, Stage};
use plugins::BUILTINS;

/// The plugin `netloom`.
pub(crate) struct Pod {
    finder: Finder,
}

/// Where the records of sandboxes are, in a directory for each network.
const RECORDS: &str = "/var/lib/cni/netloom";

pub(crate) static ABOUT: About = About {
    name: "netloom",
    summary: "attaches the container to several networks, one after the other, in one process",
    versions: Version::ALL,
    capabilities: &[],
    keys: &[
        Key::new(
            "delegates",
            "list",
            "none, required",
            "the networks, each a configuration or a list of them; the first is the default network",
        ),
        Key::new("cniDir", "path", RECORDS, "where it keeps what it has attached"),
        Key::new("runtimeConfig", "object", "none", "of the runtime, for the first network alone"),
    ],
    needs_link: false,
};

/// The checked configuration.
struct Conf {
    networks: Vec<NetworkList>,
    records: PathBuf,
    runtime_config: Object,
}

// === impl Conf ===

impl Conf {
    fn read(config: &Config, host: &Host) -> Result<Self, CniError> {
        let raw = config.raw();
        for key in ["clusterNetwork", "defaultNetworks", "kubeconfig"] {
            if let Some(value) = raw.get(key) {
                let why = "networks of a cluster are not looked up here; name them in \"delegates\"";
                return Err(CniError::unsupported(key, json::compact(value), why));
            }
        }
        let delegates = raw.get("delegates").and_then(Value::as_array).unwrap_or_default();
        if delegates.is_empty() {
            return Err(CniError::invalid("delegates", "give a list with at least one network, the default network first"));
        }
        let network = |(at, value): (usize, &Value)| {
            NetworkList::parse(json::compact(value).as_bytes(), None).map_err(|e| CniError::from(e).within(format!("delegates[{at}]")))
        };
        let networks = delegates.iter().enumerate().map(network).collect::<Result<Vec<_>, _>>()?;
        if let Some(at) = networks.iter().position(|list| list.plugins.is_empty()) {
            return Err(CniError::invalid(&format!("delegates[{at}]"), "it has neither \"type\" nor \"plugins\""));
        }
        if let Some((at, list)) = networks.iter().enumerate().find(|(at, list)| networks.iter().take(*at).any(|l| l.name == list.name)) {
            return Err(CniError::invalid(&format!("delegates[{at}].name"), format!("{} is the name of another one too", list.name)));
        }
        let named = raw.str("cniDir").unwrap_or_default();
        let records = host.dirs.configured(named, Path::new(RECORDS)).join(config.network.as_str());
        Ok(Conf { networks, records, runtime_config: raw.object("runtimeConfig").cloned().unwrap_or_default() })
    }
}

// === impl Pod ===

impl Pod {
    /// As this process was called.
    pub(crate) fn here() -> Self {
        let path = std::env::split_paths(&std::env::var_os("CNI_PATH").unwrap_or_default()).collect();
        Pod { finder: Finder::new(BUILTINS as Builtins, path, Prefer::Path, std::env::vars_os().collect()) }
    }

    fn chain(&self) -> Chain {
        Chain::new(self.finder.clone(), None)
    }

    fn attacher(&self, records: PathBuf) -> Attacher {
        Attacher::new(self.chain(), Records::new(records))
    }

    /// The attachments of every sandbox that is still there, and the sandboxes that are not.
    fn sort(records: &Records, valid: &[AttachmentId]) -> Result<(Vec<AttachmentId>, Vec<cni::ContainerId>), CniError> {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for sandbox in records.sandboxes()? {
            if !valid.iter().any(|v| v.container == sandbox) {
                gone.push(sandbox);
                continue;
            }
            // One that cannot be read stops it all: nothing is freed on missing information.
            let steps = records.read(&sandbox)?.into_iter().flat_map(|record| record.steps);
            kept.extend(steps.map(|s| AttachmentId { network: s.list.name, container: sandbox.clone(), ifname: s.ifname }));
        }
        Ok((kept, gone))
    }
}

impl Plugin for Pod {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn add(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let conf = Conf::read(call.config, x.host)?;
        let plan = Plan::of_every_pod(conf.networks, &call.id.ifname, conf.runtime_config);
        let plan = plan.map_err(|refusals| CniError::first_of(refusals.into_iter().map(|r| r.error)).unwrap_or_else(nothing))?;
        let (container, args) = (call.id.container.clone(), call.args.clone());
        let sandbox = Sandbox { id: container.clone(), netns: call.netns()?.path().to_owned(), pod: pod(&args), args };
        let attacher = self.attacher(conf.records);
        let record = attacher.add(&sandbox, &plan, x.host, x.deadline)?;
        let deadline = x.deadline;
        x.teardown.at(Stage::Links, "detach the pod", move |host| Ok(attacher.del(&container, host, deadline)?));
        record.steps.first().and_then(|step| step.result().cloned()).ok_or_else(nothing)
    }

    fn check(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(call.config, x.host)?;
        let attacher = self.attacher(conf.records);
        let record = attacher.records().read(&call.id.container)?;
        let unknown = || CniError::new(Code::UNKNOWN_CONTAINER, format!("container {} is not attached", call.id.container));
        let bad = attacher.check(&record.ok_or_else(unknown)?, x.host, x.deadline).err().unwrap_or_default();
        CniError::first_of(bad.into_iter().map(CniError::from)).map_or(Ok(()), Err)
    }

    fn del(&self, call: &Call<'_>, x: &mut Cx<'_>) -> Result<(), CniError> {
        // The networks may be gone from the configuration, or broken: the record alone counts.
        let named = call.config.raw().str("cniDir").unwrap_or_default();
        let records = x.host.dirs.configured(named, Path::new(RECORDS)).join(call.id.network.as_str());
        let (attacher, container, deadline) = (self.attacher(records), call.id.container.clone(), x.deadline);
        x.teardown.at(Stage::Links, "detach the pod", move |host| Ok(attacher.del(&container, host, deadline)?));
        Ok(())
    }

    fn status(&self, config: &Config, x: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, x.host)?;
        let chain = self.chain();
        conf.networks.iter().try_for_each(|list| chain.status(list, x.host, x.deadline).map_err(|e| e.within(&list.name)))
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], x: &mut Cx<'_>) -> Result<(), CniError> {
        let conf = Conf::read(config, x.host)?;
        let (kept, gone) = Pod::sort(&Records::new(conf.records.clone()), valid)?;
        let deadline: Instant = x.deadline;
        for sandbox in gone {
            let attacher = self.attacher(conf.records.clone());
            x.teardown.at(Stage::Links, format!("detach {sandbox}"), move |host| Ok(attacher.del(&sandbox, host, deadline)?));
            x.teardown.next_attachment();
        }
        for list in conf.networks {
            let chain = self.chain();
            let kept: Vec<AttachmentId> = kept.iter().filter(|id| id.network == list.name).cloned().collect();
            x.teardown
                .at(Stage::Files, format!("collect what {} has left", list.name), move |host| chain.gc(&list, Some(&kept), host, deadline));
            x.teardown.next_attachment();
        }
        Ok(())
    }
}

/// What Kubernetes' runtimes tell of a pod.
fn pod(args: &CniArgs) -> PodView {
    let text = |key: &str| args.get(key).map(str::to_owned);
    PodView {
        namespace: text("K8S_POD_NAMESPACE").unwrap_or_default(),
        name: text("K8S_POD_NAME").unwrap_or_default(),
        uid: text("K8S_POD_UID"),
        ..PodView::default()
    }
}

fn nothing() -> CniError {
    CniError::new(Code::INTERNAL, "nothing was attached, and no plugin said why")
}
