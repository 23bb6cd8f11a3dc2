//! CHECK, STATUS and GC, of every attachment of a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use attach::{Lost, Others, PLUGIN_RECORDS, Record, RecordError};
use cni::{AttachmentId, CniError, Code, ContainerId, IfName, NetworkList};
use plugin::Host;

use crate::call::{Request, Sandbox};
use crate::foreign_pods::{MULTUS, RUNTIMES};
use crate::log::Line;
use crate::settings::VifSource;
use crate::{Agent, Settings};

impl Agent {
    /// Whether everything that the sandbox has is still as it was made.
    pub(crate) fn check(&self, request: &Request, sandbox: &Sandbox, host: &mut Host) -> Result<(), CniError> {
        let record = self.records.read(&sandbox.container)?;
        let unknown = || CniError::new(Code::UNKNOWN_CONTAINER, format!("container {} is not attached by this agent", sandbox.container));
        let record = record.ok_or_else(unknown)?;
        let bad = self.attacher(request).check(&record, host, request.by).err().unwrap_or_default();
        CniError::first_of(bad.into_iter().map(CniError::from)).map_or(Ok(()), Err)
    }

    /// Whether an ADD could be served now: the default network is there and says so itself, records can be written, and the
    /// agent knows what the API server knows.
    pub(crate) fn status(&self, request: &Request, host: &mut Host) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        self.records.are_writable().map_err(|e| unavailable(e.into()))?;
        let default = self.default_network_now(&request.settings, request.by).map_err(unavailable)?;
        if let Some(why) = self.cluster.synced().missing() {
            return Err(CniError::new(Code::NOT_AVAILABLE, why));
        }
        let chain = self.chain_of(request);
        let asked = self.possible_pools(&default.list).into_iter().map(|list| chain.status(&list, host, request.by));
        first_done(asked).map_err(|e| e.within(&default.list.name))
    }

    /// Whatever the runtime does not name goes: sandboxes by their records, then what the plugins of every network that we
    /// know hold besides.
    pub(crate) fn gc(&self, request: &Request, valid: &[AttachmentId], host: &mut Host) -> Result<(), CniError> {
        let mut errors: Vec<CniError> = Vec::new();
        // Of each name one, as text: there may be two hundred records, and read, a network takes a multiple.
        let default = self.default_network_now(&request.settings, request.by)?.list;
        let mut lists = BTreeMap::from([(default.name, default.source)]);
        let mut chosen_lists = BTreeMap::new();
        let (mut kept, mut gone): (Vec<AttachmentId>, Vec<ContainerId>) = (Vec::new(), Vec::new());
        let mut kept_sandboxes: BTreeSet<ContainerId> = BTreeSet::new();
        let mut unreadable: Vec<ContainerId> = Vec::new();
        let attacher = self.attacher(request);
        // A plugin's own collection would free the address of a link that is retired, and still there.
        attacher.finish(&self.records.retired()?, host, request.by);
        for sandbox in self.records.sandboxes()? {
            let is_valid = valid.iter().any(|v| v.container == sandbox);
            match self.records.read(&sandbox) {
                Ok(Some(record)) => {
                    if is_valid {
                        kept.extend(attachments(&record));
                        kept_sandboxes.insert(sandbox);
                    } else {
                        gone.push(sandbox);
                    }
                    for step in record.steps {
                        let of_kind = if step.is_chosen() { &mut chosen_lists } else { &mut lists };
                        of_kind.entry(step.list.name).or_insert(step.list.source);
                    }
                }
                Ok(None) if is_valid => {}
                Err(e) if is_valid && !matches!(e, RecordError::Lost { .. }) => {
                    errors.push(e.into());
                    unreadable.push(sandbox);
                }
                _ => gone.push(sandbox),
            }
        }
        // What is not freed of a sandbox may be what a plugin's own collection would free; of one whose record cannot be read, it should.
        let mut all_detached = true;
        for sandbox in gone {
            let mut failed = attacher.del(&sandbox, Lost::EveryAddress, host, request.by).err().map(|e| e.errors).unwrap_or_default();
            if self.records.is_unreadable(&sandbox) {
                failed.extend(attacher.free_known(&sandbox, None, host, request.by).err().into_iter().flat_map(|e| e.errors));
            } else {
                all_detached &= failed.is_empty();
            }
            errors.extend(CniError::first_of(failed).map(|e| e.within(&sandbox)));
            self.retired.forget(&sandbox);
        }
        // Where the runtime names containers that another program attached, no plugin is asked to free what is nobody's: what they
        // have on which networks only that knows.
        let is_here = |id: &AttachmentId| kept_sandboxes.contains(&id.container) || unreadable.contains(&id.container);
        let stranger = valid.iter().find(|id| !is_here(id));
        if let Some(stranger) = stranger {
            let why = "another program attached it: unowned resources are not freed until the runtime has deleted it";
            Line::info("gc").with("container", &stranger.container).with("what", why).end();
        }
        // What belongs to a record that cannot be read must stay: whatever its pod may have on these networks counts as valid. Of an
        // external plugin nobody knows what else it would free, nor of a network that a pod chose: its author may have given it a name by
        // which its collection would find the links of another network's pods, and nobody knows on which networks those are.
        match unreadable.first() {
            None => {
                for (name, source) in chosen_lists {
                    lists.entry(name).or_insert(source);
                }
            }
            Some(container) => {
                let why =
                    "its record cannot be read: unowned resources of networks that pods selected are not freed until it can, or is gone";
                Line::warn("gc").with("container", container).with("what", why).end();
            }
        }
        let others = others(&request.settings);
        if let Some(e) = others.unreadable.first() {
            let why = "what another program has attached cannot be read: unowned resources are not freed until it can, or is gone";
            Line::warn("gc").with("error", e).with("what", why).end();
        }
        kept.extend(others.attachments);
        let names = self.interface_names(valid, &unreadable);
        let is_sure = all_detached && others.unreadable.is_empty() && (unreadable.is_empty() || names.is_some());
        if stranger.is_none() && is_sure {
            let lists = lists.into_values().filter_map(|source| NetworkList::parse(&source, None).ok());
            errors.extend(self.collect(request, lists, &kept, (&unreadable, names.as_ref()), host));
        }
        if self.settings.vifs.source != VifSource::Nowhere {
            errors.extend(self.collect_of_kuryr(host, request.by).err());
        }
        CniError::first_of(errors).map_or(Ok(()), Err)
    }
}

impl Agent {
    /// Lets the plugins of each network free what none of these attachments has, nor any of a sandbox whose record cannot be read.
    fn collect(
        &self,
        request: &Request,
        lists: impl Iterator<Item = NetworkList>,
        kept: &[AttachmentId],
        (unreadable, names): (&[ContainerId], Option<&BTreeSet<IfName>>),
        host: &mut Host,
    ) -> Vec<CniError> {
        let chain = self.chain_of(request);
        let mut errors = Vec::new();
        for list in lists {
            if !unreadable.is_empty() && !chain.is_builtin(&list) {
                continue;
            }
            let may_be = |container: &ContainerId| {
                let id =
                    |ifname: &IfName| AttachmentId { network: list.name.clone(), container: container.clone(), ifname: ifname.clone() };
                names.into_iter().flatten().map(id).collect::<Vec<_>>()
            };
            // A definition may have a name by which its collection would find the links of another network's pods.
            let own = kept.iter().filter(|id| plugins::look_alike(&id.network, &list.name)).cloned();
            let own: Vec<AttachmentId> = own.chain(unreadable.iter().flat_map(may_be)).collect();
            // An ADD of another program may end while ours are looked at.
            let others = || others(&request.settings).on(|network| plugins::look_alike(network, &list.name));
            errors.extend(chain.gc_beside(&list, Some(&own), &others, host, request.by).err().map(|e| e.within(&list.name)));
        }
        errors
    }

    /// The names that interfaces of the node's pods may have: that which the runtime names, those that are given in order, and
    /// those that any pod asks for. `None` while the pods are not all known, and where none is asked for.
    fn interface_names(&self, valid: &[AttachmentId], unreadable: &[ContainerId]) -> Option<BTreeSet<IfName>> {
        if unreadable.is_empty() || self.cluster.synced().missing().is_some() {
            return None;
        }
        let pods = self.cluster.pods();
        if pods.iter().any(|pod| !pod.is_whole) {
            return None;
        }
        let asked = pods.iter().flat_map(|pod| {
            let networks = pod.networks.as_deref().and_then(|text| npwg::parse(text, &pod.namespace).ok()).unwrap_or_default();
            let default = pod.default_network.as_deref().and_then(|text| npwg::default_network(text, &pod.namespace).ok());
            networks.into_iter().chain(default).filter_map(|selection| selection.interface)
        });
        let given = (0..=npwg::MAX_ELEMENTS).filter_map(|number| IfName::parse(&format!("net{number}")).ok());
        Some(valid.iter().map(|id| id.ifname.clone()).chain(asked).chain(given).collect())
    }
}

/// What runtimes and their plugins have attached without the agent, on networks whose names may be those of its own.
fn others(settings: &Settings) -> Others {
    let runtimes = settings.plugin_state_dir.as_deref().unwrap_or(Path::new(RUNTIMES));
    let mut others = Others::default();
    let records = Path::new(PLUGIN_RECORDS).file_name().unwrap_or_default();
    others.add_records_below(&runtimes.join(records));
    others.add_cached(runtimes);
    others.add_cached(&runtimes.join(MULTUS));
    others
}

/// The first of several that succeeds; else the first one's error.
pub(crate) fn first_done(mut of: impl Iterator<Item = Result<(), CniError>>) -> Result<(), CniError> {
    match of.next() {
        Some(Err(e)) if of.all(|one| one.is_err()) => Err(e),
        _ => Ok(()),
    }
}

fn attachments(record: &Record) -> impl Iterator<Item = AttachmentId> + '_ {
    let id = |step: &attach::Step| AttachmentId {
        network: step.list.name.clone(),
        container: record.sandbox.clone(),
        ifname: step.ifname.clone(),
    };
    record.steps.iter().map(id)
}
