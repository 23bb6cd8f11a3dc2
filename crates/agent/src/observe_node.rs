//! What a whole node has, as `verify` reads it: its own namespace, and those of the pods that its agent has attached.
//!
//! One namespace is in memory at a time: it is written, and forgotten. An agent's container has 128 MiB, in which the agent itself is as well.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use attach::{Record, Records, Step};
use linux::{Inside, Netlink, Netns};
use verify::{Namespace, Place, Reach, Site, Snapshot, Unobserved, promise};

use crate::attached_pod::attached_pod;
use crate::observe::{PeerNamespace, observe};
use crate::settings::Settings;

/// A pod's namespace, held open.
struct Pod {
    place: Place,
    netns: Netns,
}

/// Observes the node where the caller is, and writes a [`Snapshot`] as JSON. Read only, and nothing is asked of the agent, but whether it
/// listens: it may be gone. Its [`Site`] has the node's pods with what their records promise, and no nodes: one knows nothing of the others.
///
/// `edit` may change each namespace before it is written. When `most` bytes are written, the pods that are left are named as not observed.
///
/// # Errors
/// Those of `out`.
pub fn observe_node(settings: &Settings, edit: &dyn Fn(&mut Namespace), out: &mut dyn Write, most: u64) -> io::Result<()> {
    let node = settings.node_name.as_str();
    let own = Place::Node(node.to_owned());
    let mut unobserved = Vec::new();
    let missing = |place: &Place, why: String| Unobserved { place: place.clone(), why };
    let inside = Inside::here();
    let records = match Records::new(settings.records()).sandboxes() {
        Ok(sandboxes) => sandboxes,
        Err(e) => {
            unobserved.push(missing(&own, format!("the records of its pods: {e}")));
            Vec::new()
        }
    };
    let (mut pods, mut site) = (Vec::new(), Site::default());
    let here = RefCell::new(Netlink::open(&inside).ok());
    for sandbox in records {
        let record = match Records::new(settings.records()).read(&sandbox) {
            Ok(Some(record)) => record,
            // One that goes in this moment is no loss.
            Ok(None) => continue,
            // It has no name that anybody knows: it may be any pod of the node that is not observed.
            Err(e) => {
                unobserved.push(missing(&own, format!("one of its pods: {e}")));
                continue;
            }
        };
        let place = Place::Pod(format!("{}/{}", record.pod.namespace, record.pod.name));
        match held(&record) {
            Ok(Some(netns)) => {
                let mtu =
                    |of: &Place, name: &str| if *of == own { mtu(here.borrow_mut().as_mut()?, name) } else { mtu_inside(&netns, name) };
                let (pod, limited) = attached_pod(&record, node, &mtu, &reach);
                site.pods.push(pod);
                site.limited.extend(limited);
                pods.push(Pod { place, netns });
            }
            Ok(None) => {}
            Err(why) => unobserved.push(missing(&place, why)),
        }
    }
    let mut out = Counted { out, written: 0 };
    let head = Snapshot { taken: daemon::log::now(), ..Snapshot::default() };
    write!(out, "{{\"version\":{},\"taken\":{},\"namespaces\":[", head.version, serde_json::to_string(&head.taken)?)?;
    let here = inside.netns();
    let beside: Vec<PeerNamespace<'_>> = pods.iter().map(|pod| (pod.place.clone(), &pod.netns)).collect();
    let agent = Some(UnixStream::connect(settings.socket()).is_ok());
    let mut seen = Namespace { agent, ..observe(&inside, own.clone(), None, &beside) };
    edit(&mut seen);
    serde_json::to_writer(&mut out, &seen)?;
    drop(seen);
    for pod in &pods {
        if out.written >= most {
            unobserved.push(missing(&pod.place, format!("left out: the snapshot of {node} would have more than {} MiB", most >> 20)));
            continue;
        }
        // A pod's links end on its node.
        let beside: Vec<PeerNamespace<'_>> = here.iter().map(|netns| (own.clone(), netns)).collect();
        let seen: Result<Namespace, _> = pod.netns.enter(|inside| observe(inside, pod.place.clone(), Some(node.to_owned()), &beside));
        match seen {
            Ok(mut seen) => {
                edit(&mut seen);
                out.write_all(b",")?;
                serde_json::to_writer(&mut out, &seen)?;
            }
            Err(e) => unobserved.push(missing(&pod.place, e.to_string())),
        }
    }
    write!(out, "],\"unobserved\":{},\"site\":{}}}", serde_json::to_string(&unobserved)?, serde_json::to_string(&site)?)
}

/// The MTU of a link.
fn mtu(netlink: &mut Netlink, name: &str) -> Option<u32> {
    netlink.link(name).ok().flatten().map(|link| link.mtu)
}

fn mtu_inside(netns: &Netns, name: &str) -> Option<u32> {
    netns.enter(|inside| mtu(&mut Netlink::open(inside).ok()?, name)).ok().flatten()
}

/// Whom a network's pods reach. On the default network they reach the pods of all nodes, also if another program provides it.
fn reach(step: &Step) -> Reach {
    if step.default { Reach::Everywhere } else { promise::reach(&step.list, false) }
}

/// What is written, and how much it was.
struct Counted<'a> {
    out: &'a mut dyn Write,
    written: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The namespace of a record's pod, if it is still the same one.
fn held(record: &Record) -> Result<Option<Netns>, String> {
    let Some(netns) = Netns::open(&record.netns).map_err(|e| e.to_string())? else { return Ok(None) };
    let cookie = record.netns_cookie.map_or(Ok(None), |_| netns.cookie()).map_err(|e| e.to_string())?;
    // Whether it is of this boot does not matter: no namespace outlives one.
    Ok((netns.id() == record.netns_id && cookie == record.netns_cookie).then_some(netns))
}
