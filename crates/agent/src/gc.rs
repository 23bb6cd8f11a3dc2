//! GC: what the runtime does not name goes.
//!
//! ```text
//!   records, against what the runtime names --Inventory--> kept | gone | unreadable --> sandboxes that are gone are detached
//!     --> the plugins of every network that we know free what none of those that are kept has
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use attach::{Lost, Others, PLUGIN_RECORDS, Record, RecordError, Records};
use cni::{AttachmentId, CniError, ContainerId, IfName, NetworkList, NetworkName};
use plugin::Host;

use crate::call::Request;
use crate::foreign_pods::{MULTUS, RUNTIMES};
use crate::log::Line;
use crate::settings::VifSource;
use crate::{Agent, Settings};

/// What the records hold, sorted by what the runtime names.
#[derive(Default)]
struct Inventory {
    /// Of each network one list, as text: there may be two hundred records, and parsed, a list takes a multiple.
    lists: BTreeMap<NetworkName, Vec<u8>>,
    /// The same of networks that pods chose.
    chosen_lists: BTreeMap<NetworkName, Vec<u8>>,
    /// Attachments of sandboxes that the runtime names.
    kept: Vec<AttachmentId>,
    kept_sandboxes: BTreeSet<ContainerId>,
    /// Sandboxes that it does not name.
    gone: Vec<ContainerId>,
    /// Sandboxes that it names, and whose records cannot be read.
    unreadable: Vec<ContainerId>,
    /// Why not.
    errors: Vec<CniError>,
}

// === impl Inventory ===

impl Inventory {
    fn read(records: &Records, valid: &[AttachmentId]) -> Result<Self, CniError> {
        let mut inventory = Inventory::default();
        for sandbox in records.sandboxes()? {
            let is_valid = valid.iter().any(|v| v.container == sandbox);
            match records.read(&sandbox) {
                Ok(Some(record)) => inventory.add(sandbox, record, is_valid),
                Ok(None) if is_valid => {}
                Err(e) if is_valid && !matches!(e, RecordError::Lost { .. }) => {
                    inventory.errors.push(e.into());
                    inventory.unreadable.push(sandbox);
                }
                _ => inventory.gone.push(sandbox),
            }
        }
        Ok(inventory)
    }

    fn add(&mut self, sandbox: ContainerId, record: Record, is_valid: bool) {
        if is_valid {
            self.kept.extend(attachments(&record));
            self.kept_sandboxes.insert(sandbox);
        } else {
            self.gone.push(sandbox);
        }
        for step in record.steps {
            let of_kind = if step.is_chosen() { &mut self.chosen_lists } else { &mut self.lists };
            of_kind.entry(step.list.name).or_insert(step.list.source);
        }
    }

    /// A container that the runtime names, and another program has attached.
    fn stranger<'v>(&self, valid: &'v [AttachmentId]) -> Option<&'v ContainerId> {
        let is_here = |container: &ContainerId| self.kept_sandboxes.contains(container) || self.unreadable.contains(container);
        valid.iter().map(|id| &id.container).find(|container| !is_here(container))
    }

    /// The networks whose plugins are asked what they hold besides, as text.
    ///
    /// What belongs to a record that cannot be read must stay: its pod may have anything on these networks, so that counts as valid. Of an
    /// external plugin nobody knows what else it would free, nor of a network that a pod chose: its author may have given it a name by
    /// which its collection would find the links of another network's pods, and nobody knows on which networks those are.
    fn collectable(&mut self) -> BTreeMap<NetworkName, Vec<u8>> {
        let mut lists = std::mem::take(&mut self.lists);
        let chosen = std::mem::take(&mut self.chosen_lists);
        match self.unreadable.first() {
            None => {
                for (name, source) in chosen {
                    lists.entry(name).or_insert(source);
                }
            }
            Some(container) => {
                let why =
                    "its record cannot be read: unowned resources of networks that pods selected are not freed until it can, or is gone";
                Line::warn("gc").with("container", container).with("what", why).end();
            }
        }
        lists
    }
}

impl Agent {
    /// Sandboxes that the runtime does not name go by their records; then the plugins of every network that we know free what nobody has.
    pub(crate) fn gc(&self, request: &Request, valid: &[AttachmentId], host: &mut Host) -> Result<(), CniError> {
        let default = self.default_network_now(&request.settings, request.by)?.list;
        // A plugin's own collection would free the address of a link that is retired, and still there.
        self.attacher(request).finish(&self.records.retired()?, host, request.by);
        let mut inventory = Inventory::read(&self.records, valid)?;
        inventory.lists.insert(default.name, default.source);
        let mut errors = std::mem::take(&mut inventory.errors);
        let all_detached = self.detach_gone(request, &inventory.gone, host, &mut errors);
        // Where the runtime names containers that another program attached, no plugin is asked to free what is nobody's: what they
        // have on which networks only that knows.
        let stranger = inventory.stranger(valid);
        if let Some(container) = stranger {
            let why = "another program attached it: unowned resources are not freed until the runtime has deleted it";
            Line::info("gc").with("container", container).with("what", why).end();
        }
        let lists = inventory.collectable();
        let Inventory { mut kept, unreadable, .. } = inventory;
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

    /// Whether all is gone of these sandboxes. What is not freed of one may be what a plugin's own collection would free; of one whose record
    /// cannot be read, it should.
    fn detach_gone(&self, request: &Request, gone: &[ContainerId], host: &mut Host, errors: &mut Vec<CniError>) -> bool {
        let attacher = self.attacher(request);
        let mut all_detached = true;
        for sandbox in gone {
            let mut failed = attacher.del(sandbox, Lost::EveryAddress, host, request.by).err().map(|e| e.errors).unwrap_or_default();
            if self.records.is_unreadable(sandbox) {
                failed.extend(attacher.free_known(sandbox, None, host, request.by).err().into_iter().flat_map(|e| e.errors));
            } else {
                all_detached &= failed.is_empty();
            }
            errors.extend(CniError::first_of(failed).map(|e| e.within(sandbox)));
            self.retired.forget(sandbox);
        }
        all_detached
    }

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

fn attachments(record: &Record) -> impl Iterator<Item = AttachmentId> + '_ {
    let id = |step: &attach::Step| AttachmentId {
        network: step.list.name.clone(),
        container: record.sandbox.clone(),
        ifname: step.ifname.clone(),
    };
    record.steps.iter().map(id)
}
