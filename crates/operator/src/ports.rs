//! Pods' ports of Neutron: follow, decide with `binding`, call, again.
//!
//! ```text
//!   API server --list, watch--> known: pods, definitions, KuryrPorts --.
//!                                                                      +--> work: a binding::World --step--> calls
//!   Neutron --ports with the cluster's tag, subnets, networks ---------'              ^                         | call: many at once
//!                                                                                     '-- what came of each <---'
//! ```
//!
//! Each call is on its way by itself, and one that is slow or refused holds up what needs it and nothing else. Nothing that matters is kept
//! here: an operator that starts lists Neutron's ports by their tags, and knows as much as the one that was killed.

mod adopt;
mod call;
mod cluster_uid;
mod former_namespaces;
mod former_networks;
mod known;
mod look;
mod namespace_network;
mod numbers;
mod options;
mod pace;
mod rights;
mod tell;
mod unsure;
mod work;

use std::sync::Arc;

use kube::Client;
use neutron::Neutron;
pub use openstack::resource::Port as NeutronPort;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::adopt::{Adoption, adopt};
use self::known::{FOLLOWED, PortStore};
pub use self::look::{LookError, Orphan, OwnedPort, PoolSeen, PortsSeen, delete_orphans, delete_ready, look};
pub(crate) use self::numbers::Numbers;
pub use self::options::{NeutronRule, OpenStack, OpenStackError};
pub use self::rights::{Right, rights};
use crate::lease::Leadership;
use crate::log::Line;

/// What works.
pub(crate) struct Ports {
    client: Client,
    neutron: Neutron,
    options: OpenStack,
    known: Arc<PortStore>,
    lead: Arc<Leadership>,
    numbers: Arc<Numbers>,
    identity: String,
    /// Places for Events on their way.
    telling: Arc<Semaphore>,
}

/// So many Events are on their way at once.
const TELLING: usize = 4;

/// Starts what keeps pods' ports. Its lists and watches are its own: it needs another part of pods and definitions than the rest.
pub(crate) fn begin(tasks: &mut JoinSet<()>, client: &Client, options: OpenStack, lead: &Arc<Leadership>, identity: &str) -> Arc<Numbers> {
    for note in &options.notes {
        Line::warn("openstack").with("note", note).end();
    }
    let (known, numbers) = (Arc::new(PortStore::new(&options)), Arc::new(Numbers::default()));
    for kind in FOLLOWED {
        tasks.spawn(Arc::clone(&known).follow(client.clone(), kind));
    }
    let counted = Arc::clone(&numbers);
    let neutron = options.neutron.clone().observed(Arc::new(move |sent| counted.sent(sent)));
    if options.checks_rights {
        tasks.spawn(rights::tell(neutron.clone(), options.settings.clone(), Arc::clone(lead)));
    }
    let (client, lead, identity) = (client.clone(), Arc::clone(lead), identity.to_owned());
    let telling = Arc::new(Semaphore::new(TELLING));
    let ports = Ports { client, neutron, options, known, lead, numbers: Arc::clone(&numbers), identity, telling };
    tasks.spawn(ports.keep());
    numbers
}
