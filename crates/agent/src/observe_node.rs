//! What a whole node has, as `verify` reads it: its own namespace, and those of the pods that its agent has attached.
//!
//! One namespace is in memory at a time: it is written, and forgotten. An agent's container has 128 MiB, in which the agent itself is as well.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use attach::{Record, Records};
use linux::{Inside, Netns};
use verify::{Namespace, Place, Snapshot, Unobserved};

use crate::observe::{PeerNamespace, observe};
use crate::settings::Settings;

/// A pod's namespace, held open.
struct Pod {
    place: Place,
    netns: Netns,
}

/// Observes the node where the caller is, and writes a [`Snapshot`] as JSON. Read only, and nothing is asked of the agent, but whether it
/// listens: it may be gone.
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
    let mut pods = Vec::new();
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
            Ok(Some(netns)) => pods.push(Pod { place, netns }),
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
    write!(out, "],\"unobserved\":{}}}", serde_json::to_string(&unobserved)?)
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
